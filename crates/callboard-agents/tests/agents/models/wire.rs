//! The answers of providers, as they come over the wire.

use callboard::messages::Usage;
use serde_json::{Value, json};

use super::server::Step;

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

/// One event of Gemini's `streamGenerateContent`: its text, and the usage of the answer so far.
pub(crate) fn gemini(parts: Value, finished: Option<&str>, written: u32) -> Step {
    let mut candidate = json!({ "content": { "parts": parts, "role": "model" }, "index": 0 });
    if let Some(reason) = finished {
        candidate["finishReason"] = json!(reason);
    }
    // Tokens of thoughts are counted beside those of the text.
    let usage = json!({ "promptTokenCount": 13, "candidatesTokenCount": written, "thoughtsTokenCount": 3 });
    gemini_event(&json!({ "candidates": [candidate], "usageMetadata": usage, "modelVersion": "gemini-2.5-flash" }))
}

fn gemini_event(body: &Value) -> Step {
    Step::Send(format!("data: {body}\r\n\r\n"))
}

pub(crate) fn gemini_text(text: &str) -> Step {
    gemini(json!([{ "text": text }]), None, 1)
}

/// A call, which comes whole and has no id.
pub(crate) fn gemini_call(name: &str, arguments: &Value) -> Step {
    gemini(json!([{ "functionCall": { "name": name, "args": arguments } }]), None, 1)
}

pub(crate) fn gemini_end(reason: &str) -> [Step; 2] {
    [gemini(json!([{ "text": "" }]), Some(reason), 5), Step::End]
}

/// One line of Ollama's `/api/chat`.
pub(crate) fn ollama(mut message: Value) -> Step {
    message["role"] = json!("assistant");
    let line = json!({
        "model": "llama3.2", "created_at": "2025-11-03T10:00:00.000000Z", "message": message, "done": false,
    });
    Step::Send(format!("{line}\n"))
}

pub(crate) fn ollama_text(text: &str) -> Step {
    ollama(json!({ "content": text }))
}

/// A call, which comes whole and has no id.
pub(crate) fn ollama_call(name: &str, arguments: &Value) -> Step {
    ollama(json!({ "content": "", "tool_calls": [{ "function": { "name": name, "arguments": arguments } }] }))
}

pub(crate) fn ollama_end(reason: &str) -> [Step; 2] {
    let line = json!({
        "model": "llama3.2", "created_at": "2025-11-03T10:00:01.000000Z",
        "message": { "role": "assistant", "content": "" }, "done": true, "done_reason": reason,
        "total_duration": 5_191_566_416_u64, "prompt_eval_count": 17, "eval_count": 6,
    });
    [Step::Send(format!("{line}\n")), Step::End]
}

/// The wire formats that providers speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    OpenAi,
    Anthropic,
    Gemini,
    Ollama,
}

impl Format {
    pub(crate) const ALL: [Self; 4] = [Self::OpenAi, Self::Anthropic, Self::Gemini, Self::Ollama];

    /// Those in which the arguments of a call are text that the model has written.
    pub(crate) const WITH_WRITTEN_ARGUMENTS: [Self; 2] = [Self::OpenAi, Self::Anthropic];

    /// The head of an answer.
    pub(crate) fn head(self) -> Step {
        match self {
            Self::OpenAi | Self::Anthropic | Self::Gemini => Step::Begin,
            Self::Ollama => Step::BeginLines,
        }
    }

    /// An answer that has begun and has no text yet.
    pub(crate) fn begun(self) -> Vec<Step> {
        match self {
            Self::OpenAi | Self::Gemini | Self::Ollama => vec![self.head()],
            Self::Anthropic => anthropic_begin().into(),
        }
    }

    /// An answer that has this text and continues.
    pub(crate) fn saying(self, text: &str) -> Vec<Step> {
        let mut steps = self.begun();
        match self {
            Self::OpenAi => steps.push(openai_text(text)),
            Self::Anthropic => steps.extend(anthropic_text(0, &[text])),
            Self::Gemini => steps.push(gemini_text(text)),
            Self::Ollama => steps.push(ollama_text(text)),
        }
        steps
    }

    /// A whole answer.
    pub(crate) fn says(self, text: &str) -> Vec<Step> {
        self.ended(self.saying(text), false)
    }

    /// A whole answer with a call.
    pub(crate) fn calls(self, name: &str, arguments: &str) -> Vec<Step> {
        let mut steps = self.begun();
        let value = || serde_json::from_str(arguments).unwrap();
        match self {
            Self::OpenAi => steps.push(openai_call(0, Some(("c1", name)), arguments)),
            Self::Anthropic => steps.extend(anthropic_call(0, "c1", name, &[arguments])),
            Self::Gemini => steps.push(gemini_call(name, &value())),
            Self::Ollama => steps.push(ollama_call(name, &value())),
        }
        self.ended(steps, true)
    }

    fn ended(self, mut steps: Vec<Step>, calls: bool) -> Vec<Step> {
        match self {
            Self::OpenAi => steps.extend(openai_end(if calls { "tool_calls" } else { "stop" })),
            Self::Anthropic => steps.extend(anthropic_end(if calls { "tool_use" } else { "end_turn" })),
            // These two end a call as they end everything.
            Self::Gemini => steps.extend(gemini_end("STOP")),
            Self::Ollama => steps.extend(ollama_end("stop")),
        }
        steps
    }

    /// An error that comes in a stream, where there is no status any more. `kind` is as OpenAI and Anthropic have it.
    pub(crate) fn error(self, kind: &str, message: &str) -> Vec<Step> {
        let error = json!({ "error": { "type": kind, "message": message } });
        match self {
            Self::OpenAi => vec![openai(error)],
            Self::Anthropic => vec![anthropic("error", error)],
            Self::Gemini => {
                let (code, status) = match kind {
                    "rate_limit_error" => (429, "RESOURCE_EXHAUSTED"),
                    "authentication_error" => (401, "UNAUTHENTICATED"),
                    _ => (503, "UNAVAILABLE"),
                };
                vec![gemini_event(&json!({ "error": { "code": code, "message": message, "status": status } }))]
            }
            Self::Ollama => vec![Step::Send(format!("{}\n", json!({ "error": message }))), Step::End],
        }
    }

    /// An event that breaks off in the middle of its JSON.
    pub(crate) fn garbage(self) -> Step {
        match self {
            Self::OpenAi => Step::Send("data: {\"choices\": [\n\n".to_owned()),
            Self::Anthropic => Step::Send("event: content_block_start\ndata: {\n\n".to_owned()),
            Self::Gemini => Step::Send("data: {\"candidates\": [\r\n\r\n".to_owned()),
            Self::Ollama => Step::Send("{\"message\": {\n".to_owned()),
        }
    }

    /// The usage that a whole answer reports.
    pub(crate) fn usage(self) -> Usage {
        match self {
            Self::OpenAi => Usage::of(11, 7),
            Self::Anthropic => Usage::of(20, 9),
            Self::Gemini => Usage::of(13, 8),
            Self::Ollama => Usage::of(17, 6),
        }
    }
}
