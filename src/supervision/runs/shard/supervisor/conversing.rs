//! Runs that wait in a conversation, and the messages that they store there.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::env::Now;
use crate::messages::Durability;
use crate::supervision::answer_of;
use crate::supervision::runs::rules::run::Run;
use crate::supervision::runs::shard::conversing::{ConversationCheck, Left};
use crate::supervision::runs::shard::live::LiveRun;
use crate::supervision::runs::shard::queue::{RunMessage, ShardMessage};
use crate::supervision::runs::shard::timers::Timer;

use super::context::ShardContext;
use super::shard::RunShard;

/// The time after which a run looks again (1, 2, 4, 8, 16, then 30 s), in case the one before it ended on another board. An end
/// on this board wakes it at once.
fn wait_of(times: u32) -> Duration {
    Duration::from_secs(1 << times.min(5)).min(Duration::from_secs(30))
}

impl RunShard {
    /// Looks now and, while the run waits, again later; `times` counts the looks before this one.
    pub(super) fn look_and_wait(&mut self, live: &LiveRun, times: u32, now: Now) {
        if live.run.waits_for_conversation() {
            let next = Timer::Conversation(live.run.id(), times.saturating_add(1));
            self.timers.add(now.monotonic + wait_of(times), next);
            self.look_at_conversation(live, now);
        }
    }

    /// Checks whether a run may start in its conversation.
    pub(super) fn look_at_conversation(&self, live: &LiveRun, now: Now) {
        let run = &live.run;
        let Some(conversation) = run.conversation().filter(|_| run.waits_for_conversation()).cloned() else { return };
        let who = (run.id(), run.owner(), run.submission().at);
        let (shared, durability, id) = (self.shared.clone(), live.durability, run.id());
        tokio::spawn(async move {
            let look = shared.conversations.look(&conversation, who, durability, (&shared.queue, now.wall));
            let message = match answer_of(look).await {
                Ok(ConversationCheck::Waits) => return,
                Ok(ConversationCheck::Read(read)) => RunMessage::ConversationRead { read },
                Ok(ConversationCheck::Foreign(owner)) => {
                    let error = format!("conversation {conversation} belongs to {owner}; choose another one");
                    RunMessage::Fail { error }
                }
                Err(error) if error.is_transient() => {
                    return tracing::warn!(run = %id, %conversation, %error, "the conversation could not be read; it is read again");
                }
                Err(error) => RunMessage::Fail { error: format!("conversation {conversation}: {error}") },
            };
            shared.queue.enqueue(ShardMessage::Run { run: id, message }).drain();
        });
    }
}

impl ShardContext {
    /// Stores the messages of an ended run in its conversation, if it is in one. If that fails, the next run or reader stores
    /// them.
    pub(super) fn leave_conversation(&self, run: &Run, durability: Durability) -> Option<BoxFuture<'static, ()>> {
        let (conversation, left) = Left::of(run)?;
        let (queue, run) = (self.conversations.clone(), run.id());
        let leave = async move {
            if let Err(error) = answer_of(queue.leave(&conversation, left, durability)).await {
                tracing::warn!(%run, %conversation, %error, "the run's messages are not stored yet; the next run or reader stores them");
            }
        };
        Some(leave.boxed())
    }
}
