//! How a run follows its plan.
//!
//! - `scope`: the blocks of a plan as data. `nodes`: the node of a branch, and the path to it. `progress`: how far a run is.
//! - `blocks`: how nodes start, and what their ends lead to. `finishing`: how a block ends, and what a node sees before that.
//! - `seen`: what templates and conditions read. `node_states`: the states of nodes, for observers.
//! - `escalation`: commands that end a workflow within a workflow. `compensation`: undoes nodes of a failed block.

mod blocks;
mod compensation;
mod escalation;
mod finishing;
pub(super) mod node_states;
mod nodes;
pub(super) mod progress;
pub(super) mod scope;
mod seen;
