//! A receiver on this machine that keeps what it gets, as a relay to a chat would.
//!
//! It runs on a thread with a runtime of its own: it outlives the processes of a test.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use callboard::env::Env;
use callboard_signatures::Scheme;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;

/// How the receiver fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failing {
    No,
    With(u16),
    /// It refers to another place, which takes everything.
    Redirect,
    /// It asks for a pause of a second.
    Busy,
    /// Its answer has no end.
    Endless,
    /// It never answers.
    Silent,
    /// It takes the message, and fails to say so.
    Forgetful,
}

/// A message that was taken.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) id: String,
    pub(crate) body: Value,
}

#[derive(Clone, Debug)]
pub(crate) struct Taken {
    /// All messages, in their order, without repetitions.
    pub(crate) messages: Vec<Message>,
    /// Each request: the id and the body, with those that were not taken.
    pub(crate) requests: Vec<(String, String)>,
    pub(crate) failing: Failing,
    /// How many requests came to the place that a redirection names.
    pub(crate) redirected: usize,
}

pub(crate) struct Relay {
    address: SocketAddr,
    secret: String,
    pub(crate) taken: Mutex<Taken>,
    changes: watch::Sender<()>,
}

impl Relay {
    pub(crate) fn start(secret: &str) -> Arc<Self> {
        let (started, address) = std::sync::mpsc::channel();
        let (served, serving) = std::sync::mpsc::channel::<Arc<Self>>();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                started.send(listener.local_addr().unwrap()).unwrap();
                let relay = serving.recv().unwrap();
                let elsewhere = |State(relay): State<Arc<Self>>| async move {
                    relay.change(|taken| taken.redirected += 1);
                };
                let app = Router::new().route("/approvals", post(take)).route("/elsewhere", post(elsewhere));
                axum::serve(listener, app.with_state(relay)).await.unwrap();
            });
        });
        let taken = Taken { messages: Vec::new(), requests: Vec::new(), failing: Failing::No, redirected: 0 };
        let (taken, changes) = (Mutex::new(taken), watch::Sender::new(()));
        let relay = Arc::new(Self { address: address.recv().unwrap(), secret: secret.to_owned(), taken, changes });
        served.send(Arc::clone(&relay)).unwrap();
        relay
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/approvals?key=CANARY-of-the-address", self.address)
    }

    pub(crate) fn secret(&self) -> &str {
        &self.secret
    }

    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Taken) -> T) -> T {
        let changed = change(&mut self.taken.lock());
        self.changes.send_replace(());
        changed
    }

    pub(crate) fn fail(&self, failing: Failing) {
        self.change(|taken| taken.failing = failing);
    }

    /// Waits until there is something.
    pub(crate) async fn found<T>(&self, mut find: impl FnMut(&Taken) -> Option<T>) -> T {
        let mut changes = self.changes();
        loop {
            if let Some(found) = find(&self.taken.lock()) {
                return found;
            }
            changes.changed().await.unwrap();
        }
    }

    /// The message of this type about this target, as soon as it is there.
    pub(crate) async fn message(&self, kind: &str, target: &str) -> Message {
        self.found(|taken| {
            taken.messages.iter().find(|it| it.body["type"] == kind && it.body["data"]["target"] == target).cloned()
        })
        .await
    }

    pub(crate) async fn opened(&self, target: &str) -> Message {
        self.message("approval.opened", target).await
    }

    /// The words of what came of the question about this target.
    pub(crate) async fn closed(&self, target: &str) -> String {
        let message = self.message("approval.closed", target).await;
        message.body["data"]["outcome"]["text"].as_str().unwrap().to_owned()
    }
}

async fn take(State(relay): State<Arc<Relay>>, headers: HeaderMap, body: Bytes) -> Response {
    let now = Env::system().now().wall.as_millis() / 1_000;
    let id = Scheme::Standard.check(&relay.secret, &headers, &body, now).expect("a message is signed");
    let text = String::from_utf8(body.to_vec()).unwrap();
    let failing = relay.change(|taken| {
        taken.requests.push((id.clone(), text.clone()));
        taken.failing
    });
    match failing {
        Failing::No | Failing::Forgetful => {}
        Failing::With(status) => {
            return (StatusCode::from_u16(status).unwrap(), "CANARY of the answer").into_response();
        }
        Failing::Redirect => return (StatusCode::TEMPORARY_REDIRECT, [("location", "/elsewhere")]).into_response(),
        Failing::Busy => return (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "1")]).into_response(),
        Failing::Endless => {
            let chunk = || Some((Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; 64 * 1024])), ()));
            return axum::body::Body::from_stream(futures::stream::unfold((), move |()| async move { chunk() }))
                .into_response();
        }
        Failing::Silent => {
            relay.found(|taken| (taken.failing != Failing::Silent).then_some(())).await;
            return StatusCode::BAD_GATEWAY.into_response();
        }
    }
    relay.change(|taken| {
        if taken.messages.iter().all(|message| message.id != id) {
            taken.messages.push(Message { id, body: serde_json::from_str(&text).unwrap() });
        }
    });
    if failing == Failing::Forgetful { StatusCode::BAD_GATEWAY.into_response() } else { StatusCode::OK.into_response() }
}
