//! What keeps a base sound: its check, its repair, and copies of it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use callboard_text::visible;
use rusqlite::backup::Backup;
use rusqlite::{Connection, OpenFlags, OptionalExtension};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::KnowledgeError;
use super::facts::fact_id;
use super::history::RevisionChange;
use super::items::ItemId;
use super::schema::Difference;
use super::staging::Staging;
use super::submission::MAX_SOURCES;
use super::{KnowledgeBase, connect, schema};
use crate::entities::EntityKind;
use crate::facts::{MAX_REASON, MAX_TEXT};
use crate::times;

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

impl From<Difference> for Finding {
    fn from(difference: Difference) -> Self {
        Self { is_repairable: difference.is_repairable(), what: difference.what }
    }
}

impl Finding {
    const fn of_index(what: String) -> Self {
        Self { what, is_repairable: true }
    }
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

/// A rule that every base keeps, and that every export keeps which is imported.
struct Rule {
    /// What is wrong where it is broken.
    what: &'static str,
    /// Selects the `item` of each row that breaks it, or null of what is no row that is searched. [`bound`] fills in what is in braces.
    broken: &'static str,
}

const fn rule(what: &'static str, broken: &'static str) -> Rule {
    Rule { what, broken }
}

const RULES: [Rule; 18] = [
    rule(
        "facts whose state and index differ",
        "SELECT f.item FROM kb_facts f JOIN kb_items i ON i.id = f.item WHERE (f.state = 'invalid') <> (i.ended_at IS NOT NULL)",
    ),
    rule(
        "facts without a source",
        "SELECT f.item FROM kb_facts f WHERE NOT EXISTS (SELECT 1 FROM kb_sources s WHERE s.item = f.item)",
    ),
    rule(
        "facts that count other sources than they have",
        "SELECT f.item FROM kb_facts f
         WHERE (SELECT count(*) FROM kb_sources s WHERE s.item = f.item) NOT IN (0, min(f.source_count, {sources}))",
    ),
    rule(
        "facts whose history lacks their last revision",
        "SELECT f.item FROM kb_facts f
         WHERE NOT EXISTS (SELECT 1 FROM kb_history h WHERE h.item = f.item AND h.revision = f.revision)",
    ),
    rule(
        "facts whose history has an unknown change",
        "SELECT DISTINCT h.item FROM kb_history h WHERE h.change NOT IN ({changes})",
    ),
    rule(
        "facts whose history goes back in time",
        "SELECT DISTINCT h.item FROM kb_history h
         JOIN kb_history b ON b.item = h.item AND b.revision = h.revision - 1 WHERE b.at > h.at",
    ),
    // Not before it was submitted, and neither after its end nor after its last change.
    rule(
        "facts whose state holds since a time at which they did not have it",
        "SELECT f.item FROM kb_facts f JOIN kb_items i ON i.id = f.item
         WHERE f.valid_from < i.since OR f.valid_from > i.ended_at
             OR EXISTS (SELECT 1 FROM kb_history h WHERE h.item = f.item AND h.revision = f.revision AND h.at < f.valid_from)",
    ),
    rule(
        "passages without a place in their document",
        "SELECT id AS item FROM kb_items WHERE document IS NOT NULL AND NOT ifnull(
             anchor IS NOT NULL AND ordinal BETWEEN 0 AND 4294967295
             AND first_line BETWEEN 1 AND last_line AND last_line <= 4294967295, FALSE)",
    ),
    rule("documents whose hash has not 32 bytes", "SELECT NULL AS item FROM kb_documents WHERE length(hash) NOT IN (0, 32)"),
    rule(
        "rows with a time before 1970 or after 9999",
        "SELECT id AS item FROM kb_items WHERE since NOT BETWEEN 0 AND {last} OR ended_at NOT BETWEEN 0 AND {last}
         UNION ALL SELECT NULL FROM kb_documents WHERE read_at NOT BETWEEN 0 AND {last}
         UNION ALL SELECT item FROM kb_facts WHERE valid_from NOT BETWEEN 0 AND {last}
         UNION ALL SELECT item FROM kb_sources WHERE at NOT BETWEEN 0 AND {last}
         UNION ALL SELECT item FROM kb_history WHERE at NOT BETWEEN 0 AND {last}
         UNION ALL SELECT item FROM kb_contradictions WHERE at NOT BETWEEN 0 AND {last}",
    ),
    rule(
        "sources, changes and contradictions with a text that is too long",
        "SELECT item FROM kb_sources
         WHERE octet_length(submitter) > {text} OR octet_length(place) > {text} OR octet_length(run) > {text}
         UNION ALL SELECT item FROM kb_history
         WHERE octet_length(changer) > {text} OR octet_length(run) > {text} OR octet_length(reason) > {reason}
         UNION ALL SELECT item FROM kb_contradictions WHERE octet_length(reason) > {reason}",
    ),
    rule("entities of an unknown kind", "SELECT NULL AS item FROM kb_graph_entities WHERE kind NOT IN ({kinds})"),
    rule("rows that ended before they began", "SELECT id AS item FROM kb_items WHERE ended_at < since"),
    rule(
        "current facts of a predicate with one value at a time that have several (`callboard kb invalidate` all but one)",
        "SELECT max(f.item) AS item FROM kb_facts f CROSS JOIN kb_predicates p ON p.namespace = f.namespace AND p.form = f.predicate_form
         WHERE p.is_single AND f.state = 'current'
         GROUP BY f.namespace, f.subject_form, f.predicate_form HAVING count(DISTINCT f.value_form) > 1",
    ),
    rule(
        "facts that their statement does not find",
        "SELECT f.item FROM kb_facts f WHERE NOT EXISTS (SELECT 1 FROM kb_forms o WHERE o.item = f.item)",
    ),
    rule(
        "edges that nothing supports",
        "SELECT NULL AS item FROM kb_graph_edges e
         WHERE NOT EXISTS (SELECT 1 FROM kb_graph_provenance p WHERE p.edge = e.id AND p.deleted_at IS NULL)",
    ),
    rule(
        "rows that support an edge that is not there",
        "SELECT p.item FROM kb_graph_provenance p
         WHERE p.deleted_at IS NULL AND NOT EXISTS (SELECT 1 FROM kb_graph_edges e WHERE e.id = p.edge)",
    ),
    rule(
        "rows that have ended and still support the graph",
        "SELECT i.id AS item FROM kb_items i WHERE i.ended_at IS NOT NULL AND (
             EXISTS (SELECT 1 FROM kb_graph_provenance p WHERE p.item = i.id AND p.deleted_at IS NULL)
             OR EXISTS (SELECT 1 FROM kb_graph_mentions m WHERE m.item = i.id AND m.deleted_at IS NULL))",
    ),
];

/// A rule that rows break.
pub(super) struct Broken {
    /// What is wrong, how often, and where.
    pub(super) what: String,
    /// The first row that breaks it.
    pub(super) item: Option<ItemId>,
}

impl KnowledgeBase {
    /// What the base has.
    ///
    /// # Errors
    /// The base cannot be read, or its tables are not those of a base.
    pub async fn counts(&self) -> Result<Counts, KnowledgeError> {
        self.read(|connection| {
            schema::check_tables(connection)?;
            counts(connection)
        })
        .await
    }

    /// Checks the file, the rules that its rows keep, and the index against the rows. Nothing is changed.
    ///
    /// # Errors
    /// The base cannot be read at all.
    pub async fn check(&self) -> Result<Vec<Finding>, KnowledgeError> {
        match &self.writer {
            Some(_) => self.write(|connection, _| findings(connection)).await,
            None => self.read(findings).await,
        }
    }

    /// Makes again what is derived from the rows: the full-text index.
    ///
    /// # Errors
    /// The base cannot be changed.
    pub async fn repair(&self) -> Result<(), KnowledgeError> {
        let writer = self.writer.as_ref().ok_or(KnowledgeError::Full)?;
        writer.write(|connection, _| schema::rebuild(connection)).await
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
            let taken = shared.readers.lock().pop();
            let source = taken.map_or_else(|| connect(&from, shared.sharing), Ok)?;
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
    let mut findings: Vec<Finding> = schema::differences(connection)?.into_iter().map(Finding::from).collect();
    let is_lost = |findings: &[Finding]| findings.iter().any(|finding| !finding.is_repairable);
    // Nothing of another schema is evaluated, as a check of the file does with the expressions of an index.
    if !is_lost(&findings) {
        damaged(connection, &mut findings)?;
    }
    // Without their tables the rules cannot be counted.
    if is_lost(&findings) {
        findings.sort_by_key(|finding| finding.is_repairable);
        findings.truncate(schema::MOST);
        return Ok(findings);
    }
    let broken = broken_rules(connection)?.into_iter();
    findings.extend(broken.map(|Broken { what, .. }| Finding { what, is_repairable: false }));
    for (table, what) in [("kb_text", "what holds"), ("kb_text_past", "what held")] {
        let check = format!("INSERT INTO {table} ({table}, rank) VALUES ('integrity-check', 1)");
        // No base has settings of an index.
        let set = format!("SELECT EXISTS (SELECT 1 FROM {table}_config WHERE k <> 'version')");
        let checked = connection.execute(&check, []).and_then(|_| connection.query_row(&set, [], |row| row.get(0)));
        match checked.map_err(KnowledgeError::from) {
            Ok(false) => {}
            Ok(true) => findings.push(Finding::of_index(format!("the full-text index of {what} has settings"))),
            Err(KnowledgeError::DamagedIndex | KnowledgeError::Damaged { .. }) => {
                findings.push(Finding::of_index(format!("the full-text index of {what} differs from the rows")));
            }
            // What it lacks was found.
            Err(KnowledgeError::Sqlite(_)) if findings.iter().any(|finding| finding.is_repairable) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(findings)
}

/// The rules that rows break.
pub(super) fn broken_rules(connection: &Connection) -> Result<Vec<Broken>, KnowledgeError> {
    let mut found = Vec::new();
    for Rule { what, broken } in RULES {
        let sql = format!("SELECT count(*), min(item) FROM ({})", bound(broken));
        let (number, item): (u64, Option<ItemId>) =
            connection.query_row(&sql, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
        if number > 0 {
            let which = item.map(|item| name_of(connection, item)).transpose()?.flatten();
            let which = which.map(|which| format!(", such as {which}")).unwrap_or_default();
            found.push(Broken { what: format!("{what}: {number}{which}"), item });
        }
    }
    Ok(found)
}

/// The query of a rule, with the names that there are and the bounds of what is written.
fn bound(broken: &str) -> String {
    let listed = |names: &[&str]| names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
    [
        ("{changes}", listed(&RevisionChange::ALL.map(RevisionChange::name))),
        ("{kinds}", listed(&EntityKind::ALL.map(EntityKind::name))),
        ("{sources}", MAX_SOURCES.to_string()),
        ("{last}", times::last().to_string()),
        ("{text}", MAX_TEXT.to_string()),
        ("{reason}", MAX_REASON.to_string()),
    ]
    .into_iter()
    .fold(broken.to_owned(), |sql, (name, value)| sql.replace(name, &value))
}

/// What a row is cited by.
fn name_of(connection: &Connection, item: ItemId) -> Result<Option<String>, KnowledgeError> {
    let mut fact = connection.prepare_cached("SELECT fact FROM kb_facts WHERE item = ?1")?;
    if let Some(id) = fact.query_row([item], |row| fact_id(row, 0)).optional()? {
        return Ok(Some(id.to_string()));
    }
    let mut passage = connection.prepare_cached(
        "SELECT d.path || ':' || i.first_line FROM kb_items i JOIN kb_documents d ON d.id = i.document WHERE i.id = ?1",
    )?;
    Ok(passage.query_row([item], |row| row.get::<_, String>(0)).optional()?.map(|place| visible(&place)))
}

/// Adds what SQLite finds wrong with the file.
fn damaged(connection: &Connection, findings: &mut Vec<Finding>) -> Result<(), KnowledgeError> {
    let lines = |argument: &str| -> Result<Vec<String>, KnowledgeError> {
        let mut check = connection.prepare(&format!("PRAGMA integrity_check({argument})"))?;
        let lines = check.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
        Ok(lines)
    };
    let found = match lines("20") {
        // It opens the indexes, of which one cannot be opened.
        Err(KnowledgeError::DamagedIndex) => {
            findings.push(Finding::of_index("a full-text index cannot be opened".to_owned()));
            let each = schema::tables_beside_indexes()?.map(lines);
            each.collect::<Result<Vec<_>, _>>()?.concat()
        }
        found => found?,
    };
    let found = found.into_iter().filter(|line| line != "ok").map(|what| Finding {
        // SQLite checks the structure of full-text indexes with the rest of the file.
        is_repairable: what.contains("fts5") || what.contains("kb_text"),
        what: visible(&what),
    });
    findings.extend(found);
    let mut check = connection.prepare("PRAGMA foreign_key_check")?;
    let tables: Vec<String> = check.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    if let Some(table) = tables.first() {
        let what = format!("rows of {} name rows that are not there: {}", visible(table), tables.len());
        findings.push(Finding { what, is_repairable: false });
    }
    Ok(())
}
