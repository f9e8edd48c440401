//! What the channel has sent, and what is left to send: kept in a file, so that the next process continues with it.
//!
//! Pure, except that identifiers are drawn: calls are made by the parts that read [`Ledger::next`] and report what came of it.

use std::collections::{BTreeMap, BTreeSet};

use callboard::messages::{ActionKind, ApprovalId, Decision, Envelope};
use serde::{Deserialize, Serialize};

use super::following::Continued;
use super::message;
use super::recent::Recent;
use crate::deciding;
use crate::questions::{Question, Questions, Receipt, Step, random};
use crate::texts::GIVEN_UP;

const VERSION: u32 = 1;

/// What a question offers beside approving and denying it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Offered {
    /// Whether it can be approved for the whole run.
    pub(super) for_run: bool,
}

/// An event that shows a question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct EventId(String);

impl Receipt for EventId {
    /// The answer of the server has it.
    fn is_confirmed(&self) -> bool {
        true
    }
}

/// Questions by rooms; each has one piece of data.
type Asked = Questions<String, EventId, Offered>;

#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    /// The account whose messages these are.
    account: Option<String>,
    /// Where the next call of `/sync` continues.
    since: Option<String>,
    /// The replies that were handled: a server may send one again.
    handled: Recent,
    /// The refusals that were answered: each account is told once about a question.
    told: Recent,
    asked: Asked,
    /// Counts reminders: each has a transaction of its own.
    reminders: u64,
}

/// The content of the file.
#[derive(Serialize, Deserialize)]
struct Stored {
    version: u32,
    account: Option<String>,
    since: Option<String>,
    handled: Recent,
    told: Recent,
    reminders: u64,
    questions: BTreeMap<ApprovalId, Question<String, EventId, Offered>>,
    count: u64,
}

/// A call that is left to make, each with the transaction that makes it once.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Call {
    /// Send a question.
    Send { id: ApprovalId, room: String, nonce: String, card: String, offered: Offered },
    /// Replace the message with one that shows what came of it.
    Close { id: ApprovalId, room: String, nonce: String, event: String, card: String, outcome: String },
    /// Reply to the message with the reminder.
    Remind { id: ApprovalId, room: String, event: String, number: u64, nonce: String },
}

/// What a reply is about.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Found {
    Open {
        id: ApprovalId,
        nonce: String,
        offered: Offered,
    },
    /// It is closed: what came of it.
    Closed(String),
    /// No question is shown there.
    Unknown,
}

impl Ledger {
    /// # Errors
    /// The bytes are not those of a ledger, or of a later version.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        let stored: Stored = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        let Stored { version, account, since, handled, told, reminders, questions, count } = stored;
        if version == VERSION {
            Ok(Self { account, since, handled, told, asked: Questions { questions, count }, reminders })
        } else {
            Err(format!("its version is {version}, and this one reads version {VERSION}"))
        }
    }

    /// Forgets the messages in other rooms.
    pub(super) fn retain_rooms(&mut self, rooms: &BTreeSet<String>) {
        self.asked.retain_places(|room| rooms.contains(room));
    }

    /// Notes a question that is open; whether there was room for it.
    pub(super) fn ask(&mut self, envelope: &Envelope, how: impl FnOnce() -> String) -> Result<bool, getrandom::Error> {
        self.asked.ask(envelope.id(), || {
            let is_once = &*envelope.policy != Envelope::ASK || envelope.kind == ActionKind::Handoff;
            let data = BTreeMap::from([(random()?, Offered { for_run: !is_once })]);
            Ok((message::card(envelope, &how()), data))
        })
    }

    /// Notes what came of a question: a decision, or that it was withdrawn.
    pub(super) fn close(&mut self, id: ApprovalId, decision: Option<&Decision>) {
        self.asked.settle(id, decision, |is_here| message::outcome(decision, is_here));
    }

    /// Has people reminded of a question that is open.
    pub(super) fn remind(&mut self, id: ApprovalId) {
        self.reminders += 1;
        self.asked.remind(id);
    }

    /// Has people in a room reminded of the questions that are open there.
    pub(super) fn remind_in(&mut self, room: &str) {
        self.reminders += 1;
        self.asked.remind_in(&room.to_owned());
    }

    /// Has questions sent to a room again that did not take them.
    pub(super) fn retry(&mut self, room: &str) {
        self.asked.retry(&room.to_owned());
    }

    /// Whether questions are open in a room.
    pub(super) fn is_open_in(&self, room: &str) -> bool {
        !self.asked.open_in(&room.to_owned()).is_empty()
    }

    /// The events that show the open questions of a room, and whether there is one for each of them.
    pub(super) fn shown_in(&self, room: &str) -> (BTreeSet<String>, bool) {
        let open = self.asked.open_in(&room.to_owned());
        let shown: BTreeSet<_> = open.iter().flatten().map(|EventId(event)| event.clone()).collect();
        let is_each = open.iter().all(Option::is_some);
        (shown, is_each)
    }

    /// The next call that is left to make in these rooms. Of several questions, that of the oldest.
    pub(super) fn next(&self, rooms: &BTreeSet<String>) -> Option<Call> {
        Some(match self.asked.next(rooms, |room| rooms.contains(room))? {
            Step::Send { id, place: room } => {
                let question = self.asked.get(id)?;
                let (nonce, offered) = data(question)?;
                Call::Send { id, room, nonce, card: question.card.clone(), offered }
            }
            Step::Close { id, place: room, sent: EventId(event) } => {
                let question = self.asked.get(id)?;
                let ((nonce, _), outcome) = (data(question)?, question.outcome.clone()?);
                Call::Close { id, room, nonce, event, card: question.card.clone(), outcome }
            }
            Step::Remind { id, place: room, sent: EventId(event) } => {
                let (nonce, _) = data(self.asked.get(id)?)?;
                Call::Remind { id, room, event, number: self.reminders, nonce }
            }
        })
    }

    pub(super) fn sent(&mut self, id: ApprovalId, room: &str, event: &str, card: &str) {
        self.asked.sent(id, room.to_owned(), EventId(event.to_owned()), card);
    }

    /// Notes a message of the channel with this data that the server reports: its answer may have been lost, or arrive later.
    pub(super) fn seen(&mut self, nonce: &str, room: &str, event: &str) -> bool {
        let mut with_data = self.asked.questions.iter().filter(|(_, question)| question.data.contains_key(nonce));
        let found = with_data.next().filter(|(_, question)| !question.sent.contains_key(room));
        let Some((id, card)) = found.map(|(id, question)| (*id, question.card.clone())) else { return false };
        self.sent(id, room, event, &card);
        true
    }

    pub(super) fn failed(&mut self, id: ApprovalId, room: &str) {
        self.asked.failed(id, room.to_owned());
    }

    pub(super) fn closed(&mut self, id: ApprovalId, room: &str) {
        self.asked.closed(id, room.to_owned());
    }

    pub(super) fn reminded(&mut self, id: ApprovalId, room: &str) {
        self.asked.reminded(id, &room.to_owned());
    }

    /// The question that the event shows.
    pub(super) fn shown(&self, room: &str, event: &str) -> Found {
        let is_it = |question: &Question<_, EventId, _>| question.sent.get(room).is_some_and(|sent| sent.0 == event);
        let Some((id, question)) = self.asked.questions.iter().find(|(_, question)| is_it(question)) else {
            return Found::Unknown;
        };
        match (&question.outcome, data(question)) {
            (Some(outcome), _) => Found::Closed(outcome.clone()),
            (None, Some((nonce, offered))) => Found::Open { id: *id, nonce, offered },
            (None, None) => Found::Unknown,
        }
    }

    /// Whether this reply was handled.
    pub(super) fn is_handled(&self, event: &str) -> bool {
        self.handled.has(event)
    }

    /// Notes that this reply was handled.
    pub(super) fn handle(&mut self, event: &str) {
        self.handled.is_new(event);
    }

    /// Whether this account was not told this about this event yet; from now on it was.
    pub(super) fn tell(&mut self, account: &str, event: &str, why: &str) -> bool {
        self.told.is_new(&format!("{account} {event} {why}"))
    }
}

fn data(question: &Question<String, EventId, Offered>) -> Option<(String, Offered)> {
    question.data.iter().next().map(|(nonce, offered)| (nonce.clone(), *offered))
}

impl Continued for Ledger {
    fn since(&self) -> Option<&str> {
        self.since.as_deref()
    }

    fn continue_at(&mut self, since: Option<String>) {
        self.since = since;
    }

    fn set_account(&mut self, account: &str) {
        if self.account.replace(account.to_owned()).is_some_and(|before| before != account) {
            self.since = None;
            self.asked.forget_sent();
        }
    }
}

impl deciding::Ledger for Ledger {
    fn bytes(&self) -> Vec<u8> {
        let Self { account, since, handled, told, asked: Questions { questions, count }, reminders } = self.clone();
        let stored = Stored { version: VERSION, account, since, handled, told, reminders, questions, count };
        serde_json::to_vec(&stored).unwrap_or_default()
    }

    fn has_room(&self) -> bool {
        self.asked.has_room()
    }

    fn left_over(&self) -> Vec<ApprovalId> {
        self.asked.left_over()
    }

    fn settle(&mut self, id: ApprovalId, decision: &Decision) {
        self.close(id, Some(decision));
    }

    fn give_up(&mut self, id: ApprovalId) {
        self.asked.give_up(id, GIVEN_UP.to_owned());
    }

    fn attempt(&mut self, id: ApprovalId, by: &str, approves: bool) {
        self.asked.attempt(id, by, approves);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deciding::Ledger as _;

    #[test]
    fn the_newest_replies_are_kept_and_the_next_process_knows_them() {
        let mut ledger = Ledger::default();
        for number in 0..1_000 {
            ledger.handle(&format!("${number}"));
            assert!(
                ledger.tell("@a:b", &format!("${number}"), "no") && !ledger.tell("@a:b", &format!("${number}"), "no")
            );
        }
        let next = Ledger::read(&ledger.bytes()).unwrap();
        assert!(next.is_handled("$999") && next.is_handled("$744") && !next.is_handled("$743"));
        assert!(ledger.bytes().len() < 1 << 15, "{}", ledger.bytes().len());
    }

    #[test]
    fn another_account_begins_anew_and_a_later_version_is_refused() {
        let mut ledger = Ledger { since: Some("s1".to_owned()), ..Ledger::default() };
        ledger.set_account("@a:b");
        assert_eq!(ledger.since.as_deref(), Some("s1"));
        ledger.set_account("@c:b");
        assert_eq!(ledger.since, None);
        let text = String::from_utf8(ledger.bytes()).unwrap();
        assert!(Ledger::read(text.as_bytes()).is_ok());
        let later = Ledger::read(text.replace("\"version\":1", "\"version\":2").as_bytes()).unwrap_err();
        assert_eq!(later, "its version is 2, and this one reads version 1");
        assert!(Ledger::read(b"{").is_err());
    }
}
