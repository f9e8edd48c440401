//! Messages of the Model Context Protocol that are wrong in every way: each is refused with its reason, and the server continues.

use callboard_server::Scope;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::messages::{ACCEPT, ask, message, post};
use crate::support::service::Service;

const ALL: [Scope; 2] = [Scope::Read, Scope::Delegate];

/// Messages of well-formed JSON, each with the status and what the answer contains.
fn wrong_messages(own: &str) -> Vec<(Value, u16, &'static str)> {
    let round = format!("{own}/question");
    let sum: String = Sha256::digest(&round).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let state = format!("{round}/{sum}");
    let call = |params: Value| message("tools/call", &params, &json!({}));
    let echo = |arguments: Value| call(json!({ "name": "agent_echo", "arguments": arguments }));
    let of = |method: &str, params: Value| {
        message(method, &params, &json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } }))
    };
    let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
    let mut without_meta = call(json!({ "name": "agent_echo" }));
    without_meta["params"]["_meta"] = json!({});
    let mut of_other_version = echo(json!({ "task": "x" }));
    of_other_version["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2099-01-01");
    let mut with_token = echo(json!({ "task": "x" }));
    with_token["params"]["_meta"]["progressToken"] = json!({ "a": 1 });
    let with_id = |id: Value| {
        let mut message = echo(json!({ "task": "x" }));
        message["id"] = id;
        message
    };
    vec![
        // Tools that are none, and arguments that a tool does not take.
        (call(json!({ "name": "agent_nobody" })), 200, "there is no tool agent_nobody"),
        (call(json!({ "name": "" })), 400, "-32020"),
        (call(json!({ "name": "echo" })), 200, "there is no tool echo"),
        (call(json!({ "name": "../agent_echo" })), 200, "there is no tool"),
        (call(json!({ "name": "agent_echo\u{202e}" })), 400, "-32020"),
        (call(json!({ "name": "x".repeat(20_000) })), 200, "there is no tool xxx"),
        (call(json!({ "name": 1 })), 200, "the parameters of t"),
        (call(json!({})), 200, "the parameters of t"),
        (echo(json!({})), 200, "missing field `task`"),
        (echo(json!({ "task": 1 })), 200, "invalid type"),
        (echo(json!({ "task": null })), 200, "invalid type"),
        (echo(json!({ "task": ["x"] })), 200, "invalid type"),
        (echo(json!({ "task": "x", "limits": {} })), 200, "unknown field `limits`"),
        (echo(json!({ "task": "x", "is_untrusted": false })), 200, "unknown field `is_untrusted`"),
        (echo(json!({ "task": "x", "from_agent": "owner" })), 200, "unknown field `from_agent`"),
        (echo(json!({ "task": "x", "reference": 7 })), 200, "invalid type"),
        (echo(json!("x")), 200, "the parameters of t"),
        (echo(json!(["x"])), 200, "the parameters of t"),
        (echo(deep.clone()), 400, "recursion limit"),
        (echo(json!({ "task": "x", "input": deep })), 400, "recursion limit"),
        (
            call(json!({ "name": "run_result", "arguments": { "request_id": "x" } })),
            200,
            "there is no such run of this client",
        ),
        (call(json!({ "name": "run_result", "arguments": { "request_id": 1 } })), 200, "invalid type"),
        (call(json!({ "name": "run_result" })), 200, "missing field `request_id`"),
        // States of requests and responses that were made up.
        (
            call(json!({ "name": "agent_echo", "arguments": { "task": "x" }, "requestState": "x" })),
            200,
            "there is no such task",
        ),
        (
            call(json!({ "name": "agent_echo", "arguments": { "task": "x" }, "requestState": format!("{state}0") })),
            200,
            "there is no such task",
        ),
        (
            call(json!({ "name": "agent_echo", "arguments": { "task": "other" }, "requestState": state })),
            200,
            "belongs to another call",
        ),
        (
            call(json!({ "name": "agent_asker", "arguments": { "task": "x" }, "requestState": state })),
            200,
            "belongs to another call",
        ),
        (
            call(json!({ "name": "agent_echo", "arguments": { "task": "x" }, "requestState": 1 })),
            200,
            "the parameters of t",
        ),
        (
            call(json!({ "name": "agent_echo", "arguments": { "task": "x" }, "inputResponses": [] })),
            200,
            "the parameters of t",
        ),
        (of("tasks/get", json!({ "taskId": "x" })), 200, "there is no such task"),
        (of("tasks/get", json!({ "taskId": "019a0000-0000-7000-8000-000000000001" })), 200, "there is no such task"),
        (of("tasks/get", json!({ "taskId": 7 })), 200, "the parameters of t"),
        (of("tasks/update", json!({ "taskId": own })), 200, "the parameters of t"),
        (of("tasks/cancel", json!({})), 200, "the parameters of t"),
        (message("tasks/get", &json!({ "taskId": own }), &json!({})), 400, "-32021"),
        // Resources.
        (of("resources/read", json!({ "uri": "file:///etc/passwd" })), 200, "there is no such resource"),
        (
            of("resources/read", json!({ "uri": "callboard://runs/../tokens/journal" })),
            200,
            "there is no such resource",
        ),
        (
            of("resources/read", json!({ "uri": format!("callboard://runs/{own}/journal?from=-1") })),
            200,
            "there is no such resource",
        ),
        (
            of("resources/read", json!({ "uri": "callboard://runs/019a0000-0000-7000-8000-000000000001/flow" })),
            200,
            "no run",
        ),
        (of("resources/read", json!({ "uri": {} })), 200, "the parameters of resources/read"),
        // Methods.
        (of("tools/call/x", json!({})), 404, "-32601"),
        (of("", json!({})), 404, "-32601"),
        (of("initialized", json!({})), 404, "-32601"),
        (of("ping", json!({})), 404, "-32601"),
        (of("sampling/createMessage", json!({})), 404, "-32601"),
        (of("resources/subscribe", json!({ "uri": "callboard://runs" })), 404, "-32601"),
        (of("tools/list", json!({ "cursor": 7 })), 200, "result"),
        // Envelopes.
        (without_meta, 400, "_meta"),
        (of_other_version, 400, "error"),
        (with_token, 200, "result"),
        (with_id(json!(null)), 400, "JSON-RPC message"),
        (with_id(json!({})), 400, "JSON-RPC message"),
        (with_id(json!([1])), 400, "JSON-RPC message"),
        (with_id(json!(1.5)), 400, "JSON-RPC message"),
        (json!({ "jsonrpc": "2.0", "id": 1 }), 400, "JSON-RPC message"),
        (json!({ "jsonrpc": "2.0", "id": 1, "result": {} }), 400, "error"),
        (json!({ "jsonrpc": "1.0", "id": 1, "method": "tools/list" }), 400, "JSON-RPC 2.0"),
        (json!({ "id": 1, "method": "tools/list" }), 400, "JSON-RPC 2.0"),
        (json!({ "jsonrpc": "2.0", "id": 1, "method": 1 }), 400, "JSON-RPC message"),
        (json!([]), 400, "JSON object"),
        (json!([message("tools/list", &json!({}), &json!({}))]), 400, "JSON object"),
        (json!(null), 400, "JSON object"),
    ]
}

#[tokio::test]
async fn hostile_messages_are_refused_with_their_reason_and_the_server_continues() {
    let service = Service::start().await;
    let client = service.client("client", ALL);
    let begun = json!({ "name": "agent_echo", "arguments": { "task": "x" } });
    let own = ask(&client, "tools/call", &begun, &json!({})).await;
    let own = own["result"]["structuredContent"]["request_id"].as_str().unwrap().to_owned();
    let mut wrong = Vec::new();
    for (message, status, contains) in wrong_messages(&own) {
        let answer = post(&client, &message, &[]).await;
        let shown: String = message.to_string().chars().take(150).collect();
        let is_bounded = answer.body.len() < 20_000 && !answer.body.contains("cbt_");
        if (answer.status, is_bounded) != (status, true) || !answer.body.contains(contains) {
            let body: String = answer.body.chars().take(300).collect();
            wrong.push(format!("{shown}\n    {} and not {status} with {contains:?}: {body}", answer.status));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    let list = message("tools/list", &json!({}), &json!({}));
    type Headers = &'static [(&'static str, &'static str)];
    let headers: [(&str, Headers, u16); 9] = [
        ("no type of answer", &[], 406),
        ("a page", &[("Accept", "text/html")], 406),
        ("JSON alone", &[("Accept", "application/json")], 406),
        ("no version", &[ACCEPT], 400),
        ("an unknown version", &[ACCEPT, ("MCP-Protocol-Version", "1999-01-01")], 400),
        ("another method", &[ACCEPT, ("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/call")], 400),
        ("an unknown session", &[ACCEPT, ("Mcp-Session-Id", "x"), ("MCP-Protocol-Version", "2025-11-25")], 404),
        ("an empty session", &[ACCEPT, ("Mcp-Session-Id", ""), ("MCP-Protocol-Version", "2025-11-25")], 404),
        (
            "a long session",
            &[ACCEPT, ("Mcp-Session-Id", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx")],
            404,
        ),
    ];
    for (what, headers, status) in headers {
        let answer = client.post_with("/mcp", headers, &list).await;
        assert_eq!(answer.status, status, "{what}: {answer:?}");
    }
    assert_eq!(client.get_with("/mcp", &[("Accept", "text/event-stream")]).await.status, 400, "there is no session");
    assert_eq!(client.get_with("/mcp", &[("Accept", "text/event-stream"), ("Mcp-Session-Id", "x")]).await.status, 404);
    assert_eq!(client.send("DELETE", "/mcp", "").await.status, 400);
    let large = json!({ "jsonrpc": "2.0", "id": 1, "method": "x".repeat(1024 * 1024) });
    assert_eq!(client.post_with("/mcp", &[ACCEPT], &large).await.status, 413);

    assert_eq!(client.get("/v1/health").await.json(), json!({ "status": "ok" }));
    let result = ask(&client, "tools/call", &begun, &json!({})).await;
    assert_eq!(result["result"]["structuredContent"]["output"], "x");
    let runs = service.board.runs().await.unwrap();
    assert_eq!(runs.len(), 3, "only the first, the last and the one with an unfit token have begun runs");
    service.end().await;
}

#[tokio::test]
async fn a_flood_of_calls_is_refused_beyond_a_bound_and_other_clients_are_answered() {
    let service = Service::start().await;
    let (client, other) = (service.client("client", ALL), service.client("other", ALL));
    let waits = message("tools/call", &json!({ "name": "agent_waiter", "arguments": { "task": "x" } }), &json!({}));
    let mut calls: Vec<_> = (0..130).map(|_| Box::pin(post(&client, &waits, &[]))).collect();
    let mut refused = 0;
    // Until all that are not carried on have been answered.
    while refused < 30 {
        let (answer, at, _) = futures::future::select_all(calls.iter_mut()).await;
        drop(calls.swap_remove(at));
        assert_eq!((answer.status, answer.code()), (429, "overloaded".to_owned()), "{answer:?}");
        refused += 1;
    }
    let echo = json!({ "name": "agent_echo", "arguments": { "task": "x" } });
    assert!(ask(&other, "tools/list", &json!({}), &json!({})).await["result"].is_object());
    // The board has as many runs as it takes.
    let result = ask(&other, "tools/call", &echo, &json!({})).await;
    assert_eq!(result["result"]["structuredContent"]["code"], "overloaded", "{result}");
    drop(calls);
    for run in service.board.runs().await.unwrap() {
        assert_eq!(run.result().await.unwrap().outcome.name(), "cancelled", "its client has left");
    }
    assert_eq!(ask(&other, "tools/call", &echo, &json!({})).await["result"]["structuredContent"]["output"], "x");
    service.end().await;
}
