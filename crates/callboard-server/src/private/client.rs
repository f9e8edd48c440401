//! A client of the socket.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use callboard_private::{Folder, FolderError, is_of_this_user, path_of};
use futures::{Stream, StreamExt as _};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::messages::{Message, Reader};

/// How long an answer may take to begin: longer than the server takes at most.
const MAX_TIME: Duration = Duration::from_secs(70);

/// Why a request had no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// No server listens on the socket.
    #[error("no server listens on {}", .0.display())]
    Absent(PathBuf),
    /// The folder of the socket is not this user's alone.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// A process of another user listens on the socket.
    #[error("a process of another user listens on {}", .0.display())]
    Foreign(PathBuf),
    /// The process that listens has not answered in time that its board works ([`Client::hello_within`]), as one that is suspended, or its board
    /// has ended: the request was not sent.
    #[error("the process that listens on {} does not answer: it may be suspended, or about to end", .0.display())]
    Silent(PathBuf),
    /// The request or its answer was not carried over: it is not known whether it was carried out.
    #[error("the server has not answered: {0}")]
    Broken(String),
    /// The server has refused to open a stream of events.
    #[error("the server has refused it: {detail}")]
    Refused {
        /// The status of the answer.
        status: u16,
        /// The field `code` of the problem.
        code: String,
        /// The field `detail` of the problem.
        detail: String,
    },
}

/// Sends requests to the server that listens on a socket, each by a connection of its own.
#[derive(Clone, Debug)]
pub struct Client {
    folder: PathBuf,
    path: PathBuf,
    hello: Option<Duration>,
}

impl Client {
    /// Creates a client of the socket `name` in a folder, as [`listen`](super::listen) makes it.
    #[must_use]
    pub fn new(folder: &Path, name: &str) -> Self {
        Self {
            folder: folder.to_owned(),
            path: path_of(folder, name).unwrap_or_else(|| folder.to_owned()),
            hello: None,
        }
    }

    /// Asks the server on each connection whether its board works, and sends the request only if it answers that within this time; else the
    /// request fails with [`ClientError::Silent`]. By default a request is sent at once, and a process that is suspended carries it out
    /// when it continues.
    #[must_use]
    pub fn hello_within(self, limit: Duration) -> Self {
        Self { hello: Some(limit), ..self }
    }

    /// Sends a request, such as `POST /v1/delegations`, and returns the status and the JSON of its answer, `null` if it has none.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn request(&self, method: &str, path: &str, body: Option<&Value>) -> Result<(u16, Value), ClientError> {
        self.answer(self.send(method, path, &[], body)).await
    }

    /// As [`Client::request`], with more headers, such as `idempotency-key`: under the same key a request may be sent again, and is carried
    /// out once.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn request_with(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<(u16, Value), ClientError> {
        self.answer(self.send(method, path, headers, body)).await
    }

    async fn answer(
        &self,
        sent: impl Future<Output = Result<Response<Body>, ClientError>>,
    ) -> Result<(u16, Value), ClientError> {
        let response = sent.await?;
        let status = response.status().as_u16();
        let bytes = to_bytes(response.into_body(), usize::MAX).await.map_err(|error| broken(&error))?;
        if bytes.is_empty() {
            return Ok((status, Value::Null));
        }
        Ok((status, serde_json::from_slice(&bytes).map_err(|error| broken(&error))?))
    }

    /// Opens a stream of events, such as `/v1/delegations/ID/events`, after the event with the id `last`, if it is given.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn events(&self, path: &str, last: Option<u64>) -> Result<Events, ClientError> {
        let last = last.map(|id| id.to_string());
        let headers: Vec<(&str, &str)> = last.iter().map(|id| ("last-event-id", id.as_str())).collect();
        let response = self.send("GET", path, &headers, None).await?;
        let status = response.status();
        if status == StatusCode::OK || status == StatusCode::NO_CONTENT {
            let bytes = response.into_body().into_data_stream();
            return Ok(Events { bytes: Box::pin(bytes), reader: Reader::default() });
        }
        let bytes = to_bytes(response.into_body(), usize::MAX).await.map_err(|error| broken(&error))?;
        let problem: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let text = |field: &str| problem[field].as_str().unwrap_or_default().to_owned();
        Err(ClientError::Refused { status: status.as_u16(), code: text("code"), detail: text("detail") })
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<Response<Body>, ClientError> {
        let mut request = Request::builder().method(method).uri(path).header(HOST, "localhost");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = match body {
            Some(body) => {
                request = request.header(CONTENT_TYPE, "application/json");
                Body::from(body.to_string())
            }
            None => Body::empty(),
        };
        let request = request.body(body).map_err(|error| broken(&error))?;
        let answered = async {
            let mut sender = self.open().await?;
            sender.send_request(request).await.map_err(|error| broken(&error))
        };
        match timeout(MAX_TIME, answered).await {
            Ok(response) => Ok(response?.map(Body::new)),
            Err(_) => Err(ClientError::Broken(format!("{} s have passed", MAX_TIME.as_secs()))),
        }
    }

    /// Opens a connection for a request, on which the server has answered the first question, if it has to.
    async fn open(&self) -> Result<SendRequest<Body>, ClientError> {
        let open = async {
            let io = TokioIo::new(self.connect().await?);
            let (sender, connection) = http1::handshake(io).await.map_err(|error| broken(&error))?;
            // It ends with its last response, or when that is dropped.
            tokio::spawn(connection);
            Ok(sender)
        };
        let Some(limit) = self.hello else { return open.await };
        let silent = || ClientError::Silent(self.path.clone());
        let greeted = async {
            let mut sender = open.await?;
            greet(&mut sender).await.map_err(|_| silent())?;
            Ok(sender)
        };
        timeout(limit, greeted).await.unwrap_or_else(|_| Err(silent()))
    }

    /// Connects to the socket, whatever is spoken on it.
    ///
    /// # Errors
    /// [`ClientError::Absent`], [`ClientError::Folder`] and [`ClientError::Foreign`]; [`ClientError::Silent`] if too many connections wait
    /// already.
    pub async fn connect(&self) -> Result<UnixStream, ClientError> {
        let absent = || ClientError::Absent(self.path.clone());
        match Folder::open(&self.folder) {
            Ok(_) => {}
            Err(FolderError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => return Err(absent()),
            Err(error) => return Err(error.into()),
        }
        let stream = match UnixStream::connect(&self.path).await {
            Ok(stream) => stream,
            Err(error) if [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused].contains(&error.kind()) => {
                return Err(absent());
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(ClientError::Silent(self.path.clone()));
            }
            Err(error) => return Err(FolderError::io(&self.path, error).into()),
        };
        if is_of_this_user(&stream) { Ok(stream) } else { Err(ClientError::Foreign(self.path.clone())) }
    }
}

/// Has the server answer that its board works, and leaves the connection ready for a request.
async fn greet(sender: &mut SendRequest<Body>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let hello = Request::builder().uri("/v1/health").header(HOST, "localhost").body(Body::empty())?;
    let answer = sender.send_request(hello).await?;
    if answer.status() != StatusCode::OK {
        return Err("the board has ended".into());
    }
    to_bytes(Body::new(answer.into_body()), usize::MAX).await?;
    Ok(sender.ready().await?)
}

fn broken(error: &dyn std::fmt::Display) -> ClientError {
    ClientError::Broken(error.to_string())
}

/// A stream of events that is being read.
pub struct Events {
    bytes: Pin<Box<dyn Stream<Item = Result<Bytes, axum::Error>> + Send>>,
    reader: Reader,
}

impl Events {
    /// Returns the next event; `None` at the end.
    ///
    /// # Errors
    /// [`ClientError::Broken`] if the connection was lost. A client continues with the id of the last event.
    pub async fn next(&mut self) -> Result<Option<Message>, ClientError> {
        loop {
            if let Some(message) = self.reader.pop() {
                return Ok(Some(message));
            }
            match self.bytes.next().await {
                Some(Ok(bytes)) => self.reader.push(&bytes),
                Some(Err(error)) => return Err(broken(&error)),
                None => return Ok(None),
            }
        }
    }
}
