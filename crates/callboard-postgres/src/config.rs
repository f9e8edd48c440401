//! Where the database is, and how it is used.

use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use callboard::env::Clock;
use tokio_postgres::config::{Host, TargetSessionAttrs};

use crate::password_file;
use crate::tls::{Security, Tls};
use crate::{ConnectError, url};

/// Of a server whose URL names none.
const USUAL_PORT: u16 = 5432;

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
    ///   certificates or those in the file `sslrootcert`. `sslmode=disable` is taken for loopback addresses, and for Unix sockets, which
    ///   have no TLS, also if it is unset. Every other mode is refused.
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

    /// A URL of the same database, for people and for command lines: without a password, and without parameters that name no place.
    #[must_use]
    pub fn shown_url(&self) -> String {
        let ports = self.server.get_ports();
        let port = |index: usize| ports.get(index).or(ports.first()).filter(|port| **port != USUAL_PORT);
        let port = |index| port(index).map(|port| format!(":{port}"));
        let mut parameters = Vec::new();
        let mut hosts = Vec::new();
        for (index, host) in self.server.get_hosts().iter().enumerate() {
            match host {
                Host::Tcp(name) if name.contains(':') => {
                    hosts.push(format!("[{name}]{}", port(index).unwrap_or_default()))
                }
                Host::Tcp(name) => hosts.push(format!("{name}{}", port(index).unwrap_or_default())),
                Host::Unix(path) => parameters.push(("host", path.display().to_string())),
            }
        }
        if hosts.is_empty() {
            let port = ports.first().filter(|port| **port != USUAL_PORT);
            parameters.extend(port.map(|port| ("port", port.to_string())));
        }
        match &self.security {
            Security::Plain if !hosts.is_empty() => parameters.push(("sslmode", "disable".to_owned())),
            Security::Verified { roots: Some(roots) } => parameters.push(("sslrootcert", roots.display().to_string())),
            Security::Plain | Security::Verified { roots: None } => {}
        }
        if self.server.get_target_session_attrs() == TargetSessionAttrs::ReadWrite {
            parameters.push(("target_session_attrs", "read-write".to_owned()));
        }
        let parameters: Vec<String> =
            parameters.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        let query = if parameters.is_empty() { String::new() } else { format!("?{}", parameters.join("&")) };
        let [user, database] = [self.user(), self.database()].map(encoded);
        format!("postgres://{user}@{}/{database}{query}", hosts.join(","))
    }

    /// Whether the URL has a password in it.
    #[must_use]
    pub fn has_password(&self) -> bool {
        self.server.get_password().is_some()
    }

    /// By which paths a program of this user would reach the database: the file of passwords, and the folders of Unix sockets. Of a folder
    /// in which anybody may create files, such as `/tmp`, only the socket.
    #[must_use]
    pub fn paths(&self) -> Vec<PathBuf> {
        let ports = self.server.get_ports();
        let socket = |(index, host): (usize, &Host)| match host {
            Host::Unix(folder) if is_open_to_all(folder) => {
                let port = ports.get(index).or(ports.first()).copied().unwrap_or(USUAL_PORT);
                Some(folder.join(format!(".s.PGSQL.{port}")))
            }
            Host::Unix(folder) => Some(folder.clone()),
            Host::Tcp(_) => None,
        };
        let sockets = self.server.get_hosts().iter().enumerate().filter_map(socket);
        self.password_file.iter().cloned().chain(sockets).collect()
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

    /// Sets the number of connections for reads, 2 by default; three more are for writes, for sessions, and while there are watches
    /// for notifications.
    #[must_use]
    pub fn readers(mut self, readers: usize) -> Self {
        self.readers = readers.clamp(1, 64);
        self
    }

    /// Sets how often changes of other handles are looked for while there are watches and the server's notifications do not arrive, as
    /// behind PgBouncer; 100 ms by default. While they arrive, a lost one is made up for after 1 s, or this if it is longer.
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
        let port = |index: usize| ports.get(index).or(ports.first()).copied().unwrap_or(USUAL_PORT);
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
        let port = self.server.get_ports().first().copied().unwrap_or(USUAL_PORT);
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

fn is_open_to_all(folder: &Path) -> bool {
    folder.metadata().is_ok_and(|found| found.mode() & 0o002 != 0)
}

/// A text as a part of a URL; slashes stay readable.
fn encoded(text: &str) -> String {
    let encoded: String = form_urlencoded::byte_serialize(text.as_bytes()).collect();
    encoded.replace('+', "%20").replace("%2F", "/")
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

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> PostgresConfig {
        PostgresConfig::from_url(url).unwrap()
    }

    #[test]
    fn a_shown_url_leads_to_the_same_database_and_has_no_password() {
        for (url, shown) in [
            ("postgres://u:c4n4ry@db.example.com/x", "postgres://u@db.example.com/x"),
            ("postgres://u@a:1,b:2/x?password=c4n4ry&options=c4n4ry", "postgres://u@a:1,b:2/x"),
            ("postgres://u:c4n4ry@[::1]:1/a%20b?sslmode=disable", "postgres://u@[::1]:1/a%20b?sslmode=disable"),
            ("postgres://u@/x?host=/run/pg%20sql&port=7", "postgres://u@/x?host=/run/pg%20sql&port=7"),
            (
                "postgres://u@a,b/x?target_session_attrs=read-write&sslrootcert=/r.pem",
                "postgres://u@a,b/x?sslrootcert=/r.pem&target_session_attrs=read-write",
            ),
        ] {
            let read = config(url);
            assert_eq!(read.shown_url(), shown);
            let again = config(shown);
            assert_eq!(
                (again.address(), again.user(), again.database()),
                (read.address(), read.user(), read.database())
            );
            assert_eq!(again.security, read.security);
            assert_eq!(read.has_password(), url.contains("c4n4ry"));
            assert!(!again.has_password());
        }
    }

    #[test]
    fn the_paths_to_the_database_are_its_passwords_and_its_socket() {
        let folder = tempfile::tempdir().unwrap();
        let at =
            |folder: &Path| config(&format!("postgres://u@/x?host={}&port=7&passfile=/p", folder.display())).paths();
        assert_eq!(at(folder.path()), [Path::new("/p"), folder.path()]);
        std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        assert_eq!(at(folder.path()), [Path::new("/p"), &folder.path().join(".s.PGSQL.7")]);
        assert_eq!(config("postgres://u@db/x?passfile=/p").paths(), [Path::new("/p")]);
    }
}
