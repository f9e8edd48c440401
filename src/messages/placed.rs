//! A turn that another board takes.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::state::RunFigures;
use super::{AgentName, Json, State, TurnId};

/// The turn of a run of another board that a run consists of, with what the agent sees there. Its run ends with the turn, or with the
/// last one that has a late answer to what the turn has given away, and has that one's command as its output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlacedTurn {
    /// The turn, of the run that waits for it.
    pub turn: TurnId,
    pub(crate) view: State,
    pub(crate) previous_agent: Option<AgentName>,
    pub(crate) figures: Option<RunFigures>,
    /// What earlier delegations of the turn that waits for this one have come to, as an array of `EarlierAnswer`.
    pub(crate) answers: Option<Json>,
    pub(crate) node: Option<Arc<str>>,
    pub(crate) conversation: Option<Json>,
}
