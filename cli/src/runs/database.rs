//! `callboard store migrate`, and what `callboard store check` reports on a database.

use serde_json::{Value, json};

use callboard::messages::visible;
use callboard_postgres::{Migrated, Migration, Report, TableSize};

use crate::page::{Failure, Page, shown_path};
use crate::stores::database::Database;

/// Creates the schema, or brings it up to date, and gives the roles their rights.
pub(super) async fn migrate(database: &Database, runtime: Option<&str>, reader: Option<&str>) -> Result<Page, Failure> {
    let migration = runtime.into_iter().fold(Migration::default(), Migration::runtime_role);
    let migration = reader.into_iter().fold(migration, Migration::reader_role);
    let Migrated { before, version, .. } = database.migrate(&migration).await?;
    let shown = shown_path(database.shown());
    let json = json!({
        "store": shown, "runtime_role": runtime, "reader_role": reader, "schema_version": version, "schema_version_before": before,
    });
    let was = before.filter(|before| *before != version).map(|before| format!("; it had version {before}"));
    Ok(Page::new(format!("{shown} has the schema of this callboard{}\n", was.unwrap_or_default()), json))
}

/// What a look at the database has found.
pub(super) async fn checked(database: &Database) -> Result<(String, Value), Failure> {
    let shown = shown_path(database.shown());
    let report = database.check().await?;
    let Report { server_version, schema_version, user, protection, tables, writing_handles, problems, .. } = &report;
    let schema = schema_version.map_or("none".to_owned(), |version| version.to_string());
    let [server, user_shown, protected] = [server_version, user, protection].map(|text| visible(text));
    let mut text = format!(
        "{shown}: PostgreSQL {server}, schema {schema}, as {user_shown}, by {protected}; {writing_handles} writing in the last minute\n"
    );
    for TableSize { table, rows, dead_rows, bytes, .. } in tables {
        let rows = match (*rows, *dead_rows) {
            (..0, _) => "not counted".to_owned(),
            (rows, 0) => format!("about {rows} rows"),
            (rows, dead) => format!("about {rows} rows and {dead} dead ones"),
        };
        text.push_str(&format!("  {}: {rows}, {bytes} bytes\n", visible(table)));
    }
    problems.iter().for_each(|problem| text.push_str(&format!("warning: {}\n", visible(problem))));
    let size = |TableSize { table, rows, dead_rows, bytes, .. }: &TableSize| json!({ "table": table, "rows": rows, "dead_rows": dead_rows, "bytes": bytes });
    let json = json!({
        "database": shown, "server_version": server_version, "schema_version": schema_version, "user": user,
        "protection": protection, "writing_handles": writing_handles, "tables": tables.iter().map(size).collect::<Value>(), "problems": problems,
    });
    Ok((text, json))
}
