//! Models of providers, asked over HTTP on this machine.

mod providers;
mod rates;
mod reloading;
mod secrets;
mod server;
mod wire;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use callboard::env::Env;
use callboard::messages::{Backoff, Message, ToolCall, TraceParent, Usage};
use callboard::prelude::{Callboard, Task};
use callboard_agents::{
    CallPolicy, Effect, GenaiModel, Model, ModelAnswer, ModelChoice, ModelEntry, ModelError, ModelErrorKind,
    ModelEvent, ModelRequest, ModelStream, Models, Secret, StopReason, Timeouts, ToolSpec, Tools,
};
use futures::{FutureExt, StreamExt};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::common::models;

use server::{Server, Step, unused_address};
use wire::*;

/// Looked for in everything that is shown.
const CANARY: &str = "sk-canary-0123456789abcdef";

fn openai(url: &str) -> GenaiModel {
    let variables = |name: &str| (name == "OPENAI_API_KEY").then(|| CANARY.to_owned());
    GenaiModel::new("openai", "gpt-4.1").unwrap().at(url).unwrap().key_from("OPENAI_API_KEY", variables).unwrap()
}

fn anthropic_at(url: &str) -> GenaiModel {
    let model = GenaiModel::new("anthropic", "claude-sonnet-4-5").unwrap();
    model.at(url).unwrap().key(Secret::new(CANARY))
}

fn gemini_at(url: &str) -> GenaiModel {
    GenaiModel::new("gemini", "gemini-2.5-flash").unwrap().at(url).unwrap().key(Secret::new(CANARY))
}

fn ollama_at(url: &str) -> GenaiModel {
    GenaiModel::new("ollama", "llama3.2").unwrap().at(url).unwrap().key(Secret::new(CANARY))
}

fn model(format: Format, url: &str) -> GenaiModel {
    match format {
        Format::OpenAi => openai(url),
        Format::Anthropic => anthropic_at(url),
        Format::Gemini => gemini_at(url),
        Format::Ollama => ollama_at(url),
    }
}

fn request(messages: Vec<Message>) -> ModelRequest {
    let schema = json!({ "type": "object", "properties": { "path": { "type": "string" } } });
    ModelRequest {
        system: "be brief".into(),
        messages: Arc::new(messages),
        tools: vec![Arc::new(ToolSpec::new("look", "Looks.", schema, Effect::Reads))],
        max_tokens: 500,
        idempotency_key: "turn-1".into(),
        trace_parent: None,
    }
}

fn asked() -> ModelRequest {
    request(vec![Message::user("go")])
}

async fn all(mut stream: ModelStream) -> Vec<Result<ModelEvent, ModelError>> {
    let mut events = Vec::new();
    while let Some(event) = stream.next().await {
        events.push(event);
    }
    events
}

/// The text of the model, and how it ended.
async fn answer(stream: ModelStream) -> (String, Vec<ToolCall>, ModelAnswer) {
    let (mut text, mut calls) = (String::new(), Vec::new());
    for event in all(stream).await {
        match event.unwrap() {
            ModelEvent::Text(piece) => text.push_str(&piece),
            ModelEvent::Reasoning(_) | ModelEvent::Failed { .. } => {}
            ModelEvent::ToolCall(call) => calls.push(call),
            ModelEvent::Ended(answer) => return (text, calls, answer),
        }
    }
    panic!("the answer did not end");
}

/// The error of a call that returns no text before it.
async fn error(model: &GenaiModel) -> ModelError {
    let events = all(model.call(asked())).await;
    let [Err(error)] = &events[..] else { panic!("{events:?}") };
    assert!(!format!("{error:?} {error}").contains(CANARY), "{error}");
    error.clone()
}

fn fails(status: u16, headers: &'static str, body: &str) -> Vec<Step> {
    vec![Step::Answer { status, headers, body: body.to_owned() }]
}

fn text(text: &str) -> Option<Result<ModelEvent, ModelError>> {
    Some(Ok(ModelEvent::Text(text.into())))
}

#[tokio::test]
async fn a_provider_receives_the_span_of_its_call_where_another_program_has_begun_the_trace_and_no_other_server_does() {
    let elsewhere = Server::start([]).await;
    let location: &'static str = format!("location: {}\r\n", elsewhere.url).leak();
    for format in Format::ALL {
        let parent = TraceParent { trace: 7, span: 9, is_sampled: true, state: None }.with_state("vendor=1");
        let server = Server::start([format.says("ok"), format.says("ok"), fails(307, location, "")]).await;
        let agent = models::agent("[agent]\nname = \"a\"", model(format, &server.url), &Tools::new());
        let board = Callboard::builder().with(agent).start().await.unwrap();
        for trace_parent in [None, Some(parent)] {
            let is_traced = trace_parent.is_some();
            let task = Task { trace_parent: trace_parent.map(Box::new), ..Task::new("x") };
            let run = board.submit(task).await.unwrap();
            run.result().await.unwrap();
            let head = server.arrived().await.head;
            let span = run.read().await.unwrap().submission().call_trace_parent(1, 0);
            let has = |line: &str| head.lines().any(|it| it == line);
            assert_eq!(
                has(&format!("traceparent: {span}")) && has("tracestate: vendor=1"),
                is_traced,
                "{format:?}: {head}"
            );
            assert_eq!(head.contains("trace"), is_traced, "{format:?}: {head}");
        }
        board.shutdown().await;
        let span = TraceParent { trace: 7, span: 9, is_sampled: true, state: None };
        let redirected = ModelRequest { trace_parent: Some(span), ..asked() };
        assert!(all(model(format, &server.url).call(redirected)).await.iter().any(Result::is_err));
        assert!(server.arrived().await.head.contains("traceparent: "));
    }
    assert!(elsewhere.arrived().now_or_never().is_none(), "no redirect is followed");
}

#[tokio::test]
async fn openai_text_is_passed_on_piece_by_piece() {
    let (open, gate) = oneshot::channel();
    let mut script = vec![Step::Begin, openai_text("Hel"), Step::Gate(gate), openai_text("lo")];
    script.extend(openai_end("stop"));
    let server = Server::start([script]).await;
    let mut stream = openai(&server.url).call(asked());
    assert_eq!(stream.next().await, text("Hel"));
    // The server continues when the first piece has arrived, and not before.
    open.send(()).unwrap();
    assert_eq!(stream.next().await, text("lo"));
    let usage = Usage::of(11, 7);
    let ended = ModelAnswer::new("gpt-4.1", StopReason::Finished, usage);
    assert_eq!(stream.next().await, Some(Ok(ModelEvent::Ended(ended))));
    assert_eq!(stream.next().await, None);

    let arrived = server.arrived().await;
    assert_eq!(arrived.path, "/v1/chat/completions");
    assert!(arrived.head.contains(&format!("authorization: Bearer {CANARY}")), "{}", arrived.head);
    assert!(arrived.head.contains("idempotency-key: turn-1/gpt-4.1"), "{}", arrived.head);
    assert_eq!(arrived.body["messages"][0], json!({ "role": "system", "content": "be brief" }));
    assert_eq!(arrived.body["max_tokens"], 500);
    assert_eq!(arrived.body["stream_options"]["include_usage"], true);
    assert_eq!(arrived.body["tools"][0]["function"]["name"], "look");
}

#[tokio::test]
async fn anthropic_text_is_passed_on_piece_by_piece() {
    let (open, gate) = oneshot::channel();
    let mut pieces = anthropic_text(0, &["Hel", "lo"]);
    let rest = pieces.split_off(2);
    let mut script: Vec<_> = anthropic_begin().into_iter().chain(pieces).collect();
    script.push(Step::Gate(gate));
    script.extend(rest.into_iter().chain(anthropic_end("end_turn")));
    let server = Server::start([script]).await;
    let mut stream = anthropic_at(&server.url).call(asked());
    assert_eq!(stream.next().await, text("Hel"));
    open.send(()).unwrap();
    assert_eq!(stream.next().await, text("lo"));
    let Some(Ok(ModelEvent::Ended(answer))) = stream.next().await else { panic!("no end") };
    assert_eq!(answer.usage, Usage::of(20, 9));
    assert!(!answer.is_estimate);

    let arrived = server.arrived().await;
    assert_eq!(arrived.path, "/v1/messages");
    assert!(arrived.head.contains(&format!("x-api-key: {CANARY}")), "{}", arrived.head);
    assert_eq!(arrived.body["system"], "be brief");
    assert_eq!(arrived.body["tools"][0]["name"], "look");
}

#[tokio::test]
async fn openai_calls_come_whole_and_in_their_order() {
    let mut script = vec![
        Step::Begin,
        openai_text("so"),
        openai_call(0, Some(("c1", "look")), "{\"path\""),
        openai_call(0, None, ": \"a\"}"),
        openai_call(1, Some(("c2", "look")), ""),
    ];
    script.extend(openai_end("tool_calls"));
    let server = Server::start([script]).await;
    let (text, calls, answer) = answer(openai(&server.url).call(asked())).await;
    let expected = [ToolCall::new("c1", "look", json!({ "path": "a" })), ToolCall::new("c2", "look", json!({}))];
    assert_eq!((text.as_str(), &calls[..], answer.stop), ("so", &expected[..], StopReason::ToolCalls));
}

#[tokio::test]
async fn anthropic_calls_come_whole_and_in_their_order() {
    let mut script: Vec<_> = anthropic_begin().into_iter().chain(anthropic_text(0, &["so"])).collect();
    script.extend(anthropic_call(1, "c1", "look", &["{\"path\"", ": \"a\"}"]));
    script.extend(anthropic_call(2, "c2", "look", &[]));
    script.extend(anthropic_end("tool_use"));
    let server = Server::start([script]).await;
    let (text, calls, answer) = answer(anthropic_at(&server.url).call(asked())).await;
    let expected = [ToolCall::new("c1", "look", json!({ "path": "a" })), ToolCall::new("c2", "look", json!({}))];
    assert_eq!((text.as_str(), &calls[..], answer.stop), ("so", &expected[..], StopReason::ToolCalls));
}

#[tokio::test]
async fn arguments_that_are_no_json_are_reported_as_text() {
    for format in Format::WITH_WRITTEN_ARGUMENTS {
        let server = Server::start([format.calls("look", "{\"path\": ")]).await;
        let (_, calls, answer) = answer(model(format, &server.url).call(asked())).await;
        assert_eq!((&calls[0].arguments, answer.stop), (&"{\"path\": ".into(), StopReason::ToolCalls), "{format:?}");
    }
}

#[tokio::test]
async fn a_call_has_an_id_that_no_other_call_of_the_conversation_has() {
    let mut script = vec![Step::Begin, openai_call(0, Some(("call_0", "look")), "{}")];
    script.extend(openai_end("tool_calls"));
    let server = Server::start([script]).await;
    let called = ToolCall::new("call_0", "look", json!({}));
    let answered = Message::Tool { call: "call_0".into(), name: "look".into(), text: "a".into(), is_error: false };
    let said = Message::Assistant { text: "".into(), calls: vec![called] };
    let asked = request(vec![Message::user("go"), said, answered]);
    let (_, calls, _) = answer(openai(&server.url).call(asked)).await;
    assert_eq!(&*calls[0].id, "call_0-2");
    let sent = server.arrived().await.body;
    assert_eq!(sent["messages"][2]["tool_calls"][0]["id"], "call_0");
    assert_eq!(sent["messages"][3], json!({ "role": "tool", "content": "a", "tool_call_id": "call_0" }));
}

#[tokio::test]
async fn usage_that_no_provider_reports_is_estimated_and_marked_as_an_estimate() {
    let done = Step::Send("data: [DONE]\n\n".to_owned());
    let server = Server::start([vec![Step::Begin, openai_text("Hello!"), done, Step::End]]).await;
    let (_, _, answer) = answer(openai(&server.url).call(asked())).await;
    assert!(answer.is_estimate);
    assert_eq!(answer.usage, Usage::of(asked().estimated_tokens(), 2));
}

#[tokio::test]
async fn each_status_has_its_kind() {
    use ModelErrorKind::*;
    let cases = [
        (429, "retry-after: 7\r\n", RateLimited(Some(Duration::from_secs(7)))),
        (429, "retry-after: 7\r\nretry-after-ms: 20\r\n", RateLimited(Some(Duration::from_millis(20)))),
        (429, "", RateLimited(None)),
        (408, "", Unavailable),
        (500, "", Unavailable),
        (503, "", Unavailable),
        (529, "", Unavailable),
        (401, "", Unauthorised),
        (403, "", Unauthorised),
        (402, "", Unpaid),
        (400, "", Rejected),
        (404, "", Rejected),
        (422, "", Rejected),
        (307, "location: http://127.0.0.1:1/\r\n", Rejected),
    ];
    for (status, headers, kind) in cases {
        let body = r#"{"error":{"message":"because\u001b[31m"}}"#;
        let server = Server::start(Format::ALL.map(|_| fails(status, headers, body))).await;
        for model in Format::ALL.map(|format| model(format, &server.url)) {
            let error = error(&model).await;
            assert_eq!(error.kind, kind, "{status}: {error}");
            assert!(error.text.contains("because\\u{1b}[31m"), "{error}");
        }
    }
}

#[tokio::test]
async fn an_account_without_money_is_told_from_a_limit_of_the_rate() {
    let (rate, quota) = (r#"{"error":{"code":"rate_limit_exceeded"}}"#, r#"{"error":{"code":"insufficient_quota"}}"#);
    let credit = r#"{"error":{"message":"Your credit balance is too low to access the API."}}"#;
    for (status, body, kind) in [
        (429, rate, ModelErrorKind::RateLimited(None)),
        (429, quota, ModelErrorKind::Unpaid),
        (400, credit, ModelErrorKind::Unpaid),
        (402, "{}", ModelErrorKind::Unpaid),
    ] {
        let server = Server::start(Format::ALL.map(|_| fails(status, "", body))).await;
        for model in Format::ALL.map(|format| model(format, &server.url)) {
            let error = error(&model).await;
            assert_eq!((error.kind, error.is_free), (kind, true), "{status}: {error}");
        }
    }
}

#[tokio::test]
async fn a_long_message_of_a_provider_is_cut() {
    for format in Format::ALL {
        let server = Server::start([fails(400, "", &"x".repeat(100_000))]).await;
        let error = error(&model(format, &server.url)).await;
        assert_eq!(error.text.chars().count(), 301, "{format:?}");
    }
}

#[tokio::test]
async fn a_refused_key_names_its_variable_and_is_never_shown() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber =
        tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(move || writer.clone());
    let _logged = tracing::subscriber::set_default(subscriber.finish());
    tracing::info!("the log is on");

    let echo = format!(r#"{{"error":{{"message":"no such key: {CANARY}"}}}}"#);
    let server = Server::start([fails(401, "", &echo), fails(401, "", &echo), fails(400, "", &echo)]).await;
    let refused = error(&openai(&server.url)).await;
    assert_eq!(refused.kind, ModelErrorKind::Unauthorised);
    assert!(refused.text.contains("look at OPENAI_API_KEY: no such key: [the key]"), "{refused}");
    error(&anthropic_at(&server.url)).await;
    error(&openai(&server.url)).await;

    let model = openai(&server.url);
    let entry = ModelEntry::from(model.clone());
    let models = Models::of(&Env::system(), [entry.clone()]).unwrap();
    let shown = format!("{model:?} {entry:?} {models:?} {:?}", Secret::new(CANARY));
    assert!(!shown.contains(CANARY), "{shown}");
    let logged = log.text();
    assert!(logged.contains("the log is on") && !logged.contains(CANARY), "{logged}");
}

/// What docs/models.md claims, and no more.
#[tokio::test]
async fn a_key_that_a_provider_repeats_in_another_form_is_shown_as_the_page_warns() {
    let page = include_str!("../../../../../docs/models.md").split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        page.contains(
            "only the key as it was given is found, and not one that is reversed, in Base64, in hexadecimal,"
        )
    );
    let (first, rest) = CANARY.split_at(CANARY.len() / 2);
    let reversed: String = CANARY.chars().rev().collect();
    let hexadecimal: String = CANARY.bytes().map(|byte| format!("{byte:02x}")).collect();
    for form in [reversed, hexadecimal, format!("{first} {rest}"), format!("{first}\n{rest}")] {
        let echo = json!({ "error": { "message": format!("{CANARY} is {form}.") } }).to_string();
        let server = Server::start([fails(400, "", &echo)]).await;
        let refused = error(&openai(&server.url)).await;
        let shown = form.replace('\n', "\\u{a}");
        assert!(refused.text.ends_with(&format!(": [the key] is {shown}.")), "{refused}");
    }
}

#[tokio::test]
async fn a_missing_key_names_the_variable_to_set_and_nothing_is_sent() {
    for (provider, name, variable) in
        [("anthropic", "claude-sonnet-4-5", "ANTHROPIC_API_KEY"), ("openai", "gpt-4.1", "OPENAI_API_KEY")]
    {
        let model = GenaiModel::new(provider, name).unwrap().at(&unused_address().await).unwrap();
        let missing = error(&model).await;
        assert_eq!(missing.kind, ModelErrorKind::Unauthorised);
        assert_eq!(missing.text, format!("there is no key for {provider}: set {variable}"));
        let broken = error(&model.key(Secret::new("sk-\n1"))).await;
        assert_eq!(broken.text, format!("the key in {variable} has characters that no key has"));
    }
}

#[tokio::test]
async fn a_connection_that_is_refused_has_sent_nothing() {
    for format in Format::ALL {
        let error = error(&model(format, &unused_address().await)).await;
        assert_eq!(error.kind, ModelErrorKind::NotSent, "{format:?}: {error}");
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_after_some_text_was_cut_off() {
    for format in Format::ALL {
        let breaks_off = |end: Vec<Step>| format.saying("so").into_iter().chain(end).collect::<Vec<_>>();
        let ends = [vec![Step::Cut], vec![Step::End], format.error("overloaded_error", "full")];
        let server = Server::start(ends.map(breaks_off)).await;
        let model = model(format, &server.url);
        for _ in 0..3 {
            let events = all(model.call(asked())).await;
            let [Ok(ModelEvent::Text(_)), Err(error)] = &events[..] else { panic!("{format:?}: {events:?}") };
            assert_eq!(error.kind, ModelErrorKind::CutOff, "{format:?}: {error}");
        }
    }
}

#[tokio::test]
async fn an_answer_that_ends_before_it_has_said_anything_is_the_providers_fault() {
    for format in Format::ALL {
        let reported = |error: Vec<Step>| std::iter::once(format.head()).chain(error).collect::<Vec<_>>();
        let server = Server::start([
            vec![Step::Cut],
            vec![format.head(), Step::Cut],
            vec![format.head(), Step::End],
            reported(format.error("overloaded_error", "full")),
            reported(format.error("rate_limit_error", "slow")),
        ])
        .await;
        let model = model(format, &server.url);
        for _ in 0..4 {
            let error = error(&model).await;
            assert_eq!(error.kind, ModelErrorKind::Unavailable, "{format:?}: {error}");
        }
        let limited = match format {
            Format::OpenAi | Format::Anthropic | Format::Gemini => ModelErrorKind::RateLimited(None),
            // It has no word for it.
            Format::Ollama => ModelErrorKind::Unavailable,
        };
        assert_eq!(error(&model).await.kind, limited, "{format:?}");
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_malformed() {
    for format in Format::ALL {
        let server = Server::start([vec![format.head(), format.garbage(), Step::End]]).await;
        let error = error(&model(format, &server.url)).await;
        assert_eq!(error.kind, ModelErrorKind::Malformed, "{format:?}: {error}");
    }
}

#[tokio::test]
async fn a_provider_that_sends_nothing_for_too_long_is_left() {
    for format in Format::ALL {
        let hangs = |steps: Vec<Step>| steps.into_iter().chain([Step::Hang]).collect::<Vec<_>>();
        let server = Server::start([vec![Step::Hang], hangs(format.begun()), hangs(format.saying("so"))]).await;
        let mut timeouts = Timeouts::default();
        timeouts.begin = Duration::from_millis(60);
        let silent = error(&model(format, &server.url).timeouts(timeouts)).await;
        assert_eq!(silent.kind, ModelErrorKind::Unavailable, "{format:?}");
        assert!(silent.text.ends_with("has not begun to answer within 0.06 s"), "{format:?}: {silent}");

        let mut timeouts = Timeouts::default();
        timeouts.piece = Duration::from_millis(50);
        let model = model(format, &server.url).timeouts(timeouts);
        let silent = error(&model).await;
        assert_eq!(silent.kind, ModelErrorKind::Unavailable, "{format:?}");
        assert!(silent.text.ends_with("has said nothing for 0.05 s"), "{format:?}: {silent}");
        let events = all(model.call(asked())).await;
        let [Ok(_), Err(error)] = &events[..] else { panic!("{format:?}: {events:?}") };
        assert_eq!(error.kind, ModelErrorKind::CutOff, "{format:?}");
    }
}

/// What a step sends.
fn piece(step: Step) -> String {
    let Step::Send(text) = step else { panic!("it sends nothing") };
    text
}

#[tokio::test]
async fn signs_of_life_alone_are_no_answer() {
    let pings = || Step::SendForEver(": ping\n\n".to_owned());
    let empty = || Step::SendForEver(piece(wire::openai(json!({ "choices": [{ "index": 0, "delta": {} }] }))));
    let scripts =
        [vec![Step::Begin, pings()], vec![Step::Begin, empty()], vec![Step::Begin, openai_text("so"), pings()]];
    let server = Server::start(scripts).await;
    let mut timeouts = Timeouts::default();
    (timeouts.begin, timeouts.piece) = (Duration::from_millis(200), Duration::from_millis(100));
    let model = openai(&server.url).timeouts(timeouts);
    for _ in 0..2 {
        let silent = error(&model).await;
        assert_eq!(silent.kind, ModelErrorKind::Unavailable);
        assert!(silent.text.ends_with("has not begun to answer within 0.2 s"), "{silent}");
    }
    let events = all(model.call(asked())).await;
    let [Ok(_), Err(error)] = &events[..] else { panic!("{events:?}") };
    assert!(error.text.ends_with("has said nothing for 0.1 s"), "{error}");
}

#[tokio::test]
async fn calls_without_end_are_left() {
    let call = |index: u32, arguments: &str| openai_call(index, Some((&format!("c{index}"), "t")), arguments);
    let long = vec![Step::Begin, call(0, "{"), Step::SendForEver(piece(openai_call(0, None, &"x".repeat(1 << 18))))];
    let many = std::iter::once(Step::Begin).chain((0..70).map(|index| call(index, "{}")));
    let server = Server::start([long, many.chain([Step::Hang]).collect()]).await;
    for _ in 0..2 {
        let error = error(&openai(&server.url)).await;
        assert_eq!(error.kind, ModelErrorKind::Malformed);
        assert!(error.text.contains("more than 4 MiB or 64 calls"), "{error}");
    }
}

#[tokio::test]
async fn dropping_the_stream_closes_the_connection() {
    for format in Format::ALL {
        let (on_close, closed) = oneshot::channel();
        let mut script = format.saying("so");
        script.push(Step::UntilClosed(on_close));
        let server = Server::start([script]).await;
        let mut stream = model(format, &server.url).call(asked());
        assert_eq!(stream.next().await, text("so"), "{format:?}");
        drop(stream);
        // Long before the model's own time for a piece is over.
        timeout(Duration::from_secs(20), closed).await.expect("it stays open").unwrap();
    }
}

#[tokio::test]
async fn a_provider_that_wants_less_is_asked_again_after_the_time_that_it_names() {
    for format in Format::ALL {
        let server = Server::start([fails(429, "retry-after-ms: 1\r\n", ""), format.says("hello")]).await;
        let entry = ModelEntry::from(model(format, &server.url).named("a")).prices(1.0, 2.0);
        let models = Models::of(&Env::system(), [entry]).unwrap();
        let events = all(models.call(&ModelChoice::of("a"), asked())).await;
        let [Ok(ModelEvent::Failed { model, error, next }), Ok(ModelEvent::Text(_)), Ok(ModelEvent::Ended(answer))] =
            &events[..]
        else {
            panic!("{format:?}: {events:?}")
        };
        assert_eq!((&**model, &**next), ("a", "a"));
        assert_eq!(error.kind, ModelErrorKind::RateLimited(Some(Duration::from_millis(1))), "{format:?}");
        let Usage { input_tokens, output_tokens, .. } = format.usage();
        assert_eq!(answer.cost.unwrap().0, 1_000 * input_tokens + 2_000 * output_tokens, "{format:?}");
        // The same for both tries: a provider that knows it answers from its memory.
        let (first, second) = (server.arrived().await, server.arrived().await);
        let key = |head: &str| head.lines().find(|line| line.starts_with("idempotency-key")).map(str::to_owned);
        assert!(key(&first.head).is_some() && key(&first.head) == key(&second.head), "{format:?}");
    }
}

#[tokio::test]
async fn what_fails_before_anything_was_said_is_asked_again_and_what_has_begun_is_not() {
    for format in Format::ALL {
        let breaks_off = format.saying("so").into_iter().chain([Step::Cut]).collect();
        let server = Server::start([fails(500, "", ""), vec![Step::Cut], format.says("hello"), breaks_off]).await;
        let mut policy = CallPolicy::default();
        policy.backoff = Backoff { first: Duration::ZERO, max: Duration::ZERO };
        let first = ModelEntry::from(model(format, &server.url).named("a")).fallback("b");
        let second = ModelEntry::from(model(format, &unused_address().await).named("b"));
        let models = Models::of(&Env::system(), [first, second]).unwrap().with_policy(policy);
        let model = models.chosen(&ModelChoice::of("a")).unwrap();
        let (text, _, answer) = answer(model.call(asked())).await;
        assert_eq!((text.as_str(), answer.usage), ("hello", format.usage()), "{format:?}");
        let events = all(model.call(asked())).await;
        let [Ok(ModelEvent::Text(_)), Err(error)] = &events[..] else { panic!("{format:?}: {events:?}") };
        assert_eq!(error.kind, ModelErrorKind::CutOff, "{format:?}");
    }
}

#[tokio::test]
async fn the_fallback_answers_for_a_provider_that_fails_or_is_not_reached() {
    let mut policy = CallPolicy::default();
    policy.retries = 0;
    for (format, other) in [(Format::Anthropic, Format::OpenAi), (Format::OpenAi, Format::Anthropic)] {
        let broken = Server::start([fails(500, "", "")]).await;
        let server = Server::start([other.says("hello"), other.says("hello")]).await;
        for url in [broken.url.clone(), unused_address().await] {
            let first = ModelEntry::from(model(format, &url).named("a")).fallback("b");
            let second = ModelEntry::from(model(other, &server.url).named("b"));
            let models = Models::of(&Env::system(), [first, second]).unwrap().with_policy(policy);
            let (text, _, answer) = answer(models.chosen(&ModelChoice::of("a")).unwrap().call(asked())).await;
            assert_eq!((text.as_str(), &*answer.model), ("hello", "b"), "{format:?}");
        }
    }
}

#[tokio::test]
async fn what_a_model_thought_goes_back_with_its_signature() {
    let block = json!({ "type": "thinking", "thinking": "", "signature": "" });
    let thought = |delta| anthropic("content_block_delta", json!({ "index": 0, "delta": delta }));
    let mut script: Vec<_> = anthropic_begin().into_iter().collect();
    script.push(anthropic("content_block_start", json!({ "index": 0, "content_block": block })));
    script.push(thought(json!({ "type": "thinking_delta", "thinking": "hm" })));
    script.push(thought(json!({ "type": "signature_delta", "signature": "c2ln" })));
    script.push(anthropic("content_block_stop", json!({ "index": 0 })));
    script.extend(anthropic_call(1, "c1", "look", &["{}"]));
    script.extend(anthropic_end("tool_use"));
    let again: Vec<_> =
        anthropic_begin().into_iter().chain(anthropic_text(0, &["ok"])).chain(anthropic_end("end_turn")).collect();
    let server = Server::start([script, again, Format::OpenAi.says("ok")]).await;
    let events = all(anthropic_at(&server.url).call(asked())).await;
    assert_eq!(events[0], Ok(ModelEvent::Reasoning("hm".into())));
    let Ok(ModelEvent::ToolCall(call)) = &events[1] else { panic!("{events:?}") };
    let said = Message::Assistant { text: "".into(), calls: vec![call.clone()] };
    let answered = Message::Tool { call: "c1".into(), name: "look".into(), text: "a".into(), is_error: false };
    let next = request(vec![Message::user("go"), said, answered]);
    server.arrived().await;
    answer(anthropic_at(&server.url).call(next.clone())).await;
    let sent = server.arrived().await.body;
    let thinking = json!({ "type": "thinking", "thinking": "hm", "signature": "c2ln" });
    assert_eq!(sent["messages"][1]["content"][0], thinking);
    // Another provider is not shown it.
    answer(openai(&server.url).call(next)).await;
    let sent = server.arrived().await.body.to_string();
    assert!(!sent.contains("c2ln") && !sent.contains("hm"), "{sent}");
}

/// Everything that is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
