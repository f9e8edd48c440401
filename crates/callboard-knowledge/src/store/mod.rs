//! A base of facts on disk: one SQLite file, one writer, several readers.

mod changes;
mod documents;

mod error;
pub(crate) mod facts;
pub(crate) mod frequencies;
mod graph;
mod history;
pub(crate) mod items;
mod lists;
mod lock;
mod once;
mod restoring;
pub(crate) mod schema;
mod staging;
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
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use tokio::sync::Semaphore;

pub use changes::{Applied, ChangeKind, ChangeRequest, ChangedFact, EdgeOfGraph, Preview};
pub use documents::{NewDocument, NewPassage, Removed, Trust, Written};
pub(crate) use documents::{PassageGraph, SUMMARY};
pub use error::KnowledgeError;
use frequencies::Frequencies;
pub use history::{Revision, RevisionChange};
pub use lists::{Beginning, DocumentRow, NamespaceRow, PredicateRow};
use lock::Lock;
pub use restoring::Restored;
use staging::Staging;
pub use submission::{Submission, Submitted};
pub use transfer::{Transferred, WholeExport};
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
    /// None where the base can only be read.
    writer: Option<Writer>,
}

/// How connections to a base share it with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sharing {
    /// By the index of the log, which is a file beside it.
    Shared,
    /// One connection at a time has the base for itself, with the index of the log in its memory: on a full disk the file cannot be made.
    Alone,
}

struct Shared {
    path: PathBuf,
    sharing: Sharing,
    readers: Mutex<Vec<Connection>>,
    permits: Semaphore,
    /// Of the words that queries had.
    frequencies: Arc<Frequencies>,
    ended: Mutex<Option<Ended>>,
    /// The last field: it is dropped once the readers are closed. The writer has a share of its own.
    lock: Arc<Lock>,
}

impl Shared {
    fn new(path: &Path, sharing: Sharing, readers: Vec<Connection>, ended: Option<Ended>, lock: Arc<Lock>) -> Self {
        Self {
            path: path.to_owned(),
            sharing,
            readers: Mutex::new(readers),
            permits: Semaphore::new(match sharing {
                Sharing::Shared => READERS,
                Sharing::Alone => 1,
            }),
            frequencies: Arc::default(),
            ended: Mutex::new(ended),
            lock,
        }
    }
}

impl KnowledgeBase {
    /// Opens a base, and makes one where there is none. Its folder has to exist.
    ///
    /// # Errors
    /// The file cannot be used, is no base, is damaged, or was written by a newer build.
    pub fn create(path: &Path, env: &Env) -> Result<Self, KnowledgeError> {
        let lock = Lock::share(path)?;
        if !is_there(path)? {
            make(path)?;
        }
        Self::open_locked(path, env, lock, schema::check)
    }

    /// Opens a base.
    ///
    /// # Errors
    /// As for [`KnowledgeBase::create`], and there is none.
    pub fn open(path: &Path, env: &Env) -> Result<Self, KnowledgeError> {
        Self::open_locked(path, env, lock_of(path)?, schema::check)
    }

    /// As [`KnowledgeBase::open`], also if its disk is full and no other process has it open: changes of it are [`KnowledgeError::Full`] then.
    ///
    /// # Errors
    /// As for [`KnowledgeBase::open`].
    pub fn open_to_read(path: &Path, env: &Env) -> Result<Self, KnowledgeError> {
        Self::open_by(path, env, schema::check)
    }

    /// As [`KnowledgeBase::open_to_read`], also if the schema is not that of a base: for [`KnowledgeBase::check`], which names what differs.
    ///
    /// # Errors
    /// As for [`KnowledgeBase::open`], apart from the schema.
    pub fn open_to_check(path: &Path, env: &Env) -> Result<Self, KnowledgeError> {
        Self::open_by(path, env, |_| Ok(()))
    }

    fn open_by(path: &Path, env: &Env, check: Check) -> Result<Self, KnowledgeError> {
        match Self::open_locked(path, env, lock_of(path)?, check) {
            Err(KnowledgeError::Full) => {
                let lock = Arc::new(lock_of(path)?);
                let connection = reader(checked(path, Sharing::Alone, check)?)?;
                Ok(Self {
                    shared: Arc::new(Shared::new(path, Sharing::Alone, vec![connection], None, lock)),
                    writer: None,
                })
            }
            opened => opened,
        }
    }

    fn open_locked(path: &Path, env: &Env, lock: Lock, check: Check) -> Result<Self, KnowledgeError> {
        let lock = Arc::new(lock);
        staging::remove_abandoned(staging::parent(path));
        let connection = checked(path, Sharing::Shared, check)?;
        let io = |error| KnowledgeError::Io { path: path.to_owned(), error };
        let (writer, ended) = Writer::start(connection, Arc::clone(&lock), env.clone()).map_err(io)?;
        let shared = Shared::new(path, Sharing::Shared, Vec::new(), Some(ended), lock);
        Ok(Self { shared: Arc::new(shared), writer: Some(writer) })
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

    /// The counts of words that the readers share.
    pub(crate) fn frequencies(&self) -> Arc<Frequencies> {
        Arc::clone(&self.shared.frequencies)
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
                None => reader(connect(&shared.path, shared.sharing)?)?,
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
        let writer = self.writer.as_ref().ok_or(KnowledgeError::Full)?;
        let changed = writer.write(change).await;
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

/// The path of a file beside the file of a base.
fn with_suffix(base: &Path, suffix: &str) -> PathBuf {
    let mut path = base.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

fn is_there(path: &Path) -> Result<bool, KnowledgeError> {
    path.try_exists().map_err(|error| KnowledgeError::Io { path: path.to_owned(), error })
}

/// A share of the lock of a base that exists.
fn lock_of(path: &Path) -> Result<Lock, KnowledgeError> {
    if is_there(path)? { Lock::share(path) } else { Err(KnowledgeError::Missing { path: path.to_owned() }) }
}

/// Makes an empty base, which appears once it is complete: a file that is no base was not left by a process that was killed.
fn make(path: &Path) -> Result<(), KnowledgeError> {
    let io = |error| KnowledgeError::Io { path: path.to_owned(), error };
    let staging = Staging::beside(path).map_err(io)?;
    staging.create().map_err(io)?;
    let mut connection = connect(&staging.path(), Sharing::Shared)?;
    schema::migrate(&mut connection)?;
    close(connection)?;
    match staging.keep_as(path) {
        // Another process has made it meanwhile.
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        made => made.map_err(io),
    }
}

/// Closes the only connection to a file, with all of it in the one file.
fn close(connection: Connection) -> Result<(), KnowledgeError> {
    connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")?;
    Ok(connection.close().map_err(|(_, error)| error)?)
}

/// Refuses a schema that is not that of a base.
type Check = fn(&mut Connection) -> Result<(), KnowledgeError>;

/// Connects to a base, and makes it one of this version.
fn checked(path: &Path, sharing: Sharing, check: Check) -> Result<Connection, KnowledgeError> {
    let mut connection = opened(path, sharing)?;
    // Before the settings, which change the file.
    if !schema::is_base(&connection)? {
        return Err(KnowledgeError::NotABase);
    }
    set(&connection)?;
    schema::migrate(&mut connection)?;
    check(&mut connection)?;
    Ok(connection)
}

/// Gives a connection what reads need.
fn reader(connection: Connection) -> Result<Connection, KnowledgeError> {
    connection.execute_batch(schema::OF_READER)?;
    Ok(connection)
}

fn connect(path: &Path, sharing: Sharing) -> Result<Connection, KnowledgeError> {
    let connection = opened(path, sharing)?;
    set(&connection)?;
    Ok(connection)
}

fn opened(path: &Path, sharing: Sharing) -> Result<Connection, KnowledgeError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(|error| {
        // SQLite does not report why it cannot open a file.
        match std::fs::File::options().read(true).write(true).open(path) {
            Err(error) => KnowledgeError::Io { path: path.to_owned(), error },
            Ok(_) => error.into(),
        }
    })?;
    // Of what a file brings, nothing is executed: no base has a trigger.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    // Without it a statement is planned again for each value that it compares with, also those by which the full-text index finds a word.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.busy_timeout(BUSY)?;
    connection.set_prepared_statement_cache_capacity(64);
    if sharing == Sharing::Alone {
        connection.execute_batch("PRAGMA locking_mode = EXCLUSIVE")?;
    }
    Ok(connection)
}

/// Makes the settings of a connection.
fn set(connection: &Connection) -> Result<(), KnowledgeError> {
    // What a change reports is on disk: the log is synced at each commit.
    Ok(connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;
         PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; PRAGMA cache_size = -16384",
    )?)
}
