//! What the channel has sent, and what is left to send: kept in a file, so that the next process continues with it.
//!
//! Pure, except that identifiers are drawn: calls are made by the parts that read [`Ledger::next`] and report what came of it.

use std::collections::{BTreeMap, BTreeSet};

use callboard::messages::{ActionKind, ApprovalId, Decision, Envelope};
use serde::{Deserialize, Serialize};

use super::text;

/// The most questions that are kept, open and closed: beyond them the closed ones are forgotten, the oldest first.
const MAX_QUESTIONS: usize = 800;
/// The most with something left to do: open, or with a message that does not show yet what was decided. Others follow when there is room.
const MAX_LIVE: usize = 200;
/// The bytes of the data of a button, which are drawn at random.
const DATA_BYTES: usize = 16;
const VERSION: u32 = 1;

/// What a button does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Choice {
    Approve,
    ApproveForRun,
    Deny,
}

impl Choice {
    fn label(self) -> &'static str {
        match self {
            Self::Approve => "Approve",
            Self::ApproveForRun => "Approve for this run",
            Self::Deny => "Deny",
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Ledger {
    version: u32,
    /// The bot whose messages these are.
    bot: Option<i64>,
    /// The first update that was not handled.
    pub(super) offset: i64,
    questions: BTreeMap<ApprovalId, Question>,
    /// Counts questions, for their order.
    count: u64,
}

/// A question, from the time that it is asked until it is forgotten.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Question {
    number: u64,
    card: String,
    /// The data of its buttons.
    buttons: BTreeMap<String, Choice>,
    /// The messages that show it, by their chats.
    sent: BTreeMap<i64, i64>,
    /// The chats that do not take it.
    failed: BTreeSet<i64>,
    /// Who has tried to decide here, and whether to approve.
    attempts: BTreeSet<(String, bool)>,
    /// What came of it.
    outcome: Option<String>,
    /// Whether that is final: a decision, or that it was withdrawn.
    is_final: bool,
    /// The chats whose message shows what came of it.
    closed: BTreeSet<i64>,
    /// Whether this process was asked about it.
    #[serde(skip)]
    is_asked: bool,
    /// The chats that are to be reminded.
    #[serde(skip)]
    remind: BTreeSet<i64>,
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

impl Default for Ledger {
    fn default() -> Self {
        Self { version: VERSION, bot: None, offset: 0, questions: BTreeMap::new(), count: 0 }
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

    pub(super) fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Messages and updates of another bot mean nothing to this one.
    pub(super) fn set_bot(&mut self, bot: i64) {
        if self.bot.replace(bot).is_some_and(|before| before != bot) {
            self.offset = 0;
            self.questions.retain(|_, question| question.is_asked);
            for question in self.questions.values_mut() {
                question.sent.clear();
                question.failed.clear();
                question.closed.clear();
            }
        }
    }

    /// Notes a question that is open; whether there was room for it.
    pub(super) fn ask(&mut self, envelope: &Envelope, how: impl FnOnce() -> String) -> Result<bool, getrandom::Error> {
        let id = envelope.id();
        if let Some(question) =
            self.questions.get_mut(&id).filter(|question| question.outcome.is_none() || question.is_final)
        {
            question.is_asked = true;
            return Ok(true);
        }
        if !self.has_room() {
            return Ok(false);
        }
        let is_once = &*envelope.policy != Envelope::ASK || envelope.kind == ActionKind::Handoff;
        let mut buttons = BTreeMap::new();
        for choice in [Choice::Approve, Choice::ApproveForRun, Choice::Deny] {
            if choice != Choice::ApproveForRun || !is_once {
                buttons.insert(random()?, choice);
            }
        }
        self.count += 1;
        let question = Question {
            number: self.count,
            card: text::card(envelope, &how()),
            buttons,
            sent: BTreeMap::new(),
            failed: BTreeSet::new(),
            attempts: BTreeSet::new(),
            outcome: None,
            is_final: false,
            closed: BTreeSet::new(),
            is_asked: true,
            remind: BTreeSet::new(),
        };
        self.questions.insert(id, question);
        self.forget();
        Ok(true)
    }

    /// Whether one more question may be open.
    pub(super) fn has_room(&self) -> bool {
        self.questions.values().filter(|question| !question.is_done()).count() < MAX_LIVE
    }

    /// Forgets the oldest questions that are closed, beyond the most that are kept.
    fn forget(&mut self) {
        let excess = self.questions.len().saturating_sub(MAX_QUESTIONS);
        let closed = self.questions.iter().filter(|(_, question)| question.is_done());
        let mut oldest: Vec<(u64, ApprovalId)> = closed.map(|(id, question)| (question.number, *id)).collect();
        oldest.sort_unstable();
        for (_, id) in oldest.into_iter().take(excess) {
            self.questions.remove(&id);
        }
    }

    /// Notes what came of a question: a decision, or that it was withdrawn.
    pub(super) fn settle(&mut self, id: ApprovalId, decision: Option<&Decision>) {
        let Some(question) = self.questions.get_mut(&id) else { return };
        let is_here = decision.is_some_and(|by| question.attempts.contains(&(by.by.to_string(), by.approved)));
        if !question.is_final {
            question.close(text::outcome(decision, is_here), true);
        }
    }

    /// Notes that no board asks about it any more, as far as is known here.
    pub(super) fn give_up(&mut self, id: ApprovalId) {
        if let Some(question) = self.questions.get_mut(&id).filter(|it| !it.is_asked && it.outcome.is_none()) {
            question.close("no longer open here: it was withdrawn, or another process has it".to_owned(), false);
        }
    }

    /// The open questions of earlier processes that this one was not asked about.
    pub(super) fn left_over(&self) -> Vec<ApprovalId> {
        let left = self.questions.iter().filter(|(_, question)| question.outcome.is_none() && !question.is_asked);
        left.map(|(id, _)| *id).collect()
    }

    /// Has people reminded of a question that is open.
    pub(super) fn remind(&mut self, id: ApprovalId) {
        if let Some(question) = self.questions.get_mut(&id) {
            question.remind = question.sent.keys().copied().collect();
        }
    }

    /// The next call that is left to make. Of several questions, that of the oldest.
    pub(super) fn next(&self, chats: &BTreeSet<i64>) -> Option<Call> {
        let mut questions: Vec<_> = self.questions.iter().collect();
        questions.sort_unstable_by_key(|(_, question)| question.number);
        questions.into_iter().find_map(|(id, question)| question.next(*id, chats))
    }

    pub(super) fn sent(&mut self, id: ApprovalId, chat: i64, message: i64, text: &str) {
        if let Some(question) = self.questions.get_mut(&id) {
            question.sent.insert(chat, message);
            if question.card.is_empty() {
                // It was closed while this was sent.
                text.clone_into(&mut question.card);
            }
        }
    }

    pub(super) fn failed(&mut self, id: ApprovalId, chat: i64) {
        if let Some(question) = self.questions.get_mut(&id) {
            question.failed.insert(chat);
        }
    }

    pub(super) fn closed(&mut self, id: ApprovalId, chat: i64) {
        if let Some(question) = self.questions.get_mut(&id) {
            question.closed.insert(chat);
            question.clear();
        }
    }

    pub(super) fn reminded(&mut self, id: ApprovalId, chat: i64) {
        if let Some(question) = self.questions.get_mut(&id) {
            question.remind.remove(&chat);
        }
    }

    /// What the button with this data does, if it was clicked where it was sent to.
    pub(super) fn clicked(&self, data: &str, chat: i64, message: i64) -> Found {
        let is_it = |question: &Question| question.sent.get(&chat) == Some(&message);
        let mut found = self.questions.iter().filter_map(|(id, it)| Some((id, it, *it.buttons.get(data)?)));
        match found.next() {
            Some((id, question, choice)) if is_it(question) => question.found(*id, choice),
            Some((_, question, _)) if question.outcome.is_none() && !question.sent.contains_key(&chat) => {
                Found::Sending
            }
            _ => Found::Unknown,
        }
    }

    /// The question that the message shows. An answer to it denies.
    pub(super) fn answered(&self, chat: i64, message: i64) -> Found {
        let mut shown = self.questions.iter().filter(|(_, question)| question.sent.get(&chat) == Some(&message));
        shown.next().map_or(Found::Unknown, |(id, question)| question.found(*id, Choice::Deny))
    }

    /// Notes that somebody is about to decide here.
    pub(super) fn attempt(&mut self, id: ApprovalId, by: &str, approves: bool) {
        if let Some(question) = self.questions.get_mut(&id) {
            question.attempts.insert((by.to_owned(), approves));
        }
    }
}

impl Question {
    fn close(&mut self, outcome: String, is_final: bool) {
        (self.outcome, self.is_final) = (Some(outcome), is_final);
        self.remind.clear();
        self.clear();
    }

    /// Forgets the card, if no message needs it any more.
    fn clear(&mut self) {
        if self.is_done() {
            self.card.clear();
        }
    }

    /// Whether nothing is left to do.
    fn is_done(&self) -> bool {
        self.outcome.is_some() && self.sent.keys().all(|chat| self.closed.contains(chat))
    }

    fn found(&self, id: ApprovalId, choice: Choice) -> Found {
        match &self.outcome {
            Some(outcome) => Found::Closed(outcome.clone()),
            None => Found::Open(id, choice),
        }
    }

    fn next(&self, id: ApprovalId, chats: &BTreeSet<i64>) -> Option<Call> {
        if let Some(outcome) = &self.outcome {
            let (chat, message) = self.sent.iter().find(|(chat, _)| !self.closed.contains(chat))?;
            return Some(Call::Close { id, chat: *chat, message: *message, text: text::closed(&self.card, outcome) });
        }
        let is_unsent = |chat: &&i64| self.is_asked && !self.sent.contains_key(chat) && !self.failed.contains(chat);
        if let Some(chat) = chats.iter().find(is_unsent) {
            let mut buttons: Vec<_> = self.buttons.iter().map(|(data, choice)| (*choice, data.clone())).collect();
            buttons.sort();
            let buttons = buttons.into_iter().map(|(choice, data)| (data, choice.label())).collect();
            let text = format!("{}\n\nTo deny with a reason, reply to this message.", self.card);
            return Some(Call::Send { id, chat: *chat, text, buttons });
        }
        let chat = self.remind.iter().find_map(|chat| Some((*chat, *self.sent.get(chat)?)))?;
        Some(Call::Remind { id, chat: chat.0, message: chat.1 })
    }
}

/// Data for a button, which nobody can guess.
fn random() -> Result<String, getrandom::Error> {
    let mut bytes = [0; DATA_BYTES];
    getrandom::fill(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use callboard::messages::{Action, AgentName, RequestId, Terms, Timestamp, TurnId};
    use serde_json::json;

    use super::*;

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
            nonce,
            expires_at: Timestamp::from_millis(0),
        }
    }

    fn asked(ledger: &mut Ledger, nonce: u64) -> ApprovalId {
        let envelope = envelope(nonce);
        assert_eq!(ledger.ask(&envelope, String::new).unwrap(), ledger.questions.contains_key(&envelope.id()));
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
        next.settle(id, None);
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
        let decision =
            Decision { approved: true, by: "ann".into(), reason: "".into(), at, terms: Terms::Once, votes: Vec::new() };
        ledger.settle(id, Some(&decision));
        ledger.settle(id, None);
        asked(&mut ledger, 1);
        let Some(Call::Close { text, .. }) = ledger.next(&chats) else { panic!("{:?}", ledger.next(&chats)) };
        assert!(text.starts_with("approved by ann at 1970-01-01 00:00 UTC, elsewhere"), "{text}");
        ledger.closed(id, 1);
        assert_eq!(ledger.next(&chats), None);
    }

    #[test]
    fn the_file_has_a_bound() {
        let (mut ledger, chats) = (Ledger::default(), BTreeSet::from([1]));
        for nonce in 0..1_100_u32 {
            if !ledger.has_room() {
                assert!(!ledger.ask(&envelope(nonce.into()), String::new).unwrap());
                let open: Vec<ApprovalId> = ledger.questions.keys().copied().collect();
                for id in open {
                    ledger.settle(id, None);
                    ledger.closed(id, 1);
                }
            }
            asked(&mut ledger, nonce.into());
            sent(&mut ledger, &chats, nonce.into());
        }
        assert!(ledger.questions.len() <= MAX_QUESTIONS && ledger.bytes().len() < 1 << 20, "{}", ledger.bytes().len());
    }
}
