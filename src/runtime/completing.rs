//! Callers that wait for the result of what they submit, and take the turns of the run meanwhile.

use crate::actors::InPlace;
use crate::messages::{RunResult, Task};
use crate::supervision::runs::rules::errors::SubmitError;

use super::handle::Callboard;
use super::run_handle::RunError;

/// Why [`Callboard::complete`] has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompleteError {
    /// The task was not accepted.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// The task was accepted, and the end of its run is not known: the board stops first, or the journal of the run cannot be read.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl Callboard {
    /// Submits a task and waits for its result, as [`Callboard::submit`] and [`RunHandle::result`](super::RunHandle::result) do. Turns of the run that can begin at
    /// once are taken in the task of the caller, one at a time, and no worker is woken for them: a chain of short turns costs about a third
    /// less on a runtime of two threads.
    ///
    /// While such a turn computes, so does the caller, and a caller that is not polled holds up the turn and its permit, until the turn's
    /// timeout. Turns of agents that block their thread ([`AgentSpec::blocking`](crate::AgentSpec::blocking)) and turns that are
    /// concurrent with one in the caller's task are taken by workers. A caller that is dropped leaves its turn to a worker, and the run
    /// continues.
    ///
    /// ```
    /// use callboard::prelude::*;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let board = Callboard::builder()
    ///     .agent("adder", |turn: Turn| async move { Ok(Command::output(turn.input::<u32>()? + 1)) })
    ///     .start()
    ///     .await?;
    /// let result = board.complete(Task::new("add one").to("adder").input(1)).await?;
    /// assert_eq!(result.output, 2);
    /// # board.shutdown().await;
    /// # Ok::<(), callboard::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// See [`CompleteError`].
    pub async fn complete(&self, task: Task) -> Result<RunResult, CompleteError> {
        let mut in_place = InPlace::new(&self.board.scheduler);
        let run = in_place.until(self.submit(task)).await?;
        Ok(in_place.until(run.result()).await?)
    }
}
