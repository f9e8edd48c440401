//! The feed: changes that other handles write, found by looking while anyone watches.
//!
//! What is new since the last look is what the snapshot of that look did not see. So nothing is left out, in whatever order
//! transactions end. A change is reported as the newest value of its key.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use callboard::messages::Timestamp;
use callboard::storage::{Change, Entry, Key, KeyPrefix, Revision, StorageError, Watch};
use tokio::sync::{Notify, watch};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::PostgresConfig;
use crate::lane::unavailable;
use crate::link::{Link, shown};
use crate::operation::from_server;
use crate::watchers::Watchers;

/// Rows of changes are kept this long, in milliseconds. A feed that has not looked for half of it may have missed some.
pub(crate) const KEPT: i64 = 600_000;

/// What the task and the handle share.
pub(crate) struct Feed {
    pub(crate) watchers: Arc<Watchers>,
    /// Watches that were made, and those of them that see the writes of others.
    made: AtomicU64,
    covered: watch::Sender<u64>,
    look: Notify,
}

impl Feed {
    pub(crate) fn new(watchers: Arc<Watchers>) -> Self {
        Self { watchers, made: AtomicU64::new(0), covered: watch::Sender::new(0), look: Notify::new() }
    }

    pub(crate) fn watch(&self, prefix: &KeyPrefix) -> Watch {
        let watch = self.watchers.watch(prefix);
        self.made.fetch_add(1, Ordering::SeqCst);
        self.look.notify_one();
        watch
    }

    /// Waits until every watch that was made so far sees the writes of others: what is read after that is not older than what they
    /// show.
    pub(crate) async fn covered(&self) {
        let made = self.made.load(Ordering::SeqCst);
        if *self.covered.borrow() < made {
            let _ = self.covered.subscribe().wait_for(|covered| *covered >= made).await;
        }
    }

    /// Looks for changes while anyone watches.
    pub(crate) async fn run(&self, config: Arc<PostgresConfig>, link: Link, lane: watch::Receiver<i64>) {
        let begin = "SELECT pg_current_snapshot()::text, (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
        let look = config.in_schema(LOOK);
        loop {
            self.look.notified().await;
            let mut seen: Option<(String, i64)> = None;
            while self.watchers.any() {
                let made = self.made.load(Ordering::SeqCst);
                self.watchers.turn();
                let looked = match &seen {
                    None => ask(&link, begin, &[]).await,
                    Some((seen, _)) => {
                        let lane = *lane.borrow();
                        let moment = config.moment();
                        ask(&link, &look, &[(seen, Type::TEXT), (&lane, Type::INT8), (&moment, Type::INT8)]).await
                    }
                };
                match looked {
                    Ok(rows) => {
                        let first = rows.first().and_then(|row| Some((row.try_get(0).ok()?, row.try_get(1).ok()?)));
                        if let Some((snapshot, at)) = first {
                            if seen.is_some_and(|(_, before)| at - before > KEPT / 2) {
                                self.watchers.miss();
                            }
                            self.watchers.publish(|| rows.iter().filter_map(change).collect());
                            seen = Some((snapshot, at));
                            self.covered.send_replace(made);
                        }
                    }
                    Err(error) => tracing::debug!(%error, "changes of other handles were not found out"),
                }
                let waiting = tokio::time::timeout(config.poll_every, self.look.notified());
                let _ = waiting.await;
            }
            self.covered.send_replace(self.made.load(Ordering::SeqCst));
        }
    }
}

/// The first columns are the snapshot and the server's time, in every row; a row without a key has nothing else.
const LOOK: &str = "
    SELECT pg_current_snapshot()::text, (extract(epoch FROM clock_timestamp()) * 1000)::bigint, found.key, found.changed, e.revision, e.expires, e.value
    FROM (VALUES (1)) AS once LEFT JOIN (
        SELECT key, max(revision) AS changed FROM callboard.changes
        WHERE xid >= pg_snapshot_xmin($1::text::pg_snapshot) AND NOT pg_visible_in_snapshot(xid, $1::text::pg_snapshot)
            AND lane <> $2
        GROUP BY key
    ) AS found ON true
    LEFT JOIN callboard.entries AS e ON e.key = found.key AND (e.expires IS NULL OR e.expires > callboard.millis($3))
    ORDER BY coalesce(e.revision, found.changed)";

type Parameter<'a> = (&'a (dyn tokio_postgres::types::ToSql + Sync), Type);

async fn ask(link: &Link, statement: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, StorageError> {
    let client = link.client().await?;
    client.query_typed(statement, parameters).await.map_err(|error| unavailable(&shown(&error)))
}

/// The change of a row, with its revision.
fn change(row: &Row) -> Option<(Revision, Change)> {
    let key = Key::from_bytes(row.try_get(2).ok()?)?;
    let (changed, revision): (i64, Option<i64>) = (row.try_get(3).ok()?, row.try_get(4).ok()?);
    let Some(revision) = revision else { return Some((from_server(changed), Change::Deleted(key))) };
    let (expires, value): (Option<i64>, &[u8]) = (row.try_get(5).ok()?, row.try_get(6).ok()?);
    let (revision, expires_at) = (from_server(revision), expires.map(|at| Timestamp::from_millis(from_server(at))));
    Some((revision, Change::Put(key, Entry { value: value.into(), revision, expires_at })))
}
