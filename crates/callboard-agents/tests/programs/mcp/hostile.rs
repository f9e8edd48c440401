//! Servers that do not behave: each is a clear error of that call, and nothing else is harmed.

use std::sync::Arc;

use callboard::messages::Message;
use callboard::prelude::*;
use callboard_agents::testing::ScriptedModel;
use callboard_agents::{Definition, LlmAgent, Tools};
use futures::future::join_all;
use serde_json::json;
use tokio::time::timeout;

use super::peers::{Hand, failure, offered, program, reported, servers, tools, use_all, use_one, with_another};
use crate::outside::AT_MOST;

#[tokio::test]
async fn a_server_that_never_answers_is_not_waited_for() {
    let document = with_another("serve(lambda request: None)") + "timeout = \"300ms\"\n";
    let tools = tools(&document).await;
    let reported = failure(&tools, "mcp__bad__bad", json!({})).await;
    assert_eq!(reported, "the MCP server \"bad\" did not answer within 300ms");
    assert_eq!(use_one(&tools, "mcp__good__add", json!({ "a": 1, "b": 1 })).await.text, "2");
}

/// The texts that an agent on a board receives when it uses the tool so often.
async fn reported_on_a_board(tools: &Tools, times: usize) -> Vec<String> {
    let definition = "[agent]\nname = \"asker\"\n[agent.capabilities]\nallowed_tools = [\"mcp__bad__bad\"]";
    let definition = Definition::reader().tools(tools).read("asker.toml", definition).unwrap();
    let model = (0..times).fold(ScriptedModel::new(), |model, _| model.calls("mcp__bad__bad", json!({}))).says("done");
    let agent = LlmAgent::new(&definition, Arc::new(model.clone()), tools, &[]).unwrap();
    let board = Callboard::builder().env(Hand::default().env()).with(agent.spec()).start().await.unwrap();
    let run = board.submit(Task::new("ask")).await.unwrap();
    assert_eq!(timeout(AT_MOST, run.result()).await.unwrap().unwrap().output, "done");
    board.shutdown().await;
    let last = model.requests().pop().unwrap();
    let reported = last.messages.iter().filter_map(|message| match message {
        Message::Tool { text, .. } => Some(text.to_string()),
        _ => None,
    });
    reported.collect()
}

const LEFT_ALONE: &str = "mcp__bad__bad has not answered in time again and again: it may be used again in 30 s";

#[tokio::test]
async fn a_server_that_never_answers_is_left_alone_after_three_times() {
    // It answers pings, so it is not started again.
    let silent = r#"
while True:
    message = hear()
    if message.get("method") == "ping":
        tell({"id": message["id"], "result": {}})
    elif message.get("method") != "tools/call" and "id" in message:
        tell(answer(message, None))
"#;
    let document = with_another(silent) + "timeout = \"200ms\"\neffect = \"reads\"\n";
    let reported = reported_on_a_board(&tools(&document).await, 5).await;
    let silent = "the MCP server \"bad\" did not answer within 200ms";
    assert_eq!(reported, [silent, silent, silent, LEFT_ALONE, LEFT_ALONE]);
}

#[tokio::test]
async fn a_server_that_answers_with_errors_is_not_left_alone() {
    let document = with_another("def bad(request): raise Refused(1, 'no')\nserve(bad)") + "effect = \"reads\"\n";
    let reported = reported_on_a_board(&tools(&document).await, 5).await;
    assert_eq!(reported, ["the MCP server \"bad\" refuses (code 1): no"; 5]);
}

#[tokio::test]
async fn a_server_that_does_not_return_is_left_alone_after_three_times() {
    let folder = tempfile::tempdir().unwrap();
    let gone = folder.path().join("gone");
    let source = format!(
        "if os.path.exists({gone:?}):\n    while True: hear()\ndef bad(request):\n    open({gone:?}, 'w').close()\n    \
         os._exit(0)\nserve(bad)"
    );
    let document = with_another(&source) + "start_timeout = \"3s\"\neffect = \"reads\"\n";
    let reported = reported_on_a_board(&tools(&document).await, 5).await;
    let (died, unready) = (&reported[0], "the MCP server \"bad\" was not ready within 3s");
    assert!(died.contains("exited with status 0"), "{died}");
    assert_eq!(reported[1..], [unready, unready, unready, LEFT_ALONE]);
}

#[tokio::test]
async fn a_server_that_hangs_is_started_again() {
    let folder = tempfile::tempdir().unwrap();
    let hung = folder.path().join("hung");
    let hangs = format!(
        "def bad(request):\n    if os.path.exists({hung:?}): return text('well')\n    open({hung:?}, 'w').close()\n    \
         os.read(os.pipe()[0], 1)\nserve(bad)"
    );
    let tools = tools(&(with_another(&hangs) + "timeout = \"300ms\"\n")).await;
    let reported = failure(&tools, "mcp__bad__bad", json!({})).await;
    assert_eq!(reported, "the MCP server \"bad\" did not answer within 300ms");
    assert_eq!(use_one(&tools, "mcp__bad__bad", json!({})).await.text, "well");
}

#[tokio::test]
async fn a_server_that_never_begins_is_not_waited_for() {
    let document = program("good", "serve()") + &program("bad", "while True: hear()") + "start_timeout = \"300ms\"\n";
    let (tools, problems) = offered(&servers(&document)).await;
    assert_eq!(reported(&problems[0]), "the MCP server \"bad\" was not ready within 300ms");
    assert_eq!((problems.len(), tools.names().count()), (1, 1));
}

#[tokio::test]
async fn garbage_is_passed_over_and_reported_and_too_much_of_it_ends_a_server() {
    let little = "def bad(request): print('gar\\x1bbage', flush=True)\nserve(bad)";
    let tools_of = tools(&(with_another(little) + "timeout = \"300ms\"\n")).await;
    let reported = failure(&tools_of, "mcp__bad__bad", json!({})).await;
    assert_eq!(
        reported,
        "the MCP server \"bad\" did not answer within 300ms; it wrote what is no message: \"gar\\u{1b}bage\""
    );
    let much = "def bad(request):\n    for n in range(1000): print(n, flush=True)\nserve(bad)";
    let tools_of = tools(&with_another(much)).await;
    let reported = failure(&tools_of, "mcp__bad__bad", json!({})).await;
    assert_eq!(
        reported,
        "the MCP server \"bad\" wrote more than 100 lines that are no messages, the last of them \"100\" before the tool had \
         answered"
    );
    assert_eq!(use_one(&tools_of, "mcp__good__add", json!({ "a": 1, "b": 1 })).await.text, "2");
}

#[tokio::test]
async fn a_server_that_does_not_read_is_ended_before_what_waits_for_it_takes_all_memory() {
    let deaf = r#"
import threading
def heard(notification):
    if notification["method"] == "notifications/initialized":
        tell(answer(hear(), None))
        threading.Event().wait()
serve(heard=heard)
"#;
    let document = with_another(deaf) + "effect = \"reads\"\n";
    let tools = tools(&document).await;
    // No agent may write more than this at once, but several can.
    let large = "x".repeat(7 << 19);
    let answers = join_all((0..5).map(|_| use_one(&tools, "mcp__bad__bad", json!({ "a": large })))).await;
    for answer in answers {
        assert!(answer.is_error, "{}", answer.text);
        assert!(answer.text.starts_with("the MCP server \"bad\" does not read its input: "), "{}", answer.text);
    }
    assert_eq!(use_one(&tools, "mcp__good__add", json!({ "a": 1, "b": 1 })).await.text, "2");
}

#[tokio::test]
async fn answers_that_are_not_what_was_asked_for_are_errors() {
    let source = r#"
TOOLS = [tool("number"), tool("other"), tool("task"), tool("unknown")]
def call(request):
    name = request["params"]["name"]
    if name == "number":
        return 3
    if name == "other":
        return {"tools": []}
    if name == "task":
        return {"resultType": "task", "taskId": "1", "status": "working", "createdAt": "x", "lastUpdatedAt": "x", "ttlMs": 1}
    tell({"id": 4711, "result": {}})
    tell({"method": "notifications/what"})
    tell({"id": "q", "method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}})
    refused = hear()
    return text(str(refused["id"]), str("error" in refused))
serve(call)
"#;
    let tools = tools(&program("peer", source)).await;
    for name in ["number", "other", "task"] {
        let reported = failure(&tools, &format!("mcp__peer__{name}"), json!({})).await;
        assert!(reported.contains("answered something else than was asked"), "{name}: {reported}");
    }
    let unknown = use_one(&tools, "mcp__peer__unknown", json!({})).await;
    assert_eq!(unknown.text, "q\nTrue");
}

#[tokio::test]
async fn a_flood_of_requests_and_notices_does_no_harm() {
    let source = r#"
TOOLS = [tool("flood")]
def flood(request):
    for n in range(20000):
        tell({"id": "p%d" % n, "method": "ping"})
        tell({"method": "notifications/message", "params": {"level": "info", "data": "x" * 100}})
    answered = 0
    while answered < 20000:
        answered += "result" in hear()
    return text("flooded")
import threading
serve(flood)
"#;
    let tools = tools(&(program("peer", source) + &program("good", "serve()"))).await;
    let both = use_all(&tools, [("mcp__peer__flood", json!({})), ("mcp__good__add", json!({ "a": 1, "b": 1 }))]).await;
    assert_eq!((both[0].text.as_str(), both[1].text.as_str()), ("flooded", "2"));
}
