//! The rules of consent inside a run against a model: the policy's answers, the decisions of people and when they take effect,
//! for actions of a turn and for a handoff that is parked after it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tokio::sync::oneshot;

use crate::messages::state::StateRules;
use crate::messages::{
    Action, ActionKind, AgentName, Authority, Backoff, Chain, Command, Consent, Decision, Durability, EXPIRY, Envelope,
    Failure, FailureKind, Json, Limits, Rationale, Refusal, RequestId, RunEvent, RunId, Submission, Task, Terms,
    Timestamp, TraceId, TurnId, Verdict,
};
use crate::supervision::runs::rules::breaker::BreakerPolicy;
use crate::supervision::runs::rules::decide::DecisionContext;
use crate::supervision::runs::rules::directory::AgentDirectory;
use crate::supervision::runs::rules::facts::SharedFacts;
use crate::supervision::runs::rules::requests::{Attempt, RequestKey, TurnOutcome, TurnReply, TurnRequest};
use crate::supervision::runs::rules::run::{Effect, HANDOFF_ORDINAL, Run};
use crate::supervision::runs::shard::live::{LiveRun, OnCommit};
use crate::supervision::runs::shard::queue::RunMessage;
use crate::testing::rules::{Seen, play};

use super::messages::apply;

/// The targets of actions and handoffs, on which the policy decides.
const TARGETS: [&str; 3] = ["free", "asked-for", "forbidden"];

struct Agents;

impl AgentDirectory for Agents {
    fn resolve(&self, target: &str) -> Result<AgentName, Refusal> {
        Ok(AgentName::new(target).unwrap())
    }

    fn check_room(&self, _: &AgentName) -> Result<(), Refusal> {
        Ok(())
    }

    fn consent(&self, _: &AgentName, _: ActionKind, action: &Action, _: bool) -> Consent {
        match &*action.target {
            "free" => Consent::Auto,
            "asked-for" => Consent::Ask,
            _ => Consent::Deny,
        }
    }

    fn hosts(&self, _: &AgentName) -> bool {
        true
    }

    fn look_alike(&self, _: &str) -> Option<AgentName> {
        None
    }

    fn authority(&self, _: &str) -> Authority {
        Authority::ALL
    }

    fn check_made(&self, _: &str, _: &[Json]) -> Result<(), String> {
        Ok(())
    }
}

#[derive(Clone, Debug)]
enum Op {
    /// The turn asks for consent; asking again under the same number is the same question.
    Ask {
        ordinal: u32,
        target: usize,
        text: u8,
    },
    /// A person decides, perhaps about an action that was changed after it was asked.
    Decide {
        ordinal: u32,
        voice: Voice,
        is_changed: bool,
    },
    FailAttempt,
    HandOff {
        to: usize,
    },
    DecideHandoff {
        voice: Voice,
        is_changed: bool,
    },
    Cancel,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Voice {
    Yes,
    No,
    /// The question expires.
    Silence,
}

impl Voice {
    fn decision(self, at: Timestamp) -> Decision {
        let by = if self == Self::Silence { EXPIRY } else { "ann" };
        Decision {
            approved: self == Self::Yes,
            by: by.into(),
            reason: "".into(),
            at,
            terms: Terms::Once,
            votes: Vec::new(),
            via: "".into(),
        }
    }
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let voice = || prop_oneof![4 => Just(Voice::Yes), 2 => Just(Voice::No), 1 => Just(Voice::Silence)];
    let is_changed = || prop::bool::weighted(0.2);
    let op = prop_oneof![
        8 => (0_u32..3, prop::sample::select(vec![0_usize, 1, 1, 1, 2]), prop::bool::weighted(0.2))
            .prop_map(|(ordinal, target, text)| Op::Ask { ordinal, target, text: text.into() }),
        8 => (0_u32..3, voice(), is_changed())
            .prop_map(|(ordinal, voice, is_changed)| Op::Decide { ordinal, voice, is_changed }),
        2 => Just(Op::FailAttempt),
        2 => prop::sample::select(vec![0_usize, 1, 1, 1, 2]).prop_map(|to| Op::HandOff { to }),
        4 => (voice(), is_changed()).prop_map(|(voice, is_changed)| Op::DecideHandoff { voice, is_changed }),
        1 => prop::bool::weighted(0.2).prop_map(|cancels| if cancels { Op::Cancel } else { Op::FailAttempt }),
    ];
    prop::collection::vec(op, 1..18)
}

/// The question under a number, and its first decision.
#[derive(Clone, Debug)]
struct Question {
    target: usize,
    text: u8,
    decided: Option<(bool, &'static str)>,
}

/// The agent that has control.
#[derive(Clone, Debug, PartialEq)]
enum Now {
    WithTheFirst,
    Parked,
    /// The handoff was admitted: the first agent's writes count.
    HandedOn,
    /// The handoff was denied: the first agent's writes are dropped.
    Denied,
    Cancelled,
}

struct Model {
    now: Now,
    asked: BTreeMap<u32, Question>,
    /// Every decision that took effect, in order.
    effects: Vec<(u32, bool, &'static str)>,
}

#[derive(Debug, PartialEq)]
enum Reply {
    Decided {
        approved: bool,
        by: &'static str,
    },
    Waits,
    /// Another action was asked under this number.
    Changed,
    /// The turn has ended.
    Gone,
}

impl Model {
    fn ask(&mut self, ordinal: u32, target: usize, text: u8) -> Reply {
        if self.now != Now::WithTheFirst {
            return Reply::Gone;
        }
        if !self.asked.contains_key(&ordinal) {
            let decided = match TARGETS[target] {
                "free" => Some((true, "policy")),
                "asked-for" => None,
                _ => Some((false, "policy")),
            };
            self.effects.extend(decided.map(|(approved, by)| (ordinal, approved, by)));
            self.asked.insert(ordinal, Question { target, text, decided });
        }
        let asked = &self.asked[&ordinal];
        match asked.decided {
            _ if (asked.target, asked.text) != (target, text) => Reply::Changed,
            Some((approved, by)) => Reply::Decided { approved, by },
            None => Reply::Waits,
        }
    }

    /// Applies a decision; returns whether it took effect.
    fn decide(&mut self, ordinal: u32, voice: Voice, is_changed: bool) -> bool {
        let by = if voice == Voice::Silence { "expiry" } else { "ann" };
        let is_with_first = self.now == Now::WithTheFirst;
        let Some(asked) = self.asked.get_mut(&ordinal).filter(|_| is_with_first && !is_changed) else { return false };
        if asked.decided.is_some() {
            return false;
        }
        asked.decided = Some((voice == Voice::Yes, by));
        self.effects.push((ordinal, voice == Voice::Yes, by));
        true
    }

    fn open(&self) -> Vec<u32> {
        match self.now {
            Now::WithTheFirst => {
                let open = self.asked.iter().filter(|(_, asked)| asked.decided.is_none());
                open.map(|(ordinal, _)| *ordinal).collect()
            }
            Now::Parked => vec![HANDOFF_ORDINAL],
            Now::HandedOn | Now::Denied | Now::Cancelled => Vec::new(),
        }
    }
}

fn write_file(target: usize, text: u8) -> Action {
    Action::new("write_file", TARGETS[target], u64::from(text))
}

/// A run whose messages are applied and committed at once.
struct Shard {
    live: LiveRun,
    facts: SharedFacts,
    attempt: Attempt,
    nonce: u64,
    journal: Vec<RunEvent>,
    began: Run,
}

impl Shard {
    fn new() -> Self {
        let id = uuid::Uuid::nil();
        let limits = Limits { attempts: u32::MAX, ..Limits::default() };
        let submission = Submission {
            cast: Vec::new(),
            run: RunId(id),
            trace: TraceId(id),
            task: Task::new("x").limits(limits),
            agent: AgentName::new("first").unwrap(),
            chain: Chain::default(),
            at: Timestamp::default(),
        };
        let (run, _) = Run::begin(Arc::new(submission), StateRules::default());
        let live = LiveRun::new(run.clone(), 1, Durability::Memory);
        let facts = SharedFacts::new(BreakerPolicy::default());
        Self { live, facts, attempt: Attempt::FIRST, nonce: 0, journal: Vec::new(), began: run }
    }

    fn apply(&mut self, message: RunMessage) {
        static BACKOFF: Backoff = Backoff { first: Duration::ZERO, max: Duration::ZERO };
        self.nonce += 1;
        let context = DecisionContext {
            now: crate::env::Now { monotonic: Duration::ZERO, wall: Timestamp::default() },
            random: self.nonce,
            directory: &Agents,
            facts: &self.facts,
            backoff: &BACKOFF,
            approval_ttl: Duration::from_secs(60),
            remind_before: Duration::from_secs(1),
            on_unknown: crate::messages::OnUnknown::Ask,
            dynamic_agents: 16,
        };
        apply(&mut self.live, message, &context);
        self.journal.append(&mut self.live.events);
        for released in std::mem::take(&mut self.live.on_commit) {
            match released {
                OnCommit::Effect(Effect::Reply(request)) => self.live.reply(request),
                OnCommit::Reply(waiter, reply) => drop(waiter.send(reply)),
                _ => {}
            }
        }
    }

    fn request(&self, ordinal: u32) -> RequestId {
        RequestId { turn: TurnId { run: self.live.run.id(), number: 1 }, ordinal }
    }

    fn ask(&mut self, ordinal: u32, action: Action) -> oneshot::Receiver<TurnReply> {
        let (reply, heard) = oneshot::channel();
        let (attempt, request) =
            (self.attempt, TurnRequest::Approve { action, each_time: false, rationale: Rationale::default() });
        let reply = Some(reply);
        self.apply(RunMessage::Request {
            key: RequestKey { turn: 1, ordinal },
            attempt,
            is_tainted: false,
            request,
            reply,
            with_share: None,
            beginning: None,
        });
        heard
    }

    fn end(&mut self, outcome: TurnOutcome) {
        self.apply(RunMessage::Outcome { turn: 1, attempt: self.attempt, is_tainted: false, outcome, beginning: None });
    }

    /// Decides the open question under this number; with `is_changed`, about another action.
    fn decide(&mut self, ordinal: u32, voice: Voice, is_changed: bool) {
        let request = self.request(ordinal);
        let open = self.live.run.open_approvals().find(|envelope| envelope.request == request).cloned();
        let mut envelope = open.unwrap_or_else(|| Envelope {
            version: Envelope::VERSION,
            kind: ActionKind::Requested,
            remind_at: None,
            request,
            agent: AgentName::new("first").unwrap(),
            action: write_file(1, 0),
            policy: "ask".into(),
            deciders: crate::messages::Deciders::default(),
            requester: None,
            escalates_at: None,
            edited_by: None,
            rationale: Rationale::default(),
            nonce: 1,
            expires_at: Timestamp::default(),
        });
        if is_changed {
            envelope.action.arguments = 99.into();
        }
        let decision = voice.decision(Timestamp::default());
        self.apply(RunMessage::Decide { asked: RequestKey { turn: 1, ordinal }, approval: envelope.id(), decision });
    }
}

fn reported(reply: Result<TurnReply, oneshot::error::TryRecvError>, action: &Action) -> Result<Reply, TestCaseError> {
    Ok(match reply {
        Ok(TurnReply::Decided(decided)) => {
            let (decision, runs) = *decided;
            prop_assert_eq!(&runs, action, "what runs is what was asked for");
            let by = ["ann", "policy", EXPIRY].into_iter().find(|name| *name == &*decision.by).unwrap();
            Reply::Decided { approved: decision.approved, by }
        }
        Ok(TurnReply::Changed(_)) => Reply::Changed,
        Ok(TurnReply::Gone) => Reply::Gone,
        Ok(other) => return Err(TestCaseError::fail(format!("{other:?}"))),
        Err(_) => Reply::Waits,
    })
}

fn play_one(shard: &mut Shard, model: &mut Model, waiting: &mut Waiting, op: Op, seen: &mut Seen) -> TestCaseResult {
    match op {
        Op::Ask { ordinal, target, text } => {
            let action = write_file(target, text);
            let is_new = !model.asked.contains_key(&ordinal);
            let mut heard = shard.ask(ordinal, action.clone());
            let (reply, expected) = (reported(heard.try_recv(), &action)?, model.ask(ordinal, target, text));
            prop_assert_eq!(&reply, &expected);
            match reply {
                Reply::Waits => _ = waiting.insert(ordinal, (heard, action)),
                Reply::Decided { approved: true, by: "policy" } => _ = seen.insert("approved by the policy"),
                Reply::Decided { approved: false, by: "policy" } => _ = seen.insert("denied by the policy"),
                Reply::Decided { .. } if !is_new => _ = seen.insert("returned again what was decided"),
                Reply::Decided { .. } => {}
                Reply::Changed => _ = seen.insert("asked for something else in its place"),
                Reply::Gone => _ = seen.insert("asked after the turn"),
            }
        }
        Op::Decide { ordinal, voice, is_changed } => {
            let is_open = model.open().contains(&ordinal);
            shard.decide(ordinal, voice, is_changed);
            let is_decided = model.decide(ordinal, voice, is_changed);
            let heard =
                waiting.get_mut(&ordinal).map(|(heard, action)| reported(heard.try_recv(), action)).transpose()?;
            if is_decided {
                let by = if voice == Voice::Silence { "expiry" } else { "ann" };
                let expected = Reply::Decided { approved: voice == Voice::Yes, by };
                prop_assert!(heard.is_none_or(|heard| heard == expected), "{expected:?} was not reported");
                waiting.remove(&ordinal);
                seen.insert("decided");
            } else if is_open {
                seen.insert("decided about something else");
            } else {
                seen.insert("nothing to decide");
            }
        }
        Op::FailAttempt => {
            shard.end(TurnOutcome::Failed(Failure::new(FailureKind::Transient, "broken")));
            if model.now == Now::WithTheFirst {
                shard.attempt = shard.attempt.next();
                waiting.clear();
                if !model.open().is_empty() {
                    seen.insert("still open in the next attempt");
                }
            }
        }
        Op::HandOff { to } => {
            shard.end(TurnOutcome::Command(Command::output(7).with("note", 1).goto(TARGETS[to])));
            if model.now == Now::WithTheFirst {
                model.now = match TARGETS[to] {
                    "free" => Now::HandedOn,
                    "asked-for" => Now::Parked,
                    _ => Now::Denied,
                };
            }
            if model.now == Now::Parked {
                let shown = shard.live.run.open_approvals().next().map(|envelope| envelope.action.clone());
                prop_assert_eq!(shown, Some(Action::handoff(&AgentName::new("asked-for").unwrap(), &7.into())));
            }
        }
        Op::DecideHandoff { voice, is_changed } => {
            shard.decide(HANDOFF_ORDINAL, voice, is_changed);
            if model.now == Now::Parked && !is_changed {
                let by = if voice == Voice::Silence { "expiry" } else { "ann" };
                model.effects.push((HANDOFF_ORDINAL, voice == Voice::Yes, by));
                model.now = if voice == Voice::Yes { Now::HandedOn } else { Now::Denied };
                seen.insert(match voice {
                    Voice::Yes => "handoff approved",
                    Voice::No => "handoff denied",
                    Voice::Silence => "handoff expired",
                });
            }
        }
        Op::Cancel => {
            let (ack, _) = oneshot::channel();
            shard.apply(RunMessage::Cancel { reason: "no more".into(), ack });
            if model.now != Now::Denied {
                if !model.open().is_empty() {
                    seen.insert("cancelled while it was open");
                }
                model.now = Now::Cancelled;
            }
        }
    }
    Ok(())
}

type Waiting = BTreeMap<u32, (oneshot::Receiver<TurnReply>, Action)>;
type TestCaseResult = Result<(), TestCaseError>;

fn agree(shard: &Shard, model: &Model) -> TestCaseResult {
    let run = &shard.live.run;
    let open: Vec<u32> = run.open_approvals().map(|envelope| envelope.request.ordinal).collect();
    prop_assert_eq!(open, model.open());
    let taken = shard.journal.iter().filter_map(|event| match event {
        RunEvent::Decided { ordinal, decision, .. } => Some((*ordinal, decision.approved, &*decision.by)),
        _ => None,
    });
    prop_assert_eq!(taken.collect::<Vec<_>>(), model.effects.clone(), "each is decided once");
    let admitted = shard.journal.iter().any(|event| match event {
        RunEvent::TurnEnded { verdict, .. } | RunEvent::Decided { verdict, .. } => {
            matches!(verdict, Verdict::Admitted(_))
        }
        _ => false,
    });
    let is_next_begun = run.turn(2).is_some();
    let result = run.result();
    let ended = result.map(|result| result.outcome.name());
    let note = result.map(|result| result.state["note"].as_i64());
    match model.now {
        Now::WithTheFirst | Now::Parked => prop_assert!(!admitted && !is_next_begun && ended.is_none()),
        Now::HandedOn => prop_assert!(admitted && is_next_begun && ended.is_none()),
        Now::Denied => {
            prop_assert_eq!((admitted, is_next_begun, ended, note), (false, false, Some("denied"), Some(None)))
        }
        Now::Cancelled => prop_assert_eq!((is_next_begun, ended), (false, Some("cancelled"))),
    }
    Ok(())
}

#[test]
fn nothing_that_needs_consent_goes_ahead_without_it_and_a_decision_takes_effect_once() {
    let branches = [
        "approved by the policy",
        "denied by the policy",
        "decided",
        "decided about something else",
        "nothing to decide",
        "returned again what was decided",
        "asked for something else in its place",
        "asked after the turn",
        "still open in the next attempt",
        "handoff approved",
        "handoff denied",
        "handoff expired",
        "cancelled while it was open",
    ];
    play("approval consumption", &branches, ops(), |ops, seen| {
        let (mut shard, mut waiting) = (Shard::new(), Waiting::new());
        let mut model = Model { now: Now::WithTheFirst, asked: BTreeMap::new(), effects: Vec::new() };
        for op in ops {
            play_one(&mut shard, &mut model, &mut waiting, op, seen)?;
            agree(&shard, &model)?;
        }
        if model.now == Now::HandedOn {
            let outcome = TurnOutcome::Command(Command::new());
            shard.apply(RunMessage::Outcome {
                turn: 2,
                attempt: Attempt::FIRST,
                is_tainted: false,
                outcome,
                beginning: None,
            });
            let result = shard.live.run.result().cloned();
            prop_assert_eq!(result.map(|result| result.state["note"].as_i64()), Some(Some(1)), "its update stands");
        }
        // A replay of the journal has the same state: decisions stay as they were.
        let mut read = shard.began.clone();
        for event in &shard.journal {
            read.step(event);
        }
        prop_assert_eq!(format!("{read:?}"), format!("{:?}", shard.live.run));
        Ok(())
    });
}
