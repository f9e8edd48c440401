//! The handles: one that owns a tree, and one that manages the children of any supervisor in it.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorCell};
use tokio::sync::{broadcast, oneshot, watch};
use tokio::time::timeout;

use super::child_ref::{ChildRef, Down};
use super::errors::{ControlError, EndReason, StartError};
use super::event::{Events, TreeEvent};
use super::message::{Arguments, Msg, Reply};
use super::node::TreeNode;
use super::spec::{ChildSpec, Kind, SupervisorSpec};
use super::supervisor::SupervisorActor;
use crate::env::Env;

/// The timeout of a snapshot.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(2);

/// A reference to a supervisor that survives its restarts; a cheap clone.
///
/// Requests are answered when they are done, so `start_child` takes as long as the child's start. The supervisor itself
/// answers other requests meanwhile. A child must not wait for its own termination in a handler. Children added at run
/// time are gone when their supervisor restarts, as in OTP.
#[derive(Clone, Debug)]
pub struct SupervisorRef {
    reference: ChildRef<Msg>,
}

impl SupervisorRef {
    pub(super) fn new(reference: ChildRef<Msg>) -> Self {
        Self { reference }
    }

    /// Returns the name of the supervisor; below another supervisor it is also its id.
    #[must_use]
    pub fn name(&self) -> &str {
        self.reference.id()
    }

    /// The supervisor's own actor, while it runs.
    #[must_use]
    pub fn cell(&self) -> Option<ActorCell> {
        self.reference.cell()
    }

    /// Adds a child after the existing ones, starts it and waits until it runs.
    ///
    /// # Errors
    /// When the id is taken, when the supervisor cannot take such a child, and when the child does not start; it is not
    /// listed then.
    pub async fn start_child(&self, child: ChildSpec) -> Result<(), ControlError> {
        self.request(|reply| Msg::StartChild { child, reply }).await
    }

    /// Stops a child and waits until it is down; also cancels a restart that is due. The child stays listed as stopped,
    /// unless it is temporary. Terminating a child that is down already is fine.
    ///
    /// As in OTP, a sibling's crash under one_for_all or rest_for_one brings it back; [`remove_child`](Self::remove_child)
    /// is for good.
    ///
    /// # Errors
    /// When there is no such child.
    pub async fn terminate_child(&self, child: impl Into<Arc<str>>) -> Result<(), ControlError> {
        let id = child.into();
        self.request(|reply| Msg::TerminateChild { id, remove: false, reply }).await
    }

    /// Stops a child, waits until it is down and takes it off the list.
    ///
    /// # Errors
    /// When there is no such child.
    pub async fn remove_child(&self, child: impl Into<Arc<str>>) -> Result<(), ControlError> {
        let id = child.into();
        self.request(|reply| Msg::TerminateChild { id, remove: true, reply }).await
    }

    /// Starts a stopped or failed child again, and waits until it runs. Only the child's own window is cleared: its earlier
    /// crashes still count in its supervisor's.
    ///
    /// # Errors
    /// When there is no such child, when it is not down, and when it does not start; it is stopped then.
    pub async fn restart_child(&self, child: impl Into<Arc<str>>) -> Result<(), ControlError> {
        let id = child.into();
        self.request(|reply| Msg::RestartChild { id, reply }).await
    }

    /// The supervisor and everything below it, as of now. Answers while children start, stop or wait.
    ///
    /// # Errors
    /// When the supervisor is down, or its runtime is too busy to answer within 2 s.
    pub async fn snapshot(&self) -> Result<TreeNode, ControlError> {
        let (reply, answer) = oneshot::channel();
        self.send(Msg::Snapshot { budget: SNAPSHOT_TIMEOUT * 3 / 4, reply })?;
        match timeout(SNAPSHOT_TIMEOUT, answer).await {
            Ok(Ok(node)) => Ok(node),
            Ok(Err(_)) => Err(ControlError::SupervisorDown { down: Down::Exiting }),
            Err(_) => Err(ControlError::TimedOut),
        }
    }

    /// As [`Self::start_child`], but the request is sent before this returns.
    pub(crate) fn begin_start(&self, child: ChildSpec) -> impl Future<Output = Result<(), ControlError>> + use<> {
        self.begin(|reply| Msg::StartChild { child, reply })
    }

    /// As [`Self::remove_child`], but the request is sent before this returns.
    pub(crate) fn begin_removal(&self, id: Arc<str>) -> impl Future<Output = Result<(), ControlError>> + use<> {
        self.begin(|reply| Msg::TerminateChild { id, remove: true, reply })
    }

    fn begin<F>(&self, build: F) -> impl Future<Output = Result<(), ControlError>> + use<F>
    where
        F: FnOnce(Reply) -> Msg,
    {
        let (reply, answer) = oneshot::channel();
        let sent = self.send(build(reply));
        async move {
            sent?;
            answer.await.unwrap_or(Err(ControlError::SupervisorDown { down: Down::Exiting }))
        }
    }

    /// Sends a request and waits for its answer. A child's timeouts bound the wait.
    async fn request(&self, build: impl FnOnce(Reply) -> Msg) -> Result<(), ControlError> {
        self.begin(build).await
    }

    pub(super) fn send(&self, message: Msg) -> Result<(), ControlError> {
        self.reference.cast(message).map_err(|error| ControlError::SupervisorDown { down: error.down })
    }
}

impl ChildSpec {
    /// A supervisor below another one; its name is its id. The reference manages its children at run time.
    ///
    /// The child is permanent. It has no timeouts of its own: its children's timeouts bound its start and its stop.
    #[must_use]
    pub fn supervisor(spec: SupervisorSpec) -> (Self, SupervisorRef) {
        let id = Arc::clone(&spec.name);
        let reference = ChildRef::vacant(Arc::clone(&id));
        let child = Self::new(id, Kind::Supervisor(Arc::new(spec)), reference.slot());
        (child, SupervisorRef::new(reference))
    }
}

/// A running tree; a cheap clone. Dropping it does not stop the tree.
///
/// It manages the root supervisor's children like any [`SupervisorRef`].
#[derive(Clone)]
pub struct Supervisor {
    root: SupervisorRef,
    actor: ActorCell,
    events: Events,
    ended: watch::Receiver<Option<EndReason>>,
}

impl std::fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supervisor").field("name", &self.root.name()).finish_non_exhaustive()
    }
}

impl Deref for Supervisor {
    type Target = SupervisorRef;

    fn deref(&self) -> &SupervisorRef {
        &self.root
    }
}

impl Supervisor {
    /// Starts a tree, child after child, and returns when all of them run.
    ///
    /// # Errors
    /// When the specification is invalid, and when a child does not start: then those before it have been
    /// stopped again, last first.
    pub async fn start(spec: SupervisorSpec) -> Result<Self, StartError> {
        Self::start_in(spec, Env::system()).await
    }

    /// As [`Supervisor::start`], with another clock, other random numbers or a fault plan: for tests.
    ///
    /// # Errors
    /// As [`Supervisor::start`].
    pub async fn start_in(spec: SupervisorSpec, env: Env) -> Result<Self, StartError> {
        spec.check()?;
        let name = Arc::clone(&spec.name);
        let events = Events::new(env.clone());
        let (ready, readiness) = oneshot::channel();
        let (ended, end) = watch::channel(None);
        let path = Arc::clone(&name);
        let arguments =
            Arguments { spec: Arc::new(spec), path, generation: 1, env, events: events.clone(), ready, ended };
        let Ok((actor, _)) = SupervisorActor::spawn(None, SupervisorActor, arguments).await else {
            return Err(StartError::Ended(EndReason::Killed));
        };
        let reference = ChildRef::vacant(name);
        let slot = reference.slot();
        slot.occupy(slot.claim(), actor.get_cell());
        let root = SupervisorRef::new(reference);
        let supervisor = Self { root, actor: actor.get_cell(), events, ended: end };
        match readiness.await {
            Ok(Ok(())) => Ok(supervisor),
            Ok(Err(reason)) => Err(StartError::Ended(reason)),
            Err(_) => Err(StartError::Ended(EndReason::Killed)),
        }
    }

    /// What happens in the tree from now on. A subscriber that lags more than 1024 events behind receives the number that
    /// it missed.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<TreeEvent> {
        self.events.subscribe()
    }

    /// Stops the tree: children in reverse order, each within its timeout or killed. Returns when it is down, with the
    /// reason why it ended; a tree that has ended before is fine.
    pub async fn stop(&self) -> EndReason {
        // The supervisor may have ended already.
        let _ = self.root.send(Msg::Shutdown);
        self.join().await
    }

    /// Waits until the tree has ended, and returns the reason.
    pub async fn join(&self) -> EndReason {
        let mut ended = self.ended.clone();
        let reason = match ended.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone(),
            Err(_) => None,
        };
        // Boxed, because it is part of many futures that wait for runs and rarely executed.
        let _ = Box::pin(self.actor.wait(None)).await;
        reason.unwrap_or(EndReason::Killed)
    }
}
