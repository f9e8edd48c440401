//! The agents of a folder with their models, ready for a board.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use callboard::AgentSpec;
use callboard::agents::{
    AgentFolder, BuiltIn, Defects, Definition, FakeModel, LlmAgent, Model, ModelChoice, Models, Teammate, Tools,
};
use callboard::env::Env;
use callboard::messages::visible;

use crate::page::{Failure, count, note};

use super::arguments::Files;
use super::reading::{self, Read};

/// The model that does not think.
pub(super) const FAKE: &str = "fake";

/// Agents that think, and the folder that they come from.
pub(crate) struct Thinkers {
    pub(crate) specs: Vec<AgentSpec>,
    pub(crate) folder: AgentFolder,
    /// What they can be asked for by: names, roles and capabilities.
    pub(crate) names: BTreeSet<String>,
    /// The names of those of the folder.
    pub(crate) own: Vec<String>,
}

/// Reads a folder of agents. `hidden` is what no tool may see, `named` the model that all ask.
pub(crate) async fn load(files: &Files, hidden: Option<&Path>, named: Option<&str>) -> Result<Thinkers, Failure> {
    let Read { definitions, tools, mcp, .. } = reading::read(files, hidden).await?;
    if let Some(store) = hidden.filter(|hidden| lies_in(hidden, &files.root)) {
        let store = visible(&store.display().to_string());
        note(&format!(
            "the store {store} lies in the folder of the tools: commands of ShellExec can make no files beside it; a store \
             elsewhere, as in --store ../{}, is in nobody's way",
            Path::new(&store).file_name().unwrap_or_default().display()
        ));
    }
    for problem in mcp.iter().flat_map(|mcp| &mcp.problems) {
        note(&problem.to_string());
    }
    let definitions = sound(definitions)?;
    let models = match named {
        // The one that needs no others.
        Some(FAKE) => Models::new(&Env::system()),
        Some(_) | None => reading::models(files)?,
    };
    let built_in = built_in(&definitions, &models, &tools, named)?;
    let named = named.map(str::to_owned);
    let mut folder = AgentFolder::new(&files.agents)
        .tools(&tools)
        .root(&files.root)
        .model_of(move |definition| model(&models, definition, named.as_deref()));
    if lies_in(&files.agents, &files.root) {
        // What tools write there must not become a program that runs unconfined.
        folder = folder.keep_programs();
    }
    let mut specs = folder.load().map_err(|error| Failure::trouble(error.to_string()))?;
    let names = definitions.iter().flat_map(|definition| {
        let others = definition.role.iter().chain(&definition.capabilities).map(ToString::to_string);
        std::iter::once(definition.name.to_string()).chain(others)
    });
    let names = names.chain(built_in.iter().map(|(name, _)| name.to_string())).collect();
    let own = definitions.iter().map(|definition| definition.name.to_string()).collect();
    specs.extend(built_in.into_iter().map(|(_, spec)| spec));
    Ok(Thinkers { names, own, specs, folder })
}

fn lies_in(folder: &Path, root: &Path) -> bool {
    folder.canonicalize().ok().zip(root.canonicalize().ok()).is_some_and(|(folder, root)| folder.starts_with(root))
}

/// The agents that come with the library, but for those whose names agents of the folder have; none where all agents are programs
/// and there is no model.
fn built_in(
    definitions: &[Definition],
    models: &Models,
    tools: &Tools,
    named: Option<&str>,
) -> Result<Vec<(&'static str, AgentSpec)>, Failure> {
    let trouble = |error: &dyn std::fmt::Display| Failure::trouble(error.to_string());
    let made = |built_in: BuiltIn| {
        let definition = built_in.definition();
        // Where no model is the usual one, that of the first agent serves that thinks.
        let usual = model(models, &definition, named);
        let first = definitions.iter().find(|definition| definition.process.is_none());
        let model = usual.or_else(|error| first.map_or(Err(error), |first| model(models, first, named)));
        let team: Vec<Teammate> = definitions.iter().map(teammate).collect();
        let agent = LlmAgent::new(&definition, model.map_err(|error| trouble(&error))?, tools, &team);
        Ok((built_in.name(), agent.map_err(|error| trouble(&error))?.spec()))
    };
    // Programs need no model, so there may be none to think with.
    let nobody_thinks = definitions.iter().all(|definition| definition.process.is_some());
    let is_idle = named.is_none() && nobody_thinks && model(models, &BuiltIn::Summarizer.definition(), None).is_err();
    BuiltIn::beside(definitions).filter(|_| !is_idle).map(made).collect()
}

fn teammate(definition: &Definition) -> Teammate {
    Teammate { name: definition.name.to_string(), description: definition.description.clone() }
}

/// The definitions, if nothing is wrong with any.
fn sound(read: Vec<Result<Definition, Defects>>) -> Result<Vec<Definition>, Failure> {
    let (mut sound, mut wrong, mut defects) = (Vec::new(), Vec::new(), 0);
    for definition in read {
        match definition {
            Ok(definition) => sound.push(definition),
            Err(found) => {
                defects += found.list().len();
                wrong.push(found.to_string());
            }
        }
    }
    if wrong.is_empty() {
        return Ok(sound);
    }
    Err(Failure::trouble(format!("{}\n\n{}", count(defects, "defect"), wrong.join("\n\n"))))
}

/// The model that an agent asks.
fn model(models: &Models, definition: &Definition, named: Option<&str>) -> Result<Arc<dyn Model>, String> {
    let choice = named.map_or_else(|| definition.model.clone(), ModelChoice::of);
    if choice.preferred.as_deref() == Some(FAKE) {
        return Ok(Arc::new(FakeModel));
    }
    let chosen = models.chosen(&choice).map_err(|error| format!("agent {}: {error}", definition.name))?;
    Ok(Arc::new(chosen))
}
