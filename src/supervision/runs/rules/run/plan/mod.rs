//! How a run follows its plan.

mod blocks;
mod compensation;
mod escalation;
mod finishing;
pub(super) mod node_states;
mod nodes;
pub(super) mod progress;
pub(super) mod scope;
mod seen;
