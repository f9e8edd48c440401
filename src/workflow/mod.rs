//! Workflows: a graph of nodes that says which turns of a run may start next (SEMANTICS 7).
//!
//! People write TOML, one line of text, or Rust. All of it becomes a draft with places (`draft`), which is lowered to a
//! [`Plan`](crate::messages::Plan) (`lower`): plain data that a run carries. What is made ready to run of it (`graph`) is
//! checked as a whole: every defect is told at once, with its place. `progress` is the rule of who may start when. `draw` makes
//! pictures of it; `ways` are ready-made ones.

#[cfg(feature = "schemas")]
pub(crate) mod checks;
#[cfg(not(feature = "schemas"))]
#[path = "checks/absent.rs"]
pub(crate) mod checks;
mod difference;
pub(crate) mod draft;
mod draw;
pub(crate) mod graph;
#[cfg(feature = "workflow-text")]
mod line;
mod lower;
pub(crate) mod progress;
#[cfg(feature = "workflow-text")]
mod reader;
#[cfg(feature = "workflow-text")]
mod sources;
#[cfg(feature = "workflow-text")]
mod toml;
pub mod ways;
mod written;

pub use callboard_documents::{Defect, Defects};
pub(crate) use difference::difference;
pub use draft::Node;
pub(crate) use draw::way_to_node;
pub use draw::{Count, Drawing, NodeState, NodeStates};
#[cfg(feature = "workflow-text")]
pub use reader::Reader;
#[cfg(feature = "workflow-text")]
pub use sources::{Form, Source};
pub(crate) use written::check_task;
pub use written::{Workflow, WorkflowBuilder};

// Values that are made of documents need no check of their depth.
const _: () = assert!(callboard_documents::MAX_DEPTH <= crate::messages::MAX_JSON_DEPTH);
