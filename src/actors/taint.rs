//! Whether a turn works with untrusted input.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::messages::RequestId;
use crate::supervision::runs::dispatch::{ReadyTurn, TurnSink};
use crate::supervision::runs::rules::requests::{Attempt, TurnRequest};

/// The taint of a turn. Shared with its access to the context, because reading a tainted entry taints the turn.
#[derive(Debug)]
pub(crate) struct TurnTaint {
    is_set: AtomicBool,
    /// The run has journaled that the turn has read something itself: a fork copies the turn, and not what else had tainted
    /// the run.
    is_recorded: AtomicBool,
    /// That of the run when the attempt began.
    is_run_tainted: bool,
    turn: RequestId,
    attempt: Attempt,
    sink: TurnSink,
}

impl TurnTaint {
    /// That of the run when the turn was admitted.
    pub(super) fn of(ready: &ReadyTurn) -> Self {
        let ReadyTurn { id, attempt, is_tainted, is_run_tainted, sink, .. } = ready;
        let turn = RequestId { turn: *id, ordinal: u32::MAX };
        let (is_set, is_recorded) = (AtomicBool::new(*is_tainted), AtomicBool::new(false));
        Self { is_set, is_recorded, is_run_tainted: *is_run_tainted, turn, attempt: *attempt, sink: sink.clone() }
    }

    pub(super) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    /// Whether what the turn writes for other runs is tainted. A repeated attempt asks where the first one asked, and so begins without
    /// the taint of what that one read; but it may know of it, from a file or a memory of its own.
    pub(super) fn taints_writes(&self) -> bool {
        self.is_set() || self.is_run_tainted
    }

    /// Taints the turn by what others have read: of that the run knows already.
    pub(super) fn inherit(&self) {
        self.is_set.store(true, Ordering::Release);
    }

    /// Taints the turn, and has its run journal that before whatever the turn asks for next.
    pub(super) fn set(&self, source: &str) {
        self.is_set.store(true, Ordering::Release);
        if !self.is_recorded.swap(true, Ordering::AcqRel) {
            let (id, attempt, request) = (self.turn, self.attempt, TurnRequest::Taint(source.into()));
            self.sink.request(id, attempt, true, request, None).drain();
        }
    }
}
