//! A base of facts on disk: one SQLite file, one writer, several readers.

mod changes;
mod documents;

mod error;
pub(crate) mod facts;
mod graph;
mod history;
pub(crate) mod items;
mod once;
mod schema;
mod submission;
mod transfer;
mod upkeep;
mod writer;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use callboard::env::Env;
use callboard::messages::Timestamp;
use parking_lot::Mutex;
use rusqlite::{Connection, OpenFlags};
use tokio::sync::Semaphore;

pub use changes::{Applied, ChangeKind, ChangeRequest, ChangedFact, EdgeOfGraph, Preview};
pub use documents::{NewDocument, NewPassage, Written};
pub use error::KnowledgeError;
pub use history::Revision;
pub use submission::{Submission, Submitted};
pub use transfer::Transferred;
pub use upkeep::{Counts, Finding};
use writer::{Ended, Writer};

/// How long a change waits for another process that writes.
const BUSY: Duration = Duration::from_secs(10);

/// The most queries at once; more wait.
const READERS: usize = 4;

/// A base of facts. Cloning is cheap; clones share one writer.
///
/// A change that was acknowledged is on disk. Several processes may have a base open: a change waits while another process writes.
#[derive(Clone)]
pub struct KnowledgeBase {
    shared: Arc<Shared>,
    writer: Writer,
}

struct Shared {
    path: PathBuf,
    readers: Mutex<Vec<Connection>>,
    permits: Semaphore,
    ended: Mutex<Option<Ended>>,
}

impl KnowledgeBase {
    /// Opens a base, and makes one where there is none. Its folder has to exist.
    ///
    /// # Errors
    /// The file cannot be used, is no base, is damaged, or was written by a newer build.
    pub fn create(path: &Path, env: &Env) -> Result<Self, KnowledgeError> {
        Self::open_with(path, env, OpenFlags::SQLITE_OPEN_CREATE)
    }

    /// Opens a base.
    ///
    /// # Errors
    /// As for [`KnowledgeBase::create`], and there is none.
    pub fn open(path: &Path, env: &Env) -> Result<Self, KnowledgeError> {
        match std::fs::metadata(path) {
            Ok(_) => Self::open_with(path, env, OpenFlags::empty()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(KnowledgeError::Missing { path: path.to_owned() })
            }
            Err(error) => Err(KnowledgeError::Io { path: path.to_owned(), error }),
        }
    }

    fn open_with(path: &Path, env: &Env, flags: OpenFlags) -> Result<Self, KnowledgeError> {
        let mut connection = connect(path, flags)?;
        schema::migrate(&mut connection)?;
        let io = |error| KnowledgeError::Io { path: path.to_owned(), error };
        let (writer, ended) = Writer::start(connection, env.clone()).map_err(io)?;
        let shared = Shared {
            path: path.to_owned(),
            readers: Mutex::default(),
            permits: Semaphore::new(READERS),
            ended: Mutex::new(Some(ended)),
        };
        Ok(Self { shared: Arc::new(shared), writer })
    }

    /// Its file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// Ends the writer once all clones are gone, and waits for it. Without it, the process may end before the log of the last changes is
    /// copied into the file; they are not lost.
    pub async fn close(self) {
        let ended = self.shared.ended.lock().take();
        drop(self);
        if let Some(ended) = ended {
            let _ = ended.await;
        }
    }

    /// Reads in one snapshot, on a thread that may wait for the disk.
    pub(crate) async fn read<T, F>(&self, read: F) -> Result<T, KnowledgeError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, KnowledgeError> + Send + 'static,
    {
        // It is never closed.
        let Ok(_permit) = self.shared.permits.acquire().await else { return Err(KnowledgeError::Closed) };
        let shared = Arc::clone(&self.shared);
        let reading = tokio::task::spawn_blocking(move || {
            let taken = shared.readers.lock().pop();
            let mut connection = match taken {
                Some(connection) => connection,
                None => {
                    let connection = connect(&shared.path, OpenFlags::empty())?;
                    connection.execute_batch(schema::OF_READER)?;
                    connection
                }
            };
            let snapshot = connection.transaction()?;
            let result = read(&snapshot);
            drop(snapshot);
            if !matches!(
                result,
                Err(KnowledgeError::Damaged { .. } | KnowledgeError::DamagedIndex | KnowledgeError::Sqlite(_))
            ) {
                shared.readers.lock().push(connection);
            }
            result
        });
        reading.await.map_err(|_| KnowledgeError::Closed)?
    }

    /// Changes the base in one transaction, whose changes are on disk when this returns.
    pub(crate) async fn write<T, F>(&self, change: F) -> Result<T, KnowledgeError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection, Timestamp) -> Result<T, KnowledgeError> + Send + 'static,
    {
        let changed = self.writer.write(change).await;
        if let Err(KnowledgeError::DamagedIndex) = changed {
            self.repair().await?;
        }
        changed
    }
}

impl fmt::Debug for KnowledgeBase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KnowledgeBase").field("path", &self.shared.path).finish_non_exhaustive()
    }
}

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, KnowledgeError> {
    let flags = flags | OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    connection.set_prepared_statement_cache_capacity(64);
    // What a change reports is on disk: the log is synced at each commit.
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;
         PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; PRAGMA cache_size = -16384",
    )?;
    Ok(connection)
}
