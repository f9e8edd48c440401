//! Work that an actor starts at intervals in a task of its own, so that it continues to answer messages.

use std::fmt::Display;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use ractor::{ActorProcessingErr, ActorRef, Message};

use crate::env::Env;
use crate::supervision::panic_text;

/// A deletion that is repeated, and its interval.
#[derive(Clone)]
pub(super) struct Periodic {
    pub(super) env: Env,
    /// The name of what is deleted, for the log.
    pub(super) what: &'static str,
    pub(super) fault_point: &'static str,
    /// The time from the end of one deletion to the beginning of the next.
    pub(super) every: Duration,
}

/// How the work ended; the error is the text of a panic. Work that failed has logged why, and counts as done: it is repeated
/// at the next interval.
pub(super) type Ended = Result<(), String>;

impl Periodic {
    /// Sends the actor `due` after the next interval.
    ///
    /// # Errors
    /// If the work has panicked: the actor fails with this error, and its supervisor counts and restarts it.
    pub(super) fn schedule<M: Message>(
        &self,
        actor: &ActorRef<M>,
        before: Ended,
        due: fn() -> M,
    ) -> Result<(), ActorProcessingErr> {
        before.map_err(|panic| format!("deleting {} panicked: {panic}", self.what))?;
        actor.send_after(self.every, due);
        Ok(())
    }

    /// Does the work in a task, and sends the result to the actor. `work` returns the number of deletions.
    pub(super) fn begin<M: Message, E: Display>(
        &self,
        actor: &ActorRef<M>,
        work: impl Future<Output = Result<usize, E>> + Send + 'static,
        ended: fn(Ended) -> M,
    ) {
        let (actor, Self { env, what, fault_point, .. }) = (actor.clone(), self.clone());
        let work = async move {
            env.slow_fault_point(fault_point).await?;
            work.await.map_err(|error| error.to_string())
        };
        tokio::spawn(async move {
            let result = AssertUnwindSafe(work).catch_unwind().await.map(|result| match result {
                Ok(0) => {}
                Ok(deleted) => tracing::info!(deleted, what, "deleted"),
                Err(error) => {
                    tracing::warn!(%error, what, "could not be deleted; it is tried again at the next interval")
                }
            });
            // An actor that failed meanwhile starts the work itself after its restart.
            let _ = actor.cast(ended(result.map_err(|panic| panic_text(&*panic))));
        });
    }
}
