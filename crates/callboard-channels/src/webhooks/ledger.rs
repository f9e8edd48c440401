//! What the channel has sent, what is left to send, and which deliveries it has received: kept in a file, so that the next process
//! continues with it. Pure, except that nonces are drawn.

use std::collections::{BTreeMap, BTreeSet};

use callboard::messages::{ApprovalId, Decision, Envelope, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::message::{self, Kind};
use crate::deciding;
use crate::questions::{Questions, Receipt, Step, random};

const VERSION: u32 = 1;
/// The most ids of deliveries of a webhook that are remembered: more than the server takes in the time.
const MAX_RECEIVED: usize = 8_192;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Ledger {
    version: u32,
    /// The questions: whether a message to a webhook was confirmed, and the webhooks by the nonces that they get.
    asked: Questions<String, Confirmed, String>,
    /// The ids of deliveries by their webhooks, and until which second the time of each is accepted.
    received: BTreeMap<String, BTreeMap<String, u64>>,
}

/// Whether the receiver has taken a message. One that it may have taken is closed all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
struct Confirmed(bool);

impl Receipt for Confirmed {
    fn is_confirmed(&self) -> bool {
        self.0
    }
}

/// A message that is left to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) kind: Kind,
    pub(super) approval: ApprovalId,
    pub(super) id: String,
    pub(super) body: String,
}

/// What a delivery is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Open,
    /// It is closed: what came of it.
    Closed(String),
    /// The webhook was never sent this approval with this nonce.
    Unknown,
}

/// Whether a delivery is to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Receiving {
    New,
    Repeated,
    TooMany,
}

impl Default for Ledger {
    fn default() -> Self {
        Self { version: VERSION, asked: Questions::default(), received: BTreeMap::new() }
    }
}

impl Ledger {
    /// # Errors
    /// The bytes are not those of a ledger, or of a later version.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        let ledger: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if ledger.version == VERSION {
            Ok(ledger)
        } else {
            Err(format!("its version is {}, and this one reads version {VERSION}", ledger.version))
        }
    }

    /// Forgets the messages to webhooks that are no more.
    pub(super) fn retain(&mut self, webhooks: &BTreeSet<String>) {
        self.asked.retain_places(|webhook| webhooks.contains(webhook));
    }

    /// Notes a question that is open; whether there was room for it.
    pub(super) fn ask(
        &mut self,
        envelope: &Envelope,
        webhooks: &BTreeSet<String>,
        (how, now): (impl FnOnce() -> String, Timestamp),
    ) -> Result<bool, getrandom::Error> {
        let id = envelope.id();
        let is_noted = self.asked.ask(id, || Ok((message::card(envelope, &how(), now), BTreeMap::new())))?;
        // A webhook may have come after the question.
        for webhook in webhooks.iter().filter(|_| is_noted) {
            if self.nonce(id, webhook).is_none() {
                self.asked.add_data(id, random()?, webhook.clone());
            }
        }
        Ok(is_noted)
    }

    /// Notes that nobody asks about a question any more.
    pub(super) fn withdraw(&mut self, id: ApprovalId, now: Timestamp) {
        self.asked.settle(id, None, |_| message::withdrawn(now));
    }

    pub(super) fn remind(&mut self, id: ApprovalId) {
        self.asked.remind(id);
    }

    /// The next message that is left to send to a webhook. Of several questions, that of the oldest.
    pub(super) fn next(&self, webhook: &str) -> Option<Message> {
        let places = BTreeSet::from([webhook.to_owned()]);
        let step = self.asked.next(&places, |place| place == webhook)?;
        let (Step::Send { id: approval, .. } | Step::Close { id: approval, .. } | Step::Remind { id: approval, .. }) =
            step;
        let question = self.asked.get(approval)?;
        let nonce = self.nonce(approval, webhook)?;
        let (kind, more) = match step {
            Step::Send { .. } => (Kind::Opened, ("nonce", Value::from(nonce))),
            Step::Remind { .. } => (Kind::Reminded, ("nonce", Value::from(nonce))),
            Step::Close { .. } => {
                let outcome = message::fields(question.outcome.as_deref().unwrap_or_default());
                (Kind::Closed, ("outcome", Value::from(outcome)))
            }
        };
        let (id, body) = (message::id(kind, approval, nonce), message::body(kind, &question.card, more));
        Some(Message { kind, approval, id, body })
    }

    fn nonce(&self, approval: ApprovalId, webhook: &str) -> Option<&str> {
        let mut data = self.asked.get(approval)?.data.iter();
        data.find_map(|(nonce, of)| (of == webhook).then_some(&**nonce))
    }

    /// Whether the question was sent to the webhook before, with or without an answer.
    pub(super) fn has_begun(&self, id: ApprovalId, webhook: &str) -> bool {
        self.asked.get(id).is_some_and(|question| question.sent.contains_key(webhook))
    }

    /// Notes that the question is sent to the webhook from now on: it may arrive, whatever is known of that.
    pub(super) fn begin(&mut self, id: ApprovalId, webhook: &str) {
        self.asked.sent(id, webhook.to_owned(), Confirmed(false), "");
    }

    /// Notes that the webhook has taken a message, or never will.
    pub(super) fn end(&mut self, message: &Message, webhook: &str, is_taken: bool) {
        let (id, place) = (message.approval, webhook.to_owned());
        match (message.kind, is_taken) {
            (Kind::Opened, true) => self.asked.sent(id, place, Confirmed(true), ""),
            (Kind::Opened, false) => self.asked.failed(id, place),
            (Kind::Reminded, _) => self.asked.reminded(id, &place),
            (Kind::Closed, _) => self.asked.closed(id, place),
        }
    }

    /// Notes the id of a signed delivery.
    pub(super) fn receive(&mut self, webhook: &str, id: &str, (now, until): (u64, u64)) -> Receiving {
        let received = self.received.entry(webhook.to_owned()).or_default();
        received.retain(|_, until| *until >= now);
        if received.contains_key(id) {
            return Receiving::Repeated;
        }
        if received.len() >= MAX_RECEIVED {
            return Receiving::TooMany;
        }
        received.insert(id.to_owned(), until);
        Receiving::New
    }

    /// Forgets a delivery that is to be sent again.
    pub(super) fn forget_received(&mut self, webhook: &str, id: &str) {
        if let Some(received) = self.received.get_mut(webhook) {
            received.remove(id);
        }
    }

    /// What a delivery of this webhook is about, by the approval and the nonce that it names.
    pub(super) fn find(&self, webhook: &str, id: ApprovalId, nonce: &str) -> Found {
        let Some(question) = self.asked.get(id) else { return Found::Unknown };
        match (question.data.get(nonce), &question.outcome) {
            (Some(of), Some(outcome)) if of == webhook => Found::Closed(message::words(outcome)),
            (Some(of), None) if of == webhook => Found::Open,
            _ => Found::Unknown,
        }
    }
}

impl deciding::Ledger for Ledger {
    fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    fn has_room(&self) -> bool {
        self.asked.has_room()
    }

    fn left_over(&self) -> Vec<ApprovalId> {
        self.asked.left_over()
    }

    fn settle(&mut self, id: ApprovalId, decision: &Decision) {
        self.asked.settle(id, Some(decision), |is_here| message::decided(decision, is_here));
    }

    fn give_up(&mut self, id: ApprovalId) {
        self.asked.give_up(id, message::given_up());
    }

    fn attempt(&mut self, id: ApprovalId, by: &str, approves: bool) {
        self.asked.attempt(id, by, approves);
    }
}

#[cfg(test)]
mod tests {
    use callboard::messages::{Action, ActionKind, AgentName, Deciders, Rationale, RequestId, TurnId};
    use serde_json::json;

    use super::*;
    use crate::deciding::Ledger as _;
    use crate::questions::{MAX_OPEN, MAX_QUESTIONS};

    fn envelope(nonce: u64) -> Envelope {
        let turn = TurnId { run: "0192f0c1-2345-7abc-8def-0123456789ab".parse().unwrap(), number: 1 };
        Envelope {
            version: Envelope::VERSION,
            kind: ActionKind::Requested,
            remind_at: None,
            request: RequestId { turn, ordinal: 0 },
            agent: AgentName::new("coder").unwrap(),
            action: Action::new("write_file", "a.md", json!({})),
            policy: Envelope::ASK.into(),
            deciders: Deciders::default(),
            requester: None,
            escalates_at: None,
            edited_by: None,
            rationale: Rationale::default(),
            nonce,
            expires_at: Timestamp::from_millis(0),
        }
    }

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn asked(ledger: &mut Ledger, nonce: u64, webhooks: &[&str]) -> ApprovalId {
        let (envelope, webhooks) = (envelope(nonce), names(webhooks));
        assert!(ledger.ask(&envelope, &webhooks, (String::new, Timestamp::from_millis(0))).unwrap());
        envelope.id()
    }

    fn reopened(ledger: &Ledger) -> Ledger {
        Ledger::read(&ledger.bytes()).unwrap()
    }

    #[test]
    fn the_next_process_sends_the_same_message_again_until_it_is_taken() {
        let mut ledger = Ledger::default();
        let id = asked(&mut ledger, 1, &["a", "b"]);
        let message = ledger.next("a").unwrap();
        ledger.begin(id, "a");
        let mut next = reopened(&ledger);
        assert_eq!(next.next("a"), None, "nobody has asked this process");
        asked(&mut next, 1, &["a", "b"]);
        assert_eq!(next.next("a"), Some(message.clone()));
        assert_ne!(next.next("b").unwrap().id, message.id);
        next.end(&message, "a", true);
        assert_eq!(next.next("a"), None);
        let mut last = reopened(&next);
        last.withdraw(id, Timestamp::from_millis(0));
        let closed = last.next("a").unwrap();
        assert!(
            closed.kind == Kind::Closed && closed.id != message.id && closed.body.contains("withdrawn"),
            "{closed:?}"
        );
        assert_eq!(last.next("b"), None, "it was never sent there");
    }

    #[test]
    fn a_webhook_that_comes_later_is_asked_and_one_that_is_gone_holds_nothing_up() {
        let mut ledger = Ledger::default();
        let id = asked(&mut ledger, 1, &["a"]);
        ledger.begin(id, "a");
        let mut next = reopened(&ledger);
        next.retain(&names(&["b"]));
        asked(&mut next, 1, &["b"]);
        let message = next.next("b").unwrap();
        assert_eq!(message.kind, Kind::Opened);
        let nonce = message::fields(&message.body)["data"]["nonce"].as_str().unwrap().to_owned();
        assert_eq!((next.find("b", id, &nonce), next.find("a", id, &nonce)), (Found::Open, Found::Unknown));
        next.withdraw(id, Timestamp::from_millis(0));
        assert!(next.asked.get(id).unwrap().card.is_empty(), "nothing is left to do");
    }

    #[test]
    fn ids_are_remembered_until_their_time_is_over_and_for_each_webhook() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.receive("a", "m", (100, 400)), Receiving::New);
        assert_eq!(ledger.receive("b", "m", (100, 400)), Receiving::New);
        let mut ledger = reopened(&ledger);
        assert_eq!(ledger.receive("a", "m", (400, 700)), Receiving::Repeated);
        assert_eq!(ledger.receive("a", "m", (401, 701)), Receiving::New);
        for number in 1..MAX_RECEIVED {
            assert_eq!(ledger.receive("a", &number.to_string(), (500, 800)), Receiving::New);
        }
        assert_eq!(ledger.receive("a", "n", (500, 800)), Receiving::TooMany);
        assert_eq!(ledger.receive("b", "n", (500, 800)), Receiving::New);
        ledger.forget_received("a", "1");
        assert_eq!(ledger.receive("a", "n", (500, 800)), Receiving::New);
    }

    #[test]
    fn the_file_has_a_bound_while_a_receiver_takes_nothing() {
        let mut ledger = Ledger::default();
        for nonce in 0..1_000 {
            let id = asked(&mut ledger, nonce, &["a", "down"]);
            ledger.begin(id, "down");
            ledger.withdraw(id, Timestamp::from_millis(0));
        }
        assert_eq!(ledger.asked.questions.len(), MAX_QUESTIONS);
        for nonce in 1_000..1_000 + u64::try_from(MAX_OPEN).unwrap() {
            asked(&mut ledger, nonce, &["a", "down"]);
        }
        assert!(!ledger.has_room());
        assert_eq!(
            ledger.asked.questions.len(),
            MAX_QUESTIONS,
            "open ones are kept, and the oldest closed ones are not"
        );
        assert!(ledger.bytes().len() < 2 << 20, "{}", ledger.bytes().len());
    }
}
