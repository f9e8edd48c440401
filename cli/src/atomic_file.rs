//! Files that appear under their names when they are whole. A process that is killed before leaves nothing: the file has no name
//! until then, or, where the file system knows no such files, one that the next process in the folder removes.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use tempfile::NamedTempFile;

/// What the names of files begin with that are not whole yet.
const UNFINISHED: &str = ".callboard-export-";

/// A file that is being written.
pub(crate) enum Unfinished {
    /// One without a name.
    #[cfg(target_os = "linux")]
    Unnamed(File),
    /// One that is locked while it is written, so that no other process takes it for what a killed one has left.
    Named(NamedTempFile),
}

impl Unfinished {
    /// Begins a file that is to appear in the folder, readable by this user alone.
    pub(crate) fn begin(folder: &Path) -> io::Result<Self> {
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

    /// Gives the file its name once all of it is on disk; an error if something has that name.
    pub(crate) fn appear(mut self, path: &Path) -> io::Result<()> {
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

/// `None` where the file system has no such files, or where they could not be given a name.
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

/// Removes what killed processes have left in the folder.
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
    fn a_file_appears_whole_or_not_at_all_and_writes_over_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let count = || fs::read_dir(&folder).unwrap().count();
        let ways: [fn(&Path) -> io::Result<Unfinished>; 2] =
            [Unfinished::begin, |folder| named(folder).map(Unfinished::Named)];
        for begin in ways {
            drop(begin(folder.path()).unwrap());
            assert_eq!(count(), 0);
            let [mut one, other] = [begin(folder.path()).unwrap(), begin(folder.path()).unwrap()];
            one.file().write_all(b"whole").unwrap();
            one.appear(&path).unwrap();
            assert_eq!(other.appear(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            assert_eq!((fs::read_to_string(&path).unwrap().as_str(), count()), ("whole", 1));
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn what_a_killed_process_has_left_is_removed_by_the_next_and_what_is_written_now_stays() {
        let folder = tempfile::tempdir().unwrap();
        let written = named(folder.path()).unwrap();
        fs::write(folder.path().join(format!("{UNFINISHED}left")), "half").unwrap();
        drop(Unfinished::begin(folder.path()).unwrap());
        let left: Vec<_> = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
        assert_eq!(left, [written.path()]);
    }
}
