//! Reads the files of a folder of agents.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use callboard_text::visible;

use crate::definition::DefinitionSource;

use super::catalog::{self, Bytes};

/// The most files of a folder.
const MAX_FILES: usize = 1_000;

/// Why a folder of agents cannot be loaded or read again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// The folder does not exist, or cannot be listed.
    #[error("the folder {} cannot be read: {error}", visible(folder))]
    Unreadable {
        /// The path of the folder, as it was given.
        folder: String,
        /// What the system reports, in its words.
        error: String,
    },
    /// The folder has more files `*.toml` than `max`.
    #[error("the folder {} has more than {max} files *.toml", visible(folder))]
    TooMany {
        /// The path of the folder, as it was given.
        folder: String,
        /// The most files `*.toml` that a folder may have (1,000).
        max: usize,
    },
    /// At least one file was refused, so that no agent of the folder is made.
    /// [`AgentFolder::load_valid`](super::AgentFolder::load_valid) returns it only for the file of the models.
    #[error("{}", defects.join("\n\n"))]
    Wrong {
        /// Why each of these files was refused, as [`FileReport::refusal`](super::FileReport::refusal) returns it.
        defects: Vec<String>,
    },
}

/// Returns the paths of the entries `*.toml` of a folder of agents, in order, whatever they are: files, links, also to nothing, or others.
/// The ending counts in any case.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let folder = folder.path();
/// for name in ["poet.toml", "critic.TOML", "notes.txt"] {
///     std::fs::write(folder.join(name), "")?;
/// }
/// let files = callboard_agents::files_of_agents(folder)?;
/// assert_eq!(files, ["critic.TOML", "poet.toml"].map(|name| folder.join(name)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The folder cannot be listed ([`FolderError::Unreadable`]), or has more than 1,000 of them ([`FolderError::TooMany`]).
pub fn files_of_agents(folder: &Path) -> Result<Vec<PathBuf>, FolderError> {
    let shown = || folder.display().to_string();
    let cannot = |error: io::Error| FolderError::Unreadable { folder: shown(), error: error.to_string() };
    let mut files = Vec::new();
    for entry in folder.read_dir().map_err(cannot)? {
        let file = entry.map_err(cannot)?.path();
        if file.extension().is_none_or(|extension| !extension.eq_ignore_ascii_case("toml")) {
            continue;
        }
        if files.len() == MAX_FILES {
            return Err(FolderError::TooMany { folder: shown(), max: MAX_FILES });
        }
        files.push(file);
    }
    files.sort();
    Ok(files)
}

/// The contents of the files `*.toml` of a folder, by name, and of the catalog; or the reason why one cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Files {
    pub(super) agents: BTreeMap<String, Result<Vec<u8>, String>>,
    /// The content of the catalog's file, if a catalog is configured.
    pub(super) catalog: Option<Bytes>,
}

impl Files {
    /// Reads all files. A file that is removed meanwhile is left out.
    ///
    /// # Errors
    /// The folder cannot be listed, or has too many files.
    pub(crate) fn read(folder: &Path, catalog: Option<&Path>) -> Result<Self, FolderError> {
        let mut files = BTreeMap::new();
        for path in files_of_agents(folder)? {
            let Some(name) = path.file_name().map(|name| name.to_string_lossy().into_owned()) else { continue };
            match DefinitionSource::in_folder(folder, &path).map(|source| source.bytes) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                read => drop(files.insert(name, read.map_err(|error| error.to_string()))),
            }
        }
        Ok(Self { agents: files, catalog: catalog.map(catalog::bytes) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_with_too_many_files_is_refused_and_the_error_names_what_it_counts() {
        let folder = tempfile::tempdir().unwrap();
        let add = |name: String| std::fs::write(folder.path().join(name), "").unwrap();
        (0..MAX_FILES).for_each(|number| add(format!("{number}.toml")));
        add("notes.txt".to_owned());
        assert_eq!(files_of_agents(folder.path()).unwrap().len(), MAX_FILES);
        add("more.TOML".to_owned());
        let error = files_of_agents(folder.path()).unwrap_err().to_string();
        assert_eq!(error, format!("the folder {} has more than 1000 files *.toml", folder.path().display()));
    }
}
