//! How turns are stopped, and when the floor has come to rest.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::actors::turn::{StopReason, TurnShared};
use crate::actors::worker;
use crate::messages::{AgentName, TurnId};

use super::{Floor, Place};

/// How long no turn may have held a permit for the floor to count as settled.
const SETTLING: Duration = Duration::from_millis(50);

impl Floor {
    /// Stops whoever works on a turn. A turn that has not begun is taken back.
    pub(crate) fn stop_turn(self: &Arc<Self>, turn: TurnId, agent: &AgentName, why: StopReason) {
        let mut state = self.state.lock();
        let Some(index) = state.names.get(agent.host()).copied() else { return };
        let place = &mut state.places[index];
        let Some(live) = place.turns.get(&turn) else { return };
        let Some(running) = &live.running else {
            place.turns.remove(&turn);
            place.ready.retain(|ready| ready.id != turn);
            return;
        };
        let shared = Arc::clone(&running.turn);
        drop(state);
        shared.stop.set(why);
        // Held weakly: a turn that lets go takes everything with it at once.
        let (floor, turn, stuck_after) = (Arc::downgrade(self), Arc::downgrade(&shared), self.stuck_after);
        self.runtime.spawn(async move {
            tokio::time::sleep(stuck_after).await;
            if let (Some(floor), Some(turn)) = (floor.upgrade(), turn.upgrade()) {
                floor.fence(index, &turn, why);
            }
        });
    }

    /// Gives the place of a turn away that has not let go. What it still returns is dropped.
    fn fence(self: &Arc<Self>, index: usize, turn: &Arc<TurnShared>, why: StopReason) {
        let mut state = self.state.lock();
        let place = &mut state.places[index];
        if !place.forget(turn) {
            return;
        }
        place.stuck += 1;
        let (agent, timeout) = (place.name.clone(), turn.ready.timeout.unwrap_or(place.timeout));
        turn.seat.is_fenced.store(true, Ordering::Release);
        tracing::error!(turn = %turn.ready.id, %agent, "turn ignores that it was stopped; its place is given to others");
        self.give_back(&mut state, index, turn);
        self.fill(state);
        self.ended.notify_waiters();
        if why == StopReason::TimedOut {
            worker::enqueue(turn, worker::timed_out(turn, timeout)).drain();
        }
    }

    /// Lets nothing begin any more. Turns that have begun go on, also after a wait.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        // Dropped senders tell the askers.
        state.places.iter_mut().for_each(|place| place.asks.clear());
    }

    /// Returns when the turns that have begun have come to their end, or wait for something that does not come soon.
    pub(crate) async fn settled(&self) {
        let mut has_begun = self.has_begun_turns();
        loop {
            has_begun |= !self.is_quiet();
            self.quiet().await;
            if !has_begun {
                return;
            }
            // An answer may be on its way to a turn that waits, and an outcome to the journal.
            tokio::time::sleep(SETTLING).await;
            has_begun = false;
        }
    }

    fn has_begun_turns(&self) -> bool {
        let state = self.state.lock();
        state.places.iter().flat_map(|place| place.turns.values()).any(|live| live.running.is_some())
    }

    fn is_quiet(&self) -> bool {
        self.state.lock().permits >= self.pool
    }

    /// Returns when no turn holds a permit.
    async fn quiet(&self) {
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            // From here on an end is noticed, also one between the look and the wait.
            ended.as_mut().enable();
            if self.is_quiet() {
                return;
            }
            ended.await;
        }
    }

    /// Stops every turn, and lets go of the agents' values: what they hold ends with the board, not with its last handle.
    pub(crate) fn stop_all(self: &Arc<Self>) {
        self.close();
        self.stop_turns(|_| true);
        let values: Vec<_> = self.state.lock().places.iter_mut().map(|place| place.value.take()).collect();
        drop(values);
    }

    /// Stops the turns that `is_unwanted` names.
    pub(crate) fn stop_turns(self: &Arc<Self>, is_unwanted: impl Fn(&TurnId) -> bool) {
        let mut turns: Vec<(TurnId, AgentName)> = {
            let state = self.state.lock();
            let of_place = |place: &Place| {
                let unwanted = place.turns.keys().filter(|turn| is_unwanted(turn));
                unwanted.map(|turn| (*turn, place.name.clone())).collect::<Vec<_>>()
            };
            state.places.iter().flat_map(of_place).collect()
        };
        turns.sort_unstable();
        for (turn, agent) in turns {
            self.stop_turn(turn, &agent, StopReason::Cancelled);
        }
    }
}
