//! The names of the server: which hosts and origins requests may name.

use std::collections::BTreeSet;

use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, Uri};
use callboard::messages::visible;

use crate::problem::{Problem, ProblemCode};

/// A text that is no origin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} is no origin such as https://agents.example.org", visible(.0))]
pub struct OriginError(String);

/// The names that the server answers to. A page that has its own name resolve to this machine (DNS rebinding) sends that name as
/// `Host`, and a page of another site sends its own origin.
#[derive(Clone, Debug)]
pub(crate) struct Origins {
    /// Hosts with any port.
    hosts: BTreeSet<String>,
    /// Hosts with their port, if it is not the usual one.
    authorities: BTreeSet<String>,
    /// What pages may send as `Origin`.
    origins: BTreeSet<String>,
}

impl Origins {
    pub(crate) fn loopback() -> Self {
        let hosts = ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned).into();
        Self { hosts, authorities: BTreeSet::new(), origins: BTreeSet::new() }
    }

    pub(crate) fn with(mut self, origin: &str) -> Result<Self, OriginError> {
        let invalid = || OriginError(origin.to_owned());
        let origin = origin.to_ascii_lowercase();
        let authority = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
        let authority = authority.ok_or_else(invalid)?;
        if authority.is_empty() || authority.contains(['/', '@', '?', '#', ' ']) || origin.parse::<Uri>().is_err() {
            return Err(invalid());
        }
        self.authorities.insert(authority.to_owned());
        self.origins.insert(origin);
        Ok(self)
    }

    /// Whether an authority is a name of this machine for itself.
    fn is_loopback(&self, authority: &str) -> bool {
        // The colons of an IPv6 address are within brackets.
        let host = match authority.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            Some(_) | None => authority,
        };
        self.hosts.contains(host)
    }

    /// Refuses a request whose host or origin is another's.
    pub(crate) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
        let foreign = |what: &str, name: &str| {
            let detail = format!("the {what} {} is not a name of this server", visible(name));
            Problem::new(ProblemCode::ForeignOrigin, detail)
        };
        let host = host(uri, headers).ok_or_else(|| foreign("host", ""))?;
        let is_loopback = self.is_loopback(&host);
        if headers.get_all(HOST).iter().count() > 1 || !(is_loopback || self.authorities.contains(&host)) {
            return Err(foreign("host", &host));
        }
        if !headers.contains_key(ORIGIN) {
            return Ok(());
        }
        let origin = text(headers, ORIGIN.as_str()).unwrap_or_default().to_ascii_lowercase();
        let own = is_loopback && origin.strip_prefix("http://") == Some(&*host);
        if own || self.origins.contains(&origin) { Ok(()) } else { Err(foreign("origin", &origin)) }
    }
}

/// The host that a request names, in lower case.
pub(crate) fn host(uri: &Uri, headers: &HeaderMap) -> Option<String> {
    let host = uri.authority().map(|authority| authority.as_str()).or_else(|| text(headers, HOST.as_str()));
    host.map(str::to_ascii_lowercase)
}

/// The first value of a header, if it is text.
pub(crate) fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn only_requests_for_names_of_the_server_are_answered() {
        let origins = Origins::loopback().with("https://Agents.example.org").unwrap();
        let answer = |host: &[&str], origin: Option<&str>| {
            let mut headers = HeaderMap::new();
            for host in host {
                headers.append(HOST, host.parse().unwrap());
            }
            if let Some(origin) = origin {
                headers.insert(ORIGIN, origin.parse().unwrap());
            }
            origins.check(&"/v1/health".parse().unwrap(), &headers).is_ok()
        };
        for host in ["localhost", "LOCALHOST:1", "127.0.0.1:7420", "[::1]", "[::1]:7420", "agents.example.org"] {
            assert!(answer(&[host], None), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:7420",
            "evil.example@localhost",
            "localhost@evil.example",
            "agents.example.org:81",
            "0.0.0.0:7420",
            "127.0.0.2",
            "[::1]x",
        ] {
            assert!(!answer(&[host], None), "{host}");
        }
        assert!(!answer(&[], None), "without a host");
        let mut damaged = HeaderMap::new();
        let secret = format!("cbt_{}", "0".repeat(64));
        damaged.insert(HOST, format!("localhost:1horization: bearer {secret}").parse().unwrap());
        let problem = origins.check(&"/v1/health".parse().unwrap(), &damaged).unwrap_err();
        assert_eq!(problem.detail, "the host localhost:1horization: bearer [a token] is not a name of this server");
        assert!(!answer(&["localhost", "localhost"], None), "two hosts");
        for origin in ["http://localhost:7420", "https://agents.example.org"] {
            assert!(answer(&["localhost:7420"], Some(origin)), "{origin}");
        }
        for origin in
            ["null", "", "http://localhost", "http://localhost:1", "https://localhost:7420", "http://evil.example"]
        {
            assert!(!answer(&["localhost:7420"], Some(origin)), "{origin:?}");
        }
        assert!(answer(&["agents.example.org"], Some("https://agents.example.org")));
        assert!(!answer(&["agents.example.org"], Some("http://agents.example.org")), "another scheme");
        for origin in ["agents.example.org", "https://", "https://a/b", "https://a@b", "ftp://a", "https://a b"] {
            assert!(Origins::loopback().with(origin).is_err(), "{origin}");
        }
    }
}
