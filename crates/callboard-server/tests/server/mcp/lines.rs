//! The Model Context Protocol in lines, over a socket of this user.

use callboard_server::private::{Client, listen};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines, ReadHalf, WriteHalf};
use tokio::net::UnixStream;
use tokio::sync::oneshot;

use callboard::env::Env;
use callboard::messages::Action;
use callboard::prelude::*;
use callboard_server::{Server, Tokens};

/// A client that writes lines, and reads some.
struct Peer {
    lines: Lines<BufReader<ReadHalf<UnixStream>>>,
    write: WriteHalf<UnixStream>,
}

impl Peer {
    async fn connect(client: &Client) -> Self {
        let (read, write) = tokio::io::split(client.connect().await.unwrap());
        let mut peer = Self { lines: BufReader::new(read).lines(), write };
        let begin = json!({
            "protocolVersion": "2025-11-25", "capabilities": { "elicitation": {} }, "clientInfo": { "name": "test", "version": "1" },
        });
        let begun = peer.ask(0, "initialize", &begin).await;
        assert_eq!(begun["result"]["serverInfo"]["name"], "callboard", "{begun}");
        peer.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        peer
    }

    async fn send(&mut self, message: &Value) {
        self.write.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn next(&mut self) -> Value {
        serde_json::from_str(&self.lines.next_line().await.unwrap().expect("the connection has ended")).unwrap()
    }

    /// The response to a request, after any notifications.
    async fn ask(&mut self, id: u32, method: &str, params: &Value) -> Value {
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
        loop {
            let message = self.next().await;
            if message["id"] == id && message["method"].is_null() {
                return message;
            }
        }
    }

    async fn call(&mut self, id: u32, tool: &str) -> Value {
        self.ask(id, "tools/call", &json!({ "name": tool, "arguments": { "task": "x" } })).await
    }
}

#[tokio::test]
async fn a_process_of_this_user_delegates_in_lines_and_decides_no_approval() {
    let writer = |turn: Turn| async move {
        let approved = turn.people().approve(Action::new("write_file", "a.txt", "hello")).await?;
        Ok(Command::output(approved.arguments))
    };
    let board = Callboard::builder()
        .agent("echo", |turn: Turn| async move { Ok(Command::output(turn.input_json().clone())) })
        .agent("asker", |turn: Turn| async move { Ok(Command::output(turn.people().ask("who?").await?)) })
        .agent("waiter", |_: Turn| std::future::pending::<Result<Command, TurnError>>())
        .agent("writer", writer)
        .shutdown_grace(std::time::Duration::ZERO)
        .start()
        .await
        .unwrap();
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("sockets");
    let listener = listen(&folder, "mcp").await.unwrap();
    let server = Server::new(board.clone(), Tokens::new(Env::system()));
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(async move { server.serve_mcp(listener, async { drop(stopped.await) }).await });
    let client = Client::new(&folder, "mcp");

    let mut peer = Peer::connect(&client).await;
    // What is no message is left out, or refused: the connection stays.
    for line in ["", "{", "\0", "nonsense", &"[".repeat(10_000), &"x".repeat(2 * 1024 * 1024)] {
        peer.write.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }
    let result = peer.call(1, "agent_echo").await;
    assert_eq!(result["result"]["structuredContent"]["output"], "x", "{result}");
    let run = result["result"]["structuredContent"]["request_id"].as_str().unwrap().to_owned();
    let task = board.run(run.parse().unwrap()).read().await.unwrap().submission().task.clone();
    assert_eq!((task.from_agent.unwrap().as_str(), task.is_untrusted), ("mcp", true));
    assert_eq!(
        peer.call(1, "agent_echo").await["result"]["structuredContent"]["request_id"],
        json!(run),
        "it is repeated"
    );

    // A question is asked of the client, and the answer of an approval is not.
    peer.send(&json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": { "name": "agent_asker", "arguments": { "task": "x" } } })).await;
    let asked = peer.next().await;
    assert_eq!(
        (&asked["method"], &asked["params"]["message"]),
        (&json!("elicitation/create"), &json!("asker asks: who?"))
    );
    let answer = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "action": "accept", "content": { "answer": "ann" } } });
    peer.send(&answer).await;
    assert_eq!(peer.next().await["result"]["structuredContent"]["output"], "ann");
    let waits = peer.call(3, "agent_writer").await;
    assert!(
        waits["result"]["content"][0]["text"].as_str().unwrap().contains("(callboard approve approval:"),
        "{waits}"
    );

    // A cancelled call cancels its run.
    peer.send(&json!({ "jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": { "name": "agent_waiter", "arguments": { "task": "x" } } })).await;
    let waiting = async |board: &Callboard| loop {
        for run in board.runs().await.unwrap() {
            let fold = run.read().await.unwrap();
            if fold.submission().agent.as_str() == "waiter" && fold.result().is_none() {
                return run;
            }
        }
        tokio::task::yield_now().await;
    };
    let run = waiting(&board).await;
    peer.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 4 } })).await;
    assert_eq!(run.result().await.unwrap().outcome.name(), "cancelled");

    // Another connection has keys of its own, and a server that stops leaves the runs.
    let mut other = Peer::connect(&client).await;
    assert_ne!(other.call(1, "agent_echo").await["result"]["structuredContent"]["request_id"], json!(task.id));
    other.send(&json!({ "jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": { "name": "agent_waiter", "arguments": { "task": "x" } } })).await;
    let run = waiting(&board).await;
    for id in 10..73 {
        other.send(&json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "agent_waiter", "arguments": { "task": "x" } } })).await;
    }
    let refused = other.call(73, "agent_waiter").await["result"]["structuredContent"].clone();
    let expected =
        json!({ "code": "overloaded", "detail": "too many calls are under way; wait for one", "retry_after_s": 1 });
    assert_eq!(refused, expected, "64 are under way");
    stop.send(()).unwrap();
    serving.await.unwrap();
    assert!(run.read().await.unwrap().result().is_none(), "it continues");
    board.shutdown().await;
}
