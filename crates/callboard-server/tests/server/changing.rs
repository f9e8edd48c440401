//! What clients change that others may change too: entries of the shared context, and saved workflows.

use callboard::prelude::*;
use callboard_server::{Scope, TokenSpec};
use serde_json::{Value, json};

use crate::support::local::Local;

async fn board() -> Callboard {
    let echo = |turn: Turn| async move { Ok(Command::output(turn.input_json().clone())) };
    Callboard::builder().agent("echo", echo).start().await.unwrap()
}

fn spec(scopes: impl IntoIterator<Item = Scope>) -> TokenSpec {
    TokenSpec::new("ci", scopes).namespaces(["codebase"])
}

#[tokio::test]
async fn an_entry_is_changed_only_as_it_was_read() {
    let board = board().await;
    let local = Local::of(&board, spec([Scope::Read, Scope::Delegate]));
    let path = "/v1/context/codebase/auth%2Flogin";
    assert_eq!(local.get(path).await.0, 404);
    let put = async |headers: &[(&str, &str)], value: &str| {
        local.change("PUT", path, headers, &json!({ "value": value })).await
    };
    let (status, first, shown) = put(&[("If-None-Match", "*")], "one").await;
    assert_eq!(
        (status, &shown["key"], &shown["value"], &shown["agent"]),
        (200, &json!("auth/login"), &json!("one"), &json!("ci"))
    );
    let first = first.unwrap();
    assert_eq!(first, format!("\"{}\"", shown["revision"]));
    for needed in [("If-None-Match", "*"), ("If-Match", "\"1\"")] {
        let (status, _, problem) = put(&[needed], "other").await;
        assert_eq!((status, &problem["code"]), (412, &json!("precondition-failed")), "{needed:?}: {problem}");
    }
    let (status, second, _) = put(&[("If-Match", &first)], "two").await;
    assert_eq!(status, 200);
    let second = second.unwrap();
    let (status, tag, shown) = local.change("GET", path, &[], &Value::Null).await;
    assert_eq!((status, tag.as_ref(), &shown["value"]), (200, Some(&second), &json!("two")));
    let (_, listed) = local.get("/v1/context/codebase?prefix=auth").await;
    assert_eq!((&listed["entries"][0]["key"], &listed["entries"][0]["value"]), (&json!("auth/login"), &Value::Null));
    assert_eq!(local.get("/v1/context/codebase?prefix=b").await.1, json!({ "entries": [], "has_more": false }));

    assert_eq!(local.change("DELETE", path, &[("If-Match", &first)], &Value::Null).await.0, 412);
    assert_eq!(local.change("DELETE", path, &[("If-None-Match", "*")], &Value::Null).await.0, 400);
    assert_eq!(local.change("DELETE", path, &[("If-Match", &second)], &Value::Null).await.0, 204);
    assert_eq!(local.change("DELETE", path, &[], &Value::Null).await.0, 404);
    assert_eq!(put(&[], "again").await.0, 200, "whatever is there");
    for headers in [[("If-Match", "x")], [("If-None-Match", "\"1\"")]] {
        assert_eq!(put(&headers, "x").await.0, 400, "{headers:?}");
    }
    let (status, _, problem) = put(&[], &"x".repeat(65_537)).await;
    assert_eq!((status, &problem["code"]), (422, &json!("refused")));
    board.shutdown().await;
}

#[tokio::test]
async fn a_token_reaches_the_namespaces_that_it_was_granted_alone() {
    let board = board().await;
    let none = Local::with(&board, Scope::ALL);
    let granted = Local::of(&board, spec([Scope::Read]));
    for (local, path, expected) in [
        (&none, "/v1/context/codebase", 403),
        (&none, "/v1/context/codebase/x", 403),
        (&granted, "/v1/context/codebase", 200),
        (&granted, "/v1/context/codebase/x", 404),
        (&granted, "/v1/context/agent:echo/x", 403),
        (&granted, "/v1/context/Codebase", 403),
        (&granted, "/v1/context/codebase%2Fx", 403),
    ] {
        let (status, problem) = local.get(path).await;
        assert_eq!(status, expected, "{path}: {problem}");
        if expected == 403 {
            assert_eq!(problem["code"], "not-granted", "{path}");
        }
    }
    let (status, _, problem) = granted.change("PUT", "/v1/context/codebase/x", &[], &json!({ "value": "x" })).await;
    assert_eq!((status, &problem["code"]), (403, &json!("missing-scope")), "to write it delegates");
    board.shutdown().await;
}

#[tokio::test]
async fn what_a_token_writes_is_untrusted_unless_it_is_an_administrators() {
    let board = board().await;
    for (scopes, is_untrusted) in [(vec![Scope::Delegate], true), (vec![Scope::Delegate, Scope::Admin], false)] {
        let local = Local::of(&board, spec(scopes));
        let (_, _, shown) = local.change("PUT", "/v1/context/codebase/x", &[], &json!({ "value": "x" })).await;
        assert_eq!(shown["is_untrusted"], json!(is_untrusted), "{shown}");
        let entry = board.context().get("codebase", "x").await.unwrap().unwrap();
        assert_eq!(entry.is_untrusted(), is_untrusted);
    }
    board.shutdown().await;
}

#[tokio::test]
async fn a_workflow_is_saved_in_versions_and_only_after_the_one_that_was_read() {
    let board = board().await;
    let local = Local::over(&board);
    let path = "/v1/workflows/daily";
    let line = |text: &str| json!({ "line": text });
    let put = async |headers: &[(&str, &str)], body: Value| local.change("PUT", path, headers, &body).await;
    let (status, tag, saved) = put(&[("If-None-Match", "*")], line("workflow daily: echo")).await;
    assert_eq!((status, tag.as_deref(), saved), (200, Some("\"1\""), json!({ "name": "daily", "version": 1 })));
    let longer = "workflow daily: echo -> then(agent=\"echo\")";
    assert_eq!(put(&[("If-None-Match", "*")], line(longer)).await.0, 412);
    assert_eq!(put(&[("If-Match", "\"2\"")], line(longer)).await.0, 412);
    assert_eq!(put(&[("If-Match", "\"1\"")], line("workflow daily: echo")).await.2["version"], 1, "the same again");
    assert_eq!(put(&[], line("echo")).await.2["version"], 1, "a line without a name has that of the path");
    assert_eq!(put(&[("If-Match", "\"1\"")], line(longer)).await.2["version"], 2);
    let (_, tag, versions) = local.change("GET", &format!("{path}/versions"), &[], &Value::Null).await;
    assert_eq!((tag.as_deref(), versions), (Some("\"2\""), json!({ "name": "daily", "versions": [1, 2] })));
    let (_, drawn) = local.get(&format!("{path}/drawing")).await;
    assert!(drawn["mermaid"].as_str().unwrap().contains("then") && drawn["version"] == 2, "{drawn}");
    let (_, drawn) = local.get(&format!("{path}/drawing?version=1")).await;
    assert!(!drawn["mermaid"].as_str().unwrap().contains("then"), "{drawn}");
    assert!(drawn["svg"].as_str().unwrap().starts_with("<svg"), "{drawn}");

    for (body, status) in [
        (line("workflow other: echo"), 422),
        (line("workflow workflow: echo"), 422),
        (line("workflow daily: ->"), 422),
        (json!({ "toml": "x" }), 422),
        (json!({ "toml": "x", "line": "y" }), 400),
        (json!({}), 400),
    ] {
        assert_eq!(put(&[], body.clone()).await.0, status, "{body}");
    }
    for path in ["/v1/workflows/no/versions", "/v1/workflows/no/drawing", "/v1/workflows/daily/drawing?version=9"] {
        assert_eq!(local.get(path).await.0, 404, "{path}");
    }
    assert_eq!(local.get("/v1/workflows/daily/drawing?version=x").await.0, 400);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_token_that_sends_too_many_requests_is_told_when_to_try_again() {
    let board = board().await;
    let local = Local::of(&board, spec([Scope::Read]).requests_a_minute(2));
    for _ in 0..2 {
        assert_eq!(local.get("/v1/agents").await.0, 200);
    }
    let refused = local.open("/v1/agents").await;
    let seconds: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert_eq!((refused.status().as_u16(), (1..=60).contains(&seconds)), (429, true), "{seconds}");
    assert_eq!(local.get("/v1/health").await.0, 200, "it needs no token");
    assert_eq!(Local::over(&board).get("/v1/agents").await.0, 200, "another token");
    board.shutdown().await;
}
