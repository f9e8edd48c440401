//! Workflows as TOML (docs/workflow-toml.md). What is read here is syntax: keys, types and words. Whether the names, the
//! edges and the expressions make a workflow is the check's matter.

mod document;
mod task;

use callboard_documents::{Defect, Found};

use super::draft::Draft;

const ADVICE: &str = "put parts of it into workflows of their own";

/// Reads a workflow.
///
/// # Errors
/// Everything that is wrong with the text, in the order of the places; of more than 100 defects the number alone.
pub(super) fn parse(text: &str) -> Result<Draft, Vec<Defect>> {
    let mut found = Found::default();
    let draft = callboard_documents::toml::read(text, ADVICE, &mut found, document::read);
    found.or(draft)
}

#[cfg(test)]
mod tests;
