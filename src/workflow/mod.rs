//! Workflows: a graph of nodes that says which turns of a run may start next (SEMANTICS 7).
//!
//! People write TOML, one line of text, or Rust. All of it becomes a draft with places in the text (`draft`), which is lowered
//! to a [`Plan`](crate::messages::Plan) (`lower`): plain data that a run carries. The plan is compiled and checked as a whole
//! (`graph`): every defect is reported at once, with its place. `progress` is the rule of which node may start when. `draw`
//! makes pictures of it; `patterns` builds the usual ones.

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
pub mod patterns;
pub(crate) mod progress;
#[cfg(feature = "workflow-text")]
mod reader;
#[cfg(feature = "workflow-text")]
mod sources;
#[cfg(feature = "workflow-text")]
mod toml;

mod written;

pub use callboard_documents::{Defect, Defects};
pub(crate) use difference::difference;
pub use draft::Node;
pub(crate) use draw::path_of_node;
pub use draw::{Count, Drawing, NodeState, NodeStates};
#[cfg(feature = "workflow-text")]
pub use reader::Reader;
#[cfg(feature = "workflow-text")]
pub use sources::{Form, Source};
pub(crate) use written::check_task;
pub use written::{Workflow, WorkflowBuilder};

// Values that are made of documents need no check of their depth.
const _: () = assert!(callboard_documents::MAX_DEPTH <= crate::messages::MAX_JSON_DEPTH);
