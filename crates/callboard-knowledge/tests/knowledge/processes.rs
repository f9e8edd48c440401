//! Several processes that change one base at the same time.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;

use callboard::env::Env;
use callboard_knowledge::KnowledgeBase;
use rusqlite::Connection;

use crate::campaigns::children::{role, runtime, spawn};
use crate::support::submission;

const PROCESSES: usize = 8;
const STATEMENTS: usize = 25;

/// What all of them submit.
const COMMON: &str = "The gate is open.";

/// Makes or opens the base once it is asked to, and prints what is acknowledged.
async fn submit(own: &str, folder: &Path) {
    std::io::stdin().lock().read_line(&mut String::new()).unwrap();
    let base = KnowledgeBase::create(&folder.join("facts.db"), &Env::system()).unwrap();
    for number in 0..STATEMENTS {
        let statement =
            if number == STATEMENTS / 2 { COMMON.to_owned() } else { format!("door {own} {number} is shut") };
        base.submit(submission(&statement)).await.unwrap();
        println!("acknowledged {statement}");
    }
    base.close().await;
}

/// Not a test: what each of the processes runs.
#[test]
fn the_child() {
    let Some((own, folder)) = role() else { return };
    runtime().block_on(submit(&own, &folder));
}

#[test]
fn each_statement_of_processes_at_once_is_there_once_and_one_of_all_has_all_sources() {
    let folder = tempfile::tempdir().unwrap();
    let spawn = |own: usize| spawn("processes::the_child", &own.to_string(), folder.path());
    let mut children: Vec<_> = (0..PROCESSES).map(spawn).collect();
    for child in &mut children {
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
    }
    let mut acknowledged = BTreeMap::new();
    for mut child in children {
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            if let Some(statement) = line.unwrap().strip_prefix("acknowledged ") {
                *acknowledged.entry(statement.to_owned()).or_insert(0_usize) += 1;
            }
        }
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(acknowledged.len(), PROCESSES * (STATEMENTS - 1) + 1);
    assert_eq!(acknowledged[COMMON], PROCESSES);
    // The tables are read by themselves, and not by the base.
    let tables = Connection::open(folder.path().join("facts.db")).unwrap();
    let mut find = tables
        .prepare("SELECT i.body, (SELECT count(*) FROM kb_sources s WHERE s.item = f.item) FROM kb_facts f JOIN kb_items i ON i.id = f.item")
        .unwrap();
    let found = find.query_map([], |row| Ok((row.get(0)?, row.get::<_, usize>(1)?))).unwrap();
    let mut facts = BTreeMap::new();
    for fact in found {
        let (statement, sources): (String, usize) = fact.unwrap();
        assert_eq!(facts.insert(statement, sources), None);
    }
    assert_eq!(facts, acknowledged);
}
