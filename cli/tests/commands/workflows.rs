//! `callboard workflow check|run|resume|history|fork`: real processes, real programs as agents, a real disk.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

/// What the program said, with its exit code.
struct Said {
    code: Option<i32>,
    out: String,
    error: String,
}

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

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_callboard"));
    command.env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"));
    command.arg("workflow").args(arguments).current_dir(folder).stdin(Stdio::null()).env("USER", "ann");
    command
}

/// Runs `callboard workflow ARGUMENTS` in the folder, with nothing to read.
fn workflow(folder: &Path, arguments: &[&str]) -> Said {
    said(command(folder, arguments))
}

fn said(mut command: Command) -> Said {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said { code: output.status.code(), out: text(output.stdout), error: text(output.stderr) }
}

/// The only run that the store in `store` had first.
fn first_run(folder: &Path) -> String {
    let mut list = Command::new(env!("CARGO_BIN_EXE_callboard"));
    list.env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"));
    let output = list.args(["runs", "list", "--json", "--data", "store"]).current_dir(folder).output().unwrap();
    let runs: Value = serde_json::from_slice(&output.stdout).unwrap();
    runs[0]["run"].as_str().unwrap().to_owned()
}

/// A text without what is different each time: ids, times, and what pads a table because of them.
fn same(text: &str, run: &str) -> String {
    let mut lines = Vec::new();
    for line in text.replace(run, "RUN").lines() {
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
fn a_check_tells_every_defect_of_every_text_with_its_place() {
    let folder = folder(&[
        ("review.toml", REVIEW),
        ("bad.toml", &REVIEW.replace("[\"analyze\"]", "[\"analize\"]").replace("code-review", "bad")),
        ("outer.flow", "workflow outer: plan -> sub(workflow=\"inner\")"),
        ("inner.flow", "workflow inner: a | b"),
        ("one.flow", "workflow one: x(workflow=\"two\")"),
        ("two.flow", "workflow two: x(workflow=\"one\")"),
        ("hostile.toml", "[workflow]\nname = \"\u{202e}red\u{7}\"\n"),
    ]);
    let whole = workflow(folder.path(), &["check", "."]);
    assert_eq!(whole.code, Some(1));
    let deceiving = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    assert!(!whole.error.contains(deceiving) && !whole.out.contains(deceiving), "{}", whole.error);
    insta::assert_snapshot!("check", format!("{}---\n{}", whole.out, whole.error));
    let beside = workflow(folder.path(), &["check", "outer.flow"]);
    assert_eq!((beside.code, &*beside.out), (Some(0), "outer.flow: outer: 4 nodes; agents plan, a, b\n"));
    let json = workflow(folder.path(), &["check", "bad.toml", "--json"]);
    let json: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((&json[0]["defects"][0]["line"], &json[0]["defects"][0]["column"]), (&json!(17), &json!(15)), "{json}");
}

#[test]
fn what_is_no_file_in_a_folder_of_workflows_is_left_out_with_a_warning_and_a_link_shows_nothing_from_elsewhere() {
    let folder = folder(&[("secret", "root:C4N4RY:1")]);
    let flows = folder.path().join("flows");
    fs::create_dir(&flows).unwrap();
    fs::write(flows.join("one.flow"), "workflow one: a").unwrap();
    fs::write(flows.join("two.flow"), "workflow two: x(workflow=\"three\")").unwrap();
    let (odd, secret) = (flows.join("odd.flow"), folder.path().join("secret"));
    let cases: [(&str, &dyn Fn(), &str); 4] = [
        ("fifo", &|| assert!(Command::new("mkfifo").arg(&odd).status().unwrap().success()), "no regular file"),
        ("folder", &|| fs::create_dir(&odd).unwrap(), "no regular file"),
        ("dangling", &|| std::os::unix::fs::symlink("nothing", &odd).unwrap(), "a link to nothing"),
        ("link", &|| std::os::unix::fs::symlink(&secret, &odd).unwrap(), "leads out of its folder"),
    ];
    for (case, make, problem) in cases {
        make();
        for (command, code, warns) in [
            (&["check", "flows"][..], 1, true),
            (&["check", "flows/two.flow"], 1, true),
            (&["check", "flows/one.flow"], 0, false),
        ] {
            let said = workflow(folder.path(), command);
            let text = format!("{}{}", said.out, said.error);
            assert_eq!(said.code, Some(code), "{case}, {command:?}: {text}");
            let is_named = text.contains("flows/odd.flow") && text.contains(problem);
            assert_eq!(is_named, warns, "{case}, {command:?}: {text}");
            assert!(!text.contains("C4N4RY"), "{case}, {command:?}: {text}");
        }
        if case == "folder" { fs::remove_dir(&odd).unwrap() } else { fs::remove_file(&odd).unwrap() }
    }
    fs::write(flows.join("real.toml.txt"), "workflow three: c").unwrap();
    std::os::unix::fs::symlink("real.toml.txt", flows.join("three.flow")).unwrap();
    let said = workflow(folder.path(), &["check", "flows/two.flow"]);
    assert_eq!(said.code, Some(0), "a link within the folder is read: {}{}", said.out, said.error);
    fs::remove_file(flows.join("two.flow")).unwrap();
    fs::remove_file(flows.join("three.flow")).unwrap();
    fs::create_dir(&odd).unwrap();
    let said = workflow(folder.path(), &["draw", "flows"]);
    let warning = "warning: the workflow of flows/odd.flow is left out: it is no regular file";
    assert!(said.code == Some(0) && said.error.contains(warning), "{}{}", said.out, said.error);
}

#[test]
fn a_text_of_one_line_is_checked_and_formatted() {
    let folder = folder(&[("a.flow", "x->y"), ("review.toml", REVIEW), ("readme.txt", "x")]);
    let told = |arguments: &[&str], code: i32| {
        let said = workflow(folder.path(), arguments);
        assert_eq!(said.code, Some(code), "{arguments:?}: {}", said.error);
        format!("{}{}", said.out, said.error)
    };
    assert_eq!(told(&["check", "--line", "a  ->(b|c )->d", "--format"], 0), "a -> (b | c) -> d\n");
    assert_eq!(told(&["check", "a.flow", "--format"], 0), "x -> y\n");
    assert!(told(&["check", "--line", "a -> b("], 1).contains("--line:1:7: this `(` is not closed"));
    assert!(told(&["check", "--line", "a -> b(", "--format"], 1).contains("is not closed"));
    assert!(told(&["check", "review.toml", "--format"], 2).contains("only the one-line syntax"));
    assert!(told(&["check", "missing.toml"], 2).contains("missing.toml: No such file"));
    assert!(told(&["check", "readme.txt"], 2).contains("a workflow is in a file *.toml"));
    told(&["check"], 2);
    let mut piped = command(folder.path(), &["check", "-"]);
    piped.stdin(fs::File::open(folder.path().join("a.flow")).unwrap());
    assert_eq!(said(piped).out, "standard input: workflow: 2 nodes; agents x, y\n");
}

#[test]
fn programs_read_their_input_and_print_their_output() {
    let folder = folder(&[("review.toml", REVIEW), ("source.rs", "fn main() {}\n")]);
    let output = |arguments: &[&str]| {
        let said = workflow(folder.path(), &[&["run", "--ephemeral"], arguments].concat());
        assert_eq!((said.code, &*said.error), (Some(0), ""), "{arguments:?}");
        said.out
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
    // A program need not read what it is given, however much that is.
    fs::write(folder.path().join("long"), "x".repeat(1 << 20)).unwrap();
    assert_eq!(output(&["--line", "a", "--input", "x=@long", "--agent", "a=echo done"]), "done\n");
}

#[test]
fn what_a_run_lacks_is_told_with_the_flags_to_give() {
    let folder = folder(&[("review.toml", REVIEW)]);
    let refused = |arguments: &[&str], why: &str| {
        let said = workflow(folder.path(), &[&["run"], arguments].concat());
        assert_eq!((said.code, &*said.out), (Some(2), ""), "{arguments:?}");
        assert!(said.error.contains(why), "{arguments:?}: {}", said.error);
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
fn a_program_that_fails_fails_its_node_with_what_it_said_last() {
    let folder = folder(&[]);
    let failed = |arguments: &[&str]| {
        let said = workflow(folder.path(), &[&["run", "--ephemeral"], arguments].concat());
        assert_eq!((said.code, &*said.out), (Some(1), ""), "{arguments:?}");
        said.error
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
fn whoever_watches_sees_each_event_of_each_node() {
    let folder = folder(&[]);
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
        // It goes on until it is cut off.
        "hang=tail -f /dev/null",
    ];
    let said = workflow(folder.path(), &arguments);
    assert_eq!((said.code, &*said.out), (Some(1), ""), "{}", said.error);
    let shown = same(&said.error, &first_run(folder.path()));
    insta::assert_snapshot!("watch", shown);
}

#[test]
fn a_node_that_waits_for_a_person_ends_the_process_and_is_resumed_by_another() {
    let folder = folder(&[("review.toml", REVIEW)]);
    let path = folder.path();
    let agents = ["--agent", "*=cat", "--agent", "reviewer=cat; echo '; it'\\''s fine'"];
    let run =
        [&["run", "review.toml", "--input", "source_code=fn main() {}", "--store", "store"], &agents[..]].concat();
    let said = workflow(path, &run);
    assert_eq!((said.code, &*said.out), (Some(3), ""));
    let id = first_run(path);
    insta::assert_snapshot!("waits", same(&said.error, &id));
    insta::assert_snapshot!("history_waiting", same(&workflow(path, &["history", &id, "--store", "store"]).out, &id));

    let resume =
        |arguments: &[&str]| workflow(path, &[&["resume", &id, "--store", "store"], &agents[..], arguments].concat());
    let unknown = resume(&["--node", "publsh"]);
    assert_eq!(unknown.code, Some(1));
    assert!(unknown.error.contains("node publsh does not wait for a person; these wait: publish"), "{}", unknown.error);
    let wrong = resume(&["--set", "note=1"]);
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.error.contains("unknown channel \"note\""), "{}", wrong.error);
    let changed = resume(&["--node", "publish", "--input", "\"better\"", "--set", "notes=[\"by ann\"]", "--watch"]);
    assert_eq!((changed.code, &*changed.out), (Some(0), "better\n"), "{}", changed.error);
    let again = resume(&[]);
    assert_eq!((again.code, &*again.out), (Some(0), "better\n"));
    assert_eq!(again.error, format!("run {id} has ended already\n"));
    let history = workflow(path, &["history", &id, "--store", "store", "--json"]).out;
    let history: Value = serde_json::from_str(&history).unwrap();
    let states: Vec<&Value> = (0..3).map(|turn| &history["checkpoints"][turn]["state"]).collect();
    let first = json!({ "notes": ["fn main() {}"] });
    assert_eq!(states, [&first, &first, &json!({ "notes": ["by ann"] })]);
}

#[test]
fn an_ephemeral_run_that_waits_is_not_kept() {
    let folder = folder(&[]);
    let said =
        workflow(folder.path(), &["run", "--line", "a(interrupt=\"before\")", "--agent", "a=cat", "--ephemeral"]);
    assert_eq!(said.code, Some(3));
    assert!(said.error.ends_with("nothing of it is kept, because it is --ephemeral\n"), "{}", said.error);
    let said = workflow(
        folder.path(),
        &["run", "--line", "a(interrupt=\"before\")", "--agent", "a=cat", "--json", "--ephemeral"],
    );
    let waits: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((&waits["waits_for"][0]["node"], &waits["to_go_on"]), (&json!("a"), &Value::Null), "{}", said.error);
}

#[test]
fn a_fork_runs_from_its_node_to_the_end_and_leaves_the_old_run_as_it_was() {
    let folder = folder(&[]);
    let path = folder.path();
    let agents = ["--agent", "*=echo $CALLBOARD_AGENT >> log; cat; printf ' %s' $CALLBOARD_AGENT"];
    let run = [&["run", "--line", "a -> b -> c", "--input-json", "\"x\"", "--store", "store"], &agents[..]].concat();
    assert_eq!(workflow(path, &run).out, "x a b c\n");
    let id = first_run(path);
    let fork =
        |arguments: &[&str]| workflow(path, &[&["fork", &id, "--store", "store"], &agents[..], arguments].concat());
    let forked = fork(&["--node", "b", "--input", "\"y\""]);
    assert_eq!((forked.code, &*forked.out), (Some(0), "y b c\n"), "{}", forked.error);
    assert!(forked.error.contains(&format!("forked from {id} at turn 2")), "{}", forked.error);
    assert_eq!(fork(&["--turn", "3"]).out, "x a b c\n");
    assert_eq!(fs::read_to_string(path.join("log")).unwrap(), "a\nb\nc\nb\nc\nc\n");
    assert_eq!(fork(&["--turn", "9"]).code, Some(1));
    assert_eq!(fork(&["--node", "d"]).code, Some(1));
    assert_eq!(fork(&[]).code, Some(2));
    let history: Value =
        serde_json::from_str(&workflow(path, &["history", &id, "--store", "store", "--json"]).out).unwrap();
    assert_eq!(history["result"]["output"], "x a b c");
}

#[test]
fn after_a_kill_in_the_middle_finished_nodes_do_not_run_again() {
    let folder = folder(&[]);
    let path = folder.path();
    let agents = [
        "--agent",
        "*=echo $CALLBOARD_AGENT >> log; cat; printf ' %s' $CALLBOARD_AGENT",
        "--agent",
        "b=echo b >> log; test -e killed || { touch killed; kill -9 $PPID; }; cat; printf ' b'",
    ];
    let run = [&["run", "--line", "a -> b -> c", "--input-json", "\"x\"", "--store", "store"], &agents[..]].concat();
    let killed = workflow(path, &run);
    assert_eq!(killed.code, None, "{}", killed.error);
    let resumed = workflow(path, &[&["resume", &first_run(path), "--store", "store"], &agents[..]].concat());
    assert_eq!((resumed.code, &*resumed.out), (Some(0), "x a b c\n"), "{}", resumed.error);
    assert_eq!(fs::read_to_string(path.join("log")).unwrap(), "a\nb\nb\nc\n");
}

#[test]
fn a_run_that_is_resumed_leaves_the_others_of_its_store_as_they_are() {
    let folder = folder(&[]);
    let path = folder.path();
    let wait = |agent: &str| {
        let line = format!("{agent}(interrupt=\"before\")");
        workflow(path, &["run", "--line", &line, "--store", "store", "--agent", "*=cat"]).code
    };
    assert_eq!((wait("a"), wait("b")), (Some(3), Some(3)));
    let list = || {
        let mut list = Command::new(env!("CARGO_BIN_EXE_callboard"));
        list.env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"));
        let output = list.args(["runs", "list", "--json", "--data", "store"]).current_dir(path).output().unwrap();
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let before = list();
    let second = before[1]["run"].as_str().unwrap();
    let resumed = workflow(path, &["resume", second, "--store", "store", "--agent", "b=echo done"]);
    assert_eq!((resumed.code, &*resumed.out), (Some(0), "done\n"), "{}", resumed.error);
    assert_eq!(list()[0], before[0]);
}

#[test]
fn the_first_ctrl_c_lets_programs_end_and_leaves_what_had_not_begun() {
    let folder = folder(&[]);
    let path = folder.path();
    // The first program stops the process that runs it, and ends when that has said so.
    let agents = [
        "--agent",
        "*=echo $CALLBOARD_AGENT >> log; cat",
        "--agent",
        "a=echo a >> log; kill -INT $PPID; until grep -q stopping told; do :; done; cat",
    ];
    let run = [&["run", "--line", "a -> b", "--input-json", "\"x\"", "--store", "store"], &agents[..]].concat();
    let mut stopped = command(path, &run);
    let status = stopped.stderr(fs::File::create(path.join("told")).unwrap()).status().unwrap();
    assert_eq!(status.code(), Some(130));
    let told = fs::read_to_string(path.join("told")).unwrap();
    assert!(told.contains(&format!("to go on: callboard workflow resume {}", first_run(path))), "{told}");
    let resumed = workflow(path, &[&["resume", &first_run(path), "--store", "store"], &agents[..]].concat());
    assert_eq!((resumed.code, &*resumed.out), (Some(0), "x\n"), "{}", resumed.error);
    assert_eq!(fs::read_to_string(path.join("log")).unwrap(), "a\nb\n");
}

#[test]
fn a_program_that_is_stopped_ends_with_all_that_it_has_started() {
    let folder = folder(&[]);
    let path = folder.path();
    assert!(Command::new("mkfifo").arg(path.join("held")).status().unwrap().success());
    let held = || {
        let held = path.join("held");
        // Read to its end only when nobody holds it any more.
        std::thread::spawn(move || fs::read(held).unwrap())
    };
    let reader = held();
    let hang = "exec 3> held; tail -f /dev/null & ";
    let program = format!("a={hang} tail -f /dev/null");
    let late = workflow(path, &["run", "--line", "a(timeout=\"50ms\", attempts=1)", "--agent", &program]);
    assert_eq!(late.code, Some(1), "{}", late.error);
    reader.join().unwrap();

    let reader = held();
    let stop = "kill -INT $PPID; until grep -q stopping told; do :; done; kill -INT $PPID; tail -f /dev/null";
    let program = format!("a={hang}{stop}");
    let mut stopped = command(path, &["run", "--line", "a", "--agent", &program]);
    let status = stopped.stderr(fs::File::create(path.join("told")).unwrap()).status().unwrap();
    assert_eq!(status.code(), Some(130));
    reader.join().unwrap();
}

#[test]
fn a_node_at_which_a_run_was_stopped_is_drawn_as_open() {
    let folder = folder(&[]);
    let path = folder.path();
    let stop = "kill -INT $PPID; until grep -q stopping told; do :; done; kill -INT $PPID; tail -f /dev/null";
    let program = format!("a={stop}");
    let mut stopped =
        command(path, &["run", "--line", "a -> b", "--agent", &program, "--agent", "b=cat", "--store", "store"]);
    let status = stopped.stderr(fs::File::create(path.join("told")).unwrap()).status().unwrap();
    assert_eq!(status.code(), Some(130));
    for (picture, open, running) in
        [("--mermaid", "a<br/>open", "running"), ("--svg", ">open</text>", ">running</text>")]
    {
        let drawn = workflow(path, &["draw", picture, "--line", "a -> b", "--run", "@last", "--store", "store"]);
        assert!(drawn.out.contains(open) && !drawn.out.contains(running), "{} {}", drawn.out, drawn.error);
    }
}

#[test]
fn a_program_that_has_ended_is_not_waited_for_because_of_what_it_has_left_running() {
    let folder = folder(&[]);
    // What is left holds both streams of its output.
    let agent = "a=echo ran >> ran; echo hello; sleep 1000 & exit 0";
    let said = workflow(folder.path(), &["run", "--line", "a", "--agent", agent, "--ephemeral"]);
    assert_eq!((said.code, &*said.out), (Some(0), "hello\n"), "{}", said.error);
    assert_eq!(fs::read_to_string(folder.path().join("ran")).unwrap(), "ran\n");
}

#[test]
fn a_workflow_is_drawn_with_how_the_nodes_of_a_run_stand() {
    let folder = folder(&[("review.toml", REVIEW)]);
    let drawn = workflow(folder.path(), &["draw", "review.toml"]);
    assert_eq!(drawn.code, Some(0), "{}", drawn.error);
    assert!(drawn.out.starts_with("flowchart ") && drawn.out.contains("publish"), "{}", drawn.out);
    let run = ["run", "review.toml", "--input", "source_code=x", "--agent", "*=cat", "--store", "store", "--no-input"];
    assert_eq!(workflow(folder.path(), &run).code, Some(3));
    let listed = Command::new(env!("CARGO_BIN_EXE_callboard"))
        .env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .args(["runs", "list", "--data", "store", "--json"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let id = listed[0]["run"].as_str().or_else(|| listed[0]["id"].as_str()).unwrap().to_owned();
    let drawn = workflow(folder.path(), &["draw", "review.toml", "--svg", "--run", &id, "--store", "store"]);
    assert_eq!(drawn.code, Some(0), "{}", drawn.error);
    assert!(drawn.out.starts_with("<svg") && drawn.out.contains("finished") && drawn.out.contains("interrupted"));
    let wrong = workflow(folder.path(), &["draw", "--line", "a -> a"]);
    assert_eq!((wrong.code, wrong.out.as_str()), (Some(1), ""));
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
fn whoever_looks_at_a_run_sees_that_its_nodes_were_taken_back() {
    let folder = folder(&[("booking.toml", BOOKING)]);
    let path = folder.path();
    let agents = ["--agent", "worker=printf %s \"$CALLBOARD_NODE\"", "--agent", "undo=printf gone"];
    let run = ["run", "booking.toml", "--store", "store", "--watch", "--agent", "payer=exit 127"];
    let failed = workflow(path, &[&run, &agents[..]].concat());
    assert_eq!((failed.code, &*failed.out), (Some(1), ""), "{}", failed.error);
    let id = first_run(path);
    insta::assert_snapshot!("watch_taking_back", same(&failed.error, &id));
    let retried = workflow(path, &["retry", &id, "--store", "store", "--agent", "*=cat"]);
    assert!(
        retried.code == Some(2) && retried.error.contains("has taken back what its nodes had done"),
        "{}",
        retried.error
    );

    insta::assert_snapshot!(
        "history_taking_back",
        same(&workflow(path, &["history", &id, "--store", "store"]).out, &id)
    );
    let history = workflow(path, &["history", &id, "--store", "store", "--json"]).out;
    let history: Value = serde_json::from_str(&history).unwrap();
    let of = |field: &str| -> Vec<Value> {
        history["checkpoints"].as_array().unwrap().iter().map(|turn| turn[field].clone()).collect()
    };
    let saved = |value: &str| json!([{ "channel": "log", "value": value, "overwrite": false }]);
    assert_eq!(of("wrote"), [saved("room"), saved("car"), json!(null), json!([]), json!([])]);
    let (one, both) = (json!({ "log": ["room"] }), json!({ "log": ["room", "car"] }));
    assert_eq!(of("state"), [&one, &both, &both, &both, &one].map(Clone::clone));
    assert_eq!(of("node"), ["room", "car", "pay", "car", "room"]);
    assert_eq!(of("is_compensation"), [false, false, false, true, true]);

    let runs = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_callboard"));
        command.env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"));
        command.arg("runs").args(arguments).args(["--data", "store"]).current_dir(path);
        said(command)
    };
    let shown = runs(&["show", &id]);
    assert!(shown.out.contains("takes back room; gave gone"), "{}", shown.out);
    // It is the run's state that is shown below, not what the last of them saw.
    assert!(shown.out.contains("\"room\",\n      \"car\""), "{}", shown.out);

    let drawn = workflow(path, &["draw", "booking.toml", "--run", &id, "--store", "store"]);
    assert!(drawn.out.contains("class n0,n1 undone") && drawn.out.contains("class n2 failed"), "{}", drawn.out);

    let fork = ["fork", &id, "--node", "car", "--store", "store", "--agent", "payer=printf paid"];
    let forked = workflow(path, &[&fork, &agents[..]].concat());
    assert_eq!((forked.code, &*forked.out), (Some(0), "paid\n"), "{}", forked.error);
    let listed: Value = serde_json::from_str(&runs(&["list", "--json"]).out).unwrap();
    let other = listed.as_array().unwrap().iter().map(|run| run["run"].as_str().unwrap()).find(|run| *run != id);
    let told = runs(&["diff", &id, other.unwrap()]).out;
    let turns = told.split("turns\n").last().unwrap();
    assert_eq!(turns, "    turn 3 (payer): other how it ended\n  - turn 4 (undo)\n  - turn 5 (undo)\n", "{told}");
}

#[test]
fn a_program_that_an_agent_has_started_neither_begins_nor_changes_runs() {
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
    for variable in ["CALLBOARD_PROCESS", "CALLBOARD_AGENT", "CALLBOARD_RUN"] {
        for arguments in refused {
            let mut program = Command::new(env!("CARGO_BIN_EXE_callboard"));
            program.env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"));
            let output = program.args(arguments).env(variable, "x").stdin(Stdio::null()).output().unwrap();
            let error = String::from_utf8(output.stderr).unwrap();
            assert!(error.contains(variable) && error.contains("have the agent delegate the task"), "{error}");
            assert_eq!(output.status.code(), Some(2));
        }
        let mut program = Command::new(env!("CARGO_BIN_EXE_callboard"));
        program
            .env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"))
            .env(variable, "x")
            .current_dir(env!("CARGO_TARGET_TMPDIR"));
        let listed = program.args(["runs", "list"]).stdin(Stdio::null()).output().unwrap();
        assert!(!String::from_utf8(listed.stderr).unwrap().contains(variable), "looking is allowed");
    }
}

#[test]
fn a_run_whose_store_stops_is_named_with_the_line_that_goes_on_with_it() {
    let folder = folder(&[]);
    // What the store writes from now on is refused, as on a full disk.
    let fill = "a=prlimit --pid $PPID --fsize=1; printf done";
    let arguments = ["workflow", "run", "--line", "a -> b", "--store", "store", "--agent", fill, "--agent", "b=cat"];
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_callboard")]).args(arguments);
    shell.current_dir(folder.path()).env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR")).stdin(Stdio::null());
    let said = said(shell);
    assert_eq!(said.code, Some(2), "{}", said.error);
    assert!(said.error.contains("the store has stopped"), "{}", said.error);
    let id = first_run(folder.path());
    assert!(said.error.contains(&format!("run {id} continues at the next start")), "{}", said.error);
    let line = said.error.lines().find_map(|line| line.strip_prefix("to go on: ")).unwrap();
    assert!(line.starts_with("callboard workflow resume ") && line.contains(&id), "{line}");
    let program = env!("CARGO_BIN_EXE_callboard");
    let line = line.replacen("callboard", program, 1).replace("prlimit --pid $PPID --fsize=1;", "");
    let mut again = Command::new("sh");
    again.args(["-c", &line]).current_dir(folder.path());
    let said = self::said(again);
    assert_eq!((said.code, &*said.out), (Some(0), "done\n"), "{line}: {}", said.error);
}

#[test]
fn no_status_of_many_short_programs_is_lost_while_what_they_leave_is_reaped() {
    let folder = folder(&[]);
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
    let said = workflow(folder.path(), &arguments);
    assert_eq!((said.code, &*said.out, &*said.error), (Some(0), "done\n", ""));
}

#[test]
fn what_is_no_file_in_the_place_of_the_lock_of_scratch_files_is_named_and_neither_waited_for_nor_followed() {
    let folder = folder(&[("victim", "precious")]);
    let lock = folder.path().join("state/callboard/scratch/lock");
    let victim = folder.path().join("victim");
    let odd: [&dyn Fn(); 3] = [
        &|| assert!(Command::new("mkfifo").arg(&lock).status().unwrap().success()),
        &|| std::os::unix::fs::symlink(&victim, &lock).unwrap(),
        &|| fs::create_dir(&lock).unwrap(),
    ];
    for make in odd {
        fs::create_dir_all(lock.parent().unwrap()).unwrap();
        make();
        let arguments = ["run", "--line", "a(attempts=1)", "--agent", "a=cat $CALLBOARD_STATE", "--ephemeral"];
        let mut run = command(folder.path(), &arguments);
        let output = run.env("XDG_STATE_HOME", folder.path().join("state")).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains("scratch/lock is no regular file") && error.contains("remove it"), "{error}");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        fs::remove_dir_all(folder.path().join("state")).unwrap();
    }
}
