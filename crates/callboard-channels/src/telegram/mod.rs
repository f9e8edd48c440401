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
// - `ledger`: what was sent and what is left to do, without calls. `tasks`: those that make the calls.
mod api;
mod ledger;
mod tasks;
mod text;
mod token;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use callboard::actors::approvals::{Channel, Decider};
use callboard::messages::{Decision, Envelope};
use callboard_private::{Folder, FolderError};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use self::api::Api;
use self::ledger::Ledger;
use self::tasks::Shared;

pub use self::token::BotToken;

/// The servers of Telegram.
const API: &str = "https://api.telegram.org";
/// How long the server is asked to wait for something to report.
const POLL: Duration = Duration::from_secs(50);
/// The least and the greatest delay before a call is made again that has failed.
const DELAYS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];
/// The file in the folder of the channel.
const FILE: &str = "telegram.json";

/// How a question is seen in full, as a message says it.
type HowToSee = Arc<dyn Fn(&Envelope) -> String + Send + Sync>;

/// Why there is no channel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TelegramError {
    /// The token is none. The text does not contain it.
    #[error("the token of the bot is none: @BotFather gives out one such as 123456:ABC-DEF")]
    Token,
    /// The address of the server cannot be used.
    #[error("the address of the Bot API: {0}")]
    Address(String),
    /// TLS cannot be set up.
    #[error("TLS cannot be used: {0}")]
    Tls(String),
    /// The folder or the file with what was sent cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The file with what was sent is damaged or of a later version.
    #[error("{path}: {why}; without the file, open questions are sent again", path = path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

/// The settings of a channel.
#[derive(Clone)]
pub struct TelegramConfig {
    token: BotToken,
    folder: PathBuf,
    people: BTreeMap<i64, Arc<str>>,
    chats: BTreeSet<i64>,
    api: String,
    how_to_see: HowToSee,
    poll: Duration,
    delays: [Duration; 2],
}

impl TelegramConfig {
    /// The settings of the bot with this token. What it has sent is kept in this folder, which is created with the mode 0700.
    #[must_use]
    pub fn new(token: BotToken, folder: impl Into<PathBuf>) -> Self {
        Self {
            token,
            folder: folder.into(),
            people: BTreeMap::new(),
            chats: BTreeSet::new(),
            api: API.to_owned(),
            how_to_see: Arc::new(|envelope| format!("callboard pending approval:{}", envelope.id())),
            poll: POLL,
            delays: DELAYS,
        }
    }

    /// Adds a person who may decide: the number of the account, and the name that decisions have.
    #[must_use]
    pub fn person(mut self, account: i64, name: &str) -> Self {
        self.people.insert(account, name.into());
        self
    }

    /// Adds a chat in which questions are asked: the account of a person, or a group, whose number is negative. Without any, each person
    /// is asked in their own chat with the bot.
    #[must_use]
    pub fn chat(mut self, chat: i64) -> Self {
        self.chats.insert(chat);
        self
    }

    /// Sets the server that speaks the Bot API, in place of Telegram's. Without TLS it has to be on this machine.
    #[must_use]
    pub fn api(mut self, url: &str) -> Self {
        url.clone_into(&mut self.api);
        self
    }

    /// Checks the address of a server.
    ///
    /// # Errors
    /// [`TelegramError::Address`]: [`TelegramChannel::open`] would refuse it.
    pub fn check_api(url: &str) -> Result<(), TelegramError> {
        api::address(url).map(drop)
    }

    /// Sets how a message that is cut says where all of it is seen. By default it names the command `callboard pending`.
    #[must_use]
    pub fn how_to_see(mut self, how: impl Fn(&Envelope) -> String + Send + Sync + 'static) -> Self {
        self.how_to_see = Arc::new(how);
        self
    }

    /// Sets how long the server is asked to wait for something to report (50 s).
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

    /// Asks the server for the name of the bot.
    ///
    /// # Errors
    /// Why there is none, as a person reads it; the token is not in it.
    pub async fn bot_name(&self) -> Result<String, String> {
        let api = Api::new(&self.api, self.token.clone()).map_err(|error| error.to_string())?;
        let bot = api.bot().await.map_err(|error| error.to_string())?;
        Ok(tasks::name_of(&bot))
    }
}

impl fmt::Debug for TelegramConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TelegramConfig")
            .field("people", &self.people)
            .field("chats", &self.chats)
            .finish_non_exhaustive()
    }
}

/// Whether the channel reaches its server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TelegramState {
    /// It has not been called yet.
    Starting,
    /// It answers, for the bot of this name.
    Reached {
        /// The name, with an @ in front.
        bot: String,
    },
    /// It does not answer, or refuses; it is called again.
    Unreachable {
        /// Why, as a person reads it.
        why: String,
    },
}

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
        "telegram"
    }

    fn started(&self, decider: &Decider) {
        let mut tasks = self.tasks.lock();
        *self.shared.decider.lock() = Some(decider.clone());
        if tasks.is_empty() {
            *tasks = Arc::clone(&self.shared).start();
        }
    }

    fn ask(&self, envelope: &Envelope, _: &Decider) {
        self.shared.ask(envelope);
    }

    fn settled(&self, envelope: &Envelope, decision: Option<&Decision>) {
        self.shared.change(|ledger| ledger.settle(envelope.id(), decision));
    }

    fn remind(&self, envelope: &Envelope, _: &Decider) {
        self.shared.change(|ledger| ledger.remind(envelope.id()));
    }
}

impl fmt::Debug for TelegramChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TelegramChannel").field("config", &self.shared.config).finish_non_exhaustive()
    }
}

impl Drop for TelegramChannel {
    fn drop(&mut self) {
        self.tasks.lock().iter().for_each(AbortHandle::abort);
    }
}
