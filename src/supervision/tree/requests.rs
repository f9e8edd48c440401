//! What a supervisor is asked from outside.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::child::{Child, Origin, Phase, Then};
use super::errors::{ControlError, SpecError};
use super::event::{Halted, TreeEventKind};
use super::message::Reply;
use super::node::{ActorState, NodeKind, TreeNode};
use super::restart::Strategy;
use super::snapshot::{NodeDraft, complete};
use super::spec::ChildSpec;
use super::state::{Life, SupervisorState};

impl SupervisorState {
    pub(super) fn add(&mut self, spec: ChildSpec, reply: Reply) {
        let taken = self.children.named(&spec.id).is_some();
        let checked = match self.not_ready() {
            Some(error) => Err(error),
            None if taken => Err(SpecError::DuplicateId { child: Arc::clone(&spec.id) }.into()),
            None => spec.check(&self.spec).map_err(ControlError::Invalid),
        };
        match checked {
            Err(error) => refuse(reply, error),
            Ok(()) => {
                let mut child = Child::new(spec, &self.path, Origin::Added);
                child.start_reply = Some(reply);
                self.children.push(child);
            }
        }
    }

    pub(super) fn terminate(&mut self, id: Arc<str>, remove: bool, reply: Reply) {
        if let Some(error) = self.not_ready() {
            return refuse(reply, error);
        }
        let Some(position) = self.children.named(&id) else {
            return refuse(reply, ControlError::UnknownChild { child: id });
        };
        let remove = remove || self.spec.policy.strategy == Strategy::SimpleOneForOne;
        let child = &mut self.children[position];
        let then = child.after_stop(if remove { Then::Remove } else { Then::Stay });
        child.stop_replies.push(reply);
        match child.phase() {
            Phase::Waiting(_) => {
                self.events.emit(&child.path, child.generation, TreeEventKind::Stopped { halted: Halted::Stopped });
                self.settle(position, then);
            }
            Phase::Down | Phase::Failed => self.settle(position, then),
            Phase::Starting | Phase::Running => self.begin_stop(position, then),
            Phase::Doomed(Then::Remove) | Phase::Stopping(Then::Remove) => {}
            Phase::Doomed(Then::Stay | Then::Restart(_)) => self.children.enter(position, Phase::Doomed(then)),
            Phase::Stopping(Then::Stay | Then::Restart(_)) => self.children.enter(position, Phase::Stopping(then)),
        }
    }

    pub(super) fn restart_by_hand(&mut self, id: Arc<str>, reply: Reply) {
        if let Some(error) = self.not_ready() {
            return refuse(reply, error);
        }
        let now = self.env.now().monotonic;
        let Some(position) = self.children.named(&id) else {
            return refuse(reply, ControlError::UnknownChild { child: id });
        };
        let child = &mut self.children[position];
        match child.phase() {
            Phase::Down | Phase::Failed => {
                // The supervisor's window keeps its entries: they are of all children, and a child that is restarted by
                // hand again and again must not hide what the others do.
                child.window.clear();
                child.origin = Origin::ByHand;
                child.start_reply = Some(reply);
                self.children.enter(position, Phase::Waiting(None));
            }
            Phase::Waiting(_) | Phase::Starting | Phase::Running | Phase::Doomed(_) | Phase::Stopping(_) => {
                refuse(reply, ControlError::NotStopped { child: id, state: child.state(now) });
            }
        }
    }

    pub(super) fn snapshot(&mut self, budget: Duration, reply: oneshot::Sender<TreeNode>) {
        let now = self.env.now().monotonic;
        let node = TreeNode {
            name: self.spec.name.to_string(),
            kind: NodeKind::Supervisor(self.spec.policy.strategy),
            state: self.state(),
            generation: self.generation,
            restarts: 0,
            mailbox_depth: None,
            detail: None,
            last_error: None,
            uptime: Some(now.saturating_sub(self.since)),
            children: Vec::new(),
        };
        let children = self.children.iter().map(|child| NodeDraft::new(child, now)).collect();
        self.spawn(async move {
            // The caller may have left.
            let _ = reply.send(complete(node, children, budget).await);
        });
    }

    fn state(&self) -> ActorState {
        match self.life {
            Life::Starting(_) => ActorState::Starting,
            Life::Running => ActorState::Running,
            Life::Ending(..) => ActorState::Stopping,
            Life::Over => ActorState::Stopped,
        }
    }

    fn not_ready(&self) -> Option<ControlError> {
        let state = self.state();
        (state != ActorState::Running).then_some(ControlError::NotReady { state })
    }
}

fn refuse(reply: Reply, error: ControlError) {
    // The caller may have left.
    let _ = reply.send(Err(error));
}
