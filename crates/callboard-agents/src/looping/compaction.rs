//! Has a conversation compacted when it has become too long, by a delegation to the agent that sums up.

use std::sync::Arc;

use callboard::actors::TurnError;
use callboard::messages::{AgentEvent, Json, Message};
use parking_lot::Mutex;

use crate::briefing::{shortened, transcript};
use crate::builtin_agents::BuiltIn;
use crate::compaction;

use super::AgentLoop;
use super::context::LoopContext;
use super::host::Host;
use super::text::words;

/// A conversation whose next request would be too long.
struct TooLong {
    cut: compaction::Cut,
    history: Arc<Vec<Message>>,
    before: Option<compaction::Compacted>,
    /// How many tokens the request would have, as an estimate.
    tokens: u64,
}

impl AgentLoop {
    /// Has the older messages summed up if the next request would be too long. If no agent can do that, nothing is left out, and
    /// it is not tried again.
    pub(super) async fn compact(&self, host: &dyn Host, context: &Mutex<LoopContext>) -> Result<(), TurnError> {
        let Some(compact_at) = self.settings.compact_at.map(u64::from) else { return Ok(()) };
        let Some(too_long) = self.too_long(host, &context.lock(), compact_at) else { return Ok(()) };
        let TooLong { cut, history, before, tokens } = too_long;
        let summed_up = cut.summed_up(&history, before.as_ref());
        let reported = transcript(&summed_up, compact_at);
        let left_out = match reported.left_out {
            0 => String::new(),
            more => format!(" ({more} still older messages are not here)"),
        };
        let task = cut.task(&history, before.as_ref());
        let input = format!("The task:\n{task}\n\nThe older part of the conversation{left_out}:\n{}", reported.text);
        let compactor = BuiltIn::Compactor.name();
        let body = "Make the older part of this conversation short.";
        let answer = host.delegate(compactor, body, Some(Json::from(input))).await?;
        match answer.map(|answer| words(&answer)) {
            Ok(summary) if !summary.trim().is_empty() => {
                let messages = u32::try_from(cut.len(&history)).unwrap_or(u32::MAX);
                // A summary as long as the messages would not help.
                let summary = shortened(&summary, compact_at / 4);
                let (short, compacted) = cut.apply(&history, before.as_ref(), &summary);
                let after = {
                    let mut context = context.lock();
                    context.shortened(short, compacted);
                    self.request(host, &context).estimated_tokens()
                };
                host.show(AgentEvent::Compacted { messages, tokens_before: tokens, tokens_after: after });
            }
            other => {
                let why = other.err().unwrap_or_else(|| format!("{compactor} has said nothing"));
                context.lock().is_left_long = true;
                host.show(AgentEvent::NotCompacted { why: why.into() });
            }
        }
        Ok(())
    }

    fn too_long(&self, host: &dyn Host, context: &LoopContext, compact_at: u64) -> Option<TooLong> {
        // The model is not asked again.
        if context.is_left_long || context.iteration == self.settings.max_iterations {
            return None;
        }
        let tokens = self.request(host, context).estimated_tokens();
        if tokens <= compact_at {
            return None;
        }
        // The room beside prompt and tools. If these alone exceed it, a quarter is used, so that not every answer is summed up at
        // once.
        let room = compact_at.saturating_sub(tokens - compaction::tokens(&context.history)).max(compact_at / 4);
        let cut = compaction::cut(&context.history, context.begun_at, room)?;
        Some(TooLong { cut, history: Arc::clone(&context.history), before: context.compacted.clone(), tokens })
    }
}
