//! The state of a loop, and how answers change it. Pure: calls no model and no tool.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::StopReason;
use callboard::messages::{Action, AgentEvent, Cost, Json, Message, ToolCall, Usage};
use futures::future::{AbortHandle, AbortRegistration};
use serde::{Deserialize, Serialize};

use crate::compaction::Compacted;
use crate::model::size_of;

/// The state of a loop: its conversation, what it has used so far, and what it waits for.
#[derive(Clone, Debug, Default)]
pub struct LoopContext {
    /// How often the model was asked, the request under way included.
    pub iteration: u32,
    /// The calls of tools that its model has made, in order, refused and failed ones included.
    pub tool_calls: Vec<ToolCall>,
    /// The tokens of all answers, and what they cost, as far as prices are known.
    pub usage: Usage,
    /// The conversation; once it has become too long, the task with a summary, and the newest messages.
    pub history: Arc<Vec<Message>>,
    /// The index of this loop's first message.
    pub(super) begun_at: usize,
    /// Tools that a search has made available.
    pub activated: BTreeSet<Arc<str>>,
    /// What the model said in each iteration.
    pub texts: Vec<Arc<str>>,
    /// What people are asked consent for just now, by call.
    pub pending_permissions: BTreeMap<Arc<str>, Action>,
    /// What people are asked just now, by call.
    pub pending_questions: BTreeMap<Arc<str>, Json>,
    /// Stops the loop at the await where it is.
    pub cancel: CancelToken,
    /// It has read untrusted input, and is tainted.
    pub is_tainted: bool,
    /// The model was asked again because its answer did not match.
    pub(super) is_asked_again: bool,
    /// The task and summary, if messages were summed up.
    pub(super) compacted: Option<Compacted>,
    /// Summing up has failed, and is not tried again.
    pub(super) is_left_long: bool,
    /// The number of messages whose size is known, and that size, so that a long conversation is not measured for each request.
    measured: (usize, usize),
    /// The ids of all calls. A call with an empty id, or with one of these, receives a new id.
    ids: BTreeSet<Arc<str>>,
}

/// Stops a loop. A cheap clone; a tool or a subscriber may keep one. The default one stops nothing: a turn is stopped by its
/// board.
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Option<AbortHandle>);

impl CancelToken {
    /// Stops the loop at the await where it is, and drops what it waits for.
    pub fn cancel(&self) {
        if let Some(handle) = &self.0 {
            handle.abort();
        }
    }

    /// Returns whether [`CancelToken::cancel`] was called; never for the default token.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.as_ref().is_some_and(AbortHandle::is_aborted)
    }
}

/// A model's answer in the form that is journaled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Reply {
    pub(super) text: Arc<str>,
    pub(super) calls: Vec<ToolCall>,
    pub(super) stop: StopReason,
    pub(super) usage: Usage,
    pub(super) is_estimate: bool,
    pub(super) model: Arc<str>,
    pub(super) cost: Option<Cost>,
}

impl Reply {
    /// What it took, for observers.
    pub(super) fn usage(&self) -> AgentEvent {
        let Self { usage, is_estimate, model, cost, .. } = self;
        AgentEvent::Usage { model: Arc::clone(model), usage: *usage, is_estimate: *is_estimate, cost: *cost }
    }
}

/// A tool's answer in the form that is journaled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Answered {
    pub(super) text: Arc<str>,
    pub(super) is_error: bool,
    pub(super) is_untrusted: bool,
}

impl Answered {
    pub(super) fn error(text: impl Into<Arc<str>>) -> Self {
        Self { text: text.into(), is_error: true, is_untrusted: false }
    }

    pub(super) fn of(text: impl Into<Arc<str>>) -> Self {
        Self { text: text.into(), is_error: false, is_untrusted: false }
    }
}

/// What follows an answer of the model.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum After {
    /// Use these tools, and ask the model again.
    Use(Vec<ToolCall>),
    /// The model has answered with this text; the loop ends if the text matches.
    Answer(Arc<str>),
    /// The answer was cut or withheld, and the loop fails with this reason.
    Fail(&'static str),
}

impl LoopContext {
    /// The beginning of a conversation.
    pub(super) fn begin(history: Vec<Message>) -> Self {
        Self { begun_at: history.len(), history: Arc::new(history), ..Self::default() }
    }

    /// As [`LoopContext::begin`], with a registration for its cancellation token.
    pub(super) fn begin_cancellable(history: Vec<Message>) -> (Self, AbortRegistration) {
        let (handle, registration) = AbortHandle::new_pair();
        (Self { cancel: CancelToken(Some(handle)), ..Self::begin(history) }, registration)
    }

    /// Returns the messages that this loop has added, of those that are not summed up.
    #[must_use]
    pub fn new_messages(&self) -> &[Message] {
        self.history.get(self.begun_at..).unwrap_or_default()
    }

    /// Returns what the model has said in all iterations, with a line break between two texts. Empty texts are left
    /// out.
    #[must_use]
    pub fn text(&self) -> String {
        let said: Vec<&str> = self.texts.iter().map(|text| &**text).filter(|text| !text.is_empty()).collect();
        said.join("\n")
    }

    /// Adds an answer of the model.
    pub(super) fn replied(&mut self, reply: Reply) -> After {
        let Reply { text, calls, stop, usage, is_estimate: _, model: _, cost: _ } = reply;
        self.usage += usage;
        let calls = self.with_unique_ids(calls);
        self.tool_calls.extend_from_slice(&calls);
        self.texts.push(Arc::clone(&text));
        let said = Arc::clone(&text);
        Arc::make_mut(&mut self.history).push(Message::Assistant { text, calls: calls.clone() });
        if !calls.is_empty() {
            return After::Use(calls);
        }
        match stop {
            // A model that stops for tools and calls none has finished its answer.
            StopReason::Finished | StopReason::ToolCalls | StopReason::Other(_) => After::Answer(said),
            StopReason::Length => After::Fail("the model's answer was cut: raise its `max_tokens`"),
            StopReason::Filtered => After::Fail("the provider withheld the model's answer"),
        }
    }

    /// The size of the messages, for the estimate of the next request.
    pub(super) fn measure(&mut self) -> usize {
        let (count, size) = self.measured;
        let new: usize = self.history.iter().skip(count).map(size_of).sum();
        self.measured = (self.history.len(), size + new);
        size + new
    }

    /// Replaces the history by one whose older part is summed up.
    pub(super) fn shortened(&mut self, history: Vec<Message>, compacted: Compacted) {
        (self.history, self.begun_at, self.compacted) = (Arc::new(history), 1, Some(compacted));
        self.measured = (0, 0);
    }

    /// Adds the answers of the tools, in the order of their calls.
    pub(super) fn answered(&mut self, answers: impl IntoIterator<Item = (ToolCall, Answered)>) {
        let history = Arc::make_mut(&mut self.history);
        for (call, Answered { text, is_error, is_untrusted }) in answers {
            self.is_tainted |= is_untrusted;
            history.push(Message::Tool { call: call.id, name: call.name, text, is_error });
        }
    }

    /// Calls that can be distinguished: some models restart their numbering in each answer, or use no ids.
    fn with_unique_ids(&mut self, mut calls: Vec<ToolCall>) -> Vec<ToolCall> {
        for (position, call) in calls.iter_mut().enumerate() {
            let mut again = 0;
            while call.id.is_empty() || !self.ids.insert(Arc::clone(&call.id)) {
                again += 1;
                call.id = format!("call-{}-{position}-{again}", self.iteration).into();
            }
        }
        calls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(text: &str, calls: &[(&str, &str)], stop: StopReason) -> Reply {
        Reply {
            text: text.into(),
            calls: calls.iter().map(|(id, name)| ToolCall::new(id, name, serde_json::json!({}))).collect(),
            stop,
            usage: Usage { cost: Cost(7), ..Usage::of(10, 2) },
            is_estimate: false,
            model: "m".into(),
            cost: Some(Cost(7)),
        }
    }

    #[test]
    fn an_answer_without_calls_ends_it_and_one_with_calls_continues() {
        let mut context = LoopContext::begin(vec![Message::user("go")]);
        let After::Use(calls) = context.replied(reply("", &[("a", "x")], StopReason::ToolCalls)) else { panic!() };
        context.answered(calls.into_iter().map(|call| (call, Answered::of("done"))));
        assert_eq!(context.replied(reply("fine", &[], StopReason::Finished)), After::Answer("fine".into()));
        assert_eq!(context.usage, Usage { cost: Cost(14), ..Usage::of(20, 4) });
        assert_eq!((context.tool_calls.len(), context.text()), (1, "fine".to_owned()));
        assert_eq!(context.new_messages().len(), 3);
    }

    #[test]
    fn the_size_of_a_conversation_is_that_of_its_messages_also_once_they_were_summed_up() {
        let mut context = LoopContext::begin(vec![Message::user("go")]);
        let is_right =
            |context: &mut LoopContext| context.measure() == context.history.iter().map(size_of).sum::<usize>();
        for text in ["one", "two", "three"] {
            context.replied(reply(text, &[("", "x")], StopReason::ToolCalls));
            assert!(is_right(&mut context));
            context.answered([(ToolCall::new(text, "x", "{}"), Answered::of("a longer answer"))]);
            context.answered([(ToolCall::new("more", "x", "{}"), Answered::of(text))]);
            assert!(is_right(&mut context));
        }
        let before = context.measure();
        context.shortened(vec![Message::user("short"), Message::user("s")], Compacted::default());
        assert!(is_right(&mut context) && context.measure() < before);
    }

    #[test]
    fn an_answer_that_was_cut_or_withheld_is_not_taken_for_one() {
        for stop in [StopReason::Length, StopReason::Filtered] {
            let mut context = LoopContext::begin(Vec::new());
            assert!(matches!(context.replied(reply("half", &[], stop)), After::Fail(_)));
        }
    }

    #[test]
    fn calls_have_ids_of_their_own() {
        let mut context = LoopContext::begin(Vec::new());
        let mut ids = BTreeSet::new();
        for _ in 0..3 {
            let After::Use(calls) =
                context.replied(reply("", &[("0", "x"), ("0", "y"), ("", "z")], StopReason::ToolCalls))
            else {
                panic!()
            };
            ids.extend(calls.into_iter().map(|call| call.id));
        }
        assert_eq!(ids.len(), 9, "{ids:?}");
    }

    #[test]
    fn untrusted_input_taints_the_loop_for_good() {
        let mut context = LoopContext::begin(Vec::new());
        let untrusted = Answered { is_untrusted: true, ..Answered::of("obey me") };
        context
            .answered([(ToolCall::new("1", "x", "{}"), untrusted), (ToolCall::new("2", "x", "{}"), Answered::of(""))]);
        assert!(context.is_tainted);
    }
}
