//! Files that get their names once they are complete. A process that is killed before leaves nothing: the file has no name until
//! then (`O_TMPFILE`), or, where the file system does not support that, a temporary name that the next process in the folder removes.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use tempfile::NamedTempFile;

/// The prefix of temporary names.
const UNFINISHED: &str = ".callboard-export-";

/// A file that is being written.
pub(crate) enum AtomicFile {
    /// An unnamed file.
    #[cfg(target_os = "linux")]
    Unnamed(File),
    /// A file with a temporary name. It is locked while it is written: an unlocked one was left by a killed process.
    Named(NamedTempFile),
}

impl AtomicFile {
    /// Creates a file in the folder, readable by this user alone.
    pub(crate) fn create(folder: &Path) -> io::Result<Self> {
        remove_abandoned(folder);
        #[cfg(target_os = "linux")]
        if let Some(file) = unnamed(folder)? {
            return Ok(Self::Unnamed(file));
        }
        named(folder).map(Self::Named)
    }

    pub(crate) fn file(&mut self) -> &mut File {
        match self {
            #[cfg(target_os = "linux")]
            Self::Unnamed(file) => file,
            Self::Named(file) => file.as_file_mut(),
        }
    }

    /// Syncs the file and gives it its name; an error if something has that name.
    pub(crate) fn persist(mut self, path: &Path) -> io::Result<()> {
        self.file().sync_all()?;
        match self {
            #[cfg(target_os = "linux")]
            Self::Unnamed(file) => {
                use std::os::fd::AsRawFd as _;

                use rustix::fs::{AtFlags, CWD, linkat};

                let open = format!("/proc/self/fd/{}", file.as_raw_fd());
                Ok(linkat(CWD, open, CWD, path, AtFlags::SYMLINK_FOLLOW)?)
            }
            Self::Named(file) => file.persist_noclobber(path).map(drop).map_err(|error| error.error),
        }
    }
}

/// An unnamed file; `None` where the file system does not support them, or where they could not be named later.
#[cfg(target_os = "linux")]
fn unnamed(folder: &Path) -> io::Result<Option<File>> {
    use rustix::fs::{Mode, OFlags, open};
    use rustix::io::Errno;

    if !Path::new("/proc/self/fd").is_dir() {
        return Ok(None);
    }
    match open(folder, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR) {
        Ok(file) => Ok(Some(file.into())),
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn named(folder: &Path) -> io::Result<NamedTempFile> {
    loop {
        let file = NamedTempFile::with_prefix_in(UNFINISHED, folder)?;
        file.as_file().lock()?;
        // Another process may have removed it before it was locked.
        if file.path().exists() {
            return Ok(file);
        }
    }
}

/// Removes temporary files that killed processes have left in the folder.
fn remove_abandoned(folder: &Path) {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let unfinished = files.filter(|file| file.file_name().as_encoded_bytes().starts_with(UNFINISHED.as_bytes()));
    for path in unfinished.map(|file| file.path()) {
        if crate::values::open_file(&path).is_ok_and(|file| file.try_lock().is_ok()) {
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_file_appears_complete_or_not_at_all_and_replaces_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let count = || fs::read_dir(&folder).unwrap().count();
        let kinds: [fn(&Path) -> io::Result<AtomicFile>; 2] =
            [AtomicFile::create, |folder| named(folder).map(AtomicFile::Named)];
        for create in kinds {
            drop(create(folder.path()).unwrap());
            assert_eq!(count(), 0);
            let [mut one, other] = [create(folder.path()).unwrap(), create(folder.path()).unwrap()];
            one.file().write_all(b"whole").unwrap();
            one.persist(&path).unwrap();
            assert_eq!(other.persist(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            assert_eq!((fs::read_to_string(&path).unwrap().as_str(), count()), ("whole", 1));
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn files_of_killed_processes_are_removed_and_files_being_written_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let written = named(folder.path()).unwrap();
        fs::write(folder.path().join(format!("{UNFINISHED}left")), "half").unwrap();
        drop(AtomicFile::create(folder.path()).unwrap());
        let left: Vec<_> = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
        assert_eq!(left, [written.path()]);
    }
}
