//! What the channel has sent, and what is left to send: kept in a file, so that the next process continues with it.
//!
//! Pure, except that identifiers are drawn: calls are made by the parts that read [`Ledger::next`] and report what came of it.

use std::collections::{BTreeMap, BTreeSet};

use callboard::messages::{ActionKind, ApprovalId, Decision, Envelope};
use serde::{Deserialize, Serialize};

use super::text;
use crate::deciding::{self, Choice};
use crate::questions::{Question, Questions, Receipt, Step, random};
use crate::texts::GIVEN_UP;

const VERSION: u32 = 1;

/// What a button says.
fn label(choice: Choice) -> &'static str {
    match choice {
        Choice::Approve => "Approve",
        Choice::ApproveForRun => "Approve for this run",
        Choice::Deny => "Deny",
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    /// The bot whose messages these are.
    bot: Option<i64>,
    /// The first update that was not handled.
    pub(super) offset: i64,
    /// The questions, with the ids of their messages by the chats, and with the data of their buttons.
    asked: Questions<i64, MessageId, Choice>,
}

/// The content of the file.
#[derive(Serialize, Deserialize)]
struct Stored {
    version: u32,
    bot: Option<i64>,
    offset: i64,
    questions: BTreeMap<ApprovalId, Question<i64, MessageId, Choice>>,
    count: u64,
}

/// A message in a chat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
struct MessageId(i64);

impl Receipt for MessageId {
    /// The answer of the server has it.
    fn is_confirmed(&self) -> bool {
        true
    }
}

/// A call that is left to make.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Call {
    /// Send a question with its buttons, in rows.
    Send { id: ApprovalId, chat: i64, text: String, buttons: Vec<(String, &'static str)> },
    /// Replace the text of a message, and remove its buttons.
    Close { id: ApprovalId, chat: i64, message: i64, text: String },
    /// Answer a message with the reminder.
    Remind { id: ApprovalId, chat: i64, message: i64 },
}

/// What a click or an answer is about.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Found {
    Open(ApprovalId, Choice),
    /// It is closed: what came of it.
    Closed(String),
    /// It is not known yet which message shows it: the answer to the call that sends it may arrive after a click.
    Sending,
    /// No message of the channel has this button, or it is in another chat or another message.
    Unknown,
}

impl Ledger {
    /// # Errors
    /// The bytes are not those of a ledger, or of a later version.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        let stored: Stored = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        let Stored { version, bot, offset, questions, count } = stored;
        if version == VERSION {
            Ok(Self { bot, offset, asked: Questions { questions, count } })
        } else {
            Err(format!("its version is {version}, and this one reads version {VERSION}"))
        }
    }

    /// Messages and updates of another bot mean nothing to this one.
    pub(super) fn set_bot(&mut self, bot: i64) {
        if self.bot.replace(bot).is_some_and(|before| before != bot) {
            self.offset = 0;
            self.asked.forget_sent();
        }
    }

    /// Notes a question that is open; whether there was room for it.
    pub(super) fn ask(&mut self, envelope: &Envelope, how: impl FnOnce() -> String) -> Result<bool, getrandom::Error> {
        self.asked.ask(envelope.id(), || {
            let is_once = &*envelope.policy != Envelope::ASK || envelope.kind == ActionKind::Handoff;
            let mut buttons = BTreeMap::new();
            for choice in [Choice::Approve, Choice::ApproveForRun, Choice::Deny] {
                if choice != Choice::ApproveForRun || !is_once {
                    buttons.insert(random()?, choice);
                }
            }
            Ok((text::card(envelope, &how()), buttons))
        })
    }

    /// Notes what came of a question: a decision, or that it was withdrawn.
    pub(super) fn close(&mut self, id: ApprovalId, decision: Option<&Decision>) {
        self.asked.settle(id, decision, |is_here| text::outcome(decision, is_here));
    }

    /// Has people reminded of a question that is open.
    pub(super) fn remind(&mut self, id: ApprovalId) {
        self.asked.remind(id);
    }

    /// The next call that is left to make. Of several questions, that of the oldest.
    pub(super) fn next(&self, chats: &BTreeSet<i64>) -> Option<Call> {
        Some(match self.asked.next(chats, |_| true)? {
            Step::Send { id, place: chat } => {
                let question = self.asked.get(id)?;
                let mut buttons: Vec<_> = question.data.iter().map(|(data, choice)| (*choice, data.clone())).collect();
                buttons.sort();
                let buttons = buttons.into_iter().map(|(choice, data)| (data, label(choice))).collect();
                let text = format!("{}\n\nTo deny with a reason, reply to this message.", question.card);
                Call::Send { id, chat, text, buttons }
            }
            Step::Close { id, place: chat, sent: MessageId(message) } => {
                let question = self.asked.get(id)?;
                Call::Close { id, chat, message, text: text::closed(&question.card, question.outcome.as_deref()?) }
            }
            Step::Remind { id, place: chat, sent: MessageId(message) } => Call::Remind { id, chat, message },
        })
    }

    pub(super) fn sent(&mut self, id: ApprovalId, chat: i64, message: i64, text: &str) {
        self.asked.sent(id, chat, MessageId(message), text);
    }

    pub(super) fn failed(&mut self, id: ApprovalId, chat: i64) {
        self.asked.failed(id, chat);
    }

    pub(super) fn closed(&mut self, id: ApprovalId, chat: i64) {
        self.asked.closed(id, chat);
    }

    pub(super) fn reminded(&mut self, id: ApprovalId, chat: i64) {
        self.asked.reminded(id, &chat);
    }

    /// What the button with this data does, if it was clicked where it was sent to.
    pub(super) fn clicked(&self, data: &str, chat: i64, message: i64) -> Found {
        let questions = self.asked.questions.iter();
        let mut with_button = questions.filter_map(|(id, it)| Some((id, it, *it.data.get(data)?)));
        match with_button.next() {
            Some((id, question, choice)) if is_shown(question, chat, message) => found(question, *id, choice),
            Some((_, question, _)) if question.outcome.is_none() && !question.sent.contains_key(&chat) => {
                Found::Sending
            }
            _ => Found::Unknown,
        }
    }

    /// The question that the message shows. An answer to it denies.
    pub(super) fn answered(&self, chat: i64, message: i64) -> Found {
        let mut shown = self.asked.questions.iter().filter(|(_, question)| is_shown(question, chat, message));
        shown.next().map_or(Found::Unknown, |(id, question)| found(question, *id, Choice::Deny))
    }
}

fn is_shown(question: &Question<i64, MessageId, Choice>, chat: i64, message: i64) -> bool {
    question.sent.get(&chat) == Some(&MessageId(message))
}

fn found(question: &Question<i64, MessageId, Choice>, id: ApprovalId, choice: Choice) -> Found {
    match &question.outcome {
        Some(outcome) => Found::Closed(outcome.clone()),
        None => Found::Open(id, choice),
    }
}

impl deciding::Ledger for Ledger {
    fn bytes(&self) -> Vec<u8> {
        let Self { bot, offset, asked: Questions { questions, count } } = self.clone();
        serde_json::to_vec(&Stored { version: VERSION, bot, offset, questions, count }).unwrap_or_default()
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
    use callboard::messages::{Action, AgentName, Rationale, RequestId, Terms, Timestamp, TurnId};
    use serde_json::json;

    use super::*;
    use crate::deciding::Ledger as _;
    use crate::questions::MAX_QUESTIONS;

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
            deciders: callboard::messages::Deciders::default(),
            requester: None,
            escalates_at: None,
            edited_by: None,
            rationale: Rationale::default(),
            nonce,
            expires_at: Timestamp::from_millis(0),
        }
    }

    fn asked(ledger: &mut Ledger, nonce: u64) -> ApprovalId {
        let envelope = envelope(nonce);
        assert_eq!(ledger.ask(&envelope, String::new).unwrap(), ledger.asked.questions.contains_key(&envelope.id()));
        envelope.id()
    }

    /// Sends what is left to send; the messages are numbered from here.
    fn sent(ledger: &mut Ledger, chats: &BTreeSet<i64>, mut message: i64) -> Vec<(String, i64, i64)> {
        let mut data = Vec::new();
        while let Some(Call::Send { id, chat, text, buttons }) = ledger.next(chats) {
            ledger.sent(id, chat, message, &text);
            data.push((buttons[0].0.clone(), chat, message));
            message += 1;
        }
        data
    }

    #[test]
    fn the_next_process_continues_with_what_was_kept() {
        let (mut ledger, chats) = (Ledger::default(), BTreeSet::from([1, 2]));
        ledger.set_bot(7);
        let id = asked(&mut ledger, 1);
        let data = sent(&mut ledger, &chats, 10);
        let mut next = Ledger::read(&ledger.bytes()).unwrap();
        next.set_bot(7);
        assert_eq!((next.left_over(), next.next(&chats)), (vec![id], None), "it is sent already");
        for (data, chat, message) in &data {
            assert_eq!(next.clicked(data, *chat, *message), Found::Open(id, Choice::Approve));
            assert_eq!(next.clicked(data, *chat, message + 2), Found::Unknown);
            assert_eq!(next.clicked(data, 3 - chat, *message), Found::Unknown);
        }
        assert_eq!(asked(&mut next, 1), id);
        assert_eq!((next.left_over(), next.next(&chats)), (vec![], None), "it is open already");
        next.close(id, None);
        let Some(Call::Close { text, .. }) = next.next(&chats) else { panic!("{:?}", next.next(&chats)) };
        assert!(text.starts_with("withdrawn") && text.contains("a.md"), "{text}");
        let after_another_bot = &mut Ledger::read(&ledger.bytes()).unwrap();
        after_another_bot.set_bot(8);
        assert_eq!(after_another_bot.clicked(&data[0].0, data[0].1, data[0].2), Found::Unknown);
        assert!(Ledger::read(br#"{"version":2,"bot":null,"offset":0,"questions":{},"count":0}"#).is_err());
    }

    #[test]
    fn what_was_given_up_is_sent_again_when_it_is_asked_and_what_was_decided_is_not() {
        let (mut ledger, chats) = (Ledger::default(), BTreeSet::from([1]));
        let id = asked(&mut ledger, 1);
        let before = sent(&mut ledger, &chats, 10);
        ledger = Ledger::read(&ledger.bytes()).unwrap();
        ledger.give_up(id);
        assert!(matches!(ledger.clicked(&before[0].0, 1, 10), Found::Closed(_)));
        asked(&mut ledger, 1);
        let again = sent(&mut ledger, &chats, 20);
        assert_eq!(ledger.clicked(&again[0].0, 1, 20), Found::Open(id, Choice::Approve));
        assert_eq!(ledger.clicked(&before[0].0, 1, 10), Found::Unknown);
        let at = Timestamp::from_millis(0);
        let decision = Decision {
            approved: true,
            by: "ann".into(),
            reason: "".into(),
            at,
            terms: Terms::Once,
            votes: Vec::new(),
            via: "".into(),
        };
        ledger.close(id, Some(&decision));
        ledger.close(id, None);
        asked(&mut ledger, 1);
        let Some(Call::Close { text, .. }) = ledger.next(&chats) else { panic!("{:?}", ledger.next(&chats)) };
        assert!(text.starts_with("approved by ann at 1970-01-01 00:00 UTC, elsewhere"), "{text}");
        ledger.closed(id, 1);
        assert_eq!(ledger.next(&chats), None);
    }

    #[test]
    fn what_was_withdrawn_is_sent_again_when_it_is_asked_again() {
        let (mut ledger, chats) = (Ledger::default(), BTreeSet::from([1]));
        let id = asked(&mut ledger, 1);
        let before = sent(&mut ledger, &chats, 10);
        ledger.close(id, None);
        ledger.closed(id, 1);
        ledger = Ledger::read(&ledger.bytes()).unwrap();
        assert_eq!(ledger.next(&chats), None);
        asked(&mut ledger, 1);
        let again = sent(&mut ledger, &chats, 20);
        assert_eq!(ledger.clicked(&again[0].0, 1, 20), Found::Open(id, Choice::Approve));
        assert_eq!(ledger.clicked(&before[0].0, 1, 10), Found::Unknown, "the first message is closed");
    }

    #[test]
    fn the_file_has_a_bound() {
        let (mut ledger, chats) = (Ledger::default(), BTreeSet::from([1]));
        for nonce in 0..1_100_u32 {
            if !ledger.has_room() {
                assert!(!ledger.ask(&envelope(nonce.into()), String::new).unwrap());
                let open: Vec<ApprovalId> = ledger.asked.questions.keys().copied().collect();
                for id in open {
                    ledger.close(id, None);
                    ledger.closed(id, 1);
                }
            }
            asked(&mut ledger, nonce.into());
            sent(&mut ledger, &chats, nonce.into());
        }
        assert!(
            ledger.asked.questions.len() <= MAX_QUESTIONS && ledger.bytes().len() < 1 << 20,
            "{}",
            ledger.bytes().len()
        );
    }
}
