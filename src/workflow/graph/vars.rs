//! What the templates and conditions of a workflow read.

use std::sync::Arc;

/// Something that a template reads. `up` counts the blocks from the one that it is written in to the one that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Var {
    /// The whole input of the workflow.
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
    /// The result of a node; `inside` leads to nodes within it.
    Node {
        up: u32,
        node: u32,
        inside: Box<[u32]>,
        part: Part,
    },
    /// The current item of a map.
    Item {
        up: u32,
    },
    Index {
        up: u32,
    },
    /// The iteration of a loop, from 1.
    Iteration {
        up: u32,
    },
    /// The result of the iteration before.
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
