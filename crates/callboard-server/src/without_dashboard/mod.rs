//! What stands in for the room `dashboard` where its feature is off: no pages, and no sessions.

pub(crate) mod state;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::MethodRouter;

use crate::access::Entrance;
use crate::context::Context;

type Handler = fn() -> MethodRouter<Arc<Context>>;

pub(crate) const ROUTES: &[(&str, &str, Handler)] = &[];

pub(crate) fn with_pages(router: Router<Arc<Context>>, _: &Arc<Context>, _: Entrance) -> Router<Arc<Context>> {
    router
}

/// There are no pages.
pub(crate) fn absent(_: &Context, _: &Request) -> Option<Response> {
    None
}
