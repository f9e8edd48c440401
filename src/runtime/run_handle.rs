use std::fmt;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::actors::{StreamMode, Subject, Watched};
use crate::messages::{Flow, Json, OverLimit, RunEvent, RunId, RunResult, Unacknowledged, Update, check_person};
use crate::storage::{Sequence, StorageError};
use crate::supervision::runs::decide::MAX_COMMAND;
use crate::supervision::runs::follow::{Follower, TurnEvent};
use crate::supervision::runs::queue::{RunMessage, ShardMessage};
use crate::supervision::runs::reopen::OverwriteError;
use crate::supervision::runs::run::Run;
use crate::supervision::runs::snapshot::{Loaded, load, whole};
use crate::workflow::Drawing;

use super::handle::Callboard;

/// Receives the result of a run that was submitted here; taken by the first caller that waits.
type ResultReceiver = Mutex<Option<oneshot::Receiver<Arc<RunResult>>>>;

/// The wait before checking again for the end of a run that this board does not work on: it doubles from the first to the last
/// value.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LAST_LOOK: Duration = Duration::from_secs(1);

/// How often the journal of a run of another board is read that is followed.
const TAIL_EVERY: Duration = Duration::from_millis(200);

/// A handle to one run, such as [`Callboard::submit`] and [`Callboard::run`] return. A clone is cheap and names the
/// same run.
#[derive(Clone)]
pub struct RunHandle {
    id: RunId,
    pub(super) board: Callboard,
    /// Receives the result, until a caller waits for it.
    receiver: Option<Arc<ResultReceiver>>,
    /// The last result that was read, for when the store is closed.
    known: Arc<Mutex<Option<Arc<RunResult>>>>,
}

/// Why a run cannot be read, waited for or cancelled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The store has no run of this id.
    #[error("there is no run {0}")]
    Unknown(RunId),
    /// It lives in memory only, and has forgotten how it began.
    #[error("run {0} does not keep its first turns any more")]
    Trimmed(RunId),
    /// It has not ended, and no board works on it that could be asked: it was left as it was found, or its board is gone and no other
    /// one has taken it over.
    #[error("no board works on run {0}")]
    NotHere(RunId),
    /// This board cannot read it, or replay it, and leaves it alone; see [`Callboard::quarantined`].
    #[error("run {run} is quarantined: {why}")]
    Quarantined {
        /// The run that the board leaves alone.
        run: RunId,
        /// Why the run could not be read or replayed.
        why: String,
    },
    /// It was delegated by somebody else, who alone changes what it refers to.
    #[error("run {0} is a delegation of somebody else, or of nobody: only the requester changes what it refers to")]
    NotRequester(RunId),
    /// The reason of a cancellation, or the reference, is too long. Nothing was changed.
    #[error(transparent)]
    OverLimit(#[from] OverLimit),
    /// The journal of the run cannot be read: the store reported an error, or was closed when the board stopped.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The store acknowledges nothing any more, and the board stopped with it before the run ended.
    #[error("{error}; run {run} continues at the next start of a board on the same store")]
    StoreStopped {
        /// The run that had not ended.
        run: RunId,
        /// The error of the store with which the board stopped.
        error: StorageError,
    },
    /// The board stopped before the run ended; it continues at the next start.
    #[error("the board stopped before run {0} ended; the run continues at the next start of a board on the same store")]
    Stopped(RunId),
}

impl RunHandle {
    pub(super) fn new(id: RunId, board: Callboard) -> Self {
        Self { id, board, receiver: None, known: Arc::default() }
    }

    pub(super) fn submitted(id: RunId, board: Callboard, result: oneshot::Receiver<Arc<RunResult>>) -> Self {
        Self { receiver: Some(Arc::new(Mutex::new(Some(result)))), ..Self::new(id, board) }
    }

    /// Returns the id of the run, by which [`Callboard::run`] finds it again, also in a later process.
    #[must_use]
    pub fn id(&self) -> RunId {
        self.id
    }

    /// Waits for the run's end: also for people, when something is [pending](RunHandle::pending). That of a run that another board on the same store works on is noticed within a second.
    ///
    /// # Errors
    /// The run is unknown or quarantined, its journal cannot be read, or the board stops first.
    pub async fn result(&self) -> Result<RunResult, RunError> {
        let was_closed = self.board.board.store.is_closed();
        match self.wait_for_result().await {
            Ok(result) => {
                *self.known.lock() = Some(Arc::clone(&result));
                Ok(Arc::unwrap_or_clone(result))
            }
            Err(error @ RunError::Storage(StorageError::Closed)) => match self.known.lock().clone() {
                Some(known) => Ok(Arc::unwrap_or_clone(known)),
                None if was_closed => Err(error),
                // This board did not see the run's end.
                None => Err(self.stopped()),
            },
            Err(error) => Err(error),
        }
    }

    async fn wait_for_result(&self) -> Result<Arc<RunResult>, RunError> {
        let mut pause = FIRST_LOOK;
        loop {
            let result = tokio::select! {
                biased;
                result = self.awaited() => result,
                _ = self.board.ended() => return Box::pin(self.result_at_the_end()).await.map(Arc::new),
            };
            if let Ok(result) = result {
                return Ok(result);
            }
            if let Some(result) = Box::pin(self.look_for_result(&mut pause)).await? {
                return Ok(Arc::new(result));
            }
        }
    }

    /// Looks for the result of a run that is not in memory: ended, unknown, owned by another process, or with a restarting
    /// supervisor. `None` after the wait, when it is time to look again.
    async fn look_for_result(&self, pause: &mut Duration) -> Result<Option<RunResult>, RunError> {
        self.check_quarantine()?;
        let run = self.read().await?;
        if let Some(result) = run.result() {
            return Ok(Some((**result).clone()));
        }
        if self.board.board.is_closed() {
            return Err(self.stopped());
        }
        tokio::select! {
            () = tokio::time::sleep(*pause) => *pause = (*pause * 2).min(LAST_LOOK),
            _ = self.board.ended() => return self.result_at_the_end().await.map(Some),
        }
        Ok(None)
    }

    /// The run's result, if the run ended before the board did.
    pub(super) async fn result_at_the_end(&self) -> Result<RunResult, RunError> {
        let run = match self.read().await {
            // The run may have ended before.
            Err(error @ RunError::Storage(StorageError::Closed)) => return Err(error),
            run => run.ok(),
        };
        let result = run.and_then(|run| run.result().cloned());
        result.map(Arc::unwrap_or_clone).ok_or_else(|| self.stopped())
    }

    /// The error of a run that this board will report nothing more about.
    fn stopped(&self) -> RunError {
        match self.board.board.store_failure.get() {
            Some(failure) => RunError::StoreStopped { run: self.id, error: failure.clone() },
            None => RunError::Stopped(self.id),
        }
    }

    pub(super) fn check_quarantine(&self) -> Result<(), RunError> {
        match self.board.board.quarantine.lock().get(&self.id) {
            None => Ok(()),
            Some(why) => Err(RunError::Quarantined { run: self.id, why: why.clone() }),
        }
    }

    /// The receiver from the submission, or else a new one.
    fn awaited(&self) -> oneshot::Receiver<Arc<RunResult>> {
        if let Some(result) = self.receiver.as_ref().and_then(|receiver| receiver.lock().take()) {
            return result;
        }
        let (reply, result) = oneshot::channel();
        let message = ShardMessage::Run { run: self.id, message: RunMessage::Result { reply } };
        self.board.board.shards.of(self.id).enqueue(message).drain();
        result
    }

    /// Continues a run that ended because branches wrote one place concurrently (SEMANTICS 6): these values stand in the
    /// named channels, whatever the branches wrote there, and their join continues as if it had not failed. A conflict
    /// inside a delegation is the answer to its asking turn and ends nothing, so it cannot be written over.
    ///
    /// ```
    /// use callboard::messages::SendTo;
    /// use callboard::prelude::*;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let judge = |turn: Turn| async move { Ok(Command::update("verdict", turn.input_json().clone())) };
    /// let board = Callboard::builder()
    ///     .agent("lead", |_: Turn| async {
    ///         Ok(Command::new().goto_many([SendTo::new("strict", "reject"), SendTo::new("kind", "accept")]))
    ///     })
    ///     .agent("strict", judge)
    ///     .agent("kind", judge)
    ///     .start()
    ///     .await?;
    /// let run = board.submit(Task::new("judge").to("lead")).await?;
    /// assert!(run.result().await?.to_string().contains("concurrent writes to verdict"));
    /// run.resume_with([("verdict", "accept")], "ann").await?;
    /// assert_eq!(run.result().await?.state, serde_json::json!({ "verdict": "accept" }));
    /// # board.shutdown().await;
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// See [`OverwriteError`]. The run is then as it was.
    pub async fn resume_with(
        &self,
        values: impl IntoIterator<Item = (impl AsRef<str>, impl Into<Json>)>,
        by: &str,
    ) -> Result<(), OverwriteError> {
        check_person(by)?;
        let mut update = Update::default();
        for (channel, value) in values {
            update.push(channel.as_ref(), value.into(), true);
        }
        if update.writes().iter().any(|write| write.value.is_too_deep()) {
            return Err(OverLimit::depth("a value").into());
        }
        let size = update.writes().iter().map(|write| write.channel.len() + write.value.size()).sum::<usize>();
        if size > MAX_COMMAND {
            return Err(OverwriteError::TooLarge { size });
        }
        let written = self.board.ask_run(self.id, |ack| RunMessage::Overwrite { update, by: by.into(), ack }).await;
        written.unwrap_or(Err(Unacknowledged::Overwrite.into()))
    }

    /// Everything that has happened in the run so far.
    ///
    /// # Errors
    /// The run is unknown, or its journal cannot be read.
    pub async fn history(&self) -> Result<Vec<RunEvent>, RunError> {
        let history = self.board.board.journal.read(self.id).await?;
        if history.events.is_empty() { Err(RunError::Unknown(self.id)) } else { Ok(history.events) }
    }

    /// The run's events from `from` on (1 is the first), those of the past first; ends with the run, or with the board.
    ///
    /// # Errors
    /// The run is unknown, or its journal cannot be read.
    pub async fn events(
        &self,
        from: u64,
        modes: &[StreamMode],
    ) -> Result<impl Stream<Item = Watched> + Send + Unpin + use<>, RunError> {
        let live = self.board.board.router.hub.watch(
            Subject::Run(self.id),
            modes,
            self.board.board.settings.capacity.watch_buffer,
        );
        let Past { first, events, record, run: state } = self.past().await?;
        let known = state.sequence();
        let (run, modes, plan) = (self.id, modes.to_vec(), state.submission().task.plan.clone());
        let shown = move |(sequence, event): (u64, RunEvent)| {
            let is_wanted = sequence >= from && modes.iter().any(|mode| mode.includes_in(plan.as_deref(), &event));
            is_wanted.then(|| Watched::Event { run, sequence, event: Arc::new(event) })
        };
        let past: Vec<Watched> = (first..).zip(events).filter_map(&shown).collect();
        let is_open = state.result().is_none();
        // What another board does is read from the journal; it shows nothing that is not there.
        let is_elsewhere = is_open && self.board.is_elsewhere(run).await?;
        let elsewhere = is_elsewhere.then(|| self.clone().tail(record, known + 1));
        let elsewhere = futures::stream::iter(elsewhere).flatten().filter_map(move |event| ready(shown(event)));
        let live = (is_open && !is_elsewhere).then_some(live);
        let live = futures::stream::iter(live).flatten().filter(move |watched| {
            let is_new = match watched {
                Watched::Event { sequence, .. } => *sequence > known && *sequence >= from,
                Watched::Live { .. } | Watched::Missed(_) => true,
            };
            ready(is_new)
        });
        Ok(futures::stream::iter(past).chain(live).chain(elsewhere.boxed()))
    }

    /// The events so far. A run in memory may have trimmed its first ones.
    async fn past(&self) -> Result<Past, RunError> {
        loop {
            let (past, state) = (self.board.board.journal.read(self.id).await?, self.load().await?);
            if past.last == state.last {
                let run = state.run.ok_or(RunError::Unknown(self.id))?;
                let first = run.sequence() + 1 - past.events.len() as u64;
                return Ok(Past { first, events: past.events, record: past.last, run });
            }
        }
    }

    /// The events after a record of the journal, numbered from `sequence` on, as they are added; ends with the run, or with the board.
    fn tail(self, record: Sequence, sequence: u64) -> impl Stream<Item = (u64, RunEvent)> + Send {
        let batches = futures::stream::unfold((self, record, sequence), |(handle, record, sequence)| async move {
            loop {
                match handle.added_after(record).await {
                    Ok(Some((events, last))) => {
                        let next = sequence + events.len() as u64;
                        return Some(((sequence..).zip(events), (handle, last, next)));
                    }
                    Ok(None) => return None,
                    Err(error) => tracing::debug!(run = %handle.id, %error, "the run cannot be followed now"),
                }
                if handle.board.board.is_closed() {
                    return None;
                }
                tokio::time::sleep(TAIL_EVERY).await;
            }
        });
        batches.flat_map(futures::stream::iter)
    }

    /// The events after a record, once there are some; `None` if the run has ended and there are none.
    async fn added_after(&self, record: Sequence) -> Result<Option<(Vec<RunEvent>, Sequence)>, RunError> {
        loop {
            let has_ended = self.board.board.journal.owner_of(self.id).await?.is_none();
            let (events, last) = self.board.board.journal.events_after(self.id, record).await?;
            if !events.is_empty() {
                return Ok(Some((events, last)));
            }
            if has_ended || self.board.board.is_closed() {
                return Ok(None);
            }
            tokio::time::sleep(TAIL_EVERY).await;
        }
    }

    /// How the run's turns stand, from the event `from` on (1 is the first), each with the node of the plan that it belongs
    /// to; ends with the run, or with the board. A slow reader misses nothing: what it was too slow for comes from the
    /// journal. After a conflict that a person has overwritten it continues from the state of the run.
    ///
    /// ```
    /// use callboard::prelude::*;
    /// use callboard::supervision::runs::TurnStatus;
    /// use callboard::workflow::Workflow;
    /// use futures::StreamExt;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let echo = |turn: Turn| async move { Ok(Command::output(turn.input_json().clone())) };
    /// let board = Callboard::builder().agent("echo", echo).start().await?;
    /// let workflow = Workflow::from_line("", "group: block { first(agent=\"echo\") } -> second(agent=\"echo\")")?;
    /// let run = board.submit(workflow.task("x")).await?;
    /// let mut events = run.turn_events(1).await?;
    /// let mut finished = Vec::new();
    /// while let Some(event) = events.next().await {
    ///     let event = event?;
    ///     if matches!(event.status, TurnStatus::Finished { .. }) {
    ///         finished.extend(event.node);
    ///     }
    /// }
    /// assert_eq!(finished.iter().map(|node| &**node).collect::<Vec<_>>(), ["group/first", "second"]);
    /// # board.shutdown().await;
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// The run is unknown, or its journal cannot be read; also later, when the journal is needed again.
    pub async fn turn_events(
        &self,
        from: u64,
    ) -> Result<impl Stream<Item = Result<TurnEvent, RunError>> + Send + Unpin + use<>, RunError> {
        let events = self.events(1, &[StreamMode::Debug]).await?;
        let follower = Follower::new(self.board.board.rules.clone());
        let following = Following { run: self.clone(), events, follower, is_over: false };
        let batches = futures::stream::unfold(following, |mut following| async {
            let batch = following.next().await.transpose()?;
            Some((batch, following))
        });
        let events = batches.flat_map(move |batch| {
            let events = match batch {
                Ok(events) => events.into_iter().filter(|event| event.sequence >= from).map(Ok).collect(),
                Err(error) => vec![Err(error)],
            };
            futures::stream::iter(events)
        });
        Ok(Box::pin(events))
    }

    /// Who handed what to whom so far.
    ///
    /// # Errors
    /// The run is unknown, has forgotten how it began, or its journal cannot be read.
    pub async fn flow(&self) -> Result<Flow, RunError> {
        let history = self.history().await?;
        if !matches!(history.first(), Some(RunEvent::Submitted(_))) {
            return Err(RunError::Trimmed(self.id));
        }
        let late = Run::late_turns(&history, &self.board.board.rules);
        Ok(Flow::of(&history, late))
    }

    /// The workflow of the run, drawn with the states of its nodes; `None` if agents alone work on it.
    ///
    /// # Errors
    /// The run is unknown, has forgotten how it began, or its journal cannot be read.
    pub async fn drawing(&self) -> Result<Option<Drawing>, RunError> {
        let history = self.history().await?;
        let Some(RunEvent::Submitted(submission)) = history.first() else { return Err(RunError::Trimmed(self.id)) };
        let Some(plan) = submission.task.plan.clone() else { return Ok(None) };
        let states = Run::node_states_of(history, &self.board.board.rules).map_err(|_| RunError::Trimmed(self.id))?;
        Ok(Some(Drawing::of_plan(plan).with(states)))
    }

    /// The run, rebuilt from its journal.
    ///
    /// # Errors
    /// The run is unknown, or its journal cannot be read.
    pub async fn read(&self) -> Result<Run, RunError> {
        self.load().await?.run.ok_or(RunError::Unknown(self.id))
    }

    /// As [`RunHandle::history`] and [`RunHandle::read`], with one reading of the journal. Each turn is passed to `begun` when it
    /// begins, with the run by then, and again when a person starts it; of a run in memory that has trimmed its first events, the
    /// open turns alone.
    ///
    /// ```
    /// use callboard::prelude::*;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let board = Callboard::builder()
    ///     .agent("lead", |_: Turn| async { Ok(Command::output(1).goto("writer")) })
    ///     .agent("writer", |_: Turn| async { Ok(Command::output(2)) })
    ///     .start()
    ///     .await?;
    /// let run = board.submit(Task::new("x").to("lead")).await?;
    /// run.result().await?;
    /// let mut handed = Vec::new();
    /// let (history, read) = run
    ///     .read_with_history(|run, turn| {
    ///         let from = run.handed_to(turn).map(|(agent, _)| agent.to_string());
    ///         handed.extend(from.map(|agent| (agent, turn)));
    ///     })
    ///     .await?;
    /// assert_eq!((history.len(), read.metrics().turns), (3, 2));
    /// assert_eq!(handed, [("lead".to_owned(), 2)]);
    /// # board.shutdown().await;
    /// # Ok::<(), callboard::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// The run is unknown, or its journal cannot be read.
    ///
    /// # Panics
    /// When a custom reducer or `begun` does.
    pub async fn read_with_history(
        &self,
        begun: impl FnMut(&Run, u32) + Send,
    ) -> Result<(Vec<RunEvent>, Run), RunError> {
        let read = whole(&self.board.board.journal, self.id, &self.board.board.rules, begun).await?;
        read.ok_or(RunError::Unknown(self.id))
    }

    async fn load(&self) -> Result<Loaded, StorageError> {
        load(&self.board.board.journal, self.id, &self.board.board.rules).await
    }
}

/// The events of a run so far.
struct Past {
    /// The number of the first one.
    first: u64,
    events: Vec<RunEvent>,
    /// The last record of the journal.
    record: Sequence,
    /// The run after them.
    run: Run,
}

/// The events of a run, and the state that they have led to.
struct Following<S> {
    run: RunHandle,
    events: S,
    follower: Follower,
    is_over: bool,
}

impl<S: Stream<Item = Watched> + Unpin> Following<S> {
    /// The turn events of the next event; `None` at the end.
    async fn next(&mut self) -> Result<Option<Vec<TurnEvent>>, RunError> {
        if self.is_over {
            return Ok(None);
        }
        let events = match self.events.next().await {
            // A run with a trimmed beginning, or an overwritten end, is followed from its current state.
            Some(Watched::Event { sequence, event, .. })
                if (self.follower.run().is_some() || sequence == 1)
                    && !matches!(*event, RunEvent::Overwritten { .. }) =>
            {
                Ok(self.follower.take(sequence, &event))
            }
            Some(Watched::Event { .. } | Watched::Missed(_)) => self.catch_up().await,
            Some(Watched::Live { .. }) => Ok(Vec::new()),
            None => return Ok(None),
        };
        self.is_over = events.is_err();
        events.map(Some)
    }

    async fn catch_up(&mut self) -> Result<Vec<TurnEvent>, RunError> {
        let Past { first, events: past, run: state, .. } = self.run.past().await?;
        let is_overwritten = past.iter().any(|event| matches!(event, RunEvent::Overwritten { .. }));
        if first > self.follower.next_sequence() || is_overwritten {
            return Ok(self.follower.catch_up(state));
        }
        Ok((first..).zip(&past).flat_map(|(sequence, event)| self.follower.take(sequence, event)).collect())
    }
}

impl fmt::Debug for RunHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RunHandle").field(&self.id).finish()
    }
}
