//! A server on this machine that speaks as much of the API of homeservers as the channel uses, and the people in its rooms.
//!
//! It runs on a thread with a runtime of its own: it outlives the processes of a test.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use futures::stream;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;

pub(crate) const TOKEN: &str = "syt_CANARY-secret_of_the_account";
pub(crate) const BOT: &str = "@board:example.org";
pub(crate) const ANN: &str = "@ann:example.org";
pub(crate) const BOB: &str = "@bob:example.org";
/// An account that is not listed.
pub(crate) const EVE: &str = "@eve:example.org";
pub(crate) const ROOM: &str = "!approvals:example.org";
/// The field of messages with their data.
pub(crate) const DATA: &str = "com.aiagentchat.request";

/// How long a test waits for what has to come. What is slow comes far sooner, and a test that waits in vain says for what.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// How the server fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Failing {
    #[default]
    No,
    /// With this status and body, which contains the token.
    With(u16),
    /// With no more calls allowed for a second.
    TooMany,
    /// With what is no JSON.
    Garbage,
    /// It never answers.
    Silent,
    /// It does what it is asked for, and then fails.
    LosesAnswers,
    /// It takes messages, and nothing else works.
    OnlySends,
    /// It leads elsewhere.
    Redirects,
    /// Its answers have no end.
    Endless,
    /// It says that the account is named as the token is.
    NamesToken,
}

/// A message of the channel that asks, as it is now.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) room: String,
    pub(crate) event: String,
    pub(crate) text: String,
    /// The content that it had at first.
    pub(crate) content: Value,
    pub(crate) edits: Vec<Value>,
}

impl Message {
    pub(crate) fn is_open(&self) -> bool {
        self.edits.is_empty()
    }

    pub(crate) fn nonce(&self) -> String {
        self.content[DATA]["nonce"].as_str().unwrap().to_owned()
    }
}

/// An event that the account has sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) kind: String,
    pub(crate) content: Value,
}

pub(crate) struct Server {
    address: SocketAddr,
    pub(crate) state: Mutex<Served>,
    changes: watch::Sender<()>,
}

#[derive(Default)]
pub(crate) struct Served {
    /// All events, each with its room.
    log: Vec<(String, Value)>,
    pub(crate) messages: Vec<Message>,
    /// What the channel has replied, by what it has replied to.
    pub(crate) told: BTreeMap<String, Vec<String>>,
    /// All that the account has sent, but not what was sent again.
    pub(crate) sent: Vec<Sent>,
    transactions: BTreeMap<(String, String), String>,
    /// Parts of the states of rooms, by the room, the type and the key.
    pub(crate) states: BTreeMap<[String; 3], Value>,
    /// The rooms whose states the account may not set.
    pub(crate) powerless: BTreeSet<String>,
    pub(crate) joined: BTreeSet<String>,
    pub(crate) invited: BTreeSet<String>,
    pub(crate) left: BTreeSet<String>,
    encrypted: BTreeSet<String>,
    /// What has replaced a room.
    replaced: BTreeMap<String, String>,
    /// The rooms that cannot be joined, because the server fails.
    pub(crate) broken: BTreeSet<String>,
    /// The rooms in which the account may not send.
    muted: BTreeSet<String>,
    /// The history of rooms cannot be read.
    pub(crate) hides_history: bool,
    pub(crate) failing: Failing,
    /// How often each call was made.
    pub(crate) calls: BTreeMap<String, u32>,
    /// Up to where the channel has handled the log: where its call of `/sync` continues.
    handled: usize,
    /// Every call of `/sync` returns everything.
    pub(crate) repeats: bool,
    /// Places of `/sync` are not known any more.
    pub(crate) forgets: bool,
}

impl Server {
    /// A server whose channel is invited to its room.
    pub(crate) fn start() -> Arc<Self> {
        let (started, address) = std::sync::mpsc::channel();
        let (served, serving) = std::sync::mpsc::channel::<Arc<Self>>();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                started.send(listener.local_addr().unwrap()).unwrap();
                let server = serving.recv().unwrap();
                axum::serve(listener, Router::new().fallback(call).with_state(server)).await.unwrap();
            });
        });
        let state = Served { invited: BTreeSet::from([ROOM.to_owned()]), ..Served::default() };
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

    /// Waits until there is something, and fails with what is there if it does not come.
    pub(crate) async fn found<T>(&self, find: impl FnMut(&Served) -> Option<T>) -> T {
        let found = tokio::time::timeout(LIMIT, self.until(find)).await;
        found.unwrap_or_else(|_| panic!("it did not come in {LIMIT:?}: {}", self.state.lock().text()))
    }

    async fn until<T>(&self, mut find: impl FnMut(&Served) -> Option<T>) -> T {
        let mut changes = self.changes();
        loop {
            if let Some(found) = find(&self.state.lock()) {
                return found;
            }
            changes.changed().await.unwrap();
        }
    }

    /// The message that contains the text and asks, as soon as it is there.
    pub(crate) async fn open(&self, text: &str) -> Message {
        let is_it = |message: &&Message| message.text.contains(text) && message.is_open();
        self.found(|served| served.messages.iter().find(is_it).cloned()).await
    }

    /// The message as it is when it is closed.
    pub(crate) async fn closed(&self, message: &Message) -> Message {
        let is_it = |it: &&Message| it.event == message.event && !it.is_open();
        self.found(|served| served.messages.iter().find(is_it).cloned()).await
    }

    /// Has an account reply to an event; returns the id of the reply.
    pub(crate) fn replies(&self, from: &str, to: &Message, text: &str) -> String {
        let related = json!({ "m.in_reply_to": { "event_id": to.event } });
        let content = json!({ "msgtype": "m.text", "body": text, "m.relates_to": related });
        self.sends(from, &to.room, "m.room.message", content)
    }

    /// Has an account send an event; returns its id.
    pub(crate) fn sends(&self, from: &str, room: &str, kind: &str, content: Value) -> String {
        self.change(|served| served.add(room, json!({ "type": kind, "sender": from, "content": content })))
    }

    /// Has an account reply, and returns what the channel replies.
    pub(crate) async fn answer(&self, from: &str, to: &Message, text: &str) -> String {
        let event = self.replies(from, to, text);
        self.told(&event).await
    }

    pub(crate) async fn told(&self, event: &str) -> String {
        self.found(|served| served.told.get(event)?.first().cloned()).await
    }

    /// Waits until the channel has handled everything so far.
    pub(crate) async fn received(&self) {
        let end = self.change(|served| {
            served.add(ROOM, json!({ "type": "m.room.message", "sender": EVE, "content": {} }));
            served.log.len()
        });
        self.found(|served| (served.handled >= end).then_some(())).await;
    }

    /// Has the room encrypted from now on.
    pub(crate) fn encrypts(&self, room: &str) {
        self.change(|served| {
            served.encrypted.insert(room.to_owned());
            served.set(room, "m.room.encryption", json!({ "algorithm": "m.megolm.v1.aes-sha2" }));
        });
    }

    /// Replaces the room by another one.
    pub(crate) fn replaces(&self, room: &str, by: &str) {
        self.change(|served| {
            served.replaced.insert(room.to_owned(), by.to_owned());
            served.set(room, "m.room.tombstone", json!({ "body": "it was upgraded", "replacement_room": by }));
        });
    }

    /// Sets by which rule the room is entered.
    pub(crate) fn admits(&self, room: &str, rule: &str) {
        self.change(|served| served.set(room, "m.room.join_rules", json!({ "join_rule": rule })));
    }

    /// Says whether the account may send messages to the room.
    pub(crate) fn mutes(&self, room: &str, is_muted: bool) {
        self.change(|served| {
            if is_muted {
                served.muted.insert(room.to_owned())
            } else {
                served.muted.remove(room)
            };
            served.set(room, "m.room.power_levels", json!({ "events_default": 50 * u8::from(is_muted) }));
        });
    }
}

impl Served {
    /// Adds an event, and returns its id.
    pub(crate) fn add(&mut self, room: &str, mut event: Value) -> String {
        let id = format!("$event{}", self.log.len());
        event["event_id"] = json!(id);
        self.log.push((room.to_owned(), event));
        id
    }

    /// Sets a part of the state of a room.
    pub(crate) fn set(&mut self, room: &str, kind: &str, content: Value) {
        self.states.insert([room, kind, ""].map(str::to_owned), content.clone());
        self.add(room, json!({ "type": kind, "state_key": "", "sender": ANN, "content": content }));
    }

    /// What is there, for the message of a test that fails.
    fn text(&self) -> String {
        let Self { messages, told, calls, failing, sent, .. } = self;
        let messages: Vec<_> =
            messages.iter().map(|message| (&message.event, &message.text, message.is_open())).collect();
        format!("failing {failing:?}, calls {calls:?}, told {told:#?}, messages {messages:#?}, sent {sent:#?}")
    }

    pub(crate) fn join(&mut self, room: &str) {
        if self.joined.insert(room.to_owned()) {
            self.invited.remove(room);
            let content = json!({ "membership": "join" });
            self.add(room, json!({ "type": "m.room.member", "state_key": BOT, "sender": BOT, "content": content }));
        }
    }

    /// A part of the state of a room, as anybody who is in it reads it.
    fn state(&self, [room, kind, key]: [&str; 3]) -> Option<Value> {
        let set = self.states.get(&[room, kind, key].map(str::to_owned)).cloned();
        set.or_else(|| (kind == "m.room.join_rules").then(|| json!({ "join_rule": "invite" })))
    }

    fn send(&mut self, (room, kind): (&str, &str), transaction: &str, content: &Value) -> String {
        let key = (room.to_owned(), transaction.to_owned());
        if let Some(event) = self.transactions.get(&key) {
            return event.clone();
        }
        let event = self.add(room, json!({ "type": kind, "sender": BOT, "content": content }));
        self.transactions.insert(key, event.clone());
        self.sent.push(Sent { kind: kind.to_owned(), content: content.clone() });
        if kind != "m.room.message" {
            return event;
        }
        let related = &content["m.relates_to"];
        let text = |content: &Value| content["body"].as_str().unwrap().to_owned();
        if related["rel_type"] == "m.replace" {
            let changed = self.messages.iter_mut().find(|message| related["event_id"] == *message.event).unwrap();
            changed.text = text(&content["m.new_content"]);
            changed.edits.push(content.clone());
        } else if let Some(to) = related["m.in_reply_to"]["event_id"].as_str() {
            self.told.entry(to.to_owned()).or_default().push(text(content));
        } else {
            let (room, text) = (room.to_owned(), text(content));
            let (event, content) = (event.clone(), content.clone());
            self.messages.push(Message { room, event, text, content, edits: Vec::new() });
        }
        event
    }

    /// The events of a room in a part of the log, with their positions there: those that a filter has.
    fn events(&self, room: &str, part: Range<usize>, types: &Value) -> Vec<(usize, &Value)> {
        // A server may ignore it for what people write, and the channel reads no other states.
        let is_listed =
            |event: &Value| event.get("state_key").is_none_or(|_| types.as_array().unwrap().contains(&event["type"]));
        let events = self.log.iter().enumerate().take(part.end).skip(part.start);
        let events = events.filter(|(_, (of, event))| of == room && is_listed(event));
        events.map(|(position, (_, event))| (position, event)).collect()
    }

    /// What is new in the rooms since then: of each as many events as the filter has.
    fn news(&self, since: usize, filter: &Value) -> Value {
        let since = if self.repeats { 0 } else { since };
        let (mut joined, filter) = (serde_json::Map::new(), &filter["room"]);
        let wanted = filter["rooms"].as_array();
        for room in self.joined.iter().filter(|room| wanted.is_none_or(|wanted| wanted.contains(&json!(room)))) {
            let new = self.events(room, since..self.log.len(), &filter["timeline"]["types"]);
            let most = usize::try_from(filter["timeline"]["limit"].as_u64().unwrap()).unwrap();
            let cut = if self.repeats { 0 } else { new.len().saturating_sub(most) };
            let Some((first, _)) = new.get(cut) else { continue };
            let events: Vec<_> = new[cut..].iter().map(|(_, event)| event).collect();
            let timeline = json!({ "events": events, "limited": cut > 0, "prev_batch": format!("t{first}") });
            joined.insert(room.clone(), json!({ "timeline": timeline }));
        }
        let rooms =
            |ids: &BTreeSet<String>| ids.iter().map(|id| (id.clone(), json!({}))).collect::<serde_json::Map<_, _>>();
        json!({ "join": joined, "invite": rooms(&self.invited), "leave": rooms(&self.left) })
    }

    /// The history of a room, the newest event first.
    fn history(&self, room: &str, query: &str) -> Value {
        let position = |name: &str| value(query, name).map(|place| place[1..].parse::<usize>().unwrap());
        let filter: Value = serde_json::from_str(&value(query, "filter").unwrap()).unwrap();
        let most: usize = value(query, "limit").unwrap().parse().unwrap();
        let (end, start) = (position("from").unwrap(), position("to").unwrap_or_default());
        let events = self.events(room, start..end, &filter["types"]);
        let rest = events.len().saturating_sub(most);
        let mut page = json!({ "chunk": events[rest..].iter().rev().map(|(_, event)| event).collect::<Vec<_>>() });
        if rest > 0 {
            page["end"] = json!(format!("t{}", events[rest].0));
        }
        page
    }
}

/// A value of a query.
fn value(query: &str, name: &str) -> Option<String> {
    let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?;
    let mut parts = value.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(&part[..2], 16).unwrap());
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    Some(String::from_utf8(bytes).unwrap())
}

fn refused(status: u16, code: &str, text: &str) -> Response {
    let body = json!({ "errcode": code, "error": text });
    (StatusCode::from_u16(status).unwrap(), body.to_string()).into_response()
}

async fn call(
    State(server): State<Arc<Server>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: String,
) -> Response {
    let path = uri.path().strip_prefix("/_matrix/client/v3/").expect("a path of the API");
    let parts: Vec<&str> = path.split('/').collect();
    let name = if parts[0] == "rooms" { parts[2] } else { parts[0] };
    let failing = server.change(|served| {
        *served.calls.entry(name.to_owned()).or_default() += 1;
        served.failing
    });
    match failing {
        Failing::No | Failing::LosesAnswers => {}
        Failing::With(status) => return refused(status, "M_UNKNOWN", &format!("cannot do it for {TOKEN}")),
        Failing::TooMany => {
            let body = json!({ "errcode": "M_LIMIT_EXCEEDED", "error": TOKEN, "retry_after_ms": 1_000 });
            return (StatusCode::TOO_MANY_REQUESTS, body.to_string()).into_response();
        }
        Failing::Garbage => return (StatusCode::OK, format!("<html>{TOKEN}")).into_response(),
        Failing::Silent => {
            server.until(|served| (served.failing != Failing::Silent).then_some(())).await;
            return refused(502, "M_UNKNOWN", "it was silent");
        }
        Failing::OnlySends if name == "send" => {}
        Failing::OnlySends => return refused(502, "M_UNKNOWN", "it only sends"),
        Failing::Redirects => {
            return (StatusCode::TEMPORARY_REDIRECT, [("location", "/_matrix/client/v3/elsewhere")]).into_response();
        }
        Failing::Endless => {
            return Body::from_stream(stream::repeat(Ok::<_, Infallible>(vec![b' '; 1 << 16]))).into_response();
        }
        Failing::NamesToken => {
            return json!({ "user_id": format!("@{TOKEN}:example.org") }).to_string().into_response();
        }
    }
    assert!(!uri.to_string().contains(TOKEN), "the token is in an address: {uri}");
    if headers.get("authorization").unwrap() != format!("Bearer {TOKEN}").as_str() {
        return refused(401, "M_UNKNOWN_TOKEN", "no such token");
    }
    let content: Value = serde_json::from_str(&body).unwrap_or_default();
    let is_joined = |room: &str| server.state.lock().joined.contains(room);
    let answer = match (method.as_str(), &parts[..]) {
        ("GET", ["account", "whoami"]) => json!({ "user_id": BOT }),
        ("GET", ["sync"]) => return sync(&server, uri.query().unwrap()).await,
        ("POST", ["rooms", room, "join"]) => {
            if server.state.lock().broken.contains(*room) {
                return refused(502, "M_UNKNOWN", "no other server of it answers");
            }
            if !is_joined(room) && !server.state.lock().invited.contains(*room) {
                return refused(403, "M_FORBIDDEN", "you are not invited");
            }
            server.change(|served| served.join(room));
            json!({ "room_id": room })
        }
        ("GET", ["rooms", room, "state", "m.room.encryption", ""]) if is_joined(room) => {
            if !server.state.lock().encrypted.contains(*room) {
                return refused(404, "M_NOT_FOUND", "no such event");
            }
            json!({ "algorithm": "m.megolm.v1.aes-sha2" })
        }
        ("GET", ["rooms", room, "state", "m.room.tombstone", ""]) if is_joined(room) => {
            let replaced = server.state.lock().replaced.get(*room).cloned();
            let Some(by) = replaced else { return refused(404, "M_NOT_FOUND", "no such event") };
            json!({ "body": "it was upgraded", "replacement_room": by })
        }
        ("GET", ["rooms", room, "state", kind, key]) if is_joined(room) => {
            let state = server.state.lock().state([room, kind, key]);
            let Some(state) = state else { return refused(404, "M_NOT_FOUND", "no such event") };
            state
        }
        ("PUT", ["rooms", room, "state", kind, key]) if is_joined(room) => {
            if server.state.lock().powerless.contains(*room) {
                return refused(403, "M_FORBIDDEN", "you may not set it");
            }
            server.change(|served| served.states.insert([*room, *kind, *key].map(str::to_owned), content));
            json!({ "event_id": "$state" })
        }
        ("GET", ["rooms", room, "messages"]) if is_joined(room) && !server.state.lock().hides_history => {
            server.state.lock().history(room, uri.query().unwrap())
        }
        ("PUT", ["rooms", room, ..]) if server.state.lock().muted.contains(*room) => {
            return refused(403, "M_FORBIDDEN", "you may not send");
        }
        ("PUT", ["rooms", room, "send", kind, transaction]) if is_joined(room) => {
            assert!(body.len() < 60_000, "{} bytes are too many for an event", body.len());
            let event = server.change(|served| served.send((room, kind), transaction, &content));
            if server.state.lock().failing == Failing::LosesAnswers {
                return refused(502, "M_UNKNOWN", "the answer is lost");
            }
            json!({ "event_id": event })
        }
        _ => return refused(403, "M_FORBIDDEN", "not in that room"),
    };
    answer.to_string().into_response()
}

/// Waits for events, as long as the caller wants.
async fn sync(server: &Server, query: &str) -> Response {
    let filter: Value = serde_json::from_str(&value(query, "filter").unwrap()).unwrap();
    let since = value(query, "since").map(|since| since.strip_prefix('s').unwrap().parse::<usize>().unwrap());
    server.change(|served| served.handled = served.handled.max(since.unwrap_or_default()));
    let wait = Duration::from_millis(value(query, "timeout").unwrap().parse().unwrap());
    let is_new = |served: &Served| {
        let (joined, invited) = (served.log.len() > since.unwrap_or_default(), !served.invited.is_empty());
        joined || invited || served.repeats || served.forgets || served.failing != Failing::No
    };
    let news = server.until(|served| is_new(served).then_some(()));
    let _ = tokio::time::timeout(wait, news).await;
    let served = server.state.lock();
    if since.is_some() && served.forgets {
        return refused(400, "M_UNKNOWN", "no such place");
    }
    json!({ "next_batch": format!("s{}", served.log.len()), "rooms": served.news(since.unwrap_or_default(), &filter) })
        .to_string()
        .into_response()
}
