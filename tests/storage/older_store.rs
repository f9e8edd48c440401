//! A store that an earlier commit has written opens, and has all that was in it.
//!
//! `tests/golden/store-format-1` has the files of the store, each compressed, as commit 0bf521af (2026-11-23) has written them; `README.md` there says how.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use callboard::env::{Clock, Env, Now};
use callboard::messages::{PendingId, RunResult};
use callboard::prelude::*;
use callboard::storage::Key;
use callboard::testing::conformance::ManualClock;
use flate2::read::GzDecoder;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::json;
use tempfile::{TempDir, tempdir};

use crate::common::people::{approvals, question};

/// How many turns the long runs take.
const LONG: u32 = 600;

/// The store, in a folder of its own.
fn unpacked() -> TempDir {
    let (folder, packed) =
        (tempdir().unwrap(), Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/store-format-1"));
    unpack(&packed, folder.path());
    folder
}

fn unpack(packed: &Path, to: &Path) {
    for entry in fs::read_dir(packed).unwrap().map(Result::unwrap) {
        let (from, name) = (entry.path(), entry.file_name().into_string().unwrap());
        if from.is_dir() {
            fs::create_dir(to.join(&name)).unwrap();
            unpack(&from, &to.join(&name));
        } else if let Some(name) = name.strip_suffix(".gz") {
            let mut file = File::create(to.join(name)).unwrap();
            io::copy(&mut GzDecoder::new(File::open(from).unwrap()), &mut file).unwrap();
        }
    }
}

/// An hour after the store was written.
fn clock() -> Arc<ManualClock> {
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(3600));
    Arc::new(clock)
}

struct Shared(Arc<ManualClock>);

impl Clock for Shared {
    fn now(&self) -> Now {
        self.0.now()
    }
}

/// Counts up to [`LONG`], turn by turn; some runs end with a question.
fn counts(other: &'static str) -> impl Fn(Turn) -> BoxFuture<'static, Result<Command, TurnError>> + Send + Sync {
    move |turn: Turn| {
        async move {
            let number: u32 = turn.input()?;
            let command = Command::update("count", number).with_output(number + 1);
            if number < LONG {
                return Ok(command.goto(other));
            }
            if turn.task().body.contains("asks") {
                return Ok(Command::output(turn.people().ask("which one?").await?));
            }
            Ok(command)
        }
        .boxed()
    }
}

/// A board on the store, with the agents that have written it; each step is done anew unless the journal has it.
async fn board(folder: &Path) -> (Callboard, Arc<Sled>) {
    let clock = clock();
    let store = Arc::new(Sled::open_with_clock(folder, Arc::clone(&clock) as _).unwrap());
    let storage: Arc<dyn Storage> = Arc::clone(&store) as _;
    let board = Callboard::builder()
        .storage(storage)
        .env(Env::new(Shared(clock), 11))
        .agent("ping", counts("pong"))
        .agent("pong", counts("ping"))
        .agent("doubler", |turn: Turn| async move { Ok(Command::output(turn.input::<u64>()? * 2)) })
        .agent("traveller", |turn: Turn| async move {
            let book = |booked: &'static str| async move { Ok::<_, TurnError>(booked.to_owned()) };
            let train = turn.step("book the train", book("another train")).await?;
            let hotel = turn.step("book the hotel", book("the hotel")).await?;
            Ok(Command::output(format!("{train}, {hotel}")))
        })
        .agent("clerk", |turn: Turn| async move {
            let letter = Action::new("write_file", "letter.txt", "Dear Ada,\nall is well.\n");
            let approved = turn.people().approve(letter).await?;
            Ok(Command::output(format!("wrote {}", approved.target)))
        })
        .start()
        .await
        .unwrap();
    board.recovered().await;
    (board, store)
}

/// The only run whose task is like this.
async fn only(board: &Callboard, is_it: impl Fn(&Task) -> bool) -> RunHandle {
    let mut found = Vec::new();
    for run in board.runs().await.unwrap() {
        if is_it(&run.read().await.unwrap().submission().task) {
            found.push(run);
        }
    }
    let [run] = found.try_into().unwrap_or_else(|found: Vec<RunHandle>| panic!("{} runs are like it", found.len()));
    run
}

async fn run_of(board: &Callboard, body: &str) -> RunHandle {
    only(board, |task| *task.body == *body).await
}

async fn result_of(board: &Callboard, body: &str) -> RunResult {
    run_of(board, body).await.result().await.unwrap()
}

/// What had ended, and what agents had written for one another.
async fn check_what_has_ended(board: &Callboard) {
    for body in ["chain 1", "chain 2", "chain 3", "chain 4"] {
        let result = result_of(board, body).await;
        assert_eq!((result.outcome, &*result.output), (Outcome::Finished, &json!("done")), "{body}");
        let written = json!({ "notes": format!("notes on {body}"), "text": "text.md", "final": "final.md" });
        assert_eq!(result.state["artifacts"], written, "{body}");
    }
    let with_payload = run_of(board, "chain 4").await.read().await.unwrap();
    let input = with_payload.submission().task.input.clone().unwrap();
    assert_eq!(input.as_str().unwrap(), "callboard ".repeat(9_000));

    let failed = result_of(board, "fails").await;
    assert!(matches!(failed.outcome, Outcome::Failed { .. }), "{:?}", failed.outcome);
    let letters = board.dead_letters().list().await.unwrap();
    assert_eq!(letters.iter().map(|letter| letter.turn.run).collect::<Vec<_>>(), [failed.run]);
    assert_eq!(*result_of(board, "delegates").await.output, json!(42));
    assert!(matches!(result_of(board, "cancelled").await.outcome, Outcome::Cancelled { .. }));

    let long = run_of(board, "long").await;
    let history = long.history().await.unwrap();
    let ends = history.iter().filter(|event| matches!(event, RunEvent::TurnEnded { .. })).count();
    assert_eq!(ends, LONG as usize);
    assert_eq!(long.read().await.unwrap().result().unwrap().state["count"], LONG);

    let context = board.context();
    let value = async |key| context.get("notes", key).await.unwrap().map(|entry| entry.value);
    assert_eq!(value("language").await.as_deref(), Some("Rust 2024"));
    assert_eq!(value("long").await, Some("callboard ".repeat(5_000)));
    assert_eq!(value("gone").await, None);
    assert_eq!(board.workflows().versions("review").await.unwrap(), [1]);
}

#[tokio::test]
async fn a_store_of_an_earlier_commit_opens_and_its_runs_continue() {
    let folder = unpacked();
    let (opened, store) = board(folder.path()).await;
    let snapshots = store.scan(&Key::new(["snapshot"]).children(), None, 9).await.unwrap();
    assert!(!snapshots.is_empty(), "runs were read from snapshots");
    check_what_has_ended(&opened).await;

    // Of the turns that were cut off, the step that was done is not done again.
    let planned = only(&opened, |task| task.plan.is_some()).await;
    for run in [planned, run_of(&opened, "a weekend in Lyon").await] {
        assert_eq!(*run.result().await.unwrap().output, json!("train 9576, the hotel"));
    }

    let asks = run_of(&opened, "long, asks").await;
    let asked = question(&asks).await;
    assert_eq!(asked.question, json!("which one?"));
    opened.people().answer(PendingId::Question(asked.id), json!("the second"), "ann").await.unwrap();
    assert_eq!(*asks.result().await.unwrap().output, json!("the second"));

    let [envelope] = approvals(&opened).await.try_into().unwrap();
    assert_eq!((&*envelope.action.action, &*envelope.action.target), ("write_file", "letter.txt"));
    opened.people().approve(envelope.id(), "ann").await.unwrap();
    assert_eq!(*result_of(&opened, "a letter").await.output, json!("wrote letter.txt"));
    opened.shutdown().await;
    drop((opened, store));

    // The same after a second start, of what is now the newest format.
    assert_eq!(fs::read_to_string(folder.path().join("format")).unwrap(), "callboard store, format 3\n");
    let (opened, _) = board(folder.path()).await;
    check_what_has_ended(&opened).await;
    assert_eq!(*result_of(&opened, "a letter").await.output, json!("wrote letter.txt"));
    assert_eq!(opened.unfinished_runs().await.unwrap().len(), 0);
    opened.shutdown().await;
}
