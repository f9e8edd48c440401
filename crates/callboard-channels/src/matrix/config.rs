//! The settings of a channel, and whether it reaches its server.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use callboard::messages::Envelope;
use ruma_identifiers_validation::{room_id, user_id};

use super::api::{Api, address};
use super::error::MatrixError;
use super::token::AccessToken;

/// The type of the field of a card that has the data of the question.
const EVENT_TYPE: &str = "com.aiagentchat.request";
/// The longest type of events, in bytes. Matrix has 255; the answers have a suffix.
const MAX_EVENT_TYPE: usize = 200;
/// The most rooms.
const MAX_ROOMS: usize = 16;
/// How long the server is asked to wait for something to report.
pub(super) const POLL: Duration = Duration::from_secs(30);
/// The least and the greatest delay before a call is made again that has failed.
pub(super) const DELAYS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];
/// The file in the folder of the channel.
pub(super) const FILE: &str = "matrix.json";

/// How a question is seen in full, as a message says it.
type HowToSee = Arc<dyn Fn(&Envelope) -> String + Send + Sync>;

/// The settings of a channel.
#[derive(Clone)]
pub struct MatrixConfig {
    pub(super) homeserver: String,
    pub(super) token: AccessToken,
    pub(super) folder: PathBuf,
    pub(super) people: BTreeMap<String, Arc<str>>,
    pub(super) rooms: BTreeSet<String>,
    pub(super) event_type: String,
    pub(super) how_to_see: HowToSee,
    pub(super) poll: Duration,
    pub(super) delays: [Duration; 2],
}

impl MatrixConfig {
    /// The settings of the account with this token at this homeserver, which without TLS has to be on this machine. What it has sent is
    /// kept in this folder, which is created with the mode 0700.
    #[must_use]
    pub fn new(homeserver: &str, token: AccessToken, folder: impl Into<PathBuf>) -> Self {
        Self {
            homeserver: homeserver.to_owned(),
            token,
            folder: folder.into(),
            people: BTreeMap::new(),
            rooms: BTreeSet::new(),
            event_type: EVENT_TYPE.to_owned(),
            how_to_see: Arc::new(|envelope| format!("callboard pending approval:{}", envelope.id())),
            poll: POLL,
            delays: DELAYS,
        }
    }

    /// Adds a person who may decide: the id of the account, such as `@ann:example.org`, and the name that decisions have.
    #[must_use]
    pub fn person(mut self, account: &str, name: &str) -> Self {
        self.people.insert(account.to_owned(), name.into());
        self
    }

    /// Adds a room in which questions are asked, by its id, such as `!approvals:example.org`. The account joins it when it is invited.
    #[must_use]
    pub fn room(mut self, room: &str) -> Self {
        self.rooms.insert(room.to_owned());
        self
    }

    /// Sets the name of the field of messages with the data of their questions (`com.aiagentchat.request`). Programs answer with events
    /// of this type and `.answer`.
    #[must_use]
    pub fn event_type(mut self, event_type: &str) -> Self {
        event_type.clone_into(&mut self.event_type);
        self
    }

    /// Sets how a message that is cut says where all of it is seen. By default it names the command `callboard pending`.
    #[must_use]
    pub fn how_to_see(mut self, how: impl Fn(&Envelope) -> String + Send + Sync + 'static) -> Self {
        self.how_to_see = Arc::new(how);
        self
    }

    /// Sets how long the server is asked to wait for something to report (30 s).
    #[must_use]
    pub fn poll_time(mut self, time: Duration) -> Self {
        self.poll = time;
        self
    }

    /// Sets the least (1 s) and the greatest (60 s) delay before a call is made again that has failed.
    #[must_use]
    pub fn delays(mut self, least: Duration, greatest: Duration) -> Self {
        self.delays = [least, greatest];
        self
    }

    /// Checks the address of a homeserver.
    ///
    /// # Errors
    /// [`MatrixError::Address`]: [`MatrixChannel::open`](super::MatrixChannel::open) would refuse it.
    pub fn check_homeserver(url: &str) -> Result<(), MatrixError> {
        address(url).map(drop)
    }

    /// Checks the id of a room.
    ///
    /// # Errors
    /// [`MatrixError::Name`]: [`MatrixChannel::open`](super::MatrixChannel::open) would refuse it.
    pub fn check_room(room: &str) -> Result<(), MatrixError> {
        let mut why = room_id::validate(room).map_err(|error| error.to_string());
        if room.len() == 1 || room.starts_with("!:") {
            why = Err("it has no characters after the `!`".to_owned());
        }
        name(room, "the id of a room, such as \"!approvals:example.org\" (an alias, with a #, is none)", why)
    }

    /// Checks the id of an account.
    ///
    /// # Errors
    /// [`MatrixError::Name`]: [`MatrixChannel::open`](super::MatrixChannel::open) would refuse it.
    pub fn check_account(account: &str) -> Result<(), MatrixError> {
        let why = user_id::validate(account).map_err(|error| error.to_string());
        name(account, "the id of an account, such as \"@ann:example.org\"", why)
    }

    /// Checks the type of events.
    ///
    /// # Errors
    /// [`MatrixError::Name`]: [`MatrixChannel::open`](super::MatrixChannel::open) would refuse it.
    pub fn check_event_type(event_type: &str) -> Result<(), MatrixError> {
        let is_part = |part: &str| {
            !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c))
        };
        let is_type = event_type.contains('.') && event_type.split('.').all(is_part);
        let why = if event_type.starts_with("m.") {
            Err("those that begin with `m.` are Matrix's own".to_owned())
        } else if !is_type || event_type.len() > MAX_EVENT_TYPE {
            Err("it has small letters, digits, `-` and `_` with dots between them".to_owned())
        } else {
            Ok(())
        };
        name(event_type, "a type of events, such as \"com.example.request\"", why)
    }

    pub(super) fn check(&self) -> Result<(), MatrixError> {
        if !(1..=MAX_ROOMS).contains(&self.rooms.len()) {
            return Err(MatrixError::Rooms(self.rooms.len()));
        }
        self.rooms.iter().try_for_each(|room| Self::check_room(room))?;
        self.people.keys().try_for_each(|account| Self::check_account(account))?;
        Self::check_event_type(&self.event_type)
    }

    /// Asks the homeserver for the id of the account, and whether each room can be used; a text for each room that cannot.
    ///
    /// # Errors
    /// Why there is no answer, as a person reads it; the token is not in it.
    pub async fn look(&self) -> Result<(String, Vec<String>), String> {
        let shown = |error: &dyn fmt::Display| error.to_string();
        let api = Api::new(&self.homeserver, self.token.clone()).map_err(|error| shown(&error))?;
        let account = api.account().await.map_err(|error| shown(&error))?;
        let mut unusable = Vec::new();
        for room in &self.rooms {
            if let Err(trouble) = api.look(room, false).await.map_err(|error| shown(&error))? {
                unusable.push(trouble.text(room, &account));
            }
        }
        Ok((account, unusable))
    }
}

fn name(given: &str, expected: &'static str, why: Result<(), String>) -> Result<(), MatrixError> {
    why.map_err(|why| MatrixError::Name { given: given.chars().take(100).collect(), expected, why })
}

impl fmt::Debug for MatrixConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MatrixConfig").field("people", &self.people).field("rooms", &self.rooms).finish_non_exhaustive()
    }
}

/// Whether the channel reaches its homeserver.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MatrixState {
    /// It has not been called yet.
    Starting,
    /// It answers, for the account with this id.
    Reached {
        /// The id of the account.
        account: String,
        /// A text for each room that is not used, or not as it could be: which one, why, and what to do.
        unusable: Vec<String>,
    },
    /// It does not answer, or refuses; it is called again.
    Unreachable {
        /// Why, as a person reads it.
        why: String,
    },
}
