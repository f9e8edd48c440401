//! The structure of a text: steps, in which nodes have no edges.

use callboard_documents::{Place, Placed};

use crate::messages::{Condition, JoinPolicy};
use crate::workflow::draft::Node;

/// The name of a workflow that has no header.
pub(super) const UNNAMED: &str = "workflow";

/// The deepest nesting of brackets and of `else if`.
pub(super) const MAX_NESTING: usize = 64;

/// Steps that follow each other.
pub(super) type Sequence = Vec<Step>;

#[derive(Debug)]
pub(super) enum Step {
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
pub(super) struct NodeStep {
    /// The node without edges and inner nodes; its name is empty if one is generated.
    pub(super) node: Node,
    pub(super) body: Option<Sequence>,
    /// The steps after its failure, before the following steps.
    pub(super) rescue: Option<Sequence>,
}
