//! What happens next to a run that this process works on: an event, a decision of the person at the terminal, or nothing that it can wait for.

use std::path::Path;
use std::pin::Pin;

use callboard::actors::Watched;
use callboard::prelude::Callboard;
use callboard::runtime::{RunError, RunHandle};
use futures::{Stream, StreamExt as _};

use crate::agents::decide::{next_asked, settle};
use crate::page::Failure;

use super::progress::{Follower, Line};

/// What has happened.
pub(crate) enum Step {
    Watched(Watched),
    /// The person has decided.
    Decided,
    /// This process can do no more for the run.
    Waits,
    /// There are no more events.
    Ended,
    /// What the caller waits for as well.
    Other,
}

/// Waits for what happens next. What agents ask is asked at the terminal if there is a folder in which their tools work; while the person
/// decides, nothing else is waited for.
pub(crate) async fn next_step(
    board: &Callboard,
    events: &mut (impl Stream<Item = Watched> + Unpin),
    rests: Pin<&mut impl Future<Output = Result<(), RunError>>>,
    asks_in: Option<&Path>,
    other: impl Future<Output = ()>,
) -> Result<Step, Failure> {
    let next = async {
        match asks_in {
            Some(root) => (next_asked(board).await, root),
            None => std::future::pending().await,
        }
    };
    let (asked, root) = tokio::select! {
        biased;
        watched = events.next() => return Ok(watched.map_or(Step::Ended, Step::Watched)),
        asked = next => asked,
        rested = rests => return rested.map(|()| Step::Waits).map_err(Failure::of),
        () = other => return Ok(Step::Other),
    };
    Ok(if settle(board, &asked, root).await? { Step::Decided } else { Step::Waits })
}

/// The lines of what has happened.
pub(crate) async fn lines(follower: &mut Follower, run: &RunHandle, watched: &Watched) -> Result<Vec<Line>, Failure> {
    Ok(match watched {
        Watched::Event { sequence, event, .. } => follower.take(*sequence, event),
        Watched::Live { .. } => Vec::new(),
        Watched::Missed(_) => follower.catch_up(run.read().await.map_err(Failure::of)?),
    })
}
