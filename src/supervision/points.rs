//! Fault points inside actors.

use ractor::ActorCell;

use crate::env::{Env, Fault, happen_slowly};

/// Passes a fault point inside a handler of this actor, whose name the point says unless there is one of its kind.
///
/// # Errors
/// The text of the planned error.
///
/// # Panics
/// When the plan says so.
pub(crate) async fn actor_point(env: &Env, point: &'static str, name: &str, actor: &ActorCell) -> Result<(), String> {
    match env.fault_at(point, name) {
        None => Ok(()),
        Some(Fault::Kill) => {
            actor.kill();
            // The handler is not polled again.
            std::future::pending().await
        }
        // Boxed, because every actor's future has room for this one.
        Some(fault) => Box::pin(happen_slowly(fault)).await,
    }
}
