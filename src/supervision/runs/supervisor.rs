//! The run supervisor: one owner for each run's state. It decides with the pure rules, journals, and performs what the
//! journal has acknowledged. Its handler awaits nothing: what takes time comes back as an input.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use foldhash::HashMap;
use futures::FutureExt;
use parking_lot::Mutex;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::env::{Env, Now};
use crate::messages::state::StateRules;
use crate::messages::{
    Backoff, Durability, FailureKind, Outcome, Question, QuestionId, Refusal, RequestId, RunEvent, RunId, RunResult,
    Submission, TurnId, Verdict,
};
use crate::storage::{Fence, Journal, Sequence, Storage, StorageError};
use crate::supervision::panic_text;

use super::decide::{self, Surroundings};
use super::dispatch::{Dispatch, ReadyTurn, TurnOutcome};
use super::facts::SharedFacts;
use super::inbox::{AnswerError, Inbox, Input, LoadError, SubmitError, TurnReply, TurnRequest};
use super::live::{Held, LiveRun};
use super::run::{HANDOFF_ORDINAL, Phase, Record, Run};
use super::snapshot::{self, Loaded};
use super::step::Effect;
use super::timers::{Timer, Timers};

/// What a run supervisor needs from outside, and what must survive its restarts.
pub struct Office {
    /// The world.
    pub env: Env,
    /// The store.
    pub storage: Arc<dyn Storage>,
    /// The runs' journals in it.
    pub journal: Journal,
    /// The agents' side.
    pub dispatch: Arc<dyn Dispatch>,
    /// Shared with the other run supervisors.
    pub facts: Arc<SharedFacts>,
    /// Schema and reducers of runs that bring none.
    pub rules: StateRules,
    /// Between attempts.
    pub backoff: Backoff,
    /// How long an approval waits.
    pub approval_ttl: Duration,
    /// Recoveries in a row after which a turn waits for a person.
    pub max_recoveries: u32,
    /// What a task gets that names no durability.
    pub durability: Durability,
    /// Names this process in claims.
    pub owner: String,
    /// Where everything arrives.
    pub inbox: Arc<Inbox>,
    /// The runs of this supervisor and their fences, for a restart to find; `None` until a run that another process left
    /// is claimed.
    pub roster: Mutex<BTreeMap<RunId, Option<Fence>>>,
    /// Runs that could not be read, with the reason.
    pub quarantine: Arc<Mutex<BTreeMap<RunId, String>>>,
    /// Ended runs that live in memory only.
    pub memory_runs: MemoryRuns,
    /// Told the first storage error; the board stops.
    pub on_storage_error: Box<dyn Fn(&StorageError) + Send + Sync>,
}

/// Ended runs whose journals live in memory only: the newest are kept.
#[derive(Debug)]
pub struct MemoryRuns {
    ended: Mutex<VecDeque<RunId>>,
    max: usize,
}

impl MemoryRuns {
    /// Keeps this many.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self { ended: Mutex::default(), max }
    }

    /// Adds one, and returns the one to forget in its place.
    fn add(&self, run: RunId) -> Option<RunId> {
        let mut ended = self.ended.lock();
        ended.push_back(run);
        if ended.len() > self.max { ended.pop_front() } else { None }
    }
}

/// The fault point after each input that was applied.
pub const TAKEN: &str = "runs.taken";

/// The fault point between applying what has arrived and handing it to the journal.
pub const APPLIED: &str = "runs.applied";

/// How long a claim on a run lasts without being renewed.
const CLAIM_SECS: u64 = 60;

/// How often claims are renewed: two attempts may fail before one is lost.
const RENEW_EVERY: Duration = Duration::from_secs(20);

/// The actor.
pub struct RunSupervisor;

/// Its one message: there is something in the inbox.
#[derive(Debug)]
pub struct Wake;

/// The actor's state.
pub struct Desk {
    office: Arc<Office>,
    runs: HashMap<RunId, Box<LiveRun>>,
    /// Runs that are being read back, with what arrived for them meanwhile.
    loading: HashMap<RunId, Vec<Input>>,
    /// Tells this life of the actor from those before.
    life: u64,
    timers: Timers,
}

impl Actor for RunSupervisor {
    type Msg = Wake;
    type State = Desk;
    type Arguments = Arc<Office>;

    async fn pre_start(&self, _: ActorRef<Wake>, office: Arc<Office>) -> Result<Desk, ActorProcessingErr> {
        let runs: Vec<_> = office.roster.lock().iter().map(|(run, fence)| (*run, fence.is_none())).collect();
        office.inbox.put_first(runs.into_iter().map(|(run, new_process)| Input::Adopt { run, new_process }));
        let timers = Timers::new(Arc::clone(&office.inbox));
        let life = office.env.random();
        Ok(Desk { timers, life, runs: HashMap::default(), loading: HashMap::default(), office })
    }

    async fn post_start(&self, _: ActorRef<Wake>, desk: &mut Desk) -> Result<(), ActorProcessingErr> {
        desk.work()
    }

    async fn handle(&self, _: ActorRef<Wake>, _: Wake, desk: &mut Desk) -> Result<(), ActorProcessingErr> {
        desk.work()
    }

    async fn post_stop(&self, _: ActorRef<Wake>, desk: &mut Desk) -> Result<(), ActorProcessingErr> {
        desk.timers.stop();
        desk.release_claims().await;
        Ok(())
    }
}

impl Desk {
    /// # Errors
    /// At a fault point only.
    fn work(&mut self) -> Result<(), ActorProcessingErr> {
        let now = self.office.env.now();
        let mut touched = Vec::new();
        let office = Arc::clone(&self.office);
        for input in office.inbox.take() {
            touched.extend(self.take(input, now));
            office.env.fault_point(TAKEN)?;
        }
        self.office.env.fault_point(APPLIED)?;
        for run in touched {
            self.flush(run, now);
        }
        self.timers.arm(now.monotonic);
        Ok(())
    }

    /// Handles one input, or keeps it until its run's commit is through. Returns the run that it changed.
    fn take(&mut self, input: Input, now: Now) -> Option<RunId> {
        let run = match &input {
            Input::Submit { .. }
            | Input::Adopt { .. }
            | Input::Loaded { .. }
            | Input::Tick
            | Input::Committed { .. } => None,
            Input::Outcome { turn, .. } => Some(turn.run),
            Input::Request { id, .. } | Input::Decide { request: id, .. } => Some(id.turn.run),
            Input::Answer { question, .. } => Some(question.request.turn.run),
            Input::Cancel { run, .. }
            | Input::Fail { run, .. }
            | Input::RestartTurns { run, .. }
            | Input::Result { run, .. }
            | Input::Questions { run, .. } => Some(*run),
        };
        let Some(run) = run else { return self.take_own(input, now) };
        if let Some(later) = self.loading.get_mut(&run) {
            later.push(input);
            return None;
        }
        let Some(live) = self.runs.get_mut(&run) else {
            refuse(input);
            return None;
        };
        if live.is_committing {
            live.waiting.push_back(input);
            return None;
        }
        let around = surroundings(&self.office, now);
        apply(live, input, &around);
        Some(run)
    }

    fn take_own(&mut self, input: Input, now: Now) -> Option<RunId> {
        match input {
            Input::Submit { submission, place, ack, result } => match self.loading.get_mut(&submission.run) {
                Some(later) => {
                    later.push(Input::Submit { submission, place, ack, result });
                    None
                }
                None => self.submit(*submission, place, ack, result, now),
            },
            Input::Adopt { run, new_process } => {
                self.load(run, new_process);
                None
            }
            // Begun by an earlier life of this actor; this one reads for itself.
            Input::Loaded { life, .. } | Input::Committed { life, .. } if life != self.life => None,
            Input::Loaded { run, loaded: Err(LoadError::Storage(StorageError::Held { owner, until, .. })), .. } => {
                tracing::warn!(%run, owner, %until, "another process holds the run; it is read when the claim ends");
                self.timers.add(now.monotonic + until.since(now.wall), Timer::Adopt(run));
                None
            }
            Input::Loaded { run, new_process, loaded, .. } => {
                self.loaded(run, new_process, loaded, now);
                // Before the run goes on: a turn that has ended meanwhile is not begun again.
                for input in self.loading.remove(&run).unwrap_or_default() {
                    self.take(input, now);
                }
                Some(run)
            }
            Input::Committed { run, result, .. } => {
                self.committed(run, result, now);
                Some(run)
            }
            Input::Tick => {
                for timer in self.timers.due(now.monotonic) {
                    if let Some(run) = self.on_timer(timer, now) {
                        self.flush(run, now);
                    }
                }
                None
            }
            Input::Outcome { .. }
            | Input::Request { .. }
            | Input::Answer { .. }
            | Input::Decide { .. }
            | Input::Cancel { .. }
            | Input::Fail { .. }
            | Input::RestartTurns { .. }
            | Input::Result { .. }
            | Input::Questions { .. } => None,
        }
    }

    fn submit(
        &mut self,
        submission: Submission,
        place: Option<OwnedSemaphorePermit>,
        ack: oneshot::Sender<Result<RunId, SubmitError>>,
        result: oneshot::Sender<Arc<RunResult>>,
        now: Now,
    ) -> Option<RunId> {
        let run = submission.run;
        let vacant = match self.runs.entry(run) {
            Entry::Vacant(vacant) => vacant,
            Entry::Occupied(there) if there.get().last > 0 => {
                let _ = ack.send(Ok(run));
                return None;
            }
            Entry::Occupied(mut on_its_way) => {
                on_its_way.get_mut().held.push(Held::Accepted(ack));
                return None;
            }
        };
        let first = TurnId { run, number: 1 };
        let admitted = {
            let mut facts = self.office.facts.lock();
            facts.check_breaker(&submission.agent, now.monotonic).map(|()| {
                facts.admit(first, &submission.agent, None);
            })
        };
        if let Err(retry_after) = admitted {
            let _ = ack.send(Err(Refusal::BreakerOpen { agent: submission.agent, retry_after }.into()));
            return None;
        }
        let durability = submission.task.durability.unwrap_or(self.office.durability);
        let deadline = submission.task.deadline;
        let event = RunEvent::Submitted(Box::new(submission.clone()));
        let (fold, effects) = Run::begin(submission, self.office.rules.clone());
        let live = vacant.insert(Box::new(LiveRun::new(fold, Fence::FIRST, 0, durability, place)));
        live.keep(event, effects);
        live.held.push(Held::Accepted(ack));
        live.results.push(result);
        self.office.roster.lock().insert(run, Some(Fence::FIRST));
        if let Some(deadline) = deadline {
            self.timers.add(now.monotonic + deadline, Timer::Deadline(run));
        }
        Some(run)
    }

    /// Reads a run; what arrives for it until then waits.
    fn load(&mut self, run: RunId, new_process: bool) {
        self.loading.entry(run).or_default();
        let (office, life) = (Arc::clone(&self.office), self.life);
        let fence = office.roster.lock().entry(run).or_default().unwrap_or_default();
        tokio::spawn(async move {
            let read = async {
                let stream = Journal::stream(run);
                let fence =
                    if new_process { office.storage.claim(&stream, &office.owner, CLAIM_SECS).await? } else { fence };
                Ok((snapshot::load(&office.journal, run, &office.rules).await?, fence))
            };
            let loaded = AssertUnwindSafe(read).catch_unwind().await;
            let loaded = loaded.unwrap_or_else(|panic| Err(LoadError::Panicked(panic_text(&*panic))));
            office.inbox.push(Input::Loaded { run, life, new_process, loaded });
        });
    }

    fn loaded(&mut self, run: RunId, new_process: bool, loaded: Result<(Loaded, Fence), LoadError>, now: Now) {
        let (Loaded { run: fold, last }, fence) = match loaded {
            Ok(loaded) => loaded,
            Err(error) => return self.quarantine(run, &error.to_string()),
        };
        let Some(fold) = fold else {
            // Noted as open, but never journaled: its submission was not acknowledged.
            spawn_unless_ready(self.office.storage.release(&Journal::stream(run), fence), |_| {});
            return self.forget(run);
        };
        // What an earlier life of this actor had taken, begun and not yet given back.
        self.office.facts.lock().forget_run(run);
        if !new_process {
            let open: Vec<TurnId> = fold.open_turns().map(|turn| fold.turn_id(turn)).collect();
            self.office.dispatch.abort_all_but(run, &open);
        }
        if fold.result().is_some() {
            self.office.dispatch.ended(&fold);
            return self.forget(run);
        }
        let durability = fold.submission().task.durability.unwrap_or(self.office.durability);
        let deadline = fold.submission().task.deadline.map(|deadline| fold.submission().at + deadline);
        let mut live = Box::new(LiveRun::new(fold, fence, last, durability, None));
        if fence != Fence::FIRST {
            self.timers.add(now.monotonic + RENEW_EVERY, Timer::Renew(run));
        }
        (live.is_noted_open, live.is_recovered) = (true, true);
        if let Some(deadline) = deadline {
            self.timers.add(now.monotonic + deadline.since(now.wall), Timer::Deadline(run));
        }
        live.absorb(RunEvent::Recovered { at: now.wall, new_process });
        let open: Vec<u32> = live.run.open_turns().collect();
        for number in open {
            let Some(turn) = live.run.turn(number) else { continue };
            let waiter = live.run.waiter_of(turn.branch).map(|(waiter, agent)| (live.run.turn_id(waiter), agent));
            self.office.facts.lock().note_wait(live.run.turn_id(number), &turn.agent, waiter);
            match &turn.phase {
                Phase::Leased if turn.recoveries >= self.office.max_recoveries => {
                    let why = format!("it was under way at {} starts in a row", turn.recoveries);
                    live.absorb(RunEvent::NeedsAttention { turn: number, why: why.into(), at: now.wall });
                }
                Phase::Leased => live.held.push(Held::Effect(Effect::Start(number))),
                Phase::Backoff { until } => live.held.push(Held::Effect(Effect::Retry(number, *until))),
                Phase::NeedsAttention { .. } => {}
            }
        }
        let approvals: Vec<RequestId> = live.run.open_approvals().map(|envelope| envelope.request).collect();
        for request in approvals {
            let effect = Effect::RequestApproval { turn: request.turn.number, ordinal: request.ordinal };
            live.held.push(Held::Effect(effect));
        }
        self.office.roster.lock().insert(run, Some(fence));
        self.runs.insert(run, live);
    }

    fn quarantine(&self, run: RunId, why: &str) {
        tracing::error!(%run, why, "run is quarantined; other runs go on");
        self.office.quarantine.lock().insert(run, why.to_owned());
        self.office.roster.lock().remove(&run);
    }

    /// Lets the next process take the runs at once.
    async fn release_claims(&self) {
        let claims: Vec<_> =
            self.office.roster.lock().iter().filter_map(|(run, fence)| Some((*run, (*fence)?))).collect();
        let claims = claims.into_iter().filter(|(_, fence)| *fence != Fence::FIRST);
        let released = claims.map(|(run, fence)| self.office.storage.release(&Journal::stream(run), fence));
        // A claim that is not released ends by itself.
        drop(futures::future::join_all(released).await);
    }

    /// Another process has taken the run over: nothing is done for it here any more.
    fn let_go(&self, live: Box<LiveRun>) {
        let run = live.run.id();
        tracing::warn!(%run, "another process has taken the run over");
        for number in live.run.open_turns() {
            if let Some(turn) = live.run.turn(number) {
                self.office.dispatch.abort(live.run.turn_id(number), &turn.agent);
            }
        }
        for envelope in live.run.open_approvals() {
            self.office.dispatch.withdraw_approval(envelope.id());
        }
        self.office.roster.lock().remove(&run);
        live.waiting.into_iter().for_each(refuse);
    }

    /// The run needs no supervisor any more.
    fn forget(&mut self, run: RunId) {
        self.runs.remove(&run);
        self.office.roster.lock().remove(&run);
        spawn_unless_ready(self.office.journal.mark_ended(run), |_| {});
    }

    /// Hands what was applied to the journal; what the store acknowledges at once is performed at once.
    fn flush(&mut self, run: RunId, now: Now) {
        while let Some(live) = self.runs.get_mut(&run) {
            if live.is_committing || (live.events.is_empty() && live.held.is_empty()) {
                return;
            }
            let result = if live.events.is_empty() {
                Ok(live.last)
            } else {
                live.is_committing = true;
                let durability = std::mem::take(&mut live.events_durability).min(live.durability);
                // Handed over first: a record that is on disk has its note there too.
                let needs_note = !live.is_noted_open && durability != Durability::Memory;
                live.is_noted_open |= needs_note;
                let noted = needs_note.then(|| self.office.journal.mark_open(run));
                let append =
                    self.office.journal.append(&live.stream, live.fence, live.last, &mut live.events, durability);
                let mut append = match noted {
                    None => append,
                    Some(noted) => async move {
                        noted.await?;
                        append.await
                    }
                    .boxed(),
                };
                match (&mut append).now_or_never() {
                    Some(result) => result,
                    None => {
                        let (inbox, life) = (Arc::clone(&self.office.inbox), self.life);
                        tokio::spawn(async move {
                            let result = append.await;
                            inbox.push(Input::Committed { run, life, result });
                        });
                        return;
                    }
                }
            };
            self.committed(run, result, now);
        }
    }

    /// Performs what the commit releases and takes up what waited for it.
    fn committed(&mut self, run: RunId, result: Result<Sequence, StorageError>, now: Now) {
        let Some(mut live) = self.runs.remove(&run) else { return };
        live.is_committing = false;
        match result {
            Ok(last) => live.last = last,
            Err(error) => return self.not_committed(live, &error),
        }
        let committed = live.events.len();
        let mut sequence = live.run.sequence() - committed as u64;
        for event in live.events.drain(..) {
            sequence += 1;
            self.office.dispatch.journaled(&live.run, sequence, &event);
        }
        for held in std::mem::take(&mut live.held) {
            self.perform(&mut live, held, now);
        }
        if live.run.result().is_some() {
            self.ended(live);
            return;
        }
        live.note_turns(committed);
        if live.cadence.count(committed) {
            self.keep_snapshot(&mut live);
        }
        let around = surroundings(&self.office, now);
        while !live.is_committing
            && let Some(input) = live.waiting.pop_front()
        {
            apply(&mut live, input, &around);
        }
        self.runs.insert(run, live);
    }

    /// Shortens what a start has to read, and what a run in memory holds.
    fn keep_snapshot(&self, live: &mut LiveRun) {
        let run = live.run.id();
        let kept = self.office.journal.keep_snapshot(run, live.cadence.take(live.last, &live.run));
        let trim = live.trim_to().map(|up_to| self.office.journal.trim(run, up_to));
        let work = async move {
            kept.await?;
            match trim {
                Some(trim) => trim.await,
                None => Ok(()),
            }
        };
        spawn_unless_ready(work.boxed(), move |done: Result<(), StorageError>| {
            if let Err(error) = done {
                tracing::warn!(%run, %error, "no snapshot was kept; the journal has everything");
            }
        });
    }

    fn ended(&mut self, mut live: Box<LiveRun>) {
        let run = live.run.id();
        if let Some(result) = live.run.result() {
            for waiter in live.results.drain(..) {
                let _ = waiter.send(Arc::clone(result));
            }
            for input in live.waiting.drain(..) {
                match input {
                    Input::Result { reply, .. } => drop(reply.send(Arc::clone(result))),
                    input => refuse(input),
                }
            }
        }
        self.office.dispatch.ended(&live.run);
        self.office.roster.lock().remove(&run);
        if live.is_noted_open {
            let (ended, open) =
                (self.office.journal.note_ended(run, live.run.last_at()), self.office.journal.mark_ended(run));
            // A note that is lost costs a look at the next start, or disk space; nothing else.
            spawn_unless_ready(async move { ended.await.and(open.await) }.boxed(), |_| {});
        } else if let Some(oldest) = self.office.memory_runs.add(run) {
            spawn_unless_ready(self.office.journal.forget(oldest), |_| {});
        }
    }

    /// Nothing of the batch has happened. A submission is refused; anything else is read back from the journal.
    fn not_committed(&mut self, mut live: Box<LiveRun>, error: &StorageError) {
        let run = live.run.id();
        let is_new = live.last == 0;
        for held in std::mem::take(&mut live.held) {
            match held {
                Held::Accepted(ack) => {
                    // The caller chose the id of a run that exists: that run is the answer.
                    let exists =
                        matches!(error, StorageError::WrongSequence { expected: 0, .. } | StorageError::Fenced { .. });
                    let _ = ack.send(if exists { Ok(run) } else { Err(error.clone().into()) });
                }
                Held::Answered(ack) => drop(ack.send(Err(error.clone().into()))),
                Held::Effect(_) | Held::Close { .. } | Held::Cancelled(_) | Held::Restarted(..) | Held::Reply(..) => {}
            }
        }
        self.office.facts.lock().forget_run(run);
        if matches!(error, StorageError::Stopped { .. }) {
            (self.office.on_storage_error)(error);
            live.waiting.into_iter().for_each(refuse);
        } else if is_new {
            self.office.roster.lock().remove(&run);
            live.waiting.into_iter().for_each(refuse);
        } else if matches!(error, StorageError::Fenced { .. }) {
            self.let_go(live);
        } else {
            tracing::error!(%run, %error, "a commit failed; the run is read back");
            self.load(run, false);
            let later = self.loading.entry(run).or_default();
            if matches!(error, StorageError::TooLarge { .. }) {
                // The same record would be refused again, and again.
                later.push(Input::Fail { run, error: error.to_string() });
            }
            later.extend(live.waiting);
        }
    }

    fn perform(&mut self, live: &mut LiveRun, held: Held, now: Now) {
        let office = &self.office;
        match held {
            Held::Accepted(ack) => drop(ack.send(Ok(live.run.id()))),
            Held::Answered(ack) => drop(ack.send(Ok(()))),
            Held::Cancelled(ack) => drop(ack.send(true)),
            Held::Restarted(ack, turns) => drop(ack.send(turns)),
            Held::Reply(waiter, reply) => drop(waiter.send(reply)),
            Held::Close { turn, agent, waiter, signal, abort } => {
                let id = live.run.turn_id(turn);
                let waiter = waiter.as_ref().map(|(waiter, agent)| (live.run.turn_id(*waiter), agent));
                office.facts.lock().close(id, &agent, waiter, signal, now.monotonic);
                live.waiters.retain(|(waiting, _), _| *waiting != turn);
                if abort {
                    office.dispatch.abort(id, &agent);
                }
            }
            Held::Effect(effect) => match effect {
                Effect::Start(turn) => self.start(live, turn, now),
                Effect::Retry(turn, at) => {
                    self.timers.add(now.monotonic + at.since(now.wall), Timer::Retry(live.run.id(), turn));
                }
                Effect::Reply { turn, ordinal } => live.reply(turn, ordinal),
                Effect::Answered(answered) => office.dispatch.answered(&live.run, &answered),
                Effect::RequestApproval { turn, ordinal } => {
                    let request = RequestId { turn: live.run.turn_id(turn), ordinal };
                    if let Some(envelope) = live.run.open_approvals().find(|envelope| envelope.request == request) {
                        office.dispatch.request_approval(envelope);
                    }
                }
                Effect::WithdrawApproval(approval) => office.dispatch.withdraw_approval(approval),
                // Closed when its event was applied, and handled with the rest of the run.
                Effect::Close { .. } | Effect::Ended => {}
            },
        }
    }

    fn start(&self, live: &mut LiveRun, number: u32, now: Now) {
        let Some(turn) = live.run.turn(number).filter(|turn| turn.phase == Phase::Leased) else { return };
        let branch = live.run.branch_of(turn);
        self.office.dispatch.start(ReadyTurn {
            id: live.run.turn_id(number),
            attempt: turn.attempt,
            agent: turn.agent.clone(),
            input: turn.input.clone(),
            view: branch.view.clone(),
            chain: branch.chain.clone(),
            previous_agent: branch.previous_agent.clone(),
            metrics: live.run.metrics(),
            submission: Arc::clone(live.run.submission()),
            records: turn.records.clone(),
            durability: live.durability,
            ready_at: now.monotonic,
            inbox: Arc::clone(&self.office.inbox),
        });
    }

    fn on_timer(&mut self, timer: Timer, now: Now) -> Option<RunId> {
        match timer {
            Timer::Adopt(run) => {
                self.load(run, true);
                None
            }
            Timer::Renew(run) => {
                let live = self.runs.get(&run)?;
                let renewed = self.office.storage.renew(&live.stream, live.fence, CLAIM_SECS);
                spawn_unless_ready(renewed, move |renewed| {
                    if let Err(error) = renewed {
                        tracing::warn!(%run, %error, "claim not renewed");
                    }
                });
                self.timers.add(now.monotonic + RENEW_EVERY, timer);
                None
            }
            Timer::Deadline(run) => {
                let live = self.runs.get_mut(&run)?;
                if live.is_committing {
                    self.timers.add(now.monotonic + Duration::from_millis(1), Timer::Deadline(run));
                    return None;
                }
                live.absorb(decide::on_deadline(&surroundings(&self.office, now)));
                Some(run)
            }
            Timer::Retry(run, number) => {
                let mut live = self.runs.remove(&run)?;
                if let Some(turn) = live
                    .run
                    .turns
                    .get_mut(&number)
                    .filter(|turn| matches!(turn.phase, Phase::Backoff { until } if until <= now.wall))
                {
                    let id = TurnId { run, number };
                    let readmitted = self.office.facts.lock().readmit(id, &turn.agent, now.monotonic);
                    match readmitted {
                        // An open breaker is waited for and uses up no attempt.
                        Err(retry_after) => self.timers.add(now.monotonic + retry_after, timer),
                        Ok(()) => {
                            turn.phase = Phase::Leased;
                            self.start(&mut live, number, now);
                        }
                    }
                }
                self.runs.insert(run, live);
                None
            }
        }
    }
}

fn surroundings(office: &Office, now: Now) -> Surroundings<'_> {
    Surroundings {
        now,
        random: office.env.random(),
        dispatch: &*office.dispatch,
        facts: &office.facts,
        backoff: &office.backoff,
        approval_ttl: office.approval_ttl,
    }
}

/// Applies an input to its run: decides, and keeps the event for the next commit.
fn apply(live: &mut LiveRun, input: Input, around: &Surroundings<'_>) {
    match input {
        Input::Outcome { turn, attempt, outcome } => on_outcome(live, turn.number, attempt, outcome, around),
        Input::Request { id, attempt, request, reply } => on_request(live, id, attempt, request, reply, around),
        Input::Answer { question, answer, by, ack } => {
            let QuestionId { request, nonce } = question;
            let record = live.run.turn(request.turn.number).and_then(|turn| turn.record(request.ordinal));
            match record {
                Some(Record::Question { nonce: asked, answer: None, .. }) if *asked == nonce => {
                    let (turn, ordinal, at) = (request.turn.number, request.ordinal, around.now.wall);
                    live.absorb(RunEvent::Answered { turn, ordinal, answer, by, at });
                    live.held.push(Held::Answered(ack));
                }
                Some(Record::Question { nonce: asked, .. }) if *asked == nonce => {
                    drop(ack.send(Err(AnswerError::Answered(request))));
                }
                _ => drop(ack.send(Err(AnswerError::Unknown(request)))),
            }
        }
        Input::Decide { request, approval, decision } => {
            let open =
                live.run.open_approvals().find(|envelope| envelope.request == request && envelope.id() == approval);
            let Some(envelope) = open.cloned() else { return };
            if request.ordinal == HANDOFF_ORDINAL {
                if let Some(event) = decide::on_parked_decision(&live.run, &envelope, decision, around) {
                    live.absorb(event);
                }
            } else {
                let (turn, ordinal, at) = (request.turn.number, request.ordinal, around.now.wall);
                live.absorb(RunEvent::Decided { turn, ordinal, approval, decision, verdict: Verdict::Nothing, at });
            }
        }
        Input::Cancel { reason, ack, .. } => {
            if live.run.result().is_none() {
                live.absorb(RunEvent::Stopped { outcome: Outcome::Cancelled { reason }, at: around.now.wall });
            }
            live.held.push(Held::Cancelled(ack));
        }
        Input::Fail { error, .. } => {
            live.absorb(RunEvent::Stopped { outcome: Outcome::Failed { error }, at: around.now.wall });
        }
        Input::RestartTurns { ack, .. } => {
            let stuck: Vec<u32> = live.run.turns_that_need_attention().map(|(turn, _)| turn.number).collect();
            for turn in &stuck {
                live.absorb(RunEvent::TurnRestarted { turn: *turn, at: around.now.wall });
            }
            live.held.push(Held::Restarted(ack, stuck.len()));
        }
        Input::Result { reply, .. } => live.results.push(reply),
        Input::Questions { reply, .. } => drop(reply.send(open_questions(&live.run))),
        Input::Submit { .. } | Input::Adopt { .. } | Input::Loaded { .. } | Input::Committed { .. } | Input::Tick => {}
    }
}

fn on_outcome(live: &mut LiveRun, turn: u32, attempt: u32, outcome: TurnOutcome, around: &Surroundings<'_>) {
    // Reducers are the users' code: one that panics ends its run and nothing else.
    let decided = catch_unwind(AssertUnwindSafe(|| decide::on_outcome(&live.run, turn, attempt, outcome, around)));
    match decided {
        Ok(Some((event, worked_out))) => {
            if let RunEvent::AttemptFailed { failure, .. } | RunEvent::TurnFailed { failure, .. } = &event
                && failure.kind == FailureKind::InvalidCommand
            {
                tracing::warn!(run = %live.run.id(), turn, %failure, "command refused");
            }
            live.absorb_with(event, worked_out);
        }
        Ok(None) => {}
        Err(panic) => {
            let error = format!("a reducer panicked: {}", panic_text(&*panic));
            live.absorb(RunEvent::Stopped { outcome: Outcome::Failed { error }, at: around.now.wall });
        }
    }
}

fn on_request(
    live: &mut LiveRun,
    id: RequestId,
    attempt: u32,
    request: TurnRequest,
    reply: Option<oneshot::Sender<TurnReply>>,
    around: &Surroundings<'_>,
) {
    let (number, ordinal, at) = (id.turn.number, id.ordinal, around.now.wall);
    if let TurnRequest::Settle(usage) = request {
        // A call may report after its turn has ended.
        live.absorb(RunEvent::Settled { turn: number, ordinal, usage });
        live.held.extend(reply.map(|reply| Held::Reply(reply, TurnReply::Done)));
        return;
    }
    let Some(turn) = live.run.turn(number).filter(|turn| turn.attempt == attempt) else {
        reply.map(|reply| reply.send(TurnReply::Gone));
        return;
    };
    match request {
        TurnRequest::Settle(_) => {}
        TurnRequest::Notice(text) => live.absorb(RunEvent::Noticed { turn: number, text, at }),
        TurnRequest::Reserve(tokens) => {
            let ordinal = live.run.next_reservation;
            let answer = live.run.budget.check(tokens);
            let verdict = match &answer {
                Ok(()) => Verdict::Admitted(Vec::new()),
                Err(refusal) => Verdict::Refused(refusal.clone()),
            };
            live.absorb(RunEvent::Reserved { turn: number, ordinal, tokens, verdict });
            let answer = TurnReply::Reserved(answer.map(|()| ordinal));
            live.held.extend(reply.map(|reply| Held::Reply(reply, answer)));
        }
        request => {
            let recorded = turn.record(ordinal).map(|record| matches_record(record, &request));
            match recorded {
                Some(Err(difference)) => {
                    reply.map(|reply| reply.send(TurnReply::Changed(difference)));
                    return;
                }
                Some(Ok(())) if !matches!(request, TurnRequest::FinishStep(..)) => {}
                Some(Ok(())) | None => ask(live, number, ordinal, request, around),
            }
            if let Some(reply) = reply {
                live.waiters.insert((number, ordinal), reply);
                let is_committed = live.events.is_empty();
                match live.recorded_reply(number, ordinal) {
                    Some(_) if is_committed => live.reply(number, ordinal),
                    Some(_) => live.held.push(Held::Effect(Effect::Reply { turn: number, ordinal })),
                    None => {}
                }
            }
        }
    }
}

/// Decides a request that was not recorded yet.
fn ask(live: &mut LiveRun, number: u32, ordinal: u32, request: TurnRequest, around: &Surroundings<'_>) {
    let at = around.now.wall;
    let Some(turn) = live.run.turn(number) else { return };
    match request {
        TurnRequest::StartStep(name) => live.absorb(RunEvent::StepStarted { turn: number, ordinal, name }),
        TurnRequest::FinishStep(name, value) => {
            live.absorb(RunEvent::StepFinished { turn: number, ordinal, name, value })
        }
        TurnRequest::Delegate(order) => {
            let event = decide::on_delegation(&live.run, number, turn, ordinal, order, around);
            live.absorb(event);
        }
        TurnRequest::Ask(question) => {
            live.absorb(RunEvent::Asked { turn: number, ordinal, question, nonce: around.random, at });
        }
        TurnRequest::Approve(action) => {
            for event in decide::on_approval(&live.run, number, turn, ordinal, action, around) {
                live.absorb(event);
            }
        }
        TurnRequest::Reserve(_) | TurnRequest::Settle(_) | TurnRequest::Notice(_) => {}
    }
}

/// Whether a repeated request is the one that was recorded in its place.
fn matches_record(record: &Record, request: &TurnRequest) -> Result<(), String> {
    let (is_same, was) = match (record, request) {
        (
            Record::StepStarted { name } | Record::Step { name, .. },
            TurnRequest::StartStep(again) | TurnRequest::FinishStep(again, _),
        ) => (name == again, format!("step {name:?}")),
        (Record::Delegation { order, .. }, TurnRequest::Delegate(again)) => {
            (order == again, format!("a delegation to {:?}", order.to))
        }
        (Record::Question { question, .. }, TurnRequest::Ask(again)) => {
            (question == again, format!("the question {question}"))
        }
        (Record::Approval { envelope, .. }, TurnRequest::Approve(again)) => {
            (envelope.action == *again, format!("consent to {}", envelope.action))
        }
        (record, _) => (false, format!("{record:?}").chars().take(80).collect()),
    };
    if is_same { Ok(()) } else { Err(format!("an earlier attempt asked for {was} in this place")) }
}

fn open_questions(run: &Run) -> Vec<Question> {
    let mut questions = Vec::new();
    for number in run.open_turns() {
        let Some(turn) = run.turn(number) else { continue };
        for (ordinal, record) in &turn.records {
            if let Record::Question { question, nonce, asked_at, answer: None } = &**record {
                let request = RequestId { turn: run.turn_id(number), ordinal: *ordinal };
                let id = QuestionId { request, nonce: *nonce };
                questions.push(Question {
                    id,
                    agent: turn.agent.clone(),
                    question: question.clone(),
                    asked_at: *asked_at,
                });
            }
        }
    }
    questions
}

/// An input for a run that is not in memory: it has ended, or was never there.
fn refuse(input: Input) {
    match input {
        Input::Request { reply, .. } => drop(reply.map(|reply| reply.send(TurnReply::Gone))),
        Input::Answer { question, ack, .. } => drop(ack.send(Err(AnswerError::Unknown(question.request)))),
        Input::Cancel { ack, .. } => drop(ack.send(false)),
        Input::RestartTurns { ack, .. } => drop(ack.send(0)),
        Input::Questions { reply, .. } => drop(reply.send(Vec::new())),
        // A dropped reply says that the run is not in memory.
        Input::Result { .. }
        | Input::Outcome { .. }
        | Input::Decide { .. }
        | Input::Submit { .. }
        | Input::Adopt { .. }
        | Input::Fail { .. }
        | Input::Committed { .. }
        | Input::Loaded { .. }
        | Input::Tick => {}
    }
}

fn spawn_unless_ready<T: Send + 'static>(
    mut future: futures::future::BoxFuture<'static, T>,
    then: impl FnOnce(T) + Send + 'static,
) {
    match (&mut future).now_or_never() {
        Some(done) => then(done),
        None => drop(tokio::spawn(async move { then(future.await) })),
    }
}
