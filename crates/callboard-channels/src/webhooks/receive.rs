//! Decisions that a receiver sends back: signed with the secret of its webhook, once, in the name of a person of the webhook, and about an
//! approval that the webhook was sent.

use std::fmt;
use std::sync::Arc;

use callboard::AnswerError;
use callboard::messages::{ApprovalId, PendingId, Timestamp, visible};
use callboard_signatures::{MAX_APART, Scheme};
use http::HeaderMap;
use serde::Deserialize;
use serde_json::Value;

use super::config::nobodys_secret;
use super::ledger::{Found, Receiving};
use super::message::NAME;
use super::tasks::Shared;
use crate::deciding::{Choice, DecideError};
use crate::texts;

/// Takes the decisions that receivers send back. A cheap clone.
///
/// A server reads a request, has it checked by [`WebhookReceiver::check`], and passes its JSON to [`WebhookReceiver::decide`].
/// `callboard-server` does so with its feature `webhooks`.
#[derive(Clone)]
pub struct WebhookReceiver(pub(super) Arc<Shared>);

/// A delivery whose signature and time are right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedDelivery {
    webhook: Arc<str>,
    id: String,
    /// Until which second its time is accepted.
    until: u64,
    now: u64,
}

/// What came of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The approval.
    pub approval: ApprovalId,
    /// The person who has decided.
    pub person: Arc<str>,
    /// Whether it is decided. If not, others have to approve as well.
    pub is_decided: bool,
    /// What was decided, in words.
    pub outcome: String,
}

/// Why a signed delivery has decided nothing.
#[derive(Debug)]
#[non_exhaustive]
pub enum Refused {
    /// A delivery of this id was received before.
    Repeated,
    /// More deliveries were received than their ids are remembered.
    TooMany,
    /// The body is none; what is wrong with it.
    Malformed(String),
    /// The person is not one of the webhook.
    Unlisted,
    /// The webhook was never sent this approval with this nonce.
    Unknown,
    /// The approval is closed; what came of it.
    Closed(String),
    /// The board takes no such decision.
    Answer(AnswerError),
    /// The board has not started yet, or has failed over it: the same delivery may be sent again.
    Unavailable,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Repeated => {
                f.write_str("a delivery with this id was received before: a new one needs an id of its own")
            }
            Self::TooMany => f.write_str("too many deliveries were received in the last minutes"),
            Self::Malformed(why) => write!(f, "the body: {why}"),
            Self::Unlisted => f.write_str("the person is not one of those in whose names this webhook decides"),
            Self::Unknown => f.write_str("this webhook was not sent an approval with this id and nonce"),
            Self::Closed(outcome) => write!(f, "it is closed already: {outcome}"),
            Self::Answer(error) => f.write_str(&visible(&error.to_string())),
            Self::Unavailable => f.write_str("the board has not started yet, or has failed over it: send it again"),
        }
    }
}

/// The body of a delivery.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    approval: String,
    nonce: String,
    response: Response,
    #[serde(default)]
    reason: String,
    person: String,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Response {
    Approve,
    Deny,
}

impl SignedDelivery {
    /// The name of the webhook.
    #[must_use]
    pub fn webhook(&self) -> &str {
        &self.webhook
    }
}

impl WebhookReceiver {
    /// Checks the signature and the time of a delivery, by the clock at `now`. It takes the same time for names of no webhook.
    ///
    /// # Errors
    /// Why it is refused, for the log. An answer does not contain it: its sender has no secret.
    pub fn check(
        &self,
        name: &str,
        headers: &HeaderMap,
        body: &[u8],
        now: Timestamp,
    ) -> Result<SignedDelivery, &'static str> {
        let (webhook, now) = (self.0.webhook(name), now.as_millis() / 1_000);
        let nobodys = nobodys_secret();
        let secret = webhook.map_or(&*nobodys, |webhook| webhook.secret.expose());
        let checked = Scheme::Standard.check(secret, headers, body, now);
        let webhook = webhook.ok_or("there is no such webhook")?;
        let id = checked?;
        let at = headers.get("webhook-timestamp").and_then(|at| at.to_str().ok()?.parse().ok()).unwrap_or(now);
        Ok(SignedDelivery { webhook: Arc::clone(&webhook.name), id, until: at.saturating_add(MAX_APART), now })
    }

    /// The person in whose name the body of a delivery decides, if that is one of its webhook.
    #[must_use]
    pub fn person(&self, delivery: &SignedDelivery, body: &Value) -> Option<Arc<str>> {
        let people = &self.0.webhook(&delivery.webhook)?.people;
        people.get(body.get("person")?.as_str()?).cloned()
    }

    /// Decides by the body of a signed delivery: `approval` and `nonce` of the message, `response`, which is `approve` or `deny`, the
    /// `reason` of a denial, and the `person` who decides. What came of it is an event of the target `callboard::audit`.
    ///
    /// # Errors
    /// Nothing was decided, for this reason.
    pub async fn decide(&self, delivery: &SignedDelivery, body: &Value) -> Result<Received, Refused> {
        let decided = self.decide_once(delivery, body).await;
        let text = |key: &str| visible(body.get(key).and_then(Value::as_str).unwrap_or_default());
        let (webhook, person, approval) = (&*delivery.webhook, text("person"), text("approval"));
        match &decided {
            Ok(received) => {
                let told = &*received.outcome;
                tracing::info!(target: "callboard::audit", channel = NAME, webhook, person, approval, told, "decision");
            }
            Err(why) => {
                tracing::info!(target: "callboard::audit", channel = NAME, webhook, person, approval, %why, "refused");
            }
        }
        decided
    }

    async fn decide_once(&self, delivery: &SignedDelivery, body: &Value) -> Result<Received, Refused> {
        let SignedDelivery { webhook, id, until, now } = delivery;
        match self.0.kept.change(|ledger| ledger.receive(webhook, id, (*now, *until))) {
            Receiving::New => {}
            Receiving::Repeated => return Err(Refused::Repeated),
            Receiving::TooMany => return Err(Refused::TooMany),
        }
        let decided = self.decide_new(webhook, body).await;
        if let Err(Refused::Unavailable | Refused::Answer(AnswerError::Storage(_))) = &decided {
            self.0.kept.change(|ledger| ledger.forget_received(webhook, id));
        }
        decided
    }

    async fn decide_new(&self, webhook: &str, body: &Value) -> Result<Received, Refused> {
        let malformed = |why: &str| Refused::Malformed(why.to_owned());
        let Body { approval, nonce, response, reason, person } =
            Body::deserialize(body).map_err(|error| Refused::Malformed(visible(&error.to_string())))?;
        let Ok(PendingId::Approval(approval)) = approval.parse() else {
            return Err(malformed("`approval` is none, as messages have it"));
        };
        let choice = match response {
            Response::Approve if !reason.is_empty() => return Err(malformed("a `reason` is that of a denial")),
            Response::Approve => Choice::Approve,
            Response::Deny => Choice::Deny,
        };
        let people = self.0.webhook(webhook).map(|webhook| &webhook.people);
        let person = people.and_then(|people| people.get(&*person)).ok_or(Refused::Unlisted)?;
        match self.0.kept.ledger().find(webhook, approval, &nonce) {
            Found::Open => {}
            Found::Closed(outcome) => return Err(Refused::Closed(outcome)),
            Found::Unknown => return Err(Refused::Unknown),
        }
        match self.0.kept.decide(approval, person, choice, &reason).await {
            Ok(decision) => Ok(Received {
                approval,
                person: Arc::clone(person),
                is_decided: decision.is_some(),
                outcome: match decision {
                    Some(decision) => texts::outcome(Some(&decision), Some(NAME)),
                    None => "noted; others have to approve as well".to_owned(),
                },
            }),
            // Whoever was first has closed it.
            Err(DecideError::Answer(error)) => match self.0.kept.ledger().find(webhook, approval, &nonce) {
                Found::Closed(outcome) => Err(Refused::Closed(outcome)),
                Found::Open | Found::Unknown => Err(Refused::Answer(error)),
            },
            Err(DecideError::NotStarted | DecideError::Panicked) => Err(Refused::Unavailable),
        }
    }
}

impl fmt::Debug for WebhookReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WebhookReceiver").field(&self.0.config).finish()
    }
}
