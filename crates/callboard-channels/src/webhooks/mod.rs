//! Approvals as signed webhooks, out and back.
//!
//! Each question is a JSON message that is sent to every webhook, signed as [Standard Webhooks](https://www.standardwebhooks.com) have it,
//! and so is what came of it. A message that is not taken is sent again, with the same id; a receiver that does not answer delays neither
//! the board nor other receivers. What was sent is kept in a file of this user alone, so a later process sends the rest.
//!
//! A receiver sends decisions back ([`WebhookReceiver`]): signed with the secret of its webhook, and in the name of a person that is listed
//! with it. Which of them has clicked is known from the receiver alone: its secret stands for all of these people.
//!
//! ```no_run
//! use callboard::prelude::*;
//! use callboard_channels::webhooks::{Webhook, WebhookChannel, WebhookSecret, WebhooksConfig};
//! # async fn start(secret: &str) -> Result<(), Box<dyn std::error::Error>> {
//! let relay = Webhook::new("relay", "https://relay.example.org/approvals", WebhookSecret::new(secret)?).person("ann");
//! let channel = WebhookChannel::open(WebhooksConfig::new("/var/lib/team/webhooks").webhook(relay))?;
//! let receiver = channel.receiver();
//! let board = Callboard::builder().channel(channel).start().await?;
//! # let _ = receiver;
//! # Ok(()) }
//! ```

// - `config`: the settings. `secret`: what signs. `error`: why there is no channel.
// - `message`: the bodies. `ledger`: what was sent and what is left to send, without calls.
// - `post`: one call. `tasks`: those that make the calls. `receive`: decisions that are sent back.
mod config;
mod error;
mod ledger;
mod message;
mod post;
mod receive;
mod secret;
mod tasks;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use callboard::actors::approvals::{Channel, Decider};
use callboard::messages::{Decision, Envelope};
use callboard_private::Folder;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use self::config::FILE;
use self::ledger::Ledger;
use self::message::NAME;
use self::post::Receiver;
use self::tasks::Shared;
use crate::deciding::{Deciding, Ledger as _};
use crate::kept::LedgerFile;

pub use self::config::{Webhook, WebhooksConfig};
pub use self::error::WebhooksError;
pub use self::receive::{Received, Refused, SignedDelivery, WebhookReceiver};
pub use self::secret::WebhookSecret;

/// Asks people by signed webhooks.
pub struct WebhookChannel {
    shared: Arc<Shared>,
    tasks: Mutex<Vec<AbortHandle>>,
}

impl WebhookChannel {
    /// Opens the channel, with what an earlier process has kept. No call is made before the board starts.
    ///
    /// # Errors
    /// See [`WebhooksError`].
    pub fn open(config: WebhooksConfig) -> Result<Self, WebhooksError> {
        let mut names = BTreeSet::new();
        if let Some(twice) = config.webhooks.iter().find(|webhook| !names.insert(webhook.name.to_string())) {
            return Err(WebhooksError::Twice(twice.name.to_string()));
        }
        let receivers = config.webhooks.iter().map(|webhook| Receiver::new(webhook, config.timeout));
        let receivers = receivers.collect::<Result<_, _>>()?;
        let folder = Folder::create(&config.folder)?;
        let mut ledger = match folder.read(FILE)? {
            Some(bytes) => {
                Ledger::read(&bytes).map_err(|why| WebhooksError::State { path: folder.path().join(FILE), why })?
            }
            None => Ledger::default(),
        };
        ledger.retain(&names);
        let kept = Arc::new(Deciding::new(NAME, ledger, LedgerFile { folder, name: FILE }, config.delays));
        let shared = Shared { config, kept, unreachable: watch::Sender::default(), names, receivers };
        Ok(Self { shared: Arc::new(shared), tasks: Mutex::default() })
    }

    /// Takes the decisions that receivers send back.
    #[must_use]
    pub fn receiver(&self) -> WebhookReceiver {
        WebhookReceiver(Arc::clone(&self.shared))
    }

    /// The names of the webhooks whose receivers do not answer, each with why, and each change of that.
    #[must_use]
    pub fn unreachable(&self) -> watch::Receiver<BTreeMap<String, String>> {
        self.shared.unreachable.subscribe()
    }
}

impl Channel for WebhookChannel {
    fn name(&self) -> &'static str {
        NAME
    }

    fn started(&self, decider: &Decider) {
        let mut tasks = self.tasks.lock();
        self.shared.kept.started(decider);
        if tasks.is_empty() {
            *tasks = self.shared.start();
        }
    }

    fn ask(&self, envelope: &Envelope, _: &Decider) {
        self.shared.ask(envelope);
    }

    fn settled(&self, envelope: &Envelope, decision: Option<&Decision>) {
        self.shared.kept.change(|ledger| match decision {
            Some(decision) => ledger.settle(envelope.id(), decision),
            None => ledger.withdraw(envelope.id(), self.shared.now()),
        });
    }

    fn remind(&self, envelope: &Envelope, _: &Decider) {
        self.shared.kept.change(|ledger| ledger.remind(envelope.id()));
    }
}

impl fmt::Debug for WebhookChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookChannel").field("config", &self.shared.config).finish_non_exhaustive()
    }
}

impl Drop for WebhookChannel {
    fn drop(&mut self) {
        self.shared.kept.close(&self.tasks.lock());
    }
}
