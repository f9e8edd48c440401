//! The agent that a language model is asked through for a base of facts.

use std::path::Path;

use callboard::AgentSpec;
use callboard::env::Env;
use callboard::messages::visible;
use callboard_agents::{LlmAgent, Models, Tools};
use callboard_knowledge::provider::provider;

use crate::page::Failure;

use super::arguments::Files;
use super::built_in::{FAKE, model};
use super::{load, read};

/// The agent with the model of this name, and the models that it is one of: `file` has them, or that of the project.
///
/// # Errors
/// There is no such model, or the file cannot be used.
pub(crate) fn spec(named: &str, file: Option<&Path>) -> Result<(AgentSpec, Option<Models>), Failure> {
    let files = Files { models: file.map(Path::to_owned), ..Files::of_project() };
    if named != FAKE && file.is_none() && !files.are_missing() {
        // Refuses a project that another user may have changed: its models name servers and keys.
        files.remark()?;
    }
    if named == FAKE {
        return Ok((spec_of(named, None)?, None));
    }
    load::check_named(&files, named)?;
    let models = read::models(&files)??;
    Ok((spec_of(named, Some(&models))?, Some(models)))
}

/// The agent with the model of this name among these.
///
/// # Errors
/// There is no such model.
pub(crate) fn spec_of(named: &str, models: Option<&Models>) -> Result<AgentSpec, Failure> {
    let (definition, none) = (provider(), Models::new(&Env::system()));
    let model = model(models.unwrap_or(&none), &definition, Some(named));
    let model = model.map_err(|error| Failure::usage(visible(&error)))?;
    let agent = LlmAgent::new(&definition, model, &Tools::new(), &[]);
    agent.map(|agent| agent.spec()).map_err(|error| Failure::failed(error.to_string()))
}

/// The agent with its model, if the price of that is not known.
pub(crate) fn unpriced(named: &str, models: Option<&Models>) -> Vec<(String, String)> {
    load::unpriced(&[provider()], models, Some(named))
}
