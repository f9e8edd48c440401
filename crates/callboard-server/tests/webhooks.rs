//! Webhooks: deliveries that are signed, and those that are not.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod world;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use callboard_server::{Scope, Server, TokenSpec, Tokens};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::time::sleep;

use world::{BEFORE_SUMMER, Service, World};

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
async fn deliveries_are_bounded_in_number_before_they_are_checked() {
    let world = World::new();
    let service = world.serve().await;
    let secret = create(&service, "github").await;
    for name in ["github", "nobody"] {
        for _ in 0..600 {
            assert_eq!(deliver(&service, name, &[], BODY).await.0, 401);
        }
    }
    let signed = of_github(&secret, "m", BODY);
    assert_eq!(deliver(&service, "github", &signed, BODY).await.0, 429);
    assert_eq!(deliver(&service, "somebody", &[], BODY).await.0, 429, "unknown names have one count");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(deliver(&service, "github", &signed, BODY).await.0, 202);
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
