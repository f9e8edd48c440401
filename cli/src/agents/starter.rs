//! The starter team: the agents that `callboard init` writes, for a project without a folder of agents. They are read from the program,
//! and no file is written.

use callboard::env::Env;
use callboard_agents::tools::Root;
use callboard_agents::{Defects, Definition, LlmAgent, Models, Teammate, Tools};

use crate::page::Failure;

use super::arguments::Files;
use super::built_in::{BuiltIns, FAKE, model, teammate};
use super::invalid::InvalidAgents;
use super::load::{LoadedAgents, known_models, lacking, names_of, unpriced};
use super::read;

/// The agent that receives a task unless another one is named.
pub(super) const LEADER: &str = "coordinator";

/// The line that reports the team.
pub(super) const REMARK: &str =
    "there is no folder of agents, so the team of `callboard init` works: coder, coordinator, researcher, reviewer";

/// The team and the built-in agents, for a board. `named` is the model that all use.
pub(super) fn load(
    files: &Files,
    (read, tools, root): (Vec<Result<Definition, Defects>>, Tools, Root),
    named: Option<&str>,
) -> Result<LoadedAgents, Failure> {
    let definitions: Result<Vec<Definition>, Defects> = read.into_iter().collect();
    let definitions = definitions.map_err(|defects| Failure::usage(defects.to_string()))?;
    let models = match named {
        // It needs no catalog.
        Some(FAKE) => Models::new(&Env::system()),
        Some(_) | None => read::models(files)??,
    };
    let team: Vec<Teammate> = definitions.iter().map(teammate).collect();
    let spec = |definition: &Definition| {
        let model = model(&models, definition, named)?;
        let agent = LlmAgent::new(definition, model, &tools, &team).map_err(|error| error.to_string())?;
        Ok(agent.spec())
    };
    let specs: Result<Vec<_>, String> = definitions.iter().map(spec).collect();
    let mut specs = specs.map_err(Failure::usage)?;
    let unpriced = unpriced(&definitions, Some(&models), named);
    let lacking = lacking(&definitions, Some(&models), named);
    let own = definitions.iter().map(|definition| definition.name.to_string()).collect();
    let built_in = BuiltIns::of(definitions, tools, named, Default::default(), Some(&models));
    specs.extend(built_in.specs(Some(&models)).map_err(Failure::usage)?);
    let (names, invalid) = (names_of(&built_in), InvalidAgents::default());
    let (models, mut files) = (known_models(Some(&models), named), built_in.files());
    files.descriptions.extend(team.into_iter().map(|agent| (agent.name, agent.description)));
    Ok(LoadedAgents { names, own, specs, invalid, unpriced, lacking, models, watch: None, files, root })
}
