//! The schema: made or brought up to date by [`migrate`], checked by whoever connects.

use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use crate::link::{dial, nothing, shown};
use crate::{ConnectError, PostgresConfig};

/// The version of the schema that this package reads and writes.
pub(crate) const VERSION: i32 = 2;

/// The tables of version 1.
const TABLES: &str = include_str!("schema/tables.sql");
/// What brings the tables from each version to the next, beginning with version 1. A new schema goes the same way.
const STEPS: [&str; VERSION as usize - 1] = [include_str!("schema/to_2.sql")];
const FUNCTIONS: &str = include_str!("schema/functions.sql");

/// The lock of those who migrate; the number is "callboar" in bytes.
const LOCK: i64 = 0x6361_6c6c_626f_6172;

/// The roles that [`migrate`] gives rights to. It creates those that do not exist, without a password.
#[derive(Clone, Debug, Default)]
pub struct Migration {
    runtime: Option<String>,
    reader: Option<String>,
}

impl Migration {
    /// The role that boards connect as: it reads and writes rows, and can neither change nor empty tables.
    #[must_use]
    pub fn runtime_role(mut self, name: &str) -> Self {
        self.runtime = Some(name.to_owned());
        self
    }

    /// A role that reads.
    #[must_use]
    pub fn reader_role(mut self, name: &str) -> Self {
        self.reader = Some(name.to_owned());
        self
    }
}

/// What [`migrate`] found and made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Migrated {
    /// The version of the schema before; `None` if there was none.
    pub before: Option<i32>,
    /// Its version now.
    pub version: i32,
}

/// Makes the schema in the database, or brings it up to date; one at a time, in one transaction. The user of the URL becomes the owner
/// of the tables. Doing it again is fine.
///
/// # Errors
/// As [`Postgres::connect`](crate::Postgres::connect), for a newer schema [`ConnectError::SchemaVersion`].
pub async fn migrate(config: &PostgresConfig, migration: &Migration) -> Result<Migrated, ConnectError> {
    let (client, connection) = dial(config, &config.tls()?, nothing()).await?;
    let migrating = async {
        client.batch_execute("BEGIN").await.map_err(|error| server_error(config, &error))?;
        client
            .query_typed("SELECT pg_advisory_xact_lock($1)", &[(&LOCK, Type::INT8)])
            .await
            .map_err(|error| server_error(config, &error))?;
        check_writable(config, &client).await?;
        let before = version(config, &client).await?;
        let tables = match before {
            None => format!("CREATE SCHEMA IF NOT EXISTS \"{}\";\n{TABLES}", config.schema),
            Some(1..=VERSION) => String::new(),
            Some(found) => return Err(wrong_version(config, found)),
        };
        let steps = STEPS[before.map_or(0, |found| found as usize - 1)..].concat();
        let set = format!(
            "DELETE FROM callboard.schema_version; INSERT INTO callboard.schema_version VALUES ({VERSION});
            INSERT INTO callboard.server (timeline) VALUES (callboard.timeline()) ON CONFLICT DO NOTHING;"
        );
        let mut statements = config.in_schema(&format!("{tables}\n{steps}\n{FUNCTIONS}\n{set}"));
        for (role, rights) in [(&migration.runtime, RUNTIME), (&migration.reader, READER)] {
            if let Some(role) = role {
                statements.push_str(&grants(config, role, rights));
            }
        }
        statements.push_str("COMMIT");
        client.batch_execute(&statements).await.map_err(|error| server_error(config, &error))?;
        Ok(Migrated { before, version: VERSION })
    };
    tokio::select! {
        migrated = migrating => migrated,
        () = connection => Err(ConnectError::Server { address: config.address(), detail: "the connection broke".to_owned() }),
    }
}

const RUNTIME: &str = "
    GRANT USAGE ON SCHEMA $schema TO $role;
    GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA $schema TO $role;
    REVOKE INSERT, UPDATE, DELETE ON $schema.schema_version FROM $role;
    GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA $schema TO $role;
    GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA $schema TO $role;\n";
const READER: &str = "
    GRANT USAGE ON SCHEMA $schema TO $role;
    GRANT SELECT ON ALL TABLES IN SCHEMA $schema TO $role;
    GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA $schema TO $role;\n";

fn grants(config: &PostgresConfig, role: &str, rights: &str) -> String {
    let quoted = format!("\"{}\"", role.replace('"', "\"\""));
    let literal = format!("'{}'", role.replace('\'', "''"));
    let create = format!(
        "DO $create$ BEGIN IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = {literal}) THEN \
         CREATE ROLE {quoted} LOGIN; END IF; END $create$;"
    );
    create + &rights.replace("$schema", &format!("\"{}\"", config.schema)).replace("$role", &quoted)
}

/// What a store needs of a database: the schema in this version, a server that takes writes, and the rights.
pub(crate) async fn check_usable(config: &PostgresConfig, client: &Client) -> Result<(), ConnectError> {
    match version(config, client).await? {
        None => return Err(ConnectError::NoSchema { schema: config.schema.clone() }),
        Some(VERSION) => {}
        Some(found) => return Err(wrong_version(config, found)),
    }
    check_writable(config, client).await?;
    check_rights(config, client).await
}

fn wrong_version(config: &PostgresConfig, found: i32) -> ConnectError {
    ConnectError::SchemaVersion { schema: config.schema.clone(), found, known: VERSION }
}

/// The version of the schema; `None` if there is none.
pub(crate) async fn version(config: &PostgresConfig, client: &Client) -> Result<Option<i32>, ConnectError> {
    let has_schema = "SELECT has_schema_privilege(oid, 'USAGE') FROM pg_catalog.pg_namespace WHERE nspname = $1";
    let usable = client.query_typed_opt(has_schema, &[(&config.schema, Type::NAME)]).await;
    match usable.map_err(|error| server_error(config, &error))?.map(|row| row.get::<_, bool>(0)) {
        None => return Ok(None),
        Some(true) => {}
        Some(false) => return Err(missing(config, &format!("schema {}", config.schema), "USAGE")),
    }
    let has_table = "SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = $1 AND tablename = 'schema_version'";
    let table = client.query_typed_opt(has_table, &[(&config.schema, Type::NAME)]).await;
    if table.map_err(|error| server_error(config, &error))?.is_none() {
        return Ok(None);
    }
    let sql = config.in_schema("SELECT version FROM callboard.schema_version");
    let row = client.query_typed_opt(&sql, &[]).await.map_err(|error| match error.code().map(|code| code.code()) {
        Some("42501") => missing(config, &format!("{}.schema_version", config.schema), "SELECT"),
        Some(_) | None => server_error(config, &error),
    })?;
    Ok(row.map(|row| row.get(0)))
}

async fn check_writable(config: &PostgresConfig, client: &Client) -> Result<(), ConnectError> {
    let sql = "SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on'";
    let row = client.query_typed_one(sql, &[]).await.map_err(|error| server_error(config, &error))?;
    let detail = match (row.get(0), row.get(1)) {
        (true, _) => "it is a standby",
        (false, true) => "default_transaction_read_only is on, for the server, the database or the role",
        (false, false) => return Ok(()),
    };
    Err(ConnectError::ReadOnly { address: config.address(), detail: detail.to_owned() })
}

/// The rights on tables that the runtime needs.
async fn check_rights(config: &PostgresConfig, client: &Client) -> Result<(), ConnectError> {
    // A filter may be looked at after the functions, which fail for what is of another kind.
    let sql = "
        SELECT object, privilege FROM (
            SELECT c.relname AS object, p AS privilege, CASE c.relkind
                WHEN 'S' THEN has_sequence_privilege(c.oid, 'USAGE')
                ELSE has_table_privilege(c.oid, p) END AS has
            FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace,
                unnest(CASE c.relkind
                    WHEN 'S' THEN ARRAY['USAGE']
                    WHEN 'r' THEN ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE'] END) AS p
            WHERE n.nspname = $1 AND c.relname <> 'schema_version'
        ) AS needed WHERE NOT has ORDER BY 1, 2 LIMIT 1";
    let row = client.query_typed_opt(sql, &[(&config.schema, Type::NAME)]).await;
    match row.map_err(|error| server_error(config, &error))? {
        None => Ok(()),
        Some(row) => {
            let (object, right): (&str, &str) = (row.get(0), row.get(1));
            let kind = if right == "USAGE" { "SEQUENCE " } else { "" };
            Err(missing(config, &format!("{kind}{}.{object}", config.schema), right))
        }
    }
}

fn missing(config: &PostgresConfig, object: &str, right: &str) -> ConnectError {
    let user = config.user().to_owned();
    let grant = format!("GRANT {right} ON {object} TO \"{user}\", or `callboard store migrate --runtime-role {user}`");
    ConnectError::MissingRight { user, object: object.to_owned(), grant }
}

pub(crate) fn server_error(config: &PostgresConfig, error: &Error) -> ConnectError {
    ConnectError::Server { address: config.address(), detail: shown(error) }
}
