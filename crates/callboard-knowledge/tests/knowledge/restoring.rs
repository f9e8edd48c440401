//! Copies that take the place of a base.

use std::fs;
use std::path::{Path, PathBuf};

use callboard::env::Env;
use callboard_knowledge::search::ReadFacts;
use callboard_knowledge::store::Restored;
use callboard_knowledge::{KnowledgeBase, KnowledgeError};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::support::Base;
use crate::upkeep::names_in;

/// A folder with a base that has one fact, and a copy of it from before a second one.
struct Copied {
    folder: TempDir,
    path: PathBuf,
    copy: PathBuf,
}

impl Copied {
    async fn new() -> Self {
        let Base { base, folder, .. } = Base::new();
        let (path, copy) = (base.path().to_owned(), folder.path().join("copy.db"));
        base.submit(crate::support::submission("The gate is open.")).await.unwrap();
        base.copy_to(&copy).await.unwrap();
        base.submit(crate::support::submission("The door is shut.")).await.unwrap();
        base.close().await;
        Self { folder, path, copy }
    }

    async fn restore(&self) -> Result<Restored, KnowledgeError> {
        KnowledgeBase::restore(&self.path, &self.copy).await
    }
}

/// How many facts a base has, which has to be sound.
async fn facts_of(path: &Path) -> u64 {
    let base = KnowledgeBase::open(path, &Env::system()).unwrap();
    assert_eq!(base.check().await.unwrap(), []);
    let facts = base.counts().await.unwrap().current;
    base.close().await;
    facts
}

#[tokio::test]
async fn a_copy_takes_the_place_of_a_base_which_is_kept_beside() {
    let copied = Copied::new().await;
    let restored = copied.restore().await.unwrap();
    assert_eq!(restored.counts.current, 1);
    let first = restored.kept.unwrap();
    assert_eq!((facts_of(&copied.path).await, facts_of(&first).await), (1, 2));
    let second = copied.restore().await.unwrap().kept.unwrap();
    assert_ne!(first, second);
    fs::remove_file(&copied.path).unwrap();
    assert_eq!(copied.restore().await.unwrap().kept, None);
    assert_eq!((facts_of(&copied.path).await, facts_of(&first).await), (1, 2));
    assert!(names_in(copied.folder.path()).iter().all(|name| !name.starts_with('.')));
}

#[tokio::test]
async fn a_copy_that_a_killed_process_left_is_removed_when_the_base_is_opened() {
    let copied = Copied::new().await;
    let left = copied.folder.path().join(".callboard-facts-left");
    fs::create_dir(&left).unwrap();
    let lock = fs::File::create(left.join("lock")).unwrap();
    fs::copy(&copied.copy, left.join("facts.db")).unwrap();
    lock.lock().unwrap();
    facts_of(&copied.path).await;
    assert!(left.exists(), "its process works there");
    drop(lock);
    facts_of(&copied.path).await;
    assert!(!left.exists());
}

#[tokio::test]
async fn a_base_that_a_process_has_open_is_not_replaced() {
    let copied = Copied::new().await;
    let base = KnowledgeBase::open(&copied.path, &Env::system()).unwrap();
    let before = names_in(copied.folder.path());
    let refused = copied.restore().await.unwrap_err();
    assert!(matches!(&refused, KnowledgeError::InUse { path } if *path == copied.path), "{refused}");
    assert_eq!(names_in(copied.folder.path()), before);
    // A reader holds it as well, after the writer has ended.
    base.read_facts(ReadFacts::new("default", "door")).await.unwrap();
    base.close().await;
    copied.restore().await.unwrap();
}

#[tokio::test]
async fn the_log_of_a_damaged_base_is_kept_and_not_applied_to_the_copy() {
    let copied = Copied::new().await;
    let log = PathBuf::from(format!("{}-wal", copied.path.display()));
    // A process that was killed has left a log, whose frames fit both files.
    let killed = Connection::open(&copied.path).unwrap();
    killed.execute_batch("PRAGMA wal_autocheckpoint = 0; UPDATE kb_facts SET state = 'invalid'").unwrap();
    let frames = fs::read(&log).unwrap();
    assert!(!frames.is_empty());
    drop(killed);
    fs::write(&copied.path, [b"SQLite format 3\0".as_slice(), &[0xff; 4096]].concat()).unwrap();
    fs::write(&log, &frames).unwrap();
    let error = KnowledgeBase::open(&copied.path, &Env::system()).unwrap_err();
    assert!(matches!(error, KnowledgeError::Damaged { .. }), "{error}");
    let kept = copied.restore().await.unwrap().kept.unwrap();
    assert_eq!(facts_of(&copied.path).await, 1);
    assert_eq!(fs::read(format!("{}-wal", kept.display())).unwrap(), frames);
}

#[tokio::test]
async fn what_is_no_sound_base_is_refused_and_the_base_stays_as_it_is() {
    let copied = Copied::new().await;
    let whole = fs::read(&copied.copy).unwrap();
    let edited = |sql: &str| {
        fs::write(&copied.copy, &whole).unwrap();
        Connection::open(&copied.copy).unwrap().execute_batch(sql).unwrap();
        fs::read(&copied.copy).unwrap()
    };
    let other = copied.folder.path().join("other.db");
    Connection::open(&other).unwrap().execute_batch("CREATE TABLE mine (x)").unwrap();
    let trigger = "CREATE TRIGGER stolen AFTER INSERT ON kb_facts BEGIN DELETE FROM kb_sources; END";
    for (bytes, why) in [
        (Vec::new(), "it is not a base of facts"),
        (fs::read(&other).unwrap(), "it is not a base of facts"),
        (b"a text of some length, which is no database".repeat(100), "it is damaged (file is not a database)"),
        (whole[..whole.len() / 2].to_vec(), "it is damaged (database disk image is malformed)"),
        (edited("PRAGMA user_version = 99"), "the base has version 99, and this build knows versions up to"),
        (edited("DELETE FROM kb_sources"), "it is damaged (facts without a source: 1, such as fact-"),
        (edited(trigger), "it is damaged (the base has the trigger stolen, which no base has)"),
        (edited("DROP VIEW kb_current"), "it is damaged (the base lacks the view kb_current)"),
    ] {
        fs::write(&copied.copy, bytes).unwrap();
        let refused = copied.restore().await.unwrap_err();
        assert!(matches!(refused, KnowledgeError::Backup { .. }), "{why}: {refused}");
        let text = refused.to_string();
        assert!(text.contains(why) && text.ends_with("; nothing was changed"), "{why}: {text}");
    }
    assert_eq!(facts_of(&copied.path).await, 2);
    let itself = KnowledgeBase::restore(&copied.path, &copied.path).await.unwrap_err();
    assert!(itself.to_string().contains("the base itself"), "{itself}");
    let missing = KnowledgeBase::restore(&copied.path, &copied.folder.path().join("none")).await.unwrap_err();
    assert!(matches!(missing, KnowledgeError::Io { .. }), "{missing}");
    // The index is derived from the rows, and built again.
    fs::write(&copied.copy, edited("INSERT INTO kb_text (kb_text) VALUES ('delete-all')")).unwrap();
    copied.restore().await.unwrap();
    assert_eq!(facts_of(&copied.path).await, 1);
}

#[tokio::test]
async fn a_refused_restore_leaves_no_lock_where_there_is_no_base_and_that_of_a_base() {
    let copied = Copied::new().await;
    let lock = |base: &Path| PathBuf::from(format!("{}-lock", base.display()));
    let elsewhere = copied.folder.path().join("elsewhere.db");
    fs::write(&copied.copy, "no database").unwrap();
    assert!(KnowledgeBase::restore(&elsewhere, &copied.copy).await.is_err());
    assert!(!lock(&elsewhere).exists());
    assert!(copied.restore().await.is_err());
    assert!(lock(&copied.path).exists());
    let unused = KnowledgeBase::create(&elsewhere, &Env::system()).unwrap();
    let other = KnowledgeBase::open(&elsewhere, &Env::system()).unwrap();
    unused.remove_if_empty().await.unwrap();
    assert!(lock(&elsewhere).exists() && elsewhere.exists(), "another one has it open");
    other.remove_if_empty().await.unwrap();
    assert!(!lock(&elsewhere).exists() && !elsewhere.exists());
}

#[tokio::test]
async fn the_file_of_another_base_is_restored_with_its_log_and_not_while_it_is_open() {
    let copied = Copied::new().await;
    let other = KnowledgeBase::open(&copied.copy, &Env::system()).unwrap();
    assert!(matches!(copied.restore().await.unwrap_err(), KnowledgeError::InUse { path } if path == copied.copy));
    other.close().await;
    let log = PathBuf::from(format!("{}-wal", copied.copy.display()));
    let killed = Connection::open(&copied.copy).unwrap();
    killed.execute_batch("PRAGMA wal_autocheckpoint = 0; UPDATE kb_documents SET title = 'x'").unwrap();
    killed.execute_batch("INSERT INTO kb_predicates VALUES ('default', 'opens at', 1)").unwrap();
    let (file, frames) = (fs::read(&copied.copy).unwrap(), fs::read(&log).unwrap());
    drop(killed);
    fs::write(&copied.copy, file).unwrap();
    fs::write(&log, frames).unwrap();
    copied.restore().await.unwrap();
    let predicates = "SELECT count(*) FROM kb_predicates";
    let number: i64 = Connection::open(&copied.path).unwrap().query_row(predicates, [], |row| row.get(0)).unwrap();
    assert_eq!(number, 1);
}
