//! The connections for what is no write of a batch: reads and sessions. Each statement there may be made twice.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use callboard::storage::{Entry, Key, KeyPrefix, Record, Sequence, StorageError};
use futures::StreamExt as _;
use futures::future::join_all;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use crate::PostgresConfig;
use crate::feed::Feed;
use crate::lane::unavailable;
use crate::link::{Failure, Link, delays, shown};
use crate::operation::to_server;
use crate::reading::{self, Statements, TABLES, end_of};
use crate::skipped::{self, Skipped};

/// What all calls that read share.
pub(crate) struct Readers {
    pub(crate) config: Arc<PostgresConfig>,
    pub(crate) statements: Statements,
    pub(crate) links: Vec<Link>,
    pub(crate) next: AtomicUsize,
    pub(crate) sessions: Link,
    /// The id of the lane, which no other handle has had.
    pub(crate) lane: watch::Receiver<i64>,
    pub(crate) feed: Arc<Feed>,
    pub(crate) skipped: Skipped,
}

/// The rows of one page: those whose names are under a prefix, after one.
pub(crate) struct Page {
    /// The table, for reports.
    pub(crate) table: &'static str,
    pub(crate) prefix: KeyPrefix,
    pub(crate) after: Option<Key>,
    pub(crate) limit: usize,
}

/// How many names are read at once where all are.
const NAMES: i64 = 4096;

impl Readers {
    /// Asks until there is an answer, or the patience is over. The statement is one that may be made twice.
    pub(crate) async fn rows(
        &self,
        key: &Key,
        statement: impl Fn(&Statements) -> &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, StorageError> {
        let link = &self.links[self.next.fetch_add(1, Ordering::Relaxed) % self.links.len()];
        self.rows_by(link, key, statement(&self.statements), parameters).await
    }

    /// As [`Readers::rows`], on the connection for sessions: no large read holds a renewal up.
    pub(crate) async fn about_sessions(
        &self,
        statement: impl Fn(&Statements) -> &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, StorageError> {
        self.rows_by(&self.sessions, &Key::new([]), statement(&self.statements), parameters).await
    }

    pub(crate) async fn get(&self, key: &Key) -> Result<Option<Entry>, StorageError> {
        let (name, moment) = (key.as_bytes(), self.config.moment());
        let parameters = [(&name as _, Type::BYTEA), (&moment as _, Type::INT8)];
        let rows = self.rows(key, |statements| &statements.get, &parameters).await?;
        rows.first().map(|row| reading::entry(key, row)).transpose()
    }

    /// As many rows as are asked for, if there are. Those whose names are not keys are left out. The statement takes the bounds of the names,
    /// the limit, and what `more` has.
    pub(crate) async fn page<T>(
        &self,
        Page { table, prefix, after, limit }: Page,
        statement: fn(&Statements) -> &str,
        more: &[(&(dyn ToSql + Sync), Type)],
        read: fn(Key, &Row) -> Result<T, StorageError>,
    ) -> Result<Vec<T>, StorageError> {
        let (begin, end) = (prefix.as_bytes(), end_of(&prefix));
        let (mut found, mut after) = (Vec::new(), after.map(|key| key.as_bytes().to_vec()));
        loop {
            let wanted = limit - found.len();
            let most = to_server(wanted as u64);
            let bounds = [
                (&begin as _, Type::BYTEA),
                (&end as _, Type::BYTEA),
                (&after as _, Type::BYTEA),
                (&most as _, Type::INT8),
            ];
            let parameters: Vec<_> = bounds.into_iter().chain(more.iter().cloned()).collect();
            let rows = self.rows(&Key::new([]), statement, &parameters).await?;
            drop(parameters);
            for row in &rows {
                match reading::name(row)? {
                    Some(key) => found.push(read(key, row)?),
                    None => self.skipped.report(table, row.get(0)),
                }
            }
            match rows.last() {
                Some(last) if found.len() < limit && rows.len() == wanted => after = Some(last.get(0)),
                Some(_) | None => return Ok(found),
            }
        }
    }

    /// Every row whose name is not a key, see [`skipped::shown`].
    pub(crate) async fn unreadable(&self) -> Result<Vec<(String, String)>, StorageError> {
        let mut unreadable = Vec::new();
        for (at, (table, _)) in TABLES.into_iter().enumerate() {
            // The empty name is that of a key.
            let mut after: Vec<u8> = Vec::new();
            loop {
                let parameters = [(&after as _, Type::BYTEA), (&NAMES as _, Type::INT8)];
                let rows = self.rows(&Key::new([]), |statements| &statements.names[at], &parameters).await?;
                for row in &rows {
                    if reading::name(row)?.is_none() {
                        unreadable.push(skipped::shown(table, row.get(0)));
                    }
                }
                match rows.last() {
                    Some(last) => after = last.get(0),
                    None => break,
                }
            }
        }
        Ok(unreadable)
    }

    /// Several values by one statement, or one by one if one of them cannot be read.
    pub(crate) async fn get_many(
        &self,
        keys: &[Key],
    ) -> Result<Vec<Result<Option<Entry>, StorageError>>, StorageError> {
        let names: Vec<&[u8]> = keys.iter().map(Key::as_bytes).collect();
        let moment = self.config.moment();
        let parameters = [(&names as _, Type::BYTEA_ARRAY), (&moment as _, Type::INT8)];
        let rows = self.rows(&Key::new([]), |statements| &statements.get_many, &parameters).await;
        let found = rows.and_then(|rows| {
            let mut found = HashMap::new();
            for row in &rows {
                if let Some(key) = reading::name(row)? {
                    let entry = reading::entry(&key, row)?;
                    found.insert(key, entry);
                }
            }
            Ok(found)
        });
        match found {
            Ok(found) => Ok(keys.iter().map(|key| Ok(found.get(key).cloned())).collect()),
            Err(StorageError::Corrupt { .. }) => Ok(join_all(keys.iter().map(|key| self.get(key))).await),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn read(&self, stream: &Key, from: Sequence, limit: i64) -> Result<Vec<Record>, StorageError> {
        let (name, from) = (stream.as_bytes(), to_server(from));
        let parameters = [(&name as _, Type::BYTEA), (&from as _, Type::INT8), (&limit as _, Type::INT8)];
        let rows = self.rows(stream, |statements| &statements.read, &parameters).await?;
        rows.iter().map(|row| reading::record(stream, row)).collect()
    }

    /// The records of several streams by one statement, or stream by stream if one of them cannot be read.
    pub(crate) async fn read_many(
        &self,
        streams: &[(Key, Sequence)],
        limit: i64,
    ) -> Result<Vec<Result<Vec<Record>, StorageError>>, StorageError> {
        let (names, firsts): (Vec<&[u8]>, Vec<i64>) =
            streams.iter().map(|(stream, from)| (stream.as_bytes(), to_server(*from))).unzip();
        let parameters =
            [(&names as _, Type::BYTEA_ARRAY), (&firsts as _, Type::INT8_ARRAY), (&limit as _, Type::INT8)];
        let rows = self.rows(&Key::new([]), |statements| &statements.read_many, &parameters).await;
        match rows.and_then(|rows| reading::records_of(streams, &rows)) {
            Ok(records) => Ok(records.into_iter().map(Ok).collect()),
            Err(StorageError::Corrupt { .. }) => {
                Ok(join_all(streams.iter().map(|(stream, from)| self.read(stream, *from, limit))).await)
            }
            Err(error) => Err(error),
        }
    }

    /// What is never the same for two calls.
    pub(crate) fn token(&self) -> String {
        format!("{} {}", *self.lane.borrow(), self.next.fetch_add(1, Ordering::Relaxed))
    }

    async fn rows_by(
        &self,
        link: &Link,
        key: &Key,
        statement: &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, StorageError> {
        let patience = self.config.patience;
        let first = async {
            self.feed.covered().await;
            link.client().await
        };
        // An answer may be long; only a row has a limit.
        let mut failed = match timeout(patience, first).await {
            Ok(client) => match rows_of(&*client?, statement, parameters).await {
                Ok(rows) => return Ok(rows),
                Err(error) => error,
            },
            Err(_) => None,
        };
        let repeating = async {
            for wait in delays() {
                match failed.as_ref().map(|error| (Failure::of(error), shown(error))) {
                    None => link.discard(),
                    Some((Failure::Broken | Failure::TakenBack, _)) => {}
                    Some((Failure::Damaged, detail)) => {
                        return Err(StorageError::Corrupt { key: key.clone(), detail });
                    }
                    Some((Failure::LaneGone | Failure::Refused, detail)) => return Err(unavailable(&detail)),
                }
                sleep(wait).await;
                match rows_of(&*link.client().await?, statement, parameters).await {
                    Ok(rows) => return Ok(rows),
                    Err(error) => failed = error,
                }
            }
            Err(unavailable(&link.trouble()))
        };
        match timeout(patience, repeating).await {
            Ok(answer) => answer,
            Err(_) => Err(unavailable(&link.trouble())),
        }
    }
}

/// The longest time without a row.
const ROW: Duration = Duration::from_secs(60);

/// The rows of an answer; `None` as the error if none came for [`ROW`].
async fn rows_of(
    client: &Client,
    statement: &str,
    parameters: &[(&(dyn ToSql + Sync), Type)],
) -> Result<Vec<Row>, Option<tokio_postgres::Error>> {
    let parameters = parameters.iter().map(|(value, kind)| (*value, kind.clone()));
    let asking = timeout(ROW, client.query_typed_raw(statement, parameters)).await;
    let mut answer = pin!(asking.map_err(|_| None)?.map_err(Some)?);
    let mut rows = Vec::new();
    while let Some(row) = timeout(ROW, answer.next()).await.map_err(|_| None)? {
        rows.push(row.map_err(Some)?);
    }
    Ok(rows)
}
