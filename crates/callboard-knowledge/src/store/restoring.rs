//! Puts a copy of a base in the place of a base: the old one is there, or the new one, and never parts of both.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};
use rustix::fs::OFlags;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::KnowledgeError;
use super::lock::Lock;
use super::staging::{Staging, sync_folder_of};
use super::transfer::is_empty;
use super::upkeep::{self, Counts};
use super::{KnowledgeBase, Sharing, close, connect, schema, with_suffix};

/// The most earlier bases that are kept beside a base.
const KEPT: u32 = 10_000;

/// What was put in the place of a base.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Restored {
    /// What it has.
    pub counts: Counts,
    /// Where the base is that was there before, if there was one.
    pub kept: Option<PathBuf>,
}

impl KnowledgeBase {
    /// Checks a copy that [`KnowledgeBase::copy_to`] made, and puts a copy of it in the place of the base at `path`, which may be damaged or
    /// missing. The base that was there stays in its folder, under the name that is returned. A process that is killed meanwhile leaves
    /// one of both.
    ///
    /// # Errors
    /// A process has the base open; the copy is no sound base, or one of a newer build; the files cannot be read or written. The base is as it
    /// was.
    pub async fn restore(path: &Path, from: &Path) -> Result<Restored, KnowledgeError> {
        let (path, from) = (path.to_owned(), from.to_owned());
        let restoring = tokio::task::spawn_blocking(move || restore(&path, &from));
        restoring.await.map_err(|_| KnowledgeError::Closed)?
    }

    /// Closes the base as [`KnowledgeBase::close`] does, and removes its file if nothing was written to it and no other process has it open.
    ///
    /// # Errors
    /// It cannot be opened or removed.
    pub async fn remove_if_empty(self) -> Result<(), KnowledgeError> {
        let path = self.path().to_owned();
        self.close().await;
        let removing = tokio::task::spawn_blocking(move || remove_if_empty(&path));
        removing.await.map_err(|_| KnowledgeError::Closed)?
    }
}

fn remove_if_empty(path: &Path) -> Result<(), KnowledgeError> {
    let lock = match Lock::alone(path) {
        Err(KnowledgeError::InUse { .. }) => return Ok(()),
        lock => lock?,
    };
    let connection = connect(path, Sharing::Shared)?;
    let is_empty = is_empty(&connection)?;
    close(connection)?;
    if is_empty {
        let io = |error| KnowledgeError::Io { path: path.to_owned(), error };
        fs::remove_file(path).map_err(io)?;
        remove_log(path).map_err(io)?;
        lock.release_without_base(path);
    }
    Ok(())
}

fn restore(path: &Path, from: &Path) -> Result<Restored, KnowledgeError> {
    // Held from before the copy is read: nobody submits what would then be put aside.
    let lock = Lock::alone(path)?;
    let restored = put(path, from);
    if restored.is_err() {
        lock.release_without_base(path);
    }
    restored
}

/// Puts a checked copy of a file in the place of a base that is locked.
fn put(path: &Path, from: &Path) -> Result<Restored, KnowledgeError> {
    let io = |error| KnowledgeError::Io { path: path.to_owned(), error };
    let staging = Staging::beside(path).map_err(io)?;
    stage(from, path, &staging)?;
    let counts = checked(&staging.path()).map_err(|error| refused(from, error))?;
    let kept = keep(path).map_err(io)?;
    staging.replace(path).map_err(io)?;
    Ok(Restored { counts, kept })
}

/// Copies the file, and the log of one that was not closed.
fn stage(from: &Path, path: &Path, staging: &Staging) -> Result<(), KnowledgeError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error| KnowledgeError::Io { path, error }
    };
    let refuse = |why: &str| Err(KnowledgeError::Backup { path: from.to_owned(), why: why.to_owned() });
    // A pipe is not waited for.
    let open = |path: &Path| {
        File::options().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path).map_err(failed(path))
    };
    let mut file = open(from)?;
    let about = file.metadata().map_err(failed(from))?;
    if !about.is_file() {
        return refuse("it is not a file");
    }
    if fs::metadata(path).is_ok_and(|base| (base.dev(), base.ino()) == (about.dev(), about.ino())) {
        return refuse("it is the file of the base itself");
    }
    let _lock = Lock::alone_if_there(from)?;
    let mut staged = staging.create().map_err(failed(path))?;
    io::copy(&mut file, &mut staged).map_err(failed(path))?;
    let log = with_suffix(from, "-wal");
    match open(&log) {
        Ok(mut log) => {
            let mut staged = File::create_new(with_suffix(&staging.path(), "-wal")).map_err(failed(path))?;
            io::copy(&mut log, &mut staged).map_err(failed(path)).map(drop)
        }
        Err(KnowledgeError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Checks a copied file, makes it a base of this version, and leaves all of it in the one file.
fn checked(file: &Path) -> Result<Counts, KnowledgeError> {
    let mut connection = connect(file, Sharing::Shared)?;
    if !schema::is_base(&connection)? {
        return Err(KnowledgeError::NotABase);
    }
    schema::migrate(&mut connection)?;
    let mut findings = upkeep::findings(&connection)?;
    if !findings.is_empty() && findings.iter().all(|finding| finding.is_repairable) {
        let transaction = connection.transaction()?;
        schema::rebuild(&transaction)?;
        transaction.commit()?;
        findings = upkeep::findings(&connection)?;
    }
    if let Some(finding) = findings.first() {
        return Err(KnowledgeError::Damaged { cause: finding.what.clone() });
    }
    let counts = upkeep::counts(&connection)?;
    close(connection)?;
    Ok(counts)
}

/// What is wrong with the copy is an error of the copy, and not of the base.
fn refused(from: &Path, error: KnowledgeError) -> KnowledgeError {
    let why = match error {
        KnowledgeError::NotABase => "it is not a base of facts".to_owned(),
        KnowledgeError::Damaged { cause } => format!("it is damaged ({cause})"),
        error @ (KnowledgeError::TooNew { .. } | KnowledgeError::Sqlite(_) | KnowledgeError::DamagedIndex) => {
            error.to_string()
        }
        error => return error,
    };
    KnowledgeError::Backup { path: from.to_owned(), why }
}

/// Gives the base a second name, under which it stays when another one takes its place, and removes its log. `None` if there is no base.
fn keep(path: &Path) -> io::Result<Option<PathBuf>> {
    if fs::symlink_metadata(path).is_err() {
        // A log without its file belongs to nothing, and would be applied to the new one.
        return remove_log(path).map(|()| None);
    }
    // Copies the log into the file. One that is damaged cannot be opened: its log gets a second name too.
    if let Ok(connection) = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE) {
        let _ = connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)");
    }
    for number in 1..=KEPT {
        let kept = with_suffix(path, &format!(".replaced-{number}"));
        match fs::hard_link(path, &kept) {
            Ok(()) => {
                match fs::hard_link(with_suffix(path, "-wal"), with_suffix(&kept, "-wal")) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    Ok(()) | Err(_) => {}
                }
                sync_folder_of(path)?;
                remove_log(path)?;
                return Ok(Some(kept));
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other(format!("{KEPT} earlier bases are kept beside it: remove some")))
}

/// Removes what SQLite keeps beside a file.
fn remove_log(path: &Path) -> io::Result<()> {
    for suffix in ["-wal", "-shm"] {
        match fs::remove_file(with_suffix(path, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    sync_folder_of(path)
}
