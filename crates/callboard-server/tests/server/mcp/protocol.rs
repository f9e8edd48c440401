//! The endpoint of the Model Context Protocol, with a client of `rmcp`, and with messages that are written out.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use callboard::messages::{Action, AgentName, Authority, Effect, RunId};
use callboard::prelude::*;
use callboard::workflow::Workflow;
use callboard_agents::testing::ScriptedModel;
use callboard_agents::{Definition, LlmAgent, ToolScope, Tools, tool};
use callboard_server::{Scope, TokenSpec};
use parking_lot::Mutex;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, ClientCapabilities, ClientConfig,
    ContentBlock, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationCapability, ErrorData,
    GetTaskParams, Implementation, ProgressNotificationParam, ProtocolVersion, ReadResourceRequestParams,
    ResourceContents, ServerNotification, SubscriptionFilter, TaskPayload, TaskStatus,
};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt as _, NotificationContext, RequestContext, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, RoleClient};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::messages::{ACCEPT, ask, message, post};
use crate::support::client::{Answer, Client};
use crate::support::service::Service;

const ALL: [Scope; 2] = [Scope::Read, Scope::Delegate];

/// Of before the revision 2026-07-28, with sessions; and of that revision, in which each request stands alone.
fn lifecycles() -> [ClientLifecycleMode; 2] {
    [
        ClientLifecycleMode::Initialize,
        ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] },
    ]
}

/// A user at a client, who gives one answer to all questions.
#[derive(Default)]
struct User {
    answer: Option<&'static str>,
    has_tasks: bool,
    asked: Mutex<Vec<String>>,
    progress: Mutex<Vec<(f64, String)>>,
    changed: Notify,
}

impl User {
    fn answers(answer: &'static str) -> Self {
        Self { answer: Some(answer), ..Self::default() }
    }
}

impl ClientHandler for User {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        if self.answer.is_some() {
            capabilities.elicitation = Some(ElicitationCapability::new());
        }
        if self.has_tasks {
            capabilities =
                serde_json::from_value(json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } })).unwrap();
        }
        ClientConfig::new(capabilities, Implementation::new("test", "1"))
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let ElicitRequestParams::FormElicitationParams { message, .. } = request else { panic!("not a form") };
        self.asked.lock().push(message);
        let answer = self.answer.filter(|answer| !answer.is_empty());
        Ok(match answer {
            Some(answer) => ElicitResult::new(ElicitationAction::Accept).with_content(json!({ "answer": answer })),
            None => ElicitResult::new(ElicitationAction::Decline),
        })
    }

    async fn on_progress(&self, progress: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.progress.lock().push((progress.progress, progress.message.unwrap_or_default()));
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }
}

type Connected = RunningService<RoleClient, Arc<User>>;

async fn connect(service: &Service, secret: &str, lifecycle: ClientLifecycleMode, user: User) -> Connected {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let url = format!("http://127.0.0.1:{}/mcp", service.port);
    let config = StreamableHttpClientTransportConfig::with_uri(url).auth_header(secret);
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let transport = StreamableHttpClientTransport::with_client(http, config);
    Arc::new(user).serve_with_lifecycle(transport, lifecycle).await.unwrap()
}

fn token(service: &Service, name: &str) -> String {
    service.tokens.add(TokenSpec::new(name, ALL)).unwrap()
}

fn call(tool: &str, arguments: &Value) -> CallToolRequestParams {
    CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments.as_object().unwrap().clone())
}

fn text(result: &CallToolResult) -> &str {
    &result.content.iter().find_map(ContentBlock::as_text).unwrap().text
}

fn run_of(result: &CallToolResult) -> RunId {
    result.structured_content.as_ref().unwrap()["request_id"].as_str().unwrap().parse().unwrap()
}

async fn read(client: &Connected, uri: &str) -> String {
    let read = client.read_resource(ReadResourceRequestParams::new(uri)).await.unwrap();
    match &read.contents[..] {
        [ResourceContents::TextResourceContents { text, .. }] => text.clone(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_agent_is_a_tool_for_clients_of_all_revisions() {
    let service = Service::start().await;
    let secret = token(&service, "client");
    for lifecycle in lifecycles() {
        let client = connect(&service, &secret, lifecycle, User::default()).await;
        let tools = client.list_all_tools().await.unwrap();
        let names: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
        assert_eq!(names, ["agent_asker", "agent_echo", "agent_waiter", "run_result"]);
        let result = client
            .call_tool(call("agent_echo", &json!({ "task": "say it", "input": "hello", "reference": "#7" })))
            .await
            .unwrap();
        assert_eq!((text(&result), result.is_error), ("hello", Some(false)), "{result:?}");
        let run = run_of(&result);
        let fold = service.board.run(run).read().await.unwrap();
        let task = &fold.submission().task;
        assert_eq!((task.from_agent.as_ref().unwrap().as_str(), task.reference.as_deref()), ("client", Some("#7")));
        assert!(task.is_untrusted && fold.is_tainted());
        let links: Vec<&str> = result
            .content
            .iter()
            .filter_map(|block| match block {
                ContentBlock::ResourceLink(link) => Some(&*link.uri),
                _ => None,
            })
            .collect();
        assert_eq!(links, [format!("callboard://runs/{run}/journal"), format!("callboard://runs/{run}/flow")]);
        let journal: Value = serde_json::from_str(&read(&client, links[0]).await).unwrap();
        assert_eq!((&journal["events"][0]["kind"], &journal["next"]), (&json!("submitted"), &Value::Null));
        assert!(read(&client, links[1]).await.starts_with("flowchart"), "{}", read(&client, links[1]).await);
        client.cancel().await.unwrap();
    }
    service.end().await;
}

#[tokio::test]
async fn a_question_is_put_to_the_user_of_the_client() {
    let service = Service::start().await;
    let secret = token(&service, "client");
    for lifecycle in lifecycles() {
        let client = connect(&service, &secret, lifecycle.clone(), User::answers("ann")).await;
        let result = client.call_tool(call("agent_asker", &json!({ "task": "x" }))).await;
        // A client of `rmcp` answers by itself.
        let result = result.unwrap();
        assert_eq!(text(&result), "ann");
        assert_eq!(*client.service().asked.lock(), ["asker asks: who?"]);
        client.cancel().await.unwrap();

        let client = connect(&service, &secret, lifecycle, User::answers("")).await;
        let result = client.call_tool(call("agent_asker", &json!({ "task": "x" }))).await.unwrap();
        assert!(text(&result).contains("callboard answer question:"), "{}", text(&result));
        client.cancel().await.unwrap();
    }
    service.end().await;
}

/// The board with an agent that asks for consent.
async fn with_writer(service: &Service) {
    let writer = |turn: Turn| async move {
        let approved = turn.people().approve(Action::new("write_file", "a.txt", "hello")).await?;
        Ok(Command::output(approved.arguments))
    };
    service.board.agents().spawn(AgentSpec::new("writer", writer)).await.unwrap();
}

#[tokio::test]
async fn an_approval_is_only_reported_with_the_command_that_decides() {
    let service = Service::start().await;
    with_writer(&service).await;
    // Also for a token that may approve: it has begun the run itself.
    let secret = service.tokens.add(TokenSpec::new("client", Scope::ALL)).unwrap();
    for lifecycle in lifecycles() {
        let client = connect(&service, &secret, lifecycle, User::answers("yes")).await;
        let result = client.call_tool(call("agent_writer", &json!({ "task": "write" }))).await.unwrap();
        let run = run_of(&result);
        let pending = service.board.run(run).pending().await;
        let id = pending[0].id();
        let reported = format!(
            "The run {run} continues, and waits for a person, who decides with a command. Its result is then to be had from the tool \
             run_result with this request_id.\n- writer asks for consent to write_file a.txt (callboard approve {id})"
        );
        assert_eq!((text(&result), result.is_error), (&*reported, Some(false)));
        assert!(client.service().asked.lock().is_empty(), "nobody at the client is asked for consent");

        service.board.people().answer(id, Response::Approve, "ann").await.unwrap();
        let result = client.call_tool(call("run_result", &json!({ "request_id": run }))).await.unwrap();
        assert_eq!(text(&result), "hello");
        client.cancel().await.unwrap();
    }
    service.end().await;
}

#[tokio::test]
async fn a_token_of_a_person_decides_about_runs_that_it_has_not_begun_and_no_other_token_does() {
    let service = Service::start().await;
    with_writer(&service).await;
    let other = service.client("other", ALL);
    let nobodys = service.client("nobodys", Scope::ALL);
    let secret = service.tokens.add(TokenSpec::new("ann", Scope::ALL).owner("Ann")).unwrap();
    let ann = Client { port: service.port, secret: Some(secret) };
    let unscoped = service.tokens.add(TokenSpec::new("unscoped", ALL).owner("Ann")).unwrap();
    let unscoped = Client { port: service.port, secret: Some(unscoped) };
    let call = async |client: &Client, tool: &str, arguments: Value| {
        ask(client, "tools/call", &json!({ "name": tool, "arguments": arguments }), &json!({})).await
    };
    let begin = async |client: &Client| {
        let began = call(client, "agent_writer", json!({ "task": "write" })).await;
        let structured = &began["result"]["structuredContent"];
        let run = service.board.run(structured["request_id"].as_str().unwrap().parse().unwrap());
        (run, structured["pending"][0]["id"].clone())
    };
    let (run, id) = begin(&other).await;
    let decision = |decision: &str| json!({ "id": id, "decision": decision, "reason": "not now" });

    for (client, why) in [
        (
            &nobodys,
            "the token nobodys was not made for a person: `callboard tokens add NAME --owner PERSON` makes one that is",
        ),
        (&other, "the token other does not have the scope approve"),
        (&unscoped, "the token unscoped does not have the scope approve"),
    ] {
        let tools = ask(client, "tools/list", &json!({}), &json!({})).await["result"]["tools"].to_string();
        assert!(
            tools.contains("agent_writer") && !tools.contains("\"decide\"") && !tools.contains("\"approvals\""),
            "{tools}"
        );
        for (tool, arguments) in [("approvals", json!({})), ("decide", decision("approve"))] {
            assert_eq!(call(client, tool, arguments).await["error"]["message"], why);
        }
    }
    let tools = ask(&ann, "tools/list", &json!({}), &json!({})).await["result"]["tools"].to_string();
    assert!(tools.contains("\"decide\"") && tools.contains("\"approvals\""), "{tools}");
    let listed = call(&ann, "approvals", json!({})).await["result"]["structuredContent"].clone();
    let approval = &listed["approvals"][0];
    assert_eq!((&approval["id"], &approval["arguments"], &listed["not_listed"]), (&id, &json!("hello"), &json!(0)));

    // What it has begun itself, it neither sees nor decides.
    let (own, own_id) = begin(&ann).await;
    let listed = call(&ann, "approvals", json!({})).await["result"]["structuredContent"]["approvals"].clone();
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    let refused = call(&ann, "decide", json!({ "id": own_id, "decision": "approve" })).await["result"].clone();
    let expected = json!({ "code": "decisions-refused", "detail": "the person of the token ann has begun the run that asks, by this token or another; somebody else decides" });
    assert_eq!((&refused["isError"], &refused["structuredContent"]), (&json!(true), &expected));
    assert_eq!(own.pending().await.len(), 1);

    // Nor what another token of its owner has begun.
    let (_, id_of_other_token) = begin(&unscoped).await;
    let listed = call(&ann, "approvals", json!({})).await["result"]["structuredContent"]["approvals"].clone();
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    let refused =
        call(&ann, "decide", json!({ "id": id_of_other_token, "decision": "approve" })).await["result"].clone();
    assert_eq!(refused["structuredContent"], expected);
    // Nor once that token is revoked.
    assert!(service.tokens.revoke("unscoped").unwrap());
    let listed = call(&ann, "approvals", json!({})).await["result"]["structuredContent"]["approvals"].clone();
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    let refused =
        call(&ann, "decide", json!({ "id": id_of_other_token, "decision": "approve" })).await["result"].clone();
    assert_eq!(refused["structuredContent"], expected);

    for (arguments, code) in [
        (json!({ "id": "approval:1", "decision": "approve" }), "not-found"),
        (json!({ "id": id, "decision": "perhaps" }), "bad-request"),
        (json!({ "id": id, "decision": "approve", "arguments": "other" }), "bad-request"),
    ] {
        let refused = call(&ann, "decide", arguments).await["result"]["structuredContent"]["code"].clone();
        assert_eq!(refused, code);
    }
    let decided = call(&ann, "decide", decision("approve")).await["result"]["structuredContent"].clone();
    assert_eq!(decided, json!({ "id": id, "decision": "approved", "by": "ann" }));
    assert_eq!(run.result().await.unwrap().output, "hello");
    assert_eq!(call(&ann, "decide", decision("approve")).await["result"]["structuredContent"]["code"], "not-found");

    // What it has forked is its own, whoever began the run that was there before.
    let (run, id) = begin(&other).await;
    let fork = format!("/v1/delegations/{}/fork", run.id());
    let forked = ann.post(&fork, &json!({ "turn": 1 })).await.json();
    let forked = service.board.run(forked["request_id"].as_str().unwrap().parse().unwrap());
    let asked = forked.next_pending().await.unwrap().unwrap().id();
    let refused = call(&ann, "decide", json!({ "id": asked, "decision": "approve" })).await["result"].clone();
    assert_eq!(refused["structuredContent"], expected);

    let denied = call(&ann, "decide", json!({ "id": id, "decision": "deny", "reason": "not now" })).await;
    assert_eq!(denied["result"]["structuredContent"]["decision"], "denied");
    let result = run.result().await.unwrap();
    assert!(!result.outcome.is_finished() && result.to_string().contains("not now"), "{result}");
    service.end().await;
}

#[tokio::test]
async fn a_run_is_a_task_where_the_client_knows_tasks() {
    let service = Service::start().await;
    let secret = token(&service, "client");
    for lifecycle in lifecycles() {
        let user = User { has_tasks: true, ..User::default() };
        let client = connect(&service, &secret, lifecycle, user).await;
        let begin = async |tool: &str| match client.call_tool_once(call(tool, &json!({ "task": "x" }))).await.unwrap() {
            CallToolResponse::Task(created) => created.task,
            other => panic!("{other:?}"),
        };
        let get = async |id: &str| client.get_task(GetTaskParams::new(id)).await.unwrap().task;

        let echo = begin("agent_echo").await;
        service.board.run(echo.task_id.parse().unwrap()).result().await.unwrap();
        let task = get(&echo.task_id).await;
        let TaskPayload::Completed { result } = &task.payload else { panic!("{task:?}") };
        assert_eq!(result["structuredContent"]["output"], "x");

        let waiter = begin("agent_waiter").await;
        assert_eq!(get(&waiter.task_id).await.status(), TaskStatus::Working);
        client.cancel_task(CancelTaskParams::new(&*waiter.task_id)).await.unwrap();
        let task = get(&waiter.task_id).await;
        assert_eq!(task.status(), TaskStatus::Cancelled);
        assert_eq!(task.task.status_message.as_deref(), Some("cancelled by client"));

        let asker = begin("agent_asker").await;
        service.board.run(asker.task_id.parse().unwrap()).next_pending().await.unwrap();
        let message = get(&asker.task_id).await.task.status_message.unwrap();
        assert!(
            message.starts_with("waits for a person: asker asks \"who?\" (callboard answer question:"),
            "{message}"
        );
        client.cancel().await.unwrap();
    }
    service.end().await;
}

#[tokio::test]
async fn the_question_of_a_task_is_answered_by_the_client_that_began_it_and_no_other() {
    let service = Service::start().await;
    let (client, other) = (service.client("client", ALL), service.client("other", ALL));
    let capabilities = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} }, "elicitation": {} });
    let arguments = json!({ "name": "agent_asker", "arguments": { "task": "x" } });
    let created = ask(&client, "tools/call", &arguments, &capabilities).await;
    assert_eq!(created["result"]["resultType"], "task", "{created}");
    let id = created["result"]["taskId"].as_str().unwrap();
    let run = service.board.run(id.parse().unwrap());
    run.next_pending().await.unwrap();
    let task = ask(&client, "tasks/get", &json!({ "taskId": id }), &capabilities).await;
    assert_eq!(task["result"]["status"], "input_required", "{task}");
    let (question, request) = task["result"]["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(request["params"]["message"], "asker asks: who?");
    let answer = json!({ "action": "accept", "content": { "answer": "bob" } });
    let update = json!({ "taskId": id, "inputResponses": { question: answer } });
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let refused = ask(&other, method, &update, &capabilities).await;
        assert_eq!(refused["error"]["message"], "there is no such task or run of this client", "{method}");
    }
    let malformed = json!({ "taskId": id, "inputResponses": { question: "bob" } });
    let refused = ask(&client, "tasks/update", &malformed, &capabilities).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    let unknown = json!({ "taskId": id, "inputResponses": { "question:1": answer } });
    assert!(ask(&client, "tasks/update", &unknown, &capabilities).await["result"].is_object(), "it is left out");
    assert!(ask(&client, "tasks/update", &update, &capabilities).await["result"].is_object());
    assert_eq!(run.result().await.unwrap().output, "bob");
    service.end().await;
}

#[tokio::test]
async fn a_cancelled_call_cancels_its_run_and_a_stopping_server_does_not() {
    let service = Service::start().await;
    let secret = token(&service, "client");
    let begun = async |before: usize| loop {
        let runs = service.board.runs().await.unwrap();
        if runs.len() > before {
            return runs;
        }
        tokio::task::yield_now().await;
    };
    for (count, lifecycle) in lifecycles().into_iter().enumerate() {
        let client = connect(&service, &secret, lifecycle, User::default()).await;
        {
            let calling = client.call_tool(call("agent_waiter", &json!({ "task": "x" })));
            tokio::select! {
                result = calling => panic!("{result:?}"),
                _ = begun(count) => {}
            }
        }
        for run in service.board.runs().await.unwrap() {
            assert_eq!(run.result().await.unwrap().outcome.name(), "cancelled");
        }
        client.cancel().await.unwrap();
    }
    let mut left = Vec::new();
    for lifecycle in lifecycles() {
        let client = connect(&service, &secret, lifecycle, User::default()).await;
        let before = service.board.runs().await.unwrap().len();
        left.push(tokio::spawn(async move {
            let _ = client.call_tool(call("agent_waiter", &json!({ "task": "x" }))).await;
        }));
        begun(before).await;
    }
    let board = service.board.clone();
    service.stop_serving().await;
    let mut open = 0;
    for run in board.runs().await.unwrap() {
        open += usize::from(run.read().await.unwrap().result().is_none());
    }
    assert_eq!(open, 2, "they continue");
    left.iter().for_each(tokio::task::JoinHandle::abort);
    board.shutdown().await;
}

#[tokio::test]
async fn a_run_is_a_part_of_the_span_of_its_client_and_a_malformed_one_is_as_none() {
    let service = Service::start().await;
    let client = service.client("client", ALL);
    let [of_header, of_meta] = ["7", "8"].map(|digit| format!("00-{}-b7ad6b7169203331-01", digit.repeat(32)));
    let task = json!({ "to": "echo", "body": "x" });
    let call = json!({ "name": "agent_echo", "arguments": { "task": "x" } });
    for (header, meta, expected) in [
        (None, None, None),
        (Some(&*of_header), None, Some(&of_header)),
        (Some("00-0-0-01"), None, None),
        (Some(&*of_header), Some(json!(of_meta)), Some(&of_meta)),
        (Some(&*of_header), Some(json!(5)), None),
    ] {
        // Two headers are one list.
        let headers = header.map(|header| [("traceparent", header), ("tracestate", "a=1"), ("tracestate", "b=2")]);
        let headers = headers.as_ref().map(|headers| headers.as_slice()).unwrap_or_default();
        let mut message = message("tools/call", &call, &json!({}));
        meta.clone().into_iter().for_each(|meta| message["params"]["_meta"]["traceparent"] = meta);
        message["params"]["_meta"]["tracestate"] = json!("c=3");
        let called = post(&client, &message, headers).await.json();
        let mut runs = vec![called["result"]["structuredContent"]["request_id"].clone()];
        if meta.is_none() {
            let delegated = client.post_with("/v1/delegations", headers, &task).await;
            assert_eq!(delegated.status, 202, "{}", delegated.body);
            runs.push(delegated.json()["request_id"].clone());
        }
        for run in runs {
            let run = service.board.run(run.as_str().unwrap().parse().unwrap()).read().await.unwrap();
            let parent = run.submission().task.trace_parent.as_ref();
            assert_eq!(parent.map(|parent| parent.to_string()).as_ref(), expected, "{header:?} {meta:?}");
            let state = if meta.is_some() { "c=3" } else { "a=1,b=2" };
            assert_eq!(parent.and_then(|parent| parent.state.as_deref()), expected.map(|_| state));
        }
    }

    // A client whose tasks are untrusted does not hide its runs from the traces of the server.
    let unsampled = of_header.replace("-01", "-00");
    let admin = service.client("admin", Scope::ALL);
    for (client, expected) in [(&client, &of_header), (&admin, &unsampled)] {
        let delegated = client.post_with("/v1/delegations", &[("traceparent", &*unsampled)], &task).await.json();
        let called =
            post(client, &message("tools/call", &call, &json!({})), &[("traceparent", &*unsampled)]).await.json();
        // Nobody's calls by this protocol are trusted.
        let runs =
            [(&delegated["request_id"], expected), (&called["result"]["structuredContent"]["request_id"], &of_header)];
        for (run, expected) in runs {
            let run = service.board.run(run.as_str().unwrap().parse().unwrap()).read().await.unwrap();
            assert_eq!(run.submission().task.trace_parent.as_ref().unwrap().to_string(), *expected);
        }
    }

    // A client that tries again is in another span.
    let key = |header| [("Idempotency-Key", "k1"), ("traceparent", header)];
    let first = client.post_with("/v1/delegations", &key(&of_header), &task).await;
    let again = client.post_with("/v1/delegations", &key(&of_meta), &task).await;
    assert_eq!(again.json()["request_id"], first.json()["request_id"]);
    service.end().await;
}

#[tokio::test]
async fn a_repeated_call_begins_no_second_run() {
    let service = Service::start().await;
    let client = service.client("client", ALL);
    let echo =
        |text: &str| message("tools/call", &json!({ "name": "agent_echo", "arguments": { "task": text } }), &json!({}));
    let run = |answer: &Answer| {
        answer.json()["result"]["structuredContent"]["request_id"].as_str().map(str::to_owned).unwrap()
    };
    let key = [("Idempotency-Key", "k1")];
    let first = run(&post(&client, &echo("x"), &key).await);
    assert_eq!(run(&post(&client, &echo("x"), &key).await), first);
    let other = post(&client, &echo("y"), &key).await.json();
    assert_eq!(other["result"]["structuredContent"]["code"], "idempotency-key-reused", "{other}");
    let mut in_meta = echo("x");
    in_meta["params"]["_meta"]["callboard/idempotencyKey"] = json!("k1");
    assert_eq!(run(&post(&client, &in_meta, &[]).await), first);
    in_meta["params"]["_meta"]["callboard/idempotencyKey"] = json!("a b");
    assert!(post(&client, &in_meta, &[]).await.body.contains("1 to 128 visible ASCII characters"));
    assert_ne!(run(&post(&client, &echo("x"), &[]).await), first);

    // Within a session by the id of the request.
    let session = open_session(&client).await;
    let headers = [ACCEPT, ("Mcp-Session-Id", &*session), ("MCP-Protocol-Version", "2025-11-25")];
    let in_session = async |id: &Value| {
        let call = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "agent_echo", "arguments": { "task": "x" } } });
        let events = client.post_with("/mcp", &headers, &call).await.body;
        let data = events
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .find(|data| data.contains("result"))
            .unwrap()
            .to_owned();
        let shown: Value = serde_json::from_str(&data).unwrap();
        shown["result"]["structuredContent"]["request_id"].as_str().unwrap().to_owned()
    };
    let number = in_session(&json!(7)).await;
    assert_eq!(in_session(&json!(7)).await, number);
    let ids = BTreeSet::from([number, in_session(&json!(8)).await, in_session(&json!("7")).await, first]);
    assert_eq!(ids.len(), 4, "a number is not the text of its digits");
    service.end().await;
}

/// Opens a session of the revision 2025-11-25, and returns its id.
async fn open_session(client: &Client) -> String {
    let begin = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" },
    } });
    let answer = client.post_with("/mcp", &[ACCEPT], &begin).await;
    let session = answer.header("mcp-session-id").unwrap_or_else(|| panic!("{answer:?}")).to_owned();
    let headers = [ACCEPT, ("Mcp-Session-Id", &*session), ("MCP-Protocol-Version", "2025-11-25")];
    let begun = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(client.post_with("/mcp", &headers, &begun).await.status, 202);
    session
}

#[tokio::test]
async fn a_session_belongs_to_its_token_and_a_token_has_a_bounded_number() {
    let service = Service::start().await;
    let (client, other) = (service.client("client", ALL), service.client("other", ALL));
    let ping = async |client: &Client, session: &str| {
        let headers = [ACCEPT, ("Mcp-Session-Id", session), ("MCP-Protocol-Version", "2025-11-25")];
        let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
        client.post_with("/mcp", &headers, &ping).await.status
    };
    let first = open_session(&client).await;
    let theirs = open_session(&other).await;
    assert_eq!((ping(&client, &first).await, ping(&other, &first).await), (200, 404));
    let mut sessions = vec![first.clone()];
    for _ in 0..32 {
        sessions.push(open_session(&client).await);
        ping(&client, &first).await;
    }
    let mut live = 0;
    for session in &sessions {
        live += usize::from(ping(&client, session).await == 200);
    }
    assert_eq!(live, 32);
    assert_eq!(ping(&client, &first).await, 200, "the one that was used least recently has ended");
    assert_eq!(ping(&client, &sessions[1]).await, 404);
    assert_eq!(ping(&other, &theirs).await, 200, "those of others stay");
    let secret = client.secret.as_ref().unwrap();
    let head =
        format!("DELETE /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {secret}\r\n");
    let end = format!("{head}Mcp-Session-Id: {first}\r\n\r\n");
    assert_eq!(client.raw(end.as_bytes()).await.status, 202);
    assert_eq!(ping(&client, &first).await, 404);
    service.end().await;
}

#[tokio::test]
async fn clients_are_notified_when_agents_come_or_go() {
    let service = Service::start().await;
    let secret = token(&service, "client");
    let [initialize, _] = lifecycles();
    let client = connect(&service, &secret, initialize, User::default()).await;
    client.list_all_tools().await.unwrap();
    let came = AgentSpec::new("newcomer", |_: Turn| async { Ok(Command::new()) });
    service.board.agents().spawn(came).await.unwrap();
    tokio::time::timeout(Duration::from_secs(20), client.service().changed.notified()).await.unwrap();
    let tools = client.list_all_tools().await.unwrap();
    assert!(tools.iter().any(|tool| tool.name == "agent_newcomer"), "{tools:?}");
    client.cancel().await.unwrap();
    service.end().await;
}

#[tokio::test]
async fn a_client_that_listens_is_notified_of_tools_until_it_ends_or_the_server_stops() {
    let service = Service::start().await;
    let secret = token(&service, "client");
    let [_, discover] = lifecycles();
    let client = connect(&service, &secret, discover, User::default()).await;
    let wanted = SubscriptionFilter::builder().tools_list_changed().resources_list_changed().build();
    let mut first = client.listen(wanted.clone()).await.unwrap();
    let mut second = client.listen(wanted).await.unwrap();
    let tools = SubscriptionFilter::builder().tools_list_changed().build();
    assert_eq!(*first.acknowledged(), tools, "of what there is no more is promised");
    let came = AgentSpec::new("newcomer", |_: Turn| async { Ok(Command::new()) });
    service.board.agents().spawn(came).await.unwrap();
    for subscription in [&mut first, &mut second] {
        let next = tokio::time::timeout(Duration::from_secs(20), subscription.next()).await.unwrap().unwrap();
        assert!(matches!(next, Some(ServerNotification::ToolListChangedNotification(_))), "{next:?}");
    }
    first.cancel().await.unwrap();
    service.stop_serving().await;
    let next = tokio::time::timeout(Duration::from_secs(20), second.next()).await.unwrap();
    assert!(!matches!(next, Ok(Some(_))), "{next:?}");
}

#[tokio::test]
async fn tools_come_in_pages_with_the_workflows_and_hints_from_authority() {
    let service = Service::start().await;
    let reads = Authority::of([Effect::Reads]);
    for number in 0..60 {
        let agent =
            AgentSpec::new(&format!("reader{number:02}"), |_: Turn| async { Ok(Command::new()) }).authority(reads);
        service.board.agents().spawn(agent.role("reader").capability("books")).await.unwrap();
    }
    for line in ["workflow look: reader01 -> reader02(input=\"{{ city }}\")", "workflow mixed: reader01 -> echo"] {
        service.board.workflows().save(&Workflow::from_line("", line).unwrap()).await.unwrap();
    }
    let client = service.client("client", ALL);
    let first = ask(&client, "tools/list", &json!({}), &json!({})).await["result"].clone();
    assert_eq!(first["tools"].as_array().unwrap().len(), 50);
    let cursor = &first["nextCursor"];
    let second = ask(&client, "tools/list", &json!({ "cursor": cursor }), &json!({})).await["result"].clone();
    assert_eq!(second["nextCursor"], Value::Null);
    let tools: Vec<Value> = [first, second].iter().flat_map(|page| page["tools"].as_array().unwrap().clone()).collect();
    assert_eq!(tools.len(), 66);
    let tool = |name: &str| tools.iter().find(|tool| tool["name"] == name).unwrap();
    let reader = tool("agent_reader01");
    assert_eq!(
        reader["description"],
        "Delegates a task to the agent reader01, whose role is reader. Capabilities: books"
    );
    let hints = |tool: &Value| {
        ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"]
            .map(|hint| tool["annotations"][hint].as_bool().unwrap())
    };
    assert_eq!(hints(reader), [true, false, true, false]);
    assert_eq!(hints(tool("agent_echo")), [false, true, false, true]);
    assert_eq!(hints(tool("workflow_look")), [true, false, true, false]);
    assert_eq!(hints(tool("workflow_mixed")), [false, true, false, true]);
    assert_eq!(tool("workflow_look")["inputSchema"]["properties"]["input"]["required"], json!(["city"]));

    let run = json!({ "name": "workflow_look", "arguments": { "input": { "city": "Rome" } } });
    let result = ask(&client, "tools/call", &run, &json!({})).await;
    assert_eq!(result["result"]["structuredContent"]["status"], "finished", "{result}");
    service.end().await;
}

#[tokio::test]
async fn the_progress_of_a_call_is_reported_as_it_is_made() {
    let service = Service::start().await;
    let secret = token(&service, "client");
    for lifecycle in lifecycles() {
        let client = connect(&service, &secret, lifecycle, User::default()).await;
        // A client of `rmcp` gives each call a token.
        let result = client.call_tool(call("agent_echo", &json!({ "task": "x" }))).await.unwrap();
        assert_eq!(text(&result), "x");
        let result = client.call_tool(call("agent_asker", &json!({ "task": "x" }))).await.unwrap();
        assert!(text(&result).contains("waits for a person"));
        let progress = client.service().progress.lock().clone();
        assert!(progress.iter().any(|(_, message)| message.starts_with("submitted to asker")), "{progress:?}");
        client.cancel().await.unwrap();
    }
    service.end().await;
}

#[tokio::test]
async fn each_method_needs_its_scope() {
    let service = Service::start().await;
    let own = service.client("own", Scope::ALL);
    let run = ask(&own, "tools/call", &json!({ "name": "agent_echo", "arguments": { "task": "x" } }), &json!({})).await;
    let run = run["result"]["structuredContent"]["request_id"].as_str().unwrap().to_owned();
    let tasks = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let journal = format!("callboard://runs/{run}/journal");
    // What a token with read alone, and one with delegate too, is answered: its number of tools, a code, or nothing of both.
    let methods = [
        ("server/discover", json!({}), "ok", "ok"),
        ("tools/list", json!({}), "0 tools", "4 tools"),
        ("tools/call", json!({ "name": "agent_echo", "arguments": { "task": "x" } }), "-32600", "ok"),
        ("tools/call", json!({ "name": "run_result", "arguments": { "request_id": run } }), "-32600", "ok"),
        ("tasks/get", json!({ "taskId": run }), "-32602", "-32602"),
        ("tasks/update", json!({ "taskId": run, "inputResponses": {} }), "-32600", "-32602"),
        ("tasks/cancel", json!({ "taskId": run }), "-32600", "-32602"),
        ("resources/list", json!({}), "ok", "ok"),
        ("resources/templates/list", json!({}), "ok", "ok"),
        ("resources/read", json!({ "uri": journal }), "ok", "ok"),
        ("prompts/list", json!({}), "-32601", "-32601"),
        (
            "completion/complete",
            json!({ "ref": { "type": "ref/prompt", "name": "x" }, "argument": { "name": "a", "value": "b" } }),
            "-32601",
            "-32601",
        ),
        ("logging/setLevel", json!({ "level": "debug" }), "-32601", "-32601"),
        ("admin/shutdown", json!({}), "-32601", "-32601"),
    ];
    let tokens: Vec<(String, Client, Vec<Scope>)> = (0..16)
        .map(|bits| {
            let scopes: Vec<Scope> = Scope::ALL
                .into_iter()
                .enumerate()
                .filter(|(at, _)| bits >> at & 1 == 1)
                .map(|(_, scope)| scope)
                .collect();
            let name = format!("token{bits}");
            (name.clone(), service.client(&name, scopes.clone()), scopes)
        })
        .collect();
    for (name, client, scopes) in &tokens {
        for (method, params, reads, delegates) in &methods {
            let answer = post(client, &message(method, params, &tasks), &[]).await;
            if !scopes.contains(&Scope::Read) {
                assert_eq!((answer.status, answer.code()), (403, "missing-scope".to_owned()), "{name} {method}");
                continue;
            }
            let shown = answer.json();
            let found = match (shown["error"]["code"].as_i64(), shown["result"]["tools"].as_array()) {
                (Some(code), _) => code.to_string(),
                (None, Some(tools)) => format!("{} tools", tools.len()),
                (None, None) => "ok".to_owned(),
            };
            let expected = if scopes.contains(&Scope::Delegate) { delegates } else { reads };
            assert_eq!(found, *expected, "{name} {method}: {shown}");
        }
    }
    let nobody = Client { port: service.port, secret: None };
    assert_eq!(post(&nobody, &message("tools/list", &json!({}), &json!({})), &[]).await.status, 401);
    assert_eq!(
        service.board.run(run.parse().unwrap()).read().await.unwrap().result().unwrap().outcome.name(),
        "finished"
    );
    service.end().await;
}

/// The arguments of a tool that takes none.
#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

#[tokio::test]
async fn what_an_mcp_client_asks_for_is_untrusted_so_a_tool_with_effects_asks_first() {
    let service = Service::start().await;
    // It is compiled in, so in a trusted run it asks nobody.
    let mut definition = Definition::built_in(AgentName::new("clerk").unwrap());
    definition.allowed_tools = Some(vec!["mail".into()]);
    let sent = Arc::new(Mutex::new(0));
    let count = Arc::clone(&sent);
    let mail = tool("mail", "Sends a letter.", Effect::Sends, move |_: Nothing, _: ToolScope| {
        *count.lock() += 1;
        async { Ok("sent".into()) }
    });
    let model = ScriptedModel::new().calls("mail", json!({})).says("done").calls("mail", json!({})).says("done");
    let tools = Tools::new().with(mail).unwrap();
    let clerk = LlmAgent::new(&definition, Arc::new(model), &tools, &[]).unwrap().spec();
    service.board.agents().spawn(clerk).await.unwrap();

    let trusted = service.board.submit(Task::new("mail it").to("clerk")).await.unwrap();
    assert_eq!((trusted.result().await.unwrap().outcome.name(), *sent.lock()), ("finished", 1));

    // With all scopes, tasks of which are trusted on other routes.
    let client = service.client("client", Scope::ALL);
    let begun = json!({ "name": "agent_clerk", "arguments": { "task": "mail it" } });
    let result = ask(&client, "tools/call", &begun, &json!({})).await;
    let shown = &result["result"]["structuredContent"];
    assert_eq!((&shown["status"], *sent.lock()), (&json!("waiting"), 1), "{result}");
    let run = service.board.run(shown["request_id"].as_str().unwrap().parse().unwrap());
    let pending = run.pending().await;
    service.board.people().answer(pending[0].id(), Response::Approve, "ann").await.unwrap();
    assert_eq!((run.result().await.unwrap().outcome.name(), *sent.lock()), ("finished", 2));
    service.end().await;
}
