//! The agent that a language model is asked through for a base of facts.

use std::path::Path;
use std::sync::Arc;

use callboard::AgentSpec;
use callboard::messages::visible;
use callboard_agents::{FakeModel, LlmAgent, Model, Models, Tools};
use callboard_knowledge::provider::provider;

use crate::page::Failure;

use super::arguments::Files;
use super::built_in::{FAKE, model};
use super::{load, read};

/// The agent with the model of this name: `file` has the models, or that of the project.
///
/// # Errors
/// There is no such model, or the file cannot be used.
pub(crate) fn spec(named: &str, file: Option<&Path>) -> Result<AgentSpec, Failure> {
    let files = Files { models: file.map(Path::to_owned), ..Files::of_project() };
    if named != FAKE && file.is_none() && !files.are_missing() {
        // Refuses a project that another user may have changed: its models name servers and keys.
        files.remark()?;
    }
    spec_of(named, &files)
}

/// As [`spec`], with the models of these files, which may be used.
///
/// # Errors
/// There is no such model, or the file of models cannot be used.
pub(crate) fn spec_of(named: &str, files: &Files) -> Result<AgentSpec, Failure> {
    let definition = provider();
    let model: Arc<dyn Model> = if named == FAKE {
        Arc::new(FakeModel)
    } else {
        load::check_named(files, named)?;
        model(&read::models(files)??, &definition, Some(named)).map_err(|error| Failure::usage(visible(&error)))?
    };
    let agent = LlmAgent::new(&definition, model, &Tools::new(), &[]);
    agent.map(|agent| agent.spec()).map_err(|error| Failure::failed(error.to_string()))
}

/// The agent with its model, if the price of that is not known.
pub(crate) fn unpriced(named: &str, models: Option<&Models>) -> Vec<(String, String)> {
    load::unpriced(&[provider()], models, Some(named))
}
