//! The Model Context Protocol: the agents and saved workflows of the board as tools, their runs as tasks, and journals as
//! resources, for revisions up to 2026-07-28.
//!
//! What a client sends is untrusted, so each run that it begins is tainted. Approvals are reported as waiting; a token that was made
//! for a person, with the scope for it, decides about those of runs that it has not begun (`decisions`). The protocol itself is `rmcp`'s; this room bounds what reaches it (`http`, `sessions`),
//! and says what the board has for it.

use std::sync::Arc;

use axum::routing::{MethodFilter, MethodRouter, on};
use axum::{Extension, Router};

use crate::context::Context;

mod calls;
mod decisions;
mod errors;
mod handler;
mod http;
mod knowing;
#[cfg(unix)]
mod lines;
mod questions;
mod resources;
mod sessions;
mod tools;

/// The path of the endpoint.
pub(crate) const PATH: &str = "/mcp";

/// The methods of its route, with the handlers. Each method of the protocol checks what else than the scope of the route it needs.
#[expect(clippy::type_complexity, reason = "a table")]
pub(crate) const METHODS: &[(&str, fn() -> MethodRouter<Arc<Context>>)] = &[
    ("GET", || on(MethodFilter::GET, http::answer)),
    ("POST", || on(MethodFilter::POST, http::answer)),
    ("DELETE", || on(MethodFilter::DELETE, http::answer)),
];

/// Gives the endpoint of a router its sessions.
pub(crate) fn with_sessions(router: Router<Arc<Context>>) -> Router<Arc<Context>> {
    router.layer(Extension(sessions::Sessions::default()))
}
