//! The agents of a folder with their models, ready for a board.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use callboard::AgentSpec;
use callboard::env::Env;
use callboard::messages::visible;
use callboard_agents::{
    AgentFolder, BuiltIn, Definition, DefinitionSource, FakeModel, LlmAgent, McpProblem, Model, ModelChoice, Models,
    Teammate, Tools,
};

use crate::page::{Failure, note};

use super::arguments::Files;
use super::invalid::BrokenAgents;
use super::read::{self, Read};
use super::watch::Watch;
use crate::quote::{quoted, quoted_path};
use crate::usage::similar;

/// The model that does not think.
pub(super) const FAKE: &str = "fake";

/// Agents that think.
pub(crate) struct Thinkers {
    pub(crate) specs: Vec<AgentSpec>,
    /// Has them be as their files say.
    pub(crate) watch: Watch,
    /// What they can be asked for by: names, roles and capabilities.
    pub(crate) names: BTreeSet<String>,
    /// The names of those of the folder.
    pub(crate) own: Vec<String>,
    /// Those of the folder that are left out.
    pub(crate) broken: BrokenAgents,
}

/// Whether an agent that thinks may run commands.
pub(super) fn has_shell(definition: &Definition) -> bool {
    let tools = definition.allowed_tools.as_ref();
    definition.process.is_none() && tools.is_none_or(|tools| tools.iter().any(|tool| &**tool == "ShellExec"))
}

/// Reads a folder of agents. `hidden` is what no tool may see, `named` the model that all ask. Others stand for agents with a name
/// of `left`.
pub(crate) async fn load(
    files: &Files,
    hidden: Option<&Path>,
    named: Option<&str>,
    left: &[&str],
) -> Result<Thinkers, Failure> {
    let Read { sources, definitions: read, tools, mcp } = read::read(files, hidden).await?;
    if let Some(named) = named {
        check_named(files, named)?;
    }
    let problems: Vec<McpProblem> = mcp.into_iter().flat_map(|mcp| mcp.problems).collect();
    for problem in &problems {
        note(&format!("warning: {problem}"));
    }
    let folder = AgentFolder::new(&files.agents).tools(&tools).root(&files.root).leaving(left.iter().copied());
    // Whoever may write the files: what they permit is what a person has looked at before the start.
    let folder = folder.keep_permissions();
    let asked = named.map(str::to_owned);
    let mut folder = match named {
        // The one that needs no others.
        Some(FAKE) => folder.model(Arc::new(FakeModel)),
        Some(_) | None => folder.catalog(
            read::catalog(files).choosing(move |models, definition| model(models, definition, asked.as_deref())),
        ),
    };
    if lies_in(&files.agents, &files.root) {
        // What tools write there must not become a program that runs unconfined.
        folder = folder.keep_programs();
    }
    let (mut specs, refused) = folder.load_valid().map_err(|error| Failure::trouble(error.to_string()))?;
    let broken = BrokenAgents::of(&sources, &read, &refused, &problems);
    let is_refused =
        |source: &DefinitionSource| refused.iter().any(|report| Path::new(&source.origin).ends_with(&report.file));
    let valid = sources.iter().zip(read).filter(|(source, _)| !is_refused(source));
    let definitions: Vec<Definition> = valid.filter_map(|(_, definition)| definition.ok()).collect();
    if definitions.is_empty() {
        return Err(broken.failure());
    }
    broken.warnings().iter().for_each(|warning| note(warning));
    if let Some(store) = hidden.filter(|hidden| lies_in(hidden, &files.root))
        && definitions.iter().any(has_shell)
    {
        let elsewhere = Path::new("..").join(store.file_name().unwrap_or_default());
        note(&format!(
            "the store {} lies in the folder of the tools: commands of ShellExec can make no files beside it; name a store \
             elsewhere, as in --store {}",
            visible(&quoted_path(store)),
            visible(&quoted_path(&elsewhere))
        ));
    }
    let left = left.iter().map(|name| (*name).to_owned()).collect();
    let built_in = BuiltIns::of(definitions, tools, named, left, &folder);
    let definitions = &built_in.definitions;
    let names = definitions.iter().flat_map(|definition| {
        let others = definition.role.iter().chain(&definition.capabilities).map(ToString::to_string);
        std::iter::once(definition.name.to_string()).chain(others)
    });
    let names = names.chain(built_in.all().map(|agent| agent.name().to_owned())).collect();
    let own = definitions.iter().map(|definition| definition.name.to_string()).collect();
    specs.extend(built_in.specs(&folder).map_err(Failure::trouble)?);
    Ok(Thinkers { names, own, specs, broken, watch: Watch::new(folder, built_in) })
}

/// Refuses a `--model` that there is none of: no file of an agent is to blame for it.
fn check_named(files: &Files, named: &str) -> Result<(), Failure> {
    if named == FAKE {
        return Ok(());
    }
    // What is wrong with the file of models is reported where it is read for the agents.
    let Ok(models) = read::models(files) else { return Ok(()) };
    models.candidates(&ModelChoice::of(named)).map(drop).map_err(|error| {
        let tip = similar(named, [FAKE]).map(|name| format!("\n\n  tip: a similar value exists: '{name}'"));
        Failure::trouble(format!("--model {}: {error}{}", visible(&quoted(named)), tip.unwrap_or_default()))
    })
}

fn lies_in(folder: &Path, root: &Path) -> bool {
    folder.canonicalize().ok().zip(root.canonicalize().ok()).is_some_and(|(folder, root)| folder.starts_with(root))
}

/// The agents that come with the library, but for those whose names others had when the folder was loaded; none where all of its
/// agents were programs and there was no model.
pub(super) struct BuiltIns {
    definitions: Vec<Definition>,
    tools: Tools,
    /// The model that all ask.
    named: Option<String>,
    /// The names of those that others stand for.
    left: BTreeSet<String>,
    are_idle: bool,
}

impl BuiltIns {
    fn of(
        definitions: Vec<Definition>,
        tools: Tools,
        named: Option<&str>,
        left: BTreeSet<String>,
        folder: &AgentFolder,
    ) -> Self {
        // Programs need no model, so there may be none to think with.
        let nobody_thinks = definitions.iter().all(|definition| definition.process.is_some());
        let has_model = |models: &Models| model(models, &BuiltIn::Summarizer.definition(), None).is_ok();
        let are_idle = named.is_none() && nobody_thinks && !folder.current_models().is_some_and(has_model);
        Self { definitions, tools, named: named.map(str::to_owned), left, are_idle }
    }

    fn all(&self) -> impl Iterator<Item = BuiltIn> {
        let beside = BuiltIn::beside(&self.definitions).filter(|_| !self.are_idle);
        beside.filter(|agent| !self.left.contains(agent.name()))
    }

    /// These agents, with the models that the folder's agents have now.
    ///
    /// # Errors
    /// One has none.
    pub(super) fn specs(&self, folder: &AgentFolder) -> Result<Vec<AgentSpec>, String> {
        let none = Models::new(&Env::system());
        let models = folder.current_models().unwrap_or(&none);
        self.all().map(|agent| self.spec(agent, models)).collect()
    }

    fn spec(&self, agent: BuiltIn, models: &Models) -> Result<AgentSpec, String> {
        let (definition, named) = (agent.definition(), self.named.as_deref());
        // Where no model is the usual one, that of the first agent serves that thinks.
        let usual = model(models, &definition, named);
        let first = self.definitions.iter().find(|definition| definition.process.is_none());
        let model = usual.or_else(|error| first.map_or(Err(error), |first| model(models, first, named)))?;
        let team: Vec<Teammate> = self.definitions.iter().map(teammate).collect();
        let agent = LlmAgent::new(&definition, model, &self.tools, &team).map_err(|error| error.to_string())?;
        Ok(agent.spec())
    }
}

fn teammate(definition: &Definition) -> Teammate {
    Teammate { name: definition.name.to_string(), description: definition.description.clone() }
}

/// The model that an agent asks.
fn model(models: &Models, definition: &Definition, named: Option<&str>) -> Result<Arc<dyn Model>, String> {
    let choice = named.map_or_else(|| definition.model.clone(), ModelChoice::of);
    if choice.preferred.as_deref() == Some(FAKE) {
        return Ok(Arc::new(FakeModel));
    }
    let chosen = models.chosen(&choice).map_err(|error| error.to_string())?;
    Ok(Arc::new(chosen))
}
