//! The channel keeps every rule of channels.

use std::sync::Arc;

use callboard::actors::approvals::Channel;
use callboard::testing::channels::{Audience, SeenCard};
use callboard_channels::webhooks::{WebhookChannel, WebhookReceiver};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::watch;

use crate::relay::{Failing, Message, Relay};
use crate::team::{SECRET, config, decision, new_id, send_as, webhook};

callboard::channel_conformance! {
    whole webhooks: People::start()
}

/// Two people behind one relay.
struct People {
    relay: Arc<Relay>,
    folder: TempDir,
    receiver: Mutex<Option<WebhookReceiver>>,
}

impl People {
    fn start() -> Self {
        Self { relay: Relay::start(SECRET), folder: tempfile::tempdir().unwrap(), receiver: Mutex::default() }
    }
}

fn is_about(message: &Message, approval: &Value) -> bool {
    message.body["data"]["approval"] == *approval
}

impl Audience for People {
    fn names(&self) -> [String; 2] {
        ["ann".to_owned(), "bob".to_owned()]
    }

    fn open(&self) -> Arc<dyn Channel> {
        let channel = WebhookChannel::open(config(self.folder.path()).webhook(webhook("relay", &self.relay))).unwrap();
        *self.receiver.lock() = Some(channel.receiver());
        Arc::new(channel)
    }

    /// The messages that open questions, each with what closes it.
    fn cards(&self) -> Vec<SeenCard> {
        let messages = self.relay.taken.lock().messages.clone();
        let opened = messages.iter().filter(|message| message.body["type"] == "approval.opened");
        let card = |message: &Message| {
            let data = &message.body["data"];
            let is_end = |it: &&Message| it.body["type"] == "approval.closed" && is_about(it, &data["approval"]);
            let outcome = messages.iter().find(is_end).map(|it| it.body["data"]["outcome"]["text"].as_str().unwrap());
            SeenCard {
                place: "relay".to_owned(),
                key: message.id.clone(),
                text: format!("{}\n{}", outcome.unwrap_or_default(), data["card"].as_str().unwrap()),
                is_open: outcome.is_none(),
            }
        };
        opened.map(card).collect()
    }

    fn changes(&self) -> watch::Receiver<()> {
        self.relay.changes()
    }

    fn choose<'a>(&'a self, person: usize, card: &'a SeenCard, approves: bool) -> BoxFuture<'a, String> {
        Box::pin(async move {
            let messages = self.relay.taken.lock().messages.clone();
            let message = messages.into_iter().find(|message| message.id == card.key).unwrap();
            let receiver = self.receiver.lock().clone().unwrap();
            let body = decision(&message, &self.names()[person], approves);
            match send_as(&receiver, ("relay", SECRET), &new_id(), &body).await {
                Ok(received) => received.outcome,
                Err(refused) => refused.to_string(),
            }
        })
    }

    fn set_reachable(&self, is_reachable: bool) {
        self.relay.fail(if is_reachable { Failing::No } else { Failing::Silent });
    }
}
