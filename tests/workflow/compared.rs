//! The claims of docs/compared-with-langgraph.md about workflows, where no other test shows it.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{assert_nothing_left, builder, finish};
use callboard::messages::{Reducer, RunEvent};
use callboard::prelude::*;
use callboard::runtime::Builder;
use callboard::supervision::runs::{Fork, TurnStatus};
use callboard::workflow::{Node, Workflow};
use futures::TryStreamExt as _;
use serde_json::json;

/// An agent that writes its input to the channel `note`, one that reads all channels, and one that takes a minute.
fn cast() -> Builder {
    builder()
        .agent("write", |turn: Turn| async move { Ok(Command::update("note", turn.input_json().clone())) })
        .agent("read", |turn: Turn| async move { Ok(Command::output(turn.state().to_json())) })
        .agent("minute", |_: Turn| async {
            tokio::time::sleep(Duration::from_secs(60)).await;
            Ok(Command::new())
        })
}

#[tokio::test(start_paused = true)]
async fn a_node_sees_nothing_of_a_branch_beside_it_even_if_that_ended_long_before() {
    let workflow = Workflow::builder("test")
        .channel("note", Reducer::LastValue)
        .node(Node::agent("quick", "write").input("from beside"))
        .node(Node::agent("slow", "minute"))
        .node(Node::agent("after_slow", "read").after("slow"))
        .node(Node::agent("after_both", "read").after("quick").after("after_slow"))
        .output(json!({ "beside": "{{ after_slow.output }}", "after": "{{ after_both.output }}" }))
        .build()
        .unwrap();
    let board = cast().start().await.unwrap();
    let result = finish(&board, workflow.task("go")).await;
    assert_eq!(result.output, json!({ "beside": {}, "after": { "note": "from beside" } }));
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn branches_of_different_length_that_write_one_place_conflict_at_their_join() {
    let workflow = Workflow::builder("test")
        .channel("note", Reducer::LastValue)
        .node(Node::agent("short", "write").input("first"))
        .node(Node::agent("wait", "minute"))
        .node(Node::agent("long", "write").after("wait").input("second"))
        .node(Node::agent("join", "read").after("short").after("long"))
        .build()
        .unwrap();
    let board = cast().start().await.unwrap();
    let result = finish(&board, workflow.task("go")).await;
    let error = result.to_string();
    assert!(error.starts_with("failed: node join: concurrent writes to note: turn 1 and turn 3"), "{error}");
    board.shutdown().await;
}

#[test]
fn a_graph_that_cannot_run_is_refused_with_its_defects_and_their_places() {
    let names = r#"
[workflow]
name = "names"

[[workflow.tasks]]
name = "plan"
agent = "planner"
depends_on = ["reviw"]

[[workflow.tasks]]
name = "review"
agent = "reviewer"
goto = ["plan"]

[[workflow.tasks]]
name = "again"
agent = "editor"
depends_on = ["review"]
goto = ["review"]
"#;
    insta::assert_snapshot!("names", Workflow::from_toml("names.toml", names).unwrap_err());
    let circle = r#"
[workflow]
name = "circle"

[[workflow.tasks]]
name = "plan"
agent = "planner"
depends_on = ["check"]

[[workflow.tasks]]
name = "check"
agent = "checker"
depends_on = ["plan"]
"#;
    insta::assert_snapshot!("circle", Workflow::from_toml("circle.toml", circle).unwrap_err());
    let values = r#"
[workflow]
name = "values"

[[workflow.tasks]]
name = "plan"
agent = "planner"
input = "{{ write.output }}"

[[workflow.tasks]]
name = "write"
agent = "writer"
depends_on = [{ task = "plan", when = "plan.ouput > 3" }]
save = "notes"
"#;
    insta::assert_snapshot!("values", Workflow::from_toml("values.toml", values).unwrap_err());
}

#[tokio::test(start_paused = true)]
async fn a_fork_of_a_workflow_runs_what_comes_of_its_turn_and_copies_the_rest() {
    let begun = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&begun);
    let board = builder()
        .agent("say", move |turn: Turn| {
            counter.fetch_add(1, Ordering::SeqCst);
            async move {
                let said = turn.input_json().as_str().unwrap_or_default().to_owned();
                let before: Vec<String> = turn.channel("said")?.unwrap_or_default();
                Ok(Command::output(format!("{said}{}", before.len())).with("said", said))
            }
        })
        .start()
        .await
        .unwrap();
    let workflow = Workflow::builder("test")
        .channel("said", Reducer::Append)
        .node(Node::agent("first", "say"))
        .node(Node::agent("beside", "say").input("beside "))
        .node(Node::agent("second", "say").after("first"))
        .node(
            Node::agent("last", "say").after("second").after("beside").input("{{ second.output }} {{ beside.output }}"),
        )
        .build()
        .unwrap();
    let run = board.submit(workflow.task("a")).await.unwrap();
    assert_eq!(run.result().await.unwrap().output, "a01 beside 03");
    let second = turn_on(&run.history().await.unwrap(), "a0");
    let fork = board.fork(run.id(), second, Fork::new().input("b").with("said", "c")).await.unwrap();
    let result = fork.result().await.unwrap();
    assert_eq!((result.outcome, begun.load(Ordering::SeqCst)), (Outcome::Finished, 6), "only two turns run again");
    assert_eq!(result.output, "b2 beside 04");
    assert_eq!(run.result().await.unwrap().output, "a01 beside 03", "the old run stays as it is");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn parallel_writes_are_in_the_order_of_the_plan_and_not_of_the_names() {
    let workflow =
        ["z", "a", "m"].into_iter().fold(Workflow::builder("test").channel("note", Reducer::Append), |plan, name| {
            plan.node(Node::agent(name, "write").input(name))
        });
    let board = cast().start().await.unwrap();
    let result = finish(&board, workflow.build().unwrap().task("go")).await;
    assert_eq!(result.state, json!({ "note": ["z", "a", "m"] }));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn the_stream_of_a_run_has_the_turns_of_its_inner_workflows() {
    let inner = Workflow::builder("inner").node(Node::agent("first", "read")).build().unwrap();
    let outer = Workflow::builder("test").with(&inner).node(Node::workflow("sub", "inner")).build().unwrap();
    let board = cast().start().await.unwrap();
    let run = board.submit(outer.task("go")).await.unwrap();
    run.result().await.unwrap();
    let events: Vec<_> = run.turn_events(1).await.unwrap().try_collect().await.unwrap();
    let finished = events.iter().filter(|event| matches!(event.status, TurnStatus::Finished { .. }));
    let nodes: Vec<_> = finished.map(|event| event.node.as_deref()).collect();
    assert_eq!(nodes, [Some("sub/first")]);
    board.shutdown().await;
}

/// The turn that wrote this to `said`.
fn turn_on(history: &[RunEvent], said: &str) -> u32 {
    let wrote = |event: &RunEvent| match event {
        RunEvent::TurnEnded { turn, command, .. } => {
            command.update.writes().iter().any(|write| write.value == said).then_some(*turn)
        }
        _ => None,
    };
    history.iter().find_map(wrote).unwrap()
}

#[test]
fn every_test_that_the_page_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/compared-with-langgraph.md")).unwrap();
    let named = page.split('`').filter_map(|part| part.split_once(".rs: "));
    let mut count = 0;
    for (file, test) in named {
        let text =
            fs::read_to_string(root.join(format!("{file}.rs"))).unwrap_or_else(|_| panic!("there is no {file}.rs"));
        assert!(text.contains(&format!("fn {test}(")), "{file}.rs has no test {test}");
        count += 1;
    }
    assert!(count > 20, "{count}");
}
