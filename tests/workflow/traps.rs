//! What goes wrong in workflows where two things happen at once, or one in the middle of another (SEMANTICS 7).

use std::sync::Arc;
use std::time::Duration;

use crate::common::{assert_nothing_left, builder, people};
use crate::runs::{self, run_on, workflow};
use callboard::AnswerError;
use callboard::messages::{Refusal, RunEvent, RunResult, SendTo};
use callboard::prelude::*;
use callboard::runtime::Builder;
use callboard::supervision::runs::{Fork, Replay, TurnStatus};
use callboard::workflow::{Node, Workflow, WorkflowBuilder};
use futures::StreamExt;
use parking_lot::Mutex;
use serde_json::{Value, json};

/// Agents that note what they were given, fail, or wait.
fn cast(builder: Builder) -> Builder {
    runs::cast(builder)
        .agent("mark", |turn: Turn| async move {
            let given = turn.input_json().clone();
            Ok(Command::output(given.clone()).with("seen", given))
        })
        .agent("fail", |_: Turn| async { Err::<Command, _>(TurnError::terminal("no")) })
        // Waits the given seconds, then goes to the given node with the given input.
        .agent("send", |turn: Turn| async move {
            let (seconds, to, what): (u64, String, Value) = turn.input()?;
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            Ok(Command::output("sent").goto_many([SendTo::new(&to, what)]))
        })
        // Writes how long it has waited, and ends the run if its input asks for that.
        .agent("wait", |turn: Turn| async move {
            let (seconds, ends): (u64, bool) = turn.input()?;
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            let command = Command::output(seconds).with("seen", seconds);
            Ok(if ends { command.end() } else { command })
        })
}

async fn run(workflow: WorkflowBuilder, input: Value) -> RunResult {
    run_on(cast(builder()), workflow, input).await
}

/// An agent that takes back, slowly, and notes when it has begun and when it was done; "bad" it cannot take back.
fn compensating(builder: Builder) -> (Builder, Arc<Mutex<Vec<String>>>) {
    let log = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&log);
    let agents = cast(builder).agent("undo", move |turn: Turn| {
        let log = Arc::clone(&log);
        async move {
            let what = turn.input_json().as_str().unwrap_or_default().to_owned();
            log.lock().push(format!("begins {what}"));
            tokio::time::sleep(Duration::from_secs(1)).await;
            log.lock().push(format!("ends {what}"));
            if what == "bad" { Err(TurnError::terminal("stuck")) } else { Ok(Command::new()) }
        }
    });
    (agents, noted)
}

#[tokio::test(start_paused = true)]
async fn what_ends_beside_a_failure_does_not_hurry_the_compensation() {
    let (agents, log) = compensating(builder());
    let plan = workflow()
        .node(Node::agent("a", "echo").input("a").compensated_by("undo"))
        .node(Node::agent("b", "echo").after("a").input("b").compensated_by("undo"))
        .node(Node::agent("broken", "echo").after("b").input("{{ b.output.nothing }}"))
        .node(Node::join("beside").after("b"))
        .node(Node::agent("also_broken", "echo").after("b").input("{{ b.output.nothing }}"));
    let result = run_on(agents, plan, json!("x")).await;
    assert!(matches!(&result.outcome, Outcome::Failed { error } if error.starts_with("node broken")), "{result:?}");
    assert_eq!(*log.lock(), ["begins b", "ends b", "begins a", "ends a"]);
}

#[tokio::test(start_paused = true)]
async fn a_compensation_that_fails_does_not_keep_the_rest_from_theirs() {
    let (agents, log) = compensating(builder());
    let plan = workflow()
        .node(Node::agent("a", "echo").input("a").compensated_by("undo"))
        .node(Node::agent("b", "echo").after("a").input("bad").compensated_by("undo"))
        .node(Node::agent("c", "fail").after("b"));
    let result = run_on(agents, plan, json!("x")).await;
    assert_eq!(result.outcome, Outcome::Failed { error: "node c: terminal error: no".into() });
    assert_eq!(*log.lock(), ["begins bad", "ends bad", "begins a", "ends a"]);
}

#[tokio::test(start_paused = true)]
async fn what_failed_in_several_levels_is_compensated_from_within() {
    let (agents, log) = compensating(builder());
    let inner = [Node::agent("b", "echo").input("b").compensated_by("undo"), Node::agent("c", "fail").after("b")];
    let plan = workflow()
        .node(Node::agent("a", "echo").input("a").compensated_by("undo"))
        .node(Node::nodes("group", inner).after("a").compensated_by("undo"));
    run_on(agents, plan, json!("x")).await;
    assert_eq!(*log.lock(), ["begins b", "ends b", "begins a", "ends a"]);
}

/// What was taken back, in this order.
fn compensated(log: &Mutex<Vec<String>>) -> Vec<String> {
    log.lock().iter().filter_map(|line| line.strip_prefix("begins ")).map(str::to_owned).collect()
}

fn undoable(name: &str, input: &str) -> Node {
    Node::agent(name, "echo").input(input).compensated_by("undo")
}

#[tokio::test(start_paused = true)]
async fn what_was_done_within_finished_nodes_is_compensated_with_the_rest() {
    let (agents, log) = compensating(builder());
    let inner = Workflow::builder("inner").node(undoable("d", "d")).build().unwrap();
    let plan = workflow()
        .with(&inner)
        .node(undoable("a", "a"))
        .node(Node::nodes("b", [undoable("one", "b1"), undoable("two", "b2").after("one")]).after("a"))
        .node(Node::nodes("c", [undoable("again", "c{{ iteration }}")]).times(2).after("b"))
        .node(Node::workflow("d", "inner").after("c"))
        .node(Node::nodes("e", [undoable("each", "e{{ index }}")]).for_each("[1, 2]").after("d"))
        .node(Node::nodes("f", [undoable("unseen", "unseen")]).after("e").input("f").compensated_by("undo"))
        .node(Node::agent("g", "fail").after("f"));
    let result = run_on(agents, plan, json!("x")).await;
    assert_eq!(result.outcome, Outcome::Failed { error: "node g: terminal error: no".into() });
    // What is taken back as a whole is not taken back piece by piece.
    assert_eq!(compensated(&log), ["unseen", "e1", "e0", "d", "c2", "c1", "b2", "b1", "a"]);
}

#[tokio::test(start_paused = true)]
async fn a_map_that_fails_compensates_what_its_items_have_done_before_its_failure_is_handled() {
    let (agents, log) = compensating(builder());
    let item = [
        undoable("pay", "{{ item }}"),
        Node::agent("hang", "never").after("pay").when("item == 'y'"),
        Node::agent("broken", "fail").after("pay").when("item == 'z'"),
    ];
    let plan = workflow()
        .node(undoable("a", "a"))
        .node(Node::nodes("each", item).for_each("['x', 'y', 'z']").after("a"))
        .node(Node::agent("repair", "undo").after_failure_of("each").input("{{ each.error }}"));
    let result = run_on(agents, plan, json!("x")).await;
    assert_eq!(result.outcome, Outcome::Finished, "{result:?}");
    assert_eq!(compensated(&log), ["z", "y", "x", "failed: node each[2]/broken: terminal error: no"]);
}

#[tokio::test(start_paused = true)]
async fn what_fails_for_its_bound_or_its_conditions_is_compensated() {
    let (agents, log) = compensating(builder());
    let plan = workflow().node(undoable("a", "n{{ iteration }}").until("false", 3));
    let result = run_on(agents, plan, json!("x")).await;
    assert_eq!(result.outcome, Outcome::Refused(Refusal::LoopLimit { node: "a".into(), max: 3 }));
    assert_eq!(compensated(&log), ["n3", "n2", "n1"]);

    let (agents, log) = compensating(builder());
    let plan = workflow()
        .node(Node::agent("a", "mark").input("a").compensated_by("undo"))
        .node(Node::agent("b", "echo").after_if("a", "a.output.nothing > 3"));
    let result = run_on(agents, plan, json!("x")).await;
    let error = "node a: the condition of what comes after it: ";
    assert!(
        matches!(&result.outcome, Outcome::Failed { error: reported } if reported.starts_with(error)),
        "{result:?}"
    );
    assert_eq!((compensated(&log), result.state), (vec!["a".to_owned()], json!({}).into()));
}

#[tokio::test(start_paused = true)]
async fn the_condition_of_what_comes_after_a_success_does_not_hide_the_failure() {
    let broken = || {
        workflow()
            .node(Node::agent("broken", "fail"))
            .node(Node::agent("next", "echo").after_if("broken", "broken.output.list[0] > 3"))
    };
    let result = run(broken(), json!("x")).await;
    assert_eq!(result.outcome, Outcome::Failed { error: "node broken: terminal error: no".into() });
    let plan = broken().node(Node::agent("repair", "echo").after_failure_of("broken").input("{{ broken.error }}"));
    assert_eq!(run(plan, json!("x")).await.output, "failed: terminal error: no");
}

#[tokio::test(start_paused = true)]
async fn what_only_a_loser_has_done_is_compensated_with_the_rest() {
    let (agents, log) = compensating(builder());
    let loser = [undoable("one", "loser"), Node::agent("hang", "never").after("one")];
    let plan = workflow()
        .node(Node::nodes("slow", loser))
        .node(Node::agent("fast", "wait").input(json!([5, false])))
        .node(Node::join("first").any().after("slow").after("fast"))
        .node(Node::agent("end", "fail").after("first"));
    let result = run_on(agents, plan, json!("x")).await;
    assert_eq!(result.outcome, Outcome::Failed { error: "node end: terminal error: no".into() });
    assert_eq!(compensated(&log), ["loser"]);
}

#[tokio::test(start_paused = true)]
async fn what_a_node_has_written_stays_though_one_fails_that_was_to_deal_with_its_failure() {
    let plan = workflow()
        .node(Node::agent("begin", "echo"))
        .node(Node::agent("fine", "mark").input("fine"))
        .node(Node::agent("broken", "fail").after("begin").after_failure_of("fine"))
        .node(Node::agent("repair", "mark").after_failure_of("broken").input("repair"));
    assert_eq!(run(plan, json!("x")).await.state, json!({ "seen": ["fine", "repair"] }));
}

#[tokio::test(start_paused = true)]
async fn what_comes_after_a_node_that_could_not_begin_sees_what_was_written_before_it() {
    let plan = workflow()
        .node(Node::agent("a", "mark").input("a"))
        .node(Node::agent("broken", "echo").after("a").input("{{ a.output.nothing }}"))
        .node(Node::agent("repair", "read").after_failure_of("broken"));
    let result = run(plan, json!("x")).await;
    assert_eq!((result.output, result.state), (json!({ "seen": ["a"] }).into(), json!({ "seen": ["a"] }).into()));
}

#[tokio::test(start_paused = true)]
async fn what_comes_after_a_join_out_of_reach_sees_what_the_join_came_after() {
    let plan = workflow()
        .node(Node::agent("a", "mark").input("a"))
        .node(Node::agent("b", "fail").after("a"))
        .node(Node::agent("c", "mark").after("a").input("c"))
        .node(Node::agent("both", "echo").after("b").after("c").at_least(2))
        .node(Node::agent("repair", "read").after_failure_of("both"));
    let result = run(plan, json!("x")).await;
    // `c` was of no use any more, unless it had finished by then.
    let seen = result.output.value()["seen"].as_array().unwrap().clone();
    assert_eq!((&seen[0], &result.state["seen"]), (&json!("a"), &Value::from(seen.clone())));
}

#[tokio::test(start_paused = true)]
async fn what_comes_after_failures_alone_sees_what_was_written_before_them() {
    let group = [
        Node::agent("a", "mark").input("a"),
        Node::agent("b", "fail").after("a"),
        Node::agent("between", "echo").after("b"),
        Node::agent("c", "mark").after("between").settled().input("c"),
        Node::agent("d", "mark").after("between").settled().input("d"),
        Node::agent("end", "read").after("c").after("d"),
    ];
    let plan = workflow()
        .node(Node::nodes("group", group))
        .node(Node::agent("beside", "mark").input("beside"))
        .node(Node::agent("last", "read").after("group").after("beside").input(json!("{{ end.output }}")));
    let result = run(plan, json!("x")).await;
    assert_eq!(result.output, json!({ "seen": ["a", "c", "d", "beside"] }));
}

#[tokio::test(start_paused = true)]
async fn what_ends_on_a_way_of_its_own_is_joined_in_plan_order_and_its_conflicts_are_found() {
    let plan = |first: &str| {
        workflow()
            .node(Node::agent("a", first).input(json!({ "one": 1, "seen": "a" })))
            .node(Node::agent("b", "write").input(json!({ "seen": "b" })))
            .node(Node::agent("end", "write").after("b").after_failure_of("a").input(json!({ "one": 2 })))
    };
    let result = run(plan("write"), json!("x")).await;
    assert!(
        matches!(&result.outcome, Outcome::Failed { error } if error.starts_with("concurrent writes to one")),
        "{result:?}"
    );
    let result = run(plan("mark"), json!("x")).await;
    assert_eq!(result.state["seen"], json!([{ "one": 1, "seen": "a" }, "b"]));
}

#[tokio::test(start_paused = true)]
async fn of_several_inputs_that_are_sent_to_a_node_the_first_in_plan_order_counts() {
    for (a, b) in [(1, 9), (9, 1)] {
        let plan = workflow()
            .node(Node::agent("a", "send").input(json!([a, "end", "from a"])).may_go_to("end"))
            .node(Node::agent("b", "send").input(json!([b, "end", "from b"])).may_go_to("end"))
            .node(Node::agent("end", "echo"));
        assert_eq!(run(plan, json!(0)).await.output, "from a", "{a} {b}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_end_within_a_map_within_a_group_keeps_what_was_finished_and_cancels_the_rest() {
    let group = [Node::agent("each", "wait").input("{{ item }}").for_each("input"), Node::agent("beside", "never")];
    let plan = workflow().node(Node::nodes("group", group)).node(Node::agent("next", "never").after("group"));
    let result = run(plan, json!([[9, false], [2, false], [3, true], [1, false]])).await;
    assert_eq!((result.outcome, result.output), (Outcome::Finished, json!(3).into()));
    assert_eq!(result.state, json!({ "seen": [2, 3, 1] }), "in the order of the items");
}

#[tokio::test(start_paused = true)]
async fn an_end_within_a_loop_within_a_workflow_ends_only_that() {
    let inner = Workflow::builder("inner")
        .node(Node::agent("again", "wait").input(json!([1, true])).times(5))
        .node(Node::agent("never", "never").after("again"))
        .build()
        .unwrap();
    let plan =
        workflow().with(&inner).node(Node::workflow("sub", "inner")).node(Node::agent("last", "read").after("sub"));
    assert_eq!(run(plan, json!(0)).await.output, json!({ "seen": [1] }));
}

#[tokio::test(start_paused = true)]
async fn at_least_makes_do_with_skipped_nodes_and_fails_when_too_few_are_left() {
    let plan = |needed, first: &str, second: &str| {
        workflow()
            .node(Node::agent("a", "mark").input("a").when(first))
            .node(Node::agent("b", "mark").input("b").when(second))
            .node(Node::agent("c", "mark").input("c"))
            .node(Node::agent("join", "read").after("a").after("b").after("c").at_least(needed))
    };
    let result = run(plan(2, "false", "true"), json!(0)).await;
    assert_eq!(result.output, json!({ "seen": ["b", "c"] }));
    let result = run(plan(2, "false", "false"), json!(0)).await;
    assert!(matches!(&result.outcome, Outcome::Failed { error } if error.contains("too few")), "{result:?}");
    let nobody = workflow()
        .node(Node::agent("a", "mark").when("false"))
        .node(Node::agent("b", "mark").when("false"))
        .node(Node::agent("join", "read").after("a").after("b").any())
        .node(Node::agent("after", "read").after("join"));
    assert_eq!(run(nobody, json!(0)).await.outcome, Outcome::Finished);
}

#[tokio::test(start_paused = true)]
async fn a_skipped_node_reads_as_null_and_a_skipped_handler_deals_with_the_failure_as_well() {
    let plan = workflow()
        .node(Node::agent("a", "mark").when("false"))
        .node(Node::agent("b", "echo").after("a"))
        .node(Node::agent("c", "fail"))
        .node(Node::agent("repair", "echo").after_failure_of("c").when("false"))
        .node(Node::agent("end", "echo").after("b").after("repair").after("c").settled().input(json!([
            "{{ a.output }}",
            "{{ a.outcome }}",
            "{{ b }}",
            "{{ repair.outcome }}"
        ])));
    let result = run(plan, json!(0)).await;
    assert_eq!((result.outcome, result.output), (Outcome::Finished, Json::null()));
}

#[tokio::test(start_paused = true)]
async fn what_was_written_before_a_failure_stays_if_the_handler_is_skipped() {
    let plan = workflow()
        .node(Node::agent("a", "mark").input("a"))
        .node(Node::agent("b", "fail").after("a"))
        .node(Node::agent("repair", "echo").after_failure_of("b").when("false"));
    let result = run(plan, json!(0)).await;
    assert_eq!((result.outcome, result.state), (Outcome::Finished, json!({ "seen": ["a"] }).into()));
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_node_that_is_not_needed_any_more_waits_for_nobody() {
    let plan = workflow()
        .node(Node::agent("asks", "echo").interrupted())
        .node(Node::agent("slow", "wait").input(json!([5, false])))
        .node(Node::agent("first", "echo").after("asks").after("slow").any());
    let board = cast(builder()).start().await.unwrap();
    let run = board.submit(plan.build().unwrap().task("x")).await.unwrap();
    let asked = people::node(&run).await;
    let people = board.people();
    let closed = people.closed(&asked);
    assert!(tokio::time::timeout(Duration::from_secs(4), closed).await.is_err(), "it waits until then");
    people.closed(&asked).await;
    assert_eq!(run.result().await.unwrap().output, 5);
    assert_eq!(people::nodes(&run).await, []);
    let late = people.answer(&asked, Resume::default(), "ann").await;
    assert_eq!(late, Err(AnswerError::NotOpen((&asked).into())));
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_conflict_at_the_end_of_a_block_or_in_a_group_continues_with_what_is_put_in_its_place() {
    let writers = || {
        [
            Node::agent("a", "write").input(json!({ "one": 1 })),
            Node::agent("b", "write").input(json!({ "one": 2, "seen": "b" })),
        ]
    };
    let in_group = workflow()
        .node(Node::agent("first", "mark").input("first").compensated_by("fail"))
        .node(Node::nodes("group", writers()).after("first"))
        .node(Node::agent("last", "read").after("group"));
    let at_end = writers().into_iter().fold(workflow(), WorkflowBuilder::node);
    let in_map = workflow()
        .node(Node::agent("each", "write").input(json!({ "one": "{{ index }}" })).for_each("input"))
        .node(Node::agent("last", "read").after("each"));
    let plans = [
        (in_group, "node group: ", json!(["first", "b"])),
        (at_end, "", json!(["b"])),
        (in_map, "node each: ", Value::Null),
    ];
    for (plan, node, seen) in plans {
        let board = cast(builder()).start().await.unwrap();
        let run = board.submit(plan.build().unwrap().task(json!([1, 2]))).await.unwrap();
        let result = run.result().await.unwrap();
        let Outcome::Failed { error } = &result.outcome else { panic!("{result:?}") };
        assert!(error.starts_with(&format!("{node}concurrent writes to one")), "{error}");
        run.resume_with([("one", json!("mine"))], "ann").await.unwrap();
        let result = run.result().await.unwrap();
        assert_eq!(result.outcome, Outcome::Finished);
        let state = result.state.clone();
        assert_eq!((&state["one"], state.value().get("seen").unwrap_or(&Value::Null)), (&json!("mine"), &seen));
        let replay = Replay::of(run.history().await.unwrap(), &Default::default()).unwrap();
        assert_eq!(replay.result(), Some(&result));
        let reported = run.turn_events(1).await.unwrap().map(Result::unwrap).collect::<Vec<_>>().await;
        assert!(reported.iter().any(|event| matches!(event.status, TurnStatus::Finished { .. })), "{reported:?}");
        assert_nothing_left(&board, 5).await;
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_fork_at_any_turn_of_a_plan_continues_from_there_and_comes_to_the_same() {
    let looping = [Node::agent("b", "mark").input("b{{ iteration }}"), Node::agent("c", "mark").after("b")];
    let plan = workflow()
        .node(Node::agent("a", "mark").input("a"))
        .node(Node::nodes("again", looping).after("a").times(2))
        .node(Node::agent("each", "mark").after("a").input("{{ item }}").for_each("input"))
        .node(Node::agent("quick", "echo").after("a"))
        .node(Node::agent("race", "echo").after("quick").after("a").any())
        .node(Node::agent("end", "read").after("again").after("each").after("race"));
    let board = cast(builder()).start().await.unwrap();
    let run = board.submit(plan.build().unwrap().task(json!(["x", "y"]))).await.unwrap();
    let result = run.result().await.unwrap();
    assert_eq!(result.outcome, Outcome::Finished);
    let history = run.history().await.unwrap();
    let turns = Replay::of(history.clone(), &Default::default()).unwrap().turns().count() as u32;
    for turn in 1..=turns {
        let fork = board.fork(run.id(), turn, Fork::new()).await.unwrap();
        let again = fork.result().await.unwrap();
        assert_eq!((&again.outcome, &again.state, &again.output), (&result.outcome, &result.state, &result.output));
        let ended =
            |events: &[RunEvent]| events.iter().filter(|event| matches!(event, RunEvent::TurnEnded { .. })).count();
        assert_eq!(ended(&fork.history().await.unwrap()), ended(&history), "turn {turn}");
    }
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_of_a_plan_is_retried_without_what_came_of_it() {
    let healthy = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (agents, log) = compensating(builder());
    let is_healthy = Arc::clone(&healthy);
    let agents =
        agents.agent("moody", move |turn: Turn| {
            let is_healthy = is_healthy.load(std::sync::atomic::Ordering::SeqCst);
            async move {
                if is_healthy { Ok(Command::output(turn.state().to_json())) } else { Err(TurnError::terminal("no")) }
            }
        });
    let plan = workflow()
        .node(Node::agent("a", "mark").input("a").compensated_by("undo"))
        .node(Node::agent("b", "moody").after("a"))
        .node(Node::agent("repair", "fail").after_failure_of("b"))
        .node(Node::agent("end", "echo").after("b"));
    let board = agents.start().await.unwrap();
    let run = board.submit(plan.build().unwrap().task("x")).await.unwrap();
    assert!(!run.result().await.unwrap().outcome.is_finished());
    assert_eq!(log.lock().len(), 2);
    let letters = board.dead_letters().list().await.unwrap();
    let letter = letters.iter().find(|letter| letter.turn.number == 2).unwrap_or_else(|| panic!("{letters:?}"));
    healthy.store(true, std::sync::atomic::Ordering::SeqCst);
    let again = board.dead_letters().retry(letter.turn).await.unwrap().result().await.unwrap();
    assert_eq!((again.outcome, again.output), (Outcome::Finished, json!({ "seen": ["a"] }).into()));
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
}

#[test]
fn workflows_that_name_large_workflows_again_and_again_are_refused_before_they_are_put_together() {
    let large = (0..9_000)
        .fold(Workflow::builder("large"), |plan, number| plan.node(Node::agent(&format!("n{number}"), "echo")));
    let large = large.build().unwrap();
    let many = (0..500).fold(Workflow::builder("many").with(&large), |plan, number| {
        plan.node(Node::workflow(&format!("w{number}"), "large"))
    });
    let defects = many.build().unwrap_err().to_string();
    assert!(defects.contains("more than 10000 nodes"), "{defects}");
}

#[tokio::test(start_paused = true)]
async fn templates_that_would_continue_for_ever_or_grow_without_end_fail_soon() {
    let looped = "{% for a in range(99999) %}".repeat(4) + "x" + &"{% endfor %}".repeat(4);
    let doubled = "{% set x = 'xxxxxxxxxxxxxxxx' %}".to_owned() + &"{% set x = x ~ x %}".repeat(40) + "{{ x }}";
    let kept =
        "{% set n = namespace(x='xxxxxxxxxxxxxxxx') %}{% for a in range(40) %}{% set n.x = n.x ~ n.x %}{% endfor %}.";
    let called = "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}";
    for template in [
        &looped,
        &doubled,
        kept,
        called,
        "{% for a in range(2000000) %}{{ loop.index }}{% endfor %}",
        "{{ 'x' * 4000000000 }}.",
        "{{ ([0] * 4000000000) | length }}.",
        "{{ (range(90000) | list) * 90000 }}",
        "{{ 10 ** 10 ** 10 }}.",
        "{{ ('x' | indent(4000000000, true)) | length }}",
        "{{ ('xxxxxxxxxx' * 10000) | replace('x', 'xxxxxxxxxx' * 10000) | length }}.",
        "{{ '%4000000000d' | format(1) | length }}.",
        "{{ range(0, 4000000000) | list | length }}",
    ] {
        println!("{}", &template[..template.len().min(80)]);
        let plan = workflow().node(Node::agent("a", "echo").input(template));
        if let Ok(plan) = plan.build() {
            let board = cast(builder()).start().await.unwrap();
            let result = board.submit(plan.task("x")).await.unwrap().result().await.unwrap();
            assert!(!result.outcome.is_finished(), "{template}: {} bytes", result.output.to_string().len());
            board.shutdown().await;
        }
    }
}
