//! The guard's decision on what a turn asks for.

use serde::{Deserialize, Serialize};

use super::{AgentName, Envelope, Refusal};

/// The guard's verdict on a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum Verdict {
    /// Nothing had to be decided.
    #[default]
    Nothing,
    /// It may go ahead, with these agents in the order of the targets.
    Admitted(Vec<AgentName>),
    /// It may not.
    Refused(Refusal),
    /// A human decides; nothing is reserved meanwhile.
    Parked(Box<Envelope>),
}
