//! Process agents (docs/process-agents.md): programs as agents, what they may ask for, and what becomes of those that do not
//! behave. They are Python programs that run in real time.

#![cfg(all(unix, feature = "process"))]

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{assert_nothing_left, builder, finish, people, secs, until};
use crate::outside::{AT_MOST, Wire, reaped};
use callboard::messages::{Consent, ConversationId, FailureKind, Limits, RunEvent, RunResult, TraceParent};
use callboard::prelude::*;
use callboard::runtime::RunHandle;
use callboard::supervision::runs::BreakerPolicy;
use callboard::supervision::tree::{ActorState, TreeNode};
use callboard_agents::ProcessAgent;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::sync::Barrier;
use tokio::time::timeout;

/// What the programs have in common.
const PRELUDE: &str = concat!(include_str!("prelude.py"), "import signal, subprocess\n", include_str!("wire.py"));

fn program(source: &str) -> ProcessAgent {
    ProcessAgent::new("python3").args(["-c", &format!("{PRELUDE}{source}")])
}

fn spec(source: impl Into<String>) -> AgentSpec {
    let source = source.into();
    AgentSpec::new("worker", move || program(&source))
}

async fn board(spec: AgentSpec) -> Callboard {
    builder().with(spec).start().await.unwrap()
}

async fn node(board: &Callboard) -> TreeNode {
    board.tree().await.unwrap().find(&["agents", "worker"]).unwrap().clone()
}

async fn ended(run: &RunHandle) -> RunResult {
    timeout(AT_MOST, run.result()).await.expect("the run does not end").unwrap()
}

/// How the task's run fails.
async fn failure(board: &Callboard, task: Task) -> String {
    let run = board.submit(task).await.unwrap();
    match ended(&run).await.outcome {
        Outcome::Failed { error } => error,
        other => panic!("{other:?}: {:#?}", run.history().await),
    }
}

async fn output(board: &Callboard, task: Task) -> Json {
    let run = board.submit(task).await.unwrap();
    let result = ended(&run).await;
    assert_eq!(result.outcome, Outcome::Finished, "{:#?}", run.history().await);
    result.output
}

fn once(task: Task) -> Task {
    task.limits(Limits { attempts: 1, ..Limits::default() })
}

async fn noticed(run: &RunHandle) -> String {
    match until(run, |event| matches!(event, RunEvent::Noticed { .. })).await {
        RunEvent::Noticed { text, .. } => text.to_string(),
        other => panic!("{other:?}"),
    }
}

fn pid(text: &str) -> Pid {
    Pid::from_raw(text.parse().unwrap()).unwrap()
}

/// A worker whose program finds the place.
fn spec_at(wire: &Wire, source: impl Into<String>) -> AgentSpec {
    let (source, path) = (source.into(), wire.path());
    AgentSpec::new("worker", move || program(&source).env("WIRE", &path))
}

#[tokio::test]
async fn the_example_counts_words_with_a_step_its_memory_and_a_delegation() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/process/word_counter.py");
    assert!(std::fs::read_to_string(&example).unwrap().lines().count() <= 40);
    let board = builder()
        .with(AgentSpec::new("counter", move || ProcessAgent::new("python3").args([&example])))
        .with(
            AgentSpec::new("namer", |turn: Turn| async move {
                let counts: Value = turn.input()?;
                Ok(Command::output(format!("On {}", counts.as_object().unwrap().keys().min().unwrap())))
            })
            .role("editor"),
        )
        .start()
        .await
        .unwrap();
    for text in ["To be or not to be", "to be is to do"] {
        let run = board.submit(Task::new("count").to("counter").input(text)).await.unwrap();
        let output = ended(&run).await.output;
        assert_eq!((&output["title"], &output["counts"]["to"]), (&json!("On be"), &json!(2)), "{output}");
        let history = run.history().await.unwrap();
        let steps = history.iter().filter(|event| matches!(event, RunEvent::StepFinished { .. })).count();
        assert_eq!(steps, 1, "{history:#?}");
        let kept = board.context().get("memory:counter", "project:words").await.unwrap().unwrap();
        assert_eq!(serde_json::from_str::<Value>(&kept.value).unwrap(), output["counts"]);
    }
    board.shutdown().await;
}

#[tokio::test]
async fn the_example_ends_its_turn_with_what_went_wrong() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/process/word_counter.py");
    let board = board(AgentSpec::new("worker", move || ProcessAgent::new("python3").args([&example]))).await;
    let error = failure(&board, once(Task::new("count").input("words"))).await;
    assert_eq!(error, "refused: no agent has the name, role or capability \"editor\"");
    board.shutdown().await;
}

#[tokio::test]
async fn a_turn_is_sent_with_all_that_it_is_about() {
    let source = r#"
hello = begin()
turn = hear()
end(turn, output=[hello, turn])
"#;
    let board = builder()
        .with(spec(source))
        .agent("lead", |turn: Turn| async move {
            turn.delegate("worker", "first").await?;
            let reported = turn.delegate("worker", "again").input(json!({ "n": 1.5 })).await?;
            Ok(Command::output(reported))
        })
        .start()
        .await
        .unwrap();
    let parent = TraceParent { trace: 7, span: 9, is_sampled: true, state: None }.with_state("vendor=1");
    let task = Task::new("all of it").to("lead").deadline(secs(1_000));
    let run = board.submit(Task { trace_parent: Some(Box::new(parent)), ..task }).await.unwrap();
    let output = ended(&run).await.output;
    assert_eq!(output[0], json!({ "type": "hello", "protocol": 2, "agent": "worker" }));
    let mut turn = output[1].clone();
    let reported = turn.as_object_mut().unwrap();
    assert!(reported.remove("deadline_ms").unwrap().as_u64().is_some());
    assert!(reported.remove("trace").unwrap().is_string());
    let trace_parent = run.read().await.unwrap().submission().trace_parent(3);
    assert_eq!(reported.remove("traceparent").unwrap(), trace_parent.to_string());
    assert_eq!(reported.remove("tracestate").unwrap(), "vendor=1");
    assert_eq!(reported.remove("earlier_answers").unwrap()[0]["body"], "first");
    assert!(reported["state"].as_object_mut().unwrap().remove("metrics").unwrap()["time_elapsed"].is_f64());
    let expected = json!({
        "type": "turn", "id": format!("{}/3", run.id()), "attempt": 1, "agent": "worker", "task": "all of it",
        "input": { "n": 1.5 }, "state": { "context": { "previous_agent": "lead" } }, "previous_agent": "lead",
        "chain": [{ "from": "lead", "to": "worker", "task": "again" }],
        "is_tainted": false, "authority": ["reads", "notes", "sends", "writes", "executes"], "conversation": [],
    });
    assert_eq!(turn, expected);
    board.shutdown().await;
}

#[tokio::test]
async fn a_process_receives_the_messages_of_the_runs_before_in_its_conversation() {
    let source = r#"
begin()
while True:
    turn = hear()
    end(turn, output=turn["conversation"])
"#;
    let board = board(spec(source)).await;
    let ann = ConversationId::new("ann").unwrap();
    assert_eq!(output(&board, Task::new("hello").conversation(&ann)).await, json!([]));
    let expected = json!([
        { "role": "user", "text": "hello" },
        { "role": "assistant", "text": "[]", "calls": [] },
    ]);
    assert_eq!(output(&board, Task::new("again").conversation(&ann)).await, expected);
    board.shutdown().await;
}

#[tokio::test]
async fn a_command_of_a_process_writes_the_state_and_hands_control_on() {
    let source = r#"
begin()
turn = hear()
end(turn, output="mine", update={"messages": "one"}, overwrite={"artifacts": {"a": 1}}, goto=[{"to": "next", "input": 7}])
"#;
    let board = builder()
        .with(spec(source))
        .agent("next", |turn: Turn| async move {
            let state = turn.state().to_json();
            Ok(Command::output(json!([turn.input_json(), state["messages"], state["artifacts"]])))
        })
        .start()
        .await
        .unwrap();
    let result = finish(&board, Task::new("x").to("worker")).await;
    assert_eq!(result.output, json!([[7, ["one"], { "a": 1 }]]));
    board.shutdown().await;
}

#[tokio::test]
async fn a_repeated_attempt_gets_the_results_of_steps_from_the_journal() {
    let source = r#"
begin()
while True:
    turn = hear()
    told = []
    for name in ["one", "two"]:
        tell(type="step", id=1, name=name)
        answer = hear()
        told.append(answer["type"])
        if answer["type"] == "go":
            tell(type="step_done", id=1, value=[name, turn["attempt"]])
        else:
            told.append(answer["value"])
        if turn["attempt"] == 1:
            tell(type="error", turn=turn["id"], text="later")
            break
    else:
        end(turn, output=[told, os.getpid()])
"#;
    let board = board(spec(source)).await;
    let output = output(&board, Task::new("x")).await;
    assert_eq!(output[0], json!(["result", ["one", 1], "go"]));
    board.shutdown().await;
}

#[tokio::test]
async fn steps_that_a_program_calls_uses_of_tools_are_counted_for_later_turns() {
    let source = r#"
begin()
turn = hear()
for name, more in [("search", {"tool": True}), ("charge", {"tool": True, "class": "once"}), ("think", {})]:
    tell(type="step", id=1, name=name, **more)
    hear()
    tell(type="step_done", id=1, value=name)
end(turn, "go", goto="worker")
turn = hear()
end(turn, turn["state"]["metrics"]["tools_used"])
"#;
    let board = board(spec(source)).await;
    let output = output(&board, Task::new("x").to("worker")).await;
    assert_eq!(output, json!({ "charge": 1, "search": 1 }));
    board.shutdown().await;
}

#[tokio::test]
async fn a_step_that_must_not_be_repeated_is_asked_about_when_its_result_was_lost() {
    let source = r#"
begin()
while True:
    turn = hear()
    rule = {"on_unknown": "report"} if turn["input"] == "report" else {}
    tell(type="step", id=1, name="charge", **{"class": "once"}, target="order 7", arguments={"amount": 3}, **rule)
    answer = hear()
    if answer["type"] == "go":
        tell(type="error", turn=turn["id"], text="charged, and then lost")
    else:
        end(turn, output=answer.get("value") or answer["kind"])
"#;
    let board = board(spec(source)).await;
    let run = board.submit(Task::new("x")).await.unwrap();
    let open = people::question(&run).await;
    assert!(open.question.to_string().contains("charge order 7 was begun"), "{}", open.question);
    board.people().answer(open.id, json!({ "done": "receipt" }), "ann").await.unwrap();
    assert_eq!(run.result().await.unwrap().output, "receipt");
    assert_eq!(output(&board, Task::new("x").input("report")).await, "outcome_unknown");
    board.shutdown().await;
}

#[tokio::test]
async fn a_repeated_attempt_that_asks_for_something_else_waits_for_a_person() {
    let source = r#"
begin()
while True:
    turn = hear()
    tell(type="step", id=1, name="step %d" % turn["attempt"])
    hear()
    tell(type="step_done", id=1, value=None)
    tell(type="error", turn=turn["id"], text="later")
"#;
    let board = board(spec(source)).await;
    let run = board.submit(Task::new("x")).await.unwrap();
    let RunEvent::NeedsAttention { why, .. } =
        until(&run, |event| matches!(event, RunEvent::NeedsAttention { .. })).await
    else {
        unreachable!()
    };
    assert!(why.contains("step 2") && why.contains("step 1"), "{why}");
    board.shutdown().await;
}

/// Two requests that are open at once look like this too, so it is not refused.
#[tokio::test]
async fn a_request_while_a_step_is_open_has_its_own_place_in_the_order() {
    let source = r#"
begin()
while True:
    turn = hear()
    tell(type="step", id=1, name="outer")
    outer = hear()
    if outer["type"] == "go" or turn["input"] == "always":
        tell(type="delegate", id=2, to="helper", body="a")
        inner = hear()["value"]
    if outer["type"] == "go":
        tell(type="step_done", id=1, value="worked")
    tell(type="step", id=3, name="after")
    if hear()["type"] == "go":
        tell(type="step_done", id=3, value=None)
    if turn["attempt"] == 1:
        tell(type="error", turn=turn["id"], text="later")
    else:
        end(turn, output=[outer.get("value"), inner])
"#;
    let asked = Arc::new(Mutex::new(0));
    let count = Arc::clone(&asked);
    let board = builder()
        .with(spec(source))
        .agent("helper", move |_: Turn| {
            *count.lock() += 1;
            let answer = *count.lock();
            async move { Ok(Command::output(answer)) }
        })
        .start()
        .await
        .unwrap();
    // It is sent whether or not the step is recorded: then it is answered from the journal.
    assert_eq!(output(&board, Task::new("always").to("worker")).await, json!(["worked", 1]));
    assert_eq!(*asked.lock(), 1);
    // It is part of the step's work: the recorded step leaves it out, and the turn asks for something else in its place.
    let run = board.submit(Task::new("in the step").to("worker")).await.unwrap();
    let attention = until(&run, |event| matches!(event, RunEvent::NeedsAttention { .. })).await;
    let RunEvent::NeedsAttention { why, .. } = attention else { unreachable!() };
    assert!(why.contains("after") && why.contains("helper"), "{why}");
    board.shutdown().await;
}

#[tokio::test]
async fn delegations_that_are_open_at_once_run_side_by_side() {
    let source = r#"
begin()
turn = hear()
tell(type="delegate", id=10, to="helper", body="a")
tell(type="delegate", id=20, to="helper", body="b", input={"n": 2}, tokens=10, deadline_seconds=60, sees="all")
answers = {}
for _ in range(2):
    answer = hear()
    answers[answer["id"]] = answer["value"]
end(turn, output=[answers[10], answers[20]])
"#;
    let both = Arc::new(Barrier::new(2));
    let board = builder()
        .with(spec(source))
        .agent("helper", move |turn: Turn| {
            let both = Arc::clone(&both);
            async move {
                both.wait().await;
                Ok(Command::output(turn.input_json().clone()))
            }
        })
        .start()
        .await
        .unwrap();
    assert_eq!(output(&board, Task::new("x").to("worker")).await, json!(["a", { "n": 2 }]));
    board.shutdown().await;
}

#[tokio::test]
async fn a_delegation_that_does_not_finish_is_reported_with_its_output() {
    let source = r#"
begin()
turn = hear()
tell(type="delegate", id=1, to="helper", body="a")
answer = hear()
tell(type="notice", text=json.dumps(answer))
tell(type="error", turn=turn["id"], of=1)
"#;
    let board = builder()
        .with(spec(source))
        .agent("helper", |_: Turn| async { Err::<Command, _>(TurnError::terminal("no ink")) })
        .start()
        .await
        .unwrap();
    let run = board.submit(Task::new("x").to("worker")).await.unwrap();
    let reported: Value = serde_json::from_str(&noticed(&run).await).unwrap();
    assert_eq!(
        (&reported["type"], &reported["kind"], &reported["output"]),
        (&json!("failed"), &json!("not_finished"), &json!(null))
    );
    let Outcome::Failed { error } = ended(&run).await.outcome else { panic!("it did not fail") };
    assert_eq!(reported["error"], error);
    assert!(error.contains("the delegation to helper did not finish") && error.contains("no ink"), "{error}");
    board.shutdown().await;
}

#[tokio::test]
async fn a_question_is_answered_by_people() {
    let source = r#"
begin()
turn = hear()
tell(type="ask", id=1, question={"which": ["a", "b"]})
end(turn, output=hear())
"#;
    let board = board(spec(source)).await;
    let run = board.submit(Task::new("x")).await.unwrap();
    let question = people::question(&run).await;
    assert_eq!(question.question, json!({ "which": ["a", "b"] }));
    board.people().answer(question.id, "b", "me").await.unwrap();
    assert_eq!(ended(&run).await.output, json!({ "type": "result", "id": 1, "value": "b" }));
    board.shutdown().await;
}

#[tokio::test]
async fn untrusted_input_that_a_process_has_read_taints_its_run() {
    let source = r#"
begin()
turn = hear()
if not turn["is_tainted"]:
    tell(type="taint", source="a page")
end(turn, output=turn["is_tainted"])
"#;
    let asks_twice = |turn: Turn| async move {
        let before = turn.is_tainted();
        let reported = [turn.delegate("worker", "first").await?, turn.delegate("worker", "again").await?];
        Ok(Command::output(json!([before, reported, turn.is_tainted()])))
    };
    let board = builder().with(spec(source)).agent("lead", asks_twice).start().await.unwrap();
    let run = board.submit(Task::new("x").to("lead")).await.unwrap();
    let marked = until(&run, |event| matches!(event, RunEvent::Tainted { .. })).await;
    assert_eq!(marked.to_string(), "read untrusted input: a page");
    assert_eq!(ended(&run).await.output, json!([false, [false, true], true]));
    board.shutdown().await;
}

#[tokio::test]
async fn a_process_that_cannot_pass_control_on_finishes_alone() {
    let source = r#"
begin()
turn = hear()
tell(type="check_handoff", id=1, goto="writer")
answer = hear()
if answer["type"] == "failed":
    assert answer["kind"] == "refused", answer
    end(turn, output="alone")
else:
    end(turn, output="a plan", goto="writer")
"#;
    let writer = |_: Turn| async { Ok(Command::output("written")) };
    let board = builder().with(spec(source)).agent("writer", writer).start().await.unwrap();
    for (handoffs, output) in [(Handoffs::Off, "alone"), (Handoffs::OrAlone, "written")] {
        let run = board.submit(Task::new("x").to("worker").handoffs(handoffs)).await.unwrap();
        let result = ended(&run).await;
        assert_eq!((result.output, result.alone.len()), (output.into(), usize::from(output == "alone")));
    }
    board.shutdown().await;
}

#[tokio::test]
async fn a_process_can_have_people_asked_each_time() {
    let source = r#"
begin()
turn = hear()
for id, each_time in enumerate([False, False, True]):
    tell(type="approve", id=id, action="burn", target="x", arguments={}, each_time=each_time, reason=f"reason {id}")
    assert hear()["type"] == "result"
end(turn, output="done")
"#;
    let board = board(spec(source)).await;
    let run = board.submit(Task::new("x")).await.unwrap();
    let first = people::approval(&board).await;
    board.people().answer(first.id(), Response::ApproveForRun(secs(3_600)), "ann").await.unwrap();
    let again = people::approval(&board).await;
    assert_eq!(again.request.ordinal, 2, "the second one was covered");
    assert_eq!(
        (first.rationale.reason.as_deref(), again.rationale.reason.as_deref()),
        (Some("reason 0"), Some("reason 2"))
    );
    board.people().approve(again.id(), "ann").await.unwrap();
    assert_eq!(ended(&run).await.output, "done");
    board.shutdown().await;
}

#[tokio::test]
async fn a_turn_that_ends_as_its_denied_request_is_denied() {
    let source = r#"
begin()
turn = hear()
tell(type="approve", id=1, action="write_file", target=turn["input"], arguments={"text": "x"})
answer = hear()
if answer["type"] == "result":
    end(turn, output=answer["value"])
else:
    assert answer["kind"] == "denied", answer
    tell(type="error", turn=turn["id"], of=1)
"#;
    let policy = |action: &str| if action == "no.md" { Consent::Deny } else { Consent::Auto };
    let board = builder()
        .with(spec(source))
        .approval_policy(move |question| policy(&question.action.target))
        .start()
        .await
        .unwrap();
    let output = output(&board, Task::new("yes.md")).await;
    assert_eq!(output, json!({ "action": "write_file", "target": "yes.md", "arguments": { "text": "x" } }));
    let result = finish(&board, Task::new("no.md")).await;
    assert!(matches!(result.outcome, Outcome::Denied { .. }), "{result:?}");
    board.shutdown().await;
}

#[tokio::test]
async fn a_process_uses_the_shared_context_with_its_agents_grants() {
    let source = r#"
begin()
turn = hear()
ids = iter(range(100))
def ask(**request):
    tell(id=next(ids), **request)
    answer = hear()
    return answer["value"] if answer["type"] == "result" else [answer["kind"], answer["error"]]
told = [
    ask(type="context_get", key="module:a"),
    ask(type="context_set", key="module:a", value="1")["value"],
    ask(type="context_set", namespace="notes", key="ab", value="2", ttl_seconds=60, if_revision=None)["agent"],
    ask(type="context_set", namespace="notes", key="ab", value="3", if_revision=None)[0],
    [entry["key"] for entry in ask(type="context_query", namespace="notes", prefix="a", limit=9)],
    [entry["key"] for entry in ask(type="context_query", namespace="notes", limit=9)],
    [entry["key"] for entry in ask(type="context_search", namespaces=["notes", "memory:worker"], limit=9)],
    ask(type="context_touch", namespace="notes", key="ab", ttl_seconds=600),
    ask(type="context_delete", namespace="notes", key="ab"),
    ask(type="context_delete", namespace="notes", key="ab"),
    ask(type="context_get", namespace="secrets", key="a"),
]
end(turn, output=told)
"#;
    let board = board(spec(source).namespaces(["notes"])).await;
    let reported = output(&board, Task::new("x")).await;
    let refused = &reported[10];
    assert_eq!(refused[0], "context");
    assert!(refused[1].as_str().unwrap().contains("no grant for namespace \"secrets\""), "{refused}");
    let others = &reported.as_array().unwrap()[..10];
    let expected = json!([null, "1", "worker", "context", ["ab"], ["ab"], ["ab", "module:a"], true, true, false]);
    assert_eq!(json!(others), expected);
    board.shutdown().await;
}

#[tokio::test]
async fn tokens_are_reserved_settled_and_released_within_the_budget() {
    let source = r#"
begin()
turn = hear()
def ask(**request):
    tell(**request)
    return hear()
told = [
    ask(type="reserve", id=1, tokens=600)["value"],
    ask(type="reserve", id=2, tokens=600)["kind"],
    ask(type="settle", id=3, reservation=1, input_tokens=100, output_tokens=50)["value"],
    ask(type="reserve", id=1, tokens=800)["value"],
    ask(type="release", id=3, reservation=1)["value"],
]
end(turn, output=told)
"#;
    let board = board(spec(source)).await;
    let result = finish(&board, Task::new("x").limits(Limits { tokens: 1_000, ..Limits::default() })).await;
    assert_eq!(result.output, json!([1, "refused", null, 1, null]));
    assert_eq!(result.metrics.usage.total(), 150);
    board.shutdown().await;
}

#[tokio::test]
async fn a_process_stays_for_the_next_turn_and_turns_at_once_have_one_each() {
    let source = r#"
begin()
while True:
    turn = hear()
    tell(type="ask", id=1, question=os.getpid())
    hear()
    end(turn, output=os.getpid())
"#;
    let board = board(spec(source)).await;
    let runs = [board.submit(Task::new("a")).await.unwrap(), board.submit(Task::new("b")).await.unwrap()];
    let mut pids = Vec::new();
    for run in &runs {
        let question = people::question(run).await;
        pids.push(question.question.clone());
    }
    assert_ne!(pids[0], pids[1]);
    for run in &runs {
        let question = people::question(run).await;
        board.people().answer(question.id, json!(null), "me").await.unwrap();
        ended(run).await;
    }
    let third = board.submit(Task::new("c")).await.unwrap();
    let question = people::question(&third).await;
    assert!(pids.contains(&question.question));
    board.people().answer(question.id, json!(null), "me").await.unwrap();
    ended(&third).await;
    board.shutdown().await;
    for pid in pids {
        reaped(self::pid(&pid.to_string())).await;
    }
}

#[tokio::test]
async fn a_process_that_ends_after_each_turn_is_started_for_each() {
    let source = r#"
begin()
turn = hear()
end(turn, output=os.getpid())
"#;
    let board = board(spec(source)).await;
    let mut pids = Vec::new();
    for _ in 0..5 {
        pids.push(output(&board, once(Task::new("x"))).await.as_u64().unwrap());
    }
    pids.sort_unstable();
    pids.dedup();
    assert_eq!((pids.len(), node(&board).await.restarts), (5, 0));
    board.shutdown().await;
}

#[tokio::test]
async fn a_process_sees_only_the_variables_that_are_named() {
    // A shell: wrappers of interpreters set variables of their own.
    const SHELL: &str = r#"
read hello; echo '{"type":"ready","protocol":2}'
read turn; id=${turn#*'"id":"'}; id=${id%%'"'*}
names=$(env | cut -d= -f1 | tr '\n' ' ')
echo '{"type":"command","turn":"'$id'","output":["'$names'","'$KEY'","'$(pwd)'"]}'
"#;
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some(), "there is nothing that could be passed on");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap();
    let inside = path.clone();
    let spec = AgentSpec::new("worker", move || {
        ProcessAgent::new("sh").args(["-c", SHELL]).env("KEY", "k").current_dir(&inside)
    });
    let board = board(spec).await;
    let output = output(&board, Task::new("x")).await;
    assert_eq!((output[1].as_str(), output[2].as_str()), (Some("k"), path.to_str()));
    for name in output[0].as_str().unwrap().split_whitespace() {
        let is_kept = ["PATH", "HOME", "LANG", "TMPDIR", "KEY"].contains(&name) || name.starts_with("LC_");
        let is_own = ["CALLBOARD_AGENT", "CALLBOARD_PROCESS", "CALLBOARD_TURN_SOCKET"].contains(&name);
        assert!(is_kept || is_own || ["PWD", "OLDPWD", "SHLVL", "_"].contains(&name), "{output}");
    }
    board.shutdown().await;
}

#[tokio::test]
async fn lines_that_are_not_of_the_protocol_end_the_turn_and_the_process_and_nothing_else() {
    let cases = [
        (
            "garbage",
            r#"print("Hello, world!\x1b[31m", flush=True)"#,
            r#"it is no JSON object: column 1: expected value; the line is "Hello, world!\u{1b}[31m""#,
        ),
        ("bytes", r#"os.write(1, b"\xff\xfe\n")"#, "it is no JSON object"),
        ("unknown", r#"tell(type="sing", id=1)"#, "unknown variant `sing`, expected one of `step`"),
        (
            "misspelt",
            r#"tell(type="step", id=1, nme="x")"#,
            "unknown field `nme`, expected one of `id`, `name`, `class`, `target`, `arguments`, `on_unknown`",
        ),
        (
            "twice",
            r#"tell(type="ask", id=1, question=1); tell(type="ask", id=1, question=2)"#,
            "the id 1 is that of an open request",
        ),
        (
            "many",
            r#"[tell(type="ask", id=n, question=n) for n in range(65)]"#,
            "at most 64 requests may be open at once",
        ),
        (
            "ruled",
            r#"tell(type="step", id=1, name="x", on_unknown="fail")"#,
            "`on_unknown` is for a step of the class \"once\"",
        ),
        ("undone", r#"tell(type="step_done", id=1, value=1)"#, "no step with the id 1 has received `go`"),
        ("unreserved", r#"tell(type="release", id=1, reservation=9)"#, "there is no open reservation 9"),
        ("unfailed", r#"tell(type="error", turn=turn["id"], of=3)"#, "no request with the id 3 has failed"),
        ("stale", r#"tell(type="command", turn="another/1", output=1)"#, "it ends another turn; this one is"),
        (
            "long",
            r#"os.write(1, b"[" * (1 << 20)); [os.write(1, b"x" * (1 << 20)) for _ in range(8)]"#,
            "it has more than 8 MiB",
        ),
    ];
    let mut source = "begin()\nwhile True:\n    turn = hear()\n    kind = turn['input']\n".to_owned();
    for (kind, code, _) in cases {
        source += &format!("    if kind == '{kind}': {code}; tell(type='notice', text='on'); hear()\n");
    }
    source += "    end(turn, output=os.getpid())\n";
    let board = board(spec(source)).await;
    for (kind, _, why) in cases {
        let before = output(&board, Task::new("x")).await;
        let run = board.submit(Task::new(kind)).await.unwrap();
        let Outcome::Failed { error } = ended(&run).await.outcome else { panic!("{kind} did not fail") };
        assert!(error.starts_with("terminal error: the process \"python3 -c "), "{kind}: {error}");
        assert!(error.contains("wrote a line that is not of the protocol: ") && error.contains(why), "{kind}: {error}");
        assert!(error.len() < 1_000, "{kind}: {error}");
        reaped(pid(&before.to_string())).await;
    }
    let node = node(&board).await;
    assert_eq!((node.state, node.restarts), (ActorState::Running, 0));
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
}

#[tokio::test]
async fn a_process_of_another_version_ends_the_turn_with_both_versions() {
    let board = board(spec("begin(3)\nhear()\n")).await;
    let error = failure(&board, Task::new("x")).await;
    assert!(error.contains("speaks version 3 of the protocol, and callboard speaks version 2"), "{error}");
    assert!(error.starts_with("terminal error: "), "{error}");
    board.shutdown().await;
}

/// Its test of `is_marked` would find nothing, and take every run for one that has read no untrusted input.
#[tokio::test]
async fn a_program_of_the_first_version_is_refused_with_the_names_that_have_changed() {
    let source = r#"
begin(1)
turn = hear()
end(turn, output="trusted" if not turn.get("is_marked") else "untrusted")
"#;
    let board = board(spec(source)).await;
    let error = failure(&board, Task::new("x")).await;
    assert!(error.starts_with("terminal error: "), "{error}");
    for part in ["version 1", "`is_marked` is `is_tainted`", "`mark` is `taint`", "docs/process-agents.md"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    board.shutdown().await;
}

#[tokio::test]
async fn the_old_name_of_a_message_between_turns_is_logged_with_the_new_one() {
    let source = r#"
begin()
turn = hear()
late = json.dumps({"type": "mark", "source": "a page"}) + "\n"
if turn["input"] == "at once":
    line = json.dumps({"type": "command", "turn": turn["id"], "output": os.getpid()}) + "\n"
    os.write(1, (line + late).encode())
else:
    line = connect()
    end(turn, output=os.getpid())
    line.recv(1)
    os.write(1, late.encode())
hear()
"#;
    let logged = Log::default();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(logged.writer()).finish();
    let _traced = tracing::subscriber::set_default(subscriber);
    let wire = Wire::new();
    let board = board(spec_at(&wire, source)).await;
    for (count, input) in [(1, "at once"), (2, "later")] {
        let process = pid(&output(&board, Task::new(input)).await.to_string());
        if input == "later" {
            wire.taken().await.write();
        }
        reaped(process).await;
        let logged = logged.text();
        let warnings =
            logged.matches("wrote between turns and is ended: `mark` is called `taint`, and belongs to a turn");
        assert_eq!(warnings.count(), count, "{input}: {logged}");
    }
    board.shutdown().await;
}

#[tokio::test]
async fn a_process_that_does_not_begin_as_it_has_to_is_reported_with_the_reason() {
    let board = builder()
        .with(AgentSpec::new("loud", || program("print('Loading…', flush=True)\nhear()\nhear()\n")))
        .with(AgentSpec::new("old", || program("hear()\ntell(type='mark', source='a page')\nhear()\n")))
        .with(AgentSpec::new("wordy", || program("hear()\ntell(type='ready', protocol=2, names=['a'])\nhear()\n")))
        .with(AgentSpec::new("mute", || program("hear()\nhear()\n").ready_within(Duration::from_millis(50))))
        .with(AgentSpec::new("absent", || ProcessAgent::new("/nowhere/agent").args(["--fast"])))
        .with(AgentSpec::new("broken", || program("import nothing_of_this_name\n")))
        .start()
        .await
        .unwrap();
    for (agent, expected) in [
        (
            "loud",
            "did not say that it is ready: it is no JSON object: column 1: expected value; the line is \"Loading…\"",
        ),
        ("old", "did not say that it is ready: `mark` is called `taint`; the line is "),
        ("wordy", "did not say that it is ready: unknown field `names`, expected `type` or `protocol`; the line is "),
        ("mute", "did not say that it is ready within 50ms"),
        (
            "absent",
            "terminal error: the process \"/nowhere/agent --fast\" cannot be started: No such file or directory",
        ),
        ("broken", "ModuleNotFoundError: No module named 'nothing_of_this_name'"),
    ] {
        let error = failure(&board, once(Task::new("x").to(agent))).await;
        assert!(error.contains(expected), "{agent}: {error}");
    }
    board.shutdown().await;
}

#[tokio::test]
async fn a_process_that_never_answers_is_killed_when_its_turn_has_taken_too_long() {
    let source = r#"
line = connect()
begin()
turn = hear()
end(turn, output=1)
hear()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.pause()
"#;
    let wire = Wire::new();
    let board = board(spec_at(&wire, source).timeout(secs(2))).await;
    assert_eq!(output(&board, Task::new("x")).await, json!(1));
    let held = wire.taken().await;
    let run = board.submit(once(Task::new("x"))).await.unwrap();
    let Outcome::Failed { error } = ended(&run).await.outcome else { panic!("it did not fail") };
    assert!(
        error.starts_with("timeout: a turn of agent ") && error.contains(" took longer than its timeout of "),
        "{error}"
    );
    held.dropped().await;
    assert_eq!(output(&board, Task::new("x")).await, json!(1), "by a new process");
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
}

#[tokio::test]
async fn a_cancelled_run_leaves_no_process_and_none_of_those_that_it_has_started() {
    // Many, and one that has left the group.
    for (starts, leaves) in
        [("sleep 1000 & sleep 1000", "False"), ("for i in $(seq 200); do sleep 1000 & done; wait", "True")]
    {
        let source = format!(
            r#"
line = connect()
begin()
turn = hear()
subprocess.Popen(["sh", "-c", "{starts}"], pass_fds=[line.fileno()], stdout=sys.stderr, start_new_session={leaves})
tell(type="notice", text=str(os.getpid()))
hear()
"#
        );
        let wire = Wire::new();
        let board = board(spec_at(&wire, source)).await;
        let run = board.submit(Task::new("x")).await.unwrap();
        let process = pid(&noticed(&run).await);
        let held = wire.taken().await;
        run.cancel("enough").await.unwrap();
        held.dropped().await;
        reaped(process).await;
        assert_nothing_left(&board, 5).await;
        board.shutdown().await;
    }
}

#[test]
fn what_has_left_the_group_ends_also_if_the_runtime_ends_with_the_board() {
    let source = r#"
line = connect()
begin()
turn = hear()
quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
subprocess.Popen(["sleep", "1000"], pass_fds=[line.fileno()], start_new_session=True, **quiet)
end(turn, output="done")
hear()
"#;
    let wire = Wire::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let held = runtime.block_on(async {
        let board = board(spec_at(&wire, source)).await;
        assert_eq!(output(&board, Task::new("x")).await, "done");
        let held = wire.taken().await;
        board.shutdown().await;
        held
    });
    drop(runtime);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(held.dropped());
}

#[tokio::test]
async fn an_agent_that_goes_takes_its_idle_processes_and_their_children_with_it() {
    let source = r#"
line = connect()
begin()
while True:
    turn = hear()
    subprocess.Popen(["sleep", "1000"], pass_fds=[line.fileno()], stdin=subprocess.DEVNULL)
    end(turn, output=os.getpid())
"#;
    let wire = Wire::new();
    let board = board(spec_at(&wire, source)).await;
    let process = pid(&output(&board, Task::new("x")).await.to_string());
    let held = wire.taken().await;
    board.agents().stop("worker").await.unwrap();
    held.dropped().await;
    reaped(process).await;
    board.shutdown().await;
}

#[tokio::test]
async fn a_process_that_dies_fails_its_attempt_and_its_agent_is_rebuilt() {
    let source = r#"
begin()
turn = hear()
if turn["attempt"] == 1:
    for n in range(100):
        print("line", n, "\x1b[31m", file=sys.stderr)
    print("no ink", file=sys.stderr, flush=True)
    os._exit(3)
end(turn, output="done")
"#;
    let logged = Log::default();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(logged.writer()).finish();
    let _traced = tracing::subscriber::set_default(subscriber);
    let board = board(spec(source)).await;
    let run = board.submit(Task::new("x")).await.unwrap();
    let RunEvent::AttemptFailed { failure, .. } =
        until(&run, |event| matches!(event, RunEvent::AttemptFailed { .. })).await
    else {
        unreachable!()
    };
    assert_eq!(failure.kind, FailureKind::Panic);
    let (what, said) = failure.text.split_once(":\n").unwrap();
    assert!(what.ends_with("exited with status 3 before it ended its turn"), "{what}");
    let said: Vec<&str> = said.lines().collect();
    assert_eq!((said.len(), said[0], said[19]), (20, "line 81 \\u{1b}[31m", "no ink"));
    assert_eq!(ended(&run).await.output, "done");
    let node = node(&board).await;
    assert_eq!((node.state, node.restarts, node.generation), (ActorState::Running, 1, 2));
    let logged = logged.text();
    for line in ["callboard::process: line 0 \\u{1b}[31m agent=worker pid=", "callboard::process: no ink agent=worker"]
    {
        assert!(logged.contains(line), "{logged}");
    }
    board.shutdown().await;
}

/// What is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn writer(&self) -> impl Fn() -> Self + Send + Sync + 'static {
        let log = self.clone();
        move || log.clone()
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).unwrap()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn an_agent_whose_processes_die_more_often_than_its_window_allows_has_failed() {
    let never = BreakerPolicy { threshold: u32::MAX, cooldown: Duration::ZERO, max_cooldown: Duration::ZERO };
    let source = r#"
begin()
hear()
os.kill(os.getpid(), signal.SIGKILL)
"#;
    let board = builder().breaker(never).with(spec(source)).start().await.unwrap();
    for restarts in 1..=6 {
        let error = failure(&board, once(Task::new("x"))).await;
        assert!(error.ends_with("was ended by signal: 9 (SIGKILL) before it ended its turn"), "{error}");
        let node = node(&board).await;
        let state = if restarts <= 5 { ActorState::Running } else { ActorState::Failed };
        assert_eq!((node.state, node.restarts), (state, restarts));
    }
    let refused = board.submit(Task::new("x")).await.unwrap_err().to_string();
    assert!(refused.contains("it failed too often: the process \"python3 -c"), "{refused}");
    board.shutdown().await;
}

#[tokio::test]
async fn a_process_that_closes_its_output_has_died_although_it_lives() {
    let source = r#"
begin()
hear()
tell(type="notice", text=str(os.getpid()))
os.write(1, b'{"type":"command"')
os.close(1)
signal.pause()
"#;
    let board = board(spec(source)).await;
    let run = board.submit(once(Task::new("x"))).await.unwrap();
    let process = pid(&noticed(&run).await);
    let Outcome::Failed { error } = ended(&run).await.outcome else { panic!("it did not fail") };
    assert!(error.ends_with("closed its standard output before it ended its turn"), "{error}");
    reaped(process).await;
    board.shutdown().await;
}

#[tokio::test]
async fn a_process_that_dies_is_not_waited_for_because_others_hold_its_streams() {
    let source = r#"
begin()
hear()
escaped = subprocess.Popen(["sleep", "1000"], start_new_session=True)
tell(type="notice", text=str(escaped.pid))
os._exit(1)
"#;
    let board = board(spec(source)).await;
    let run = board.submit(once(Task::new("x"))).await.unwrap();
    let escaped = pid(&noticed(&run).await);
    let Outcome::Failed { error } = ended(&run).await.outcome else { panic!("it did not fail") };
    kill_process(escaped, Signal::KILL).unwrap();
    assert!(error.ends_with("exited with status 1 before it ended its turn"), "{error}");
    board.shutdown().await;
}

#[tokio::test]
async fn a_process_that_writes_between_turns_is_killed_and_replaced() {
    let source = r#"
line = connect()
begin()
turn = hear()
end(turn, output=os.getpid())
line.recv(1)
os.write(1, b"bored")
hear()
hear()
"#;
    let wire = Wire::new();
    let board = board(spec_at(&wire, source)).await;
    let first = output(&board, Task::new("x")).await;
    let mut held = wire.taken().await;
    held.write();
    held.dropped().await;
    reaped(pid(&first.to_string())).await;
    assert_ne!(output(&board, Task::new("x")).await, first);
    assert_eq!(node(&board).await.restarts, 0);
    board.shutdown().await;
}

#[tokio::test]
async fn a_process_that_has_not_brought_its_turn_to_an_end_gets_no_other() {
    let source = r#"
begin()
while True:
    turn = hear()
    kind = turn["input"]
    if kind == "open":
        tell(type="ask", id=1, question="?")
    if kind == "twice":
        line = json.dumps({"type": "command", "turn": turn["id"], "output": os.getpid()}) + "\n"
        os.write(1, (line + line).encode())
    else:
        end(turn, output=os.getpid())
"#;
    let board = board(spec(source)).await;
    for kind in ["open", "twice"] {
        let unfinished = output(&board, Task::new(kind)).await;
        assert_ne!(output(&board, Task::new("x")).await, unfinished, "{kind}");
        reaped(pid(&unfinished.to_string())).await;
    }
    board.shutdown().await;
}

#[tokio::test]
async fn a_hundred_thousand_notices_cost_what_a_thousand_do() {
    let source = r#"
begin()
turn = hear()
for n in range(100_000):
    sys.stdout.write('{"type":"notice","text":"%s"}\n' % ("x" * 100 if n else "y" * 1_000_000))
end(turn, output="done")
"#;
    let board = board(spec(source)).await;
    let run = board.submit(Task::new("x")).await.unwrap();
    assert_eq!(ended(&run).await.output, "done");
    let history = run.history().await.unwrap();
    let notices: Vec<&str> = history
        .iter()
        .filter_map(|event| if let RunEvent::Noticed { text, .. } = event { Some(&**text) } else { None })
        .collect();
    assert_eq!(notices.len(), 1_001);
    assert!(notices[0].ends_with("y… (1000000 characters)") && notices[0].len() < 5_000);
    assert_eq!(notices[1_000], "further notices of this attempt are not passed on: there were 1000");
    board.shutdown().await;
}

#[tokio::test]
async fn a_process_that_does_not_read_its_answers_is_killed_before_they_pile_up() {
    let source = r#"
begin()
turn = hear()
tell(type="context_set", id=0, key="module:a", value="x" * 60_000)
hear()
for n in range(1_000_000):
    tell(type="context_get", id=n, key="module:a")
end(turn, output="it was listened to")
"#;
    let board = board(spec(source)).await;
    let error = failure(&board, Task::new("x")).await;
    assert!(error.contains("at most 64 requests may be open at once, or have answers that were not read"), "{error}");
    board.shutdown().await;
}

#[tokio::test]
async fn a_turn_larger_than_a_pipe_is_sent_to_a_process_that_writes_before_it_reads() {
    let source = r#"
begin()
for n in range(2_000):
    tell(type="notice", text="x" * 100)
turn = hear()
end(turn, output=len(turn["input"]))
"#;
    let board = board(spec(source)).await;
    let run = board.submit(Task::new("x").input("é".repeat(1 << 20))).await.unwrap();
    assert_eq!(ended(&run).await.output, json!(1 << 20));
    board.shutdown().await;
}
