//! The one origin that the pages are on, and which requests are from it.

use axum::http::header::ORIGIN;
use axum::http::{HeaderMap, Uri};
use callboard::messages::visible;

use super::kept::Kept;
use crate::origins::{OriginError, Origins, host, text};
use crate::problem::{Problem, ProblemCode};
use crate::tokens::{TokenError, Tokens, random};

/// The file with the name of the pages on this machine.
const FILE: &str = "pages-host";
/// What such a name begins with, and how many random digits follow.
const BEGINNING: &str = "cb-";
const DIGITS: usize = 26;

/// Where the pages are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PagesAt {
    /// On a name of this machine for itself that nothing else has: `http://cb-….localhost:PORT`. Browsers send a cookie to all ports of a
    /// host, so `localhost` and `127.0.0.1` would share it with every other local program. The name is random, and is kept beside
    /// the tokens.
    Loopback {
        /// The port of the server.
        port: u16,
        /// Whether the server answers HTTPS.
        has_tls: bool,
    },
    /// On this origin, such as `https://agents.example.org`.
    Origin(String),
}

/// Why a server has no pages.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DashboardError {
    /// The text is no origin.
    #[error(transparent)]
    Origin(#[from] OriginError),
    /// The name of the pages, or the sessions, cannot be read or written beside the tokens.
    #[error(transparent)]
    Kept(#[from] TokenError),
}

/// The origin of the pages, in lower case.
pub(super) struct PageOrigin {
    origin: String,
    /// The host with the port, unless it is the usual one.
    authority: String,
}

impl PageOrigin {
    pub(super) fn open(at: &PagesAt, tokens: &Tokens) -> Result<Self, DashboardError> {
        let origin = match at {
            PagesAt::Loopback { port, has_tls } => {
                let (scheme, usual) = if *has_tls { ("https", 443) } else { ("http", 80) };
                let port = if *port == usual { String::new() } else { format!(":{port}") };
                format!("{scheme}://{}.localhost{port}", name(tokens)?)
            }
            PagesAt::Origin(origin) => origin.to_ascii_lowercase(),
        };
        Origins::loopback().with(&origin)?;
        let authority = origin.split_once("://").map_or("", |(_, authority)| authority).to_owned();
        Ok(Self { origin, authority })
    }

    pub(super) fn as_str(&self) -> &str {
        &self.origin
    }

    /// Whether cookies are sent over HTTPS alone.
    pub(super) fn is_secure(&self) -> bool {
        self.origin.starts_with("https://")
    }

    /// Whether a request names the host of the pages.
    pub(super) fn is_host_of(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        host(uri, headers).is_some_and(|host| host == self.authority)
    }

    /// Refuses a request that a browser sends for a page of another site, as browsers report it. Other clients report nothing.
    pub(super) fn check_site(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let mut sites = headers.get_all("sec-fetch-site").iter();
        match sites.find(|site| !["same-origin", "none"].iter().any(|own| *site == own)) {
            None => Ok(()),
            Some(site) => Err(foreign(&format!(
                "Sec-Fetch-Site is {}: it was not sent by a page of this server",
                visible(&String::from_utf8_lossy(site.as_bytes()))
            ))),
        }
    }

    /// Refuses a request whose header `Origin` is not this origin, or that has none.
    pub(super) fn check_origin(&self, headers: &HeaderMap) -> Result<(), Problem> {
        self.check_site(headers)?;
        let is_one = headers.get_all(ORIGIN).iter().count() == 1;
        if is_one && text(headers, ORIGIN.as_str()) == Some(&*self.origin) {
            return Ok(());
        }
        Err(foreign(&format!(
            "a request with a session that changes something has the header `Origin: {}`",
            self.origin
        )))
    }
}

/// A request that another page may have brought about.
pub(super) fn foreign(detail: &str) -> Problem {
    Problem::new(ProblemCode::ForeignOrigin, detail)
}

/// The name of the pages on this machine, which is made the first time.
fn name(tokens: &Tokens) -> Result<String, TokenError> {
    let kept = Kept::beside(tokens);
    let read = kept.read(FILE)?.and_then(|bytes| String::from_utf8(bytes).ok());
    if let Some(name) = read.as_deref().map(str::trim_end).filter(|name| is_name(name)) {
        return Ok(name.to_owned());
    }
    if read.is_some() {
        tracing::warn!(file = FILE, "the name of the pages is damaged; they get another one");
    }
    let digits: String = random()?.iter().map(|byte| format!("{byte:02x}")).take(DIGITS / 2).collect();
    let name = format!("{BEGINNING}{digits}");
    kept.write(FILE, format!("{name}\n").as_bytes())?;
    Ok(name)
}

fn is_name(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.strip_prefix(BEGINNING).is_some_and(|digits| digits.len() == DIGITS && digits.bytes().all(is_digit))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use callboard::env::Env;

    use super::*;

    fn at(at: &PagesAt) -> PageOrigin {
        PageOrigin::open(at, &Tokens::new(Env::repeatable(1))).unwrap()
    }

    #[test]
    fn the_usual_port_is_not_in_the_origin() {
        let of = |port, has_tls| at(&PagesAt::Loopback { port, has_tls }).origin;
        assert!(of(7420, false).ends_with(".localhost:7420") && of(7420, false).starts_with("http://cb-"));
        assert!(of(80, false).ends_with(".localhost") && of(443, true).ends_with(".localhost"));
        assert!(of(443, false).ends_with(":443") && of(443, true).starts_with("https://"));
        assert_ne!(of(1, false), of(1, false), "it is random");
    }

    #[test]
    fn a_change_is_taken_from_a_page_of_the_origin_alone() {
        let pages = at(&PagesAt::Origin("https://Agents.example.org".to_owned()));
        let check = |values: &[(&'static str, &str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in values {
                headers.append(*name, value.parse().unwrap());
            }
            pages.check_origin(&headers).is_ok()
        };
        let own = ("origin", "https://agents.example.org");
        assert!(check(&[own]) && check(&[own, ("sec-fetch-site", "same-origin")]));
        for wrong in [
            &[][..],
            &[("origin", "null")],
            &[("origin", "https://agents.example.org:444")],
            &[("origin", "http://agents.example.org")],
            &[("origin", "https://agents.example.org.evil.example")],
            &[own, own],
            &[own, ("sec-fetch-site", "same-site")],
            &[own, ("sec-fetch-site", "cross-site")],
            &[own, ("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")],
        ] {
            assert!(!check(wrong), "{wrong:?}");
        }
    }
}
