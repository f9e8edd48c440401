//! Boards of other builds and of other projects on one store: each is named, and what it has is left alone.

use std::io::Write;
use std::sync::Arc;

use callboard::SubmitError;
use callboard::messages::{BoardInfo, Refusal};
use callboard::prelude::*;
use callboard::runtime::{BuildError, RunHandle};
use callboard::storage::{Journal, Key, NewSession, Put, SessionId, Storage};
use parking_lot::Mutex;
use serde_json::json;

use crate::common::{World, comes_true, people};
use crate::several_boards::{HOUR, asked, asker, question};

/// What was logged on this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn begin() -> (Self, impl Drop) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    /// The lines that have this text.
    fn lines(&self, text: &str) -> Vec<String> {
        let log = String::from_utf8_lossy(&self.0.lock()).into_owned();
        log.lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
    }
}

/// A board of another build, of which there is only what it says on the store; its lease lasts two hours.
async fn of_another_build(world: &World, about: &str) -> SessionId {
    let new = NewSession { name: "older".into(), about: about.as_bytes().into(), lease: 2 * HOUR };
    world.storage.begin_session(new).await.unwrap()
}

/// How many letters there are to a board.
async fn letters_to(world: &World, id: &str) -> usize {
    world.storage.scan(&Key::new(["mail", id]).children(), None, 99).await.unwrap().len()
}

#[tokio::test(start_paused = true)]
async fn a_board_whose_letters_cannot_be_read_is_named_and_asked_nothing() {
    let (log, _logging) = Log::begin();
    let world = World::new();
    let about = json!({ "id": "other", "build": "9.1.0", "letters": 2, "agents": [{ "name": "coder" }] }).to_string();
    let session = of_another_build(&world, &about).await;
    // It works on this run.
    let before = asker(world.board()).start().await.unwrap();
    let (run, _) = asked(&before).await;
    let note = Put::new(Key::new(["open", &*run.id().0.as_simple().to_string()]), b"other"[..].into());
    before.shutdown().await;
    world.storage.put_if_revision(note).await.unwrap();

    let board = asker(world.board()).name("newer").start().await.unwrap();
    board.recovered().await;
    let refused = board.submit(Task::new("x").to("coder")).await.unwrap_err();
    assert!(matches!(refused, SubmitError::Refused(Refusal::UnknownAgent { .. })), "{refused}");
    assert!(board.people().pending().await.is_empty());
    tokio::time::sleep(HOUR).await;
    assert_eq!(letters_to(&world, "other").await, 0);
    assert!(board.runs_at_work().is_empty(), "the run is that of the other board");
    let journal = Journal::new(Arc::clone(&world.storage));
    assert_eq!(journal.board_of(run.id()).await.unwrap().as_deref(), Some("other"));
    let listed = board.boards().await.unwrap();
    let shown: Vec<_> = listed.iter().map(|board| (&*board.name, board.info.letters, board.left.is_zero())).collect();
    assert_eq!(shown, [("older", 2, false), ("newer", 1, false)]);
    let named = log.lines("board older on the store (build 9.1.0) writes letters of form 2");
    assert!(named.len() >= 2 && named[0].contains("have both run the newer build"), "{named:?}");
    // Once it is gone, its runs are taken over.
    world.storage.end_session(session, false).await.unwrap();
    question(&board.run(run.id())).await;
    board.shutdown().await;
    assert_eq!(log.lines("board older on the store").len(), named.len(), "each board says it once");
}

/// A run that waits for an answer, and is noted as that of a board `other`, which is not there.
async fn run_of_other(world: &World) -> RunHandle {
    let before = asker(world.board()).start().await.unwrap();
    let (run, _) = asked(&before).await;
    before.shutdown().await;
    let note = Put::new(Key::new(["open", &*run.id().0.as_simple().to_string()]), b"other"[..].into());
    world.storage.put_if_revision(note).await.unwrap();
    run
}

#[tokio::test(start_paused = true)]
async fn a_board_that_cannot_be_read_at_all_keeps_its_runs() {
    let (log, _logging) = Log::begin();
    let world = World::new();
    let run = run_of_other(&world).await;
    of_another_build(&world, "as nobody reads it").await;
    let board = asker(world.board()).name("newer").start().await.unwrap();
    board.recovered().await;
    tokio::time::sleep(HOUR).await;
    assert!(board.runs_at_work().is_empty());
    assert_eq!(board.boards().await.unwrap()[0].info, BoardInfo::default());
    assert_eq!(log.lines("board older on the store cannot be read by this one").len(), 1);
    // When its lease is over, a board that looks for runs has its own.
    tokio::time::sleep(HOUR).await;
    comes_true(async || board.runs_at_work().len() == 1).await;
    question(&board.run(run.id())).await;
    comes_true(async || board.boards().await.unwrap().len() == 1).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn of_two_boards_that_cannot_be_read_both_have_to_be_gone_before_runs_of_unknown_boards_are_taken_over() {
    let world = World::new();
    let run = run_of_other(&world).await;
    let mut sessions = Vec::new();
    for name in ["older", "oldest"] {
        let new = NewSession { name: name.into(), about: (*b"as nobody reads it").into(), lease: 2 * HOUR };
        sessions.push(world.storage.begin_session(new).await.unwrap());
    }
    let board = asker(world.board()).start().await.unwrap();
    world.storage.end_session(sessions[0], false).await.unwrap();
    tokio::time::sleep(HOUR).await;
    assert!(board.runs_at_work().is_empty(), "it may be that of the board that lives");
    world.storage.end_session(sessions[1], false).await.unwrap();
    comes_true(async || board.runs_at_work().len() == 1).await;
    question(&board.run(run.id())).await;
    comes_true(async || board.boards().await.unwrap().len() == 1).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_store_belongs_to_the_project_of_the_first_board_that_names_one() {
    let world = World::new();
    world.board().start().await.unwrap().shutdown().await;
    let shop = asker(world.board()).project("shop").start().await.unwrap();
    let (run, name) = asked(&shop).await;
    let before = all(&world).await;
    let Err(refused) = asker(world.board()).project("garden").name("wrong").start().await else {
        panic!("a board of another project starts")
    };
    assert!(matches!(refused, BuildError::OtherProject { .. }), "{refused}");
    let text = refused.to_string();
    assert!(text.contains("belongs to the project \"shop\"") && text.contains("store of its own"), "{text}");
    assert_eq!(all(&world).await, before, "nothing is written");
    assert!(shop.boards().await.unwrap().iter().all(|board| &*board.name != "wrong"));
    let unnamed = world.board().project(" ").start().await;
    assert!(matches!(unnamed, Err(BuildError::Name(_))), "{unnamed:?}");
    // One of the same project, and one of none, work on it.
    let again = world.board().project("shop").start().await.unwrap();
    let of_none = world.board().start().await.unwrap();
    of_none.people().answer(name.id, "ann", "tester").await.unwrap();
    assert_eq!(again.run(run.id()).result().await.unwrap().output, json!("ann"));
    for board in [of_none, again, shop] {
        board.shutdown().await;
    }
}

/// All values of the store, with their revisions.
async fn all(world: &World) -> Vec<(Key, u64)> {
    let entries = world.storage.scan(&Key::new([]).children(), None, usize::MAX).await.unwrap();
    entries.into_iter().map(|(key, entry)| (key, entry.revision)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_records_are_of_a_newer_format_is_left_to_others() {
    let world = World::new();
    let first = asker(world.board()).start().await.unwrap();
    let (run, _) = asked(&first).await;
    let second = asker(world.board()).start().await.unwrap();
    let listed = second.boards().await.unwrap();
    assert_eq!(listed.iter().map(|board| board.info.reads).collect::<Vec<_>>(), [1, 1]);
    // As a board of a later build would write it.
    let key = Key::new(["open", &*run.id().0.as_simple().to_string()]);
    let note = world.storage.get(&key).await.unwrap().unwrap();
    let newer = [&*note.value, b"\n{\"format\":2,\"more\":\"x\"}"].concat();
    world.storage.put_if_revision(Put::new(key.clone(), newer.into())).await.unwrap();
    first.shutdown().await;
    tokio::time::sleep(HOUR).await;
    assert!(people::questions(&second.run(run.id())).await.is_empty() && second.quarantined().is_empty());
    let unfinished = second.unfinished_runs().await.unwrap();
    assert_eq!(unfinished.iter().map(RunHandle::id).collect::<Vec<_>>(), [run.id()], "it can be seen");
    let third = asker(world.board()).start().await.unwrap();
    third.recovered().await;
    assert!(people::questions(&third.run(run.id())).await.is_empty() && third.quarantined().is_empty());
    // Of the first format, as notes were that named none.
    world.storage.put_if_revision(Put::new(key, note.value)).await.unwrap();
    third.shutdown().await;
    let third = asker(world.board()).start().await.unwrap();
    question(&third.run(run.id())).await;
    for board in [second, third] {
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_row_among_its_letters_that_is_none_stays_and_holds_up_no_letter() {
    let (log, _logging) = Log::begin();
    let world = World::new();
    let board = asker(world.board()).name("one").start().await.unwrap();
    let id = board.boards().await.unwrap()[0].info.id.clone();
    for row in [&["mail", &id, "soon"][..], &["mail", &id]] {
        let odd = Put::new(Key::new(row.iter().copied()), b"x"[..].into());
        world.storage.put_if_revision(odd).await.unwrap();
    }
    let other = asker(world.board()).name("other").start().await.unwrap();
    let (run, _) = asked(&board).await;
    // By letters.
    comes_true(async || other.people().pending().await.len() == 1).await;
    assert!(other.run(run.id()).cancel("not needed").await.unwrap());
    tokio::time::sleep(HOUR).await;
    assert_eq!(letters_to(&world, &id).await, 2, "what is no letter stays");
    other.shutdown().await;
    board.shutdown().await;
    assert_eq!(log.lines(&format!("row=mail/{id}/soon")).len(), 2, "each board says it once");
}
