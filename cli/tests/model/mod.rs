//! A model on this machine, which says what a test has it say.

#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses its part of it; a test may panic")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

/// Longer than any program takes to ask on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// Tells each request, and answers it when it is given something to say.
pub(crate) struct Model {
    /// Where it is: `http://127.0.0.1:PORT`.
    pub(crate) address: String,
    asked: mpsc::Receiver<Asked>,
    says: mpsc::Sender<Answer>,
}

/// A request.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) head: String,
    pub(crate) body: Value,
}

enum Answer {
    Words(String),
    Call(String, Value),
}

impl Model {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let ((tell, asked), (says, answers)) = (mpsc::channel(), mpsc::channel());
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let request = request(&stream);
                let is_ollama = request.head.starts_with("POST /api/chat ");
                // The test may have ended.
                let _ = tell.send(request);
                let Ok(answer) = answers.recv() else { return };
                if is_ollama { write(stream, "application/x-ndjson", &lines(&answer)) } else { say(stream, &answer) }
            }
        });
        Self { address, asked, says }
    }

    /// A catalog of this model alone.
    pub(crate) fn catalog(&self) -> String {
        format!("[[models]]\nname = \"m\"\nprovider = \"openai-compatible\"\nurl = \"{}/v1\"\n", self.address)
    }

    /// A folder with this agent, and with this model for it.
    pub(crate) fn folder(&self, agent: &str) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("agents")).unwrap();
        fs::write(folder.path().join("agents/writer.toml"), agent).unwrap();
        fs::write(folder.path().join("models.toml"), self.catalog()).unwrap();
        folder
    }

    /// The next request.
    pub(crate) fn asked(&self) -> Asked {
        self.asked.recv_timeout(DEADLINE).expect("the model is not asked")
    }

    /// What it says to the next request that has no answer yet.
    pub(crate) fn says(&self, words: &str) {
        self.says.send(Answer::Words(words.to_owned())).unwrap();
    }

    /// The tool that it calls in answer to the next request that has none yet.
    pub(crate) fn calls(&self, tool: &str, arguments: Value) {
        self.says.send(Answer::Call(tool.to_owned(), arguments)).unwrap();
    }
}

impl Asked {
    /// The names of the tools that the model may call.
    pub(crate) fn tools(&self) -> Vec<&str> {
        let tools = self.body["tools"].as_array().into_iter().flatten();
        tools.map(|tool| tool["function"]["name"].as_str().unwrap()).collect()
    }

    /// What its latest call was answered.
    pub(crate) fn answer(&self) -> &str {
        let latest = self.body["messages"].as_array().unwrap().last().unwrap();
        assert_eq!(latest["role"], "tool", "{latest}");
        latest["content"].as_str().unwrap()
    }
}

fn request(stream: &TcpStream) -> Asked {
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
    Asked { head, body: serde_json::from_slice(&body).unwrap() }
}

/// As OpenAI's servers answer.
fn say(stream: TcpStream, answer: &Answer) {
    let (delta, reason) = match answer {
        Answer::Words(words) => (json!({ "content": words }), "stop"),
        Answer::Call(tool, arguments) => {
            let function = json!({ "name": tool, "arguments": arguments.to_string() });
            (
                json!({ "tool_calls": [{ "index": 0, "id": "call", "type": "function", "function": function }] }),
                "tool_calls",
            )
        }
    };
    let said = json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] });
    let end = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] });
    write(stream, "text/event-stream", &format!("data: {said}\n\ndata: {end}\n\ndata: [DONE]\n\n"));
}

/// As Ollama's servers answer.
fn lines(answer: &Answer) -> String {
    let message = match answer {
        Answer::Words(words) => json!({ "role": "assistant", "content": words }),
        Answer::Call(tool, arguments) => {
            let function = json!({ "name": tool, "arguments": arguments });
            json!({ "role": "assistant", "content": "", "tool_calls": [{ "function": function }] })
        }
    };
    let said = json!({ "model": "m", "message": message, "done": false });
    let end =
        json!({ "model": "m", "message": { "role": "assistant", "content": "" }, "done": true, "done_reason": "stop" });
    format!("{said}\n{end}\n")
}

fn write(mut stream: TcpStream, kind: &str, body: &str) {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nconnection: close\r\n");
    // Whoever has asked may be gone.
    let _ = write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len());
}
