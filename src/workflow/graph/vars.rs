//! The variables of a workflow's templates and conditions.

use std::sync::Arc;

/// A variable of a template. `up` is the number of blocks from the one with the template up to the one with the value.
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

/// The part of a node's end that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    All,
    Output,
    Outcome,
    Error,
}
