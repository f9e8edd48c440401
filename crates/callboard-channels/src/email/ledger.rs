//! What the channel has sent, and what is left to send: kept in a file, so that the next process continues with it. Pure.

use std::collections::{BTreeMap, BTreeSet};

use callboard::messages::{ApprovalId, Decision, Envelope};
use serde::{Deserialize, Serialize};

use super::config::EmailConfig;
use super::message::{self, Kind, Mail, Texts};
use crate::deciding;
use crate::questions::{Questions, Receipt, Step};
use crate::texts::GIVEN_UP;

const VERSION: u32 = 1;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Ledger {
    version: u32,
    /// The questions: whether a mail to an address was taken, and the people who may decide, by their addresses.
    asked: Questions<String, Taken, String>,
    /// The questions of which it is to be found out who may decide them.
    #[serde(skip)]
    unchecked: BTreeSet<ApprovalId>,
}

/// Whether the server has taken a mail. What came of a question is also sent after one that it may have taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
struct Taken(bool);

impl Receipt for Taken {
    fn is_confirmed(&self) -> bool {
        self.0
    }
}

impl Default for Ledger {
    fn default() -> Self {
        Self { version: VERSION, asked: Questions::default(), unchecked: BTreeSet::new() }
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

    /// Forgets the mails to addresses that are no more.
    pub(super) fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        self.asked.retain_places(|address| is_there(address));
    }

    /// Notes a question that is open; whether there was room for it.
    pub(super) fn ask(&mut self, envelope: &Envelope, config: &EmailConfig) -> bool {
        let make = || Ok::<_, std::convert::Infallible>((Texts::of(envelope, config).kept(), BTreeMap::new()));
        let Ok(is_noted) = self.asked.ask(envelope.id(), make);
        if is_noted {
            self.check_again(envelope.id());
        }
        is_noted
    }

    /// Has it found out who may decide a question now.
    pub(super) fn check_again(&mut self, id: ApprovalId) {
        self.unchecked.insert(id);
    }

    /// The next question of which it is to be found out who may decide it.
    pub(super) fn take_unchecked(&mut self) -> Option<ApprovalId> {
        self.unchecked.pop_first()
    }

    pub(super) fn has_unchecked(&self) -> bool {
        !self.unchecked.is_empty()
    }

    /// Notes the people who may decide a question, by their addresses.
    pub(super) fn set_people(&mut self, id: ApprovalId, people: BTreeMap<String, String>) {
        self.asked.set_data(id, people);
    }

    /// Notes what came of a question: a decision, or that it was withdrawn.
    pub(super) fn close(&mut self, id: ApprovalId, decision: Option<&Decision>) {
        self.asked.settle(id, decision, |_| message::outcome(decision));
    }

    /// Has people reminded of a question that is open.
    pub(super) fn remind(&mut self, id: ApprovalId) {
        self.asked.remind(id);
    }

    /// The next mail that is left to send to one of the addresses that `is_ready` is for. Of several questions, that of the oldest.
    pub(super) fn next(&self, is_ready: impl Fn(&str) -> bool) -> Option<Mail> {
        let step = self.asked.next_of(
            |question| question.data.keys().filter(|address| is_ready(address)),
            |address| is_ready(address),
        )?;
        let (kind, approval, to) = match step {
            Step::Send { id, place } => (Kind::Asked, id, place),
            Step::Remind { id, place, .. } => (Kind::Reminded, id, place),
            Step::Close { id, place, .. } => (Kind::Closed, id, place),
        };
        let question = self.asked.get(approval)?;
        let texts = Texts::read(&question.card);
        let (subject, text) = texts.mail(kind, question.outcome.as_deref().unwrap_or_default());
        Some(Mail { kind, approval, to, subject, text })
    }

    /// Notes that a question is mailed from now on: it may arrive, whatever is known of that.
    pub(super) fn begin(&mut self, mail: &Mail) {
        self.asked.sent(mail.approval, mail.to.clone(), Taken(false), "");
    }

    /// Whether the question was sent to the address before, with or without an answer.
    pub(super) fn has_begun(&self, mail: &Mail) -> bool {
        self.asked.get(mail.approval).is_some_and(|question| question.sent.contains_key(&mail.to))
    }

    /// Notes that a mail was taken, or never will be.
    pub(super) fn end(&mut self, mail: &Mail, is_taken: bool) {
        let (id, to) = (mail.approval, mail.to.clone());
        match (mail.kind, is_taken) {
            (Kind::Asked, true) => self.asked.sent(id, to, Taken(true), ""),
            (Kind::Asked, false) => {
                self.asked.unsent(id, &to);
                self.asked.failed(id, to);
            }
            (Kind::Reminded, _) => self.asked.reminded(id, &to),
            (Kind::Closed, _) => self.asked.closed(id, to),
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
    use callboard::messages::{
        Action, ActionKind, AgentName, Deciders, Rationale, RequestId, Terms, Timestamp, TurnId,
    };
    use serde_json::json;

    use super::*;
    use crate::deciding::Ledger as _;
    use crate::questions::{MAX_OPEN, MAX_QUESTIONS};

    /// The file of version 1 with a question that was mailed to one of two people.
    const GOLDEN: &str = include_str!("golden/ledger-1.json");

    fn config() -> EmailConfig {
        EmailConfig::new("localhost", "board@example.org", "").how_to_see(|_| "callboard pending".to_owned())
    }

    fn envelope(nonce: u64) -> Envelope {
        let turn = TurnId { run: "0192f0c1-2345-7abc-8def-0123456789ab".parse().unwrap(), number: 1 };
        Envelope {
            version: Envelope::VERSION,
            kind: ActionKind::Requested,
            remind_at: None,
            request: RequestId { turn, ordinal: 0 },
            agent: AgentName::new("coder").unwrap(),
            action: Action::new("write_file", "a.md", json!({ "secret": "CANARY" })),
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

    fn people(names: &[&str]) -> BTreeMap<String, String> {
        names.iter().map(|name| (format!("{name}@example.org"), (*name).to_owned())).collect()
    }

    fn asked(ledger: &mut Ledger, nonce: u64, names: &[&str]) -> ApprovalId {
        let envelope = envelope(nonce);
        assert!(ledger.ask(&envelope, &config()));
        assert_eq!(ledger.take_unchecked(), Some(envelope.id()));
        ledger.set_people(envelope.id(), people(names));
        envelope.id()
    }

    /// Sends what is left to send, and returns to whom.
    fn sent(ledger: &mut Ledger) -> Vec<(Kind, String)> {
        let mut sent = Vec::new();
        while let Some(mail) = ledger.next(|_| true) {
            if mail.kind == Kind::Asked {
                ledger.begin(&mail);
            }
            ledger.end(&mail, true);
            sent.push((mail.kind, mail.to));
        }
        sent
    }

    fn to(kind: Kind, name: &str) -> (Kind, String) {
        (kind, format!("{name}@example.org"))
    }

    #[test]
    fn the_next_process_sends_the_rest_and_the_file_is_golden() {
        let mut ledger = Ledger::default();
        let id = asked(&mut ledger, 1, &["ann", "bob"]);
        assert_eq!(ledger.next(|_| true).unwrap().to, "ann@example.org");
        let mail = ledger.next(|address| address != "ann@example.org").unwrap();
        assert_eq!(mail.to, "bob@example.org", "ann has to wait");
        ledger.begin(&mail);
        ledger.end(&mail, true);
        let bytes = String::from_utf8(ledger.bytes()).unwrap();
        assert_eq!(bytes, GOLDEN.trim_end(), "a changed file needs another version");
        let mut next = Ledger::read(GOLDEN.as_bytes()).unwrap();
        assert_eq!((next.left_over(), next.next(|_| true)), (vec![id], None), "nobody has asked this process");
        asked(&mut next, 1, &["ann", "bob"]);
        assert_eq!(sent(&mut next), [to(Kind::Asked, "ann")]);
        next.close(id, None);
        assert_eq!(sent(&mut next), [to(Kind::Closed, "ann"), to(Kind::Closed, "bob")]);
        assert!(Ledger::read(GOLDEN.replace("\"version\":1", "\"version\":2").as_bytes()).is_err());
    }

    #[test]
    fn who_may_decide_later_is_asked_then_and_who_may_no_longer_is_not() {
        let mut ledger = Ledger::default();
        let id = asked(&mut ledger, 1, &["ann", "bob"]);
        ledger.set_people(id, people(&["ann"]));
        assert_eq!(sent(&mut ledger), [to(Kind::Asked, "ann")]);
        ledger.check_again(id);
        assert_eq!(ledger.take_unchecked(), Some(id));
        ledger.set_people(id, people(&["ann", "lea"]));
        ledger.remind(id);
        assert_eq!(sent(&mut ledger), [to(Kind::Asked, "lea"), to(Kind::Reminded, "ann")]);
        let at = Timestamp::from_millis(0);
        let (by, reason, via) = ("ann".into(), "".into(), "dashboard".into());
        let decision = Decision { approved: true, by, reason, at, terms: Terms::Once, votes: Vec::new(), via };
        ledger.settle(id, &decision);
        let mail = ledger.next(|_| true).unwrap();
        assert!(
            mail.text.starts_with("approved by ann at 1970-01-01 00:00 UTC, elsewhere (dashboard)\n"),
            "{}",
            mail.text
        );
        assert_eq!(sent(&mut ledger), [to(Kind::Closed, "ann"), to(Kind::Closed, "lea")]);
    }

    #[test]
    fn what_is_refused_is_neither_sent_again_nor_closed_and_an_address_that_is_gone_is_forgotten() {
        let mut ledger = Ledger::default();
        let id = asked(&mut ledger, 1, &["ann", "bob"]);
        let mail = ledger.next(|_| true).unwrap();
        ledger.begin(&mail);
        ledger.end(&mail, false);
        assert_eq!(sent(&mut ledger), [to(Kind::Asked, "bob")]);
        let mut next = Ledger::read(&ledger.bytes()).unwrap();
        next.retain(|address| address == "ann@example.org");
        next.close(id, None);
        assert_eq!(sent(&mut next), []);
    }

    #[test]
    fn the_file_has_a_bound_and_no_arguments() {
        let mut ledger = Ledger::default();
        for nonce in 0..1_000 {
            let id = asked(&mut ledger, nonce, &["ann"]);
            let mail = ledger.next(|_| true).unwrap();
            ledger.begin(&mail);
            ledger.close(id, None);
        }
        for nonce in 1_000..1_000 + u64::try_from(MAX_OPEN).unwrap() {
            asked(&mut ledger, nonce, &["ann"]);
        }
        assert!(!ledger.has_room() && !ledger.ask(&envelope(5_000), &config()));
        assert_eq!(ledger.asked.questions.len(), MAX_QUESTIONS);
        let bytes = String::from_utf8(ledger.bytes()).unwrap();
        assert!(bytes.len() < 2 << 20 && !bytes.contains("CANARY"), "{}", bytes.len());
    }
}
