//! Agents that are programs, declared in files: real processes, without a model.

use std::fs;
use std::io::{BufRead, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::agents::{add_python_agent, add_shell_agent, program, shell};
use crate::support::{CALLBOARD, Killed, Printed, callboard, command, copy_callboard, output_of, write};

const EXAMPLE: &str = include_str!("../../../examples/process/word_counter.py");

const COUNTER: &str = r#"
[agent]
name = "counter"
description = "Counts words."

[agent.process]
command = ["python3", "word_counter.py"]
"#;

const NAMER: &str = r#"
[agent]
name = "namer"

[agent.process]
command = ["./namer.sh"]

[agent.announces]
role = "editor"
"#;

/// Prints a line on its standard error, and gives each turn the same title.
const NAMER_PROGRAM: &str = r#"
echo "the namer has begun" >&2
while turn; do
    printf '%s\n' '{"type":"notice","text":"a title\nis found"}'
    finish '"output":"On being"'
done
"#;

/// A folder with the word counter of the examples, and the agent that it asks for a title.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(&folder, "agents/counter.toml", COUNTER);
    write(&folder, "agents/namer.toml", NAMER);
    write(&folder, "word_counter.py", EXAMPLE);
    write(&folder, "namer.sh", &shell(NAMER_PROGRAM));
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
    let rows = callboard(&folder, &["check", "--json"]).json();
    assert_eq!(rows[0]["program"], json!(["python3", "word_counter.py"]));

    let run = ["run", "to be or not to be", "--to", "counter"];
    let printed = callboard(&folder, &run);
    assert_eq!(printed.code, Some(0), "{}", printed.error);
    let output: Value = serde_json::from_str(&printed.out).unwrap();
    assert_eq!((&output["title"], &output["counts"]["be"]), (&json!("On being"), &json!(2)), "{output}");
    for line in ["namer │ the namer has begun\n", "namer reports: a title\n  │ is found\n"] {
        assert!(printed.error.contains(line), "{}", printed.error);
    }
    let quiet = callboard(&folder, &[&run[..], &["--quiet"]].concat());
    assert_eq!((quiet.code, quiet.error.as_str()), (Some(0), ""));
    assert_eq!(quiet.json(), output);
}

#[test]
fn paths_are_resolved_from_the_root_and_not_from_the_current_folder() {
    let folder = folder();
    fs::create_dir(folder.path().join("elsewhere")).unwrap();
    let mut run = command(&folder, &["run", "to be", "--to", "counter", "--agents", "../agents", "--root", ".."]);
    let printed = output_of(run.current_dir(folder.path().join("elsewhere")));
    assert!(printed.code == Some(0) && printed.out.contains("On being"), "{} {}", printed.out, printed.error);
}

#[test]
fn nodes_of_a_workflow_are_programs_from_files() {
    let folder = folder();
    let run = ["workflow", "run", "--line", "counter -> namer", "--input-json", "\"to be\"", "--agents", "agents"];
    let printed = callboard(&folder, &[&run[..], &["--ephemeral"]].concat());
    assert_eq!((printed.code, printed.out.as_str(), printed.error.as_str()), (Some(0), "On being\n", ""));
    let watched = callboard(&folder, &[&run[..], &["--watch"]].concat());
    assert!(watched.error.contains("namer │ the namer has begun\n"), "{}", watched.error);
}

#[test]
fn missing_programs_and_variables_are_reported_by_check_and_before_a_run() {
    let folder = folder();
    write(&folder, "agents/namer.toml", &NAMER.replace("namer.sh", "nemar.sh"));
    let missing = COUNTER.replace("\"python3\"", "\"no-such-python\"");
    write(
        &folder,
        "agents/counter.toml",
        &format!("{missing}env_from = [\"COUNTER_KEY\"]\n[agent.announces]\nrole = \"admin\"\n"),
    );
    let check = callboard(&folder, &["check"]);
    assert_eq!(check.code, Some(2), "{}", check.error);
    let run = callboard(&folder, &["run", "x", "--to", "counter"]);
    assert!(run.code == Some(2) && run.out.is_empty(), "{}", run.error);
    for defect in [
        "counter.toml:7:11: there is no program \"no-such-python\" in PATH",
        "counter.toml:6:1: the variable COUNTER_KEY of `env_from` is not set",
        "namer.toml:6:11: there is no program \"",
        "/nemar.sh\"",
        "3 defects",
    ] {
        assert!(check.error.contains(defect) && run.error.contains(defect), "{defect}: {} {}", check.error, run.error);
    }
}

#[test]
fn an_approval_of_a_program_waits_for_a_person_in_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let printer = r#"
turn
echo '{"type":"approve","id":1,"action":"publish","target":"WORDS.md","arguments":{}}'
read answer
finish '"output":"published"'
read end
"#;
    add_shell_agent(&folder, "printer", printer);
    let run = callboard(&folder, &["run", "print it", "--no-input", "--json", "--store", "store"]);
    assert_eq!(run.code, Some(5), "{}", run.error);
    let asked = run.json();
    let asked = &asked["waits_for"][0];
    assert_eq!((&asked["agent"], &asked["action"]), (&json!("printer"), &json!("publish")), "{asked}");
}

#[test]
fn a_secret_is_passed_to_the_program_and_printed_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let holder = r#"
print("the key is", os.environ["HOLDER_KEY"], "of", sorted(os.environ), file=sys.stderr, flush=True)
if turn["input"] == "die": os._exit(3)
if turn["input"] == "babble": print(os.environ["HOLDER_KEY"], flush=True)
end(turn, len(os.environ["HOLDER_KEY"]))
"#;
    add_python_agent(&folder, "holder", holder);
    let agent = program("holder", &["python3", "holder.py"])
        + "env_from = [\"HOLDER_KEY\"]\n[agent.announces]\nrole = \"admin\"\n";
    write(&folder, "agents/holder.toml", &agent);
    let run = |task: &str| {
        let mut command = command(&folder, &["run", task, "--json"]);
        output_of(command.env("HOLDER_KEY", "sk-4711-4711").env("OTHER_KEY", "sk-4712-4712"))
    };
    for (task, code) in [("keep", 0), ("die", 1), ("babble", 1)] {
        let printed = run(task);
        assert_eq!(printed.code, Some(code), "{} {}", printed.out, printed.error);
        assert!(!printed.error.contains("sk-") && !printed.out.contains("sk-"), "{} {}", printed.out, printed.error);
        assert!(printed.error.contains("holder │ the key is [the key] of "), "{}", printed.error);
        assert!(!printed.error.contains("OTHER_KEY"), "{}", printed.error);
    }
    let result = run("keep").json();
    assert_eq!(result["output"], 12);
}

#[test]
fn a_definition_that_a_program_writes_during_a_run_starts_no_program() {
    let folder = tempfile::tempdir().unwrap();
    let writer = r#"
turn
mkfifo go
printf '[agent]\nname = "other"\n[agent.process]\ncommand = ["touch", "made"]\n' > agents/other.toml
read word < go
finish '"goto":"other"'
read end
"#;
    add_shell_agent(&folder, "writer", writer);
    let mut run = command(&folder, &["run", "x", "--enable-handoffs"]);
    let mut run = Killed(run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(run.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    let other = lines.find(|line| line.starts_with("other.toml: ")).unwrap();
    assert_eq!(other, "other.toml: refused:");
    let why = lines.next().unwrap();
    assert!(why.contains("the program of \"other\" is not one that was declared"), "{why}");
    fs::write(folder.path().join("go"), "go\n").unwrap();
    let rest: Vec<String> = lines.collect();
    assert_eq!(run.0.wait().unwrap().code(), Some(1), "{rest:#?}");
    assert!(!folder.path().join("made").exists());
}

/// Starts a process in a session of its own, which connects to `wire`, and then ends its turn if the task has `end`, or never.
/// With `clean` in the task, the process has an empty environment.
const LEAVER: &str = r#"
import subprocess
LEFT = """
import signal, socket, sys
line = socket.socket(socket.AF_UNIX)
line.connect("wire")
print("begun", flush=True)
signal.pause()
"""
quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
environment = {} if "clean" in turn["task"] else None
# The parent of the process ends at once.
starts = "import os, sys; os.fork() or os.execv(sys.executable, [sys.executable, '-c', sys.argv[1]])"
left = subprocess.Popen([sys.executable, "-c", starts, LEFT], env=environment, start_new_session=True, **quiet)
left.stdout.readline()
if "end" in turn["task"]:
    end(turn, "done")
sys.stdin.readline()
"#;

/// Limits the time of the agent's turns.
fn limit_turns(folder: &TempDir, agent: &str, timeout: &str) {
    let text = program(agent, &["python3", &format!("{agent}.py")]);
    write(folder, &format!("agents/{agent}.toml"), &format!("{text}[agent.limits]\ntimeout = \"{timeout}\"\n"));
}

#[test]
fn processes_that_a_program_has_started_end_with_the_run() {
    // What ends by itself has time for it on a busy machine.
    for (task, expected, limit) in
        [("end", 0, "60s"), ("end clean", 0, "60s"), ("hang", 1, "5s"), ("hang clean", 1, "5s")]
    {
        let folder = folder();
        add_python_agent(&folder, "leaver", LEAVER);
        limit_turns(&folder, "leaver", limit);
        let wire = UnixListener::bind(folder.path().join("wire")).unwrap();
        let printed =
            callboard(&folder, &["run", task, "--to", "leaver", "--limits", r#"{"attempts":1}"#, "--ephemeral"]);
        assert_eq!(printed.code, Some(expected), "{task}: {}", printed.error);
        let (mut line, _) = wire.accept().unwrap();
        line.set_nonblocking(true).unwrap();
        assert_eq!(line.read(&mut [0]).expect("it is still there"), 0, "{task}");
    }
}

/// Starts 300 processes whose parents end, and ends its turn once none of them is a zombie of its adopter.
const FORKER: &str = concat!(
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
end(turn, "none is left")
sys.stdin.readline()
"#
);

#[test]
#[cfg(target_os = "linux")]
fn orphans_that_have_ended_are_reaped_while_the_run_continues() {
    let folder = folder();
    add_python_agent(&folder, "forker", FORKER);
    limit_turns(&folder, "forker", "60s");
    let printed =
        callboard(&folder, &["run", "fork", "--to", "forker", "--limits", r#"{"attempts":1}"#, "--ephemeral"]);
    assert_eq!((printed.code, printed.out.trim()), (Some(0), "none is left"), "{}", printed.error);
}

/// Runs `callboard ARGUMENTS` in the folder as an ordinary user, by this shell line; limits of processes do not apply to root.
#[cfg(target_os = "linux")]
fn as_an_ordinary_user(folder: &TempDir, line: &str, arguments: &[&str]) -> Printed {
    let binary = folder.path().join("callboard");
    copy_callboard(&binary);
    fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
    let mut shell = if rustix::process::geteuid().is_root() {
        let mut other = Command::new("setpriv");
        other.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh"]);
        other
    } else {
        Command::new("sh")
    };
    shell.args(["-c", line]).arg(binary).args(arguments).current_dir(folder).stdin(Stdio::null());
    output_of(shell.env("XDG_STATE_HOME", folder.path().join("state")).env("USER", "ann"))
}

#[test]
#[cfg(target_os = "linux")]
fn other_processes_of_the_user_do_not_read_the_memory_and_the_environment_of_a_server() {
    let folder = folder();
    let line = r#"
mkfifo out && { "$0" "$@" > out 2> errors & } && exec 3< out && read first <&3
for file in environ mem maps; do cat "/proc/$!/$file" 2>> refused | grep -q . && echo "$file was read"; done
cat /proc/$$/environ | grep -q . && echo "that of another program was read"
kill -INT $! && wait $!
cat refused"#;
    let printed = as_an_ordinary_user(&folder, line, &["serve", "--agents", "agents", "--listen", "127.0.0.1:0"]);
    let refused = printed.out.strip_prefix("that of another program was read\n");
    let refused = refused.unwrap_or_else(|| panic!("{} {}", printed.out, printed.error));
    assert_eq!(refused.matches("Permission denied").count(), 3, "{refused}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_run_that_cannot_start_a_thread_is_an_error_that_names_the_limit() {
    let folder = folder();
    let run = ["run", "to be", "--to", "counter", "--ephemeral"];
    let printed = as_an_ordinary_user(&folder, "exec prlimit --nproc=1 \"$0\" \"$@\"", &run);
    assert_eq!(printed.code, Some(6), "{}", printed.error);
    assert!(printed.error.starts_with("error: a thread cannot be started"), "{}", printed.error);
    assert!(printed.error.contains("raise the limit of them (`ulimit -u`)"), "{}", printed.error);
}

/// Has `callboard` limited to the threads that it has, and adds an agent to its folder.
const TAKER: &str = r#"
with open("orders", "w") as orders:
    orders.write(f"{os.getppid()}\n")
open("obeyed").readline()
with open("agents/other.new", "w") as file:
    file.write('[agent]\nname = "other"\nmodel = "none"\n')
os.rename("agents/other.new", "agents/other.toml")
# Until `callboard` has reported the file, or has ended.
open("read").read()
end(turn, "taken")
sys.stdin.readline()
"#;

#[test]
#[cfg(target_os = "linux")]
fn files_are_reloaded_and_a_run_finishes_where_no_more_threads_can_be_started() {
    let folder = folder();
    add_python_agent(&folder, "taker", TAKER);
    fs::set_permissions(folder.path().join("agents"), fs::Permissions::from_mode(0o777)).unwrap();
    // The line that `callboard` prints about the file lets the program continue.
    let line = "mkfifo read orders obeyed; { read process < orders; prlimit --pid $process --nproc=1:1; echo done > obeyed; } & { \"$0\" \"$@\" 2>&1; echo \"code $?\" >&2; } | { grep -m 1 other.toml; : > read; cat; }";
    let printed =
        as_an_ordinary_user(&folder, line, &["run", "take", "--to", "taker", "--ephemeral", "--agents", "agents"]);
    assert_eq!(printed.error, "code 0\n", "{}", printed.out);
    assert!(printed.out.starts_with("other.toml: ") && printed.out.ends_with("taken\n"), "{}", printed.out);
    assert!(!printed.out.contains("panicked"), "{}", printed.out);
}

/// Starts a run of its own, with an environment that has none of callboard's variables.
const NESTED: &str = r#"
while turn; do
    env -i "PATH=$PATH" "HOME=FOLDER" CALLBOARD workflow run --line a --agent a=cat --ephemeral >FOLDER/printed 2>&1
    echo "code $?" >>FOLDER/printed
    finish '"output":"done"'
done
"#;

#[cfg(target_os = "linux")]
#[test]
fn a_program_that_clears_its_environment_cannot_start_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let nested = NESTED.replace("CALLBOARD", CALLBOARD);
    add_shell_agent(&folder, "nested", &nested.replace("FOLDER", folder.path().to_str().unwrap()));
    let printed = callboard(&folder, &["run", "x", "--to", "nested", "--ephemeral"]);
    assert_eq!(printed.code, Some(0), "{}", printed.error);
    let refusal = fs::read_to_string(folder.path().join("printed")).unwrap();
    assert!(
        refusal.contains("its limit of resident memory") && refusal.contains("have the agent delegate the task"),
        "{refusal}"
    );
    assert!(refusal.ends_with("code 4\n"), "{refusal}");
}

#[test]
fn a_command_line_of_a_turn_delegates_in_the_name_of_the_agent_and_within_its_limits() {
    let folder = tempfile::tempdir().unwrap();
    let lead = r#"
import subprocess
def callboard(*line):
    done = subprocess.run(["sh", "-c", '"$@"', "sh", *line], close_fds=False, capture_output=True, text=True)
    return [done.returncode, done.stdout, done.stderr]
if turn["input"] == "x":
    given = callboard("CALLBOARD", "send", "namer", "two", "--json")
    request = json.loads(given[1])["request_id"]
    seen = [
        callboard("CALLBOARD", "send", "namer", "one", "--wait"),
        callboard("CALLBOARD", "wait", request),
        callboard("CALLBOARD", "status", request, "--json"),
        callboard("CALLBOARD", "send", "lead", "three"),
        callboard("CALLBOARD", "send", "nobody", "three", "--wait"),
        callboard("CALLBOARD", "send", "namer", "three", "--limits", "simple"),
        callboard("CALLBOARD", "wait", "@last"),
        callboard("env", "-i", "CALLBOARD", "send", "namer", "three"),
        callboard("CALLBOARD", "run", "three", "--to", "namer"),
        callboard("CALLBOARD", "pending"),
    ]
    open("seen.json", "w").write(json.dumps([request, seen]))
    end(turn)
else:
    end(turn, turn["input"]["answer"]["output"])
"#;
    add_python_agent(&folder, "lead", &lead.replace("CALLBOARD", CALLBOARD));
    add_shell_agent(&folder, "namer", "while turn; do finish '\"output\":\"a \\\"name\\\"\"'; done");
    let printed = callboard(&folder, &["run", "x", "--to", "lead", "--quiet", "--ephemeral"]);
    assert_eq!((printed.code, printed.out.as_str()), (Some(0), "a \"name\"\n"), "{}", printed.error);
    let seen: Value = serde_json::from_str(&fs::read_to_string(folder.path().join("seen.json")).unwrap()).unwrap();
    let (request, seen) = (&seen[0], seen[1].as_array().unwrap());
    assert_eq!(seen[0], json!([0, "a \"name\"\n", ""]));
    assert_eq!(seen[1], seen[0]);
    let status: Value = serde_json::from_str(seen[2][1].as_str().unwrap()).unwrap();
    let expected = json!({ "request_id": request, "status": "complete", "detail": "", "body": "a \"name\"" });
    assert_eq!(status, expected);
    let refused = [
        (3, 1, "error: lead is already in the delegation chain"),
        (4, 3, "error: no agent has the name, role or capability \"nobody\""),
        (5, 2, "error: within the turn of an agent, --limits and --key have no meaning"),
        (6, 1, "error: this turn has made no delegation \"@last\""),
        (7, 4, "error: this process was started by an agent"),
        (8, 4, "error: this process was started by an agent"),
    ];
    let hidden = "error: this process was started by an agent (CALLBOARD_PROCESS is set), and stores and servers are hidden from it: within a \
                  turn only `callboard send`, `callboard status` and `callboard wait` work, for what the turn delegates\n";
    assert_eq!(seen[9], json!([4, "", hidden]));
    for (index, code, text) in refused {
        let (exit, out, error) = (&seen[index][0], &seen[index][1], seen[index][2].as_str().unwrap());
        assert!(*exit == code && *out == "" && error.starts_with(text), "{index}: {}", seen[index]);
    }
}
