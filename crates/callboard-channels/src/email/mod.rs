//! Approvals by e-mail.
//!
//! Each question is mailed to the people who may decide it, and so is what came of it, in the same thread. Nobody decides by a mail: it has
//! the address of the page where the reader signs in and decides, and no secret. What was sent is kept in a file of this user alone, so a later
//! process sends no mail twice, and sends what was missed.
//!
//! The arguments of actions are in no mail, unless that is wanted ([`EmailConfig::with_arguments`]). Mails are sent by a task of the channel's
//! own: a server that does not answer delays nobody.
//!
//! ```no_run
//! use callboard::prelude::*;
//! use callboard_channels::email::{EmailChannel, EmailConfig, EmailPassword};
//! # async fn start(password: &str) -> Result<(), Box<dyn std::error::Error>> {
//! let config = EmailConfig::new("mail.example.org", "callboard <board@example.org>", "/var/lib/team/email")
//!     .login("board", EmailPassword::new(password)?)
//!     .person("ann@example.org", "ann");
//! let board = Callboard::builder().channel(EmailChannel::open(config)?).start().await?;
//! # Ok(()) }
//! ```

// - `config`: the settings. `password`: the secret that the server may want. `error`: why there is no channel.
// - `message`: what mails say, and their headers. `ledger`: what was sent and what is left to send, without calls.
// - `server`: the calls of a server. `tasks`: those that make the calls. `waiting`: the addresses that take nothing for a while.
mod config;
mod error;
mod ledger;
mod message;
mod password;
mod server;
mod tasks;
mod waiting;

use std::fmt;
use std::sync::Arc;

use callboard::actors::approvals::{Channel, Decider};
use callboard::messages::{Decision, Envelope};
use callboard_private::Folder;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use self::config::FILE;
use self::ledger::Ledger;
use self::message::NAME;
use self::server::Server;
use self::tasks::Shared;
use crate::deciding::Deciding;
use crate::kept::LedgerFile;

pub use self::config::{EmailConfig, EmailState, EmailTls};
pub use self::error::EmailError;
pub use self::password::EmailPassword;

/// Asks people by e-mail.
pub struct EmailChannel {
    shared: Arc<Shared>,
    tasks: Mutex<Vec<AbortHandle>>,
}

impl EmailChannel {
    /// Opens the channel, with what an earlier process has kept. No call is made before the board starts.
    ///
    /// # Errors
    /// See [`EmailError`].
    pub fn open(config: EmailConfig) -> Result<Self, EmailError> {
        let server = Server::new(&config)?;
        let folder = Folder::create(&config.folder)?;
        let mut ledger = match folder.read(FILE)? {
            Some(bytes) => {
                Ledger::read(&bytes).map_err(|why| EmailError::State { path: folder.path().join(FILE), why })?
            }
            None => Ledger::default(),
        };
        ledger.retain(|address| config.people.contains_key(address));
        let kept = Arc::new(Deciding::new(NAME, ledger, LedgerFile { folder, name: FILE }, config.delays));
        let shared = Shared { config, kept, server, state: watch::Sender::new(EmailState::Starting) };
        Ok(Self { shared: Arc::new(shared), tasks: Mutex::default() })
    }

    /// Whether the server is reached and which recipients it refuses, and each change of it.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<EmailState> {
        self.shared.state.subscribe()
    }
}

impl Channel for EmailChannel {
    fn name(&self) -> &'static str {
        NAME
    }

    fn started(&self, decider: &Decider) {
        let mut tasks = self.tasks.lock();
        self.shared.kept.started(decider);
        if tasks.is_empty() {
            *tasks = self.shared.start();
        }
    }

    fn ask(&self, envelope: &Envelope, _: &Decider) {
        self.shared.ask(envelope);
    }

    fn settled(&self, envelope: &Envelope, decision: Option<&Decision>) {
        self.shared.kept.change(|ledger| ledger.close(envelope.id(), decision));
    }

    fn remind(&self, envelope: &Envelope, _: &Decider) {
        self.shared.kept.change(|ledger| ledger.remind(envelope.id()));
    }

    fn escalated(&self, envelope: &Envelope, _: &Decider) {
        self.shared.kept.change(|ledger| ledger.check_again(envelope.id()));
    }
}

impl fmt::Debug for EmailChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmailChannel").field("config", &self.shared.config).finish_non_exhaustive()
    }
}

impl Drop for EmailChannel {
    fn drop(&mut self) {
        self.shared.kept.close(&self.tasks.lock());
    }
}
