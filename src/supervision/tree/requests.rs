//! Handles requests from outside of the tree.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::child::{Child, Origin, Phase, Then};
use super::errors::{ControlError, SpecError};
use super::event::TreeEventKind;
use super::message::Reply;
use super::node::{ActorState, TreeNode};
use super::restart::{Position, Strategy};
use super::snapshot::{NodeDraft, complete};
use super::spec::ChildSpec;
use super::state::{Life, SupervisorState};

impl SupervisorState {
    pub(super) fn start_child(&mut self, spec: ChildSpec, reply: Reply) {
        match self.check_new(&spec) {
            Err(error) => refuse(reply, error),
            Ok(()) => {
                let mut child = Child::new(spec, &self.path, Origin::Added);
                child.start_reply = Some(reply);
                self.children.push(child);
            }
        }
    }

    fn check_new(&self, spec: &ChildSpec) -> Result<(), ControlError> {
        self.ready()?;
        if self.children.named(&spec.id).is_some() {
            return Err(SpecError::DuplicateId { child: Arc::clone(&spec.id) }.into());
        }
        Ok(spec.check(&self.spec)?)
    }

    pub(super) fn terminate_child(&mut self, id: &Arc<str>, remove: bool, reply: Reply) {
        let position = match self.find(id) {
            Ok(position) => position,
            Err(error) => return refuse(reply, error),
        };
        let remove = remove || self.spec.policy.strategy == Strategy::SimpleOneForOne;
        let child = &mut self.children[position];
        let then = child.after_stop(if remove { Then::Remove } else { Then::Stay });
        child.stop_replies.push(reply);
        match child.phase() {
            Phase::Waiting(_) => {
                self.events.emit(&child.path, child.generation, TreeEventKind::Stopped);
                self.settle(position, then);
            }
            Phase::Down | Phase::Failed => self.settle(position, then),
            Phase::Starting | Phase::Running => self.begin_stop(position, then),
            Phase::Doomed(Then::Remove) | Phase::Stopping(Then::Remove) => {}
            Phase::Doomed(Then::Stay | Then::Restart(_)) => self.children.enter(position, Phase::Doomed(then)),
            Phase::Stopping(Then::Stay | Then::Restart(_)) => self.children.enter(position, Phase::Stopping(then)),
        }
    }

    pub(super) fn restart_child(&mut self, id: &Arc<str>, reply: Reply) {
        match self.find_down(id) {
            Err(error) => refuse(reply, error),
            Ok(position) => {
                let child = &mut self.children[position];
                // The supervisor's window keeps its entries: they are of all children, and a child that is restarted by
                // hand again and again must not hide what the others do.
                child.window.clear();
                child.origin = Origin::ByHand;
                child.start_reply = Some(reply);
                self.children.enter(position, Phase::Waiting(None));
            }
        }
    }

    /// A child that is stopped or failed.
    fn find_down(&self, id: &Arc<str>) -> Result<Position, ControlError> {
        let position = self.find(id)?;
        let child = &self.children[position];
        match child.phase() {
            Phase::Down | Phase::Failed => Ok(position),
            Phase::Waiting(_) | Phase::Starting | Phase::Running | Phase::Doomed(_) | Phase::Stopping(_) => {
                let state = child.state(self.env.now().monotonic);
                Err(ControlError::NotStopped { child: Arc::clone(id), state })
            }
        }
    }

    fn find(&self, id: &Arc<str>) -> Result<Position, ControlError> {
        self.ready()?;
        self.children.named(id).ok_or_else(|| ControlError::UnknownChild { child: Arc::clone(id) })
    }

    pub(super) fn snapshot(&mut self, budget: Duration, reply: oneshot::Sender<TreeNode>) {
        let now = self.env.now().monotonic;
        let node = TreeNode {
            name: self.spec.name.to_string(),
            strategy: Some(self.spec.policy.strategy),
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
            // The caller may have stopped waiting.
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

    fn ready(&self) -> Result<(), ControlError> {
        match self.state() {
            ActorState::Running => Ok(()),
            state => Err(ControlError::NotReady { state }),
        }
    }
}

fn refuse(reply: Reply, error: ControlError) {
    // The caller may have stopped waiting.
    let _ = reply.send(Err(error));
}
