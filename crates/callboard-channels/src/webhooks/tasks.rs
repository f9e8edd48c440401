//! The tasks that send: one for each webhook, so that none waits for another, and one that looks up what was decided while no process
//! had the channel.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use backon::ExponentialBackoff;
use callboard::messages::{Envelope, Timestamp};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::config::{Webhook, WebhooksConfig};
use super::ledger::{Ledger, Message};
use super::message::Kind;
use super::post::{Delivery, PostError, Receiver};
use crate::deciding::Deciding;

/// What the channel's tasks share with it.
pub(super) struct Shared {
    pub(super) config: WebhooksConfig,
    pub(super) kept: Arc<Deciding<Ledger>>,
    /// The webhooks whose receivers do not answer, each with why.
    pub(super) unreachable: watch::Sender<BTreeMap<String, String>>,
    pub(super) names: BTreeSet<String>,
    /// The receivers of the webhooks, in their order.
    pub(super) receivers: Vec<Receiver>,
}

impl Shared {
    pub(super) fn now(&self) -> Timestamp {
        self.config.env.now().wall
    }

    /// The webhook of this name.
    pub(super) fn webhook(&self, name: &str) -> Option<&Webhook> {
        self.config.webhooks.iter().find(|webhook| &*webhook.name == name)
    }

    /// Starts the tasks.
    pub(super) fn start(self: &Arc<Self>) -> Vec<AbortHandle> {
        let sending = (0..self.receivers.len()).map(|number| {
            let shared = Arc::clone(self);
            self.kept.keep(move || Arc::clone(&shared).send(number))
        });
        let kept = Arc::clone(&self.kept);
        sending.chain([self.kept.keep(move || Arc::clone(&kept).look_up())]).collect()
    }

    /// Has a question sent.
    pub(super) fn ask(&self, envelope: &Envelope) {
        let how = || (self.config.how_to_see)(envelope);
        self.kept.ask(|ledger| ledger.ask(envelope, &self.names, (how, self.now())));
    }

    /// Sends the messages of one webhook.
    async fn send(self: Arc<Self>, number: usize) {
        let (Some(webhook), Some(receiver)) = (self.config.webhooks.get(number), self.receivers.get(number)) else {
            return;
        };
        let (name, mut delays, mut changes) = (&*webhook.name, self.kept.delays(), self.kept.changes());
        loop {
            changes.mark_unchanged();
            let next = self.next(name);
            // Nonces are kept before they are sent.
            self.kept.save().await;
            let Some(message) = next else {
                if !self.kept.has_refilled(|envelope| self.ask(envelope)) && changes.changed().await.is_err() {
                    return;
                }
                continue;
            };
            let delivery = Delivery { id: &message.id, body: &message.body };
            let sent = receiver.post(delivery, self.now()).await;
            self.end(name, &message, &sent);
            match sent {
                Ok(()) | Err(PostError::Refused(_)) => delays = self.kept.delays(),
                Err(error) => self.wait(&error, &mut delays).await,
            }
        }
    }

    /// The next message of a webhook. That a question is sent is noted before.
    fn next(&self, name: &str) -> Option<Message> {
        let message = self.kept.ledger().next(name)?;
        if message.kind == Kind::Opened && !self.kept.ledger().has_begun(message.approval, name) {
            self.kept.change(|ledger| ledger.begin(message.approval, name));
        }
        Some(message)
    }

    /// Notes what came of a message.
    fn end(&self, name: &str, message: &Message, sent: &Result<(), PostError>) {
        match sent {
            Ok(()) => self.kept.change(|ledger| ledger.end(message, name, true)),
            Err(error @ PostError::Refused(_)) => {
                tracing::warn!(webhook = name, message = message.id, %error, "a message is not sent again");
                self.kept.change(|ledger| ledger.end(message, name, false));
            }
            Err(error) => tracing::debug!(webhook = name, message = message.id, %error, "a message was not taken"),
        }
        self.set_state(name, sent.as_ref().err().filter(|error| !matches!(error, PostError::Refused(_))));
    }

    /// Reports the first failure of several, and that it works again.
    fn set_state(&self, name: &str, error: Option<&PostError>) {
        let why = error.map(ToString::to_string);
        let was_reached = !self.unreachable.borrow().contains_key(name);
        match &why {
            Some(why) if was_reached => {
                tracing::warn!(webhook = name, why, "a webhook is not reached; it is tried again")
            }
            None if !was_reached => tracing::info!(webhook = name, "a webhook is reached"),
            Some(_) | None => {}
        }
        self.unreachable.send_if_modified(|unreachable| match why {
            Some(why) => unreachable.insert(name.to_owned(), why.clone()) != Some(why),
            None => unreachable.remove(name).is_some(),
        });
    }

    /// Waits until a message may be sent again.
    async fn wait(&self, error: &PostError, delays: &mut ExponentialBackoff) {
        match error {
            PostError::Wait(time) => sleep(*time).await,
            PostError::Refused(_) | PostError::Unreachable(_) => drop(self.kept.pause(delays).await),
        }
    }
}
