//! A turn that a worker runs: its permit and slot, and its running time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::actors::turn::TurnShared;

use super::permits::{AgentSlot, Permit};

/// Shared by the turn's worker and the scheduler, which evicts a turn that ignores its stop.
pub(super) struct RunningTurn {
    pub(super) turn: Arc<TurnShared>,
    /// Its agent is non-reentrant: the turn holds the slot also while it waits.
    pub(super) keeps_slot: bool,
    acquired: Mutex<Acquired>,
    /// `acquired.permit` is set. Read at each poll, without the lock.
    holds_permit: AtomicBool,
    is_evicted: AtomicBool,
}

/// Changed only under the scheduler's lock; the mutex is needed because the turn's worker shares it.
struct Acquired {
    slot: Option<AgentSlot>,
    permit: Option<Permit>,
    /// With a permit, the clock's reading when the turn would have begun, had it held one ever since. Without, the time for which it held
    /// permits.
    running: Duration,
}

#[cfg(test)]
pub(crate) const SIZE_OF_RUNNING_TURN: usize = size_of::<RunningTurn>();

impl RunningTurn {
    pub(super) fn new(turn: TurnShared, keeps_slot: bool, slot: AgentSlot, permit: Permit, now: Duration) -> Self {
        Self {
            turn: Arc::new(turn),
            keeps_slot,
            acquired: Mutex::new(Acquired { slot: Some(slot), permit: Some(permit), running: now }),
            holds_permit: true.into(),
            is_evicted: false.into(),
        }
    }

    pub(super) fn holds_permit(&self) -> bool {
        self.holds_permit.load(Ordering::Acquire)
    }

    /// The clock's reading when it began, later by the time for which it waited. It holds its permit.
    pub(super) fn since(&self) -> Duration {
        self.acquired.lock().running
    }

    /// Whether it holds a permit or a slot: it has not ended.
    pub(super) fn holds_any(&self) -> bool {
        let acquired = self.acquired.lock();
        acquired.permit.is_some() || acquired.slot.is_some()
    }

    /// The turn ignored its stop for too long: its permit and slot were given to others, and its result is dropped.
    pub(super) fn is_evicted(&self) -> bool {
        self.is_evicted.load(Ordering::Acquire)
    }

    pub(super) fn evict(&self) {
        self.is_evicted.store(true, Ordering::Release);
        self.release();
    }

    /// Takes a permit again, and a slot unless it was kept.
    pub(super) fn reacquire(&self, permit: Permit, slot: Option<AgentSlot>, now: Duration) {
        let mut acquired = self.acquired.lock();
        acquired.running = now.saturating_sub(acquired.used(now));
        acquired.permit = Some(permit);
        acquired.slot = acquired.slot.take().or(slot);
        self.holds_permit.store(true, Ordering::Release);
    }

    /// Releases the permit while the turn waits, and the slot of a reentrant agent.
    pub(super) fn yield_permit(&self, now: Duration) {
        let mut acquired = self.acquired.lock();
        acquired.running = acquired.used(now);
        acquired.permit = None;
        if !self.keeps_slot {
            acquired.slot = None;
        }
        self.holds_permit.store(false, Ordering::Release);
    }

    /// Releases all that it holds: its worker is done with it, or it was evicted.
    pub(super) fn release(&self) {
        let mut acquired = self.acquired.lock();
        *acquired = Acquired { slot: None, permit: None, running: Duration::ZERO };
        self.holds_permit.store(false, Ordering::Release);
    }

    /// The remaining running time, where `usual` is the agent's limit unless the turn has its own. Time in which it waits does
    /// not count.
    pub(super) fn left(&self, now: Duration, usual: Duration) -> Duration {
        self.timeout(usual).saturating_sub(self.acquired.lock().used(now))
    }

    pub(super) fn timeout(&self, usual: Duration) -> Duration {
        self.turn.ready.extras.timeout.unwrap_or(usual)
    }
}

impl Acquired {
    fn used(&self, now: Duration) -> Duration {
        if self.permit.is_some() { now.saturating_sub(self.running) } else { self.running }
    }
}
