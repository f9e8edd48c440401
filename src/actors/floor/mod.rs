//! The floor: where ready turns wait, and who may take them. Each agent has slots, all agents share the pool's permits.
//!
//! Turns are pulled. When a turn becomes ready and its agent has a slot and the pool a permit, a worker takes it: one that
//! is idle, or a new one. A worker that ends a turn goes on with the next one that may start, and is idle when there is
//! none. A turn that waits for the runtime gives its slot and permit back and takes them again before it goes on. So a
//! full queue never blocks a run supervisor, and a chain of any depth finishes with a pool of one.

mod agents;
mod asking;
mod offline;
mod stopping;
mod timeouts;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use foldhash::HashMap;
use parking_lot::{Mutex, MutexGuard};
use ractor::ActorRef;
use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedMutexGuard, oneshot};

use crate::env::{Env, Mutant};
use crate::messages::{AgentName, Authority, Failure, FailureKind, OnUnknown, Refusal, TurnId};
use crate::supervision::runs::dispatch::ReadyTurn;
use crate::supervision::runs::facts::SharedFacts;
use crate::supervision::runs::rules::requests::TurnOutcome;
use crate::supervision::runs::wait_for::Waiting;

use super::agent::AgentValue;
use super::agent_actor::AgentMsg;
use super::context::ContextStore;
use super::events::Hub;
use super::instruments::Histogram;
use super::kept::KeptAgents;
use super::turn::{StopReason, TurnShared};
use super::worker;

pub(crate) use agents::{AgentGlance, AgentStatus, Conditions};
use offline::Absence;
use timeouts::Timeouts;

/// All agents' places and queues.
pub(crate) struct Floor {
    state: Mutex<State>,
    pub(super) env: Env,
    facts: Arc<SharedFacts>,
    runtime: Handle,
    pool: usize,
    ready_bound: usize,
    offline_after: Duration,
    stuck_after: Duration,
    reconcile_within: Duration,
    context: Arc<ContextStore>,
    pub(crate) kept: Arc<KeptAgents>,
    /// Whoever watches runs, and the agents in their turns.
    pub(super) hub: Arc<Hub>,
    /// Told when a turn lets go of its permit, or an agent takes no more work.
    ended: Notify,
    /// Told when the time of a turn is up sooner than that of all others.
    hurry: Arc<Notify>,
}

struct State {
    /// The board stops: what has begun may go on, and nothing else begins.
    is_closed: bool,
    permits: usize,
    names: HashMap<AgentName, usize>,
    places: Vec<Place>,
    /// Places that may have work and a free slot, in the order in which they asked.
    runnable: VecDeque<usize>,
    /// Workers without a turn, at most one for each permit. They hold nothing of the floor, so they end with it.
    idle: Vec<oneshot::Sender<Assignment>>,
    timeouts: Timeouts,
}

/// What an idle worker is told: its next turn, and where.
pub(super) type Assignment = (Arc<Floor>, Job);

/// What a worker does next.
pub(super) enum Next {
    Work(Job),
    /// Nothing may start; it is told when something does.
    Wait(oneshot::Receiver<Assignment>),
    End,
}

/// One agent's place on the floor.
struct Place {
    name: AgentName,
    value: Option<Arc<dyn AgentValue>>,
    generation: u64,
    status: AgentStatus,
    absence: Absence,
    slots: usize,
    busy: usize,
    is_reentrant: bool,
    is_blocking: bool,
    timeout: Duration,
    namespaces: Option<Arc<[Arc<str>]>>,
    /// Agents that it makes may be kept.
    keeps_agents: bool,
    on_unknown: Option<OnUnknown>,
    question_ttl: Option<Duration>,
    /// What it may cause.
    authority: Authority,
    /// Who has made the value, and makes it again. Its supervisor may not know yet that it runs.
    actor: Option<ActorRef<AgentMsg>>,
    /// When the time of its turns is looked at next.
    timer: Option<Duration>,
    is_runnable: bool,
    returning: VecDeque<Returning>,
    ready: VecDeque<ReadyTurn>,
    asks: VecDeque<oneshot::Sender<Current>>,
    /// Callers from outside who wait for room among the ready turns.
    line: Option<Arc<tokio::sync::Mutex<()>>>,
    turns: HashMap<TurnId, Live>,
    stuck: u64,
    restarts: u64,
    last_error: Option<String>,
    latency: Histogram,
}

/// An agent's value, and which one it is.
type Current = (Arc<dyn AgentValue>, u64);

/// A turn that is ready or under way.
struct Live {
    attempt: u32,
    /// Boxed, because many more wait than run.
    running: Option<Box<Running>>,
}

impl Live {
    /// Its outcome is on its way; the worker has yet to leave its place.
    fn has_reported(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.turn.has_reported.load(Ordering::Acquire))
    }
}

struct Running {
    turn: Arc<TurnShared>,
    /// The clock's reading when it last took its seat.
    since: Duration,
    /// How long it held its seat before that.
    used: Duration,
}

impl Running {
    /// How long the turn has run; time in which it waited does not count.
    fn used(&self, now: Duration) -> Duration {
        if self.turn.seat.is_held() { self.used + now.saturating_sub(self.since) } else { self.used }
    }

    /// How long it may still run; `usual` is what its agent allows.
    fn left(&self, now: Duration, usual: Duration) -> Duration {
        self.turn.ready.timeout.unwrap_or(usual).saturating_sub(self.used(now))
    }
}

/// A turn that waited and wants its slot and permit back.
struct Returning {
    turn: Arc<TurnShared>,
    seated: oneshot::Sender<()>,
}

/// A turn's hold on a slot and a permit.
#[derive(Debug)]
pub(super) struct Seat {
    is_held: AtomicBool,
    /// Its agent is non-reentrant: the slot stays taken while the turn waits.
    keeps_slot: bool,
    /// Its turn ignored a stop for too long: the slot and permit were given away.
    pub(super) is_fenced: AtomicBool,
}

impl Seat {
    pub(super) fn is_held(&self) -> bool {
        self.is_held.load(Ordering::Acquire)
    }
}

/// How much there is room for on the floor, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FloorLimits {
    /// The pool.
    pub(crate) permits: usize,
    /// Ready turns of one agent that refuse new work for it.
    pub(crate) ready_bound: usize,
    /// How long turns wait for an agent that was stopped.
    pub(crate) offline_after: Duration,
    /// How long a turn may ignore that it was stopped before its place is given away.
    pub(crate) stuck_after: Duration,
    /// How long finding out what came of an effect may take.
    pub(crate) reconcile_within: Duration,
}

/// A turn that a worker is to run. It moves into the worker's task, so it is small.
pub(super) struct Job {
    pub(super) place: usize,
    pub(super) turn: Arc<TurnShared>,
    pub(super) value: Arc<dyn AgentValue>,
    pub(super) generation: u64,
    pub(super) is_blocking: bool,
}

impl Floor {
    pub(crate) fn new(env: Env, facts: Arc<SharedFacts>, context: ContextStore, limits: FloorLimits) -> Arc<Self> {
        let FloorLimits { permits, ready_bound, offline_after, stuck_after, reconcile_within } = limits;
        let state = State {
            is_closed: false,
            permits,
            names: HashMap::default(),
            places: Vec::new(),
            runnable: VecDeque::new(),
            idle: Vec::new(),
            timeouts: Timeouts::default(),
        };
        Arc::new(Self {
            state: Mutex::new(state),
            env,
            facts,
            runtime: Handle::current(),
            pool: permits,
            ready_bound,
            offline_after,
            kept: Arc::new(KeptAgents::new(Arc::clone(context.storage()))),
            stuck_after,
            reconcile_within,
            context: Arc::new(context),
            hub: Arc::default(),
            ended: Notify::new(),
            hurry: Arc::default(),
        })
    }

    /// Makes a turn ready; the same attempt again changes nothing.
    pub(crate) fn start(self: &Arc<Self>, ready: ReadyTurn) {
        let mut state = self.state.lock();
        let Some(index) = state.names.get(ready.agent.host()).copied() else {
            drop(state);
            let text =
                format!("agent {} is not registered; register it and restart the turn, or cancel the run", ready.agent);
            return report(ready, Failure::new(FailureKind::Unregistered, text));
        };
        let place = &mut state.places[index];
        if let status @ AgentStatus::Failed(_) = &place.status {
            let status = status.clone();
            drop(state);
            return turn_away(ready, &status);
        }
        match place.turns.get(&ready.id) {
            // It arrives twice, or after a later attempt.
            Some(live) if live.attempt > ready.attempt => return,
            Some(live) if live.attempt == ready.attempt && !live.has_reported() => return,
            Some(_) | None => {}
        }
        let before = place.turns.insert(ready.id, Live { attempt: ready.attempt, running: None });
        if let Some(Live { running: Some(running), .. }) = before {
            // An attempt whose twin has ended already: nobody waits for it.
            running.turn.stop.set(StopReason::Cancelled);
        }
        place.ready.push_back(ready);
        self.watch_absence(&mut state, index);
        state.mark_runnable(index);
        self.fill(state);
    }

    /// Whether the turn's outcome was handed in and its worker has yet to leave.
    pub(crate) fn has_reported(&self, turn: TurnId, agent: &AgentName) -> bool {
        let mut state = self.state.lock();
        state.place_of(agent).and_then(|place| place.turns.get(&turn)).is_some_and(Live::has_reported)
    }

    /// Whether an agent has room for work that is not committed yet.
    pub(crate) fn check_room(&self, name: &AgentName) -> Result<(), Refusal> {
        let mut state = self.state.lock();
        match state.place_of(name) {
            Some(place) if place.ready.len() >= self.ready_bound && !Mutant::QueueWithoutBound.is_injected() => {
                Err(Refusal::Overloaded { what: format!("agent {name}"), retry_after: Duration::from_secs(1) })
            }
            _ => Ok(()),
        }
    }

    /// Waits until an agent has room, or takes no work. Whoever waits for one agent waits in line: the next one looks when
    /// what is returned is dropped.
    pub(crate) async fn room(&self, name: &AgentName) -> Option<OwnedMutexGuard<()>> {
        let line = self.state.lock().place_of(name).map(|place| Arc::clone(place.line.get_or_insert_default()))?;
        let first_in_line = line.lock_owned().await;
        loop {
            let mut changed = std::pin::pin!(self.ended.notified());
            changed.as_mut().enable();
            let takes_work = self.load(name).is_ok_and(|load| !load.is_offline);
            if !takes_work || self.check_room(name).is_ok() {
                return Some(first_in_line);
            }
            changed.await;
        }
    }

    /// Ends a worker's turn and finds it another one to run.
    pub(super) fn next(self: &Arc<Self>, ended: &Job) -> Next {
        let (index, turn) = (ended.place, &ended.turn);
        let mut state = self.state.lock();
        if turn.seat.is_fenced.load(Ordering::Acquire) {
            return Next::End;
        }
        let place = &mut state.places[index];
        place.returning.retain(|returning| !Arc::ptr_eq(&returning.turn, turn));
        // Another attempt may be here in its place already.
        place.forget(turn);
        self.give_back(&mut state, index, turn);
        let next = match self.take(&mut state) {
            Some(job) => Next::Work(job),
            None if ended.is_blocking || state.idle.len() >= self.pool => Next::End,
            None => {
                let (worker, assigned) = oneshot::channel();
                state.idle.push(worker);
                Next::Wait(assigned)
            }
        };
        self.fill(state);
        self.ended.notify_waiters();
        next
    }

    /// A waiting turn gives its slot and permit to others.
    pub(super) fn leave(self: &Arc<Self>, job: &Job) {
        let (index, turn) = (job.place, &job.turn);
        let now = self.env.now().monotonic;
        let mut state = self.state.lock();
        if !turn.seat.is_held() {
            return;
        }
        if let Some(running) = state.places[index].running(turn) {
            running.used = running.used(now);
        }
        turn.seat.is_held.store(false, Ordering::Release);
        state.permits += 1;
        if !turn.seat.keeps_slot {
            state.places[index].busy -= 1;
            state.mark_runnable(index);
        }
        self.fill(state);
        self.ended.notify_waiters();
    }

    /// A turn whose wait is over wants to go on: seated at once, or told when it is.
    pub(super) fn come_back(self: &Arc<Self>, job: &Job) -> Option<oneshot::Receiver<()>> {
        let (index, turn) = (job.place, &job.turn);
        let mut state = self.state.lock();
        let is_crowded = !state.runnable.is_empty();
        let has_permit = state.permits > 0;
        let place = &mut state.places[index];
        let has_slot = turn.seat.keeps_slot || place.busy < place.slots;
        if has_permit && has_slot && !is_crowded {
            self.sit(&mut state, index, turn);
            return None;
        }
        let (seated, granted) = oneshot::channel();
        place.returning.push_back(Returning { turn: Arc::clone(turn), seated });
        state.mark_runnable(index);
        self.fill(state);
        Some(granted)
    }

    /// Free permits of the pool.
    pub(crate) fn permits(&self) -> usize {
        self.state.lock().permits
    }

    /// Notes that a turn is taken, so that it can be stopped. Its future is kept where its worker is.
    fn begin(self: &Arc<Self>, state: &mut State, index: usize, turn: &Arc<TurnShared>) {
        let now = self.env.now().monotonic;
        let place = &mut state.places[index];
        place.latency.record(now.saturating_sub(turn.ready.ready_at));
        match place.turns.get_mut(&turn.ready.id).filter(|live| live.attempt == turn.ready.attempt) {
            Some(live) => {
                live.running = Some(Box::new(Running { turn: Arc::clone(turn), since: now, used: Duration::ZERO }))
            }
            // A later attempt was handed in before this one began: nobody waits for it.
            None => turn.stop.set(StopReason::Cancelled),
        }
        let timeout = turn.ready.timeout.unwrap_or(place.timeout);
        self.look_by(state, index, now.saturating_add(timeout));
    }

    /// Counts a turn that comes back.
    fn sit(self: &Arc<Self>, state: &mut State, index: usize, turn: &Arc<TurnShared>) {
        turn.seat.is_held.store(true, Ordering::Release);
        state.permits -= 1;
        let place = &mut state.places[index];
        place.busy += usize::from(!turn.seat.keeps_slot);
        let (now, usual) = (self.env.now().monotonic, place.timeout);
        let Some(running) = place.running(turn) else { return };
        running.since = now;
        let deadline = now.saturating_add(running.left(now, usual));
        self.look_by(state, index, deadline);
    }

    /// Takes back what a seat held.
    fn give_back(&self, state: &mut State, index: usize, turn: &TurnShared) {
        let seat = &turn.seat;
        let was_held = seat.is_held.swap(false, Ordering::AcqRel);
        state.permits += usize::from(was_held);
        let place = &mut state.places[index];
        place.busy -= usize::from(was_held || seat.keeps_slot);
        if seat.keeps_slot {
            let holder = Waiting::Turn(turn.ready.id, place.name.clone());
            let slot = Waiting::Slot(place.name.clone());
            self.facts.lock().waits.remove(&slot, &holder);
        }
        state.mark_runnable(index);
    }

    /// Starts whatever may start now.
    fn fill(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        while let Some(job) = self.take(&mut state) {
            let idle = if job.is_blocking { None } else { state.idle.pop() };
            let unassigned = match idle {
                Some(worker) => worker.send((Arc::clone(self), job)).err().map(|(_, job)| job),
                None => Some(job),
            };
            if let Some(job) = unassigned {
                worker::spawn(self, &self.runtime, job);
            }
        }
    }

    /// The next turn that may start; turns that come back from a wait are seated on the way.
    fn take(self: &Arc<Self>, state: &mut State) -> Option<Job> {
        while let Some(index) = state.runnable.pop_front() {
            let (has_permit, is_closed) = (state.permits > 0, state.is_closed);
            let place = &mut state.places[index];
            place.is_runnable = false;
            let may_return = |returning: &Returning| returning.turn.seat.keeps_slot || place.busy < place.slots;
            if place.returning.front().is_some_and(may_return) {
                if !has_permit {
                    state.mark_runnable_first(index);
                    return None;
                }
                if let Some(Returning { turn, seated }) = place.returning.pop_front()
                    && place.turns.contains_key(&turn.ready.id)
                {
                    self.sit(state, index, &turn);
                    // A worker that is being stopped does not listen; it gives the seat back when it ends.
                    let _ = seated.send(());
                }
                state.mark_runnable(index);
                continue;
            }
            if is_closed {
                continue;
            }
            let (Some(value), true) = (place.value.clone(), place.busy < place.slots) else { continue };
            if let Some(asker) = place.asks.pop_front() {
                place.busy += 1;
                if asker.send((value, place.generation)).is_err() {
                    place.busy -= 1;
                }
                state.mark_runnable(index);
                continue;
            }
            if !has_permit {
                if !place.ready.is_empty() {
                    state.mark_runnable_first(index);
                    return None;
                }
                continue;
            }
            let Some(ready) = place.ready.pop_front() else { continue };
            if place.ready.is_empty() {
                // Most agents have one turn at a time, and room for several is long.
                place.ready = VecDeque::new();
            }
            place.busy += 1;
            if !place.is_reentrant {
                let (slot, turn) = (Waiting::Slot(ready.agent.clone()), Waiting::Turn(ready.id, ready.agent.clone()));
                let mut facts = self.facts.lock();
                facts.waits.remove(&turn, &slot);
                facts.waits.add(slot, turn, None);
            }
            let seat = Seat { is_held: true.into(), keeps_slot: !place.is_reentrant, is_fenced: false.into() };
            let turn = Arc::new(TurnShared::new(
                ready,
                Arc::clone(&self.context),
                Arc::clone(&self.hub),
                place.namespaces.clone(),
                (place.on_unknown, place.question_ttl, self.reconcile_within),
                place.keeps_agents.then(|| Arc::clone(&self.kept)),
                seat,
            ));
            let (generation, is_blocking) = (place.generation, place.is_blocking && self.env.has_threads());
            self.begin(state, index, &turn);
            let job = Job { place: index, turn, value, generation, is_blocking };
            state.permits -= 1;
            state.mark_runnable(index);
            return Some(job);
        }
        None
    }
}

impl State {
    fn place_of(&mut self, name: &AgentName) -> Option<&mut Place> {
        let index = *self.names.get(name.host())?;
        self.places.get_mut(index)
    }

    /// Puts a place in the queue if it has work and is not there.
    fn mark_runnable(&mut self, index: usize) {
        let place = &mut self.places[index];
        let has_work = !(place.ready.is_empty() && place.returning.is_empty() && place.asks.is_empty());
        if has_work && !std::mem::replace(&mut place.is_runnable, true) {
            self.runnable.push_back(index);
        }
    }

    /// Puts a place back where it was taken from.
    fn mark_runnable_first(&mut self, index: usize) {
        if !std::mem::replace(&mut self.places[index].is_runnable, true) {
            self.runnable.push_front(index);
        }
    }
}

impl Place {
    /// The turn while its worker runs it here, unless another attempt has taken its place.
    fn running(&mut self, turn: &Arc<TurnShared>) -> Option<&mut Running> {
        let running = self.turns.get_mut(&turn.ready.id)?.running.as_deref_mut();
        running.filter(|running| Arc::ptr_eq(&running.turn, turn))
    }

    /// Strikes a running turn off; `false` if it is not here any more.
    fn forget(&mut self, turn: &Arc<TurnShared>) -> bool {
        self.running(turn).is_some() && self.turns.remove(&turn.ready.id).is_some()
    }
}

fn turn_away(ready: ReadyTurn, status: &AgentStatus) {
    let why = match status {
        AgentStatus::Failed(error) => format!("has failed too often: {error}"),
        AgentStatus::Starting | AgentStatus::Running | AgentStatus::Stopped => "takes no turns".to_owned(),
    };
    let text = format!("agent {} {why}", ready.agent);
    report(ready, Failure::new(FailureKind::Transient, text));
}

fn report(ready: ReadyTurn, failure: Failure) {
    let outcome = TurnOutcome::Failed(failure);
    let is_marked = ready.is_marked;
    drop(ready.sink.outcome(ready.id, ready.attempt, is_marked, outcome));
}
