//! The run supervisor: one owner for each run's state. It decides with the pure rules, journals, and performs what the
//! journal has acknowledged. Processing a message awaits nothing, so any sender's thread may do it: what takes time is
//! spawned and returns as a message. What it logs is logged outside the sender's spans.

mod commits;
mod conversing;
mod life;
mod recovery;
mod reopening;
mod requests;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use foldhash::HashSet;
use foldhash::fast::SeedableRandomState;
use parking_lot::Mutex;
use ractor::ActorProcessingErr;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::env::{Env, Now};
use crate::messages::state::StateRules;
use crate::messages::{
    Backoff, ConversationId, Durability, OnUnknown, Refusal, RunEvent, RunId, RunResult, Submission, TurnId,
};
use crate::storage::{Fence, Journal, StorageError};
use crate::supervision::runs::rules::decide::DecisionContext;
use crate::supervision::runs::rules::errors::{LoadError, SubmitError};
use crate::supervision::runs::rules::facts::SharedFacts;
use crate::supervision::runs::rules::run::{Phase, Run};

use super::claims::Claims;
use super::conversing::ConversationQueue;
use super::dispatch::Dispatch;
use super::live::{Buffers, Held, LiveRun};
use super::queue::{ShardMessage, ShardQueue};
use super::roster::Roster;
use super::timers::{Timer, Timers};

pub use life::{RunSupervisor, Wake};

use requests::{apply, refuse};

/// After how long a run is read again that the store could not read.
const READ_AGAIN: Duration = Duration::from_secs(1);

/// The configuration and services of a run supervisor, and what must survive its restarts.
pub struct ShardContext {
    /// Clock, random numbers, ids and fault points.
    pub env: Env,
    /// The runs' journals.
    pub journal: Journal,
    /// Where ready turns go.
    pub dispatch: Arc<dyn Dispatch>,
    /// Breakers, waits and reservations, shared with the other run supervisors.
    pub facts: Arc<SharedFacts>,
    /// Schema and reducers of runs that have none of their own.
    pub rules: StateRules,
    /// The delays between the attempts of a turn.
    pub backoff: Backoff,
    /// How long an approval waits if neither policy nor task sets a time.
    pub approval_ttl: Duration,
    /// How long before its expiry people are reminded of an approval.
    pub remind_before: Duration,
    /// What follows an unknown outcome if neither tool nor agent sets a rule.
    pub on_unknown: OnUnknown,
    /// The number of recoveries in a row after which a turn waits for a person.
    pub max_recoveries: u32,
    /// The most dynamic agents in one run.
    pub dynamic_agents: usize,
    /// How many of the last turns a run in memory keeps in its journal.
    pub memory_turns: u32,
    /// The durability of tasks that name none.
    pub durability: Durability,
    /// The board's claims on runs.
    pub claims: Claims,
    /// The conversations of the board's store.
    pub conversations: ConversationQueue,
    /// The shard's messages.
    pub queue: Arc<ShardQueue>,
    /// The runs of this supervisor, which its next life reads back.
    pub roster: Roster,
    /// Runs that could not be read, with the reason; added when reading fails for good.
    pub quarantine: Arc<Mutex<BTreeMap<RunId, String>>>,
    /// Ended runs whose journals are in memory only.
    pub memory_runs: MemoryRuns,
    /// Called with an error that stops the store; the board stops.
    pub on_storage_error: Box<dyn Fn(&StorageError) + Send + Sync>,
}

/// Ended runs whose journals are in memory only: the newest are kept.
#[derive(Debug)]
pub struct MemoryRuns {
    ended: Mutex<VecDeque<RunId>>,
    max: usize,
}

impl MemoryRuns {
    /// Keeps the last `max` runs.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self { ended: Mutex::default(), max }
    }

    /// Removes one that continues.
    fn remove(&self, run: RunId) {
        self.ended.lock().retain(|ended| *ended != run);
    }

    /// Adds one, and returns the oldest if there are too many: its journal is deleted.
    fn add(&self, run: RunId) -> Option<RunId> {
        let mut ended = self.ended.lock();
        ended.push_back(run);
        if ended.len() > self.max { ended.pop_front() } else { None }
    }
}

/// The fault point after each message that was applied.
pub const TAKEN: &str = "runs.taken";

/// The fault point between applying a batch and appending it to the journal.
pub const APPLIED: &str = "runs.applied";

/// The fault point between the journal's acknowledgement of a commit and what the commit releases. It injects no error.
pub const JOURNALED: &str = "runs.journaled";

/// The runs of one run supervisor in memory. Owned by the holder of the queue's lock, for one life of the actor.
pub(in crate::supervision::runs) struct RunShard {
    shared: Arc<ShardContext>,
    /// Runs in memory; removed when they have ended.
    runs: HashMap<RunId, Box<LiveRun>, SeedableRandomState>,
    /// Runs that are being read back, with the messages that arrived for them meanwhile.
    loading: HashMap<RunId, Vec<ShardMessage>, SeedableRandomState>,
    /// Runs that another process holds. Each has a timer for the end of the claim, and is on the roster.
    held_elsewhere: HashSet<RunId>,
    /// Distinguishes this life of the actor from earlier ones: results of their tasks are dropped.
    pub(in crate::supervision::runs) life: u64,
    timers: Timers,
    /// Lent to the run that is processed; reused.
    buffers: Buffers,
    /// The buffer that is exchanged with the queue's; empty between drains.
    batch: VecDeque<ShardMessage>,
    /// Runs that the batch has changed and that are flushed after it; empty between drains.
    touched: Vec<RunId>,
}

impl RunShard {
    fn new(shared: Arc<ShardContext>, life: u64) -> Self {
        Self {
            timers: Timers::new(Arc::clone(&shared.queue)),
            runs: HashMap::with_hasher(shared.env.hasher()),
            loading: HashMap::with_hasher(shared.env.hasher()),
            shared,
            held_elsewhere: HashSet::default(),
            life,
            buffers: Buffers::default(),
            batch: VecDeque::new(),
            touched: Vec::new(),
        }
    }

    /// Processes all waiting messages. Short, and awaits nothing.
    ///
    /// # Errors
    /// At a fault point only.
    pub(in crate::supervision::runs) fn work(&mut self) -> Result<(), ActorProcessingErr> {
        let now = self.shared.env.now();
        let mut touched = std::mem::take(&mut self.touched);
        let shared = Arc::clone(&self.shared);
        let mut batch = shared.queue.take(std::mem::take(&mut self.batch));
        for input in &mut batch {
            let run = self.take(input, now);
            touched.extend(run.filter(|run| touched.last() != Some(run)));
            shared.queue.shard_point(&shared.env, TAKEN)?;
        }
        self.batch = batch.into_buffer();
        shared.queue.shard_point(&shared.env, APPLIED)?;
        for run in touched.drain(..) {
            self.flush(run, now);
        }
        self.touched = touched;
        self.timers.arm(now.monotonic);
        Ok(())
    }

    /// Processes one message, or keeps it until its run's commit has ended. Returns the run that it changed.
    fn take(&mut self, input: ShardMessage, now: Now) -> Option<RunId> {
        let run = match &input {
            ShardMessage::Submit { .. }
            | ShardMessage::Adopt { .. }
            | ShardMessage::Loaded { .. }
            | ShardMessage::Tick
            | ShardMessage::Reopened { .. }
            | ShardMessage::Begin { .. }
            | ShardMessage::LookAtConversation { .. }
            | ShardMessage::Committed { .. } => None,
            ShardMessage::Outcome { turn, .. } => Some(turn.run),
            ShardMessage::Request { id, .. } | ShardMessage::Decide { request: id, .. } => Some(id.turn.run),
            ShardMessage::Answer { question, .. } => Some(question.request.turn.run),
            ShardMessage::Resume { turn, .. } => Some(turn.run),
            ShardMessage::Cancel { run, .. }
            | ShardMessage::Expired { run, .. }
            | ShardMessage::Fail { run, .. }
            | ShardMessage::RestartTurns { run, .. }
            | ShardMessage::Overwrite { run, .. }
            | ShardMessage::ConversationRead { run, .. }
            | ShardMessage::Result { run, .. }
            | ShardMessage::Interrupts { run, .. }
            | ShardMessage::Questions { run, .. } => Some(*run),
        };
        let Some(run) = run else { return self.take_own(input, now) };
        if let Some(later) = self.loading.get_mut(&run) {
            later.push(input);
            return None;
        }
        let Some(live) = self.runs.get_mut(&run) else {
            match input {
                ShardMessage::Overwrite { run, update, by, ack } => self.reopen(run, update, by, ack),
                input => refuse(input),
            }
            return None;
        };
        if live.is_committing {
            live.waiting.push_back(input);
            return None;
        }
        live.borrow(&mut self.buffers);
        let context = decision_context(&self.shared, now);
        apply(live, input, &context);
        Some(run)
    }

    fn take_own(&mut self, input: ShardMessage, now: Now) -> Option<RunId> {
        match input {
            ShardMessage::Submit { submission, conversation, permit, ack, result } => {
                match self.loading.get_mut(&submission.run) {
                    Some(later) => {
                        later.push(ShardMessage::Submit { submission, conversation, permit, ack, result });
                        None
                    }
                    // Begun here too, there would be two when the claim ends and the other one is read.
                    None if self.held_elsewhere.contains(&submission.run) => {
                        self.shared.accept_if_there(submission.run, ack);
                        None
                    }
                    None => self.submit((submission, conversation), permit, ack, result, now),
                }
            }
            ShardMessage::Adopt { run, new_process, recovery } => {
                // A life that ended early leaves its `Adopt` messages in the queue, and the next one adds the same from the roster.
                if !(self.runs.contains_key(&run) || self.loading.contains_key(&run)) {
                    self.load(run, new_process, recovery);
                }
                None
            }
            // Started by an earlier life of this actor; this one reads its runs itself.
            ShardMessage::Loaded { life, .. }
            | ShardMessage::Reopened { life, .. }
            | ShardMessage::Committed { life, .. }
                if life != self.life =>
            {
                None
            }
            ShardMessage::Loaded {
                run,
                loaded: Err(LoadError::Storage(StorageError::Held { owner, until, .. })),
                ..
            } => {
                tracing::warn!(parent: None, %run, owner, %until, "another process holds the run; it is read when the claim ends");
                if !self.held_elsewhere.insert(run) {
                    // Its owner has renewed the claim, so it is alive: callers are refused here and ask there.
                    self.loading.remove(&run).unwrap_or_default().into_iter().for_each(refuse);
                }
                self.timers.add(now.monotonic + until.since(now.wall), Timer::Adopt { run, new_process: true });
                None
            }
            ShardMessage::Loaded { run, new_process, loaded: Err(LoadError::Storage(error)), .. }
                if error.may_pass() =>
            {
                tracing::warn!(parent: None, %run, %error, "the run could not be read; it is read again");
                self.timers.add(now.monotonic + READ_AGAIN, Timer::Adopt { run, new_process });
                None
            }
            ShardMessage::Loaded { run, new_process, loaded, .. } => {
                self.held_elsewhere.remove(&run);
                self.loaded(run, new_process, loaded, now);
                // Before the run continues: a turn that has ended meanwhile is not dispatched again.
                for input in self.loading.remove(&run).unwrap_or_default() {
                    self.take(input, now);
                }
                Some(run)
            }
            ShardMessage::Reopened { run, reopened, .. } => self.reopened(run, *reopened, now),
            ShardMessage::Committed { run, result, .. } => {
                let live = self.runs.remove(&run)?;
                if let Some(live) = self.committed(live, result, now) {
                    self.runs.insert(run, live);
                }
                Some(run)
            }
            ShardMessage::Begin { turn } => {
                let mut live = self.runs.remove(&turn.run)?;
                self.begin_again(&mut live, turn.number, now);
                self.runs.insert(turn.run, live);
                None
            }
            ShardMessage::LookAtConversation { run } => {
                let live = self.runs.remove(&run)?;
                self.look_at_conversation(&live, now);
                self.runs.insert(run, live);
                None
            }
            ShardMessage::Tick => {
                for timer in self.timers.due(now.monotonic) {
                    if let Some(run) = self.on_timer(timer, now) {
                        self.flush(run, now);
                    }
                }
                None
            }
            ShardMessage::Outcome { .. }
            | ShardMessage::Request { .. }
            | ShardMessage::Answer { .. }
            | ShardMessage::Resume { .. }
            | ShardMessage::Interrupts { .. }
            | ShardMessage::Decide { .. }
            | ShardMessage::Cancel { .. }
            | ShardMessage::Expired { .. }
            | ShardMessage::Fail { .. }
            | ShardMessage::RestartTurns { .. }
            | ShardMessage::Overwrite { .. }
            | ShardMessage::ConversationRead { .. }
            | ShardMessage::Result { .. }
            | ShardMessage::Questions { .. } => None,
        }
    }

    fn submit(
        &mut self,
        (submission, conversation): (Arc<Submission>, Option<ConversationId>),
        permit: Option<OwnedSemaphorePermit>,
        ack: oneshot::Sender<Result<RunId, SubmitError>>,
        result: oneshot::Sender<Arc<RunResult>>,
        now: Now,
    ) -> Option<RunId> {
        let run = submission.run;
        let vacant = match self.runs.entry(run) {
            Entry::Vacant(vacant) => vacant,
            Entry::Occupied(there) if there.get().is_acknowledged() => {
                let _ = ack.send(Ok(run));
                return None;
            }
            Entry::Occupied(mut unacknowledged) => {
                unacknowledged.get_mut().held.push(Held::Accepted(ack));
                return None;
            }
        };
        let first = TurnId { run, number: 1 };
        // The first turns of a plan wait for an open breaker, as later ones do.
        let admitted = if submission.task.plan.is_some() {
            Ok(())
        } else {
            let mut facts = self.shared.facts.lock();
            facts.check_breaker(&submission.agent, now.monotonic).map(|()| {
                // A turn that waits in a conversation is admitted when it starts.
                if conversation.is_none() {
                    facts.admit(first, &submission.agent, None);
                }
            })
        };
        if let Err(retry_after) = admitted {
            let _ = ack.send(Err(Refusal::BreakerOpen { agent: submission.agent.clone(), retry_after }.into()));
            return None;
        }
        let durability = submission.task.durability.unwrap_or(self.shared.durability);
        let deadline = submission.task.deadline;
        let (fold, starts) = Run::begin(Arc::clone(&submission), self.shared.rules.clone());
        let live = vacant.insert(Box::new(LiveRun::new(fold, Fence::FIRST, 0, durability)));
        live.borrow(&mut self.buffers);
        // Before the first turn: of two tasks that become runnable, another thread steals the older one. The caller is about
        // to return; a turn would move its run's state to the other core.
        live.held.push(Held::Accepted(ack));
        live.keep(RunEvent::Submitted(submission), starts);
        if let Some(conversation) = conversation {
            live.absorb(RunEvent::ConversationEntered { conversation, at: now.wall });
        }
        live.results.push(result);
        self.shared.roster.begin(run, permit);
        if let Some(deadline) = deadline {
            self.timers.add(now.monotonic.saturating_add(deadline), Timer::Deadline(run));
        }
        Some(run)
    }

    fn on_timer(&mut self, timer: Timer, now: Now) -> Option<RunId> {
        match timer {
            Timer::Adopt { run, new_process } => {
                self.load(run, new_process, None);
                None
            }
            Timer::Conversation(run, times) => {
                let live = self.runs.remove(&run)?;
                self.look_and_wait(&live, times, now);
                self.runs.insert(run, live);
                None
            }
            Timer::Deadline(run) => self.take(ShardMessage::Expired { run, delegation: None }, now),
            Timer::Delegation(run, turn, ordinal) => {
                self.take(ShardMessage::Expired { run, delegation: Some((turn, ordinal)) }, now)
            }
            Timer::Start(run, number) => {
                let mut live = self.runs.remove(&run)?;
                self.start_when_admitted(&mut live, number, now);
                self.runs.insert(run, live);
                None
            }
            Timer::Retry(run, number, at) => {
                let mut live = self.runs.remove(&run)?;
                if let Some(turn) = live
                    .run
                    .turns
                    .get_mut(&number)
                    .filter(|turn| matches!(turn.phase, Phase::Backoff { until } if until == at))
                {
                    let id = TurnId { run, number };
                    let readmitted = self.shared.facts.lock().readmit(id, &turn.agent, now.monotonic);
                    match readmitted {
                        // Waiting for an open breaker uses up no attempt.
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

fn decision_context(shared: &ShardContext, now: Now) -> DecisionContext<'_> {
    DecisionContext {
        now,
        random: shared.env.random(),
        directory: &*shared.dispatch,
        facts: &shared.facts,
        backoff: &shared.backoff,
        approval_ttl: shared.approval_ttl,
        remind_before: shared.remind_before,
        on_unknown: shared.on_unknown,
        dynamic_agents: shared.dynamic_agents,
    }
}

#[cfg(test)]
mod model;
