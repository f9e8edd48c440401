//! A supervisor's state, and what it does when a child starts, ends or stops.
//!
//! Children move through [`Phase`]s. Each change only sets phases; [`Board::advance`] then starts and stops those whose
//! turn it is, in tasks that report back with a message.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ractor::{ActorCell, ActorId, ActorProcessingErr, ActorRef};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use super::child::{Child, Key, Launching, Origin, Pause, Phase, Then, next_to_start, next_to_stop};
use super::event::{Events, TreeEventKind};
use super::handle::{ControlError, EndReason};
use super::lifecycle::{Launch, Launched, halt};
use super::restart::{Decision, Exit, Incident, Window, decide};
use super::spec::SupervisorSpec;
use super::supervisor::{Arguments, Msg};
use crate::env::Env;

pub(super) enum Life {
    Starting(oneshot::Sender<Result<(), EndReason>>),
    Running,
    /// Children are being stopped. Who waits for the start is told when they are down.
    Ending(EndReason, Option<oneshot::Sender<Result<(), EndReason>>>),
    /// All children are down.
    Over,
}

/// A supervisor's state.
pub(super) struct Board {
    myself: ActorRef<Msg>,
    pub(super) spec: Arc<SupervisorSpec>,
    pub(super) path: Arc<str>,
    pub(super) env: Env,
    pub(super) events: Events,
    pub(super) life: Life,
    ended: watch::Sender<Option<EndReason>>,
    pub(super) children: Vec<Child>,
    window: Window,
    incidents: u64,
    pub(super) since: Duration,
    /// Ends of actors that are not known yet: a child may crash before its start is reported.
    early: HashMap<ActorId, Exit>,
    /// Starts, stops, pauses and snapshots; they end with the supervisor.
    tasks: JoinSet<()>,
}

impl Board {
    pub(super) fn new(myself: ActorRef<Msg>, arguments: Arguments) -> Self {
        let Arguments { spec, path, env, events, ready, ended } = arguments;
        let children = spec.children.iter().map(|child| Child::new(child.clone(), &path, Origin::Initial)).collect();
        Self {
            myself,
            since: env.now().monotonic,
            path,
            env,
            events,
            life: Life::Starting(ready),
            ended,
            children,
            window: Window::default(),
            incidents: 0,
            early: HashMap::new(),
            tasks: JoinSet::new(),
            spec,
        }
    }

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
                    0,
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

    /// Stops all children in reverse order and then ends. The first reason counts.
    pub(super) fn end(&mut self, reason: EndReason) {
        let ready = match std::mem::replace(&mut self.life, Life::Over) {
            Life::Starting(ready) => Some(ready),
            Life::Running => None,
            life @ (Life::Ending(..) | Life::Over) => {
                self.life = life;
                return;
            }
        };
        self.life = Life::Ending(reason, ready);
        for index in (0..self.children.len()).rev() {
            match self.children[index].phase() {
                Phase::Waiting(_) => self.settle(index, Then::Stay),
                Phase::Starting | Phase::Running | Phase::Doomed(_) => {
                    self.children[index].enter(Phase::Doomed(Then::Stay));
                }
                Phase::Stopping(_) => self.children[index].enter(Phase::Stopping(Then::Stay)),
                Phase::Down | Phase::Failed => {}
            }
        }
    }

    /// Starts and stops those whose turn it is, and ends the supervisor when it is done.
    ///
    /// # Errors
    /// When the supervisor gives up; its own supervisor then sees a failed child.
    pub(super) fn advance(&mut self) -> Result<(), ActorProcessingErr> {
        while let Some((index, then)) = next_to_stop(&self.children) {
            self.begin_stop(index, then);
        }
        let down = |child: &Child| matches!(child.phase(), Phase::Down | Phase::Failed);
        match &self.life {
            Life::Ending(..) if self.children.iter().all(down) => return self.close(),
            Life::Ending(..) | Life::Over => return Ok(()),
            Life::Starting(_) | Life::Running => {}
        }
        for index in next_to_start(&self.children, self.spec.policy.strategy) {
            self.begin_start(index);
        }
        let starting = self.children.iter().any(|child| child.origin == Origin::Initial);
        match std::mem::replace(&mut self.life, Life::Running) {
            Life::Starting(ready) if starting => self.life = Life::Starting(ready),
            Life::Starting(ready) => {
                if ready.send(Ok(())).is_err() {
                    // Whoever started this supervisor has left, so nobody could ever stop it.
                    self.end(EndReason::Stopped);
                    return self.advance();
                }
            }
            life @ (Life::Running | Life::Ending(..) | Life::Over) => self.life = life,
        }
        Ok(())
    }

    fn begin_start(&mut self, index: usize) {
        let child = &mut self.children[index];
        let (cancel, cancelled) = oneshot::channel();
        let spawned = Arc::new(OnceLock::new());
        child.generation += 1;
        child.launching = Some(Launching { cancel: Some(cancel), spawned: Arc::clone(&spawned) });
        child.enter(Phase::Starting);
        let key = child.key();
        let launch = Launch {
            spec: child.spec.clone(),
            path: Arc::clone(&child.path),
            supervisor: self.myself.get_cell(),
            env: self.env.clone(),
            events: self.events.clone(),
            spawned,
        };
        let myself = self.myself.clone();
        self.spawn(async move {
            let outcome = launch.run(cancelled).await;
            report(&myself, Msg::Launched { key, outcome });
        });
    }

    pub(super) fn begin_stop(&mut self, index: usize, then: Then) {
        let child = &mut self.children[index];
        child.enter(Phase::Stopping(then));
        if let Some(launching) = &mut child.launching {
            if let Some(cancel) = launching.cancel.take() {
                // If the start is over already, its report is on the way and leads here again.
                let _ = cancel.send(());
            }
        } else if let Some(cell) = child.cell.clone() {
            let (key, spec, myself) = (child.key(), child.spec.clone(), self.myself.clone());
            self.spawn(async move {
                let killed = halt(&cell, &spec).await;
                report(&myself, Msg::Halted { key, killed });
            });
        } else {
            self.settle(index, then);
        }
    }

    /// All children are down: says why, and ends the actor.
    fn close(&mut self) -> Result<(), ActorProcessingErr> {
        let Life::Ending(reason, ready) = std::mem::replace(&mut self.life, Life::Over) else { return Ok(()) };
        self.ended.send_replace(Some(reason.clone()));
        if let Some(ready) = ready {
            // The caller may have left.
            let _ = ready.send(Err(reason.clone()));
        }
        match reason {
            EndReason::IntensityExceeded { .. } => Err(reason.into()),
            EndReason::Stopped | EndReason::AutoShutdown { .. } | EndReason::StartFailed { .. } | EndReason::Killed => {
                self.myself.stop(None);
                Ok(())
            }
        }
    }

    /// Stops all children in reverse order and waits for them: the end of a supervisor that was stopped from outside,
    /// without a word to it.
    pub(super) async fn stop_all(&mut self) {
        self.tasks.shutdown().await;
        for child in self.children.iter().rev() {
            if let Some(cell) = child.actor() {
                halt(cell, &child.spec).await;
            }
        }
        self.children.clear();
        self.end(EndReason::Stopped);
        // Nothing is left that could fail.
        let _ = self.close();
    }

    fn index(&self, key: &Key) -> Option<usize> {
        self.children.iter().position(|child| child.spec.id == key.id && child.generation == key.generation)
    }

    pub(super) fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        while self.tasks.try_join_next().is_some() {}
        self.tasks.spawn(task);
    }
}

/// Tells the supervisor how a task ended.
fn report(supervisor: &ActorRef<Msg>, message: Msg) {
    // A supervisor that is gone has nothing left to do about it.
    let _ = supervisor.cast(message);
}
