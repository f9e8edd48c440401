//! `[matrix]`: the account by which people are asked for approvals, and give agents tasks, in rooms of Matrix.

use std::collections::BTreeSet;
use std::path::Path;

use callboard::messages::AgentName;
use callboard_channels::matrix::{AccessToken, AgentRoomsConfig, MatrixConfig, MatrixError};
use callboard_documents::toml::{DeValue, Field, Fields, Item, list, misfit, mismatch, string, text};
use callboard_documents::{Defect, Found, Place};
use callboard_text::{did_you_mean, nearest, quoted};

use super::people;
use super::secret_source::{SecretKeys, SecretSource, Unusable};
use crate::page::Failure;

/// The secret, in words.
pub(crate) const TOKEN: &str = "the access token of the account";

const EXAMPLE: &str = "write [matrix], and below it homeserver = \"https://matrix.example.org\", token_file = \"matrix.token\" and rooms = [\"!id:example.org\"]";
const EXAMPLE_ROOMS: &str = "write rooms = [\"!approvals:example.org\"]";
const EXAMPLE_AGENTS: &str = "write [matrix.agents], and below it coder = \"!coder:example.org\"";
/// The most rooms, and the most of agents.
const MAX_ROOMS: usize = 16;
const MAX_AGENTS: usize = 64;

/// What the file sets.
#[derive(Debug)]
pub(crate) struct Section {
    homeserver: String,
    pub(crate) token: SecretSource,
    rooms: Vec<String>,
    event_type: Option<String>,
    agents: Vec<AgentRoom>,
    space: Option<String>,
    event_prefix: Option<String>,
    place: Place,
}

/// An agent that gets tasks in a room.
#[derive(Debug)]
struct AgentRoom {
    agent: String,
    room: String,
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
        let agents = fields.get("agents");
        let rooms_field = match &agents {
            None => fields.required("rooms", EXAMPLE_ROOMS, found),
            Some(_) => fields.field("rooms"),
        };
        let is_complete = agents.or(rooms_field.map(|(_, item)| item)).is_some();
        let rooms = rooms_field.map(|field| rooms(field, found)).unwrap_or_default();
        let space = fields.field("space");
        let space = space.and_then(|field| checked(field, "the id of a space", MatrixConfig::check_room, found));
        let taken: Vec<&str> = rooms.iter().chain(&space).map(String::as_str).collect();
        let agents = agents.map(|item| self::agents(item, &taken, found)).unwrap_or_default();
        let mut of_events = |key, expected| {
            let field = fields.field(key);
            field.and_then(|field| checked(field, expected, MatrixConfig::check_event_type, found))
        };
        let event_type = of_events("event_type", "a type of events");
        let event_prefix = of_events("event_prefix", "what types of events begin with");
        let place = Some(fields.place.clone());
        fields.close(found);
        let section =
            Self { homeserver: homeserver?, token: token?, rooms, event_type, agents, space, event_prefix, place };
        Some(section).filter(|_| is_complete)
    }

    /// # Errors
    /// `callboard serve` would refuse the token. Tools of agents work in `root`.
    pub(super) fn check(&self, root: &Path) -> Result<(), Unusable> {
        self.token.check(TOKEN, root, AccessToken::new)
    }

    /// Whether people decide there.
    pub(super) fn asks(&self) -> bool {
        !self.rooms.is_empty()
    }

    /// Whether people give agents tasks there.
    pub(crate) fn has_agents(&self) -> bool {
        !self.agents.is_empty()
    }

    /// The defects of agents that are not among these.
    pub(super) fn unknown<'s>(&'s self, agents: &'s BTreeSet<String>) -> impl Iterator<Item = Defect> + use<'s> {
        let unknown = self.agents.iter().filter(|room| !agents.contains(&room.agent));
        unknown.map(|AgentRoom { agent, place, .. }| {
            let likely = nearest(agent, agents.iter().map(String::as_str));
            let problem = format!("there is no agent {}{}", quoted(agent), did_you_mean(likely.as_deref()));
            Defect::new(place, problem).advise("name an agent of the project, or remove its room")
        })
    }

    /// The defect of rooms in which nobody could do anything.
    pub(super) fn undecidable(&self, people: &people::Section) -> Option<Defect> {
        let purpose = if self.asks() { "decide" } else { "give tasks" };
        let problem = format!("nobody in [people] has an account on Matrix, so nobody could {purpose} in the rooms");
        let defect =
            || Defect::new(&self.place, problem).advise("write `matrix = [\"@ann:example.org\"]` for a person");
        people.on_matrix().next().is_none().then(defect)
    }

    /// Why nobody could give tasks, if agents have rooms: `may_delegate` says who could.
    pub(super) fn undelegable(
        &self,
        people: &people::Section,
        may_delegate: &BTreeSet<String>,
    ) -> Option<&'static str> {
        let is_able = people.on_matrix().any(|(_, person)| may_delegate.contains(person));
        let why = "nobody with an account on Matrix has a token with the scope delegate, so nobody could give agents tasks in their rooms; \
                   add one: callboard tokens add NAME --owner PERSON --scope delegate";
        (self.has_agents() && !is_able).then_some(why)
    }

    /// The settings of the rooms of agents, which keep what was asked in this folder.
    ///
    /// # Errors
    /// There is no token.
    pub(crate) fn agents_config(&self, people: &people::Section, folder: &Path) -> Result<AgentRoomsConfig, Failure> {
        let token = self.token.secret(TOKEN, AccessToken::new)?;
        let config = AgentRoomsConfig::new(&self.homeserver, token, folder);
        let config = people.on_matrix().fold(config, |config, (account, person)| config.person(account, person));
        let config = self.agents.iter().fold(config, |config, room| config.agent(&room.agent, &room.room));
        let config = self.space.iter().fold(config, |config, space| config.space(space));
        Ok(self.event_prefix.iter().fold(config, |config, prefix| config.event_prefix(prefix)))
    }

    /// The settings of the channel, which keeps what it has sent in this folder; `None` if people are asked in no room.
    ///
    /// # Errors
    /// There is no token.
    pub(crate) fn config(&self, people: &people::Section, folder: &Path) -> Result<Option<MatrixConfig>, Failure> {
        if !self.asks() {
            return Ok(None);
        }
        let token = self.token.secret(TOKEN, AccessToken::new)?;
        let config = MatrixConfig::new(&self.homeserver, token, folder);
        let config = people.on_matrix().fold(config, |config, (account, person)| config.person(account, person));
        let config = self.rooms.iter().fold(config, |config, room| config.room(room));
        Ok(Some(self.event_type.iter().fold(config, |config, event_type| config.event_type(event_type))))
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

/// Agents with their rooms, of which none may be among those that are taken.
fn agents<'t>(item: &'t Item<'t>, taken: &[&str], found: &mut Found) -> Vec<AgentRoom> {
    const EXPECTED: &str = "the id of the room of an agent";
    let DeValue::Table(table) = item.get_ref() else {
        found.add(mismatch("the section `matrix.agents`", "a table", item).advise(EXAMPLE_AGENTS));
        return Vec::new();
    };
    if !(1..=MAX_AGENTS).contains(&table.len()) {
        let problem = format!("there are {} agents, and there may be from 1 to {MAX_AGENTS}", table.len());
        found.add(Defect::new(&Some(item.span()), problem).advise(EXAMPLE_AGENTS));
    }
    let mut rooms: Vec<AgentRoom> = Vec::new();
    for (agent, item) in table.iter() {
        if let Err(error) = AgentName::new(agent.get_ref()) {
            found.add(Defect::new(&Some(agent.span()), error.to_string()));
        }
        let Some(room) = string(agent.get_ref(), EXPECTED, item, found) else { continue };
        let is_twice = taken.contains(&room) || rooms.iter().any(|other| other.room == room);
        match MatrixConfig::check_room(room) {
            Err(error) => found.add(misfit(agent.get_ref(), EXPECTED, item).advise(error.to_string())),
            Ok(()) if is_twice => {
                let problem = format!("the room {} is there twice", quoted(room));
                found.add(Defect::new(&Some(item.span()), problem).advise("give each agent a room of its own"));
            }
            Ok(()) => rooms.push(AgentRoom {
                agent: agent.get_ref().to_string(),
                room: room.to_owned(),
                place: Some(agent.span()),
            }),
        }
    }
    rooms
}
