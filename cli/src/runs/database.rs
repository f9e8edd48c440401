//! `callboard store migrate`, and what `callboard store check` reports on a database.

use serde_json::{Value, json};

use callboard::messages::visible;
use callboard_postgres::{Migration, Report, TableSize};

use crate::page::{Failure, Page, shown_path};
use crate::stores::database::Database;

/// Creates the schema, or brings it up to date, and gives the roles their rights.
pub(super) async fn migrate(database: &Database, runtime: Option<&str>, reader: Option<&str>) -> Result<Page, Failure> {
    let migration = runtime.into_iter().fold(Migration::default(), Migration::runtime_role);
    let migration = reader.into_iter().fold(migration, Migration::reader_role);
    database.migrate(&migration).await?;
    let shown = shown_path(database.shown());
    let json = json!({ "store": shown, "runtime_role": runtime, "reader_role": reader });
    Ok(Page::new(format!("{shown} has the schema of this callboard\n"), json))
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
    for TableSize { table, rows, bytes, .. } in tables {
        let rows = if *rows < 0 { "not counted".to_owned() } else { format!("about {rows} rows") };
        text.push_str(&format!("  {}: {rows}, {bytes} bytes\n", visible(table)));
    }
    problems.iter().for_each(|problem| text.push_str(&format!("warning: {}\n", visible(problem))));
    let sizes = tables.iter().map(|table| json!({ "table": table.table, "rows": table.rows, "bytes": table.bytes }));
    let json = json!({
        "database": shown, "server_version": server_version, "schema_version": schema_version, "user": user,
        "protection": protection, "writing_handles": writing_handles, "tables": sizes.collect::<Value>(), "problems": problems,
    });
    Ok((text, json))
}
