//! The feed: changes that other handles write, found by looking while anyone watches: when a notice of another handle arrives, and
//! from time to time.
//!
//! What is new since the last look is what the snapshot of that look did not see. So nothing is left out, in whatever order
//! transactions end. A change is reported as the newest value of its key.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use callboard::messages::Timestamp;
use callboard::storage::{Change, Entry, Key, KeyPrefix, Revision, StorageError, Watch};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use crate::PostgresConfig;
use crate::ear::Ear;
use crate::lane::unavailable;
use crate::link::{Link, shown};
use crate::operation::from_server;
use crate::place::Places;
use crate::reading::end_of;
use crate::tls::Tls;
use crate::watchers::Watchers;

/// Rows of changes are kept this long, in milliseconds. A feed that has not looked for half of it may have missed some.
pub(crate) const KEPT: i64 = 600_000;

/// The time between two looks while notices arrive. One may be lost, with the handle that was about to send it.
const POLL_HEARING: Duration = Duration::from_secs(1);

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

    /// Looks for changes while anyone watches. `reader` serves while the feed's own connection is not open.
    pub(crate) async fn run(&self, config: Arc<PostgresConfig>, tls: Tls, reader: Link, lane: watch::Receiver<i64>) {
        let (begin, since) = (config.in_schema(BEGIN), config.in_schema(LOOK));
        loop {
            self.look.notified().await;
            let mut ear = Ear::open(Arc::clone(&config), tls.clone(), lane.clone());
            let mut seen: Option<Seen> = None;
            // Notices are trusted until a look without one finds something.
            let (mut is_trusted, mut is_due) = (true, false);
            loop {
                let made = self.made.load(Ordering::SeqCst);
                let prefixes = self.watchers.prefixes();
                if prefixes.is_empty() {
                    break;
                }
                let places: Vec<Places> = prefixes.iter().map(|prefix| Places::of(&config.schema, prefix)).collect();
                let channels = places.iter().filter_map(|places| places.channel()).collect();
                let mut hears = ear.listen(&channels, &reader).await && !places.contains(&Places::Several);
                self.watchers.turn();
                let link = if ear.link.open_client().is_some() { &ear.link } else { &reader };
                let snapshot = seen.as_ref().map(|seen| &seen.snapshot);
                let lane_id = *lane.borrow();
                let looking = async {
                    match snapshot {
                        None => ask(link, &begin, &[]).await,
                        Some(snapshot) => look(&config, link, &since, snapshot, lane_id, &prefixes).await,
                    }
                };
                let looked = timeout(config.patience, looking).await;
                match looked {
                    Ok(Ok(rows)) => {
                        if let Some(now) = rows.first().and_then(Seen::of) {
                            if seen.as_ref().is_some_and(|before| now.may_miss_since(before)) {
                                self.watchers.miss();
                            }
                            let changes: Vec<_> = rows.iter().filter_map(change).collect();
                            is_trusted &= !is_due || changes.is_empty();
                            for (key, revision, change) in changes {
                                self.watchers.publish(&key, revision, || change);
                            }
                            seen = Some(now);
                            self.covered.send_replace(made);
                        }
                    }
                    Ok(Err(error)) => {
                        tracing::debug!(%error, "changes of other handles were not found out");
                        hears = false;
                    }
                    Err(_) => {
                        ear.link.discard();
                        hears = false;
                    }
                }
                let poll = if hears && is_trusted { config.poll_every.max(POLL_HEARING) } else { config.poll_every };
                is_due = false;
                tokio::select! {
                    () = ear.news.notified() => is_trusted = true,
                    () = self.look.notified() => {}
                    () = ear.link.changed() => {}
                    () = sleep(poll) => is_due = true,
                }
            }
            self.covered.send_replace(self.made.load(Ordering::SeqCst));
        }
    }
}

/// What a look has seen.
struct Seen {
    snapshot: String,
    /// The server's time, in milliseconds.
    at: i64,
    timeline: i64,
}

impl Seen {
    fn of(row: &Row) -> Option<Self> {
        Some(Self { snapshot: row.try_get(0).ok()?, at: row.try_get(1).ok()?, timeline: row.try_get(2).ok()? })
    }

    /// Rows of changes may have been removed; and transactions of another timeline have numbers of their own.
    fn may_miss_since(&self, before: &Self) -> bool {
        self.timeline != before.timeline || self.at - before.at > KEPT / 2
    }
}

const BEGIN: &str = "
    SELECT pg_current_snapshot()::text, (extract(epoch FROM clock_timestamp()) * 1000)::bigint, callboard.timeline()";

/// The first columns are those of [`BEGIN`], in every row; a row without a key has nothing else.
const LOOK: &str = "
    SELECT pg_current_snapshot()::text, (extract(epoch FROM clock_timestamp()) * 1000)::bigint, callboard.timeline(), found.key, found.changed, e.revision, e.expires, e.value
    FROM (VALUES (1)) AS once LEFT JOIN (
        SELECT key, max(revision) AS changed FROM callboard.changes
        WHERE xid >= pg_snapshot_xmin($1::text::pg_snapshot) AND NOT pg_visible_in_snapshot(xid, $1::text::pg_snapshot)
            AND lane <> $2 AND EXISTS (
                SELECT FROM unnest($4::bytea[], $5::bytea[]) AS watched (first, beyond)
                WHERE key >= first AND (beyond IS NULL OR key < beyond))
        GROUP BY key
    ) AS found ON true
    LEFT JOIN callboard.entries AS e ON e.key = found.key AND (e.expires IS NULL OR e.expires > callboard.millis($3))
    ORDER BY coalesce(e.revision, found.changed)";

/// What is new under these prefixes since a snapshot.
async fn look(
    config: &PostgresConfig,
    link: &Link,
    statement: &str,
    snapshot: &String,
    lane: i64,
    prefixes: &[KeyPrefix],
) -> Result<Vec<Row>, StorageError> {
    let moment = config.moment();
    let (firsts, beyond): (Vec<&[u8]>, Vec<Option<Vec<u8>>>) =
        prefixes.iter().map(|prefix| (prefix.as_bytes(), end_of(prefix))).unzip();
    let parameters = [
        (snapshot as _, Type::TEXT),
        (&lane as _, Type::INT8),
        (&moment as _, Type::INT8),
        (&firsts as _, Type::BYTEA_ARRAY),
        (&beyond as _, Type::BYTEA_ARRAY),
    ];
    ask(link, statement, &parameters).await
}

type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

async fn ask(link: &Link, statement: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, StorageError> {
    let rows = link.client().await?.query_typed(statement, parameters).await;
    rows.map_err(|error| unavailable(&shown(&error)))
}

/// The change of a row, with its key and revision.
fn change(row: &Row) -> Option<(Key, Revision, Change)> {
    let key = Key::from_bytes(row.try_get(3).ok()?)?;
    let (changed, revision): (i64, Option<i64>) = (row.try_get(4).ok()?, row.try_get(5).ok()?);
    let Some(revision) = revision else { return Some((key.clone(), from_server(changed), Change::Deleted(key))) };
    let (expires, value): (Option<i64>, &[u8]) = (row.try_get(6).ok()?, row.try_get(7).ok()?);
    let (revision, expires_at) = (from_server(revision), expires.map(|at| Timestamp::from_millis(from_server(at))));
    Some((key.clone(), revision, Change::Put(key, Entry { value: value.into(), revision, expires_at })))
}
