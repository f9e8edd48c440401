//! Reads the files of a folder of agents.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

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
    #[error("the folder {} has more than {max} agents", visible(folder))]
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
        let shown = || folder.display().to_string();
        let cannot = |error: io::Error| FolderError::Unreadable { folder: shown(), error: error.to_string() };
        let mut files = BTreeMap::new();
        for entry in folder.read_dir().map_err(cannot)? {
            let path = entry.map_err(cannot)?.path();
            if path.extension().is_none_or(|extension| !extension.eq_ignore_ascii_case("toml")) {
                continue;
            }
            let Some(name) = path.file_name().map(|name| name.to_string_lossy().into_owned()) else { continue };
            match DefinitionSource::in_folder(folder, &path).map(|source| source.bytes) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                read => drop(files.insert(name, read.map_err(|error| error.to_string()))),
            }
            if files.len() > MAX_FILES {
                return Err(FolderError::TooMany { folder: shown(), max: MAX_FILES });
            }
        }
        Ok(Self { agents: files, catalog: catalog.map(catalog::bytes) })
    }
}
