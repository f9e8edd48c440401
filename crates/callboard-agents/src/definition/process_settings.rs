//! The program that an agent is.

use std::io;
use std::path::{Path, PathBuf, absolute};
use std::time::Duration;

use callboard_text::quoted;

use crate::program;

/// The default timeout for a program to report that it is ready.
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
    /// The folder that it starts in, relative to that of all programs and not outside of it; by default that one.
    pub folder: Option<PathBuf>,
    /// How long it may take to say that it is ready (10 s), in real time.
    pub ready_within: Duration,
}

impl ProcessSettings {
    /// Returns the folder that the program starts in, where `root` is that of all programs, and the paths that its command line names, which
    /// need not exist: every word is taken for one. Of absolute paths only those in `project` or in that folder are returned.
    ///
    /// ```
    /// use callboard_agents::Definition;
    /// use std::path::Path;
    ///
    /// let text = "[agent]\nname = \"counter\"\n[agent.process]\ncommand = [\"/usr/bin/env\", \"python3\", \"count.py\"]";
    /// let settings = Definition::from_toml("counter.toml", text)?.process.unwrap();
    /// let paths = settings.paths(Path::new("/project"), Path::new("/project/docs"))?;
    /// assert_eq!(paths, ["/project/docs", "/project/docs/python3", "/project/docs/count.py"].map(Path::new));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// There is no current folder that `root` could be relative to.
    pub fn paths(&self, project: &Path, root: &Path) -> io::Result<Vec<PathBuf>> {
        Ok(program::paths(&self.command, &self.env, (project, &self.folder_below(root)?.as_written())))
    }

    /// The folder in which the program starts; `root` is the folder of all programs.
    ///
    /// # Errors
    /// There is no current folder that `root` could be relative to.
    pub(crate) fn folder_below(&self, root: &Path) -> io::Result<DeclaredFolder> {
        Ok(DeclaredFolder { root: absolute(root)?, folder: self.folder.clone() })
    }
}

/// The folder in which a program starts: that of all programs, or one below it.
#[derive(Clone, Debug)]
pub(crate) struct DeclaredFolder {
    /// The folder of all programs, as an absolute path.
    root: PathBuf,
    folder: Option<PathBuf>,
}

/// The reason why a program has no folder to start in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FolderError {
    /// The path does not exist, or does not lead to a folder.
    #[error("there is no folder {}", quoted(&.0.display().to_string()))]
    Missing(PathBuf),
    /// It lies elsewhere, by `..`, as an absolute path or through a symbolic link.
    #[error(
        "the folder {} leads out of the folder of all programs, {}: it is {}",
        quoted(&folder.display().to_string()), quoted(&root.display().to_string()), quoted(&leads_to.display().to_string())
    )]
    Outside { folder: PathBuf, root: PathBuf, leads_to: PathBuf },
    /// The system cannot resolve the path for another reason, such as missing permissions.
    #[error("the folder {} cannot be used: {error}", quoted(&folder.display().to_string()))]
    Unusable { folder: PathBuf, error: io::Error },
}

impl DeclaredFolder {
    /// Its path as it was written. Links in it may lead anywhere.
    pub(crate) fn as_written(&self) -> PathBuf {
        let Some(folder) = &self.folder else { return self.root.clone() };
        // Normalized without `.`, because errors show it.
        self.root.join(folder).components().collect()
    }

    /// Its path without links: the folder of all programs, or one below it.
    ///
    /// # Errors
    /// It does not, or is not there.
    pub(crate) fn resolved(&self) -> Result<PathBuf, FolderError> {
        let (root, folder) = (resolved(&self.root)?, self.as_written());
        let leads_to = resolved(&folder)?;
        if leads_to.starts_with(&root) {
            return Ok(leads_to);
        }
        Err(FolderError::Outside { folder, root, leads_to })
    }
}

/// An existing folder, without links.
fn resolved(folder: &Path) -> Result<PathBuf, FolderError> {
    match folder.canonicalize() {
        Ok(path) if path.is_dir() => Ok(path),
        Ok(_) => Err(FolderError::Missing(folder.to_owned())),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Err(FolderError::Missing(folder.to_owned()))
        }
        Err(error) => Err(FolderError::Unusable { folder: folder.to_owned(), error }),
    }
}
