//! How the folder of a published site is known.

use std::fs;
use std::path::Path;

/// The file that a site has, and no other folder.
pub(crate) const MARKER: &str = "callboard-site.txt";

/// Whether a folder has the file.
pub(crate) fn is_in(folder: &Path) -> bool {
    fs::symlink_metadata(folder.join(MARKER)).is_ok_and(|marker| marker.is_file())
}
