//! What keeps a base sound: its check, its repair, and copies of it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use rusqlite::backup::Backup;
use rusqlite::{Connection, OpenFlags};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::KnowledgeError;
use super::staging::Staging;
use super::{KnowledgeBase, connect, schema};

/// More pages than a base has: a copy is made in one step.
const PAGES: i32 = i32::MAX;

/// What is wrong with a base.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// What is wrong.
    pub what: String,
    /// Whether it is derived from the rows, so that [`KnowledgeBase::repair`] makes it again.
    pub is_repairable: bool,
}

/// What a base has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counts {
    /// Documents.
    pub documents: u64,
    /// Passages that are in documents now.
    pub passages: u64,
    /// Facts that hold.
    pub current: u64,
    /// Facts for which somebody has to decide.
    pub disputed: u64,
    /// Facts that no longer hold.
    pub invalid: u64,
    /// Entities of the graph.
    pub entities: u64,
    /// Edges of the graph.
    pub edges: u64,
}

/// Each row is a rule that every base keeps: what would be wrong, and how to count where it is.
const RULES: [(&str, &str); 6] = [
    (
        "facts whose state and index differ",
        "SELECT count(*) FROM kb_facts f JOIN kb_items i ON i.id = f.item
         WHERE (f.state = 'invalid') <> (i.ended_at IS NOT NULL)",
    ),
    (
        "facts without a source",
        "SELECT count(*) FROM kb_facts f WHERE NOT EXISTS (SELECT 1 FROM kb_sources s WHERE s.item = f.item)",
    ),
    (
        "facts whose history lacks their last revision",
        "SELECT count(*) FROM kb_facts f
         WHERE NOT EXISTS (SELECT 1 FROM kb_history h WHERE h.item = f.item AND h.revision = f.revision)",
    ),
    (
        "facts that their statement does not find",
        "SELECT count(*) FROM kb_facts f WHERE NOT EXISTS (SELECT 1 FROM kb_forms o WHERE o.item = f.item)",
    ),
    (
        "edges that nothing supports",
        "SELECT count(*) FROM kb_graph_edges e
         WHERE NOT EXISTS (SELECT 1 FROM kb_graph_provenance p WHERE p.edge = e.id AND p.deleted_at IS NULL)",
    ),
    (
        "rows that have ended and still support the graph",
        "SELECT count(*) FROM kb_items i WHERE i.ended_at IS NOT NULL AND (
             EXISTS (SELECT 1 FROM kb_graph_provenance p WHERE p.item = i.id AND p.deleted_at IS NULL)
             OR EXISTS (SELECT 1 FROM kb_graph_mentions m WHERE m.item = i.id AND m.deleted_at IS NULL))",
    ),
];

impl KnowledgeBase {
    /// What the base has.
    ///
    /// # Errors
    /// The base cannot be read.
    pub async fn counts(&self) -> Result<Counts, KnowledgeError> {
        self.read(counts).await
    }

    /// Checks the file, the rules that its rows keep, and the index against the rows. Nothing is changed.
    ///
    /// # Errors
    /// The base cannot be read at all.
    pub async fn check(&self) -> Result<Vec<Finding>, KnowledgeError> {
        self.write(|connection, _| findings(connection)).await
    }

    /// Makes again what is derived from the rows: the full-text index.
    ///
    /// # Errors
    /// The base cannot be changed.
    pub async fn repair(&self) -> Result<(), KnowledgeError> {
        self.writer.write(|connection, _| Ok(connection.execute_batch(schema::REBUILD)?)).await
    }

    /// Copies the base, as it is at one moment, into a file that does not exist yet, and that appears once it is complete. Others may change the
    /// base meanwhile.
    ///
    /// # Errors
    /// The file exists or cannot be written, or the base cannot be read.
    pub async fn copy_to(&self, path: &Path) -> Result<(), KnowledgeError> {
        let (from, to) = (self.path().to_owned(), path.to_owned());
        let io = |path: &Path| {
            let path = path.to_owned();
            move |error| KnowledgeError::Io { path, error }
        };
        let shared = Arc::clone(&self.shared);
        let copying = tokio::task::spawn_blocking(move || {
            let _held = Arc::clone(&shared.lock);
            if fs::symlink_metadata(&to).is_ok() {
                return Err(io(&to)(io::ErrorKind::AlreadyExists.into()));
            }
            let staging = Staging::beside(&to).map_err(io(&to))?;
            staging.create().map_err(io(&to))?;
            let source = connect(&from)?;
            let mut target = Connection::open_with_flags(staging.path(), OpenFlags::SQLITE_OPEN_READ_WRITE)?;
            // In one step, and so from one snapshot: a copy in several begins again when another process has changed the base.
            Backup::new(&source, &mut target)?.run_to_completion(PAGES, Duration::ZERO, None)?;
            target.close().map_err(|(_, error)| error)?;
            staging.keep_as(&to).map_err(io(&to))
        });
        copying.await.map_err(|_| KnowledgeError::Closed)?
    }
}

/// What the base of a connection has.
pub(super) fn counts(connection: &Connection) -> Result<Counts, KnowledgeError> {
    let count = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, u64>(0));
    Ok(Counts {
        documents: count("SELECT count(*) FROM kb_documents WHERE hash <> x''")?,
        passages: count("SELECT count(*) FROM kb_items WHERE document IS NOT NULL AND ended_at IS NULL")?,
        current: count("SELECT count(*) FROM kb_facts WHERE state = 'current'")?,
        disputed: count("SELECT count(*) FROM kb_facts WHERE state = 'disputed'")?,
        invalid: count("SELECT count(*) FROM kb_facts WHERE state = 'invalid'")?,
        entities: count("SELECT count(*) FROM kb_graph_entities")?,
        edges: count("SELECT count(*) FROM kb_graph_edges")?,
    })
}

/// What is wrong with the base of a connection that writes: the check of an index is a statement that writes, though it changes nothing.
pub(super) fn findings(connection: &Connection) -> Result<Vec<Finding>, KnowledgeError> {
    let mut findings = Vec::new();
    damaged(connection, &mut findings)?;
    let strange = schema::differences(connection)?.into_iter();
    findings.extend(strange.map(|what| Finding { what, is_repairable: false }));
    if !findings.is_empty() && findings.iter().any(|finding| !finding.is_repairable) {
        // Without their tables the rules cannot be counted.
        return Ok(findings);
    }
    broken_rules(connection, &mut findings)?;
    for (table, what) in [("kb_text", "what holds"), ("kb_text_past", "what held")] {
        let check = format!("INSERT INTO {table} ({table}, rank) VALUES ('integrity-check', 1)");
        match connection.execute(&check, []).map_err(KnowledgeError::from) {
            Ok(_) => {}
            Err(KnowledgeError::DamagedIndex | KnowledgeError::Damaged { .. }) => findings.push(Finding {
                what: format!("the full-text index of {what} differs from the rows"),
                is_repairable: true,
            }),
            Err(error) => return Err(error),
        }
    }
    Ok(findings)
}

/// Adds the rules that rows break.
pub(super) fn broken_rules(connection: &Connection, findings: &mut Vec<Finding>) -> Result<(), KnowledgeError> {
    for (what, sql) in RULES {
        let number: u64 = connection.query_row(sql, [], |row| row.get(0))?;
        if number > 0 {
            findings.push(Finding { what: format!("{what}: {number}"), is_repairable: false });
        }
    }
    Ok(())
}

/// Adds what SQLite finds wrong with the file.
fn damaged(connection: &Connection, findings: &mut Vec<Finding>) -> Result<(), KnowledgeError> {
    let mut check = connection.prepare("PRAGMA integrity_check(20)")?;
    let lines: Vec<String> = check.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let found = lines.into_iter().filter(|line| line != "ok").map(|what| Finding {
        // SQLite checks the structure of full-text indexes with the rest of the file.
        is_repairable: what.contains("fts5") || what.contains("kb_text"),
        what,
    });
    findings.extend(found);
    let mut check = connection.prepare("PRAGMA foreign_key_check")?;
    let tables: Vec<String> = check.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    if let Some(table) = tables.first() {
        let what = format!("rows of {table} name rows that are not there: {}", tables.len());
        findings.push(Finding { what, is_repairable: false });
    }
    Ok(())
}
