//! The models file of a folder of agents, which is read again together with the agents.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callboard_documents::{Defects, bytes_of};
use callboard_text::visible;

use crate::catalog::Models;
use crate::definition::Definition;
use crate::model::Model;

use super::FileChange;

/// Reads a text; the arguments are its origin, for errors, and the text.
type Reader = Arc<dyn Fn(&str, &str) -> Result<Models, Defects> + Send + Sync>;

type Choose = Arc<dyn Fn(&Models, &Definition) -> Result<Arc<dyn Model>, String> + Send + Sync>;

/// A file with models that is read again with the agents that choose among them
/// ([`AgentFolder::catalog`](super::AgentFolder::catalog)).
///
/// A change counts as a whole. One with a defect, or without a model that an agent needs, changes nothing, and the report says why.
/// What goes on with models that are the same, [`Models::after`] says.
///
/// ```
/// use callboard::env::Env;
/// use callboard::prelude::*;
/// use callboard_agents::{AgentFolder, CatalogFile, FakeModel, ModelEntry, Models, Reload};
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path();
/// std::fs::write(path.join("poet.toml"), "[agent]\nname = \"poet\"\nmodel = { provider_tags = [\"calm\"] }")?;
/// let file = path.join("models.txt");
/// std::fs::write(&file, "calm quick")?;
///
/// // `Models::from_toml` reads those of docs/models.md; any other text can be read too.
/// let env = Env::system();
/// let catalog = CatalogFile::new(&file, move |_origin, text| {
///     Models::of(&env, [text.split_whitespace().fold(ModelEntry::of(FakeModel), ModelEntry::tag)])
/// });
/// let mut folder = AgentFolder::new(path).catalog(catalog);
/// let board = folder.load()?.into_iter().fold(Callboard::builder(), |board, agent| board.with(agent)).start().await?;
///
/// std::fs::write(&file, "calm slow")?;
/// let reports = board.reload(&mut folder).await?;
/// assert!(reports[0].to_string().ends_with("models.txt: changed: later turns use it"), "{reports:?}");
/// std::fs::write(&file, "wild")?;
/// let reports = board.reload(&mut folder).await?;
/// assert!(reports[0].refusal().unwrap().contains("the agent of poet.toml would have no model: no model has the tags \"calm\""), "{reports:?}");
/// # board.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct CatalogFile {
    path: PathBuf,
    read: Reader,
    choose: Choose,
    otherwise: Option<Models>,
}

impl CatalogFile {
    /// This file. `read` makes models of its text; it is also given the path, as errors name it.
    pub fn new(
        path: impl AsRef<Path>,
        read: impl Fn(&str, &str) -> Result<Models, Defects> + Send + Sync + 'static,
    ) -> Self {
        let choose = |models: &Models, definition: &Definition| match models.chosen(&definition.model) {
            Ok(chosen) => Ok(Arc::new(chosen) as Arc<dyn Model>),
            Err(error) => Err(error.to_string()),
        };
        Self { path: path.as_ref().to_owned(), read: Arc::new(read), choose: Arc::new(choose), otherwise: None }
    }

    /// The models where there is no such file. Without them, a file that is not there is a defect.
    #[must_use]
    pub fn or(self, models: &Models) -> Self {
        Self { otherwise: Some(models.clone()), ..self }
    }

    /// Finds the model of an agent among them, or says why there is none. Without it, the agent's definition chooses.
    #[must_use]
    pub fn choosing(
        self,
        choose: impl Fn(&Models, &Definition) -> Result<Arc<dyn Model>, String> + Send + Sync + 'static,
    ) -> Self {
        Self { choose: Arc::new(choose), ..self }
    }

    /// The path of the file, as it was given.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn origin(&self) -> String {
        self.path.display().to_string()
    }
}

impl fmt::Debug for CatalogFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, read: _, choose: _, otherwise } = self;
        f.debug_struct("CatalogFile").field("path", path).field("otherwise", otherwise).finish_non_exhaustive()
    }
}

/// The content of the file: `None` if it does not exist, or the reason why it cannot be read.
pub(super) type Bytes = Result<Option<Vec<u8>>, String>;

/// Reads the file of a catalog. Blocks on the disk.
pub(super) fn bytes(path: &Path) -> Bytes {
    match bytes_of(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        // The path is a folder: a command that must not create the file has a placeholder folder there.
        Err(_) if path.is_dir() => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// A catalog, and the state of its file.
#[derive(Clone, Debug)]
pub(super) struct Catalog {
    pub(super) file: CatalogFile,
    /// The reason why the file was refused when it was last read; `None` if it was accepted. A reason is reported once.
    refusal: Option<String>,
    current: Option<Current>,
}

/// The models in effect.
#[derive(Clone, Debug)]
pub(super) struct Current {
    text: Option<Vec<u8>>,
    pub(super) models: Models,
    /// Increases with each change, from 1.
    pub(super) generation: u64,
}

impl Catalog {
    pub(super) fn new(file: CatalogFile) -> Self {
        Self { file, refusal: None, current: None }
    }

    pub(super) fn current(&self) -> Option<&Current> {
        self.current.as_ref()
    }

    /// The generation of the models in effect.
    pub(super) fn generation(&self) -> u64 {
        self.current.as_ref().map_or(0, |current| current.generation)
    }

    /// The model of an agent among those in effect.
    pub(super) fn model(&self, definition: &Definition) -> Result<Arc<dyn Model>, String> {
        match &self.current {
            Some(current) => (self.file.choose)(&current.models, definition),
            None => Err(format!("there are no models: {} was not taken", visible(&self.file.origin()))),
        }
    }

    /// The models that would be in effect if the file had these.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn offered(&self, bytes: &Bytes) -> Result<Current, String> {
        let origin = self.file.origin();
        let reported = |problem: String| format!("{}: {problem}", visible(&origin));
        let text = bytes.as_ref().map_err(|error| reported(error.clone()))?;
        if let Some(current) = self.current.as_ref().filter(|current| current.text == *text) {
            return Ok(current.clone());
        }
        let models = match (text, &self.file.otherwise) {
            (None, Some(models)) => models.clone(),
            (None, None) => return Err(reported("there is no such file".to_owned())),
            (Some(bytes), _) => {
                let text = str::from_utf8(bytes)
                    .map_err(|error| reported(format!("the text is not UTF-8, {error}: save it as UTF-8")))?;
                (self.file.read)(&origin, text).map_err(|defects| defects.to_string())?
            }
        };
        let offered = |models, generation| Current { text: text.clone(), models, generation };
        Ok(match &self.current {
            None => offered(models, 1),
            Some(current) => {
                let models = models.after(&current.models);
                let is_other = !models.are_as(&current.models);
                offered(models, current.generation + u64::from(is_other))
            }
        })
    }

    /// These models, if all agents that have a model now would have one.
    ///
    /// # Errors
    /// The agents that would have none, and the reasons.
    pub(super) fn fitting<'a>(
        &self,
        offered: Current,
        agents: impl Iterator<Item = (&'a str, &'a Definition)>,
    ) -> Result<Current, String> {
        let Some(current) = &self.current else { return Ok(offered) };
        let choose = |models: &Current, definition| (self.file.choose)(&models.models, definition);
        let left_out = agents
            .filter(|(_, definition)| definition.process.is_none() && choose(current, definition).is_ok())
            .filter_map(|(file, definition)| {
                let (why, origin) = (choose(&offered, definition).err()?, self.file.origin());
                Some(format!("{}: the agent of {} would have no model: {why}", visible(&origin), visible(file)))
            });
        let left_out = left_out.collect::<Vec<_>>();
        if left_out.is_empty() { Ok(offered) } else { Err(left_out.join("\n")) }
    }

    /// Accepts the offered models, or keeps those in effect. Returns the change to report.
    pub(super) fn take(&mut self, offered: Result<Current, String>) -> FileChange {
        match offered {
            Ok(offered) => {
                let before = self.current.as_ref().map(|current| current.generation);
                let change =
                    if before == Some(offered.generation) { FileChange::Unchanged } else { FileChange::Models };
                (self.current, self.refusal) = (Some(offered), None);
                change
            }
            // A reason is reported once.
            Err(why) if self.refusal.as_ref() == Some(&why) => FileChange::Unchanged,
            Err(why) => {
                self.refusal = Some(why.clone());
                FileChange::ModelsRefused { why }
            }
        }
    }

    /// Why the file was refused when it was read last.
    pub(super) fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// The file's name in reports.
    pub(super) fn name(&self) -> String {
        self.file.origin()
    }
}
