//! A client of HTTP/1.1 that writes any bytes, and reads what comes.

use std::io;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The path of a route, with values that nothing has.
pub(crate) fn filled(path: &str) -> String {
    path.replace("{id}", "019a0000-0000-7000-8000-000000000001")
        .replace("{name}", "nobody")
        .replace("{namespace}", "none")
        .replace("{key}", "none")
        .replace("{fact}", "none")
}

/// Sends requests with a token, each on a connection of its own.
pub(crate) struct Client {
    pub(crate) port: u16,
    pub(crate) secret: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Answer {
    /// 0 if the connection was closed without an answer.
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
    /// Whether the body has arrived to its end.
    pub(crate) is_whole: bool,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The code of a problem.
    pub(crate) fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }

    fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            return Self { status: 0, headers: Vec::new(), body: text.into_owned(), is_whole: false };
        };
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap();
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let is_chunked = headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
        let length =
            headers.iter().find(|(name, _)| name == "content-length").and_then(|(_, length)| length.parse().ok());
        let is_whole = length.is_none_or(|length| body.len() >= length);
        let (body, is_whole) = if is_chunked { unchunked(body) } else { (body.to_owned(), is_whole) };
        Self { status, headers, body, is_whole }
    }
}

/// The content of the chunks, and whether the last one is there.
fn unchunked(mut body: &str) -> (String, bool) {
    let mut content = String::new();
    while let Some((length, rest)) = body.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        if length == 0 {
            return (content, true);
        }
        let Some(chunk) = rest.get(..length) else { break };
        content.push_str(chunk);
        body = rest.get(length + 2..).unwrap_or_default();
    }
    (content, false)
}

impl Client {
    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "").await
    }

    pub(crate) async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.raw(self.request("GET", path, headers, "").as_bytes()).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, &body.to_string()).await
    }

    pub(crate) async fn post_with(&self, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
        self.raw(self.request("POST", path, headers, &body.to_string()).as_bytes()).await
    }

    pub(crate) async fn send(&self, method: &str, path: &str, body: &str) -> Answer {
        self.raw(self.request(method, path, &[], body).as_bytes()).await
    }

    fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> String {
        let mut request = format!("{method} {path} HTTP/1.1\r\nHost: localhost:{}\r\nConnection: close\r\n", self.port);
        if let Some(secret) = &self.secret {
            request += &format!("Authorization: Bearer {secret}\r\n");
        }
        for (name, value) in headers {
            request += &format!("{name}: {value}\r\n");
        }
        if !body.is_empty() {
            request += &format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        }
        request + "\r\n" + body
    }

    /// Writes these bytes and no more, and reads the answer to its end. Without a server there is none.
    pub(crate) async fn raw(&self, request: &[u8]) -> Answer {
        match self.write(request).await {
            Ok(mut stream) => Answer::parse(&read(&mut stream).await),
            Err(_) => Answer::parse(&[]),
        }
    }

    /// Writes these bytes, ends the writing side of the connection, and reads the answer to its end; of a stream of events only
    /// the head, and what comes with it.
    pub(crate) async fn begun(&self, request: &[u8]) -> Answer {
        let mut stream = self.write(request).await.unwrap();
        let _ = stream.shutdown().await;
        let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
        loop {
            let answer = Answer::parse(&bytes);
            if answer.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream")) {
                return answer;
            }
            match stream.read(&mut buffer).await {
                Ok(count) if count > 0 => bytes.extend_from_slice(&buffer[..count]),
                _ => return answer,
            }
        }
    }

    /// As [`Client::raw`], and ends the writing side of the connection.
    pub(crate) async fn raw_and_end(&self, request: &[u8]) -> Answer {
        let mut stream = self.write(request).await.unwrap();
        stream.shutdown().await.unwrap();
        Answer::parse(&read(&mut stream).await)
    }

    async fn write(&self, request: &[u8]) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        // The server may have refused it by its first bytes.
        let _ = stream.write_all(request).await;
        Ok(stream)
    }

    /// Reads a stream of events after the one with this number, until it ends or the connection is cut.
    pub(crate) async fn events(&self, path: &str, last: &str) -> Events {
        let answer = self.get_with(path, &[("Last-Event-ID", last)]).await;
        assert!([0, 200, 204].contains(&answer.status), "{answer:?}");
        Events { has_ended: answer.status == 204 || answer.is_whole, text: answer.body }
    }

    /// Begins to read a stream of events.
    pub(crate) async fn open(&self, path: &str) -> Stream {
        Stream { stream: self.write(self.request("GET", path, &[], "").as_bytes()).await.unwrap() }
    }
}

/// Reads to the end, or to what comes before a reset.
async fn read(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes).await;
    bytes
}

/// What was read of a stream of events.
pub(crate) struct Events {
    /// Whether the server has ended it.
    pub(crate) has_ended: bool,
    text: String,
}

impl Events {
    /// The numbers of the events that arrived whole.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u64> {
        let whole = self.text.rfind("\n\n").map_or("", |end| &self.text[..end]);
        whole.lines().filter_map(|line| line.strip_prefix("id: ")).map(|id| id.parse().unwrap())
    }
}

/// A stream of events that is being read.
pub(crate) struct Stream {
    stream: TcpStream,
}

impl Stream {
    pub(crate) async fn read_until(&mut self, text: &str) {
        let (mut bytes, mut buffer) = (Vec::new(), [0; 1024]);
        while !String::from_utf8_lossy(&bytes).contains(text) {
            let count = self.stream.read(&mut buffer).await.unwrap();
            assert!(count > 0, "it ended before {text:?}: {}", String::from_utf8_lossy(&bytes));
            bytes.extend_from_slice(&buffer[..count]);
        }
    }

    pub(crate) async fn read_to_end(&mut self) {
        read(&mut self.stream).await;
    }
}
