//! The scheduler's state: the agents, and the wait queue of those that may have something to run.

use std::collections::VecDeque;
use std::sync::Arc;

use foldhash::HashMap;
use tokio::sync::oneshot;

use crate::actors::agent::AgentValue;
use crate::messages::AgentName;

use super::Scheduler;
use super::agent_queue::AgentQueue;
use super::deadlines::Deadlines;
use super::entries::Entries;
use super::permits::Pool;
use super::rest::Asleep;
use super::running::RunningTurn;

pub(super) struct State {
    /// The board stops: turns that have begun continue, and none begins.
    pub(super) is_closed: bool,
    pub(super) pool: Pool,
    indexes: HashMap<AgentName, usize>,
    pub(super) agents: Entries,
    /// Agents that may have work and a free slot, in the order in which they asked.
    wait_queue: VecDeque<usize>,
    /// Workers without a turn, at most one for each permit. They hold nothing of the scheduler, so they end with it.
    pub(super) idle_workers: Vec<oneshot::Sender<Assignment>>,
    pub(super) deadlines: Deadlines,
    /// Dormant agents that are awake, by when they may have been without work for long enough.
    pub(super) idle: Deadlines,
    /// The number of starts of agents' actors so far.
    lives: u64,
}

/// The message to an idle worker: its next turn, and the scheduler.
pub(super) type Assignment = (Arc<Scheduler>, Job);

/// A turn that a worker is to run. It moves into the worker's task, so it is small.
pub(super) struct Job {
    /// The index of its agent.
    pub(super) agent: usize,
    pub(super) turn: Arc<RunningTurn>,
    pub(super) value: Arc<dyn AgentValue>,
    /// The generation of the value.
    pub(super) generation: u64,
    /// It needs a thread on which it may block.
    pub(super) is_blocking: bool,
}

/// The next step of a worker.
pub(super) enum Next {
    Run(Job),
    /// No turn may start; the next job arrives here.
    Wait(oneshot::Receiver<Assignment>),
    End,
}

impl State {
    pub(super) fn new(pool: usize) -> Self {
        Self {
            is_closed: false,
            pool: Pool::new(pool),
            indexes: HashMap::default(),
            agents: Entries::default(),
            wait_queue: VecDeque::new(),
            idle_workers: Vec::new(),
            deadlines: Deadlines::default(),
            idle: Deadlines::default(),
            lives: 0,
        }
    }

    pub(super) fn add(&mut self, agent: AgentQueue) {
        let name = agent.name.clone();
        let index = self.agents.push(agent);
        self.indexes.insert(name, index);
    }

    pub(super) fn add_asleep(&mut self, agent: Asleep) {
        let name = agent.name.clone();
        let index = self.agents.push_asleep(agent);
        self.indexes.insert(name, index);
    }

    /// Makes room for more agents.
    pub(super) fn reserve(&mut self, more: usize) {
        self.indexes.reserve(more);
        self.agents.reserve(more);
    }

    /// The number of a start of an agent's actor; none is given twice, and none is 0.
    pub(super) fn next_life(&mut self) -> u64 {
        self.lives += 1;
        self.lives
    }

    /// The index of the agent of this name. Dynamic agents are not found: pass their host.
    pub(super) fn index_of(&self, name: &str) -> Option<usize> {
        self.indexes.get(name).copied()
    }

    /// The agent of this name, or the host of a dynamic one, unless it sleeps.
    pub(super) fn agent(&mut self, name: &AgentName) -> Option<&mut AgentQueue> {
        let index = self.index_of(name.host())?;
        self.agents.in_use_mut(index)
    }

    pub(super) fn has_no_waiter(&self) -> bool {
        self.wait_queue.is_empty()
    }

    /// The agent that is first in the wait queue, taken from it.
    pub(super) fn pop_waiting(&mut self) -> Option<usize> {
        let index = self.wait_queue.pop_front()?;
        self.agents[index].is_queued = false;
        Some(index)
    }

    /// Appends an agent to the wait queue if it has work and is not in the queue.
    pub(super) fn push_waiting(&mut self, index: usize) {
        let agent = &mut self.agents[index];
        if agent.has_work() && !std::mem::replace(&mut agent.is_queued, true) {
            self.wait_queue.push_back(index);
        }
    }

    /// Puts an agent that was popped back to the front.
    pub(super) fn unpop_waiting(&mut self, index: usize) {
        if !std::mem::replace(&mut self.agents[index].is_queued, true) {
            self.wait_queue.push_front(index);
        }
    }
}
