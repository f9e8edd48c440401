//! The ear: a connection on which the server reports that other handles have written where this one watches (`LISTEN`).
//!
//! Behind a pooler that gives a connection to another client after each transaction, notifications do not arrive. The ear finds that
//! out, does not listen there, and leaves the watches to the poll.

use std::collections::BTreeSet;
use std::sync::Arc;

use callboard::storage::StorageError;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use crate::PostgresConfig;
use crate::lane::unavailable;
use crate::link::{Link, Opened, shown};
use crate::place::Channel;
use crate::tls::Tls;

pub(crate) struct Ear {
    config: Arc<PostgresConfig>,
    pub(crate) link: Link,
    /// Set when another handle's notice arrives.
    pub(crate) news: Arc<Notify>,
    life: Option<Life>,
}

/// What is known of one life of the connection.
struct Life {
    client: Arc<Opened>,
    is_checked: bool,
    /// No notices arrive in it.
    is_deaf: bool,
    channels: BTreeSet<Channel>,
}

impl Ear {
    /// Begins to connect. `lane` has the id that the notices of this handle carry, which are left out.
    pub(crate) fn open(config: Arc<PostgresConfig>, tls: Tls, lane: watch::Receiver<i64>) -> Self {
        let news = Arc::new(Notify::new());
        let heard = {
            let news = Arc::clone(&news);
            Arc::new(move |payload: &str| {
                if payload.parse() != Ok(*lane.borrow()) {
                    news.notify_one();
                }
            })
        };
        let link = Link::open_hearing(Arc::clone(&config), tls, heard);
        Self { config, link, news, life: None }
    }

    /// Listens to these channels alone. Whether notices of them arrive from now on; `false` while there is no connection.
    pub(crate) async fn listen(&mut self, channels: &BTreeSet<Channel>, other: &Link) -> bool {
        let Some(client) = self.link.open_client() else {
            self.life = None;
            return false;
        };
        let mut life = match self.life.take() {
            Some(life) if Arc::ptr_eq(&life.client, &client) => life,
            Some(_) | None => Life { client, is_checked: false, is_deaf: false, channels: BTreeSet::new() },
        };
        match timeout(self.config.patience, life.listen(channels, other)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::debug!(%error, "changes of other handles are found by looking alone");
                life.is_deaf = true;
            }
            Err(_) => self.link.discard(),
        }
        !self.life.insert(life).is_deaf
    }
}

impl Life {
    async fn listen(&mut self, channels: &BTreeSet<Channel>, other: &Link) -> Result<(), StorageError> {
        if !self.is_checked {
            self.is_deaf = is_pooled(&self.client, &*other.client().await?).await?;
            self.is_checked = true;
        }
        if !self.is_deaf && self.channels != *channels {
            let begin = channels.difference(&self.channels).map(|channel| format!("LISTEN {};", channel.name()));
            let end = self.channels.difference(channels).map(|channel| format!("UNLISTEN {};", channel.name()));
            let statements: String = begin.chain(end).collect();
            self.client.batch_execute(&statements).await.map_err(|error| unavailable(&shown(&error)))?;
            self.channels.clone_from(channels);
        }
        Ok(())
    }
}

/// Whether the server's side of a connection changes, or is that of the other one too.
async fn is_pooled(client: &Opened, other: &Opened) -> Result<bool, StorageError> {
    let mut pids = [0_i32; 4];
    for (pid, client) in pids.iter_mut().zip([client, other, client, other]) {
        let row = client.query_typed_one("SELECT pg_backend_pid()", &[]).await;
        *pid = row.and_then(|row| row.try_get(0)).map_err(|error| unavailable(&shown(&error)))?;
    }
    let [first, other_first, second, other_second] = pids;
    Ok(first != second || other_first != other_second || first == other_first)
}
