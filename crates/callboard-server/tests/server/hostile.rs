//! Requests that are wrong in every way: each is refused with its reason, and the server continues.

use std::time::Duration;

use callboard_server::{Access, Route, Scope, Server, TokenSpec};
use serde_json::json;

use crate::support::client::{Client, filled};
use crate::support::service::Service;

/// Requests as they are written to the connection, each with the status that it is answered with.
fn written_out(secret: &str) -> Vec<(String, u16)> {
    let head = |line: &str| {
        format!("{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {secret}\r\n")
    };
    let with_body = |content_type: &str, body: &str| {
        let head = head("POST /v1/delegations");
        format!("{head}Content-Type: {content_type}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    };
    let json = |body: &str| with_body("application/json", body);
    let get = |path: &str, headers: &str| format!("{}{headers}\r\n", head(&format!("GET {path}")));
    let id = "019a0000-0000-7000-8000-000000000001";
    vec![
        (json("{\"to\": \"echo\", \"body\": \"x\"}"), 202),
        (json("{"), 400),
        (json("[]"), 400),
        (json("null"), 400),
        (json("{}"), 400),
        (json("{\"to\": \"echo\"}"), 400),
        (json("{\"to\": 1, \"body\": \"x\"}"), 400),
        (json("{\"to\": \"echo\", \"body\": \"x\", \"body\": \"y\"}"), 400),
        (json("{\"to\": \"echo\", \"body\": \"x\", \"bodies\": 1}"), 400),
        (json("{\"to\": \"echo\", \"body\": \"x\"} {}"), 400),
        (json("{\"to\": \"echo\", \"body\": \"\\ud800\"}"), 400),
        (json("{\"to\": \"echo\", \"body\": \"x\", \"deadline_ms\": -1}"), 400),
        (json("{\"to\": \"echo\", \"body\": \"x\", \"limits\": {\"hands\": 1}}"), 400),
        (
            json(&format!("{{\"to\": \"echo\", \"body\": \"x\", \"input\": {}1{}}}", "[".repeat(126), "]".repeat(126))),
            422,
        ),
        (json(&"[".repeat(100_000)), 400),
        (json("{\"to\": \"nobody\", \"body\": \"x\"}"), 422),
        (json("{\"body\": \"x\"}"), 422),
        (json("{\"to\": \"\\u0000\", \"body\": \"x\"}"), 422),
        (json(&format!("{{\"to\": \"echo\", \"body\": \"{}\"}}", "x".repeat(1024 * 1024))), 413),
        (with_body("text/plain", "{}"), 415),
        (with_body("application/x-www-form-urlencoded", "body=x"), 415),
        (with_body("application/json-seq", "{}"), 415),
        (with_body("application/json; charset=utf-16", "{}"), 415),
        (with_body("application/json\r\nContent-Type: application/json", "{}"), 415),
        (with_body("application/json\r\nContent-Encoding: gzip", "{}"), 415),
        (with_body("application/json; charset=\"UTF-8\"\r\nContent-Encoding: identity", "{}"), 400),
        (get("/v1/nothing", ""), 404),
        (get("/", ""), 404),
        (get("/v1/delegations/../health", ""), 404),
        (get("/v1//health", ""), 404),
        (get("/v1/delegations/%00", ""), 404),
        (get("/v1/delegations/%ff", ""), 400),
        (get(&format!("/v1/delegations/{id}"), ""), 404),
        (get(&format!("/v1/delegations/{id}/events"), ""), 404),
        (get(&format!("/v1/delegations/{id}?token={secret}"), ""), 400),
        (get(&format!("/v1/delegations/{id}/events?access_token={secret}"), ""), 400),
        (get(&format!("/v1/delegations/{id}/events?modes=all"), ""), 400),
        (get(&format!("/v1/delegations/{id}/events?from=1"), ""), 400),
        (get(&format!("/v1/delegations/{id}/events"), "Last-Event-ID: -1\r\n"), 400),
        (get("/v1/agents", "Authorization: Bearer x\r\n"), 401),
        (get("/v1/agents", "Host: localhost\r\n"), 403),
        (get("/v1/agents", "Origin: http://evil.example\r\n"), 403),
        (get("/v1/agents", "Origin: null\r\n"), 403),
        (get("/v1/agents", &format!("X: {}\r\n", "x".repeat(100 * 1024))), 431),
        (get("/v1/agents", &"X: x\r\n".repeat(1_000)), 431),
        ("GET /v1/health HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n".to_owned(), 403),
        ("GET /v1/health HTTP/1.1\r\nConnection: close\r\n\r\n".to_owned(), 403),
        ("GET http://evil.example/v1/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".to_owned(), 403),
        (format!("{}\r\n", head("DELETE /v1/delegations")), 405),
        (get("/v1/delegations%2F", ""), 404),
        (get("/V1/health", ""), 404),
        (get("/v1/health/", ""), 404),
        (get("/v1/health;x=1", ""), 404),
        (get("/v1/./health", ""), 404),
        (get("//v1/health", ""), 404),
        (get("/v1/%2e%2e/health", ""), 404),
        (get("/v1/health%00", ""), 404),
        (get("/v1/health%20", ""), 404),
        (get("/v1/delegations//events", ""), 404),
        (get(&format!("/v1/delegations/{id}/"), ""), 404),
        (get(&format!("/v1/delegations/{id}%2Fevents"), ""), 404),
        (get(&format!("/v1/delegations/{id}%0d%0aX:%20y"), ""), 404),
        (get("/v1/delegations/' OR 1=1", ""), 400),
        (get(&format!("/{}", "x".repeat(8_000)), ""), 404),
        (get("/v1/delegations?state=%00", ""), 400),
        (get("/v1/delegations?limit=99999999999999999999", ""), 400),
        (get("/v1/delegations?page=18446744073709551616_x", ""), 400),
        (get("/v1/delegations?limit=1&limit=2", ""), 400),
        (get("/v1/dead-letters?limit=1", ""), 400),
        (get("/delegation-status", ""), 400),
        (get("/delegation-status?id=%ff", ""), 404),
        (get("/delegation-stream?id=a&id=b", ""), 400),
        (get("/v1/agents", "X: a\r\n b\r\n"), 400),
        (get("/v1/agents", "X: \0\r\n"), 400),
        (get("/v1/agents", "X : a\r\n"), 400),
        (get("/v1/agents", "\u{e9}: a\r\n"), 400),
        (get("/v1/agents", "Content-Length: -1\r\n"), 400),
        (get("/v1/agents", "Content-Length: +1\r\n"), 400),
        (get("/v1/agents", "Content-Length: 0\r\nContent-Length: 1\r\n"), 400),
        (get("/v1/agents", "Content-Length: 18446744073709551616\r\n"), 400),
        (get("/v1/agents", "Transfer-Encoding: gzip\r\n"), 400),
        (get("/v1/agents", "Authorization: Bearer\r\n"), 401),
        (
            format!(
                "{}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                head("POST /v1/delegations")
            ),
            400,
        ),
        (
            format!(
                "{}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n",
                head("POST /v1/delegations")
            ),
            400,
        ),
        ("GET /v1/health HTTP/1.0\r\n\r\n".to_owned(), 403),
        ("GET  /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 400),
        ("GET /v1/health\r\nHost: localhost\r\n\r\n".to_owned(), 400),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), 0),
        (format!("{}\r\n", head("TRACE /v1/health")), 405),
        ("GET /v1/health HTTP/9.9\r\n\r\n".to_owned(), 400),
        ("nonsense\r\n\r\n".to_owned(), 400),
        ("\u{16}\u{3}\u{1}\r\n\r\n".to_owned(), 400),
    ]
}

/// Credentials that are none: headers, or a query.
fn credentials(service: &Service, secret: &str) -> Vec<String> {
    let expired = TokenSpec::new("expired", Scope::ALL).lifetime(Duration::ZERO);
    let expired = service.tokens.add(expired).unwrap();
    let revoked = service.tokens.add(TokenSpec::new("revoked", Scope::ALL)).unwrap();
    service.tokens.revoke("revoked").unwrap();
    let headers = [
        String::new(),
        "Authorization:".to_owned(),
        "Authorization: Bearer".to_owned(),
        "Authorization: Bearer ".to_owned(),
        "Authorization: Bearer cbt_0".to_owned(),
        format!("Authorization: Bearer {expired}"),
        format!("Authorization: Bearer {revoked}"),
        format!("Authorization: Bearer {secret}0"),
        format!("Authorization: Bearer {}", &secret[..secret.len() - 1]),
        format!("Authorization: Bearer {}", secret.to_uppercase()),
        format!("Authorization: Bearer {secret} {secret}"),
        format!("Authorization: Bearer {secret}, Bearer {secret}"),
        format!("Authorization: Bearer {secret}\r\nAuthorization: Bearer {secret}"),
        format!("Authorization: Basic {secret}"),
        format!("Authorization: {secret}"),
        format!("Proxy-Authorization: Bearer {secret}"),
        format!("Cookie: token={secret}"),
        format!("X-Api-Key: {secret}"),
    ];
    headers.into_iter().map(|line| if line.is_empty() { line } else { line + "\r\n" }).collect()
}

/// Bodies that no route takes, each with its type and the status.
fn bodies() -> Vec<(&'static str, String, u16)> {
    let json = "application/json";
    let malformed = [
        "{",
        "}",
        "[]",
        "null",
        "1",
        "\"{}\"",
        "{} {}",
        "{\"unknown\": 1}",
        "{\"a\": 1, \"a\": 2}",
        "{\"a\": NaN}",
        "{'a': 1}",
        "{\"a\": 1,}",
        "{\"a\": \"\\ud800\"}",
        "\u{feff}{}",
        "// {}",
        "\0",
        "{\"__proto__\": {}}",
    ];
    let mut bodies: Vec<_> = malformed.map(|body| (json, body.to_owned(), 400)).into();
    bodies.push((json, "[".repeat(100_000), 400));
    bodies.push((json, format!("{}{}", "{\"a\": ".repeat(50_000), "1"), 400));
    bodies.push((json, format!("\"{}\"", "x".repeat(1024 * 1024)), 413));
    for other in
        ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonp", "*/*"]
    {
        bodies.push((other, "{}".to_owned(), 415));
    }
    bodies
}

/// A route whose unsigned requests count with those of other signed ones, so that it has a server of its own.
const DECISIONS: &str = "/v1/channels/webhooks/{name}";

/// What each of these routes refuses: other methods, tokens in wrong places, other hosts and origins, and bodies that it cannot read.
fn of_routes(service: &Service, secret: &str, is_one: impl Fn(&Route) -> bool) -> Vec<(String, u16)> {
    let (token, close) = (format!("Authorization: Bearer {secret}\r\n"), "Connection: close\r\n");
    let credentials = credentials(service, secret);
    let mut requests = Vec::new();
    for Route { method, path, access } in
        Server::routes().filter(|route| route.access != Access::Private && is_one(route))
    {
        let path = filled(path);
        let mut add = |line: &str, host: &str, headers: &str, body: &str, status: u16| {
            let head = format!("{line} HTTP/1.1\r\nHost: {host}\r\n{close}{headers}");
            requests.push((format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()), status));
        };
        for other in ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "get", "QUERY", "PROPFIND"] {
            if !Server::routes().any(|route| filled(route.path) == path && route.method == other) {
                add(&format!("{other} {path}"), "localhost", &token, "", 405);
            }
        }
        let line = format!("{method} {path}");
        for host in ["", "evil.example", "localhost.evil.example", "evil@localhost", "localhost:x"] {
            add(&line, host, &token, "", 403);
        }
        for origin in ["http://evil.example", "https://localhost", "null", "file://", "http://agents.example.org"] {
            add(&line, "localhost", &format!("{token}Origin: {origin}\r\n"), "", 403);
        }
        match access {
            Access::Open => continue,
            // It is not signed, whatever else it has.
            Access::Signature => {
                for headers in &credentials {
                    add(&line, "localhost", headers, "{}", 401);
                }
                for (content_type, body, _) in bodies() {
                    let status = if body.len() > 256 * 1024 { 413 } else { 401 };
                    add(&line, "localhost", &format!("{token}Content-Type: {content_type}\r\n"), &body, status);
                }
                continue;
            }
            Access::Scope(_) | Access::Private => {}
        }
        for headers in &credentials {
            add(&line, "localhost", headers, "", 401);
        }
        for name in ["token", "access_token", "%74oken"] {
            add(&format!("{line}?{name}={secret}"), "localhost", &token, "", 400);
        }
        if ["POST", "PUT"].contains(&method) {
            for (content_type, body, status) in bodies() {
                add(&line, "localhost", &format!("{token}Content-Type: {content_type}\r\n"), &body, status);
            }
        }
    }
    requests
}

#[tokio::test]
async fn hostile_requests_are_refused_and_the_server_continues() {
    let service = Service::start().await;
    let client = service.client("ci", [Scope::Read, Scope::Delegate]);
    let all = service.client("all", Scope::ALL);
    let mut requests = written_out(client.secret.as_deref().unwrap());
    requests.extend(of_routes(&service, all.secret.as_deref().unwrap(), |route| route.path != DECISIONS));
    assert!(requests.len() >= 300, "there are {}", requests.len());
    refuses(&client, requests).await;
    assert_eq!(client.get("/v1/health").await.json(), json!({ "status": "ok" }));
    assert_eq!(service.board.runs().await.unwrap().len(), 1, "only the first of them is a task");
    service.end().await;
}

#[tokio::test]
async fn hostile_requests_to_decide_by_a_webhook_are_refused() {
    let service = Service::start().await;
    let client = service.client("all", Scope::ALL);
    let requests = of_routes(&service, client.secret.as_deref().unwrap(), |route| route.path == DECISIONS);
    assert!(requests.len() >= 40, "there are {}", requests.len());
    refuses(&client, requests).await;
    service.end().await;
}

/// Fails unless each request is answered with its status, and with a problem that repeats no token.
async fn refuses(client: &Client, requests: Vec<(String, u16)>) {
    let mut wrong = Vec::new();
    for (request, expected) in requests {
        let answer = client.raw(request.as_bytes()).await;
        let shown: String = request.chars().take(300).collect();
        if answer.status != expected {
            wrong.push(format!("{} and not {expected}: {shown:?}", answer.status));
        }
        if answer.status >= 400 && !answer.body.is_empty() {
            assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{answer:?}");
            let problem = answer.json();
            assert_eq!((problem["status"].as_u64(), problem["detail"].is_string()), (Some(answer.status.into()), true));
            assert!(!answer.body.contains("cbt_"), "it repeats a token: {answer:?}");
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn decisions_that_contradict_another_are_refused() {
    let service = Service::start().await;
    let client = service.client("all", Scope::ALL);
    client.post("/v1/delegations", &json!({ "to": "asker", "body": "x" })).await;
    let asked = service.board.people().next().await.unwrap();
    let path = format!("/v1/pending/{}", asked.id().to_string().replace('/', "%2F"));
    for unfit in [
        json!({ "response": "approve" }),
        json!({ "response": "deny" }),
        json!({ "response": "restart" }),
        json!({ "response": "resume" }),
    ] {
        assert_eq!(client.post(&path, &unfit).await.status, 422, "{unfit}");
    }
    let answer = |value: u32| json!({ "response": "answer", "value": value });
    let answers: Vec<_> = (0..20).map(&answer).collect();
    let sent = futures::future::join_all(answers.iter().map(|answer| client.post(&path, answer))).await;
    let counted = sent.iter().filter(|answer| answer.status == 200).count();
    assert_eq!(counted, 1, "{sent:?}");
    assert!(sent.iter().all(|answer| [200, 404, 409].contains(&answer.status)), "{sent:?}");
    service.end().await;
}
