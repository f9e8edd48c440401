//! The process that has the store open: its calls, and those that it makes for other processes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use callboard::env::Clock;
use callboard::storage::{Append, NewSession, SessionId, SessionInfo, Sled, Storage as _, StorageError, StorageFuture};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;

use crate::request::{Answer, Done, Request};
use crate::session_files::{NotedSession, NotedState, SessionFiles};

/// The open store.
pub(crate) struct Holder {
    pub(crate) sled: Sled,
    clock: Arc<dyn Clock>,
    /// When the store was opened, by the monotonic clock.
    opened_at: Duration,
    session_files: SessionFiles,
    /// Held while a session is resumed or ended, so that none is resumed that was ended meanwhile.
    resuming: Mutex<()>,
}

impl Holder {
    pub(crate) fn new(sled: Sled, clock: Arc<dyn Clock>, folder: &Path) -> Self {
        // It is used from wherever this process is by then.
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        let (opened_at, session_files) = (clock.now().monotonic, SessionFiles::new(&folder));
        // Opening the store has forgotten all sessions; those of processes that live are resumed.
        session_files.forget_all_if_gone();
        Self { sled, clock, opened_at, session_files, resuming: Mutex::default() }
    }

    /// The sessions that this store knows, and those that were begun before it was opened: of processes that live and have not resumed
    /// them yet, and of those that are gone. The lease of a process that is gone is over.
    pub(crate) async fn sessions(self: Arc<Self>) -> Result<Vec<SessionInfo>, StorageError> {
        let known = self.sled.sessions().await?;
        let mut sessions: BTreeMap<SessionId, SessionInfo> = known.into_iter().map(|info| (info.id, info)).collect();
        for (id, NotedSession { session, state }) in self.session_files.all() {
            let left = match state {
                NotedState::Lives => self.left_until_resumed(&session),
                NotedState::Gone | NotedState::Ended => Duration::ZERO,
            };
            let NewSession { name, about, lease: _ } = session;
            let info = sessions.entry(id).or_insert(SessionInfo { id, name, about, left });
            if state != NotedState::Lives {
                info.left = Duration::ZERO;
            }
        }
        Ok(sessions.into_values().collect())
    }

    /// The lease of a session that was not resumed begins when the store is opened.
    fn left_until_resumed(&self, session: &NewSession) -> Duration {
        self.opened_at.saturating_add(session.lease).saturating_sub(self.clock.now().monotonic)
    }

    /// Begins a session. Its name is free if the process of another one of that name is gone.
    pub(crate) async fn begin_session(self: Arc<Self>, new: NewSession) -> Result<SessionId, StorageError> {
        for SessionInfo { id, name, about, left } in Arc::clone(&self).sessions().await? {
            if name != new.name {
                continue;
            }
            if !left.is_zero() {
                return Err(StorageError::NameTaken { name: name.to_string(), about, left });
            }
            if self.session_files.find(id).is_some_and(|noted| noted.state == NotedState::Gone) {
                self.end(id).await?;
            }
        }
        self.sled.begin_session(new).await
    }

    /// Resumes a session that was begun at an earlier holder, unless it was ended.
    pub(crate) fn resume_session(&self, id: SessionId, session: NewSession) -> StorageFuture<()> {
        let _resuming = self.resuming.lock();
        match self.session_files.find(id).map(|noted| noted.state) {
            Some(NotedState::Lives | NotedState::Gone) => self.sled.resume_session(id, session),
            Some(NotedState::Ended) | None => std::future::ready(Err(id.has_ended())).boxed(),
        }
    }

    /// Ends a session. The lease of one whose process is gone is over.
    pub(crate) async fn end_session(self: Arc<Self>, id: SessionId, only_if_expired: bool) -> Result<(), StorageError> {
        let noted = self.session_files.find(id);
        let is_gone = noted.as_ref().is_some_and(|noted| noted.state == NotedState::Gone);
        if only_if_expired && !is_gone {
            let is_known = self.sled.sessions().await?.iter().any(|info| info.id == id);
            let unknown = noted.filter(|noted| noted.state == NotedState::Lives && !is_known);
            let left = unknown.map_or(Duration::ZERO, |noted| self.left_until_resumed(&noted.session));
            if !left.is_zero() {
                return Err(StorageError::SessionLives { left });
            }
            self.sled.end_session(id, true).await?;
        }
        self.end(id).await
    }

    /// Ends a session here, and for those who have the store open later.
    fn end(&self, id: SessionId) -> StorageFuture<()> {
        let _resuming = self.resuming.lock();
        if let Err(error) = self.session_files.end(id) {
            let detail = format!("the end of a session cannot be noted: {error}");
            return std::future::ready(Err(StorageError::Unavailable { detail })).boxed();
        }
        self.sled.end_session(id, false)
    }

    /// Forgets a session that was ended.
    pub(crate) fn forget_session(&self, id: SessionId) -> StorageFuture<()> {
        self.session_files.forget(id);
        self.sled.forget_session(id)
    }

    /// Issues a call of another process. Watches are not calls: see `watches`.
    pub(crate) fn perform(self: &Arc<Self>, request: Request) -> BoxFuture<'static, Result<Answer, StorageError>> {
        let sled = &self.sled;
        let done = |call: StorageFuture<()>| call.map(|done| done.map(|()| Answer::Done {})).boxed();
        let number = |call: StorageFuture<u64>| call.map(|done| done.map(|number| Answer::Number { number })).boxed();
        match request {
            Request::Append { append } => number(sled.append(append)),
            Request::Read { stream, from, limit } => {
                let read = sled.read(&stream, from, limit);
                read.map(|read| read.map(|records| Answer::Records { records })).boxed()
            }
            Request::Streams { prefix, after, limit } => {
                let read = sled.streams(&prefix, after.as_ref(), limit);
                read.map(|read| read.map(|keys| Answer::Keys { keys })).boxed()
            }
            Request::Purge { stream, up_to } => done(sled.purge(&stream, up_to)),
            Request::Get { key } => sled.get(&key).map(|read| read.map(|entry| Answer::Entry { entry })).boxed(),
            Request::Put { put } => number(sled.put_if_revision(put)),
            Request::Delete { delete } => done(sled.delete_if_revision(delete)),
            Request::Scan { prefix, after, limit } => {
                let read = sled.scan(&prefix, after.as_ref(), limit);
                read.map(|read| read.map(|entries| Answer::Entries { entries })).boxed()
            }
            Request::BeginSession { new } => {
                let begun = Arc::clone(self).begin_session(new);
                begun.map(|begun| begun.map(|SessionId(number)| Answer::Number { number })).boxed()
            }
            Request::RenewSession { id, about } => done(sled.renew_session(id, about)),
            Request::EndSession { id, only_if_expired } => {
                done(Arc::clone(self).end_session(id, only_if_expired).boxed())
            }
            Request::Sessions {} => {
                let read = Arc::clone(self).sessions();
                read.map(|read| read.map(|sessions| Answer::Sessions { sessions })).boxed()
            }
            Request::ForgetSession { id } => done(self.forget_session(id)),
            Request::ResumeSession { id, session } => done(self.resume_session(id, session)),
            Request::Watch { .. } | Request::NextChange { .. } | Request::Unwatch { .. } => {
                let detail = "a watch ended with the process that had the store open".to_owned();
                std::future::ready(Err(StorageError::Unavailable { detail })).boxed()
            }
        }
    }

    /// Issues a call again that the process which had the store open before may have carried out.
    pub(crate) fn repeat(self: &Arc<Self>, request: Request) -> BoxFuture<'static, Result<Answer, StorageError>> {
        let (holder, second) = (Arc::clone(self), self.perform(request.clone()));
        async move {
            let refusal = match second.await {
                Ok(answer) => return Ok(answer),
                Err(refusal) => refusal,
            };
            match (request.done_before(&refusal), &request) {
                (Done::Yes, _) => Ok(Answer::Done {}),
                (Done::IfRecord { sequence }, Request::Append { append }) if holder.has(append, sequence).await? => {
                    Ok(Answer::Number { number: sequence })
                }
                (Done::Unknown, _) => Err(StorageError::Unavailable {
                    detail: "the process that had the store open ended before it answered".to_owned(),
                }),
                (Done::No | Done::IfRecord { .. }, _) => Err(refusal),
            }
        }
        .boxed()
    }

    async fn has(&self, append: &Append, sequence: u64) -> Result<bool, StorageError> {
        let records = self.sled.read(&append.stream, sequence, 1).await?;
        Ok(records.first().is_some_and(|record| record.sequence == sequence && record.payload == append.payload))
    }
}

#[cfg(test)]
mod tests {
    use callboard::testing::conformance::ManualClock;
    use tempfile::TempDir;

    use super::*;

    struct World {
        folder: TempDir,
        clock: Arc<ManualClock>,
        holder: Arc<Holder>,
    }

    fn session(name: &str) -> NewSession {
        NewSession { name: name.into(), about: b"x".as_slice().into(), lease: Duration::from_secs(60) }
    }

    impl World {
        /// A holder that has just opened a store for which `prepare` has made files of sessions.
        fn new<T>(prepare: impl FnOnce(&SessionFiles) -> T) -> (Self, T) {
            let (folder, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::new()));
            let prepared = prepare(&SessionFiles::new(folder.path()));
            let sled = Sled::open_with_clock(folder.path(), Arc::clone(&clock) as _).unwrap();
            let holder = Arc::new(Holder::new(sled, Arc::clone(&clock) as _, folder.path()));
            (Self { folder, clock, holder }, prepared)
        }

        fn left(&self) -> Vec<(u64, u64)> {
            let sessions = block_on(Arc::clone(&self.holder).sessions()).unwrap();
            sessions.iter().map(|info| (info.id.0, info.left.as_secs())).collect()
        }

        fn begin(&self, name: &str) -> Result<SessionId, StorageError> {
            block_on(Arc::clone(&self.holder).begin_session(session(name)))
        }

        fn end_expired(&self, id: SessionId) -> Result<(), StorageError> {
            block_on(Arc::clone(&self.holder).end_session(id, true))
        }

        fn resume(&self, id: SessionId) -> Result<(), StorageError> {
            block_on(self.holder.resume_session(id, session("a")))
        }

        fn files(&self) -> usize {
            std::fs::read_dir(self.folder.path().join("sessions")).unwrap().count()
        }
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    const OLD: SessionId = SessionId(7);

    #[test]
    fn a_session_of_a_live_process_counts_until_it_is_resumed_or_its_lease_is_over() {
        let (world, _file) = World::new(|files| files.make(OLD, &session("a")).unwrap());
        assert_eq!(world.left(), [(7, 60)]);
        assert!(matches!(world.begin("a"), Err(StorageError::NameTaken { .. })));
        world.clock.advance(Duration::from_secs(59));
        assert_eq!(world.end_expired(OLD), Err(StorageError::SessionLives { left: Duration::from_secs(1) }));
        assert_eq!(world.resume(OLD), Ok(()));
        assert_eq!(world.left(), [(7, 60)], "its lease begins anew");
        world.clock.advance(Duration::from_secs(59));
        assert_eq!(world.end_expired(OLD), Err(StorageError::SessionLives { left: Duration::from_secs(1) }));
        world.clock.advance(Duration::from_secs(1));
        assert_eq!(world.end_expired(OLD), Ok(()));
        assert_eq!(world.resume(OLD), Err(OLD.has_ended()));
    }

    #[test]
    fn a_session_that_was_not_resumed_in_time_can_be_ended_and_is_not_resumed_then() {
        let (world, _file) = World::new(|files| files.make(OLD, &session("a")).unwrap());
        world.clock.advance(Duration::from_secs(60));
        assert_eq!(world.left(), [(7, 0)]);
        assert!(world.begin("a").is_ok(), "its name is free");
        assert_eq!(world.end_expired(OLD), Ok(()));
        assert_eq!(world.resume(OLD), Err(OLD.has_ended()));
        block_on(world.holder.forget_session(OLD)).unwrap();
        assert_eq!(world.resume(OLD), Err(OLD.has_ended()), "it is not known any more");
        assert_eq!((world.left().len(), world.files()), (1, 0));
    }

    #[test]
    fn a_session_that_is_resumed_after_another_took_its_name_goes_on_with_its_lease_over() {
        let (world, _file) = World::new(|files| files.make(OLD, &session("a")).unwrap());
        world.clock.advance(Duration::from_secs(60));
        let new = world.begin("a").unwrap();
        assert_eq!(world.resume(OLD), Ok(()));
        assert_eq!(world.left(), [(new.0, 60), (7, 0)]);
    }

    #[test]
    fn sessions_of_processes_that_are_gone_are_there_for_those_that_live_and_else_forgotten() {
        let gone = |files: &SessionFiles| {
            drop(files.make(OLD, &session("a")).unwrap());
            drop(files.make(SessionId(8), &session("a")).unwrap());
            files.end(SessionId(8)).unwrap();
            std::fs::write(files.folder().join("9.unfinished"), b"half").unwrap();
        };
        let (world, ()) = World::new(gone);
        assert_eq!((world.left(), world.files()), (vec![], 0));
        let (world, _file) = World::new(|files| {
            gone(files);
            files.make(SessionId(10), &session("b")).unwrap()
        });
        assert_eq!(world.left(), [(7, 0), (8, 0), (10, 60)]);
        assert!(world.begin("a").is_ok(), "its name is free");
        assert_eq!(world.end_expired(OLD), Ok(()));
        assert_eq!(world.resume(OLD), Err(OLD.has_ended()));
        for id in [OLD, SessionId(8)] {
            block_on(world.holder.forget_session(id)).unwrap();
        }
        assert_eq!(world.left().len(), 2);
    }

    #[test]
    fn what_is_no_session_is_none() {
        let (world, _file) = World::new(|files| {
            let file = files.make(OLD, &session("a")).unwrap();
            std::fs::write(files.folder().join("7"), b"no session").unwrap();
            file
        });
        assert_eq!(world.left(), []);
        assert_eq!(world.resume(OLD), Err(OLD.has_ended()));
    }
}
