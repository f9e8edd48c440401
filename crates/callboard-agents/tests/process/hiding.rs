//! What a program of an agent tries in order to decide about its own approvals: to read tokens, to reach sockets, to enter the file
//! system or the memory of the board. As root, where the tests run as root, and as an ordinary user.

#![cfg(all(target_os = "linux", target_arch = "x86_64", feature = "process"))]

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::process::Command;

use callboard::prelude::*;
use callboard_agents::{Definition, ProcessAgent, can_hide_from_programs, hide_from_programs};
use rustix::process::geteuid;
use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};
use serde_json::json;

use crate::common::{builder, skip};
use crate::ordinary_user::as_an_ordinary_user;
#[cfg(feature = "mcp")]
use crate::peers::{program, tools, use_one};

const PRELUDE: &str = include_str!("../programs/prelude.py");
const ATTACKS: &str = include_str!("hiding.py");
/// Attacks in each turn, as a process agent.
const IN_TURNS: &str = "
begin()
while True:
    turn = hear()
    end(turn, attacks(turn['input']))
";
/// Attacks in each use of its tool, as an MCP server.
#[cfg(feature = "mcp")]
const IN_USES: &str = "
TOOLS = [tool('attack', given={'type': 'object'})]
serve(lambda request: text(json.dumps(attacks(request['params']['arguments']['given']))))
";

async fn output(agent: impl Fn() -> ProcessAgent + Send + Sync + 'static, input: serde_json::Value) -> Json {
    let board = builder().with(AgentSpec::new("worker", agent)).start().await.unwrap();
    let run = board.submit(Task::new("try").input(input)).await.unwrap();
    let result = run.result().await.unwrap();
    assert_eq!(result.outcome, Outcome::Finished, "{:#?}", run.history().await);
    board.shutdown().await;
    result.output
}

/// Answers connections with the token.
fn answering(socket: UnixListener) {
    std::thread::spawn(move || {
        for mut stream in socket.incoming().flatten() {
            let _ = stream.write_all(b"C4N4RY");
        }
    });
}

/// The bytes by which the file system finds a folder again, as `name_to_handle_at` returns them; empty where it has none.
fn handle_of(folder: &Path) -> String {
    let script = "import ctypes, sys; l = ctypes.CDLL(None); b = ctypes.create_string_buffer(136); b[0] = bytes([128]); m = \
                  ctypes.c_int(); l.syscall(303, -100, sys.argv[1].encode(), b, ctypes.byref(m), 0); sys.stdout.write(b.raw.hex())";
    String::from_utf8(Command::new("python3").args(["-c", script]).arg(folder).output().unwrap().stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_program_of_an_agent_reaches_what_is_hidden() {
    if let Err(why) = can_hide_from_programs() {
        return skip(&why);
    }
    let place = tempfile::tempdir().unwrap();
    let state = place.path().join("state/callboard");
    fs::create_dir_all(&state).unwrap();
    fs::write(state.join("token"), "C4N4RY").unwrap();
    hide_from_programs(&state);
    let board = std::process::id();
    let sockets = format!("/tmp/callboard-{}", geteuid().as_raw());
    let _ = fs::DirBuilder::new().mode(0o700).create(&sockets);
    let socket = Path::new(&sockets).join(format!("hiding-{board}.sock"));
    let _ = fs::remove_file(&socket);
    answering(UnixListener::bind(&socket).unwrap());
    let name = SocketAddr::from_abstract_name(format!("callboard-hiding-{board}")).unwrap();
    answering(UnixListener::bind_addr(&name).unwrap());
    let work = place.path().join("work");
    fs::create_dir(&work).unwrap();
    let (held, agent_work) = (fs::File::open(state.join("token")).unwrap(), work.clone());
    let agent = move || {
        let source = format!("{PRELUDE}{ATTACKS}{IN_TURNS}");
        ProcessAgent::new("python3").args(["-c", &source]).current_dir(&agent_work).env("TMPDIR", &agent_work)
    };
    let pty = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    unlockpt(&pty).unwrap();
    let terminal = ptsname(&pty, Vec::new()).unwrap().into_string().unwrap();
    assert!(fs::File::options().read(true).write(true).open(&terminal).is_ok());
    // Outside, the same ways come through.
    let script = "import socket, sys; b, t, s = sys.argv[1:]; print(open(t).read(), open(f'/proc/{b}/root{t}').read()); l = \
                  socket.socket(socket.AF_UNIX); l.connect(s); print(l.recv(6).decode())";
    let mut outside = Command::new("python3");
    outside.args(["-c", script, &board.to_string()]).arg(state.join("token")).arg(&socket);
    assert_eq!(String::from_utf8_lossy(&outside.output().unwrap().stdout), "C4N4RY C4N4RY\nC4N4RY\n");
    let input = json!({
        "board": board, "state": state, "work": work, "socket": socket, "handle": handle_of(&state),
        "terminal": terminal,
    });
    let answers: BTreeMap<String, String> = output(agent, input.clone()).await.parse().unwrap();
    assert_refused(&answers);
    #[cfg(feature = "mcp")]
    {
        let server = program("attacker", &format!("{ATTACKS}{IN_USES}"));
        let tools = tools(&format!("{server}env = {{ TMPDIR = {work:?} }}\n")).await;
        let used = use_one(&tools, "mcp__attacker__attack", json!({ "given": input })).await;
        assert_refused(&serde_json::from_str(&used.text).unwrap_or_else(|error| panic!("{error}: {}", used.text)));
    }
    assert_eq!(fs::read_dir(&state).unwrap().count(), 1, "nothing was put there");
    assert!(place.path().join("state/callboard/token").exists() && !Path::new("/etc/callboard-attack").exists());
    drop((held, fs::remove_file(&socket)));
    as_an_ordinary_user("hiding::no_program_of_an_agent_reaches_what_is_hidden");
}

fn assert_refused(answers: &BTreeMap<String, String>) {
    let came_through: Vec<_> = answers.iter().filter(|(_, answer)| !is_refused(answer)).collect();
    assert!(came_through.is_empty(), "{came_through:#?}\nof {answers:#?}");
    assert!(answers.len() > 130, "{} attempts", answers.len());
}

/// Whether the answer is one of the kernel that refuses the attempt.
fn is_refused(answer: &str) -> bool {
    answer != "DONE" && !answer.starts_with("BROKEN")
}

#[tokio::test]
async fn a_program_that_starts_in_the_root_folder_does_not_see_more() {
    if let Err(why) = can_hide_from_programs() {
        return skip(&why);
    }
    let place = tempfile::tempdir().unwrap();
    let state = place.path().join("state");
    fs::create_dir(&state).unwrap();
    fs::write(state.join("token"), "C4N4RY").unwrap();
    hide_from_programs(&state);
    let work = r#"
begin()
turn = hear()
end(turn, [path for path in (turn["input"], "/.." + turn["input"], turn["input"][1:], ".." + turn["input"]) if os.path.exists(path)])
"#;
    let agent = move || ProcessAgent::new("python3").args(["-c", &format!("{PRELUDE}{work}")]).current_dir("/");
    assert_eq!(output(agent, json!(state.join("token"))).await, json!([]));
    as_an_ordinary_user("hiding::a_program_that_starts_in_the_root_folder_does_not_see_more");
}

#[tokio::test]
async fn a_program_still_does_what_its_work_needs() {
    if let Err(why) = can_hide_from_programs() {
        return skip(&why);
    }
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
    let work = r#"
import subprocess, tempfile, socket, signal, pty
begin()
turn = hear()
open("made", "w").write("here")
tempfile.NamedTemporaryFile().write(b"x")
server = socket.create_server(("127.0.0.1", 0))
socket.create_connection(server.getsockname())
ours, theirs = pty.openpty()
os.close(os.open(os.ttyname(theirs), os.O_RDWR | os.O_NOCTTY))
child = subprocess.Popen(["sleep", "1000"])
child.send_signal(signal.SIGKILL)
shell = subprocess.run(["sh", "-c", "echo $((6 * 7)); cat /proc/self/status > /dev/null; ls /usr > /dev/null; echo x > /dev/null"],
                       capture_output=True, text=True)
end(turn, [os.getuid(), child.wait(), shell.stdout, shell.stderr, os.getcwd()])
"#;
    let folder = place.path().to_owned();
    let agent = {
        let folder = folder.clone();
        move || ProcessAgent::new("python3").args(["-c", &format!("{PRELUDE}{work}")]).current_dir(&folder)
    };
    let answered = output(agent, json!({})).await;
    assert_eq!(answered, Json::from(json!([geteuid().as_raw(), -9, "42\n", "", folder])));
    assert_eq!(fs::read_to_string(place.path().join("made")).unwrap(), "here");
    as_an_ordinary_user("hiding::a_program_still_does_what_its_work_needs");
}

/// Connects to the path, and ends its turn with what it receives.
const CONNECTS: &str = r#"
import socket
begin()
turn = hear()
def answer(path):
    try:
        line = socket.socket(socket.AF_UNIX)
        line.connect(path)
        return line.recv(6).decode()
    except OSError as error:
        return error.strerror
end(turn, answer(turn["input"]))
"#;

#[tokio::test(flavor = "multi_thread")]
async fn dockers_socket_is_given_to_a_program_whose_role_grants_it() {
    let Some(home) = std::env::home_dir() else { return skip("there is no home folder") };
    if let Err(why) = can_hide_from_programs() {
        return skip(&why);
    }
    let docker = home.join(".docker");
    let was_there = docker.exists();
    let place = tempfile::tempdir().unwrap();
    if let Err(why) = fs::create_dir_all(docker.join("run")) {
        return skip(&why.to_string());
    }
    let socket = docker.join(format!("run/callboard-{}.sock", std::process::id()));
    answering(UnixListener::bind(&socket).unwrap());
    let link = place.path().join("link");
    let mut answers = Vec::new();
    for role in ["role = \"admin\"", "role = \"developer\"", "role = \"other\"", ""] {
        let text = format!(
            "[agent]\nname = \"worker\"\n[agent.announces]\n{role}\n[agent.process]\ncommand = [\"python3\", \"-c\", {:?}]\n\
             env = {{ SOCK = {link:?} }}\n",
            format!("{PRELUDE}{CONNECTS}")
        );
        // When the file is read, the variable names no such socket.
        let definition = Definition::from_toml("worker.toml", &text).unwrap();
        std::os::unix::fs::symlink(&socket, &link).unwrap();
        let read_again = Definition::from_toml("worker.toml", &text);
        assert_eq!(read_again.is_ok(), role.contains("admin"), "{read_again:?}");
        let spec = ProcessAgent::spec(&definition, place.path()).unwrap();
        let board = builder().with(spec).start().await.unwrap();
        let run = board.submit(Task::new("try").input(json!(socket))).await.unwrap();
        answers.push(run.result().await.unwrap().output);
        board.shutdown().await;
        fs::remove_file(&link).unwrap();
    }
    fs::remove_file(&socket).unwrap();
    if !was_there {
        fs::remove_dir_all(&docker).unwrap();
    }
    let absent = "No such file or directory";
    assert_eq!(answers, ["C4N4RY", absent, absent, absent]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_that_a_variable_names_is_given_to_the_program() {
    if let Err(why) = can_hide_from_programs() {
        return skip(&why);
    }
    let place = tempfile::tempdir().unwrap();
    let folder = format!("/tmp/tmux-{}", geteuid().as_raw());
    let _ = fs::DirBuilder::new().mode(0o700).create(&folder);
    let socket = Path::new(&folder).join(format!("below-{}", std::process::id()));
    let _ = fs::remove_file(&socket);
    answering(UnixListener::bind(&socket).unwrap());
    let agent = |variable: Option<&Path>| {
        let (folder, variable) = (place.path().to_owned(), variable.map(Path::to_owned));
        move || {
            let agent = ProcessAgent::new("python3").args(["-c", &format!("{PRELUDE}{CONNECTS}")]).current_dir(&folder);
            variable.iter().fold(agent, |agent, socket| agent.env("AGENT_SOCK", socket))
        }
    };
    assert_eq!(output(agent(None), json!(socket)).await, "No such file or directory");
    assert_eq!(output(agent(Some(&socket)), json!(socket)).await, "C4N4RY");
    // Wherever a process of this user listens, but for the folder that the program works in.
    let elsewhere = tempfile::tempdir().unwrap();
    for (folder, answer) in [(&elsewhere, "Connection refused"), (&place, "C4N4RY")] {
        let other = folder.path().join("other.sock");
        answering(UnixListener::bind(&other).unwrap());
        assert_eq!(output(agent(None), json!(other)).await, answer);
        assert_eq!(output(agent(Some(&other)), json!(other)).await, "C4N4RY");
    }
    let own = format!("/tmp/callboard-{}", geteuid().as_raw());
    let _ = fs::DirBuilder::new().mode(0o700).create(&own);
    let own = Path::new(&own).join(format!("named-{}.sock", std::process::id()));
    let _ = fs::remove_file(&own);
    answering(UnixListener::bind(&own).unwrap());
    assert_eq!(output(agent(Some(&own)), json!(own)).await, "No such file or directory", "callboard's own is not");
    for socket in [socket, own] {
        fs::remove_file(socket).unwrap();
    }
    as_an_ordinary_user("hiding::a_socket_that_a_variable_names_is_given_to_the_program");
}

#[tokio::test]
async fn a_program_cannot_replace_a_link_on_the_way_to_what_is_hidden_nor_start_in_it() {
    if let Err(why) = can_hide_from_programs() {
        return skip(&why);
    }
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    fs::create_dir_all(path("real/state")).unwrap();
    std::os::unix::fs::symlink("second", path("first")).unwrap();
    std::os::unix::fs::symlink("real", path("second")).unwrap();
    hide_from_programs(path("first/state"));
    let work = r#"
begin()
turn = hear()
def outcome(way, *paths):
    try:
        way(*(turn["input"] + "/" + path for path in paths))
        return "DONE"
    except OSError as error:
        return error.strerror
os.symlink("elsewhere", turn["input"] + "/new")
end(turn, [outcome(os.remove, "first"), outcome(os.rename, "new", "first"), outcome(os.rename, "second", "third"),
           outcome(os.rename, "new", "newer"), os.readlink(turn["input"] + "/first")])
"#;
    let program = format!("{PRELUDE}{work}");
    let (busy, source) = ("Device or resource busy", program.clone());
    let agent = move || ProcessAgent::new("python3").args(["-c", &source]);
    assert_eq!(output(agent, json!(place.path())).await, json!([busy, busy, busy, "DONE", "second"]));
    let state = path("first/state");
    let agent = move || ProcessAgent::new("python3").args(["-c", &program]).current_dir(&state);
    let board = builder().with(AgentSpec::new("worker", agent)).start().await.unwrap();
    let result = board.submit(Task::new("try").input("x")).await.unwrap().result().await.unwrap();
    let text = result.outcome.to_string();
    assert!(text.contains("real/state is hidden from programs of agents"), "{text}");
    board.shutdown().await;
    drop(place);
    as_an_ordinary_user("hiding::a_program_cannot_replace_a_link_on_the_way_to_what_is_hidden_nor_start_in_it");
}
