//! A turn that another board takes.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::state::RunFigures;
use super::{AgentName, EarlierAnswer, Json, State, TurnId};

/// The turn of a run of another board that a run consists of, with what the agent sees there. Its run ends with the turn, and
/// has the turn's command as its output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlacedTurn {
    /// The turn, of the run that waits for it.
    pub turn: TurnId,
    pub(crate) view: State,
    pub(crate) shows_previous_agent: bool,
    pub(crate) previous_agent: Option<AgentName>,
    pub(crate) figures: Option<RunFigures>,
    pub(crate) answers: Option<Arc<[EarlierAnswer]>>,
    pub(crate) node: Option<Arc<str>>,
    pub(crate) conversation: Option<Json>,
}
