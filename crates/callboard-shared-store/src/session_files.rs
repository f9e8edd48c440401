//! Files of sessions, in the folder of the store: by them a session outlasts the process that has the files of the store open, and
//! its lease ends with the process that has begun it, which locks the file as long as it lives.
//!
//! `sessions/ID` is a session, `sessions/ID.ended` one that was ended. The process that has the store open renames and removes
//! them; the one that has begun a session makes its file.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use callboard::storage::{NewSession, SessionId};
use rustix::fs::OFlags;

use crate::wire::{MAX_FRAME, Wire as _};

/// The folder of the sessions, in the folder of the store.
const SESSIONS: &str = "sessions";
const ENDED: &str = "ended";
const UNFINISHED: &str = "unfinished";

/// The files of all sessions of a store.
#[derive(Clone, Debug)]
pub(crate) struct SessionFiles {
    folder: PathBuf,
}

/// What the file of a session says.
#[derive(Debug)]
pub(crate) struct NotedSession {
    /// As it was begun.
    pub(crate) session: NewSession,
    pub(crate) state: NotedState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotedState {
    /// It was not ended, and its process lives.
    Lives,
    /// It was not ended, and its process is gone.
    Gone,
    Ended,
}

impl SessionFiles {
    pub(crate) fn new(store: &Path) -> Self {
        Self { folder: store.join(SESSIONS) }
    }

    /// Makes the file of a session of this process. It is locked until what is returned is dropped.
    pub(crate) fn make(&self, id: SessionId, session: &NewSession) -> io::Result<File> {
        match DirBuilder::new().mode(0o700).create(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
        // It has its name once it is locked and whole: without a lock it would count as left behind.
        let unfinished = self.path(id).with_extension(UNFINISHED);
        loop {
            let mut file = options().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
            file.lock()?;
            file.write_all(&session.to_bytes())?;
            match fs::rename(&unfinished, self.path(id)) {
                Ok(()) => return Ok(file),
                // Removed before it was locked.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// `None` if there is no such file, or none that can be read.
    pub(crate) fn find(&self, id: SessionId) -> Option<NotedSession> {
        let noted = |path: &Path| {
            let file = options().open(path).ok()?;
            let is_locked = file.try_lock_shared().is_err();
            let mut bytes = Vec::new();
            file.take(MAX_FRAME as u64).read_to_end(&mut bytes).ok()?;
            Some((NewSession::from_bytes(&bytes)?, is_locked))
        };
        let path = self.path(id);
        if let Some((session, is_locked)) = noted(&path) {
            let state = if is_locked { NotedState::Lives } else { NotedState::Gone };
            return Some(NotedSession { session, state });
        }
        let (session, _) = noted(&path.with_extension(ENDED))?;
        Some(NotedSession { session, state: NotedState::Ended })
    }

    /// All of them, by their ids.
    pub(crate) fn all(&self) -> Vec<(SessionId, NotedSession)> {
        let ids = self.paths().into_iter().filter_map(|path| path.file_stem()?.to_str()?.parse().ok());
        ids.map(SessionId).filter_map(|id| Some((id, self.find(id)?))).collect()
    }

    /// Notes that a session was ended; fine if it has no file.
    pub(crate) fn end(&self, id: SessionId) -> io::Result<()> {
        let path = self.path(id);
        match fs::rename(&path, path.with_extension(ENDED)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Removes the file of a session that was ended.
    pub(crate) fn forget(&self, id: SessionId) {
        let _ = fs::remove_file(self.path(id).with_extension(ENDED));
    }

    /// Removes all files, if the processes of all of them are gone: nobody is left who asks for the sessions of others.
    pub(crate) fn forget_all_if_gone(&self) {
        let files: Vec<_> = self.paths().into_iter().map(|path| (options().open(&path), path)).collect();
        if files.iter().all(|(file, _)| file.as_ref().is_ok_and(|file| file.try_lock().is_ok())) {
            files.iter().for_each(|(_, path)| drop(fs::remove_file(path)));
        }
    }

    #[cfg(test)]
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    fn paths(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(&self.folder).into_iter().flatten();
        files.filter_map(|file| Some(file.ok()?.path())).collect()
    }

    fn path(&self, id: SessionId) -> PathBuf {
        self.folder.join(id.0.to_string())
    }
}

/// Neither a link nor a pipe is followed or waited for.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
    options
}
