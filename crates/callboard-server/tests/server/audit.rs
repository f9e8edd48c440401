//! What the audit log records.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use callboard::actors::PolicyQuestion;
use callboard::env::Env;
use callboard::messages::{Deciders, Groups};
use callboard::prelude::*;
use callboard_server::private::{Client, listen};
use callboard_server::{Scope, Server, TokenSpec, Tokens};
use futures::FutureExt as _;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceExt as _;

use crate::support::local::Local;

async fn board() -> Callboard {
    Callboard::builder()
        .agent("asker", |turn: Turn| async move { Ok(Command::output(turn.people().ask("well?").await?)) })
        .agent("waiter", |_: Turn| std::future::pending::<Result<Command, TurnError>>())
        .shutdown_grace(Duration::ZERO)
        .start()
        .await
        .unwrap()
}

/// The lines of a log: who, method, path, status and code of each.
fn lines(log: &Path) -> Vec<[Value; 5]> {
    let line = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        assert!(line["at"].as_str().unwrap().ends_with('Z'), "{line}");
        ["who", "method", "path", "status", "code"].map(|key| line[key].clone())
    };
    fs::read_to_string(log).unwrap().lines().map(line).collect()
}

#[tokio::test]
async fn what_changes_something_and_what_is_refused_is_recorded_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let (log, refused) = (folder.path().join("audit.jsonl"), folder.path().join("audit.jsonl.refused"));
    let board = board().await;
    let local = Local::audited(&board, [Scope::Read, Scope::Delegate], &log);
    local.post("/v1/delegations", &[], &json!({ "to": "waiter", "body": "secret text" })).await;
    local.get("/v1/agents?x=1").await;
    local.get("/v1/tree").await;
    local.post("/v1/pending/x", &[], &json!({ "response": "approve" })).await;
    local.post("/v1/delegations", &[], &json!({ "to": "nobody", "body": "x" })).await;
    local.get("/v1/nothing").await;
    let who = json!("ci");
    let entry = |method: &str, path: &str, status: u16, code: Value| {
        [who.clone(), json!(method), json!(path), json!(status), code]
    };
    assert_eq!(
        lines(&log),
        [
            entry("POST", "/v1/delegations", 202, Value::Null),
            entry("GET", "/v1/tree", 403, json!("missing-scope")),
            entry("POST", "/v1/pending/x", 403, json!("missing-scope")),
            entry("POST", "/v1/delegations", 422, json!("unknown-agent")),
        ]
    );
    assert!(!fs::read_to_string(&log).unwrap().contains("secret text"), "bodies are not recorded");

    let request = Request::get("/v1/agents?token=cbt_0").header("Host", "localhost").body(Body::empty()).unwrap();
    local.send(request).await;
    local.send(Request::get("/v1/agents").header("Host", "evil.example").body(Body::empty()).unwrap()).await;
    let nobody =
        |path: &str, status: u16, code: &str| [Value::Null, json!("GET"), json!(path), json!(status), json!(code)];
    let expected = [
        nobody("/v1/nothing", 404, "not-found"),
        nobody("/v1/agents", 400, "bad-request"),
        nobody("/v1/agents", 403, "foreign-origin"),
    ];
    assert_eq!(lines(&refused), expected);
    assert!(!fs::read_to_string(&refused).unwrap().contains("cbt_"), "queries are not recorded");
    for file in [log, refused] {
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
    board.shutdown().await;
}

#[tokio::test]
async fn decisions_and_the_log_name_the_person_of_a_token() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.jsonl");
    let board = board().await;
    let tokens = Tokens::new(Env::system());
    let secret = tokens.add(TokenSpec::new("laptop", Scope::ALL)).unwrap();
    let server = Server::new(board.clone(), tokens).audit_file(&log).unwrap();
    let router = server.people([("laptop".to_owned(), "ann".to_owned())]).router();
    let run = board.submit(Task::new("x").to("asker")).await.unwrap();
    let asked = board.people().next().await.unwrap();
    let path = format!("/v1/pending/{}", asked.id().to_string().replace('/', "%2F"));
    let request = Request::post(&path).header("Host", "localhost").header("Content-Type", "application/json");
    let request = request.header("Authorization", format!("Bearer {secret}"));
    let response = json!({ "response": "answer", "value": 1 }).to_string();
    let response = router.oneshot(request.body(Body::from(response)).unwrap()).await.unwrap();
    let body = axum::body::to_bytes(response.into_body(), 1_000).await.unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&body).unwrap()["by"], "ann");
    run.result().await.unwrap();
    let line: Value = serde_json::from_str(&fs::read_to_string(&log).unwrap()).unwrap();
    assert_eq!((&line["who"], &line["person"]), (&json!("laptop"), &json!("ann")));
    board.shutdown().await;
}

#[tokio::test]
async fn a_request_whose_client_leaves_is_recorded_without_a_status() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.jsonl");
    let board = board().await;
    let local = Local::audited(&board, Scope::ALL, &log);
    board.submit(Task::new("x").to("asker")).await.unwrap();
    let asked = board.people().next().await.unwrap();
    let path = format!("/v1/pending/{}", asked.id().to_string().replace('/', "%2F"));
    {
        let response = json!({ "response": "answer", "value": 1 }).to_string();
        let request = local.request("POST", &path, &[], &response);
        assert!(pin!(local.send(request)).now_or_never().is_none(), "it was answered at once");
    }
    let left = [json!("ci"), json!("POST"), json!(path), Value::Null, Value::Null];
    assert_eq!(lines(&log), [left]);
    board.shutdown().await;
}

#[tokio::test]
async fn requests_of_mcp_clients_that_are_programs_are_recorded_one_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.jsonl");
    let board = board().await;
    let server = Server::new(board.clone(), Tokens::new(Env::system())).audit_file(&log).unwrap();
    let place = folder.path().join("sockets");
    let socket = listen(&place, "mcp").await.unwrap();
    tokio::spawn(async move { server.serve_mcp(socket, std::future::pending()).await });
    let (read, mut write) = tokio::io::split(Client::new(&place, "mcp").connect().await.unwrap());
    let mut answers = BufReader::new(read).lines();
    let begin =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let asker = json!({ "name": "agent_asker", "arguments": { "task": "secret text" } });
    let messages = [
        ("initialize", begin),
        ("tools/list", json!({})),
        ("tools/call", asker),
        ("tools/call", json!({ "name": "agent_nobody\u{202e}", "arguments": {} })),
        ("tools/call", json!({ "name": "agent_asker", "arguments": {} })),
        ("tools/call", json!({ "name": "decide", "arguments": {} })),
    ];
    for (id, (method, params)) in messages.iter().enumerate() {
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        write.write_all(format!("{message}\n").as_bytes()).await.unwrap();
        answers.next_line().await.unwrap().unwrap();
        if id == 0 {
            write.write_all(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n").await.unwrap();
        }
    }
    let entry = |method: &str, path: &str, status: u16, code: Value| {
        [json!("mcp"), json!(method), json!(path), json!(status), code]
    };
    let expected = [
        entry("tools/call", "agent_asker", 200, Value::Null),
        entry("tools/call", "agent_nobody\\u{202e}", 400, Value::Null),
        entry("tools/call", "agent_asker", 400, json!("bad-request")),
        entry("tools/call", "decide", 403, json!("missing-scope")),
    ];
    assert_eq!(lines(&log), expected);
    let text = fs::read_to_string(&log).unwrap();
    assert!(
        text.contains(&format!("\"from\":\"process {}\"", std::process::id())) && !text.contains("secret"),
        "{text}"
    );
    board.shutdown().await;
}

#[tokio::test]
async fn calls_of_mcp_clients_over_http_are_recorded_with_what_they_decide() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.jsonl");
    let board = board().await;
    let local = Local::audited(&board, Scope::ALL, &log);
    for (method, name, value) in [("tools/call", "name", "decide"), ("tasks/cancel", "taskId", "x")] {
        let mut params = json!({ "arguments": { "id": "approval:1", "decision": "approve" }, "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": { "extensions": { "io.modelcontextprotocol/tasks": {} } },
        } });
        params[name] = json!(value);
        let headers = [
            ("Accept", "application/json, text/event-stream"),
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", method),
            ("Mcp-Name", value),
        ];
        local.post("/mcp", &headers, &json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params })).await;
    }
    let recorded = lines(&log);
    let entry = |method: &str, path: &str, status: u16, code: Value| {
        [json!("ci"), json!(method), json!(path), json!(status), code]
    };
    assert_eq!(recorded[0], entry("tools/call", "decide/approval:1", 403, json!("decisions-refused")));
    assert_eq!(recorded[1], entry("POST", "/mcp", 200, Value::Null));
    assert_eq!(recorded[2][..3], entry("tasks/cancel", "x", 0, Value::Null)[..3]);
    board.shutdown().await;
}

#[tokio::test]
async fn the_log_names_where_a_request_comes_from() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.jsonl");
    let board = board().await;
    let server = Server::new(board.clone(), Tokens::new(Env::system())).audit_file(&log).unwrap();
    let place = folder.path().join("sockets");
    let socket = listen(&place, "a").await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (private, network) = (server.clone(), server);
    tokio::spawn(async move { private.serve_private(socket, std::future::pending()).await });
    tokio::spawn(async move { network.serve(listener, std::future::pending()).await });
    let from = |log: &Path| -> Vec<Value> {
        let text = fs::read_to_string(log).unwrap();
        text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["from"].clone()).collect()
    };

    Client::new(&place, "a").request("POST", "/v1/pending/x", Some(&json!({}))).await.unwrap();
    assert_eq!(from(&log), [json!(format!("process {}", std::process::id()))]);

    let mut stream = TcpStream::connect(address).await.unwrap();
    let own = stream.local_addr().unwrap().to_string();
    stream.write_all(b"GET /v1/agents HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
    stream.read_to_end(&mut Vec::new()).await.unwrap();
    assert_eq!(from(&folder.path().join("audit.jsonl.refused")), [json!(own)]);

    let behind = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxied = behind.local_addr().unwrap();
    let server = Server::new(board.clone(), Tokens::new(Env::system())).audit_file(&log).unwrap();
    let server = server.trusted_proxies(["127.0.0.0/8".parse().unwrap()]);
    tokio::spawn(async move { server.serve(behind, std::future::pending()).await });
    for (address, forged, expected) in
        [(proxied, "192.0.2.1", Some("203.0.113.7")), (proxied, "é", Some("203.0.113.7")), (address, "192.0.2.1", None)]
    {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let own = stream.local_addr().unwrap().to_string();
        let header = format!("X-Forwarded-For: {forged}, 203.0.113.7");
        let request = format!("GET /v1/agents HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{header}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.read_to_end(&mut Vec::new()).await.unwrap();
        let expected = expected.map_or(own, str::to_owned);
        assert_eq!(from(&folder.path().join("audit.jsonl.refused")).last(), Some(&json!(expected)));
    }
    board.shutdown().await;
}

/// What a person answers to what waits, by one of their tokens.
async fn answered(router: &axum::Router, secret: &str, id: &str, response: &Value) -> (u16, Value) {
    let path = format!("/v1/pending/{}", id.replace('/', "%2F"));
    let request = Request::post(&path).header("Host", "localhost").header("Content-Type", "application/json");
    let request = request.header("Authorization", format!("Bearer {secret}"));
    let response = router.clone().oneshot(request.body(Body::from(response.to_string())).unwrap()).await.unwrap();
    let status = response.status().as_u16();
    let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
    (status, serde_json::from_slice(&body).unwrap())
}

#[tokio::test]
async fn people_are_counted_and_not_their_tokens_where_several_decide() {
    let deciders = Arc::new(Deciders { at_least: 2, excludes_requester: true, ..Deciders::of("ops") });
    let asks = |turn: Turn| async move {
        let done = turn.people().approve(Action::new("write", "a.txt", json!({ "path": "a.txt" }))).await?;
        Ok(Command::output(done.arguments))
    };
    let groups = Groups::default().group("ops", ["ann", "bob", "cat", "dan"]);
    let policy = move |_: &PolicyQuestion<'_>| Consent::AskOf { deciders: Arc::clone(&deciders), within: None };
    let tokens = Tokens::new(Env::system());
    let owners = tokens.clone();
    let groups = groups.requesters(move |token| owners.owner_of(token).map(Into::into));
    let board = Callboard::builder().agent("asks", asks).groups(groups).approval_policy(policy).start().await.unwrap();
    let secrets = ["laptop", "phone", "bob's", "cat", "bob"].map(|name| tokens.add(TokenSpec::new(name, Scope::ALL)));
    let [laptop, phone, bob, cat, other] = secrets.map(|secret| secret.unwrap().to_string());
    let people = [("laptop", "ann"), ("phone", "ann"), ("bob's", "bob"), ("cat", "cat")];
    let people = people.map(|(token, person)| (token.to_owned(), person.to_owned()));
    // Nobody but their owner says whose these are.
    let owned = ["d1", "d2"].map(|name| tokens.add(TokenSpec::new(name, Scope::ALL).owner("dan")));
    let [first_of_dan, second_of_dan] = owned.map(|secret| secret.unwrap().to_string());
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.jsonl");
    let server = Server::new(board.clone(), tokens).people(people).audit_file(&log).unwrap();
    let router = server.router();
    let task = Task::new("x").from_agent(AgentName::new("cat").unwrap());
    let run = board.submit(task).await.unwrap();
    let mut id = run.next_pending().await.unwrap().unwrap().id().to_string();
    let approve = json!({ "response": "approve" });
    let (status, barred) = answered(&router, &cat, &id, &approve).await;
    assert_eq!((status, &barred["code"]), (403, &json!("decisions-refused")), "{barred}");
    let (status, barred) = answered(&router, &other, &id, &approve).await;
    assert_eq!(
        (status, &barred["code"]),
        (403, &json!("decisions-refused")),
        "a token with the name of a person: {barred}"
    );
    let (status, first) = answered(&router, &laptop, &id, &approve).await;
    assert_eq!((status, &first["decided"], &first["missing"]), (200, &json!(false), &json!(1)), "{first}");
    assert_eq!((&first["approved_by"][0]["by"], &first["outcome"]), (&json!("ann"), &Value::Null), "{first}");
    let (status, again) = answered(&router, &phone, &id, &approve).await;
    assert_eq!((status, &again["code"]), (409, &json!("conflict")), "{again}");

    // Other arguments are a new approval, with one vote.
    let (status, edited) =
        answered(&router, &phone, &id, &json!({ "response": "edit", "arguments": { "path": "b.txt" } })).await;
    assert_eq!((status, &edited["decided"], &edited["outcome"]), (200, &json!(true), &json!("replaced")), "{edited}");
    let replaced = std::mem::replace(&mut id, run.next_pending().await.unwrap().unwrap().id().to_string());
    assert_eq!(edited["replaced_by"], json!(id));
    let (_, late) = answered(&router, &bob, &replaced, &approve).await;
    let detail = late["detail"].as_str().unwrap();
    assert!(
        detail.starts_with("already replaced with other arguments by ann at 20") && detail.ends_with("Z (http)"),
        "{detail}"
    );
    let request =
        Request::get("/v1/pending").header("Host", "localhost").header("Authorization", format!("Bearer {laptop}"));
    let listed = router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let listed: Value =
        serde_json::from_slice(&axum::body::to_bytes(listed.into_body(), 10_000).await.unwrap()).unwrap();
    let listed = &listed["pending"][0];
    assert_eq!(
        (&listed["missing"], &listed["edited_by"], &listed["policy"]),
        (&json!(1), &json!("ann"), &json!("ask")),
        "{listed}"
    );
    assert_eq!((&listed["deciders"]["group"], &listed["deciders"]["at_least"]), (&json!("ops"), &json!(2)), "{listed}");
    let (status, last) = answered(&router, &bob, &id, &json!({ "response": "approve", "for_run": true })).await;
    assert_eq!((status, &last["decided"], &last["outcome"]), (200, &json!(true), &json!("approved")), "{last}");
    assert_eq!(run.result().await.unwrap().output, json!({ "path": "b.txt" }));
    let text = std::fs::read_to_string(&log).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let decided: Vec<_> = lines.filter(|line| line["status"] == 200).collect();
    let found: Vec<_> =
        decided.iter().map(|line| ["response", "outcome"].map(|key| line[key].as_str().unwrap())).collect();
    assert_eq!(found, [["approve", "vote"], ["edit", "replaced"], ["approve_for_run", "approved"]]);
    assert_eq!(decided[1]["replaced_by"], json!(id));

    // The tokens of one owner are one person, who also does not decide what one of them has asked for.
    let run = board.submit(Task::new("x").from_agent(AgentName::new("cat").unwrap())).await.unwrap();
    let id = run.next_pending().await.unwrap().unwrap().id().to_string();
    let (_, first) = answered(&router, &first_of_dan, &id, &approve).await;
    assert_eq!((&first["approved_by"][0]["by"], &first["missing"]), (&json!("dan"), &json!(1)), "{first}");
    let (status, again) = answered(&router, &second_of_dan, &id, &approve).await;
    assert_eq!((status, &again["code"]), (409, &json!("conflict")), "{again}");
    let (_, denied) = answered(&router, &second_of_dan, &id, &json!({ "response": "deny", "reason": "no" })).await;
    assert_eq!((&denied["outcome"], &denied["by"]), (&json!("denied"), &json!("dan")), "{denied}");
    run.result().await.unwrap();
    let run = board.submit(Task::new("x").from_agent(AgentName::new("d1").unwrap())).await.unwrap();
    let id = run.next_pending().await.unwrap().unwrap().id().to_string();
    let (status, barred) = answered(&router, &second_of_dan, &id, &approve).await;
    assert_eq!((status, &barred["code"]), (403, &json!("decisions-refused")), "{barred}");
    board.shutdown().await;
}
