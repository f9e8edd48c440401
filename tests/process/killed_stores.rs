//! A store of another process: one that holds it open, and one that is killed while it writes.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use callboard::storage::{Sled, Storage, StorageError};
use tempfile::tempdir;

use crate::alone::is_alone;
use crate::common::stores::{append, stream};

/// Holds the store open for the test below, in a process of its own.
#[test]
fn helper_that_holds_a_store_open() {
    let Some(folder) = std::env::var_os("CALLBOARD_TEST_HOLD") else { return };
    let _store = Sled::open(folder).unwrap();
    println!("open");
    // Until the parent closes our input.
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[test]
fn a_second_process_is_refused_with_the_folder_and_its_holder() {
    let folder = tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["killed_stores::helper_that_holds_a_store_open", "--exact", "--nocapture"])
        .env("CALLBOARD_TEST_HOLD", folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with("open")), "the other process opens the store");
    let Err(error @ StorageError::InUse { .. }) = Sled::open(folder.path()) else { panic!("the store is held open") };
    let refused = error.to_string();
    assert!(refused.contains(&folder.path().display().to_string()), "the error names the folder: {refused}");
    assert!(refused.contains(&format!("process {}", child.id())), "{refused}");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    Sled::open(folder.path()).unwrap();
}

/// Appends to four streams and prints each acknowledgement, in a process of its own, until it is killed.
#[test]
fn helper_that_appends_until_it_is_killed() {
    let Some(folder) = std::env::var_os("CALLBOARD_TEST_APPEND") else { return };
    let store = Sled::open(folder).unwrap().applied_from(32 << 10);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let writers = ["a", "b", "c", "d"].map(async |name| {
        let mut last = store.read(&stream(name), 0, usize::MAX).await.unwrap().len() as u64;
        loop {
            append(&store, name, last, &vec![b'x'; if last % 50 == 7 { 70_000 } else { 3_000 }]).await;
            last += 1;
            println!("acknowledged {name} {last}");
        }
    });
    runtime.block_on(async {
        futures::future::join_all(writers).await;
    });
}

#[tokio::test]
async fn whatever_a_killed_process_acknowledged_is_there() {
    // The store is opened here as well, and a program that another test starts holds its lock for a moment.
    if !is_alone("killed_stores::whatever_a_killed_process_acknowledged_is_there") {
        return;
    }
    let folder = tempdir().unwrap();
    let mut acknowledged = HashMap::new();
    for round in 1..=5 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["killed_stores::helper_that_appends_until_it_is_killed", "--exact", "--nocapture"])
            .env("CALLBOARD_TEST_APPEND", folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut note = |line: &str| {
            if let Some((_, said)) = line.split_once("acknowledged ") {
                let (name, last) = said.split_once(' ').unwrap();
                acknowledged.insert(name.to_owned(), last.parse::<usize>().unwrap());
            }
        };
        (&mut lines).take(120 + round * 37).for_each(|line| note(&line.unwrap()));
        child.kill().unwrap();
        child.wait().unwrap();
        // What it printed before it was killed; the last line may be cut.
        let rest: Vec<String> = lines.map_while(Result::ok).collect();
        rest.iter().take(rest.len().saturating_sub(1)).for_each(|line| note(line));
        let store = Sled::open(folder.path()).unwrap();
        assert_eq!(acknowledged.len(), 4, "all four were in flight");
        for (name, last) in &acknowledged {
            let there = store.read(&stream(name), 0, usize::MAX).await.unwrap();
            assert!(there.len() >= *last, "{name}: {last} acknowledged, {} there", there.len());
        }
    }
}
