//! Approvals in rooms of Matrix, and rooms in which agents get tasks ([`AgentRooms`]).
//!
//! Each question is a message in every room, and people reply to it. Who may decide is a list of accounts, each with the name of a person;
//! of several people, on this channel and others, the first one counts, and the message is then replaced by one that shows who it was. What
//! was sent is kept in a file of this user alone, so a later process sends no question twice, and closes what was decided meanwhile.
//!
//! The arguments of actions are sent to the homeserver, and by it to those of everybody in the room. Rooms with end-to-end encryption are
//! not used. Calls are made by tasks of the channel's own: a server that does not answer delays nobody.
//!
//! ```no_run
//! use callboard::prelude::*;
//! use callboard_channels::matrix::{AccessToken, MatrixChannel, MatrixConfig};
//! # async fn start(token: &str) -> Result<(), Box<dyn std::error::Error>> {
//! let config = MatrixConfig::new("https://matrix.example.org", AccessToken::new(token)?, "/var/lib/team/matrix")
//!     .room("!approvals:example.org")
//!     .person("@ann:example.org", "ann");
//! let board = Callboard::builder().channel(MatrixChannel::open(config)?).start().await?;
//! # Ok(()) }
//! ```

// - `api`: the calls of a homeserver. `token`: the secret that they need. `synced`: what one of them returns.
// - `config`: the settings. `error`: why there is no channel.
// - `following`: the loop that joins rooms and reads them. `history`: what `synced` does not have. `rooms`: which of them are used.
// - `message`: what is sent. `reply`: what people send back.
// - `ledger`: what was sent and what is left to do, without calls. `tasks`: those that make the calls.
// - `agents`: rooms in which agents get tasks, which is no channel.
mod agents;
mod api;
mod config;
mod error;
mod following;
mod history;
mod ledger;
mod message;
mod recent;
mod reply;
mod rooms;
mod synced;
mod tasks;
mod token;

use std::fmt;
use std::sync::Arc;

use callboard::actors::approvals::{Channel, Decider};
use callboard::messages::{Decision, Envelope};
use callboard_private::Folder;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use self::api::Api;
use self::config::FILE;
use self::ledger::Ledger;
use self::tasks::{NAME, Shared};

pub use self::agents::{AgentRooms, AgentRoomsConfig};
pub use self::config::{MatrixConfig, MatrixState};
pub use self::error::MatrixError;
pub use self::token::AccessToken;

/// Asks people in rooms of Matrix.
pub struct MatrixChannel {
    shared: Arc<Shared>,
    tasks: Mutex<Vec<AbortHandle>>,
}

impl MatrixChannel {
    /// Opens the channel, with what an earlier process has kept. No call is made before the board starts.
    ///
    /// # Errors
    /// See [`MatrixError`].
    pub fn open(config: MatrixConfig) -> Result<Self, MatrixError> {
        config.check()?;
        let api = Api::new(&config.homeserver, config.token.clone())?;
        let folder = Folder::create(&config.folder)?;
        let mut ledger = match folder.read(FILE)? {
            Some(bytes) => Ledger::read(&bytes)
                .map_err(|why| MatrixError::State { path: folder.path().join(FILE), why: config.token.masked(&why) })?,
            None => Ledger::default(),
        };
        ledger.retain_rooms(&config.rooms);
        Ok(Self { shared: Arc::new(Shared::new(config, api, folder, ledger)), tasks: Mutex::default() })
    }

    /// Whether the homeserver is reached, and each change of it.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<MatrixState> {
        self.shared.following.state.subscribe()
    }
}

impl Channel for MatrixChannel {
    fn name(&self) -> &'static str {
        NAME
    }

    fn started(&self, decider: &Decider) {
        let mut tasks = self.tasks.lock();
        self.shared.kept.started(decider);
        if tasks.is_empty() {
            *tasks = Arc::clone(&self.shared).start();
        }
    }

    fn ask(&self, envelope: &Envelope, _: &Decider) {
        self.shared.ask(envelope);
    }

    fn settled(&self, envelope: &Envelope, decision: Option<&Decision>) {
        self.shared.kept.change(|ledger| ledger.close(envelope.id(), decision));
    }

    fn remind(&self, envelope: &Envelope, _: &Decider) {
        self.shared.kept.change(|ledger| ledger.remind(envelope.id()));
    }
}

impl fmt::Debug for MatrixChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MatrixChannel").field("config", &self.shared.config).finish_non_exhaustive()
    }
}

impl Drop for MatrixChannel {
    fn drop(&mut self) {
        self.shared.kept.close(&self.tasks.lock());
    }
}
