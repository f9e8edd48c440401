//! Workflows as TOML (docs/workflow-toml.md). This module reads syntax: keys, types and words. Names, edges and expressions are
//! checked after lowering.

mod document;
mod task;

use callboard_documents::{Defect, Found};

use super::draft::Draft;

const ADVICE: &str = "put parts of it into workflows of their own";

/// Reads a workflow.
///
/// # Errors
/// All defects of the text, in the order of their positions; of more than 100 defects the number alone.
pub(super) fn parse(text: &str) -> Result<Draft, Vec<Defect>> {
    let mut found = Found::default();
    let draft = callboard_documents::toml::read(text, ADVICE, &mut found, document::read);
    found.or(draft)
}

#[cfg(test)]
mod tests;
