//! Whether a turn works with untrusted input.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::messages::RequestId;
use crate::supervision::runs::dispatch::{ReadyTurn, TurnSink};
use crate::supervision::runs::rules::requests::{Attempt, TurnRequest};

/// The taint of a turn. Shared with its access to the context, because reading a tainted entry taints the turn.
#[derive(Debug)]
pub(crate) struct TurnTaint {
    is_set: AtomicBool,
    /// The run has journaled that this turn itself has read untrusted input: a fork that copies the turn needs that, because it
    /// does not copy what else had tainted the run.
    is_recorded: AtomicBool,
    /// Whether the run was tainted when the attempt began.
    is_run_tainted: bool,
    turn: RequestId,
    attempt: Attempt,
    sink: TurnSink,
}

impl TurnTaint {
    /// The taint of the run when the turn was admitted.
    pub(super) fn of(ready: &ReadyTurn) -> Self {
        let ReadyTurn { id, attempt, is_tainted, is_run_tainted, sink, .. } = ready;
        let turn = RequestId { turn: *id, ordinal: u32::MAX };
        let (is_set, is_recorded) = (AtomicBool::new(*is_tainted), AtomicBool::new(false));
        Self { is_set, is_recorded, is_run_tainted: *is_run_tainted, turn, attempt: *attempt, sink: sink.clone() }
    }

    /// Waits until the turn may act outside; `false` if it may not, because the commit with which it began is lost.
    pub(super) async fn is_committed(&self) -> bool {
        self.sink.is_committed().await
    }

    pub(super) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    /// Whether what the turn writes for other runs is tainted. A repeated attempt begins without the taint of what the first one
    /// read, because it makes the same requests again; but it may know the content from a file or a memory of its own.
    pub(super) fn taints_writes(&self) -> bool {
        self.is_set() || self.is_run_tainted
    }

    /// Taints the turn because of input that others have read: the run has already recorded it.
    pub(super) fn inherit(&self) {
        self.is_set.store(true, Ordering::Release);
    }

    /// Taints the turn, and has its run journal that before the turn's next request.
    pub(super) fn set(&self, source: &str) {
        self.is_set.store(true, Ordering::Release);
        if !self.is_recorded.swap(true, Ordering::AcqRel) {
            let (id, attempt, request) = (self.turn, self.attempt, TurnRequest::Taint(source.into()));
            self.sink.request(id, attempt, true, request, None, None).drain();
        }
    }
}
