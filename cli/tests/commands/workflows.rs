//! `callboard workflow check|run|resume|history|fork`: real processes, with programs as agents.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::orders::{ORDER, Orders};
use crate::support::{
    CALLBOARD, Printed, assert_visible, callboard, folder_with, for_each_wrong_entry, make_pipe, output_of, short,
    write,
};

const REVIEW: &str = r#"
[workflow]
name = "code-review"

[workflow.channels]
notes = "append"

[[workflow.tasks]]
name = "analyze"
agent = "analyzer"
input = "{{ source_code }}"
save = "notes"

[[workflow.tasks]]
name = "review"
agent = "reviewer"
depends_on = ["analyze"]

[[workflow.tasks]]
name = "publish"
agent = "publisher"
depends_on = ["review"]
interrupt = "before"
"#;

/// `callboard workflow ARGUMENTS` in the folder.
fn command(folder: &Path, arguments: &[&str]) -> Command {
    crate::support::command(folder, &[&["workflow"], arguments].concat())
}

/// Runs `callboard workflow ARGUMENTS` in the folder.
fn workflow(folder: &Path, arguments: &[&str]) -> Printed {
    output_of(command(folder, arguments))
}

/// The runs in `store`, as JSON.
fn listed(folder: &Path) -> Value {
    callboard(folder, &["runs", "list", "--json", "--data", "store"]).json()
}

/// The id of the first run in `store`.
fn first_run(folder: &Path) -> String {
    listed(folder)[0]["run"].as_str().unwrap().to_owned()
}

/// A text without what differs each time: ids, times, and the padding of tables that depends on them.
fn stable(text: &str, run: &str) -> String {
    let mut lines = Vec::new();
    for line in text.replace(run, "RUN").replace(&short(run), "RUN").lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let is_figure = |word: &str| word.parse::<f64>().is_ok();
        let shown: Vec<&str> = (0..words.len())
            .map(|at| match words.get(at + 1).map(|next| next.trim_end_matches(':')) {
                Some("s") if is_figure(words[at]) => "T",
                Some(_) | None => words[at],
            })
            .collect();
        lines.push(shown.join(" "));
    }
    let is_kept = |line: &&String| !line.starts_with("submitted");
    lines.iter().filter(is_kept).map(|line| format!("{line}\n")).collect()
}

#[test]
fn a_check_reports_every_defect_of_every_workflow_with_its_place() {
    let folder = folder_with(&[
        ("review.toml", REVIEW),
        ("bad.toml", &REVIEW.replace("[\"analyze\"]", "[\"analize\"]").replace("code-review", "bad")),
        ("outer.flow", "workflow outer: plan -> sub(workflow=\"inner\")"),
        ("inner.flow", "workflow inner: a | b"),
        ("one.flow", "workflow one: x(workflow=\"two\")"),
        ("two.flow", "workflow two: x(workflow=\"one\")"),
        ("hostile.toml", "[workflow]\nname = \"\u{202e}red\u{7}\"\n"),
    ]);
    let whole = workflow(folder.path(), &["check", "."]);
    assert_eq!(whole.code, Some(2));
    assert_visible(&whole.error);
    assert_visible(&whole.out);
    insta::assert_snapshot!("check", format!("{}---\n{}", whole.out, whole.error));
    let beside = workflow(folder.path(), &["check", "outer.flow"]);
    assert_eq!((beside.code, &*beside.out), (Some(0), "outer.flow: outer: 4 nodes; agents plan, a, b\n"));
    let json = workflow(folder.path(), &["check", "bad.toml", "--json"]).json();
    assert_eq!((&json[0]["defects"][0]["line"], &json[0]["defects"][0]["column"]), (&json!(17), &json!(15)), "{json}");
}

#[test]
fn entries_that_are_not_files_of_a_folder_of_workflows_are_left_out_with_a_warning() {
    let folder = folder_with(&[("secret", "root:C4N4RY:1")]);
    let flows = folder.path().join("flows");
    write(&flows, "one.flow", "workflow one: a");
    write(&flows, "two.flow", "workflow two: x(workflow=\"three\")");
    let (odd, secret) = (flows.join("odd.flow"), folder.path().join("secret"));
    for_each_wrong_entry(&odd, &secret, |case, problem| {
        for (command, code, warns) in [
            (&["check", "flows"][..], 2, true),
            (&["check", "flows/two.flow"], 2, true),
            (&["check", "flows/one.flow"], 0, false),
        ] {
            let printed = workflow(folder.path(), command);
            let text = format!("{}{}", printed.out, printed.error);
            assert_eq!(printed.code, Some(code), "{case}, {command:?}: {text}");
            let is_named = text.contains("flows/odd.flow") && text.contains(problem);
            assert_eq!(is_named, warns, "{case}, {command:?}: {text}");
            assert!(!text.contains("C4N4RY"), "{case}, {command:?}: {text}");
        }
    });
    fs::write(flows.join("real.toml.txt"), "workflow three: c").unwrap();
    std::os::unix::fs::symlink("real.toml.txt", flows.join("three.flow")).unwrap();
    let printed = workflow(folder.path(), &["check", "flows/two.flow"]);
    assert_eq!(printed.code, Some(0), "a link within the folder is read: {}{}", printed.out, printed.error);
    fs::remove_file(flows.join("two.flow")).unwrap();
    fs::remove_file(flows.join("three.flow")).unwrap();
    fs::create_dir(&odd).unwrap();
    let printed = workflow(folder.path(), &["draw", "flows"]);
    let warning = "warning: the workflow of flows/odd.flow is left out: it is no regular file";
    assert!(printed.code == Some(0) && printed.error.contains(warning), "{}{}", printed.out, printed.error);
}

#[test]
fn a_workflow_in_one_line_is_checked_and_formatted() {
    let folder = folder_with(&[("a.flow", "x->y"), ("review.toml", REVIEW), ("readme.txt", "x")]);
    let output = |arguments: &[&str], code: i32| {
        let printed = workflow(folder.path(), arguments);
        assert_eq!(printed.code, Some(code), "{arguments:?}: {}", printed.error);
        format!("{}{}", printed.out, printed.error)
    };
    assert_eq!(output(&["check", "--line", "a  ->(b|c )->d", "--format"], 0), "a -> (b | c) -> d\n");
    assert_eq!(output(&["check", "a.flow", "--format"], 0), "x -> y\n");
    assert!(output(&["check", "--line", "a -> b("], 2).contains("--line:1:7: this `(` is not closed"));
    assert!(output(&["check", "--line", "a -> b(", "--format"], 2).contains("is not closed"));
    assert!(output(&["check", "review.toml", "--format"], 2).contains("only the one-line syntax"));
    assert!(output(&["check", "missing.toml"], 2).contains("missing.toml: No such file"));
    assert!(output(&["check", "readme.txt"], 2).contains("a workflow is in a file *.toml"));
    output(&["check"], 2);
    let mut piped = command(folder.path(), &["check", "-"]);
    piped.stdin(fs::File::open(folder.path().join("a.flow")).unwrap());
    assert_eq!(output_of(piped).out, "standard input: workflow: 2 nodes; agents x, y\n");
}

#[test]
fn a_workflow_is_saved_as_the_next_version_of_its_name_unless_it_is_the_same() {
    let changed = REVIEW.replace("\"reviewer\"", "\"checker\"");
    let folder = folder_with(&[("review.toml", REVIEW), ("changed.toml", &changed)]);
    let save = |line: &[&str]| workflow(folder.path(), &[&["save"], line, &["--store", "store"]].concat());
    let versions = |name| workflow(folder.path(), &["versions", name, "--store", "store"]);
    let all = |json: &[&str]| workflow(folder.path(), &[&["versions", "--store", "store"], json].concat());
    assert_eq!(versions("code-review").code, Some(3));
    for (line, printed) in [
        (&["review.toml"][..], "code-review is saved as version 1\n"),
        (&["review.toml"], "code-review is saved as version 1\n"),
        (&["changed.toml"], "code-review is saved as version 2\n"),
    ] {
        let saved = save(line);
        assert_eq!((saved.code, saved.out.as_str(), saved.error.as_str()), (Some(0), printed, ""));
    }
    assert_eq!(save(&["review.toml", "--json"]).json(), json!({ "name": "code-review", "version": 3 }));
    assert_eq!(versions("code-review").out, "code-review: 3 versions, the latest is 3\n");
    assert_eq!(all(&[]).out, "code-review: 3 versions, the latest is 3\n");
    assert_eq!(all(&["--json"]).json(), json!({ "workflows": [{ "name": "code-review", "version": 3 }] }));
    let none = versions("other");
    assert_eq!((none.code, none.error.as_str()), (Some(3), "error: no workflow other is saved in this store\n"));
    let bad = save(&["--line", "a -> "]);
    assert!(bad.code == Some(2) && bad.error.contains("--line:1:"), "{}", bad.error);
}

#[test]
fn programs_read_their_input_and_print_their_output() {
    let folder = folder_with(&[("review.toml", REVIEW), ("source.rs", "fn main() {}\n")]);
    let output = |arguments: &[&str]| {
        let printed = workflow(folder.path(), &[&["run", "--ephemeral"], arguments].concat());
        assert_eq!((printed.code, &*printed.error), (Some(0), ""), "{arguments:?}");
        printed.out
    };
    assert_eq!(output(&["--line", "a -> b", "--input-json", "\"x\"", "--agent", "*=cat; echo !"]), "x!!\n");
    assert_eq!(
        output(&["--line", "a", "--input", "n=72", "--input", "t=yes", "--agent", "a=cat"]),
        "{\n  \"n\": 72,\n  \"t\": \"yes\"\n}\n"
    );
    assert_eq!(
        output(&["--line", "a(input=\"{{ code }}\")", "--input", "code=@source.rs", "--agent", "a=cat; echo"]),
        "fn main() {}\n\n"
    );
    let sends = format!("a='{CALLBOARD}' send b 'look here' --wait");
    let delegates = ["--line", "a -> b", "--input-json", "\"x\"", "--agent", &sends, "--agent", "b=cat"];
    assert_eq!(output(&delegates), "look here\n", "by the socket of its turn");
    assert_eq!(output(&["--line", "a", "--agent", "a=printf '[1, 2]'"]), "[\n  1,\n  2\n]\n");
    assert_eq!(output(&["--line", "a", "--agent", "a=true"]), "\n");
    let named = output(&[
        "--line",
        "n: loop(max=1) { a }",
        "--agent",
        "a=echo $CALLBOARD_AGENT $CALLBOARD_NODE $CALLBOARD_TURN",
    ]);
    assert_eq!(named, "a n#1/a 1\n");
    let saved = REVIEW.replace("interrupt = \"before\"", "");
    fs::write(folder.path().join("review.toml"), saved).unwrap();
    let state = ["--agent", "*=cat", "--agent", "publisher=cat $CALLBOARD_STATE"];
    assert_eq!(
        output(&[&["review.toml", "--input", "source_code=x", "--json"], &state[..]].concat())
            .matches("\"notes\"")
            .count(),
        2
    );
    // A program need not read its input, whatever its length.
    fs::write(folder.path().join("long"), "x".repeat(1 << 20)).unwrap();
    assert_eq!(output(&["--line", "a", "--input", "x=@long", "--agent", "a=echo done"]), "done\n");
}

#[test]
fn missing_inputs_and_agents_are_reported_with_the_options_to_add() {
    let folder = folder_with(&[("review.toml", REVIEW)]);
    let refused = |arguments: &[&str], why: &str| {
        let printed = workflow(folder.path(), &[&["run"], arguments].concat());
        assert_eq!((printed.code, &*printed.out), (Some(2), ""), "{arguments:?}");
        assert!(printed.error.contains(why), "{arguments:?}: {}", printed.error);
        assert!(!folder.path().join("store").exists());
    };
    refused(
        &["review.toml", "--store", "store"],
        "the input lacks source_code; give it as in --input source_code=TEXT",
    );
    let given = ["review.toml", "--input", "source_code=x", "--agent", "analyzer=cat"];
    refused(
        &given,
        "no program is given for 2 agents; add\n  --agent reviewer='COMMAND'\n  --agent publisher='COMMAND'\n",
    );
    refused(&[&given[..], &["--agent", "reviewr=cat"]].concat(), "the workflow has no agent reviewr; it has analyzer");
    refused(&[&given[..], &["--agent", "analyzer=wc"]].concat(), "--agent is given twice for analyzer");
    refused(&["--line", "a -> b("], "is not closed");
    refused(&["--line", "a", "--input", "x=1", "--input", "x=2"], "--input is given twice for x");
    refused(&["--line", "a(when=predicate(\"is_open\"))", "--agent", "a=cat"], "which is not registered");
}

#[test]
fn a_program_that_fails_fails_its_node_with_the_end_of_its_standard_error() {
    let folder = folder_with(&[]);
    let failed = |arguments: &[&str]| {
        let printed = workflow(folder.path(), &[&["run", "--ephemeral"], arguments].concat());
        assert_eq!((printed.code, &*printed.out), (Some(1), ""), "{arguments:?}");
        printed.error
    };
    let once = ["--limits", "{\"attempts\": 1}", "--line", "a"];
    let error = failed(&[&once[..], &["--agent", "a=echo oh >&2; echo no >&2; exit 3"]].concat());
    assert_eq!(error, "error: failed: node a: `echo oh >&2; echo no >&2; exit 3` exited with status 3:\noh\nno\n");
    assert!(failed(&["--line", "a", "--agent", "a=no-such-program"]).contains("terminal error"));
    assert!(failed(&["--line", "a", "--agent", "a=yes"]).contains("printed more than 8 MiB"));
    assert!(failed(&["--line", "a", "--agent", "a=printf '\\377'"]).contains("is not UTF-8"));
    let caught = workflow(
        folder.path(),
        &["run", "--line", "a catch { b }", "--agent", "a=exit 127", "--agent", "b=echo saved"],
    );
    assert_eq!((caught.code, &*caught.out), (Some(0), "saved\n"));
}

#[test]
fn watch_prints_each_event_of_each_node() {
    let folder = folder_with(&[]);
    let text = "plan -> loop(max=2) { draft } -> flaky -> (ok | hang)";
    let arguments = [
        "run",
        "--line",
        text,
        "--watch",
        "--store",
        "store",
        "--agent",
        "*=printf '%s' \"$CALLBOARD_NODE\"",
        "--agent",
        "flaky=test $CALLBOARD_ATTEMPT = 2 || { echo not yet >&2; echo really >&2; exit 1; }",
        "--agent",
        "ok=exit 127",
        "--agent",
        // It runs until it is cancelled.
        "hang=tail -f /dev/null",
    ];
    let printed = workflow(folder.path(), &arguments);
    assert_eq!((printed.code, &*printed.out), (Some(1), ""), "{}", printed.error);
    let shown = stable(&printed.error, &first_run(folder.path()));
    insta::assert_snapshot!("watch", shown);
}

#[test]
fn a_node_that_waits_for_a_person_ends_the_process_and_is_resumed_by_another() {
    let folder = folder_with(&[("review.toml", REVIEW)]);
    let path = folder.path();
    let agents = ["--agent", "*=cat", "--agent", "reviewer=cat; echo '; it'\\''s fine'"];
    let run =
        [&["run", "review.toml", "--input", "source_code=fn main() {}", "--store", "store"], &agents[..]].concat();
    let printed = workflow(path, &run);
    assert_eq!((printed.code, &*printed.out), (Some(5), ""));
    let id = first_run(path);
    insta::assert_snapshot!("waits", stable(&printed.error, &id));
    insta::assert_snapshot!("history_waiting", stable(&workflow(path, &["history", &id, "--store", "store"]).out, &id));

    let resume =
        |arguments: &[&str]| workflow(path, &[&["resume", &id, "--store", "store"], &agents[..], arguments].concat());
    let unknown = resume(&["--node", "publsh"]);
    assert_eq!(unknown.code, Some(3));
    assert!(unknown.error.contains("node publsh does not wait for a person; these wait: publish"), "{}", unknown.error);
    let wrong = resume(&["--set", "note=1"]);
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.error.contains("unknown channel \"note\""), "{}", wrong.error);
    let changed = resume(&["--node", "publish", "--input", "\"better\"", "--set", "notes=[\"by ann\"]", "--watch"]);
    assert_eq!((changed.code, &*changed.out), (Some(0), "better\n"), "{}", changed.error);
    let again = resume(&[]);
    assert_eq!((again.code, &*again.out), (Some(0), "better\n"));
    assert_eq!(again.error, format!("run {} has ended already\n", short(&id)));
    let history = workflow(path, &["history", &id, "--store", "store", "--json"]).json();
    let states: Vec<&Value> = (0..3).map(|turn| &history["checkpoints"][turn]["state"]).collect();
    let first = json!({ "notes": ["fn main() {}"] });
    assert_eq!(states, [&first, &first, &json!({ "notes": ["by ann"] })]);
}

#[test]
fn an_ephemeral_run_that_waits_cannot_be_continued() {
    let folder = folder_with(&[]);
    let printed =
        workflow(folder.path(), &["run", "--line", "a(interrupt=\"before\")", "--agent", "a=cat", "--ephemeral"]);
    assert_eq!(printed.code, Some(5));
    assert!(
        printed.error.ends_with("the run cannot be continued: --ephemeral stores nothing of it\n"),
        "{}",
        printed.error
    );
    let printed = workflow(
        folder.path(),
        &["run", "--line", "a(interrupt=\"before\")", "--agent", "a=cat", "--json", "--ephemeral"],
    );
    let waits = printed.json();
    assert_eq!(
        (&waits["waits_for"][0]["node"], &waits["to_continue"]),
        (&json!("a"), &Value::Null),
        "{}",
        printed.error
    );
}

#[test]
fn a_fork_runs_from_its_node_to_the_end_and_does_not_change_the_original() {
    let folder = folder_with(&[]);
    let path = folder.path();
    let agents = ["--agent", "*=echo $CALLBOARD_AGENT >> log; cat; printf ' %s' $CALLBOARD_AGENT"];
    let run = [&["run", "--line", "a -> b -> c", "--input-json", "\"x\"", "--store", "store"], &agents[..]].concat();
    assert_eq!(workflow(path, &run).out, "x a b c\n");
    let id = first_run(path);
    let fork =
        |arguments: &[&str]| workflow(path, &[&["fork", &id, "--store", "store"], &agents[..], arguments].concat());
    let forked = fork(&["--node", "b", "--input", "\"y\""]);
    assert_eq!((forked.code, &*forked.out), (Some(0), "y b c\n"), "{}", forked.error);
    assert!(forked.error.contains(&format!("forked from {} at turn 2", short(&id))), "{}", forked.error);
    assert_eq!(fork(&["--turn", "3"]).out, "x a b c\n");
    assert_eq!(fs::read_to_string(path.join("log")).unwrap(), "a\nb\nc\nb\nc\nc\n");
    assert_eq!(fork(&["--turn", "9"]).code, Some(3));
    assert_eq!(fork(&["--node", "d"]).code, Some(3));
    assert_eq!(fork(&[]).code, Some(2));
    let history = workflow(path, &["history", &id, "--store", "store", "--json"]).json();
    assert_eq!(history["result"]["output"], "x a b c");
}

#[test]
fn finished_nodes_do_not_run_again_after_the_process_was_killed() {
    let folder = folder_with(&[]);
    let path = folder.path();
    let agents = [
        "--agent",
        "*=echo $CALLBOARD_AGENT >> log; cat; printf ' %s' $CALLBOARD_AGENT",
        "--agent",
        &format!("b={ORDER} echo b >> log; test -e killed || {{ touch killed; order kill; }}; cat; printf ' b'"),
    ];
    let orders = Orders::taken_in(path);
    let run = [&["run", "--line", "a -> b -> c", "--input-json", "\"x\"", "--store", "store"], &agents[..]].concat();
    let killed = workflow(path, &run);
    assert_eq!(killed.code, None, "{}", killed.error);
    drop(orders);
    let resumed = workflow(path, &[&["resume", &first_run(path), "--store", "store"], &agents[..]].concat());
    assert_eq!((resumed.code, &*resumed.out), (Some(0), "x a b c\n"), "{}", resumed.error);
    assert_eq!(fs::read_to_string(path.join("log")).unwrap(), "a\nb\nb\nc\n");
}

#[test]
fn resuming_a_run_does_not_change_other_runs_of_its_store() {
    let folder = folder_with(&[]);
    let path = folder.path();
    let wait = |agent: &str| {
        let line = format!("{agent}(interrupt=\"before\")");
        workflow(path, &["run", "--line", &line, "--store", "store", "--agent", "*=cat"]).code
    };
    assert_eq!((wait("a"), wait("b")), (Some(5), Some(5)));
    let before = listed(path);
    let second = before[1]["run"].as_str().unwrap();
    let resumed = workflow(path, &["resume", second, "--store", "store", "--agent", "b=echo done"]);
    assert_eq!((resumed.code, &*resumed.out), (Some(0), "done\n"), "{}", resumed.error);
    assert_eq!(listed(path)[0], before[0]);
}

#[test]
fn the_first_ctrl_c_lets_programs_end_and_leaves_nodes_that_have_not_begun() {
    let folder = folder_with(&[]);
    let path = folder.path();
    // The first program has the signal sent to the process that runs it, and ends once that has reported it.
    let _orders = Orders::taken_in(path);
    let agents = [
        "--agent",
        "*=echo $CALLBOARD_AGENT >> log; cat",
        "--agent",
        &format!("a={ORDER} echo a >> log; order interrupt; until grep -q stopping log.err; do :; done; cat"),
    ];
    let run = [&["run", "--line", "a -> b", "--input-json", "\"x\"", "--store", "store"], &agents[..]].concat();
    let mut stopped = command(path, &run);
    let status = stopped.stderr(fs::File::create(path.join("log.err")).unwrap()).status().unwrap();
    assert_eq!(status.code(), Some(130));
    let errors = fs::read_to_string(path.join("log.err")).unwrap();
    assert!(
        errors.contains(&format!("to continue: callboard workflow resume {}", short(&first_run(path)))),
        "{errors}"
    );
    let resumed = workflow(path, &[&["resume", &first_run(path), "--store", "store"], &agents[..]].concat());
    assert_eq!((resumed.code, &*resumed.out), (Some(0), "x\n"), "{}", resumed.error);
    assert_eq!(fs::read_to_string(path.join("log")).unwrap(), "a\nb\n");
}

/// A program that has the process that runs it interrupted twice, and does not end by itself.
fn stop() -> String {
    format!("{ORDER} order interrupt; until grep -q stopping log.err; do :; done; order interrupt; tail -f /dev/null")
}

#[test]
fn a_program_that_is_stopped_ends_with_the_processes_that_it_has_started() {
    let folder = folder_with(&[]);
    let path = folder.path();
    make_pipe(path.join("held"));
    let held = || {
        let held = path.join("held");
        // The read ends when no process holds the pipe open.
        std::thread::spawn(move || fs::read(held).unwrap())
    };
    let reader = held();
    let hang = "exec 3> held; tail -f /dev/null & ";
    let program = format!("a={hang} tail -f /dev/null");
    let late = workflow(path, &["run", "--line", "a(timeout=\"50ms\", attempts=1)", "--agent", &program]);
    assert_eq!(late.code, Some(1), "{}", late.error);
    reader.join().unwrap();

    let reader = held();
    let _orders = Orders::taken_in(path);
    let program = format!("a={hang}{}", stop());
    let mut stopped = command(path, &["run", "--line", "a", "--agent", &program]);
    let status = stopped.stderr(fs::File::create(path.join("log.err")).unwrap()).status().unwrap();
    assert_eq!(status.code(), Some(130));
    reader.join().unwrap();
}

#[test]
fn a_node_that_was_stopped_is_drawn_as_open() {
    let folder = folder_with(&[]);
    let path = folder.path();
    let _orders = Orders::taken_in(path);
    let program = format!("a={}", stop());
    let mut stopped =
        command(path, &["run", "--line", "a -> b", "--agent", &program, "--agent", "b=cat", "--store", "store"]);
    let status = stopped.stderr(fs::File::create(path.join("log.err")).unwrap()).status().unwrap();
    assert_eq!(status.code(), Some(130));
    for (picture, open, running) in
        [("--mermaid", "a<br/>open", "running"), ("--svg", ">open</text>", ">running</text>")]
    {
        let drawn = workflow(path, &["draw", picture, "--line", "a -> b", "--run", "@last", "--store", "store"]);
        assert!(drawn.out.contains(open) && !drawn.out.contains(running), "{} {}", drawn.out, drawn.error);
    }
}

#[test]
fn a_program_that_has_ended_is_not_waited_for_while_its_orphans_hold_its_output() {
    let folder = folder_with(&[]);
    // The orphan holds both streams of its output.
    let agent = "a=echo ran >> ran; echo hello; sleep 1000 & exit 0";
    let printed = workflow(folder.path(), &["run", "--line", "a", "--agent", agent, "--ephemeral"]);
    assert_eq!((printed.code, &*printed.out), (Some(0), "hello\n"), "{}", printed.error);
    assert_eq!(fs::read_to_string(folder.path().join("ran")).unwrap(), "ran\n");
}

#[test]
fn a_workflow_is_drawn_with_the_node_states_of_a_run() {
    let folder = folder_with(&[("review.toml", REVIEW)]);
    let drawn = workflow(folder.path(), &["draw", "review.toml"]);
    assert_eq!(drawn.code, Some(0), "{}", drawn.error);
    insta::assert_snapshot!("drawn", drawn.out);
    let run = ["run", "review.toml", "--input", "source_code=x", "--agent", "*=cat", "--store", "store", "--no-input"];
    assert_eq!(workflow(folder.path(), &run).code, Some(5));
    let id = first_run(folder.path());
    let drawn = workflow(folder.path(), &["draw", "review.toml", "--svg", "--run", &id, "--store", "store"]);
    assert_eq!(drawn.code, Some(0), "{}", drawn.error);
    assert!(drawn.out.starts_with("<svg") && drawn.out.contains("finished") && drawn.out.contains("interrupted"));
    let drawn = workflow(folder.path(), &["draw", "review.toml", "--run", &id, "--store", "store"]);
    insta::assert_snapshot!("drawn_with_states", drawn.out);
    let wrong = workflow(folder.path(), &["draw", "--line", "a -> a"]);
    assert_eq!((wrong.code, wrong.out.as_str()), (Some(2), ""));
}

const BOOKING: &str = r#"
[workflow]
name = "booking"

[workflow.channels]
log = "append"

[[workflow.tasks]]
name = "room"
agent = "worker"
save = "log"
compensate = "undo"

[[workflow.tasks]]
name = "car"
agent = "worker"
depends_on = ["room"]
save = "log"
compensate = "undo"

[[workflow.tasks]]
name = "pay"
agent = "payer"
depends_on = ["car"]
"#;

#[test]
fn compensated_nodes_are_visible_in_every_view_of_a_run() {
    let folder = folder_with(&[("booking.toml", BOOKING)]);
    let path = folder.path();
    let agents = ["--agent", "worker=printf %s \"$CALLBOARD_NODE\"", "--agent", "undo=printf gone"];
    let run = ["run", "booking.toml", "--store", "store", "--watch", "--agent", "payer=exit 127"];
    let failed = workflow(path, &[&run, &agents[..]].concat());
    assert_eq!((failed.code, &*failed.out), (Some(1), ""), "{}", failed.error);
    let id = first_run(path);
    insta::assert_snapshot!("watch_compensation", stable(&failed.error, &id));
    let retried = workflow(path, &["retry", &id, "--store", "store", "--agent", "*=cat"]);
    assert!(retried.code == Some(2) && retried.error.contains("has compensated nodes"), "{}", retried.error);

    insta::assert_snapshot!(
        "history_compensation",
        stable(&workflow(path, &["history", &id, "--store", "store"]).out, &id)
    );
    let history = workflow(path, &["history", &id, "--store", "store", "--json"]).json();
    let of = |field: &str| -> Vec<Value> {
        history["checkpoints"].as_array().unwrap().iter().map(|turn| turn[field].clone()).collect()
    };
    let saved = |value: &str| json!([{ "channel": "log", "value": value, "overwrite": false }]);
    assert_eq!(of("wrote"), [saved("room"), saved("car"), json!(null), json!([]), json!([])]);
    let (one, both) = (json!({ "log": ["room"] }), json!({ "log": ["room", "car"] }));
    assert_eq!(of("state"), [&one, &both, &both, &both, &one].map(Clone::clone));
    assert_eq!(of("node"), ["room", "car", "pay", "car", "room"]);
    assert_eq!(of("is_compensation"), [false, false, false, true, true]);

    let runs = |arguments: &[&str]| callboard(path, &[&["runs"], arguments, &["--data", "store"]].concat());
    let shown = runs(&["show", &id]);
    assert!(shown.out.contains("compensates room; gave gone"), "{}", shown.out);
    // The state below is that of the run, and not the one that the last compensation saw.
    assert!(shown.out.contains("\"room\",\n      \"car\""), "{}", shown.out);

    let drawn = workflow(path, &["draw", "booking.toml", "--run", &id, "--store", "store"]);
    assert!(drawn.out.contains("class n0,n1 undone") && drawn.out.contains("class n2 failed"), "{}", drawn.out);

    let fork = ["fork", &id, "--node", "car", "--store", "store", "--agent", "payer=printf paid"];
    let forked = workflow(path, &[&fork, &agents[..]].concat());
    assert_eq!((forked.code, &*forked.out), (Some(0), "paid\n"), "{}", forked.error);
    let listed = listed(path);
    let other = listed.as_array().unwrap().iter().map(|run| run["run"].as_str().unwrap()).find(|run| *run != id);
    let diff = runs(&["diff", &id, other.unwrap()]).out;
    let turns = diff.split("turns\n").last().unwrap();
    assert_eq!(turns, "    turn 3 (payer): other how it ended\n  - turn 4 (undo)\n  - turn 5 (undo)\n", "{diff}");
}

#[test]
fn a_program_that_an_agent_has_started_cannot_start_or_change_runs() {
    let refused = [
        &["run", "x", "--model", "fake"][..],
        &["run", "--resume", "@last"],
        &["workflow", "run", "--line", "a"],
        &["workflow", "resume", "@last"],
        &["workflow", "fork", "@last", "--node", "a"],
        &["runs", "fork", "@last", "--turn", "1"],
        &["runs", "import", "an-export"],
        &["runs", "delete", "@last"],
        &["runs", "prune", "--older-than", "1d"],
    ];
    let folder = tempfile::tempdir().unwrap();
    for variable in ["CALLBOARD_PROCESS", "CALLBOARD_AGENT", "CALLBOARD_RUN"] {
        let run = |arguments: &[&str]| output_of(crate::support::command(&folder, arguments).env(variable, "x"));
        for arguments in refused {
            let refused = run(arguments);
            let is_named =
                refused.error.contains(variable) && refused.error.contains("have the agent delegate the task");
            assert!(refused.code == Some(4) && is_named, "{}", refused.error);
        }
        // Stores are hidden from programs with this variable.
        let is_hidden = variable == "CALLBOARD_PROCESS";
        for arguments in
            [&["runs", "list"][..], &["pending"], &["agents"], &["usage"], &["watch"], &["status", "@last"]]
        {
            let read = run(arguments);
            assert_eq!(
                read.code == Some(4) && read.error.contains("stores and servers are hidden"),
                is_hidden,
                "{}",
                read.error
            );
        }
    }
}

#[test]
fn a_run_whose_store_stops_is_named_with_the_command_line_that_continues_it() {
    let folder = folder_with(&[]);
    // The store's writes fail from now on, as on a full disk.
    let orders = Orders::taken_in(folder.path());
    let fill = &*format!("a={ORDER} order fill; printf done");
    let arguments = ["workflow", "run", "--line", "a -> b", "--store", "store", "--agent", fill, "--agent", "b=cat"];
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\"", CALLBOARD]).args(arguments);
    shell.current_dir(folder.path()).env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR")).stdin(Stdio::null());
    let printed = output_of(shell);
    drop(orders);
    assert_eq!(printed.code, Some(6), "{}", printed.error);
    assert!(printed.error.contains("the store has stopped"), "{}", printed.error);
    let id = first_run(folder.path());
    assert!(printed.error.contains(&format!("run {id} continues at the next start")), "{}", printed.error);
    let line = printed.error.lines().find_map(|line| line.strip_prefix("to continue: ")).unwrap();
    assert!(line.starts_with("callboard workflow resume ") && line.contains(&short(&id)), "{line}");
    let line = line.replacen("callboard", CALLBOARD, 1).replace("order fill;", "");
    let mut again = Command::new("sh");
    again.args(["-c", &line]).current_dir(folder.path());
    let printed = output_of(again);
    assert_eq!((printed.code, &*printed.out), (Some(0), "done\n"), "{line}: {}", printed.error);
}

#[test]
fn no_exit_status_of_many_short_programs_is_lost_while_their_orphans_are_reaped() {
    let folder = folder_with(&[]);
    let groups: Vec<String> = (0..8)
        .map(|group| {
            let nodes: Vec<String> = (0..5).map(|node| format!("n{group}x{node}")).collect();
            format!("({})", nodes.join(" | "))
        })
        .collect();
    let nodes = (0..8).flat_map(|group| (0..5).map(move |node| format!("n{group}x{node}")));
    let programs: Vec<String> =
        nodes.map(|node| format!("{node}=(true & true &); (setsid true &) >&- 2>&-; echo x")).collect();
    let line = format!("{} -> last", groups.join(" -> "));
    let mut arguments = vec![
        "run",
        "--line",
        &line,
        "--input-json",
        "1",
        "--ephemeral",
        "--limits",
        r#"{"attempts":1}"#,
        "--agent",
        "last=echo done",
    ];
    programs.iter().for_each(|program| arguments.extend(["--agent", program]));
    let printed = workflow(folder.path(), &arguments);
    assert_eq!((printed.code, &*printed.out, &*printed.error), (Some(0), "done\n", ""));
}

#[test]
fn a_lock_of_scratch_files_that_is_not_a_file_is_named_and_neither_opened_nor_followed() {
    let folder = folder_with(&[("victim", "precious")]);
    let lock = folder.path().join("state/callboard/scratch/lock");
    let victim = folder.path().join("victim");
    let odd: [&dyn Fn(); 3] = [&|| make_pipe(&lock), &|| std::os::unix::fs::symlink(&victim, &lock).unwrap(), &|| {
        fs::create_dir(&lock).unwrap()
    }];
    for make in odd {
        fs::create_dir_all(lock.parent().unwrap()).unwrap();
        make();
        let arguments = ["run", "--line", "a(attempts=1)", "--agent", "a=cat $CALLBOARD_STATE", "--ephemeral"];
        let mut run = command(folder.path(), &arguments);
        let Printed { code, error, .. } = output_of(run.env("XDG_STATE_HOME", folder.path().join("state")));
        assert_eq!(code, Some(1), "{error}");
        assert!(error.contains("scratch/lock is no regular file") && error.contains("remove it"), "{error}");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        fs::remove_dir_all(folder.path().join("state")).unwrap();
    }
}
