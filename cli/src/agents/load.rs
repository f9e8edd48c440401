//! Loads the agents of a folder with their models, for a board.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use callboard::actors::BoardShare;
use callboard::env::Env;
use callboard::messages::visible;
use callboard::{AgentSpec, Builder};
use callboard_agents::tools::Root;
use callboard_agents::{
    AgentFolder, Defects, Definition, DefinitionSource, FakeModel, McpProblem, ModelChoice, ModelEntry, Models,
};
use callboard_documents::Defect;
use callboard_knowledge::KnowledgeBase;
use callboard_server::AgentFiles;

use crate::page::{Failure, note};

use super::arguments::Files;
use super::built_in::{BuiltIns, FAKE, model};
use super::hints;
use super::invalid::InvalidAgents;
use super::read::{self, Read};
use super::starter;
use super::watch::Watch;
use crate::quote::{quoted, quoted_path};
use crate::values::similar;

/// The agents of a folder, and the built-in ones, for a board.
pub(crate) struct LoadedAgents {
    pub(crate) specs: Vec<AgentSpec>,
    /// Reloads them when their files change; `None` if they have none.
    pub(crate) watch: Option<Watch>,
    /// The names, roles and capabilities that tasks can be addressed to.
    pub(crate) names: BTreeSet<String>,
    /// The names of the folder's agents.
    pub(crate) own: Vec<String>,
    /// The folder's agents that are left out.
    pub(crate) invalid: InvalidAgents,
    /// The agents with a model whose price is not known, and these models.
    pub(crate) unpriced: Vec<(String, String)>,
    /// A line for each thing that models of agents lack, such as a key.
    pub(crate) lacking: Vec<String>,
    /// The models, as they are when the agents are loaded.
    pub(crate) models: Option<Models>,
    /// Where they are from when they are loaded, and what they are for.
    pub(crate) files: AgentFiles,
    /// The folder that their tools work in.
    pub(crate) root: Root,
}

/// Whether an agent with a model may run commands.
pub(super) fn has_shell(definition: &Definition) -> bool {
    let tools = definition.allowed_tools.as_ref();
    definition.process.is_none() && tools.is_none_or(|tools| tools.iter().any(|tool| &**tool == "ShellExec"))
}

/// A line about which agents are used, if they are not those of the current folder.
///
/// # Errors
/// Another user may have changed the project.
pub(crate) fn remark(files: &Files) -> Result<Option<String>, Failure> {
    if files.are_missing() { Ok(Some(starter::REMARK.to_owned())) } else { files.remark() }
}

/// Reads a folder of agents. `hidden` is the folder of the stores, which no tool may access; `facts` the base that tools use; `named` the model that all use; agents
/// with a name in `left` are left out, because others have these names.
pub(crate) async fn load(
    files: &Files,
    hidden: Option<&Path>,
    facts: Option<&KnowledgeBase>,
    named: Option<&str>,
    left: &[&str],
) -> Result<LoadedAgents, Failure> {
    let all = read::read(files, hidden, facts).await?;
    let names: BTreeSet<String> = all.names().into_iter().map(str::to_owned).collect();
    let Read { sources, definitions: read, tools, root, mcp, config } = all;
    let config = config?;
    if let Some(named) = named {
        check_named(files, named)?;
    }
    let problems: Vec<McpProblem> = mcp?.into_iter().flat_map(|mcp| mcp.problems).collect();
    for problem in &problems {
        note(&format!("warning: {problem}"));
    }
    if let Err(invalid) = config.check_names(&tools, problems.is_empty(), &names, None) {
        note(&format!("warning: {}", invalid.defects));
    }
    let roles = config.roles;
    if files.are_missing() {
        return starter::load(files, (read, tools, root), named);
    }
    let folder = AgentFolder::new(files.folder()).tools(&tools).root(&files.root).leaving(left.iter().copied());
    let folder = folder.roles(&roles);
    // Files that change during the run cannot extend permissions: a person has reviewed those of the start.
    let folder = folder.keep_permissions();
    let asked = named.map(str::to_owned);
    let mut folder = match named {
        // It needs no catalog.
        Some(FAKE) => folder.model(Arc::new(FakeModel)),
        Some(_) | None => folder.catalog(
            read::catalog(files)?.choosing(move |models, definition| model(models, definition, asked.as_deref())),
        ),
    };
    if lies_in(files.folder(), &files.root) {
        // A definition that a tool writes there must not declare a program, which would run unconfined.
        folder = folder.keep_programs();
    }
    let (mut specs, refused) = folder.load_valid().map_err(|error| Failure::usage(error.to_string()))?;
    let invalid = InvalidAgents::of(&sources, &read, &refused, &problems);
    let is_refused =
        |source: &DefinitionSource| refused.iter().any(|report| Path::new(&source.origin).ends_with(&report.file));
    let valid = sources.iter().zip(read).filter(|(source, _)| !is_refused(source));
    let definitions: Vec<Definition> = valid.filter_map(|(_, definition)| definition.ok()).collect();
    if definitions.is_empty() {
        return Err(invalid.failure());
    }
    invalid.warnings(&hints::check(files)).iter().for_each(|warning| note(warning));
    if let Some(store) = hidden.filter(|hidden| lies_in(hidden, &files.root))
        && definitions.iter().any(has_shell)
    {
        let elsewhere = Path::new("..").join(store.file_name().unwrap_or_default());
        note(&format!(
            "the store {} is in the folder of the tools, so commands of ShellExec cannot create files beside it; name a store \
             elsewhere, as in --store {}",
            visible(&quoted_path(store)),
            visible(&quoted_path(&elsewhere))
        ));
    }
    let with_own_limit = sources.iter().filter(|source| !is_refused(source));
    check_own_limits(with_own_limit, folder.current_models(), named)?;
    let unpriced = unpriced(&definitions, folder.current_models(), named);
    let lacking = lacking(&definitions, folder.current_models(), named);
    let left = left.iter().map(|name| (*name).to_owned()).collect();
    let built_in = BuiltIns::of(definitions, tools, named, left, folder.current_models());
    let own = built_in.definitions.iter().map(|definition| definition.name.to_string()).collect();
    specs.extend(built_in.specs(folder.current_models()).map_err(Failure::usage)?);
    let (names, models) = (names_of(&built_in), known_models(folder.current_models(), named));
    let watch = Watch::new(folder, built_in);
    let files = watch.files();
    Ok(LoadedAgents { names, own, specs, invalid, unpriced, lacking, models, watch: Some(watch), files, root })
}

/// Has the board and its models share the rates of these with the other boards on its store.
pub(crate) fn share_rates(builder: Builder, models: Option<&Models>) -> Builder {
    let Some(models) = models else { return builder };
    let share = BoardShare::new(&Env::system());
    models.share_rates(&share);
    builder.board_share(&share)
}

/// The models whose providers are known.
pub(super) fn known_models(models: Option<&Models>, named: Option<&str>) -> Option<Models> {
    match named {
        Some(FAKE) => Models::of(&Env::system(), [ModelEntry::of(FakeModel)]).ok(),
        Some(_) | None => models.cloned(),
    }
}

/// The agents with a model whose price is not known, and these models.
pub(super) fn unpriced(
    definitions: &[Definition],
    models: Option<&Models>,
    named: Option<&str>,
) -> Vec<(String, String)> {
    let of_agent = |definition: &Definition| {
        let model = unpriced_model(definition, models?, named)?;
        Some((definition.name.to_string(), model))
    };
    definitions.iter().filter_map(of_agent).collect()
}

/// A line for each thing that models of agents lack, with these agents.
pub(super) fn lacking(definitions: &[Definition], models: Option<&Models>, named: Option<&str>) -> Vec<String> {
    let mut lacking: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for definition in definitions.iter().filter(|definition| definition.process.is_none()) {
        let chosen = models.and_then(|models| model(models, definition, named).ok());
        if let Some(what) = chosen.and_then(|model| model.lacks()) {
            lacking.entry(what).or_default().push(definition.name.as_str());
        }
    }
    let line = |(what, agents): (String, Vec<&str>)| {
        format!("warning: {what}; without it these agents cannot work: {}", agents.join(", "))
    };
    lacking.into_iter().map(line).collect()
}

/// # Errors
/// A file limits the money of its agent, and the price of the agent's model is not known.
fn check_own_limits<'s>(
    sources: impl Iterator<Item = &'s DefinitionSource>,
    models: Option<&Models>,
    named: Option<&str>,
) -> Result<(), Failure> {
    let Some(models) = models else { return Ok(()) };
    for source in sources {
        let definitions = Definition::reader().all(std::slice::from_ref(source));
        let unpriced =
            definitions.iter().flatten().find_map(|definition| of_unpriced(models, definition, source, named));
        if let Some(defects) = unpriced {
            return Err(Failure::usage(format!("1 defect\n\n{defects}")));
        }
    }
    Ok(())
}

/// The defect of an agent whose money is limited, and whose model has no known price.
pub(super) fn of_unpriced(
    models: &Models,
    definition: &Definition,
    source: &DefinitionSource,
    named: Option<&str>,
) -> Option<Defects> {
    let of_run = definition.cost_per_run.map(|_| ("cost_per_run", "tokens_per_run"));
    let of_day = definition.per_day.cost.map(|_| ("cost_per_day", "tokens_per_day"));
    let (key, instead) = of_day.or(of_run)?;
    let model = unpriced_model(definition, models, named)?;
    let text = String::from_utf8_lossy(&source.bytes);
    let from = text.find("[agent.limits]").unwrap_or_default();
    let place = text[from..].find(key).map(|start| from + start..from + start + key.len());
    let problem = format!("money is limited, and the price of the model {model} is not known");
    let advice = format!("give it `prices` in models.toml, or limit {instead} instead");
    let defect = Defect::new(&place, problem).advise(advice);
    Some(Defects::of(&source.origin, Some(&text), vec![defect]))
}

/// The model of an agent, if its price is not known.
fn unpriced_model(definition: &Definition, models: &Models, named: Option<&str>) -> Option<String> {
    if definition.process.is_some() || named == Some(FAKE) {
        return None;
    }
    let model = model(models, definition, named).ok()?;
    model.prices().is_none().then(|| model.name().to_owned())
}

/// The names, roles and capabilities of the agents of a folder, and the names of the built-in agents beside them.
pub(super) fn names_of(built_in: &BuiltIns) -> BTreeSet<String> {
    let names = built_in.definitions.iter().flat_map(|definition| {
        let others = definition.role.iter().chain(&definition.capabilities).map(ToString::to_string);
        std::iter::once(definition.name.to_string()).chain(others)
    });
    names.chain(built_in.names()).collect()
}

/// Refuses a `--model` that does not exist, with an error about the option and not about the files of agents.
pub(super) fn check_named(files: &Files, named: &str) -> Result<(), Failure> {
    if named == FAKE {
        return Ok(());
    }
    // Defects in the file of models are reported where it is read for the agents.
    let Ok(Ok(models)) = read::models(files) else { return Ok(()) };
    models.candidates(&ModelChoice::of(named)).map(drop).map_err(|error| {
        let tip = similar(named, [FAKE]).map(|name| format!("\n\n  tip: a similar value exists: '{name}'"));
        Failure::usage(format!("--model {}: {error}{}", visible(&quoted(named)), tip.unwrap_or_default()))
    })
}

fn lies_in(folder: &Path, root: &Path) -> bool {
    folder.canonicalize().ok().zip(root.canonicalize().ok()).is_some_and(|(folder, root)| folder.starts_with(root))
}
