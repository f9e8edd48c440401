//! Gemini and Ollama: what is asked of them, and what they answer.

use callboard::messages::{Message, ToolCall, Usage};

use callboard_agents::{Model, ModelAnswer, ModelErrorKind, ModelEvent, StopReason};
use futures::StreamExt;
use serde_json::json;
use tokio::sync::oneshot;

use super::server::{Server, Step};
use super::wire::*;
use super::{CANARY, all, answer, asked, gemini_at, model, ollama_at, request, text};

const TWO: [Format; 2] = [Format::Gemini, Format::Ollama];

#[tokio::test]
async fn text_is_passed_on_piece_by_piece() {
    for format in TWO {
        let (open, gate) = oneshot::channel();
        let mut script = format.saying("Hel");
        script.push(Step::Gate(gate));
        // The rest of an answer, without its head.
        script.extend(format.says("lo").split_off(1));
        let server = Server::start([script]).await;
        let mut stream = model(format, &server.url).call(asked());
        assert_eq!(stream.next().await, text("Hel"), "{format:?}");
        // The server continues when the first piece has arrived, and not before.
        open.send(()).unwrap();
        assert_eq!(stream.next().await, text("lo"), "{format:?}");
        let name = model(format, &server.url).name().to_owned();
        let ended = ModelAnswer::new(&name, StopReason::Finished, format.usage());
        assert_eq!(stream.next().await, Some(Ok(ModelEvent::Ended(ended))), "{format:?}");
        assert_eq!(stream.next().await, None);
    }
}

#[tokio::test]
async fn gemini_is_asked_as_it_wants_to_be() {
    let server = Server::start([Format::Gemini.says("ok")]).await;
    answer(gemini_at(&server.url).call(conversation())).await;
    let arrived = server.arrived().await;
    assert_eq!(arrived.path, "/v1/models/gemini-2.5-flash:streamGenerateContent?alt=sse");
    assert!(arrived.head.contains(&format!("x-goog-api-key: {CANARY}")), "{}", arrived.head);
    let body = arrived.body;
    assert_eq!(body["systemInstruction"]["parts"], json!([{ "text": "be brief" }]));
    assert_eq!(body["generationConfig"]["maxOutputTokens"], 500);
    assert_eq!(body["tools"][0]["functionDeclarations"][0]["name"], "look");
    assert_eq!(body["contents"][0], json!({ "role": "user", "parts": [{ "text": "go" }] }));
    let called = json!({ "id": "c1", "name": "look", "args": { "path": "a" } });
    assert_eq!(body["contents"][1]["parts"][0]["functionCall"], called);
    assert_eq!(body["contents"][2]["parts"][0]["functionResponse"]["name"], "look");
    assert!(body["contents"][2].to_string().contains("a tree"), "{body}");
}

#[tokio::test]
async fn ollama_is_asked_as_it_wants_to_be_and_needs_no_key() {
    let server = Server::start([Format::Ollama.says("ok")]).await;
    answer(ollama_at(&server.url).call(conversation())).await;
    let arrived = server.arrived().await;
    assert_eq!(arrived.path, "/v1/api/chat");
    assert!(!arrived.head.contains("authorization") && !arrived.head.contains(CANARY), "{}", arrived.head);
    assert!(arrived.head.contains("idempotency-key: turn-1/llama3.2"), "{}", arrived.head);
    let body = arrived.body;
    assert_eq!((&body["model"], &body["stream"]), (&json!("llama3.2"), &json!(true)));
    assert_eq!(body["options"]["num_predict"], 500);
    assert_eq!(body["tools"][0]["function"]["name"], "look");
    assert_eq!(body["messages"][0], json!({ "role": "system", "content": "be brief" }));
    assert_eq!(body["messages"][1]["content"], "go");
    assert_eq!(
        body["messages"][2]["tool_calls"][0]["function"],
        json!({ "name": "look", "arguments": { "path": "a" } })
    );
    assert_eq!((&body["messages"][3]["role"], &body["messages"][3]["content"]), (&json!("tool"), &json!("a tree")));
}

/// A conversation in which a tool was used.
fn conversation() -> callboard_agents::ModelRequest {
    let said = Message::Assistant { text: "".into(), calls: vec![ToolCall::new("c1", "look", json!({ "path": "a" }))] };
    let answered = Message::Tool { call: "c1".into(), name: "look".into(), text: "a tree".into(), is_error: false };
    request(vec![Message::user("go"), said, answered])
}

#[tokio::test]
async fn calls_come_whole_in_their_order_and_with_ids_of_their_own() {
    for format in TWO {
        let call = |arguments| match format {
            Format::Gemini => gemini_call("look", &arguments),
            Format::Ollama | Format::OpenAi | Format::Anthropic => ollama_call("look", &arguments),
        };
        let mut script = format.saying("so");
        script.extend([call(json!({ "path": "a" })), call(json!({}))]);
        script.extend(format.calls("look", r#"{"path": "b"}"#).split_off(1));
        let server = Server::start([script]).await;
        let (text, calls, answer) = answer(model(format, &server.url).call(asked())).await;
        assert_eq!((text.as_str(), answer.stop, answer.usage), ("so", StopReason::ToolCalls, format.usage()));
        let reported: Vec<_> = calls.iter().map(|call| (&*call.name, call.arguments.value().clone())).collect();
        let [a, none, b] = [json!({ "path": "a" }), json!({}), json!({ "path": "b" })];
        assert_eq!(reported, [("look", a), ("look", none), ("look", b)], "{format:?}");
        let mut ids: Vec<_> = calls.iter().map(|call| call.id.clone()).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 3, "{format:?}: {calls:?}");
    }
}

#[tokio::test]
async fn why_an_answer_ended_is_reported_and_what_is_not_reported_is_estimated() {
    let length = |format: Format| {
        let mut script = format.saying("so");
        match format {
            Format::Gemini => script.extend(gemini_end("MAX_TOKENS")),
            Format::Ollama | Format::OpenAi | Format::Anthropic => script.extend(ollama_end("length")),
        }
        script
    };
    for format in TWO {
        let server = Server::start([length(format)]).await;
        let (_, _, answer) = answer(model(format, &server.url).call(asked())).await;
        assert_eq!((answer.stop, answer.is_estimate), (StopReason::Length, false), "{format:?}");
    }
    // An older server, which only reports that it is done.
    let done = Step::Send("{\"message\":{\"role\":\"assistant\",\"content\":\"\"},\"done\":true}\n".to_owned());
    let script = Format::Ollama.saying("Hello!").into_iter().chain([done, Step::End]);
    let server = Server::start([script.collect()]).await;
    let (_, _, answer) = answer(ollama_at(&server.url).call(asked())).await;
    assert_eq!((answer.usage, answer.is_estimate), (Usage::of(asked().estimated_tokens(), 2), true));
}

#[tokio::test]
async fn what_is_thought_is_distinguished_and_a_signature_goes_back_with_its_call() {
    let call = json!([
        { "text": "hm", "thought": true },
        { "functionCall": { "name": "look", "args": {} }, "thoughtSignature": "c2ln" },
    ]);
    let mut script = vec![Step::Begin, gemini(call, None, 1)];
    script.extend(gemini_end("STOP"));
    let server = Server::start([script, Format::Gemini.says("ok")]).await;
    let events = all(gemini_at(&server.url).call(asked())).await;
    assert_eq!(events[0], Ok(ModelEvent::Reasoning("hm".into())));
    let Ok(ModelEvent::ToolCall(call)) = &events[1] else { panic!("{events:?}") };
    let answered = Message::Tool { call: call.id.clone(), name: "look".into(), text: "a".into(), is_error: false };
    let said = Message::Assistant { text: "".into(), calls: vec![call.clone()] };
    server.arrived().await;
    answer(gemini_at(&server.url).call(request(vec![Message::user("go"), said, answered]))).await;
    let sent = server.arrived().await.body;
    assert_eq!(sent["contents"][1]["parts"][0]["thoughtSignature"], "c2ln", "{sent}");

    let mut script = vec![Step::BeginLines, ollama(json!({ "content": "", "thinking": "hm" })), ollama_text("so")];
    script.extend(ollama_end("stop"));
    let server = Server::start([script]).await;
    let events = all(ollama_at(&server.url).call(asked())).await;
    assert_eq!(events[..2], [Ok(ModelEvent::Reasoning("hm".into())), Ok(ModelEvent::Text("so".into()))]);
}

#[tokio::test]
async fn calls_without_end_are_left() {
    let (arguments, long) = (json!({}), json!({ "path": "x".repeat(1 << 18) }));
    for format in TWO {
        let call = |arguments| match format {
            Format::Gemini => gemini_call("look", arguments),
            Format::Ollama | Format::OpenAi | Format::Anthropic => ollama_call("look", arguments),
        };
        let many = std::iter::once(format.head()).chain((0..70).map(|_| call(&arguments))).chain([Step::Hang]);
        let large = std::iter::once(format.head()).chain((0..20).map(|_| call(&long))).chain([Step::Hang]);
        let server = Server::start([many.collect(), large.collect()]).await;
        for _ in 0..2 {
            let events = all(model(format, &server.url).call(asked())).await;
            let [Err(error)] = &events[..] else { panic!("{format:?}: {events:?}") };
            assert_eq!(error.kind, ModelErrorKind::Malformed, "{format:?}");
            assert!(error.text.contains("more than 4 MiB or 64 calls"), "{format:?}: {error}");
        }
    }
}

#[tokio::test]
async fn a_call_of_an_answer_that_broke_off_is_not_reported() {
    for format in TWO {
        for end in [Step::Cut, Step::End] {
            let mut script = format.calls("look", "{}");
            // Without the words that end it.
            script.truncate(2);
            script.push(end);
            let server = Server::start([script]).await;
            let events = all(model(format, &server.url).call(asked())).await;
            let [Err(error)] = &events[..] else { panic!("{format:?}: {events:?}") };
            assert_eq!(error.kind, ModelErrorKind::CutOff, "{format:?}: {error}");
        }
    }
}
