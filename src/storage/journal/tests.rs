use std::time::Duration;

use serde_json::json;

use super::*;
use crate::messages::{
    Action, ActionKind, AskedOutcome, Authority, BoardInfo, Chain, Command, ConversationId, Cost, Deciders, Decision,
    Effect, Envelope, Escalation, Failure, FailureKind, Intent, Json, Limits, Order, Outcome, Rationale, Refusal,
    RequestId, Resolution, Submission, Task, Terms, Timestamp, TraceId, TraceParent, TurnId, Usage, Verdict, Vote,
};
use crate::storage::{Memory, NewSession};

fn events() -> Vec<RunEvent> {
    let at = Timestamp::from_millis(1_767_225_600_000);
    let submission = Submission {
        cast: Vec::new(),
        run: RunId(Uuid::from_u128(7)),
        trace: TraceId(Uuid::from_u128(8)),
        task: Task::new("Summarise").to("researcher").input(json!({ "path": "docs" })),
        agent: AgentName::new("researcher").unwrap(),
        chain: Chain::default(),
        at,
    };
    let command = Command::update("artifacts", json!({ "notes": "n.md" })).with_output("done").goto("writer");
    let verdict = Verdict::Admitted(vec![AgentName::new("writer").unwrap()]);
    vec![
        RunEvent::Submitted(Arc::new(submission)),
        RunEvent::TurnEnded {
            turn: 1,
            agent: AgentName::new("researcher").unwrap(),
            attempt: 1,
            command: Arc::new(command),
            verdict,
            at,
        },
    ]
}

/// One of every kind, so that none changes its bytes unnoticed.
fn every_event() -> Vec<RunEvent> {
    let at = Timestamp::from_millis(1_767_225_600_000);
    let (turn, ordinal, attempt) = (3, 2, 1);
    let agent = AgentName::new("writer").unwrap();
    let input = Json::from("in");
    let name: Arc<str> = "search".into();
    let request = RequestId { turn: TurnId { run: RunId(Uuid::from_u128(7)), number: turn }, ordinal };
    let action = Action::new("write_file", "REVIEW.md", json!({ "text": "x" }));
    // As it was before questions had a version.
    let envelope = Envelope {
        version: 0,
        kind: ActionKind::Requested,
        request,
        agent: agent.clone(),
        action,
        policy: "ask".into(),
        deciders: Deciders::default(),
        requester: None,
        escalates_at: None,
        edited_by: None,
        rationale: Rationale::default(),
        nonce: 9,
        expires_at: at,
        remind_at: None,
    };
    let approval = envelope.id();
    let decision = Decision {
        approved: true,
        by: "ann".into(),
        reason: "".into(),
        at,
        terms: Terms::Once,
        votes: Vec::new(),
        via: "".into(),
    };
    let failure = Failure::new(FailureKind::Transient, "later");
    let reference = Some("group/project#7".into());
    let order = Order { input: input.clone(), reference, is_detached: true, ..Order::new("writer", "write") };
    let refused = Verdict::Refused(Refusal::HandoffLimit { max: 5, asked: 1 });
    let usage = Some(Usage::of(300, 20));
    let mut events = events();
    events.extend([
        RunEvent::StepStarted { turn, ordinal, name: name.clone(), at: Some(at) },
        RunEvent::StepFinished {
            turn,
            ordinal,
            name,
            value: input.clone(),
            is_tainted: true,
            at: None,
            is_tool: false,
        },
        RunEvent::Delegated { turn, ordinal, order, verdict: refused, at },
        RunEvent::DelegationExpired { turn, ordinal, at },
        RunEvent::Reserved {
            turn,
            ordinal,
            tokens: 400,
            verdict: Verdict::Nothing,
            at: Some(at),
            cost: None,
            charged: None,
            is_share: false,
        },
        RunEvent::Settled { turn, ordinal, usage, at: Some(at), model: None, is_of_run: false },
        RunEvent::Asked { turn, ordinal, question: input.clone(), nonce: 9, at },
        RunEvent::Answered { turn, ordinal, answer: Json::null(), by: "ann".into(), at },
        RunEvent::ApprovalAsked { turn, ordinal, envelope: Box::new(envelope.clone()), at },
        RunEvent::Decided { turn, ordinal, approval, decision, verdict: Verdict::Parked(Box::new(envelope)), at },
        RunEvent::HandoffChecked { turn, ordinal, to: vec!["writer".into()], refusal: Some(Refusal::HandoffsOff), at },
        RunEvent::AgentMade {
            turn,
            ordinal,
            name: "helper".into(),
            draft: json!({ "system_prompt": "Help." }).into(),
            is_change: false,
            authority: Authority::of([Effect::Reads, Effect::Writes]),
            made: AgentName::new("writer~helper").map_err(|_| Refusal::HandoffsOff),
            at,
        },
        RunEvent::Tainted { turn, source: "HttpGet".into(), at },
        RunEvent::Noticed { turn, text: "half way".into(), at },
        RunEvent::AttemptFailed { turn, attempt, failure: failure.clone(), retry_at: at, at },
        RunEvent::TurnFailed { turn, agent, input, attempt, failure, at },
        RunEvent::Recovered { at, new_process: true },
        RunEvent::NeedsAttention { turn, has_changed: true, why: "changed".into(), at },
        RunEvent::TurnRestarted { turn, at },
        RunEvent::Stopped { outcome: Outcome::Cancelled { reason: "enough".into() }, at },
        RunEvent::Overwritten {
            turn,
            update: Command::new().overwrite("verdict", "good").update,
            verdict: Verdict::Nothing,
            by: "ann".into(),
            at,
        },
        RunEvent::Forked {
            turn,
            from: request.turn,
            input: Some(Json::from("other")),
            update: Command::new().overwrite("verdict", "good").update,
            at,
        },
    ]);
    events
}

/// As the record is read, before the events get back what is beside them.
fn stored(events: Vec<RunEvent>) -> JournalRecord {
    let JournalRecordOf { times, beside, .. } = JournalRecordOf::new(&events);
    let alone = |mut event: RunEvent| {
        event.time_beside_mut().map(Option::take);
        match &mut event {
            RunEvent::Reserved { cost, charged, is_share, .. } => (*cost, *charged, *is_share) = (None, None, false),
            RunEvent::Settled { model, is_of_run, .. } => (*model, *is_of_run) = (None, false),
            RunEvent::Decided { decision, .. } => decision.votes.clear(),
            RunEvent::StepFinished { is_tool, .. } | RunEvent::IntentRecorded { is_tool, .. } => *is_tool = false,
            _ => {}
        }
        event
    };
    JournalRecord { events: events.into_iter().map(alone).collect(), times, beside }
}

#[test]
fn events_that_had_no_time_at_first_have_it_beside_them_and_older_records_have_none() {
    let mut events = every_event();
    assert_eq!(stored(events.clone()).whole(), events);
    assert_eq!(
        Journal::events_in(&codec::encode_as::<JournalRecord>(&JournalRecordOf::new(&events))),
        Some(events.clone())
    );
    let old: String = include_str!("../../../tests/golden/journal-record-v1.hex").split_whitespace().collect();
    let byte = |at: usize| u8::from_str_radix(&old[at..at + 2], 16).unwrap();
    let old: Vec<u8> = (0..old.len()).step_by(2).map(byte).collect();
    for event in &mut events {
        event.time_beside_mut().map(Option::take);
    }
    assert_eq!(Journal::events_in(&old), Some(events));
}

#[test]
fn the_bytes_of_a_journal_record_are_golden() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
    crate::testing::golden::check(folder, &stored(every_event()));
}

/// The events that came after the first golden file was written: their bytes have a file of their own, so that the first
/// one stays as it is.
#[test]
fn the_bytes_of_events_about_outside_effects_are_golden() {
    let (turn, ordinal, at) = (3, 2, Timestamp::from_millis(1_767_225_600_000));
    let failure = Failure::new(FailureKind::OutcomeUnknown, "it may have run");
    let asked = AskedOutcome { nonce: 9, at, expires_at: at, problem: Some("does not fit".into()) };
    let resolved = |resolution| RunEvent::OutcomeResolved { turn, ordinal, resolution, by: "ann".into(), at };
    let events = vec![
        RunEvent::IntentRecorded {
            turn,
            ordinal,
            intent: Intent {
                before: "missing".into(),
                ..Intent::new("charge", "order 7", &json!({ "amount": 3 }).into())
            },
            at,
            is_tool: false,
        },
        RunEvent::StepFailed { turn, ordinal, name: "charge".into(), failure, is_tainted: true, at: Some(at) },
        RunEvent::OutcomeUnknown { turn, ordinal, asked },
        resolved(Resolution::Done(Json::from("receipt"))),
        resolved(Resolution::Repeat),
        resolved(Resolution::GiveUp),
        resolved(Resolution::Report),
    ];
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/outside_effects");
    crate::testing::golden::check(folder, &stored(events));
}

/// The versions of what people are asked, and the times that they have for it.
#[test]
fn the_bytes_of_what_people_are_asked_in_time_are_golden() {
    let (turn, ordinal, at) = (3, 2, Timestamp::from_millis(1_767_225_600_000));
    let (minute, agent) = (Duration::from_secs(60), AgentName::new("writer").unwrap());
    let request = RequestId { turn: TurnId { run: RunId(Uuid::from_u128(7)), number: turn }, ordinal };
    let envelope = |kind, remind_at| Envelope {
        version: 1,
        kind,
        request,
        agent: agent.clone(),
        action: Action::new("write_file", "REVIEW.md", json!({ "text": "x" })),
        policy: "ask".into(),
        deciders: Deciders::default(),
        requester: None,
        escalates_at: None,
        edited_by: None,
        rationale: Rationale::default(),
        nonce: 9,
        expires_at: at,
        remind_at,
    };
    let submitted = |task: Task| {
        RunEvent::Submitted(Arc::new(Submission {
            cast: Vec::new(),
            run: request.turn.run,
            trace: TraceId(Uuid::from_u128(8)),
            task,
            agent: agent.clone(),
            chain: Chain::default(),
            at,
        }))
    };
    let parked = Verdict::Parked(Box::new(envelope(ActionKind::Handoff, None)));
    let expired = Refusal::QuestionExpired { question: "Which colour?".into() };
    let events = vec![
        submitted(Task::new("x").approval_ttl(minute)),
        submitted(Task::new("x").approval_ttl(minute).deadline(minute * 2)),
        RunEvent::ApprovalAsked { turn, ordinal, envelope: Box::new(envelope(ActionKind::Requested, Some(at))), at },
        RunEvent::Decided {
            turn,
            ordinal,
            approval: envelope(ActionKind::Delegation, None).id(),
            decision: Decision {
                approved: true,
                by: "ann".into(),
                reason: "".into(),
                at,
                terms: Terms::Once,
                votes: Vec::new(),
                via: "".into(),
            },
            verdict: parked,
            at,
        },
        RunEvent::AskedUntil { turn, ordinal, question: "Which colour?".into(), nonce: 9, expires_at: at + minute, at },
        RunEvent::QuestionExpired { turn, ordinal, at: at + minute },
        RunEvent::AttemptFailed { turn, attempt: 1, failure: Failure::refused(expired), retry_at: at, at },
    ];
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/expiring");
    crate::testing::golden::check(folder, &stored(events));
}

/// What says who decides about an action, and those who have.
#[test]
fn the_bytes_of_what_several_people_decide_are_golden() {
    let (turn, ordinal, at) = (3, 2, Timestamp::from_millis(1_767_225_600_000));
    let request = RequestId { turn: TurnId { run: RunId(Uuid::from_u128(7)), number: turn }, ordinal };
    let escalation = Some(Escalation { after: Duration::from_secs(60), group: "leads".into() });
    let vote = |by: &str, until| Vote { by: by.into(), at, until };
    let envelope = Envelope {
        version: 2,
        kind: ActionKind::Requested,
        request,
        agent: AgentName::new("writer").unwrap(),
        action: Action::new("write_file", "REVIEW.md", json!({ "text": "x" })),
        policy: "ask".into(),
        nonce: 9,
        expires_at: at,
        remind_at: None,
        deciders: Deciders { at_least: 2, excludes_requester: true, escalation, ..Deciders::of("ops") },
        requester: Some("laptop".into()),
        escalates_at: Some(at),
        edited_by: Some(vote("bob", None)),
        rationale: Rationale::default(),
    };
    let (approval, by, reason) = (envelope.id(), "cat".into(), "".into());
    let votes = vec![vote("bob", None), vote("cat", Some(at))];
    let decision = Decision { approved: true, by, reason, at, terms: Terms::Once, votes, via: "".into() };
    let events = vec![
        RunEvent::ApprovalAsked { turn, ordinal, envelope: Box::new(envelope), at },
        RunEvent::Decided { turn, ordinal, approval, decision, verdict: Verdict::Nothing, at },
    ];
    assert_eq!(stored(events.clone()).whole(), events);
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/deciders");
    crate::testing::golden::check(folder, &stored(events));
}

#[test]
fn the_bytes_of_why_people_are_asked_are_golden() {
    let (turn, ordinal, at) = (3, 2, Timestamp::from_millis(1_767_225_600_000));
    let (tier, rule) = (Some("user_defined".into()), Some("each write".into()));
    let envelope = Envelope {
        version: Envelope::VERSION,
        kind: ActionKind::Requested,
        request: RequestId { turn: TurnId { run: RunId(Uuid::from_u128(7)), number: turn }, ordinal },
        agent: AgentName::new("writer").unwrap(),
        action: Action::new("write_file", "REVIEW.md", json!({ "text": "x" })),
        policy: "ask".into(),
        nonce: 9,
        expires_at: at,
        remind_at: None,
        deciders: Deciders::default(),
        requester: None,
        escalates_at: None,
        edited_by: None,
        rationale: Rationale { effect: Some(Effect::Writes), tier, rule, ..Rationale::from("the tests need it") },
    };
    let events = vec![RunEvent::ApprovalAsked { turn, ordinal, envelope: Box::new(envelope), at }];
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/rationale");
    crate::testing::golden::check(folder, &stored(events));
}

#[test]
fn the_bytes_of_events_about_money_and_of_tasks_with_a_money_limit_are_golden() {
    let at = Timestamp::from_millis(1_767_225_600_000);
    let (run, agent) = (RunId(Uuid::from_u128(7)), AgentName::new("writer").unwrap());
    let limits = Limits { cost: Some(Cost(2_500_000_000)), ..Limits::default() };
    let task = Task::new("x").limits(limits).deadline(Duration::from_secs(9));
    let (cast, chain) = (Vec::new(), Chain::default());
    let submission = Submission { run, trace: TraceId(run.0), task, agent, cast, chain, at };
    let (turn, usage) = (1, Some(Usage { cost: Cost(300_000), ..Usage::of(300, 20) }));
    let [spent, unsettled, reserved] = [1, 0, 2].map(Cost);
    let priced = Refusal::CostBudget { budget: Cost(3), spent, unsettled, reserved, asked: Some(Cost(4)) };
    let reserved = |ordinal, verdict, cost| RunEvent::Reserved {
        turn,
        ordinal,
        tokens: 400,
        verdict,
        at: Some(at),
        cost,
        charged: None,
        is_share: false,
    };
    let events = vec![
        RunEvent::Submitted(Arc::new(submission)),
        reserved(0, Verdict::Admitted(Vec::new()), Some(Cost(400_000))),
        RunEvent::Settled { turn, ordinal: 0, usage, at: Some(at), model: Some("large".into()), is_of_run: false },
        RunEvent::Settled { turn, ordinal: 9, usage, at: Some(at), model: None, is_of_run: true },
        reserved(1, Verdict::Refused(priced), Some(Cost(4))),
        RunEvent::AttemptFailed {
            turn,
            attempt: 1,
            failure: Failure::new(FailureKind::NeedsPerson, "no money"),
            retry_at: at,
            at,
        },
    ];
    let stored = stored(events.clone());
    assert_eq!(codec::decode::<JournalRecord>(&codec::encode(&stored)).unwrap().whole(), events);
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/money");
    crate::testing::golden::check(folder, &stored);
}

#[test]
fn the_bytes_of_events_about_limits_of_a_day_are_golden() {
    let at = Timestamp::from_millis(1_767_225_600_000);
    let reserved = |ordinal, verdict, cost| {
        let charged = Some((20_454, "board".into()));
        RunEvent::Reserved { turn: 1, ordinal, tokens: 400, verdict, at: Some(at), cost, charged, is_share: false }
    };
    let (whose, day, asked) = ("the board".into(), "2026-01-01".into(), Some(3));
    let refused = Refusal::DayLimit { whose, day, limit: 7, used: 5, asked, is_money: true };
    let events =
        vec![reserved(0, Verdict::Admitted(Vec::new()), Some(Cost(3))), reserved(1, Verdict::Refused(refused), None)];
    let stored = stored(events.clone());
    assert_eq!(codec::decode::<JournalRecord>(&codec::encode(&stored)).unwrap().whole(), events);
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/day_limits");
    crate::testing::golden::check(folder, &stored);
}

#[test]
fn the_bytes_of_events_about_shares_of_runs_elsewhere_are_golden() {
    let at = Timestamp::from_millis(1_767_225_600_000);
    let reserved = |ordinal, cost| {
        let verdict = Verdict::Admitted(Vec::new());
        RunEvent::Reserved { turn: 1, ordinal, tokens: 400, verdict, at: Some(at), cost, charged: None, is_share: true }
    };
    let events = vec![reserved(0, Some(Cost(3))), reserved(1, None)];
    let stored = stored(events.clone());
    assert_eq!(codec::decode::<JournalRecord>(&codec::encode(&stored)).unwrap().whole(), events);
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/shares");
    crate::testing::golden::check(folder, &stored);
}

#[test]
fn the_bytes_of_events_about_limits_of_an_agent_in_a_run_are_golden() {
    let at = Timestamp::from_millis(1_767_225_600_000);
    let agent = AgentName::new("coder").unwrap();
    let refused = Refusal::AgentBudget { agent, limit: 7, used: 5, asked: Some(3), is_money: true };
    let (verdict, cost) = (Verdict::Refused(refused), Some(Cost(3)));
    let stored = stored(vec![RunEvent::Reserved {
        turn: 1,
        ordinal: 0,
        tokens: 400,
        verdict,
        at: Some(at),
        cost,
        charged: None,
        is_share: false,
    }]);
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/agent_limits");
    crate::testing::golden::check(folder, &stored);
}

#[test]
fn the_bytes_of_events_about_conversations_are_golden() {
    let at = Timestamp::from_millis(1_767_225_600_000);
    let conversation = ConversationId::new("ann").unwrap();
    let messages = json!([{ "role": "user", "text": "hello" }]).into();
    let events = vec![
        RunEvent::ConversationEntered { conversation, at },
        RunEvent::ConversationRead { messages, runs: 1, left_out: 2, is_tainted: true, at },
    ];
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/conversations");
    crate::testing::golden::check(folder, &stored(events));
}

#[test]
fn the_bytes_of_tasks_from_outside_are_golden() {
    let at = Timestamp::from_millis(1_767_225_600_000);
    let (run, agent, ann) =
        (RunId(Uuid::from_u128(7)), AgentName::new("writer").unwrap(), AgentName::new("ann").unwrap());
    let submitted = |task: Task| {
        let (cast, chain, agent) = (Vec::new(), Chain::default(), agent.clone());
        RunEvent::Submitted(Arc::new(Submission { run, trace: TraceId(run.0), task, agent, cast, chain, at }))
    };
    let events = vec![
        submitted(Task::new("x").from_agent(ann.clone())),
        submitted(Task::new("x").reference("group/project#7").deadline(Duration::from_secs(9))),
        submitted(Task::new("x").from_agent(ann).reference("#7").approval_ttl(Duration::from_secs(60))),
    ];
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/from_outside");
    crate::testing::golden::check(folder, &stored(events));
}

#[test]
fn the_bytes_of_changes_of_a_reference_are_golden() {
    let at = Timestamp::from_millis(1_767_225_600_000);
    let changed = |reference| RunEvent::ReferenceChanged { reference, at };
    let events = vec![changed(Some("group/project#8".into())), changed(None)];
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/references");
    crate::testing::golden::check(folder, &stored(events));
}

#[test]
fn the_bytes_of_summaries_of_turns_are_golden() {
    let at = Timestamp::from_millis(1_767_225_600_000);
    let events = vec![RunEvent::Summarized { turn: 3, text: "found 3 sources".into(), at }];
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/summaries");
    crate::testing::golden::check(folder, &stored(events));
}

#[test]
fn the_bytes_of_events_about_uses_of_tools_are_golden() {
    let (turn, ordinal, at) = (3, 2, Timestamp::from_millis(1_767_225_600_000));
    let finished = |name: &str, is_tool| {
        let (name, value, is_tainted, at) = (name.into(), Json::from("found"), false, Some(at));
        RunEvent::StepFinished { turn, ordinal, name, value, is_tainted, at, is_tool }
    };
    let intent = Intent::new("charge", "order 7", &Json::null());
    let begun = RunEvent::IntentRecorded { turn, ordinal, intent, at, is_tool: true };
    let events = vec![finished("model", false), finished("search", true), begun];
    let stored = stored(events.clone());
    assert_eq!(codec::decode::<JournalRecord>(&codec::encode(&stored)).unwrap().whole(), events);
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/tools");
    crate::testing::golden::check(folder, &stored);
}

#[test]
fn the_bytes_of_tasks_in_a_trace_are_golden() {
    let at = Timestamp::from_millis(1_767_225_600_000);
    let (run, agent) = (RunId(Uuid::from_u128(7)), AgentName::new("writer").unwrap());
    let submitted = |task: Task| {
        let parent = TraceParent { trace: 5, span: 6, is_sampled: true, state: None };
        let task = Task { trace_parent: Some(Box::new(parent)), ..task };
        let (cast, chain, agent) = (Vec::new(), Chain::default(), agent.clone());
        RunEvent::Submitted(Arc::new(Submission { run, trace: TraceId(run.0), task, agent, cast, chain, at }))
    };
    let limits = Limits { cost: Some(Cost(2_500_000_000)), ..Limits::default() };
    let events = vec![
        submitted(Task::new("x")),
        submitted(Task::new("x").limits(limits).reference("#7").deadline(Duration::from_secs(9))),
    ];
    let stored = stored(events.clone());
    assert_eq!(codec::decode::<JournalRecord>(&codec::encode(&stored)).unwrap().whole(), events);
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/traced");
    crate::testing::golden::check(folder, &stored);
}

#[test]
fn the_bytes_of_tasks_in_a_trace_with_a_state_are_golden() {
    let at = Timestamp::from_millis(1_767_225_600_000);
    let (run, agent) = (RunId(Uuid::from_u128(7)), AgentName::new("writer").unwrap());
    let parent = TraceParent { trace: 5, span: 6, is_sampled: true, state: None }.with_state("vendor=1");
    let task = Task { trace_parent: Some(Box::new(parent)), ..Task::new("x") };
    let (cast, chain) = (Vec::new(), Chain::default());
    let submission = Submission { run, trace: TraceId(run.0), task, agent, cast, chain, at };
    let events = vec![RunEvent::Submitted(Arc::new(submission))];
    let stored = stored(events.clone());
    assert_eq!(codec::decode::<JournalRecord>(&codec::encode(&stored)).unwrap().whole(), events);
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/traced_with_state");
    crate::testing::golden::check(folder, &stored);
}

#[tokio::test]
async fn a_journal_reads_back_what_was_appended() {
    let journal = Journal::new(Arc::new(Memory::default()));
    let run = RunId(Uuid::from_u128(7));
    journal.mark_open(run, "board").await.unwrap();
    assert_eq!(journal.note_of(run).await.unwrap().map(|noted| noted.note.owner).as_deref(), Some("board"));
    let stream = Journal::stream(run);
    journal.append(&stream, 0, &events(), Durability::Memory).await.unwrap();
    let history = journal.read(run).await.unwrap();
    assert_eq!((history.events, history.last), (events(), 1));
    assert_eq!(journal.open_runs().await.unwrap(), [run]);
    journal.mark_ended(run).await.unwrap();
    assert_eq!(journal.open_runs().await.unwrap(), []);
    assert_eq!(journal.runs().await.unwrap(), [run]);
}

#[tokio::test]
async fn a_run_has_a_board_while_that_lives() {
    let storage: Arc<dyn Storage> = Arc::new(Memory::default());
    let (journal, run) = (Journal::new(Arc::clone(&storage)), RunId(Uuid::from_u128(7)));
    assert_eq!(journal.board_of(run).await, Ok(None));
    journal.mark_open(run, "board").await.unwrap();
    assert_eq!(journal.board_of(run).await, Ok(None));
    let info = BoardInfo { id: "board".into(), ..BoardInfo::default() };
    let new = NewSession { name: "a".into(), about: info.to_bytes(), lease: Duration::from_secs(60) };
    let session = storage.begin_session(new).await.unwrap();
    assert_eq!(journal.board_of(run).await, Ok(Some("board".into())));
    storage.end_session(session, false).await.unwrap();
    assert_eq!(journal.board_of(run).await, Ok(None));
}

#[tokio::test]
async fn a_run_that_cannot_be_forgotten_holds_up_no_other() {
    let storage: Arc<dyn Storage> = Arc::new(Memory::default());
    let journal = Journal::new(Arc::clone(&storage));
    let (broken, at) = (RunId(Uuid::from_u128(3)), Timestamp::from_millis(1000));
    for run in (1..=5).map(|number| RunId(Uuid::from_u128(number))) {
        journal.append(&Journal::stream(run), 0, &events(), Durability::Memory).await.unwrap();
        journal.note_ended(run, at, &[]).await.unwrap();
    }
    let damaged = Journal::key_of("letter", broken).child("1");
    journal.note(damaged.clone(), Arc::from(b"no note".as_slice())).await.unwrap();

    let Forgotten { runs, failed } = journal.forget_ended_before(Timestamp::from_millis(1001)).await.unwrap();
    assert_eq!((runs, journal.runs().await.unwrap()), (4, vec![broken]));
    assert!(matches!(&failed[..], [(run, StorageError::Corrupt { .. })] if *run == broken), "{failed:?}");

    journal.delete(damaged).await.unwrap();
    let again = journal.forget_ended_before(Timestamp::from_millis(1001)).await.unwrap();
    assert_eq!((again.runs, again.failed.len()), (1, 0), "its note is still there");
    assert_eq!(journal.runs().await.unwrap(), []);
}
