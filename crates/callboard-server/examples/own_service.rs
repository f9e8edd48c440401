//! The routes of a board below a path of a service that has routes of its own.
//!
//! Run it with `cargo run -p callboard-server --example own_service`. It prints a `curl` command that gives the board a task.

use std::error::Error;

use axum::Router;
use axum::routing::get;
use callboard::env::Env;
use callboard::prelude::*;
use callboard_server::{Scope, Server, TokenSpec, Tokens};
use tokio::net::TcpListener;

/// The service: its own page, and the board below `/board`.
fn service(board: &Callboard, tokens: Tokens) -> Router {
    Router::new()
        .route("/", get(|| async { "the page of the service\n" }))
        .nest("/board", Server::new(board.clone(), tokens).router())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let board = Callboard::builder()
        .agent("echo", |turn: Turn| async move { Ok(Command::output(turn.input_json().clone())) })
        .start()
        .await?;
    // In memory; `Tokens::open` keeps them in a file.
    let tokens = Tokens::new(Env::system());
    let secret = tokens.add(TokenSpec::new("ci", [Scope::Read, Scope::Delegate]))?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/board/v1/delegations", listener.local_addr()?);
    println!("curl --header 'Authorization: Bearer {secret}' --json '{{\"body\": \"hello\"}}' {url}");

    // Event streams end with the board; those of a board that works on would keep the service from ending.
    let stopped = board.clone();
    let stop = async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            stopped.shutdown().await;
        }
    };
    axum::serve(listener, service(&board, tokens)).with_graceful_shutdown(stop).await?;
    board.shutdown().await;
    Ok(())
}
