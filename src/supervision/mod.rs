//! Supervision: the generic tree and the run supervisors.

// - `tree`: supervision of ractor actors by OTP's rules, for the board and for users.
// - `runs::rules`: the rules of runs. Pure: what a run is (`run`), what happens next (`decide`, `guard`).
// - `runs::shard`: the run supervisors, which carry the rules out.
// - `lease`: how long a board may go on without word from its store.
// - `mailbox`: state that outlives its actor, with the address that wakes the actor. Each queue outside of an actor is one.
// - `points`: fault points inside actors.
mod lease;
mod mailbox;
mod points;
pub mod runs;
pub mod tree;

use std::panic::AssertUnwindSafe;

use futures::FutureExt;

use crate::storage::StorageError;

pub(crate) use lease::Lease;
pub(crate) use mailbox::Mailbox;
pub(crate) use points::actor_point;

/// The text of a caught panic.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no text".to_owned())
}

/// Awaits a storage call. A panic of the store becomes an error.
pub(crate) async fn answer_of<T>(asked: impl Future<Output = Result<T, StorageError>>) -> Result<T, StorageError> {
    AssertUnwindSafe(asked).catch_unwind().await.unwrap_or_else(|panic| {
        Err(StorageError::Unavailable { detail: format!("the store panicked: {}", panic_text(&*panic)) })
    })
}
