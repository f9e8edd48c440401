//! A picture of a tree at one moment.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use futures::future::join_all;
use ractor::ActorRef;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::child::Child;
use super::restart::Strategy;
use super::spec::{ChildSpec, Kind};
use super::supervisor::Msg;
use crate::messages::visible;

/// What a node of a tree is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeKind {
    /// A supervisor with this strategy.
    Supervisor(Strategy),
    /// An actor of the user's.
    Worker,
}

/// Where a node is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeState {
    /// Being started, or next in line for its first start.
    Starting,
    /// Up.
    Running,
    /// To be started again.
    Restarting {
        /// The wait that is left; zero while it starts or waits for its siblings.
        after: Duration,
    },
    /// Being stopped, or next in line for it.
    Stopping,
    /// Ended, or stopped by hand.
    Stopped,
    /// Restarted too often.
    Failed,
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starting => f.write_str("starting"),
            Self::Running => f.write_str("running"),
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
    /// Supervisor or worker.
    pub kind: NodeKind,
    /// Where it is in its life.
    pub state: NodeState,
    /// How often it has been started, failed starts included.
    pub generation: u64,
    /// How often its supervisor has brought it back.
    pub restarts: u64,
    /// Messages that wait for it, if its spec has a probe.
    pub mailbox_depth: Option<usize>,
    /// What the probe in its spec had to say.
    pub detail: Option<String>,
    /// The last failure.
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
        if let NodeKind::Supervisor(strategy) = self.kind {
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

/// A child as its supervisor knows it, with whom to ask for the rest.
pub(super) struct Draft {
    node: TreeNode,
    supervisor: Option<ActorRef<Msg>>,
    spec: ChildSpec,
}

impl Draft {
    pub(super) fn new(child: &Child, now: Duration) -> Self {
        let kind = match &child.spec.kind {
            Kind::Worker(_) => NodeKind::Worker,
            Kind::Supervisor(spec) => NodeKind::Supervisor(spec.policy.strategy),
        };
        let node = TreeNode {
            name: child.spec.id.to_string(),
            kind,
            state: child.state(now),
            generation: child.generation,
            restarts: child.restarts,
            mailbox_depth: None,
            detail: None,
            last_error: child.last_error.clone(),
            uptime: child.running_since.map(|since| now.saturating_sub(since)),
            children: Vec::new(),
        };
        let supervisor = child.actor().filter(|_| child.spec.is_supervisor()).map(|cell| cell.clone().into());
        Self { node, supervisor, spec: child.spec.clone() }
    }

    /// Runs the user's probes and asks a supervisor for its children, for as long as `budget`.
    async fn finish(self, budget: Duration) -> TreeNode {
        let Self { mut node, supervisor, spec } = self;
        node.mailbox_depth = spec.mailbox_depth.and_then(|probe| catch_unwind(AssertUnwindSafe(|| probe())).ok());
        node.detail = spec.detail.and_then(|probe| catch_unwind(AssertUnwindSafe(|| probe())).ok().flatten());
        if let Some(supervisor) = supervisor {
            let (reply, answer) = oneshot::channel();
            // Less than our own budget, so that an answer from below still arrives in time.
            if supervisor.cast(Msg::Snapshot { budget: budget * 3 / 4, reply }).is_ok()
                && let Ok(Ok(below)) = timeout(budget, answer).await
            {
                node.children = below.children;
            }
        }
        node
    }
}

/// Completes a supervisor's node with its children.
pub(super) async fn complete(mut node: TreeNode, children: Vec<Draft>, budget: Duration) -> TreeNode {
    node.children = join_all(children.into_iter().map(|child| child.finish(budget))).await;
    node
}
