//! A schema of version 1, as the first callboard with this store made it, with rows in it. `schema_1` has its SQL.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;

use callboard::storage::{Append, Expected, Key, Put, Storage as _};
use callboard_postgres::{ConnectError, Migration, Postgres, PostgresConfig, check, migrate};
use support::Server;
use tokio_postgres::Client;

mod support;

const TABLES: &str = include_str!("schema_1/tables.sql");
const FUNCTIONS: &str = include_str!("schema_1/functions.sql");

fn stream() -> Key {
    Key::new(["run", "019a0000000070008000000000000001"])
}

fn value() -> Key {
    Key::new(["context", "notes", "a"])
}

/// Makes a schema of version 1 with a stream of three records, of which one is purged, and a value, for boards of this role.
async fn version_1(client: &Client, schema: &str, role: &str) {
    let sql = format!(
        "CREATE SCHEMA callboard;\n{TABLES}\n{FUNCTIONS}
        INSERT INTO callboard.schema_version VALUES (1);
        INSERT INTO callboard.server (timeline) VALUES (callboard.timeline());
        CREATE ROLE {role} LOGIN;
        GRANT USAGE ON SCHEMA callboard TO {role};
        GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA callboard TO {role};
        REVOKE INSERT, UPDATE, DELETE ON callboard.schema_version FROM {role};
        GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA callboard TO {role};"
    );
    let sql = sql.replace("SCHEMA callboard", &format!("SCHEMA {schema}")).replace("callboard.", &format!("{schema}."));
    client.batch_execute(&sql).await.unwrap();
    // By the function of version 1, as a board of that version writes.
    let write = format!(
        "SELECT {schema}.write({schema}.register_lane(), 1, NULL, ARRAY[1, 1, 1, 4, 2]::smallint[],
            ARRAY[$1, $1, $1, $1, $2]::bytea[], ARRAY[0, 0, 0, 0, 0]::bigint[], ARRAY[0, 1, 2, 1, -1]::bigint[],
            ARRAY[0, 0, 0, 0, -1]::bigint[], ARRAY[false, false, false, false, false], ARRAY['one', 'two', 'three', '', 'kept']::bytea[])"
    );
    client.query(&write, &[&stream().as_bytes(), &value().as_bytes()]).await.unwrap();
}

/// Everything that a schema consists of, but for names of what the server has made.
async fn shape(client: &Client, schema: &str) -> BTreeSet<String> {
    let sql = "
        SELECT format('%s %s %s', relname, relkind, reloptions) FROM pg_class WHERE relnamespace = $1::text::regnamespace
        UNION ALL SELECT format('%s toast %s', c.relname, t.reloptions) FROM pg_class c JOIN pg_class t ON t.oid = c.reltoastrelid
            WHERE c.relnamespace = $1::text::regnamespace
        UNION ALL SELECT format('%s.%s %s %s %s', c.relname, attname, format_type(atttypid, atttypmod), attnotnull, atthasdef)
            FROM pg_attribute JOIN pg_class c ON c.oid = attrelid WHERE c.relnamespace = $1::text::regnamespace AND attnum > 0
        UNION ALL SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = $1::text::regnamespace
        UNION ALL SELECT pg_get_indexdef(indexrelid) FROM pg_index JOIN pg_class c ON c.oid = indexrelid
            WHERE c.relnamespace = $1::text::regnamespace
        UNION ALL SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = $1::text::regnamespace";
    let rows = client.query(sql, &[&schema]).await.unwrap();
    rows.iter().map(|row| row.get::<_, String>(0).replace(schema, "callboard")).collect()
}

fn config(user: &str, schema: &str) -> PostgresConfig {
    let url = format!("postgres://{user}@/postgres?host={}", Server::of_this_process().folder.display());
    PostgresConfig::from_url(&url).unwrap().schema(schema).unwrap()
}

#[tokio::test]
async fn a_schema_of_version_1_with_rows_becomes_as_a_new_one_and_keeps_its_rows() {
    let server = Server::of_this_process();
    let client = server.client().await;
    version_1(&client, "made_by_1", "runtime_1").await;
    let config = server.config("made_by_1");
    let Err(refused) = Postgres::connect_with(config.clone()).await else { panic!("it connects") };
    assert_eq!(refused, ConnectError::SchemaVersion { schema: "made_by_1".to_owned(), found: 1, known: 2 });
    assert!(refused.to_string().contains("callboard store migrate"), "{refused}");
    let report = check(&config).await.unwrap();
    assert_eq!((report.schema_version, &report.problems[0]), (Some(1), &refused.to_string()));

    let migrated = migrate(&config, &Migration::default()).await.unwrap();
    assert_eq!((migrated.before, migrated.version), (Some(1), 2));
    assert_eq!(migrate(&config, &Migration::default()).await.unwrap().before, Some(2));
    let new = server.fresh_schema().await;
    let (shape, expected) = (shape(&client, "made_by_1").await, shape(&client, &new).await);
    let differs: Vec<_> = shape.symmetric_difference(&expected).collect();
    assert_eq!(differs, Vec::<&String>::new());

    // Boards have the rights that they had.
    let store = Postgres::connect_with(self::config("runtime_1", "made_by_1")).await.unwrap();
    let records = store.read(&stream(), 0, 9).await.unwrap();
    let read: Vec<_> = records.iter().map(|record| (record.sequence, &*record.payload)).collect();
    assert_eq!(read, [(2, &b"two"[..]), (3, b"three")]);
    assert_eq!(store.append(Append::new(stream(), 3, b"four"[..].into())).await, Ok(4));
    let entry = store.get(&value()).await.unwrap().unwrap();
    assert_eq!(&*entry.value, b"kept");
    let put = Put { expected: Expected::Revision(entry.revision), ..Put::new(value(), b"new"[..].into()) };
    assert!(store.put_if_revision(put).await.unwrap() > entry.revision);
    assert_eq!(check(&config).await.unwrap().schema_version, Some(2));
}

#[tokio::test]
async fn a_migration_that_fails_changes_nothing() {
    let server = Server::of_this_process();
    let client = server.client().await;
    version_1(&client, "half", "half_runtime").await;
    // The last table of the step is somebody else's.
    let owned = "CREATE ROLE half_owner LOGIN; GRANT CREATE ON DATABASE postgres TO half_owner; ALTER SCHEMA half OWNER TO half_owner;
        ALTER TABLE half.streams OWNER TO half_owner; ALTER TABLE half.journal OWNER TO half_owner;
        GRANT SELECT ON half.schema_version TO half_owner;";
    client.batch_execute(owned).await.unwrap();
    let before = shape(&client, "half").await;
    let failed = migrate(&config("half_owner", "half"), &Migration::default()).await.unwrap_err();
    assert!(failed.to_string().contains("must be owner of table entries"), "{failed}");
    assert_eq!(shape(&client, "half").await, before);
    assert_eq!(check(&server.config("half")).await.unwrap().schema_version, Some(1));
    assert_eq!(migrate(&server.config("half"), &Migration::default()).await.unwrap().before, Some(1));
}
