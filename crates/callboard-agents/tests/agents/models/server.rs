//! A scripted server on this machine that speaks the wire formats of providers.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, mpsc, oneshot};

/// What is done with a request, step by step.
pub(crate) enum Step {
    /// The head of an answer, and its whole body.
    Answer { status: u16, headers: &'static str, body: String },
    /// The head of an answer in a stream of events.
    Begin,
    /// The head of one in lines of JSON.
    BeginLines,
    /// A piece of it.
    Send(String),
    /// The same piece, until the other side closes.
    SendForEver(String),
    /// Waits for the test's permission to continue.
    Gate(oneshot::Receiver<()>),
    /// Ends the answer in good order.
    End,
    /// Closes the connection in the middle.
    Cut,
    /// Waits until the other side closes, and reports it.
    UntilClosed(oneshot::Sender<()>),
    /// Sends nothing until the test ends.
    Hang,
}

/// What has arrived.
#[derive(Clone, Debug)]
pub(crate) struct Arrived {
    pub(crate) path: String,
    pub(crate) head: String,
    pub(crate) body: serde_json::Value,
}

pub(crate) struct Server {
    pub(crate) url: String,
    arrived: Mutex<mpsc::UnboundedReceiver<Arrived>>,
}

impl Server {
    /// A server that answers the first request with the first script, and so on.
    pub(crate) async fn start(scripts: impl IntoIterator<Item = Vec<Step>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let scripts = Arc::new(Mutex::new(scripts.into_iter().collect::<std::collections::VecDeque<_>>()));
        let (sender, arrived) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&scripts), sender.clone()));
            }
        });
        Self { url, arrived: Mutex::new(arrived) }
    }

    /// The next request.
    pub(crate) async fn arrived(&self) -> Arrived {
        self.arrived.lock().await.recv().await.unwrap()
    }
}

/// An address at which nobody listens.
pub(crate) async fn unused_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}/v1", listener.local_addr().unwrap())
}

type Scripts = Arc<Mutex<std::collections::VecDeque<Vec<Step>>>>;

async fn serve(mut stream: TcpStream, scripts: Scripts, sender: mpsc::UnboundedSender<Arrived>) {
    while let Some(arrived) = read(&mut stream).await {
        // The test may have ended.
        let _ = sender.send(arrived);
        let script = scripts.lock().await.pop_front().expect("a request too many");
        for step in script {
            let written = match step {
                Step::Answer { status, headers, body } => {
                    let head = format!("HTTP/1.1 {status} X\r\n{headers}content-length: {}\r\n\r\n", body.len());
                    stream.write_all(format!("{head}{body}").as_bytes()).await
                }
                Step::Begin => stream.write_all(head("text/event-stream").as_bytes()).await,
                Step::BeginLines => stream.write_all(head("application/x-ndjson").as_bytes()).await,
                Step::Send(text) => stream.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes()).await,
                Step::SendForEver(text) => {
                    let piece = format!("{:x}\r\n{text}\r\n", text.len());
                    loop {
                        if stream.write_all(piece.as_bytes()).await.is_err() {
                            return;
                        }
                        // Also where nobody reads.
                        tokio::task::yield_now().await;
                    }
                }
                Step::Gate(gate) => {
                    let _ = gate.await;
                    Ok(())
                }
                Step::End => stream.write_all(b"0\r\n\r\n").await,
                Step::Cut => return,
                Step::UntilClosed(closed) => {
                    let mut rest = [0; 1];
                    let _ = stream.read(&mut rest).await;
                    let _ = closed.send(());
                    return;
                }
                Step::Hang => std::future::pending().await,
            };
            if written.is_err() {
                return;
            }
        }
    }
}

fn head(kind: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n")
}

/// The next request of a connection.
async fn read(stream: &mut TcpStream) -> Option<Arrived> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).await.ok()?;
    let path = head.split(' ').nth(1)?.to_owned();
    Some(Arrived { path, body: serde_json::from_slice(&body).unwrap(), head })
}
