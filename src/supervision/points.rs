//! Fault points inside actors.

use ractor::ActorCell;

use crate::env::{Env, Fault, happen_slowly};

/// Passes a fault point inside a handler of this actor. The fault point names the actor unless there is only one of its kind.
///
/// # Errors
/// The text of the planned error.
///
/// # Panics
/// If the fault plan has a panic here.
pub(crate) async fn actor_point(env: &Env, point: &'static str, name: &str, actor: &ActorCell) -> Result<(), String> {
    match env.fault_at(point, name) {
        None => Ok(()),
        Some(Fault::Kill) => {
            actor.kill();
            // The fault has killed the actor, so this future is not polled again.
            std::future::pending().await
        }
        // Boxed to keep the futures of all actors small.
        Some(fault) => Box::pin(happen_slowly(fault)).await,
    }
}
