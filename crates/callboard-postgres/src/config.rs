//! Where the database is, and how it is used.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use callboard::env::Clock;
use tokio_postgres::config::Host;

use crate::password_file;
use crate::tls::{Security, Tls};
use crate::{ConnectError, url};

/// Where the database is and how it is used; `Debug` shows no password.
#[derive(Clone)]
pub struct PostgresConfig {
    pub(crate) server: tokio_postgres::Config,
    pub(crate) security: Security,
    pub(crate) password_file: Option<PathBuf>,
    pub(crate) schema: String,
    pub(crate) patience: Duration,
    pub(crate) batch_operations: usize,
    pub(crate) batch_bytes: usize,
    pub(crate) readers: usize,
    pub(crate) poll_every: Duration,
    pub(crate) clock: Option<Arc<dyn Clock>>,
}

impl PostgresConfig {
    /// Reads a URL: `postgres://user:password@host:port/database?parameter=value`. Special characters are written as `%XX`; a path of a
    /// Unix socket's folder is the parameter `host`.
    ///
    /// - TLS: the server's certificate has to be valid and of its name (`sslmode=verify-full`, also if unset), by the system's root
    ///   certificates or those in the file `sslrootcert`. `sslmode=disable` is taken for loopback addresses only. Unix sockets have no
    ///   TLS. Every other mode is refused.
    /// - Password: of the URL, or of the file `passfile`, else of `$PGPASSFILE` or `~/.pgpass`. Only their owner may have access to
    ///   these files.
    /// - Also `application_name`, `connect_timeout`, `tcp_user_timeout`, `keepalives…`, `hostaddr`, `options`, `target_session_attrs` and
    ///   `load_balance_hosts`, as libpq has them. Service files are not read.
    ///
    /// # Errors
    /// [`ConnectError::Url`], [`ConnectError::File`].
    pub fn from_url(url: &str) -> Result<Self, ConnectError> {
        let url::Parsed { server, security, password_file } = url::parse(url)?;
        Ok(Self {
            server,
            security,
            password_file: password_file.or_else(password_file::default_path),
            schema: "callboard".to_owned(),
            patience: Duration::from_secs(10),
            batch_operations: 512,
            batch_bytes: 4 << 20,
            readers: 2,
            poll_every: Duration::from_millis(100),
            clock: None,
        })
    }

    /// Sets the schema; `callboard` by default. Small letters, digits and `_`, at most 63.
    ///
    /// # Errors
    /// [`ConnectError::Url`] for another name.
    pub fn schema(mut self, name: &str) -> Result<Self, ConnectError> {
        let is_word = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
        if !is_word || !(1..=63).contains(&name.len()) || name.starts_with("pg_") {
            let detail =
                "a schema's name has small letters, digits and _, at most 63, and does not begin with pg_".to_owned();
            return Err(ConnectError::Url { detail });
        }
        name.clone_into(&mut self.schema);
        Ok(self)
    }

    /// Sets how long a call waits for a connection that broke before it fails with `Unavailable`; 10 s by default.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Sets the bounds of one transaction: 512 writes and 4 MiB by default. A larger write has a transaction of its own.
    #[must_use]
    pub fn batches(mut self, writes: usize, bytes: usize) -> Self {
        (self.batch_operations, self.batch_bytes) = (writes.max(1), bytes);
        self
    }

    /// Sets the number of connections for reads, 2 by default; one more is for writes.
    #[must_use]
    pub fn readers(mut self, readers: usize) -> Self {
        self.readers = readers.clamp(1, 64);
        self
    }

    /// Sets how often changes of other handles are looked for while there are watches; 100 ms by default.
    #[must_use]
    pub fn poll_every(mut self, interval: Duration) -> Self {
        self.poll_every = interval;
        self
    }

    /// Has times end by this clock and not by the server's; for tests of one handle.
    #[doc(hidden)]
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// The server's time of a statement: `None` has it look at its own clock.
    pub(crate) fn moment(&self) -> Option<i64> {
        self.clock.as_ref().map(|clock| i64::try_from(clock.now().wall.as_millis()).unwrap_or(i64::MAX))
    }

    /// The hosts and ports, for people.
    pub(crate) fn address(&self) -> String {
        let (hosts, ports) = (self.server.get_hosts(), self.server.get_ports());
        let port = |index: usize| ports.get(index).or(ports.first()).copied().unwrap_or(5432);
        let shown = hosts.iter().enumerate().map(|(index, host)| match host {
            Host::Tcp(name) => format!("{name}:{}", port(index)),
            Host::Unix(path) => path.join(format!(".s.PGSQL.{}", port(index))).display().to_string(),
        });
        shown.collect::<Vec<_>>().join(", ")
    }

    pub(crate) fn user(&self) -> &str {
        self.server.get_user().unwrap_or_default()
    }

    pub(crate) fn database(&self) -> &str {
        self.server.get_dbname().unwrap_or_else(|| self.user())
    }

    /// SQL of this package for the schema of this configuration. Its name is a word, see [`PostgresConfig::schema`].
    pub(crate) fn in_schema(&self, sql: &str) -> String {
        sql.replace("callboard.", &format!("\"{}\".", self.schema))
    }

    /// What a line of the file of passwords has to fit: the first host.
    fn of_password(&self) -> [String; 4] {
        let host = match self.server.get_hosts().first() {
            Some(Host::Tcp(name)) => name.clone(),
            Some(Host::Unix(_)) | None => "localhost".to_owned(),
        };
        let port = self.server.get_ports().first().copied().unwrap_or(5432);
        [host, port.to_string(), self.database().to_owned(), self.user().to_owned()]
    }

    /// The settings for a connection, with the password.
    pub(crate) fn with_password(&self) -> Result<tokio_postgres::Config, ConnectError> {
        let mut server = self.server.clone();
        if let (None, Some(path)) = (server.get_password(), &self.password_file)
            && let Some(password) = password_file::read(path, self.of_password())?
        {
            server.password(password);
        }
        Ok(server)
    }

    pub(crate) fn tls(&self) -> Result<Tls, ConnectError> {
        Tls::new(&self.security, &self.address())
    }
}

impl fmt::Debug for PostgresConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresConfig")
            .field("address", &self.address())
            .field("user", &self.user())
            .field("database", &self.database())
            .field("schema", &self.schema)
            .field("security", &self.security)
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}
