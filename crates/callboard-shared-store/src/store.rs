//! The handle of a shared store.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use callboard::env::{Clock, Env};
use callboard::messages::Durability;
use callboard::storage::{
    Append, Change, Delete, Entry, Key, KeyPrefix, NewSession, Put, Record, Revision, Sequence, SessionId, SessionInfo,
    ShutdownPolicy, Storage, StorageError, StorageFuture, Watch,
};
use futures::future::ready;
use futures::{FutureExt as _, StreamExt as _, TryFutureExt as _, stream};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::asking::{Call, Job};
use crate::holder::Holder;
use crate::opening::{self, AT_START, Opened};
use crate::request::{Answer, Request};
use crate::session_files::SessionFiles;
use crate::thread;

/// The most calls of one process that are not answered; more wait.
const QUEUE: usize = 16_384;

/// A store on disk that several processes of one user have open at the same time.
///
/// The first process to open it has the files open, as a [`Sled`](callboard::storage::Sled), and answers the calls of the others on a
/// Unix socket. When it ends, or is killed, one of the others opens the files, and the rest connect to that one. Calls that were not
/// answered by then are made again. What had been acknowledged is there.
///
/// - The lease of a session ends with the process that has begun it, or with its time. A session outlasts the process that had the files
///   open, with a lease that begins anew; one that was ended stays so. When no process that has begun one is left, all are forgotten.
/// - Writes from other processes are [`Durability::Sync`], whatever they ask for: their acknowledgement is not to be lost with
///   a process that they do not know.
/// - A write with a condition fails with [`StorageError::Unavailable`] if the process that had the files open died before it answered
///   and it cannot be known whether it was made. Appends can be recognised, and do not fail so.
/// - Purges, renewals and releases of other processes may be lost with the process that has the files open, as the contract allows
///   for a crash.
/// - A write without a condition that is repeated may replace what another process wrote meanwhile.
/// - While the process that has the files open is suspended, calls of the others wait.
/// - A watch has [`Change::Missed`] where that process changed; the count is then 1, and stands for any number.
/// - All processes have to be of the same protocol version; another is refused with [`StorageError::Open`].
///
/// The socket is `callboard/<hash of the folder>.sock` in `$XDG_RUNTIME_DIR` or `/run/user/<uid>`, else in `/tmp/callboard-<uid>`, in a
/// folder of this user with mode 0700. Both sides check that the other is a process of the same user. Where no such folder can be
/// used, a warning is logged, and other processes find the store in use.
///
/// ```
/// use callboard::storage::{Expected, Key, Put, Storage};
/// use callboard::messages::Durability;
/// use callboard_shared_store::SharedStore;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let folder = tempfile::tempdir()?;
/// let here = SharedStore::open(folder.path())?;
/// // In another process:
/// let there = SharedStore::open(folder.path())?;
///
/// let key = Key::new(["greeting"]);
/// let (value, durability) = (b"hello".as_slice().into(), Durability::Sync);
/// there.put_if_revision(Put { expected: Expected::Absent, durability, ..Put::new(key.clone(), value) }).await?;
/// let entry = here.get(&key).await?;
/// assert_eq!(entry.map(|entry| entry.value.to_vec()), Some(b"hello".to_vec()));
/// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SharedStore {
    core: Arc<Core>,
    why_not_shared: Option<String>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the handle and its thread share.
pub(crate) struct Core {
    pub(crate) folder: PathBuf,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) mode: RwLock<Mode>,
    pub(crate) jobs: mpsc::UnboundedSender<Job>,
    permits: Arc<Semaphore>,
    sessions: OwnSessions,
    watches: AtomicU64,
}

/// The sessions that this handle has begun.
struct OwnSessions {
    files: SessionFiles,
    /// Each as it was begun or renewed last, with its locked file.
    begun: Mutex<BTreeMap<SessionId, (NewSession, File)>>,
}

/// Where the files are open.
pub(crate) enum Mode {
    Here(Arc<Holder>),
    Elsewhere,
    Stopped(StorageError),
}

impl SharedStore {
    /// Opens the store in a folder, or makes one there, or connects to the process that has it open. Blocks as
    /// [`Sled::open`](callboard::storage::Sled::open) does, and for up to 10 s while another process opens or closes it.
    ///
    /// # Errors
    /// [`StorageError::InUse`] if a process has it open that does not share it; [`StorageError::Open`] as
    /// [`Sled::open`](callboard::storage::Sled::open), and if the process that has it open is of another version.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, StorageError> {
        Self::open_with_clock(folder, Env::system().clock())
    }

    /// As [`SharedStore::open`], with entries that expire by `clock` while the files are open here.
    ///
    /// # Errors
    /// As [`SharedStore::open`].
    pub fn open_with_clock(folder: impl AsRef<Path>, clock: Arc<dyn Clock>) -> Result<Self, StorageError> {
        let folder = folder.as_ref();
        let opened = opening::open(folder, &clock, AT_START, true)?;
        Self::of(folder, clock, opened)
    }

    /// Connects to the process that has the store open; `None` if there is none, or if it does not share it. It writes nothing, and so
    /// also works where the folder is not writable, or its disk is full.
    ///
    /// # Errors
    /// [`StorageError::Open`] if that process is of another version.
    pub fn connect(folder: impl AsRef<Path>) -> Result<Option<Self>, StorageError> {
        let opened = opening::join(folder.as_ref())?;
        opened.map(|opened| Self::of(folder.as_ref(), Env::system().clock(), opened)).transpose()
    }

    fn of(folder: &Path, clock: Arc<dyn Clock>, opened: Opened) -> Result<Self, StorageError> {
        // It is opened again from wherever this process is by then.
        let folder = &folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        let (mode, why_not_shared) = match &opened {
            Opened::Here(here) => (Mode::Here(Arc::clone(&here.holder)), here.why_not_shared.clone()),
            Opened::Elsewhere(_) => (Mode::Elsewhere, None),
        };
        let (jobs, waiting) = mpsc::unbounded_channel();
        let core = Arc::new(Core {
            folder: folder.to_owned(),
            clock,
            mode: RwLock::new(mode),
            jobs,
            permits: Arc::new(Semaphore::new(QUEUE)),
            sessions: OwnSessions { files: SessionFiles::new(folder), begun: Mutex::default() },
            watches: AtomicU64::new(0),
        });
        let thread = thread::start(Arc::clone(&core), opened, waiting)
            .map_err(|error| StorageError::Open { path: folder.display().to_string(), detail: error.to_string() })?;
        Ok(Self { core, why_not_shared, thread: Mutex::new(Some(thread)) })
    }

    /// Whether this process has the files open, now.
    #[must_use]
    pub fn is_here(&self) -> bool {
        matches!(&*self.core.mode.read(), Mode::Here(_))
    }

    /// Why other processes cannot use the store while this one has the files open, as it opened them: no folder can have the socket.
    /// `None` if they can.
    #[must_use]
    pub fn why_not_shared(&self) -> Option<&str> {
        self.why_not_shared.as_deref()
    }

    /// Closes the store for this process. If it has the files open, they are synced and given to the other processes. Later calls fail
    /// with [`StorageError::Stopped`]. Closing again is fine.
    ///
    /// # Errors
    /// As [`Sled::close`](callboard::storage::Sled::close).
    pub async fn close(&self) -> Result<(), StorageError> {
        let (reply, closed) = oneshot::channel();
        let _ = self.core.jobs.send(Job::Close(reply));
        // If the thread has ended, the store was closed, or had stopped.
        let closed = closed.await.unwrap_or_else(|_| match &*self.core.mode.read() {
            Mode::Stopped(error) if *error != thread::closed() => Err(error.clone()),
            Mode::Stopped(_) | Mode::Here(_) | Mode::Elsewhere => Ok(()),
        });
        self.join();
        closed
    }

    /// Waits for the thread, which has ended or is about to.
    fn join(&self) {
        let thread = self.thread.lock().take();
        if let Some(Err(_)) = thread.map(JoinHandle::join) {
            tracing::error!(folder = %self.core.folder.display(), "the thread of a shared store has panicked");
        }
    }
}

impl Drop for SharedStore {
    fn drop(&mut self) {
        let _ = self.core.jobs.send(Job::Close(oneshot::channel().0));
        self.join();
    }
}

impl fmt::Debug for SharedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedStore").field("folder", &self.core.folder).field("is_here", &self.is_here()).finish()
    }
}

impl Core {
    /// Calls the store here, or issues `request` to the process that has it open.
    fn call<T: Send + 'static>(
        self: &Arc<Self>,
        here: impl FnOnce(&Arc<Holder>) -> StorageFuture<T>,
        request: impl FnOnce() -> Request,
        read: fn(Answer) -> Result<T, StorageError>,
    ) -> StorageFuture<T> {
        // Held until the call is issued, so that none is issued here before one that waits for the thread.
        let mode = self.mode.read();
        match &*mode {
            Mode::Here(holder) => return here(holder),
            Mode::Stopped(error) => return ready(Err(error.clone())).boxed(),
            Mode::Elsewhere => {}
        }
        let (reply, answer) = oneshot::channel();
        let call = Job::Call(Call { request: request(), reply });
        let answered = async move {
            let gone = || StorageError::Stopped { detail: "its thread has ended unexpectedly".to_owned() };
            answer.await.unwrap_or_else(|_| Err(gone())).and_then(read)
        };
        if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            let _ = self.jobs.send(call);
            return answered.inspect(move |_| drop(permit)).boxed();
        }
        let core = Arc::clone(self);
        async move {
            let permit = Arc::clone(&core.permits).acquire_owned().await.ok();
            let _ = core.jobs.send(call);
            answered.inspect(move |_| drop(permit)).await
        }
        .boxed()
    }

    /// What the process that has the files open next has to know before anything else: the sessions of this one.
    pub(crate) fn own_sessions(&self) -> Vec<(SessionId, NewSession)> {
        self.sessions.begun.lock().iter().map(|(id, (session, _))| (*id, session.clone())).collect()
    }

    async fn begin_session(
        self: Arc<Self>,
        begun: StorageFuture<SessionId>,
        session: NewSession,
    ) -> Result<SessionId, StorageError> {
        let id = begun.await?;
        let resumed = match self.sessions.files.make(id, &session) {
            Ok(file) => {
                self.sessions.begun.lock().insert(id, (session.clone(), file));
                // The files may be open elsewhere since it was begun.
                let request = || Request::ResumeSession { id, session: session.clone() };
                self.call(|holder| holder.resume_session(id, session.clone()), request, Answer::done).await
            }
            Err(error) => {
                let detail = format!("a session cannot be noted in {}: {error}", self.folder.display());
                Err(StorageError::Unavailable { detail })
            }
        };
        if let Err(error) = resumed {
            let _ = self.end_session(id, false).await;
            return Err(error);
        }
        Ok(id)
    }

    fn end_session(self: &Arc<Self>, id: SessionId, only_if_expired: bool) -> StorageFuture<()> {
        let core = Arc::clone(self);
        let request = || Request::EndSession { id, only_if_expired };
        let here = |holder: &Arc<Holder>| Arc::clone(holder).end_session(id, only_if_expired).boxed();
        let ended = self.call(here, request, Answer::done);
        ended.inspect_ok(move |()| drop(core.sessions.begun.lock().remove(&id))).boxed()
    }

    /// A watch at the process that has the files open, or here.
    fn watch(self: &Arc<Self>, prefix: &KeyPrefix) -> Watch {
        if let Mode::Here(holder) = &*self.mode.read() {
            return holder.sled.watch(prefix);
        }
        let watch = self.watches.fetch_add(1, Ordering::Relaxed);
        // Issued now: writes that are issued from now on are reported.
        let begun = self.ask(Request::Watch { watch, prefix: prefix.clone() });
        let remote =
            Remote { core: Arc::downgrade(self), watch, prefix: prefix.clone(), begun: Some(begun), next: None };
        stream::unfold(remote, |mut remote| async move {
            let change = remote.change().await?;
            Some((change, remote))
        })
        .boxed()
    }

    fn ask(self: &Arc<Self>, request: Request) -> StorageFuture<Answer> {
        let gone = || StorageError::Unavailable { detail: "the files of the store are open here now".to_owned() };
        self.call(|_| ready(Err(gone())).boxed(), || request, Ok)
    }
}

/// A watch at another process; once that is gone, wherever the files are open then.
struct Remote {
    core: Weak<Core>,
    watch: u64,
    prefix: KeyPrefix,
    /// The registration, until it is answered.
    begun: Option<StorageFuture<Answer>>,
    /// The watch that continues this one.
    next: Option<Watch>,
}

impl Remote {
    async fn change(&mut self) -> Option<Change> {
        if let Some(next) = &mut self.next {
            return next.next().await;
        }
        let asked = async {
            if let Some(begun) = self.begun.take() {
                begun.await?;
            }
            let core = self.core.upgrade().ok_or(StorageError::Closed)?;
            let asked = core.ask(Request::NextChange { watch: self.watch });
            drop(core);
            asked.await?.change()
        };
        match asked.await {
            Ok(change) => change,
            Err(StorageError::Unavailable { .. }) => {
                self.next = Some(self.core.upgrade()?.watch(&self.prefix));
                Some(Change::Missed(1))
            }
            Err(_) => None,
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        if let Some(core) = self.core.upgrade().filter(|_| self.next.is_none()) {
            drop(core.ask(Request::Unwatch { watch: self.watch }));
        }
    }
}

/// What another process makes of the durability of a write: it could end before it has synced what it acknowledged.
const THERE: Durability = Durability::Sync;

impl Storage for SharedStore {
    fn append(&self, append: Append) -> StorageFuture<Sequence> {
        let there = append.clone();
        let request = || Request::Append { append: Append { durability: THERE, ..there } };
        self.core.call(|holder| holder.sled.append(append), request, Answer::number)
    }

    fn read(&self, stream: &Key, from: Sequence, limit: usize) -> StorageFuture<Vec<Record>> {
        let request = || Request::Read { stream: stream.clone(), from, limit };
        self.core.call(|holder| holder.sled.read(stream, from, limit), request, Answer::records)
    }

    fn streams(&self, prefix: &KeyPrefix, after: Option<&Key>, limit: usize) -> StorageFuture<Vec<Key>> {
        let request = || Request::Streams { prefix: prefix.clone(), after: after.cloned(), limit };
        self.core.call(|holder| holder.sled.streams(prefix, after, limit), request, Answer::keys)
    }

    fn purge(&self, stream: &Key, up_to: Sequence) -> StorageFuture<()> {
        let request = || Request::Purge { stream: stream.clone(), up_to };
        self.core.call(|holder| holder.sled.purge(stream, up_to), request, Answer::done)
    }

    fn get(&self, key: &Key) -> StorageFuture<Option<Entry>> {
        self.core.call(|holder| holder.sled.get(key), || Request::Get { key: key.clone() }, Answer::entry)
    }

    fn put_if_revision(&self, put: Put) -> StorageFuture<Revision> {
        let there = put.clone();
        let request = || Request::Put { put: Put { durability: THERE, ..there } };
        self.core.call(|holder| holder.sled.put_if_revision(put), request, Answer::number)
    }

    fn delete_if_revision(&self, delete: Delete) -> StorageFuture<()> {
        let there = delete.clone();
        let request = || Request::Delete { delete: Delete { durability: THERE, ..there } };
        self.core.call(|holder| holder.sled.delete_if_revision(delete), request, Answer::done)
    }

    fn scan(&self, prefix: &KeyPrefix, after: Option<&Key>, limit: usize) -> StorageFuture<Vec<(Key, Entry)>> {
        let request = || Request::Scan { prefix: prefix.clone(), after: after.cloned(), limit };
        self.core.call(|holder| holder.sled.scan(prefix, after, limit), request, Answer::entries)
    }

    fn watch(&self, prefix: &KeyPrefix) -> Watch {
        self.core.watch(prefix)
    }

    fn begin_session(&self, new: NewSession) -> StorageFuture<SessionId> {
        let (session, there) = (new.clone(), new.clone());
        let begun = self.core.call(
            |holder| Arc::clone(holder).begin_session(new).boxed(),
            || Request::BeginSession { new: there },
            |answer| answer.number().map(SessionId),
        );
        Arc::clone(&self.core).begin_session(begun, session).boxed()
    }

    fn renew_session(&self, id: SessionId, about: Arc<[u8]>) -> StorageFuture<()> {
        let there = Arc::clone(&about);
        if let Some((session, _)) = self.core.sessions.begun.lock().get_mut(&id) {
            session.about = Arc::clone(&about);
        }
        let request = || Request::RenewSession { id, about: there };
        self.core.call(|holder| holder.sled.renew_session(id, about), request, Answer::done)
    }

    fn end_session(&self, id: SessionId, only_if_expired: bool) -> StorageFuture<()> {
        self.core.end_session(id, only_if_expired)
    }

    fn sessions(&self) -> StorageFuture<Vec<SessionInfo>> {
        let here = |holder: &Arc<Holder>| Arc::clone(holder).sessions().boxed();
        self.core.call(here, || Request::Sessions {}, Answer::sessions)
    }

    fn forget_session(&self, id: SessionId) -> StorageFuture<()> {
        self.core.call(|holder| holder.forget_session(id), || Request::ForgetSession { id }, Answer::done)
    }

    fn shutdown_policy(&self) -> ShutdownPolicy {
        ShutdownPolicy::Close
    }
}
