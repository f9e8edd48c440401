//! Delegates tasks of a model to other agents, with the part of the conversation that these receive.

use callboard::actors::TurnError;
use callboard::messages::{AgentEvent, ConversationStrategy, Json, Message};
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;

use crate::briefing::{Summary, briefing, transcript};
use crate::builtin_agents::BuiltIn;
use crate::meta;
use crate::model::estimated_tokens;

use super::AgentLoop;
use super::context::{Answered, LoopContext};
use super::host::Host;
use super::text::words;
use super::uses::Use;

/// The factor by which a conversation to be summed up may be longer than the part that another agent receives.
const SUMMED_UP: u64 = 4;

/// A summary of the conversation, and its cost.
pub(super) struct SummedUp {
    summary: Summary,
    /// The tokens read and written for it, as an estimate.
    tokens: u64,
}

impl AgentLoop {
    /// Has the conversation summed up, if one of these uses needs that: once for all of them, before the first begins.
    pub(super) async fn sum_up(
        &self,
        host: &dyn Host,
        context: &Mutex<LoopContext>,
        uses: &[Use],
    ) -> Result<Option<SummedUp>, TurnError> {
        let needs_one = |one: &Use| match one {
            Use::Delegate(task) => self.strategy(task) == ConversationStrategy::Summary,
            Use::Answer(_)
            | Use::AfterPermission(..)
            | Use::Tool(..)
            | Use::Ask(_)
            | Use::Make { .. }
            | Use::Keep(..)
            | Use::Handoff(_)
            | Use::AcceptHandoff
            | Use::Search(_) => false,
        };
        if !uses.iter().any(needs_one) {
            return Ok(None);
        }
        let reported = transcript(&so_far(&context.lock()), self.reported_tokens().saturating_mul(SUMMED_UP));
        let intro = match reported.left_out {
            0 => String::new(),
            more => format!("({more} older messages are not here.)\n"),
        };
        let text = format!("{intro}{}", reported.text);
        let read = estimated_tokens(text.len());
        let summarizer = BuiltIn::Summarizer.name();
        let answer = host.delegate(summarizer, "Sum up this conversation.", Some(Json::from(text))).await?;
        let summary: Summary = match answer.map(|answer| words(&answer)) {
            Ok(summary) if summary.trim().is_empty() => Err("the summary is empty".into()),
            Ok(summary) => Ok(summary.into()),
            Err(why) => Err(why.into()),
        };
        let written = summary.as_ref().map_or(0, |summary| estimated_tokens(summary.len()));
        Ok(Some(SummedUp { summary, tokens: read + written }))
    }

    /// Delegates a task, with the part of the conversation that the other agent receives.
    pub(super) fn delegate<'a>(
        &self,
        host: &'a dyn Host,
        context: &Mutex<LoopContext>,
        summed_up: Option<&SummedUp>,
        task: meta::Task,
    ) -> BoxFuture<'a, Result<Answered, TurnError>> {
        let strategy = self.strategy(&task);
        let meta::Task { agent, task, input, context: _ } = task;
        let asked = match &input {
            Some(input) => format!("{task}\n\nTo work on:\n{}", words(input)),
            None => task.clone(),
        };
        let summary = summed_up.map(|summed_up| &summed_up.summary);
        let reported = match strategy {
            ConversationStrategy::None => None,
            ConversationStrategy::Summary | ConversationStrategy::Filtered | ConversationStrategy::Full => {
                briefing(strategy, &so_far(&context.lock()), &asked, self.reported_tokens(), summary)
            }
        };
        let input = match reported {
            None => input.map(Json::from),
            Some(reported) => {
                let of_summary = summed_up.filter(|_| strategy == ConversationStrategy::Summary);
                host.show(AgentEvent::ContextGiven {
                    to: agent.as_str().into(),
                    strategy,
                    tokens: reported.tokens,
                    passages: reported.passages,
                    left_out: reported.left_out,
                    summary_tokens: of_summary.map_or(0, |summed_up| summed_up.tokens),
                    problem: of_summary.and_then(|summed_up| summed_up.summary.as_ref().err().cloned()),
                });
                Some(Json::from(reported.text))
            }
        };
        let answer = host.delegate(&agent, &task, input);
        answer.map(|answer| Ok(answer?.map_or_else(Answered::error, |answer| Answered::of(words(&answer))))).boxed()
    }

    fn strategy(&self, task: &meta::Task) -> ConversationStrategy {
        task.context.unwrap_or(self.settings.conversation.0)
    }

    fn reported_tokens(&self) -> u64 {
        self.settings.conversation.1.into()
    }
}

/// The conversation before the current calls, including the text with which the model made them.
fn so_far(context: &LoopContext) -> Vec<Message> {
    let mut history: Vec<Message> = (*context.history).clone();
    if let Some(Message::Assistant { text, calls }) = history.last_mut() {
        if text.is_empty() {
            history.pop();
        } else {
            calls.clear();
        }
    }
    history
}

#[cfg(test)]
mod tests {
    use super::*;
    use callboard::messages::ToolCall;

    #[test]
    fn what_is_passed_on_ends_before_the_calls_that_are_being_made() {
        let call = vec![ToolCall::new("1", "Task", "{}")];
        let said = |text: &str| Message::Assistant { text: text.into(), calls: call.clone() };
        let of = |last: Message| so_far(&LoopContext::begin(vec![Message::user("go"), last]));
        assert_eq!(of(said("")), [Message::user("go")]);
        assert_eq!(
            of(said("I ask.")),
            [Message::user("go"), Message::Assistant { text: "I ask.".into(), calls: vec![] }]
        );
    }
}
