//! What is posted to the router. Posts are collected outside its actor, so a restart loses none.

use std::sync::Arc;

use parking_lot::Mutex;
use ractor::ActorRef;

use crate::env::Env;
use crate::messages::{AgentName, Announcement, Presence};
use crate::supervision::Mailbox;

use super::actor::Posted;
use super::ledger::Placed;

/// Something for the router to enter.
#[derive(Debug)]
pub(super) enum Post {
    /// Into an inbox, and the statuses with it.
    Message(Placed),
    /// Into the directory.
    Presence(Presence),
}

#[derive(Default)]
pub(super) struct Posts {
    waiting: Mutex<Vec<Post>>,
    actor: Mailbox<Posted>,
}

impl Posts {
    /// Where the actor is from now on; it looks for posts after this.
    pub(super) fn attach(&self, actor: ActorRef<Posted>) {
        self.actor.attach(actor);
    }

    /// Somebody may watch who comes and goes, so that is entered at once. Messages are entered by whoever looks at them
    /// next, so the actor is woken only when many have come together.
    pub(super) fn add(&self, post: Post) {
        const MANY: usize = 64;
        let is_presence = matches!(post, Post::Presence(_));
        let is_due = {
            let mut waiting = self.waiting.lock();
            waiting.push(post);
            is_presence || waiting.len().is_multiple_of(MANY)
        };
        if is_due {
            self.actor.tell(Posted);
        }
    }

    pub(super) fn take(&self) -> Vec<Post> {
        std::mem::take(&mut *self.waiting.lock())
    }
}

/// What an agent says of itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Description {
    pub(crate) role: Option<Arc<str>>,
    pub(crate) capabilities: Vec<Arc<str>>,
    pub(crate) projects: Vec<Arc<str>>,
}

/// Announces and withdraws one agent.
#[derive(Clone)]
pub(crate) struct Herald {
    pub(super) agent: AgentName,
    pub(crate) description: Description,
    pub(super) posts: Arc<Posts>,
    pub(super) env: Env,
}

impl Herald {
    /// The agent has started.
    pub(crate) fn announce(&self, instance: u64) {
        let Description { role, capabilities, projects } = self.description.clone();
        let (agent, at) = (self.agent.clone(), self.env.now().wall);
        let announcement = Announcement { agent, role, capabilities, projects, instance, at };
        self.posts.add(Post::Presence(Presence::Announced(announcement)));
    }

    /// The agent has stopped, or failed too often.
    pub(crate) fn withdraw(&self, instance: u64) {
        let (agent, at) = (self.agent.clone(), self.env.now().wall);
        self.posts.add(Post::Presence(Presence::Withdrawn { agent, instance, at }));
    }
}
