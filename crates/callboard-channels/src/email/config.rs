//! The settings of a channel, and whether it reaches its server.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use callboard::env::Env;
use callboard::messages::{Envelope, visible};
use lettre::message::Mailbox;

use super::error::EmailError;
use super::password::EmailPassword;
use super::server::{Server, Verdict};
use crate::hosts::is_here;

/// The least and the greatest delay before what has failed is tried again.
const DELAYS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(300)];
/// How long the server may take for a connection, and for a mail.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The longest name of a host, in bytes.
const MAX_HOST: usize = 253;
/// The file in the folder of the channel.
pub(super) const FILE: &str = "email.json";

/// What a mail says of a question, such as where it is decided.
type Words = Arc<dyn Fn(&Envelope) -> String + Send + Sync>;

/// How the connection to the server is encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EmailTls {
    /// The connection begins without TLS, which the server has to offer: without it no mail and no password is sent.
    #[default]
    Starttls,
    /// The connection begins with TLS.
    Implicit,
    /// Without encryption, for a server on this machine.
    None,
}

impl EmailTls {
    /// The usual port of such a server.
    #[must_use]
    pub fn port(self) -> u16 {
        match self {
            Self::Starttls => 587,
            Self::Implicit => 465,
            Self::None => 25,
        }
    }
}

/// The settings of a channel.
#[derive(Clone)]
pub struct EmailConfig {
    pub(super) host: String,
    pub(super) port: Option<u16>,
    pub(super) tls: EmailTls,
    pub(super) from: String,
    pub(super) login: Option<(String, EmailPassword)>,
    pub(super) folder: PathBuf,
    /// The people, by their addresses.
    pub(super) people: BTreeMap<String, Arc<str>>,
    pub(super) has_arguments: bool,
    pub(super) page: Option<Words>,
    pub(super) how_to_see: Words,
    pub(super) timeout: Duration,
    pub(super) delays: [Duration; 2],
    pub(super) env: Env,
}

impl EmailConfig {
    /// The settings of mails that this host sends from this address. What it has sent is kept in this folder, which is created with the mode
    /// 0700.
    #[must_use]
    pub fn new(host: &str, from: &str, folder: impl Into<PathBuf>) -> Self {
        Self {
            host: host.to_owned(),
            port: None,
            tls: EmailTls::default(),
            from: from.to_owned(),
            login: None,
            folder: folder.into(),
            people: BTreeMap::new(),
            has_arguments: false,
            page: None,
            how_to_see: Arc::new(|envelope| format!("callboard pending approval:{}", envelope.id())),
            timeout: TIMEOUT,
            delays: DELAYS,
            env: Env::system(),
        }
    }

    /// Sets the port of the server, in place of the usual one.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Sets how the connection is encrypted ([`EmailTls::Starttls`]).
    #[must_use]
    pub fn tls(mut self, tls: EmailTls) -> Self {
        self.tls = tls;
        self
    }

    /// Sets the user of the server who sends. Without one the server has to take mails of everybody.
    #[must_use]
    pub fn login(mut self, user: &str, password: EmailPassword) -> Self {
        self.login = Some((user.to_owned(), password));
        self
    }

    /// Adds an address, and the person who reads it, by the name that decisions have. A person may have several.
    #[must_use]
    pub fn person(mut self, address: &str, name: &str) -> Self {
        self.people.insert(address.to_owned(), name.into());
        self
    }

    /// Has the arguments of actions in mails, which many servers store.
    #[must_use]
    pub fn with_arguments(mut self) -> Self {
        self.has_arguments = true;
        self
    }

    /// Sets the address of the page where a question is decided, to which the reader signs in. By default mails name none.
    #[must_use]
    pub fn page(mut self, page: impl Fn(&Envelope) -> String + Send + Sync + 'static) -> Self {
        self.page = Some(Arc::new(page));
        self
    }

    /// Sets the command that shows a question in full. By default it is `callboard pending`.
    #[must_use]
    pub fn how_to_see(mut self, how: impl Fn(&Envelope) -> String + Send + Sync + 'static) -> Self {
        self.how_to_see = Arc::new(how);
        self
    }

    /// Sets how long the server may take for a connection, and for a mail (60 s).
    #[must_use]
    pub fn timeout(mut self, time: Duration) -> Self {
        self.timeout = time;
        self
    }

    /// Sets the least (1 s) and the greatest (5 min) delay before what has failed is tried again.
    #[must_use]
    pub fn delays(mut self, least: Duration, greatest: Duration) -> Self {
        self.delays = [least, greatest];
        self
    }

    /// Sets the clock, by which mails are dated.
    #[must_use]
    pub fn env(mut self, env: Env) -> Self {
        self.env = env;
        self
    }

    /// Checks the name or the address of a host, without a port.
    ///
    /// # Errors
    /// [`EmailError::Server`]: it is none, or it is another machine and there would be no encryption.
    pub fn check_host(host: &str, tls: EmailTls) -> Result<(), EmailError> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
        let is_host = (1..=MAX_HOST).contains(&host.len()) && host.chars().all(is_name);
        if !is_host && host.parse::<Ipv6Addr>().is_err() {
            return Err(EmailError::Server("it is no name of a host, such as mail.example.org".to_owned()));
        }
        if tls == EmailTls::None && !is_here(host) {
            let why = "without TLS mails could be read on the way to another machine: write tls = \"starttls\" or \"implicit\"";
            return Err(EmailError::Server(why.to_owned()));
        }
        Ok(())
    }

    /// Checks an address that mails are sent to, such as `ann@example.org`.
    ///
    /// # Errors
    /// [`EmailError::Address`]
    pub fn check_address(address: &str) -> Result<(), EmailError> {
        to(address).map(drop)
    }

    /// Checks the address that mails are sent from, which may have a name, such as `callboard <board@example.org>`.
    ///
    /// # Errors
    /// [`EmailError::Address`]
    pub fn check_from(from: &str) -> Result<(), EmailError> {
        self::from(from).map(drop)
    }

    /// Asks the server whether it takes mails, and of each recipient whether it takes those for them. No mail is sent.
    ///
    /// # Errors
    /// It does not take any, and why, as a person reads it; the password is not in it.
    pub async fn look(&self) -> Result<Vec<(String, Result<(), String>)>, String> {
        let server = Server::new(self).map_err(|error| error.to_string())?;
        let looked = server.look(self.people.keys().map(String::as_str)).await?;
        let words = |(address, verdict): (&str, Result<(), Verdict>)| {
            (address.to_owned(), verdict.map_err(|verdict| verdict.to_string()))
        };
        Ok(looked.into_iter().map(words).collect())
    }
}

impl fmt::Debug for EmailConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmailConfig").field("host", &self.host).field("people", &self.people).finish_non_exhaustive()
    }
}

/// The address that mails are sent to.
pub(super) fn to(address: &str) -> Result<lettre::Address, EmailError> {
    // Quoted parts may have anything, and of other scripts not every server takes addresses.
    let is_plain = |c: char| c.is_ascii_graphic() && !"\"()<>[]\\,;:".contains(c);
    let parsed = address.parse().ok().filter(|_| address.chars().all(is_plain));
    parsed.ok_or_else(|| EmailError::Address { address: visible(address) })
}

/// The address that mails are sent from, with its name.
pub(super) fn from(text: &str) -> Result<Mailbox, EmailError> {
    let refused = || EmailError::Address { address: visible(text) };
    let mailbox: Mailbox = text.parse().map_err(|_| refused())?;
    let is_shown = mailbox.name.as_deref().is_none_or(|name| visible(name) == name);
    if is_shown && to(mailbox.email.as_ref()).is_ok() { Ok(mailbox) } else { Err(refused()) }
}

/// Whether the channel reaches its server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EmailState {
    /// Nothing was sent yet.
    Starting,
    /// It takes mails.
    Reached {
        /// The addresses to which it sends none, each with why.
        refused: BTreeMap<String, String>,
    },
    /// It does not answer, or takes no mail; it is tried again.
    Unreachable {
        /// Why, as a person reads it.
        why: String,
    },
}
