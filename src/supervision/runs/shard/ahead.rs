//! Turns that begin while the commit that starts them is in flight: those of agents that act outside only through their run
//! ([`AgentSpec::acts_through_steps`](crate::actors::AgentSpec::acts_through_steps)).
//!
//! Their outcomes are applied while that commit is in flight, as long as all that is not acknowledged are ends of turns
//! (`LiveRun::takes_ahead`), and are journaled with the next one. Everything else that they ask for waits in the run
//! until then, and what any of it releases waits for the commit of its own event, as always. If the commit fails, or the supervisor ends
//! before, what such a turn sends is refused: the run is read back from the journal, and its turns begin again.

use std::sync::Arc;

use crate::messages::{AgentName, TurnId};

use super::beginning::Beginning;
use super::dispatch::Dispatch;

/// A turn that has begun ahead of its commit. Dropped before the acknowledgement, its beginning is lost, and it is stopped.
pub(in crate::supervision::runs) struct Ahead {
    turn: TurnId,
    agent: AgentName,
    beginning: Arc<Beginning>,
    dispatch: Arc<dyn Dispatch>,
}

impl Ahead {
    pub(super) fn new(turn: TurnId, agent: AgentName, dispatch: Arc<dyn Dispatch>) -> Self {
        Self { turn, agent, beginning: Arc::default(), dispatch }
    }

    pub(super) fn beginning(&self) -> &Arc<Beginning> {
        &self.beginning
    }

    pub(super) fn journaled(&self) {
        self.beginning.acknowledge();
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        if self.beginning.lose() {
            self.dispatch.abort(self.turn, &self.agent);
        }
    }
}

/// The part of a run's events and actions that belongs to the append in flight; later ones belong to the next.
#[derive(Clone, Copy, Debug)]
pub(in crate::supervision::runs) struct InFlight {
    pub(super) events: u32,
    pub(super) actions: u32,
    /// The actions before this one were looked at for turns that begin ahead.
    pub(super) looked_at: u32,
}
