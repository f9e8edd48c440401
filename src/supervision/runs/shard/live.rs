//! A run in its supervisor's memory: the fold, and the state that ends with the process.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::sync::oneshot;

use crate::messages::{Durability, RunEvent, RunId, RunResult};
use crate::storage::{Journal, Key, Rider, Sequence};
use crate::supervision::runs::rules::breaker::Signal;
use crate::supervision::runs::rules::errors::{AnswerError, OverwriteError, SubmitError};
use crate::supervision::runs::rules::requests::{RequestKey, TurnOutcome, TurnReply};
use crate::supervision::runs::rules::run::{Effect, OnceState, QuestionState, Record, Run, WorkedOut};
use crate::supervision::runs::rules::small_map::SmallMap;
use crate::supervision::runs::rules::snapshot::Cadence;

use super::ahead::{Ahead, InFlight};
use super::dispatch::Inboxes;
use super::queue::{AtEnd, RecoveryBarrier, RunMessage};

/// A run, its position in the journal, and the callers that wait for it.
pub(in crate::supervision::runs) struct LiveRun {
    pub(in crate::supervision::runs) run: Run,
    /// The journal's stream; follows from the run's id.
    pub(in crate::supervision::runs) stream: Key,
    /// The last acknowledged record; 0 before the submission is journaled.
    pub(in crate::supervision::runs) last: Sequence,
    /// The bytes of the records that were appended since it is in memory.
    pub(in crate::supervision::runs) journaled: usize,
    /// The task's durability, or the board's default.
    pub(in crate::supervision::runs) durability: Durability,
    /// Applied events that are not yet acknowledged: collected until the next append, then kept until it is acknowledged.
    pub(in crate::supervision::runs) events: Vec<RunEvent>,
    /// The highest durability that one of `events` needs; `Memory` after each append.
    pub(in crate::supervision::runs) events_durability: Durability,
    /// The effects of the event that is being applied; empty in between.
    pub(in crate::supervision::runs) effects: Vec<Effect>,
    /// What is written with the next append.
    #[allow(clippy::box_collection, reason = "most runs have none")]
    pub(in crate::supervision::runs) riders: Option<Box<Vec<Rider>>>,
    /// What is written with the last one.
    pub(in crate::supervision::runs) at_end: Option<Box<AtEnd>>,
    /// Actions for the acknowledgement of `events`.
    pub(in crate::supervision::runs) on_commit: Vec<OnCommit>,
    /// What belongs to the append in flight, if one is; messages wait in `waiting` until it ends.
    pub(in crate::supervision::runs) in_flight: Option<InFlight>,
    /// Messages that arrived while a commit was in flight, and ends of turns that the next commit has notices of.
    pub(in crate::supervision::runs) waiting: Deferred,
    /// Requests of turns without an answer.
    pub(in crate::supervision::runs) waiters: SmallMap<RequestKey, oneshot::Sender<TurnReply>>,
    /// Callers that wait for the result.
    pub(in crate::supervision::runs) results: ResultWaiters,
    /// The store has a note that the run is open, with its board's name; set with the first append that is not in memory.
    pub(in crate::supervision::runs) is_noted_open: bool,
    /// The append in flight ends the run, and what lists have of its end is written with it.
    pub(in crate::supervision::runs) is_end_noted: bool,
    /// Among the events for the next append is a notice.
    pub(in crate::supervision::runs) has_notice: bool,
    /// It was read back: attempts from before may still be running beside those that were dispatched again.
    pub(in crate::supervision::runs) is_recovered: bool,
    /// The inboxes that have messages of it, for the index of inboxes.
    pub(in crate::supervision::runs) inboxes: Inboxes,
    /// When the next snapshot is due.
    pub(in crate::supervision::runs) cadence: Cadence,
    /// The record of each snapshot, and the number of turns that had ended by then; for [`LiveRun::trim_to`].
    #[allow(clippy::box_collection, reason = "most runs have no snapshot")]
    snapshots: Option<Box<VecDeque<(Sequence, u32)>>>,
}

/// Messages in the order in which they arrived. Few runs have any at a time.
#[derive(Default)]
#[allow(clippy::box_collection, reason = "most runs have none")]
pub(in crate::supervision::runs) struct Deferred(Option<Box<VecDeque<RunMessage>>>);

impl Deferred {
    pub(in crate::supervision::runs) fn push_back(&mut self, message: RunMessage) {
        self.0.get_or_insert_default().push_back(message);
    }

    pub(in crate::supervision::runs) fn pop_front(&mut self) -> Option<RunMessage> {
        self.0.as_mut()?.pop_front()
    }

    pub(in crate::supervision::runs) fn front(&self) -> Option<&RunMessage> {
        self.0.as_ref()?.front()
    }

    pub(in crate::supervision::runs) fn iter(&self) -> impl Iterator<Item = &RunMessage> {
        self.0.iter().flat_map(|messages| messages.iter())
    }

    pub(in crate::supervision::runs) fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|messages| messages.is_empty())
    }
}

impl IntoIterator for Deferred {
    type Item = RunMessage;
    type IntoIter = std::collections::vec_deque::IntoIter<RunMessage>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.map(|messages| *messages).unwrap_or_default().into_iter()
    }
}

/// Callers that wait for a result, in the order in which they asked; most runs have one.
#[derive(Default)]
#[allow(clippy::box_collection, reason = "most runs have one caller")]
pub(in crate::supervision::runs) struct ResultWaiters {
    first: Option<oneshot::Sender<Arc<RunResult>>>,
    more: Option<Box<Vec<oneshot::Sender<Arc<RunResult>>>>>,
}

impl ResultWaiters {
    pub(in crate::supervision::runs) fn push(&mut self, waiter: oneshot::Sender<Arc<RunResult>>) {
        match &self.first {
            None => self.first = Some(waiter),
            Some(_) => self.more.get_or_insert_default().push(waiter),
        }
    }

    /// Sends the result to all of them.
    pub(in crate::supervision::runs) fn answer(&mut self, result: &Arc<RunResult>) {
        let Self { first, more } = std::mem::take(self);
        for waiter in first.into_iter().chain(more.into_iter().flat_map(|more| *more)) {
            let _ = waiter.send(Arc::clone(result));
        }
    }
}

/// An action that waits for a commit of the run; actions are done in order when the commit is acknowledged.
pub(in crate::supervision::runs) enum OnCommit {
    /// Performs an effect of an event.
    Effect(Effect),
    /// Tells a turn that began ahead of the commit that it is acknowledged.
    Begun(Ahead),
    /// Dispatches a turn that was under way when its run was read back.
    Redispatch(u32),
    /// A turn is over: `signal` goes to its agent's breaker, and with `abort` a worker that still has it is stopped.
    CloseTurn {
        turn: u32,
        agent: crate::messages::AgentName,
        waiter: Option<(u32, crate::messages::AgentName)>,
        signal: Signal,
        abort: bool,
    },
    /// Accepts the submission.
    Accepted(oneshot::Sender<Result<RunId, SubmitError>>),
    /// Confirms what a person did: an answer, a resumption, or the restart of a turn.
    Answered(oneshot::Sender<Result<(), AnswerError>>),
    /// Confirms an overwrite.
    Overwritten(oneshot::Sender<Result<(), OverwriteError>>),
    /// Confirms what only an open run does, such as a cancellation, with whether the run was open.
    WasOpen(oneshot::Sender<bool>, bool),
    /// Ends the wait for a run that recovery has found: what the run waits for is known by then.
    Recovered(RecoveryBarrier),
    /// What was to be written with the run's last record is.
    Written(Arc<AtomicBool>),
    /// Answers a request whose answer is not in the turn's records.
    Reply(oneshot::Sender<TurnReply>, TurnReply),
}

/// Buffers for what is applied and not yet acknowledged. At any time most runs wait for their turns and need none, so a run
/// borrows them until it has committed.
#[derive(Default)]
pub(in crate::supervision::runs) struct Buffers {
    events: Vec<RunEvent>,
    effects: Vec<Effect>,
    on_commit: Vec<OnCommit>,
}

impl Buffers {
    /// Takes emptied buffers back; buffers of more than `KEPT` entries are freed.
    pub(in crate::supervision::runs) fn recycle(
        &mut self,
        events: Vec<RunEvent>,
        effects: Vec<Effect>,
        on_commit: Vec<OnCommit>,
    ) {
        const KEPT: usize = 64;
        if events.capacity().max(effects.capacity()).max(on_commit.capacity()) <= KEPT {
            *self = Self { events, effects, on_commit };
        }
    }
}

/// The most events that are applied ahead of a commit: they become one record, and are lost together.
const MAX_EVENTS: usize = 64;

/// The largest outcome that is applied ahead of a commit, in bytes. With `MAX_EVENTS` it keeps the record far below its limit.
const MAX_SIZE: usize = 64 << 10;

impl LiveRun {
    pub(in crate::supervision::runs) fn new(run: Run, last: Sequence, durability: Durability) -> Self {
        Self {
            stream: Journal::stream(run.id()),
            run,
            last,
            journaled: 0,
            durability,
            events: Vec::new(),
            events_durability: Durability::Memory,
            effects: Vec::new(),
            riders: None,
            at_end: None,
            on_commit: Vec::new(),
            in_flight: None,
            waiting: Deferred::default(),
            waiters: SmallMap::new(),
            results: ResultWaiters::default(),
            is_noted_open: false,
            is_end_noted: false,
            has_notice: false,
            is_recovered: false,
            inboxes: Inboxes((last == 0).then(Vec::new)),
            cadence: Cadence::default(),
            snapshots: None,
        }
    }

    /// Whether all of its events are journaled as durably as it asks. False after it was read back because a commit failed,
    /// until its next commit.
    pub(in crate::supervision::runs) fn is_acknowledged(&self) -> bool {
        self.last > 0 && self.in_flight.is_none() && self.events.is_empty()
    }

    /// Whether a message may be applied although a commit is in flight: it is the outcome of a turn that began ahead, and all that is not
    /// acknowledged yet are ends of turns. What others see of another event is derived from the run as it is after its commit
    /// ([`Dispatch::journaled`](super::dispatch::Dispatch::journaled)).
    pub(super) fn takes_ahead(&self, message: &RunMessage) -> bool {
        let RunMessage::Outcome { turn, beginning: Some(_), outcome, .. } = message else { return false };
        let size = match outcome {
            TurnOutcome::Command(command) => command.size(),
            TurnOutcome::Failed(failure) => {
                failure.text.len() + self.run.turn(*turn).map_or(0, |turn| turn.input.size())
            }
        };
        let is_end = |event: &RunEvent| {
            matches!(event, RunEvent::Submitted(_) | RunEvent::TurnEnded { .. } | RunEvent::TurnFailed { .. })
        };
        let ahead = self.in_flight.map_or(0, |in_flight| self.events.len() - in_flight.events as usize);
        // In the order of arrival: an earlier message may be of the same turn. A snapshot is of what is journaled.
        size <= MAX_SIZE
            && ahead < MAX_EVENTS
            && self.waiting.is_empty()
            && !self.cadence.is_due()
            && self.events.iter().all(is_end)
    }

    /// Whether a message waits for the next commit although none is in flight: it ends a turn of which this commit has a notice. Whom the
    /// notice goes to follows from the turn, as long as it is open ([`Dispatch::journaled`](super::dispatch::Dispatch::journaled)).
    pub(super) fn waits_for_notice(&self, message: &RunMessage) -> bool {
        let RunMessage::Outcome { turn: ended, .. } = message else { return false };
        let is_of_turn = |event: &RunEvent| matches!(event, RunEvent::Noticed { turn, .. } if turn == ended);
        self.has_notice && self.events.iter().any(is_of_turn)
    }

    /// Takes the shard's buffers for the next commit, unless the run has its own.
    pub(in crate::supervision::runs) fn borrow(&mut self, buffers: &mut Buffers) {
        if self.events.capacity() == 0 {
            self.events = std::mem::take(&mut buffers.events);
        }
        if self.effects.capacity() == 0 {
            self.effects = std::mem::take(&mut buffers.effects);
        }
        if self.on_commit.capacity() == 0 {
            self.on_commit = std::mem::take(&mut buffers.on_commit);
        }
    }

    /// Applies an event and keeps it, with its effects, for the next commit.
    pub(in crate::supervision::runs) fn absorb(&mut self, event: RunEvent) {
        self.absorb_with(event, WorkedOut::default());
    }

    /// As [`absorb`](Self::absorb), with what deciding about the event has computed already.
    pub(in crate::supervision::runs) fn absorb_with(&mut self, event: RunEvent, worked_out: WorkedOut) {
        let mut effects = std::mem::take(&mut self.effects);
        self.run.step_with(&event, worked_out, &mut effects);
        self.keep(event, effects.drain(..));
        self.effects = effects;
    }

    /// Keeps an applied event and its effects for the next commit.
    pub(in crate::supervision::runs) fn keep(&mut self, event: RunEvent, effects: impl IntoIterator<Item = Effect>) {
        let (ender, signal) = match &event {
            RunEvent::TurnEnded { turn, .. } => (Some(*turn), Signal::Success),
            RunEvent::TurnFailed { turn, failure, .. } => {
                (Some(*turn), crate::supervision::runs::rules::retry::signal(failure.kind))
            }
            _ => (None, Signal::Neutral),
        };
        let is_recovered = self.is_recovered;
        self.on_commit.extend(effects.into_iter().map(|effect| match effect {
            Effect::Close { turn, agent, waiter } => {
                let is_ender = ender == Some(turn);
                let signal = if is_ender { signal } else { Signal::Neutral };
                OnCommit::CloseTurn { turn, agent, waiter, signal, abort: !is_ender || is_recovered }
            }
            effect => OnCommit::Effect(effect),
        }));
        self.events_durability = self.events_durability.max(durability_of(&event, self.durability));
        self.has_notice |= matches!(event, RunEvent::Noticed { .. });
        self.events.push(event);
    }

    /// Notes a snapshot of what is journaled, and returns up to where a journal in memory may be trimmed: the last `kept` turns
    /// stay, and records that this snapshot or an earlier one covers go.
    pub(in crate::supervision::runs) fn trim_to(&mut self, kept: u32) -> Option<Sequence> {
        if self.durability != Durability::Memory {
            return None;
        }
        let turns = self.run.metrics().turns;
        let snapshots = self.snapshots.get_or_insert_default();
        snapshots.push_back((self.last, turns));
        let is_old = |(_, ended): &(Sequence, u32)| ended.saturating_add(kept) <= turns;
        let old = snapshots.iter().take_while(|snapshot| is_old(snapshot)).count();
        snapshots.drain(..old).next_back().map(|(record, _)| record)
    }

    /// The size of its journal in memory; `None` if it has to be read, because the journal was trimmed, has a snapshot, or was begun by
    /// an earlier life of the supervisor.
    pub(in crate::supervision::runs) fn memory_size(&self) -> Option<usize> {
        (self.snapshots.is_none() && !self.is_recovered).then_some(self.journaled)
    }

    /// The answer that is recorded for a request, if there is one yet.
    pub(in crate::supervision::runs) fn recorded_reply(&self, request: RequestKey) -> Option<TurnReply> {
        match self.run.record(request)? {
            Record::StepStarted { .. } | Record::Step { .. } | Record::StepFailed { .. } => Some(TurnReply::Done),
            Record::Once(once) => match &once.state {
                OnceState::Begun => Some(TurnReply::Done),
                OnceState::Asked(_) => None,
                OnceState::Resolved(resolution) => Some(TurnReply::Resolved(resolution.clone())),
            },
            Record::Delegation { order, reply, deltas } => match reply.as_deref() {
                None | Some(Ok(_)) if order.is_detached => Some(TurnReply::Done),
                _ => {
                    let (answer, is_tainted) = (reply.clone()?, deltas.is_tainted);
                    Some(TurnReply::Delegated { answer, is_tainted })
                }
            },
            Record::Figures(_) | Record::TakenElsewhere => None,
            Record::Made { made, .. } => Some(TurnReply::Made(made.clone())),
            Record::HandoffCheck { refusal, .. } => Some(TurnReply::Checked(refusal.clone())),
            Record::Question { answer, .. } => answer.clone().map(TurnReply::Answered),
            Record::TimedQuestion { state, .. } => match state {
                QuestionState::Open => None,
                QuestionState::Answered(answer) => Some(TurnReply::Answered(answer.clone())),
                QuestionState::Expired => Some(TurnReply::QuestionExpired),
            },
            Record::Approval { envelope, decision, .. } => {
                let decision = decision.as_deref()?.clone();
                Some(TurnReply::Decided(Box::new((decision, envelope.action.clone()))))
            }
        }
    }

    /// Sends a recorded answer to the waiting turn. If none waits, a repeated request finds the answer recorded.
    pub(in crate::supervision::runs) fn reply(&mut self, request: RequestKey) {
        if let Some(reply) = self.recorded_reply(request)
            && let Some(waiter) = self.waiters.remove(&request)
        {
            let _ = waiter.send(reply);
        }
    }
}

/// The durability that an event needs. A step's result is synced with the turn's end, or before the next effect outside.
fn durability_of(event: &RunEvent, asked: Durability) -> Durability {
    match event {
        RunEvent::StepFinished { .. }
        | RunEvent::StepFailed { .. }
        | RunEvent::Noticed { .. }
        | RunEvent::Summarized { .. }
        | RunEvent::Settled { .. } => asked.min(Durability::Buffered),
        // What must not happen twice is on disk before it happens, and so are the questions about it and their answers. A run
        // in memory promises nothing.
        RunEvent::IntentRecorded { .. } | RunEvent::OutcomeUnknown { .. } | RunEvent::OutcomeResolved { .. }
            if asked == Durability::Buffered =>
        {
            Durability::Sync
        }
        _ => asked,
    }
}
