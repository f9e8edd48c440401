//! A client with a connection that it keeps.

use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::TcpStream;

use axum::body::{Body, to_bytes};

pub(crate) struct Client {
    sender: SendRequest<Body>,
    secret: String,
}

impl Client {
    pub(crate) async fn connect(port: u16, secret: &str) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self { sender, secret: secret.to_owned() }
    }

    pub(crate) async fn post<T: DeserializeOwned>(&mut self, path: &str, body: &Value) -> (StatusCode, T) {
        self.send(Method::POST, path, Body::from(body.to_string())).await
    }

    pub(crate) async fn get<T: DeserializeOwned>(&mut self, path: &str) -> (StatusCode, T) {
        self.send(Method::GET, path, Body::empty()).await
    }

    async fn send<T: DeserializeOwned>(&mut self, method: Method, path: &str, body: Body) -> (StatusCode, T) {
        let request = Request::builder().method(method).uri(path).header("Host", "localhost");
        let request = request.header("Authorization", format!("Bearer {}", self.secret));
        let request = request.header("Content-Type", "application/json").body(body).unwrap();
        self.sender.ready().await.unwrap();
        let response = self.sender.send_request(request).await.unwrap();
        let status = response.status();
        let body = to_bytes(Body::new(response.into_body()), usize::MAX).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap())
    }
}
