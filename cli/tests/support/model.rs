//! A model on this machine, whose answers a test chooses.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::folder_with;

/// Longer than any program takes to send a request on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// Passes each request to the test, and answers it once the test has set an answer.
pub(crate) struct Model {
    /// Its address: `http://127.0.0.1:PORT`.
    pub(crate) address: String,
    requests: mpsc::Receiver<Request>,
    answers: mpsc::Sender<Answer>,
}

/// A request.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) head: String,
    pub(crate) body: Value,
}

enum Answer {
    Text(String),
    Call(String, Value),
}

impl Model {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let ((sender, requests), (answers, receiver)) = (mpsc::channel(), mpsc::channel());
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let request = read(&stream);
                let is_ollama = request.head.starts_with("POST /api/chat ");
                // The test may have ended.
                let _ = sender.send(request);
                let Ok(answer) = receiver.recv() else { return };
                if is_ollama {
                    write(stream, "application/x-ndjson", &lines(&answer))
                } else {
                    write(stream, "text/event-stream", &events(&answer))
                }
            }
        });
        Self { address, requests, answers }
    }

    /// A catalog of this model alone.
    pub(crate) fn catalog(&self) -> String {
        format!("[[models]]\nname = \"m\"\nprovider = \"openai-compatible\"\nurl = \"{}/v1\"\n", self.address)
    }

    /// A folder with this agent in agents/writer.toml, and with this model for it.
    pub(crate) fn folder(&self, agent: &str) -> TempDir {
        folder_with(&[("agents/writer.toml", agent), ("models.toml", &self.catalog())])
    }

    /// The next request.
    pub(crate) fn request(&self) -> Request {
        self.requests.recv_timeout(DEADLINE).expect("the model received no request")
    }

    /// Answers the next request that has no answer yet with this text.
    pub(crate) fn answers(&self, text: &str) {
        self.answers.send(Answer::Text(text.to_owned())).unwrap();
    }

    /// Answers the next request that has no answer yet with a call of this tool.
    pub(crate) fn calls(&self, tool: &str, arguments: Value) {
        self.answers.send(Answer::Call(tool.to_owned(), arguments)).unwrap();
    }
}

impl Request {
    /// The names of the tools that the model may call.
    pub(crate) fn tools(&self) -> Vec<&str> {
        let tools = self.body["tools"].as_array().into_iter().flatten();
        tools.map(|tool| tool["function"]["name"].as_str().unwrap()).collect()
    }

    /// The result of the latest tool call.
    pub(crate) fn tool_result(&self) -> &str {
        let latest = self.body["messages"].as_array().unwrap().last().unwrap();
        assert_eq!(latest["role"], "tool", "{latest}");
        latest["content"].as_str().unwrap()
    }
}

/// Reads a request, with a body in JSON or without one.
pub(super) fn read(stream: &TcpStream) -> Request {
    let mut reader = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        match line.trim_end().to_ascii_lowercase().split_once(": ") {
            Some(("content-length", bytes)) => length = bytes.parse().unwrap(),
            Some(_) => {}
            None if line.trim_end().is_empty() => break,
            None => {}
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let body = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap() };
    Request { head, body }
}

/// The body of an answer of OpenAI's servers.
fn events(answer: &Answer) -> String {
    let (delta, reason) = match answer {
        Answer::Text(text) => (json!({ "content": text }), "stop"),
        Answer::Call(tool, arguments) => {
            let function = json!({ "name": tool, "arguments": arguments.to_string() });
            (
                json!({ "tool_calls": [{ "index": 0, "id": "call", "type": "function", "function": function }] }),
                "tool_calls",
            )
        }
    };
    let chunk = json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] });
    let end = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] });
    format!("data: {chunk}\n\ndata: {end}\n\ndata: [DONE]\n\n")
}

/// The body of an answer of Ollama's servers.
fn lines(answer: &Answer) -> String {
    let message = match answer {
        Answer::Text(text) => json!({ "role": "assistant", "content": text }),
        Answer::Call(tool, arguments) => {
            let function = json!({ "name": tool, "arguments": arguments });
            json!({ "role": "assistant", "content": "", "tool_calls": [{ "function": function }] })
        }
    };
    let chunk = json!({ "model": "m", "message": message, "done": false });
    let end =
        json!({ "model": "m", "message": { "role": "assistant", "content": "" }, "done": true, "done_reason": "stop" });
    format!("{chunk}\n{end}\n")
}

/// Answers a request.
pub(super) fn write(mut stream: TcpStream, kind: &str, body: &str) {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nconnection: close\r\n");
    // The process that sent the request may have ended.
    let _ = write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len());
}
