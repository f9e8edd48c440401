//! The text of a definition, and the file that it is read from.

use std::io;
use std::path::Path;

/// A TOML text that defines one agent, and the name that errors give it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinitionSource {
    /// What the text is called in errors, a file's name for example.
    pub origin: String,
    /// The text as it was read. Bytes that are not UTF-8 are reported as a defect by
    /// [`DefinitionReader::all`](super::DefinitionReader::all).
    pub bytes: Vec<u8>,
}

impl DefinitionSource {
    /// Reads a file of a folder of agents, called by its path: a regular file, or a link to one in that folder. Nothing is waited
    /// for.
    ///
    /// ```
    /// use callboard_agents::DefinitionSource;
    /// # let folder = tempfile::tempdir()?;
    /// # let folder = folder.path();
    /// std::fs::write(folder.join("poet.toml"), "[agent]\nname = \"poet\"")?;
    /// assert!(DefinitionSource::in_folder(folder, &folder.join("poet.toml"))?.bytes.starts_with(b"[agent]"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is something else, cannot be read, or is a link that leads to nothing or out of the folder: what is there may be nobody's
    /// to show.
    pub fn in_folder(folder: &Path, file: &Path) -> io::Result<Self> {
        let is_link = file.symlink_metadata()?.is_symlink();
        let place = file.canonicalize().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound if is_link => {
                io::Error::other("it is a link to nothing: remove it, or put the file there")
            }
            _ => error,
        })?;
        if is_link && !place.starts_with(folder.canonicalize()?) {
            return Err(io::Error::other("it is a link that leads out of its folder: put the file itself there"));
        }
        if !place.metadata()?.is_file() {
            let problem = "it is no regular file, so it is not read: remove it, or give it another name";
            return Err(io::Error::other(problem));
        }
        Ok(Self { origin: file.display().to_string(), bytes: callboard_documents::bytes_of(&place)? })
    }
}
