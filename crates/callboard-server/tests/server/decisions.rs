//! Decisions that a receiver of webhooks sends back over HTTP, and the audit log of them.

use std::fs;
use std::path::Path;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::http::Request;
use axum::routing::post;
use callboard::env::Env;
use callboard::messages::Action;
use callboard::prelude::*;
use callboard_channels::webhooks::{Webhook, WebhookChannel, WebhookSecret, WebhooksConfig};
use callboard_server::{Server, Tokens};
use callboard_signatures::{secret_of, sign};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tower::ServiceExt as _;

/// A board that sends approvals to a receiver, whose decisions a server takes.
struct Team {
    board: Callboard,
    router: Router,
    secret: String,
    messages: mpsc::UnboundedReceiver<Value>,
    folder: TempDir,
}

impl Team {
    async fn start() -> Self {
        Self::with(|server| server).await
    }

    async fn with(change: impl FnOnce(Server) -> Server) -> Self {
        let (sender, messages) = mpsc::unbounded_channel();
        let take = move |body: Bytes| async move { sender.send(serde_json::from_slice(&body).unwrap()).unwrap() };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        tokio::spawn(async { axum::serve(listener, Router::new().route("/", post(take))).await });
        let (secret, folder) = (secret_of([7; 32]), tempfile::tempdir().unwrap());
        let webhook = Webhook::new("relay", &url, WebhookSecret::new(&secret).unwrap()).person("ann").person("bob");
        let channel =
            WebhookChannel::open(WebhooksConfig::new(folder.path().join("webhooks")).webhook(webhook)).unwrap();
        let receiver = channel.receiver();
        let clerk = |turn: Turn| async move {
            let target: String = turn.input()?;
            turn.people().approve(Action::new("pay", &target, json!({}))).await?;
            Ok(Command::output("paid"))
        };
        let board = Callboard::builder().agent("clerk", clerk).channel(channel).start().await.unwrap();
        let server = Server::new(board.clone(), Tokens::new(Env::system())).webhook_decisions(receiver);
        let server = change(server).audit_file(&folder.path().join("audit.jsonl")).unwrap();
        Self { board, router: server.router(), secret, messages, folder }
    }

    /// Has the agent ask, and returns the run and the decision that the receiver would send.
    async fn ask(&mut self, target: &str) -> (callboard::runtime::RunHandle, Value) {
        let run = self.board.submit(Task::new("pay").input(target)).await.unwrap();
        let message = self.message("approval.opened", target).await;
        let data = &message["data"];
        (run, json!({ "approval": data["approval"], "nonce": data["nonce"], "response": "approve", "person": "ann" }))
    }

    async fn message(&mut self, kind: &str, target: &str) -> Value {
        loop {
            let message = self.messages.recv().await.unwrap();
            if message["type"] == kind && message["data"]["target"] == target {
                return message;
            }
        }
    }

    async fn send(&self, id: &str, body: &Value) -> (u16, Value) {
        self.send_at(id, Env::system().now().wall.as_millis() / 1_000, &self.secret, body).await
    }

    async fn send_at(&self, id: &str, at: u64, secret: &str, body: &Value) -> (u16, Value) {
        let body = body.to_string();
        let request = Request::post("/v1/channels/webhooks/relay")
            .header("Host", "localhost")
            .header("Content-Type", "application/json")
            .header("webhook-id", id)
            .header("webhook-timestamp", at.to_string())
            .header("webhook-signature", sign(secret, id, at, body.as_bytes()).unwrap());
        let answer = self.router.clone().oneshot(request.body(Body::from(body)).unwrap()).await.unwrap();
        let status = answer.status().as_u16();
        (status, serde_json::from_slice(&to_bytes(answer.into_body(), usize::MAX).await.unwrap()).unwrap())
    }

    /// The newest line of the audit log, or of that of requests whose sender is not known.
    fn audit(&self, file: &str) -> Value {
        let text = fs::read_to_string(Path::new(self.folder.path()).join(file)).unwrap();
        serde_json::from_str(text.lines().last().unwrap()).unwrap()
    }
}

fn with(body: &Value, key: &str, value: &str) -> Value {
    let mut body = body.clone();
    body[key] = value.into();
    body
}

#[tokio::test]
async fn a_signed_decision_is_made_in_the_name_of_the_person_and_recorded() {
    let mut team = Team::start().await;
    let (run, body) = team.ask("order 1").await;
    let (status, answer) = team.send("m1", &body).await;
    assert_eq!((status, &answer["decided"], &answer["by"]), (200, &json!(true), &json!("ann")), "{answer}");
    assert_eq!(answer["approval"], body["approval"]);
    assert!(answer["outcome"].as_str().unwrap().starts_with("approved by ann at "), "{answer}");
    assert_eq!(run.result().await.unwrap().output, json!("paid"));
    let line = team.audit("audit.jsonl");
    assert_eq!((&line["approval"], &line["outcome"]), (&answer["approval"], &answer["outcome"]));
    assert_eq!((&line["who"], &line["person"]), (&json!("channel webhooks/relay"), &json!("ann")));
    assert_eq!((&line["status"], &line["response"], &line["why"]), (&json!(200), &json!("approve"), &Value::Null));
    let closed = team.message("approval.closed", "order 1").await;
    assert_eq!(closed["data"]["outcome"]["state"], "approved");
    team.board.shutdown().await;
}

#[tokio::test]
async fn an_unsigned_decision_changes_nothing_and_its_reason_is_in_the_audit_log_alone() {
    let mut team = Team::start().await;
    let (_, body) = team.ask("order 1").await;
    let now = Env::system().now().wall.as_millis() / 1_000;
    let other = secret_of([8; 32]);
    let (forged, problem) = team.send_at("m1", now, &other, &body).await;
    assert_eq!((forged, &problem["code"]), (401, &json!("unauthenticated")));
    let line = team.audit("audit.jsonl.refused");
    assert_eq!((&line["who"], &line["code"]), (&Value::Null, &json!("unauthenticated")));
    assert_eq!(line["why"], "webhook-signature has no signature of this delivery");
    let (old, same) = team.send_at("m1", now - 400, &team.secret, &body).await;
    assert_eq!((old, &same), (401, &problem), "whoever has no secret is not told which");
    assert!(matches!(team.board.people().pending().await[..], [_]));
    team.board.shutdown().await;
}

#[tokio::test]
async fn an_old_decision_is_refused_and_the_audit_log_has_why() {
    let mut team = Team::start().await;
    let (_, body) = team.ask("order 1").await;
    let now = Env::system().now().wall.as_millis() / 1_000;
    assert_eq!(team.send_at("m1", now - 400, &team.secret, &body).await.0, 401);
    let line = team.audit("audit.jsonl.refused");
    assert_eq!(line["why"], "webhook-timestamp is more than 5 minutes from the clock");
    assert_eq!(team.send("m1", &body).await.0, 200);
    team.board.shutdown().await;
}

#[tokio::test]
async fn each_signed_decision_that_is_refused_is_in_the_audit_log_with_why() {
    let mut team = Team::start().await;
    let (_, body) = team.ask("order 1").await;
    let (_, other) = team.ask("order 2").await;
    let crossed = with(&body, "approval", other["approval"].as_str().unwrap());
    let denied = with(&body, "response", "deny");
    let mut number = 0;
    for (id, body, status, code, why) in [
        ("m0", with(&body, "person", "eve"), 403, "decisions-refused", "the person is not one of those"),
        ("m0", body.clone(), 409, "conflict", "a delivery with this id was received before"),
        ("m1", crossed, 404, "not-found", "was not sent an approval with this id and nonce"),
        ("m2", with(&body, "response", "maybe"), 400, "bad-request", "unknown variant `maybe`"),
        ("m3", body.clone(), 200, "", ""),
        ("m4", body.clone(), 409, "conflict", "it is closed already: approved by ann"),
        ("m5", denied, 409, "conflict", "it is closed already: approved by ann"),
    ] {
        let (answered, answer) = team.send(id, &body).await;
        let line = team.audit("audit.jsonl");
        assert_eq!((answered, &line["who"]), (status, &json!("channel webhooks/relay")), "{id}: {answer}");
        assert_eq!(line["code"].as_str().unwrap_or_default(), code, "{line}");
        assert!(line["why"].as_str().unwrap_or_default().contains(why), "{line}");
        assert!(status == 200 || answer["detail"].as_str().unwrap().contains(why), "{answer}");
        number += usize::from(line["person"].is_null());
    }
    assert_eq!(number, 1, "a person who is not listed is not named as one");
    team.board.shutdown().await;
}

#[tokio::test]
async fn a_decision_that_comes_after_the_expiry_is_refused() {
    let mut team = Team::start().await;
    let mut task = Task::new("pay").input("order 1");
    task.approval_ttl = Some(Duration::from_secs(2));
    let run = team.board.submit(task).await.unwrap();
    let data = team.message("approval.opened", "order 1").await["data"].clone();
    run.result().await.unwrap();
    team.message("approval.closed", "order 1").await;
    let body = json!({ "approval": data["approval"], "nonce": data["nonce"], "response": "approve", "person": "ann" });
    assert_eq!(team.send("m1", &body).await.0, 409);
    assert!(team.audit("audit.jsonl")["why"].as_str().unwrap().starts_with("it is closed already: expired at "));
    team.board.shutdown().await;
}

#[tokio::test]
async fn where_decisions_are_refused_those_of_webhooks_are_too() {
    let mut team = Team::with(|server| server.refuse_decisions(|| Some("not here".to_owned()))).await;
    let (_, body) = team.ask("order 1").await;
    let (status, problem) = team.send("m1", &body).await;
    assert_eq!((status, &problem["code"]), (403, &json!("decisions-refused")));
    assert!(matches!(team.board.people().pending().await[..], [_]));
    team.board.shutdown().await;
}
