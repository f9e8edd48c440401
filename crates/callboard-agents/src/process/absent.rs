//! Programs as agents in a build without them: declaring one is refused.

use std::path::Path;

use callboard::actors::AgentSpec;
use callboard_documents::Defect;

use crate::definition::{Definition, DefinitionError, ProcessSettings};

/// # Errors
/// Always.
pub(super) fn find(_settings: &ProcessSettings, _folder: &Path) -> Result<(), Defect> {
    let problem = "an agent cannot be a program in this build of callboard";
    Err(Defect::new(&None, problem).advise("build it for Unix, with its cargo feature `process`"))
}

pub(super) fn names_docker(_value: &str) -> bool {
    false
}

/// # Errors
/// Always.
pub(super) fn spec(definition: &Definition, _root: &Path) -> Result<AgentSpec, DefinitionError> {
    Err(DefinitionError::NoProcesses { agent: definition.name.to_string() })
}
