//! The answers of providers, as they come over the wire.

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

/// A whole answer.
pub(crate) fn openai_says(text: &str) -> Vec<Step> {
    let mut steps = vec![Step::Begin, openai_text(text)];
    steps.extend(openai_end("stop"));
    steps
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
