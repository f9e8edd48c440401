//! Kills of a board's own actors.

use crate::runtime::Callboard;
use crate::supervision::tree::ControlError;

/// Kills an actor of a board's tree, as ractor kills: it never runs past its next await, and does not clean up after
/// itself. The path begins below the board's own supervisor; `false` if no actor is there now.
///
/// A child of the board is restarted as after a panic. Killing `agents` takes the agents for good: their supervisor
/// comes back without the children that were added at run time.
///
/// ```
/// use callboard::prelude::*;
/// use callboard::testing::{TreeRecorder, kill};
/// use callboard::supervision::tree::TreeEventKind;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let board = Callboard::builder().agent("coder", |_: Turn| async { Ok(Command::output("done")) }).start().await?;
/// let recorder = TreeRecorder::new(board.tree_events());
/// assert!(kill(&board, &["runs", "runs-0"]).await?);
/// let is_back = |kind: &TreeEventKind| matches!(kind, TreeEventKind::Restarted);
/// recorder.expect("callboard/runs/runs-0", is_back, Duration::from_secs(1)).await;
/// assert!(board.submit(Task::new("x")).await?.result().await?.outcome.is_finished());
/// # Ok(()) }
/// ```
///
/// # Errors
/// When the board has ended.
pub async fn kill(board: &Callboard, path: &[&str]) -> Result<bool, ControlError> {
    board.kill(path).await
}
