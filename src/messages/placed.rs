//! A turn that another board takes.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use super::state::RunFigures;
use super::{AgentName, Command, Json, RunId, State, TurnId};

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

impl PlacedTurn {
    /// The id of the run that a turn is at another board: the same for all attempts, so that the turn is taken once.
    #[must_use]
    pub fn run_of(turn: TurnId) -> RunId {
        turn.run.child(xxh3_128(format!("{turn}/placed").as_bytes()))
    }

    /// The command of the turn, by the output of its run.
    ///
    /// # Errors
    /// The output is that of another run: the text is not the JSON of a command.
    pub fn command_of(output: &Json) -> Result<Command, serde_json::Error> {
        serde_json::from_str(output.as_str().unwrap_or_default())
    }
}
