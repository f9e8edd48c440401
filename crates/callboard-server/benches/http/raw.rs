//! A client that does as little as it can: prepared requests are written as they are, and of an answer its length and its end are looked for.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A connection that is kept.
pub(crate) struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
}

/// A request as it is written.
pub(crate) fn request(method: &str, path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

impl Connection {
    pub(crate) async fn open(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, read: Vec::new() }
    }

    /// Sends a request, and returns the body of its answer, which has to be a success.
    pub(crate) async fn send(&mut self, request: &str) -> &str {
        self.stream.write_all(request.as_bytes()).await.unwrap();
        self.read.clear();
        let begins = loop {
            self.receive().await;
            if let Some(at) = self.read.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break at + 4;
            }
        };
        let head = std::str::from_utf8(&self.read[..begins]).unwrap();
        assert!(head.starts_with("HTTP/1.1 2"), "{request}\n{}", String::from_utf8_lossy(&self.read));
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).map(str::parse::<usize>);
        match length {
            Some(length) => {
                let ends = begins + length.unwrap();
                while self.read.len() < ends {
                    self.receive().await;
                }
            }
            // In chunks, the last of which is empty.
            None => {
                while !self.read.ends_with(b"\r\n0\r\n\r\n") {
                    self.receive().await;
                }
            }
        }
        std::str::from_utf8(&self.read[begins..]).unwrap()
    }

    async fn receive(&mut self) {
        let count = self.stream.read_buf(&mut self.read).await.unwrap();
        assert!(count > 0, "the connection was closed: {}", String::from_utf8_lossy(&self.read));
    }
}
