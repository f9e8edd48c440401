//! The events of a tree, as a stream.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;

use super::exit::Exit;
use super::node::Rounded;
use crate::env::Env;
use crate::messages::{Timestamp, visible, visible_lines};

/// Events that a slow subscriber may lag behind before it loses the oldest (and receives their number).
const CAPACITY: usize = 1024;

/// Something happened to a child or a supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeEvent {
    /// When it happened, by the wall clock.
    pub at: Timestamp,
    /// The path of the child or supervisor: the ids from the root on, joined by `/`.
    pub path: Arc<str>,
    /// Which start of the child or supervisor, counted from 1; 0 before the first.
    pub generation: u64,
    /// What happened to the child or supervisor at `path`.
    pub kind: TreeEventKind,
}

impl fmt::Display for TreeEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} gen {}: {}", visible(&self.path), self.generation, self.kind)
    }
}

/// What happened to a child or supervisor. `Display` prints it as a short text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeEventKind {
    /// The first start of the child (generation 1) has succeeded.
    Started,
    /// The child could not be started: it failed, panicked or took too long.
    StartFailed {
        /// The text of the error or panic, or what else kept the child from starting, such as its start timeout.
        error: String,
    },
    /// The child ended without having been asked to.
    Exited {
        /// How it ended, with the text of a panic.
        exit: Exit,
    },
    /// The supervisor has scheduled a new start of the child, because the child or a sibling ended or failed to start.
    RestartScheduled {
        /// The wait until then; siblings that have to stop first may make it longer.
        after: Duration,
    },
    /// A later start of the child has succeeded: by its supervisor, or by
    /// [`SupervisorRef::restart_child`](super::SupervisorRef::restart_child).
    Restarted,
    /// Its supervisor stopped the child, which ended within its timeout or did not run.
    Stopped,
    /// Its supervisor killed the child at once ([`Shutdown::BrutalKill`](super::Shutdown::BrutalKill)).
    Killed,
    /// The child ignored the stop of its supervisor for its whole timeout, and was killed.
    KilledAfterTimeout,
    /// Its supervisor killed the child, which was still there 5 s later, because it blocks its thread. The supervisor continues
    /// without it.
    LeftBehind,
    /// The child was restarted too often within its own window and stays down.
    Failed {
        /// How the child ended or failed to start the last time, as text.
        error: String,
    },
    /// The supervisor gives up: a child was restarted too often. It stops its children and fails.
    Escalated {
        /// The path of the child whose end exceeded the intensity.
        child: Arc<str>,
        /// How that child ended or failed to start, as text.
        error: String,
    },
}

impl fmt::Display for TreeEventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started => f.write_str("started"),
            Self::StartFailed { error } => write!(f, "did not start: {}", visible_lines(error)),
            Self::Exited { exit } => write!(f, "{exit}"),
            Self::RestartScheduled { after: Duration::ZERO } => f.write_str("restarts at once"),
            Self::RestartScheduled { after } => write!(f, "restarts in {}", Rounded(*after)),
            Self::Restarted => f.write_str("restarted"),
            Self::Stopped => f.write_str("stopped"),
            Self::Killed => f.write_str("was killed without a stop"),
            Self::KilledAfterTimeout => f.write_str("ignored its stop and was killed"),
            Self::LeftBehind => f.write_str("blocks its thread and was left behind"),
            Self::Failed { error } => write!(f, "restarted too often, stays down: {}", visible_lines(error)),
            Self::Escalated { child, error } => {
                write!(f, "gives up, {} was restarted too often: {}", visible(child), visible_lines(error))
            }
        }
    }
}

/// The channel for the events of a tree's supervisors.
#[derive(Clone)]
pub(super) struct Events {
    sender: broadcast::Sender<TreeEvent>,
    env: Env,
}

impl Events {
    pub(super) fn new(env: Env) -> Self {
        Self { sender: broadcast::Sender::new(CAPACITY), env }
    }

    pub(super) fn subscribe(&self) -> broadcast::Receiver<TreeEvent> {
        self.sender.subscribe()
    }

    pub(super) fn emit(&self, path: &Arc<str>, generation: u64, kind: TreeEventKind) {
        tracing::debug!(%path, generation, %kind, "supervision");
        let event = TreeEvent { at: self.env.now().wall, path: Arc::clone(path), generation, kind };
        // There may be no subscribers.
        let _ = self.sender.send(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_stop_has_what_the_child_did() {
        let ends = [
            TreeEventKind::Stopped,
            TreeEventKind::Killed,
            TreeEventKind::KilledAfterTimeout,
            TreeEventKind::LeftBehind,
        ];
        assert_eq!(
            ends.map(|end| end.to_string()),
            [
                "stopped",
                "was killed without a stop",
                "ignored its stop and was killed",
                "blocks its thread and was left behind"
            ]
        );
    }
}
