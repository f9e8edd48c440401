use std::collections::BTreeSet;

use callboard::messages::{Answer, Outcome, Refusal};
use proptest::prelude::*;
use serde_json::json;

use super::*;

const PAGE: &str = include_str!("../../../../../docs/process-agents.md");

/// The examples below a heading of the page.
fn examples(heading: &str) -> Vec<&'static str> {
    let start = PAGE.find(heading).unwrap() + heading.len();
    let part = PAGE[start..].split("\n### ").next().unwrap();
    let blocks = part.split("```json\n").skip(1).map(|block| block.split("```").next().unwrap());
    blocks.flat_map(str::lines).collect()
}

fn type_of(line: &str) -> String {
    let value: Value = serde_json::from_str(line).unwrap();
    value["type"].as_str().unwrap().to_owned()
}

fn json_of(message: &OutgoingLine<'_>) -> Value {
    let mut line = message.line().unwrap();
    assert_eq!(line.pop(), Some(b'\n'));
    serde_json::from_slice(&line).unwrap()
}

#[test]
fn the_page_shows_every_line_of_callboard_as_it_is_written() {
    let agent = |name| AgentName::new(name).unwrap();
    let (counter, lead) = (agent("counter"), agent("lead"));
    let chain = Chain::default().add_step(&lead, &counter, "count the words");
    let text = Json::from("to be or not to be");
    let earlier = EarlierAnswer {
        to: "finder".into(),
        body: "find a text".into(),
        answer: Answer { outcome: Outcome::Finished, output: text.clone() },
    };
    let turn = TurnLine {
        id: "00000000-0000-0000-0000-000000000000/2",
        attempt: 1,
        agent: &counter,
        task: "count the words",
        input: &text,
        state: json!({ "messages": ["hello"] }).into(),
        previous_agent: Some(&lead),
        chain: &chain,
        trace: TraceId(uuid::Uuid::nil()),
        traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned(),
        tracestate: None,
        deadline_ms: Some(1_767_225_600_000),
        earlier_answers: vec![AnswerLine::from(&earlier)],
        is_tainted: false,
        authority: vec![Effect::Reads, Effect::Notes],
        conversation: vec![Message::user("hello"), Message::Assistant { text: "Hello!".into(), calls: Vec::new() }],
    };
    let (value, error) =
        (Json::from(json!({ "to": 2, "be": 2 })), "the delegation to editor did not finish: failed: no ink");
    let error = format!("terminal error: {error}");
    let messages = [
        OutgoingLine::Hello { protocol: VERSION, agent: &counter },
        OutgoingLine::Turn(Box::new(turn)),
        OutgoingLine::Go { id: 1 },
        OutgoingLine::Result { id: 2, value: &value },
        OutgoingLine::Failed { id: 3, kind: Unmet::NotFinished, error: &error, output: Some(&Json::null()) },
    ];
    let shown: Vec<Value> =
        examples("### What callboard writes").into_iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(messages.iter().map(json_of).collect::<Vec<_>>(), shown);
}

#[test]
fn the_page_has_an_example_of_every_line_of_a_process_and_all_are_understood() {
    let examples = examples("### What the process writes");
    let mut shown = BTreeSet::new();
    for line in examples {
        let kind = type_of(line);
        if kind == "ready" {
            assert_eq!(read_ready(line.as_bytes()), Ok(VERSION));
        } else {
            read(line.as_bytes()).unwrap();
        }
        shown.insert(kind);
    }
    // The error about an unknown type lists all known ones.
    let refused = read(br#"{"type":"?"}"#).unwrap_err().to_string();
    let known = refused.split('`').skip(3).step_by(2).map(str::to_owned).chain(["ready".to_owned()]);
    assert_eq!(known.collect::<BTreeSet<_>>(), shown, "{refused}");
    assert_eq!(shown.len(), 20);
}

/// One word for one thing: `finished` is an outcome, of runs and of delegations; the work of a step is done.
#[test]
fn the_page_names_the_outcomes_of_delegations_as_those_of_runs_are_named() {
    let turn = &PAGE[PAGE.find("`outcome` is how each of those delegations ended: ").unwrap()..];
    let named = turn.split('`').skip(3).step_by(2).take(5).collect::<Vec<_>>();
    let (error, reason) = (String::new(), String::new());
    let outcomes = [
        Outcome::Finished,
        Outcome::Failed { error },
        Outcome::Refused(Refusal::HandoffsOff),
        Outcome::Denied { reason: reason.clone() },
        Outcome::Cancelled { reason },
    ];
    assert_eq!(named, outcomes.each_ref().map(Outcome::name));
    for line in examples("### What the process writes").into_iter().chain(examples("### What callboard writes")) {
        let kind = type_of(line);
        assert!(!kind.contains("finish") && !kind.contains("complete"), "{kind}");
    }
}

fn command(line: &str) -> Command {
    match read(line.as_bytes()).unwrap() {
        IncomingMessage::TurnEnd(turn, Ending::Command(command)) => {
            assert_eq!(turn, "r/1");
            *command
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_command_is_read_as_it_is_meant() {
    assert_eq!(command(r#"{"type":"command","turn":"r/1"}"#), Command::new());
    let null = command(r#"{"type":"command","turn":"r/1","output":null,"goto":null}"#);
    assert_eq!(null, Command::output(Json::null()));
    let all = r#"{"type":"command","turn":"r/1","output":1,"update":{"a":[1]},"overwrite":{"b":2},"goto":"x","scope":"parent"}"#;
    assert_eq!(command(all), Command::output(1).with("a", json!([1])).overwrite("b", 2).goto("x").to_parent());
    let many = command(r#"{"type":"command","turn":"r/1","goto":[{"to":"end","input":null}],"keeps_edges":true}"#);
    let mut expected = Command::new().goto_many([SendTo::new("end", Json::null())]);
    expected.keeps_edges = true;
    assert_eq!(many, expected);
    assert_eq!(command(r#"{"type":"command","turn":"r/1","goto":"end"}"#), Command::new().end());
}

#[test]
fn an_entry_that_must_not_be_there_differs_from_one_that_may() {
    let expected = |line: &str| match read(line.as_bytes()).unwrap() {
        IncomingMessage::Request(7, Request::Context(Entry::Set { expected, .. })) => expected,
        other => panic!("{other:?}"),
    };
    assert_eq!(expected(r#"{"type":"context_set","id":7,"key":"k","value":"v"}"#), None);
    assert_eq!(expected(r#"{"type":"context_set","id":7,"key":"k","value":"v","if_revision":null}"#), Some(None));
    assert_eq!(expected(r#"{"type":"context_set","id":7,"key":"k","value":"v","if_revision":3}"#), Some(Some(3)));
}

#[test]
fn what_is_wrong_with_a_line_is_reported_and_the_line_is_shown() {
    for (line, why) in [
        ("Traceback (most recent call last):", "it is no JSON object: column 1: expected value"),
        ("", "it is no JSON object: column 0: EOF"),
        ("[1]", "it is no JSON object; the line is \"[1]\""),
        ("{}", "missing field `type`"),
        (r#"{"type":"mark","source":"a page"}"#, "`mark` is called `taint`"),
        (r#"{"type":"stop"}"#, "unknown variant `stop`, expected one of `step`, `step_done`, `delegate`"),
        (
            r#"{"type":"step","id":1,"nam":"x"}"#,
            "unknown field `nam`, expected one of `id`, `name`, `class`, `target`, `arguments`, `on_unknown`, `tool`",
        ),
        (r#"{"type":"step","id":1}"#, "missing field `name`"),
        (r#"{"type":"step","id":"a","name":"x"}"#, "invalid type: string \"a\", expected u64"),
        (r#"{"type":"step","id":-1,"name":"x"}"#, "invalid value: integer `-1`, expected u64"),
        (r#"{"type":"command","turn":"r/1","goto":7}"#, "`goto` is a name, \"end\", or a list"),
        (r#"{"type":"command","turn":"r/1","goto":[{"to":"a"}]}"#, "`goto`: missing field `input`"),
        (r#"{"type":"command","output":1}"#, "missing field `turn`"),
        (r#"{"type":"delegate","id":1,"to":"a","body":"b","sees":"some"}"#, "`sees` is \"none\", \"all\", or a list"),
        (r#"{"type":"error","turn":"r/1"}"#, "an error has a `text`"),
        (r#"{"type":"step","id":1,"id":2,"name":"x"}"#, "the key \"id\" is repeated; keep one of them"),
        (r#"{"type":"step_done","id":1,"value":[{"a":{"b":1,"b":1}}]}"#, "the key \"b\" is repeated; keep one of them"),
        (r#"{"type":"error","turn":"r/1","text":"x","of":1}"#, "an error has a `text`"),
    ] {
        let error = read(line.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(why), "{line}: {error}");
        assert!(error.contains(&format!("the line is {}", quoted(line))), "{line}: {error}");
    }
    let deceiving = format!("\u{1b}[31m{}", "x".repeat(1_000_000));
    let error = read(deceiving.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("\\u{1b}[31mxxx") && error.len() < 400, "{error}");
    let long = format!(r#"{{"type":"{}"}}"#, "x".repeat(1_000_000));
    assert!(read(long.as_bytes()).unwrap_err().to_string().len() < 1_000);
}

#[test]
fn a_first_line_of_another_version_may_hold_what_it_likes() {
    for version in [1, 3] {
        let line = format!(r#"{{"type":"ready","protocol":{version},"names":["a"]}}"#);
        assert_eq!(read_ready(line.as_bytes()), Ok(version));
    }
    for (line, why) in [
        (r#"{"type":"ready","protocol":2,"names":["a"]}"#, "unknown field `names`, expected `type` or `protocol`"),
        (r#"{"type":"mark","source":"a page"}"#, "`mark` is called `taint`"),
        (r#"{"type":"ready"}"#, "as the number `protocol`"),
        (r#"{"type":"ready","protocol":"1"}"#, "as the number `protocol`"),
        (r#"{"type":"step","id":1,"name":"x"}"#, "the first line has to be of type `ready`"),
        ("ready", "it is no JSON object"),
    ] {
        let error = read_ready(line.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(why), "{line}: {error}");
    }
}

#[test]
fn long_texts_are_cut_and_marked_as_cut() {
    let line = json!({ "type": "notice", "text": "é".repeat(5_000) }).to_string();
    let Ok(IncomingMessage::Notice(text)) = read(line.as_bytes()) else { panic!("it is no notice") };
    assert_eq!(text, format!("{}… (5000 characters)", "é".repeat(4_096)));
}

/// Lines that almost follow the protocol.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let lines = prop::sample::select(examples("### What the process writes"));
    (lines, any::<prop::sample::Index>(), any::<u8>(), 0_usize..4).prop_map(|(line, place, byte, how)| {
        let mut line = line.as_bytes().to_vec();
        let place = place.index(line.len());
        match how {
            0 => line[place] = byte,
            1 => line.insert(place, byte),
            2 => line.truncate(place),
            _ => drop(line.remove(place)),
        }
        line
    })
}

proptest! {
    #[test]
    fn no_line_makes_the_reader_panic(bytes in prop_oneof![any::<Vec<u8>>(), damaged()]) {
        for error in [read(&bytes).err(), read_ready(&bytes).err()].into_iter().flatten() {
            let shown = error.to_string();
            prop_assert!(!shown.chars().any(char::is_control), "{}", shown);
            prop_assert!(shown.len() < 8_000);
        }
    }
}
