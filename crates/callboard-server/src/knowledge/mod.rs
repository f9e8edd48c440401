//! A base of facts over HTTP and MCP. What reads or changes facts is a run of the board, by the agents of the base, so limits, budgets and the
//! journal hold for it; who asks is the token. These agents are reserved: nobody gives them a task in another way, which would
//! have the namespaces and the scopes of the token not checked.

mod asking;
pub(crate) mod base;
mod handlers;
pub(crate) mod reserved;
mod serving;
pub(crate) mod tools;

use std::sync::Arc;

use axum::routing::{MethodFilter, MethodRouter, on};

use crate::context::Context;
use crate::tokens::Scope;

type Handler = fn() -> MethodRouter<Arc<Context>>;

/// The routes: method, path, scope and handler.
pub(crate) const ROUTES: &[(&str, &str, Scope, Handler)] = &[
    ("POST", "/v1/knowledge/{namespace}/query", Scope::KnowledgeRead, || on(MethodFilter::POST, handlers::query)),
    ("POST", "/v1/knowledge/{namespace}/facts", Scope::KnowledgeWrite, || on(MethodFilter::POST, handlers::submit)),
    ("GET", "/v1/knowledge/{namespace}/facts/{fact}", Scope::KnowledgeRead, || on(MethodFilter::GET, handlers::fact)),
    ("POST", "/v1/knowledge/{namespace}/facts/{fact}/invalidate", Scope::KnowledgeWrite, || {
        on(MethodFilter::POST, handlers::invalidate)
    }),
];
