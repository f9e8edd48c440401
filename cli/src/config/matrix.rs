//! `[matrix]`: the account by which people are asked for approvals in rooms of Matrix.

use std::path::Path;

use callboard_channels::matrix::{AccessToken, MatrixConfig, MatrixError};
use callboard_documents::toml::{Field, Fields, Item, list, misfit, string, text};
use callboard_documents::{Defect, Found, Place};
use callboard_text::quoted;

use super::people;
use super::secret_source::{SecretKeys, SecretSource, Unusable};
use crate::page::Failure;

/// The secret, in words.
pub(crate) const TOKEN: &str = "the access token of the account";

const EXAMPLE: &str = "write [matrix], and below it homeserver = \"https://matrix.example.org\", token_file = \"matrix.token\" and rooms = [\"!id:example.org\"]";
const EXAMPLE_ROOMS: &str = "write rooms = [\"!approvals:example.org\"]";
/// The most rooms.
const MAX_ROOMS: usize = 16;

/// What the file sets.
#[derive(Debug)]
pub(crate) struct Section {
    homeserver: String,
    pub(crate) token: SecretSource,
    rooms: Vec<String>,
    event_type: Option<String>,
    place: Place,
}

impl Section {
    /// Relative paths are those of `folder`.
    pub(super) fn read(item: &Item<'_>, folder: &Path, found: &mut Found) -> Option<Self> {
        let mut fields = Fields::of("the section `matrix`", item, EXAMPLE, found)?;
        let keys = SecretKeys {
            what: TOKEN.to_owned(),
            file: "token_file",
            variable: "token_env",
            owner: "the section `matrix`".to_owned(),
            example: EXAMPLE,
        };
        let token = SecretSource::read(&mut fields, &keys, folder, found);
        let homeserver = fields.required("homeserver", EXAMPLE, found);
        let check = MatrixConfig::check_homeserver;
        let homeserver = homeserver.and_then(|field| checked(field, "the address of a homeserver", check, found));
        let rooms = fields.required("rooms", EXAMPLE_ROOMS, found).map(|field| rooms(field, found));
        let event_type = fields.field("event_type");
        let check = MatrixConfig::check_event_type;
        let event_type = event_type.and_then(|field| checked(field, "a type of events", check, found));
        let place = Some(fields.place.clone());
        fields.close(found);
        Some(Self { homeserver: homeserver?, token: token?, rooms: rooms?, event_type, place })
    }

    /// # Errors
    /// `callboard serve` would refuse the token. Tools of agents work in `root`.
    pub(super) fn check(&self, root: &Path) -> Result<(), Unusable> {
        self.token.check(TOKEN, root, AccessToken::new)
    }

    /// The defect of rooms in which nobody could decide.
    pub(super) fn undecidable(&self, people: &people::Section) -> Option<Defect> {
        let problem = "nobody in [people] has an account on Matrix, so nobody could decide in the rooms";
        let defect =
            || Defect::new(&self.place, problem).advise("write `matrix = [\"@ann:example.org\"]` for a person");
        people.on_matrix().next().is_none().then(defect)
    }

    /// The settings of the channel, which keeps what it has sent in this folder.
    ///
    /// # Errors
    /// There is no token.
    pub(crate) fn config(&self, people: &people::Section, folder: &Path) -> Result<MatrixConfig, Failure> {
        let token = self.token.secret(TOKEN, AccessToken::new)?;
        let config = MatrixConfig::new(&self.homeserver, token, folder);
        let config = people.on_matrix().fold(config, |config, (account, person)| config.person(account, person));
        let config = self.rooms.iter().fold(config, |config, room| config.room(room));
        Ok(self.event_type.iter().fold(config, |config, event_type| config.event_type(event_type)))
    }
}

/// A text that the channel takes.
fn checked(
    field: Field<'_>,
    expected: &str,
    check: fn(&str) -> Result<(), MatrixError>,
    found: &mut Found,
) -> Option<String> {
    let given = text(field, found)?.value;
    let refused = check(&given).err();
    if let Some(error) = &refused {
        found.add(misfit(field.0, expected, field.1).advise(error.to_string()));
    }
    refused.is_none().then_some(given)
}

fn rooms(field: Field<'_>, found: &mut Found) -> Vec<String> {
    let items = list(field, EXAMPLE_ROOMS, found);
    if field.1.get_ref().as_array().is_some() && !(1..=MAX_ROOMS).contains(&items.len()) {
        let problem = format!("there are {} rooms, and there may be from 1 to {MAX_ROOMS}", items.len());
        found.add(Defect::new(&Some(field.1.span()), problem).advise(EXAMPLE_ROOMS));
    }
    const EXPECTED: &str = "a list of ids of rooms";
    let mut rooms: Vec<String> = Vec::new();
    for item in items {
        let Some(room) = string("a room", "the id of one", item, found) else { continue };
        match MatrixConfig::check_room(room) {
            Ok(()) if room.len() == 1 || room.starts_with("!:") => {
                found.add(misfit("rooms", EXPECTED, item).advise(EXAMPLE_ROOMS));
            }
            Ok(()) if rooms.iter().any(|other| other == room) => {
                let problem = format!("the room {} is there twice", quoted(room));
                found.add(Defect::new(&Some(item.span()), problem).advise("name it once"));
            }
            Ok(()) => rooms.push(room.to_owned()),
            Err(error) => found.add(misfit("rooms", EXPECTED, item).advise(error.to_string())),
        }
    }
    rooms
}
