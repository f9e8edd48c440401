//! Folders and files of this user alone: nobody else may read or change what is in them.

use std::fs::{DirBuilder, File, Metadata};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Why a folder or a file is not used for what only this user may read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// It is a link, or something else than what is needed.
    #[error("{path} is no {needed}; links are not followed", path = path.display())]
    Kind {
        /// The path.
        path: PathBuf,
        /// What is needed: `folder`, `file` or `socket`.
        needed: &'static str,
    },
    /// Another user owns it.
    #[error("{path} belongs to the user {owner}, not to this one; use one of this user", path = path.display())]
    Foreign {
        /// The path.
        path: PathBuf,
        /// The id of the user who owns it.
        owner: u32,
    },
    /// Its mode lets other users in.
    #[error("{path} has the mode {mode:04o}; run `chmod {needed:04o} {path}`", path = path.display())]
    Mode {
        /// The path.
        path: PathBuf,
        /// The mode that it has.
        mode: u32,
        /// The mode that it should have.
        needed: u32,
    },
    /// It cannot be created, read or written.
    #[error("{path}: {error}", path = path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
}

impl FolderError {
    /// Returns the error of a call of the system that concerns `path`.
    pub fn io(path: &Path, error: impl Into<io::Error>) -> Self {
        Self::Io { path: path.to_owned(), error: error.into() }
    }
}

/// A folder of this user with the mode 0700. It is used through a handle, so that it cannot be replaced meanwhile.
#[derive(Debug)]
pub struct Folder {
    handle: File,
    path: PathBuf,
}

/// The most bytes of a file that are read.
const MAX_FILE: u64 = 4 * 1024 * 1024;
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

impl Folder {
    /// Opens a folder, which is created first if it is missing.
    ///
    /// # Errors
    /// See [`FolderError`].
    pub fn create(path: &Path) -> Result<Self, FolderError> {
        let created = DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(path);
        match (created, Self::open(path)) {
            (Err(error), Err(FolderError::Io { .. })) => Err(FolderError::io(path, error)),
            (_, opened) => opened,
        }
    }

    /// Opens a folder.
    ///
    /// # Errors
    /// See [`FolderError`].
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        // Without a slash at the end, which would have a link followed.
        let path: PathBuf = path.components().collect();
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        let handle = match openat(CWD, &path, flags, Mode::empty()) {
            Ok(handle) => File::from(handle),
            Err(Errno::NOTDIR | Errno::LOOP) => return Err(FolderError::Kind { path, needed: "folder" }),
            Err(error) => return Err(FolderError::io(&path, error)),
        };
        check_own(&handle, &path, FOLDER_MODE)?;
        Ok(Self { handle, path })
    }

    /// Returns the path that it was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until no other holder of the folder, in this process or another, has the lock. It is held while this value lives.
    ///
    /// # Errors
    /// See [`FolderError`].
    pub fn locked(self) -> Result<Self, FolderError> {
        self.handle.lock().map_err(|error| FolderError::io(&self.path, error))?;
        Ok(self)
    }

    /// Opens a file for reading; `None` if there is none.
    ///
    /// # Errors
    /// See [`FolderError`].
    pub fn file(&self, name: &str) -> Result<Option<File>, FolderError> {
        let path = self.path.join(name);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(&self.handle, name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => return Err(FolderError::Kind { path, needed: "file" }),
            Err(error) => return Err(FolderError::io(&path, error)),
        };
        if !file.metadata().map_err(|error| FolderError::io(&path, error))?.is_file() {
            return Err(FolderError::Kind { path, needed: "file" });
        }
        check_own(&file, &path, FILE_MODE)?;
        Ok(Some(file))
    }

    /// Reads a file of at most 4 MiB; `None` if there is none.
    ///
    /// # Errors
    /// See [`FolderError`].
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>, FolderError> {
        self.file(name)?.map(|file| contents(&file, &self.path.join(name))).transpose()
    }

    /// Removes a file, if it is there.
    ///
    /// # Errors
    /// See [`FolderError`].
    pub fn remove(&self, name: &str) -> Result<(), FolderError> {
        match unlinkat(&self.handle, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(FolderError::io(&self.path.join(name), error)),
        }
    }

    /// Replaces a file, or creates it: after a crash it has either the old content or the new. One that is too large to be read is refused.
    ///
    /// # Errors
    /// See [`FolderError`].
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), FolderError> {
        let path = self.path.join(name);
        if bytes.len() as u64 > MAX_FILE {
            return Err(too_large(&path));
        }
        let new = format!("{name}.new");
        let written = || -> io::Result<()> {
            // What a process left that was killed.
            match unlinkat(&self.handle, &*new, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let mut file = File::from(openat(&self.handle, &*new, flags, Mode::from_raw_mode(FILE_MODE))?);
            file.write_all(bytes)?;
            file.sync_all()?;
            renameat(&self.handle, &*new, &self.handle, name)?;
            self.handle.sync_all()
        };
        written().map_err(|error| FolderError::io(&path, error))
    }
}

/// Reads a file of at most 4 MiB to its end.
///
/// # Errors
/// See [`FolderError`].
pub fn contents(file: &File, path: &Path) -> Result<Vec<u8>, FolderError> {
    let mut bytes = Vec::new();
    match file.take(MAX_FILE + 1).read_to_end(&mut bytes) {
        Ok(_) if bytes.len() as u64 > MAX_FILE => Err(too_large(path)),
        Ok(_) => Ok(bytes),
        Err(error) => Err(FolderError::io(path, error)),
    }
}

fn too_large(path: &Path) -> FolderError {
    FolderError::io(path, io::Error::other(format!("it has more than {MAX_FILE} bytes")))
}

fn check_own(file: &File, path: &Path, mode: u32) -> Result<(), FolderError> {
    let found = file.metadata().map_err(|error| FolderError::io(path, error))?;
    check(&found, path, Owner::User { mode })
}

/// Whose a file has to be, and who may read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// This user's, with exactly this mode.
    User {
        /// The mode.
        mode: u32,
    },
    /// This user's or root's. Nobody else may read it but the group of a file of root.
    UserOrRoot,
}

/// Checks the owner and the mode of a file or folder that is open.
///
/// # Errors
/// [`FolderError::Foreign`] and [`FolderError::Mode`].
pub fn check(found: &Metadata, path: &Path, allowed: Owner) -> Result<(), FolderError> {
    let (owner, mode, path) = (found.uid(), found.mode() & 0o7777, path.to_owned());
    let user = geteuid().as_raw();
    let (is_allowed, is_private, needed) = match allowed {
        Owner::User { mode: needed } => (owner == user, mode == needed, needed),
        Owner::UserOrRoot => {
            let readable = if owner == 0 { 0o740 } else { 0o700 };
            ([0, user].contains(&owner), mode & 0o777 & !readable == 0, FILE_MODE)
        }
    };
    if !is_allowed {
        return Err(FolderError::Foreign { path, owner });
    }
    if is_private { Ok(()) } else { Err(FolderError::Mode { path, mode, needed }) }
}
