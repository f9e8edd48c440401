//! The store's own thread: its connections live there, apart from whatever blocks the runtimes of callers.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};

use crate::feed::{Feed, KEPT};
use crate::lane::{Lane, Message};
use crate::link::{Link, dial_when_ready, shown};
use crate::notices::Notices;
use crate::readers::Readers;
use crate::reading::Statements;
use crate::schema::check_usable;
use crate::skipped::Skipped;
use crate::tls::Tls;
use crate::watchers::Watchers;
use crate::{ConnectError, PostgresConfig};

/// How a store reaches its thread.
pub(crate) struct Started {
    pub(crate) messages: mpsc::UnboundedSender<Message>,
    pub(crate) readers: Arc<Readers>,
    pub(crate) runtime: Handle,
}

/// Starts the thread, once the database is known to be usable.
pub(crate) async fn start(config: Arc<PostgresConfig>) -> Result<Started, ConnectError> {
    let (report, started) = oneshot::channel();
    let failed = |detail: String| ConnectError::Start { detail };
    let thread = std::thread::Builder::new().name("callboard-postgres".to_owned());
    let spawned = thread.spawn(move || match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(serve(config, report)),
        Err(error) => drop(report.send(Err(ConnectError::Start { detail: error.to_string() }))),
    });
    spawned.map_err(|error| failed(error.to_string()))?;
    started.await.unwrap_or_else(|_| Err(failed("its thread has ended".to_owned())))
}

async fn serve(config: Arc<PostgresConfig>, report: oneshot::Sender<Result<Started, ConnectError>>) {
    let tls = match usable(&config).await {
        Ok(tls) => tls,
        Err(error) => return drop(report.send(Err(error))),
    };
    let link = || Link::open(Arc::clone(&config), tls.clone());
    let watchers = Arc::new(Watchers::default());
    let feed = Arc::new(Feed::new(Arc::clone(&watchers)));
    let links: Vec<Link> = (0..config.readers).map(|_| link()).collect();
    let (ids, lane_id) = watch::channel(0);
    let sessions = link();
    let notices = Notices::start(Arc::clone(&config), sessions.clone(), lane_id.clone());
    let mut lane = Lane::new(Arc::clone(&config), link(), watchers, notices, ids);
    let registered = tokio::time::timeout(config.patience, lane.register()).await;
    if let Err(detail) = registered.map_or_else(|_| Err(lane.trouble()), |done| done.map_err(|error| error.to_string()))
    {
        return drop(report.send(Err(ConnectError::Server { address: config.address(), detail })));
    }
    let readers = Arc::new(Readers {
        config: Arc::clone(&config),
        statements: Statements::new(&config),
        links,
        next: AtomicUsize::new(0),
        sessions,
        lane: lane_id.clone(),
        feed: Arc::clone(&feed),
        skipped: Skipped::default(),
    });
    let (messages, queue) = mpsc::unbounded_channel();
    let first = readers.links[0].clone();
    let feeding = {
        let (config, reader) = (Arc::clone(&config), first.clone());
        async move { feed.run(config, tls, reader, lane_id).await }
    };
    tokio::spawn(feeding);
    tokio::spawn(keep_clean(config, first));
    if report.send(Ok(Started { messages, readers, runtime: Handle::current() })).is_ok() {
        lane.run(queue).await;
    }
}

/// Checks that the database can be used, before the connections that are opened again and again.
async fn usable(config: &PostgresConfig) -> Result<Tls, ConnectError> {
    let tls = config.tls()?;
    let (client, connection) = dial_when_ready(config, &tls).await?;
    tokio::select! {
        usable = check_usable(config, &client) => usable?,
        () = connection => {
            let detail = "the connection broke".to_owned();
            return Err(ConnectError::Server { address: config.address(), detail });
        }
    }
    Ok(tls)
}

/// Between two rounds of cleaning.
const CLEAN_EVERY: Duration = Duration::from_secs(60);

/// Removes what nobody reads any more: expired values, old rows of changes, and lanes of handles that have not written for a week.
async fn keep_clean(config: Arc<PostgresConfig>, link: Link) {
    let statements = [
        "DELETE FROM callboard.entries WHERE key IN (
            SELECT key FROM callboard.entries WHERE expires <= callboard.millis($1) ORDER BY expires LIMIT 10000
            FOR UPDATE SKIP LOCKED)"
            .to_owned(),
        format!(
            "DELETE FROM callboard.changes WHERE $1::bigint IS NOT DISTINCT FROM $1 AND revision IN (
                SELECT revision FROM callboard.changes WHERE written < clock_timestamp() - interval '{KEPT} milliseconds'
                ORDER BY revision LIMIT 10000 FOR UPDATE SKIP LOCKED)"
        ),
        "DELETE FROM callboard.lanes WHERE $1::bigint IS NOT DISTINCT FROM $1 AND seen < clock_timestamp() - interval '7 days'"
            .to_owned(),
    ]
    .map(|sql| config.in_schema(&sql));
    loop {
        tokio::time::sleep(CLEAN_EVERY).await;
        let Ok(client) = link.client().await else { return };
        let moment = config.moment();
        for statement in &statements {
            let cleaned = client.query_typed(statement, &[(&moment, tokio_postgres::types::Type::INT8)]).await;
            if let Err(error) = cleaned {
                tracing::debug!(error = %shown(&error), "rows that nobody reads were not removed");
            }
        }
    }
}
