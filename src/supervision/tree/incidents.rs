//! What a supervisor does when a child has started, ended or stopped.

use std::sync::Arc;

use ractor::{ActorCell, ActorId};

use super::board::{Board, report};
use super::child::{Child, Key, Origin, Pause, Phase, Then};
use super::event::TreeEventKind;
use super::handle::{ControlError, EndReason};
use super::lifecycle::Launched;
use super::restart::{Decision, Exit, Incident, decide};
use super::supervisor::Msg;

impl Board {
    pub(super) fn launched(&mut self, key: &Key, outcome: Launched) {
        let Some(index) = self.index(key) else { return };
        let child = &mut self.children[index];
        child.launching = None;
        match outcome {
            Launched::Started(cell) => {
                child.cell = Some(cell);
                match *child.phase() {
                    Phase::Starting => self.started(index),
                    Phase::Doomed(_) => {}
                    // The call to stop came too late for the start, so the child is stopped like any other.
                    Phase::Stopping(then) => self.begin_stop(index, then),
                    Phase::Waiting(_) | Phase::Running | Phase::Down | Phase::Failed => {
                        unreachable!("a child with a start under way is starting or about to stop")
                    }
                }
            }
            Launched::Failed(error) => {
                self.events.emit(&child.path, child.generation, TreeEventKind::StartFailed { error: error.clone() });
                child.last_error = Some(error.clone());
                match *child.phase() {
                    Phase::Doomed(then) | Phase::Stopping(then) => self.settle(index, then),
                    Phase::Starting => self.start_failed(index, error),
                    Phase::Waiting(_) | Phase::Running | Phase::Down | Phase::Failed => {
                        unreachable!("a child with a start under way is starting or about to stop")
                    }
                }
            }
            Launched::Cancelled { killed } => self.halted(key, killed),
        }
        if !self.children.iter().any(|child| child.launching.is_some()) {
            self.early.clear();
        }
    }

    fn started(&mut self, index: usize) {
        let child = &mut self.children[index];
        let kind = if child.generation == 1 { TreeEventKind::Started } else { TreeEventKind::Restarted };
        child.restarts += u64::from(child.origin == Origin::Restart);
        child.origin = Origin::Restart;
        child.running_since = Some(self.env.now().monotonic);
        child.enter(Phase::Running);
        child.answer_start(Ok(()));
        self.events.emit(&child.path, child.generation, kind);
        let id = child.cell.as_ref().map(ActorCell::get_id);
        if let Some(exit) = id.and_then(|id| self.early.remove(&id)) {
            self.crashed(index, exit);
        }
    }

    fn start_failed(&mut self, index: usize, error: String) {
        let child = &mut self.children[index];
        match child.origin {
            Origin::Initial => {
                let reason = EndReason::StartFailed { child: Arc::clone(&child.path), error };
                self.settle(index, Then::Stay);
                self.end(reason);
            }
            Origin::Added | Origin::ByHand => {
                let then = if child.origin == Origin::Added { Then::Remove } else { Then::Stay };
                child.answer_start(Err(ControlError::StartFailed { child: Arc::clone(&child.spec.id), error }));
                self.settle(index, then);
            }
            Origin::Restart => self.incident(index, &Exit::StartFailed(error)),
        }
    }

    pub(super) fn exited(&mut self, actor: ActorId, exit: Exit) {
        let known = |child: &Child| child.cell.as_ref().is_some_and(|cell| cell.get_id() == actor);
        let Some(index) = self.children.iter().position(known) else {
            if self.children.iter().any(|child| child.launching.is_some()) {
                self.early.insert(actor, exit);
            }
            return;
        };
        match *self.children[index].phase() {
            Phase::Running => self.crashed(index, exit),
            // Its turn to stop had not come; now it is down anyway.
            Phase::Doomed(then) => {
                self.note_exit(index, &exit);
                self.settle(index, then);
            }
            // The stop that is under way reports when the actor is gone.
            Phase::Stopping(_) => {
                if let Exit::Failed(error) = exit {
                    self.children[index].last_error = Some(error);
                }
            }
            Phase::Waiting(_) | Phase::Starting | Phase::Down | Phase::Failed => {}
        }
    }

    fn crashed(&mut self, index: usize, exit: Exit) {
        self.note_exit(index, &exit);
        self.incident(index, &exit);
    }

    fn note_exit(&mut self, index: usize, exit: &Exit) {
        let child = &mut self.children[index];
        child.cell = None;
        child.running_since = None;
        if !exit.is_normal() {
            child.last_error = Some(exit.cause());
        }
        self.events.emit(&child.path, child.generation, TreeEventKind::Exited { exit: exit.clone() });
    }

    /// Applies the restart rule to a child that is down.
    fn incident(&mut self, index: usize, exit: &Exit) {
        let facts: Vec<_> = self.children.iter().map(Child::facts).collect();
        let incident = Incident { child: index, normal: exit.is_normal(), now: self.env.now().monotonic };
        let own = &mut self.children[index].window;
        match decide(&self.spec.policy, &facts, incident, &mut self.window, own) {
            Decision::Forget => self.settle(index, Then::Remove),
            Decision::Keep => self.settle(index, Then::Stay),
            Decision::Fail => {
                let child = &mut self.children[index];
                child.enter(Phase::Failed);
                self.events.emit(&child.path, child.generation, TreeEventKind::Failed { error: exit.cause() });
            }
            Decision::Restart { stop, start, attempt } => self.schedule(&stop, &start, attempt),
            Decision::Escalate => {
                let (child, error) = (Arc::clone(&self.children[index].path), exit.cause());
                self.events.emit(
                    &self.path,
                    self.generation,
                    TreeEventKind::Escalated { child: Arc::clone(&child), error: error.clone() },
                );
                self.settle(index, Then::Stay);
                self.end(EndReason::IntensityExceeded { child, error });
            }
            Decision::Shutdown => {
                let child = Arc::clone(&self.children[index].path);
                self.settle(index, Then::Stay);
                self.end(EndReason::AutoShutdown { child });
            }
        }
    }

    /// Plans stops and starts, in the order that [`Self::advance`] gives them.
    fn schedule(&mut self, stop: &[usize], start: &[usize], attempt: u32) {
        self.incidents += 1;
        let delay = self.spec.backoff.delay(attempt, self.env.random());
        let until = self.env.now().monotonic.saturating_add(delay);
        let pause = (!delay.is_zero()).then_some(Pause { incident: self.incidents, until });
        let then = Then::Restart(pause);
        for &index in stop {
            let child = &mut self.children[index];
            match child.phase() {
                // Asked for by hand: that holds.
                Phase::Doomed(Then::Stay | Then::Remove) => {}
                Phase::Doomed(Then::Restart(_)) | Phase::Starting | Phase::Running => {
                    child.enter(Phase::Doomed(child.after_stop(then)));
                }
                Phase::Waiting(_) | Phase::Stopping(_) | Phase::Down | Phase::Failed => {
                    unreachable!("only what is up is to be stopped")
                }
            }
        }
        for &index in start {
            let child = &mut self.children[index];
            self.events.emit(&child.path, child.generation, TreeEventKind::RestartScheduled { after: delay });
            match *child.phase() {
                Phase::Doomed(_) => {}
                Phase::Stopping(Then::Restart(_)) => child.enter(Phase::Stopping(then)),
                // Being stopped by hand: that holds.
                Phase::Stopping(Then::Stay | Then::Remove) => {}
                Phase::Down => {
                    child.origin = Origin::Restart;
                    child.enter(Phase::Waiting(pause));
                }
                Phase::Waiting(_) | Phase::Starting | Phase::Running | Phase::Failed => {
                    child.enter(Phase::Waiting(pause));
                }
            }
        }
        if let Some(Pause { incident, .. }) = pause {
            let myself = self.myself.clone();
            self.spawn(async move {
                tokio::time::sleep(delay).await;
                report(&myself, Msg::PauseOver { incident });
            });
        }
    }

    pub(super) fn pause_over(&mut self, incident: u64) {
        for child in &mut self.children {
            child.end_pause(incident);
        }
    }

    pub(super) fn halted(&mut self, key: &Key, killed: bool) {
        let Some(index) = self.index(key) else { return };
        let child = &mut self.children[index];
        if let Phase::Stopping(then) = *child.phase() {
            child.cell = None;
            child.running_since = None;
            self.events.emit(&child.path, child.generation, TreeEventKind::Stopped { killed });
            self.settle(index, then);
        }
    }

    /// A child is down: answers who waited for that, and lets it stay, go or come back.
    pub(super) fn settle(&mut self, index: usize, then: Then) {
        let child = &mut self.children[index];
        child.answer_stop();
        match then {
            Then::Restart(pause) => child.enter(Phase::Waiting(pause)),
            Then::Stay => {
                child.answer_start(Err(ControlError::CalledOff));
                child.enter(Phase::Down);
            }
            Then::Remove => {
                child.answer_start(Err(ControlError::CalledOff));
                self.children.remove(index);
            }
        }
    }
}
