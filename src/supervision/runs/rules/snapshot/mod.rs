//! Snapshots of runs: they reduce what has to be read at a start; the journal keeps everything.

mod reading;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::storage::Sequence;
use crate::storage::codec::{self, CodecError, Payload, Stored};

pub(crate) use self::reading::{Loaded, Past, load, past, whole};
pub(in crate::supervision::runs) use self::reading::{Parts, read, read_many};
use super::budget::{Call, Money, MoneyV3, ReservationKey};
use super::run::{Branch, Conversing, Now, Run, Tools};

/// A run as it was after a record of its journal.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::supervision::runs) struct Snapshot {
    /// The number of the record.
    last: Sequence,
    run: Run,
    /// The conversation of the run, which is not part of the run's own stored form.
    conversing: Option<Box<Conversing>>,
    /// What is stored beside the run's budget.
    money: Option<Box<Money>>,
    /// The calls of its open reservations.
    calls: Vec<(ReservationKey, Call)>,
    /// The uses of tools.
    tools: Option<Tools>,
}

/// A snapshot of version 4: uses of tools were not counted.
#[derive(Deserialize)]
struct SnapshotV4 {
    last: Sequence,
    run: Run,
    conversing: Option<Box<Conversing>>,
    money: Option<Box<Money>>,
    calls: Vec<(ReservationKey, Call)>,
}

/// A snapshot of version 3: the agents of open reservations were not known.
#[derive(Deserialize)]
struct SnapshotV3 {
    last: Sequence,
    run: Run,
    conversing: Option<Box<Conversing>>,
    money: Option<MoneyV3>,
}

/// A snapshot of version 2: a run had no limit of money, and nothing was known of models.
#[derive(Deserialize)]
struct SnapshotV2 {
    last: Sequence,
    run: Run,
    conversing: Option<Box<Conversing>>,
}

/// A snapshot of version 1: there were no conversations.
#[derive(Deserialize)]
struct SnapshotV1 {
    last: Sequence,
    run: Run,
}

/// A [`Snapshot`] of a run in memory.
#[derive(Serialize)]
struct SnapshotOf<'a> {
    last: Sequence,
    run: &'a Run,
    conversing: Option<&'a Conversing>,
    money: Option<&'a Money>,
    calls: Vec<(ReservationKey, &'a Call)>,
    tools: Option<Tools>,
}

impl<'a> SnapshotOf<'a> {
    fn new(last: Sequence, run: &'a Run) -> Self {
        let (money, calls) = run.budget().beside();
        Self { last, run, conversing: run.conversing(), money, calls, tools: run.tools() }
    }
}

impl Snapshot {
    /// The run, with what is stored beside it.
    fn whole(self) -> Run {
        let Self { last: _, run, conversing, money, calls, tools } = self;
        run.with_conversing(conversing).with_beside(money, calls).with_tools(tools)
    }
}

impl Stored for Snapshot {
    const SCHEMA: u16 = 4;
    const VERSION: u16 = 5;
    const NAME: &'static str = "run-snapshot";

    fn upgrade(version: u16, payload: Payload<'_>) -> Option<Result<Self, CodecError>> {
        let of = |last, run, conversing, money: Option<MoneyV3>| {
            let (money, calls) = money.map(MoneyV3::split).unzip();
            Self { last, run, conversing, money: money.map(Box::new), calls: calls.unwrap_or_default(), tools: None }
        };
        match version {
            1 => Some(payload.read().map(|SnapshotV1 { last, run }| of(last, run, None, None))),
            2 => Some(payload.read().map(|SnapshotV2 { last, run, conversing }| of(last, run, conversing, None))),
            3 => {
                let read = payload.read();
                Some(read.map(|SnapshotV3 { last, run, conversing, money }| of(last, run, conversing, money)))
            }
            4 => Some(payload.read().map(|SnapshotV4 { last, run, conversing, money, calls }| Self {
                last,
                run,
                conversing,
                money,
                calls,
                tools: None,
            })),
            _ => None,
        }
    }
}

/// When the next snapshot is due. A snapshot is as large as its run, so the larger the last one was or the state is, and the more turns are
/// open, the later the next one is due: the total cost of snapshots stays proportional to what is journaled. It has what all parts of a
/// fan-out or a map have left, too, so these get none before their join unless their parts do more than one turn.
#[derive(Debug, Default)]
pub(in crate::supervision::runs) struct Cadence {
    events: u32,
    /// How many events there are when the run is measured next.
    measured_at: u32,
    last_bytes: usize,
}

impl Cadence {
    const MIN_EVENTS: u32 = 512;
    const BYTES_PER_EVENT: usize = 16;
    /// About what a snapshot has of an open turn and its branch, or of what a part of a fan-out has left.
    const BYTES_OF_PART: usize = 128;

    /// Counts journaled events, and returns whether a snapshot of the run is due.
    pub(in crate::supervision::runs) fn count(&mut self, events: usize, run: &Run) -> bool {
        self.events = self.events.saturating_add(u32::try_from(events).unwrap_or(u32::MAX));
        if !self.is_due() {
            return false;
        }
        let left = |branch: &Branch| match &branch.now {
            Now::Forked(forked) => forked.ends.len(),
            Now::Turn(_) | Now::Awaiting | Now::Parked(_) | Now::Plan(_) => 0,
        };
        let branches = || run.branches().iter().map(|(_, branch)| branch);
        let parts = run.turns().len() + branches().map(left).sum::<usize>();
        let least_for = |bytes: usize| u32::try_from(bytes / Self::BYTES_PER_EVENT).unwrap_or(u32::MAX);
        let mut least = least_for(self.last_bytes.max(parts * Self::BYTES_OF_PART));
        if self.events >= least {
            least = least_for(branches().map(|branch| branch.view.size()).sum());
        }
        // The parts may have joined before as many events.
        self.measured_at = least.min(self.events.saturating_mul(2));
        self.events >= least
    }

    /// Whether a snapshot was due at the last count and was not taken, or may be at the next.
    pub(in crate::supervision::runs) fn is_due(&self) -> bool {
        self.events >= self.measured_at.max(Self::MIN_EVENTS)
    }

    /// The run as bytes to store.
    pub(in crate::supervision::runs) fn take(&mut self, last: Sequence, run: &Run) -> Arc<[u8]> {
        let bytes = codec::encode_as::<Snapshot>(&SnapshotOf::new(last, run));
        *self = Self { last_bytes: bytes.len(), ..Self::default() };
        bytes
    }
}

/// A run as it is read from the bytes of its snapshot.
#[cfg(test)]
pub(in crate::supervision::runs) fn read_again(run: &Run) -> Run {
    let bytes = codec::encode_as::<Snapshot>(&SnapshotOf::new(1, run));
    codec::decode::<Snapshot>(&bytes)
        .map(Snapshot::whole)
        .unwrap_or_else(|error| panic!("{error}"))
        .with_rules(crate::messages::state::StateRules::default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use crate::messages::state::StateRules;
    use crate::messages::{
        Action, ActionKind, AgentLimit, AgentName, AskedOutcome, Chain, Command, ConversationId, Cost, Envelope,
        Failure, FailureKind, Intent, Json, Limits, Order, Rationale, RequestId, RunEvent, RunId, Submission, Task,
        Timestamp, TraceId, Update, Usage, Verdict,
    };
    use serde_json::json;
    use uuid::Uuid;

    fn run() -> Run {
        let at = Timestamp::from_millis(1_767_225_600_000);
        let [lead, coder] = ["lead", "coder"].map(|name| AgentName::new(name).unwrap());
        let (run, trace) = (RunId(Uuid::from_u128(7)), TraceId(Uuid::from_u128(8)));
        let task = Task::new("fix").to("lead");
        let submission =
            Submission { run, trace, task, agent: lead.clone(), cast: Vec::new(), chain: Chain::default(), at };
        let command = Command::update("artifacts", json!({ "plan": "p.md" }))
            .with("context", json!({ "artifacts_created": ["p.md"], "completed": { "plan": true } }))
            .with("messages", "planned")
            .goto("coder");
        let order = Order { tokens: Some(50), deadline: Some(Duration::from_secs(9)), ..Order::new("lead", "review") };
        let events = vec![
            RunEvent::Submitted(Arc::new(submission)),
            RunEvent::Reserved {
                turn: 1,
                ordinal: 0,
                tokens: 40,
                verdict: Verdict::Admitted(Vec::new()),
                at: None,
                cost: None,
                charged: None,
                is_share: false,
            },
            RunEvent::TurnEnded {
                turn: 1,
                agent: lead.clone(),
                attempt: 1,
                command: Arc::new(command),
                verdict: Verdict::Admitted(vec![coder]),
                at,
            },
            RunEvent::StepFinished {
                turn: 2,
                ordinal: 0,
                name: "edit".into(),
                value: json!([1]).into(),
                is_tainted: true,
                at: Some(at),
                is_tool: false,
            },
            RunEvent::Delegated { turn: 2, ordinal: 1, order, verdict: Verdict::Admitted(vec![lead]), at },
        ];
        Run::of(events, &StateRules::default()).unwrap()
    }

    #[test]
    fn a_snapshot_waits_until_a_fan_out_is_joined() {
        let mut run = run();
        let is_due = |events, run: &Run| Cadence::default().count(events, run);
        assert_eq!([511, 512].map(|events| is_due(events, &run)), [false, true]);
        let at = Timestamp::from_millis(1_767_225_600_000);
        let (agent, sends) = (AgentName::new("coder").unwrap(), (0..1_000).map(|part| ("coder", part)));
        let verdict = Verdict::Admitted(vec![agent.clone(); 1_000]);
        let command = Arc::new(Command::new().goto_many(sends));
        run.step(&RunEvent::TurnEnded { turn: 2, agent: agent.clone(), attempt: 1, command, verdict, at });
        assert!(!is_due(1_000, &run));
        let end = |turn: u32, run: &mut Run| {
            let (agent, command) = (agent.clone(), Arc::new(Command::new()));
            run.step(&RunEvent::TurnEnded { turn, agent, attempt: 1, command, verdict: Verdict::Nothing, at });
        };
        (4..1_003).for_each(|turn| end(turn, &mut run));
        assert_eq!(run.turns().len(), 1);
        assert!(!is_due(1_000, &run) && is_due(10_000, &run));
        let mut cadence = Cadence::default();
        assert!(!cadence.count(1_000, &run));
        end(1_003, &mut run);
        assert!(cadence.count(1_000, &run), "it is measured again before as much has happened as the parts would take");
    }

    #[test]
    fn a_snapshot_of_a_large_state_waits_until_as_much_has_happened() {
        let (mut run, at) = (run(), Timestamp::from_millis(1_767_225_600_000));
        let agent = AgentName::new("coder").unwrap();
        let command = Arc::new(Command::update("kept", "x".repeat(160_000)).goto("coder"));
        let verdict = Verdict::Admitted(vec![agent.clone()]);
        run.step(&RunEvent::TurnEnded { turn: 2, agent, attempt: 1, command, verdict, at });
        let mut cadence = Cadence::default();
        let due = [512, 9_000, 1_000].map(|events| cadence.count(events, &run));
        assert_eq!(due, [false, false, true]);
    }

    #[test]
    fn a_run_read_from_its_snapshot_continues_as_the_run_itself() {
        let run = run();
        let read = stored(4, &run).whole().with_rules(StateRules::default());
        let (agent, limit) = (AgentName::new("lead").unwrap(), AgentLimit { tokens: Some(40), cost: None });
        assert!(read.budget().check_agent(&agent, limit, 1, None).is_err(), "its call in a turn that has ended");
        let at = Timestamp::from_millis(1_767_225_600_001);
        let command = Arc::new(Command::output("fine").with("messages", "reviewed"));
        let event = RunEvent::TurnEnded { turn: 3, agent, attempt: 1, command, verdict: Verdict::Nothing, at };
        let (mut first, mut second) = (run, read);
        assert_eq!(first.step(&event), second.step(&event));
        assert_eq!(format!("{first:?}"), format!("{second:?}"));
    }

    /// A workflow with every kind of node, in its first state.
    fn planned() -> Run {
        use crate::messages::state::Reducer;
        use crate::workflow::{Node, Workflow};
        let inner = || [Node::agent("b", "x"), Node::agent("c", "x").after("b").compensated_by("x")];
        let plan = Workflow::builder("w")
            .channel("seen", Reducer::Append)
            .node(Node::agent("a", "x").saved_to("seen").compensated_by("x"))
            .node(Node::nodes("again", inner()).after("a").times(2))
            .node(Node::agent("each", "x").after("a").for_each("[1, 2, 3]"))
            .node(Node::agent("repair", "x").after_failure_of("each"))
            .node(Node::agent("judge", "x").after("again").may_go_back_to("judge", 3).may_go_to("over"))
            .node(Node::agent("asks", "x").after("a").interrupted())
            .node(Node::agent("race", "x").after("asks").after("judge").any())
            .node(Node::join("over").after("race").after("each").after("repair"))
            .build()
            .unwrap();
        let [lead] = ["x"].map(|name| AgentName::new(name).unwrap());
        let cast = plan.plan().cast().iter().map(|_| lead.clone()).collect();
        let at = Timestamp::from_millis(1_767_225_600_000);
        let (run, trace) = (RunId(Uuid::from_u128(7)), TraceId(Uuid::from_u128(8)));
        let submission =
            Submission { run, trace, task: plan.task("in"), agent: lead, cast, chain: Chain::default(), at };
        Run::begin(Arc::new(submission), StateRules::default()).0
    }

    /// A random end of an open turn.
    fn end_of(run: &Run, turn: u32, way: u64) -> RunEvent {
        let (at, agent) = (run.last_at(), run.turn(turn).unwrap().agent().clone());
        let command = Command::output(way).with("seen", way);
        let command = match way % 7 {
            0 if run.interrupts().any(|interrupt| interrupt.turn.number == turn) => {
                let (input, update) = (Some("other".into()), Update::default());
                return RunEvent::Resumed { turn, input, update, by: "ann".into(), at };
            }
            0 | 1 => {
                let failure = crate::messages::Failure::new(crate::messages::FailureKind::Terminal, "no");
                return RunEvent::TurnFailed { turn, agent, input: Json::null(), attempt: 1, failure, at };
            }
            2 => command.goto("judge"),
            3 => command.goto("over"),
            _ => command,
        };
        let (command, verdict) = (Arc::new(command), Verdict::Nothing);
        RunEvent::TurnEnded { turn, agent, attempt: 1, command, verdict, at }
    }

    #[test]
    fn a_run_of_a_plan_continues_from_its_snapshot_after_any_event_in_the_same_way() {
        let mut ended = 0;
        for seed in 0_u64..300 {
            let mut random = seed;
            let mut next = || {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                random >> 33
            };
            let (mut run, mut history) = (planned(), Vec::new());
            while run.result().is_none() {
                let mut read = stored(1, &run).whole().with_rules(StateRules::default());
                assert_eq!(format!("{run:?}"), format!("{read:?}"));
                let open: Vec<u32> = run.open_turns().collect();
                assert!(!open.is_empty(), "it has not ended, and nobody works: {run:?}");
                let event = end_of(&run, open[next() as usize % open.len()], next());
                assert_eq!(run.step(&event), read.step(&event));
                assert_eq!(format!("{run:?}"), format!("{read:?}"));
                history.push(event);
            }
            let submitted = RunEvent::Submitted(Arc::clone(run.submission()));
            let again = Run::of(std::iter::once(submitted).chain(history).collect(), &StateRules::default()).unwrap();
            assert_eq!(format!("{run:?}"), format!("{again:?}"));
            ended += u32::from(run.result().is_some_and(|result| result.outcome.is_finished()));
        }
        assert!((30..270).contains(&ended), "{ended} of 300 finished");
    }

    /// The snapshot of a run, read from its bytes.
    fn stored(last: Sequence, run: &Run) -> Snapshot {
        codec::decode(&codec::encode_as::<Snapshot>(&SnapshotOf::new(last, run))).unwrap()
    }

    /// The form in which it was stored before turns had the figures of their run.
    fn without_figures(run: Run) -> Run {
        run.without_figures()
    }

    #[test]
    fn the_bytes_of_a_snapshot_are_golden() {
        crate::testing::golden::check(
            concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden"),
            &stored(4, &without_figures(run())),
        );
    }

    #[test]
    fn the_bytes_of_a_snapshot_with_the_figures_of_turns_are_golden() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/figures");
        crate::testing::golden::check(folder, &stored(4, &run()));
    }

    #[test]
    fn the_bytes_of_a_snapshot_with_an_unknown_outcome_are_golden() {
        let at = Timestamp::from_millis(1_767_225_600_000);
        let mut run = without_figures(run());
        let intent = Intent::new("charge", "order 7", &Json::from(3));
        for ordinal in 2..4 {
            run.step(&RunEvent::IntentRecorded { turn: 2, ordinal, intent: intent.clone(), at, is_tool: false });
        }
        let asked = AskedOutcome { nonce: 9, at, expires_at: at, problem: None };
        run.step(&RunEvent::OutcomeUnknown { turn: 2, ordinal: 3, asked });
        let failure = Failure::new(FailureKind::Terminal, "refused");
        run.step(&RunEvent::StepFailed {
            turn: 2,
            ordinal: 4,
            name: "charge".into(),
            failure,
            is_tainted: false,
            at: None,
        });
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/outside_effects");
        crate::testing::golden::check(folder, &stored(8, &run));
    }

    #[test]
    fn the_bytes_of_a_snapshot_in_a_conversation_are_golden() {
        let at = Timestamp::from_millis(1_767_225_600_000);
        let mut run = without_figures(run());
        let conversation = ConversationId::new("ann").unwrap();
        run.step(&RunEvent::ConversationEntered { conversation, at });
        let messages = json!([{ "role": "user", "text": "hello" }]).into();
        run.step(&RunEvent::ConversationRead { messages, runs: 1, left_out: 0, is_tainted: false, at });
        let stored = stored(6, &run);
        assert!(stored.conversing.as_ref().is_some_and(|conversing| conversing.read.is_some()));
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/conversations");
        crate::testing::golden::check(folder, &stored);
    }

    #[test]
    fn the_bytes_of_a_snapshot_with_what_people_are_asked_in_time_are_golden() {
        let (turn, at) = (2, Timestamp::from_millis(1_767_225_600_000));
        let mut run = without_figures(run());
        let request = RequestId { turn: run.turn_id(turn), ordinal: 2 };
        let envelope = Envelope {
            version: 1,
            kind: ActionKind::Requested,
            request,
            agent: AgentName::new("coder").unwrap(),
            action: Action::new("write_file", "REVIEW.md", json!({ "text": "x" })),
            policy: "ask".into(),
            deciders: crate::messages::Deciders::default(),
            requester: None,
            escalates_at: None,
            edited_by: None,
            rationale: Rationale::default(),
            nonce: 9,
            expires_at: at,
            remind_at: Some(at),
        };
        run.step(&RunEvent::ApprovalAsked { turn, ordinal: 2, envelope: Box::new(envelope), at });
        for ordinal in 3..6 {
            let question = Json::from("Which colour?");
            run.step(&RunEvent::AskedUntil { turn, ordinal, question, nonce: 9, expires_at: at, at });
        }
        run.step(&RunEvent::Answered { turn, ordinal: 4, answer: "red".into(), by: "ann".into(), at });
        run.step(&RunEvent::QuestionExpired { turn, ordinal: 5, at });
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/expiring");
        crate::testing::golden::check(folder, &stored(8, &run));
    }

    #[test]
    fn a_run_with_a_limit_of_money_continues_from_its_snapshot_and_its_bytes_are_golden() {
        let (turn, at) = (1, Timestamp::from_millis(1_767_225_600_000));
        let limits = Limits { cost: Some(Cost(2_500_000_000)), ..Limits::default() };
        let (agent, run) = (AgentName::new("lead").unwrap(), RunId(Uuid::from_u128(7)));
        let (task, cast, chain) = (Task::new("fix").limits(limits), Vec::new(), Chain::default());
        let submission = Submission { run, trace: TraceId(run.0), task, agent, cast, chain, at };
        let usage = Some(Usage { cost: Cost(300_000), ..Usage::of(300, 20) });
        let reserved = |ordinal| {
            let (verdict, cost) = (Verdict::Admitted(Vec::new()), Some(Cost(400_000)));
            RunEvent::Reserved {
                turn,
                ordinal,
                tokens: 400,
                verdict,
                at: Some(at),
                cost,
                charged: None,
                is_share: false,
            }
        };
        let settled = |ordinal, model: Option<&str>| {
            let (model, is_of_run) = (model.map(Arc::from), model.is_none());
            RunEvent::Settled { turn, ordinal, usage, at: Some(at), model, is_of_run }
        };
        let mut events = vec![RunEvent::Submitted(Arc::new(submission))];
        events.extend((0..3).map(reserved));
        events.extend([settled(0, Some("large")), settled(1, None)]);
        let mut run = Run::of(events, &StateRules::default()).unwrap().without_figures();
        let mut read = stored(6, &run).whole().with_rules(StateRules::default());
        assert_eq!(format!("{run:?}"), format!("{read:?}"));
        let snapshot = stored(6, &run);
        run.step(&settled(2, Some("small")));
        read.step(&settled(2, Some("small")));
        assert_eq!(run.used_by_agents(), read.used_by_agents());
        let models: Vec<_> =
            read.used_by_agents().into_iter().map(|(_, model, usage)| (model, usage.total())).collect();
        assert_eq!(models, [(Some("large"), 320), (Some("small"), 320)]);
        crate::testing::golden::check(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/money"), &snapshot);
    }

    #[test]
    fn the_bytes_of_a_snapshot_with_uses_of_tools_are_golden() {
        let (agent, at) = (AgentName::new("lead").unwrap(), Timestamp::from_millis(1_767_225_600_000));
        let mut run = run();
        for (ordinal, name) in [(2, "read"), (3, "search"), (4, "read")] {
            let (value, is_tainted, at) = (Json::null(), false, Some(at));
            let name = name.into();
            run.step(&RunEvent::StepFinished { turn: 2, ordinal, name, value, is_tainted, at, is_tool: true });
        }
        let (order, verdict) = (Order::new("lead", "review"), Verdict::Admitted(vec![agent]));
        run.step(&RunEvent::Delegated { turn: 2, ordinal: 5, order, verdict, at });
        let seen = |run: &Run| run.turn(4).unwrap().figures().unwrap().to_json().value()["tools_used"].clone();
        assert_eq!(seen(&run), json!({ "read": 2, "search": 1 }));
        assert_eq!(seen(&read_again(&run)), seen(&run));
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/tools");
        crate::testing::golden::check(folder, &stored(8, &run));
    }

    #[test]
    fn the_bytes_of_a_snapshot_with_a_turn_that_is_taken_elsewhere_are_golden() {
        let (mut run, verdict) = (run(), Verdict::Admitted(Vec::new()));
        let (turn, ordinal, at, cost, charged) = (2, 1, None, None, None);
        run.step(&RunEvent::Reserved { turn, ordinal, tokens: 9, verdict, at, cost, charged, is_share: true });
        let turn = |run: &Run| run.turn(2).map(|turn| (turn.is_taken_elsewhere(), turn.has_requests()));
        let before = turn(&run);
        assert_eq!(before.map(|(is_taken, _)| is_taken), Some(true));
        assert_eq!(turn(&read_again(&run)), before);
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/shares");
        crate::testing::golden::check(folder, &stored(4, &run));
    }

    /// The golden check compares values; a run's debug form shows all of it.
    impl PartialEq for Snapshot {
        fn eq(&self, other: &Self) -> bool {
            format!("{self:?}") == format!("{other:?}")
        }
    }
}
