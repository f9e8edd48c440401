//! A server on this machine that speaks as much of the API of a homeserver of Matrix as one reply, or one task, needs.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::model;

/// Longer than any program takes to make a call on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) const TOKEN: &str = "syt_CANARY-secret_of_the_account";
const BOT: &str = "@board:example.org";
pub(crate) const ROOM: &str = "!approvals:example.org";

/// Passes what is sent to the room to the test, and has the test write there.
pub(crate) struct Homeserver {
    /// Its address: `http://127.0.0.1:PORT`.
    pub(crate) address: String,
    sent: mpsc::Receiver<Value>,
    events: mpsc::Sender<Value>,
}

impl Homeserver {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let ((send, sent), (events, written)) = (mpsc::channel(), mpsc::channel());
        let written = Arc::new(Mutex::new(written));
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let (send, written) = (send.clone(), Arc::clone(&written));
                std::thread::spawn(move || answer(stream, &send, &written));
            }
        });
        Self { address, sent, events }
    }

    /// The next content that is sent to the room.
    pub(crate) fn sent(&self) -> Value {
        self.sent.recv_timeout(DEADLINE).expect("nothing is sent to the room")
    }

    /// Has an account reply to a message that was sent, which all who are in the room receive before.
    pub(crate) fn reply(&self, to: &Value, from: &str, text: &str) {
        let card = json!({ "event_id": "$card", "type": "m.room.message", "sender": BOT, "content": to });
        let related = json!({ "m.in_reply_to": { "event_id": "$card" } });
        let content = json!({ "msgtype": "m.text", "body": text, "m.relates_to": related });
        let event = json!({ "event_id": "$reply", "type": "m.room.message", "sender": from, "content": content });
        self.events.send(json!([card, event])).unwrap();
    }

    /// Has an account write a message, which is the event of this id.
    pub(crate) fn writes(&self, id: &str, from: &str, text: &str) {
        let content = json!({ "msgtype": "m.text", "body": text });
        let event = json!({ "event_id": id, "type": "m.room.message", "sender": from, "content": content });
        self.events.send(json!([event])).unwrap();
    }
}

fn answer(mut stream: TcpStream, send: &mpsc::Sender<Value>, written: &Mutex<mpsc::Receiver<Value>>) {
    let request = model::read(&stream);
    assert!(request.head.contains(&format!("authorization: Bearer {TOKEN}\r\n")), "{}", request.head);
    let path = request.head.split(' ').nth(1).unwrap();
    let body = if path.ends_with("/account/whoami") {
        json!({ "user_id": BOT })
    } else if path.contains("/sync?") {
        // It waits until the test writes or ends.
        let events = path.contains("since=").then(|| written.lock().unwrap().recv().ok()).flatten();
        let joined = events.map(|events| (ROOM.to_owned(), json!({ "timeline": { "events": events } })));
        json!({ "next_batch": "s1", "rooms": { "join": joined.into_iter().collect::<serde_json::Map<_, _>>() } })
    } else if path.contains("/state/m.room.join_rules/") {
        json!({ "join_rule": "invite" })
    } else if path.contains("/state/") && request.head.starts_with("GET ") {
        let body = json!({ "errcode": "M_NOT_FOUND", "error": "there is none" }).to_string();
        let head = format!("HTTP/1.1 404 Not Found\r\nconnection: close\r\ncontent-length: {}", body.len());
        let _ = write!(stream, "{head}\r\n\r\n{body}");
        return;
    } else {
        if path.contains("/send/") {
            let _ = send.send(request.body);
        }
        json!({ "event_id": "$card", "room_id": ROOM })
    };
    model::write(stream, "application/json", &body.to_string());
}
