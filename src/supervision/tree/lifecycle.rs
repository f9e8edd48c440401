//! Tasks that start or stop one child, so that the supervisor never waits.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::FutureExt;
use ractor::{Actor, ActorCell, ActorRef, ActorStatus};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use super::event::{Events, TreeEventKind};
use super::message::{Arguments, Launched, Msg};
use super::shutdown::Shutdown;
use super::spec::{ChildSpec, Kind};
use super::supervisor::SupervisorActor;
use crate::env::Env;
use crate::supervision::panic_text;

/// The time that a killed child gets to end. Only one that blocks its thread needs it.
const KILL_GRACE: Duration = Duration::from_secs(5);

/// One start of a child.
pub(super) struct Launch {
    pub(super) spec: ChildSpec,
    pub(super) path: Arc<str>,
    pub(super) generation: u64,
    pub(super) supervisor: ActorCell,
    pub(super) env: Env,
    pub(super) events: Events,
    /// Set as soon as there is an actor; for a supervisor, before its children run.
    pub(super) spawned: Arc<OnceLock<ActorCell>>,
}

impl Launch {
    /// Starts the child, unless `cancel` cancels the start. Everything that a failed or cancelled start has begun is stopped
    /// before this returns.
    pub(super) async fn run(self, cancel: oneshot::Receiver<()>) -> Launched {
        let start = async {
            // Two generations of a child never run at once, even if the earlier one's supervisor was killed.
            if let Some(earlier) = self.spec.slot.last()
                && !gone(&earlier, self.spec.start_timeout).await
            {
                return Err("its earlier generation still runs".to_owned());
            }
            let attempt = AssertUnwindSafe(self.attempt()).catch_unwind();
            let result = match self.spec.start_timeout {
                None => attempt.await,
                Some(limit) => match timeout(limit, attempt).await {
                    Ok(result) => result,
                    Err(_) => return Err(format!("not started within {limit:?}")),
                },
            };
            result.unwrap_or_else(|panic| Err(format!("panicked: {}", panic_text(&*panic))))
        };
        let result = tokio::select! {
            biased;
            result = start => Some(result),
            _ = cancel => None,
        };
        if let Some(Ok(cell)) = result {
            return Launched::Started(cell);
        }
        let halted = match self.spawned.get() {
            Some(cell) => halt(cell, &self.spec).await,
            None => TreeEventKind::Stopped,
        };
        match result {
            Some(Err(error)) => Launched::Failed(error),
            Some(Ok(_)) | None => Launched::Cancelled { halted },
        }
    }

    async fn attempt(&self) -> Result<ActorCell, String> {
        match &self.spec.kind {
            Kind::Worker(spawn) => {
                let cell = spawn(self.supervisor.clone()).await?;
                let _ = self.spawned.set(cell.clone());
                Ok(cell)
            }
            Kind::Supervisor(spec) => {
                let (ready, readiness) = oneshot::channel();
                let arguments = Arguments {
                    spec: Arc::clone(spec),
                    path: Arc::clone(&self.path),
                    generation: self.generation,
                    env: self.env.clone(),
                    events: self.events.clone(),
                    ready,
                    ended: watch::Sender::new(None),
                };
                let (actor, _) =
                    SupervisorActor::spawn_linked(None, SupervisorActor, arguments, self.supervisor.clone())
                        .await
                        .map_err(|error| error.to_string())?;
                let _ = self.spawned.set(actor.get_cell());
                match readiness.await {
                    Ok(Ok(())) => Ok(actor.get_cell()),
                    Ok(Err(reason)) => Err(reason.to_string()),
                    Err(_) => Err("ended while it was starting".to_owned()),
                }
            }
        }
    }
}

/// Stops a child and waits until it is gone: a stop, its timeout, a kill.
pub(super) async fn halt(cell: &ActorCell, spec: &ChildSpec) -> TreeEventKind {
    let limit = match spec.shutdown {
        Shutdown::BrutalKill => return kill(cell, spec, TreeEventKind::Killed).await,
        Shutdown::Timeout(limit) => Some(limit),
        Shutdown::Infinity => None,
    };
    match spec.kind {
        Kind::Worker(_) => cell.stop(None),
        // A supervisor stops its children first. If it is already gone there is nothing to send.
        Kind::Supervisor(_) => drop(ActorRef::from(cell.clone()).cast(Msg::Shutdown)),
    }
    end_within(cell, spec, limit).await
}

/// Waits until a child is gone that was asked to stop, and kills it after the limit.
pub(super) async fn end_within(cell: &ActorCell, spec: &ChildSpec, limit: Option<Duration>) -> TreeEventKind {
    if gone(cell, limit).await {
        return TreeEventKind::Stopped;
    }
    kill(cell, spec, TreeEventKind::KilledAfterTimeout).await
}

async fn kill(cell: &ActorCell, spec: &ChildSpec, killed: TreeEventKind) -> TreeEventKind {
    cell.kill();
    if !gone(cell, Some(KILL_GRACE)).await {
        tracing::error!(child = %spec.id, "the child blocks its thread; it is left behind");
        return TreeEventKind::LeftBehind;
    }
    killed
}

/// Waits until the actor has ended; `false` if the limit is reached first.
async fn gone(cell: &ActorCell, limit: Option<Duration>) -> bool {
    cell.get_status() == ActorStatus::Stopped || cell.wait(limit).await.is_ok()
}
