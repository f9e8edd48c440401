//! One connection that is opened again when it breaks. Whoever uses it waits for it, up to the patience of the store.

use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use callboard::storage::StorageError;
use futures::{StreamExt as _, stream};
use tokio::sync::{Notify, watch};
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client, Error};

use crate::tls::{Security, Tls};
use crate::{ConnectError, PostgresConfig};

/// The waits between two attempts, from the first to the longest, each with a random part.
const DELAYS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

pub(crate) fn delays() -> impl Iterator<Item = Duration> + Send {
    ExponentialBuilder::new()
        .with_min_delay(DELAYS.0)
        .with_max_delay(DELAYS.1)
        .with_jitter()
        .without_max_times()
        .build()
}

/// A connection; cloned, it is the same one.
#[derive(Clone)]
pub(crate) struct Link(watch::Receiver<State>);

#[derive(Clone)]
enum State {
    Connecting(Option<ConnectError>),
    Open(Arc<Opened>),
}

/// One life of a connection.
pub(crate) struct Opened {
    client: Client,
    discard: Notify,
}

impl std::ops::Deref for Opened {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// What takes the payloads of notifications.
pub(crate) type Heard = Arc<dyn Fn(&str) + Send + Sync>;

/// For a connection that listens to nothing.
pub(crate) fn nothing() -> Heard {
    Arc::new(|_| {})
}

impl Link {
    /// Begins to connect, on the runtime of the caller. It ends when all clones are dropped.
    pub(crate) fn open(config: Arc<PostgresConfig>, tls: Tls) -> Self {
        Self::open_hearing(config, tls, nothing())
    }

    /// As [`Link::open`], with what takes the notifications.
    pub(crate) fn open_hearing(config: Arc<PostgresConfig>, tls: Tls, heard: Heard) -> Self {
        let (sender, state) = watch::channel(State::Connecting(None));
        tokio::spawn(keep(config, tls, sender, heard));
        Self(state)
    }

    /// The open connection, if there is one at the moment.
    pub(crate) fn open_client(&self) -> Option<Arc<Opened>> {
        match &*self.0.borrow() {
            State::Open(opened) if !opened.is_closed() => Some(Arc::clone(opened)),
            State::Open(_) | State::Connecting(_) => None,
        }
    }

    /// Waits until the connection has opened or broken since this was called last.
    pub(crate) async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// The open connection. It waits while there is none.
    pub(crate) async fn client(&self) -> Result<Arc<Opened>, StorageError> {
        let mut state = self.0.clone();
        let is_open = |state: &State| matches!(state, State::Open(client) if !client.is_closed());
        match state.wait_for(is_open).await.as_deref() {
            Ok(State::Open(client)) => Ok(Arc::clone(client)),
            Ok(State::Connecting(_)) | Err(_) => Err(stopped()),
        }
    }

    /// Why there is no connection.
    pub(crate) fn trouble(&self) -> String {
        match &*self.0.borrow() {
            State::Connecting(Some(error)) => error.to_string(),
            State::Connecting(None) | State::Open(_) => "the connection broke".to_owned(),
        }
    }

    /// Gives the connection up, because it does not answer, and opens another.
    pub(crate) fn discard(&self) {
        if let State::Open(opened) = &*self.0.borrow() {
            opened.discard.notify_one();
        }
    }
}

pub(crate) fn stopped() -> StorageError {
    StorageError::Stopped { detail: "it was closed".to_owned() }
}

async fn keep(config: Arc<PostgresConfig>, tls: Tls, state: watch::Sender<State>, heard: Heard) {
    let mut waits = delays();
    loop {
        let dialled = tokio::select! {
            dialled = dial(&config, &tls, Arc::clone(&heard)) => dialled,
            () = state.closed() => return,
        };
        let wait = match dialled {
            Ok((client, connection)) => {
                waits = delays();
                let opened = Arc::new(Opened { client, discard: Notify::new() });
                state.send_replace(State::Open(Arc::clone(&opened)));
                tokio::select! {
                    () = connection => {}
                    () = opened.discard.notified() => {}
                    () = state.closed() => return,
                }
                state.send_replace(State::Connecting(None));
                tracing::warn!(address = %config.address(), "a connection to PostgreSQL broke; it is opened again");
                Duration::ZERO
            }
            Err(error) => {
                state.send_replace(State::Connecting(Some(error)));
                waits.next().unwrap_or(DELAYS.1)
            }
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = state.closed() => return,
        }
    }
}

/// As [`dial`], and waits for a server that starts or is being stopped, up to the patience.
pub(crate) async fn dial_when_ready(
    config: &PostgresConfig,
    tls: &Tls,
) -> Result<(Client, impl Future<Output = ()> + Send + use<>), ConnectError> {
    let starting = match dial(config, tls, nothing()).await {
        Err(error @ ConnectError::Starting { .. }) => error,
        dialled => return dialled,
    };
    let mut waits = delays();
    let dialling = async {
        loop {
            tokio::time::sleep(waits.next().unwrap_or(DELAYS.1)).await;
            match dial(config, tls, nothing()).await {
                // Between its end and its start nothing listens.
                Err(ConnectError::Starting { .. } | ConnectError::Unreachable { .. }) => {}
                dialled => return dialled,
            }
        }
    };
    tokio::time::timeout(config.patience, dialling).await.unwrap_or(Err(starting))
}

/// Connects once; the second part carries the connection, and ends with it.
pub(crate) async fn dial(
    config: &PostgresConfig,
    tls: &Tls,
    heard: Heard,
) -> Result<(Client, impl Future<Output = ()> + Send + use<>), ConnectError> {
    let server = config.with_password()?;
    match server.connect(tls.clone()).await {
        Ok((client, mut connection)) => Ok((client, async move {
            // The connection ends with the client: an error of it is the error of the calls that wait.
            let mut messages = stream::poll_fn(|context| connection.poll_message(context));
            while let Some(Ok(message)) = messages.next().await {
                if let AsyncMessage::Notification(notification) = message {
                    heard(notification.payload());
                }
            }
        })),
        Err(error) => Err(refused(config, &error)),
    }
}

/// Why a connection could not be opened.
fn refused(config: &PostgresConfig, error: &Error) -> ConnectError {
    let (address, user) = (config.address(), config.user().to_owned());
    let Some(server) = error.as_db_error() else {
        let detail = causes(error);
        return if detail.contains("TLS") || detail.contains("certificate") {
            let hint = match &config.security {
                Security::Plain => "",
                Security::Verified { .. } => {
                    "; the server needs TLS (ssl = on) and a certificate of its name that the root certificates \
                     (sslrootcert=…, or the system's) have signed"
                }
            };
            ConnectError::Tls { address, detail: format!("{detail}{hint}") }
        } else if detail.contains("password") {
            let detail = "it asks for a password; write it into the URL, or into ~/.pgpass with mode 0600".to_owned();
            ConnectError::Login { address, user, detail }
        } else {
            ConnectError::Unreachable { address, detail }
        };
    };
    let code = server.code();
    if [SqlState::INVALID_PASSWORD, SqlState::INVALID_AUTHORIZATION_SPECIFICATION].contains(code) {
        ConnectError::Login { address, user, detail: server.message().to_owned() }
    } else if *code == SqlState::INVALID_CATALOG_NAME {
        ConnectError::NoDatabase { address, database: config.database().to_owned() }
    } else if *code == SqlState::CANNOT_CONNECT_NOW {
        ConnectError::Starting { address, detail: shown(error) }
    } else {
        ConnectError::Server { address, detail: shown(error) }
    }
}

/// An error with its causes; tokio-postgres itself says only what failed.
fn causes(error: &Error) -> String {
    let mut shown = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let text = error.to_string();
        if !shown.contains(&text) {
            shown = format!("{shown}: {text}");
        }
        cause = error.source();
    }
    shown
}

/// An error, for people. What the server says of the values of a statement is left out.
pub(crate) fn shown(error: &Error) -> String {
    match error.as_db_error() {
        Some(server) => format!("{} ({})", server.message(), server.code().code()),
        None => causes(error),
    }
}

/// What an error of a statement means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The connection is of no use any more; whether the statement was committed is not known.
    Broken,
    /// The transaction was taken back; it may be made again.
    TakenBack,
    /// The row of the lane is gone; nothing was written.
    LaneGone,
    /// What is stored cannot be read.
    Damaged,
    /// It would fail again.
    Refused,
}

impl Failure {
    pub(crate) fn of(error: &Error) -> Self {
        let Some(code) = error.code() else { return Self::Broken };
        match code.code() {
            "40001" | "40P01" | "55P03" | "57014" => Self::TakenBack,
            // Read-only, or in recovery: the server is a standby.
            "25006" | "55000" | "53300" => Self::Broken,
            "CB001" => Self::LaneGone,
            "XX001" | "XX002" => Self::Damaged,
            code if code.starts_with("57P") || code.starts_with("08") => Self::Broken,
            code if code.starts_with("53") => Self::TakenBack,
            _ => Self::Refused,
        }
    }
}
