//! What becomes of a turn's outcome or request: the event to journal. Everything from outside comes in as values, so
//! these decisions run in tests without an actor.

mod agents;
mod approvals;
mod context;
mod outcomes;
mod routes;

pub(crate) use super::requests::MAX_COMMAND;
pub(crate) use agents::on_make;
pub(crate) use approvals::{EXPIRY, denial, on_approval, on_decision};
pub(crate) use context::DecisionContext;
pub(in crate::supervision::runs) use outcomes::on_resumed_end;
pub(crate) use outcomes::{likely_misspellings, on_deadline, on_outcome};
pub(crate) use routes::{on_delegation, on_handoff_check, on_parked_decision};
