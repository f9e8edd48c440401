//! A receiver of webhooks on this machine, which a test reads.

use std::net::TcpListener;
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;

use super::model;

/// Longer than any program takes to send a message on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) const SECRET: &str = "whsec_CANARYCANARYCANARYCANARYCANARYCANARY";

pub(crate) struct Relay {
    /// Its address: `http://127.0.0.1:PORT`.
    pub(crate) address: String,
    messages: mpsc::Receiver<Value>,
}

impl Relay {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let (message, messages) = mpsc::channel();
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let request = model::read(&stream);
                model::write(stream, "application/json", "{}");
                if message.send(request.body).is_err() {
                    return;
                }
            }
        });
        Self { address, messages }
    }

    /// The next request, whatever it has.
    pub(crate) fn request(&self) -> Value {
        self.messages.recv_timeout(DEADLINE).expect("no request")
    }

    /// The next message of this type.
    pub(crate) fn message(&self, kind: &str) -> Value {
        loop {
            let message = self.messages.recv_timeout(DEADLINE).unwrap_or_else(|_| panic!("no message {kind}"));
            if message["type"] == kind {
                return message;
            }
        }
    }
}
