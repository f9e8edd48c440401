use std::time::Duration;

use callboard_documents::{Defects, MAX_TEXT, Place, Placed, text_of};
use insta::assert_snapshot;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::messages::{Condition, JoinPolicy, On, Reducer};
use crate::workflow::draft::{Node, RepeatDraft, WorkDraft};

const EVERYTHING: &str = r#"
[workflow]
name = "everything"
description = "All that can be written"
output = { verdict = "{{ review.output }}", sure = true }

[workflow.channels]
notes = "append"
score = { reducer = "sum", schema = { type = "number" } }
best = { reducer = "custom:max" }
last = { }
all = "merge"

[[workflow.tasks]]
name = "plan"
agent = "planner"
input = { topic = "{{ topic }}", depth = 3, weights = [0.5, 1e3], strict = false }
attempts = 3
timeout = "1500ms"
compensate = "undo"
interrupt = "before"

[[workflow.tasks]]
name = "research"
agent = "researcher"
depends_on = ["plan", { task = "ask", when = "ask.output.ok" }, { task = "look", on = "failure" }]
join = { at_least = 2 }
when = { predicate = "is_open" }
goto = ["write", { to = "plan", max = 3 }]
map = { over = "plan.output.files", max = 100 }

[[workflow.tasks]]
name = "write"
result = "{{ edit.output }}"
loop = { until = "state.score > 3", max = 5, at_max = "stop" }

[[workflow.tasks.tasks]]
name = "draft"
workflow = "drafting"
timeout = 90

[[workflow.tasks.tasks]]
name = "edit"
tasks = [{ name = "one", agent = "editor", loop = { max = 2 } }, { name = "two", agent = "editor", timeout = "2h" }]

[[workflow.tasks]]
name = "meet"
kind = "join"
depends_on = ["write"]
join = "settled"
"#;

/// A workflow whose only task has these lines in addition.
fn with_lines(lines: &str) -> String {
    format!("[workflow]\nname = \"w\"\n[[workflow.tasks]]\nname = \"a\"\n{lines}")
}

fn node(lines: &str) -> Node {
    let text = with_lines(lines);
    parse(&text).unwrap_or_else(|list| panic!("{}", shown(&text, list))).nodes.remove(0)
}

fn shown(text: &str, list: Vec<Defect>) -> String {
    Defects::of("w.toml", Some(text), list).to_string()
}

fn refused(text: &str) -> String {
    shown(text, parse(text).unwrap_err())
}

fn problems(text: &str) -> Vec<String> {
    parse(text).unwrap_err().into_iter().map(|defect| defect.problem).collect()
}

/// The text at a position of [`EVERYTHING`].
fn text_at(place: &Place) -> &'static str {
    &EVERYTHING[place.clone().unwrap()]
}

fn names(nodes: &[Node]) -> Vec<&str> {
    nodes.iter().map(|node| node.name.value.as_str()).collect()
}

#[test]
fn the_head_of_a_workflow_is_read() {
    let draft = parse(EVERYTHING).unwrap();
    assert_eq!((draft.name.value.as_str(), text_at(&draft.name.place)), ("everything", "\"everything\""));
    assert_eq!(draft.description.as_deref(), Some("All that can be written"));
    let output = draft.output.unwrap();
    assert_eq!(output.value, json!({ "verdict": "{{ review.output }}", "sure": true }));
    assert_eq!(text_at(&output.place), "{ verdict = \"{{ review.output }}\", sure = true }");
    assert_eq!(names(&draft.nodes), ["plan", "research", "write", "meet"]);
}

#[test]
fn channels_keep_the_order_in_which_they_are_written() {
    let channels = parse(EVERYTHING).unwrap().channels;
    let read: Vec<_> = channels.iter().map(|channel| (channel.name.value.as_str(), channel.reducer.clone())).collect();
    assert_eq!(
        read,
        [
            ("notes", Reducer::Append),
            ("score", Reducer::Sum),
            ("best", Reducer::Custom("max".into())),
            ("last", Reducer::LastValue),
            ("all", Reducer::merge()),
        ]
    );
    let schema = channels[1].schema.as_ref().unwrap();
    assert_eq!((&schema.value, text_at(&schema.place)), (&json!({ "type": "number" }), "{ type = \"number\" }"));
    assert_eq!(text_at(&channels[1].name.place), "score");
}

#[test]
fn a_task_of_an_agent_is_read_with_all_its_keys() {
    let plan = &parse(EVERYTHING).unwrap().nodes[0];
    assert!(matches!(&plan.work, WorkDraft::Agent(agent) if agent.value == "planner"));
    let input = &plan.input.as_ref().unwrap().value;
    let expected = json!({ "topic": "{{ topic }}", "depth": 3, "weights": [0.5, 1000.0], "strict": false });
    assert_eq!(input, &expected);
    assert_eq!(plan.attempts.as_ref().map(|attempts| attempts.value), Some(3));
    assert_eq!(plan.timeout.as_ref().map(|timeout| timeout.value), Some(Duration::from_millis(1_500)));
    assert_eq!(plan.compensation.as_ref().map(|agent| agent.value.as_str()), Some("undo"));
    assert!(plan.is_interrupted);
    let plain = node("agent = \"b\"");
    let (name, agent) = (Placed::at("a".to_owned(), 48..51), Placed::at("b".to_owned(), 60..63));
    assert_eq!(plain, Node::new(name, WorkDraft::Agent(agent)));
}

#[test]
fn edges_and_joins_are_read() {
    let draft = parse(EVERYTHING).unwrap();
    let research = &draft.nodes[1];
    let edges: Vec<_> = research.after.iter().map(|edge| (text_at(&edge.from.place), edge.on)).collect();
    let expected = [("\"plan\"", On::Success), ("\"ask\"", On::Success), ("\"look\"", On::Failure)];
    assert_eq!(edges, expected);
    let conditions: Vec<_> = research.after.iter().map(|edge| edge.when.as_ref().map(|when| &when.value)).collect();
    assert_eq!(conditions, [None, Some(&Condition::Expression("ask.output.ok".into())), None]);
    assert_eq!(research.when.as_ref().map(|when| &when.value), Some(&Condition::Predicate("is_open".into())));
    assert_eq!(research.join.value, JoinPolicy::AtLeast(2));
    let gotos: Vec<_> =
        research.goto.iter().map(|goto| (goto.to.value.as_str(), goto.max.as_ref().map(|max| max.value))).collect();
    assert_eq!(gotos, [("write", None), ("plan", Some(3))]);
    assert_eq!((draft.nodes[3].join.value, &draft.nodes[3].work), (JoinPolicy::Settled, &WorkDraft::Join));
    for (word, policy) in [("all", JoinPolicy::All), ("any", JoinPolicy::AtLeast(1))] {
        assert_eq!(node(&format!("agent = \"b\"\njoin = \"{word}\"")).join.value, policy);
    }
}

#[test]
fn tasks_stand_in_tasks_under_headers_and_in_brackets() {
    let draft = parse(EVERYTHING).unwrap();
    let WorkDraft::Nodes { nodes, output } = &draft.nodes[2].work else { panic!("{:?}", draft.nodes[2].work) };
    assert_eq!(output.as_ref().map(|output| &output.value), Some(&json!("{{ edit.output }}")));
    assert_eq!(names(nodes), ["draft", "edit"]);
    assert!(matches!(&nodes[0].work, WorkDraft::Workflow(name) if name.value == "drafting"));
    assert_eq!(nodes[0].timeout.as_ref().map(|timeout| timeout.value), Some(Duration::from_secs(90)));
    let WorkDraft::Nodes { nodes, output: None } = &nodes[1].work else { panic!("{:?}", nodes[1].work) };
    assert_eq!(names(nodes), ["one", "two"]);
    assert_eq!(nodes[1].timeout.as_ref().map(|timeout| timeout.value), Some(Duration::from_secs(7_200)));
}

#[test]
fn loops_and_maps_are_read() {
    let nodes = parse(EVERYTHING).unwrap().nodes;
    let Some(RepeatDraft::Map { over, max: Some(max) }) = &nodes[1].repeat else { panic!("{:?}", nodes[1].repeat) };
    assert_eq!((over.value.as_str(), max.value), ("plan.output.files", 100));
    let bounds = |lines: &str| match node(&format!("agent = \"b\"\n{lines}")).repeat {
        Some(RepeatDraft::Loop { until, max, ends_at_max }) => (until.map(|until| until.value), max.value, ends_at_max),
        other => panic!("{other:?}"),
    };
    let score = || Some(Condition::Expression("state.score > 3".into()));
    assert_eq!(bounds(r#"loop = { until = "state.score > 3", max = 5 }"#), (score(), 5, false));
    assert_eq!(bounds(r#"loop = { until = "state.score > 3", max = 5, at_max = "refuse" }"#), (score(), 5, false));
    assert_eq!(bounds(r#"loop = { until = "state.score > 3", max = 5, at_max = "stop" }"#), (score(), 5, true));
    assert_eq!(bounds("loop = { max = 2 }"), (None, 2, true));
    assert_eq!(bounds("[workflow.tasks.loop]\nmax = 2\nat_max = \"stop\""), (None, 2, true));
    let predicate = Some(Condition::Predicate("is_done".into()));
    assert_eq!(bounds(r#"loop = { until = { predicate = "is_done" }, max = 2 }"#), (predicate, 2, false));
}

#[test]
fn the_guide_shows_what_is_taken() {
    const GUIDE: &str = include_str!("../../../docs/workflow-toml.md");
    let agent = "[[workflow.tasks]]\nname = \"a\"\nagent = \"b\"\n";
    let head = |lines: &str| format!("[workflow]\nname = \"w\"\n{lines}\n{agent}");
    let blocks = GUIDE.split("```toml\n").skip(1).map(|block| block.split("```").next().unwrap_or_default());
    let mut count = 0;
    for block in blocks {
        count += 1;
        let texts = if block.contains("[workflow]") {
            vec![vec![block.to_owned()]]
        } else if block.starts_with('[') {
            vec![vec![head(block)]]
        } else {
            // Each line by itself: of a task, of a task that gets its instructions, or of the workflow.
            let lines = block.lines();
            lines
                .map(|line| vec![with_lines(line), with_lines(&format!("agent = \"b\"\n{line}")), head(line)])
                .collect()
        };
        for ways in texts {
            assert!(ways.iter().any(|text| parse(text).is_ok()), "{block}\n{}", refused(&ways[0]));
        }
    }
    assert_eq!(count, 8);
}

#[test]
fn every_defect_is_reported_at_its_place() {
    let text = r#"
[workflow]
nmae = "review"

[workflow.channels]
notes = "apend"
score = { reducer = "custom:", schema = 3 }
best = 7

[[workflow.tasks]]
name = "analyze"
agnet = "analyzer"
input = { since = 2026-01-02, most = 99999999999999999999, least = -inf }

[[workflow.tasks]]
name = "review"
agent = "reviewer"
workflow = "reviewing"
result = "{{ x }}"
depends_on = "analyze"
join = "al"
timeout = "30 s"
attempts = 0
loop = { until = "x", at_max = "refuse" }
map = { over = 3 }

[[workflow.tasks]]
agent = 7
depends_on = [7, { on = "failure", tsk = "a" }]
goto = [{ to = "b", max = -1 }, {}]
interrupt = "after"
loop = { max = 3, at_max = "refuse" }
"#;
    assert_snapshot!(refused(text), @r##"
    w.toml:2:1: a workflow needs `name`
      |
    2 | [workflow]
      | ^^^^^^^^^^
      advice: write name = "…" under [workflow]

    w.toml:3:1: a workflow has no key "nmae"; did you mean "name"?
      |
    3 | nmae = "review"
      | ^^^^

    w.toml:6:9: `reducer` must be "last_value", "append", "merge", "sum" or "custom:NAME", not "apend"; did you mean "append"?
      |
    6 | notes = "apend"
      |         ^^^^^^^

    w.toml:7:21: a custom reducer needs a name
      |
    7 | score = { reducer = "custom:", schema = 3 }
      |                     ^^^^^^^^^
      advice: write custom:NAME, with the name that the board knows it by

    w.toml:7:41: `schema` must be a table with a JSON Schema, not an integer
      |
    7 | score = { reducer = "custom:", schema = 3 }
      |                                         ^

    w.toml:8:8: a channel must be the name of a reducer, or a table, not an integer
      |
    8 | best = 7
      |        ^
      advice: write notes = "append", or notes = { reducer = "append", schema = { … } }

    w.toml:11:8: this task has nothing to do
       |
    11 | name = "analyze"
       |        ^^^^^^^^^
      advice: add agent = "…"; or workflow = "…", or tasks of its own, or kind = "join" to wait alone

    w.toml:12:1: a task has no key "agnet"; did you mean "agent"?
       |
    12 | agnet = "analyzer"
       | ^^^^^

    w.toml:13:19: JSON has no datetimes
       |
    13 | input = { since = 2026-01-02, most = 99999999999999999999, least = -inf }
       |                   ^^^^^^^^^^
      advice: write it as a string, in quotes

    w.toml:13:38: 99999999999999999999 is beyond the integers of 64 bits
       |
    13 | input = { since = 2026-01-02, most = 99999999999999999999, least = -inf }
       |                                      ^^^^^^^^^^^^^^^^^^^^
      advice: write it as a string

    w.toml:13:68: JSON has no number -inf
       |
    13 | input = { since = 2026-01-02, most = 99999999999999999999, least = -inf }
       |                                                                    ^^^^
      advice: write it as a string, or a finite number

    w.toml:18:12: a task cannot have both `agent` and `workflow`
       |
    18 | workflow = "reviewing"
       |            ^^^^^^^^^^^
      advice: keep one of them

    w.toml:19:10: `result` is for a task that has `tasks`
       |
    19 | result = "{{ x }}"
       |          ^^^^^^^^^
      advice: remove it; the output of other tasks is what their agent answers

    w.toml:20:14: `depends_on` must be an array, not a string
       |
    20 | depends_on = "analyze"
       |              ^^^^^^^^^
      advice: put it in brackets: depends_on = ["name"]

    w.toml:21:8: `join` must be "all", "any" or "settled", not "al"; did you mean "all"?
       |
    21 | join = "al"
       |        ^^^^

    w.toml:22:11: `timeout` must be a time above zero, as "30s", not "30 s"
       |
    22 | timeout = "30 s"
       |           ^^^^^^
      advice: write a whole number with its unit (ms, s, m, h or d) in quotes, or an integer of seconds

    w.toml:23:12: `attempts` must be a whole number from 1 to 4294967295, not 0
       |
    23 | attempts = 0
       |            ^

    w.toml:24:8: `loop` needs `max`
       |
    24 | loop = { until = "x", at_max = "refuse" }
       |        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      advice: write { until = "an expression", max = 5 }, or { max = 5 }

    w.toml:25:7: a task cannot have both `loop` and `map`
       |
    25 | map = { over = 3 }
       |       ^^^^^^^^^^^^
      advice: give one of them to a task that has the other in its `tasks`

    w.toml:25:16: `over` must be a string, not an integer
       |
    25 | map = { over = 3 }
       |                ^

    w.toml:27:1: a task needs `name`
       |
    27 | [[workflow.tasks]]
       | ^^^^^^^^^^^^^^^^^^
      advice: add name = "…": others depend on it, and use its output, by its name

    w.toml:28:9: `agent` must be a string, not an integer
       |
    28 | agent = 7
       |         ^

    w.toml:29:15: an entry of `depends_on` must be the name of a task, or a table, not an integer
       |
    29 | depends_on = [7, { on = "failure", tsk = "a" }]
       |               ^

    w.toml:29:18: an entry of `depends_on` needs `task`
       |
    29 | depends_on = [7, { on = "failure", tsk = "a" }]
       |                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      advice: write { task = "name" }, with `when` or `on` if needed

    w.toml:29:36: an entry of `depends_on` has no key "tsk"; did you mean "task"?
       |
    29 | depends_on = [7, { on = "failure", tsk = "a" }]
       |                                    ^^^

    w.toml:30:27: `max` must be a whole number from 1 to 4294967295, not -1
       |
    30 | goto = [{ to = "b", max = -1 }, {}]
       |                           ^^

    w.toml:30:33: an entry of `goto` needs `to`
       |
    30 | goto = [{ to = "b", max = -1 }, {}]
       |                                 ^^
      advice: write { to = "name" }, with `max` if it goes back

    w.toml:31:13: `interrupt` must be "before", not "after"
       |
    31 | interrupt = "after"
       |             ^^^^^^^

    w.toml:32:28: a loop without `until` ends at its `max`: nothing could be refused there
       |
    32 | loop = { max = 3, at_max = "refuse" }
       |                            ^^^^^^^^
      advice: remove `at_max`, or add `until`
    "##);
}

#[test]
fn what_a_beginner_writes_is_answered_with_what_to_write() {
    assert_snapshot!(refused(""), @r##"
    w.toml:1:1: there is no workflow in this text
      |
    1 | 
      | ^
      advice: begin with [workflow] and name = "…", then write [[workflow.tasks]] for each task
    "##);
    assert_snapshot!(refused("# nothing yet\n"), @r##"
    w.toml:1:1: there is no workflow in this text
      |
    1 | # nothing yet
      | ^
      advice: begin with [workflow] and name = "…", then write [[workflow.tasks]] for each task
    "##);
    assert_snapshot!(refused("[[tasks]]\nname = \"a\"\nagent = \"b\"\n"), @r##"
    w.toml:1:3: "tasks" is not part of a workflow
      |
    1 | [[tasks]]
      |   ^^^^^
      advice: everything stands under `workflow`: write [workflow], [workflow.channels] and [[workflow.tasks]]
    "##);
    assert_snapshot!(refused("[workfow]\nname = \"a\"\n"), @r##"
    w.toml:1:2: "workfow" is not part of a workflow; did you mean "workflow"?
      |
    1 | [workfow]
      |  ^^^^^^^
      advice: everything stands under `workflow`: write [workflow], [workflow.channels] and [[workflow.tasks]]
    "##);
    assert_snapshot!(refused("[workflow]\nname = \"a\"\n"), @r##"
    w.toml:1:1: a workflow needs `tasks`
      |
    1 | [workflow]
      | ^^^^^^^^^^
      advice: write [[workflow.tasks]], and below it name = "…" and agent = "…"
    "##);
    assert_snapshot!(refused("[[workflow]]\nname = \"a\"\n"), @r##"
    w.toml:1:1: a workflow must be a table, not an array
      |
    1 | [[workflow]]
      | ^^^^^^^^^^^^
      advice: write [workflow], with one pair of brackets
    "##);
    assert_snapshot!(refused("[workflow]\nname = \"a\"\ntasks = []\n"), @r##"
    w.toml:3:9: there are no tasks here
      |
    3 | tasks = []
      |         ^^
      advice: write at least one, as { name = "…", agent = "…" }
    "##);
    assert_snapshot!(refused("[[workflow.tasks]]\nname = \"a\"\nagent = \"b\"\n"), @r##"
    w.toml:1:3: a workflow needs `name`
      |
    1 | [[workflow.tasks]]
      |   ^^^^^^^^
      advice: write name = "…" under [workflow]
    "##);
    assert_snapshot!(refused("[workflow]\nname = \"a\"\n[workflow.tasks]\nname = \"a\"\nagent = \"b\"\n"), @r##"
    w.toml:3:1: `tasks` must be an array, not a table
      |
    3 | [workflow.tasks]
      | ^^^^^^^^^^^^^^^^
      advice: write its header with two pairs of brackets, as [[workflow.tasks]]
    "##);
    assert_snapshot!(refused("[workflow]\nname = \"a\"\ntasks = [\"b\"]\nchannels = [\"c\"]\n"), @r##"
    w.toml:3:10: a task must be a table, not a string
      |
    3 | tasks = ["b"]
      |          ^^^
      advice: write { name = "…", agent = "…" }

    w.toml:4:12: `channels` must be a table, not an array
      |
    4 | channels = ["c"]
      |            ^^^^^
      advice: write notes = "append", or notes = { reducer = "append", schema = { … } }
    "##);
}

#[test]
fn all_that_is_wrong_with_the_grammar_is_reported_and_nothing_is_guessed_after_it() {
    assert_snapshot!(refused("[workflow\nname = \"a\nagnet = 1_\n\n[[workflow.tasks]]\nname = \"\\q\"\n"), @r##"
    w.toml:1:10: unclosed table, expected `]`
      |
    1 | [workflow
      |          ^

    w.toml:2:10: invalid basic string, expected `"`
      |
    2 | name = "a
      |          ^

    w.toml:3:10: `_` may only go between digits
      |
    3 | agnet = 1_
      |          ^

    w.toml:6:10: missing escaped value, expected `b`, `e`, `f`, `n`, `r`, `\`, `"`, `x`, `u`, `U`
      |
    6 | name = "\q"
      |          ^
    "##);
}

#[test]
fn a_duplicate_key_is_reported_together_with_the_rest() {
    assert_snapshot!(refused(&with_lines("agent = \"b\"\nagent = \"c\"\nagnet = 1\n[workflow]\n")), @r##"
    w.toml:6:1: the key "agent" is repeated
      |
    6 | agent = "c"
      | ^^^^^
      advice: keep one of them

    w.toml:7:1: a task has no key "agnet"; did you mean "agent"?
      |
    7 | agnet = 1
      | ^^^^^

    w.toml:8:2: the key "workflow" is repeated
      |
    8 | [workflow]
      |  ^^^^^^^^
      advice: keep one of them
    "##);
}

#[test]
fn numbers_out_of_range_are_refused() {
    let sound = ["1", "0x10", "+7", "1_000", "4294967295"];
    for number in sound {
        assert!(node(&format!("agent = \"b\"\nattempts = {number}")).attempts.is_some(), "{number}");
    }
    for number in ["0", "-1", "4294967296", "99999999999999999999", "1.0", "\"1\"", "true"] {
        for line in [
            format!("attempts = {number}"),
            format!("join = {{ at_least = {number} }}"),
            format!("goto = [{{ to = \"b\", max = {number} }}]"),
            format!("loop = {{ max = {number} }}"),
            format!("map = {{ over = \"x\", max = {number} }}"),
        ] {
            let reported = problems(&with_lines(&format!("agent = \"b\"\n{line}")));
            assert!(
                reported.len() == 1 && reported[0].contains("a whole number from 1 to 4294967295"),
                "{line}: {reported:?}"
            );
        }
    }
}

#[test]
fn times_have_a_unit_or_are_seconds() {
    for time in [
        "0",
        "-1",
        "1.5",
        "\"\"",
        "\"s\"",
        "\"30\"",
        "\"-30s\"",
        "\"1.5s\"",
        "\"30 s\"",
        "\"30S\"",
        "\"0ms\"",
        "\"30w\"",
        "\"99999999999999999999s\"",
        "\"9999999999999999999h\"",
        "9223372036854775807",
        "2026-01-01",
    ] {
        let reported = problems(&with_lines(&format!("agent = \"b\"\ntimeout = {time}")));
        assert!(
            reported.len() == 1 && reported[0].starts_with("`timeout` must be a time above zero"),
            "{time}: {reported:?}"
        );
    }
}

#[test]
fn a_task_does_one_thing() {
    let given = [r#"agent = "x""#, r#"workflow = "x""#, r#"tasks = [{ name = "y", agent = "z" }]"#, r#"kind = "join""#];
    for first in given {
        assert!(parse(&with_lines(first)).is_ok());
        for second in given.iter().filter(|second| **second != first) {
            let reported = problems(&with_lines(&format!("{first}\n{second}")));
            let key = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
            assert_eq!(reported, [format!("a task cannot have both `{}` and `{}`", key(first), key(second))]);
        }
    }
    assert_eq!(problems(&with_lines("join = \"any\"")), ["this task has nothing to do"]);
    assert_eq!(problems(&with_lines("kind = \"any\"")), ["`kind` must be \"join\", not \"any\""]);
}

#[test]
fn bytes_that_are_no_text_are_reported_with_their_place() {
    assert_eq!(text_of("ü".as_bytes()), Ok("ü"));
    let defect = text_of(b"name = \"\xc3\x28\"").unwrap_err();
    assert_eq!(
        (defect.problem.as_str(), defect.place),
        ("the text is not UTF-8: byte 8 (0xc3) begins no character", Some(8..9))
    );
    // A surrogate, and a character that is cut off.
    assert_eq!(text_of(b"ab\xed\xa0\x80").unwrap_err().place, Some(2..3));
    assert_eq!(text_of("ab€".as_bytes().split_last().unwrap().1).unwrap_err().place, Some(2..3));
    assert!(text_of(b"\xff\xfe[\0").unwrap_err().problem.contains("byte 0 (0xff)"));
}

#[test]
fn strange_texts_in_values_are_shown_harmlessly() {
    let reported = refused(&with_lines("agent = \"b\"\n\"a\\u001b[31m\\u202e\" = 1\njoin = \"\\u0007\""));
    assert!(!reported.contains(['\u{1b}', '\u{7}', '\u{202e}']) && reported.contains("\\u{1b}[31m"), "{reported}");
    for unfit in ["\\ud800", "\\u{41}", "\u{0}", "\u{7f}"] {
        let reported = problems(&with_lines(&format!("agent = \"{unfit}\"")));
        assert!(
            matches!(&*reported, [problem] if problem.contains("invalid") || problem.contains("expected")),
            "{unfit:?}: {reported:?}"
        );
    }
}

#[test]
fn tasks_nest_32_levels_deep() {
    let nested = |levels: usize| {
        let mut text = "[workflow]\nname = \"w\"\n".to_owned();
        for level in 1..=levels {
            let header = "tasks.".repeat(level);
            text += &format!("[[workflow.{}]]\nname = \"t{level}\"\n", header.trim_end_matches('.'));
        }
        text + "agent = \"a\"\n"
    };
    assert!(parse(&nested(32)).is_ok());
    assert_eq!(problems(&nested(33)), ["tasks stand in tasks more than 32 levels deep here"]);
    let bracketed = |levels: usize| {
        let open: String = (1..levels).map(|level| format!("[{{ name = \"t{level}\", tasks = ")).collect();
        let text = format!("{open}[{{ name = \"t\", agent = \"a\" }}]{}", "}]".repeat(levels - 1));
        format!("[workflow]\nname = \"w\"\ntasks = {text}\n")
    };
    // A bracket, a brace and a key for each.
    assert!(parse(&bracketed(26)).is_ok());
    assert_eq!(problems(&bracketed(27)), ["keys and brackets are nested more than 80 levels deep here"]);
}

#[test]
fn keys_and_brackets_nest_80_levels_deep() {
    let too_deep = ["keys and brackets are nested more than 80 levels deep here"];
    // `workflow`, `tasks` and `input` are levels too.
    let arrays = |levels: usize| format!("agent = \"b\"\ninput = {}{}", "[".repeat(levels), "]".repeat(levels));
    assert!(parse(&with_lines(&arrays(77))).is_ok());
    for levels in [78, 10_000, 200_000] {
        assert_eq!(problems(&with_lines(&arrays(levels))), too_deep, "{levels}");
    }
    let dotted = |levels: usize| format!("agent = \"b\"\ninput{} = 1", ".a".repeat(levels));
    assert!(parse(&with_lines(&dotted(77))).is_ok());
    for levels in [78, 10_000, 200_000] {
        assert_eq!(problems(&with_lines(&dotted(levels))), too_deep, "{levels}");
        assert_eq!(problems(&format!("[a.a.a{}]", ".a".repeat(levels))), too_deep, "{levels}");
    }
    // Each bracket has a path of its own: the depth of the tree would be the product of both.
    let path = ["a"; 40].join(".");
    let both = format!("{} b = 1 {}", format!("{{ {path} = ").repeat(70), "}".repeat(70));
    assert_eq!(problems(&with_lines(&format!("input = {{ a = {both} }}"))), too_deep);
    // Siblings do not nest.
    let wide = "{ a = [1, { b.c = 2 }], d.e = [[]] },\n".repeat(1_000);
    assert!(parse(&with_lines(&format!("agent = \"b\"\ninput = [{wide}]"))).is_ok());
}

#[test]
fn a_text_of_a_mebibyte_is_read_and_a_longer_one_is_refused() {
    let mut text = "[workflow]\nname = \"w\"\ntasks = [\n".to_owned();
    let mut count = 0;
    while text.len() < MAX_TEXT - 40 {
        text += &format!("{{name=\"n{count}\",agent=\"a\"}},");
        count += 1;
    }
    text.push(']');
    assert_eq!(parse(&text).unwrap().nodes.len(), count);
    let long = text + &" ".repeat(41);
    assert_eq!(problems(&long), ["the text has more than 1048576 bytes"]);
    assert!(refused(&long).len() < 200);
}

#[test]
fn there_are_65536_tables_at_most() {
    let problem = ["there are more than 65536 headers, inline tables and dots in keys up to here"];
    let inline = |tables: usize| with_lines(&format!("agent = \"b\"\ninput = [{}]", "{a=1},".repeat(tables)));
    // Two headers and a dot come before.
    assert!(parse(&inline(65_533)).is_ok());
    assert_eq!(problems(&inline(65_534)), problem);
    assert_eq!(problems(&"[[a]]\n".repeat(65_537)), problem);
    let dotted = "{a.b.c.d.e.f.g.h.i=1},".repeat(10_000);
    assert_eq!(problems(&with_lines(&format!("agent = \"b\"\ninput = [{dotted}]"))), problem);
}

#[test]
fn of_a_million_defects_a_hundred_are_reported_and_the_rest_is_counted() {
    let pieces = [
        "=\n", "]\n", "[", "{", "a=", "a.", "\"", "a=1\n", "[a]\n", "a=[\n", "a={\n", "[a\n", "a=00\n", "a=[=]\n",
        "{},", "\u{0}",
    ];
    for piece in pieces {
        let text = piece.repeat(MAX_TEXT / 4 / piece.len());
        let list = parse(&text).unwrap_err();
        assert!(!list.is_empty() && list.len() <= 101, "{piece:?}: {}", list.len());
    }
    let list = parse(&format!("[workflow]\nname = \"w\"\ntasks = [{}]", "{},".repeat(10_000))).unwrap_err();
    assert_eq!((list.len(), list[100].problem.as_str()), (101, "too many defects to show: 19900 more"));
}

const PIECE: &str = "[\\[\\]{}=.,\"'#\n a-c0-9_\\\\é\u{0}-]{0,6}";

proptest! {
    #[test]
    fn no_text_is_read_in_panic_and_every_place_is_in_it(
        cuts in prop::collection::vec((0..EVERYTHING.len(), 0..40_usize, PIECE), 1..4),
    ) {
        let mut text = EVERYTHING.to_owned();
        for (start, length, piece) in cuts {
            let start = text.floor_char_boundary(start.min(text.len()));
            let end = text.floor_char_boundary((start + length).min(text.len()));
            text.replace_range(start..end, &piece);
        }
        if let Err(list) = parse(&text) {
            prop_assert!(!list.is_empty());
            for place in list.iter().filter_map(|defect| defect.place.clone()) {
                prop_assert!(text.get(place.clone()).is_some(), "{place:?}");
            }
            shown(&text, list);
        }
    }
}
