//! The guard's decision on what a turn asks for.

use serde::{Deserialize, Serialize};

use super::{AgentName, Envelope, Refusal};

/// The guard's verdict on a handoff, a fan-out or a delegation, as the journal records it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum Verdict {
    /// No admission had to be decided, for example because a command names no target, or because the run's plan decides
    /// where it goes.
    #[default]
    Nothing,
    /// It may go ahead, with these agents in the order of the targets.
    Admitted(Vec<AgentName>),
    /// It may not go ahead. A command that is refused ends its branch; a delegation that is refused returns the refusal
    /// to its turn.
    Refused(Refusal),
    /// A human decides; nothing is reserved meanwhile.
    Parked(Box<Envelope>),
}
