//! Several handles on one store, as several processes have them: what each sees of the others, and what is left when one ends.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use callboard::env::Env;
use callboard::messages::{Durability, RunId};
use callboard::prelude::*;
use callboard::storage::{Append, Change, Journal, Key, Put, Record, Sled, Storage, StorageError};
use callboard::testing::conformance::ManualClock;
use callboard_shared_store::SharedStore;
use futures::StreamExt as _;
use tempfile::TempDir;

fn open(folder: &Path) -> SharedStore {
    SharedStore::open(folder).unwrap()
}

fn stores() -> (TempDir, SharedStore, SharedStore) {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (open(folder.path()), open(folder.path()));
    assert!(first.is_here() && !second.is_here());
    (folder, first, second)
}

fn append(stream: &Key, expected: u64, payload: &str) -> Append {
    let (stream, payload) = (stream.clone(), payload.as_bytes().into());
    Append::new(stream, expected, payload)
}

fn put(key: &Key, value: &str) -> Put {
    Put { durability: Durability::Memory, ..Put::new(key.clone(), value.as_bytes().into()) }
}

#[tokio::test]
async fn each_process_sees_what_the_others_have_written() {
    let (_folder, first, second) = stores();
    let stream = Key::new(["run", "1"]);
    let mut changes = first.watch(&Key::new([]).children());
    assert_eq!(second.append(append(&stream, 0, "a")).await, Ok(1));
    assert_eq!(first.append(append(&stream, 1, "b")).await, Ok(2));
    let payloads =
        |records: Vec<Record>| -> Vec<Vec<u8>> { records.iter().map(|record| record.payload.to_vec()).collect() };
    for store in [&first, &second] {
        assert_eq!(payloads(store.read(&stream, 1, 9).await.unwrap()), [b"a", b"b"]);
    }
    let key = Key::new(["x"]);
    second.put_if_revision(put(&key, "1")).await.unwrap();
    assert!(matches!(changes.next().await, Some(Change::Put(changed, _)) if changed == key));
}

#[tokio::test]
async fn the_next_process_opens_the_files_when_the_first_closes_them() {
    let (folder, first, second) = stores();
    let (stream, key) = (Key::new(["run", "1"]), Key::new(["x"]));
    let mut changes = second.watch(&Key::new([]).children());
    second.put_if_revision(put(&key, "1")).await.unwrap();
    assert!(matches!(changes.next().await, Some(Change::Put(..))));
    second.append(append(&stream, 0, "a")).await.unwrap();
    first.close().await.unwrap();
    assert_eq!(second.append(append(&stream, 1, "b")).await, Ok(2));
    assert_eq!(second.read(&stream, 1, 9).await.unwrap().len(), 2);
    assert!(second.is_here());
    let third = open(folder.path());
    assert_eq!(changes.next().await, Some(Change::Missed(1)), "the files were opened again");
    third.put_if_revision(put(&key, "2")).await.unwrap();
    assert!(matches!(changes.next().await, Some(Change::Put(..))));
    assert!(matches!(first.get(&key).await, Err(StorageError::Stopped { .. })));
}

#[tokio::test]
async fn of_many_processes_one_opens_the_files_and_all_continue() {
    let (folder, first, second) = stores();
    let mut stores: Vec<SharedStore> = (0..6).map(|_| open(folder.path())).collect();
    stores.push(second);
    let mut holder = Some(first);
    let stream = Key::new(["run", "1"]);
    for written in 0..20 {
        if let Some(holder) = holder.take() {
            drop(holder);
        }
        let writer = &stores[written as usize % stores.len()];
        assert_eq!(writer.append(append(&stream, written, "x")).await, Ok(written + 1));
        if written % 5 == 4 {
            let here = stores.iter().position(SharedStore::is_here).unwrap();
            holder = Some(stores.swap_remove(here));
        }
    }
    assert_eq!(stores.iter().filter(|store| store.is_here()).count() + usize::from(holder.is_some()), 1);
    assert_eq!(stores[0].read(&stream, 1, 99).await.unwrap().len(), 20);
}

#[tokio::test]
async fn a_board_lives_for_those_who_look_also_after_the_files_were_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new());
    let open = || Arc::new(SharedStore::open_with_clock(folder.path(), Arc::clone(&clock) as _).unwrap());
    let (first, second) = (open(), open());
    let waits = |turn: Turn| async move {
        turn.people().ask("go on?").await?;
        Ok(Command::new())
    };
    let board = Callboard::builder().storage(Arc::clone(&second)).agent("waits", waits).start().await.unwrap();
    let run = board.submit(Task::new("x")).await.unwrap().id();
    let look = async |store: &Arc<SharedStore>| Journal::new(Arc::clone(store) as _).board_of(run).await.unwrap();
    assert_eq!(look(&first).await.as_deref(), Some(board.id()));
    first.close().await.unwrap();
    let third = open();
    // Within its lease of 15 s, which the board renews by another clock.
    for seconds in [0, 2, 10] {
        clock.advance(Duration::from_secs(seconds));
        assert!(look(&third).await.is_some(), "{seconds} s later");
    }
    board.shutdown().await;
    assert_eq!(look(&third).await, None);
}

#[tokio::test]
async fn two_who_look_at_once_do_not_fail() {
    let (_folder, first, second) = stores();
    let (first, second) = (Arc::new(first), Arc::new(second));
    let run = RunId(Env::system().id());
    let [here, there] = [&first, &second].map(|store| Journal::new(Arc::clone(store) as _));
    here.begin(run, "nobody", &[], Durability::Sync).await.unwrap();
    let looks: Vec<_> = (0..20).map(|at| if at % 2 == 0 { here.board_of(run) } else { there.board_of(run) }).collect();
    for look in futures::future::join_all(looks).await {
        assert_eq!(look, Ok(None));
    }
}

#[tokio::test]
async fn what_is_too_long_for_another_process_is_refused_and_the_next_call_is_answered() {
    let (_folder, _first, second) = stores();
    let key = Key::new(["x"]);
    let long = "x".repeat(Record::MAX + 100_000);
    assert!(matches!(second.put_if_revision(put(&key, &long)).await, Err(StorageError::TooLarge { .. })));
    assert!(second.put_if_revision(put(&key, "short")).await.is_ok());
}

#[tokio::test]
async fn a_folder_that_is_gone_is_not_made_anew_when_the_files_are_opened_again() {
    let (folder, first, second) = stores();
    let path = folder.path().to_owned();
    std::fs::rename(&path, path.with_extension("moved")).unwrap();
    first.close().await.unwrap();
    // It is tried again for a minute, unless the store is closed.
    let (written, closed) = tokio::join!(second.put_if_revision(put(&Key::new(["x"]), "1")), second.close());
    assert!(matches!(written, Err(StorageError::Stopped { .. })) && closed.is_ok(), "{written:?} {closed:?}");
    assert!(!path.exists());
    std::fs::remove_dir_all(path.with_extension("moved")).unwrap();
}

#[tokio::test]
async fn long_lists_and_long_records_arrive_whole() {
    let (_folder, _first, second) = stores();
    let stream = Key::new(["run", "long"]);
    let long = "x".repeat(3_000_000);
    for written in 0..3 {
        second.append(append(&stream, written, &long)).await.unwrap();
    }
    for written in 3..200 {
        second.append(append(&stream, written, &"y".repeat(20_000))).await.unwrap();
    }
    let records = second.read(&stream, 1, 999).await.unwrap();
    assert_eq!(records.iter().map(|record| record.sequence).collect::<Vec<_>>(), (1..=200).collect::<Vec<_>>());
    assert_eq!((records[2].payload.len(), records[199].payload.len()), (3_000_000, 20_000));
}

#[tokio::test]
async fn a_store_that_another_program_does_not_share_is_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let sled = Sled::open(folder.path()).unwrap();
    assert!(matches!(SharedStore::open(folder.path()), Err(StorageError::InUse { holder: Some(_), .. })));
    drop(sled);
    assert!(open(folder.path()).is_here());
    assert!(Sled::open(folder.path()).is_ok(), "it was closed");
}

#[tokio::test]
async fn boards_of_several_processes_work_on_one_store_and_leave_each_others_runs() {
    let (_folder, first, second) = stores();
    let (first, second) = (Arc::new(first), Arc::new(second));
    let waits = |turn: Turn| async move {
        turn.people().ask("go on?").await?;
        Ok(Command::output("done"))
    };
    let board =
        |store: &Arc<SharedStore>| Callboard::builder().storage(Arc::clone(store)).agent("waits", waits).start();
    let there = board(&second).await.unwrap();
    let run = there.submit(Task::new("x")).await.unwrap();
    let asked = there.people().next().await.unwrap();
    // It resumes the unfinished runs of boards that are gone.
    let here = board(&first).await.unwrap();
    assert_eq!(here.runs().await.unwrap().len(), 1);
    first.close().await.unwrap();
    there.people().answer(&asked, "yes", "ann").await.unwrap();
    assert_eq!(run.result().await.unwrap().output, "done");
    there.shutdown().await;
    here.shutdown().await;
}
