use std::fmt::Write as _;
use std::time::Duration;

use callboard_documents::Defects;
use insta::assert_snapshot;
use proptest::prelude::*;

use super::steps::MAX_NESTING;
use super::*;
use crate::messages::{Condition, JoinPolicy, On};
use crate::workflow::draft::{EdgeDraft, Node, RepeatDraft, WorkDraft};
use crate::workflow::graph::MAX_NODES;

fn read(text: &str) -> Draft {
    parse(text).unwrap_or_else(|defects| panic!("{}", shown(text, defects)))
}

fn shown(text: &str, list: Vec<Defect>) -> String {
    Defects::of("flow", Some(text), list).to_string()
}

fn refused(text: &str) -> String {
    shown(text, parse(text).unwrap_err())
}

/// A line for each node, with its predecessors.
fn graph(text: &str) -> String {
    fn add(lines: &mut String, nodes: &[Node], indent: usize) {
        for node in nodes {
            let edge = |edge: &EdgeDraft| {
                let on = if edge.on == On::Failure { " failed" } else { "" };
                let when = match edge.when.as_ref().map(|when| &when.value) {
                    Some(Condition::Expression(expression)) => format!(" if {expression}"),
                    Some(Condition::Predicate(name)) => format!(" if predicate {name}"),
                    Some(Condition::NotPredicate(name)) => format!(" if not predicate {name}"),
                    None => String::new(),
                };
                format!("{}{on}{when}", edge.from.value)
            };
            let after: Vec<String> = node.after.iter().map(edge).collect();
            let join = match node.join.value {
                JoinPolicy::All => String::new(),
                JoinPolicy::AtLeast(count) => format!(" at least {count}"),
                JoinPolicy::Settled => " settled".to_owned(),
            };
            let sign = if after.is_empty() { "" } else { " <- " };
            let made = if matches!(node.work, WorkDraft::Join) { " (join)" } else { "" };
            let _ = writeln!(lines, "{}{}{made}{sign}{}{join}", " ".repeat(indent), node.name.value, after.join(", "));
            if let WorkDraft::Nodes { nodes, .. } = &node.work {
                add(lines, nodes, indent + 2);
            }
        }
    }
    let mut lines = String::new();
    add(&mut lines, &read(text).nodes, 0);
    lines
}

/// The draft without positions.
fn without_places(draft: &Draft) -> String {
    let shown = format!("{draft:?}");
    let mut parts = shown.split("place: Some(");
    let first = parts.next().unwrap().to_owned();
    parts.fold(first, |text, part| text + "place: None" + part.split_once(')').unwrap().1)
}

/// The formatted text, after a check that it parses to the same plan.
fn formatted(text: &str) -> String {
    let draft = read(text);
    let formatted = format(&draft).unwrap_or_else(|| panic!("it has no text: {text}\n{}", graph(text)));
    assert_eq!(without_places(&read(&formatted)), without_places(&draft), "{text}\n{formatted}");
    assert_eq!(format(&read(&formatted)).as_ref(), Some(&formatted));
    formatted
}

#[test]
fn a_sequence_has_an_edge_from_each_node_to_the_next() {
    let draft = read(r#"analyze(agent="code-analyzer") -> review(agent="code-reviewer")"#);
    let [analyze, review] = draft.nodes.as_slice() else { panic!("{draft:?}") };
    assert_eq!(draft.name, Placed::made("workflow".to_owned()));
    assert_eq!(analyze.name, Placed::at("analyze".to_owned(), 0..7));
    assert_eq!(analyze.work, WorkDraft::Agent(Placed::at("code-analyzer".to_owned(), 14..29)));
    assert_eq!(review.after, [EdgeDraft { from: analyze.name.clone(), on: On::Success, when: None }]);
    assert_eq!(&review.work, &WorkDraft::Agent(Placed::at("code-reviewer".to_owned(), 47..62)));
    assert_eq!(read("a").nodes[0].work, WorkDraft::Agent(Placed::at("a".to_owned(), 0..1)));
}

#[test]
fn an_arrow_binds_tighter_than_a_bar_and_brackets_bind_tightest() {
    assert_snapshot!(graph("a | b -> c"), @r"
    a
    b
    c <- b
    ");
    assert_snapshot!(graph("a -> (b -> c | d) -> e"), @r"
    a
    b <- a
    c <- b
    d <- a
    e <- c, d
    ");
    assert_snapshot!(graph("(a -> b) -> (c)"), @r"
    a
    b <- a
    c <- b
    ");
}

#[test]
fn a_policy_is_that_of_what_follows_the_group() {
    assert_snapshot!(graph("any(a, b -> c) -> d"), @r"
    a
    b
    c <- b
    d <- a, c at least 1
    ");
    assert_snapshot!(graph("at_least(2, a, b, c) -> d -> settled(e, f) -> g"), @r"
    a
    b
    c
    d <- a, b, c at least 2
    e <- d
    f <- d
    g <- e, f settled
    ");
}

#[test]
fn a_join_is_made_where_one_node_is_needed() {
    assert_snapshot!(graph("(a | b) -> (c | d)"), @r"
    a
    b
    join_1 (join) <- a, b
    c <- join_1
    d <- join_1
    ");
    assert_snapshot!(graph("a -> any(b, (c | d))"), @r"
    a
    b <- a
    c <- a
    d <- a
    join_1 (join) <- c, d
    join_2 (join) <- b, join_1 at least 1
    ");
    assert_snapshot!(graph("join_1 -> (a | b) -> (join_1_ | c) -> merge: join -> (d | e) -> (f | g)"), @r"
    join_1
    a <- join_1
    b <- join_1
    join_1__ (join) <- a, b
    join_1_ <- join_1__
    c <- join_1__
    merge (join) <- join_1_, c
    d <- merge
    e <- merge
    join_3 (join) <- d, e
    f <- join_3
    g <- join_3
    ");
}

#[test]
fn one_arm_is_taken_and_what_follows_joins_both() {
    assert_snapshot!(graph(r#"a -> if("x > 1") { b } else { c -> d } -> e"#), @r"
    a
    b <- a if x > 1
    c <- a if not (x > 1)
    d <- c
    e <- b, d
    ");
    assert_snapshot!(graph(r#"a -> if("x > 1") { b } -> c"#), @r"
    a
    b <- a if x > 1
    c <- b, a if not (x > 1)
    ");
    assert_snapshot!(graph(r#"a -> if("x > 1") { b }"#), @r"
    a
    b <- a if x > 1
    join_1 (join) <- b, a if not (x > 1)
    ");
    assert_snapshot!(graph(r#"if(predicate("is ready")) { a | b } else if("y") { c } else { d } -> e"#), @r"
    join_1 (join)
    a <- join_1 if predicate is ready
    b <- join_1 if predicate is ready
    join_2 (join) <- a, b
    join_3 (join) <- join_1 if not predicate is ready
    c <- join_3 if y
    d <- join_3 if not (y)
    join_4 (join) <- c, d
    e <- join_2, join_4
    ");
}

#[test]
fn a_catch_stands_in_for_a_node_that_failed() {
    assert_snapshot!(graph("fetch catch { use_cache -> log } -> parse"), @r"
    fetch
    use_cache <- fetch failed
    log <- use_cache
    parse <- fetch, log
    ");
    assert_snapshot!(graph("steps: { a -> b } catch { undo }"), @r"
    steps
      a
      b <- a
    undo <- steps failed
    ");
}

#[test]
fn blocks_have_names_of_their_own_or_made_ones() {
    let text = r#"loop(until="ok", max=5) { a } -> files: map(over="p.output.files") { b | c } -> block { d } -> loop(max=2) { e }"#;
    assert_snapshot!(graph(text), @r"
    loop_1
      a
    files <- loop_1
      b
      c
    block_1 <- files
      d
    loop_2 <- block_1
      e
    ");
}

#[test]
fn every_key_is_read() {
    let text = r#"workflow "code-review":
        # A comment -> with everything.
        a(workflow="other", input={"a key": [1, -2.5, true, null], text: "{{ x }}"}, when=predicate("p"), attempts=3,
          timeout="90s", compensate="undo", interrupt="before", goto=["fix", back("a", 3)], save="notes", over="xs", max=9,)
        -> fix(until="state.ok", max=4, at_max="stop", timeout=7)
        -> b: block(output="{{ c.output }}", timeout="1500ms") { c(max=3) }"#;
    let draft = read(text);
    assert_eq!(draft.name, Placed::at("code-review".to_owned(), 9..22));
    let [a, fix, b] = draft.nodes.as_slice() else { panic!("{draft:?}") };
    assert!(matches!(&a.work, WorkDraft::Workflow(name) if name.value == "other"));
    assert_eq!(a.input.as_ref().unwrap().value, serde_json::json!({"text": "{{ x }}", "a key": [1, -2.5, true, null]}));
    assert_eq!(
        &text[a.input.as_ref().unwrap().place.clone().unwrap()],
        r#"{"a key": [1, -2.5, true, null], text: "{{ x }}"}"#
    );
    assert_eq!(a.when.as_ref().unwrap().value, Condition::Predicate("p".into()));
    assert_eq!(a.attempts.as_ref().unwrap().value, 3);
    assert_eq!(a.timeout.as_ref().unwrap().value, Duration::from_secs(90));
    assert_eq!(a.compensation.as_ref().unwrap().value, "undo");
    assert!(a.is_interrupted);
    assert_eq!(a.saves.as_ref().unwrap().value, "notes");
    let targets = a.goto.iter().map(|goto| (goto.to.value.as_str(), goto.max.as_ref().map(|max| max.value)));
    assert_eq!(targets.collect::<Vec<_>>(), [("fix", None), ("a", Some(3))]);
    assert!(
        matches!(&a.repeat, Some(RepeatDraft::Map { over, max: Some(max) }) if over.value == "xs" && max.value == 9)
    );
    assert!(matches!(&fix.repeat, Some(RepeatDraft::Loop { until: Some(_), ends_at_max: true, .. })));
    assert_eq!(fix.timeout.as_ref().unwrap().value, Duration::from_secs(7));
    assert!(matches!(&b.work, WorkDraft::Nodes { output: Some(_), nodes } if nodes[0].repeat.is_some()));
    assert_snapshot!(formatted(text), @r#"
    workflow "code-review":
    a(
      workflow="other",
      over="xs",
      max=9,
      when=predicate("p"),
      attempts=3,
      timeout="90s",
      compensate="undo",
      interrupt="before",
      save="notes",
      goto=["fix", back("a", 3)],
      input={"a key": [1, -2.5, true, null], text: "{{ x }}"}
    )
      -> fix(until="state.ok", max=4, at_max="stop", timeout="7s")
      -> b: block(timeout="1500ms", output="{{ c.output }}") { c(max=3) }
    "#);
}

#[test]
fn a_text_is_formatted_on_one_line_if_it_fits() {
    assert_snapshot!(formatted(r#"analyze(agent="code-analyzer")->review( agent = "code-reviewer", )"#), @r#"analyze(agent="code-analyzer") -> review(agent="code-reviewer")"#);
    assert_snapshot!(formatted("(a|b)->(all(c,d->e)|any(f,g))  "), @r"(a | b) -> ((c | d -> e) | any(f, g))");
    assert_snapshot!(formatted(r#"a -> if("x") { (b) } else { if(predicate("y")) { c } else { d } } # why"#), @r#"a -> if("x") { b } else if(predicate("y")) { c } else { d }"#);
    assert_snapshot!(formatted("workflow w: x: block() { a catch { loop(max=3) { join -> b } } }"), @r"
    workflow w:
    x: { a catch { loop(max=3) { join -> b } } }
    ");
    assert_snapshot!(formatted(r#"a(input="\u{1b}\u{202e}ü\"\\\n\t")"#), @r#"a(input="\u{1b}\u{202e}ü\"\\\n\t")"#);
}

#[test]
fn a_long_text_is_broken_over_lines() {
    let text = r#"workflow "code review": plan(agent="planner", input="Plan the work on {{ input.issue }} and name the files")
        -> files: map(over="plan.output.files", max=100) { check(agent="checker", input="{{ item }}") catch { skip } }
        -> any(research(agent="the fast researcher") -> summary, interview(agent="the thorough interviewer") | read | ask)
        -> if("state.score > 3") { publish(agent="publisher", compensate="withdraw", timeout="30s", attempts=3, when="state.is_open") } else { drop }"#;
    assert_snapshot!(formatted(text), @r#"
    workflow "code review":
    plan(agent="planner", input="Plan the work on {{ input.issue }} and name the files")
      -> files: map(over="plan.output.files", max=100) {
        check(agent="checker", input="{{ item }}") catch { skip }
      }
      -> any(
        research(agent="the fast researcher") -> summary,
        interview(agent="the thorough interviewer") | read | ask
      )
      -> if("state.score > 3") {
        publish(
          agent="publisher",
          when="state.is_open",
          attempts=3,
          timeout="30s",
          compensate="withdraw"
        )
      } else { drop }
    "#);
}

#[test]
fn what_the_syntax_cannot_say_has_no_text() {
    let none = |change: fn(&mut Draft)| {
        let mut draft = read("a -> b -> c");
        change(&mut draft);
        assert_eq!(format(&draft), None, "{draft:?}");
    };
    none(|draft| draft.description = Some("d".to_owned()));
    none(|draft| draft.output = Some(Placed::made("o".into())));
    none(|draft| draft.nodes[1].name.value = "b-b".to_owned());
    none(|draft| draft.nodes[1].name.value = "join".to_owned());
    none(|draft| draft.nodes[2].name.value = "a".to_owned());
    none(|draft| draft.nodes[1].timeout = Some(Placed::made(Duration::from_nanos(1))));
    none(|draft| draft.nodes.clear());
    none(|draft| draft.nodes.swap(0, 1));
    none(|draft| draft.nodes[0] = draft.nodes[0].clone().after("c"));
    none(|draft| draft.nodes[1] = draft.nodes[1].clone().after("nobody"));
    none(|draft| draft.nodes[2] = draft.nodes[2].clone().after("a"));
    none(|draft| draft.nodes[1].input = Some(Placed::made(nested_list(100))));
    none(|draft| draft.nodes[1].input = Some(Placed::made(nested_list(1_000))));
}

fn nested_list(depth: usize) -> serde_json::Value {
    (0..depth).fold(serde_json::Value::Null, |inner, _| vec![inner].into())
}

#[test]
fn an_error_shows_the_place_and_what_to_do() {
    assert_snapshot!(refused("a -> b c -> (d e)"), @r"
    flow:1:8: no `->` or `|` before `c`
      |
    1 | a -> b c -> (d e)
      |        ^
      advice: write `->` between steps that follow each other, and `|` between those side by side

    flow:1:16: no `->` or `|` before `e`
      |
    1 | a -> b c -> (d e)
      |                ^
      advice: write `->` between steps that follow each other, and `|` between those side by side
    ");
    assert_snapshot!(refused("a -> (b | (c -> d"), @r"
    flow:1:6: this `(` is not closed
      |
    1 | a -> (b | (c -> d
      |      ^
      advice: write a `)` where it ends

    flow:1:11: this `(` is not closed
      |
    1 | a -> (b | (c -> d
      |           ^
      advice: write a `)` where it ends
    ");
    assert_snapshot!(refused("a -> (b | {c) -> d]"), @r"
    flow:1:11: this `{` is not closed
      |
    1 | a -> (b | {c) -> d]
      |           ^
      advice: write a `}` where it ends

    flow:1:19: this `]` closes nothing
      |
    1 | a -> (b | {c) -> d]
      |                   ^
      advice: remove it, or write a `[` before it
    ");
    assert_snapshot!(refused(r#"a(agnet="x", agent=reviewer, attempts="3", timeout="3 days", goto="b", interrupt="after")"#), @r#"
    flow:1:3: there is no key `agnet` here; did you mean "agent"?
      |
    1 | a(agnet="x", agent=reviewer, attempts="3", timeout="3 days", goto="b", interrupt="after")
      |   ^^^^^
      advice: the keys are `agent`, `workflow`, `over`, `until`, `max`, `at_max`, `input`, `when`, `attempts`, `timeout`, `compensate`, `interrupt`, `goto`, `save`

    flow:1:20: `reviewer` is no value
      |
    1 | a(agnet="x", agent=reviewer, attempts="3", timeout="3 days", goto="b", interrupt="after")
      |                    ^^^^^^^^
      advice: write it in double quotes: "reviewer"

    flow:1:39: this is not a number
      |
    1 | a(agnet="x", agent=reviewer, attempts="3", timeout="3 days", goto="b", interrupt="after")
      |                                       ^^^
      advice: write a whole number, without quotes

    flow:1:52: this is not a time
      |
    1 | a(agnet="x", agent=reviewer, attempts="3", timeout="3 days", goto="b", interrupt="after")
      |                                                    ^^^^^^^^
      advice: write "500ms", "30s", "5m", "2h", "7d", or a number of seconds

    flow:1:67: this is not a list of nodes
      |
    1 | a(agnet="x", agent=reviewer, attempts="3", timeout="3 days", goto="b", interrupt="after")
      |                                                                   ^^^
      advice: write goto=["later", back("earlier", 3)], with how often it may be begun in all

    flow:1:82: this is not a choice that there is
      |
    1 | a(agnet="x", agent=reviewer, attempts="3", timeout="3 days", goto="b", interrupt="after")
      |                                                                                  ^^^^^^^
      advice: write "before"
    "#);
    assert_snapshot!(refused(r#"a(agent="x", workflow="y", when=3, max=-1, save={a: 1, a: back("b")}, input={a: 1, a: f()})"#), @r#"
    flow:1:14: `workflow` is one too many
      |
    1 | a(agent="x", workflow="y", when=3, max=-1, save={a: 1, a: back("b")}, input={a: 1, a: f()})
      |              ^^^^^^^^
      advice: a node has one agent or one workflow, and each key once

    flow:1:33: this is not a condition
      |
    1 | a(agent="x", workflow="y", when=3, max=-1, save={a: 1, a: back("b")}, input={a: 1, a: f()})
      |                                 ^
      advice: write "state.score > 3" or predicate("name")

    flow:1:40: this is not a number that it can have
      |
    1 | a(agent="x", workflow="y", when=3, max=-1, save={a: 1, a: back("b")}, input={a: 1, a: f()})
      |                                        ^^
      advice: write a whole number up to 4294967295

    flow:1:49: this is not a text
      |
    1 | a(agent="x", workflow="y", when=3, max=-1, save={a: 1, a: back("b")}, input={a: 1, a: f()})
      |                                                 ^^^^^^^^^^^^^^^^^^^^
      advice: write it in double quotes

    flow:1:84: the key `a` is there twice
      |
    1 | a(agent="x", workflow="y", when=3, max=-1, save={a: 1, a: back("b")}, input={a: 1, a: f()})
      |                                                                                    ^
      advice: write each key of an object once

    flow:1:87: `f(…)` is no JSON
      |
    1 | a(agent="x", workflow="y", when=3, max=-1, save={a: 1, a: back("b")}, input={a: 1, a: f()})
      |                                                                                       ^^^
      advice: write a text in double quotes
    "#);
    assert_snapshot!(refused("loop { a } -> map(max=3) { b } -> c(until=\"x\") -> d(over=\"x\", until=\"y\", max=2)"), @r#"
    flow:1:1: this loop has no bound
      |
    1 | loop { a } -> map(max=3) { b } -> c(until="x") -> d(over="x", until="y", max=2)
      | ^^^^
      advice: write max=10 for at most ten iterations

    flow:1:15: this `map` has no list
      |
    1 | loop { a } -> map(max=3) { b } -> c(until="x") -> d(over="x", until="y", max=2)
      |               ^^^
      advice: write map(over="plan.output.files")

    flow:1:35: this loop has no bound
      |
    1 | loop { a } -> map(max=3) { b } -> c(until="x") -> d(over="x", until="y", max=2)
      |                                   ^
      advice: write max=10 for at most ten iterations

    flow:1:51: a node is repeated over a list or until something holds, not both
      |
    1 | loop { a } -> map(max=3) { b } -> c(until="x") -> d(over="x", until="y", max=2)
      |                                                   ^
      advice: put one into a block in the other
    "#);
    assert_snapshot!(refused("code-review => b; c"), @r#"
    flow:1:5: `-` has no meaning here
      |
    1 | code-review => b; c
      |     ^
      advice: a name has letters, digits and `_` alone; an agent's name can be given: code_review(agent="code-review")

    flow:1:13: `=>` has no meaning here
      |
    1 | code-review => b; c
      |             ^^
      advice: write `->` between steps that follow each other

    flow:1:17: `;` has no meaning here
      |
    1 | code-review => b; c
      |                 ^
      advice: write `->` between steps that follow each other, and `,` between arguments
    "#);
    assert_snapshot!(refused("a(input=\"\\q\u{7}\\u{d800}\") -> b(input=\"open\n)"), @r#"
    flow:1:10: this is no escape
      |
    1 | a(input="\q\u{7}\u{d800}") -> b(input="open
      |          ^^
      advice: there are \" \\ \n \r \t and \u{1f600} with the number of a character; a backslash is \\

    flow:1:35: this text has no `"` at its end
      |
    1 | a(input="\q\u{7}\u{d800}") -> b(input="open
      |                                       ^^^^^
      advice: write a `"` on the same line; a line break within a text is `\n`
    "#);
    assert_snapshot!(refused("a -> "), @r"
    flow:1:6: the end of the text where a step should be
      |
    1 | a -> 
      |      ^
      advice: write a node's name, or a group as (a | b)
    ");
    assert_snapshot!(refused("# nothing\n"), @r"
    flow:2:1: the end of the text where a step should be
      |
    2 | 
      | ^
      advice: write a node's name, or a group as (a | b)
    ");
    assert_snapshot!(refused("a(b | c)"), @r"
    flow:1:5: `|` where `=` should be
      |
    1 | a(b | c)
      |     ^
      advice: arguments are written key=value; a group after a node follows `->`
    ");
    assert_snapshot!(refused("any(a) -> at_least(a, b)"), @r"
    flow:1:1: a group of one branch
      |
    1 | any(a) -> at_least(a, b)
      | ^^^
      advice: write the branches with commas between them, as any(a, b -> c)

    flow:1:20: `a` where a whole number should be
      |
    1 | any(a) -> at_least(a, b)
      |                    ^
      advice: write how many branches it takes, as at_least(2, a, b, c)
    ");
    assert_snapshot!(refused("x: lop(max=3) { a }"), @r#"
    flow:1:4: `lop` is nothing that a name can stand before; did you mean "loop"?
      |
    1 | x: lop(max=3) { a }
      |    ^^^
      advice: write `loop(…) {`, `map(…) {`, `block(…) {`, `{` or `join` after the `:`
    "#);
    assert_snapshot!(refused("a -> else { b }"), @r"
    flow:1:6: `else` where a step should be
      |
    1 | a -> else { b }
      |      ^^^^
      advice: a node of this name cannot be written here; choose another
    ");
    assert_snapshot!(refused(r#"if("x") { }"#), @r#"
    flow:1:11: `}` where a step should be
      |
    1 | if("x") { }
      |           ^
      advice: write a node's name, or a group as (a | b)
    "#);
    assert_snapshot!(refused("workflow w a -> b"), @r"
    flow:1:12: `a` where `:` should be
      |
    1 | workflow w a -> b
      |            ^
      advice: write `workflow NAME:` before the first step
    ");
    assert_snapshot!(refused("all -> b"), @r"
    flow:1:5: `->` where `(` should be
      |
    1 | all -> b
      |     ^^
      advice: write what belongs to it in ( ); no node can be named by this word
    ");
    assert_snapshot!(refused("a -> b: c"), @r"
    flow:1:9: `c` is nothing that a name can stand before
      |
    1 | a -> b: c
      |         ^
      advice: write `loop(…) {`, `map(…) {`, `block(…) {`, `{` or `join` after the `:`
    ");
}

#[test]
fn hostile_texts_are_refused_within_limits() {
    let nested = |levels: usize, open: &str, close: &str| {
        let open: String = (0..levels).map(|level| open.replace('N', &level.to_string())).collect();
        format!("{open}a{}", close.repeat(levels))
    };
    for (open, close) in [
        ("(", ")"),
        ("any(bN | cN, dN ->", ")"),
        ("(bN | cN -> ", ")"),
        ("block {", "}"),
        ("bN catch {", "}"),
        ("if(\"x\") {", "}"),
    ] {
        let fits = nested(MAX_NESTING, open, close);
        formatted(&fits);
        let deep = refused(&nested(MAX_NESTING + 1, open, close));
        assert!(deep.contains("this is nested deeper than 64 levels"), "{deep}");
        let deep = refused(&nested(10_000, open, close));
        assert!(deep.contains("this is nested deeper than 64 levels"), "{deep}");
        let unclosed = refused(&open.repeat(MAX_TEXT / open.len()));
        let reported = ["this is nested deeper than 64 levels", "is not closed"];
        assert!(reported.iter().any(|reported| unclosed.contains(reported)), "{unclosed}");
    }
    formatted(&format!("a(input={}1{})", "[".repeat(MAX_NESTING - 1), "]".repeat(MAX_NESTING - 1)));
    for text in [
        nested(500_000, "(", ")"),
        format!("a(input={}", "[".repeat(1_000_000)),
        format!("if(\"x\") {{ a }} {}", "else if(\"x\") { a }".repeat(50_000)),
        "a".repeat(MAX_TEXT),
        "a|".repeat(500_000),
        "a ".repeat(500_000),
        "$ ".repeat(500_000),
        "\"".repeat(1_000_000),
        "\"\\q\"".repeat(200_000),
        "(]".repeat(500_000),
        "\n\u{0}".repeat(300_000),
        "-".repeat(MAX_TEXT),
        "9".repeat(MAX_TEXT),
        "a(input=1e999)".to_owned(),
        "🦀\u{202e}\u{feff}".to_owned(),
        " ".repeat(MAX_TEXT + 1),
        format!("a(x={0}, {0}=1)", "y".repeat(400_000)),
    ] {
        let defects = parse(&text).unwrap_err();
        assert!(!defects.is_empty() && defects.len() <= super::defects::MAX_DEFECTS);
        assert!(defects.iter().all(|defect| defect.problem.len() < 1_000));
        let shown = shown(&text, defects[..1].to_vec());
        assert!(shown.len() < 2_000, "{}", shown.len());
    }
}

#[test]
fn a_text_with_the_most_nodes_is_read_and_formatted() {
    let many = |sign: &str| {
        vec!["a_name"; MAX_NODES].iter().zip(0..).map(|(name, at)| format!("{name}{at}")).collect::<Vec<_>>().join(sign)
    };
    for text in [many("->"), many("|"), format!("x catch {{ any({}) }}", many(",")).replacen("a_name1,", "", 1)] {
        assert!(format(&read(&text)).is_some());
    }
    assert!(refused(&(many("->") + "-> b")).contains("more than 10000 nodes"));
}

#[test]
fn every_example_of_the_page_is_read() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/workflow-expressions.md");
    let page = std::fs::read_to_string(page).unwrap();
    let fences =
        page.split("```").skip(1).step_by(2).filter_map(|fence| fence.strip_prefix("flow\n")).flat_map(str::lines);
    let cells = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|(cell, _)| cell));
    let cells = cells.filter(|cell| cell.contains(['{', '>'])).map(|cell| cell.replace("\\|", "|").replace('…', "a"));
    let examples: Vec<String> = fences.map(str::to_owned).chain(cells).collect();
    assert!(examples.len() > 14, "{examples:?}");
    for example in examples {
        formatted(&example);
    }
}

/// Texts of the syntax. Names are made unique afterwards.
fn texts() -> impl Strategy<Value = String> {
    let node = prop_oneof![
        4 => Just("N".to_owned()),
        1 => Just(r#"N(agent="x y", timeout="90m", goto=["a", back("b", 2)])"#.to_owned()),
        1 => Just(r#"N(workflow="w", over="xs", input=[{a: "\u{1b}"}, -0.5e-7])"#.to_owned()),
        1 => Just("N: join".to_owned()),
        1 => Just("join".to_owned()),
        1 => Just(r#"join(when=predicate("p"))"#.to_owned()),
    ];
    node.prop_recursive(5, 48, 4, |inner| {
        let several = prop::collection::vec(inner.clone(), 2..4);
        let policy = prop::sample::select(vec!["any(", "all(", "settled(", "at_least(2, "]);
        let block = prop::sample::select(vec![
            "N:",
            "block",
            "loop(max=3)",
            r#"N: loop(until="x", max=2)"#,
            r#"map(over="xs")"#,
            "N: block(attempts=2)",
        ]);
        let condition = prop::sample::select(vec![r#""x""#, r#"predicate("y")"#]);
        let arms = (condition, inner.clone(), prop::option::of(inner.clone()));
        prop_oneof![
            3 => several.clone().prop_map(|steps| steps.join(" -> ")),
            2 => several.clone().prop_map(|steps| format!("({})", steps.join(" | "))),
            1 => several.clone().prop_map(|steps| format!("{} -> N", steps.join("->"))),
            2 => (policy, several).prop_map(|(policy, steps)| format!("{policy}{})", steps.join(", "))),
            2 => (block, inner.clone()).prop_map(|(block, steps)| format!("{block} {{ {steps} }}")),
            2 => (inner.clone(), inner).prop_map(|(body, rescue)| format!("N: {{ {body} }} catch {{ {rescue} }}")),
            2 => arms.prop_map(|(condition, then, otherwise)| {
                let otherwise = otherwise.map_or(String::new(), |steps| format!(" else {{ {steps} }}"));
                format!("if({condition}) {{ {then} }}{otherwise}")
            }),
        ]
    })
    .prop_map(|text| {
        let parts: Vec<&str> = text.split('N').collect();
        parts.iter().zip(0..).fold(String::new(), |text, (part, at)| {
            let name = ["n", "join_", "loop_", "block_"][at % 4];
            if at == 0 { (*part).to_owned() } else { text + &format!("{name}{at}{part}") }
        })
    })
}

#[test]
fn branches_that_begin_with_branchings_are_distinguished_from_arms() {
    for text in [
        r#"a -> any(b, if("x") { c }) -> d"#,
        r#"a -> (b | if("x") { c })"#,
        r#"a -> (if("x") { b } | if("x") { c }) -> d"#,
        r#"a -> (if("x") { b } | if("not (x)") { c }) -> d"#,
        r#"a -> (if("x") { b } | if("y") { c } else { d }) -> e"#,
        r#"a -> if("x") { (b | c) -> d } else { (e | if("y") { f }) } -> at_least(0, g, h)"#,
    ] {
        formatted(text);
    }
}

proptest! {
    #[test]
    fn what_was_read_is_formatted_and_read_again_as_the_same(text in texts()) {
        formatted(&text);
    }

    #[test]
    fn any_text_is_read_or_refused_with_places(
        text in r#"([a-c]|->|\||[(){}\[\],:=]|"[a\\]{0,2}"?|[0-9]|if|else|any|loop|catch|max| |[^a]){0,24}"#,
    ) {
        match parse(&text) {
            Ok(draft) => drop(format(&draft)),
            Err(defects) => for defect in &defects {
                let place = defect.place.clone().unwrap();
                prop_assert!(place.start <= place.end && place.end <= text.len().max(place.start + 1));
                drop(shown(&text, defects.clone()));
            },
        }
    }

    #[test]
    fn any_graph_has_an_equivalent_text_or_none(
        edges in prop::collection::vec((0_usize..8, 0_usize..8, 0_u8..12), 0..16),
        joins in prop::collection::vec(0_u32..4, 8),
    ) {
        let mut nodes: Vec<Node> = (0..8).map(|at| match joins[at] {
            1 => Node::join(&format!("join_{at}")),
            2 => Node::agent(&format!("n{at}"), "x").any(),
            _ => Node::agent(&format!("n{at}"), "x"),
        }).collect();
        for (from, to, kind) in edges {
            let (name, node) = (nodes[from].name.value.clone(), nodes[to].clone());
            nodes[to] = match kind {
                0 => node.after_if(&name, "x"),
                1 => node.after_if(&name, "not (x)"),
                2 => node.after_failure_of(&name),
                _ => node.after(&name),
            };
        }
        let draft = Draft { name: Placed::made("w".to_owned()), nodes, ..Draft::default() };
        if let Some(text) = format(&draft) {
            prop_assert_eq!(without_places(&read(&text)), without_places(&draft));
        }
    }
}

#[test]
fn a_time_may_be_in_days() {
    let read = read(r#"a(timeout="7d")"#);
    assert_eq!(read.nodes[0].timeout.as_ref().unwrap().value, Duration::from_secs(7 * 24 * 3_600));
}
