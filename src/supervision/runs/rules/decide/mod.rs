//! Decides about a turn's outcome or request: returns the event to journal.
//!
//! The inputs of a decision besides the run are in a [`DecisionContext`]: readings of the clock and of randomness as values, the
//! agents of the board behind a trait, and the facts that runs share, behind their lock. An admission changes those facts (it
//! counts turns at breakers and notes waits); everything else is only read. So the decisions run in tests without an actor.
//!
//! | what came | function | event |
//! |---|---|---|
//! | the outcome of an attempt | [`on_outcome`] | `TurnEnded`, `AttemptFailed`, `TurnFailed` or `NeedsAttention` |
//! | a deadline that has passed | [`on_deadline`] | `Stopped` |
//! | the question whether a handoff would be admitted | [`on_handoff_check`] | `HandoffChecked`, which the caller writes with the refusal |
//! | a delegation | [`on_delegation`] | `Delegated` |
//! | a request for consent | [`on_approval`] | `ApprovalAsked`, and `Decided` if no person has to decide |
//! | a decision that a turn waits for | [`on_decision`] | `Decided`, after `ApprovalAsked` if the arguments were edited |
//! | a decision about a parked handoff | [`on_parked_decision`] | `Decided` |
//! | a dynamic agent to make or change | [`on_make`] | `AgentMade`, which the caller writes with the result |
//! | a turn's end that is applied again after an overwrite | `on_resumed_end` | none: the verdict is returned |

mod agents;
mod approvals;
mod context;
mod outcomes;
mod routes;

pub(crate) use super::requests::MAX_COMMAND;
pub(crate) use agents::on_make;
pub(crate) use approvals::{denial, on_approval, on_decision};
pub(crate) use context::DecisionContext;
pub(in crate::supervision::runs) use outcomes::on_resumed_end;
pub(crate) use outcomes::{likely_misspellings, on_deadline, on_outcome};
pub(crate) use routes::{on_delegation, on_handoff_check, on_parked_decision};
