//! Files of folders that others may change while they are read.

use std::io;

use cap_fs_ext::{FollowSymlinks, OpenOptionsFollowExt as _, OpenOptionsSyncExt as _};
use cap_std::fs::{Dir, File, OpenOptions};

/// Opens a file below the handle of a folder for reading, so that a link which has replaced a part of the path does not lead out of it. What is
/// no regular file is neither followed nor waited for: `None`.
pub(crate) fn open(folder: &Dir, path: &str) -> io::Result<Option<File>> {
    let options = OpenOptions::new().read(true).follow(FollowSymlinks::No).nonblock(true).clone();
    let file = folder.open_with(path, &options)?;
    Ok(file.metadata()?.is_file().then_some(file))
}
