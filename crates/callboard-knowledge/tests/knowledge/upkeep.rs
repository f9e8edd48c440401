//! Checks, repairs and copies of a base.

use std::path::Path;

use callboard::env::Env;
use callboard::messages::Timestamp;
use callboard_knowledge::search::ReadFacts;
use callboard_knowledge::{KnowledgeBase, KnowledgeError};
use rusqlite::Connection;

use crate::support::{Base, single};
use callboard_knowledge::store::Submission;

/// Changes the file behind the base's back.
fn changed(base: &Base, sql: &str) {
    Connection::open(base.base.path()).unwrap().execute_batch(sql).unwrap();
}

pub(crate) fn names_in(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

async fn filled() -> Base {
    let base = Base::new();
    base.base.submit(single("gate", "opens at", "nine")).await.unwrap();
    base.base.submit(single("gate", "opens at", "nine")).await.unwrap();
    base.write("a.md", &[("One", "first"), ("Two", "second")]).await;
    base.write("a.md", &[("Two", "second")]).await;
    base
}

#[tokio::test]
async fn a_sound_base_has_no_findings() {
    let base = filled().await;
    assert_eq!(base.base.check().await.unwrap(), []);
    let counts = base.base.counts().await.unwrap();
    assert_eq!((counts.documents, counts.passages, counts.current, counts.edges), (1, 1, 1, 1));
}

#[tokio::test]
async fn an_index_that_differs_from_the_rows_is_found_and_made_again() {
    let base = filled().await;
    changed(&base, "INSERT INTO kb_text (kb_text) VALUES ('delete-all')");
    let findings = base.base.check().await.unwrap();
    assert!(findings.len() == 1 && findings[0].is_repairable, "{findings:?}");
    base.base.repair().await.unwrap();
    assert_eq!(base.base.check().await.unwrap(), []);
    let found = base.base.read_facts(ReadFacts::new("default", "second")).await.unwrap();
    assert_eq!(found.results.len(), 1);
}

#[tokio::test]
async fn a_damaged_index_is_made_again_by_the_query_that_meets_it() {
    let base = filled().await;
    // What a block of the index has is no list of rows.
    changed(&base, "UPDATE kb_text_data SET block = x'ffffffffffffffff' WHERE id > 10");
    assert_ne!(base.base.check().await.unwrap(), []);
    let found = base.base.read_facts(ReadFacts::new("default", "second")).await.unwrap();
    assert_eq!(found.results.len(), 1);
    assert_eq!(base.base.check().await.unwrap(), []);
}

/// Damage of an index that SQLite reports in different ways, or not at all.
const DAMAGED_INDEXES: [&str; 12] = [
    "DELETE FROM kb_text_config",
    "UPDATE kb_text_config SET v = 99",
    "DELETE FROM kb_text_past_config",
    "INSERT INTO kb_text_config VALUES ('rank', 'none()')",
    "INSERT INTO kb_text (kb_text) VALUES ('delete-all'); INSERT INTO kb_text_past (kb_text_past) VALUES ('delete-all')",
    "DELETE FROM kb_text_data",
    "UPDATE kb_text_data SET block = x'ff'",
    "DELETE FROM kb_text_idx; DELETE FROM kb_text_docsize",
    "DROP TABLE kb_text_config",
    "DROP TABLE kb_text_data",
    "DROP TABLE kb_text",
    "DROP TABLE kb_text_words; DROP TABLE kb_text; CREATE TABLE kb_text (x)",
];

#[tokio::test]
async fn an_index_is_made_again_whatever_is_left_of_it() {
    for damage in DAMAGED_INDEXES {
        for is_asked in [false, true] {
            let Base { base, folder, .. } = filled().await;
            let path = base.path().to_owned();
            base.close().await;
            Connection::open(&path).unwrap().execute_batch(damage).unwrap();
            let base = KnowledgeBase::open(&path, &Env::system()).unwrap_or_else(|error| panic!("{damage}: {error}"));
            let is_opened_so = !damage.contains("DROP");
            if is_asked || !is_opened_so {
                let findings = base.check().await.unwrap();
                assert!(findings.iter().all(|finding| finding.is_repairable), "{damage}: {findings:?}");
                assert_eq!(findings.is_empty(), !is_opened_so, "{damage}: {findings:?}");
                base.repair().await.unwrap_or_else(|error| panic!("{damage}: {error}"));
            }
            let as_of = damage.contains("past_config").then(|| Timestamp::from_millis(1_000));
            let query = ReadFacts { as_of, ..ReadFacts::new("default", "second") };
            let found = base.read_facts(query).await.unwrap_or_else(|error| panic!("{damage}: {error}"));
            // What SQLite does not report is found by the check alone.
            let is_silent = ["delete-all", "kb_text_idx", "x'ff'", "rank"].iter().any(|silent| damage.contains(silent));
            if is_asked || !is_silent {
                assert_eq!(found.results.len(), 1, "{damage} {is_asked}");
                assert_eq!(base.check().await.unwrap(), [], "{damage} {is_asked}");
            }
            let wall = || base.submit(single("wall", "is", "high"));
            match wall().await {
                // It has been built again.
                Err(KnowledgeError::DamagedIndex) if !is_asked => drop(wall().await.unwrap()),
                submitted => drop(submitted.unwrap_or_else(|error| panic!("{damage} {is_asked}: {error}"))),
            }
            drop(folder);
        }
    }
}

#[tokio::test]
async fn rows_that_break_a_rule_are_found() {
    for (broken, expected) in [
        ("UPDATE kb_facts SET state = 'invalid'", "facts whose state and index differ: 1, such as fact-"),
        ("DELETE FROM kb_sources", "facts without a source: 1, such as fact-"),
        ("UPDATE kb_facts SET source_count = 9", "facts that count other sources than they have: 1, such as fact-"),
        ("UPDATE kb_facts SET source_count = -1", "facts that count other sources than they have: 1, such as fact-"),
        ("UPDATE kb_items SET first_line = -1 WHERE ended_at > 0", "passages without a place in their document: 1"),
        (
            "UPDATE kb_items SET ordinal = 9223372036854775807 WHERE ended_at > 0",
            "passages without a place in their document: 1",
        ),
        ("UPDATE kb_documents SET hash = x'ff'", "documents whose hash has not 32 bytes: 1"),
        ("DELETE FROM kb_graph_edges", "rows that support an edge that is not there: 1, such as fact-"),
        ("UPDATE kb_facts SET revision = 9", "facts whose history lacks their last revision: 1, such as fact-"),
        ("UPDATE kb_history SET change = 'burned'", "facts whose history has an unknown change: 1, such as fact-"),
        (
            "UPDATE kb_history SET at = 2000 WHERE revision = 1",
            "facts whose history goes back in time: 1, such as fact-",
        ),
        (
            "UPDATE kb_facts SET valid_from = 900",
            "facts whose state holds since a time at which they did not have it: 1",
        ),
        (
            "UPDATE kb_facts SET valid_from = 1001",
            "facts whose state holds since a time at which they did not have it: 1",
        ),
        ("UPDATE kb_documents SET read_at = -1", "rows with a time before 1970 or after 9999: 1"),
        (
            "UPDATE kb_sources SET at = 253402300800000 WHERE ordinal = 1",
            "rows with a time before 1970 or after 9999: 1",
        ),
        (
            "UPDATE kb_sources SET submitter = hex(zeroblob(513)) WHERE ordinal = 1",
            "sources, changes and contradictions with a text that is too long: 1, such as fact-",
        ),
        (
            "UPDATE kb_history SET reason = hex(zeroblob(32769)) WHERE revision = 1",
            "sources, changes and contradictions with a text that is too long: 1, such as fact-",
        ),
        ("UPDATE kb_graph_entities SET kind = 'x' WHERE name = 'nine'", "entities of an unknown kind: 1"),
        (
            "UPDATE kb_items SET ended_at = 900 WHERE ended_at > 0",
            "rows that ended before they began: 1, such as a.md:1",
        ),
        (
            "UPDATE kb_facts SET predicate_form = 'shuts at'",
            "current facts of a predicate with one value at a time that have several",
        ),
        ("DELETE FROM kb_forms", "facts that their statement does not find: 1, such as fact-"),
        ("UPDATE kb_graph_provenance SET deleted_at = 1", "edges that nothing supports: 1"),
        (
            "UPDATE kb_graph_mentions SET deleted_at = NULL",
            "rows that have ended and still support the graph: 1, such as a.md:1",
        ),
    ] {
        let base = filled().await;
        if broken.contains("shuts at") {
            let shuts = Submission { is_single: false, ..single("gate", "closes at", "ten") };
            base.base.submit(shuts).await.unwrap();
            base.base.declare_predicate("default", "shuts at", true).await.unwrap();
        }
        changed(&base, broken);
        let findings = base.base.check().await.unwrap();
        let [found] = &findings[..] else { panic!("{broken}: {findings:?}") };
        assert!(found.what.starts_with(expected), "{broken}: {findings:?}");
    }
}

#[tokio::test]
async fn control_characters_of_a_file_are_visible_in_its_errors() {
    let hostile = "x\u{1b}]0;name\u{7}\u{202e}";
    let base = filled().await;
    changed(&base, &format!("UPDATE kb_graph_entities SET kind = '{hostile}'"));
    let error = base.base.export(Vec::new()).await.unwrap_err().to_string();
    assert!(error.contains("]0;name") && callboard_text::visible(&error) == error, "{error:?}");
    changed(
        &base,
        &format!(
            "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET name = '{hostile}', sql = 'no' WHERE name = 'kb_done'"
        ),
    );
    let error = KnowledgeBase::open(base.base.path(), &Env::system()).unwrap_err().to_string();
    assert!(error.contains("]0;name") && callboard_text::visible(&error) == error, "{error:?}");
}

#[tokio::test]
async fn a_version_that_no_base_has_is_reported_as_damage_in_a_line() {
    for version in [0, -1] {
        let base = filled().await;
        changed(&base, &format!("PRAGMA user_version = {version}"));
        let error = KnowledgeBase::open(base.base.path(), &Env::system()).unwrap_err();
        let KnowledgeError::Damaged { cause } = error else { panic!("{error}") };
        assert_eq!(cause, format!("no base has the version {version}"));
    }
}

#[tokio::test]
async fn a_base_with_another_schema_is_not_opened() {
    for (change, expected) in [
        ("CREATE TRIGGER own AFTER INSERT ON kb_facts BEGIN DELETE FROM kb_sources; END", "has the trigger own, which"),
        ("CREATE VIEW own AS SELECT 1", "has the view own, which"),
        ("CREATE TABLE own (x)", "has the table own, which"),
        ("CREATE INDEX own ON kb_facts (value)", "has the index own, which"),
        ("DROP INDEX kb_facts_of_state", "lacks the index kb_facts_of_state"),
        ("DROP VIEW kb_past; CREATE VIEW kb_past AS SELECT 1 AS id", "the view kb_past is not what it is in a base"),
    ] {
        let base = filled().await;
        changed(&base, change);
        let error = KnowledgeBase::open(base.base.path(), &Env::system()).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("callboard kb restore FILE"), "{change}: {error}");
    }
}

#[tokio::test]
async fn a_base_with_another_schema_is_opened_to_check_it_and_nothing_of_the_schema_is_run() {
    for (change, expected, is_counted) in [
        (
            "CREATE TRIGGER own AFTER INSERT ON kb_facts BEGIN DELETE FROM kb_sources; END; CREATE TABLE mine (x)",
            &["the base has the table mine, which no base has", "the base has the trigger own, which no base has"][..],
            true,
        ),
        // A check of the file would evaluate it.
        (
            "CREATE INDEX own ON kb_facts (abs(-9223372036854775807 - length(value))) WHERE item < 0",
            &["the base has the index own, which no base has"],
            true,
        ),
        ("DROP INDEX kb_facts_of_state", &["the base lacks the index kb_facts_of_state"], true),
        (
            "DROP TABLE kb_text_config; DROP VIEW kb_past; CREATE VIEW kb_past AS SELECT 1 AS id",
            &["the view kb_past is not what it is in a base", "the base lacks the table kb_text_config"],
            true,
        ),
        (
            "ALTER TABLE kb_predicates RENAME TO kb_taken; CREATE VIEW kb_predicates AS SELECT load_extension('x') AS namespace",
            &[
                "the base lacks the table kb_predicates",
                "the base has the table kb_taken, which no base has",
                "the base has the view kb_predicates, which no base has",
            ],
            false,
        ),
    ] {
        let Base { base, folder, .. } = filled().await;
        let path = base.path().to_owned();
        base.close().await;
        Connection::open(&path).unwrap().execute_batch(change).unwrap();
        let refused = KnowledgeBase::open_to_read(&path, &Env::system()).unwrap_err();
        assert!(matches!(refused, KnowledgeError::Damaged { .. }), "{change}: {refused}");
        let base = KnowledgeBase::open_to_check(&path, &Env::system()).unwrap();
        let findings = base.check().await.unwrap();
        let mut named: Vec<&str> = findings.iter().map(|finding| &*finding.what).collect();
        named.retain(|what| !what.contains("sqlite_autoindex"));
        assert_eq!(named, expected, "{change}");
        assert_eq!(base.counts().await.map(|counts| counts.current).ok(), is_counted.then_some(1), "{change}");
        let refused = base.repair().await.unwrap_err();
        assert!(matches!(refused, KnowledgeError::Damaged { .. }), "{change}: {refused}");
        drop(folder);
    }
}

#[tokio::test]
async fn a_trigger_of_a_file_is_not_executed() {
    let base = Base::new();
    changed(&base, "CREATE TRIGGER own AFTER INSERT ON kb_facts BEGIN DELETE FROM kb_sources; END");
    let fact = base.submit("The gate is open.").await.fact;
    assert_eq!(fact.sources.len(), 1);
    let findings = base.base.check().await.unwrap();
    let [found] = &findings[..] else { panic!("{findings:?}") };
    assert_eq!(found.what, "the base has the trigger own, which no base has");
}

#[tokio::test]
async fn a_copy_appears_complete_and_replaces_nothing() {
    let base = filled().await;
    let copy = base.folder.path().join("copy.db");
    base.base.copy_to(&copy).await.unwrap();
    let before = std::fs::read(&copy).unwrap();
    let again = base.base.copy_to(&copy).await.unwrap_err();
    assert!(matches!(again, KnowledgeError::Io { .. }), "{again}");
    assert_eq!(std::fs::read(&copy).unwrap(), before);
    let mut names = names_in(base.folder.path());
    names.retain(|name| !name.starts_with("knowledge.db"));
    assert_eq!(names, ["copy.db"]);
}

#[tokio::test]
async fn what_is_no_base_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.db");
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE mine (x)").unwrap();
    let error = KnowledgeBase::create(&path, &Env::system()).unwrap_err();
    assert!(matches!(error, KnowledgeError::NotABase), "{error}");
    let tables: i64 =
        Connection::open(&path).unwrap().query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).unwrap();
    assert_eq!(tables, 1);
    let empty = folder.path().join("empty.db");
    std::fs::write(&empty, "").unwrap();
    let error = KnowledgeBase::create(&empty, &Env::system()).unwrap_err();
    assert!(matches!(error, KnowledgeError::NotABase), "a base is never empty: {error}");
    let error = KnowledgeBase::open(folder.path(), &Env::system()).unwrap_err();
    assert!(matches!(error, KnowledgeError::Io { .. }), "a folder is no file: {error}");
    let missing = KnowledgeBase::open(&folder.path().join("none.db"), &Env::system()).unwrap_err();
    assert!(matches!(missing, KnowledgeError::Missing { .. }), "{missing}");
}

#[tokio::test]
async fn a_base_of_a_newer_build_is_refused_and_a_strange_trigger_is_found() {
    let base = filled().await;
    changed(&base, "CREATE TRIGGER stolen AFTER INSERT ON kb_facts BEGIN DELETE FROM kb_sources; END");
    let findings = base.base.check().await.unwrap();
    assert_eq!(findings[0].what, "the base has the trigger stolen, which no base has");
    changed(&base, "DROP TRIGGER stolen; PRAGMA user_version = 99");
    let error = KnowledgeBase::open(base.base.path(), &Env::system()).unwrap_err();
    assert!(matches!(error, KnowledgeError::TooNew { version: 99, .. }), "{error}");
}
