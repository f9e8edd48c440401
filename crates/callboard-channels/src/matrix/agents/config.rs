//! The settings of rooms of agents.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use callboard::messages::{AgentName, Pending, RunId};

use crate::matrix::api::Api;
use crate::matrix::config::{DELAYS, MatrixConfig, POLL};
use crate::matrix::error::MatrixError;
use crate::matrix::token::AccessToken;

/// What the types of events begin with.
const EVENT_PREFIX: &str = "com.aiagentchat";
/// The most rooms.
const MAX_ROOMS: usize = 64;
/// How often news of a request are sent at most.
const NOTICES_EVERY: Duration = Duration::from_secs(5);

/// How something is seen, as a status says it.
type How<T> = Arc<dyn Fn(&T) -> String + Send + Sync>;

/// The settings of rooms in which agents get tasks.
#[derive(Clone)]
pub struct AgentRoomsConfig {
    pub(super) homeserver: String,
    pub(super) token: AccessToken,
    pub(super) folder: PathBuf,
    pub(super) people: BTreeMap<String, Arc<str>>,
    /// Agents with their rooms, as they were given.
    given: Vec<(String, String)>,
    pub(super) space: Option<String>,
    pub(super) prefix: String,
    pub(super) how_to_see: How<RunId>,
    pub(super) how_to_answer: How<Pending>,
    pub(super) poll: Duration,
    pub(super) delays: [Duration; 2],
    pub(super) notices_every: Duration,
}

impl AgentRoomsConfig {
    /// The settings of the account with this token at this homeserver, which without TLS has to be on this machine. What was asked
    /// there is kept in this folder, which is created with the mode 0700.
    #[must_use]
    pub fn new(homeserver: &str, token: AccessToken, folder: impl Into<PathBuf>) -> Self {
        Self {
            homeserver: homeserver.to_owned(),
            token,
            folder: folder.into(),
            people: BTreeMap::new(),
            given: Vec::new(),
            space: None,
            prefix: EVENT_PREFIX.to_owned(),
            how_to_see: Arc::new(|run| format!("callboard runs show {run}")),
            how_to_answer: Arc::new(|pending| format!("callboard pending {}", pending.id())),
            poll: POLL,
            delays: DELAYS,
            notices_every: NOTICES_EVERY,
        }
    }

    /// Adds a person: the id of the account, such as `@ann:example.org`, and the name.
    #[must_use]
    pub fn person(mut self, account: &str, name: &str) -> Self {
        self.people.insert(account.to_owned(), name.into());
        self
    }

    /// Adds an agent with its room, by the id of that, such as `!writer:example.org`. The account joins it when it is invited.
    #[must_use]
    pub fn agent(mut self, name: &str, room: &str) -> Self {
        self.given.push((name.to_owned(), room.to_owned()));
        self
    }

    /// Sets the space in which the rooms are found, by its id.
    #[must_use]
    pub fn space(mut self, space: &str) -> Self {
        self.space = Some(space.to_owned());
        self
    }

    /// Sets what the types of events begin with (`com.aiagentchat`): `.request`, `.status` and `.role` follow.
    #[must_use]
    pub fn event_prefix(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.prefix);
        self
    }

    /// Sets how a status whose text is cut says where all of it is seen. By default it names the command `callboard runs show`.
    #[must_use]
    pub fn how_to_see(mut self, how: impl Fn(&RunId) -> String + Send + Sync + 'static) -> Self {
        self.how_to_see = Arc::new(how);
        self
    }

    /// Sets how a status says where a person answers what a run waits for. By default it names the command `callboard pending`.
    #[must_use]
    pub fn how_to_answer(mut self, how: impl Fn(&Pending) -> String + Send + Sync + 'static) -> Self {
        self.how_to_answer = Arc::new(how);
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

    /// Sets how often news of a request are sent at most (every 5 s); of several in that time the newest is sent.
    #[must_use]
    pub fn notices_every(mut self, time: Duration) -> Self {
        self.notices_every = time;
        self
    }

    /// The agents, by the ids of their rooms.
    pub(super) fn agents(&self) -> Result<BTreeMap<String, AgentName>, MatrixError> {
        let mut agents = BTreeMap::new();
        for (name, room) in &self.given {
            let wrong = |given: &str, expected, why| MatrixError::Name { given: given.to_owned(), expected, why };
            let agent = AgentName::new(name)
                .map_err(|error| wrong(name, "the name of an agent, such as \"writer\"", error.to_string()))?;
            MatrixConfig::check_room(room)?;
            if agents.insert(room.clone(), agent).is_some() || self.space.as_ref() == Some(room) {
                return Err(wrong(room, "the room of one agent", "it is named twice".to_owned()));
            }
        }
        if (1..=MAX_ROOMS).contains(&agents.len()) { Ok(agents) } else { Err(MatrixError::Agents(agents.len())) }
    }

    pub(super) fn check(&self) -> Result<(), MatrixError> {
        self.space.iter().try_for_each(|space| MatrixConfig::check_room(space))?;
        self.people.keys().try_for_each(|account| MatrixConfig::check_account(account))?;
        MatrixConfig::check_event_type(&self.prefix)
    }

    /// The rooms that are followed: those of agents, and the space.
    pub(super) fn listed(&self) -> BTreeSet<String> {
        self.given.iter().map(|(_, room)| room.clone()).chain(self.space.clone()).collect()
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
        for room in self.listed() {
            let is_private = self.space.as_ref() != Some(&room);
            if let Err(trouble) = api.look(&room, is_private).await.map_err(|error| shown(&error))? {
                unusable.push(trouble.text(&room, &account));
            }
        }
        Ok((account, unusable))
    }
}

impl fmt::Debug for AgentRoomsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("AgentRoomsConfig");
        shown.field("people", &self.people).field("agents", &self.given).field("space", &self.space);
        shown.finish_non_exhaustive()
    }
}
