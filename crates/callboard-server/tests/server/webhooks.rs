//! Webhooks: deliveries that are signed, and those that are not.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use callboard_server::{Scope, Server, TokenSpec, Tokens};
use futures::FutureExt as _;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::time::sleep;
use tower::ServiceExt as _;

use crate::support::world::{BEFORE_SUMMER, Service, World};

/// The second in which the world begins.
const NOW: u64 = BEFORE_SUMMER.as_millis() / 1_000;
const BODY: &str = r#"{"action":"opened"}"#;

type Headers = Vec<(&'static str, String)>;

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    Hmac::<Sha256>::new_from_slice(key).unwrap().chain_update(text).finalize().into_bytes().to_vec()
}

fn of_standard(secret: &str, id: &str, at: u64, body: &str) -> Vec<(&'static str, String)> {
    let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
    let signature = STANDARD.encode(mac(&key, &format!("{id}.{at}.{body}")));
    let headers = [("webhook-id", id.to_owned()), ("webhook-timestamp", at.to_string())];
    headers.into_iter().chain([("webhook-signature", format!("v1,{signature}"))]).collect()
}

fn of_github(secret: &str, id: &str, body: &str) -> Vec<(&'static str, String)> {
    let digits: String = mac(secret.as_bytes(), body).iter().map(|byte| format!("{byte:02x}")).collect();
    vec![("x-github-delivery", id.to_owned()), ("x-hub-signature-256", format!("sha256={digits}"))]
}

/// Creates a webhook of the name of its scheme, and returns its secret.
async fn create(service: &Service, scheme: &str) -> String {
    let body = json!({ "name": scheme, "webhook": scheme, "task": { "to": "echo", "body": "read it" } });
    let (status, created) = service.post("/v1/schedules", &body).await;
    assert_eq!((status, &created["webhook"], &created["overlap"]), (201, &json!(scheme), &Value::Null), "{created}");
    created["secret"].as_str().unwrap().to_owned()
}

async fn deliver(service: &Service, name: &str, headers: &[(&'static str, String)], body: &str) -> (u16, Value) {
    let request = Request::post(format!("/v1/webhooks/{name}")).header("Host", "localhost");
    let is_typed = headers.iter().any(|(name, _)| *name == "content-type");
    let request = if is_typed { request } else { request.header("content-type", "application/json") };
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, value));
    service.send(request.body(Body::from(body.to_owned())).unwrap()).await
}

#[tokio::test(start_paused = true)]
async fn a_signed_delivery_is_one_run_with_its_body_as_untrusted_input() {
    let world = World::new();
    let service = world.serve().await;
    let (standard, github) = (create(&service, "standard").await, create(&service, "github").await);
    assert_ne!(standard, github);
    let mut runs = BTreeSet::new();
    for (name, headers) in [
        ("standard", of_standard(&standard, "msg_1", NOW, BODY)),
        ("standard", of_standard(&standard, "msg_2", NOW, BODY)),
        ("github", of_github(&github, "msg_1", BODY)),
    ] {
        let (status, answer) = deliver(&service, name, &headers, BODY).await;
        assert_eq!((status, &answer["status"]), (202, &json!("ack")), "{answer}");
        let (status, again) = deliver(&service, name, &headers, BODY).await;
        assert_eq!((status, &again), (202, &answer), "the same delivery is the same run");
        runs.insert(answer["request_id"].as_str().unwrap().to_owned());
    }
    assert_eq!((runs.len(), world.times(&service).await.len()), (3, 3));
    for run in &runs {
        let run = service.board.run(run.parse().unwrap());
        let (result, task) = (run.result().await.unwrap(), run.read().await.unwrap().submission().task.clone());
        assert_eq!(
            (result.output, &*task.body, task.is_untrusted),
            (json!({ "action": "opened" }).into(), "read it", true)
        );
    }
    let (_, shown) = service.get("/v1/schedules/standard").await;
    assert_eq!((&shown["started"], &shown["state"], &shown["next_at"]), (&json!(2), &json!("active"), &Value::Null));
    assert!(shown["secret"].is_null(), "the secret is shown once");
    let ping = [of_github(&github, "msg_9", BODY), vec![("x-github-event", "ping".to_owned())]].concat();
    assert_eq!(deliver(&service, "github", &ping, BODY).await, (202, json!({ "request_id": null, "status": "ack" })));
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(world.times(&service).await.len(), 3, "a webhook has no times");
    service.end().await;
}

#[tokio::test(start_paused = true)]
async fn deliveries_that_are_not_signed_with_the_secret_of_now_are_refused() {
    let world = World::new();
    let service = world.serve().await;
    let (standard, github) = (create(&service, "standard").await, create(&service, "github").await);
    let with = |mut headers: Vec<(&'static str, String)>, name: &str, value: Option<&str>| {
        headers.retain(|(known, _)| *known != name || value.is_none_or(|value| value.starts_with('+')));
        if let Some(value) = value {
            let name =
                ["webhook-id", "webhook-timestamp", "webhook-signature", "x-github-delivery", "x-hub-signature-256"]
                    .into_iter()
                    .chain(["content-type"])
                    .find(|known| *known == name);
            headers.push((name.unwrap(), value.trim_start_matches('+').to_owned()));
        } else {
            headers.retain(|(known, _)| *known != name);
        }
        headers
    };
    let sound = || of_standard(&standard, "m", NOW, BODY);
    let hub = || of_github(&github, "m", BODY);
    let other = of_standard(&github, "m", NOW, BODY)[2].1.clone();
    let bare = hub()[1].1.trim_start_matches("sha256=").to_owned();
    let (wrong_hub, upper) = (of_github(&standard, "m", BODY), format!("SHA256={bare}"));
    let huge = format!("\"{}\"", "x".repeat(256 * 1024));
    let long = "m".repeat(129);
    let refused: Vec<(&str, Headers, &str, u16)> = vec![
        ("standard", vec![], BODY, 401),
        ("standard", with(sound(), "webhook-id", None), BODY, 401),
        ("standard", with(sound(), "webhook-id", Some("n")), BODY, 401),
        ("standard", with(sound(), "webhook-id", Some("+m")), BODY, 401),
        ("standard", of_standard(&standard, "", NOW, BODY), BODY, 401),
        ("standard", of_standard(&standard, "m m", NOW, BODY), BODY, 401),
        ("standard", of_standard(&standard, &long, NOW, BODY), BODY, 401),
        ("standard", with(sound(), "webhook-timestamp", None), BODY, 401),
        ("standard", with(sound(), "webhook-timestamp", Some("soon")), BODY, 401),
        ("standard", with(sound(), "webhook-timestamp", Some("-1")), BODY, 401),
        ("standard", with(sound(), "webhook-timestamp", Some(&(NOW + 1).to_string())), BODY, 401),
        ("standard", of_standard(&standard, "m", NOW - 301, BODY), BODY, 401),
        ("standard", of_standard(&standard, "m", NOW + 301, BODY), BODY, 401),
        ("standard", with(sound(), "webhook-signature", None), BODY, 401),
        ("standard", with(sound(), "webhook-signature", Some("v1,")), BODY, 401),
        ("standard", with(sound(), "webhook-signature", Some("v1,AAAA")), BODY, 401),
        ("standard", with(sound(), "webhook-signature", Some(&other)), BODY, 401),
        ("standard", with(sound(), "webhook-signature", Some(&other.replace("v1,", "v1a,"))), BODY, 401),
        ("standard", with(sound(), "webhook-signature", Some(&sound()[2].1.replace("v1,", "v2,"))), BODY, 401),
        ("standard", with(sound(), "webhook-signature", Some(sound()[2].1.trim_end_matches('='))), BODY, 401),
        ("standard", sound(), "{}", 401),
        ("standard", of_github(&standard, "m", BODY), BODY, 401),
        ("standard", of_standard(&standard, "m", NOW, ""), "", 400),
        ("standard", of_standard(&standard, "m", NOW, "{"), "{", 400),
        ("standard", of_standard(&standard, "m", NOW, r#"{"a":1,"a":2}"#), r#"{"a":1,"a":2}"#, 400),
        ("standard", with(sound(), "content-type", Some("text/plain")), BODY, 415),
        ("standard", of_standard(&standard, "m", NOW, &huge), &huge, 413),
        ("github", vec![], BODY, 401),
        ("github", sound(), BODY, 401),
        ("github", wrong_hub, BODY, 401),
        ("github", with(hub(), "x-github-delivery", None), BODY, 401),
        ("github", with(hub(), "x-hub-signature-256", None), BODY, 401),
        ("github", with(hub(), "x-hub-signature-256", Some(&bare)), BODY, 401),
        ("github", with(hub(), "x-hub-signature-256", Some(&upper)), BODY, 401),
        ("github", with(hub(), "x-hub-signature-256", Some("sha256=00")), BODY, 401),
        ("github", hub(), "{} ", 401),
        ("github", of_github(&github, "m", "no JSON"), "no JSON", 400),
        ("nobody", sound(), BODY, 401),
        ("nobody", vec![], &huge, 413),
    ];
    for (name, headers, body, expected) in refused {
        let (status, problem) = deliver(&service, name, &headers, body).await;
        assert_eq!(status, expected, "{name} {headers:?} {problem}");
        assert!(!problem.to_string().contains("whsec_"), "{problem}");
    }
    assert_eq!(world.times(&service).await.len(), 0);
    let both = format!("v1a,x {other} {}", sound()[2].1);
    assert_eq!(deliver(&service, "standard", &with(sound(), "webhook-signature", Some(&both)), BODY).await.0, 202);
    service.end().await;
}

#[tokio::test(start_paused = true)]
async fn requests_that_are_not_signed_use_up_nothing_of_a_webhook_and_show_no_names() {
    let world = World::new();
    let service = world.serve().await;
    let secret = create(&service, "github").await;
    let forged = of_github(&secret, "m", "another body");
    let (known, unknown) = (deliver(&service, "github", &forged, BODY), deliver(&service, "nobody", &forged, BODY));
    assert_eq!(known.await, unknown.await);
    // Without a secret, a name has the key of nobody.
    let nobodys = of_standard(&format!("whsec_{}", STANDARD.encode([0; 32])), "m", NOW, BODY);
    assert_eq!(deliver(&service, "nobody", &nobodys, BODY).await.0, 401);
    for number in 4..=600 {
        let expected = if number <= 60 { 401 } else { 429 };
        assert_eq!(deliver(&service, "github", &forged, BODY).await.0, expected, "{number}");
    }
    let signed = of_github(&secret, "m", BODY);
    for _ in 0..600 {
        assert_eq!(deliver(&service, "github", &signed, BODY).await.0, 202);
    }
    let (status, problem) = deliver(&service, "github", &signed, BODY).await;
    assert_eq!((status, &problem["detail"]), (429, &json!("a webhook receives at most 600 deliveries a minute")));
    sleep(Duration::from_secs(59)).await;
    let (known, unknown) = (deliver(&service, "github", &forged, BODY), deliver(&service, "nobody", &forged, BODY));
    assert_eq!(known.await, unknown.await, "who has no secret does not see that");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(deliver(&service, "github", &signed, BODY).await.0, 202);
    service.end().await;
}

#[tokio::test(start_paused = true)]
async fn unsigned_deliveries_of_a_minute_are_recorded_by_the_first_and_a_count_of_the_others() {
    let world = World::new();
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.jsonl");
    let mut service = world.serve().await;
    service.router = Server::new(service.board.clone(), world.tokens.clone()).audit_file(&log).unwrap().router();
    let secret = create(&service, "github").await;
    let refused = || -> Vec<Value> {
        let text = fs::read_to_string(folder.path().join("audit.jsonl.refused")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    for _ in 0..60 {
        assert_eq!(deliver(&service, "nobody", &[], BODY).await.0, 401);
    }
    let request =
        || Request::post("/v1/webhooks/github").header("Host", "localhost").header("Content-Type", "application/json");
    let answer = service.router.clone().oneshot(request().body(Body::from(BODY)).unwrap()).await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.headers()["retry-after"].to_str().unwrap()), (429, "60"));
    // One whose client leaves.
    let body = Body::from_stream(futures::stream::pending::<Result<Vec<u8>, std::io::Error>>());
    assert!(Box::pin(service.send(request().body(body).unwrap())).now_or_never().is_none());
    assert_eq!(deliver(&service, "github", &of_github(&secret, "m", BODY), BODY).await.0, 202, "it is signed");
    let first = refused();
    assert_eq!((first.len(), &first[0]["path"], &first[0]["count"]), (1, &json!("/v1/webhooks/nobody"), &Value::Null));
    sleep(Duration::from_secs(61)).await;
    let [_, others] = &refused()[..] else { panic!("{:?}", refused()) };
    assert_eq!(
        [&others["path"], &others["code"], &others["count"], &others["status"]],
        [&json!("/v1/webhooks"), &json!("unauthenticated"), &json!(61), &Value::Null]
    );
    assert_eq!(deliver(&service, "nobody", &[], BODY).await.0, 401, "another minute");
    assert_eq!(refused().len(), 3);
    service.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_address_has_64_requests_arrive_at_a_time() {
    let world = World::new();
    let service = world.serve().await;
    let secret = create(&service, "github").await;
    let slow = |name: &str| {
        let request = Request::post(format!("/v1/webhooks/{name}")).header("Host", "localhost");
        let body = Body::from_stream(futures::stream::pending::<Result<Vec<u8>, std::io::Error>>());
        Box::pin(service.send(request.body(body).unwrap()))
    };
    let mut slow: Vec<_> = ["github", "nobody"].into_iter().cycle().take(64).map(slow).collect();
    assert!(slow.iter_mut().all(|request| request.now_or_never().is_none()));
    let signed = of_github(&secret, "m", BODY);
    let (known, unknown) = (deliver(&service, "github", &signed, BODY), deliver(&service, "nobody", &signed, BODY));
    let (known, unknown) = (known.await, unknown.await);
    assert_eq!((known.0, &known), (429, &unknown));
    slow.pop();
    assert_eq!(deliver(&service, "github", &signed, BODY).await.0, 202);
    // 3 were not signed before.
    for (number, request) in (4..).zip(slow) {
        let expected = if number <= 60 { 408 } else { 429 };
        assert_eq!(request.await.0, expected, "it has 10 s");
    }
    service.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_delivery_counts_as_a_request_of_the_token_that_owns_its_webhook_and_of_its_person() {
    let world = World::new();
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.jsonl");
    let mut service = world.serve().await;
    let server = Server::new(service.board.clone(), world.tokens.clone()).audit_file(&log).unwrap();
    service.router = server.people(["ci", "laptop"].map(|token| (token.to_owned(), "bob".to_owned()))).router();
    let [ci, laptop] = ["ci", "laptop"].map(|name| {
        world.tokens.add(TokenSpec::new(name, [Scope::Delegate, Scope::Read]).requests_a_minute(3)).unwrap()
    });
    let body = json!({ "name": "github", "webhook": "github", "task": { "to": "echo", "body": "x" } });
    let (_, created) = service.send_as(&ci, "POST", "/v1/schedules", &body).await;
    let secret = created["secret"].as_str().unwrap();
    for id in ["1", "2"] {
        assert_eq!(deliver(&service, "github", &of_github(secret, id, BODY), BODY).await.0, 202);
    }
    let (status, problem) = deliver(&service, "github", &of_github(secret, "3", BODY), BODY).await;
    assert_eq!((status, &problem["detail"]), (429, &json!("the token ci may send 3 requests a minute")));
    let (status, _) = service.send_as(&laptop, "GET", "/v1/schedules", &Value::Null).await;
    assert_eq!(status, 429, "both tokens are of one person");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(deliver(&service, "github", &of_github(secret, "3", BODY), BODY).await.0, 202);
    let log = fs::read_to_string(&log).unwrap();
    let last: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    assert_eq!((&last["who"], &last["person"]), (&json!("webhook github"), &json!("bob")));
    service.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_webhook_is_paused_deleted_and_stops_with_its_owner() {
    let world = World::new();
    let service = world.serve().await;
    let secret = create(&service, "github").await;
    let signed = of_github(&secret, "m", BODY);
    assert_eq!(service.post("/v1/schedules/github/pause", &json!({})).await.0, 200);
    assert_eq!(deliver(&service, "github", &signed, BODY).await.0, 409);
    assert_eq!(service.post("/v1/schedules/github/resume", &json!({})).await.0, 200);
    assert_eq!(deliver(&service, "github", &signed, BODY).await.0, 202);
    let ci = world.tokens.add(TokenSpec::new("ci", [Scope::Delegate])).unwrap();
    let body = json!({ "name": "of ci", "webhook": "github", "secret": secret, "task": { "to": "echo", "body": "x" } });
    assert_eq!(service.send_as(&ci, "POST", "/v1/schedules", &body).await.0, 201);
    assert_eq!(deliver(&service, "of%20ci", &signed, BODY).await.0, 202);
    world.tokens.revoke("ci").unwrap();
    let (status, problem) = deliver(&service, "of%20ci", &of_github(&secret, "n", BODY), BODY).await;
    assert_eq!((status, &problem["detail"]), (409, &json!("the token ci was revoked")));
    assert_eq!(service.send_as(&service.secret, "DELETE", "/v1/schedules/github", &Value::Null).await.0, 204);
    assert_eq!(deliver(&service, "github", &signed, BODY).await.0, 401);
    service.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_secret_is_kept_in_a_file_of_this_user_alone_until_its_webhook_is_deleted() {
    let world = World::new();
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("service");
    let open = || Tokens::open(&folder.join("tokens.json"), world.env.clone()).unwrap();
    let mut service = world.serve().await;
    service.secret = open().add(TokenSpec::new("ann", Scope::ALL)).unwrap();
    service.router = Server::new(service.board.clone(), open()).router();
    let secret = create(&service, "standard").await;
    let files = || fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
    let file = files().find(|file| file.file_name().unwrap().to_str().unwrap().starts_with("webhook-")).unwrap();
    let mode = fs::metadata(&file).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode, fs::read_to_string(&file).unwrap()), (0o600, format!("{secret}\n")));
    // As after a restart.
    service.router = Server::new(service.board.clone(), open()).router();
    let signed = of_standard(&secret, "m", NOW, BODY);
    assert_eq!(deliver(&service, "standard", &signed, BODY).await.0, 202);
    assert_eq!(service.send_as(&service.secret, "DELETE", "/v1/schedules/standard", &Value::Null).await.0, 204);
    assert!(!file.exists());
    service.end().await;
}

#[tokio::test(start_paused = true)]
async fn webhooks_that_cannot_work_are_refused() {
    let world = World::new();
    let service = world.serve().await;
    let task = json!({ "to": "echo", "body": "x" });
    let refused = [
        json!({ "name": "x", "webhook": "github", "every_ms": 1000, "task": task }),
        json!({ "name": "x", "webhook": "github", "overlap": "queue", "task": task }),
        json!({ "name": "x", "webhook": "github", "missed": "skip", "task": task }),
        json!({ "name": "x", "webhook": "github", "time_zone": "UTC", "task": task }),
        json!({ "name": "x", "webhook": "github", "task": { "to": "echo", "body": "x", "input": 1 } }),
        json!({ "name": "x", "webhook": "github", "secret": "short", "task": task }),
        json!({ "name": "x", "webhook": "standard", "secret": "whsec_c2hvcnQ=", "task": task }),
        json!({ "name": "x", "every_ms": 1000, "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "task": task }),
    ];
    for body in refused {
        let (status, problem) = service.post("/v1/schedules", &body).await;
        assert_eq!((status, &problem["code"]), (422, &json!("refused")), "{body} {problem}");
    }
    service.end().await;
}
