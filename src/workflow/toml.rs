//! Workflows as TOML (docs/workflow-toml.md). What is read here is syntax: keys, types and words. Whether the names, the
//! edges and the expressions make a workflow is the check's matter.
//!
//! A text is read in three steps: its grammar (`scan`), its tree (the `toml` crate), and what the tree says (`document`,
//! `task`). Broken grammar ends it at the first step, because the rest would be guessed; all else that is wrong is told
//! together.

mod document;
mod fields;
mod scan;
mod task;
mod values;

use ::toml::de::DeTable;

use super::draft::{Defect, Draft};
use super::found::Found;

/// The longest text, in bytes.
pub(super) const MAX_TEXT: usize = 1 << 20;

/// Reads a workflow.
///
/// # Errors
/// Everything that is wrong with the text, in the order of the places; of more than 100 defects the number alone.
pub(super) fn parse(text: &str) -> Result<Draft, Vec<Defect>> {
    let mut found = Found::default();
    let draft = read(text, &mut found);
    found.or(draft)
}

/// The text of these bytes.
///
/// # Errors
/// When they are not UTF-8: where that begins. The place is that of the first replacement character if they are shown by
/// `String::from_utf8_lossy`.
pub(super) fn text_of(bytes: &[u8]) -> Result<&str, Defect> {
    std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        let problem = format!("the text is not UTF-8: byte {at} (0x{:02x}) begins no character", bytes[at]);
        Defect::new(&Some(at..at + 1), problem).advise("save it as UTF-8")
    })
}

/// The workflow, with gaps where something is wrong.
fn read(text: &str, found: &mut Found) -> Draft {
    if text.len() > MAX_TEXT {
        let problem = format!("the text has {} bytes; at most {MAX_TEXT} are allowed", text.len());
        found.add(Defect::new(&None, problem).advise("put parts of it into workflows of their own"));
        return Draft::default();
    }
    if !scan::is_sound(text, found) {
        return Draft::default();
    }
    let (tree, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        found.add(Defect::new(&error.span(), error.message()));
    }
    document::read(tree.get_ref(), found)
}

#[cfg(test)]
mod tests;
