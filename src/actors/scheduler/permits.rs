//! Permits of the pool, and slots of agents: values that release themselves when they are dropped.
//!
//! They are acquired under the scheduler's lock, as `&mut self` requires. Code that drops one has the scheduler look for a turn that may start now.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::supervision::runs::facts::SharedFacts;
use crate::supervision::runs::wait_for::Waiting;

/// The permits that the turns of all agents share.
#[derive(Debug)]
pub(super) struct Pool {
    size: usize,
    held: Arc<AtomicUsize>,
}

/// The right of one turn to run, whatever its agent. Dropping it releases it to the pool.
#[derive(Debug)]
pub(super) struct Permit {
    held: Arc<AtomicUsize>,
}

impl Pool {
    pub(super) fn new(size: usize) -> Self {
        Self { size, held: Arc::default() }
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    pub(super) fn free(&self) -> usize {
        self.size.saturating_sub(self.held.load(Ordering::Acquire))
    }

    pub(super) fn try_acquire(&mut self) -> Option<Permit> {
        if self.free() == 0 {
            return None;
        }
        self.held.fetch_add(1, Ordering::AcqRel);
        Some(Permit { held: Arc::clone(&self.held) })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.held.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The slots of one agent: how many of its turns and typed requests may run at once.
#[derive(Debug)]
pub(super) struct AgentSlots {
    /// May be lowered below what is held: then nothing is acquired until enough were released.
    pub(super) limit: usize,
    held: Arc<AtomicUsize>,
}

/// The right of one turn, or typed request, to run at its agent. Dropping it releases it to the agent.
#[derive(Debug)]
pub(super) struct AgentSlot {
    held: Arc<AtomicUsize>,
    /// Only for a non-reentrant agent.
    _wait: Option<Box<SlotWait>>,
}

impl AgentSlots {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, held: Arc::default() }
    }

    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::Acquire)
    }

    pub(super) fn has_free(&self) -> bool {
        self.held() < self.limit
    }

    /// Acquires a slot. With `wait`, the slot holds the edge for the turns that may wait for its holder.
    pub(super) fn try_acquire(&mut self, wait: impl FnOnce() -> Option<SlotWait>) -> Option<AgentSlot> {
        if !self.has_free() {
            return None;
        }
        self.held.fetch_add(1, Ordering::AcqRel);
        Some(AgentSlot { held: Arc::clone(&self.held), _wait: wait().map(Box::new) })
    }
}

impl Drop for AgentSlot {
    fn drop(&mut self) {
        self.held.fetch_sub(1, Ordering::AcqRel);
    }
}

/// An edge of the wait-for graph: a turn that waits for the slot of a non-reentrant agent waits for the turn that holds it.
/// Dropping this value removes the edge.
pub(super) struct SlotWait {
    facts: Arc<SharedFacts>,
    slot: Waiting,
    holder: Waiting,
}

impl SlotWait {
    /// Adds the edge; the holder no longer waits for the slot.
    pub(super) fn begin(facts: &Arc<SharedFacts>, slot: Waiting, holder: Waiting) -> Self {
        let mut edges = facts.lock();
        edges.waits.remove(&holder, &slot);
        edges.waits.add(slot.clone(), holder.clone(), None);
        drop(edges);
        Self { facts: Arc::clone(facts), slot, holder }
    }
}

impl std::fmt::Debug for SlotWait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SlotWait").field("slot", &self.slot).field("holder", &self.holder).finish_non_exhaustive()
    }
}

impl Drop for SlotWait {
    fn drop(&mut self) {
        self.facts.lock().waits.remove(&self.slot, &self.holder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permit_and_a_slot_release_themselves() {
        let mut pool = Pool::new(1);
        let permit = pool.try_acquire().unwrap();
        assert_eq!((pool.free(), pool.try_acquire().is_none()), (0, true));
        drop(permit);
        assert_eq!((pool.free(), pool.try_acquire().is_some()), (1, true));

        let mut slots = AgentSlots::new(2);
        let (first, second) = (slots.try_acquire(|| None), slots.try_acquire(|| None));
        assert!(slots.try_acquire(|| None).is_none());
        assert_eq!((slots.held(), slots.has_free()), (2, false));
        drop(first);
        assert_eq!((slots.held(), slots.has_free()), (1, true));
        drop(second);
        assert_eq!(slots.held(), 0);
    }

    #[test]
    fn a_limit_that_is_lowered_takes_nothing_from_those_who_hold_a_slot() {
        let mut slots = AgentSlots::new(2);
        let held = [slots.try_acquire(|| None).unwrap(), slots.try_acquire(|| None).unwrap()];
        slots.limit = 1;
        let [first, second] = held;
        drop(first);
        assert!(!slots.has_free());
        drop(second);
        assert!(slots.has_free());
    }
}
