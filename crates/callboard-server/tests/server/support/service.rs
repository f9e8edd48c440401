//! A server over real connections.

use std::time::Duration;

use callboard::env::Env;
use callboard::prelude::*;
use callboard::runtime::Builder;
use callboard_server::{Scope, Server, TokenSpec, Tokens};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::support::client::Client;

/// A server on a port of its own, over a board with an agent that echoes, one that asks, and one that waits.
pub(crate) struct Service {
    pub(crate) board: Callboard,
    pub(crate) tokens: Tokens,
    pub(crate) port: u16,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<std::io::Result<()>>,
}

impl Service {
    pub(crate) async fn start() -> Self {
        Self::with_room_for(100).await
    }

    /// Over a board with this many runs at a time.
    pub(crate) async fn with_room_for(runs: usize) -> Self {
        let board = Callboard::builder()
            .agent("echo", |turn: Turn| async move { Ok(Command::output(turn.input_json().clone())) })
            .agent("asker", |turn: Turn| async move { Ok(Command::output(turn.people().ask("who?").await?)) })
            .agent("waiter", |_: Turn| std::future::pending::<Result<Command, TurnError>>())
            .capacity(|it| it.runs_in_flight(runs));
        Self::of(board).await
    }

    /// Over the board of this builder.
    pub(crate) async fn of(board: Builder) -> Self {
        let board = board.shutdown_grace(Duration::ZERO).start().await.unwrap();
        let tokens = Tokens::new(Env::system());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = Server::new(board.clone(), tokens.clone()).public_origin("https://agents.example.org").unwrap();
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(async move {
            let stopped = async { stopped.await.unwrap_or_default() };
            server.serve(listener, stopped).await
        });
        Self { board, tokens, port, stop: Some(stop), serving }
    }

    /// A client with a new token.
    pub(crate) fn client(&self, name: &str, scopes: impl IntoIterator<Item = Scope>) -> Client {
        let secret = self.tokens.add(TokenSpec::new(name, scopes)).unwrap();
        Client { port: self.port, secret: Some(secret) }
    }

    pub(crate) async fn end(self) {
        let board = self.board.clone();
        self.stop_serving().await;
        board.shutdown().await;
    }

    /// Ends the server, and not the board.
    pub(crate) async fn stop_serving(mut self) {
        self.stop.take().unwrap().send(()).unwrap();
        self.serving.await.unwrap().unwrap();
    }
}
