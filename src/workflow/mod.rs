//! Workflows: a graph of nodes that says which turns of a run may start next (SEMANTICS 7).
//!
//! People write TOML, one line of text, or Rust. All of it becomes a draft with places (`draft`), which is lowered to a
//! [`Plan`](crate::messages::Plan) (`lower`): plain data that a run carries. What is made ready to run of it (`graph`) is
//! checked as a whole: every defect is told at once, with its place. `progress` is the rule of who may start when. `draw` makes
//! pictures of it; `ways` are ready-made ones.

pub(crate) mod checks;
mod difference;
pub(crate) mod draft;
mod draw;
pub(crate) mod graph;
mod line;
mod lower;
pub(crate) mod progress;
mod sources;
mod toml;
pub mod ways;
mod written;

pub use callboard_documents::{Defect, Defects};
pub(crate) use difference::difference;
pub use draft::Node;
pub(crate) use draw::way_to_node;
pub use draw::{Count, Drawing, NodeState, NodeStates};
pub use sources::{Form, Source};
pub(crate) use written::check_task;
pub use written::{Reader, Workflow, WorkflowBuilder};

// Values that are made of documents need no check of their depth.
const _: () = assert!(callboard_documents::MAX_DEPTH <= crate::messages::MAX_JSON_DEPTH);
