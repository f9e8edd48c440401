//! Workflows as pictures, and how the nodes of a run stand in them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::common::builder;
use callboard::messages::StateRules;
use callboard::prelude::*;
use callboard::supervision::runs::Run;
use callboard::workflow::{Count, Drawing, Node, NodeState, NodeStates, Workflow};
use proptest::prelude::*;
use serde_json::json;

fn line(text: &str) -> Workflow {
    Workflow::from_line("test", text).unwrap_or_else(|defects| panic!("{defects}"))
}

fn review() -> Workflow {
    line(r#"workflow "code-review": analyze(agent="code-analyzer") -> review(agent="code-reviewer")"#)
}

fn branching() -> Workflow {
    line(
        r#"analyze -> if("analyze.output.score > 3") { publish(compensate="unpublish") } else if("analyze.output.is_urgent") {
        fix(interrupt="before") } else { drop } -> report(when="state_of_things < 2")"#,
    )
}

fn joins() -> Workflow {
    line(r#"plan -> any(fast, slow -> check) -> at_least(2, a, b, c) -> settled(d, e catch { repair }) -> end_of_it"#)
}

fn repeated() -> Workflow {
    line(
        r#"plan -> loop(until="judge.output > 3", max=5) { write(goto=["polish"]) -> judge -> polish }
        -> files: map(over="plan.output", max=100) { check(input="{{ item }}") -> sign }
        -> thrice: loop(max=3) { thrice } -> rest: { tidy -> leave }"#,
    )
}

fn nested() -> Workflow {
    let builder = Workflow::builder("nested").with(&review());
    let builder = builder
        .node(Node::agent("begin", "scout"))
        .node(Node::workflow("checked", "code-review").after("begin"))
        .node(Node::agent("implement", "builder").after("checked"))
        .node(Node::agent("test", "tester").after("implement").may_go_back_to("implement", 4))
        .node(Node::agent("rescue", "medic").after_failure_of("test"))
        .node(Node::agent("each", "worker").after("test").for_each("test.output"));
    builder.build().unwrap_or_else(|defects| panic!("{defects}"))
}

fn states() -> BTreeMap<String, NodeStates> {
    let plain = |state: NodeState| NodeStates { state, count: None };
    BTreeMap::from([
        ("begin".to_owned(), plain(NodeState::Finished)),
        ("checked".to_owned(), plain(NodeState::Finished)),
        ("checked/analyze".to_owned(), plain(NodeState::Finished)),
        ("checked/review".to_owned(), plain(NodeState::Skipped)),
        ("implement_loop".to_owned(), NodeStates { state: NodeState::Running, count: Some(Count::Iteration(2)) }),
        ("implement_loop/implement".to_owned(), plain(NodeState::Failed)),
        ("implement_loop/test".to_owned(), plain(NodeState::Interrupted)),
        ("rescue".to_owned(), plain(NodeState::Dropped)),
        ("each".to_owned(), NodeStates { state: NodeState::Waiting, count: Some(Count::Items { done: 3, of: 5 }) }),
    ])
}

#[test]
fn small_workflows_are_drawn_like_this() {
    let drawings = [
        ("review", Drawing::of(&review())),
        ("branching", Drawing::of(&branching())),
        ("joins", Drawing::of(&joins())),
        ("repeated", Drawing::of(&repeated())),
        ("nested", Drawing::of(&nested()).with(states())),
    ];
    for (name, drawing) in drawings {
        assert_is_sound(&drawing.to_svg());
        insta::assert_snapshot!(format!("{name}_mermaid"), drawing.to_mermaid());
        insta::assert_snapshot!(format!("{name}_svg"), drawing.to_svg());
    }
}

#[test]
fn the_same_workflow_gives_the_same_bytes() {
    let (one, other) = (Drawing::of(&repeated()), Drawing::of(&repeated()));
    assert_eq!((one.to_svg(), one.to_mermaid()), (other.to_svg(), other.to_mermaid()));
}

#[test]
fn hostile_names_and_texts_stay_text() {
    let evil = "\"]; end\n```%%{init: {}}%% <script>alert('&')</script> \u{1b}[31m\u{202e}\u{ffff}";
    let long = format!("{evil}{}", "x".repeat(10_000));
    let workflow = Workflow::builder(evil)
        .node(Node::agent("end", "x & <y>").when_predicate(&long))
        .node(Node::agent("graph", "\"]; {end}").after("end").when_predicate(evil))
        .build()
        .unwrap();
    let drawing = Drawing::of(&workflow);
    let mermaid = drawing.to_mermaid();
    for text in ["<script", "%%", "```", "\u{1b}", "\u{202e}", "{"] {
        assert!(!mermaid.contains(text), "{text:?} in {mermaid}");
    }
    // A line is a line of the language: it begins as only the writer begins one, and its quotes are a pair.
    for line in mermaid.lines().skip(1) {
        let line = line.trim_start();
        assert!(line.starts_with('n') || line.starts_with("accTitle:"), "{line}");
        assert!(line.matches('"').count() % 2 == 0 && line.len() < 1_000, "{line}");
    }
    let svg = drawing.to_svg();
    assert_is_sound(&svg);
    for text in ["<script", "\u{1b}", "\u{202e}", "\u{ffff}"] {
        assert!(!svg.contains(text), "{text:?}");
    }
    assert!(svg.lines().filter(|line| line.starts_with("<text")).all(|line| line.len() < 1_000));
}

#[test]
fn states_are_reported_in_words_and_by_a_legend_that_is_there_only_for_them() {
    let svg = Drawing::of(&nested()).with(states()).to_svg();
    for text in ["running, time 2 of 4", "waiting, 3 of 5 done", "interrupted", "class=\"legend dropped\""] {
        assert!(svg.contains(text), "{text}");
    }
    assert!(!Drawing::of(&nested()).to_svg().contains("class=\"legend"));
    let mermaid = Drawing::of(&nested()).with(states()).to_mermaid();
    assert!(mermaid.contains("running, time 2 of 4") && mermaid.contains("classDef failed"));
}

/// Agents that do what the test needs.
fn cast(builder: callboard::runtime::Builder) -> callboard::runtime::Builder {
    builder
        .agent("echo", |turn: Turn| async move { Ok(Command::output(turn.input_json().clone())) })
        .agent("fail", |_: Turn| async { Err::<Command, _>(TurnError::terminal("no")) })
        .agent("never", |_: Turn| async { std::future::pending::<Result<Command, TurnError>>().await })
}

async fn states_after(workflow: &Workflow, input: serde_json::Value) -> BTreeMap<String, NodeStates> {
    let board = cast(builder()).start().await.unwrap();
    let run = board.submit(workflow.task(input)).await.unwrap_or_else(|error| panic!("{error}"));
    run.result().await.unwrap();
    let states = Run::node_states_of(run.history().await.unwrap(), &StateRules::default()).unwrap();
    board.shutdown().await;
    states
}

fn reported(states: &BTreeMap<String, NodeStates>) -> String {
    let reported = states.iter().map(|(node, states)| match states.count {
        None => format!("{node}: {}\n", states.state.name()),
        Some(Count::Iteration(now)) => format!("{node}: {}, time {now}\n", states.state.name()),
        Some(Count::Items { done, of }) => format!("{node}: {}, {done} of {of}\n", states.state.name()),
        Some(other) => panic!("{other:?}"),
    });
    reported.collect()
}

#[tokio::test(start_paused = true)]
async fn nodes_of_blocks_that_have_ended_keep_their_last_state() {
    let text = r#"twice: loop(max=2) { write(agent="echo") -> judge(agent="echo") }
        -> files: map(over="input.files") { check(agent="echo", input="{{ item }}") -> sign(agent="echo", when="item > 1") }
        -> if("false") { skipped: { within(agent="echo") } } else { each: loop(max=3) { each(agent="echo") } }"#;
    let states = states_after(&line(text), json!({ "files": [1, 2, 3] })).await;
    insta::assert_snapshot!("states_of_a_run_that_finished", reported(&states));
    assert_is_sound(&Drawing::of(&line(text)).with(states).to_svg());
}

#[tokio::test(start_paused = true)]
async fn what_was_under_way_when_its_block_failed_is_dropped() {
    let failing = Workflow::builder("failing")
        .node(Node::agent("first", "echo"))
        .node(Node::nodes("group", [Node::agent("slow", "never"), Node::agent("later", "echo").after("slow")]))
        .node(Node::agent("broken", "fail").after("first"))
        .node(Node::nodes("never_begun", [Node::agent("inner", "echo")]).after("broken").after("group"));
    let states = states_after(&failing.build().unwrap(), json!("x")).await;
    insta::assert_snapshot!("states_of_a_run_that_failed", reported(&states));
}

#[tokio::test(start_paused = true)]
async fn a_run_in_flight_can_be_drawn() {
    let workflow = Workflow::builder("live")
        .node(Node::agent("first", "echo"))
        .node(Node::agent("asked", "echo").after("first").interrupted())
        .node(
            Node::nodes("group", [Node::agent("slow", "never"), Node::agent("later", "echo").after("slow")])
                .after("first"),
        )
        .node(Node::nodes("last", [Node::agent("inner", "echo")]).after("asked").after("group"))
        .build()
        .unwrap();
    let board = cast(builder()).start().await.unwrap();
    let run = board.submit(workflow.task("x")).await.unwrap();
    // Everything that could run has run: only then does the clock advance.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let states = Run::node_states_of(run.history().await.unwrap(), &StateRules::default()).unwrap();
    insta::assert_snapshot!("states_of_a_run_in_flight", reported(&states));
    run.cancel("enough").await.unwrap();
    run.result().await.unwrap();
    let states = Run::node_states_of(run.history().await.unwrap(), &StateRules::default()).unwrap();
    insta::assert_snapshot!("states_of_a_run_that_was_cancelled", reported(&states));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_compensated_is_undone() {
    let text = r#"room(agent="echo", compensate="echo") -> stuck(agent="echo", compensate="fail")
        -> trips: map(over="input") { trip(agent="echo", compensate="echo") -> note(agent="echo") }
        -> again: loop(max=2) { again(agent="echo", compensate="echo") }
        -> pay(agent="fail")"#;
    let states = states_after(&line(text), json!([1, 2])).await;
    insta::assert_snapshot!("states_of_a_run_that_was_compensated", reported(&states));
    assert_is_sound(&Drawing::of(&line(text)).with(states).to_svg());
}

/// A number of an element.
fn number(tag: &str, name: &str) -> i32 {
    let value = tag.split(&format!(" {name}=\"")).nth(1).unwrap_or_else(|| panic!("no {name} in {tag}"));
    value.split('"').next().unwrap().parse().unwrap()
}

fn attribute<'a>(tag: &'a str, name: &str) -> &'a str {
    tag.split(&format!(" {name}=\"")).nth(1).unwrap().split('"').next().unwrap()
}

/// Boxes with their paths: left, top, right, bottom.
fn boxes(svg: &str) -> Vec<(&str, [i32; 4])> {
    let mut path = "";
    let mut boxes = Vec::new();
    for line in svg.lines() {
        if line.starts_with("<g class=\"node") {
            path = attribute(line, "data-path");
        } else if line.starts_with("<rect class=\"box") && !path.is_empty() {
            let (x, y) = (number(line, "x"), number(line, "y"));
            boxes.push((path, [x, y, x + number(line, "width"), y + number(line, "height")]));
        } else if line.starts_with("<g class=\"legend") {
            path = "";
        }
    }
    boxes
}

/// Everything is within the picture, no two boxes of one block overlap, and what is within a box stays in it.
fn assert_is_sound(svg: &str) {
    let head = svg.lines().next().unwrap();
    let (width, height) = (number(head, "width"), number(head, "height"));
    let boxes = boxes(svg);
    let around = |path: &str| path.rsplit_once('/').map_or("", |(around, _)| around).to_owned();
    let all: BTreeMap<&str, [i32; 4]> = boxes.iter().copied().collect();
    let mut levels: BTreeMap<String, Vec<[i32; 4]>> = BTreeMap::new();
    for (path, corners) in &boxes {
        assert!(
            corners[0] >= 0 && corners[1] >= 0 && corners[2] <= width && corners[3] <= height,
            "{path} {corners:?}"
        );
        if let Some(outer) = all.get(&*around(path)) {
            assert!(outer[0] <= corners[0] && outer[1] <= corners[1], "{path}");
            assert!(outer[2] >= corners[2] && outer[3] >= corners[3], "{path}");
        }
        levels.entry(around(path)).or_default().push(*corners);
    }
    for level in levels.values() {
        for (position, one) in level.iter().enumerate() {
            for other in &level[position + 1..] {
                let is_apart = one[2] <= other[0] || other[2] <= one[0] || one[3] <= other[1] || other[3] <= one[1];
                assert!(is_apart, "{one:?} {other:?}");
            }
        }
    }
    for line in svg.lines().filter(|line| line.starts_with("<path class=\"edge")) {
        let points = attribute(line, "d").split(['M', 'L', 'C', ' ']).filter(|number| !number.is_empty());
        let numbers: Vec<i32> = points.map(|number| number.parse().unwrap()).collect();
        for point in numbers.chunks(2) {
            assert!((0..=width).contains(&point[0]) && (0..=height).contains(&point[1]), "{line}");
        }
    }
    for line in svg.lines().filter(|line| line.starts_with("<text")) {
        let (x, y) = (number(line, "x"), number(line, "y"));
        assert!((0..=width).contains(&x) && (0..=height).contains(&y), "{line}");
    }
}

/// For each node the earlier ones that it comes after, and whether it is made a group with two nodes of its own.
fn graphs() -> impl Strategy<Value = Vec<(Vec<prop::sample::Index>, u8)>> {
    let node = (prop::collection::vec(any::<prop::sample::Index>(), 0..4), 0..6_u8);
    prop::collection::vec(node, 1..40)
}

proptest! {
    #[test]
    fn every_node_and_edge_of_any_graph_is_drawn_within_the_picture_and_nothing_overlaps(graph in graphs()) {
        let mut workflow = Workflow::builder("any");
        let (mut edges, mut nodes) = (BTreeSet::new(), 0);
        for (position, (after, kind)) in graph.iter().enumerate() {
            let name = format!("node_{position}");
            let mut node = if *kind == 0 {
                let inner = [Node::agent(&format!("{name}_a"), "echo"), Node::agent(&format!("{name}_b"), "echo")];
                nodes += 2;
                Node::nodes(&name, inner)
            } else {
                Node::agent(&name, "agent ".repeat(usize::from(*kind)).trim_end())
            };
            nodes += 1;
            let earlier: BTreeSet<usize> =
                after.iter().filter(|_| position > 0).map(|index| index.index(position)).collect();
            for from in earlier {
                edges.insert((format!("node_{from}"), name.clone()));
                node = match from % 3 {
                    0 => node.after(&format!("node_{from}")),
                    1 => node.after_if(&format!("node_{from}"), "true or input.something_with_a_long_name"),
                    _ => node.after_failure_of(&format!("node_{from}")),
                };
            }
            workflow = workflow.node(node);
        }
        let drawing = Drawing::of(&workflow.build().map_err(|defects| TestCaseError::fail(defects.to_string()))?);
        let svg = drawing.to_svg();
        assert_is_sound(&svg);
        prop_assert_eq!(boxes(&svg).len(), nodes);
        let drawn = svg.lines().filter(|line| line.starts_with("<path class=\"edge"));
        let drawn: BTreeSet<(String, String)> = drawn
            .map(|line| (attribute(line, "data-from").to_owned(), attribute(line, "data-to").to_owned()))
            .collect();
        prop_assert_eq!(&drawn, &edges);
        let mermaid = drawing.to_mermaid();
        let arrows = ["-->", "-.->", "==>"];
        let lines = mermaid.lines().filter(|line| arrows.iter().any(|arrow| line.contains(arrow)));
        prop_assert_eq!(lines.count(), edges.len());
    }
}
