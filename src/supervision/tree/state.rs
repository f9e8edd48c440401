//! A supervisor's state, and how it starts and stops children in their order.
//!
//! Children move through [`Phase`]s. Each change only sets phases; [`SupervisorState::advance`] then starts and stops those that
//! are due, in tasks that report back with a message.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ractor::{ActorId, ActorProcessingErr, ActorRef};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use super::child::{Child, Launching, Origin, Phase, Then};
use super::children::Children;
use super::errors::EndReason;
use super::event::Events;
use super::exit::Exit;
use super::intensity::Window;
use super::lifecycle::{Launch, halt};
use super::message::{Arguments, Msg};
use super::restart::Position;
use super::spec::SupervisorSpec;
use crate::env::Env;

pub(super) enum Life {
    Starting(oneshot::Sender<Result<(), EndReason>>),
    Running,
    /// Children are being stopped. A caller that waits for the start is answered when they are down.
    Ending(EndReason, Option<oneshot::Sender<Result<(), EndReason>>>),
    /// All children are down.
    Over,
}

/// A supervisor's state.
pub(super) struct SupervisorState {
    pub(super) myself: ActorRef<Msg>,
    pub(super) spec: Arc<SupervisorSpec>,
    pub(super) path: Arc<str>,
    /// The generation of this supervisor.
    pub(super) generation: u64,
    pub(super) env: Env,
    pub(super) events: Events,
    pub(super) life: Life,
    ended: watch::Sender<Option<EndReason>>,
    pub(super) children: Children,
    pub(super) window: Window,
    pub(super) incidents: u64,
    pub(super) since: Duration,
    /// Ends of actors that are not known yet: a child may crash before its start is reported.
    pub(super) early: HashMap<ActorId, Exit>,
    /// Starts that are under way.
    pub(super) launches: usize,
    /// Starts, stops, pauses and snapshots; they end with the supervisor.
    tasks: JoinSet<()>,
}

impl SupervisorState {
    pub(super) fn new(myself: ActorRef<Msg>, arguments: Arguments) -> Self {
        let Arguments { spec, path, generation, env, events, ready, ended } = arguments;
        let mut children = Children::default();
        for child in &spec.children {
            children.push(Child::new(child.clone(), &path, Origin::Initial));
        }
        Self {
            myself,
            since: env.now().monotonic,
            path,
            generation,
            env,
            events,
            life: Life::Starting(ready),
            ended,
            children,
            window: Window::default(),
            incidents: 0,
            early: HashMap::new(),
            launches: 0,
            tasks: JoinSet::new(),
            spec,
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
        let mut limits = BTreeSet::new();
        for position in self.children.positions().into_iter().rev() {
            match self.children[position].phase() {
                Phase::Waiting(_) => self.settle(position, Then::Stay),
                Phase::Running => match self.ask_to_stop(position) {
                    Some(limit) => {
                        limits.insert(limit);
                    }
                    None => self.children.enter(position, Phase::Doomed(Then::Stay)),
                },
                Phase::Starting | Phase::Doomed(_) => self.children.enter(position, Phase::Doomed(Then::Stay)),
                Phase::Stopping(_) => self.children.enter(position, Phase::Stopping(Then::Stay)),
                Phase::Down | Phase::Failed => {}
            }
        }
        self.watch_asked(limits);
    }

    /// Starts and stops the children that are due, and ends the supervisor when it is done.
    ///
    /// # Errors
    /// When the supervisor gives up; its own supervisor then sees a failed child.
    pub(super) fn advance(&mut self) -> Result<(), ActorProcessingErr> {
        while let Some((position, then)) = self.children.next_to_stop(self.spec.policy.strategy) {
            self.begin_stop(position, then);
        }
        match &self.life {
            Life::Ending(..) if !self.children.are_stopping() => return self.close(),
            Life::Ending(..) | Life::Over => return Ok(()),
            Life::Starting(_) | Life::Running => {}
        }
        for position in self.children.next_to_start(self.spec.policy.strategy) {
            self.begin_start(position);
        }
        match std::mem::replace(&mut self.life, Life::Running) {
            Life::Starting(ready) if self.children.are_starting() => self.life = Life::Starting(ready),
            Life::Starting(ready) => {
                if ready.send(Ok(())).is_err() {
                    // The caller that started this supervisor has stopped waiting, so nothing could ever stop it.
                    self.end(EndReason::Stopped);
                    return self.advance();
                }
            }
            life @ (Life::Running | Life::Ending(..) | Life::Over) => self.life = life,
        }
        Ok(())
    }

    fn begin_start(&mut self, position: Position) {
        self.children.enter(position, Phase::Starting);
        self.launches += 1;
        let child = &mut self.children[position];
        let (cancel, cancelled) = oneshot::channel();
        let spawned = Arc::new(OnceLock::new());
        child.generation += 1;
        child.launching = Some(Launching { cancel: Some(cancel), spawned: Arc::clone(&spawned) });
        let launch = Launch {
            spec: child.spec.clone(),
            path: Arc::clone(&child.path),
            generation: child.generation,
            supervisor: self.myself.get_cell(),
            env: self.env.clone(),
            events: self.events.clone(),
            spawned,
        };
        let (key, myself) = (self.children.key(position), self.myself.clone());
        self.spawn(async move {
            let outcome = launch.run(cancelled).await;
            report(&myself, Msg::Launched { key, outcome });
        });
    }

    pub(super) fn begin_stop(&mut self, position: Position, then: Then) {
        self.children.enter(position, Phase::Stopping(then));
        let key = self.children.key(position);
        let child = &mut self.children[position];
        if let Some(launching) = &mut child.launching {
            if let Some(cancel) = launching.cancel.take() {
                // If the start has ended already, its report is on the way and this function is called again.
                let _ = cancel.send(());
            }
        } else if let Some(cell) = child.cell.clone() {
            let (spec, myself) = (child.spec.clone(), self.myself.clone());
            self.spawn(async move {
                let halted = halt(&cell, &spec).await;
                report(&myself, Msg::Halted { key, halted });
            });
        } else {
            self.settle(position, then);
        }
    }

    /// All children are down: publishes the reason, and ends the actor.
    fn close(&mut self) -> Result<(), ActorProcessingErr> {
        let Life::Ending(reason, ready) = std::mem::replace(&mut self.life, Life::Over) else { return Ok(()) };
        self.ended.send_replace(Some(reason.clone()));
        if let Some(ready) = ready {
            // The caller may have stopped waiting.
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
    /// without a message.
    pub(super) async fn stop_all(&mut self) {
        self.tasks.shutdown().await;
        for child in self.children.iter().rev() {
            if let Some(cell) = child.actor() {
                halt(cell, &child.spec).await;
            }
        }
        self.children = Children::default();
        self.end(EndReason::Stopped);
        // A failure here has no consequence: all children are down.
        let _ = self.close();
    }

    pub(super) fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        while self.tasks.try_join_next().is_some() {}
        self.tasks.spawn(task);
    }
}

/// Reports the end of a task to the supervisor.
pub(super) fn report(supervisor: &ActorRef<Msg>, message: Msg) {
    // A supervisor that has ended does not need the report.
    let _ = supervisor.cast(message);
}
