//! What keeps a board from a database, as its operator reads it; roles; and passwords, which nothing shows.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use callboard::storage::{Append, Key, Put, Storage, StorageError};
use callboard_postgres::{ConnectError, Migration, Postgres, PostgresConfig, check, migrate};
use support::Server;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};

mod support;

async fn refused(config: PostgresConfig) -> ConnectError {
    match Postgres::connect_with(config).await {
        Ok(_) => panic!("it connects"),
        Err(error) => error,
    }
}

/// A configuration for another user, database or parameter.
fn config(user: &str, database: &str, parameters: &str) -> PostgresConfig {
    let folder = Server::of_this_process().folder.display();
    PostgresConfig::from_url(&format!("postgres://{user}@/{database}?host={folder}{parameters}")).unwrap()
}

#[tokio::test]
async fn what_is_missing_is_named_with_what_to_do() {
    let server = Server::of_this_process();
    let no_schema = refused(server.config("nothing")).await;
    assert_eq!(no_schema, ConnectError::NoSchema { schema: "nothing".to_owned() });
    assert!(no_schema.to_string().contains("callboard store migrate"));
    assert_eq!(check(&server.config("nothing")).await.unwrap().problems[0], no_schema.to_string());
    // A schema of somebody else's.
    server.client().await.batch_execute("CREATE SCHEMA others").await.unwrap();
    assert!(matches!(refused(server.config("others")).await, ConnectError::NoSchema { .. }));

    let no_database = refused(config("postgres", "nothing", "")).await.to_string();
    assert!(no_database.contains("createdb nothing"), "{no_database}");
    let no_user = refused(config("nobody_else", "postgres", "")).await;
    assert!(matches!(&no_user, ConnectError::Login { user, .. } if user == "nobody_else"), "{no_user}");
    let nowhere = refused(PostgresConfig::from_url("postgres://u@/x?host=/nowhere").unwrap()).await;
    assert!(matches!(nowhere, ConnectError::Unreachable { .. }), "{nowhere}");
    assert!(nowhere.to_string().contains("/nowhere/.s.PGSQL.5432"), "{nowhere}");
    let error = StorageError::from(nowhere).to_string();
    assert!(error.contains("no PostgreSQL server answers"), "{error}");

    let config = server.fresh().await.patience(std::time::Duration::ZERO);
    assert!(matches!(config.clone().schema("a; DROP"), Err(ConnectError::Url { .. })));
    let read_only = refused(
        self::config("postgres", "postgres", "&options=-c%20default_transaction_read_only%3Don")
            .schema("test_0")
            .unwrap(),
    )
    .await;
    assert!(matches!(&read_only, ConnectError::ReadOnly { .. }), "{read_only}");
}

#[tokio::test]
async fn a_schema_of_another_version_is_refused_and_left_as_it_is() {
    let server = Server::of_this_process();
    let schema = server.fresh_schema().await;
    let config = server.config(&schema);
    // Again, and two at once.
    let migration = Migration::default();
    let (one, other) = tokio::join!(migrate(&config, &migration), migrate(&config, &migration));
    assert_eq!(one.unwrap().before, Some(2));
    assert_eq!(other.unwrap().before, Some(2));
    let client = server.client().await;
    client.batch_execute(&format!("UPDATE {schema}.schema_version SET version = 99")).await.unwrap();
    let newer = refused(config.clone()).await;
    assert!(
        newer.to_string().contains("version 99") && newer.to_string().contains("a newer callboard wrote it"),
        "{newer}"
    );
    assert_eq!(migrate(&config, &Migration::default()).await, Err(newer));
    client.batch_execute(&format!("UPDATE {schema}.schema_version SET version = 0")).await.unwrap();
    assert!(refused(config).await.to_string().contains("callboard store migrate"));
}

#[tokio::test]
async fn boards_of_the_runtime_role_work_and_cannot_change_tables_and_readers_only_read() {
    let server = Server::of_this_process();
    let schema = server.fresh_schema().await;
    let client = server.client().await;
    client.batch_execute("CREATE ROLE outsider LOGIN").await.unwrap();
    let as_role = |role: &str| config(role, "postgres", "").schema(&schema).unwrap();
    let outsider = refused(as_role("outsider")).await;
    assert!(outsider.to_string().contains(&format!("GRANT USAGE ON schema {schema} TO \"outsider\"")), "{outsider}");

    let roles = Migration::default().runtime_role("run\"time").reader_role("reader");
    migrate(&server.config(&schema), &roles).await.unwrap();
    migrate(&server.config(&schema), &roles).await.unwrap();
    let reader = refused(as_role("reader")).await;
    assert!(matches!(&reader, ConnectError::MissingRight { .. }), "{reader}");
    assert!(reader.to_string().contains("GRANT DELETE ON "), "{reader}");
    assert_eq!(check(&as_role("reader")).await.unwrap().problems.first(), Some(&reader.to_string()));

    let store = Postgres::connect_with(as_role("run%22time")).await.unwrap();
    let (key, value) = (Key::new(["a"]), b"x"[..].into());
    assert_eq!(store.append(Append::new(key.clone(), 0, Clone::clone(&value))).await, Ok(1));
    store.put_if_revision(Put::new(key.clone(), value)).await.unwrap();
    store.purge(&key, 1).await.unwrap();
    let lease = std::time::Duration::from_secs(60);
    let new = callboard::storage::NewSession { name: "a".into(), about: [][..].into(), lease };
    let session = store.begin_session(new).await.unwrap();
    store.end_session(session, false).await.unwrap();
    store.forget_session(session).await.unwrap();

    let may = async |role: &str, statement: &str| {
        client.batch_execute(&format!("SET ROLE \"{role}\"")).await.unwrap();
        let done = client.batch_execute(&statement.replace('$', &schema)).await;
        client.batch_execute("RESET ROLE").await.unwrap();
        done.map_err(|error| error.code().map(|code| code.code().to_owned()).unwrap_or_default())
    };
    let denied = Err("42501".to_owned());
    for statement in [
        "DROP TABLE $.journal",
        "TRUNCATE $.journal",
        "ALTER TABLE $.journal ADD COLUMN more int",
        "CREATE TABLE $.more (a int)",
        "UPDATE $.schema_version SET version = 2",
        "CREATE OR REPLACE FUNCTION $.millis(at bigint) RETURNS bigint LANGUAGE sql AS 'SELECT 1'",
    ] {
        assert_eq!(may("run\"\"time", statement).await, denied, "{statement}");
        assert_eq!(may("reader", statement).await, denied, "{statement}");
    }
    for statement in
        ["DELETE FROM $.journal", "UPDATE $.entries SET revision = 1", "INSERT INTO $.lanes VALUES (1, 1, 1)"]
    {
        assert_eq!(may("reader", statement).await, denied, "{statement}");
    }
    assert_eq!(may("reader", "SELECT * FROM $.journal, $.entries, $.sessions").await, Ok(()));
}

#[tokio::test]
async fn nothing_shows_a_password() {
    let server = Server::start(&["listen_addresses=127.0.0.1", "port=54329"]);
    let hba = server.folder.join("data/pg_hba.conf");
    let rules = std::fs::read_to_string(&hba)
        .unwrap()
        .replace("127.0.0.1/32            trust", "127.0.0.1/32            scram-sha-256");
    std::fs::write(&hba, rules).unwrap();
    let client =
        support::connect(&format!("postgres://postgres@/postgres?host={}&port=54329", server.folder.display())).await;
    client.batch_execute("CREATE ROLE secret LOGIN PASSWORD 'right-canary'; SELECT pg_reload_conf()").await.unwrap();

    let url = |password: &str| format!("postgres://secret{password}@127.0.0.1:54329/postgres?sslmode=disable");
    let wrong = PostgresConfig::from_url(&url(":wrong-canary")).unwrap();
    assert!(!format!("{wrong:?}").contains("canary"), "{wrong:?}");
    // The server reads its rules again in its own time: until then it trusts, and misses the schema.
    let error = loop {
        match refused(wrong.clone()).await {
            ConnectError::NoSchema { .. } => tokio::task::yield_now().await,
            error => break error,
        }
    };
    assert!(matches!(&error, ConnectError::Login { user, .. } if user == "secret"), "{error}");
    assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("passwords");
    std::fs::write(&file, "127.0.0.1:54329:*:secret:right-canary\n").unwrap();
    let with_file = || PostgresConfig::from_url(&format!("{}&passfile={}", url(""), file.display())).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let open = refused(with_file()).await;
    assert!(matches!(open, ConnectError::File { .. }), "{open}");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert!(matches!(refused(with_file()).await, ConnectError::NoSchema { .. }));
    let none = refused(PostgresConfig::from_url(&format!("{}&passfile=/nowhere", url(""))).unwrap()).await;
    assert!(matches!(none, ConnectError::File { .. }), "{none}");

    let owner =
        PostgresConfig::from_url(&format!("postgres://postgres@/postgres?host={}&port=54329", server.folder.display()));
    migrate(&owner.unwrap(), &Migration::default().runtime_role("secret")).await.unwrap();
    let config = PostgresConfig::from_url(&url(":right-canary")).unwrap();
    let store = Postgres::connect_with(config.clone()).await.unwrap();
    assert!(!format!("{store:?} {:?}", check(&config).await).contains("canary"));
    // What the server says of a statement that fails.
    client.batch_execute("DROP SCHEMA callboard CASCADE").await.unwrap();
    let failed = store.put_if_revision(Put::new(Key::new(["a"]), [][..].into())).await.unwrap_err();
    assert!(!failed.to_string().contains("canary"), "{failed}");
}

#[tokio::test]
async fn a_migration_without_a_right_names_it_and_changes_nothing() {
    let client = Server::of_this_process().client().await;
    client.batch_execute("CREATE ROLE plain LOGIN; CREATE ROLE boards LOGIN").await.unwrap();
    let as_role = |role: &str| config(role, "postgres", "").schema("of_plain").unwrap();
    let refused = async |role: &str, migration: Migration| {
        let error = migrate(&as_role(role), &migration).await.unwrap_err();
        assert!(matches!(&error, ConnectError::MayNotMigrate { user, .. } if user == role), "{error}");
        error.to_string()
    };
    let no_schema = refused("plain", Migration::default()).await;
    for wanted in
        ["42501", "connect as postgres, which owns the database", "GRANT CREATE ON DATABASE \"postgres\" TO \"plain\""]
    {
        assert!(no_schema.contains(wanted), "{no_schema}");
    }
    client.batch_execute("GRANT CREATE ON DATABASE postgres TO plain").await.unwrap();
    let no_role = refused("plain", Migration::default().runtime_role("new")).await;
    for wanted in ["permission denied to create role", "CREATE ROLE \"new\" LOGIN", "ALTER ROLE \"plain\" CREATEROLE"] {
        assert!(no_role.contains(wanted), "{no_role}");
    }
    assert_eq!(check(&as_role("plain")).await.unwrap().schema_version, None, "the schema was taken back as well");
    migrate(&as_role("plain"), &Migration::default().runtime_role("boards")).await.unwrap();
    let not_owner = refused("boards", Migration::default()).await;
    assert!(not_owner.contains("connect as plain, which owns the schema of_plain"), "{not_owner}");
    Postgres::connect_with(as_role("boards")).await.unwrap();
}

/// A server in this folder that starts while so many connections are made, and is then the one of this process.
fn starting(folder: &Path, mut refusals: u32) {
    const STARTING: &[u8] = b"SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0";
    let socket = |folder: &Path| folder.join(".s.PGSQL.5432");
    let (listener, server) = (UnixListener::bind(socket(folder)).unwrap(), socket(&Server::of_this_process().folder));
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            if refusals > 0 {
                refusals -= 1;
                let length = client.read_u32().await.unwrap() as usize;
                client.read_exact(&mut vec![0; length - 4]).await.unwrap();
                client.write_u8(b'E').await.unwrap();
                client.write_u32(STARTING.len() as u32 + 4).await.unwrap();
                client.write_all(STARTING).await.unwrap();
                continue;
            }
            let mut server = UnixStream::connect(&server).await.unwrap();
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut client, &mut server).await });
        }
    });
}

#[tokio::test]
async fn a_server_that_starts_is_waited_for() {
    let schema = Server::of_this_process().fresh_schema().await;
    let folder = tempfile::tempdir().unwrap();
    starting(folder.path(), 4);
    let config = support::config_at(folder.path(), &schema);
    let hasty = refused(config.clone().patience(std::time::Duration::ZERO)).await;
    assert!(matches!(&hasty, ConnectError::Starting { detail, .. } if detail.contains("57P03")), "{hasty}");
    assert!(hasty.to_string().contains("try again in a moment"), "{hasty}");
    let store = Postgres::connect_with(config).await.unwrap();
    assert_eq!(store.append(Append::new(Key::new(["a"]), 0, [][..].into())).await, Ok(1));
}

/// A key, and a certificate for `localhost` that it has signed, in PEM.
fn certificate(folder: &Path) {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
        .args([
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
        ])
        .arg("-keyout")
        .arg(folder.join("server.key"))
        .arg("-out")
        .arg(folder.join("server.crt"))
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

#[tokio::test]
async fn tls_is_of_the_right_server_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    certificate(folder.path());
    let (certificate, key) = (folder.path().join("server.crt"), folder.path().join("server.key"));
    support::give_away(&key);
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let settings = [
        "listen_addresses=127.0.0.1".to_owned(),
        "port=54328".to_owned(),
        "ssl=on".to_owned(),
        format!("ssl_cert_file={}", certificate.display()),
        format!("ssl_key_file={}", key.display()),
    ];
    let server = Server::start(&settings.each_ref().map(String::as_str));
    let owner = format!("postgres://postgres@/postgres?host={}&port=54328", server.folder.display());
    migrate(&PostgresConfig::from_url(&owner).unwrap(), &Migration::default()).await.unwrap();

    let at = |host: &str, parameters: &str| {
        PostgresConfig::from_url(&format!("postgres://postgres@{host}:54328/postgres?{parameters}")).unwrap()
    };
    let roots = format!("sslrootcert={}", certificate.display());
    let verified = at("localhost", &roots);
    let store = Postgres::connect_with(verified.clone()).await.unwrap();
    assert_eq!(store.append(Append::new(Key::new(["a"]), 0, [][..].into())).await, Ok(1));
    assert!(check(&verified).await.unwrap().protection.starts_with("TLSv1.3"));
    // Of another name, and not signed by a root of the system.
    for (host, parameters) in [("127.0.0.1", &*roots), ("localhost", "")] {
        let error = refused(at(host, parameters)).await;
        assert!(matches!(&error, ConnectError::Tls { .. }), "{error}");
    }
    // A server without TLS.
    let plain = Server::start(&["listen_addresses=127.0.0.1", "port=54327"]);
    let config = PostgresConfig::from_url(&format!("postgres://postgres@localhost:54327/postgres?{roots}")).unwrap();
    let error = refused(config).await;
    assert!(matches!(&error, ConnectError::Tls { .. }), "{error}");
    drop(plain);
}
