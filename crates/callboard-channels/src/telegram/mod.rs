//! Approvals in chats of a Telegram bot.
//!
//! Each question is a message with buttons in every chat. Who may decide is a list of accounts, each with the name of a person; of
//! several people, on this channel and others, the first one counts, and every message then shows who it was. What was sent is kept in a
//! file of this user alone, so a later process sends no question twice, and closes what was decided meanwhile.
//!
//! The arguments of actions are sent to the servers of Telegram. Calls are made by tasks of the channel's own: a server that does not
//! answer delays nobody.
//!
//! ```no_run
//! use callboard::prelude::*;
//! use callboard_channels::telegram::{BotToken, TelegramChannel, TelegramConfig};
//! # async fn start(token: &str) -> Result<(), Box<dyn std::error::Error>> {
//! let config = TelegramConfig::new(BotToken::new(token)?, "/var/lib/team/telegram").person(12345, "ann");
//! let board = Callboard::builder().channel(TelegramChannel::open(config)?).start().await?;
//! # Ok(()) }
//! ```

// - `api`: the methods of the Bot API. `token`: the secret that they need. `text`: what messages say.
// - `config`: the settings. `error`: why there is no channel.
// - `ledger`: what was sent and what is left to do, without calls. `tasks`: those that make the calls.
mod api;
mod config;
mod error;
mod ledger;
mod tasks;
mod text;
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

pub use self::config::{TelegramConfig, TelegramState};
pub use self::error::TelegramError;
pub use self::token::BotToken;

/// Asks people in chats of a Telegram bot.
pub struct TelegramChannel {
    shared: Arc<Shared>,
    tasks: Mutex<Vec<AbortHandle>>,
}

impl TelegramChannel {
    /// Opens the channel, with what an earlier process has kept. No call is made before the board starts.
    ///
    /// # Errors
    /// See [`TelegramError`].
    pub fn open(config: TelegramConfig) -> Result<Self, TelegramError> {
        let api = Api::new(&config.api, config.token.clone())?;
        let folder = Folder::create(&config.folder)?;
        let ledger = match folder.read(FILE)? {
            Some(bytes) => Ledger::read(&bytes).map_err(|why| TelegramError::State {
                path: folder.path().join(FILE),
                why: config.token.masked(&why),
            })?,
            None => Ledger::default(),
        };
        let mut config = config;
        if config.chats.is_empty() {
            config.chats = config.people.keys().copied().collect();
        }
        Ok(Self { shared: Arc::new(Shared::new(config, api, folder, ledger)), tasks: Mutex::default() })
    }

    /// Whether the server is reached, and each change of it.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<TelegramState> {
        self.shared.state.subscribe()
    }
}

impl Channel for TelegramChannel {
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

impl fmt::Debug for TelegramChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TelegramChannel").field("config", &self.shared.config).finish_non_exhaustive()
    }
}

impl Drop for TelegramChannel {
    fn drop(&mut self) {
        self.shared.kept.close(&self.tasks.lock());
    }
}
