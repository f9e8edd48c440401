//! Sweeps: what an actor has done at intervals, beside its mailbox, so that it goes on answering meanwhile.

use std::fmt::Display;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use ractor::{ActorProcessingErr, ActorRef, Message};

use crate::env::Env;
use crate::supervision::panic_text;

/// What is swept, and when.
#[derive(Clone)]
pub(super) struct Sweeps {
    pub(super) env: Env,
    /// For the log: what is gone after a sweep.
    pub(super) what: &'static str,
    pub(super) fault_point: &'static str,
    /// The next sweep is due a whole interval after the one before has ended, however long it took.
    pub(super) every: Duration,
}

/// How a sweep ended; the error is the text of a panic. A sweep that failed has logged why, and has ended well: it is
/// repeated at the next interval.
pub(super) type Swept = Result<(), String>;

impl Sweeps {
    /// Has the actor told when the next sweep is due.
    ///
    /// # Errors
    /// When the one before has panicked: the actor goes down with it, is counted, and begins anew.
    pub(super) fn schedule<M: Message>(
        &self,
        actor: &ActorRef<M>,
        before: Swept,
        due: fn() -> M,
    ) -> Result<(), ActorProcessingErr> {
        before.map_err(|panic| format!("a sweep panicked: {panic}"))?;
        actor.send_after(self.every, due);
        Ok(())
    }

    /// Sweeps, and tells the actor how it ended.
    pub(super) fn begin<M: Message, E: Display>(
        &self,
        actor: &ActorRef<M>,
        sweep: impl Future<Output = Result<usize, E>> + Send + 'static,
        ended: fn(Swept) -> M,
    ) {
        let (actor, Self { env, what, fault_point, .. }) = (actor.clone(), self.clone());
        let sweep = async move {
            env.slow_fault_point(fault_point).await?;
            sweep.await.map_err(|error| error.to_string())
        };
        tokio::spawn(async move {
            let swept = AssertUnwindSafe(sweep).catch_unwind().await.map(|swept| match swept {
                Ok(0) => {}
                Ok(gone) => tracing::info!(gone, what, "swept"),
                Err(error) => {
                    tracing::warn!(%error, what, "could not be swept; it is tried again at the next interval")
                }
            });
            // An actor that went down meanwhile sweeps by itself when it is back.
            let _ = actor.cast(ended(swept.map_err(|panic| panic_text(&*panic))));
        });
    }
}
