//! A board with the channel.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use callboard::env::Env;
use callboard::messages::{Action, Decision, Envelope, Json, Timestamp};
use callboard::prelude::*;
use callboard::runtime::RunHandle;
use callboard_channels::webhooks::{
    Received, Refused, Webhook, WebhookChannel, WebhookReceiver, WebhookSecret, WebhooksConfig,
};
use callboard_signatures::sign;
use http::HeaderMap;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::relay::{Message, Relay};

/// The secrets of two webhooks. Their texts have `CANARY`, whom nobody may see.
pub(crate) const SECRET: &str = "whsec_CANARYCANARYCANARYCANARYCANARYCANARY";
pub(crate) const OTHER: &str = "whsec_CANARYCANARYCANARYCANARYCANARYOTHERS";

/// Numbers deliveries, over the processes of a test.
static DELIVERIES: AtomicU64 = AtomicU64::new(0);

pub(crate) fn now() -> Timestamp {
    Env::system().now().wall
}

/// A webhook through which ann and bob decide.
pub(crate) fn webhook(name: &str, relay: &Relay) -> Webhook {
    let secret = WebhookSecret::new(relay.secret()).unwrap();
    Webhook::new(name, &relay.url(), secret).person("ann").person("bob")
}

/// Settings with delays as short as tests need them.
pub(crate) fn config(folder: &Path) -> WebhooksConfig {
    let config = WebhooksConfig::new(folder.join("webhooks"));
    config.delays(Duration::from_millis(1), Duration::from_millis(10)).timeout(Duration::from_secs(30))
}

/// The body of a decision about the approval of a message.
pub(crate) fn decision(message: &Message, person: &str, approves: bool) -> Value {
    let data = &message.body["data"];
    let response = if approves { "approve" } else { "deny" };
    json!({ "approval": data["approval"], "nonce": data["nonce"], "response": response, "person": person })
}

/// An id that no other delivery has.
pub(crate) fn new_id() -> String {
    format!("msg_{}", DELIVERIES.fetch_add(1, Ordering::Relaxed))
}

/// The headers of a delivery that is signed with this secret at this time.
pub(crate) fn headers(secret: &str, id: &str, at: u64, body: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("webhook-id", id.parse().unwrap());
    headers.insert("webhook-timestamp", at.to_string().parse().unwrap());
    headers.insert("webhook-signature", sign(secret, id, at, body).unwrap().parse().unwrap());
    headers
}

/// Sends a delivery with this id to a webhook.
pub(crate) async fn send_as(
    receiver: &WebhookReceiver,
    (name, secret): (&str, &str),
    id: &str,
    body: &Value,
) -> Result<Received, Refused> {
    let (bytes, now) = (body.to_string(), now());
    let headers = headers(secret, id, now.as_millis() / 1_000, bytes.as_bytes());
    let delivery = receiver.check(name, &headers, bytes.as_bytes(), now).unwrap();
    receiver.decide(&delivery, body).await
}

/// A receiver, and a board whose agent asks for consent.
pub(crate) struct Team {
    pub(crate) relay: Arc<Relay>,
    pub(crate) board: Callboard,
    pub(crate) receiver: WebhookReceiver,
    pub(crate) folder: TempDir,
}

impl Team {
    pub(crate) async fn start() -> Self {
        let relay = Relay::start(SECRET);
        Self::with(&relay, |config| config.webhook(webhook("relay", &relay))).await
    }

    pub(crate) async fn with(relay: &Arc<Relay>, change: impl FnOnce(WebhooksConfig) -> WebhooksConfig) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let channel = WebhookChannel::open(change(config(folder.path()))).unwrap();
        let receiver = channel.receiver();
        let clerk = |turn: Turn| async move {
            let (target, arguments): (String, serde_json::Value) = turn.input()?;
            Ok(Command::output(match turn.people().approve(Action::new("pay", &target, arguments)).await {
                Ok(_) => "paid".to_owned(),
                Err(error) => error.to_string(),
            }))
        };
        let builder = Callboard::builder().agent("clerk", clerk).channel(channel);
        Self { relay: Arc::clone(relay), board: builder.start().await.unwrap(), receiver, folder }
    }

    /// Has the agent ask for consent.
    pub(crate) async fn ask(&self, target: &str, arguments: impl Into<Json>) -> (RunHandle, Envelope) {
        let arguments: Json = arguments.into();
        self.submit(Task::new("pay").input(json!([target, arguments])), target).await
    }

    pub(crate) async fn submit(&self, task: Task, target: &str) -> (RunHandle, Envelope) {
        let run = self.board.submit(task).await.unwrap();
        let is_it = |open: &Pending| matches!(open, Pending::Approval(envelope) if &*envelope.action.target == target);
        match self.board.people().next_where(is_it).await {
            Some(Pending::Approval(envelope)) => (run, *envelope),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn decision(&self, asked: &Envelope) -> Option<Decision> {
        self.board.people().decision(asked.id()).await.unwrap()
    }

    /// Sends a decision with an id of its own.
    pub(crate) async fn send(&self, body: &Value) -> Result<Received, Refused> {
        send_as(&self.receiver, ("relay", SECRET), &new_id(), body).await
    }
}
