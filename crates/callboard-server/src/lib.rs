//! HTTP for a [`callboard`] board: other programs delegate tasks to its agents, follow their runs, and decide what waits for a
//! person.
//!
//! [`Server::router`] returns an axum `Router` over a board, to be mounted in a service; [`Server::serve`] serves it with
//! limits of time and size. A request is answered if it has a token whose [scopes](Scope) include the one of its route
//! ([`Server::routes`], which has the few that need none). [`Tokens::open`] keeps tokens in a file, and [`Server::serve_private`]
//! serves processes of the same user over a Unix socket, without tokens. docs/http.md describes requests, answers and problems.
//! With the feature `tls`, [`Server::serve_tls`] serves HTTPS. With the feature `mcp` there is the endpoint `/mcp` for clients of the Model Context Protocol (docs/mcp-server.md).
//! With the feature `knowledge`, `Server::knowledge` offers a base of facts. With the feature `dashboard`, `Server::dashboard` has pages for
//! people in a browser (docs/dashboard.md). With the feature `webhooks`, `Server::webhook_decisions` takes decisions that receivers of webhooks
//! send back (docs/webhooks.md).
//!
//! ```
//! use callboard::env::Env;
//! use callboard::prelude::*;
//! use callboard_server::{Scope, Server, TokenSpec, Tokens};
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let board = Callboard::builder().agent("echo", |turn: Turn| async move { Ok(Command::output(turn.input_json().clone())) });
//! let board = board.start().await?;
//! let tokens = Tokens::new(Env::system());
//! let secret = tokens.add(TokenSpec::new("ci", [Scope::Read, Scope::Delegate]))?;
//! let app: axum::Router = Server::new(board.clone(), tokens).router();
//! # let _ = (secret, app);
//! # board.shutdown().await;
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! ```

mod access;
mod agent_files;
mod agent_inboxes;
mod agents;
mod arriving;
mod audit;
mod body;
mod context;
#[cfg(feature = "dashboard")]
mod dashboard;
#[cfg(not(feature = "dashboard"))]
#[path = "without_dashboard/mod.rs"]
mod dashboard;
#[cfg(feature = "webhooks")]
mod decisions;
#[cfg(not(feature = "webhooks"))]
#[path = "without_decisions/mod.rs"]
mod decisions;
mod delegations;
mod deliveries;
mod entries;
mod etags;
mod events;
mod figures;
mod header_time;
pub mod inbox;
mod index;
pub mod json;
#[cfg(feature = "knowledge")]
mod knowledge;
#[cfg(not(feature = "knowledge"))]
#[path = "without_knowledge/mod.rs"]
mod knowledge;
mod limits;
mod lingering;
mod lists;
#[cfg(feature = "mcp")]
mod mcp;
#[cfg(not(feature = "mcp"))]
#[path = "without_mcp.rs"]
mod mcp;
mod openapi;
mod origins;
mod people;
#[cfg(unix)]
pub mod private;
mod problem;
mod proxies;
mod query;
mod rates;
mod requesters;
mod routes;
mod runs;
mod schedules;
mod serving;
mod streams;
#[cfg(feature = "tls")]
mod tls;
mod tokens;
mod watching;
mod workflows;
mod written;

pub use access::Access;
pub use agent_files::{AgentFile, AgentFiles};
#[cfg(unix)]
pub use callboard_private::FolderError;
#[cfg(feature = "dashboard")]
pub use dashboard::{DashboardError, PagesAt};
pub use limits::HttpLimits;
pub use origins::OriginError;
pub use problem::{Problem, ProblemCode};
pub use proxies::{Network, NetworkError};
pub use routes::{Route, Server};
#[cfg(feature = "tls")]
pub use tls::{Tls, TlsError};
pub use tokens::{Scope, Token, TokenError, TokenSpec, Tokens};

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
