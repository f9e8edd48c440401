//! What the templates and conditions of a workflow read.

use std::sync::Arc;

/// Something that a template reads. `up` counts the blocks from the one that it is written in to the one that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Var {
    /// All that the workflow was given.
    Input {
        up: u32,
    },
    /// One field of it.
    Field {
        up: u32,
        name: Arc<str>,
    },
    /// All channels.
    State,
    Channel(Arc<str>),
    /// What came of a node; `inside` leads to nodes within it.
    Node {
        up: u32,
        node: u32,
        inside: Box<[u32]>,
        part: Part,
    },
    /// What a map is at.
    Item {
        up: u32,
    },
    Index {
        up: u32,
    },
    /// How often a loop has begun.
    Iteration {
        up: u32,
    },
    /// What its last iteration came to.
    Previous {
        up: u32,
    },
}

/// What of a node is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    All,
    Output,
    Outcome,
    Error,
}
