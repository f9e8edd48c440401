//! The workflow's graph determines which turns start, what they see, and the result of the run (SEMANTICS 7).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{Counter, Processes, assert_nothing_left, builder, finish, found, people, quiet, until};
use crate::runs::{self, error, run_on, workflow};
use callboard::AnswerError;
use callboard::messages::{Reducer, Refusal, RunEvent, RunResult, SendTo};
use callboard::prelude::*;
use callboard::runtime::{Builder, WorkflowStoreError};
use callboard::supervision::runs::{TurnEvent, TurnStatus};
use callboard::supervision::tree::TreeEventKind;
use callboard::testing::TreeRecorder;
use callboard::workflow::{Node, Workflow, WorkflowBuilder};
use futures::StreamExt;
use serde_json::{Value, json};

/// Agents that put a mark behind what they were given, fail with it, or go to the node that it names.
fn cast(builder: Builder) -> Builder {
    runs::cast(builder)
        .agent("mark", |turn: Turn| async move {
            let given = turn.input_json().as_str().unwrap_or_default().to_owned();
            Ok(Command::output(format!("{given}.")).with("seen", given))
        })
        .agent(
            "fail",
            |turn: Turn| async move { Err::<Command, _>(TurnError::terminal(turn.input_json().to_string())) },
        )
        .agent("go", |turn: Turn| async move {
            let to = turn.input_json().as_str().unwrap_or_default().to_owned();
            Ok(match &*to {
                "" => Command::output("stayed"),
                "end" => Command::output("ended").end(),
                to => Command::output("went").goto(to),
            })
        })
}

async fn run(workflow: WorkflowBuilder, input: Value) -> RunResult {
    run_on(cast(builder()), workflow, input).await
}

#[tokio::test(start_paused = true)]
async fn a_turn_knows_the_node_that_it_works_on() {
    let board =
        builder().agent("at", |turn: Turn| async move { Ok(Command::output(turn.node())) }).start().await.unwrap();
    let text = r#"first(agent="at") -> each: map(over="items") { inner(agent="at") } -> again: loop(until="true", max=2) { a(agent="at") -> b(agent="at") }"#;
    let workflow = Workflow::from_line("nodes", text).unwrap();
    let result = board.submit(workflow.task(json!({ "items": [1] }))).await.unwrap().result().await.unwrap();
    assert_eq!(result.output, "again#1/b", "{result:?}");
    let alone = board.submit(Task::new("x").to("at")).await.unwrap().result().await.unwrap();
    assert_eq!(alone.output, Value::Null, "outside of a workflow");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_omitted_is_the_predecessors_output_and_for_the_first_the_runs_input() {
    let chain = workflow()
        .node(Node::agent("a", "mark"))
        .node(Node::agent("b", "mark").after("a"))
        .node(Node::agent("c", "mark").after("b"));
    let result = run(chain, json!("x")).await;
    assert_eq!((&result.outcome, &result.output), (&Outcome::Finished, &json!("x...").into()));
    assert_eq!(result.state, json!({ "seen": ["x", "x.", "x.."] }));
    assert_eq!((result.metrics.turns, result.metrics.handoffs, result.metrics.agents), (3, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_join_gets_the_outputs_by_name_and_sees_the_writes_in_plan_order() {
    let diamond = workflow()
        .node(Node::agent("first", "mark"))
        .node(Node::agent("left", "mark").after("first").input("l{{ first.output }}"))
        .node(Node::agent("right", "mark").after("first").input("r{{ first.output }}"))
        .node(Node::agent("both", "echo").after("right").after("left"))
        .node(Node::agent("after", "read").after("both"));
    let result =
        run(diamond.output(json!({ "both": "{{ both.output }}", "saw": "{{ after.output }}" })), json!("x")).await;
    let expected = json!({ "both": { "left": "lx..", "right": "rx.." }, "saw": { "seen": ["x", "lx.", "rx."] } });
    assert_eq!(result.output, expected);
}

#[tokio::test(start_paused = true)]
async fn the_input_of_a_join_has_one_text_whichever_branch_ends_first() {
    for [zeta, alpha, mid] in [[1, 2, 3], [1, 3, 2], [2, 1, 3], [2, 3, 1], [3, 1, 2], [3, 2, 1]] {
        let branch = |name: &str, secs: u64| Node::agent(name, "late").input(secs);
        let join = Node::agent("join", "text").after("mid").after("zeta").after("alpha");
        let plan =
            workflow().node(branch("zeta", zeta)).node(branch("alpha", alpha)).node(branch("mid", mid)).node(join);
        let agents = builder()
            .agent("late", |turn: Turn| async move {
                tokio::time::sleep(Duration::from_secs(turn.input()?)).await;
                Ok(Command::output("done"))
            })
            .agent("text", |turn: Turn| async move { Ok(Command::output(turn.input_json().to_string())) });
        let result = run_on(agents, plan, "go").await;
        assert_eq!(result.output, r#"{"zeta":"done","alpha":"done","mid":"done"}"#, "{zeta} {alpha} {mid}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_sibling_delays_only_what_comes_after_it() {
    let begun = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&begun);
    let slow = cast(builder())
        .agent("slow", |_: Turn| async {
            tokio::time::sleep(Duration::from_secs(60)).await;
            Ok(Command::new())
        })
        .agent("count", move |_: Turn| {
            let begun = Arc::clone(&counter);
            async move { Ok(Command::output(begun.fetch_add(1, Ordering::SeqCst))) }
        });
    let plan = workflow()
        .node(Node::agent("slow", "slow"))
        .node(Node::agent("quick", "echo"))
        .node(Node::agent("next", "count").after("quick"))
        .node(Node::agent("last", "count").after("slow").after("next"));
    let board = slow.start().await.unwrap();
    let run = board.submit(plan.build().unwrap().task("x")).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(begun.load(Ordering::SeqCst), 1);
    assert_eq!(run.result().await.unwrap().output, 1);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn any_takes_the_first_success_cancels_the_others_and_drops_what_they_wrote() {
    let race = workflow()
        .node(Node::agent("broken", "fail"))
        .node(Node::agent("stuck", "mark"))
        .node(Node::agent("stuck_on", "never").after("stuck"))
        .node(Node::agent("quick", "mark").input("q"))
        .node(Node::agent("winner", "echo").after("broken").after("stuck_on").after("quick").any())
        .node(Node::agent("saw", "read").after("winner"));
    let result = run(race, json!("x")).await;
    assert_eq!((result.outcome, result.output), (Outcome::Finished, json!({ "seen": ["q"] }).into()));
    assert_eq!(result.state, json!({ "seen": ["q"] }));
}

#[tokio::test(start_paused = true)]
async fn at_least_fails_as_soon_as_it_is_out_of_reach() {
    let plan = |needed| {
        workflow()
            .node(Node::agent("a", "fail"))
            .node(Node::agent("b", "mark").input("b"))
            .node(Node::agent("c", "mark").input("c"))
            .node(Node::agent("late", "never").after("c"))
            .node(Node::agent("join", "echo").after("a").after("b").after("c").after("late").at_least(needed))
    };
    let result = run(plan(2), json!("x")).await;
    assert_eq!(result.output, json!({ "b": "b.", "c": "c." }));
    let result = run(plan(4), json!("x")).await;
    assert_eq!(error(&result), "node join: too few of the nodes before it can finish");
}

#[tokio::test(start_paused = true)]
async fn a_failing_sibling_cancels_the_running_ones_and_the_run_ends_with_its_error() {
    let plan = workflow()
        .node(Node::agent("done", "mark"))
        .node(Node::agent("stuck", "never").after("done"))
        .node(Node::agent("broken", "fail").after("done"))
        .node(Node::agent("join", "echo").after("stuck").after("broken"));
    let result = run(plan, json!("x")).await;
    assert_eq!(error(&result), "node broken: terminal error: \"x.\"");
    assert_eq!(result.state, json!({ "seen": ["x"] }), "finished siblings keep their results");
}

#[tokio::test(start_paused = true)]
async fn settled_waits_for_all_and_continues_without_those_that_failed() {
    let plan = workflow().node(Node::agent("broken", "fail")).node(Node::agent("fine", "mark")).node(
        Node::agent("join", "echo").after("broken").after("fine").settled().input(json!([
            "{{ broken.outcome }}",
            "{{ broken.error }}",
            "{{ fine.output }}"
        ])),
    );
    let result = run(plan, json!("x")).await;
    assert_eq!(result.output, json!(["failed", "failed: terminal error: \"x\"", "x."]));
}

#[tokio::test(start_paused = true)]
async fn an_error_edge_deals_with_a_failure_and_is_skipped_without_one() {
    let plan = || {
        workflow()
            .node(Node::agent("first", "mark"))
            .node(Node::workflow("risky", "inner").after("first").input("{{ input }}"))
            .node(Node::agent("repair", "echo").after_failure_of("risky").input("repaired: {{ risky.error }}"))
            .node(Node::agent("usual", "echo").after("risky"))
            .node(Node::agent("join", "echo").after("repair").after("usual"))
    };
    let failing = Workflow::builder("inner").node(Node::agent("x", "fail")).build().unwrap();
    let result = run(plan().with(&failing), json!("in")).await;
    assert_eq!(result.output, "repaired: failed: node risky/x: terminal error: \"in\"");
    assert_eq!(result.state, json!({ "seen": ["in"] }));
    let fine = Workflow::builder("inner").node(Node::agent("x", "echo")).build().unwrap();
    assert_eq!(run(plan().with(&fine), json!("in")).await.output, "in");
}

#[tokio::test(start_paused = true)]
async fn conditions_choose_a_way_and_joins_resolve_without_the_other() {
    let plan = || {
        workflow()
            .channel("score", Reducer::Sum)
            .node(Node::agent("rate", "write").input(json!({ "score": "{{ input.score }}" })))
            .node(Node::agent("good", "mark").after_if("rate", "state.score > 3").input("good"))
            .node(Node::agent("bad", "mark").after_if("rate", "not state.score > 3").input("bad"))
            .node(Node::agent("more", "mark").after("bad").input("more"))
            .node(Node::agent("join", "echo").after("good").after("more"))
            .node(Node::agent("extra", "mark").after("join").when("join.output == 'good.'"))
    };
    let result = run(plan(), json!({ "score": 5 })).await;
    assert_eq!(
        (result.output, &result.state),
        (json!("good..").into(), &json!({ "score": 5, "seen": ["good", "good."] }).into())
    );
    let result = run(plan(), json!({ "score": 1 })).await;
    assert_eq!(
        (result.output, &result.state),
        (json!("more.").into(), &json!({ "score": 1, "seen": ["bad", "more"] }).into())
    );
}

#[tokio::test(start_paused = true)]
async fn predicates_are_found_by_name_and_a_missing_one_is_reported_at_submission() {
    let plan = || {
        workflow().node(Node::agent("a", "echo")).node(Node::agent("b", "mark").after("a").when_predicate("is_long"))
    };
    let known = cast(builder()).predicate("is_long", |_, subject| subject.as_str().is_some_and(|text| text.len() > 3));
    let board = known.start().await.unwrap();
    for (input, output) in [("long text", "long text."), ("abc", "abc")] {
        assert_eq!(finish(&board, plan().build().unwrap().task(input)).await.output, output);
    }
    board.shutdown().await;
    let board = cast(builder()).predicate("is_lon", |_, _| true).start().await.unwrap();
    let refused = board.submit(plan().build().unwrap().task("x")).await.unwrap_err().to_string();
    assert_eq!(
        refused,
        "workflow \"test\": node b asks the predicate \"is_long\", which is not registered; did you mean \"is_lon\"?\n  advice: add it with `Builder::predicate`; the command line has none"
    );
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_custom_reducer_that_is_not_registered_is_reported_at_submission() {
    let plan = workflow().channel("best", Reducer::Custom("longest".into())).node(Node::agent("a", "echo"));
    let plan = plan.build().unwrap();
    let longest = |held: &Json, _: &Json| Ok(held.clone());
    let board = cast(builder()).reducer("longst", longest).start().await.unwrap();
    let refused = board.submit(plan.task("x")).await.unwrap_err().to_string();
    let reported = "channel \"best\" has the reducer \"longest\", which is not registered; did you mean \"longst\"?";
    assert!(refused.contains(reported), "{refused}");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_workflow_is_not_stored_under_a_name_that_deceives() {
    let board = cast(builder()).start().await.unwrap();
    for name in ["", "../../x", "\u{1b}[31mred", "\u{202e}abc", &"x".repeat(129)] {
        let plan = Workflow::builder(name).node(Node::agent("a", "echo")).build().unwrap();
        let refused = board.workflows().save(&plan).await;
        assert!(matches!(refused, Err(WorkflowStoreError::Name(_))), "{name:?}: {refused:?}");
    }
    board.shutdown().await;
}

#[test]
fn a_turn_that_may_take_no_time_is_a_defect() {
    let defects = workflow().node(Node::agent("a", "echo").timeout(Duration::ZERO)).build().unwrap_err();
    assert!(defects.to_string().contains("every turn takes longer than no time at all"), "{defects}");
    let defects = Workflow::from_line("", "a(timeout=0)").unwrap_err().to_string();
    assert!(defects.contains("every turn takes longer than no time at all"), "{defects}");
}

#[tokio::test(start_paused = true)]
async fn a_command_goes_to_a_declared_node_in_place_of_the_edges() {
    let plan = || {
        workflow()
            .node(Node::agent("decide", "go").may_go_to("special"))
            .node(Node::agent("usual", "mark").after("decide").input("usual"))
            .node(Node::agent("special", "mark"))
            .node(Node::agent("join", "echo").after("usual").after("special"))
    };
    assert_eq!(run(plan(), json!("")).await.output, "usual.");
    assert_eq!(run(plan(), json!("special")).await.output, "went.");
    let result = run(plan(), json!("specal")).await;
    let Outcome::Refused(refusal) = &result.outcome else { panic!("{result:?}") };
    assert_eq!(
        refusal.to_string(),
        "node \"decide\" may not go to \"specal\"; did you mean \"special\"?; declare it among the `goto` of the node"
    );
    let result = run(plan(), json!("end")).await;
    assert_eq!((result.outcome, result.output), (Outcome::Finished, json!("ended").into()));
}

#[tokio::test(start_paused = true)]
async fn sends_go_to_several_nodes_each_with_its_input() {
    let agents = cast(builder()).agent("split", |_: Turn| async {
        Ok(Command::output("split").goto_many([SendTo::new("b", "for b"), SendTo::new("c", "for c")]))
    });
    let plan = workflow()
        .node(Node::agent("a", "split").may_go_to("b").may_go_to("c").may_go_to("d"))
        .node(Node::agent("b", "mark"))
        .node(Node::agent("c", "mark"))
        .node(Node::agent("d", "mark"))
        .node(Node::agent("join", "echo").after("b").after("c").after("d"));
    assert_eq!(run_on(agents, plan, json!(0)).await.output, json!({ "b": "for b.", "c": "for c." }));
}

#[tokio::test(start_paused = true)]
async fn a_loop_repeats_until_its_condition_holds_and_is_refused_past_its_bound() {
    let plan = |max| {
        workflow()
            .channel("count", Reducer::Sum)
            .node(Node::agent("start", "mark"))
            .node(
                Node::agent("work", "write")
                    .after("start")
                    .input(json!({ "count": 1, "seen": "{{ iteration }} after {{ previous }}" }))
                    .until("state.count >= 3", max),
            )
            .node(Node::agent("end", "read").after("work"))
    };
    let result = run(plan(3), json!("x")).await;
    let seen = ["x", "1 after null", r#"2 after {"count":1,"seen":"1 after null"}"#];
    assert_eq!(result.output.value()["seen"].as_array().unwrap()[..3], seen.map(Value::from));
    assert_eq!(result.output.value()["count"], 3);
    let result = run(plan(2), json!("x")).await;
    assert_eq!(result.outcome, Outcome::Refused(Refusal::LoopLimit { node: "work".into(), max: 2 }));
    let stopping = workflow().node(Node::agent("work", "mark").until("false", 4).or_stop());
    assert_eq!(run(stopping, json!("")).await.output, "....");
    let times = workflow().node(Node::agent("work", "mark").times(3));
    assert_eq!(run(times, json!("")).await.output, "...");
}

#[tokio::test(start_paused = true)]
async fn a_command_that_goes_back_repeats_the_nodes_between_within_its_bound() {
    let reviews = Arc::new(AtomicUsize::new(0));
    let plan = |max| {
        workflow()
            .node(Node::agent("plan", "mark"))
            .node(Node::agent("implement", "mark").after("plan"))
            .node(Node::agent("review", "review").after("implement").may_go_back_to("implement", max))
            .node(Node::agent("publish", "echo").after("review").input("{{ implement.output }}"))
    };
    let agents = |reviews: Arc<AtomicUsize>| {
        cast(builder()).agent("review", move |turn: Turn| {
            let count = reviews.fetch_add(1, Ordering::SeqCst);
            async move {
                let command = Command::output(format!("{}?", turn.input_json().as_str().unwrap_or_default()));
                Ok(if count < 2 { command.goto("implement") } else { command })
            }
        })
    };
    let result = run_on(agents(Arc::clone(&reviews)), plan(3), json!("x")).await;
    assert_eq!((&result.outcome, result.output), (&Outcome::Finished, json!("x..?.?.").into()));
    assert_eq!(result.state, json!({ "seen": ["x", "x.", "x..?", "x..?.?"] }));
    let result = run_on(agents(Arc::default()), plan(2), json!("x")).await;
    assert_eq!(result.outcome, Outcome::Refused(Refusal::LoopLimit { node: "implement".into(), max: 2 }));
}

#[tokio::test(start_paused = true)]
async fn a_map_works_on_every_item_and_gives_the_outputs_in_order() {
    let plan = |max| {
        workflow()
            .node(Node::agent("list", "echo"))
            .node(
                Node::agent("each", "mark")
                    .after("list")
                    .input("{{ index }}{{ item }}")
                    .for_each_up_to("list.output", max),
            )
            .node(Node::agent("end", "echo").after("each"))
    };
    let result = run(plan(9), json!(["a", "b", "c"])).await;
    assert_eq!(result.output, json!(["0a.", "1b.", "2c."]));
    assert_eq!(result.state, json!({ "seen": ["0a", "1b", "2c"] }));
    assert_eq!(run(plan(9), json!([])).await.output, json!([]));
    let result = run(plan(2), json!(["a", "b", "c"])).await;
    assert_eq!(result.outcome, Outcome::Refused(Refusal::MapLimit { max: 2, items: 3 }));
    let result = run(plan(2), json!("abc")).await;
    assert_eq!(error(&result), "node each: a map needs a list, and there is \"abc\"");
}

#[tokio::test(start_paused = true)]
async fn an_item_of_a_map_that_fails_cancels_the_others() {
    let agents = cast(builder()).agent("picky", |turn: Turn| async move {
        if turn.input_json().as_str() == Some("bad") {
            return Err(TurnError::terminal("no"));
        }
        std::future::pending::<Result<Command, TurnError>>().await
    });
    let plan = workflow().node(Node::agent("each", "picky").for_each("input"));
    assert_eq!(error(&run_on(agents, plan, json!(["good", "bad", "good"])).await), "node each[1]: terminal error: no");
}

#[tokio::test(start_paused = true)]
async fn a_workflow_within_a_workflow_sees_its_own_input_and_its_end_ends_only_it() {
    let inner = Workflow::builder("inner")
        .channel("ignored", Reducer::LastValue)
        .node(Node::agent("head", "mark").input("{{ topic }}"))
        .node(Node::agent("stop", "go").after("head").input("end"))
        .node(Node::agent("beside", "never").after("head"))
        .build()
        .unwrap();
    assert_eq!(inner.inputs().collect::<Vec<_>>(), ["topic"]);
    let outer = workflow()
        .with(&inner)
        .node(Node::agent("first", "mark"))
        .node(Node::workflow("sub", "inner").after("first").input(json!({ "topic": "T{{ first.output }}" })))
        .node(Node::agent("last", "mark").after("sub"));
    let result = run(outer, json!("x")).await;
    assert_eq!((&result.outcome, result.output), (&Outcome::Finished, json!("ended.").into()));
    assert_eq!(result.state, json!({ "seen": ["x", "Tx.", "ended"] }));
}

#[tokio::test(start_paused = true)]
async fn groups_nest_and_show_what_is_in_them_once_they_have_ended() {
    let plan = workflow()
        .node(Node::agent("first", "mark"))
        .node(
            Node::nodes(
                "group",
                [
                    Node::agent("one", "mark").input("1{{ first.output }}"),
                    Node::nodes("deep", [Node::agent("two", "mark").input("2{{ one.output }}")]).after("one"),
                ],
            )
            .after("first"),
        )
        .node(Node::agent("last", "echo").after("group").input("{{ one.output }} {{ two.output }}"));
    assert_eq!(run(plan, json!("x")).await.output, "1x.. 21x...");
}

#[tokio::test(start_paused = true)]
async fn compensation_undoes_what_was_finished_the_last_first() {
    let undone = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let log = Arc::clone(&undone);
    let agents = cast(builder()).agent("undo", move |turn: Turn| {
        log.lock().push(turn.input_json().to_string());
        async { Ok(Command::update("seen", "undone")) }
    });
    let plan = workflow()
        .node(Node::agent("a", "mark").compensated_by("undo"))
        .node(Node::agent("b", "mark").after("a").compensated_by("undo"))
        .node(Node::agent("c", "mark").after("b"))
        .node(Node::agent("d", "fail").after("c").compensated_by("undo"));
    let result = run_on(agents, plan, json!("x")).await;
    assert_eq!(error(&result), "node d: terminal error: \"x...\"");
    assert_eq!(*undone.lock(), ["\"x..\"", "\"x.\""]);
}

#[tokio::test(start_paused = true)]
async fn attempts_and_timeouts_are_the_nodes_own() {
    let tries = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&tries);
    let agents = cast(builder()).agent("flaky", move |_: Turn| {
        count.fetch_add(1, Ordering::SeqCst);
        async { std::future::pending::<Result<Command, TurnError>>().await }
    });
    let plan = workflow().node(Node::agent("a", "flaky").attempts(2).timeout(Duration::from_secs(7)));
    let result = run_on(agents, plan, json!("x")).await;
    assert!(error(&result).starts_with("node a: timeout"), "{result:?}");
    assert_eq!(tries.load(Ordering::SeqCst), 2);
    let taken = result.metrics.elapsed;
    assert!(taken >= Duration::from_secs(14) && taken < Duration::from_secs(30), "{taken:?}");
}

#[tokio::test(start_paused = true)]
async fn outputs_are_saved_to_channels_and_concurrent_writes_meet_at_the_join() {
    let plan = workflow()
        .node(Node::agent("a", "echo").saved_to("one"))
        .node(Node::agent("b", "write").input(json!({ "one": 2 })))
        .node(Node::agent("c", "write").input(json!({ "seen": 3 })))
        .node(Node::agent("join", "read").after("a").after("b").after("c"));
    let board = cast(builder()).start().await.unwrap();
    let run = board.submit(plan.build().unwrap().task("x")).await.unwrap();
    let result = run.result().await.unwrap();
    assert!(error(&result).starts_with("node join: concurrent writes to one: turn 1 and turn 2"), "{result:?}");
    run.resume_with([("one", json!("mine"))], "ann").await.unwrap();
    let result = run.result().await.unwrap();
    assert_eq!((result.outcome, result.output), (Outcome::Finished, json!({ "one": "mine", "seen": [3] }).into()));
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_input_that_lacks_what_templates_read_is_refused_at_submission() {
    let plan = workflow().node(Node::agent("a", "echo").input("{{ source_code }} of {{ input.repo.name }}"));
    let board = cast(builder()).start().await.unwrap();
    let refused = board.submit(plan.build().unwrap().task(json!({ "repo": 1 }))).await.unwrap_err().to_string();
    assert_eq!(
        refused,
        "workflow \"test\": the input lacks source_code\n  advice: give an object that has a field for each name that templates read and no node produces"
    );
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn values_are_never_read_as_templates_again() {
    let plan = workflow()
        .node(Node::agent("a", "echo").input("<{{ text }}>"))
        .node(Node::agent("b", "echo").after("a").input("{{ a.output }}"));
    let hostile = "{{ state }}{% for x in range(9) %}y{% endfor %}";
    assert_eq!(run(plan, json!({ "text": hostile })).await.output, format!("<{hostile}>"));
}

#[tokio::test(start_paused = true)]
async fn finished_nodes_do_not_run_again_after_a_crash_of_their_supervisor() {
    let begun = Counter::default();
    let counter = begun.clone();
    let board = cast(builder())
        .agent("count", move |turn: Turn| {
            counter.count();
            async move { Ok(Command::output(turn.input_json().clone()).with("seen", 1)) }
        })
        .agent("ask", |turn: Turn| async move { Ok(Command::output(turn.people().ask("go on?").await?)) })
        .capacity(|capacity| capacity.run_supervisors(1))
        .start()
        .await
        .unwrap();
    let plan = workflow()
        .node(Node::agent("a", "count"))
        .node(Node::agent("b", "count").after("a"))
        .node(Node::agent("ask", "ask").after("b"))
        .node(Node::agent("c", "count").after("ask"));
    let run = board.submit(plan.build().unwrap().task("x")).await.unwrap();
    people::next_question(&run).await.unwrap();
    assert_eq!(begun.get(), 2);
    let recorder = TreeRecorder::new(board.tree_events());
    assert!(board.kill(&["runs", "runs-0"]).await.unwrap());
    let is_back = |kind: &TreeEventKind| matches!(kind, TreeEventKind::Restarted);
    recorder.expect("callboard/runs/runs-0", is_back, Duration::from_secs(5)).await;
    let question = people::question(&run).await;
    board.people().answer(question.id, "yes", "ann").await.unwrap();
    let result = tokio::time::timeout(Duration::from_secs(60), run.result()).await;
    let result =
        result.unwrap_or_else(|_| panic!("the run does not end, and {} nodes have begun", begun.get())).unwrap();
    assert_eq!((result.output, begun.get()), (json!("yes").into(), 3));
    assert_eq!(result.state, json!({ "seen": [1, 1, 1] }));
    let history = run.history().await.unwrap();
    assert_eq!(history.iter().filter(|event| matches!(event, RunEvent::TurnEnded { .. })).count(), 4);
    board.shutdown().await;
}

#[test]
fn finished_nodes_do_not_run_again_after_a_crash_of_their_process() {
    let begun = Counter::default();
    let agents = |builder: Builder| {
        let counter = begun.clone();
        cast(builder).agent("slow", move |turn: Turn| {
            counter.count();
            async move {
                tokio::time::sleep(Duration::from_secs(10)).await;
                Ok(Command::output(turn.input_json().clone()).with("seen", 1))
            }
        })
    };
    let plan = workflow()
        .node(Node::agent("a", "slow"))
        .node(Node::agent("b", "slow").after("a"))
        .node(Node::agent("c", "slow").after("b"));
    let processes = Processes::new();
    let run = processes.run(async |builder| {
        let board = agents(builder).start().await.unwrap();
        let run = board.submit(plan.build().unwrap().task("x")).await.unwrap().id();
        // Amid the second node.
        tokio::time::sleep(Duration::from_secs(15)).await;
        run
    });
    assert_eq!(begun.get(), 2);
    let result = processes.run(async |builder| {
        let board = agents(builder).start().await.unwrap();
        let result = board.run(run).result().await.unwrap();
        let history = board.run(run).history().await.unwrap();
        assert!(history.iter().any(|event| matches!(event, RunEvent::Recovered { .. })), "{history:#?}");
        result
    });
    assert_eq!((result.outcome, result.state), (Outcome::Finished, json!({ "seen": [1, 1, 1] }).into()));
    assert_eq!(begun.get(), 4, "only the second, which was not finished, began again");
}

#[tokio::test(start_paused = true)]
async fn interrupted_nodes_wait_for_people_each_for_itself_and_continue_with_what_was_changed() {
    let plan = workflow()
        .node(Node::agent("draft", "mark"))
        .node(Node::agent("a", "write").after("draft").input(json!({ "seen": "a" })).interrupted())
        .node(Node::agent("b", "mark").after("draft").interrupted())
        .node(Node::agent("end", "read").after("a").after("b"));
    let board = cast(builder()).start().await.unwrap();
    let run = board.submit(plan.build().unwrap().task("x")).await.unwrap();
    let first = people::node(&run).await;
    let [one, two] = <[_; 2]>::try_from(people::nodes(&run).await).unwrap();
    assert_eq!((&first, &*one.node, &*two.node), (&one, "a", "b"));
    assert_eq!(two.state, json!({ "seen": ["x"] }));
    quiet().await;
    let load = board.load();
    let held = (load.ready_turns, load.turns_at_work, load.waiting_turns, load.waits, load.open_approvals);
    assert_eq!((load.runs, held, load.free_permits), (1, (0, 0, 0, 0, 0), load.pool), "nothing is held meanwhile");
    let update = Command::update("seen", "by ann").update;
    board.people().answer(&two, Resume { input: Some("B".into()), update: update.clone() }, "ann").await.unwrap();
    until(&run, |event| matches!(event, RunEvent::TurnEnded { turn, .. } if *turn == two.turn.number)).await;
    assert_eq!(people::nodes(&run).await, std::slice::from_ref(&one), "the other one waits for itself");
    let again = board.people().answer(&two, Resume::default(), "bob").await.unwrap_err();
    assert_eq!(again, AnswerError::NotOpen((&two).into()));
    let wrong = Resume { update: Command::update("sen", 1).update, ..Resume::default() };
    assert!(matches!(board.people().answer(&one, wrong, "ann").await, Err(AnswerError::State(_))));
    board.people().answer(&one, Resume::default(), "ann").await.unwrap();
    let result = run.result().await.unwrap();
    assert_eq!(result.output, json!({ "seen": ["x", "a", "by ann", "B"] }));
    let replay = callboard::supervision::runs::Replay::of(run.history().await.unwrap(), &Default::default()).unwrap();
    assert_eq!(replay.result(), Some(&result));
    let nodes: Vec<String> = replay.turns().map(|turn| format!("{:?}", turn.cause)).collect();
    assert_eq!(nodes, ["draft", "a", "b", "end"].map(|node| format!("Node {{ node: {node:?} }}")));
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_command_within_a_loop_may_leave_it_for_a_node_around_it() {
    let plan = || {
        workflow()
            .node(Node::agent("outer", "mark"))
            .node(Node::agent("inner", "mark").after("outer"))
            .node(
                Node::agent("judge", "judge")
                    .after("inner")
                    .may_go_back_to("inner", 9)
                    .may_go_back_to("outer", 2)
                    .may_go_to("give_up"),
            )
            .node(Node::agent("publish", "mark").after("judge"))
            .node(Node::agent("give_up", "mark"))
            .node(Node::agent("end", "echo").after("publish").after("give_up"))
    };
    let judging = |ways: &'static [&'static str]| {
        let said = Arc::new(AtomicUsize::new(0));
        cast(builder()).agent("judge", move |turn: Turn| {
            let way = ways.get(said.fetch_add(1, Ordering::SeqCst)).copied().unwrap_or_default();
            async move {
                let command = Command::output(turn.input_json().clone());
                Ok(if way.is_empty() { command } else { command.goto(way) })
            }
        })
    };
    let seen = |result: &RunResult| result.state["seen"].as_array().map_or(0, Vec::len);
    let result = run_on(judging(&["inner", "outer", "inner"]), plan(), json!("x")).await;
    assert_eq!((&result.outcome, seen(&result)), (&Outcome::Finished, 7));
    let result = run_on(judging(&["inner", "give_up"]), plan(), json!("x")).await;
    assert_eq!((&result.outcome, seen(&result)), (&Outcome::Finished, 4));
    let result = run_on(judging(&["outer", "outer"]), plan(), json!("x")).await;
    assert_eq!(result.outcome, Outcome::Refused(Refusal::LoopLimit { node: "outer".into(), max: 2 }));
}

#[tokio::test(start_paused = true)]
async fn a_command_to_the_parent_ends_the_workflow_within_and_counts_for_the_node_around_it() {
    let agents = || {
        cast(builder()).agent("up", |turn: Turn| async move {
            let command = Command::output("up").with("seen", turn.input_json().clone()).to_parent();
            Ok(command.goto("rescue"))
        })
    };
    let plan = |inner: WorkflowBuilder| {
        workflow()
            .with(&inner.build().unwrap())
            .node(Node::agent("first", "mark"))
            .node(Node::workflow("sub", "inner").after("first").may_go_to("rescue"))
            .node(Node::agent("usual", "mark").after("sub").input("usual"))
            .node(Node::agent("rescue", "echo"))
            .node(Node::agent("end", "read").after("usual").after("rescue"))
    };
    let inner = || Workflow::builder("inner").channel("seen", Reducer::Append);
    let one = inner()
        .node(Node::agent("within", "mark"))
        .node(Node::agent("up", "up").after("within"))
        .node(Node::agent("never", "mark").after("up"));
    let result = run_on(agents(), plan(one), json!("x")).await;
    assert_eq!(result.output, json!({ "seen": ["x", "x.."] }), "what was written within is dropped");
    let both = inner()
        .node(Node::agent("slow", "slow").input("a"))
        .node(Node::agent("quick", "up").input("b"))
        .node(Node::agent("never", "mark").after("slow").after("quick"));
    let slow = agents().agent("slow", |turn: Turn| async move {
        tokio::time::sleep(Duration::from_secs(9)).await;
        Ok(Command::output("slow").with("seen", turn.input_json().clone()).to_parent())
    });
    let result = run_on(slow, plan(both), json!("x")).await;
    assert_eq!(result.output, json!({ "seen": ["x", "a", "b"] }), "both count, in plan order");
    let typo = inner().node(Node::agent("up", "up"));
    let nowhere = workflow().with(&typo.build().unwrap()).node(Node::workflow("sub", "inner"));
    let result = run_on(agents(), nowhere, json!("x")).await;
    assert!(
        matches!(&result.outcome, Outcome::Refused(Refusal::UnknownNode { node, .. }) if node == "sub"),
        "{result:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn also_goto_adds_to_the_edges() {
    let agents = cast(builder()).agent("both", |_: Turn| async { Ok(Command::output("o").also_goto("special")) });
    let plan = workflow()
        .node(Node::agent("decide", "both").may_go_to("special"))
        .node(Node::agent("usual", "mark").after("decide").input("usual"))
        .node(Node::agent("special", "mark"))
        .node(Node::agent("join", "echo").after("usual").after("special"));
    assert_eq!(run_on(agents, plan, json!("")).await.output, json!({ "usual": "usual.", "special": "o." }));
}

#[tokio::test(start_paused = true)]
async fn a_changed_definition_on_an_old_journal_is_refused_with_the_difference_unless_migrated() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    let agents = cast(builder()).agent("count", move |turn: Turn| {
        let call = counter.fetch_add(1, Ordering::SeqCst);
        async move { Ok(Command::output(json!([call, turn.input_json().clone()])).with("seen", call)) }
    });
    let plan = |end: &str| {
        workflow()
            .node(Node::agent("a", "count"))
            .node(Node::agent("b", "count").after("a"))
            .node(Node::agent("c", end).after("b").input("{{ b.output[0] }}"))
    };
    let board = agents.start().await.unwrap();
    let id = callboard::messages::RunId(uuid::Uuid::from_u128(7));
    let broken = plan("fail").build().unwrap();
    let run = board.submit(broken.task("x").id(id)).await.unwrap();
    assert_eq!(error(&run.result().await.unwrap()), "node c: terminal error: 1");
    let again = board.submit(broken.task("x").id(id)).await.unwrap();
    assert_eq!(again.id(), id, "the same definition is the same run");
    let mended = plan("mark").node(Node::agent("d", "echo").after("c")).build().unwrap();
    let refused = board.submit(mended.task("x").id(id)).await.unwrap_err().to_string();
    assert!(
        refused.ends_with(
            "began with another definition: c: the agent fail became mark; d was added; give the task another id, or have the run migrated"
        ),
        "{refused}"
    );
    let migrated = board.migrate(id, &mended).await.unwrap();
    let result = migrated.result().await.unwrap();
    assert_eq!((&result.outcome, calls.load(Ordering::SeqCst)), (&Outcome::Finished, 2));
    assert_eq!((result.output, &result.state), (json!(".").into(), &json!({ "seen": [0, 1, ""] }).into()));
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_channel_that_does_not_meet_its_schema_fails_the_attempt_that_wrote_it() {
    let plan = |value: Value| {
        workflow()
            .checked_channel("score", Reducer::Sum, json!({ "type": "number", "maximum": 10 }))
            .node(Node::agent("a", "write").input(json!({ "score": 6 })))
            .node(Node::agent("b", "echo").after("a").input(value).saved_to("score").attempts(1))
    };
    assert_eq!(run(plan(json!(4)), json!("x")).await.state, json!({ "score": 10 }));
    let result = run(plan(json!(5)), json!("x")).await;
    assert_eq!(
        error(&result),
        "node b: invalid command: channel \"score\" does not meet its schema: 11 is greater than the maximum of 10"
    );
    assert_eq!(result.state, json!({ "score": 6 }));
    let text = "[workflow]\nname = \"w\"\n[workflow.channels]\nscore = { schema = { type = \"numbr\" } }\n[[workflow.tasks]]\nname = \"a\"\nagent = \"a\"\n";
    let defects = Workflow::from_toml("w.toml", text).unwrap_err().to_string();
    assert!(
        defects.starts_with(
            "w.toml:4:20: the schema of \"score\" cannot be used: \"numbr\" is no type; the types are array, "
        ),
        "{defects}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_repeated_task_may_be_asked_for_its_own_output() {
    let plan = workflow()
        .node(Node::agent("dots", "mark").until("dots.output | length > 2", 9))
        .node(Node::agent("after", "echo").after("dots").input("{{ dots.output }}!"));
    assert_eq!(run(plan, json!("")).await.output, "...!");
}

#[tokio::test(start_paused = true)]
async fn two_sends_to_one_node_are_an_invalid_command() {
    let agents = cast(builder())
        .agent("twice", |_: Turn| async { Ok(Command::new().goto_many([SendTo::new("b", 1), SendTo::new("b", 2)])) });
    let plan = workflow().node(Node::agent("a", "twice").may_go_to("b").attempts(1)).node(Node::agent("b", "echo"));
    let result = run_on(agents, plan, json!(0)).await;
    let expected = "node a: invalid command: two sends go to the node \"b\", which is begun once; do it in a map";
    assert_eq!(error(&result), expected);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_shows_what_its_finished_nodes_have_written() {
    let plan = workflow().node(Node::agent("a", "mark")).node(Node::agent("b", "never").after("a"));
    let board = cast(builder()).start().await.unwrap();
    let run = board.submit(plan.build().unwrap().task("x")).await.unwrap();
    found(async || (board.load().turns_at_work > 0 && run.read().await.unwrap().metrics().turns > 0).then_some(()))
        .await;
    assert!(run.cancel("enough").await.unwrap());
    let result = run.result().await.unwrap();
    assert_eq!((result.outcome.name(), &result.state), ("cancelled", &json!({ "seen": ["x"] }).into()));
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_follower_is_notified_of_every_turn_and_its_node() {
    let plan = workflow()
        .node(Node::nodes("each", [Node::agent("mark", "mark").input("{{ item }}")]).for_each("input"))
        .node(Node::agent("wait", "mark").after("each").input("w").interrupted())
        .node(Node::agent("broken", "fail").after("wait"));
    let board = cast(builder()).capacity(|capacity| capacity.watch_buffer(2)).start().await.unwrap();
    let items: Vec<String> = (0..20).map(|item| format!("i{item}")).collect();
    let run = board.submit(plan.build().unwrap().task(json!(items))).await.unwrap();
    let events = run.turn_events(2).await.unwrap();
    let waits = people::node(&run).await;
    board.people().answer(&waits, Resume::default(), "ann").await.unwrap();
    run.result().await.unwrap();
    let events: Vec<TurnEvent> = events.map(Result::unwrap).collect().await;
    let of = |wanted: &str| -> Vec<String> {
        let status = |event: &TurnEvent| match &event.status {
            TurnStatus::Finished { command, .. } => format!("finished {}", command.output.clone().unwrap_or_default()),
            TurnStatus::Failed { failure, .. } => format!("failed {failure}"),
            other => format!("{other:?}"),
        };
        events.iter().filter(|event| event.node.as_deref() == Some(wanted)).map(status).collect()
    };
    for item in 0..20 {
        assert_eq!(of(&format!("each[{item}]/mark")), [format!("finished \"i{item}.\"")], "{events:?}");
    }
    assert_eq!(of("wait"), ["Interrupted", "Resumed { by: \"ann\" }", "finished \"w.\""]);
    assert_eq!(of("broken"), ["Started", "failed terminal error: \"w.\""]);
    assert!(events.is_sorted_by_key(|event| event.sequence) && events[0].sequence == 2, "{events:?}");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_follower_receives_which_turns_compensate() {
    let plan =
        workflow().node(Node::agent("a", "mark").compensated_by("echo")).node(Node::agent("b", "fail").after("a"));
    let board = cast(builder()).start().await.unwrap();
    let run = board.submit(plan.build().unwrap().task("x")).await.unwrap();
    let events: Vec<TurnEvent> = run.turn_events(1).await.unwrap().map(Result::unwrap).collect().await;
    let ended = |event: &&TurnEvent| matches!(event.status, TurnStatus::Finished { .. } | TurnStatus::Failed { .. });
    let reported: Vec<_> =
        events.iter().filter(ended).map(|event| (event.node.as_deref().unwrap(), event.is_compensation)).collect();
    assert_eq!(reported, [("a", false), ("b", false), ("a", true)]);
    board.shutdown().await;
}

#[test]
fn toml_a_line_and_code_make_the_same_plan() {
    let toml = r#"
[workflow]
name = "code-review"

[workflow.channels]
verdicts = "append"

[[workflow.tasks]]
name = "analyze"
agent = "code-analyzer"
input = "{{source_code}}"

[[workflow.tasks]]
name = "review"
agent = "code-reviewer"
depends_on = ["analyze"]
input = "{{analyze.output}}"
attempts = 2
save = "verdicts"

[[workflow.tasks]]
name = "each"
agent = "checker"
map = { over = "review.output", max = 10 }
depends_on = ["review"]
when = "review.output"
"#;
    let line = r#"
        workflow "code-review":
        analyze(agent="code-analyzer", input="{{source_code}}")
        -> review(agent="code-reviewer", input="{{analyze.output}}", attempts=2)
        -> each(agent="checker", when="review.output", over="review.output", max=10)"#;
    let code = |review: fn(Node) -> Node, with: WorkflowBuilder| {
        let each = Node::agent("each", "checker").after("review").when("review.output");
        with.node(Node::agent("analyze", "code-analyzer").input("{{source_code}}"))
            .node(review(
                Node::agent("review", "code-reviewer").after("analyze").input("{{analyze.output}}").attempts(2),
            ))
            .node(each.for_each_up_to("review.output", 10))
            .build()
            .unwrap()
    };
    let toml = Workflow::from_toml("review.toml", toml).unwrap_or_else(|defects| panic!("{defects}"));
    let with_channel = Workflow::builder("code-review").channel("verdicts", Reducer::Append);
    assert_eq!(toml.plan(), code(|review| review.saved_to("verdicts"), with_channel).plan());
    // A line declares no channels.
    let line = Workflow::from_line("review.flow", line).unwrap_or_else(|defects| panic!("{defects}"));
    let code = code(|review| review, Workflow::builder("code-review"));
    assert_eq!(line.plan(), code.plan());
}

#[tokio::test(start_paused = true)]
async fn a_command_to_the_parent_counts_where_it_is_when_there_is_no_parent() {
    let agents = || {
        let up = |_: Turn| async { Ok(Command::output("up").with("seen", "up").to_parent().goto("rescue")) };
        cast(builder()).agent("up", up)
    };
    let plan = workflow()
        .node(Node::agent("first", "up").may_go_to("rescue"))
        .node(Node::agent("usual", "never").after("first"))
        .node(Node::agent("rescue", "read"));
    assert_eq!(run_on(agents(), plan, json!("x")).await.output, json!({ "seen": ["up"] }));
    let board = agents().agent("rescue", |turn: Turn| async move { Ok(Command::output(turn.input_json().clone())) });
    let board = board.start().await.unwrap();
    let result = board.submit(Task::new("x").to("up")).await.unwrap().result().await.unwrap();
    assert_eq!((result.output, result.state), (json!("up").into(), json!({ "seen": "up" }).into()));
    board.shutdown().await;
}
