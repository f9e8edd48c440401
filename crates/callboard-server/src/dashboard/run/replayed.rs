//! A run replayed from its journal, for the pages that show its past.

use callboard::messages::StateChange;
use callboard::runtime::RunHandle;
use callboard::supervision::runs::Replay;
use maud::{Markup, html};
use serde::Serialize;
use tokio::sync::Semaphore;

use super::texts::{cut_lines, json_text, line};
use crate::context::Context;
use crate::problem::{Problem, ProblemCode};

/// How many journals are replayed at a time: each is in memory, with the state after each event.
static READERS: Semaphore = Semaphore::const_new(2);

/// The most characters of a value, of which the rest is counted, and of a change.
const MAX_VALUE: usize = 20_000;
const MAX_CHANGE: usize = 400;
/// The most changes of a list.
const MAX_CHANGES: usize = 50;

/// Replays the journal of a run.
pub(super) async fn replayed(context: &Context, run: &RunHandle) -> Result<Replay, Problem> {
    let permit = READERS.acquire().await.map_err(|error| Problem::internal(&error))?;
    let (history, rules) = (run.history().await?, context.board.state_rules().clone());
    let replayed = tokio::task::spawn_blocking(move || {
        let replayed = Replay::of(history, &rules);
        drop(permit);
        replayed
    });
    let replayed = replayed.await.map_err(|error| Problem::internal(&error))?;
    replayed.map_err(|error| Problem::new(ProblemCode::Conflict, error.to_string()))
}

/// A value that is folded.
pub(super) fn folded(key: &str, title: &str, value: &(impl Serialize + ?Sized)) -> Markup {
    html! {
        details data-key=(key) { summary { (title) } pre.text dir="auto" { (cut_lines(&json_text(value), MAX_VALUE)) } }
    }
}

/// What an event or a turn changed of the state.
pub(super) fn changes(changes: &[StateChange]) -> Markup {
    html! {
        @if !changes.is_empty() {
            ul.changes {
                @for change in changes.iter().take(MAX_CHANGES) { li { code { bdi { (line(&change.to_string(), MAX_CHANGE)) } } } }
                @if changes.len() > MAX_CHANGES { li.dim { (changes.len() - MAX_CHANGES) " more" } }
            }
        }
    }
}
