//! Notices: after a commit, the watches of other handles are woken by `NOTIFY`, on another connection and in a transaction that waits for
//! no disk. One is under way at a time; what is written meanwhile becomes the next one.
//!
//! A notice may be lost. Then the poll of the others finds what was written.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::types::Type;

use crate::PostgresConfig;
use crate::link::{Link, shown};
use crate::place::Channel;

/// Channels that wait for the next notice; those beyond are left to polls.
const BOUND: usize = 1024;

/// The notices of one handle.
pub(crate) struct Notices {
    waiting: Arc<Mutex<BTreeSet<Channel>>>,
    wake: mpsc::Sender<()>,
    task: JoinHandle<()>,
}

impl Notices {
    /// They carry the id of the lane, by which a handle knows its own.
    pub(crate) fn start(config: Arc<PostgresConfig>, link: Link, lane: watch::Receiver<i64>) -> Self {
        let waiting = Arc::new(Mutex::new(BTreeSet::new()));
        let (wake, woken) = mpsc::channel(1);
        let task = tokio::spawn(send(config, link, lane, Arc::clone(&waiting), woken));
        Self { waiting, wake, task }
    }

    pub(crate) fn add(&self, channels: impl IntoIterator<Item = Channel>) {
        let mut channels = channels.into_iter().peekable();
        if channels.peek().is_none() {
            return;
        }
        let mut waiting = self.waiting.lock();
        let room = BOUND.saturating_sub(waiting.len());
        waiting.extend(channels.take(room));
        // If it is full, the task is about to look.
        let _ = self.wake.try_send(());
    }

    /// Sends what waits, if the server answers at once.
    pub(crate) async fn end(self) {
        drop(self.wake);
        let _ = timeout(Duration::from_secs(1), self.task).await;
    }
}

async fn send(
    config: Arc<PostgresConfig>,
    link: Link,
    lane: watch::Receiver<i64>,
    waiting: Arc<Mutex<BTreeSet<Channel>>>,
    mut woken: mpsc::Receiver<()>,
) {
    let statement = "SELECT set_config('synchronous_commit', 'off', true), pg_notify(channel, $2) FROM unnest($1::text[]) AS channel";
    while woken.recv().await.is_some() {
        let channels = std::mem::take(&mut *waiting.lock());
        let names: Vec<String> = channels.into_iter().map(Channel::name).collect();
        let lane = lane.borrow().to_string();
        let sending = async {
            let client = link.client().await.map_err(|error| error.to_string())?;
            let parameters = [(&names as _, Type::TEXT_ARRAY), (&lane as _, Type::TEXT)];
            client.query_typed(statement, &parameters).await.map_err(|error| shown(&error))
        };
        if let Err(error) = timeout(config.patience, sending).await.unwrap_or_else(|_| Err(link.trouble())) {
            tracing::debug!(%error, "other handles were not notified; they find the changes by looking");
        }
    }
}
