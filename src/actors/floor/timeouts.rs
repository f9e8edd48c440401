//! Turns that run longer than their agent may. One task looks at all places, at each when the time of its turns may be up.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use crate::actors::turn::StopReason;
use crate::messages::{AgentName, TurnId};

use super::{Floor, Place, State};

/// When which place is looked at next. A place is there once at most, at the time that it knows too.
#[derive(Default)]
pub(super) struct Timeouts {
    due: BTreeSet<(Duration, usize)>,
    is_watched: bool,
}

impl Place {
    /// Its turns whose time is up.
    fn overdue(&self, now: Duration) -> impl Iterator<Item = (TurnId, AgentName)> {
        let running = self.turns.iter().filter_map(|(turn, live)| Some((turn, live.running.as_ref()?)));
        let overdue = running.filter(move |(_, running)| running.left(now, self.timeout).is_zero());
        overdue.map(|(turn, _)| (*turn, self.name.clone()))
    }

    /// When the time of one of its turns may be up next.
    fn next_look(&self, now: Duration) -> Option<Duration> {
        let running = self.turns.values().filter_map(|live| live.running.as_ref());
        let seated = running.filter(|running| running.turn.seat.is_held());
        let left = seated.map(|running| running.left(now, self.timeout)).filter(|left| !left.is_zero()).min();
        (!self.turns.is_empty()).then(|| now.saturating_add(left.unwrap_or(self.timeout)))
    }
}

impl State {
    /// Has a place looked at by then; `true` if that is before all others.
    fn look_by(&mut self, index: usize, deadline: Duration) -> bool {
        let Self { places, timeouts, .. } = self;
        let timer = &mut places[index].timer;
        if timer.is_some_and(|timer| timer <= deadline) {
            return false;
        }
        if let Some(later) = timer.replace(deadline) {
            timeouts.due.remove(&(later, index));
        }
        timeouts.due.insert((deadline, index));
        timeouts.due.first() == Some(&(deadline, index))
    }

    /// The turns whose time is up.
    fn overdue(&mut self, now: Duration) -> Vec<(TurnId, AgentName)> {
        let mut overdue = Vec::new();
        while let Some((at, index)) = self.timeouts.due.first().copied().filter(|(at, _)| *at <= now) {
            self.timeouts.due.remove(&(at, index));
            let place = &mut self.places[index];
            overdue.extend(place.overdue(now));
            place.timer = place.next_look(now);
            self.timeouts.due.extend(place.timer.map(|next| (next, index)));
        }
        overdue.sort_unstable();
        overdue
    }
}

impl Floor {
    /// Has a place looked at by then.
    pub(super) fn look_by(self: &Arc<Self>, state: &mut State, index: usize, deadline: Duration) {
        if !state.look_by(index, deadline) {
            return;
        }
        if std::mem::replace(&mut state.timeouts.is_watched, true) {
            self.hurry.notify_one();
        } else {
            self.runtime.spawn(Self::watch_timeouts(Arc::downgrade(self), Arc::clone(&self.hurry)));
        }
    }

    /// Stops turns that run longer than their agent may; ends when none is under way. Holds nothing while it sleeps, so that
    /// a board that was shut down lets go of its store.
    async fn watch_timeouts(floor: Weak<Self>, hurry: Arc<Notify>) {
        loop {
            let wait = {
                let Some(floor) = floor.upgrade() else { return };
                let now = floor.env.now().monotonic;
                let (overdue, next) = {
                    let mut state = floor.state.lock();
                    let overdue = state.overdue(now);
                    let next = state.timeouts.due.first().map(|(at, _)| *at);
                    state.timeouts.is_watched = next.is_some();
                    (overdue, next)
                };
                for (turn, agent) in overdue {
                    floor.stop_turn(turn, &agent, StopReason::TimedOut);
                }
                let Some(next) = next else { return };
                next.saturating_sub(now)
            };
            tokio::select! {
                biased;
                () = tokio::time::sleep(wait) => {}
                () = hurry.notified() => {}
            }
        }
    }
}
