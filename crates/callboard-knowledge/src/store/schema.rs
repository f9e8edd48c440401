//! The tables of a base, and how a base of an older version becomes one of this version.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use callboard_text::cut;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::error::KnowledgeError;

/// What `PRAGMA application_id` of a base is: "cbkb".
const APPLICATION: i32 = 0x6362_6b62;

/// The most differences from the schema that are reported.
pub(super) const MOST: usize = 20;

/// What a schema has, with the statements that make it.
type Schema = BTreeMap<String, Option<String>>;

/// Makes a base of one version one of the next.
type Migration = fn(&Connection) -> rusqlite::Result<()>;

/// The migrations, oldest first: the one at place n makes version n + 1 of version n. What has been released never changes.
const MIGRATIONS: &[Migration] = &[
    |connection| connection.execute_batch(include_str!("schema/1.sql")),
    |connection| connection.execute_batch(include_str!("schema/2.sql")),
];

/// What a connection that reads has for itself: a table in which a query is cut into tokens as rows are, and the words of what held.
pub(crate) const OF_READER: &str = "
    PRAGMA temp_store = MEMORY;
    CREATE VIRTUAL TABLE temp.kb_query USING fts5 (words, tokenize = 'porter unicode61 remove_diacritics 2');
    CREATE VIRTUAL TABLE temp.kb_query_words USING fts5vocab ('temp', 'kb_query', 'instance');
    CREATE VIRTUAL TABLE temp.kb_past_words USING fts5vocab ('main', 'kb_text_past', 'row');";

/// How the tables of the schema begin that the full-text indexes are made of: they are derived from the rows.
const OF_INDEX: &str = "the table kb_text";

/// Fills both indexes from the rows.
const FILL: &str = "
    INSERT INTO kb_text (kb_text) VALUES ('rebuild');
    INSERT INTO kb_text_past (kb_text_past) VALUES ('rebuild');";

/// Whether the file has the tables of a base. A new one has none.
pub(super) fn is_base(connection: &Connection) -> Result<bool, KnowledgeError> {
    Ok(pragma(connection, "application_id")? == APPLICATION)
}

fn pragma(connection: &Connection, name: &str) -> rusqlite::Result<i32> {
    connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0))
}

/// Refuses a file whose schema is not that of a base of this version. Indexes that are not as they have to be are built again.
pub(super) fn check(connection: &mut Connection) -> Result<(), KnowledgeError> {
    if differences(connection)?.is_empty() {
        return Ok(());
    }
    let transaction = Transaction::new(connection, TransactionBehavior::Immediate)?;
    rebuild(&transaction)?;
    Ok(transaction.commit()?)
}

/// In what the schema of a base is not that of this version.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) what: String,
    part: SchemaPart,
}

/// What differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SchemaPart {
    /// A table that a full-text index is made of.
    Index,
    /// Another table of bases.
    Table,
    /// An index or a view of bases, or what no base has.
    Other,
}

impl Difference {
    /// What bases have.
    fn of(name: &str, what: String) -> Self {
        let part = if name.starts_with(OF_INDEX) {
            SchemaPart::Index
        } else if name.starts_with("the table") {
            SchemaPart::Table
        } else {
            SchemaPart::Other
        };
        Self { what, part }
    }

    /// Whether [`rebuild`] makes it what it has to be.
    pub(super) fn is_repairable(&self) -> bool {
        self.part == SchemaPart::Index
    }
}

/// In what the tables, indexes and views of a base are not those of this version. What a file has beside them, such as a trigger, would be
/// executed with a change.
pub(super) fn differences(connection: &Connection) -> Result<Vec<Difference>, KnowledgeError> {
    let (expected, found) = (expected()?, described(connection)?);
    let lacking = expected.keys().filter(|name| !found.contains_key(*name));
    let lacking = lacking.map(|name| Difference::of(name, format!("the base lacks {name}")));
    let others = found.iter().filter_map(|(name, sql)| match expected.get(name) {
        None => Some(Difference { what: format!("the base has {name}, which no base has"), part: SchemaPart::Other }),
        Some(expected) if expected != sql => Some(Difference::of(name, format!("{name} is not what it is in a base"))),
        Some(_) => None,
    });
    Ok(lacking.chain(others).collect())
}

/// Refuses a base of which a table is not what it has to be. What else is foreign has no part in what tables are read for.
pub(super) fn check_tables(connection: &Connection) -> Result<(), KnowledgeError> {
    refuse(connection, |difference| difference.part == SchemaPart::Table)
}

/// Refuses a base with such differences.
fn refuse(connection: &Connection, is_refused: fn(&Difference) -> bool) -> Result<(), KnowledgeError> {
    let found = differences(connection)?.into_iter().filter(is_refused).map(|difference| difference.what);
    let found: Vec<String> = found.take(MOST).collect();
    if found.is_empty() { Ok(()) } else { Err(KnowledgeError::Damaged { cause: found.join("; ") }) }
}

/// Builds both full-text indexes again from the rows, whatever is left of them. It changes the schema, so it needs a transaction.
pub(super) fn rebuild(connection: &Connection) -> Result<(), KnowledgeError> {
    // What is read here has to be what it is in a base.
    refuse(connection, |difference| !difference.is_repairable())?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, false)?;
    let dropped = drop_indexes(connection);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    dropped?;
    for (_, create) in tables_of_index()?.filter(|(_, create)| create.starts_with("CREATE VIRTUAL")) {
        connection.execute_batch(create)?;
    }
    Ok(connection.execute_batch(FILL)?)
}

/// Removes the tables that indexes are made of. One that is damaged cannot be opened, and SQLite opens what it drops: so it is taken out of the
/// schema, and what it had are ordinary tables.
fn drop_indexes(connection: &Connection) -> Result<(), KnowledgeError> {
    connection.execute_batch("PRAGMA writable_schema = ON")?;
    for (name, _) in tables_of_index()? {
        connection.execute("DELETE FROM sqlite_schema WHERE type = 'table' AND rootpage = 0 AND name = ?1", [name])?;
    }
    connection.execute_batch("PRAGMA writable_schema = RESET")?;
    for (name, _) in tables_of_index()? {
        connection.execute_batch(&format!("DROP TABLE IF EXISTS {name}"))?;
    }
    Ok(())
}

/// The names of the other tables.
pub(super) fn tables_beside_indexes() -> Result<impl Iterator<Item = &'static str>, KnowledgeError> {
    let others = expected()?.keys().filter(|name| !name.starts_with(OF_INDEX));
    Ok(others.filter_map(|name| name.strip_prefix("the table ")))
}

/// The names of the tables that indexes are made of, with the statements that make them.
fn tables_of_index() -> Result<impl Iterator<Item = (&'static str, &'static str)>, KnowledgeError> {
    let tables = expected()?.iter().filter(|(name, _)| name.starts_with(OF_INDEX));
    Ok(tables.filter_map(|(name, sql)| Some((name.strip_prefix("the table ")?, sql.as_deref()?))))
}

/// What the schema of this version has.
fn expected() -> Result<&'static Schema, KnowledgeError> {
    static EXPECTED: OnceLock<Schema> = OnceLock::new();
    if let Some(expected) = EXPECTED.get() {
        return Ok(expected);
    }
    let mut new = Connection::open_in_memory()?;
    migrate(&mut new)?;
    let expected = described(&new)?;
    Ok(EXPECTED.get_or_init(|| expected))
}

/// What the schema has, apart from the statistics that SQLite collects.
fn described(connection: &Connection) -> rusqlite::Result<Schema> {
    let mut find =
        connection.prepare("SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_stat%'")?;
    let rows = find.query_map([], |row| {
        let (kind, name): (String, String) = (row.get(0)?, row.get(1)?);
        Ok((format!("the {kind} {}", cut(&name)), row.get(2)?))
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
        if application == APPLICATION && version < 1 {
            return Err(KnowledgeError::Damaged { cause: format!("no base has the version {version}") });
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const FILE: &str = "CALLBOARD_MIGRATED_FILE";

    /// The migrations with one more.
    fn with(next: Migration) -> Vec<Migration> {
        MIGRATIONS.iter().copied().chain([next]).collect()
    }

    fn change(connection: &Connection) -> rusqlite::Result<()> {
        // Pages go to the log before the transaction ends.
        connection.execute_batch(
            "PRAGMA cache_size = 2; CREATE TABLE kb_next (x TEXT) STRICT; DROP TABLE kb_predicates;
             INSERT INTO kb_documents (namespace, path, title, hash, read_at, is_untrusted)
                 WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 1000)
                 SELECT 'default', x, hex(zeroblob(500)), x'', 0, 0 FROM n",
        )
    }

    fn opened(file: &Path) -> Connection {
        let connection = Connection::open(file).unwrap();
        connection.execute_batch("PRAGMA journal_mode = WAL").unwrap();
        connection
    }

    /// Not a test: the process that ends within a migration.
    #[test]
    fn the_child() {
        let Some(file) = std::env::var_os(FILE) else { return };
        let ends = |connection: &Connection| change(connection).map(|()| std::process::abort());
        migrate_by(&mut opened(Path::new(&file)), &with(ends)).unwrap();
    }

    #[test]
    fn a_process_that_ends_within_a_migration_leaves_the_earlier_version() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("facts.db");
        migrate(&mut opened(&file)).unwrap();
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "store::schema::tests::the_child", "--quiet"])
            .env(FILE, &file)
            .output()
            .unwrap();
        assert!(child.status.code().is_none(), "{child:?}");
        let log = std::fs::metadata(folder.path().join("facts.db-wal")).unwrap().len();
        assert!(log > 100_000, "the migration had written {log} bytes");
        let version = i32::try_from(MIGRATIONS.len()).unwrap();
        let mut connection = opened(&file);
        assert_eq!(pragma(&connection, "user_version").unwrap(), version);
        assert_eq!(differences(&connection).unwrap(), []);
        migrate_by(&mut connection, &with(change)).unwrap();
        assert_eq!(pragma(&connection, "user_version").unwrap(), version + 1);
        assert!(matches!(migrate(&mut connection), Err(KnowledgeError::TooNew { .. })));
        let strange = ["the base lacks the table kb_predicates", "the base has the table kb_next, which no base has"];
        let found = differences(&connection).unwrap();
        assert_eq!(found.iter().map(|found| &*found.what).collect::<Vec<_>>(), strange);
    }
}
