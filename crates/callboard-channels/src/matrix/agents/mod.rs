//! Rooms in which agents get tasks: each agent has a room of its own, and people and other programs who are invited write there.
//!
//! An event of the type `com.aiagentchat.request`, or a message, is a task of the room's agent; statuses of the type `com.aiagentchat.status`,
//! or replies, show what becomes of it. Who asks is the account that the homeserver reports, if that is listed: in whose name its person gives tasks
//! now is asked for each one. All tasks are untrusted, because a homeserver can write in the name of any of its accounts.
//!
//! A task is submitted with an id that follows from its event, noted in a file of this user alone, and acknowledged then: an event that is sent again
//! starts nothing, and a later process sends what is left.
//!
//! ```no_run
//! use callboard::messages::AgentName;
//! use callboard::prelude::*;
//! use callboard_channels::matrix::{AccessToken, AgentRooms, AgentRoomsConfig};
//! # async fn start(token: &str, board: Callboard) -> Result<(), Box<dyn std::error::Error>> {
//! let config = AgentRoomsConfig::new("https://matrix.example.org", AccessToken::new(token)?, "/var/lib/team/matrix")
//!     .agent("writer", "!writer:example.org")
//!     .person("@ann:example.org", "ann");
//! let rooms = AgentRooms::open(config)?;
//! rooms.start(&board, |person, _| AgentName::new(person).map_err(|error| error.to_string()));
//! # Ok(()) }
//! ```

// - `config`: the settings. `request`: what an event asks for. `status`: what is sent about it.
// - `ledger`: the requests that are not answered in full, without calls.
// - `taking`: submits requests. `watching`: notes what becomes of them. `sending`: sends it. `announcing`: sets the states of rooms.
mod announcing;
mod config;
mod ledger;
mod request;
mod sending;
mod status;
mod taking;
mod watching;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use callboard::Callboard;
use callboard::messages::AgentName;
use callboard_private::Folder;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use self::announcing::Announced;
use self::ledger::Ledger;
use super::api::Api;
use super::config::MatrixState;
use super::error::MatrixError;
use super::following::Following;
use crate::kept::{Kept, LedgerFile};

pub use self::config::AgentRoomsConfig;

/// The name in logs.
const NAME: &str = "matrix agents";
/// The file in the folder.
const FILE: &str = "matrix-agents.json";

/// In whose name a person gives an agent tasks, or why not.
type Requester = dyn Fn(&str, &AgentName) -> Result<AgentName, String> + Send + Sync;

/// Rooms in which agents get tasks.
pub struct AgentRooms {
    opened: Arc<Opened>,
    tasks: Mutex<Vec<AbortHandle>>,
}

/// The rooms before there is a board.
struct Opened {
    config: AgentRoomsConfig,
    /// The agents, by their rooms.
    agents: BTreeMap<String, AgentName>,
    kept: Arc<Kept<Ledger>>,
    following: Following,
    announced: Mutex<Announced>,
}

/// What the tasks share.
struct Shared {
    opened: Arc<Opened>,
    board: Callboard,
    requester: Box<Requester>,
}

impl AgentRooms {
    /// Opens the rooms, with what an earlier process has kept. No call is made before they are started.
    ///
    /// # Errors
    /// See [`MatrixError`].
    pub fn open(config: AgentRoomsConfig) -> Result<Self, MatrixError> {
        config.check()?;
        let agents = config.agents()?;
        let api = Api::new(&config.homeserver, config.token.clone())?;
        let folder = Folder::create(&config.folder)?;
        let mut ledger = match folder.read(FILE)? {
            Some(bytes) => Ledger::read(&bytes).map_err(|why| MatrixError::Requests {
                path: folder.path().join(FILE),
                why: config.token.masked(&why),
            })?,
            None => Ledger::default(),
        };
        ledger.retain_rooms(|room| agents.contains_key(room));
        let kept = Kept::new(NAME, (ledger, Ledger::bytes), LedgerFile { folder, name: FILE }, config.delays);
        let listed = (config.listed(), vec![format!("{}.request", config.prefix)]);
        let following = Following::new(api, listed, (config.poll, config.delays));
        let opened = Opened { config, agents, kept: Arc::new(kept), following, announced: Mutex::default() };
        Ok(Self { opened: Arc::new(opened), tasks: Mutex::default() })
    }

    /// Starts to take requests for the agents of a board; further calls do nothing. `requester` returns in whose name a person gives an agent tasks now, or
    /// why not: what the tasks use counts against that name.
    ///
    /// # Panics
    /// Outside of a runtime of tokio.
    pub fn start(
        &self,
        board: &Callboard,
        requester: impl Fn(&str, &AgentName) -> Result<AgentName, String> + Send + Sync + 'static,
    ) {
        let mut tasks = self.tasks.lock();
        if tasks.is_empty() {
            let (opened, board) = (Arc::clone(&self.opened), board.clone());
            *tasks = Arc::new(Shared { opened, board, requester: Box::new(requester) }).start();
        }
    }

    /// Whether the homeserver is reached, with a text for each room that cannot be used and for what others lack, and each change of it.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<MatrixState> {
        self.opened.following.state.subscribe()
    }
}

impl Shared {
    fn start(self: Arc<Self>) -> Vec<AbortHandle> {
        let [receiving, trying, watching, sending, announcing] = [(); 5].map(|()| Arc::clone(&self));
        let kept = &self.opened.kept;
        vec![
            kept.keep(move || Arc::clone(&receiving).receive()),
            kept.keep(move || Arc::clone(&trying).try_again()),
            kept.keep(move || Arc::clone(&watching).watch()),
            kept.keep(move || Arc::clone(&sending).send()),
            kept.keep(move || Arc::clone(&announcing).announce()),
        ]
    }

    /// Receives requests.
    async fn receive(self: Arc<Self>) {
        self.opened.following.receive(&*self).await;
    }

    /// Tries the rooms again that the server could not use.
    async fn try_again(self: Arc<Self>) {
        self.opened.following.try_again(&*self).await;
    }
}

impl fmt::Debug for AgentRooms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentRooms").field("config", &self.opened.config).finish_non_exhaustive()
    }
}

impl Drop for AgentRooms {
    fn drop(&mut self) {
        self.opened.kept.close(&self.tasks.lock());
    }
}
