//! The settings of a channel, and whether a receiver answers.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use callboard::env::Env;
use callboard::messages::Envelope;
use callboard_signatures::secret_of;

use super::post::{Delivery, Receiver};
use super::secret::WebhookSecret;
use crate::calls;
use crate::questions::random;

/// The least and the greatest delay before a message is sent again that was not taken.
const DELAYS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];
/// How long a receiver may take to answer.
const TIMEOUT: Duration = Duration::from_secs(15);
/// The file in the folder of the channel.
pub(super) const FILE: &str = "webhooks.json";

/// How a question is seen in full, in the words of a message.
type HowToSee = Arc<dyn Fn(&Envelope) -> String + Send + Sync>;

/// A receiver of messages, and the people in whose names it may decide.
#[derive(Clone)]
pub struct Webhook {
    pub(super) name: Arc<str>,
    pub(super) url: String,
    pub(super) secret: WebhookSecret,
    pub(super) people: BTreeSet<Arc<str>>,
    pub(super) without_tls: bool,
}

impl Webhook {
    /// A webhook of this name, whose messages are sent to this address. Until people are added, nobody decides through it.
    #[must_use]
    pub fn new(name: &str, url: &str, secret: WebhookSecret) -> Self {
        Self { name: name.into(), url: url.to_owned(), secret, people: BTreeSet::new(), without_tls: false }
    }

    /// Adds a person in whose name the receiver may decide, as decisions have the name.
    #[must_use]
    pub fn person(mut self, name: &str) -> Self {
        self.people.insert(name.into());
        self
    }

    /// Allows an address of another machine without TLS: the cards and the signatures can then be read on the way.
    #[must_use]
    pub fn without_tls(mut self) -> Self {
        self.without_tls = true;
        self
    }

    /// Checks the address of a receiver.
    ///
    /// # Errors
    /// Why [`WebhookChannel::open`](super::WebhookChannel::open) would refuse it. The text does not contain it.
    pub fn check_url(url: &str, without_tls: bool) -> Result<(), String> {
        calls::address(url, without_tls).map(drop)
    }
}

impl fmt::Debug for Webhook {
    /// Without the address, which may have a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook").field("name", &self.name).field("people", &self.people).finish_non_exhaustive()
    }
}

/// The settings of a channel.
#[derive(Clone)]
pub struct WebhooksConfig {
    pub(super) folder: PathBuf,
    pub(super) webhooks: Vec<Webhook>,
    pub(super) how_to_see: HowToSee,
    pub(super) timeout: Duration,
    pub(super) delays: [Duration; 2],
    pub(super) env: Env,
}

impl WebhooksConfig {
    /// Settings without a webhook. What is sent is kept in this folder, which is created with the mode 0700.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            webhooks: Vec::new(),
            how_to_see: Arc::new(|envelope| format!("callboard pending approval:{}", envelope.id())),
            timeout: TIMEOUT,
            delays: DELAYS,
            env: Env::system(),
        }
    }

    /// Adds a webhook.
    #[must_use]
    pub fn webhook(mut self, webhook: Webhook) -> Self {
        self.webhooks.push(webhook);
        self
    }

    /// Sets the words of a card that is cut about where all of it is seen. By default it names the command `callboard pending`.
    #[must_use]
    pub fn how_to_see(mut self, how: impl Fn(&Envelope) -> String + Send + Sync + 'static) -> Self {
        self.how_to_see = Arc::new(how);
        self
    }

    /// Sets how long a receiver may take to answer (15 s).
    #[must_use]
    pub fn timeout(mut self, time: Duration) -> Self {
        self.timeout = time;
        self
    }

    /// Sets the least (1 s) and the greatest (60 s) delay before a message is sent again that was not taken.
    #[must_use]
    pub fn delays(mut self, least: Duration, greatest: Duration) -> Self {
        self.delays = [least, greatest];
        self
    }

    /// Sets the clock, by which messages are signed.
    #[must_use]
    pub fn env(mut self, env: Env) -> Self {
        self.env = env;
        self
    }

    /// Sends each receiver a message of the type `ping`, and returns the names of the webhooks, each with why it does not take it.
    pub async fn ping(&self) -> Vec<(String, Result<(), String>)> {
        let mut answers = Vec::new();
        for webhook in &self.webhooks {
            answers.push((webhook.name.to_string(), self.ping_one(webhook).await));
        }
        answers
    }

    async fn ping_one(&self, webhook: &Webhook) -> Result<(), String> {
        let receiver = Receiver::new(webhook, self.timeout).map_err(|error| error.to_string())?;
        let id = format!("msg_{}", random().map_err(|error| error.to_string())?);
        let body = super::message::ping();
        receiver.post(Delivery { id: &id, body: &body }, self.env.now().wall).await.map_err(|error| error.to_string())
    }
}

impl fmt::Debug for WebhooksConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhooksConfig").field("webhooks", &self.webhooks).finish_non_exhaustive()
    }
}

/// What the signature of a webhook that is not there is checked with, for the time that it takes.
pub(super) fn nobodys_secret() -> String {
    secret_of([0; 32])
}
