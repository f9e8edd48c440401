//! The files of a tree, as the examples read them.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::Path;

use ignore::WalkBuilder;

/// Each file of the tree with this ending, relative to the root, with `/` between folders, in the order of their names.
/// Hidden and ignored files are left out.
///
/// # Errors
/// There is no such tree, or a folder of it cannot be read.
pub(crate) fn files(root: &str, ending: &str) -> Result<Vec<String>, ignore::Error> {
    let mut files = Vec::new();
    for entry in WalkBuilder::new(root).sort_by_file_name(OsStr::cmp).build() {
        let entry = entry?;
        let path = entry.path().strip_prefix(root).unwrap_or(entry.path());
        if entry.file_type().is_some_and(|kind| kind.is_file()) && path.extension().is_some_and(|end| end == ending) {
            let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
            files.push(parts.join("/"));
        }
    }
    Ok(files)
}

/// The text of a file of the tree; bytes that are not UTF-8 are replaced.
///
/// # Errors
/// It cannot be read.
pub(crate) fn read(root: &str, file: &str) -> io::Result<String> {
    fs::read(Path::new(root).join(file)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// The default tree: a folder of this repository.
pub(crate) fn of_this_repository(folder: &str) -> String {
    format!("{}/{folder}", env!("CARGO_MANIFEST_DIR"))
}
