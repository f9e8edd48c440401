//! Translates a request to `genai`.

use ::genai::ModelIden;
use ::genai::adapter::AdapterKind;
use ::genai::chat::{ChatMessage, ChatRequest, ContentPart, CustomPart, MessageContent, Tool, ToolResponse};
use callboard::messages::{Json, Message, ToolCall};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::model::ModelRequest;
use crate::tool::ToolSpec;

/// The data that a provider wants back with a call: the JSON in [`ToolCall::signatures`].
#[derive(Serialize, Deserialize)]
pub(super) struct Signed {
    /// The provider that wants it. Others do not receive it, because they would refuse it.
    pub(super) by: String,
    #[serde(flatten)]
    pub(super) part: SignedPart,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SignedPart {
    Signature(String),
    Reasoning(String),
    Custom(Value),
}

pub(super) fn chat(request: &ModelRequest, kind: AdapterKind) -> ChatRequest {
    let mut messages = Vec::with_capacity(request.messages.len());
    let mut answers: Vec<ToolResponse> = Vec::new();
    for message in request.messages.iter() {
        // The answers to the calls of one message are one message, because some providers refuse two.
        if !matches!(message, Message::Tool { .. }) && !answers.is_empty() {
            messages.push(ChatMessage::from(std::mem::take(&mut answers)));
        }
        match message {
            Message::User { text } => messages.push(ChatMessage::user(&**text)),
            Message::Assistant { text, calls } => messages.extend(assistant(text, calls, kind)),
            Message::Tool { call, name, text, is_error: _ } => {
                answers.push(ToolResponse::new(&**call, &**text).with_fn_name(&**name));
            }
        }
    }
    if !answers.is_empty() {
        messages.push(ChatMessage::from(answers));
    }
    let mut chat = ChatRequest::new(messages);
    if !request.system.is_empty() {
        chat = chat.with_system(&*request.system);
    }
    if !request.tools.is_empty() {
        chat = chat.with_tools(request.tools.iter().map(|spec| tool(spec)));
    }
    chat
}

fn tool(spec: &ToolSpec) -> Tool {
    Tool::new(spec.name.to_string()).with_description(&*spec.description).with_schema(spec.parameters.value().clone())
}

/// The model's text; `None` if it is empty, because providers refuse empty messages.
fn assistant(text: &str, calls: &[ToolCall], kind: AdapterKind) -> Option<ChatMessage> {
    let mut parts: Vec<ContentPart> = Vec::new();
    let mut asked = Vec::new();
    for call in calls {
        let mut signatures = Vec::new();
        for signed in call.signatures.iter().filter_map(|text| serde_json::from_str::<Signed>(text).ok()) {
            if signed.by != kind.as_lower_str() {
                continue;
            }
            match signed.part {
                SignedPart::Signature(signature) => signatures.push(signature),
                SignedPart::Reasoning(text) => {
                    // A thought is sent with the signature before it.
                    parts.extend(signatures.drain(..).map(ContentPart::ThoughtSignature));
                    parts.push(ContentPart::ReasoningContent(text));
                }
                SignedPart::Custom(data) => {
                    let by = ModelIden::new(kind, "");
                    parts.push(ContentPart::Custom(CustomPart { model_iden: Some(by), data }));
                }
            }
        }
        asked.push(ContentPart::ToolCall(::genai::chat::ToolCall {
            call_id: call.id.to_string(),
            fn_name: call.name.to_string(),
            fn_arguments: arguments(&call.arguments),
            thought_signatures: (!signatures.is_empty()).then_some(signatures),
        }));
    }
    if !text.is_empty() {
        parts.push(ContentPart::Text(text.to_owned()));
    }
    parts.extend(asked);
    (!parts.is_empty()).then(|| ChatMessage::assistant(MessageContent::from_parts(parts)))
}

/// The arguments of a repeated call: providers accept only objects, even after a model has written something else.
fn arguments(arguments: &Json) -> Value {
    if arguments.is_object() { arguments.value().clone() } else { json!({ "not_json": arguments.value() }) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Effect;

    fn request(messages: Vec<Message>) -> ModelRequest {
        ModelRequest {
            system: "be brief".into(),
            messages: Arc::new(messages),
            tools: vec![Arc::new(ToolSpec::new("look", "Looks.", json!({ "type": "object" }), Effect::Reads))],
            max_tokens: 100,
            idempotency_key: "k".into(),
            trace_parent: None,
        }
    }

    fn signed(by: &str, part: SignedPart) -> Arc<str> {
        serde_json::to_string(&Signed { by: by.to_owned(), part }).unwrap().into()
    }

    fn parts(call: ToolCall, kind: AdapterKind) -> Vec<ContentPart> {
        let message = Message::Assistant { text: "so".into(), calls: vec![call] };
        chat(&request(vec![message]), kind).messages.remove(0).content.into_parts()
    }

    #[test]
    fn answers_to_the_calls_of_one_message_are_one_message() {
        let answer = |call: &str| Message::Tool {
            call: call.into(),
            name: "look".into(),
            text: "a tree".into(),
            is_error: false,
        };
        let calls = vec![ToolCall::new("1", "look", json!({})), ToolCall::new("2", "look", json!({}))];
        let said = Message::Assistant { text: "".into(), calls };
        let asked = chat(&request(vec![Message::user("go"), said, answer("1"), answer("2")]), AdapterKind::OpenAI);
        assert_eq!(asked.messages.len(), 3);
        assert_eq!(asked.messages[2].content.tool_responses().len(), 2);
        assert_eq!(asked.system.as_deref(), Some("be brief"));
        assert_eq!(asked.tools.map(|tools| tools.len()), Some(1));
    }

    #[test]
    fn a_signature_returns_only_to_the_provider_that_gave_it() {
        let mut call = ToolCall::new("1", "look", json!({}));
        call.signatures = vec![
            signed("anthropic", SignedPart::Signature("s".to_owned())),
            signed("anthropic", SignedPart::Reasoning("hm".to_owned())),
        ];
        let given = parts(call.clone(), AdapterKind::Anthropic);
        assert_eq!(given[0].as_thought_signature(), Some("s"));
        assert_eq!(given[1].as_reasoning_content(), Some("hm"));
        assert_eq!(parts(call, AdapterKind::OpenAI).len(), 2, "the text and the call");

        let mut call = ToolCall::new("1", "look", json!({}));
        call.signatures = vec![signed("gemini", SignedPart::Signature("g".to_owned())), "something else".into()];
        let given = parts(call, AdapterKind::Gemini);
        let call = given[1].as_tool_call().unwrap();
        assert_eq!(call.thought_signatures.as_deref(), Some(["g".to_owned()].as_slice()));
    }

    #[test]
    fn arguments_that_were_not_json_are_reported_as_an_object() {
        let given = parts(ToolCall::new("1", "look", "{\"a\": "), AdapterKind::Anthropic);
        assert_eq!(given[1].as_tool_call().unwrap().fn_arguments, json!({ "not_json": "{\"a\": " }));
    }

    #[test]
    fn a_message_without_anything_in_it_is_left_out() {
        let said = Message::Assistant { text: "".into(), calls: Vec::new() };
        assert_eq!(chat(&request(vec![Message::user("go"), said]), AdapterKind::OpenAI).messages.len(), 1);
    }
}
