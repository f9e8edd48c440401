//! Agents that are programs, declared in files: real processes, without any model.

use std::fs;
use std::io::{BufRead, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

const EXAMPLE: &str = include_str!("../../../examples/process/word_counter.py");

const COUNTER: &str = r#"
[agent]
name = "counter"
description = "Counts words."

[agent.process]
command = ["python3", "word_counter.py"]
"#;

const EDITOR: &str = r#"
[agent]
name = "namer"

[agent.process]
command = ["./namer.sh"]

[agent.announces]
role = "editor"
"#;

/// Says on its standard error that it has begun, and gives each turn the same title.
const NAMER: &str = r#"#!/bin/sh
read hello; echo '{"type":"ready","protocol":1}'
echo "the namer has begun" >&2
while read turn; do
    id=${turn#*'"id":"'}
    printf '%s\n' '{"type":"notice","text":"a title\nis found"}'
    echo '{"type":"command","turn":"'${id%%'"'*}'","output":"On being"}'
done
"#;

struct Said {
    code: Option<i32>,
    out: String,
    error: String,
}

fn command(folder: &TempDir, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_callboard"));
    command.env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"));
    command.args(arguments).current_dir(folder.path()).stdin(Stdio::null()).env("USER", "ann");
    for variable in ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"] {
        command.env_remove(variable);
    }
    command
}

fn callboard(folder: &TempDir, arguments: &[&str]) -> Said {
    said(&mut command(folder, arguments))
}

fn said(command: &mut Command) -> Said {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said { code: output.status.code(), out: text(output.stdout), error: text(output.stderr) }
}

fn write(folder: &TempDir, name: &str, text: &str) {
    let file = folder.path().join(name);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, text).unwrap();
    if Path::new(name).extension().is_some_and(|extension| extension == "sh") {
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// A process that is killed when this is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The word counter of the examples, and who finds a title for it.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(&folder, "agents/counter.toml", COUNTER);
    write(&folder, "agents/namer.toml", EDITOR);
    write(&folder, "word_counter.py", EXAMPLE);
    write(&folder, "namer.sh", NAMER);
    folder
}

#[test]
fn the_python_example_runs_from_a_file_and_needs_no_model() {
    let folder = folder();
    let check = callboard(&folder, &["check"]);
    assert_eq!((check.code, check.error.as_str()), (Some(0), ""));
    assert!(
        check.out.starts_with(
            "agents/counter.toml: counter: Counts words. (program; python3 word_counter.py)\n\
             agents/namer.toml: namer (program; ./namer.sh)\n"
        ),
        "{}",
        check.out
    );
    let rows: Value = serde_json::from_str(&callboard(&folder, &["check", "--json"]).out).unwrap();
    assert_eq!(rows[0]["program"], json!(["python3", "word_counter.py"]));

    let run = ["run", "to be or not to be", "--to", "counter"];
    let said = callboard(&folder, &run);
    assert_eq!(said.code, Some(0), "{}", said.error);
    let output: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((&output["title"], &output["counts"]["be"]), (&json!("On being"), &json!(2)), "{output}");
    for told in ["namer │ the namer has begun\n", "namer says: a title\n  │ is found\n"] {
        assert!(said.error.contains(told), "{}", said.error);
    }
    let quiet = callboard(&folder, &[&run[..], &["--quiet"]].concat());
    assert_eq!((quiet.code, quiet.error.as_str()), (Some(0), ""));
    assert_eq!(serde_json::from_str::<Value>(&quiet.out).unwrap(), output);
}

#[test]
fn the_folder_of_the_example_runs_as_the_page_says() {
    let page = include_str!("../../../docs/process-agents.md");
    let line = page.lines().find(|line| line.starts_with("callboard run \"to be or not to be\"")).unwrap();
    let words: Vec<&str> = line
        .split('"')
        .flat_map(|part| match part {
            "to be or not to be" => vec![part],
            part => part.split_whitespace().skip_while(|word| *word == "callboard").collect(),
        })
        .collect();
    let mut run = command(&tempfile::tempdir().unwrap(), &words);
    let said = said(run.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")));
    assert_eq!(said.code, Some(0), "{}", said.error);
    let output: Value = serde_json::from_str(&said.out).unwrap();
    assert!(output["counts"]["be"] == 2 && output["title"].is_string(), "{output}");
}

#[test]
fn paths_are_told_from_the_root_wherever_callboard_is_started() {
    let folder = folder();
    fs::create_dir(folder.path().join("elsewhere")).unwrap();
    let mut run = command(&folder, &["run", "to be", "--to", "counter", "--agents", "../agents", "--root", ".."]);
    let said = said(run.current_dir(folder.path().join("elsewhere")));
    assert!(said.code == Some(0) && said.out.contains("On being"), "{} {}", said.out, said.error);
}

#[test]
fn nodes_of_a_workflow_are_programs_from_files() {
    let folder = folder();
    let run = ["workflow", "run", "--line", "counter -> namer", "--input-json", "\"to be\"", "--agents", "agents"];
    let said = callboard(&folder, &[&run[..], &["--ephemeral"]].concat());
    assert_eq!((said.code, said.out.as_str(), said.error.as_str()), (Some(0), "On being\n", ""));
    let watched = callboard(&folder, &[&run[..], &["--watch"]].concat());
    assert!(watched.error.contains("namer │ the namer has begun\n"), "{}", watched.error);
}

#[test]
fn what_is_missing_is_told_by_check_and_before_a_run() {
    let folder = folder();
    write(&folder, "agents/namer.toml", &EDITOR.replace("namer.sh", "nemar.sh"));
    let missing = COUNTER.replace("\"python3\"", "\"no-such-python\"");
    write(&folder, "agents/counter.toml", &format!("{missing}env_from = [\"COUNTER_KEY\"]\n"));
    let check = callboard(&folder, &["check"]);
    assert_eq!(check.code, Some(1), "{}", check.error);
    let run = callboard(&folder, &["run", "x", "--to", "counter"]);
    assert!(run.code == Some(2) && run.out.is_empty(), "{}", run.error);
    for told in [
        "counter.toml:7:11: there is no program \"no-such-python\" in PATH",
        "counter.toml:6:1: the variable COUNTER_KEY of `env_from` is not set",
        "namer.toml:6:11: there is no program \"",
        "/nemar.sh\"",
        "3 defects",
    ] {
        assert!(check.error.contains(told) && run.error.contains(told), "{told}: {} {}", check.error, run.error);
    }
}

#[test]
fn what_a_program_asks_waits_for_a_person_in_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let source = r#"#!/bin/sh
read hello; echo '{"type":"ready","protocol":1}'
read turn; id=${turn#*'"id":"'}
echo '{"type":"approve","id":1,"action":"publish","target":"WORDS.md","arguments":{}}'
read answer
echo '{"type":"command","turn":"'${id%%'"'*}'","output":"published"}'
read end
"#;
    write(&folder, "printer.sh", source);
    let agent = "[agent]\nname = \"printer\"\n[agent.process]\ncommand = [\"./printer.sh\"]\n";
    write(&folder, "agents/printer.toml", agent);
    let run = callboard(&folder, &["run", "print it", "--no-input", "--json", "--store", "store"]);
    assert_eq!(run.code, Some(3), "{}", run.error);
    let asked: Value = serde_json::from_str(&run.out).unwrap();
    let asked = &asked["waits_for"][0];
    assert_eq!((&asked["agent"], &asked["action"]), (&json!("printer"), &json!("publish")), "{asked}");
}

#[test]
fn a_secret_is_passed_and_told_by_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let source = r#"
import json, os, sys
def hear(): return json.loads(sys.stdin.readline())
hear(); print('{"type":"ready","protocol":1}', flush=True)
turn = hear()
print("the key is", os.environ["KEEPER_KEY"], "of", sorted(os.environ), file=sys.stderr, flush=True)
if turn["input"] == "die": os._exit(3)
if turn["input"] == "babble": print(os.environ["KEEPER_KEY"], flush=True)
print(json.dumps({"type": "command", "turn": turn["id"], "output": len(os.environ["KEEPER_KEY"])}), flush=True)
"#;
    write(&folder, "keeper.py", source);
    let agent = "[agent]\nname = \"keeper\"\n[agent.process]\ncommand = [\"python3\", \"keeper.py\"]\nenv_from = [\"KEEPER_KEY\"]\n";
    write(&folder, "agents/keeper.toml", agent);
    let run = |task: &str| {
        let mut command = command(&folder, &["run", task, "--json"]);
        said(command.env("KEEPER_KEY", "sk-4711-4711").env("OTHER_KEY", "sk-4712-4712"))
    };
    for (task, code) in [("keep", 0), ("die", 1), ("babble", 1)] {
        let said = run(task);
        assert_eq!(said.code, Some(code), "{} {}", said.out, said.error);
        assert!(!said.error.contains("sk-") && !said.out.contains("sk-"), "{} {}", said.out, said.error);
        assert!(said.error.contains("keeper │ the key is [the key] of "), "{}", said.error);
        assert!(!said.error.contains("OTHER_KEY"), "{}", said.error);
    }
    let result: Value = serde_json::from_str(&run("keep").out).unwrap();
    assert_eq!(result["output"], 12);
}

#[test]
fn a_definition_that_a_program_writes_during_a_run_starts_no_program() {
    let folder = tempfile::tempdir().unwrap();
    let writer = r#"#!/bin/sh
read hello; echo '{"type":"ready","protocol":1}'
read turn; id=${turn#*'"id":"'}
mkfifo go
mkdir -p agents; printf '[agent]\nname = "other"\n[agent.process]\ncommand = ["touch", "made"]\n' > agents/other.toml
read word < go
echo '{"type":"command","turn":"'${id%%'"'*}'","goto":"other"}'
read end
"#;
    write(&folder, "writer.sh", writer);
    write(&folder, "agents/writer.toml", "[agent]\nname = \"writer\"\n[agent.process]\ncommand = [\"./writer.sh\"]\n");
    let mut run = command(&folder, &["run", "x", "--enable-handoffs"]);
    let mut run = Killed(run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let mut told = BufReader::new(run.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    let other = told.find(|line| line.starts_with("other.toml: ")).unwrap();
    assert_eq!(other, "other.toml: refused:");
    let why = told.next().unwrap();
    assert!(why.contains("the program of \"other\" is not one that was declared"), "{why}");
    fs::write(folder.path().join("go"), "go\n").unwrap();
    let rest: Vec<String> = told.collect();
    assert_eq!(run.0.wait().unwrap().code(), Some(1), "{rest:#?}");
    assert!(!folder.path().join("made").exists());
}

/// Starts a process in a session of its own, which connects to `wire`, and ends its turn once that has: with the task `end`, or
/// else never. With `clean` in the task, the process has nothing of the program's environment.
const LEAVER: &str = r#"
import json, os, subprocess, sys
LEFT = """
import signal, socket, sys
line = socket.socket(socket.AF_UNIX)
line.connect("wire")
print("begun", flush=True)
signal.pause()
"""
def tell(**line):
    print(json.dumps(line), flush=True)
sys.stdin.readline()
tell(type="ready", protocol=1)
turn = json.loads(sys.stdin.readline())
quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
environment = {} if "clean" in turn["task"] else None
# The parent of what is left behind ends at once.
starts = "import os, sys; os.fork() or os.execv(sys.executable, [sys.executable, '-c', sys.argv[1]])"
left = subprocess.Popen([sys.executable, "-c", starts, LEFT], env=environment, start_new_session=True, **quiet)
left.stdout.readline()
if "end" in turn["task"]:
    tell(type="command", turn=turn["id"], output="done")
sys.stdin.readline()
"#;

#[test]
fn what_a_program_has_started_ends_with_the_run_whatever_it_has_left() {
    for (task, expected) in [("end", 0), ("end clean", 0), ("hang", 1), ("hang clean", 1)] {
        let folder = folder();
        write(&folder, "leaver.py", LEAVER);
        let leaver = COUNTER.replace("counter", "leaver").replace("word_leaver", "leaver");
        write(&folder, "agents/leaver.toml", &format!("{leaver}\n[agent.limits]\ntimeout = \"1s\"\n"));
        let wire = UnixListener::bind(folder.path().join("wire")).unwrap();
        let said = callboard(&folder, &["run", task, "--to", "leaver", "--limits", r#"{"attempts":1}"#, "--ephemeral"]);
        assert_eq!(said.code, Some(expected), "{task}: {}", said.error);
        let (mut line, _) = wire.accept().unwrap();
        line.set_nonblocking(true).unwrap();
        assert_eq!(line.read(&mut [0]).expect("it is still there"), 0, "{task}");
    }
}

/// Starts 300 processes whose parents end, and ends its turn once none of them is left as a zombie of whoever has adopted it.
const FORKER: &str = concat!(
    r#"
import json, os, sys
def tell(**line):
    print(json.dumps(line), flush=True)
sys.stdin.readline()
tell(type="ready", protocol=1)
turn = json.loads(sys.stdin.readline())
"#,
    include_str!("../../../crates/callboard-agents/tests/process/orphans.py"),
    r#"def zombies():
    count = 0
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            state, parent = open(f"/proc/{process}/stat").read().rsplit(") ", 1)[1].split()[:2]
            count += state == "Z" and parent == str(os.getppid())
        except OSError: pass
    return count
while zombies(): pass
tell(type="command", turn=turn["id"], output="none is left")
sys.stdin.readline()
"#
);

#[test]
#[cfg(target_os = "linux")]
fn processes_that_a_running_program_has_left_and_that_have_ended_are_no_zombies() {
    let folder = folder();
    write(&folder, "forker.py", FORKER);
    let forker = COUNTER.replace("counter", "forker").replace("word_forker", "forker");
    write(&folder, "agents/forker.toml", &format!("{forker}\n[agent.limits]\ntimeout = \"60s\"\n"));
    let said = callboard(&folder, &["run", "fork", "--to", "forker", "--limits", r#"{"attempts":1}"#, "--ephemeral"]);
    assert_eq!((said.code, said.out.trim()), (Some(0), "none is left"), "{}", said.error);
}

/// `callboard ARGUMENTS` in the folder as an ordinary user, by this shell line; root is held to no limit of processes.
#[cfg(target_os = "linux")]
fn as_an_ordinary_user(folder: &TempDir, line: &str, arguments: &[&str]) -> Said {
    let binary = folder.path().join("callboard");
    fs::copy(env!("CARGO_BIN_EXE_callboard"), &binary).unwrap();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
    let mut shell = if rustix::process::geteuid().is_root() {
        let mut other = Command::new("setpriv");
        other.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh"]);
        other
    } else {
        Command::new("sh")
    };
    shell.args(["-c", line]).arg(binary).args(arguments).current_dir(folder).stdin(Stdio::null());
    said(shell.env("XDG_STATE_HOME", folder.path().join("state")).env("USER", "ann"))
}

#[test]
#[cfg(target_os = "linux")]
fn a_run_that_can_have_no_thread_is_an_error_that_names_the_limit() {
    let folder = folder();
    let run = ["run", "to be", "--to", "counter", "--ephemeral"];
    let said = as_an_ordinary_user(&folder, "exec prlimit --nproc=1 \"$0\" \"$@\"", &run);
    assert_eq!(said.code, Some(2), "{}", said.error);
    assert!(said.error.starts_with("error: a thread cannot be started"), "{}", said.error);
    assert!(said.error.contains("raise the limit of them (`ulimit -u`)"), "{}", said.error);
}

/// Takes all threads from `callboard` that it does not have yet, and adds an agent to its folder.
const TAKER: &str = r#"
import json, os, resource, sys
def tell(**line):
    print(json.dumps(line), flush=True)
sys.stdin.readline()
tell(type="ready", protocol=1)
turn = json.loads(sys.stdin.readline())
resource.prlimit(os.getppid(), resource.RLIMIT_NPROC, (1, 1))
with open("agents/other.new", "w") as file:
    file.write('[agent]\nname = "other"\nmodel = "none"\n')
os.rename("agents/other.new", "agents/other.toml")
# Until it was read, or its reader has gone.
open("read").read()
tell(type="command", turn=turn["id"], output="taken")
sys.stdin.readline()
"#;

#[test]
#[cfg(target_os = "linux")]
fn files_are_read_again_and_a_run_ends_well_where_no_more_threads_can_be_had() {
    let folder = folder();
    write(&folder, "taker.py", TAKER);
    let taker = COUNTER.replace("counter", "taker").replace("word_taker", "taker");
    write(&folder, "agents/taker.toml", &taker);
    fs::set_permissions(folder.path().join("agents"), fs::Permissions::from_mode(0o777)).unwrap();
    // What `callboard` prints about the file lets the program go on.
    let line = "mkfifo read; { \"$0\" \"$@\" 2>&1; echo \"code $?\" >&2; } | { grep -m 1 other.toml; : > read; cat; }";
    let said = as_an_ordinary_user(&folder, line, &["run", "take", "--to", "taker", "--ephemeral"]);
    assert_eq!(said.error, "code 0\n", "{}", said.out);
    assert!(said.out.starts_with("other.toml: ") && said.out.ends_with("taken\n"), "{}", said.out);
    assert!(!said.out.contains("panicked"), "{}", said.out);
}

/// Begins a run of its own, with an environment that has no word of the one that it is in.
const NESTED: &str = r#"#!/bin/sh
read hello; echo '{"type":"ready","protocol":1}'
while read turn; do
    id=${turn#*'"id":"'}
    env -i "PATH=$PATH" "HOME=FOLDER" CALLBOARD workflow run --line a --agent a=cat --ephemeral >FOLDER/told 2>&1
    echo "code $?" >>FOLDER/told
    echo '{"type":"command","turn":"'${id%%'"'*}'","output":"done"}'
done
"#;

#[cfg(target_os = "linux")]
#[test]
fn a_program_that_clears_its_environment_begins_no_run_either() {
    let folder = tempfile::tempdir().unwrap();
    let nested = NESTED.replace("CALLBOARD", env!("CARGO_BIN_EXE_callboard"));
    write(&folder, "nested.sh", &nested.replace("FOLDER", folder.path().to_str().unwrap()));
    write(&folder, "agents/nested.toml", "[agent]\nname = \"nested\"\n[agent.process]\ncommand = [\"./nested.sh\"]\n");
    let said = callboard(&folder, &["run", "x", "--to", "nested", "--ephemeral"]);
    assert_eq!(said.code, Some(0), "{}", said.error);
    let told = fs::read_to_string(folder.path().join("told")).unwrap();
    assert!(
        told.contains("its limit of resident memory") && told.contains("have the agent delegate the task"),
        "{told}"
    );
    assert!(told.ends_with("code 2\n"), "{told}");
}
