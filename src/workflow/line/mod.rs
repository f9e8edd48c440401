//! The one-line syntax of workflows: text to a draft, and back (docs/workflow-expressions.md has the grammar).
//!
//! Both directions use [`Step`](steps::Step)s: the text's structure, in which nodes have no edges. `lower` adds the edges, and
//! the joins that the structure needs; `raise` derives the structure from edges, and leaves out the joins that `lower` would add.

mod arguments;
mod defects;
mod format;
mod layout;
mod lower;
mod raise;
mod steps;
mod syntax;
mod tokens;

use callboard_documents::{Defect, Placed};

use super::draft::Draft;

use self::steps::UNNAMED;

pub(super) use format::format;

/// The longest text, in bytes.
const MAX_TEXT: usize = 1 << 20;

/// Reads a text.
///
/// # Errors
/// The defects of its syntax, its keys and the types of their values: at most 20 defects, in the order of their places.
pub(super) fn parse(text: &str) -> Result<Draft, Vec<Defect>> {
    if text.len() > MAX_TEXT {
        let problem = std::format!("the text has more than {MAX_TEXT} bytes");
        return Err(vec![Defect::new(&None, problem).advise("run parts of it as workflows of their own")]);
    }
    let tokens = tokens::read(text)?;
    let (name, steps) = syntax::read(&tokens, text.len())?;
    let name = name.unwrap_or_else(|| Placed::made(UNNAMED.to_owned()));
    Ok(Draft { name, nodes: lower::nodes(&steps), ..Draft::default() })
}

#[cfg(test)]
mod tests;
