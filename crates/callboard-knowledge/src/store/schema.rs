//! The tables of a base, and how a base of an older version becomes one of this version.

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::error::KnowledgeError;

/// What `PRAGMA application_id` of a base is: "cbkb".
const APPLICATION: i32 = 0x6362_6b62;

/// The migrations, oldest first: the one at place n makes version n + 1 of version n. What has been released never changes.
const MIGRATIONS: [&str; 1] = [include_str!("schema/1.sql")];

/// The version that this build writes.
pub(crate) const VERSION: usize = MIGRATIONS.len();

/// What a connection that reads has for itself: a table in which a query is cut into tokens as rows are.
pub(super) const OF_READER: &str = "
    PRAGMA temp_store = MEMORY;
    CREATE VIRTUAL TABLE temp.kb_query USING fts5 (words, tokenize = 'porter unicode61 remove_diacritics 2');
    CREATE VIRTUAL TABLE temp.kb_query_words USING fts5vocab ('temp', 'kb_query', 'instance');";

/// Builds both indexes again from the rows.
pub(super) const REBUILD: &str = "
    INSERT INTO kb_text (kb_text) VALUES ('rebuild');
    INSERT INTO kb_text_past (kb_text_past) VALUES ('rebuild');";

/// Makes the base one of this version, in one transaction. A new file becomes an empty base.
pub(super) fn migrate(connection: &mut Connection) -> Result<(), KnowledgeError> {
    let transaction = Transaction::new(connection, TransactionBehavior::Immediate)?;
    let pragma = |name| transaction.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i32>(0));
    let (application, version) = (pragma("application_id")?, pragma("user_version")?);
    let tables: i64 = transaction.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if application != APPLICATION && (application != 0 || tables > 0) {
        return Err(KnowledgeError::NotABase);
    }
    let version = usize::try_from(version).unwrap_or(usize::MAX);
    if version > VERSION {
        return Err(KnowledgeError::TooNew { version, known: VERSION });
    }
    for (from, migration) in MIGRATIONS.iter().enumerate().skip(version) {
        transaction.execute_batch(migration)?;
        transaction.pragma_update(None, "user_version", i64::try_from(from + 1).unwrap_or(i64::MAX))?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    Ok(transaction.commit()?)
}
