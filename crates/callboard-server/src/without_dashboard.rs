//! What stands in for the room `dashboard` where its feature is off: no pages, and no sessions.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::MethodRouter;

use crate::access::Entrance;
use crate::context::Context;
use crate::problem::Problem;
use crate::tokens::Caller;

type Handler = fn() -> MethodRouter<Arc<Context>>;

pub(crate) const ROUTES: &[(&str, &str, Handler)] = &[];

/// The pages, of which there are none.
pub(crate) enum Dashboard {}

impl Dashboard {
    pub(crate) fn caller(&self, _: &Context, _: &Request) -> Result<Option<Caller>, Problem> {
        match *self {}
    }

    pub(crate) async fn ended(&self, _: &[u8; 32]) {
        match *self {}
    }

    pub(crate) fn protected(&self, _: Response) -> Response {
        match *self {}
    }
}

pub(crate) fn with_pages(router: Router<Arc<Context>>, _: &Arc<Context>, _: Entrance) -> Router<Arc<Context>> {
    router
}
