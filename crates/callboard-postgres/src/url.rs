//! URLs of databases. The parameters about TLS and the file of passwords are read here; the others are those of tokio-postgres.

use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::config::{Host, SslMode};

use crate::ConnectError;
use crate::tls::Security;

/// What a URL says.
pub(crate) struct Parsed {
    pub(crate) server: tokio_postgres::Config,
    pub(crate) security: Security,
    pub(crate) password_file: Option<PathBuf>,
}

/// A network that has dropped a connection is noticed after this time.
const USER_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// No error repeats a part of the URL, but for the name of a parameter: with a character that was to be written as `%XX`, any part before an
/// `@` may be of the password.
fn refuse<T>(detail: &str) -> Result<T, ConnectError> {
    Err(ConnectError::Url { detail: detail.to_owned() })
}

pub(crate) fn parse(url: &str) -> Result<Parsed, ConnectError> {
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        return refuse("it has to begin with postgres://");
    }
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let (mut mode, mut roots, mut password_file) = (None, None, None);
    let mut others = form_urlencoded::Serializer::new(String::new());
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "sslmode" => mode = Some(value.into_owned()),
            "sslrootcert" => roots = Some(PathBuf::from(value.into_owned())),
            "passfile" => password_file = Some(PathBuf::from(value.into_owned())),
            "sslcert" | "sslkey" | "sslpassword" => return refuse("certificates of clients are not supported"),
            "service" | "servicefile" => {
                return refuse("service files are not supported; write what they say into the URL");
            }
            _ => drop(others.append_pair(&name, &value)),
        }
    }
    // `+` is a plus sign for tokio-postgres.
    let others = others.finish().replace('+', "%20");
    let parsed = if others.is_empty() { base.parse() } else { format!("{base}?{others}").parse() };
    let Ok(mut server) = parsed.map(|server: tokio_postgres::Config| server) else {
        if let Some(detail) = unreadable_parameter(query) {
            return refuse(&detail);
        }
        return refuse(
            "it cannot be read; it has the form postgres://user:password@host:port/database?parameter=value, with special \
             characters, above all of the password, written as %XX",
        );
    };
    if server.get_user().is_none_or(str::is_empty) {
        return refuse("it names no user: postgres://user@host/database");
    }
    if server.get_hosts().is_empty() {
        return refuse("it names no host: postgres://user@host/database, or ?host=/folder/of/the/socket");
    }
    let security = security(&server, mode.as_deref(), roots)?;
    server.ssl_mode(match security {
        Security::Plain => SslMode::Disable,
        Security::Verified { .. } => SslMode::Require,
    });
    if server.get_application_name().is_none() {
        server.application_name("callboard");
    }
    if server.get_connect_timeout().is_none() {
        server.connect_timeout(CONNECT_TIMEOUT);
    }
    if server.get_tcp_user_timeout().is_none() {
        server.tcp_user_timeout(USER_TIMEOUT);
        server.keepalives_idle(USER_TIMEOUT);
    }
    Ok(Parsed { server, security, password_file })
}

/// Which parameter cannot be read, if it is one of them and no part of what follows the `?` may be of the password.
fn unreadable_parameter(query: &str) -> Option<String> {
    if query.contains('@') {
        return None;
    }
    let is_word = |name: &str| {
        name.len() <= 40 && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    };
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let pair = form_urlencoded::Serializer::new(String::new()).append_pair(&name, &value).finish();
        let alone = format!("postgres://u@/d?{}", pair.replace('+', "%20"));
        let Err(error) = alone.parse::<tokio_postgres::Config>() else { continue };
        let name = if is_word(&name) { format!("the parameter {name}") } else { "a parameter".to_owned() };
        let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        return Some(if cause.starts_with("unknown option") {
            format!("{name} is not known; docs/postgres.md lists those that are")
        } else {
            format!("the value of {name} cannot be read")
        });
    }
    None
}

fn security(
    server: &tokio_postgres::Config,
    mode: Option<&str>,
    roots: Option<PathBuf>,
) -> Result<Security, ConnectError> {
    let sockets = server.get_hosts().iter().filter(|host| matches!(host, Host::Unix(_))).count();
    if sockets > 0 && sockets < server.get_hosts().len() {
        return refuse("it names sockets and hosts; name either");
    }
    match mode {
        None | Some("disable") if sockets > 0 => Ok(Security::Plain),
        Some("verify-full") if sockets > 0 => {
            refuse("sslmode=verify-full is for hosts: a Unix socket has no TLS, leave it out")
        }
        None | Some("verify-full") => Ok(Security::Verified { roots }),
        Some("disable") if is_loopback(server) => Ok(Security::Plain),
        Some("disable") => {
            refuse("sslmode=disable is for Unix sockets and loopback addresses only (localhost, 127.0.0.1, [::1])")
        }
        Some(_) => refuse(
            "sslmode has to be verify-full, which is the default for hosts, or, for Unix sockets and loopback addresses, disable",
        ),
    }
}

fn is_loopback(server: &tokio_postgres::Config) -> bool {
    let is_local = |host: &Host| match host {
        Host::Tcp(name) => {
            name == "localhost" || name.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
        }
        Host::Unix(_) => true,
    };
    server.get_hosts().iter().all(is_local) && server.get_hostaddrs().iter().all(std::net::IpAddr::is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(url: &str) -> String {
        parse(url).err().map(|error| error.to_string()).unwrap_or_default()
    }

    fn security_of(url: &str) -> Security {
        parse(url).map(|parsed| parsed.security).unwrap()
    }

    #[test]
    fn tls_is_verified_except_on_a_socket_and_on_a_loopback_address_that_asks_for_none() {
        let verified = Security::Verified { roots: None };
        assert_eq!(security_of("postgres://u@db.example.com/x"), verified);
        assert_eq!(security_of("postgres://u@localhost/x"), verified);
        assert_eq!(security_of("postgresql://u@db/x?sslmode=verify-full&application_name=a"), verified);
        let roots = Security::Verified { roots: Some("/etc/my roots.pem".into()) };
        assert_eq!(security_of("postgres://u@db/x?sslrootcert=/etc/my%20roots.pem"), roots);
        for local in ["localhost", "127.0.0.1", "127.8.8.8", "[::1]"] {
            assert_eq!(security_of(&format!("postgres://u@{local}/x?sslmode=disable")), Security::Plain);
        }
        for mode in ["", "&sslmode=disable"] {
            assert_eq!(security_of(&format!("postgres://u@/x?host=/run/postgresql{mode}")), Security::Plain);
        }
        assert!(
            refused("postgres://u@/x?host=/run/postgresql&sslmode=verify-full").contains("a Unix socket has no TLS")
        );
        for weak in ["allow", "prefer", "require", "verify-ca", "DISABLE", ""] {
            for at in ["db/x?", "/x?host=/run/postgresql&"] {
                let error = refused(&format!("postgres://u@{at}sslmode={weak}"));
                assert!(error.contains("sslmode has to be verify-full"), "{at} {weak}: {error}");
            }
        }
        assert!(refused("postgres://u@db/x?sslmode=disable").contains("loopback addresses only"));
        assert!(refused("postgres://u@localhost,db/x?sslmode=disable").contains("loopback addresses only"));
        assert!(
            refused("postgres://u@localhost/x?hostaddr=10.0.0.1&sslmode=disable").contains("loopback addresses only")
        );
        assert!(refused("postgres://u@db/x?sslcert=/a").contains("certificates of clients"));
    }

    #[test]
    fn an_error_repeats_nothing_of_the_url() {
        for url in [
            "postgres://u:canary@db:port/x",
            "postgres://u:pass?canary@db/x",
            "postgres://u:p@canary@db:99999/x",
            "postgres://u:a?b=canary@db/x?canary=1",
            "postgres://u:x?canary=1@db/x",
            "postgres://u:x@db/x?CANARY%40canary=1",
            "postgres://u:x@db/x?connect_timeout=canary",
            "postgres://u:x@db/x?pass=canary",
            "postgres://u:x@db/x?sslmode=canary",
            "postgres://:canary@db/x",
            "mysql://u:canary@db/x",
            "host=db password=canary",
        ] {
            let error = refused(url);
            assert!(!error.is_empty(), "{url} is taken");
            assert!(!error.contains("canary"), "{url}: {error}");
        }
    }

    #[test]
    fn a_parameter_that_cannot_be_read_is_named() {
        let unknown = refused("postgres://u:p%40@db/x?application_name=a&sslmod=disable");
        assert!(unknown.contains("the parameter sslmod is not known"), "{unknown}");
        for (name, value) in [("connect_timeout", "soon"), ("target_session_attrs", "all"), ("port", "x")] {
            let error = refused(&format!("postgres://u@db/x?{name}={value}"));
            assert!(error.contains(&format!("the value of the parameter {name} cannot be read")), "{error}");
        }
        assert!(
            refused("postgres://u:p@db:port/x?connect_timeout=1").contains("written as %XX"),
            "no parameter is wrong"
        );
    }

    #[test]
    fn what_is_not_said_has_defaults_that_end_waiting() {
        let server = parse("postgres://u:p%40%3f@db/x?options=-c%20a%3Db").unwrap().server;
        assert_eq!(server.get_password(), Some(b"p@?".as_slice()));
        assert_eq!(server.get_options(), Some("-c a=b"));
        assert_eq!(server.get_application_name(), Some("callboard"));
        assert_eq!(
            (server.get_connect_timeout(), server.get_tcp_user_timeout()),
            (Some(&CONNECT_TIMEOUT), Some(&USER_TIMEOUT))
        );
        let set = parse("postgres://u@db/x?connect_timeout=3").unwrap().server;
        assert_eq!(set.get_connect_timeout(), Some(&Duration::from_secs(3)));
    }
}
