//! The rules of decisions against a model: which answer counts, and what reaches the run that asked. Two gateways share a store,
//! like two successive ones of a board, or those of two processes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::FutureExt;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::json;

use super::*;
use crate::actors::shard_queues::ShardQueues;
use crate::env::{Clock, Env, Now};
use crate::messages::{
    Action, ActionKind, AgentName, Deciders, Decision, Durability, Envelope, Groups, Json, MAX_PERSON, MAX_REASON,
    Rationale, RequestId, RunId, Terms, Timestamp, TurnId,
};
use crate::storage::{Memory, Storage};
use crate::supervision::runs::queue::{RunMessage, ShardMessage};
use crate::supervision::runs::rules::errors::AnswerError;
use crate::supervision::runs::rules::requests::RequestKey;
use crate::testing::rules::play;

const GATEWAYS: usize = 2;
const FIELDS: usize = 10;
const PEOPLE: [&str; 2] = ["ann", "bob"];

/// A question by its fields, each of which has two values.
type Fields = [bool; FIELDS];

/// Milliseconds since the epoch.
#[derive(Clone, Default)]
pub(super) struct TestClock(pub(super) Arc<AtomicU64>);

impl Clock for TestClock {
    fn now(&self) -> Now {
        let wall = Timestamp::from_millis(self.0.load(Ordering::Relaxed));
        Now { monotonic: wall.since(Timestamp::default()), wall }
    }
}

#[derive(Clone, Debug)]
enum Op {
    /// A run asks.
    Ask {
        question: usize,
        gateway: usize,
    },
    /// The gateway looks whether the answer is there already.
    LookUp {
        question: usize,
        gateway: usize,
    },
    Decide {
        question: usize,
        gateway: usize,
        approved: bool,
        by: usize,
        is_long: bool,
    },
    /// The timer of a question fires, possibly after the clock was set back.
    TimeIsUp {
        question: usize,
        gateway: usize,
    },
    /// The run no longer needs an answer.
    Withdraw {
        question: usize,
        gateway: usize,
    },
    /// A gateway ends with its process; nothing is open in the next one.
    Restart {
        gateway: usize,
    },
    Wait {
        millis: u64,
    },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let at = || (0_usize..3, 0..GATEWAYS);
    let op = prop_oneof![
        8 => at().prop_map(|(question, gateway)| Op::Ask { question, gateway }),
        3 => at().prop_map(|(question, gateway)| Op::LookUp { question, gateway }),
        8 => (at(), any::<bool>(), 0_usize..2, prop::bool::weighted(0.1)).prop_map(
            |((question, gateway), approved, by, is_long)| Op::Decide { question, gateway, approved, by, is_long }
        ),
        5 => at().prop_map(|(question, gateway)| Op::TimeIsUp { question, gateway }),
        1 => at().prop_map(|(question, gateway)| Op::Withdraw { question, gateway }),
        1 => (0..GATEWAYS).prop_map(|gateway| Op::Restart { gateway }),
        4 => (10_u64..60).prop_map(|millis| Op::Wait { millis }),
    ];
    prop::collection::vec(op, 1..24)
}

/// Three questions; the second and the third differ from the first in one field, or in none.
fn questions() -> impl Strategy<Value = [Fields; 3]> {
    let changed = || prop::option::weighted(0.9, any::<Index>());
    (any::<Fields>(), changed(), changed()).prop_map(|(first, second, third)| {
        let change = |index: Option<Index>| {
            let mut fields = first;
            if let Some(index) = index {
                let field = index.index(FIELDS);
                fields[field] = !fields[field];
            }
            fields
        };
        [first, change(second), change(third)]
    })
}

fn envelope(fields: Fields) -> Envelope {
    let [run, turn, ordinal, agent, action, target, arguments, policy, nonce, expiry] = fields;
    let turn = TurnId { run: RunId(uuid::Uuid::from_u128(u128::from(run))), number: u32::from(turn) };
    let name = |is_second: bool, names: [&'static str; 2]| names[usize::from(is_second)];
    let arguments = Json::from(json!({ "text": "fine", "lines": [1, if arguments { 2.5 } else { 2.0 }] }));
    Envelope {
        version: Envelope::VERSION,
        kind: ActionKind::Requested,
        remind_at: None,
        request: RequestId { turn, ordinal: u32::from(ordinal) },
        agent: AgentName::new(name(agent, ["writer", "reader"])).unwrap(),
        action: Action {
            action: name(action, ["write_file", "send"]).into(),
            target: name(target, ["REVIEW.md", "OTHER.md"]).into(),
            arguments,
        },
        policy: name(policy, ["ask", "always"]).into(),
        deciders: Deciders::default(),
        requester: None,
        escalates_at: None,
        edited_by: None,
        rationale: Rationale::default(),
        nonce: u64::from(nonce),
        expires_at: Timestamp::from_millis(if expiry { 40 } else { 90 }),
    }
}

/// The index of the first question that is equal to this one: equal questions are one.
type QuestionIndex = usize;

#[derive(Default)]
struct Model {
    now: u64,
    /// The first decision of each question.
    decided: BTreeMap<QuestionIndex, Decision>,
    open: [Vec<QuestionIndex>; GATEWAYS],
    /// The decisions that each gateway has sent to runs.
    brought: [Vec<(QuestionIndex, Decision)>; GATEWAYS],
}

impl Model {
    fn close(&mut self, gateway: usize, question: QuestionIndex) -> bool {
        let before = self.open[gateway].len();
        self.open[gateway].retain(|other| *other != question);
        self.open[gateway].len() < before
    }

    fn bring(&mut self, gateway: usize, question: QuestionIndex, decision: Decision) {
        if self.close(gateway, question) {
            self.brought[gateway].push((question, decision));
        }
    }

    /// The expected result of a decision about a question that has not expired: it counts, or there is an earlier one, or there
    /// is nothing to decide.
    fn decide(
        &mut self,
        gateway: usize,
        question: QuestionIndex,
        decision: Decision,
    ) -> Result<Decision, Option<Decision>> {
        let earlier = self.decided.get(&question).cloned();
        if !self.open[gateway].contains(&question) {
            return Err(earlier);
        }
        match earlier {
            Some(decision) => {
                self.bring(gateway, question, decision.clone());
                Err(Some(decision))
            }
            None => {
                self.decided.insert(question, decision.clone());
                self.bring(gateway, question, decision.clone());
                Ok(decision)
            }
        }
    }
}

#[test]
fn the_first_valid_decision_about_exactly_this_question_counts_and_reaches_its_run_once() {
    let branches = [
        "decided",
        "already decided",
        "already decided through another gateway",
        "unknown",
        "expired",
        "denied by its expiry",
        "decided before its time was up",
        "too long",
        "found when it was asked again",
        "withdrawn",
        "one question asked twice",
        "questions that differ in one field",
    ];
    play("approval decisions", &branches, (questions(), ops()), |(questions, ops), seen| {
        let clock = TestClock::default();
        let storage: Arc<dyn Storage> = Arc::new(Memory::new(Arc::new(clock.clone())));
        let env = Env::new(clock.clone(), 1);
        let gateway = || {
            let shards = Arc::new(ShardQueues::new(1));
            let storage = (Arc::clone(&storage), Durability::Memory);
            let decider = Decider::new(env.clone(), storage, Arc::clone(&shards), Groups::default());
            (decider, shards)
        };
        let mut gateways = [gateway(), gateway()];
        let mut model = Model::default();
        let envelopes = questions.map(envelope);
        let ids = envelopes.each_ref().map(Envelope::id);
        let first = |question: usize| questions.iter().position(|other| *other == questions[question]).unwrap();
        let error = |question: QuestionIndex, earlier: Option<Decision>| match earlier {
            Some(decision) => AnswerError::AlreadyDecided { decision },
            None => AnswerError::NotOpen(ids[question].into()),
        };
        seen.insert(if questions[0] == questions[1] {
            "one question asked twice"
        } else {
            "questions that differ in one field"
        });
        for op in ops {
            let at = Timestamp::from_millis(model.now);
            match op {
                Op::Wait { millis } => {
                    model.now += millis;
                    clock.0.store(model.now, Ordering::Relaxed);
                }
                Op::Ask { question, gateway } => {
                    let question = first(question);
                    gateways[gateway].0.request(&envelopes[question]);
                    if !model.open[gateway].contains(&question) {
                        model.open[gateway].push(question);
                    }
                }
                Op::LookUp { question, gateway } => {
                    let question = first(question);
                    let (queue, id) = (&gateways[gateway].0.queue, ids[question]);
                    let stored = queue.stored(id).now_or_never().unwrap().unwrap();
                    prop_assert_eq!(&stored, &model.decided.get(&question).cloned());
                    if let Some(decision) = stored {
                        queue.deliver(id, decision.clone());
                        if model.open[gateway].contains(&question) {
                            seen.insert("found when it was asked again");
                        }
                        model.bring(gateway, question, decision);
                    }
                }
                Op::Decide { question, gateway, approved, by, is_long } => {
                    let (decider, question) = (&gateways[gateway].0, first(question));
                    let (id, by, expires_at) = (ids[question], PEOPLE[by], envelopes[question].expires_at);
                    let (long_name, long_reason) = ("x".repeat(MAX_PERSON + 1), "x".repeat(MAX_REASON + 1));
                    let actual = match (approved, is_long) {
                        (true, false) => decider.approve(id, by).now_or_never().unwrap(),
                        (true, true) => decider.approve(id, &long_name).now_or_never().unwrap(),
                        (false, false) => decider.deny(id, by, "why").now_or_never().unwrap(),
                        (false, true) => decider.deny(id, by, &long_reason).now_or_never().unwrap(),
                    };
                    if is_long {
                        prop_assert!(matches!(actual, Err(AnswerError::OverLimit(_))), "{actual:?}");
                        seen.insert("too long");
                        continue;
                    }
                    let actual = actual.map(|votes| votes.decision.unwrap());
                    let is_open = model.open[gateway].contains(&question);
                    let reason = if approved { "" } else { "why" };
                    let (by, reason, votes) = (by.into(), reason.into(), Vec::new());
                    let via = "".into();
                    let decision = Decision { approved, by, reason, at, terms: Terms::Once, votes, via };
                    let expected = if is_open && expires_at <= at {
                        Err(AnswerError::Expired { id: id.into(), at: expires_at })
                    } else {
                        model.decide(gateway, question, decision).map_err(|earlier| error(question, earlier))
                    };
                    seen.insert(match &expected {
                        Ok(_) => "decided",
                        Err(AnswerError::AlreadyDecided { .. }) if is_open => "already decided through another gateway",
                        Err(AnswerError::AlreadyDecided { .. }) => "already decided",
                        Err(AnswerError::Expired { .. }) => "expired",
                        Err(_) => "unknown",
                    });
                    prop_assert_eq!(actual, expected);
                }
                Op::TimeIsUp { question, gateway } => {
                    let question = first(question);
                    // The gateway's timers never fire early.
                    if envelopes[question].expires_at > at {
                        continue;
                    }
                    let actual = gateways[gateway].0.expire(ids[question]).now_or_never().unwrap();
                    let actual = actual.map(|votes| votes.decision.unwrap());
                    let (by, reason, votes) = ("expiry".into(), "".into(), Vec::new());
                    let via = "".into();
                    let silence = Decision { approved: false, by, reason, at, terms: Terms::Once, votes, via };
                    let expected = model.decide(gateway, question, silence);
                    match &expected {
                        Ok(_) => _ = seen.insert("denied by its expiry"),
                        Err(Some(_)) => _ = seen.insert("decided before its time was up"),
                        Err(None) => {}
                    }
                    prop_assert_eq!(actual, expected.map_err(|earlier| error(question, earlier)));
                }
                Op::Withdraw { question, gateway } => {
                    gateways[gateway].0.withdraw(ids[first(question)]);
                    if model.close(gateway, first(question)) {
                        seen.insert("withdrawn");
                    }
                }
                Op::Restart { gateway: which } => {
                    gateways[which] = gateway();
                    model.open[which].clear();
                    model.brought[which].clear();
                }
            }
            for (number, (decider, shards)) in gateways.iter().enumerate() {
                let shown = decider.open();
                prop_assert!(shown.is_sorted_by_key(|envelope| (envelope.expires_at, envelope.request)), "{shown:?}");
                prop_assert_eq!(decider.pending(), model.open[number].len());
                // Expired approvals are not shown to people, though no expiry was recorded yet.
                let now = decider.queue.env.now().wall;
                let in_time = |question: &&QuestionIndex| envelopes[**question].expires_at > now;
                let expected: Vec<&QuestionIndex> = model.open[number].iter().filter(in_time).collect();
                prop_assert_eq!(shown.len(), expected.len());
                let is_shown = |question: &&QuestionIndex| shown.contains(&envelopes[**question]);
                prop_assert!(expected.iter().all(is_shown), "{shown:?} are open");
                prop_assert_eq!(shards.of(RunId(uuid::Uuid::nil())).len(), model.brought[number].len());
            }
        }
        for (number, (_, shards)) in gateways.iter().enumerate() {
            let inputs = shards.of(RunId(uuid::Uuid::nil())).take(Default::default());
            for (input, (question, decided)) in inputs.zip(&model.brought[number]) {
                let ShardMessage::Run {
                    run,
                    message: RunMessage::Decide { asked: RequestKey { turn, ordinal }, approval, decision },
                } = input
                else {
                    panic!("{input:?}")
                };
                let request = RequestId { turn: TurnId { run, number: turn }, ordinal };
                prop_assert_eq!((request, approval), (envelopes[*question].request, ids[*question]));
                prop_assert_eq!(&decision, decided);
            }
        }
        Ok(())
    });
}

#[test]
fn a_late_click_finds_the_decision_for_sixty_days() {
    let clock = TestClock::default();
    let storage: Arc<dyn Storage> = Arc::new(Memory::new(Arc::new(clock.clone())));
    let env = Env::new(clock.clone(), 1);
    let decider = Decider::new(env, (storage, Durability::Memory), Arc::new(ShardQueues::new(1)), Groups::default());
    let envelope = envelope([false; FIELDS]);
    decider.request(&envelope);
    let approve = || decider.approve(envelope.id(), "ann").now_or_never().unwrap();
    let decision = approve().unwrap().decision.unwrap();
    let after_days = |days: u64| {
        clock.0.store(days * 24 * 3_600 * 1_000, Ordering::Relaxed);
        approve()
    };
    assert_eq!(after_days(59), Err(AnswerError::AlreadyDecided { decision }));
    assert_eq!(after_days(61), Err(AnswerError::NotOpen(envelope.id().into())));
}
