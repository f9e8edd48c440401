//! Bases that were written by builds of every version.

use std::fs;
use std::path::{Path, PathBuf};

use callboard::env::Env;
use callboard_knowledge::KnowledgeBase;
use callboard_knowledge::facts::Source;
use callboard_knowledge::search::ReadFacts;
use callboard_knowledge::store::Submission;
use rusqlite::Connection;

use crate::support::{single, source, submission};
use crate::transfer::filled;

/// Set, it has the test write the base of this version.
const UPDATE: &str = "UPDATE_BASES";

fn file(version: i32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bases").join(format!("base-version-{version}.sqlite"))
}

fn version_of(base: &Path) -> i32 {
    Connection::open(base).unwrap().query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap()
}

/// A submission of a turn.
fn of_a_turn() -> Submission {
    let source = Source { run: Some("run-1".to_owned()), turn: Some(3), ..source("writer") };
    Submission { source, key: Some("run-1/3".to_owned()), ..submission("A badge is shown at the door.") }
}

/// Writes a base with some rows of each kind, in small pages.
async fn write(version: i32) {
    let base = filled().await;
    base.base.submit(of_a_turn()).await.unwrap();
    let path = file(version);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let _ = fs::remove_file(&path);
    base.base.copy_to(&path).await.unwrap();
    let small = "PRAGMA journal_mode = DELETE; PRAGMA page_size = 1024; VACUUM";
    Connection::open(&path).unwrap().execute_batch(small).unwrap();
}

#[tokio::test]
async fn a_base_of_each_version_opens_answers_and_is_changed() {
    let newest = version_of(filled().await.base.path());
    if std::env::var_os(UPDATE).is_some() {
        write(newest).await;
    }
    for version in 1..=newest {
        let written = fs::read(file(version)).map_err(|error| format!("version {version}: {error}; set {UPDATE}=1"));
        let written = written.unwrap();
        assert!(written.len() < 100 << 10, "{} bytes", written.len());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("facts.db");
        fs::write(&path, written).unwrap();
        assert_eq!(version_of(&path), version);
        let base = KnowledgeBase::open(&path, &Env::system()).unwrap();
        assert_eq!((version_of(&path), base.check().await.unwrap()), (newest, Vec::new()));
        let counts = base.counts().await.unwrap();
        assert_eq!((counts.documents, counts.passages), (1, 1), "version {version}");
        assert_eq!((counts.current, counts.disputed, counts.invalid), (4, 0, 2), "version {version}");
        for (question, found) in [("gate opens", 2), ("second", 1), ("keys rotate", 2), ("badge", 1)] {
            let answer = base.read_facts(ReadFacts::new("default", question)).await.unwrap();
            assert_eq!(answer.results.len(), found, "version {version}: {question}");
        }
        let again = base.submit(of_a_turn()).await.unwrap();
        assert!(again.is_new && again.fact.sources.len() == 1, "it is answered as then: {again:?}");
        let other = base.submit(single("gate", "opens at", "noon")).await.unwrap();
        assert_eq!(other.contradictions.len(), 1, "version {version}");
        assert_eq!(base.check().await.unwrap(), []);
    }
}

#[tokio::test]
async fn the_results_of_the_last_changes_are_kept_and_one_that_was_forgotten_is_harmless_to_repeat() {
    let base = filled().await;
    let first = base.base.submit(of_a_turn()).await.unwrap();
    let tables = Connection::open(base.base.path()).unwrap();
    let kept = |key: &str| {
        let count = "SELECT count(*) FROM kb_done WHERE key = ?1";
        tables.query_row(count, [key], |row| row.get::<_, i64>(0)).unwrap()
    };
    let filler =
        "INSERT INTO kb_done (number, key, at, result) VALUES ((SELECT max(number) FROM kb_done) + ?1, ?2, 0, '')";
    tables.execute(filler, rusqlite::params![99_998, "filler"]).unwrap();
    base.base.submit(Submission { key: Some("second".to_owned()), ..submission("Two.") }).await.unwrap();
    assert_eq!(kept("run-1/3"), 1);
    base.base.submit(Submission { key: Some("third".to_owned()), ..submission("Three.") }).await.unwrap();
    assert_eq!((kept("run-1/3"), kept("second"), kept("third")), (0, 1, 1));
    let again = base.base.submit(of_a_turn()).await.unwrap();
    assert!(!again.is_new);
    assert_eq!(again.fact, first.fact, "it has neither another source nor another revision");
}
