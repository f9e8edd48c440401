//! What waits for people, by its definition: a search through all branches, all turns and all their records, beside the index that
//! the fold keeps.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::iter;
use std::sync::Arc;

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::messages::state::StateRules;
use crate::messages::{
    Action, ActionKind, AgentName, AskedOutcome, Command, Deciders, Decision, Envelope, Failure, FailureKind, Intent,
    Interrupt, Json, Order, Outcome, Rationale, RequestId, Resolution, RunEvent, RunId, Submission, Task, Terms,
    Timestamp, TraceId, TurnId, Update, Verdict,
};
use crate::supervision::runs::rules::requests::RequestKey;
use crate::supervision::runs::rules::run::HANDOFF_ORDINAL;
use crate::supervision::runs::rules::run::branch::Branches;
use crate::supervision::runs::rules::run::turn::{OpenTurn, OpenTurns};
use crate::testing::rules::{Seen, play};
use crate::workflow::{Node, Workflow};

/// What [`Run::pending`] and its companions return.
#[derive(Debug, PartialEq)]
struct Waits {
    pending: Vec<Pending>,
    deadlines: Vec<(RequestKey, Timestamp)>,
    for_people: bool,
    is_stuck: bool,
}

impl Waits {
    fn kept(run: &Run) -> Self {
        let deadlines = run.question_deadlines().collect();
        Self { pending: run.pending(), deadlines, for_people: run.waits_for_people(), is_stuck: run.is_stuck() }
    }

    fn searched(run: &Run) -> Self {
        let held_up = held_up_by(run, run.turns.iter().filter(|(_, turn)| waits(turn)).map(|(number, _)| number));
        let parked: Vec<u32> =
            run.branches.iter().filter(|(_, branch)| branch.parked().is_some()).map(|(id, _)| id).collect();
        let askers = parked.iter().filter_map(|branch| run.asker_of(*branch));
        let held_up: BTreeSet<u32> = held_up.into_iter().chain(held_up_by(run, askers)).collect();
        let stuck = run.turns.iter().filter(|(_, turn)| matches!(turn.phase(), Phase::NeedsAttention { .. }));
        let stuck = held_up_by(run, stuck.map(|(number, _)| number));
        let all = |held_up: &BTreeSet<u32>| run.turns.numbers().all(|turn| held_up.contains(&turn));
        Self {
            pending: pending(run),
            deadlines: deadlines(run),
            for_people: (!held_up.is_empty() || !parked.is_empty()) && all(&held_up),
            is_stuck: !stuck.is_empty() && all(&stuck),
        }
    }
}

fn records(run: &Run) -> impl Iterator<Item = (u32, &OpenTurn, u32, &Record)> {
    run.turns.iter().flat_map(|(number, turn)| {
        turn.records().iter().map(move |(ordinal, record)| (number, turn, *ordinal, &**record))
    })
}

fn pending(run: &Run) -> Vec<Pending> {
    let parked = run.branches.iter().filter_map(|(_, branch)| Some(branch.parked()?.envelope.clone()));
    let asked = records(run).filter_map(|(.., record)| match record {
        Record::Approval { envelope, decision: None, .. } => Some((**envelope).clone()),
        _ => None,
    });
    let questions = records(run).filter_map(|(number, turn, ordinal, record)| {
        let (question, nonce, asked_at, expires_at) = match record {
            Record::Question { question, nonce, asked_at, answer: None } => (question.clone(), *nonce, *asked_at, None),
            Record::TimedQuestion { question, nonce, asked_at, expires_at, state: QuestionState::Open } => {
                (question.clone(), *nonce, *asked_at, Some(*expires_at))
            }
            Record::Once(Once { intent, state: OnceState::Asked(asked), .. }) => {
                (asked.question(intent), asked.nonce, asked.at, Some(asked.expires_at))
            }
            _ => return None,
        };
        let id = QuestionId { request: RequestId { turn: run.turn_id(number), ordinal }, nonce };
        Some(Pending::Question(Question { id, agent: turn.agent.clone(), question, asked_at, expires_at }))
    });
    let nodes = run.turns.iter().filter(|(_, turn)| *turn.phase() == Phase::Interrupted).map(|(number, turn)| {
        Pending::Node(Interrupt {
            turn: run.turn_id(number),
            node: run.node_of(number).unwrap_or_default(),
            agent: turn.agent.clone(),
            input: turn.input.clone(),
            state: run.branch_of(turn).view.to_json(),
        })
    });
    let attention = run.turns.iter().filter_map(|(number, turn)| match turn.phase() {
        Phase::NeedsAttention { why, .. } => Some(Pending::Attention {
            turn: run.turn_id(number),
            node: run.node_of(number),
            is_compensation: run.is_compensation(number),
            why: why.to_string(),
        }),
        Phase::Leased | Phase::Backoff { .. } | Phase::Interrupted => None,
    });
    let approvals = parked.chain(asked).map(Pending::from);
    let mut pending: Vec<Pending> = approvals.chain(questions).chain(nodes).chain(attention).collect();
    pending.sort_by_cached_key(Pending::rank);
    pending
}

fn deadlines(run: &Run) -> Vec<(RequestKey, Timestamp)> {
    let due = records(run).filter_map(|(turn, _, ordinal, record)| {
        let at = match record {
            Record::Once(Once { state: OnceState::Asked(asked), .. }) => asked.expires_at,
            Record::TimedQuestion { expires_at, state: QuestionState::Open, .. } => *expires_at,
            _ => return None,
        };
        Some((RequestKey { turn, ordinal }, at))
    });
    due.collect()
}

fn waits(turn: &OpenTurn) -> bool {
    match turn.phase() {
        Phase::NeedsAttention { .. } | Phase::Interrupted => true,
        Phase::Backoff { .. } => false,
        Phase::Leased => turn.records().values().any(|record| record.waits_for_people()),
    }
}

fn held_up_by(run: &Run, turns: impl Iterator<Item = u32>) -> BTreeSet<u32> {
    let asker = |turn: &u32| run.asker_of(run.turns.get(*turn)?.branch);
    turns.flat_map(|turn| iter::successors(Some(turn), asker)).collect()
}

fn at() -> Timestamp {
    Timestamp::from_millis(1_767_225_600_000)
}

fn agent() -> AgentName {
    AgentName::new("x").unwrap()
}

/// A run of an agent, or of a workflow with nodes that a person has to start.
fn begun(is_planned: bool) -> Run {
    let (run, trace) = (RunId(Uuid::from_u128(7)), TraceId(Uuid::from_u128(8)));
    let plan = Workflow::builder("w")
        .node(Node::agent("a", "x").interrupted())
        .node(Node::agent("b", "x").compensated_by("x"))
        .node(Node::agent("c", "x").after("b").interrupted())
        .node(Node::agent("each", "x").after("a").for_each("[1, 2, 3]"))
        .build()
        .unwrap();
    let cast = if is_planned { plan.plan().cast().iter().map(|_| agent()).collect() } else { Vec::new() };
    let task = if is_planned { plan.task("in") } else { Task::new("in").to("x") };
    let submission = Submission { run, trace, task, agent: agent(), cast, chain: Chain::default(), at: at() };
    Run::begin(Arc::new(submission), StateRules::default()).0
}

fn envelope(turn: u32, ordinal: u32, kind: ActionKind) -> Envelope {
    Envelope {
        version: Envelope::VERSION,
        kind,
        request: RequestId { turn: TurnId { run: RunId(Uuid::from_u128(7)), number: turn }, ordinal },
        agent: agent(),
        action: Action::new("write_file", "a.md", "x"),
        policy: "ask".into(),
        deciders: Deciders::default(),
        requester: None,
        escalates_at: None,
        edited_by: None,
        rationale: Rationale::default(),
        nonce: 9,
        expires_at: at(),
        remind_at: None,
    }
}

/// An event of the kind `kind` about a request, whether or not it fits what the run waits for: the fold takes any.
fn event(kind: u8, turn: u32, ordinal: u32, flag: bool) -> RunEvent {
    let (at, agent, by, input, update) = (at(), agent(), "ann".into(), Json::from("in"), Update::default());
    let failure = Failure::new(FailureKind::Transient, "later");
    let admitted = Verdict::Admitted(vec![agent.clone()]);
    match kind {
        0 => RunEvent::Asked { turn, ordinal, question: input, nonce: 9, at },
        1 => RunEvent::AskedUntil { turn, ordinal, question: input, nonce: 9, expires_at: at, at },
        2 => RunEvent::Answered { turn, ordinal, answer: input, by, at },
        3 => RunEvent::QuestionExpired { turn, ordinal, at },
        4 => {
            let envelope = Box::new(envelope(turn, ordinal, ActionKind::Requested));
            RunEvent::ApprovalAsked { turn, ordinal, envelope, at }
        }
        5 | 6 => {
            let kind = if kind == 5 { ActionKind::Requested } else { ActionKind::Handoff };
            let ordinal = if kind == ActionKind::Handoff { HANDOFF_ORDINAL } else { ordinal };
            let (approval, reason, via) = (envelope(turn, ordinal, kind).id(), "".into(), "".into());
            let decision = Decision { approved: true, by, reason, at, terms: Terms::Once, votes: Vec::new(), via };
            let verdict = if flag { admitted } else { Verdict::Nothing };
            RunEvent::Decided { turn, ordinal, approval, decision, verdict, at }
        }
        7 => {
            let intent = Intent::new("charge", "order 7", &input);
            RunEvent::IntentRecorded { turn, ordinal, intent, at, is_tool: flag }
        }
        8 => {
            let asked = AskedOutcome { nonce: 9, at, expires_at: at, problem: None };
            RunEvent::OutcomeUnknown { turn, ordinal, asked }
        }
        9 => RunEvent::OutcomeResolved { turn, ordinal, resolution: Resolution::Repeat, by, at },
        10 => {
            let order = Order { is_detached: flag, ..Order::new("x", "y") };
            RunEvent::Delegated { turn, ordinal, order, verdict: admitted, at }
        }
        11 => RunEvent::AttemptFailed { turn, attempt: 1, failure, retry_at: at, at },
        12 => RunEvent::NeedsAttention { turn, has_changed: flag, why: "changed".into(), at },
        13 => RunEvent::TurnRestarted { turn, at },
        14 => RunEvent::Resumed { turn, input: None, update, by, at },
        15 | 16 => {
            let (command, verdict) = match (kind, flag) {
                (15, true) => (Command::output(1), Verdict::Nothing),
                (15, false) => (Command::new().goto("x"), admitted),
                _ => {
                    let envelope = Box::new(envelope(turn, HANDOFF_ORDINAL, ActionKind::Handoff));
                    (Command::new().goto("x"), Verdict::Parked(envelope))
                }
            };
            RunEvent::TurnEnded { turn, agent, attempt: 1, command: Arc::new(command), verdict, at }
        }
        17 => RunEvent::TurnFailed { turn, agent, input, attempt: 3, failure, at },
        18 => RunEvent::Recovered { at, new_process: flag },
        _ if flag => RunEvent::Stopped { outcome: Outcome::Cancelled { reason: "enough".into() }, at },
        _ => RunEvent::DelegationExpired { turn, ordinal, at },
    }
}

fn seen_of(run: &Run, waits: &Waits, seen: &mut Seen) {
    for open in &waits.pending {
        seen.insert(match open {
            Pending::Approval(envelope) if envelope.is_handoff() => "a parked handoff",
            Pending::Approval(_) => "an approval",
            Pending::Question(_) => "a question",
            Pending::Node(_) => "a node",
            Pending::Attention { .. } => "attention",
        });
    }
    seen.extend((waits.for_people && run.turns.numbers().count() > 1).then_some("all wait"));
    seen.extend((!waits.for_people && !waits.pending.is_empty()).then_some("some wait"));
    seen.extend(waits.is_stuck.then_some("stuck"));
}

#[test]
fn what_waits_for_people_is_what_a_search_of_all_records_finds() {
    let branches =
        ["a parked handoff", "an approval", "a question", "a node", "attention", "all wait", "some wait", "stuck"];
    let events = proptest::collection::vec((0_u8..20, any::<prop::sample::Index>(), 0_u32..3, any::<bool>()), 1..40);
    play("what waits for people", &branches, (any::<bool>(), events), |(is_planned, events), seen| {
        let mut run = begun(is_planned);
        for (kind, turn, ordinal, flag) in events {
            // The next number is that of a turn which is not there.
            let known: Vec<u32> = run.turns.numbers().chain([run.turns.next_number()]).collect();
            let ended = run.branches.parked().map(|(_, parked)| parked.ended.number);
            let known: Vec<u32> = known.into_iter().chain(ended).collect();
            run.step(&event(kind, *turn.get(&known), ordinal, flag));
            let waits = Waits::kept(&run);
            prop_assert_eq!(&waits, &Waits::searched(&run));
            seen_of(&run, &waits, seen);
        }
        let ((branches, next_branch), (turns, next_turn)) = (run.branches.parts(), run.turns.parts());
        let read = Run {
            branches: Branches::of_parts(branches.clone(), next_branch),
            turns: OpenTurns::of_parts(turns.clone(), next_turn),
            ..run.clone()
        };
        prop_assert_eq!(format!("{:?}", read), format!("{:?}", run), "nothing is in the index that is over");
        Ok(())
    });
}
