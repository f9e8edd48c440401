//! The answers of providers, as they come over the wire.

use callboard::messages::Usage;
use serde_json::{Value, json};

use crate::server::Step;

/// One event of OpenAI's chat completions.
pub(crate) fn openai(chunk: Value) -> Step {
    Step::Send(format!("data: {chunk}\n\n"))
}

pub(crate) fn openai_text(text: &str) -> Step {
    openai(json!({ "choices": [{ "index": 0, "delta": { "content": text }, "finish_reason": null }] }))
}

/// A piece of a call; the first piece of one has its id and its name.
pub(crate) fn openai_call(index: u32, begun: Option<(&str, &str)>, arguments: &str) -> Step {
    let mut call = json!({ "index": index, "function": { "arguments": arguments } });
    if let Some((id, name)) = begun {
        call["id"] = json!(id);
        call["type"] = json!("function");
        call["function"]["name"] = json!(name);
    }
    openai(json!({ "choices": [{ "index": 0, "delta": { "tool_calls": [call] }, "finish_reason": null }] }))
}

pub(crate) fn openai_end(reason: &str) -> [Step; 4] {
    let usage = json!({ "prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18 });
    [
        openai(json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] })),
        openai(json!({ "choices": [], "usage": usage })),
        Step::Send("data: [DONE]\n\n".to_owned()),
        Step::End,
    ]
}

/// One event of Anthropic's messages.
pub(crate) fn anthropic(event: &str, mut body: Value) -> Step {
    body["type"] = json!(event);
    Step::Send(format!("event: {event}\ndata: {body}\n\n"))
}

pub(crate) fn anthropic_begin() -> [Step; 2] {
    let usage = json!({ "input_tokens": 20, "output_tokens": 1 });
    let message = json!({ "id": "m", "role": "assistant", "content": [], "usage": usage });
    [Step::Begin, anthropic("message_start", json!({ "message": message }))]
}

pub(crate) fn anthropic_text(index: u32, pieces: &[&str]) -> Vec<Step> {
    let block = json!({ "type": "text", "text": "" });
    block_of(index, block, pieces.iter().map(|text| json!({ "type": "text_delta", "text": text })))
}

pub(crate) fn anthropic_call(index: u32, id: &str, name: &str, pieces: &[&str]) -> Vec<Step> {
    let block = json!({ "type": "tool_use", "id": id, "name": name, "input": {} });
    block_of(index, block, pieces.iter().map(|text| json!({ "type": "input_json_delta", "partial_json": text })))
}

fn block_of(index: u32, block: Value, deltas: impl Iterator<Item = Value>) -> Vec<Step> {
    let mut steps = vec![anthropic("content_block_start", json!({ "index": index, "content_block": block }))];
    steps.extend(deltas.map(|delta| anthropic("content_block_delta", json!({ "index": index, "delta": delta }))));
    steps.push(anthropic("content_block_stop", json!({ "index": index })));
    steps
}

pub(crate) fn anthropic_end(reason: &str) -> [Step; 3] {
    [
        anthropic("message_delta", json!({ "delta": { "stop_reason": reason }, "usage": { "output_tokens": 9 } })),
        anthropic("message_stop", json!({})),
        Step::End,
    ]
}

/// The wire formats that providers speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    OpenAi,
    Anthropic,
}

impl Format {
    pub(crate) const ALL: [Self; 2] = [Self::OpenAi, Self::Anthropic];

    /// An answer that has begun and said nothing yet.
    pub(crate) fn begun(self) -> Vec<Step> {
        match self {
            Self::OpenAi => vec![Step::Begin],
            Self::Anthropic => anthropic_begin().into(),
        }
    }

    /// An answer that has said this, and goes on.
    pub(crate) fn saying(self, text: &str) -> Vec<Step> {
        let mut steps = self.begun();
        match self {
            Self::OpenAi => steps.push(openai_text(text)),
            Self::Anthropic => steps.extend(anthropic_text(0, &[text])),
        }
        steps
    }

    /// A whole answer.
    pub(crate) fn says(self, text: &str) -> Vec<Step> {
        self.ended(self.saying(text), false)
    }

    /// A whole answer with a call, whose arguments come in one piece.
    pub(crate) fn calls(self, name: &str, arguments: &str) -> Vec<Step> {
        let mut steps = self.begun();
        match self {
            Self::OpenAi => steps.push(openai_call(0, Some(("c1", name)), arguments)),
            Self::Anthropic => steps.extend(anthropic_call(0, "c1", name, &[arguments])),
        }
        self.ended(steps, true)
    }

    fn ended(self, mut steps: Vec<Step>, calls: bool) -> Vec<Step> {
        match self {
            Self::OpenAi => steps.extend(openai_end(if calls { "tool_calls" } else { "stop" })),
            Self::Anthropic => steps.extend(anthropic_end(if calls { "tool_use" } else { "end_turn" })),
        }
        steps
    }

    /// An error that comes in a stream, where there is no status any more.
    pub(crate) fn error(self, kind: &str, message: &str) -> Step {
        let error = json!({ "error": { "type": kind, "message": message } });
        match self {
            Self::OpenAi => openai(error),
            Self::Anthropic => anthropic("error", error),
        }
    }

    /// An event that breaks off in the middle of its JSON.
    pub(crate) fn garbage(self) -> Step {
        match self {
            Self::OpenAi => Step::Send("data: {\"choices\": [\n\n".to_owned()),
            Self::Anthropic => Step::Send("event: content_block_start\ndata: {\n\n".to_owned()),
        }
    }

    /// What a whole answer says that it took.
    pub(crate) fn usage(self) -> Usage {
        match self {
            Self::OpenAi => Usage::of(11, 7),
            Self::Anthropic => Usage::of(20, 9),
        }
    }
}
