//! Translates an answer of `genai` to events.

use std::collections::{HashMap, HashSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;

use crate::StopReason;
use ::genai::adapter::AdapterKind;
use ::genai::chat::{ChatStream, ChatStreamEvent, ContentPart, StopReason as ProviderStop, StreamEnd, ToolChunk};
use callboard::messages::{Json, Message, ToolCall, Usage};
use callboard_text::cut;
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::time::{Sleep, sleep};

use crate::model::{
    MAX_CALLS, MAX_REPLY, ModelAnswer, ModelError, ModelEvent, ModelRequest, ModelStream, estimated_tokens,
};

use super::asked::{Signed, SignedPart};
use super::refused::ErrorBuilder;

struct Answer {
    stream: ChatStream,
    kind: AdapterKind,
    errors: ErrorBuilder,
    /// The ids of the conversation's calls: new ids must differ from them.
    ids: HashSet<Arc<str>>,
    estimated_input: u64,
    /// Bytes of the answer so far.
    received_bytes: usize,
    /// The bytes received of each call.
    calls: HashMap<String, usize>,
    /// The timeout of silence. Text restarts it, keep-alive events do not.
    silence: Option<Pin<Box<Sleep>>>,
    /// The answer has begun with text or a tool call: a later failure is one after the beginning.
    has_begun: bool,
    ready: VecDeque<ModelEvent>,
    is_over: bool,
}

pub(super) fn events(
    stream: ChatStream,
    request: &ModelRequest,
    kind: AdapterKind,
    errors: ErrorBuilder,
) -> ModelStream {
    let calls = request.messages.iter().flat_map(|message| match message {
        Message::Assistant { calls, .. } => calls.as_slice(),
        Message::User { .. } | Message::Tool { .. } => &[],
    });
    let answer = Answer {
        stream,
        kind,
        errors,
        ids: calls.map(|call| Arc::clone(&call.id)).collect(),
        estimated_input: request.estimated_tokens(),
        received_bytes: 0,
        calls: HashMap::new(),
        silence: None,
        has_begun: false,
        ready: VecDeque::new(),
        is_over: false,
    };
    futures::stream::unfold(answer, |mut answer| async move {
        let event = answer.next().await?;
        Some((event, answer))
    })
    .boxed()
}

impl Answer {
    async fn next(&mut self) -> Option<Result<ModelEvent, ModelError>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            if self.is_over {
                return None;
            }
            let patience = self.errors.patience(self.has_begun);
            let silence = self.silence.get_or_insert_with(|| Box::pin(sleep(patience)));
            let reported = tokio::select! {
                biased;
                () = silence => {
                    self.is_over = true;
                    return Some(Err(self.errors.silent(self.has_begun)));
                }
                reported = self.stream.next() => reported,
            };
            match reported {
                Some(Ok(ChatStreamEvent::End(end))) if !is_complete(self.kind, &end) => {
                    self.is_over = true;
                    return Some(Err(self.errors.ended_early(self.has_begun)));
                }
                Some(Ok(event)) => {
                    self.take(event);
                    if self.received_bytes + self.calls.values().sum::<usize>() > MAX_REPLY
                        || self.calls.len() > MAX_CALLS
                    {
                        self.is_over = true;
                        return Some(Err(self.errors.too_long()));
                    }
                }
                Some(Err(error)) => {
                    self.is_over = true;
                    return Some(Err(self.errors.error(error, self.has_begun)));
                }
                None => {
                    self.is_over = true;
                    return Some(Err(self.errors.ended_early(self.has_begun)));
                }
            }
        }
    }

    fn take(&mut self, event: ChatStreamEvent) {
        match event {
            ChatStreamEvent::Start | ChatStreamEvent::Heartbeat | ChatStreamEvent::ThoughtSignatureChunk(_) => {}
            ChatStreamEvent::Chunk(chunk) => self.say(chunk.content, ModelEvent::Text),
            ChatStreamEvent::ReasoningChunk(chunk) => self.say(chunk.content, ModelEvent::Reasoning),
            // It is sent at the end, when it is complete.
            ChatStreamEvent::ToolCallChunk(ToolChunk { tool_call }) => {
                (self.has_begun, self.silence) = (true, None);
                let (id, size) = match tool_call.fn_arguments.as_str() {
                    // The received part of a call.
                    Some(text) => (tool_call.call_id, text.len()),
                    // A separate call, though others may have the same id.
                    None => {
                        let id = format!("{} {}", tool_call.call_id, self.calls.len());
                        (id, Json::from(tool_call.fn_arguments).size())
                    }
                };
                self.calls.insert(id, size + tool_call.fn_name.len());
            }
            ChatStreamEvent::End(end) => self.end(end),
        }
    }

    fn say(&mut self, text: String, event: fn(Arc<str>) -> ModelEvent) {
        if !text.is_empty() {
            (self.has_begun, self.silence) = (true, None);
            self.received_bytes += text.len();
            self.ready.push_back(event(text.into()));
        }
    }

    fn end(&mut self, end: StreamEnd) {
        self.is_over = true;
        let parts = end.captured_content.map(|content| content.into_parts()).unwrap_or_default();
        let calls = calls(parts, self.kind, &mut self.ids);
        self.received_bytes += calls.iter().map(ToolCall::size).sum::<usize>();
        let stop = stop(end.captured_stop_reason, !calls.is_empty());
        self.ready.extend(calls.into_iter().map(ModelEvent::ToolCall));
        let reported =
            end.captured_usage.filter(|usage| usage.prompt_tokens.is_some() || usage.completion_tokens.is_some());
        let tokens = |count: Option<i32>| u64::try_from(count.unwrap_or_default()).unwrap_or_default();
        let usage =
            reported.as_ref().map(|usage| Usage::of(tokens(usage.prompt_tokens), tokens(usage.completion_tokens)));
        let estimate = Usage::of(self.estimated_input, estimated_tokens(self.received_bytes));
        let answer = ModelAnswer::new(self.errors.name(), stop, usage.unwrap_or(estimate));
        self.ready.push_back(ModelEvent::Ended(ModelAnswer { is_estimate: usage.is_none(), ..answer }));
    }
}

/// Whether the provider has marked its answer as complete: with some, `genai` ends an answer by itself when the connection was
/// closed in good order.
fn is_complete(kind: AdapterKind, end: &StreamEnd) -> bool {
    let (has_reason, has_usage) = (end.captured_stop_reason.is_some(), end.captured_usage.is_some());
    match kind {
        // Each piece has the usage so far.
        AdapterKind::Gemini => has_reason,
        // These providers send it at the end, and older servers send no reason.
        AdapterKind::GeminiIx | AdapterKind::Ollama | AdapterKind::OllamaCloud | AdapterKind::OpenAIResp => {
            has_reason || has_usage
        }
        _ => true,
    }
}

fn calls(parts: Vec<ContentPart>, kind: AdapterKind, ids: &mut HashSet<Arc<str>>) -> Vec<ToolCall> {
    let signed = |part| {
        let signed = Signed { by: kind.as_lower_str().to_owned(), part };
        // A text or a JSON value can always be written.
        serde_json::to_string(&signed).map(Arc::<str>::from).ok()
    };
    let (mut leading, mut calls) = (Vec::new(), Vec::new());
    let mut is_more_than_signatures = false;
    for part in parts {
        match part {
            ContentPart::ThoughtSignature(signature) => leading.extend(signed(SignedPart::Signature(signature))),
            ContentPart::ReasoningContent(text) => {
                is_more_than_signatures = true;
                leading.extend(signed(SignedPart::Reasoning(text)));
            }
            ContentPart::Custom(part) => {
                is_more_than_signatures = true;
                leading.extend(signed(SignedPart::Custom(part.data)));
            }
            ContentPart::ToolCall(call) => {
                let own = call.thought_signatures.unwrap_or_default().into_iter();
                calls.push(ToolCall {
                    id: unused(&call.call_id, ids),
                    name: call.fn_name.into(),
                    arguments: arguments(call.fn_arguments),
                    signatures: own.filter_map(|signature| signed(SignedPart::Signature(signature))).collect(),
                });
            }
            ContentPart::Text(_) | ContentPart::Binary(_) | ContentPart::ToolResponse(_) => {}
        }
    }
    // Signatures alone are already with the calls.
    if is_more_than_signatures && let Some(first) = calls.first_mut() {
        first.signatures = leading;
    }
    calls
}

/// A unique id: some servers count from zero in every answer.
fn unused(id: &str, ids: &mut HashSet<Arc<str>>) -> Arc<str> {
    let id = if id.is_empty() { "call" } else { id };
    let others = (2_u32..).map(|number| Arc::from(format!("{id}-{number}")));
    let unused = [Arc::<str>::from(id)].into_iter().chain(others).find(|id| !ids.contains(id)).unwrap_or_default();
    ids.insert(Arc::clone(&unused));
    unused
}

/// The arguments; text if they are no JSON, or too deep to be journaled.
fn arguments(arguments: Value) -> Json {
    match arguments {
        // Some models write an empty text for tools without arguments.
        Value::String(text) if text.trim().is_empty() => Json::from(json!({})),
        Value::Null => Json::from(json!({})),
        other => {
            let arguments = Json::from(other);
            if arguments.is_too_deep() { Json::from(arguments.to_string()) } else { arguments }
        }
    }
}

fn stop(reported: Option<ProviderStop>, has_calls: bool) -> StopReason {
    match reported {
        // Some providers report "finished" when the model calls tools.
        Some(ProviderStop::Completed(_) | ProviderStop::StopSequence(_) | ProviderStop::ToolCall(_)) | None
            if has_calls =>
        {
            StopReason::ToolCalls
        }
        Some(ProviderStop::Completed(_) | ProviderStop::StopSequence(_) | ProviderStop::ToolCall(_)) | None => {
            StopReason::Finished
        }
        Some(ProviderStop::MaxTokens(_)) => StopReason::Length,
        Some(ProviderStop::ContentFilter(_)) => StopReason::Filtered,
        Some(ProviderStop::Other(text)) => StopReason::Other(cut(&text).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_without_an_end_is_not_complete() {
        let nothing = StreamEnd::default();
        let usage = StreamEnd { captured_usage: Some(Default::default()), ..StreamEnd::default() };
        let reason =
            StreamEnd { captured_stop_reason: Some(ProviderStop::from("stop".to_owned())), ..StreamEnd::default() };
        use AdapterKind::{Anthropic, Gemini, GeminiIx, Ollama, OllamaCloud, OpenAI, OpenAIResp};
        for kind in [Gemini, GeminiIx, Ollama, OllamaCloud, OpenAIResp] {
            assert!(!is_complete(kind, &nothing) && is_complete(kind, &reason), "{kind}");
            assert_eq!(is_complete(kind, &usage), kind != Gemini, "{kind}");
        }
        assert!([OpenAI, Anthropic].into_iter().all(|kind| is_complete(kind, &nothing)));
    }
}
