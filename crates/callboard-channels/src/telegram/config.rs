//! The settings of a channel, and whether it reaches its server.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use callboard::messages::Envelope;

use super::api::{Api, address};
use super::error::TelegramError;
use super::token::BotToken;

/// The servers of Telegram.
const API: &str = "https://api.telegram.org";
/// How long the server is asked to wait for something to report.
const POLL: Duration = Duration::from_secs(50);
/// The least and the greatest delay before a call is made again that has failed.
const DELAYS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];
/// The file in the folder of the channel.
pub(super) const FILE: &str = "telegram.json";

/// How a question is seen in full, as a message says it.
type HowToSee = Arc<dyn Fn(&Envelope) -> String + Send + Sync>;

/// The settings of a channel.
#[derive(Clone)]
pub struct TelegramConfig {
    pub(super) token: BotToken,
    pub(super) folder: PathBuf,
    pub(super) people: BTreeMap<i64, Arc<str>>,
    pub(super) chats: BTreeSet<i64>,
    pub(super) api: String,
    pub(super) how_to_see: HowToSee,
    pub(super) poll: Duration,
    pub(super) delays: [Duration; 2],
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
    /// [`TelegramError::Address`]: [`TelegramChannel::open`](super::TelegramChannel::open) would refuse it.
    pub fn check_api(url: &str) -> Result<(), TelegramError> {
        address(url).map(drop)
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
        Ok(bot.name())
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
