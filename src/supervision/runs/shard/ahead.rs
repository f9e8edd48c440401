//! Turns that begin while the commit that starts them is in flight: those of agents that act outside only through their run
//! ([`AgentSpec::acts_through_steps`](crate::actors::AgentSpec::acts_through_steps)).
//!
//! Their outcomes are applied while that commit is in flight, and are journaled with the next one. Everything else that they ask for
//! waits in the run until then, and what any of it releases waits for the commit of its own event, as always. If the commit fails, or the
//! supervisor ends before, what such a turn reports is dropped: the run is read back from the journal, and its turns begin again.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::Notify;

use crate::messages::{AgentName, TurnId};
use crate::supervision::runs::rules::requests::{TurnOutcome, TurnRequest};

use super::dispatch::Dispatch;
use super::live::LiveRun;
use super::queue::RunMessage;

/// Whether the commit with which a turn began is acknowledged. Shared by the turn and its run.
#[derive(Debug, Default)]
pub(crate) struct Beginning {
    state: AtomicU8,
    changed: Notify,
}

const JOURNALED: u8 = 1;
const LOST: u8 = 2;

impl Beginning {
    /// The commit failed, or was never made: the turn did not begin.
    pub(crate) fn is_lost(&self) -> bool {
        self.state.load(Ordering::Acquire) == LOST
    }

    /// Waits for the acknowledgement. A turn whose beginning is lost is stopped while it waits.
    pub(crate) async fn journaled(&self) {
        loop {
            let changed = self.changed.notified();
            match self.state.load(Ordering::Acquire) {
                JOURNALED => return,
                LOST => return pending().await,
                _ => changed.await,
            }
        }
    }

    fn set(&self, state: u8) {
        self.state.store(state, Ordering::Release);
        self.changed.notify_waiters();
    }
}

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
        self.beginning.set(JOURNALED);
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        if self.beginning.state.load(Ordering::Acquire) != JOURNALED {
            self.beginning.set(LOST);
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

/// The most events that are applied ahead of a commit: they become one record, and are lost together.
const MAX_EVENTS: usize = 64;

/// The largest command or report that is applied ahead of a commit, in bytes. With `MAX_EVENTS` it keeps the record far below its limit.
const MAX_SIZE: usize = 64 << 10;

impl LiveRun {
    /// Whether a message may be applied although a commit is in flight: it is the outcome of a turn that began ahead, or what such a turn
    /// reports without an answer.
    pub(super) fn takes_ahead(&self, message: &RunMessage) -> bool {
        let size = match message {
            RunMessage::Outcome { beginning: Some(_), outcome: TurnOutcome::Command(command), .. } => command.size(),
            RunMessage::Outcome { beginning: Some(_), outcome: TurnOutcome::Failed(_), .. } => 0,
            RunMessage::Request { beginning: Some(_), request, reply: None, .. } => match request {
                TurnRequest::FinishStep { value, .. } => value.size(),
                TurnRequest::Notice(text) | TurnRequest::Summary(text) | TurnRequest::Taint(text) => text.len(),
                _ => return false,
            },
            _ => return false,
        };
        let ahead = self.in_flight.map_or(0, |in_flight| self.events.len() - in_flight.events as usize);
        // In the order of arrival: an earlier message may be of the same turn. A snapshot is of what is journaled.
        size <= MAX_SIZE && ahead < MAX_EVENTS && self.waiting.is_empty() && !self.cadence.is_due()
    }
}
