//! Takes a snapshot of a tree: each supervisor asks those below it, within a budget of time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use futures::future::join_all;
use ractor::ActorRef;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::child::Child;
use super::message::Msg;
use super::node::TreeNode;
use super::spec::{ChildSpec, Kind};

/// A child as its supervisor knows it, with what is needed to complete its node.
pub(super) struct NodeDraft {
    node: TreeNode,
    supervisor: Option<ActorRef<Msg>>,
    spec: ChildSpec,
}

impl NodeDraft {
    pub(super) fn new(child: &Child, now: Duration) -> Self {
        let strategy = match &child.spec.kind {
            Kind::Worker(_) => None,
            Kind::Supervisor(spec) => Some(spec.policy.strategy),
        };
        let node = TreeNode {
            name: child.spec.id.to_string(),
            strategy,
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
pub(super) async fn complete(mut node: TreeNode, children: Vec<NodeDraft>, budget: Duration) -> TreeNode {
    node.children = join_all(children.into_iter().map(|child| child.finish(budget))).await;
    node
}
