//! The messages of the gateway's actor.

use crate::messages::{ApprovalId, Decision};

/// What the gateway's actor reacts to.
#[derive(Debug)]
pub(crate) enum GatewayMsg {
    /// A question is open.
    Requested(ApprovalId),
    /// A question is no longer open.
    Settled(ApprovalId, Option<Decision>),
    /// A question's time is up.
    Expired(ApprovalId),
    /// People are to be reminded of a question that is still open.
    Remind(ApprovalId),
}
