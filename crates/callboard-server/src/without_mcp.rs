//! What stands in for the room `mcp` where its feature is off: no routes.

use std::sync::Arc;

use axum::Router;
use axum::routing::MethodRouter;

use crate::context::Context;

pub(crate) const PATH: &str = "/mcp";

type Handler = fn() -> MethodRouter<Arc<Context>>;

pub(crate) const METHODS: &[(&str, Handler)] = &[];

pub(crate) fn with_sessions(router: Router<Arc<Context>>) -> Router<Arc<Context>> {
    router
}
