//! A folder of agents that can be read again while they work.
//!
//! The files are compared with the agents in effect (`compared`), without changing a board: which agents would be new, different,
//! gone or wrong. The file with their models is compared too (`catalog`). A board then does it
//! ([`Reload::reload`](super::Reload::reload)) and reports each file. A file counts as a whole: a defective one changes nothing,
//! and its agent stays as it was.

mod catalog;
mod compared;
mod files;
mod permissions;
mod reports;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callboard::actors::AgentSpec;
use callboard::env::Env;

use super::catalog::Models;
use super::definition::{Definition, ProcessSettings};
use super::llm::LlmAgent;
use super::model::Model;
use super::process;
use super::roles::Roles;
use super::teammate::Teammate;
use super::tool::Tools;

use catalog::Catalog;
pub use catalog::CatalogFile;
pub(crate) use files::Files;
pub use files::{FolderError, files_of_agents};
use permissions::Loaded;
pub use reports::{FileChange, FileReport};

/// Finds the model of an agent; the error is the reason why there is none.
type ModelOf = Arc<dyn Fn(&Definition) -> Result<Arc<dyn Model>, String> + Send + Sync>;

/// Agents that are defined in the files `*.toml` of a folder, with the tools and models that they may have. It knows what it has
/// read, so that it can tell what has changed since.
///
/// ```
/// use callboard::prelude::*;
/// use callboard_agents::{AgentFolder, FakeModel, Reload};
/// use std::sync::Arc;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path();
/// std::fs::write(path.join("poet.toml"), "[agent]\nname = \"poet\"\nsystem_prompt = \"You write poems.\"")?;
/// let mut folder = AgentFolder::new(path).model(Arc::new(FakeModel));
/// let board = folder.load()?.into_iter().fold(Callboard::builder(), |board, agent| board.with(agent)).start().await?;
///
/// std::fs::write(path.join("poet.toml"), "[agent]\nname = \"poet\"\nsystem_prompt = \"You write prose.\"")?;
/// std::fs::write(path.join("critic.toml"), "[agent]\nname = \"critic\"\nsystem_promt = \"You find faults.\"")?;
/// let reports: Vec<String> = board.reload(&mut folder).await?.iter().map(ToString::to_string).collect();
/// assert!(reports[0].starts_with("critic.toml: refused"), "{reports:?}");
/// assert_eq!(reports[1], "poet.toml: changed: later turns of poet use it");
/// # board.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone)]
#[must_use = "a folder is read when it is loaded"]
pub struct AgentFolder {
    path: PathBuf,
    tools: Tools,
    model: ModelOf,
    root: PathBuf,
    roles: Roles,
    programs: Programs,
    permissions: Permissions,
    /// The models, if a file says which there are; `model` is not asked then.
    catalog: Option<Catalog>,
    files: BTreeMap<String, Known>,
    /// The names given to [`AgentFolder::leaving`]: the folder neither makes, replaces nor stops these agents.
    left: BTreeSet<String>,
}

/// The programs that its files may declare.
#[derive(Clone, Debug, Default)]
enum Programs {
    /// Any program: [`AgentFolder::keep_programs`] was not called.
    #[default]
    Any,
    /// The programs that were declared when it was loaded; `None` until then.
    AsLoaded(Option<Vec<Arc<ProcessSettings>>>),
}

/// The permissions that its files may grant.
#[derive(Clone, Debug, Default)]
enum Permissions {
    /// Whatever the files contain: [`AgentFolder::keep_permissions`] was not called.
    #[default]
    Any,
    /// The permissions when it was loaded; `None` until then.
    AsLoaded(Option<Arc<Loaded>>),
}

impl Permissions {
    fn loaded(&self) -> Option<&Loaded> {
        match self {
            Self::Any | Self::AsLoaded(None) => None,
            Self::AsLoaded(Some(loaded)) => Some(loaded),
        }
    }
}

impl Programs {
    /// Whether a file may declare it now.
    fn have(&self, settings: &Arc<ProcessSettings>) -> bool {
        match self {
            Self::Any | Self::AsLoaded(None) => true,
            Self::AsLoaded(Some(loaded)) => loaded.contains(settings),
        }
    }
}

/// The state of a file.
#[derive(Clone, Debug, Default)]
struct Known {
    /// The reason why the file was refused when it was last read; `None` if it was accepted.
    refusal: Option<String>,
    /// The agent of the file when it was last accepted; `None` if it never was.
    agent: Option<AcceptedAgent>,
}

/// An agent, and the other agents that it knows.
#[derive(Clone, Debug, PartialEq)]
struct AcceptedAgent {
    definition: Definition,
    team: Vec<Teammate>,
    /// The generation of the catalog from which it chose its model.
    models: u64,
}

impl AgentFolder {
    /// Creates a folder without tools and models. No file is read before [`AgentFolder::load`] or
    /// [`AgentFolder::load_valid`].
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self {
            path: path.as_ref().to_owned(),
            tools: Tools::new(),
            model: Arc::new(|_| Err("there are no models; say `models`, `catalog`, `model` or `model_of`".to_owned())),
            root: PathBuf::from("."),
            roles: Roles::default(),
            programs: Programs::Any,
            permissions: Permissions::Any,
            catalog: None,
            files: BTreeMap::new(),
            left: BTreeSet::new(),
        }
    }

    /// Sets the tools that there are. Each agent has those that its definition lets it have.
    pub fn tools(mut self, tools: &Tools) -> Self {
        self.tools = tools.clone();
        self
    }

    /// Sets the folder that programs start in which are agents, and to which their paths are relative (the current
    /// one).
    pub fn root(mut self, folder: impl Into<PathBuf>) -> Self {
        self.root = folder.into();
        self
    }

    /// Sets the roles that agents may have (those that are built in), each with what it grants.
    pub fn roles(mut self, roles: &Roles) -> Self {
        self.roles = roles.clone();
        self
    }

    /// Takes no other programs than those that its files declare when it is loaded: a file that declares another one later is not
    /// taken. It is for folders that tools of agents can write in, because a program is not confined as they are. All else may
    /// change.
    pub fn keep_programs(mut self) -> Self {
        self.programs = Programs::AsLoaded(None);
        self
    }

    /// Takes no change that permits an agent more than when the folder was loaded: tools, effects or namespaces that it did not
    /// have, a mode with more of them, uses of tools that people are no longer asked about, `idempotent` for more tools, higher or no
    /// limits of tokens and money, or an `on_unknown` that leaves more to it; nor a model that is asked at another address, of another provider or with the key of another variable. A new agent may
    /// have what some agent had; where there was none, none may come. It is for folders that tools of agents can write in. All else may change.
    ///
    /// ```
    /// use callboard::prelude::*;
    /// use callboard_agents::{AgentFolder, FakeModel, Reload};
    /// use std::sync::Arc;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path();
    /// std::fs::write(path.join("poet.toml"), "[agent]\nname = \"poet\"\n[agent.capabilities]\nallowed_tools = []")?;
    /// let mut folder = AgentFolder::new(path).model(Arc::new(FakeModel)).keep_permissions();
    /// let board = folder.load()?.into_iter().fold(Callboard::builder(), |board, agent| board.with(agent)).start().await?;
    ///
    /// std::fs::write(path.join("poet.toml"), "[agent]\nname = \"poet\"")?;
    /// let reports = board.reload(&mut folder).await?;
    /// assert!(reports[0].refusal().unwrap().contains("all tools"));
    /// # board.shutdown().await;
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    pub fn keep_permissions(mut self) -> Self {
        self.permissions = Permissions::AsLoaded(None);
        self
    }

    /// Sets the models that each agent's [`Definition::model`] chooses among. They replace models, and a catalog file,
    /// that were set before.
    pub fn models(self, models: &Models) -> Self {
        let models = models.clone();
        self.model_of(move |definition| match models.chosen(&definition.model) {
            Ok(chosen) => Ok(Arc::new(chosen)),
            Err(error) => Err(error.to_string()),
        })
    }

    /// Sets the file that lists the models that agents choose among. A reload reads it again together with the files of
    /// the agents.
    pub fn catalog(self, file: CatalogFile) -> Self {
        Self { catalog: Some(Catalog::new(file)), ..self }
    }

    /// Sets one model for all agents, whatever their files say.
    pub fn model(self, model: Arc<dyn Model>) -> Self {
        self.model_of(move |_| Ok(Arc::clone(&model)))
    }

    /// Sets the function that finds the model of an agent, or returns why there is none.
    pub fn model_of(
        mut self,
        model: impl Fn(&Definition) -> Result<Arc<dyn Model>, String> + Send + Sync + 'static,
    ) -> Self {
        (self.model, self.catalog) = (Arc::new(model), None);
        self
    }

    /// Leaves agents of these names to others that have them on the board: their files are read and checked, and the agents of the
    /// folder know of them, but they are neither made nor replaced nor stopped.
    pub fn leaving<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.left.extend(names.into_iter().map(str::to_owned));
        self
    }

    /// Returns the path of the folder, as it was given.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the file that lists the models, if [`AgentFolder::catalog`] has set one.
    #[must_use]
    pub fn catalog_path(&self) -> Option<&Path> {
        self.catalog.as_ref().map(|catalog| catalog.file.path())
    }

    /// Returns the models of the file that [`AgentFolder::catalog`] has set, as it was when it was last taken.
    #[must_use]
    pub fn current_models(&self) -> Option<&Models> {
        Some(&self.catalog.as_ref()?.current()?.models)
    }

    /// Reads all files for a board that has yet to start.
    ///
    /// # Errors
    /// The folder or a file cannot be read, or something is wrong with any of them: all of it.
    pub fn load(&mut self) -> Result<Vec<AgentSpec>, FolderError> {
        self.load_if(|wrong| wrong.is_empty()).map(|(specs, _)| specs)
    }

    /// As [`AgentFolder::load`], without the agents of files with which something is wrong: the reports of those files are
    /// returned beside the others. Later reloads take them once they are right.
    ///
    /// ```
    /// use callboard_agents::{AgentFolder, FakeModel};
    /// use std::sync::Arc;
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path();
    /// std::fs::write(path.join("poet.toml"), "[agent]\nname = \"poet\"\nsystem_prompt = \"You write poems.\"")?;
    /// std::fs::write(path.join("critic.toml"), "[agent]\nname = \"critic\"\nsystem_promt = \"You find faults.\"")?;
    /// let (agents, refused) = AgentFolder::new(path).model(Arc::new(FakeModel)).load_valid()?;
    /// assert_eq!(agents.len(), 1);
    /// assert!(refused[0].refusal().unwrap().starts_with("critic.toml:3:1: an agent has no key \"system_promt\""));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The folder cannot be read, or something is wrong with the file of the models: no agent has one then.
    pub fn load_valid(&mut self) -> Result<(Vec<AgentSpec>, Vec<FileReport>), FolderError> {
        self.load_if(|_| true)
    }

    /// Returns the files that are not in effect as they are now, by their names in reports, each with the reason: it has a defect, or
    /// what it changes was refused.
    pub fn refused_files(&self) -> BTreeMap<String, String> {
        let catalog = self.catalog.iter().filter_map(|catalog| Some((catalog.name(), catalog.refusal()?.to_owned())));
        let files = self.files.iter().filter_map(|(file, known)| Some((file.clone(), known.refusal.clone()?)));
        catalog.chain(files).collect()
    }

    /// Returns the agents of the folder as they are in effect: the file of each by its name in reports, what it is, and the agents, roles and
    /// capabilities that its model knows of.
    pub fn agents(&self) -> impl Iterator<Item = (&str, &Definition, impl Iterator<Item = &str>)> {
        self.files.iter().filter_map(|(file, known)| {
            let AcceptedAgent { definition, team, .. } = known.agent.as_ref()?;
            Some((&**file, definition, team.iter().map(|teammate| &*teammate.name)))
        })
    }

    /// Returns what the agents of the folder are for, in the words of their files, by their names.
    pub fn descriptions(&self) -> BTreeMap<String, String> {
        let agents = self.files.values().filter_map(|known| Some(&known.agent.as_ref()?.definition));
        agents.map(|agent| (agent.name.to_string(), agent.description.clone())).collect()
    }

    /// Loads the folder if `permits` accepts these reports of defective files.
    fn load_if(
        &mut self,
        permits: impl FnOnce(&[FileReport]) -> bool,
    ) -> Result<(Vec<AgentSpec>, Vec<FileReport>), FolderError> {
        let read = Files::read(&self.path, self.catalog_path())?;
        let before = std::mem::take(&mut self.files);
        if let Permissions::AsLoaded(loaded) = &mut self.permissions {
            *loaded = None;
        }
        let mut changes = self.compare(&read);
        let mut wrong: Vec<FileReport> =
            changes.reports.iter().filter(|report| report.refusal().is_some()).cloned().collect();
        let lacks_models = self.catalog.is_some() && changes.lacks_models();
        if lacks_models {
            // Later defects may only follow from the first: agents miss what it leaves out.
            wrong.truncate(1);
        }
        if lacks_models || !permits(&wrong) {
            self.files = before;
            let defects = wrong.iter().filter_map(FileReport::refusal).map(str::to_owned).collect();
            return Err(FolderError::Wrong { defects });
        }
        let specs = std::mem::take(&mut changes.put).into_iter().map(|put| put.spec).collect();
        self.take(changes);
        if let Programs::AsLoaded(loaded) = &mut self.programs {
            let accepted = self.files.values().filter_map(|known| known.agent.as_ref());
            *loaded = Some(accepted.filter_map(|agent| agent.definition.process.clone()).collect());
        }
        if matches!(self.permissions, Permissions::AsLoaded(_)) {
            // Also those that are left out, as for want of a model: they were there.
            let agents = self.definitions(&read).filter_map(Result::ok).collect();
            let models = self.catalog.as_ref().and_then(Catalog::current).map(|current| current.models.clone());
            self.permissions = Permissions::AsLoaded(Some(Arc::new(Loaded { agents, models })));
        }
        Ok((specs, wrong))
    }

    /// Reads all files of the folder, on a blocking thread if there are threads.
    pub(crate) async fn read(&self) -> Result<Files, FolderError> {
        let (path, catalog) = (self.path.clone(), self.catalog_path().map(Path::to_owned));
        if !Env::can_start_thread() {
            return Files::read(&path, catalog.as_deref());
        }
        let read = tokio::task::spawn_blocking(move || Files::read(&path, catalog.as_deref())).await;
        read.unwrap_or_else(|error| {
            let folder = self.path.display().to_string();
            Err(FolderError::Unreadable { folder, error: error.to_string() })
        })
    }

    /// Whether an agent of this name is in effect for one of its files.
    pub(crate) fn has_agent(&self, name: &str) -> bool {
        self.files.values().filter_map(|known| known.agent.as_ref()).any(|agent| agent.definition.name.as_str() == name)
    }

    /// The agent, with its model of the catalog, if there is one.
    fn agent(&self, wanted: &AcceptedAgent, catalog: Option<&Catalog>) -> Result<AgentSpec, String> {
        let AcceptedAgent { definition, team, .. } = wanted;
        if definition.process.is_some() {
            return process::spec(definition, &self.root).map_err(|error| error.to_string());
        }
        let model = match catalog {
            Some(catalog) => catalog.model(definition)?,
            None => (self.model)(definition)?,
        };
        let agent = LlmAgent::new(definition, model, &self.tools, team).map_err(|error| error.to_string())?;
        Ok(agent.spec())
    }
}

impl fmt::Debug for AgentFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentFolder").field("path", &self.path).field("files", &self.files).finish_non_exhaustive()
    }
}
