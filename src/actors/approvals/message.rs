//! The messages of the gateway's actor.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::messages::{ApprovalId, Decision};

/// A message to the gateway's actor.
#[derive(Debug)]
pub(crate) enum GatewayMsg {
    /// A question is open.
    Requested(ApprovalId),
    /// A question is no longer open.
    Settled(ApprovalId, Option<Decision>),
    /// A question of another board is asked by that board, or a third one, instead of these channels.
    HandedOver(ApprovalId, BTreeSet<Arc<str>>),
    /// A question has expired.
    Expired(ApprovalId),
    /// People are to be reminded of a question that is still open.
    Remind(ApprovalId),
    /// Another group may decide a question that is still open.
    Escalate(ApprovalId),
}
