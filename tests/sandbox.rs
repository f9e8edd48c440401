//! What a confined command tries against the board, its user and the machine, and what it may do all the same. Each attempt
//! has a name and an expected answer; all are made as root (where the tests run as root) and as an ordinary user.

#![cfg(all(target_os = "linux", feature = "shell"))]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use callboard::agents::tools::{Root, ShellExec};
use callboard::agents::{Tool, ToolScope};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::geteuid;
use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};
use serde_json::json;

const ATTACKS: &str = include_str!("sandbox.py");

/// Has this binary, started by another user, do a test there.
const AS_OTHER: &str = "CALLBOARD_SANDBOX_AS_OTHER";

async fn run(shell: &ShellExec, command: &str) -> String {
    let scope = ToolScope { key: "test".into(), context: None };
    let call = shell.call(json!({ "command": command, "timeout_seconds": 500 }).into(), scope);
    call.await.unwrap_or_else(|failure| panic!("{command}: {failure:?}")).text
}

/// Runs a test of this binary as `nobody`, where it runs as root.
fn as_an_ordinary_user(test: &str) {
    if !geteuid().is_root() || std::env::var_os(AS_OTHER).is_some() {
        return;
    }
    let place = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir().unwrap();
    let binary = place.path().join("test");
    fs::copy(std::env::current_exe().unwrap(), &binary).unwrap();
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(binary)
        .args(["--exact", test, "--nocapture"])
        .current_dir("/")
        .env(AS_OTHER, "1")
        .env("HOME", "/nonexistent")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "as an ordinary user: {said}");
}

fn attempts(said: &str) -> BTreeMap<&str, &str> {
    said.lines().filter_map(|line| line.split_once(' ')).filter(|(name, _)| *name != "exit").collect()
}

#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn no_attempt_of_a_confined_command_succeeds() {
    let world = tempfile::tempdir().unwrap();
    let (inside, outside) = (world.path().join("inside"), world.path().join("secret"));
    fs::create_dir(&inside).unwrap();
    fs::write(&outside, "C4N4RY").unwrap();
    fs::write(inside.join("attacks.py"), ATTACKS).unwrap();
    // As a careless library opens it.
    let open = fs::File::options().read(true).write(true).open(&outside).unwrap();
    fcntl_setfd(&open, FdFlags::empty()).unwrap();
    let shell = ShellExec::new(&Root::open(&inside).unwrap());
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
    let (board, secret, descriptor) = (std::process::id(), outside.display(), open.as_raw_fd());
    let command = format!("/usr/bin/python3 attacks.py {board} {secret} {descriptor} {name}");
    let said = run(&shell, &command).await;
    let made = attempts(&said);
    let came_through: Vec<_> = made.iter().filter(|(name, answer)| !is_refused(name, answer)).collect();
    assert!(came_through.is_empty(), "{came_through:?}\n{said}");
    assert!(said.starts_with("exit code 0") && made.len() >= 160, "{} attempts: {said}", made.len());
    assert_eq!(fs::read_to_string(&outside).unwrap(), "C4N4RY");
    println!("campaign sandbox: {} attempts, 0 came through", made.len());
    as_an_ordinary_user("no_attempt_of_a_confined_command_succeeds");
}

/// Whether the answer is one of confinement, and not of arguments that are wrong: `DONE` is none.
fn is_refused(name: &str, answer: &str) -> bool {
    match answer {
        "EPERM" | "EACCES" | "ENOSYS" => true,
        "EBADF" => name.ends_with("inherited_descriptor"),
        // A link may not leave its folder.
        "EXDEV" => name == "link_outside",
        // The standard input of a command is no terminal.
        "ENOTTY" => name == "tiocspgrp",
        // Not all machines have these.
        "ENOENT" => ["open_mem", "open_disk", "open_console", "write_sysrq"].contains(&name),
        _ => false,
    }
}

#[tokio::test]
async fn a_confined_command_has_a_session_of_its_own_and_no_terminal() {
    let inside = tempfile::tempdir().unwrap();
    let shell = ShellExec::new(&Root::open(inside.path()).unwrap());
    let said =
        run(&shell, "python3 -c 'import os; print(os.getsid(0) == os.getppid() or os.getsid(0) == os.getpid())'").await;
    assert_eq!(said, "exit code 0\nTrue\n");
}

#[tokio::test]
async fn what_a_program_may_do_to_itself_is_still_allowed() {
    let inside = tempfile::tempdir().unwrap();
    let shell = ShellExec::new(&Root::open(inside.path()).unwrap());
    let program = "
import os, resource, socket, subprocess, sys, threading
os.nice(1)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
os.sched_setaffinity(0, os.sched_getaffinity(0))
a, b = socket.socketpair()
a.send(b'x'); assert b.recv(1) == b'x'
server = socket.socket(); server.bind(('127.0.0.1', 0)); server.listen()
client = socket.create_connection(server.getsockname()); client.close()
thread = threading.Thread(target=lambda: None); thread.start(); thread.join()
child = subprocess.Popen(['sleep', '1000']); child.terminate(); assert child.wait() == -15
print(subprocess.run(['sh', '-c', 'cat'], input=b'piped', capture_output=True).stdout.decode())
";
    fs::write(inside.path().join("own.py"), program).unwrap();
    assert_eq!(run(&shell, "/usr/bin/python3 own.py").await, "exit code 0\npiped\n");
    as_an_ordinary_user("what_a_program_may_do_to_itself_is_still_allowed");
}

/// Whether a program is there; in CI it must be.
fn is_there(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap().status.success();
    assert!(found || std::env::var_os("CALLBOARD_CI").is_none(), "{program} is missing");
    found
}

async fn works(test: &str, program: &str, shell: impl Fn(&Root) -> ShellExec, script: &str, expected: &str) {
    if !is_there(program) {
        return;
    }
    let inside = tempfile::tempdir().unwrap();
    let said = run(&shell(&Root::open(inside.path()).unwrap()), &format!("set -e\n{script}")).await;
    assert!(said.starts_with("exit code 0") && said.trim_end().ends_with(expected), "{said}");
    as_an_ordinary_user(test);
}

#[tokio::test]
async fn git_works_in_a_confined_command() {
    let script = "
git init -q project && cd project
git config user.email a@b.c && git config user.name A
echo text > file && git add file && git commit -qm first
cd .. && git clone -q project copy && git -C copy log --format=%s";
    works("git_works_in_a_confined_command", "git", ShellExec::new, script, "first").await;
}

#[tokio::test]
async fn make_and_a_compiler_work_in_a_confined_command() {
    let script = r#"
printf 'int main(void) { return 0; }\n' > a.c && cp a.c b.c && cp -p a.c c.c
printf 'all: a b c\n' > Makefile
make -s -j4 && ./a && ./b && ./c && echo built"#;
    works("make_and_a_compiler_work_in_a_confined_command", "make", ShellExec::new, script, "built").await;
}

#[tokio::test]
async fn python_works_in_a_confined_command() {
    let script = r#"
cat > main.py <<'END'
import multiprocessing, subprocess, sys
def work(pipe): pipe.send(6 * 7); pipe.close()
if __name__ == '__main__':
    here, there = multiprocessing.Pipe()
    process = multiprocessing.Process(target=work, args=(there,)); process.start()
    print(here.recv(), subprocess.check_output([sys.executable, '-c', 'print(1)']).decode().strip()); process.join()
END
/usr/bin/python3 -m venv --without-pip venv && venv/bin/python main.py"#;
    works("python_works_in_a_confined_command", "/usr/bin/python3", ShellExec::new, script, "42 1").await;
}

#[tokio::test]
async fn node_and_npm_work_in_a_confined_command() {
    let script = r#"
mkdir package && printf '{"name":"local","version":"1.0.0","main":"index.js"}' > package/package.json
printf 'module.exports = 42' > package/index.js && tar czf local.tgz package && rm -r package
printf '{"name":"project","version":"1.0.0"}' > package.json
npm install --silent --offline --no-audit --no-fund ./local.tgz
cat > main.js <<'END'
const { Worker } = require('worker_threads');
const { execFileSync } = require('child_process');
const code = "require('worker_threads').parentPort.postMessage(require('local') + 1)";
new Worker(code, { eval: true }).on('message', (sum) => console.log(sum, execFileSync('echo', ['child']).toString().trim()));
END
node main.js"#;
    works("node_and_npm_work_in_a_confined_command", "npm", ShellExec::new, script, "43 child").await;
}

#[tokio::test]
async fn cargo_works_in_a_confined_command() {
    // Where the toolchain lies in the home of root, nobody else has one.
    let printed = match Command::new("rustc").args(["--print", "sysroot"]).output() {
        Err(_) if std::env::var_os(AS_OTHER).is_some() => return,
        printed => printed.unwrap().stdout,
    };
    let sysroot = String::from_utf8(printed).unwrap().trim().to_owned();
    let script = format!(
        "export PATH={sysroot}/bin:$PATH
cargo init -q --vcs none --name tiny --lib .
cargo build -q --offline && cargo test -q --offline --lib 2>&1 | grep 'test result'"
    );
    let shell = |root: &Root| ShellExec::new(root).reads(Path::new(&sysroot));
    works("cargo_works_in_a_confined_command", "cargo", shell, &script, "finished in 0.00s").await;
}
