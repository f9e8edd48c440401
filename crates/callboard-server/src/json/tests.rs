#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use callboard::messages::{
    Action, ActionKind, AgentName, ApprovalId, AskedOutcome, Authority, Chain, Command, ContextStrategy,
    ConversationId, Cost, Decision, Effect, Envelope, Failure, FailureKind, Intent, Json, Limits, Order, Rationale,
    Reducer, Refusal, RequestId, Resolution, RunId, Schema, SendTo, Terms, Timestamp, Usage, Verdict,
};

use super::*;

const PAGE: &str = include_str!("../../../../docs/json-output.md");

fn run() -> RunId {
    "0192f0c1-2345-7abc-8def-0123456789ab".parse().unwrap()
}

fn agent(name: &str) -> AgentName {
    AgentName::new(name).unwrap()
}

fn at() -> Timestamp {
    Timestamp::from_millis(1_767_225_600_000)
}

pub(crate) fn envelope() -> Envelope {
    Envelope {
        version: Envelope::VERSION,
        kind: ActionKind::Requested,
        remind_at: None,
        request: RequestId { turn: TurnId { run: run(), number: 1 }, ordinal: 2 },
        agent: agent("coder"),
        action: Action::new("FileWrite", "a.rs", json!({ "path": "a.rs" })),
        policy: "ask".into(),
        deciders: callboard::messages::Deciders::default(),
        requester: None,
        escalates_at: None,
        edited_by: None,
        rationale: Rationale::default(),
        nonce: 7,
        expires_at: at(),
    }
}

fn submitted() -> Submission {
    let schema = Schema::open().channel("votes", Reducer::Sum).channel("notes", Reducer::merge());
    let task = Task::new("review it")
        .to("coder")
        .limits(Limits { handoffs: 7, ..Limits::default() })
        .deadline(Duration::from_secs(90))
        .schema(schema)
        .grant(Authority::of([Effect::Reads, Effect::Notes]));
    Submission {
        run: run(),
        trace: serde_json::from_value(json!(run())).unwrap(),
        task,
        agent: agent("coder"),
        cast: Vec::new(),
        chain: Chain::default(),
        at: at(),
    }
}

/// One event of each kind.
fn events() -> Vec<RunEvent> {
    let (turn, ordinal, at) = (1, 2, at());
    let usage = Usage { input_tokens: 12, output_tokens: 3, cost: Cost(20_000) };
    let refusal =
        Refusal::TokenBudget { budget: 10, spent: 4, unsettled: 0, reserved: 5, asked: 2, is_delegated: false };
    let failure =
        Failure::refused(Refusal::BreakerOpen { agent: agent("coder"), retry_after: Duration::from_secs(30) });
    let crash = Failure::new(FailureKind::Panic, "boom");
    let order =
        Order { deadline: Some(Duration::from_secs(5)), sees: ContextStrategy::Full, ..Order::new("scout", "look") };
    let command = Command::output("done").with("votes", 1).goto_many([SendTo::new("judge", "kind")]);
    let decision = Decision {
        approved: true,
        by: "ann".into(),
        reason: "".into(),
        at,
        terms: Terms::Run { until: at },
        votes: Vec::new(),
        via: "".into(),
    };
    let update = Command::update("votes", 2).update;
    let intent = Intent::new("mail", "ann", &Json::from(json!({ "to": "ann" })));
    vec![
        RunEvent::Submitted(Arc::new(submitted())),
        RunEvent::StepStarted { turn, ordinal, name: "search".into(), at: Some(at) },
        RunEvent::StepFinished {
            turn,
            ordinal,
            name: "search".into(),
            value: json!({ "at": 3, "cost": 1 }).into(),
            is_tainted: true,
            at: Some(at),
            is_tool: true,
        },
        RunEvent::Delegated { turn, ordinal, order, verdict: Verdict::Admitted(vec![agent("scout")]), at },
        RunEvent::DelegationExpired { turn, ordinal, at },
        RunEvent::Reserved {
            turn,
            ordinal,
            tokens: 2,
            verdict: Verdict::Refused(refusal),
            at: Some(at),
            cost: Some(Cost(30_000)),
            charged: None,
            is_share: false,
        },
        RunEvent::Settled {
            turn,
            ordinal,
            usage: Some(usage),
            at: Some(at),
            model: Some("large".into()),
            is_of_run: false,
        },
        RunEvent::Asked { turn, ordinal, question: "who?".into(), nonce: 3, at },
        RunEvent::Answered { turn, ordinal, answer: "ann".into(), by: "ann".into(), at },
        RunEvent::ApprovalAsked { turn, ordinal, envelope: Box::new(envelope()), at },
        RunEvent::Decided { turn, ordinal, approval: ApprovalId([7; 32]), decision, verdict: Verdict::Nothing, at },
        RunEvent::HandoffChecked { turn, ordinal, to: vec!["judge".into()], refusal: Some(Refusal::HandoffsOff), at },
        RunEvent::AgentMade {
            turn,
            ordinal,
            name: "helper".into(),
            draft: json!({ "name": "helper" }).into(),
            is_change: false,
            authority: Authority::of([Effect::Reads]),
            made: Ok(agent("helper")),
            at,
        },
        RunEvent::Tainted { turn, source: "https://example.org".into(), at },
        RunEvent::Noticed { turn, text: "half done".into(), at },
        RunEvent::AttemptFailed { turn, attempt: 1, failure: crash, retry_at: at, at },
        RunEvent::TurnEnded {
            turn,
            agent: agent("coder"),
            attempt: 2,
            command: Arc::new(command),
            verdict: Verdict::Parked(Box::new(envelope())),
            at,
        },
        RunEvent::TurnFailed { turn, agent: agent("coder"), input: "x".into(), attempt: 3, failure, at },
        RunEvent::Recovered { at, new_process: true },
        RunEvent::NeedsAttention { turn, has_changed: false, why: "no agent".into(), at },
        RunEvent::TurnRestarted { turn, at },
        RunEvent::Stopped { outcome: Outcome::Cancelled { reason: "enough".into() }, at },
        RunEvent::Overwritten { turn, update: update.clone(), verdict: Verdict::Nothing, by: "ann".into(), at },
        RunEvent::Resumed { turn, input: Some("y".into()), update: update.clone(), by: "ann".into(), at },
        RunEvent::Forked { turn, from: TurnId { run: run(), number: 4 }, input: None, update, at },
        RunEvent::IntentRecorded { turn, ordinal, intent, at, is_tool: true },
        RunEvent::StepFailed {
            turn,
            ordinal,
            name: "mail".into(),
            failure: Failure::new(FailureKind::Timeout, "late"),
            is_tainted: false,
            at: Some(at),
        },
        RunEvent::OutcomeUnknown { turn, ordinal, asked: AskedOutcome { nonce: 1, at, expires_at: at, problem: None } },
        RunEvent::AskedUntil { turn, ordinal, question: "who?".into(), nonce: 3, expires_at: at, at },
        RunEvent::QuestionExpired { turn, ordinal, at },
        RunEvent::OutcomeResolved { turn, ordinal, resolution: Resolution::Done("sent".into()), by: "ann".into(), at },
        RunEvent::ConversationEntered { conversation: ConversationId::new("ann").unwrap(), at },
        RunEvent::ConversationRead {
            messages: json!([{ "role": "user", "text": "hello" }]).into(),
            runs: 1,
            left_out: 2,
            is_tainted: false,
            at,
        },
        RunEvent::ReferenceChanged { reference: Some("issue 8".into()), at },
        RunEvent::Summarized { turn, text: "found 3 sources".into(), at },
    ]
}

/// All keys of objects, and all values of `kind`.
fn words(value: &Value, keys: &mut BTreeSet<String>, kinds: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                keys.insert(key.clone());
                if let ("kind", Some(kind)) = (key.as_str(), value.as_str()) {
                    kinds.insert(kind.to_owned());
                }
                words(value, keys, kinds);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| words(item, keys, kinds)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn each_kind_of_event_has_its_shape_and_the_page_lists_it() {
    let shapes: Vec<Value> = events().iter().map(event).collect();
    insta::assert_snapshot!("events", serde_json::to_string_pretty(&shapes).unwrap());
    for shape in &shapes {
        let kind = shape["kind"].as_str().unwrap();
        assert!(PAGE.contains(&format!("| `{kind}` |")), "docs/json-output.md does not list the event {kind}");
    }
    let (mut keys, mut kinds) = (BTreeSet::new(), BTreeSet::new());
    shapes.iter().for_each(|shape| words(shape, &mut keys, &mut kinds));
    for word in keys.iter().chain(&kinds) {
        assert!(
            word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'),
            "{word} is not snake case"
        );
    }
    assert!(!keys.contains("secs") && !keys.contains("nanos"), "a duration is a number of milliseconds");
}

#[test]
fn values_of_agents_are_passed_on_unchanged() {
    let value = json!({ "at": 3, "cost": 1, "elapsed": { "secs": 1, "nanos": 2 }, "Kind": "X" });
    let step = RunEvent::StepFinished {
        turn: 1,
        ordinal: 0,
        name: "x".into(),
        value: value.clone().into(),
        is_tainted: false,
        at: None,
        is_tool: false,
    };
    assert_eq!(event(&step)["value"], value);
}

#[test]
fn an_outcome_other_than_finished_has_a_reason() {
    let refused = Outcome::Refused(Refusal::AgentLimit { max: 5, agent: agent("sixth") });
    assert_eq!(stable(&refused)["refusal"], json!({ "kind": "agent_limit", "max": 5, "agent": "sixth" }));
    assert!(error(&refused).unwrap().contains("--limits '{\"agents\": 6}'"));
    assert_eq!((stable(&Outcome::Finished), error(&Outcome::Finished)), (json!({ "kind": "finished" }), None));
}

#[test]
fn what_is_serialized_directly_is_as_the_general_rules_have_it() {
    let usage = Usage { input_tokens: 1, output_tokens: 2, cost: Cost(3_500_000_000) };
    let metrics = RunMetrics {
        turns: 4,
        handoffs: 5,
        agents: 6,
        retries: 7,
        usage,
        tokens_spent: 8,
        overrun: 9,
        elapsed: Duration::from_micros(10_999),
    };
    assert_eq!(serde_json::to_string(&Shape(&metrics)).unwrap(), stable(&metrics).to_string());
}
