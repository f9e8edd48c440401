//! Submits tasks.

use callboard::SubmitError;
use callboard::env::Env;
use callboard::messages::RunId;
use callboard::prelude::{Callboard, Task};
use callboard::runtime::RunHandle;

/// How often at most.
const TRIES: usize = 5;

/// Submits a task, and again if it is not known whether the store has taken it, as when the process that had the store open was
/// killed: with the id that it gets here, it is one run.
pub(crate) async fn submit(board: &Callboard, mut task: Task) -> Result<RunHandle, SubmitError> {
    task.id.get_or_insert_with(|| RunId(Env::system().id()));
    for _ in 1..TRIES {
        match board.submit(task.clone()).await {
            Err(SubmitError::Storage(error)) if error.is_transient() => {}
            submitted => return submitted,
        }
    }
    board.submit(task).await
}
