//! Forks: new runs that begin as copies of old ones.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use crate::messages::{Durability, Refusal, RunEvent, RunId, Unacknowledged};
use crate::storage::{Journal, StorageError};
use crate::supervision::runs::fork::{Fork, ForkError};
use crate::supervision::runs::queue::ShardMessage;

use super::handle::Callboard;
use super::run_handle::RunHandle;

impl Callboard {
    /// Forks a run at one of its turns, whether the run has ended or not: a new run continues from there, with what `fork`
    /// changes about the turn (SEMANTICS 10). What did not come of the turn is copied and answers from the journal, the turn
    /// itself runs, and what comes after it. The fork has its own id, token budget and deadline; handoffs that were copied
    /// count. It may be given limits of its own ([`Fork::limits`]). Open questions and consents are not copied: they are asked
    /// again. The old run stays as it is.
    ///
    /// Waits for a permit when too many runs are in flight. Each call makes a run of its own.
    ///
    /// ```
    /// use callboard::prelude::*;
    /// use callboard::supervision::runs::Fork;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let board = Callboard::builder()
    ///     .agent("scout", |_: Turn| async { Ok(Command::output("three pages").with("messages", "found").goto("writer")) })
    ///     .agent("writer", |turn: Turn| async move { Ok(Command::output(format!("a text from {}", turn.input::<String>()?))) })
    ///     .start()
    ///     .await?;
    /// let run = board.submit(Task::new("write").to("scout")).await?;
    /// assert_eq!(run.result().await?.output, "a text from three pages");
    /// let fork = board.fork(run.id(), 2, Fork::new().input("one page")).await?;
    /// assert_eq!(fork.result().await?.output, "a text from one page");
    /// # board.shutdown().await;
    /// # Ok::<(), callboard::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// See [`ForkError`].
    pub async fn fork(&self, run: RunId, turn: u32, fork: Fork) -> Result<RunHandle, ForkError> {
        let permit = Arc::clone(&self.board.run_permits).acquire_owned().await.map_err(|_| Refusal::ShuttingDown)?;
        let (board, id) = (self.clone(), RunId(self.board.env.id()));
        // In a task of its own: if the caller is dropped, no run is journaled without being begun.
        let forked = tokio::spawn(async move { board.fork_as(id, run, turn, fork, permit).await });
        forked.await.unwrap_or(Err(Unacknowledged::Fork(id).into()))
    }

    async fn fork_as(
        &self,
        id: RunId,
        run: RunId,
        turn: u32,
        mut fork: Fork,
        permit: OwnedSemaphorePermit,
    ) -> Result<RunHandle, ForkError> {
        let board = &self.board;
        let history = board.journal.read(run).await?.events;
        let original = match history.first() {
            None => return Err(ForkError::Unknown(run)),
            Some(RunEvent::Submitted(original)) => original,
            Some(_) => return Err(ForkError::Trimmed),
        };
        let asked = original.task.durability;
        let limits = fork.limits.as_ref().unwrap_or(original.limits());
        let bounded = board.settings.run_limits.bound(fork.from_agent.as_ref(), limits);
        if bounded != *limits {
            fork.limits = Some(bounded);
        }
        let events = fork.events(&history, turn, (id, board.env.now().wall), &board.rules)?;
        let begun = self.begin_fork(id, &events, asked.unwrap_or(board.durability), permit).await;
        begun.map_err(|error| if error.is_transient() { Unacknowledged::Fork(id).into() } else { error.into() })
    }

    /// Journals the first events of a fork and starts it. An existing fork is not changed.
    pub(super) async fn begin_fork(
        &self,
        run: RunId,
        events: &[RunEvent],
        durability: Durability,
        permit: OwnedSemaphorePermit,
    ) -> Result<RunHandle, StorageError> {
        let (board, handle) = (&self.board, self.run(run));
        let journal = &board.journal;
        let begun = match durability {
            Durability::Memory => journal.append(&Journal::stream(run), 0, events, durability),
            Durability::Buffered | Durability::Sync => journal.begin(run, board.ownership.board(), events, durability),
        };
        let begun = match begun.await {
            // The append may have succeeded all the same.
            Err(error) if error.is_transient() => {
                if journal.has(run).await? {
                    Ok(0)
                } else {
                    Err(error)
                }
            }
            begun => begun,
        };
        match begun {
            Ok(_) => {
                board.shards.of(run).push(ShardMessage::Adopt { run, new_process: false, recovery: None });
                let going = handle.clone();
                tokio::spawn(async move {
                    // The end is reported by the board that works on the run.
                    let _ = going.result().await;
                    drop(permit);
                });
                Ok(handle)
            }
            // The fork was requested twice at once, or again after a crash.
            Err(StorageError::WrongSequence { .. }) => Ok(handle),
            Err(error) => Err(error),
        }
    }
}
