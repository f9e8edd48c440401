//! What a program of an agent tries against the server that has started it: real processes.

#![cfg(target_os = "linux")]

use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::support::CALLBOARD;
use crate::support::agents::add_python_agent;
use crate::support::project::Project;
use crate::support::running::Running;
use crate::support::serving::Serving;

/// Tries to reach the tokens and sockets of its server; ends with what came through.
const ATTACKER: &str = r#"
import glob, socket, subprocess
found = []
def attempt(name, way):
    try:
        if way():
            found.append(name)
    except OSError:
        pass
def connect(path):
    line = socket.socket(socket.AF_UNIX)
    line.connect(path)
    return True
def read(path):
    return open(path, "rb").read()
state, board = "STATE", os.getppid()
for root in ["", "/proc/self/root", f"/proc/{board}/root"]:
    for path in glob.glob(f"{root}{state}/**", recursive=True):
        attempt(f"list {path}", lambda: path.rstrip("/") != f"{root}{state}/callboard" and path.rstrip("/") != f"{root}{state}")
        attempt(f"read {path}", lambda: os.path.isfile(path) and read(path))
    for folder in (f"/tmp/callboard-{os.getuid()}", f"/run/user/{os.getuid()}"):
        for path in glob.glob(f"{root}{folder}/**", recursive=True):
            attempt(f"connect {path}", lambda: connect(path))
attempt("environment", lambda: read(f"/proc/{board}/environ"))
for command in (["approve", "@last"], ["serve", "--listen", "127.0.0.1:0"], ["tokens", "add", "mine", "--scope", "approve"], ["send", "writer", "x"]):
    program = ["env", "-i", "PATH=" + os.environ["PATH"], "XDG_STATE_HOME=" + state, "setsid", "-w", "CALLBOARD", *command]
    answer = subprocess.run(program, capture_output=True, text=True)
    if answer.returncode == 0 or answer.stdout:
        found.append(f"{command}: {answer.returncode} {answer.stdout} {answer.stderr}")
if turn["task"] == "ask":
    ask(type="approve", action="deploy", target="production", arguments={})
end(turn, found)
"#;

fn with_attacker() -> Project {
    let project = Project::new();
    let state = project.state.path().to_str().unwrap();
    add_python_agent(&project.folder, "attacker", &ATTACKER.replace("STATE", state).replace("CALLBOARD", CALLBOARD));
    project
}

#[test]
fn a_program_of_an_agent_reaches_neither_the_tokens_nor_the_sockets_of_its_server() {
    let project = with_attacker();
    let serving = Serving::start(&project);
    assert!(serving.line.starts_with("2 agents running"), "{}", serving.line);
    assert_eq!(project.callboard(&["send", "attacker", "try"]).code, Some(0));
    let waited = project.callboard(&["wait", "@last"]);
    assert_eq!((waited.code, &*waited.out), (Some(0), "[]\n"), "{}", waited.error);
    let stopped = serving.stop();
    assert!(!stopped.error.contains("warning: programs of agents"), "{}", stopped.error);
}

#[test]
fn where_nothing_can_be_hidden_from_programs_decisions_are_refused_at_other_terminals() {
    let project = with_attacker();
    // A user namespace in which no further ones can be made.
    let served = project.command(&["serve", "--listen", "127.0.0.1:0"]);
    let line = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "sh", "-c", line]).arg(served.get_program()).args(served.get_args());
    command.current_dir(&project.folder).env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.envs(served.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut serving = Running::start(command);
    let said = serving.until("warning: programs of agents and MCP servers can reach the tokens");
    assert!(said.contains("takes decisions only at its own terminal"), "{said}");
    assert_eq!(project.callboard(&["send", "attacker", "ask"]).code, Some(0));
    assert_eq!(project.callboard(&["wait", "@last"]).code, Some(5));
    let refused = project.callboard(&["approve", "@last"]);
    let why = "decide at the terminal of the process that works on the run";
    assert!(refused.code == Some(4) && refused.error.contains(why), "{:?} {}", refused.code, refused.error);
    serving.send(Signal::INT);
    assert_eq!(serving.ended().code, Some(0));
}
