//! Starts turns: they become ready, start with a permit and a slot, yield them while they wait, and end.

use std::collections::VecDeque;
use std::iter::once;
use std::sync::Arc;

use parking_lot::MutexGuard;
use tokio::sync::oneshot;

use crate::actors::turn::{StopReason, TurnShared};
use crate::messages::{AgentName, Failure, FailureKind, TurnId};
use crate::supervision::runs::dispatch::ReadyTurn;
use crate::supervision::runs::rules::requests::TurnOutcome;
use crate::supervision::runs::wait_for::Waiting;

use super::agent_queue::{AgentQueue, KnownTurn, Reacquiring};
use super::availability::Availability;
use super::grant::Grant;
use super::in_place;
use super::permits::{AgentSlot, Permit, SlotWait};
use super::running::RunningTurn;
use super::state::{Job, Next, State};
use super::{Scheduler, worker};

impl Scheduler {
    /// Makes turns of one agent ready, in this order; the same attempt of a turn again changes nothing.
    pub(in crate::actors) fn enqueue(self: &Arc<Self>, turns: impl IntoIterator<Item = Box<ReadyTurn>>) {
        let mut turns = turns.into_iter();
        let Some(first) = turns.next() else { return };
        let mut state = self.state.lock();
        let Some(index) = state.index_of(first.agent.host()) else {
            drop(state);
            return once(first).chain(turns).for_each(|ready| {
                let agent = &ready.agent;
                let text =
                    format!("agent {agent} is not registered; register it and restart the turn, or cancel the run");
                report(ready, Failure::new(FailureKind::Unregistered, text));
            });
        };
        let agent = &mut state.agents[index];
        if let Availability::Failed(error) = &agent.availability {
            let error = error.clone();
            drop(state);
            return once(first).chain(turns).for_each(|ready| turn_away(ready, &error));
        }
        let before = agent.ready.len();
        once(first).chain(turns).for_each(|ready| agent.add(ready));
        if agent.ready.len() == before {
            return;
        }
        self.want(&mut state, index);
        self.watch_offline(&mut state, index);
        state.push_waiting(index);
        self.start_waiting(state);
    }

    /// Whether the turn's outcome was enqueued with its run, and its worker has not released what it holds yet.
    pub(in crate::actors) fn has_reported(&self, turn: TurnId, agent: &AgentName) -> bool {
        let mut state = self.state.lock();
        state.agent(agent).and_then(|agent| agent.turns.get(&turn)).is_some_and(KnownTurn::has_reported)
    }

    /// Ends a worker's turn and returns its next one.
    pub(super) fn next(self: &Arc<Self>, ended: &Job) -> Next {
        let mut state = self.state.lock();
        if ended.turn.is_evicted() {
            return Next::End;
        }
        release(&mut state, ended);
        let next = match self.next_job(&mut state) {
            Some(job) => Next::Run(job),
            None if ended.is_blocking || state.idle_workers.len() >= state.pool.size() => Next::End,
            None => {
                let (worker, assigned) = oneshot::channel();
                state.idle_workers.push(worker);
                Next::Wait(assigned)
            }
        };
        self.start_waiting(state);
        self.capacity_changed.notify_waiters();
        next
    }

    /// Ends a turn whose worker takes no other one from the wait queue.
    pub(super) fn end(self: &Arc<Self>, ended: &Job) {
        let mut state = self.state.lock();
        if ended.turn.is_evicted() {
            return;
        }
        release(&mut state, ended);
        self.start_waiting(state);
        self.capacity_changed.notify_waiters();
    }

    /// Releases the permit and the slot of a turn that waits.
    pub(super) fn yield_permit(self: &Arc<Self>, job: &Job) {
        let now = self.env.now().monotonic;
        let mut state = self.state.lock();
        if !job.turn.holds_permit() {
            return;
        }
        job.turn.yield_permit(now);
        if !job.turn.keeps_slot {
            state.push_waiting(job.agent);
        }
        self.start_waiting(state);
        self.capacity_changed.notify_waiters();
    }

    /// Continues a turn after a wait: at once (`None`), or when the returned receiver resolves.
    pub(super) fn reacquire(self: &Arc<Self>, job: &Job) -> Option<oneshot::Receiver<()>> {
        let (index, turn) = (job.agent, &job.turn);
        let mut state = self.state.lock();
        if state.has_no_waiter()
            && let Some((permit, slot)) = acquire_again(&mut state, index, turn)
        {
            self.resume(&mut state, index, turn, permit, slot);
            return None;
        }
        let (granted, when_granted) = oneshot::channel();
        state.agents[index].reacquiring.push_back(Reacquiring { turn: Arc::clone(turn), granted });
        state.push_waiting(index);
        self.start_waiting(state);
        Some(when_granted)
    }

    /// Starts what waited for the board's lease.
    pub(crate) fn lease_renewed(self: &Arc<Self>) {
        let mut state = self.state.lock();
        for index in state.agents.with_work() {
            state.push_waiting(index);
        }
        self.start_waiting(state);
    }

    /// Starts all turns that can start now. Called after every change that may allow a start.
    pub(super) fn start_waiting(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        while let Some(job) = self.next_job(&mut state) {
            let Some(job) = in_place::keep(job) else { continue };
            let idle = if job.is_blocking { None } else { state.idle_workers.pop() };
            let unassigned = match idle {
                Some(worker) => worker.send((Arc::clone(self), job)).err().map(|(_, job)| job),
                None => Some(job),
            };
            if let Some(job) = unassigned {
                worker::spawn(self, &self.runtime, job);
            }
        }
    }

    /// The next turn that may start. Grants turns that continue after a wait, and typed requests, on the way.
    fn next_job(self: &Arc<Self>, state: &mut State) -> Option<Job> {
        let is_closed = state.is_closed || !self.services.lease.allows_work();
        while let Some(index) = state.pop_waiting() {
            match state.agents[index].next_grant(state.pool.free() > 0, is_closed) {
                Grant::Nothing => {}
                Grant::AwaitPermit => {
                    state.unpop_waiting(index);
                    return None;
                }
                Grant::ContinueTurn => {
                    self.grant_again(state, index);
                    state.push_waiting(index);
                }
                Grant::TypedRequest => {
                    grant_typed_request(&mut state.agents[index]);
                    state.push_waiting(index);
                }
                Grant::BeginTurn => {
                    let job = self.begin(state, index);
                    state.push_waiting(index);
                    if job.is_some() {
                        return job;
                    }
                }
            }
        }
        None
    }

    /// Continues the turn of this agent that has waited longest for a permit.
    fn grant_again(self: &Arc<Self>, state: &mut State, index: usize) {
        let agent = &mut state.agents[index];
        let Some(Reacquiring { turn, granted }) = agent.reacquiring.pop_front() else { return };
        if agent.turns.contains_key(&turn.turn.ready.id)
            && let Some((permit, slot)) = acquire_again(state, index, &turn)
        {
            self.resume(state, index, &turn, permit, slot);
            // A worker that is being stopped does not receive it; it releases everything when it ends.
            let _ = granted.send(());
        }
    }

    fn resume(
        self: &Arc<Self>,
        state: &mut State,
        index: usize,
        turn: &Arc<RunningTurn>,
        permit: Permit,
        slot: Option<AgentSlot>,
    ) {
        let now = self.env.now().monotonic;
        turn.reacquire(permit, slot, now);
        let agent = &state.agents[index];
        if agent.has(turn) {
            let deadline = now.saturating_add(turn.left(now, agent.config.timeout));
            self.look_by(state, index, deadline);
        }
    }

    /// Takes the agent's first ready turn.
    fn begin(self: &Arc<Self>, state: &mut State, index: usize) -> Option<Job> {
        let State { agents, pool, .. } = &mut *state;
        let agent = &mut agents[index];
        let (value, permit) = (Arc::clone(agent.availability.value()?), pool.try_acquire()?);
        let ready = agent.ready.front()?;
        let keeps_slot = !agent.config.is_reentrant;
        let wait = || {
            let (slot, holder) = (Waiting::Slot(ready.agent.clone()), Waiting::Turn(ready.id, ready.agent.clone()));
            SlotWait::begin(&self.facts, slot, holder)
        };
        let slot = agent.slots.try_acquire(|| keeps_slot.then(wait))?;
        let ready = agent.ready.pop_front()?;
        if agent.ready.is_empty() {
            // Most agents have one turn at a time, so the capacity for several is freed.
            agent.ready = VecDeque::new();
        }
        let now = self.env.now().monotonic;
        agent.latency.record(now.saturating_sub(ready.ready_at()));
        let shared = TurnShared::new(ready, Arc::clone(&self.services), Arc::clone(&agent.config.of_turns));
        let turn = Arc::new(RunningTurn::new(shared, keeps_slot, slot, permit, now));
        let ready = &turn.turn.ready;
        match agent.turns.get_mut(&ready.id).filter(|known| known.attempt == ready.attempt) {
            Some(known) => known.running = Some(Arc::clone(&turn)),
            // A later attempt became ready before this one began: its result is not needed.
            None => turn.turn.stop.set(StopReason::Cancelled),
        }
        let (generation, is_blocking) = (agent.generation, agent.config.is_blocking && self.env.has_threads());
        let deadline = now.saturating_add(turn.timeout(agent.config.timeout));
        // Of turns with the same limit that begin one after the other, the first has set it.
        if agent.deadline.is_none_or(|before| deadline < before) {
            self.look_by(state, index, deadline);
        }
        Some(Job { agent: index, turn, value, generation, is_blocking })
    }
}

/// Releases what an ended turn holds.
fn release(state: &mut State, Job { agent: index, turn, .. }: &Job) {
    let agent = &mut state.agents[*index];
    agent.reacquiring.retain(|reacquiring| !Arc::ptr_eq(&reacquiring.turn, turn));
    agent.remove(turn);
    turn.release();
    state.push_waiting(*index);
}

/// Acquires what a turn needs to continue, if it is free.
fn acquire_again(state: &mut State, index: usize, turn: &RunningTurn) -> Option<(Permit, Option<AgentSlot>)> {
    let slots = &mut state.agents[index].slots;
    let slot = if turn.keeps_slot { None } else { Some(slots.try_acquire(|| None)?) };
    Some((state.pool.try_acquire()?, slot))
}

fn grant_typed_request(agent: &mut AgentQueue) {
    let value = agent.availability.value().cloned();
    let (Some(value), Some(slot)) = (value, agent.slots.try_acquire(|| None)) else { return };
    if let Some(request) = agent.typed_requests.pop_front() {
        // If the caller is gone, the slot is dropped and so released.
        let _ = request.send((value, agent.generation, slot));
    }
}

/// Fails a turn of an agent that has failed too often, the last time because of this error.
pub(super) fn turn_away(ready: Box<ReadyTurn>, error: &str) {
    let text = format!("agent {} has failed too often: {error}", ready.agent);
    report(ready, Failure::new(FailureKind::Transient, text));
}

/// Reports the outcome of a turn that has not begun.
pub(super) fn report(ready: Box<ReadyTurn>, failure: Failure) {
    let outcome = TurnOutcome::Failed(failure);
    let is_tainted = ready.is_tainted;
    drop(ready.sink.outcome(ready.id, ready.attempt, is_tainted, outcome));
}
