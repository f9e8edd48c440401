//! Handles starts, ends and stops of children.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use ractor::{ActorCell, ActorId};

use super::child::{Origin, Pause, Phase, Then};
use super::errors::{ControlError, EndReason};
use super::event::TreeEventKind;
use super::exit::Exit;
use super::message::{Key, Launched, Msg};
use super::restart::{Decision, Incident, Position, decide};
use super::state::{SupervisorState, report};

impl SupervisorState {
    pub(super) fn launched(&mut self, key: Key, outcome: Launched) {
        self.launches -= 1;
        let position = key.position;
        let child = &mut self.children[position];
        child.launching = None;
        match outcome {
            Launched::Started(cell) => {
                self.children.set_actor(position, Some(cell));
                match *self.children[position].phase() {
                    Phase::Starting => self.started(position),
                    Phase::Doomed(_) => {}
                    // The call to stop came too late for the start, so the child is stopped like any other.
                    Phase::Stopping(then) => self.begin_stop(position, then),
                    Phase::Waiting(_) | Phase::Running | Phase::Down | Phase::Failed => {
                        unreachable!("a child with a start under way is starting or about to stop")
                    }
                }
            }
            Launched::Failed(error) => {
                self.events.emit(&child.path, child.generation, TreeEventKind::StartFailed { error: error.clone() });
                child.last_error = Some(error.clone());
                match *child.phase() {
                    Phase::Doomed(then) | Phase::Stopping(then) => self.settle(position, then),
                    Phase::Starting => self.start_failed(position, error),
                    Phase::Waiting(_) | Phase::Running | Phase::Down | Phase::Failed => {
                        unreachable!("a child with a start under way is starting or about to stop")
                    }
                }
            }
            Launched::Cancelled { halted } => self.halted(key, halted),
        }
        if self.launches == 0 {
            self.early.clear();
        }
    }

    fn started(&mut self, position: Position) {
        self.children.enter(position, Phase::Running);
        let child = &mut self.children[position];
        let kind = if child.generation == 1 { TreeEventKind::Started } else { TreeEventKind::Restarted };
        child.restarts += u64::from(child.origin == Origin::Restart);
        child.origin = Origin::Restart;
        child.running_since = Some(self.env.now().monotonic);
        child.answer_start(Ok(()));
        self.events.emit(&child.path, child.generation, kind);
        let id = child.cell.as_ref().map(ActorCell::get_id);
        if let Some(exit) = id.and_then(|id| self.early.remove(&id)) {
            self.crashed(position, exit);
        }
    }

    fn start_failed(&mut self, position: Position, error: String) {
        let child = &mut self.children[position];
        match child.origin {
            Origin::Initial => {
                let reason = EndReason::StartFailed { child: Arc::clone(&child.path), error };
                self.settle(position, Then::Stay);
                self.end(reason);
            }
            Origin::Added | Origin::ByHand => {
                let then = if child.origin == Origin::Added { Then::Remove } else { Then::Stay };
                child.answer_start(Err(ControlError::StartFailed { child: Arc::clone(&child.spec.id), error }));
                self.settle(position, then);
            }
            Origin::Restart => {
                let cause = TreeEventKind::StartFailed { error }.to_string();
                self.incident(position, false, cause);
            }
        }
    }

    pub(super) fn exited(&mut self, actor: ActorId, exit: Exit) {
        let Some(position) = self.children.played_by(actor) else {
            if self.launches > 0 {
                self.early.insert(actor, exit);
            }
            return;
        };
        match *self.children[position].phase() {
            Phase::Running => self.crashed(position, exit),
            // It was to be stopped later; now it is down already.
            Phase::Doomed(then) => {
                self.note_exit(position, &exit);
                self.settle(position, then);
            }
            // The stop in progress reports when the actor is gone, if a task waits for that.
            Phase::Stopping(_) => {
                let child = &mut self.children[position];
                if let Exit::Crashed(error) = exit {
                    child.last_error = Some(error);
                }
                if std::mem::take(&mut child.is_asked) {
                    self.has_stopped(position);
                }
            }
            Phase::Waiting(_) | Phase::Starting | Phase::Down | Phase::Failed => {}
        }
    }

    fn crashed(&mut self, position: Position, exit: Exit) {
        self.note_exit(position, &exit);
        self.incident(position, exit.is_normal(), exit.cause());
    }

    fn note_exit(&mut self, position: Position, exit: &Exit) {
        self.children.set_actor(position, None);
        let child = &mut self.children[position];
        child.running_since = None;
        if !exit.is_normal() {
            child.last_error = Some(exit.cause());
        }
        self.events.emit(&child.path, child.generation, TreeEventKind::Exited { exit: exit.clone() });
    }

    /// Applies the restart rule to a child that is down, or that a restart could not start.
    fn incident(&mut self, position: Position, normal: bool, cause: String) {
        let child = &mut self.children[position];
        let mut own = std::mem::take(&mut child.window);
        let now = self.env.now().monotonic;
        let incident = Incident { child: position, facts: child.facts(), normal, now };
        let facts = |positions| self.children.facts(positions);
        let decision = decide(&self.spec.policy, facts, incident, &mut self.window, &mut own);
        self.children[position].window = own;
        match decision {
            Decision::Forget => self.settle(position, Then::Remove),
            Decision::Keep => self.settle(position, Then::Stay),
            Decision::Fail => {
                self.children.enter(position, Phase::Failed);
                let (child, error) = (&self.children[position], cause);
                if let Some(on_failed) = &child.spec.on_failed {
                    // A panic of this callback does not affect the tree.
                    let _ = catch_unwind(AssertUnwindSafe(|| on_failed(&error)));
                }
                self.events.emit(&child.path, child.generation, TreeEventKind::Failed { error });
            }
            Decision::Restart { stop, start, attempt } => self.schedule(&stop, start, attempt),
            Decision::Escalate => {
                let (child, error) = (Arc::clone(&self.children[position].path), cause);
                self.events.emit(
                    &self.path,
                    self.generation,
                    TreeEventKind::Escalated { child: Arc::clone(&child), error: error.clone() },
                );
                self.settle(position, Then::Stay);
                self.end(EndReason::IntensityExceeded { child, error });
            }
            Decision::Shutdown => {
                let child = Arc::clone(&self.children[position].path);
                self.settle(position, Then::Stay);
                self.end(EndReason::AutoShutdown { child });
            }
        }
    }

    /// Plans stops and starts, in the order that [`Self::advance`] gives them.
    fn schedule(&mut self, stop: &[Position], start: Vec<Position>, attempt: u32) {
        self.incidents += 1;
        let delay = self.spec.backoff.delay(attempt, self.env.random());
        let until = self.env.now().monotonic.saturating_add(delay);
        let pause = (!delay.is_zero()).then_some(Pause { incident: self.incidents, until });
        let then = Then::Restart(pause);
        for &position in stop {
            let child = &self.children[position];
            match child.phase() {
                // A stop that was requested by hand remains.
                Phase::Doomed(Then::Stay | Then::Remove) => {}
                Phase::Doomed(Then::Restart(_)) | Phase::Starting | Phase::Running => {
                    let then = child.after_stop(then);
                    self.children.enter(position, Phase::Doomed(then));
                }
                Phase::Waiting(_) | Phase::Stopping(_) | Phase::Down | Phase::Failed => {
                    unreachable!("only what is up is to be stopped")
                }
            }
        }
        for &position in &start {
            let child = &mut self.children[position];
            self.events.emit(&child.path, child.generation, TreeEventKind::RestartScheduled { after: delay });
            match *child.phase() {
                Phase::Doomed(_) => {}
                Phase::Stopping(Then::Restart(_)) => self.children.enter(position, Phase::Stopping(then)),
                // A stop that was requested by hand remains.
                Phase::Stopping(Then::Stay | Then::Remove) => {}
                Phase::Down => {
                    child.origin = Origin::Restart;
                    self.children.enter(position, Phase::Waiting(pause));
                }
                Phase::Waiting(_) | Phase::Starting | Phase::Running | Phase::Failed => {
                    self.children.enter(position, Phase::Waiting(pause));
                }
            }
        }
        if let Some(Pause { incident, .. }) = pause {
            let myself = self.myself.clone();
            self.spawn(async move {
                tokio::time::sleep(delay).await;
                report(&myself, Msg::PauseOver { incident, positions: start });
            });
        }
    }

    /// Handles the end of a child's stop.
    pub(super) fn halted(&mut self, key: Key, end: TreeEventKind) {
        if !self.children.is_latest(key) {
            return;
        }
        if let Phase::Stopping(then) = *self.children[key.position].phase() {
            self.children.set_actor(key.position, None);
            let child = &mut self.children[key.position];
            child.running_since = None;
            self.events.emit(&child.path, child.generation, end);
            self.settle(key.position, then);
        }
    }

    /// A child is down: answers the waiting callers, and keeps, removes or restarts it.
    pub(super) fn settle(&mut self, position: Position, then: Then) {
        let child = &mut self.children[position];
        child.answer_stop();
        match then {
            Then::Restart(pause) => self.children.enter(position, Phase::Waiting(pause)),
            Then::Stay => {
                child.answer_start(Err(ControlError::Cancelled));
                self.children.enter(position, Phase::Down);
            }
            Then::Remove => {
                child.answer_start(Err(ControlError::Cancelled));
                self.children.remove(position);
            }
        }
    }
}
