//! The lane: the one task that writes. It takes what has piled up in the queue, and makes it one transaction, in one round trip.
//!
//! A batch has a number. The server keeps the number of the last batch that it committed, in the same transaction, with the
//! answers. So a batch whose answer was lost is sent again under its number: it is either made then, or answered without being made
//! again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use callboard::storage::StorageError;
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::types::Type;
use tokio_postgres::{Error, Row};

use crate::PostgresConfig;
use crate::batch::{Columns, Waiting, take, verdicts};
use crate::link::{Failure, Link, delays, shown};
use crate::notices::Notices;
use crate::operation::Verdict;
use crate::watchers::Watchers;

/// A message to the lane.
pub(crate) enum Message {
    Write(Waiting),
    /// The store closes after the writes before it.
    Close(oneshot::Sender<()>),
}

/// What the task owns.
pub(crate) struct Lane {
    config: Arc<PostgresConfig>,
    link: Link,
    watchers: Arc<Watchers>,
    notices: Notices,
    statement: String,
    /// The row of this lane on the server, which the feed leaves out.
    id: i64,
    ids: tokio::sync::watch::Sender<i64>,
    last_batch: i64,
}

/// The slowest network that a batch is given time for, in bytes a second.
const SLOWEST: u64 = 256 << 10;

impl Lane {
    pub(crate) fn new(
        config: Arc<PostgresConfig>,
        link: Link,
        watchers: Arc<Watchers>,
        notices: Notices,
        ids: tokio::sync::watch::Sender<i64>,
    ) -> Self {
        let statement = config.in_schema(
            "SELECT moment, outcomes, answers FROM callboard.write($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        );
        Self { config, link, watchers, notices, statement, id: 0, ids, last_batch: 0 }
    }

    /// Registers the lane on the server.
    pub(crate) async fn register(&mut self) -> Result<(), StorageError> {
        let client = self.link.client().await?;
        let statement = self.config.in_schema("SELECT callboard.register_lane()");
        let row = client.query_typed_one(&statement, &[]).await;
        self.id = row.and_then(|row| row.try_get(0)).map_err(|error| unavailable(&shown(&error)))?;
        self.last_batch = 0;
        self.ids.send_replace(self.id);
        Ok(())
    }

    /// Why it has no connection.
    pub(crate) fn trouble(&self) -> String {
        self.link.trouble()
    }

    /// Writes until the store is closed, or all its handles are dropped.
    pub(crate) async fn run(mut self, mut messages: mpsc::UnboundedReceiver<Message>) {
        let (mut queue, mut closing, mut is_open) = (VecDeque::new(), None, true);
        while is_open || !queue.is_empty() {
            if queue.is_empty() {
                is_open = receive(messages.recv().await, &mut queue, &mut closing);
            }
            while is_open && let Ok(message) = messages.try_recv() {
                is_open = receive(Some(message), &mut queue, &mut closing);
            }
            if !queue.is_empty() {
                let batch = take(&mut queue, self.config.batch_operations, self.config.batch_bytes);
                self.write(batch).await;
            }
        }
        messages.close();
        self.sign_off().await;
        self.notices.end().await;
        self.watchers.close();
        if let Some(closed) = closing {
            let _ = closed.send(());
        }
    }

    /// Writes one batch, and answers it.
    async fn write(&mut self, batch: Vec<Waiting>) {
        self.watchers.begin_batch();
        match self.commit(&batch).await {
            Ok(verdicts) => {
                let mut left = &verdicts[..];
                for Waiting { operation, answer, permit } in batch {
                    let (own, others) = left.split_at(operation.steps().count());
                    left = others;
                    operation.publish(own, &self.watchers);
                    self.notices.add(operation.channels(&self.config.schema, own));
                    let _ = answer.send(operation.answer(own[0]));
                    drop(permit);
                }
            }
            Err(error) => {
                // It may have been made, and the feed leaves out what this lane writes.
                self.watchers.miss();
                batch.into_iter().for_each(|waiting| drop(waiting.answer.send(Err(error.clone()))));
            }
        }
        self.watchers.end_batch();
    }

    /// Sends a batch until it is answered, or the patience is over.
    async fn commit(&mut self, batch: &[Waiting]) -> Result<Vec<Verdict>, StorageError> {
        self.last_batch += 1;
        let columns = Columns::of(batch);
        let bytes: usize = batch.iter().map(|waiting| waiting.operation.bytes()).sum();
        let limit = self.config.patience + Duration::from_secs(bytes as u64 / SLOWEST);
        let mut sent = match tokio::time::timeout(limit, self.send(&columns)).await {
            Ok(Ok(row)) => Ok(row),
            Ok(Err(error)) => Err(Some(error)),
            Err(_) => Err(None),
        };
        if let Err(first) = sent {
            let trouble = first.as_ref().map_or_else(|| self.link.trouble(), Trouble::shown);
            tracing::warn!(%trouble, "a batch of writes to PostgreSQL is sent again");
            let mut last = None;
            sent = match tokio::time::timeout(limit, self.send_again(&columns, first, &mut last)).await {
                Ok(sent) => sent.map_err(Some),
                Err(_) => {
                    // An attempt may be under way.
                    self.link.discard();
                    Err(last.map(Trouble::Server))
                }
            };
        }
        let row = sent.map_err(|trouble| match trouble {
            Some(Trouble::Storage(error)) => error,
            Some(trouble @ Trouble::Server(_)) => unavailable(&trouble.shown()),
            None => unavailable(&self.link.trouble()),
        })?;
        verdicts(&row, columns.len()).ok_or_else(|| unavailable("the server's answer does not fit the batch"))
    }

    /// Sends a batch until it is answered. `last` has what the server took it back for, while it does.
    async fn send_again(
        &mut self,
        columns: &Columns<'_>,
        first: Option<Trouble>,
        last: &mut Option<Error>,
    ) -> Result<Row, Trouble> {
        let (mut waits, mut trouble) = (delays(), first);
        loop {
            *last = None;
            match trouble {
                None => self.link.discard(),
                Some(Trouble::Server(error)) => match Failure::of(&error) {
                    Failure::Broken => self.link.discard(),
                    Failure::TakenBack => *last = Some(error),
                    Failure::LaneGone => {
                        self.register().await.map_err(Trouble::Storage)?;
                        self.last_batch = 1;
                    }
                    Failure::Damaged | Failure::Refused => return Err(Trouble::Server(error)),
                },
                Some(storage @ Trouble::Storage(_)) => return Err(storage),
            }
            tokio::time::sleep(waits.next().unwrap_or_default()).await;
            match self.send(columns).await {
                Ok(row) => return Ok(row),
                Err(error) => trouble = Some(error),
            }
        }
    }

    async fn send(&self, columns: &Columns<'_>) -> Result<Row, Trouble> {
        let client = self.link.client().await.map_err(Trouble::Storage)?;
        let moment = self.config.moment();
        let [kinds, keys, sessions, firsts, seconds, feeds, bodies] = columns.parameters();
        let parameters = [
            (&self.id as _, Type::INT8),
            (&self.last_batch as _, Type::INT8),
            (&moment as _, Type::INT8),
            kinds,
            keys,
            sessions,
            firsts,
            seconds,
            feeds,
            bodies,
        ];
        client.query_typed_one(&self.statement, &parameters).await.map_err(Trouble::Server)
    }

    /// Removes the lane's row, if the server answers at once.
    async fn sign_off(&self) {
        let statement = self.config.in_schema("DELETE FROM callboard.lanes WHERE lane = $1");
        let signing_off = async {
            let client = self.link.client().await.ok()?;
            client.query_typed(&statement, &[(&self.id, Type::INT8)]).await.ok()
        };
        let _ = tokio::time::timeout(Duration::from_secs(1), signing_off).await;
    }
}

/// Why a batch has no answer.
enum Trouble {
    Server(Error),
    Storage(StorageError),
}

impl Trouble {
    fn shown(&self) -> String {
        match self {
            Self::Server(error) => shown(error),
            Self::Storage(error) => error.to_string(),
        }
    }
}

/// Takes a message; whether more may come.
fn receive(message: Option<Message>, queue: &mut VecDeque<Waiting>, closing: &mut Option<oneshot::Sender<()>>) -> bool {
    match message {
        Some(Message::Write(waiting)) => {
            queue.push_back(waiting);
            true
        }
        Some(Message::Close(closed)) => {
            *closing = Some(closed);
            false
        }
        None => false,
    }
}

pub(crate) fn unavailable(detail: &str) -> StorageError {
    StorageError::Unavailable { detail: format!("PostgreSQL: {detail}") }
}
