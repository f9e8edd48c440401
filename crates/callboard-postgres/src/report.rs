//! A report on a database, for the people who run it. It writes nothing.

use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use crate::link::dial_when_ready;
use crate::schema::{check_usable, server_error, version};
use crate::tls::Security;
use crate::{ConnectError, PostgresConfig};

/// What [`check`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The version of the server, such as `15.18`.
    pub server_version: String,
    /// The version of the schema; `None` if there is none.
    pub schema_version: Option<i32>,
    /// The user of the connection.
    pub user: String,
    /// How the connection is protected: TLS with its version, a Unix socket, or nothing on a loopback address.
    pub protection: String,
    /// Streams, records, values and their bytes with indexes, about: as the server last counted them.
    pub tables: Vec<TableSize>,
    /// Handles that have written within the last minute.
    pub writing_handles: i64,
    /// Why a board could not use it, or what may lose or show data; empty if nothing is wrong.
    pub problems: Vec<String>,
}

/// How large a table is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableSize {
    /// The name of the table.
    pub table: String,
    /// Its rows, about; -1 if the server has not counted them yet.
    pub rows: i64,
    /// Rows that were deleted or replaced and whose space is not free yet, about.
    pub dead_rows: i64,
    /// Its bytes, with its indexes.
    pub bytes: i64,
}

/// Looks at a database: version, rights, sizes, and settings that matter.
///
/// # Errors
/// If the database cannot be asked. That it has no schema, for example, is a problem of the report.
pub async fn check(config: &PostgresConfig) -> Result<Report, ConnectError> {
    let (client, connection) = dial_when_ready(config, &config.tls()?).await?;
    tokio::select! {
        report = report(config, &client) => report,
        () = connection => Err(ConnectError::Server { address: config.address(), detail: "the connection broke".to_owned() }),
    }
}

async fn report(config: &PostgresConfig, client: &Client) -> Result<Report, ConnectError> {
    let fail = |error| server_error(config, &error);
    let sql = "SELECT current_setting('server_version'), current_user::text, \
        (SELECT version FROM pg_catalog.pg_stat_ssl WHERE pid = pg_backend_pid() AND ssl)";
    let row = client.query_typed_one(sql, &[]).await.map_err(fail)?;
    let (server_version, user, tls): (String, String, Option<String>) = (row.get(0), row.get(1), row.get(2));
    let protection = match (&config.security, tls) {
        (Security::Verified { .. }, Some(version)) => format!("{version}, certificate verified"),
        // A pooler between the two ends the TLS of this connection.
        (Security::Verified { .. }, None) => "TLS as far as the pooler, certificate verified".to_owned(),
        (Security::Plain, _) => "a Unix socket or a loopback address".to_owned(),
    };
    let mut problems = Vec::new();
    let schema_version = match version(config, client).await {
        Ok(version) => version,
        Err(ConnectError::MissingRight { .. }) => None,
        Err(error) => return Err(error),
    };
    if let Err(error) = check_usable(config, client).await {
        problems.push(error.to_string());
    }
    for (name, wanted, why) in SETTINGS {
        let row = client.query_typed_one("SELECT current_setting($1)", &[(&name, Type::TEXT)]).await.map_err(fail)?;
        let found: String = row.get(0);
        if !wanted.contains(&found.as_str()) {
            problems.push(format!("{name} is {found}: {why}"));
        }
    }
    problems.extend(trusting(client).await);
    let has_tables = schema_version.is_some();
    let tables = if has_tables { tables(config, client).await.map_err(fail)? } else { Vec::new() };
    let writing =
        config.in_schema("SELECT count(*) FROM callboard.lanes WHERE seen > clock_timestamp() - interval '1 minute'");
    let writing_handles = if has_tables {
        // Without the right to read, the problem is in the report already.
        client.query_typed_one(&writing, &[]).await.map_or(0, |row| row.get(0))
    } else {
        0
    };
    Ok(Report { server_version, schema_version, user, protection, tables, writing_handles, problems })
}

/// Settings, their values that are fine, and what follows from others.
const SETTINGS: [(&str, &[&str], &str); 5] = [
    (
        "autovacuum",
        &["on"],
        "the space of runs that were deleted is never free again, until the database takes no more writes",
    ),
    ("fsync", &["on"], "a crash of the machine may damage the whole database"),
    ("full_page_writes", &["on"], "a crash of the machine may damage pages"),
    (
        "synchronous_commit",
        &["on", "remote_apply", "off"],
        "what was acknowledged may not be on the standby after a failover (a board sets `off` to `on` itself)",
    ),
    ("default_transaction_isolation", &["read committed"], "writes of several boards fail and are repeated more often"),
];

async fn tables(config: &PostgresConfig, client: &Client) -> Result<Vec<TableSize>, tokio_postgres::Error> {
    let sql = "SELECT c.relname::text, c.reltuples::bigint, pg_stat_get_dead_tuples(c.oid), pg_total_relation_size(c.oid) \
        FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
        WHERE n.nspname = $1 AND c.relkind IN ('r', 'p') ORDER BY 1";
    let rows = client.query_typed(sql, &[(&config.schema, Type::NAME)]).await?;
    let size = |row: &Row| TableSize { table: row.get(0), rows: row.get(1), dead_rows: row.get(2), bytes: row.get(3) };
    Ok(rows.iter().map(size).collect())
}

/// Rules of the server that let users in without a password, if this user may read them.
async fn trusting(client: &Client) -> Vec<String> {
    let sql = "SELECT line_number, type, auth_method FROM pg_catalog.pg_hba_file_rules \
        WHERE error IS NULL AND (auth_method = 'trust' OR auth_method IN ('password', 'ident') AND type <> 'local') ORDER BY 1";
    let rows = client.query_typed(sql, &[]).await.unwrap_or_default();
    let problem = |row: &Row| {
        let (line, kind, method): (i32, &str, &str) = (row.get(0), row.get(1), row.get(2));
        format!("line {line} of pg_hba.conf lets users in by {method} ({kind}); use scram-sha-256, on sockets peer")
    };
    rows.iter().map(problem).collect()
}
