//! Whether a turn works with what strangers wrote.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::messages::RequestId;
use crate::supervision::runs::dispatch::ReadyTurn;
use crate::supervision::runs::dispatch::TurnSink;
use crate::supervision::runs::rules::requests::TurnRequest;

/// Whether a turn works with what strangers wrote. What it reads of the shared context may change it.
#[derive(Debug)]
pub(crate) struct MarkOfTurn {
    is_set: AtomicBool,
    /// The run knows that the turn has read something itself: a fork copies the turn, and not what else had marked the run.
    is_told: AtomicBool,
    turn: RequestId,
    attempt: u32,
    sink: TurnSink,
}

impl MarkOfTurn {
    pub(super) fn of(ready: &ReadyTurn) -> Self {
        let ReadyTurn { id, attempt, is_marked, sink, .. } = ready;
        let turn = RequestId { turn: *id, ordinal: u32::MAX };
        let (is_set, is_told) = (AtomicBool::new(*is_marked), AtomicBool::new(false));
        Self { is_set, is_told, turn, attempt: *attempt, sink: sink.clone() }
    }

    pub(in crate::actors) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    /// By what others have read: of that the run knows already.
    pub(super) fn inherit(&self) {
        self.is_set.store(true, Ordering::Release);
    }

    /// Marks the turn, and tells its run before whatever the turn asks for next.
    pub(in crate::actors) fn set(&self, source: &str) {
        self.is_set.store(true, Ordering::Release);
        if !self.is_told.swap(true, Ordering::AcqRel) {
            let (id, attempt, request) = (self.turn, self.attempt, TurnRequest::Mark(source.into()));
            self.sink.request(id, attempt, true, request, None).drain();
        }
    }
}
