//! Reads the agents of a folder, and the tools that they may use.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use callboard::env::Env;
use callboard::messages::visible;
use callboard_agents::tools::{self, Root, ShellExec};
use callboard_agents::{
    BuiltIn, CatalogFile, Defect, Defects, Definition, DefinitionSource, McpProblem, McpServers, Models, Tools,
    files_of_agents,
};
use callboard_knowledge::KnowledgeBase;

use crate::config::{self, Config};
use crate::knowledge::arguments::NAMESPACE;
use crate::page::{Failure, count, shown_path};
use crate::stores::project::state_folder;
use crate::values::open_file;

use super::arguments::{AGENTS, DEFAULT_CATALOG, DEFAULT_CONFIG, DEFAULT_SERVERS, Files, beside, no_folder};
use super::template;

/// The longest definition, in bytes; the rest of a file is not read, so that it has a defect.
const MAX_TEXT: u64 = 1 << 20;

/// A file of models, servers or settings that has defects.
pub(crate) struct Invalid {
    pub(crate) origin: String,
    pub(crate) defects: Defects,
}

impl From<Invalid> for Failure {
    fn from(Invalid { defects, .. }: Invalid) -> Self {
        Self::usage(format!("{}\n\n{defects}", count(defects.list().len(), "defect")))
    }
}

/// The models that agents may use: those of the catalog, or of the environment if there is none.
///
/// # Errors
/// The catalog cannot be read; the inner error is that it has defects.
pub(crate) fn models(files: &Files) -> Result<Result<Models, Invalid>, Failure> {
    Ok(match document(files.models.as_deref(), beside_agents(files, DEFAULT_CATALOG))? {
        None => Ok(Models::from_environment(&Env::system())),
        Some((origin, text)) => read_catalog(&origin, &text).map_err(|defects| Invalid { origin, defects }),
    })
}

/// The same models, as a file that may change during the run.
///
/// # Errors
/// It is no file that may be read.
pub(super) fn catalog(files: &Files) -> Result<CatalogFile, Failure> {
    document(files.models.as_deref(), beside_agents(files, DEFAULT_CATALOG))?;
    Ok(match &files.models {
        Some(named) => CatalogFile::new(named, read_catalog),
        None => CatalogFile::new(files.default_file(DEFAULT_CATALOG), read_catalog)
            .or(&Models::from_environment(&Env::system())),
    })
}

fn read_catalog(origin: &str, text: &str) -> Result<Models, Defects> {
    Models::from_toml(&Env::system(), origin, text)
}

/// The servers whose tools agents may use, with their file; `None` if there is no such file.
fn servers(files: &Files) -> Result<Result<Option<(String, McpServers)>, Invalid>, Failure> {
    let Some((origin, text)) = document(files.mcp.as_deref(), beside_agents(files, DEFAULT_SERVERS))? else {
        return Ok(Ok(None));
    };
    Ok(match McpServers::from_toml(&Env::system(), &origin, &text) {
        Ok(servers) => Ok((!servers.is_empty()).then_some((origin, servers))),
        Err(defects) => Err(Invalid { origin, defects }),
    })
}

/// The file of this name beside the folder of agents, if there is that folder.
fn beside_agents(files: &Files, name: &str) -> Option<PathBuf> {
    (!files.are_missing()).then(|| files.default_file(name))
}

/// The path and the text of the file that was named, or of the default one, if it exists. That one may not lead out of its folder,
/// because errors show lines of it.
///
/// # Errors
/// It is no file that may be read, or no text.
pub(crate) fn document(named: Option<&Path>, default: Option<PathBuf>) -> Result<Option<(String, String)>, Failure> {
    let default = default.filter(|file| !is_absent(file));
    let DefinitionSource { origin, bytes } = match (named, default) {
        (Some(file), _) => source(file)?,
        (None, None) => return Ok(None),
        (None, Some(default)) => {
            let folder = default.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            DefinitionSource::in_folder(folder, &default)
                .map_err(|error| Failure::file(&error, format!("{}: {error}", shown_path(&default))))?
        }
    };
    let text = String::from_utf8(bytes).map_err(|error| {
        Failure::usage(format!("{}: the text is not UTF-8, {error}: save it as UTF-8", visible(&origin)))
    })?;
    Ok(Some((origin, text)))
}

/// Whether there is no file. The confinement of commands of another process puts an empty folder in its place while a command runs.
fn is_absent(file: &Path) -> bool {
    match file.symlink_metadata() {
        Ok(found) => found.is_dir() && file.read_dir().is_ok_and(|mut entries| entries.next().is_none()),
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}

/// The result of reading a folder.
pub(super) struct Read {
    pub(super) sources: Vec<DefinitionSource>,
    pub(super) definitions: Vec<Result<Definition, Defects>>,
    pub(super) tools: Tools,
    /// The folder that these work in.
    pub(super) root: Root,
    /// The file of servers, if there is one. Without it agents that name tools of servers have defects.
    pub(super) mcp: Result<Option<Mcp>, Invalid>,
    /// The settings. Without them agents may seem to ask for more than their roles grant.
    pub(super) config: Result<Config, Invalid>,
}

impl Read {
    /// The names of all agents, also of those whose files have defects, and of those that are built in.
    pub(super) fn names(&self) -> BTreeSet<&str> {
        let of_files = self.definitions.iter().flatten().map(|definition| definition.name.as_str());
        let stems = self.sources.iter().filter_map(|source| Path::new(&source.origin).file_stem()?.to_str());
        of_files.chain(stems).chain(BuiltIn::ALL.map(BuiltIn::name)).collect()
    }
}

/// A file of servers, and the problems of starting them.
pub(super) struct Mcp {
    pub(super) origin: String,
    pub(super) problems: Vec<McpProblem>,
}

/// Reads the agents of a folder, and starts the servers whose tools they may use. Tools may access neither `hidden` nor the stores of
/// other projects; programs of servers are not confined. With a base of facts there are tools for it.
pub(super) async fn read(files: &Files, hidden: Option<&Path>, facts: Option<&KnowledgeBase>) -> Result<Read, Failure> {
    let root = Root::open(&files.root).map_err(|error| Failure::usage(error.to_string()))?;
    let of_all_projects = state_folder().filter(|folder| folder.is_dir());
    let root = hidden.into_iter().chain(of_all_projects.as_deref()).try_fold(root, Root::without);
    let root = root.map_err(|error| Failure::usage(error.to_string()))?;
    let kept = definitions(files);
    let root = kept.iter().try_fold(root, Root::keeping).map_err(|error| Failure::usage(error.to_string()))?;
    let mut shell = ShellExec::new(&root);
    for folder in &files.allow_read {
        shell = shell.reads(readable(folder)?);
    }
    let tools = tools::standard_with_shell(&root, shell);
    let tools = match facts {
        Some(base) => tools.and_then(|tools| callboard_knowledge::tools::add(tools, base, NAMESPACE)),
        None => tools,
    };
    let mut tools = tools.map_err(|error| Failure::usage(error.to_string()))?;
    let sources = match files.are_missing() {
        true => template::sources().into_iter().map(|source| (source, None)).collect(),
        false => sources(files.folder())?,
    };
    let (sources, problems): (Vec<_>, Vec<_>) = sources.into_iter().unzip();
    let config = config::read(files)?;
    let roles = config.as_ref().map(|config| config.roles.clone()).unwrap_or_default();
    // Before servers are started: none is started for agents that are not used.
    let declared = Definition::reader().roles(&roles).all(&sources);
    for program in declared.iter().flatten().filter_map(|definition| definition.process.as_ref()) {
        files.check_paths(|project| program.paths(project, &files.root))?;
    }
    let mcp = match servers(files)? {
        Ok(Some((origin, servers))) => {
            if files.mcp.is_none() {
                files.check_paths(|project| servers.paths(project))?;
            }
            Ok(Some(Mcp { origin, problems: servers.add_to(&mut tools).await }))
        }
        Ok(None) => Ok(None),
        Err(invalid) => Err(invalid),
    };
    let definitions = Definition::reader().tools(&tools).root(&files.root).roles(&roles).all(&sources);
    let or_unread = |((definition, problem), source): (_, &DefinitionSource)| match problem {
        None => definition,
        Some(problem) => Err(Defects::of(&source.origin, None, vec![Defect { problem, advice: None, place: None }])),
    };
    let definitions = definitions.into_iter().zip(problems).zip(&sources).map(or_unread).collect();
    Ok(Read { sources, definitions, tools, root, mcp, config })
}

/// The files that define agents and their permissions, here and at a start without these options: tools may not change them.
fn definitions(files: &Files) -> Vec<PathBuf> {
    let named = [files.models.as_ref(), files.mcp.as_ref()].into_iter().flatten();
    let named = named.chain(files.protected.iter().filter(|file| file.as_os_str() != "-")).cloned();
    let named = named.chain(files.named_config()).chain([files.default_file(DEFAULT_CONFIG)]);
    let folders = [files.folder(), Path::new(AGENTS)].into_iter().chain(files.found.iter().map(|found| &*found.folder));
    let defaults = folders.flat_map(|folder| {
        let beside = [DEFAULT_CATALOG, DEFAULT_SERVERS, DEFAULT_CONFIG].map(|name| beside(folder, name));
        std::iter::once(folder.to_owned()).chain(beside)
    });
    named.chain(defaults).collect()
}

/// The names, roles and capabilities of the agents whose files can be read, whatever tools they name; none if there is no folder.
pub(super) fn names(files: &Files) -> BTreeSet<String> {
    let sources = sources(files.folder()).unwrap_or_default();
    let definitions = read_alone(files, sources.into_iter().map(|(source, _)| source));
    let built_in = BuiltIn::beside(&definitions).map(|agent| agent.name().to_owned());
    let own = definitions.iter().flat_map(|definition| {
        let others = definition.role.iter().chain(&definition.capabilities).map(ToString::to_string);
        std::iter::once(definition.name.to_string()).chain(others)
    });
    if definitions.is_empty() { BTreeSet::new() } else { own.chain(built_in).collect() }
}

/// The agents whose files can be read, whatever tools they name; the starter team if there is no folder.
pub(super) fn definitions_of(files: &Files) -> Vec<Definition> {
    let sources = match files.are_missing() {
        true => template::sources(),
        false => sources(files.folder()).into_iter().flatten().map(|(source, _)| source).collect(),
    };
    read_alone(files, sources.into_iter())
}

fn read_alone(files: &Files, sources: impl Iterator<Item = DefinitionSource>) -> Vec<Definition> {
    let config = config::read(files).ok().and_then(Result::ok).unwrap_or_default();
    let reader = Definition::reader().roles(&config.roles);
    reader.all(&sources.collect::<Vec<_>>()).into_iter().flatten().collect()
}

/// A folder that commands may read. It has to exist: a missing one is probably misspelt.
fn readable(folder: &Path) -> Result<PathBuf, Failure> {
    let cannot = |problem: &str| {
        let shown = visible(&folder.display().to_string());
        format!("--allow-read {shown}: {problem}")
    };
    let place = folder.canonicalize().map_err(|error| Failure::file(&error, cannot(&error.to_string())))?;
    if place.is_dir() { Ok(place) } else { Err(Failure::usage(cannot("it is not a folder"))) }
}

/// The texts of the files, each with an error if it cannot be read.
fn sources(folder: &Path) -> Result<Vec<(DefinitionSource, Option<String>)>, Failure> {
    let files = files_of_agents(folder)
        .map_err(|error| if folder.exists() { Failure::usage(error.to_string()) } else { no_folder(folder) })?;
    if files.is_empty() {
        let shown = visible(&folder.display().to_string());
        return Err(Failure::usage(format!(
            "{shown} has no agents: each is a file *.toml; `callboard init` writes some"
        )));
    }
    let read = |file: &PathBuf| match DefinitionSource::in_folder(folder, file) {
        Ok(source) => (source, None),
        Err(error) => {
            let nothing = DefinitionSource { origin: file.display().to_string(), bytes: Vec::new() };
            (nothing, Some(error.to_string()))
        }
    };
    Ok(files.iter().map(read).collect())
}

fn source(file: &Path) -> Result<DefinitionSource, Failure> {
    let cannot =
        |error: std::io::Error| Failure::file(&error, format!("{}: {error}", visible(&file.display().to_string())));
    let mut bytes = Vec::new();
    open_file(file).and_then(|opened| opened.take(MAX_TEXT + 1).read_to_end(&mut bytes)).map_err(cannot)?;
    Ok(DefinitionSource { origin: file.display().to_string(), bytes })
}
