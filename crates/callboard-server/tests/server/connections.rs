//! The server over real connections.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::Request;
use callboard::env::Env;
use callboard::prelude::*;
use callboard_server::{Access, HttpLimits, Scope, Server, TokenSpec, Tokens};
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceExt as _;

use crate::support::client::{Answer, Client, Stream, filled};
use crate::support::service::Service;

/// Delegates a task, and returns the path of the delegation.
async fn delegate(client: &Client, task: &Value) -> String {
    format!("/v1/{}", client.post("/v1/delegations", task).await.header("location").unwrap())
}

/// Opens the event stream of a delegation that does not end, and reads its first event.
async fn open_stream(client: &Client) -> (String, Stream) {
    let path = delegate(client, &json!({ "to": "waiter", "body": "x" })).await;
    let mut stream = client.open(&format!("{path}/events")).await;
    stream.read_until("event: submitted").await;
    (path, stream)
}

fn id_of(answer: &Answer) -> String {
    answer.json()["request_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_most_bytes_of_a_body_are_a_setting() {
    let board = Callboard::builder().start().await.unwrap();
    let tokens = Tokens::new(Env::system());
    let secret = tokens.add(TokenSpec::new("ci", [Scope::Delegate])).unwrap();
    let mut limits = HttpLimits::default();
    limits.body_bytes = 10;
    let router = Server::new(board.clone(), tokens).limits(limits).router();
    let request =
        Request::post("/v1/delegations").header("Host", "localhost").header("Content-Type", "application/json");
    let request = request.header("Authorization", format!("Bearer {secret}"));
    let response = router.oneshot(request.body(Body::from("{\"to\": \"echo\"}")).unwrap()).await.unwrap();
    assert_eq!(response.status().as_u16(), 413);
    let body = axum::body::to_bytes(response.into_body(), 1_000).await.unwrap();
    assert!(String::from_utf8_lossy(&body).contains("the body has more than 10 bytes"), "{body:?}");
    board.shutdown().await;
}

#[tokio::test]
async fn bodies_of_a_person_that_arrive_are_bounded_together_and_those_of_others_are_read() {
    let board = Callboard::builder().start().await.unwrap();
    let tokens = Tokens::new(Env::system());
    let [slow, other] = ["slow", "other"].map(|name| tokens.add(TokenSpec::new(name, [Scope::Delegate])).unwrap());
    let mut limits = HttpLimits::default();
    limits.body_bytes = 1_000;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = Server::new(board.clone(), tokens).limits(limits);
    let serving = tokio::spawn(async move { server.serve(listener, std::future::pending()).await });
    // Each body is complete but for its last byte: 64 fit, and the others are refused.
    let request = format!(
        "POST /v1/delegations HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {slow}\r\nContent-Type: application/json\r\n\
         Content-Length: 1000\r\n\r\n{}",
        " ".repeat(999)
    );
    let sent = (0..70).map(|_| async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).await.unwrap();
        String::from_utf8_lossy(&status).into_owned()
    });
    let mut answers: FuturesUnordered<_> = sent.collect();
    for _ in 0..6 {
        assert_eq!(answers.next().await.as_deref(), Some("HTTP/1.1 429"));
    }
    let other = Client { port, secret: Some(other) };
    assert_eq!(other.post("/v1/delegations", &json!({ "to": "nobody", "body": "x" })).await.status, 422);
    assert!(answers.next().now_or_never().is_none(), "the others wait for their last byte");
    serving.abort();
    board.shutdown().await;
}

#[tokio::test]
async fn limits_are_a_class_or_single_ones_and_a_short_id_is_answered_with_the_id_that_is_meant() {
    let service = Service::start().await;
    let client = service.client("ci", [Scope::Read, Scope::Delegate]);
    let task = |limits: Value| json!({ "to": "echo", "body": "x", "limits": limits });
    for limits in [json!("simple"), json!({ "tokens": 10 }), Value::Null] {
        assert_eq!(client.post("/v1/delegations", &task(limits)).await.status, 202);
    }
    for (limits, why) in [
        (json!("smiple"), "unknown complexity class \"smiple\"; use simple, medium or complex"),
        (json!(3), "write simple, medium, complex, or an object such as {\"tokens\": 50000}"),
        (json!({ "token": 1 }), "unknown field `token`, expected one of `handoffs`, `tokens`"),
    ] {
        let refused = client.post("/v1/delegations", &task(limits)).await;
        let detail = refused.json()["detail"].as_str().unwrap().to_owned();
        assert!(refused.status == 400 && detail.contains(&format!("`limits`: {why}")), "{detail}");
    }
    for (id, shown) in [("req-9c41d7e0b2f6", "req-9c41d7e0b2f6"), ("9c41", "RUN")] {
        let unknown = client.get(&format!("/v1/delegations/{id}")).await;
        let detail = format!(
            "{id} is no id of a delegation, which is a UUID: `request_id`, also in `callboard status {shown} --json`"
        );
        assert_eq!((unknown.status, unknown.json()["detail"].as_str()), (404, Some(&*detail)));
    }
    service.end().await;
}

#[tokio::test]
async fn a_task_is_delegated_followed_and_its_result_read() {
    let service = Service::start().await;
    let client = service.client("ci", [Scope::Read, Scope::Delegate]);
    let request = json!({ "to": "echo", "body": "say it", "input": { "a": 1 }, "reference": "issue 7" });
    let created = client.post("/v1/delegations", &request).await;
    assert_eq!((created.status, &created.json()["to_agent"]), (202, &json!("echo")), "{created:?}");
    let (requester, reference) = (&created.json()["from_agent"], &created.json()["reference"]);
    assert_eq!((requester, reference), (&json!("ci"), &json!("issue 7")));
    let path = format!("/v1/delegations/{}", id_of(&created));
    assert_eq!(created.header("location").map(|relative| format!("/v1/{relative}")).as_deref(), Some(&*path));

    let events = client.get(&format!("{path}/events?modes=debug")).await;
    let kinds: Vec<&str> = events.body.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    assert_eq!((events.status, kinds), (200, vec!["submitted", "turn_ended"]), "{}", events.body);

    let ended = client.get(&path).await.json();
    assert_eq!((&ended["status"], &ended["state"]), (&json!("complete"), &json!("finished")));
    assert_eq!(ended["result"]["output"], json!({ "a": 1 }));
    service.end().await;
}

#[tokio::test]
async fn a_route_is_refused_without_a_token_and_without_its_scope() {
    let service = Service::start().await;
    let clients = Scope::ALL.map(|scope| (scope, service.client(&scope.to_string(), [scope])));
    let nobody = Client { port: service.port, secret: None };
    let wrong = Client { port: service.port, secret: Some("cbt_0".to_owned()) };
    let mut scopes = BTreeSet::new();
    for route in Server::routes() {
        let path = filled(route.path);
        if route.access == Access::Signature {
            for client in clients.iter().map(|(_, client)| client).chain([&nobody]) {
                let refused = client.send(route.method, &path, "{}").await;
                assert_eq!((refused.status, refused.code()), (401, "unauthenticated".to_owned()), "{route:?}");
            }
            continue;
        }
        if route.access == Access::Private {
            for client in clients.iter().map(|(_, client)| client).chain([&nobody]) {
                assert_eq!(client.send(route.method, &path, "{}").await.status, 404, "{route:?}");
            }
            continue;
        }
        let Access::Scope(needed) = route.access else {
            assert!(
                ["/v1/health", "/v1/ready", "/v1/openapi.json"].contains(&route.path),
                "these alone have no scope: {route:?}"
            );
            assert_eq!(nobody.send(route.method, &path, "{}").await.status, 200);
            continue;
        };
        scopes.insert(needed);
        for stranger in [&nobody, &wrong] {
            let refused = stranger.send(route.method, &path, "{}").await;
            assert_eq!((refused.status, refused.code()), (401, "unauthenticated".to_owned()), "{route:?}");
            assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
        }
        for (scope, client) in &clients {
            if ["/v1/tree/events", "/v1/inbox/events"].contains(&route.path) && *scope == needed {
                client.open(&path).await.read_until("HTTP/1.1 200 OK\r\n").await;
                continue;
            }
            let answer = client.send(route.method, &path, "{}").await;
            let is_refused = answer.status == 403 && answer.code() == "missing-scope";
            assert_eq!(is_refused, *scope != needed, "{route:?} with {scope}: {answer:?}");
        }
    }
    assert_eq!(scopes, Scope::ALL.into(), "a scope that no route needs");
    service.end().await;
}

#[tokio::test]
async fn the_same_idempotency_key_is_the_same_delegation() {
    let service = Service::start().await;
    let client = service.client("ci", [Scope::Delegate]);
    let task = json!({ "to": "echo", "body": "once" });
    let first = id_of(&client.post_with("/v1/delegations", &[("Idempotency-Key", "k1")], &task).await);
    let again = client.post_with("/v1/delegations", &[("Idempotency-Key", "k1")], &task).await;
    assert_eq!((again.status, id_of(&again)), (202, first.clone()));
    let other = json!({ "to": "echo", "body": "twice" });
    let reused = client.post_with("/v1/delegations", &[("Idempotency-Key", "k1")], &other).await;
    assert_eq!((reused.status, reused.code()), (422, "idempotency-key-reused".to_owned()));
    let second = id_of(&client.post_with("/v1/delegations", &[("Idempotency-Key", "k2")], &task).await);
    let stranger = service.client("other", [Scope::Delegate]);
    let theirs = id_of(&stranger.post_with("/v1/delegations", &[("Idempotency-Key", "k1")], &task).await);
    assert_eq!(BTreeSet::from([&first, &second, &theirs]).len(), 3);
    assert_eq!(service.board.runs().await.unwrap().len(), 3);
    service.end().await;
}

#[tokio::test]
async fn a_stream_continues_after_the_last_event_that_a_client_has() {
    let service = Service::start().await;
    let client = service.client("ci", [Scope::Read, Scope::Delegate]);
    let path = format!(
        "/v1/delegations/{}",
        id_of(&client.post("/v1/delegations", &json!({ "to": "echo", "body": "x" })).await)
    );
    let stream = format!("{path}/events?modes=debug");
    let whole = client.get(&stream).await.body;
    let ids: Vec<u64> = whole.lines().filter_map(|line| line.strip_prefix("id: ")?.parse().ok()).collect();
    assert_eq!(ids, (1..=ids.len() as u64).collect::<Vec<_>>(), "{whole}");
    let events: Vec<&str> = whole.split_inclusive("\n\n").collect();
    for (number, id) in ids.iter().enumerate() {
        let rest = client.get_with(&stream, &[("Last-Event-ID", &id.to_string())]).await;
        if number + 1 == ids.len() {
            assert_eq!((rest.status, rest.body.as_str()), (204, ""), "a client that has all is not to connect again");
        } else {
            assert_eq!((rest.status, rest.body), (200, events[number + 1..].concat()));
        }
    }
    service.end().await;
}

#[tokio::test]
async fn a_stream_that_has_nothing_left_to_send_is_not_opened_again() {
    let service = Service::start().await;
    let client = service.client("ci", [Scope::Read, Scope::Delegate]);
    let path = delegate(&client, &json!({ "to": "echo", "body": "x" })).await;
    client.get(&format!("{path}/events")).await;
    for modes in ["messages", "live"] {
        assert_eq!(client.get(&format!("{path}/events?modes={modes}")).await.status, 204, "{modes}");
    }
    service.end().await;
}

#[tokio::test]
async fn the_router_works_below_a_path_with_a_parameter() {
    let board = Callboard::builder().agent("echo", |_: Turn| async { Ok(Command::new()) }).start().await.unwrap();
    let tokens = Tokens::new(Env::system());
    let secret = tokens.add(TokenSpec::new("ci", Scope::ALL)).unwrap();
    let router = axum::Router::new().nest("/t/{tenant}", Server::new(board.clone(), tokens).router());
    let request = |request: axum::http::request::Builder, body: &str| {
        let request = request.header("Host", "localhost").header("Authorization", format!("Bearer {secret}"));
        let request = request.header("Content-Type", "application/json").body(Body::from(body.to_owned())).unwrap();
        router.clone().oneshot(request)
    };
    let created = request(Request::post("/t/a/v1/delegations"), r#"{"body": "x"}"#).await.unwrap();
    let location = created.headers()["location"].to_str().unwrap().to_owned();
    let found = request(Request::get(format!("/t/a/v1/{location}")), "").await.unwrap();
    assert_eq!((created.status().as_u16(), found.status().as_u16()), (202, 200));
    board.shutdown().await;
}

#[tokio::test]
async fn a_stream_ends_with_its_token() {
    let service = Service::start().await;
    let client = service.client("ci", [Scope::Read, Scope::Delegate]);
    let (path, mut stream) = open_stream(&client).await;
    assert!(service.tokens.revoke("ci").unwrap());
    stream.read_to_end().await;
    assert_eq!(client.get(&path).await.status, 401);
    service.end().await;
}

#[tokio::test]
async fn a_stream_ends_with_the_server() {
    let service = Service::start().await;
    let client = service.client("ci", [Scope::Read, Scope::Delegate]);
    let (_, mut stream) = open_stream(&client).await;
    service.end().await;
    stream.read_to_end().await;
}

#[tokio::test]
async fn a_person_answers_what_waits_once_and_in_the_name_of_the_token() {
    let service = Service::start().await;
    let client = service.client("ci", [Scope::Read, Scope::Delegate]);
    let ann = service.client("ann", [Scope::Approve]);
    let path = format!(
        "/v1/delegations/{}",
        id_of(&client.post("/v1/delegations", &json!({ "to": "asker", "body": "x" })).await)
    );
    service.board.people().next().await.unwrap();
    let pending = client.get("/v1/pending").await.json();
    let asked = &pending["pending"][0];
    assert_eq!(
        (&asked["kind"], &asked["question"], &asked["agent"]),
        (&json!("question"), &json!("who?"), &json!("asker"))
    );
    assert_eq!(client.get(&path).await.json()["pending"][0], *asked);
    assert_eq!(client.get(&path).await.json()["state"], "waits_for_answer");

    let answer = format!("/v1/pending/{}", asked["id"].as_str().unwrap().replace('/', "%2F"));
    let unfit = ann.post(&answer, &json!({ "response": "approve" })).await;
    assert_eq!((unfit.status, unfit.code()), (422, "refused".to_owned()));
    let answered = ann.post(&answer, &json!({ "response": "answer", "value": "me" })).await;
    assert_eq!((answered.status, &answered.json()["by"]), (200, &json!("ann")), "{answered:?}");
    client.get(&format!("{path}/events")).await;
    assert_eq!(client.get(&path).await.json()["result"]["output"], "me");
    let late = ann.post(&answer, &json!({ "response": "answer", "value": "you" })).await;
    assert_eq!((late.status, late.code()), (409, "conflict".to_owned()));
    assert!(late.body.contains("already answered by ann at "), "{late:?}");
    let never = answer.split_once("%2F").unwrap().0.to_owned() + "%2F1.7:1";
    assert_eq!(ann.post(&never, &json!({ "response": "answer", "value": "you" })).await.status, 404);
    service.end().await;
}

#[tokio::test]
async fn a_task_is_untrusted_unless_its_token_is_an_administrators() {
    let service = Service::start().await;
    for (name, scopes, expected) in
        [("ci", vec![Scope::Read, Scope::Delegate], true), ("root", Scope::ALL.to_vec(), false)]
    {
        let client = service.client(name, scopes);
        for (is_untrusted, expected) in [(json!(false), expected), (json!(true), true)] {
            let task = json!({ "to": "echo", "body": "x", "is_untrusted": is_untrusted });
            let path = delegate(&client, &task).await;
            client.get(&format!("{path}/events")).await;
            assert_eq!(client.get(&path).await.json()["result"]["is_tainted"], expected, "{name}: {task}");
        }
    }
    service.end().await;
}

#[tokio::test]
async fn a_delegation_is_cancelled_once() {
    let service = Service::start().await;
    let client = service.client("ci", [Scope::Read, Scope::Delegate]);
    let path = format!(
        "/v1/delegations/{}",
        id_of(&client.post("/v1/delegations", &json!({ "to": "waiter", "body": "x" })).await)
    );
    let cancelled = client.post(&format!("{path}/cancel"), &json!({ "reason": "enough" })).await.json();
    assert_eq!((&cancelled["status"], &cancelled["result"]["error"]), (&json!("fail"), &json!("enough")));
    let again = client.send("POST", &format!("{path}/cancel"), "").await;
    assert_eq!((again.status, again.code()), (409, "conflict".to_owned()));
    service.end().await;
}

#[tokio::test]
async fn a_board_that_is_full_says_when_to_try_again_and_one_that_has_stopped_is_unavailable() {
    let service = Service::with_room_for(2).await;
    let client = service.client("ci", [Scope::Read, Scope::Delegate]);
    let task = json!({ "to": "waiter", "body": "x" });
    let first = client.post_with("/v1/delegations", &[("Idempotency-Key", "k")], &task).await;
    assert_eq!((first.status, client.post("/v1/delegations", &task).await.status), (202, 202));
    let full = client.post("/v1/delegations", &task).await;
    let again = client.post_with("/v1/delegations", &[("Idempotency-Key", "k")], &task).await;
    assert_eq!(id_of(&again), id_of(&first), "what is there already is not admitted again");
    assert_eq!((full.status, full.code(), full.header("retry-after")), (429, "overloaded".to_owned(), Some("1")));
    assert_eq!(client.get("/v1/health").await.status, 200);
    service.board.shutdown().await;
    let stopped = [client.post("/v1/delegations", &task).await, client.get("/v1/health").await];
    assert_eq!(stopped.map(|answer| (answer.status, answer.code())), [(); 2].map(|()| (503, "unavailable".to_owned())));
    service.end().await;
}

#[tokio::test]
async fn a_body_that_is_cut_off_is_refused() {
    let service = Service::start().await;
    let client = service.client("ci", [Scope::Delegate]);
    let secret = client.secret.as_deref().unwrap();
    let request = format!(
        "POST /v1/delegations HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {secret}\r\n\
         Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{"
    );
    let answer = client.raw_and_end(request.as_bytes()).await;
    assert_eq!((answer.status, answer.code()), (400, "bad-request".to_owned()));
    service.end().await;
}

/// Without a connection: with a paused clock, time would pass while its bytes are on their way.
#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_arrive_is_given_up_after_half_a_minute() {
    let board = Callboard::builder().start().await.unwrap();
    let env = Env::repeatable(1);
    let tokens = Tokens::new(env.clone());
    let secret = tokens.add(TokenSpec::new("ci", [Scope::Delegate])).unwrap();
    let silence = Body::from_stream(futures::stream::pending::<Result<String, std::io::Error>>());
    let request = Request::post("/v1/delegations")
        .header("Host", "localhost")
        .header("Authorization", format!("Bearer {secret}"))
        .header("Content-Type", "application/json");
    let begun = env.now().monotonic;
    let response = Server::new(board.clone(), tokens).router().oneshot(request.body(silence).unwrap()).await.unwrap();
    let took = env.now().monotonic - begun;
    assert_eq!((response.status().as_u16(), took.as_secs()), (408, 30));
    board.shutdown().await;
}

#[tokio::test]
async fn agents_and_the_tree_are_listed() {
    let service = Service::start().await;
    let client = service.client("root", Scope::ALL);
    let agents = client.get("/v1/agents").await.json();
    let names: BTreeSet<&str> =
        agents["agents"].as_array().unwrap().iter().filter_map(|agent| agent["agent"].as_str()).collect();
    assert_eq!(names, BTreeSet::from(["asker", "echo", "waiter"]));
    let tree: Value = client.get("/v1/tree").await.json();
    let children: Vec<&str> =
        tree["children"].as_array().unwrap().iter().filter_map(|child| child["name"].as_str()).collect();
    assert_eq!((&tree["name"], children.contains(&"agents")), (&json!("callboard"), true), "{tree}");
    service.end().await;
}

#[tokio::test]
async fn requests_and_statuses_of_a_delegation_are_in_the_inboxes_of_its_agent_and_of_who_gave_it() {
    let service = Service::start().await;
    let client = service.client("ci", [Scope::Read, Scope::Delegate]);
    let id = id_of(&client.post("/v1/delegations", &json!({ "to": "echo", "body": "one" })).await);
    service.board.run(id.parse().unwrap()).result().await.unwrap();
    let inbox = client.get("/v1/agents/echo/inbox").await.json();
    assert_eq!(inbox["agent"], "echo", "{inbox}");
    let request = &inbox["messages"][0];
    assert_eq!(
        [&request["kind"], &request["request_id"], &request["from_agent"], &request["body"]],
        [&json!("request"), &json!(id), &json!("ci"), &json!("one")]
    );
    let inbox = client.get("/v1/agents/ci/inbox").await.json();
    let last = inbox["messages"].as_array().unwrap().last().unwrap();
    assert_eq!(
        [&last["kind"], &last["request_id"], &last["status"], &last["body"]],
        [&json!("status"), &json!(id), &json!("complete"), &json!("one")]
    );
    assert_eq!(client.get("/v1/agents/nobody/inbox").await.json()["messages"], json!([]));
    service.end().await;
}
