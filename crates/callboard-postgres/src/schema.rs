//! The schema: made or brought up to date by [`migrate`], checked by whoever connects.

use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use crate::link::{dial_when_ready, shown};
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
    let (client, connection) = dial_when_ready(config, &config.tls()?).await?;
    let migrating = async {
        client.batch_execute("BEGIN").await.map_err(|error| server_error(config, &error))?;
        client
            .query_typed("SELECT pg_advisory_xact_lock($1)", &[(&LOCK, Type::INT8)])
            .await
            .map_err(|error| server_error(config, &error))?;
        check_writable(config, &client).await?;
        let before = version(config, &client).await?;
        let owner = owner(config, &client).await?;
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
        let statements = config.in_schema(&format!("{tables}\n{steps}\n{FUNCTIONS}\n{set}"));
        let made = client.batch_execute(&statements).await;
        made.map_err(|error| not_migrated(config, &error, || remedy_for_schema(config, &owner)))?;
        for (role, rights) in [(&migration.runtime, RUNTIME), (&migration.reader, READER)] {
            if let Some(role) = role {
                let created = client.batch_execute(&creation(role)).await;
                created.map_err(|error| not_migrated(config, &error, || remedy_for_role(config, role)))?;
                let granted = client.batch_execute(&grants(config, role, rights)).await;
                granted.map_err(|error| server_error(config, &error))?;
            }
        }
        client.batch_execute("COMMIT").await.map_err(|error| server_error(config, &error))?;
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

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Creates a role, unless it exists.
fn creation(role: &str) -> String {
    let literal = format!("'{}'", role.replace('\'', "''"));
    let quoted = quoted(role);
    format!(
        "DO $create$ BEGIN IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = {literal}) THEN \
         CREATE ROLE {quoted} LOGIN; END IF; END $create$;"
    )
}

fn grants(config: &PostgresConfig, role: &str, rights: &str) -> String {
    rights.replace("$schema", &quoted(&config.schema)).replace("$role", &quoted(role))
}

/// The owner of the first part of the schema, or of a database without it, that is not the user's; `None` if all is.
async fn owner(config: &PostgresConfig, client: &Client) -> Result<Option<Owner>, ConnectError> {
    let sql = "
        WITH schema AS (SELECT oid, nspowner FROM pg_catalog.pg_namespace WHERE nspname = $1),
        owners AS (
            SELECT 1 AS place, nspowner AS owner, true AS is_of_schema FROM schema
            UNION ALL SELECT 2, relowner, true FROM pg_catalog.pg_class WHERE relnamespace IN (SELECT oid FROM schema)
            UNION ALL SELECT 3, proowner, true FROM pg_catalog.pg_proc WHERE pronamespace IN (SELECT oid FROM schema)
            UNION ALL SELECT 4, datdba, false FROM pg_catalog.pg_database
                WHERE datname = current_database() AND NOT EXISTS (SELECT FROM schema))
        SELECT pg_get_userbyid(owner)::text, is_of_schema FROM owners WHERE NOT pg_has_role(owner, 'USAGE') ORDER BY place LIMIT 1";
    let row = client.query_typed_opt(sql, &[(&config.schema, Type::NAME)]).await;
    let row = row.map_err(|error| server_error(config, &error))?;
    Ok(row.map(|row| Owner { name: row.get(0), is_of_schema: row.get(1) }))
}

struct Owner {
    name: String,
    is_of_schema: bool,
}

/// Why a migration has failed. Without a right, what is to be done.
fn not_migrated(config: &PostgresConfig, error: &Error, remedy: impl FnOnce() -> String) -> ConnectError {
    match error.code() {
        Some(code) if *code == SqlState::INSUFFICIENT_PRIVILEGE => {
            ConnectError::MayNotMigrate { user: config.user().to_owned(), detail: shown(error), remedy: remedy() }
        }
        Some(_) | None => server_error(config, error),
    }
}

fn remedy_for_schema(config: &PostgresConfig, owner: &Option<Owner>) -> String {
    match owner {
        Some(Owner { name, is_of_schema: true }) => {
            format!("connect as {name}, which owns the schema {} or a part of it", config.schema)
        }
        Some(Owner { name, is_of_schema: false }) => {
            let [database, user] = [config.database(), config.user()].map(quoted);
            format!(
                "connect as {name}, which owns the database, or as that one: GRANT CREATE ON DATABASE {database} TO {user}"
            )
        }
        None => "connect as the role that owns the database".to_owned(),
    }
}

fn remedy_for_role(config: &PostgresConfig, role: &str) -> String {
    let [user, role] = [config.user(), role].map(quoted);
    format!(
        "it may not create roles: as a role that may, either CREATE ROLE {role} LOGIN, after which this migration only gives it its rights, or \
         ALTER ROLE {user} CREATEROLE"
    )
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
