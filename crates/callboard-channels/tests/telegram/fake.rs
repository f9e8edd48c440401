//! A server on this machine that speaks as much of the Bot API as the channel uses, and the people who see the messages of the bot.
//!
//! It runs on a thread with a runtime of its own: it outlives the processes of a test.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;

pub(crate) const TOKEN: &str = "4711:CANARY-secret_of_the_bot";
pub(crate) const ANN: i64 = 1001;
pub(crate) const BOB: i64 = 1002;
/// An account that is not listed.
pub(crate) const EVE: i64 = 6666;

/// How the server fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failing {
    No,
    /// With this status and body, which contains the path of the request.
    With(u16),
    /// With no more calls allowed for a second.
    TooMany,
    /// With what is no JSON.
    Garbage,
    /// It repeats the path of the request as the reason.
    Echo,
    /// It never answers.
    Silent,
}

/// A message of the bot, as it is now.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) chat: i64,
    pub(crate) id: i64,
    pub(crate) text: String,
    /// The buttons that it has: what they say and their data.
    pub(crate) buttons: Vec<(String, String)>,
    /// The buttons that it had at first.
    pub(crate) first_buttons: Vec<(String, String)>,
    pub(crate) edits: usize,
    pub(crate) body: Value,
}

pub(crate) struct Server {
    address: SocketAddr,
    pub(crate) state: Mutex<Served>,
    changes: watch::Sender<()>,
}

pub(crate) struct Served {
    pub(crate) messages: Vec<Message>,
    /// What has happened and was not confirmed.
    updates: BTreeMap<i64, Value>,
    next_update: i64,
    /// What clicks were answered with.
    told: BTreeMap<String, String>,
    next_click: u64,
    pub(crate) failing: Failing,
    /// How often each method was called.
    pub(crate) calls: BTreeMap<String, u32>,
    /// Confirmed updates are sent again.
    pub(crate) repeats: bool,
    /// Chats that have blocked the bot.
    pub(crate) blocked: Vec<i64>,
}

impl Server {
    pub(crate) fn start() -> Arc<Self> {
        let (started, address) = std::sync::mpsc::channel();
        let (served, serving) = std::sync::mpsc::channel::<Arc<Self>>();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                started.send(listener.local_addr().unwrap()).unwrap();
                let server = serving.recv().unwrap();
                let app = Router::new().route("/{bot}/{method}", post(call)).with_state(server);
                axum::serve(listener, app).await.unwrap();
            });
        });
        let state = Served {
            messages: Vec::new(),
            updates: BTreeMap::new(),
            next_update: 100,
            told: BTreeMap::new(),
            next_click: 0,
            failing: Failing::No,
            calls: BTreeMap::new(),
            repeats: false,
            blocked: Vec::new(),
        };
        let changes = watch::Sender::new(());
        let server = Arc::new(Self { address: address.recv().unwrap(), state: Mutex::new(state), changes });
        served.send(Arc::clone(&server)).unwrap();
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Served) -> T) -> T {
        let changed = change(&mut self.state.lock());
        self.changes.send_replace(());
        changed
    }

    /// Waits until there is something.
    pub(crate) async fn found<T>(&self, mut find: impl FnMut(&Served) -> Option<T>) -> T {
        let mut changes = self.changes();
        loop {
            if let Some(found) = find(&self.state.lock()) {
                return found;
            }
            changes.changed().await.unwrap();
        }
    }

    /// The message in this chat that contains the text and has buttons, as soon as it is there.
    pub(crate) async fn open(&self, chat: i64, text: &str) -> Message {
        let is_it =
            |message: &&Message| message.chat == chat && message.text.contains(text) && !message.buttons.is_empty();
        self.found(|served| served.messages.iter().find(is_it).cloned()).await
    }

    /// The message as it is when it no longer has buttons.
    pub(crate) async fn closed(&self, message: &Message) -> Message {
        let is_it = |it: &&Message| (it.chat, it.id) == (message.chat, message.id) && it.buttons.is_empty();
        self.found(|served| served.messages.iter().find(is_it).cloned()).await
    }

    /// A message of the bot with this text, as soon as it is there.
    pub(crate) async fn said(&self, chat: i64, text: &str) -> Message {
        let is_it = |message: &&Message| message.chat == chat && message.text.contains(text);
        self.found(|served| served.messages.iter().find(is_it).cloned()).await
    }

    /// Clicks, and returns what the bot tells.
    pub(crate) async fn click(&self, from: i64, chat: i64, message: i64, data: &str) -> String {
        let id = self.clicks(from, chat, message, data);
        self.told(&id).await
    }

    pub(crate) fn clicks(&self, from: i64, chat: i64, message: i64, data: &str) -> String {
        self.change(|served| {
            served.next_click += 1;
            let id = format!("click-{}", served.next_click);
            let click = json!({
                "id": id, "from": { "id": from, "is_bot": false, "first_name": "x" }, "chat_instance": "1", "data": data,
                "message": { "message_id": message, "date": 1, "chat": { "id": chat, "type": "private" }, "text": "x" },
            });
            served.happens(json!({ "callback_query": click }));
            id
        })
    }

    pub(crate) async fn told(&self, click: &str) -> String {
        self.found(|served| served.told.get(click).cloned()).await
    }

    /// Answers a message of the bot with a text.
    pub(crate) fn reply(&self, from: i64, to: &Message, text: &str) {
        self.change(|served| {
            let chat = json!({ "id": to.chat, "type": "private" });
            served.happens(json!({ "message": {
                "message_id": 5_000 + served.next_update, "from": { "id": from, "is_bot": false, "first_name": "x" }, "date": 1,
                "chat": chat, "text": text, "reply_to_message": { "message_id": to.id, "date": 1, "chat": chat },
            } }));
        });
    }

    /// Has the bot receive an update.
    pub(crate) fn happens(&self, update: Value) {
        self.change(|served| served.happens(update));
    }
}

impl Served {
    fn happens(&mut self, mut update: Value) {
        update["update_id"] = self.next_update.into();
        self.updates.insert(self.next_update, update);
        self.next_update += 1;
    }
}

impl Message {
    /// The data of the button that says this.
    pub(crate) fn button(&self, label: &str) -> String {
        let buttons = self.first_buttons.iter().find(|(text, _)| text == label);
        buttons.unwrap_or_else(|| panic!("no button {label:?} in {:?}", self.first_buttons)).1.clone()
    }
}

fn buttons(body: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let rows = body["reply_markup"]["inline_keyboard"].as_array().cloned().unwrap_or_default();
    let buttons = rows.iter().flat_map(|row| row.as_array().unwrap());
    buttons.map(|button| (text(&button["text"]), text(&button["callback_data"]))).collect()
}

fn refused(code: u16, description: &str) -> Response {
    let body = json!({ "ok": false, "error_code": code, "description": description });
    (StatusCode::from_u16(code).unwrap(), body.to_string()).into_response()
}

async fn call(
    State(server): State<Arc<Server>>,
    Path((bot, method)): Path<(String, String)>,
    body: String,
) -> Response {
    let body: Value = serde_json::from_str(&body).unwrap();
    let failing = server.change(|served| {
        *served.calls.entry(method.clone()).or_default() += 1;
        served.failing
    });
    let path = format!("/{bot}/{method}");
    match failing {
        Failing::No => {}
        Failing::With(code) => return refused(code, &format!("cannot do {path}")),
        Failing::TooMany => {
            let parameters = json!({ "retry_after": 1 });
            let body = json!({ "ok": false, "error_code": 429, "description": path, "parameters": parameters });
            return (StatusCode::TOO_MANY_REQUESTS, body.to_string()).into_response();
        }
        Failing::Garbage => return (StatusCode::OK, format!("<html>{path}")).into_response(),
        Failing::Echo => return (StatusCode::FOUND, [("location", path)]).into_response(),
        Failing::Silent => {
            server.found(|served| (served.failing != Failing::Silent).then_some(())).await;
            return refused(502, &path);
        }
    }
    if bot != format!("bot{TOKEN}") {
        return refused(404, "Not Found");
    }
    let result = match &*method {
        "getMe" => json!({ "id": 4711, "is_bot": true, "first_name": "Board", "username": "the_board_bot" }),
        "getUpdates" => return updates(&server, &body).await,
        "sendMessage" => {
            let chat = body["chat_id"].as_i64().unwrap();
            if server.state.lock().blocked.contains(&chat) {
                return refused(403, "Forbidden: bot was blocked by the user");
            }
            let text = body["text"].as_str().unwrap().to_owned();
            if text.encode_utf16().count() > 4_096 {
                return refused(400, "Bad Request: message is too long");
            }
            server.change(|served| {
                let id = 10 + i64::try_from(served.messages.len()).unwrap();
                let (buttons, first_buttons) = (buttons(&body), buttons(&body));
                assert!(buttons.iter().all(|(_, data)| (1..=64).contains(&data.len())), "{body}");
                served.messages.push(Message { chat, id, text, buttons, first_buttons, edits: 0, body: body.clone() });
                json!({ "message_id": id, "date": 1, "chat": { "id": chat, "type": "private" } })
            })
        }
        "answerCallbackQuery" => server.change(|served| {
            let (id, text) = (body["callback_query_id"].as_str().unwrap(), body["text"].as_str().unwrap());
            assert!(text.chars().count() <= 200, "{text}");
            served.told.insert(id.to_owned(), text.to_owned());
            json!(true)
        }),
        "editMessageText" => {
            let text = body["text"].as_str().unwrap().to_owned();
            if text.encode_utf16().count() > 4_096 {
                return refused(400, "Bad Request: message is too long");
            }
            server.change(|served| {
                let (chat, id) = (body["chat_id"].as_i64().unwrap(), body["message_id"].as_i64().unwrap());
                let message =
                    served.messages.iter_mut().find(|message| (message.chat, message.id) == (chat, id)).unwrap();
                (message.text, message.buttons) = (text, buttons(&body));
                message.edits += 1;
                json!({ "message_id": id, "date": 1, "chat": { "id": chat, "type": "private" } })
            })
        }
        _ => return refused(404, "Not Found"),
    };
    json!({ "ok": true, "result": result }).to_string().into_response()
}

/// Waits for updates, as long as the caller wants.
async fn updates(server: &Server, body: &Value) -> Response {
    let offset = body["offset"].as_i64().unwrap();
    assert_eq!(body["allowed_updates"], json!(["callback_query", "message"]));
    server.change(|served| {
        if !served.repeats {
            served.updates.retain(|id, _| *id >= offset);
        }
    });
    let some = server.found(|served| {
        let updates: Vec<Value> = served.updates.values().cloned().collect();
        (!updates.is_empty() || served.failing != Failing::No).then_some(updates)
    });
    let wait = Duration::from_secs(body["timeout"].as_u64().unwrap());
    let updates = tokio::time::timeout(wait, some).await.unwrap_or_default();
    json!({ "ok": true, "result": updates }).to_string().into_response()
}
