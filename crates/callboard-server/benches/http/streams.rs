//! Event streams: the memory that the server has for each, and how soon an event reaches its client.

use std::time::Duration;

use callboard::env::Env;
use callboard::prelude::*;
use callboard_server::{Scope, Server, TokenSpec, Tokens};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::client::Client;
use crate::measure::{two_workers, wall};
use crate::report::{Line, Report, Target};
use crate::requests::p99;
use crate::server::{Spawned, open_files};

/// How many streams a token may have.
const OF_A_TOKEN: usize = 100;
/// How many streams are open when their memory is measured.
const STREAMS: usize = 10_000;
/// How many streams are open when their delay is measured, and how many events each has.
const WATCHED: usize = 1_000;
const EVENTS: usize = 20;

/// Opens a stream, and reads until its first event has come.
async fn open(port: u16, secret: &str, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {secret}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let (mut read, mut buffer) = (String::new(), [0; 4096]);
    while !read.contains("data: ") {
        let count = stream.read(&mut buffer).await.unwrap();
        assert!(count > 0, "the stream has ended: {read}");
        read += &String::from_utf8_lossy(&buffer[..count]);
    }
    stream
}

/// The memory of a stream, of 10,000 that each follow a run that waits; runs are followed by several.
pub(crate) fn memory(report: &mut Report) {
    let limit = open_files();
    assert!(limit > STREAMS as u64 + 100, "the limit of open files is {limit}");
    let each = two_workers().block_on(async {
        let server = Spawned::start();
        let mut client = Client::connect(server.port, &server.secrets[0]).await;
        let mut paths = Vec::new();
        for _ in 0..OF_A_TOKEN {
            let (_, answer): (_, Value) = client.post("/v1/delegations", &json!({ "to": "waiter", "body": "x" })).await;
            paths.push(format!("/v1/delegations/{}/events", answer["request_id"].as_str().unwrap()));
        }
        let mut streams = Vec::new();
        let mut before = 0.0;
        for (number, secret) in server.secrets.iter().cycle().enumerate().take(STREAMS + OF_A_TOKEN).skip(1) {
            if number == OF_A_TOKEN {
                // What the first streams need once is not counted.
                before = server.resident();
            }
            if streams.len() == STREAMS {
                break;
            }
            streams.push(open(server.port, secret, &paths[number % paths.len()]).await);
        }
        (server.resident() - before) / (streams.len() - OF_A_TOKEN) as f64
    });
    println!("the limit of open files (ulimit -n) is {limit}");
    report.add(Line {
        name: "an open event stream, of 10,000",
        value: each / 1024.0,
        unit: "KiB",
        reference: None,
        target: Target::AtMost(24.0, None),
    });
}

/// How soon an event reaches its client, with 1,000 streams of runs of their own that have an event now and then, and with 1,000
/// of one run.
pub(crate) fn delay(report: &mut Report) {
    for (runs, name) in
        [(WATCHED, "an event reaches 1 of 1,000 streams, p99"), (1, "an event reaches all 1,000 streams, p99")]
    {
        let times = two_workers().block_on(delays(runs));
        report.add(Line {
            name,
            value: p99(times) * 1e3,
            unit: "ms",
            reference: None,
            target: if runs == 1 { Target::None } else { Target::AtMost(5.0, None) },
        });
    }
}

/// The times from a notice of an agent to the arrival of its event at a client, in seconds.
async fn delays(runs: usize) -> Vec<f64> {
    open_files();
    let (release, released) = tokio::sync::watch::channel(false);
    let notes = move |turn: Turn| {
        let mut released = released.clone();
        async move {
            let number: usize = turn.input()?;
            released.wait_for(|is_released| *is_released).await.map_err(std::io::Error::other)?;
            // One event a millisecond in all.
            let every = Duration::from_millis(if runs == 1 { 100 } else { runs as u64 });
            tokio::time::sleep(every.mul_f64(number as f64 / runs as f64)).await;
            for _ in 0..EVENTS {
                turn.notice(&format!("sent {:.9}!", wall()));
                tokio::time::sleep(every).await;
            }
            Ok(Command::output(()))
        }
    };
    let board = Callboard::builder().pool(WATCHED).with(AgentSpec::new("notes", notes).concurrency(WATCHED)).start();
    let board = board.await.unwrap();
    let tokens = Tokens::new(Env::system());
    let secrets: Vec<String> = (0..WATCHED / OF_A_TOKEN + 1)
        .map(|number| tokens.add(TokenSpec::new(&format!("token-{number}"), Scope::ALL)).unwrap())
        .collect();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = Server::new(board.clone(), tokens);
    tokio::spawn(async move { server.serve(listener, std::future::pending()).await });
    let mut paths = Vec::new();
    for number in 0..runs {
        let run = board.submit(Task::new("note").input(number)).await.unwrap();
        paths.push(format!("/v1/delegations/{}/events?modes=debug", run.id()));
    }
    let (sender, mut times) = mpsc::unbounded_channel();
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..WATCHED {
        let mut stream = open(port, &secrets[number / OF_A_TOKEN], &paths[number % runs]).await;
        let sender = sender.clone();
        clients.spawn(async move {
            let mut buffer = [0; 4096];
            loop {
                let count = stream.read(&mut buffer).await.unwrap();
                let (now, text) = (wall(), String::from_utf8_lossy(&buffer[..count]));
                for sent in text.split("sent ").skip(1).filter_map(|rest| rest.split_once('!')?.0.parse::<f64>().ok()) {
                    sender.send(now - sent).unwrap();
                }
                if count == 0 || text.contains("\r\n0\r\n\r\n") || text.starts_with("0\r\n\r\n") {
                    return;
                }
            }
        });
    }
    drop(sender);
    release.send_replace(true);
    let mut all = Vec::new();
    while let Some(time) = times.recv().await {
        all.push(time);
    }
    assert!(all.len() >= WATCHED * EVENTS * 9 / 10, "{} events have arrived", all.len());
    board.shutdown().await;
    all
}
