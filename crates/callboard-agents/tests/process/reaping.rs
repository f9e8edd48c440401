//! What becomes of processes that commands leave in a process that adopts them: those that have ended do not stay as zombies, and
//! no status of a command is lost. What adopts is a process, so each test has one to itself, and starts no program but by commands.

#![cfg(all(target_os = "linux", feature = "shell"))]

use std::fs;
use std::path::Path;
use std::time::Duration;

use callboard_agents::tools::{Root, ShellExec};
use callboard_agents::{Tool, ToolScope, reap_orphans};
use futures::future::join_all;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{getpid, set_child_subreaper};
use serde_json::json;

use crate::alone::is_alone;

/// Longer than anything takes on a busy machine, and shorter than a command may take.
const DEADLINE: Duration = Duration::from_secs(40);

fn shell(folder: &Path) -> ShellExec {
    ShellExec::new(&Root::open(folder).unwrap())
}

async fn run(shell: &ShellExec, command: &str) -> String {
    let scope =
        ToolScope { key: "test".into(), context: None, turn: None, variables: None, trace_parent: None, asker: None };
    shell.call(json!({ "command": command }).into(), scope).await.unwrap().text
}

fn adopt() {
    set_child_subreaper(Some(getpid())).unwrap();
    tokio::spawn(reap_orphans());
}

/// How many children of this process have this name and have ended.
fn zombies(name: &str) -> usize {
    let own = getpid().as_raw_nonzero().to_string();
    let stats = fs::read_dir("/proc").unwrap().flatten();
    let stats = stats.filter_map(|process| fs::read_to_string(process.path().join("stat")).ok());
    stats.filter(|stat| stat.contains(&format!(" ({name}) Z {own} "))).count()
}

/// Starts 300 processes whose parents end, lets them end, and then waits until it may end itself.
const FORKS: &str = concat!(
    "import os\n",
    include_str!("orphans.py"),
    "
open('forked', 'w').close()
open('go').read()
print('gone on')
"
);

#[tokio::test]
async fn processes_that_a_running_command_has_left_and_that_have_ended_are_no_zombies() {
    if !is_alone("reaping::processes_that_a_running_command_has_left_and_that_have_ended_are_no_zombies") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for pipe in ["forked", "go"] {
        mknodat(CWD, folder.path().join(pipe), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    }
    fs::write(folder.path().join("forks.py"), FORKS).unwrap();
    adopt();
    let shell = shell(folder.path());
    let command = tokio::spawn(async move { run(&shell, "exec /usr/bin/python3 forks.py").await });
    let forked = folder.path().join("forked");
    tokio::task::spawn_blocking(move || fs::read(forked).unwrap()).await.unwrap();
    // There is no event for what a process no longer is.
    let gone = async {
        while zombies("python3") > 0 {
            tokio::task::yield_now().await;
        }
    };
    let gone = tokio::time::timeout(DEADLINE, gone).await;
    let left = zombies("python3");
    let go = folder.path().join("go");
    tokio::task::spawn_blocking(move || fs::write(go, "").unwrap()).await.unwrap();
    assert_eq!(command.await.unwrap(), "exit code 0\ngone on\n");
    assert!(gone.is_ok(), "{left} zombies");
}

#[tokio::test]
async fn no_status_of_many_short_commands_is_lost_while_what_they_leave_is_reaped() {
    if !is_alone("reaping::no_status_of_many_short_commands_is_lost_while_what_they_leave_is_reaped") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    adopt();
    let shell = shell(folder.path());
    for round in 0..8 {
        let codes = (0..16).map(|number| round * 16 + number);
        let runs = codes.map(|code| {
            let shell = &shell;
            async move {
                let printed = run(shell, &format!("(true & true &); (setsid true &); exit {code}")).await;
                assert_eq!(printed, format!("exit code {code}\n(it printed nothing)"));
            }
        });
        join_all(runs).await;
    }
}
