//! A snapshot of a tree: its nodes with their states, and how they are printed.

use std::fmt;
use std::time::Duration;

use super::restart::Strategy;
use crate::messages::visible;

/// The state of a supervisor or worker in a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActorState {
    /// Being started, or to be started for the first time.
    Starting,
    /// Started, and neither stopping nor ended.
    Running,
    /// It has no actor until work comes for it: an agent of a board that is [dormant](crate::AgentSpec::dormant). A supervisor has no
    /// such children itself.
    Dormant,
    /// To be started again by its supervisor, or being started again.
    Restarting {
        /// The wait that is left; zero while it starts or waits for its siblings.
        after: Duration,
    },
    /// Being stopped, or to be stopped when those after it are down.
    Stopping,
    /// Down, and no restart is due: it ended for good, was stopped on request, or did not start after
    /// [`restart_child`](super::SupervisorRef::restart_child).
    Stopped,
    /// Restarted more often than its [own intensity](super::ChildSpec::own_intensity) allows. It stays down until
    /// [`restart_child`](super::SupervisorRef::restart_child) starts it again.
    Failed,
}

impl fmt::Display for ActorState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starting => f.write_str("starting"),
            Self::Running => f.write_str("running"),
            Self::Dormant => f.write_str("dormant"),
            Self::Restarting { after: Duration::ZERO } => f.write_str("restarting"),
            Self::Restarting { after } => write!(f, "restarting in {}", Rounded(*after)),
            Self::Stopping => f.write_str("stopping"),
            Self::Stopped => f.write_str("stopped"),
            Self::Failed => f.write_str("failed"),
        }
    }
}

/// A node and what is below it. `Display` draws the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeNode {
    /// The child's id, or the root supervisor's name.
    pub name: String,
    /// The strategy of a supervisor; `None` for a worker, an actor of the user's.
    pub strategy: Option<Strategy>,
    /// The state at the time of the snapshot.
    pub state: ActorState,
    /// How often it has been started, failed starts included.
    pub generation: u64,
    /// How often its supervisor has restarted it.
    pub restarts: u64,
    /// Messages that wait for it, if its spec has a probe.
    pub mailbox_depth: Option<usize>,
    /// The text that the probe of [`ChildSpec::detail`](super::ChildSpec::detail) returned; `None` without a probe, and
    /// if the probe panics.
    pub detail: Option<String>,
    /// The cause of the last abnormal end or failed start, also after a restart; `None` if there was none, and for the
    /// supervisor that was asked for the snapshot.
    pub last_error: Option<String>,
    /// Time since the latest start, while it runs.
    pub uptime: Option<Duration>,
    /// Its children, in start order. Empty too if a supervisor did not answer in time.
    pub children: Vec<TreeNode>,
}

impl TreeNode {
    /// The node at a path below this one, such as `["agents", "reviewer"]`.
    #[must_use]
    pub fn find(&self, path: &[&str]) -> Option<&Self> {
        match path {
            [] => Some(self),
            [name, rest @ ..] => self.children.iter().find(|child| child.name == *name)?.find(rest),
        }
    }

    fn draw(&self, f: &mut fmt::Formatter<'_>, indent: &str) -> fmt::Result {
        f.write_str(&visible(&self.name))?;
        if let Some(strategy) = self.strategy {
            write!(f, " ({strategy})")?;
        }
        write!(f, "  {}", self.state)?;
        if self.generation > 0 {
            write!(f, "  gen {}", self.generation)?;
        }
        if self.restarts > 0 {
            write!(f, "  restarts {}", self.restarts)?;
        }
        if let Some(uptime) = self.uptime {
            write!(f, "  up {}", Rounded(uptime))?;
        }
        if let Some(depth) = self.mailbox_depth {
            write!(f, "  mailbox {depth}")?;
        }
        if let Some(detail) = &self.detail {
            write!(f, "  {}", visible(detail))?;
        }
        if let Some(error) = &self.last_error {
            write!(f, "  last error: {}", visible(error.lines().next().unwrap_or_default()))?;
        }
        for (index, child) in self.children.iter().enumerate() {
            let (branch, below) =
                if index + 1 < self.children.len() { ("├── ", "│   ") } else { ("└── ", "    ") };
            write!(f, "\n{indent}{branch}")?;
            child.draw(f, &format!("{indent}{below}"))?;
        }
        Ok(())
    }
}

impl fmt::Display for TreeNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.draw(f, "")
    }
}

/// A duration for people: milliseconds below a minute, then the two largest units.
pub(super) struct Rounded(pub(super) Duration);

impl fmt::Display for Rounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (secs, millis) = (self.0.as_secs(), self.0.subsec_millis());
        match (secs / 86_400, secs / 3600 % 24, secs / 60 % 60, secs % 60) {
            (0, 0, 0, 0) => write!(f, "{millis}ms"),
            (0, 0, 0, secs) => write!(f, "{:?}", Duration::new(secs, millis * 1_000_000)),
            (0, 0, minutes, secs) => write!(f, "{minutes}m {secs}s"),
            (0, hours, minutes, _) => write!(f, "{hours}h {minutes}m"),
            (days, hours, ..) => write!(f, "{days}d {hours}h"),
        }
    }
}
