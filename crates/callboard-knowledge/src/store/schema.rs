//! The tables of a base, and how a base of an older version becomes one of this version.

use std::collections::BTreeMap;

use callboard_text::visible;
use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::error::KnowledgeError;

/// What `PRAGMA application_id` of a base is: "cbkb".
const APPLICATION: i32 = 0x6362_6b62;

/// The most differences from the schema that are reported.
const MOST: usize = 20;

/// Makes a base of one version one of the next.
type Migration = fn(&Connection) -> rusqlite::Result<()>;

/// The migrations, oldest first: the one at place n makes version n + 1 of version n. What has been released never changes.
const MIGRATIONS: &[Migration] = &[|connection| connection.execute_batch(include_str!("schema/1.sql"))];

/// What a connection that reads has for itself: a table in which a query is cut into tokens as rows are.
pub(super) const OF_READER: &str = "
    PRAGMA temp_store = MEMORY;
    CREATE VIRTUAL TABLE temp.kb_query USING fts5 (words, tokenize = 'porter unicode61 remove_diacritics 2');
    CREATE VIRTUAL TABLE temp.kb_query_words USING fts5vocab ('temp', 'kb_query', 'instance');";

/// Builds both indexes again from the rows.
pub(super) const REBUILD: &str = "
    INSERT INTO kb_text (kb_text) VALUES ('rebuild');
    INSERT INTO kb_text_past (kb_text_past) VALUES ('rebuild');";

/// Whether the file has the tables of a base. A new one has none.
pub(super) fn is_base(connection: &Connection) -> Result<bool, KnowledgeError> {
    Ok(pragma(connection, "application_id")? == APPLICATION)
}

fn pragma(connection: &Connection, name: &str) -> rusqlite::Result<i32> {
    connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0))
}

/// In what the tables, indexes and views of a base are not those of this version. What a file has beside them, such as a trigger, would be
/// executed with a change.
pub(super) fn differences(connection: &Connection) -> Result<Vec<String>, KnowledgeError> {
    let mut new = Connection::open_in_memory()?;
    migrate(&mut new)?;
    let (expected, found) = (described(&new)?, described(connection)?);
    let lacking =
        expected.keys().filter(|name| !found.contains_key(*name)).map(|name| format!("the base lacks {name}"));
    let others = found.iter().filter_map(|(name, sql)| match expected.get(name) {
        None => Some(format!("the base has {name}, which no base has")),
        Some(expected) if expected != sql => Some(format!("{name} is not what it is in a base")),
        Some(_) => None,
    });
    Ok(lacking.chain(others).take(MOST).collect())
}

/// What the schema has, apart from the statistics that SQLite collects.
fn described(connection: &Connection) -> rusqlite::Result<BTreeMap<String, Option<String>>> {
    let mut find =
        connection.prepare("SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_stat%'")?;
    let rows = find.query_map([], |row| {
        let (kind, name): (String, String) = (row.get(0)?, row.get(1)?);
        Ok((format!("the {kind} {}", visible(&name)), row.get(2)?))
    })?;
    rows.collect()
}

/// Makes the base one of this version. A file without content becomes an empty base.
pub(super) fn migrate(connection: &mut Connection) -> Result<(), KnowledgeError> {
    migrate_by(connection, MIGRATIONS)
}

/// Makes each migration that the base lacks, with its version, in a transaction of its own: a process that is killed leaves a base of an
/// earlier version, which the next process continues to migrate.
fn migrate_by(connection: &mut Connection, migrations: &[Migration]) -> Result<(), KnowledgeError> {
    loop {
        let transaction = Transaction::new(connection, TransactionBehavior::Immediate)?;
        let (application, version) = (pragma(&transaction, "application_id")?, pragma(&transaction, "user_version")?);
        let tables: i64 = transaction.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        if application != APPLICATION && (application != 0 || version != 0 || tables > 0) {
            return Err(KnowledgeError::NotABase);
        }
        let version = usize::try_from(version).unwrap_or(usize::MAX);
        let Some(migration) = migrations.get(version) else {
            let known = migrations.len();
            return if version > known { Err(KnowledgeError::TooNew { version, known }) } else { Ok(()) };
        };
        migration(&transaction)?;
        transaction.pragma_update(None, "user_version", i64::try_from(version + 1).unwrap_or(i64::MAX))?;
        transaction.pragma_update(None, "application_id", APPLICATION)?;
        transaction.commit()?;
    }
}
