//! Defects of a workflow are reported before anything runs: each defect with its line, and within limits whatever the text is
//! (SEMANTICS 7).

use std::fmt::Write as _;

use callboard::messages::{Reducer, visible_lines};
use callboard::workflow::{Form, Node, Source, Workflow, WorkflowBuilder};
use serde_json::Value;

/// The report about a text.
fn reported(text: &str) -> String {
    match Workflow::from_toml("flow.toml", text) {
        Ok(workflow) => panic!("nothing is wrong with it: {workflow:?}"),
        Err(defects) => defects.to_string(),
    }
}

/// A workflow whose tasks these lines are: a name, and its other keys. Without one that sets its work, it is a turn of the agent
/// `x`.
fn tasks(tasks: &[(&str, &str)]) -> String {
    let mut text = "[workflow]\nname = \"w\"\nchannels = { notes = \"append\", best = \"last_value\" }\n".to_owned();
    for (name, lines) in tasks {
        let works = ["agent =", "kind =", "tasks =", "workflow ="].iter().any(|work| lines.contains(work));
        let agent = if works { "" } else { "agent = \"x\"\n" };
        write!(text, "[[workflow.tasks]]\nname = {}\n{agent}{lines}\n", Value::from(*name)).unwrap();
    }
    text
}

const AB: &str = "depends_on = [\"a\"]\n";

/// One for each kind of defect that a name, an edge or a bound can have.
fn kinds() -> Vec<(&'static str, String)> {
    let after_a = |lines: &str| format!("{AB}{lines}");
    let ab = |lines: &str| tasks(&[("a", ""), ("b", &after_a(lines))]);
    vec![
        ("a name that is none", tasks(&[("a b", "")])),
        ("a name that templates have for themselves", tasks(&[("state", "")])),
        ("an agent without a name", tasks(&[("a", "agent = \"\"")])),
        ("an agent with a name that deceives", tasks(&[("a", "agent = \"x\u{202e}y\"")])),
        ("two of one name", tasks(&[("a", ""), ("a", "")])),
        (
            "two of one name in different levels",
            tasks(&[("a", ""), ("g", "tasks = [{ name = \"a\", agent = \"x\" }]")]),
        ),
        ("after a node that is not there", tasks(&[("alpha", ""), ("b", "depends_on = [\"alfa\"]")])),
        ("after itself", tasks(&[("a", "depends_on = [\"a\"]")])),
        ("after one twice", tasks(&[("a", ""), ("b", "depends_on = [\"a\", \"a\"]")])),
        ("a circle", tasks(&[("a", "depends_on = [\"c\"]"), ("b", AB), ("c", "depends_on = [\"b\"]")])),
        (
            "a circle by goto",
            tasks(&[
                ("a", "depends_on = [\"b\"]"),
                ("b", "goto = [\"a\"]"),
                ("c", "goto = [\"b\"]\ndepends_on = [\"a\"]"),
            ]),
        ),
        ("going back without a bound", ab("goto = [\"a\"]")),
        ("going back to what does not come before", tasks(&[("a", "goto = [{ to = \"b\", max = 2 }]"), ("b", AB)])),
        ("going back zero times", ab("goto = [{ to = \"a\", max = 0 }]")),
        ("going to a node that is not there", ab("goto = [\"bb\"]")),
        (
            "loops that overlap",
            tasks(&[
                ("a", ""),
                ("b", AB),
                ("c", "depends_on = [\"b\"]\ngoto = [{ to = \"a\", max = 2 }]"),
                ("d", "depends_on = [\"c\"]\ngoto = [{ to = \"b\", max = 2 }]"),
            ]),
        ),
        (
            "into the middle of a loop",
            tasks(&[
                ("a", ""),
                ("b", AB),
                ("o", ""),
                ("c", "depends_on = [\"b\", \"o\"]\ngoto = [{ to = \"a\", max = 2 }]"),
            ]),
        ),
        ("more than there are", ab("join = { at_least = 2 }")),
        ("at least none", ab("join = { at_least = 0 }")),
        ("nothing to join", tasks(&[("a", "join = \"any\"")])),
        ("no attempts", tasks(&[("a", "attempts = 0")])),
        ("attempts of a join", ab("kind = \"join\"\nattempts = 2")),
        ("a timeout of a group", tasks(&[("g", "tasks = [{ name = \"a\", agent = \"x\" }]\ntimeout = \"3s\"")])),
        ("an interrupt before a join", ab("kind = \"join\"\ninterrupt = \"before\"")),
        ("a loop without iterations", tasks(&[("a", "loop = { max = 0 }")])),
        ("a loop with very many", tasks(&[("a", "loop = { max = 1000001 }")])),
        ("a map over nothing that is there", tasks(&[("a", "map = { over = \"files.output\" }")])),
        ("a map without items", tasks(&[("a", "map = { over = \"input\", max = 0 }")])),
        ("a workflow that nobody knows", tasks(&[("a", "workflow = \"other\"")])),
        ("nothing within", tasks(&[("g", "tasks = []")])),
        ("a channel that is not declared", tasks(&[("a", "save = \"note\"")])),
        ("two that write one value", tasks(&[("a", "save = \"best\""), ("b", "save = \"best\"")])),
    ]
}

/// One for each kind of defect that a template or an expression can have.
fn template_kinds() -> Vec<(&'static str, String)> {
    let input =
        |template: &str| tasks(&[("a", ""), ("b", &format!("{AB}input = {}", Value::from(template))), ("c", "")]);
    let when = |expression: &str| tasks(&[("a", ""), ("b", &format!("{AB}when = {}", Value::from(expression)))]);
    let within = |name: &str| format!("tasks = [{{ name = \"{name}\", agent = \"x\" }}]");
    vec![
        ("a node that is not there", input("{{ aa.output }}")),
        ("a node that does not come before", input("{{ c.output }}")),
        ("its own output", input("{{ b.output }}")),
        ("a part that nodes have not", input("{{ a.result }}")),
        ("a channel that is not declared", input("{{ state.note }}")),
        ("an item outside of a map", input("{{ item }}")),
        ("an index outside of a map", input("{{ index }}")),
        ("an iteration outside of a loop", input("{{ iteration }}")),
        ("what was before outside of a loop", input("{{ previous }}")),
        ("a template that is not closed", input("see {{ a.output")),
        ("a block that is not closed", input("{% if a.output %}")),
        ("an expression that is none", when("a.output >")),
        ("a template where an expression is due", when("{{ a.output }}")),
        (
            "a node of which there are several",
            tasks(&[
                ("m", &format!("{}\nmap = {{ over = \"input\" }}", within("inner"))),
                ("b", "depends_on = [\"m\"]\ninput = \"{{ inner.output }}\""),
            ]),
        ),
        (
            "a node after an edge's own",
            tasks(&[("a", ""), ("c", ""), ("b", "depends_on = [{ task = \"a\", when = \"c.output\" }]")]),
        ),
        (
            "an end that reads what is not there",
            format!("{}\n", tasks(&[("a", "")])).replacen("\n", "\noutput = \"{{ b.output }}\"\n", 1),
        ),
    ]
}

fn all(kinds: &[(&str, String)]) -> String {
    kinds.iter().fold(String::new(), |all, (kind, text)| {
        let reported =
            std::panic::catch_unwind(|| reported(text)).unwrap_or_else(|_| format!("NOTHING IS REPORTED OF\n{text}"));
        format!("{all}## {kind}\n{reported}\n\n")
    })
}

#[test]
fn every_kind_of_defect_is_reported_with_its_line() {
    insta::assert_snapshot!("kinds", all(&kinds()));
}

#[test]
fn every_kind_of_defect_of_a_template_is_reported_with_its_line() {
    insta::assert_snapshot!("template_kinds", all(&template_kinds()));
}

#[test]
fn all_defects_of_a_text_are_reported_at_once() {
    let text = tasks(&[
        ("state", "attempts = 0"),
        ("a", "save = \"note\""),
        ("b", "depends_on = [\"a\"]\njoin = { at_least = 3 }\ninput = \"{{ c.output }}\""),
        ("c", "loop = { max = 0, until = \"stat.x >\" }"),
        ("d", "depends_on = [\"a\", \"a\"]\nkind = \"join\"\ninterrupt = \"before\"\ntimeout = 3"),
        ("e", "when = \"state.nowhere\"\nmap = { over = \"f.output\", max = 9999999 }"),
    ]);
    insta::assert_snapshot!("at_once", reported(&text));
}

#[test]
fn names_that_are_to_deceive_are_shown_as_what_they_are() {
    let hostile = [
        "\u{1b}[2Jclear",
        "a\u{202e}b",
        "a\u{200b}b",
        "a\nb",
        "a\0b",
        "",
        " ",
        "ａ",
        "日本",
        "{{ a }}",
        "'",
        "\"",
        "../../x",
        &"n".repeat(100_000),
    ];
    for name in hostile {
        let (quoted, origin) = (Value::from(name), name.chars().take(50).collect::<String>());
        let texts = [
            tasks(&[(name, "")]),
            tasks(&[("a", &format!("depends_on = [{quoted}]"))]),
            tasks(&[("a", &format!("save = {quoted}"))]),
            tasks(&[("a", &format!("workflow = {quoted}"))]),
            tasks(&[("a", &format!("goto = [{quoted}]"))]),
            tasks(&[("a", &format!("input = {}", Value::from(format!("{{{{ state['{name}'].x | {name} }}}}"))))]),
            tasks(&[("a", "unknown = 1")]).replace("unknown", &quoted.to_string()),
        ];
        for text in texts.iter().map(|text| text.replace("\\u001b", "\\u001B")) {
            let Err(defects) = Workflow::from_toml(&origin, &text) else { panic!("nothing is wrong with {text:?}") };
            let reported = defects.to_string();
            assert_eq!(visible_lines(&reported), reported, "{reported:?}");
            assert!(reported.len() < 20_000, "{} bytes are told", reported.len());
            for defect in defects.list() {
                assert!(defect.place.is_some(), "nowhere: {defect:?}");
            }
        }
    }
}

/// Checks of large workflows end: what is found by one that does not is a test that hangs.
fn ends<T>(what: &str, check: impl FnOnce() -> T) -> T {
    println!("{what}");
    check()
}

fn numbered(count: usize, node: impl Fn(usize, Node) -> Node) -> WorkflowBuilder {
    let plan = Workflow::builder("many").channel("best", Reducer::LastValue);
    (0..count).fold(plan, |plan, number| plan.node(node(number, Node::agent(&format!("n{number}"), "x"))))
}

fn before(number: usize) -> Option<String> {
    number.checked_sub(1).map(|before| format!("n{before}"))
}

#[test]
fn ten_thousand_nodes_are_checked_soon_whatever_they_are() {
    let after = |number: usize, node: Node| before(number).into_iter().fold(node, |node, before| node.after(&before));
    ends("a chain", || numbered(10_000, after).build().unwrap());
    ends("a row", || numbered(10_000, |_, node| node).build().unwrap());
    ends("a fan", || {
        let fan = numbered(5_000, |number, node| if number == 0 { node } else { node.after("n0") });
        let all = (1..5_000).fold(Node::join("all"), |all, number| all.after(&format!("n{number}")));
        fan.node(all).build().unwrap()
    });
    ends("a chain that writes one value", || {
        numbered(10_000, |number, node| after(number, node).saved_to("best")).build().unwrap()
    });
    ends("a chain whose end reads all", || {
        let reading = |number: usize| {
            (0..number).step_by(10).map(|other| format!("{{{{ n{other}.output }}}}")).collect::<String>()
        };
        numbered(1_000, |number, node| after(number, node).input(reading(number))).build().unwrap()
    });
    ends("a chain whose nodes read the first", || {
        numbered(10_000, |number, node| {
            let node = after(number, node);
            if number == 0 { node } else { node.input("{{ n0.output }}") }
        })
        .build()
        .unwrap()
    });
    ends("a chain of goto", || {
        let going = |number: usize, node: Node| {
            if number + 1 < 10_000 { node.may_go_to(&format!("n{}", number + 1)) } else { node }
        };
        numbered(10_000, going).build().unwrap()
    });
    ends("groups", || {
        let plan = (0..5_000).fold(Workflow::builder("many"), |plan, number| {
            plan.node(Node::nodes(&format!("g{number}"), [Node::agent(&format!("n{number}"), "x")]))
        });
        plan.build().unwrap()
    });
    let loops = |nodes: usize, loops: usize| {
        numbered(nodes, move |number, node| {
            let node = after(number, node);
            if number < loops { node.may_go_back_to(&format!("n{number}"), 2) } else { node }
        })
        .build()
    };
    ends("a chain of loops", || loops(1_000, 256).unwrap());
    let reported = ends("too many loops", || loops(10_000, 10_000).unwrap_err().to_string());
    assert!(reported.contains("go back to more than 256 nodes"), "{reported}");
}

#[test]
fn a_hundred_thousand_nodes_are_refused_soon() {
    let reported = ends("a row", || numbered(100_000, |_, node| node).build().unwrap_err().to_string());
    assert_eq!(
        reported,
        "workflow \"many\": the workflow has more than 10000 nodes\n  advice: run parts of it as workflows of their own"
    );
    let text = (0..100_000).map(|number| format!("a{number}")).collect::<Vec<_>>().join("->");
    let reported = ends("a line", || Workflow::from_line("line", &text).unwrap_err().to_string());
    assert!(reported.contains("10000") || reported.contains("10,000"), "{}", &reported[..300]);
    let row: String = (0..100_000).map(|number| format!("{{name=\"{number}\"}},")).collect();
    ends("TOML", || report_of_long(&format!("[workflow]\nname = \"w\"\ntasks = [{row}]")));
}

fn report_of_long(text: &str) {
    let reported = Workflow::from_toml("long.toml", text).unwrap_err().to_string();
    assert!(reported.len() < 100_000, "{} bytes are told", reported.len());
}

#[test]
fn nodes_within_nodes_ten_thousand_deep_are_refused_soon() {
    let deep = (0..10_000).fold(Node::agent("n", "x"), |node, level| Node::nodes(&format!("g{level}"), [node]));
    let deep = Workflow::builder("deep").node(deep);
    let reported = ends("a builder", || deep.build().unwrap_err().to_string());
    assert!(reported.contains("more than 64 levels deep"), "{reported}");
}

#[test]
fn texts_that_nest_ten_thousand_deep_are_refused_soon() {
    for (open, close) in
        [("(", ")"), ("x: {", "}"), ("loop(max=2) {", "}"), ("if(\"1\") {", "}"), ("any(a, ", ")"), ("a(input=[", "])")]
    {
        let text = [open.repeat(10_000), "a".into(), close.repeat(10_000)].concat();
        ends("a line", || Workflow::from_line("deep", &text).unwrap_err());
    }
    for (open, close) in
        [("tasks = [{", "}]"), ("tasks = ", ""), ("tasks = [", "]"), ("[[workflow.tasks", "]]"), ("a.", "")]
    {
        let text = ["[workflow]\nname = \"w\"\n", &open.repeat(10_000), &close.repeat(10_000)].concat();
        ends("TOML", || report_of_long(&text));
    }
}

#[test]
fn expressions_that_nest_thousands_deep_are_refused_soon() {
    for (open, close) in [
        ("(", ")"),
        ("[", "]"),
        ("{'a':", "}"),
        ("not ", ""),
        ("-", ""),
        ("1 if 1 else ", ""),
        ("1 + ", ""),
        ("1 ~ ", ""),
        ("1 and ", ""),
        ("1 ** ", ""),
        ("", ".a"),
        ("", "[1]"),
        ("", "|abs"),
        ("", "()"),
        ("", " is odd"),
    ] {
        let expression = [&open.repeat(4_000), "x", &close.repeat(4_000)].concat();
        ends("an expression", || {
            let node = || Node::agent("a", "x");
            for node in [node().when(&expression), node().input(format!("{{{{ {expression} }}}}."))] {
                let reported = Workflow::builder("deep").node(node).build().unwrap_err().to_string();
                assert!(
                    reported.contains("an expression has more than 500 signs, names and texts"),
                    "{open}1{close}: {reported}"
                );
            }
        });
    }
    for block in
        ["{% if 1 %}", "{% for a in [1] %}", "{% set a %}", "{% macro m() %}", "{% with %}", "{% filter upper %}"]
    {
        let node = Node::agent("a", "x").input(["{% if 1 %}", &block.repeat(4_000)].concat());
        let reported = ends("a block", || Workflow::builder("deep").node(node).build().unwrap_err().to_string());
        let why = ["template exceeds maximum recursion limits", "at most 65536 are allowed", "unknown statement macro"];
        assert!(why.iter().any(|why| reported.contains(why)), "{block}: {reported}");
    }
}

#[test]
fn values_that_nest_too_deep_for_a_journal_are_refused() {
    let deep = |text: &str| (0..500).fold(Value::from(text), |value, _| Value::Array(vec![value]));
    for text in ["{{ x }}", "x"] {
        let reported = |workflow: WorkflowBuilder| ends("a value", || workflow.build().unwrap_err().to_string());
        let as_input = reported(Workflow::builder("deep").node(Node::agent("a", "x").input(deep(text))));
        assert!(as_input.contains("nests deeper"), "{as_input}");
        let as_output = reported(Workflow::builder("deep").node(Node::agent("a", "x")).output(deep(text)));
        assert!(as_output.contains("nests deeper"), "{as_output}");
    }
}

#[test]
fn thousands_of_unknown_names_are_reported_in_time() {
    let text = tasks(&(0..9_000).map(|_| ("a", "depends_on = [\"nobody\"]")).collect::<Vec<_>>());
    let numbered = text.lines().enumerate().map(|(number, line)| match line {
        "name = \"a\"" => format!("name = \"n{number}\"\n"),
        "depends_on = [\"nobody\"]" => format!("depends_on = [\"m{number}\"]\n"),
        other => format!("{other}\n"),
    });
    let text: String = numbered.collect();
    let reported = ends("9,000 names that nobody has", || reported(&text));
    assert!(
        reported.contains("no node is named \"m6\"") && reported.contains("too many defects to show: 8900 more"),
        "{reported}"
    );
}

#[test]
fn a_workflow_with_defects_that_is_named_again_and_again_is_reported_once() {
    let outer = (0..9_000).map(|number| format!("a{number}(workflow=\"inner\")")).collect::<Vec<_>>().join(" -> ");
    let source = |origin: &str, text: String| Source { origin: origin.into(), bytes: text.into(), form: Form::Line };
    let texts = [
        source("outer", format!("workflow outer: {outer}")),
        source("inner", "workflow inner: x(input=\"{{ nobody.output }}\")".to_owned()),
    ];
    let read = ends("9,000 names of one with defects", || Workflow::reader().all(&texts));
    let reported = read[0].as_ref().unwrap_err();
    let problems: Vec<&str> = reported.list().iter().map(|defect| &*defect.problem).collect();
    assert_eq!(problems, ["the workflow \"inner\" has defects of its own"]);
}

#[test]
fn schemas_that_would_take_all_memory_or_never_end_are_refused() {
    let schema = |schemas: &str| {
        format!(
            "[workflow]\nname = \"w\"\n[workflow.channels]\n{schemas}\n[[workflow.tasks]]\nname = \"a\"\nagent = \"x\"\n"
        )
    };
    let doubled = |level: usize| {
        format!(
            "a{level} = {{ allOf = [{{ \"$ref\" = \"#/$defs/a{0}\" }}, {{ \"$ref\" = \"#/$defs/a{0}\" }}] }}",
            level + 1
        )
    };
    let levels: Vec<String> = (0..40).map(doubled).collect();
    let doubling = format!(
        "x = {{ schema = {{ \"$ref\" = \"#/$defs/a0\", \"$defs\" = {{ {}, a40 = {{ type = \"string\" }} }} }} }}",
        levels.join(", ")
    );
    let reported_of = ends("references that double", || reported(&schema(&doubling)));
    assert!(reported_of.contains("its references come to more than 10000 schemas"), "{reported_of}");
    let large = schema(r#"x = { schema = { pattern = "(\\w{100}){40}" } }"#);
    assert!(ends("a large pattern", || reported(&large)).contains("the schema of \"x\" cannot be used"));
    let many: Vec<String> =
        (0..2_000).map(|number| format!("x{number} = {{ schema = {{ pattern = \"a{number}\" }} }}")).collect();
    let reported_of = ends("many patterns", || reported(&schema(&many.join("\n"))));
    assert!(reported_of.contains("the schemas of the channels have more than 256 patterns"), "{reported_of}");
    let named = r##"x = { schema = { "$ref" = "#name" } }"##;
    assert!(reported(&schema(named)).contains("or lead to no path in it"));
    let link = |level: usize| format!("a{level} = {{ \"$ref\" = \"#/$defs/a{}\" }}", level + 1);
    let links: Vec<String> = (0..10_000).map(link).collect();
    // From its end on, each link leads to what is known already.
    let from_the_end =
        (0..100).map(|step| format!("p{step:02} = {{ \"$ref\" = \"#/$defs/a{}\" }}", 9_900 - step * 100));
    let from_the_end: Vec<String> = from_the_end.collect();
    let chain = format!(
        "x = {{ schema = {{ properties = {{ {} }}, \"$defs\" = {{ {}, a10000 = {{ type = \"string\" }} }} }} }}",
        from_the_end.join(", "),
        links.join(", ")
    );
    let reported_of = ends("a chain of references", || reported(&schema(&chain)));
    assert!(reported_of.contains("128 levels"), "{reported_of}");
    let tree = r##"x = { schema = { properties = { left = { "$ref" = "#" }, right = { "$ref" = "#" } } } }"##;
    Workflow::from_toml("tree", &schema(tree)).unwrap();
}
