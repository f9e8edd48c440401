//! A store with runs, which are the same in each run of the tests.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use callboard::env::Env;
use callboard::messages::{Durability, RunId, SendTo, Timestamp, Usage};
use callboard::prelude::{Callboard, Sled, Task, Turn, TurnError};
use callboard::runtime::{Builder, RunHandle};
use callboard::storage::{Memory, Transfer};
use serde_json::json;

use super::{Printed, command, output_of};

/// Text that would colour a terminal, reverse a line and add another, if it were shown unchanged.
pub(crate) const HOSTILE: &str = "\u{1b}[31mred\u{202e}desrever\nrun 2 approved by root";

/// The agents of a small press: `lead` delegates a search to `scout` and hands over to `writer`, which hands over to `printer`, which
/// fails on short drafts. A search takes `search_time`.
pub(crate) fn press(builder: Builder, search_time: Duration) -> Builder {
    builder
        .agent("lead", |turn: Turn| async move {
            let found = turn.delegate("scout", "find sources").await?;
            let text = if turn.input::<String>()?.contains("short") { "short draft" } else { "draft" };
            Ok(callboard::prelude::Command::output(text)
                .with("messages", "planned")
                .with("sources", found)
                .goto("writer"))
        })
        .agent("scout", move |turn: Turn| async move {
            tokio::time::sleep(search_time).await;
            turn.reserve(1500).await?.settle(Usage::of(1000, 234));
            let pages: u32 = turn.step("search", async { Ok::<_, TurnError>(3) }).await?;
            Ok(callboard::prelude::Command::output(pages).with("artifacts", json!({ HOSTILE: "sources.md" })))
        })
        .agent("writer", |turn: Turn| async move {
            turn.notice(HOSTILE);
            Ok(callboard::prelude::Command::output(format!("{}, polished", turn.input::<String>()?))
                .with("messages", HOSTILE)
                .goto("printer"))
        })
        .agent("printer", |turn: Turn| async move {
            let text: String = turn.input()?;
            if text.starts_with("short") {
                return Err(TurnError::terminal(format!("too short: {HOSTILE}")));
            }
            Ok(callboard::prelude::Command::output(format!("printed: {text}")).with("messages", "printed"))
        })
        .agent("host", |turn: Turn| async move {
            let answer: String = turn.people().ask("Who is there?").await?.parse()?;
            Ok(callboard::prelude::Command::output(answer))
        })
        .agent("panel", |_: Turn| async {
            Ok(callboard::prelude::Command::new()
                .goto_many([SendTo::new("judge", "kind"), SendTo::new("judge", "strict")]))
        })
        .agent("judge", |turn: Turn| async move {
            let mood: String = turn.input()?;
            Ok(callboard::prelude::Command::output(format!("{mood} is fine")).with("messages", mood))
        })
}

/// The ids of the runs in the store.
pub(crate) struct Runs {
    pub(crate) printed: RunId,
    pub(crate) too_short: RunId,
    pub(crate) waiting: RunId,
    pub(crate) judged: RunId,
}

/// Makes the store in `folder`, and closes it. The searches take their time on a paused clock.
pub(crate) fn make_store(folder: &Path) -> Runs {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let env = Env::repeatable(7);
        let memory = Arc::new(Memory::new(env.clock()));
        let builder = Callboard::builder().env(env).storage(memory.clone()).durability(Durability::Sync);
        let board = press(builder, Duration::from_millis(2500)).start().await.unwrap();
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
        waiting.next_pending().await.unwrap().unwrap();
        let waiting = waiting.id();
        board.shutdown().await;
        let sled = Sled::open(folder).unwrap();
        Transfer::copy(&*memory, &sled, Timestamp::from_millis(0)).await.unwrap();
        sled.close().await.unwrap();
        released(folder);
        Runs { printed, too_short, waiting, judged }
    })
}

/// Waits until a store is free that this process had open: programs that other tests start hold what it has open until they are
/// executed.
pub(crate) fn released(store: &Path) {
    for name in ["lock", "db"] {
        let file = File::open(store.join(name)).unwrap();
        file.lock().unwrap();
        // For those too that were started since.
        file.unlock().unwrap();
    }
}

/// Runs `callboard runs ARGUMENTS --data FOLDER` with an empty standard input.
pub(crate) fn runs(folder: &Path, arguments: &[&str]) -> Printed {
    output_of(runs_command(folder, arguments))
}

/// `callboard runs ARGUMENTS --data FOLDER`.
pub(crate) fn runs_command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = command(".", &[&["runs"], arguments].concat());
    command.arg("--data").arg(folder);
    command
}
