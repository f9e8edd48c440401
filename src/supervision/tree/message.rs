//! The messages of a supervisor.

use std::sync::Arc;
use std::time::Duration;

use ractor::ActorCell;
use tokio::sync::{oneshot, watch};

use super::errors::{ControlError, EndReason};
use super::event::{Events, TreeEventKind};
use super::node::TreeNode;
use super::restart::Position;
use super::spec::{ChildSpec, SupervisorSpec};
use crate::env::Env;

/// The reply to a request, sent once the child is in the requested state.
pub(super) type Reply = oneshot::Sender<Result<(), ControlError>>;

/// The key of one start of a child; reports of earlier starts do not match it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    pub(super) position: Position,
    pub(super) generation: u64,
}

/// How a launch ended.
pub(super) enum Launched {
    Started(ActorCell),
    Failed(String),
    /// Cancelled and undone.
    Cancelled {
        halted: TreeEventKind,
    },
}

/// A message to a supervisor.
pub(super) enum Msg {
    StartChild {
        child: ChildSpec,
        reply: Reply,
    },
    TerminateChild {
        id: Arc<str>,
        remove: bool,
        reply: Reply,
    },
    RestartChild {
        id: Arc<str>,
        reply: Reply,
    },
    Snapshot {
        budget: Duration,
        reply: oneshot::Sender<TreeNode>,
    },
    /// A test kills the actor at this path below the supervisor.
    #[cfg(any(test, feature = "testing"))]
    Kill {
        path: Vec<Arc<str>>,
        reply: oneshot::Sender<bool>,
    },
    Shutdown,
    /// A start has ended.
    Launched {
        key: Key,
        outcome: Launched,
    },
    /// A stop has ended.
    Halted {
        key: Key,
        halted: TreeEventKind,
    },
    /// The time is over for children that were asked to stop with this timeout, all at once.
    Overdue {
        limit: Duration,
    },
    /// The pause of an incident is over.
    PauseOver {
        incident: u64,
        positions: Vec<Position>,
    },
}

/// The start arguments of a supervisor.
pub(super) struct Arguments {
    pub(super) spec: Arc<SupervisorSpec>,
    pub(super) path: Arc<str>,
    pub(super) generation: u64,
    pub(super) env: Env,
    pub(super) events: Events,
    /// Answered when all first children run, or when the supervisor ends before.
    pub(super) ready: oneshot::Sender<Result<(), EndReason>>,
    pub(super) ended: watch::Sender<Option<EndReason>>,
}
