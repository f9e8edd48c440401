//! The seam between the store and fsync: tests record the order of syncs or let one fail.

use std::fs::File;
use std::io;
use std::path::Path;

/// Makes files durable.
pub(super) trait Disk: Send + Sync + 'static {
    /// Makes the content of a file, or the names in a folder, durable. `path` says which one.
    fn sync(&self, file: &File, path: &Path) -> io::Result<()>;
}

/// The operating system's disk.
pub(super) struct SystemDisk;

impl Disk for SystemDisk {
    fn sync(&self, file: &File, _: &Path) -> io::Result<()> {
        // Length included: fdatasync writes what is needed to read the data back.
        file.sync_data()
    }
}

/// Makes the names in a folder durable. Only Unix can, and only Unix needs it.
pub(super) fn sync_folder(disk: &dyn Disk, folder: &Path) -> io::Result<()> {
    if cfg!(unix) { disk.sync(&File::open(folder)?, folder) } else { Ok(()) }
}
