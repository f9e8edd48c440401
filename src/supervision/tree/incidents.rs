//! What a supervisor does when a child has started, ended or stopped.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use ractor::{ActorCell, ActorId};

use super::board::{Board, report};
use super::child::{Origin, Pause, Phase, Then};
use super::children::Key;
use super::event::TreeEventKind;
use super::handle::{ControlError, EndReason};
use super::lifecycle::Launched;
use super::restart::{Decision, Exit, Incident, Place, decide};
use super::supervisor::Msg;

impl Board {
    pub(super) fn launched(&mut self, key: Key, outcome: Launched) {
        self.launches -= 1;
        let place = key.place;
        let child = &mut self.children[place];
        child.launching = None;
        match outcome {
            Launched::Started(cell) => {
                self.children.set_actor(place, Some(cell));
                match *self.children[place].phase() {
                    Phase::Starting => self.started(place),
                    Phase::Doomed(_) => {}
                    // The call to stop came too late for the start, so the child is stopped like any other.
                    Phase::Stopping(then) => self.begin_stop(place, then),
                    Phase::Waiting(_) | Phase::Running | Phase::Down | Phase::Failed => {
                        unreachable!("a child with a start under way is starting or about to stop")
                    }
                }
            }
            Launched::Failed(error) => {
                self.events.emit(&child.path, child.generation, TreeEventKind::StartFailed { error: error.clone() });
                child.last_error = Some(error.clone());
                match *child.phase() {
                    Phase::Doomed(then) | Phase::Stopping(then) => self.settle(place, then),
                    Phase::Starting => self.start_failed(place, error),
                    Phase::Waiting(_) | Phase::Running | Phase::Down | Phase::Failed => {
                        unreachable!("a child with a start under way is starting or about to stop")
                    }
                }
            }
            Launched::Cancelled { killed } => self.halted(key, killed),
        }
        if self.launches == 0 {
            self.early.clear();
        }
    }

    fn started(&mut self, place: Place) {
        self.children.enter(place, Phase::Running);
        let child = &mut self.children[place];
        let kind = if child.generation == 1 { TreeEventKind::Started } else { TreeEventKind::Restarted };
        child.restarts += u64::from(child.origin == Origin::Restart);
        child.origin = Origin::Restart;
        child.running_since = Some(self.env.now().monotonic);
        child.answer_start(Ok(()));
        self.events.emit(&child.path, child.generation, kind);
        let id = child.cell.as_ref().map(ActorCell::get_id);
        if let Some(exit) = id.and_then(|id| self.early.remove(&id)) {
            self.crashed(place, exit);
        }
    }

    fn start_failed(&mut self, place: Place, error: String) {
        let child = &mut self.children[place];
        match child.origin {
            Origin::Initial => {
                let reason = EndReason::StartFailed { child: Arc::clone(&child.path), error };
                self.settle(place, Then::Stay);
                self.end(reason);
            }
            Origin::Added | Origin::ByHand => {
                let then = if child.origin == Origin::Added { Then::Remove } else { Then::Stay };
                child.answer_start(Err(ControlError::StartFailed { child: Arc::clone(&child.spec.id), error }));
                self.settle(place, then);
            }
            Origin::Restart => self.incident(place, &Exit::StartFailed(error)),
        }
    }

    pub(super) fn exited(&mut self, actor: ActorId, exit: Exit) {
        let Some(place) = self.children.played_by(actor) else {
            if self.launches > 0 {
                self.early.insert(actor, exit);
            }
            return;
        };
        match *self.children[place].phase() {
            Phase::Running => self.crashed(place, exit),
            // Its turn to stop had not come; now it is down anyway.
            Phase::Doomed(then) => {
                self.note_exit(place, &exit);
                self.settle(place, then);
            }
            // The stop that is under way reports when the actor is gone.
            Phase::Stopping(_) => {
                if let Exit::Failed(error) = exit {
                    self.children[place].last_error = Some(error);
                }
            }
            Phase::Waiting(_) | Phase::Starting | Phase::Down | Phase::Failed => {}
        }
    }

    fn crashed(&mut self, place: Place, exit: Exit) {
        self.note_exit(place, &exit);
        self.incident(place, &exit);
    }

    fn note_exit(&mut self, place: Place, exit: &Exit) {
        self.children.set_actor(place, None);
        let child = &mut self.children[place];
        child.running_since = None;
        if !exit.is_normal() {
            child.last_error = Some(exit.cause());
        }
        self.events.emit(&child.path, child.generation, TreeEventKind::Exited { exit: exit.clone() });
    }

    /// Applies the restart rule to a child that is down.
    fn incident(&mut self, place: Place, exit: &Exit) {
        let child = &mut self.children[place];
        let mut own = std::mem::take(&mut child.window);
        let now = self.env.now().monotonic;
        let incident = Incident { child: place, facts: child.facts(), normal: exit.is_normal(), now };
        let facts = |places| self.children.facts(places);
        let decision = decide(&self.spec.policy, facts, incident, &mut self.window, &mut own);
        self.children[place].window = own;
        match decision {
            Decision::Forget => self.settle(place, Then::Remove),
            Decision::Keep => self.settle(place, Then::Stay),
            Decision::Fail => {
                self.children.enter(place, Phase::Failed);
                let (child, error) = (&self.children[place], exit.cause());
                if let Some(tell) = &child.spec.on_failed {
                    // What a panic in it breaks is not the tree's.
                    let _ = catch_unwind(AssertUnwindSafe(|| tell(&error)));
                }
                self.events.emit(&child.path, child.generation, TreeEventKind::Failed { error });
            }
            Decision::Restart { stop, start, attempt } => self.schedule(&stop, start, attempt),
            Decision::Escalate => {
                let (child, error) = (Arc::clone(&self.children[place].path), exit.cause());
                self.events.emit(
                    &self.path,
                    self.generation,
                    TreeEventKind::Escalated { child: Arc::clone(&child), error: error.clone() },
                );
                self.settle(place, Then::Stay);
                self.end(EndReason::IntensityExceeded { child, error });
            }
            Decision::Shutdown => {
                let child = Arc::clone(&self.children[place].path);
                self.settle(place, Then::Stay);
                self.end(EndReason::AutoShutdown { child });
            }
        }
    }

    /// Plans stops and starts, in the order that [`Self::advance`] gives them.
    fn schedule(&mut self, stop: &[Place], start: Vec<Place>, attempt: u32) {
        self.incidents += 1;
        let delay = self.spec.backoff.delay(attempt, self.env.random());
        let until = self.env.now().monotonic.saturating_add(delay);
        let pause = (!delay.is_zero()).then_some(Pause { incident: self.incidents, until });
        let then = Then::Restart(pause);
        for &place in stop {
            let child = &self.children[place];
            match child.phase() {
                // Asked for by hand: that holds.
                Phase::Doomed(Then::Stay | Then::Remove) => {}
                Phase::Doomed(Then::Restart(_)) | Phase::Starting | Phase::Running => {
                    let then = child.after_stop(then);
                    self.children.enter(place, Phase::Doomed(then));
                }
                Phase::Waiting(_) | Phase::Stopping(_) | Phase::Down | Phase::Failed => {
                    unreachable!("only what is up is to be stopped")
                }
            }
        }
        for &place in &start {
            let child = &mut self.children[place];
            self.events.emit(&child.path, child.generation, TreeEventKind::RestartScheduled { after: delay });
            match *child.phase() {
                Phase::Doomed(_) => {}
                Phase::Stopping(Then::Restart(_)) => self.children.enter(place, Phase::Stopping(then)),
                // Being stopped by hand: that holds.
                Phase::Stopping(Then::Stay | Then::Remove) => {}
                Phase::Down => {
                    child.origin = Origin::Restart;
                    self.children.enter(place, Phase::Waiting(pause));
                }
                Phase::Waiting(_) | Phase::Starting | Phase::Running | Phase::Failed => {
                    self.children.enter(place, Phase::Waiting(pause));
                }
            }
        }
        if let Some(Pause { incident, .. }) = pause {
            let myself = self.myself.clone();
            self.spawn(async move {
                tokio::time::sleep(delay).await;
                report(&myself, Msg::PauseOver { incident, places: start });
            });
        }
    }

    pub(super) fn halted(&mut self, key: Key, killed: bool) {
        if !self.children.is_latest(key) {
            return;
        }
        if let Phase::Stopping(then) = *self.children[key.place].phase() {
            self.children.set_actor(key.place, None);
            let child = &mut self.children[key.place];
            child.running_since = None;
            self.events.emit(&child.path, child.generation, TreeEventKind::Stopped { killed });
            self.settle(key.place, then);
        }
    }

    /// A child is down: answers who waited for that, and lets it stay, go or come back.
    pub(super) fn settle(&mut self, place: Place, then: Then) {
        let child = &mut self.children[place];
        child.answer_stop();
        match then {
            Then::Restart(pause) => self.children.enter(place, Phase::Waiting(pause)),
            Then::Stay => {
                child.answer_start(Err(ControlError::CalledOff));
                self.children.enter(place, Phase::Down);
            }
            Then::Remove => {
                child.answer_start(Err(ControlError::CalledOff));
                self.children.remove(place);
            }
        }
    }
}
