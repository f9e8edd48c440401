//! The one-line syntax of workflows: text to a draft, and back (docs/workflow-expressions.md has the grammar).
//!
//! Both ways lead over [`Step`]s: the text's structure, in which nodes have no edges. `lower` gives them edges, and makes the
//! joins that the structure needs; `raise` finds the structure in edges, and leaves out the joins that `lower` would make.

mod arguments;
mod format;
mod layout;
mod lower;
mod raise;
mod syntax;
mod tokens;

use std::ops::Range;

use callboard_documents::{Defect, Place, Placed};

use crate::messages::{Condition, JoinPolicy};

use super::draft::{Draft, Node};
use super::graph::{MAX_NAME, MAX_NODES};

pub(super) use format::format;

/// The longest text, in bytes.
const MAX_TEXT: usize = 1 << 20;

/// How deep brackets, and `else if` after `else if`, may nest.
const MAX_NESTING: usize = 64;

/// The most defects that are told at once.
const MAX_DEFECTS: usize = 20;

/// The name of a workflow that has no header.
const UNNAMED: &str = "workflow";

/// Steps that follow each other.
type Sequence = Vec<Step>;

#[derive(Debug)]
enum Step {
    Node(Box<NodeStep>),
    /// At least two branches, side by side. The policy is that of what follows them.
    Group {
        branches: Vec<Sequence>,
        policy: Placed<JoinPolicy>,
        place: Place,
    },
    If {
        condition: Placed<Condition>,
        then: Sequence,
        otherwise: Option<Sequence>,
        place: Place,
    },
}

#[derive(Debug)]
struct NodeStep {
    /// Without edges and without the nodes within it; its name is empty if one is to be made.
    node: Node,
    body: Option<Sequence>,
    /// What is done when it has failed, before what follows.
    rescue: Option<Sequence>,
}

/// Reads a text.
///
/// # Errors
/// What is wrong with its syntax, its keys and the types of their values: at most [`MAX_DEFECTS`], in the order of their
/// places.
pub(super) fn parse(text: &str) -> Result<Draft, Vec<Defect>> {
    if text.len() > MAX_TEXT {
        let problem = std::format!("the text has {} bytes; at most {MAX_TEXT} are allowed", text.len());
        return Err(vec![Defect::new(&None, problem).advise("run parts of it as workflows of their own")]);
    }
    let tokens = tokens::read(text)?;
    let (name, steps) = syntax::read(&tokens, text.len())?;
    let name = name.unwrap_or_else(|| Placed::made(UNNAMED.to_owned()));
    Ok(Draft { name, nodes: lower::nodes(&steps), ..Draft::default() })
}

/// Defects as they are found.
#[derive(Debug, Default)]
struct Found(Vec<Defect>);

impl Found {
    fn add(&mut self, place: &Range<usize>, problem: impl Into<String>, advice: impl Into<String>) {
        if !self.is_full() {
            self.0.push(Defect::new(&Some(place.clone()), problem).advise(advice));
        }
    }

    fn is_full(&self) -> bool {
        self.0.len() >= MAX_DEFECTS
    }

    fn or<T>(mut self, sound: T) -> Result<T, Vec<Defect>> {
        self.0.sort_by_key(|defect| defect.place.as_ref().map(|place| place.start));
        if self.0.is_empty() { Ok(sound) } else { Err(self.0) }
    }
}

/// Whether a name can begin with it.
fn begins_name(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

/// Whether a name can go on with it.
fn continues_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests;
