//! Dead letters: turns that failed for good. A letter is retried, which forks a new run where the turn failed, or dropped.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use crate::messages::{
    AgentName, DeadLetter, Limits, OpenFailure, Refusal, RunEvent, RunId, Timestamp, TurnId, Unacknowledged,
};
use crate::storage::{LetterNote, StorageError};
use crate::supervision::runs::fork::{self, ForkError};
use crate::supervision::runs::rules::failures::{conflict, failed_turns};
use crate::supervision::runs::rules::run::Run;
use crate::supervision::runs::rules::snapshot::load;

use super::handle::Callboard;
use super::run_handle::{RunError, RunHandle};

/// The dead letters of a board: [`Callboard::dead_letters`]. A cheap clone.
#[derive(Clone)]
pub struct DeadLettersHandle {
    callboard: Callboard,
}

impl Callboard {
    /// Turns that failed for good: to list, retry and drop them.
    #[must_use]
    pub fn dead_letters(&self) -> DeadLettersHandle {
        DeadLettersHandle { callboard: self.clone() }
    }
}

impl DeadLettersHandle {
    /// Turns that failed for good, of every run that the store knows, oldest run first.
    ///
    /// # Errors
    /// What the store reports; a journal that cannot be read is left out.
    pub async fn list(&self) -> Result<Vec<DeadLetter>, StorageError> {
        let mut letters = Vec::new();
        for run in self.callboard.runs().await? {
            match run.dead_letters().await {
                Ok(of_run) => letters.extend(of_run),
                Err(error) => tracing::warn!(run = %run.id(), %error, "dead letters cannot be read"),
            }
        }
        Ok(letters)
    }

    /// Failures about which nobody has decided, the latest first: at most `limit`, after the failure of this time and turn. A page costs
    /// the same however many runs the store has; the first of a store that was written by an earlier version reads all of its runs
    /// once. A turn that was denied is not among them.
    ///
    /// ```
    /// use callboard::prelude::*;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let down = |_: Turn| async { Err::<Command, _>(TurnError::terminal("the service is down")) };
    /// let board = Callboard::builder().agent("caller", down).start().await?;
    /// board.submit(Task::new("call")).await?.result().await?;
    /// let open = board.dead_letters().open(None, 50).await?;
    /// assert_eq!(open[0].failure.text, "the service is down");
    /// board.dead_letters().discard(open[0].turn).await?;
    /// assert!(board.dead_letters().open(None, 50).await?.is_empty());
    /// # board.shutdown().await;
    /// # Ok::<(), callboard::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// What the store reports.
    pub async fn open(
        &self,
        after: Option<(Timestamp, TurnId)>,
        limit: usize,
    ) -> Result<Vec<OpenFailure>, StorageError> {
        let board = &self.callboard.board;
        board.failures.get_or_try_init(|| self.complete_failures()).await?;
        board.journal.failures(after, limit).await
    }

    /// The conflict that ended a run, if one did and nobody has decided about it.
    ///
    /// # Errors
    /// What the store reports.
    pub async fn conflict(&self, run: RunId) -> Result<Option<OpenFailure>, StorageError> {
        let board = &self.callboard.board;
        let ended = load(&board.journal, run, &board.rules).await?.run;
        let Some(found) = ended.as_ref().and_then(conflict) else { return Ok(None) };
        let decided = board.journal.letter_notes(run).await?;
        Ok(Some(found).filter(|found| !decided.contains_key(&found.turn.number)))
    }

    /// Completes the list of a store that was written without it. Reads all runs, once for the store.
    async fn complete_failures(&self) -> Result<(), StorageError> {
        let (journal, rules) = (&self.callboard.board.journal, &self.callboard.board.rules);
        if journal.has_all_failures().await? {
            return Ok(());
        }
        for run in journal.runs().await? {
            let history = match journal.read(run).await {
                Ok(history) => history.events,
                Err(error @ StorageError::Corrupt { .. }) => {
                    tracing::warn!(%run, %error, "the run cannot be read, and its failures are not listed");
                    continue;
                }
                Err(error) => return Err(error),
            };
            let Some(RunEvent::Submitted(submission)) = history.first() else { continue };
            let decided = journal.letter_notes(run).await?;
            for failure in failed_turns(submission, &history).filter(|it| !decided.contains_key(&it.turn.number)) {
                journal.note_failure(&failure).await?;
            }
            if let Some(failure) = Run::of(history, rules).as_ref().and_then(conflict) {
                journal.note_failure(&failure).await?;
            }
        }
        journal.note_all_failures().await
    }

    /// Has a dead letter tried again in a run of its own, which forks from the letter's run where the turn failed
    /// (SEMANTICS 10): what did not come of the failed turn is copied, the turn itself is started again, and what is open goes
    /// on. The fork has its own id and token budget, and its task's deadline begins again; handoffs that were copied count.
    /// Consent is asked for again, and so are unanswered questions. The letter names the run that took over; the
    /// same letter again is answered with that run.
    ///
    /// Waits for a permit when too many runs are in flight.
    ///
    /// ```
    /// use callboard::prelude::*;
    /// use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    /// static IS_DOWN: AtomicBool = AtomicBool::new(true);
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let board = Callboard::builder()
    ///     .agent("caller", |_: Turn| async {
    ///         if IS_DOWN.load(Relaxed) { Err(TurnError::terminal("the service is down")) } else { Ok(Command::output("done")) }
    ///     })
    ///     .start()
    ///     .await?;
    /// board.submit(Task::new("call")).await?.result().await?;
    /// let letter = &board.dead_letters().list().await?[0];
    /// IS_DOWN.store(false, Relaxed);
    /// let fork = board.dead_letters().retry(letter.turn).await?;
    /// assert_eq!(fork.result().await?.output, serde_json::json!("done"));
    /// # board.shutdown().await;
    /// # Ok::<(), callboard::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`ForkError::NoLetter`]; see [`ForkError`].
    pub async fn retry(&self, letter: TurnId) -> Result<RunHandle, ForkError> {
        self.retry_for(letter, None, None).await
    }

    /// As [`DeadLettersHandle::retry`], for a requester outside of the board, as [`Fork::from_agent`](crate::supervision::runs::Fork::from_agent),
    /// and with other limits for the new run, if they are given. A letter that was retried before keeps its run with the limits of that.
    ///
    /// # Errors
    /// [`ForkError::NoLetter`]; see [`ForkError`].
    pub async fn retry_for(
        &self,
        letter: TurnId,
        from_agent: Option<AgentName>,
        limits: Option<Limits>,
    ) -> Result<RunHandle, ForkError> {
        let permit =
            Arc::clone(&self.callboard.board.run_permits).acquire_owned().await.map_err(|_| Refusal::ShuttingDown)?;
        let board = self.callboard.clone();
        // In a task of its own: if the caller is dropped, no run is journaled without being begun.
        let retried = tokio::spawn(async move { board.retry_letter(letter, (from_agent, limits), permit).await });
        retried.await.unwrap_or(Err(Unacknowledged::Retry(letter).into()))
    }

    /// Deletes a dead letter, or takes a conflict from the list of failures; `false` if there is none of this turn. Its run stays as it
    /// is, and so does a run that took over from it.
    ///
    /// # Errors
    /// What the store reports.
    pub async fn discard(&self, letter: TurnId) -> Result<bool, StorageError> {
        let letters = match self.callboard.run(letter.run).dead_letters().await {
            Ok(letters) => letters,
            Err(RunError::Storage(error) | RunError::StoreStopped { error, .. }) => return Err(error),
            Err(
                RunError::Unknown(_)
                | RunError::Stopped(_)
                | RunError::Trimmed(_)
                | RunError::NotHere(_)
                | RunError::Quarantined { .. }
                | RunError::NotRequester(_)
                | RunError::OverLimit(_),
            ) => return Ok(false),
        };
        let failed_at = match letters.iter().find(|found| found.turn == letter) {
            Some(found) => found.at,
            None => match self.conflict(letter.run).await? {
                Some(conflict) if conflict.turn == letter => conflict.at,
                Some(_) | None => return Ok(false),
            },
        };
        let board = &self.callboard.board;
        board.journal.note_letter(letter, LetterNote::Dropped, board.durability).await?;
        board.journal.settle_failure(failed_at, letter).await?;
        Ok(true)
    }
}

impl Callboard {
    async fn retry_letter(
        &self,
        letter: TurnId,
        (from_agent, limits): (Option<AgentName>, Option<Limits>),
        permit: OwnedSemaphorePermit,
    ) -> Result<RunHandle, ForkError> {
        let board = &self.board;
        let history = board.journal.read(letter.run).await?.events;
        let failed = history.iter().find_map(|event| match event {
            RunEvent::TurnFailed { turn, at, .. } if *turn == letter.number => Some(*at),
            _ => None,
        });
        let failed_at = failed.ok_or(ForkError::NoLetter(letter))?;
        let Some(RunEvent::Submitted(original)) = history.first() else { return Err(ForkError::Trimmed) };
        let durability = original.task.durability.unwrap_or(board.durability);
        let events_of = |run: RunId| {
            let mut submission = fork::submission(original, (run, board.env.now().wall), from_agent.clone());
            let limits = limits.as_ref().unwrap_or(submission.limits());
            let limits = board.settings.run_limits.bound(from_agent.as_ref(), limits);
            submission.task.limits = Some(limits);
            fork::fork(&history, letter, submission, &board.rules)
        };
        let note = match board.journal.letter_notes(letter.run).await?.get(&letter.number) {
            Some(note) => *note,
            None => {
                let run = RunId(board.env.id());
                // Whoever may not have it tried again does not take the letter from others.
                events_of(run)?;
                board.journal.note_letter(letter, LetterNote::Retried(run), durability).await?
            }
        };
        let run = match note {
            LetterNote::Retried(run) => run,
            LetterNote::Dropped => return Err(ForkError::NoLetter(letter)),
        };
        board.journal.settle_failure(failed_at, letter).await?;
        let handle = self.run(run);
        if board.journal.has(run).await? {
            return Ok(handle);
        }
        let mut events = events_of(run)?;
        // The fork reads what its run had read, and its own messages follow those that are there when it ends.
        events.extend(fork::entry(&history));
        Ok(self.begin_fork(run, &events, durability, permit).await?)
    }
}

impl RunHandle {
    /// Turns of this run that failed for good, but for those whose letters were dropped.
    ///
    /// # Errors
    /// The run is unknown, or its journal cannot be read.
    pub async fn dead_letters(&self) -> Result<Vec<DeadLetter>, RunError> {
        let run = self.id();
        let history = self.history().await?;
        let begun = match history.first() {
            Some(RunEvent::Submitted(submission)) => submission.at,
            _ => Timestamp::default(),
        };
        let failed = |event| match event {
            // A failure from before the run's submission was copied by a fork: it is a letter of the old run.
            RunEvent::TurnFailed { turn, agent, input, attempt, failure, at } if at >= begun => {
                let turn = TurnId { run, number: turn };
                Some(DeadLetter { turn, agent, input, attempts: attempt, failure, at, retried_as: None })
            }
            _ => None,
        };
        let mut letters: Vec<DeadLetter> = history.into_iter().filter_map(failed).collect();
        if !letters.is_empty() {
            let notes = self.board.board.journal.letter_notes(run).await?;
            letters.retain_mut(|letter| match notes.get(&letter.turn.number) {
                None => true,
                Some(LetterNote::Retried(run)) => {
                    letter.retried_as = Some(*run);
                    true
                }
                Some(LetterNote::Dropped) => false,
            });
        }
        Ok(letters)
    }
}
