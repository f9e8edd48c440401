//! The calls of a server of mail, and what can go wrong. No text of the server is in an error: it could repeat the password.

use std::fmt;
use std::time::Duration;

use callboard::messages::visible;
use lettre::Address;
use lettre::message::Mailbox;
use lettre::transport::smtp::authentication::{Credentials, DEFAULT_MECHANISMS};
use lettre::transport::smtp::client::{AsyncSmtpConnection, TlsParameters};
use lettre::transport::smtp::commands::{Data, Mail, Rcpt, Rset};
use lettre::transport::smtp::extension::ClientId;
use lettre::transport::smtp::{Error, response::Response};
use tokio::time::timeout;

use super::config::{self, EmailConfig, EmailTls};
use super::error::EmailError;
use super::password::EmailPassword;

/// The most characters of an error that are shown.
const MAX_SHOWN: usize = 200;
/// Codes that are about the connection, and not about a mail: the server ends it, or wants a password or TLS before.
const OF_CONNECTION: [&str; 5] = ["421", "503", "530", "535", "538"];
/// How long the end of a connection is waited for.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

/// Why a mail was not taken. No text of it has the password, or words of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The server refuses it for this recipient, and would refuse it again.
    Refused(String),
    /// It does not take it now.
    Later(String),
    /// It cannot be reached, or takes no mails.
    Unreachable(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(code) => write!(f, "the server refuses mail to it ({code})"),
            Self::Later(code) => write!(f, "the server does not take mail to it yet ({code})"),
            Self::Unreachable(why) => f.write_str(why),
        }
    }
}

/// A connection on which mails are sent, one after another.
pub(super) type Connection = Option<AsyncSmtpConnection>;

/// Where mails are sent to.
pub(super) struct Server {
    host: String,
    port: u16,
    tls: EmailTls,
    parameters: Option<TlsParameters>,
    pub(super) from: Mailbox,
    login: Option<(Credentials, EmailPassword)>,
    timeout: Duration,
}

impl Server {
    /// # Errors
    /// The host or an address is none, or TLS cannot be set up.
    pub(super) fn new(config: &EmailConfig) -> Result<Self, EmailError> {
        EmailConfig::check_host(&config.host, config.tls)?;
        config.people.keys().try_for_each(|address| EmailConfig::check_address(address))?;
        let parameters = match config.tls {
            EmailTls::Starttls | EmailTls::Implicit => {
                let parameters = TlsParameters::new(config.host.clone());
                Some(parameters.map_err(|error| EmailError::Tls(error.to_string()))?)
            }
            EmailTls::None => None,
        };
        let login = config.login.clone();
        Ok(Self {
            host: config.host.clone(),
            port: config.port.unwrap_or(config.tls.port()),
            tls: config.tls,
            parameters,
            from: config::from(&config.from)?,
            login: login.map(|(user, password)| (Credentials::new(user, password.expose().to_owned()), password)),
            timeout: config.timeout,
        })
    }

    /// Sends a mail on this connection, or on a new one. The connection is kept if another mail can be sent on it.
    pub(super) async fn send(&self, connection: &mut Connection, to: &str, mail: &[u8]) -> Result<(), Verdict> {
        let to = config::to(to).map_err(|error| Verdict::Refused(error.to_string()))?;
        let mut open = match connection.take() {
            Some(open) => open,
            None => self.connect().await.map_err(Verdict::Unreachable)?,
        };
        let sent = timeout(self.timeout, self.transact(&mut open, to, Some(mail))).await;
        let sent = sent.unwrap_or_else(|_| Err(Verdict::Unreachable(self.too_slow())));
        if !matches!(sent, Err(Verdict::Unreachable(_))) {
            *connection = Some(open);
        }
        sent
    }

    /// Ends a connection on which nothing is left to send.
    pub(super) async fn end(&self, connection: &mut Connection) {
        if let Some(mut open) = connection.take() {
            let _ = timeout(ENDS_WITHIN, open.quit()).await;
        }
    }

    /// Asks of each recipient whether mails to them are taken.
    ///
    /// # Errors
    /// The server takes none.
    pub(super) async fn look<'a>(
        &self,
        recipients: impl Iterator<Item = &'a str>,
    ) -> Result<Vec<(&'a str, Result<(), Verdict>)>, String> {
        let mut open = self.connect().await?;
        let mut looked = Vec::new();
        for recipient in recipients {
            let to = config::to(recipient).map_err(|error| error.to_string())?;
            let asked = timeout(self.timeout, self.transact(&mut open, to, None)).await;
            match asked.map_err(|_| self.too_slow())? {
                Err(Verdict::Unreachable(why)) => return Err(why),
                verdict => looked.push((recipient, verdict)),
            }
        }
        self.end(&mut Some(open)).await;
        Ok(looked)
    }

    /// # Errors
    /// Why there is none, as a person reads it.
    async fn connect(&self) -> Result<AsyncSmtpConnection, String> {
        timeout(self.timeout, self.open()).await.unwrap_or_else(|_| Err(self.too_slow()))
    }

    async fn open(&self) -> Result<AsyncSmtpConnection, String> {
        let (hello, at) = (ClientId::default(), (&*self.host, self.port));
        let implicit = self.parameters.clone().filter(|_| self.tls == EmailTls::Implicit);
        let opened = AsyncSmtpConnection::connect_tokio1(at, Some(self.timeout), &hello, implicit, None).await;
        let mut open = opened.map_err(|error| self.words(&error))?;
        if let Some(parameters) = self.parameters.clone().filter(|_| self.tls == EmailTls::Starttls) {
            if !open.can_starttls() {
                let why =
                    "it offers no STARTTLS, so nothing is sent: set tls = \"implicit\" if its port begins with TLS";
                return Err(why.to_owned());
            }
            open.starttls(parameters, &hello).await.map_err(|error| self.words(&error))?;
        }
        if let Some((credentials, _)) = &self.login {
            let signed_in = open.auth(DEFAULT_MECHANISMS, credentials).await;
            signed_in.map_err(|error| match error.status() {
                Some(_) => format!("it does not take the user and the password ({})", code(&error)),
                None if error.is_client() => "it takes no password by PLAIN or LOGIN on this connection".to_owned(),
                None => self.words(&error),
            })?;
        }
        Ok(open)
    }

    /// Sends a mail, or only asks whether one would be taken.
    async fn transact(&self, open: &mut AsyncSmtpConnection, to: Address, mail: Option<&[u8]>) -> Result<(), Verdict> {
        let unreachable = |error: &Error| Verdict::Unreachable(self.words(error));
        let sender = Mail::new(Some(self.from.email.clone()), Vec::new());
        open.command(sender).await.map_err(|error| unreachable(&error))?;
        let mut answered = self.verdict(open.command(Rcpt::new(to, Vec::new())).await);
        if let (Ok(()), Some(mail)) = (&answered, mail) {
            answered = self.verdict(open.command(Data).await);
            if answered.is_ok() {
                return self.verdict(open.message(mail).await);
            }
        }
        if !matches!(answered, Err(Verdict::Unreachable(_))) {
            open.command(Rset).await.map_err(|error| unreachable(&error))?;
        }
        answered
    }

    fn verdict(&self, answered: Result<Response, Error>) -> Result<(), Verdict> {
        let Err(error) = answered else { return Ok(()) };
        let is_of_connection = error.status().is_some_and(|code| OF_CONNECTION.contains(&&*code.to_string()));
        Err(if is_of_connection {
            Verdict::Unreachable(self.words(&error))
        } else if error.is_permanent() {
            Verdict::Refused(code(&error))
        } else if error.is_transient() {
            Verdict::Later(code(&error))
        } else {
            Verdict::Unreachable(self.words(&error))
        })
    }

    fn too_slow(&self) -> String {
        format!("it has not answered within {} s", self.timeout.as_secs())
    }

    /// An error as a person reads it.
    fn words(&self, error: &Error) -> String {
        if error.status().is_some() {
            return format!("it answers {}", code(error));
        }
        if error.is_response() {
            return "its answer is none of SMTP, or the connection has ended".to_owned();
        }
        let mut text = error.to_string();
        if let Some((_, password)) = &self.login {
            text = password.masked(&text);
        }
        visible(&text.chars().take(MAX_SHOWN).collect::<String>())
    }
}

/// The code of an answer, with the enhanced one (RFC 3463) if there is one: `550 5.1.1`.
fn code(error: &Error) -> String {
    let code = error.status().map(|code| code.to_string()).unwrap_or_default();
    let text = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    let first = text.split_whitespace().next().unwrap_or_default();
    let parts: Vec<&str> = first.split('.').collect();
    let is_number = |part: &&str| (1..=3).contains(&part.len()) && part.chars().all(|c| c.is_ascii_digit());
    if parts.len() == 3 && parts.iter().all(is_number) { format!("{code} {first}") } else { code }
}
