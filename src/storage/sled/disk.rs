//! The seam between the store and the disk: tests record the order of syncs, or let a step fail.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

/// Writes the store's own files. The methods are the operating system's, unless a test replaces one.
pub(super) trait Disk: Send + Sync + 'static {
    /// Creates a file, in the place of one that is there.
    fn create(&self, path: &Path) -> io::Result<File> {
        File::create(path)
    }

    /// Creates a file where nothing is.
    fn create_new(&self, path: &Path) -> io::Result<File> {
        File::create_new(path)
    }

    /// Writes all of these bytes to a file. `path` is the file's.
    fn write(&self, file: &mut File, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let _ = path;
        file.write_all(bytes)
    }

    /// Makes the content of a file, or the names in a folder, durable. `path` is the one under which it is found in the end.
    fn sync(&self, file: &File, path: &Path) -> io::Result<()> {
        let _ = path;
        // Length included: fdatasync writes what is needed to read the data back.
        file.sync_data()
    }

    /// Gives a file another name, in the place of a file that has it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }
}

/// The operating system's disk.
pub(super) struct SystemDisk;

impl Disk for SystemDisk {}

/// Writes a file whole: under its name are all of these bytes, synced, or what was there before. The name is durable once its
/// folder is synced.
pub(super) fn write_whole(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let unfinished = path.with_extension("unfinished");
    let mut file = disk.create(&unfinished)?;
    disk.write(&mut file, &unfinished, bytes)?;
    disk.sync(&file, path)?;
    disk.rename(&unfinished, path)
}

/// Makes the names in a folder durable. Only Unix can, and only Unix needs it.
pub(super) fn sync_folder(disk: &dyn Disk, folder: &Path) -> io::Result<()> {
    if cfg!(unix) { disk.sync(&File::open(folder)?, folder) } else { Ok(()) }
}
