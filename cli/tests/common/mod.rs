//! A store with runs in it, the same at each run of the tests, and the program to look into it with.

#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses its part of it; a test may panic")]

use std::path::Path;
use std::process::{self, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use callboard::env::Env;
use callboard::messages::{Durability, RunId, Send, Timestamp, Usage};
use callboard::prelude::*;
use callboard::runtime::{Builder, RunHandle};
use callboard::storage::Memory;
use callboard::storage::transfer::copy_all;
use serde_json::json;

/// Text that would colour a terminal, reverse a line and add another, if it were shown as it is.
pub(crate) const HOSTILE: &str = "\u{1b}[31mred\u{202e}desrever\nrun 2 approved by root";

/// A small press: `lead` has `scout` search, hands to `writer`, and that one to `printer`, which is strict about drafts.
pub(crate) fn press(builder: Builder) -> Builder {
    builder
        .agent("lead", |turn: Turn| async move {
            let found = turn.delegate("scout", "find sources").await?;
            let text = if turn.input::<String>()?.contains("short") { "short draft" } else { "draft" };
            Ok(Command::output(text).with("messages", "planned").with("sources", found).goto("writer"))
        })
        .agent("scout", |turn: Turn| async move {
            tokio::time::sleep(Duration::from_millis(2500)).await;
            turn.reserve(1500).await?.settle(Usage::of(1000, 234));
            let pages: u32 = turn.step("search", async { Ok::<_, TurnError>(3) }).await?;
            Ok(Command::output(pages).with("artifacts", json!({ HOSTILE: "sources.md" })))
        })
        .agent("writer", |turn: Turn| async move {
            turn.notice(HOSTILE);
            Ok(Command::output(format!("{}, polished", turn.input::<String>()?))
                .with("messages", HOSTILE)
                .goto("printer"))
        })
        .agent("printer", |turn: Turn| async move {
            let text: String = turn.input()?;
            if text.starts_with("short") {
                return Err(TurnError::terminal(format!("too short: {HOSTILE}")));
            }
            Ok(Command::output(format!("printed: {text}")).with("messages", "printed"))
        })
        .agent("host", |turn: Turn| async move {
            let answer: String = turn.ask("Who is there?").await?.parse()?;
            Ok(Command::output(answer))
        })
        .agent("panel", |_: Turn| async {
            Ok(Command::new().goto_many([Send::new("judge", "kind"), Send::new("judge", "strict")]))
        })
        .agent("judge", |turn: Turn| async move {
            let mood: String = turn.input()?;
            Ok(Command::output(format!("{mood} is fine")).with("messages", mood))
        })
}

/// Runs that are in every store of these tests, by what they are for.
pub(crate) struct Runs {
    pub(crate) printed: RunId,
    pub(crate) too_short: RunId,
    pub(crate) waiting: RunId,
    pub(crate) judged: RunId,
}

/// Makes a store in `folder`, closed again.
pub(crate) fn make_store(folder: &Path) -> Runs {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let env = Env::repeatable(7);
        let memory = Arc::new(Memory::new(env.clock()));
        let builder = Callboard::builder().env(env).storage(memory.clone()).durability(Durability::Sync);
        let board = press(builder).start().await.unwrap();
        let submit = async |task: Task| board.submit(task).await.unwrap();
        let ended = async |run: RunHandle| {
            run.result().await.unwrap();
            tokio::time::advance(Duration::from_millis(1234)).await;
            run.id()
        };
        let printed = ended(submit(Task::new("write about sleds").to("lead")).await).await;
        let too_short = ended(submit(Task::new(&format!("a short one {HOSTILE}")).to("lead")).await).await;
        let judged = ended(submit(Task::new("judge").to("panel")).await).await;
        let waiting = submit(Task::new("receive").to("host")).await;
        waiting.next_question().await.unwrap().unwrap();
        let waiting = waiting.id();
        board.shutdown().await;
        let sled = Sled::open(folder).unwrap();
        copy_all(&*memory, &sled, Timestamp::from_millis(0)).await.unwrap();
        sled.close().await;
        Runs { printed, too_short, waiting, judged }
    })
}

/// What the program said, with its exit code.
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) error: String,
}

/// Runs `callboard runs ARGUMENTS --data FOLDER` with nothing to read.
pub(crate) fn callboard(folder: &Path, arguments: &[&str]) -> Said {
    let output = command(folder, arguments).stdin(Stdio::null()).output().unwrap();
    said(output)
}

pub(crate) fn command(folder: &Path, arguments: &[&str]) -> process::Command {
    let mut command = process::Command::new(env!("CARGO_BIN_EXE_callboard"));
    command.env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"));
    command.arg("runs").args(arguments).arg("--data").arg(folder);
    command
}

pub(crate) fn said(output: Output) -> Said {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said { code: output.status.code().unwrap(), out: text(output.stdout), error: text(output.stderr) }
}
