//! A server on this machine that speaks as much of the Bot API of Telegram as one click needs.

use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::model;

/// Longer than any program takes to call a method on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) const TOKEN: &str = "4711:CANARY-secret_of_the_bot";

/// Passes what is sent and edited to the test, and has the test click.
pub(crate) struct Bot {
    /// Its address: `http://127.0.0.1:PORT`.
    pub(crate) address: String,
    calls: mpsc::Receiver<(String, Value)>,
    clicks: mpsc::Sender<Value>,
}

impl Bot {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let ((call, calls), (clicks, clicked)) = (mpsc::channel(), mpsc::channel());
        let clicked = Arc::new(Mutex::new(clicked));
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let (call, clicked) = (call.clone(), Arc::clone(&clicked));
                std::thread::spawn(move || answer(stream, &call, &clicked));
            }
        });
        Self { address, calls, clicks }
    }

    /// The next call of this method.
    pub(crate) fn called(&self, wanted: &str) -> Value {
        loop {
            let (method, body) = self.calls.recv_timeout(DEADLINE).unwrap_or_else(|_| panic!("no call of {wanted}"));
            if method == wanted {
                return body;
            }
        }
    }

    /// Clicks a button of the message that was sent first.
    pub(crate) fn click(&self, from: i64, data: &str) {
        let message = json!({ "message_id": 10, "chat": { "id": from, "type": "private" } });
        let click = json!({ "id": "1", "from": { "id": from }, "message": message, "data": data });
        self.clicks.send(json!([{ "update_id": 100, "callback_query": click }])).unwrap();
    }
}

fn answer(stream: TcpStream, call: &mpsc::Sender<(String, Value)>, clicked: &Mutex<mpsc::Receiver<Value>>) {
    let request = model::read(&stream);
    let method = request.head.strip_prefix(&format!("POST /bot{TOKEN}/")).expect(&request.head);
    let method = method.split(' ').next().unwrap().to_owned();
    let result = match &*method {
        "getMe" => json!({ "id": 4711, "username": "the_board_bot" }),
        // It waits until the test clicks or ends.
        "getUpdates" => clicked.lock().unwrap().recv().unwrap_or_else(|_| json!([])),
        _ => json!({ "message_id": 10 }),
    };
    let _ = call.send((method, request.body));
    model::write(stream, "application/json", &json!({ "ok": true, "result": result }).to_string());
}
