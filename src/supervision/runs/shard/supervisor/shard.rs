//! A run shard: the runs of one run supervisor in memory, and what each message does to them.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::SeedableRandomState;
use ractor::ActorProcessingErr;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::env::Now;
use crate::messages::{ConversationId, Refusal, RunEvent, RunId, RunResult, Submission, Timestamp, TurnId};
use crate::supervision::runs::rules::errors::{LoadError, SubmitError};
use crate::supervision::runs::rules::run::Run;
use crate::supervision::runs::shard::live::{Buffers, LiveRun, OnCommit};
use crate::supervision::runs::shard::queue::{AtEnd, Drain, RunMessage, ShardMessage};
use crate::supervision::runs::shard::timers::{Timer, Timers};

use super::context::ShardContext;
use super::messages::{apply, pending};
use super::recovery::Loading;
use super::refusals::{refuse, refuse_kept};

/// The delay before a run that the store could not read is read again.
const READ_AGAIN: Duration = Duration::from_secs(1);

/// The fault point after each message that was applied.
pub(crate) const TAKEN: &str = "runs.taken";

/// The fault point between applying a batch and appending it to the journal.
pub(crate) const APPLIED: &str = "runs.applied";

/// The fault point between the journal's acknowledgement of a commit and what the commit releases. It injects no error.
pub(crate) const JOURNALED: &str = "runs.journaled";

/// The runs of one run supervisor in memory. Owned by the holder of the queue's lock, for one life of the actor.
pub(super) struct RunShard {
    pub(super) shared: Arc<ShardContext>,
    /// Runs in memory; removed when they have ended.
    pub(super) runs: HashMap<RunId, Box<LiveRun>, SeedableRandomState>,
    /// Runs that are being read back, with the messages that arrived for them meanwhile.
    pub(super) loading: HashMap<RunId, Vec<ShardMessage>, SeedableRandomState>,
    /// Distinguishes this life of the actor from earlier ones: results of their tasks are dropped.
    pub(super) life: u64,
    pub(super) timers: Timers,
    /// Lent to the run that is processed; reused.
    pub(super) buffers: Buffers,
    /// The buffer that is exchanged with the queue's; empty between drains.
    batch: VecDeque<ShardMessage>,
    /// Runs that the batch has changed and that are flushed after it; empty between drains.
    touched: Vec<RunId>,
}

impl RunShard {
    pub(super) fn new(shared: Arc<ShardContext>, life: u64) -> Self {
        Self {
            timers: Timers::new(Arc::clone(&shared.queue)),
            runs: HashMap::with_hasher(shared.env.hasher()),
            loading: HashMap::with_hasher(shared.env.hasher()),
            shared,
            life,
            buffers: Buffers::default(),
            batch: VecDeque::new(),
            touched: Vec::new(),
        }
    }

    /// Processes one message, or keeps it until its run's commit has ended. Returns the run that it changed.
    pub(super) fn process(&mut self, message: ShardMessage, now: Now) -> Option<RunId> {
        match message {
            ShardMessage::Run { run, message } => self.process_for(run, message, now),
            ShardMessage::Pending { reply } => {
                drop(reply.send(self.runs.values().flat_map(|live| pending(&live.run, now.wall)).collect()));
                None
            }
            ShardMessage::Submit { submission, conversation, permit, ack, result, at_end } => {
                match self.loading.get_mut(&submission.run) {
                    Some(later) => {
                        later.push(ShardMessage::Submit { submission, conversation, permit, ack, result, at_end });
                        None
                    }
                    None => self.submit((submission, conversation), permit, ack, (result, at_end), now),
                }
            }
            ShardMessage::Adopt { run, new_process, recovery } => {
                // An actor that ended early leaves its `Adopt` messages in the queue, and its successor adds the same runs from
                // the roster.
                if !(self.runs.contains_key(&run) || self.loading.contains_key(&run)) {
                    self.load(run, Loading { new_process, to_end: false }, recovery);
                }
                None
            }
            ShardMessage::End { run, reason, ack } => {
                if !(self.runs.contains_key(&run) || self.loading.contains_key(&run)) {
                    self.load(run, Loading { new_process: true, to_end: true }, None);
                }
                self.process_for(run, RunMessage::Cancel { reason, ack }, now)
            }
            // Started by an earlier life of this actor; the present one reads its runs itself.
            ShardMessage::Loaded { life, .. }
            | ShardMessage::Reopened { life, .. }
            | ShardMessage::Committed { life, .. }
                if life != self.life =>
            {
                None
            }
            ShardMessage::Loaded { run, loaded: Err(LoadError::Held { owner, left }), .. } => {
                tracing::info!(parent: None, %run, owner = &*owner, ?left, "another board works on the run");
                self.shared.ownership.forget_left(run);
                self.let_go(run);
                None
            }
            ShardMessage::Loaded { run, loaded: Err(LoadError::NotHosted { agents }), .. } => {
                tracing::warn!(parent: None, %run, ?agents, "the run is left to boards that have its agents");
                self.shared.ownership.leave(run, agents);
                self.let_go(run);
                None
            }
            ShardMessage::Loaded { run, loaded: Err(LoadError::NewerFormat { format }), .. } => {
                tracing::warn!(parent: None, %run, format, "the run is left to boards that read its records");
                self.shared.ownership.leave(run, BTreeSet::new());
                self.let_go(run);
                None
            }
            ShardMessage::Loaded { run, new_process, loaded: Err(LoadError::Storage(error)), .. }
                if error.is_transient() =>
            {
                tracing::warn!(parent: None, %run, %error, "the run could not be read; it is read again");
                self.timers.add(now.monotonic + READ_AGAIN, Timer::Adopt { run, new_process });
                None
            }
            ShardMessage::Loaded { run, new_process, recovery, loaded, .. } => {
                self.loaded(run, (new_process, recovery), loaded, now);
                // Processed before the run continues, so that a turn that has ended meanwhile is not dispatched again.
                for message in self.loading.remove(&run).unwrap_or_default() {
                    self.process(message, now);
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
            ShardMessage::Redispatch { turn } => {
                self.with_run(turn.run, |shard, live| shard.redispatch(live, turn.number, now));
                None
            }
            ShardMessage::LookAtConversation { run } => {
                self.with_run(run, |shard, live| shard.look_at_conversation(live, now));
                None
            }
            ShardMessage::HandOver { handing_over, reply } => {
                drop(reply.send(self.hand_over(&handing_over)));
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
        }
    }

    /// Processes a message for a run that is in memory and has no commit in flight, or that may go ahead of it; keeps or refuses it
    /// otherwise.
    pub(super) fn process_for(&mut self, run: RunId, message: RunMessage, now: Now) -> Option<RunId> {
        if message.is_of_lost_turn() {
            refuse(run, message);
            return None;
        }
        if let Some(later) = self.loading.get_mut(&run) {
            later.push(ShardMessage::Run { run, message });
            return None;
        }
        let Some(live) = self.runs.get_mut(&run) else {
            match message {
                RunMessage::Overwrite { update, by, ack } => self.reopen(run, update, by, ack),
                message => refuse(run, message),
            }
            return None;
        };
        let waits = match live.in_flight {
            Some(_) => !live.takes_ahead(&message),
            None => live.waits_for_notice(&message),
        };
        if waits {
            live.waiting.push_back(message);
            return None;
        }
        live.borrow(&mut self.buffers);
        apply(live, message, &self.shared.decision_context(now));
        Some(run)
    }

    fn submit(
        &mut self,
        (submission, conversation): (Arc<Submission>, Option<ConversationId>),
        permit: Option<OwnedSemaphorePermit>,
        ack: oneshot::Sender<Result<RunId, SubmitError>>,
        (result, at_end): (oneshot::Sender<Arc<RunResult>>, Option<Box<AtEnd>>),
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
                unacknowledged.get_mut().on_commit.push(OnCommit::Accepted(ack));
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
        let live = vacant.insert(Box::new(LiveRun::new(fold, 0, durability)));
        live.borrow(&mut self.buffers);
        // Acknowledged before the first turn starts: of two tasks that become runnable, another thread steals the older one. The
        // caller is about to return, whereas a stolen turn would move its run's state to the other core.
        live.on_commit.push(OnCommit::Accepted(ack));
        live.keep(RunEvent::Submitted(submission), starts);
        if let Some(conversation) = conversation {
            live.absorb(RunEvent::ConversationEntered { conversation, at: now.wall });
        }
        live.results.push(result);
        live.at_end = at_end;
        self.shared.roster.begin(run, permit);
        if let Some(deadline) = deadline {
            self.timers.add(now.monotonic.saturating_add(deadline), Timer::Deadline(run));
        }
        Some(run)
    }

    fn on_timer(&mut self, timer: Timer, now: Now) -> Option<RunId> {
        match timer {
            Timer::Adopt { run, new_process } => {
                self.load(run, Loading { new_process, to_end: false }, None);
                None
            }
            Timer::Conversation(run, times) => {
                self.with_run(run, |shard, live| shard.look_and_wait(live, times, now));
                None
            }
            Timer::Deadline(run) => self.process_for(run, RunMessage::Expired { request: None }, now),
            Timer::RequestDeadline(run, request) => {
                self.process_for(run, RunMessage::Expired { request: Some(request) }, now)
            }
            Timer::Start(run, number) => {
                self.with_run(run, |shard, live| shard.start_when_admitted(live, number, now));
                None
            }
            Timer::Retry(run, number, at) => {
                self.with_run(run, |shard, live| shard.retry((number, at), live, now));
                None
            }
        }
    }

    /// Stops waiting for a run that this board does not work on: callers are refused here and can ask its board.
    fn let_go(&mut self, run: RunId) {
        self.loading.remove(&run).unwrap_or_default().into_iter().for_each(refuse_kept);
        self.shared.roster.remove(run);
    }

    /// Begins the next attempt of a turn that has waited until `at`, once its agent's breaker admits it.
    fn retry(&mut self, (number, at): (u32, Timestamp), live: &mut LiveRun, now: Now) {
        let run = live.run.id();
        let Some(turn) = live.run.waits_until(number, at) else { return };
        let readmitted = self.shared.facts.lock().readmit(TurnId { run, number }, &turn.agent, now.monotonic);
        match readmitted {
            // Waiting for an open breaker is not an attempt.
            Err(retry_after) => self.timers.add(now.monotonic + retry_after, Timer::Retry(run, number, at)),
            Ok(()) => {
                live.run.begin_attempt(number);
                self.start(live, number, now);
            }
        }
    }

    /// Lends a run in memory to `work`, which may change the shard beside it; `None` if the run is not in memory.
    fn with_run<T>(&mut self, run: RunId, work: impl FnOnce(&mut Self, &mut LiveRun) -> T) -> Option<T> {
        let mut live = self.runs.remove(&run)?;
        let done = work(self, &mut live);
        self.runs.insert(run, live);
        Some(done)
    }
}

impl Drain for RunShard {
    fn drain(&mut self) -> Result<(), ActorProcessingErr> {
        let now = self.shared.env.now();
        let mut touched = std::mem::take(&mut self.touched);
        let shared = Arc::clone(&self.shared);
        let mut batch = shared.queue.take(std::mem::take(&mut self.batch));
        for message in &mut batch {
            let run = self.process(message, now);
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

    fn life(&self) -> u64 {
        self.life
    }
}
