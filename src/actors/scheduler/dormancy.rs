//! Dormant agents: they have an actor and a value from the first work on that needs it, and lose both when they had none for a while.
//!
//! `phase` is the rule, `rest` what it needs of an agent; `idle` finds those without work. What the rule orders is sent to the supervisor
//! of the agents under the scheduler's lock, so the supervisor gets orders in the order in which they were decided.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::oneshot;

use crate::actors::agent::Source;
use crate::messages::AgentName;

use super::Scheduler;
use super::agent_queue::AgentQueue;
use super::availability::Availability;
use super::phase::{Happening, Order, Phase};
use super::rest::{Asleep, History, Rest};
use super::state::State;

/// The longest wait before an actor that could not be started is started again.
const MAX_PAUSE: Duration = Duration::from_secs(6);

/// Starts and ends the actors of dormant agents. Both calls send their order before they return; the future waits until it is carried
/// out.
pub(crate) trait DormantActors: Send + Sync {
    fn start(&self, agent: &AgentName, source: &Arc<Source>, life: u64) -> BoxFuture<'static, Result<(), NotStarted>>;

    fn end(&self, agent: &AgentName) -> BoxFuture<'static, ()>;
}

/// Why the actor of a dormant agent was not started.
#[derive(Debug)]
pub(crate) enum NotStarted {
    /// It failed to start, with this error.
    Failed(String),
    /// Its supervisor is being restarted.
    SupervisorDown,
    /// The board ends.
    BoardEnds,
}

impl AgentQueue {
    /// Makes it a dormant agent that sleeps.
    pub(super) fn lie_down(&mut self, rest: Rest) -> Availability {
        self.config = Arc::clone(&rest.source.config);
        self.slots.limit = self.config.slots;
        self.rest = Some(Box::new(rest));
        std::mem::replace(&mut self.availability, Availability::Dormant)
    }

    /// What is left of it while it sleeps; `None` if it does not, or something of it is under way.
    pub(super) fn asleep(&mut self) -> Option<Asleep> {
        let rest = self.rest.as_ref()?;
        let is_asleep = rest.phase == Phase::Asleep && matches!(self.availability, Availability::Dormant);
        if !is_asleep || self.is_busy() || self.is_queued || self.deadline.is_some() || rest.is_watched {
            return None;
        }
        let history = std::mem::take(&mut self.history);
        Some(Asleep {
            name: self.name.clone(),
            source: Arc::clone(&rest.source),
            generation: self.generation,
            history: (history != History::default()).then(|| Box::new(history)),
        })
    }

    /// Gives a dormant agent without an actor another source; `false` if it is not one.
    fn replace_source(&mut self, source: &Arc<Source>) -> bool {
        let Some(rest) = self.rest.as_mut().filter(|rest| !matches!(rest.phase, Phase::Waking | Phase::Awake)) else {
            return false;
        };
        (rest.source, rest.failed_starts) = (Arc::clone(source), 0);
        self.config = Arc::clone(&source.config);
        self.slots.limit = self.config.slots;
        self.take_work_again();
        true
    }

    /// A dormant agent without an actor takes work again that had failed too often.
    fn take_work_again(&mut self) {
        if let Availability::Failed(_) = self.availability {
            self.availability = Availability::Dormant;
        }
    }

    /// Whether something of it is under way.
    pub(super) fn is_busy(&self) -> bool {
        !self.turns.is_empty() || self.slots.held() > 0 || self.has_work()
    }
}

impl Scheduler {
    /// Sets who starts and ends the actors of dormant agents.
    pub(crate) fn wake_with(&self, actors: Arc<dyn DormantActors>) {
        let _ = self.dormant_actors.set(actors);
    }

    /// Adds dormant agents that are alike. One that is known, because it was stopped, gets its waiting turns.
    pub(crate) fn declare(self: &Arc<Self>, names: &[AgentName], source: &Arc<Source>) {
        self.note_reentrancy(names, source.config.is_reentrant);
        let mut state = self.state.lock();
        state.reserve(names.len());
        let mut replaced = Vec::new();
        for name in names {
            match state.index_of(name.as_str()) {
                None => state.add_asleep(Asleep {
                    name: name.clone(),
                    source: Arc::clone(source),
                    generation: 0,
                    history: None,
                }),
                Some(index) => {
                    replaced.push(state.agents[index].lie_down(Rest::new(Arc::clone(source))));
                    if state.agents[index].has_work() {
                        self.want(&mut state, index);
                    }
                }
            }
        }
        drop(state);
        // Dropped after the lock is released, because its `Drop` is users' code.
        drop(replaced);
    }

    /// Gives a dormant agent without an actor another source; `false` if it is not one.
    pub(crate) fn redeclare(&self, name: &AgentName, source: &Arc<Source>) -> bool {
        let mut state = self.state.lock();
        let Some(index) = state.index_of(name.as_str()) else { return false };
        let is_replaced = state.agents.replace_asleep(index, source)
            || state.agents.in_use_mut(index).is_some_and(|agent| agent.replace_source(source));
        drop(state);
        if is_replaced {
            self.note_reentrancy(std::slice::from_ref(name), source.config.is_reentrant);
        }
        is_replaced
    }

    /// Makes an agent with an actor dormant from now on, or a dormant one an ordinary one.
    pub(crate) fn set_dormant(self: &Arc<Self>, name: &AgentName, source: Option<&Arc<Source>>) {
        let mut state = self.state.lock();
        let Some(index) = state.index_of(name.as_str()) else { return };
        let agent = &mut state.agents[index];
        match (source, &mut agent.rest) {
            (Some(source), Some(rest)) => rest.source = Arc::clone(source),
            (Some(source), None) => {
                agent.rest = Some(Box::new(Rest { phase: Phase::Awake, ..Rest::new(Arc::clone(source)) }));
                self.watch_idle(&mut state, index);
            }
            (None, rest) => *rest = None,
        }
    }

    /// Wakes a dormant agent, and waits until its actor was started or is given up. Returns at once for others.
    pub(crate) async fn wake(self: &Arc<Self>, name: &AgentName) {
        let awake = {
            let mut state = self.state.lock();
            let Some(index) = state.index_of(name.as_str()) else { return };
            if state.is_closed {
                return;
            }
            self.want(&mut state, index);
            let Some(rest) = &mut state.agents[index].rest else { return };
            if matches!(rest.phase, Phase::Awake | Phase::Asleep) {
                return;
            }
            let (awaited, awake) = oneshot::channel();
            rest.awaited.push(awaited);
            awake
        };
        // A dropped sender means that the agent was stopped.
        let _ = awake.await;
    }

    /// Lets a dormant agent without an actor take work again that had failed too often; `false` if it is not one.
    pub(crate) fn forgive(&self, name: &AgentName) -> bool {
        let mut state = self.state.lock();
        let Some(index) = state.index_of(name.as_str()) else { return false };
        let Some(agent) = state.agents.in_use_mut(index) else { return true };
        let Some(rest) = agent.rest.as_mut().filter(|rest| rest.phase != Phase::Awake) else { return false };
        rest.failed_starts = 0;
        agent.take_work_again();
        state.agents.put_away(index);
        true
    }

    /// Whether the agent is away when this life of its actor ends: not if it sleeps, or has another actor by now. Those of a board that ends
    /// are withdrawn all at once.
    pub(in crate::actors) fn leaves_with(&self, name: &AgentName, life: u64) -> bool {
        if self.has_ended.load(Ordering::Acquire) {
            return false;
        }
        let state = self.state.lock();
        let Some(agent) = state.index_of(name.as_str()).and_then(|index| state.agents.in_use(index)) else {
            return false;
        };
        match agent.availability {
            Availability::Stopped { .. } => true,
            Availability::Dormant => false,
            Availability::Starting | Availability::Running(_) | Availability::Failed(_) | Availability::Ended => {
                agent.life == life
            }
        }
    }

    /// Something needs the agent's value.
    pub(super) fn want(self: &Arc<Self>, state: &mut State, index: usize) {
        let is_closed = state.is_closed;
        let agent = &mut state.agents[index];
        let Some(rest) = &mut agent.rest else { return };
        rest.was_used = true;
        if matches!(agent.availability, Availability::Dormant) && !is_closed {
            agent.availability = Availability::Starting;
            self.happens(state, index, Happening::Wanted);
        }
    }

    /// Applies the rule to a dormant agent.
    pub(super) fn happens(self: &Arc<Self>, state: &mut State, index: usize, happening: Happening) {
        let Some(rest) = &mut state.agents[index].rest else { return };
        let (phase, order) = rest.phase.after(happening);
        rest.phase = phase;
        match order {
            Some(Order::Start) => self.begin_start(state, index),
            Some(Order::End) => self.begin_end(state, index),
            None => {}
        }
        if matches!(phase, Phase::Awake | Phase::Asleep)
            && let Some(rest) = &mut state.agents[index].rest
        {
            for awaited in rest.awaited.drain(..) {
                // The caller may have stopped waiting.
                let _ = awaited.send(());
            }
        }
    }

    fn begin_start(self: &Arc<Self>, state: &mut State, index: usize) {
        let life = state.next_life();
        let agent = &mut state.agents[index];
        agent.life = life;
        let (Some(actors), Some(rest)) = (self.dormant_actors.get(), &agent.rest) else { return };
        let started = actors.start(&agent.name, &rest.source, life);
        let scheduler = Arc::downgrade(self);
        self.runtime.spawn(async move {
            let started = started.await;
            if let Some(scheduler) = scheduler.upgrade() {
                scheduler.started(index, life, started);
            }
        });
    }

    fn begin_end(self: &Arc<Self>, state: &mut State, index: usize) {
        let agent = &state.agents[index];
        let (life, Some(actors)) = (agent.life, self.dormant_actors.get()) else { return };
        let ended = actors.end(&agent.name);
        let scheduler = Arc::downgrade(self);
        self.runtime.spawn(async move {
            ended.await;
            if let Some(scheduler) = scheduler.upgrade() {
                let mut state = scheduler.state.lock();
                if state.agents.in_use(index).is_some_and(|agent| agent.life == life) {
                    scheduler.happens(&mut state, index, Happening::Ended);
                    state.agents.put_away(index);
                }
            }
        });
    }

    /// The start of an actor has ended.
    fn started(self: &Arc<Self>, index: usize, life: u64, started: Result<(), NotStarted>) {
        let mut state = self.state.lock();
        let Some(agent) = state.agents.in_use_mut(index).filter(|agent| agent.life == life) else { return };
        let name = agent.name.clone();
        let Some(rest) = &mut agent.rest else { return };
        let (error, max) = match started {
            Ok(()) => {
                rest.failed_starts = 0;
                self.happens(&mut state, index, Happening::Started);
                return self.watch_idle(&mut state, index);
            }
            Err(NotStarted::BoardEnds) => return self.happens(&mut state, index, Happening::GivenUp),
            Err(NotStarted::SupervisorDown) => (None, u32::MAX),
            Err(NotStarted::Failed(error)) => (Some(error), rest.source.window.max),
        };
        rest.failed_starts += 1;
        let tries = rest.failed_starts;
        let text = error.as_deref().unwrap_or("its supervisor is down");
        tracing::warn!(agent = %name, error = text, "agent could not be woken");
        if tries > max {
            self.happens(&mut state, index, Happening::GivenUp);
            drop(state);
            return self.fail_agent(&name, text);
        }
        drop(state);
        let (scheduler, pause) =
            (Arc::downgrade(self), (Duration::from_millis(100) * (1 << tries.min(6))).min(MAX_PAUSE));
        self.runtime.spawn(async move {
            tokio::time::sleep(pause).await;
            let Some(scheduler) = scheduler.upgrade() else { return };
            let mut state = scheduler.state.lock();
            if state.agents.in_use(index).is_some_and(|agent| agent.life == life) {
                scheduler.happens(&mut state, index, Happening::NotStarted);
            }
        });
    }
}
