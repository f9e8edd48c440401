//! The agents of a folder with their models, ready for a board.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use callboard::AgentSpec;
use callboard::agents::{AgentFolder, Defects, Definition, FakeModel, Model, ModelChoice, Models};
use callboard::env::Env;

use crate::page::{Failure, count};

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
}

/// Reads a folder of agents. `hidden` is what no tool may see, `named` the model that all ask.
pub(crate) fn load(
    files: &Files,
    hidden: Option<&Path>,
    named: Option<&str>,
    has_handoffs: bool,
) -> Result<Thinkers, Failure> {
    let Read { definitions, tools, .. } = reading::read(files, hidden)?;
    let definitions = sound(definitions)?;
    let models = match named {
        // The one that needs no others.
        Some(FAKE) => Models::new(&Env::system()),
        Some(_) | None => reading::models(files)?,
    };
    let named = named.map(str::to_owned);
    let folder = AgentFolder::new(&files.agents)
        .tools(&tools)
        .model_of(move |definition| model(&models, definition, named.as_deref()));
    let mut folder = if has_handoffs { folder } else { folder.independent() };
    let specs = folder.load().map_err(|error| Failure::trouble(error.to_string()))?;
    let names = definitions.iter().flat_map(|definition| {
        let others = definition.role.iter().chain(&definition.capabilities).map(ToString::to_string);
        std::iter::once(definition.name.to_string()).chain(others)
    });
    Ok(Thinkers { names: names.collect(), specs, folder })
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
