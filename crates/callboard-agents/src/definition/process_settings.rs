//! The program that an agent is.

use std::io;
use std::path::{Path, PathBuf, absolute};
use std::time::Duration;

/// How long a program may take by default to say that it is ready.
pub(crate) const READY_WITHIN: Duration = Duration::from_secs(10);

/// The program that an agent is: what stands under `[agent.process]`. Nothing in it is a template.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProcessSettings {
    /// The program and its arguments. A program with a `/` in it is relative to the folder that it starts in; else it is looked for
    /// in `PATH`.
    pub command: Vec<String>,
    /// Variables that it is given besides the usual ones, with their values.
    pub env: Vec<(String, String)>,
    /// Variables that it is given as they are in the board's own environment.
    pub env_from: Vec<String>,
    /// The folder that it starts in, relative to that of all programs; by default that one.
    pub folder: Option<PathBuf>,
    /// How long it may take to say that it is ready (10 s), in real time.
    pub ready_within: Duration,
}

impl ProcessSettings {
    /// The folder that it starts in, where `root` is that of all programs.
    ///
    /// # Errors
    /// There is no current folder that `root` could be relative to.
    pub(crate) fn folder_in(&self, root: &Path) -> io::Result<PathBuf> {
        absolute(self.folder.as_ref().map_or_else(|| root.to_owned(), |folder| root.join(folder)))
    }
}
