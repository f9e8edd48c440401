//! What stands in for the room `decisions` where its feature is off: no routes.

use std::sync::Arc;

use axum::routing::MethodRouter;

use crate::context::Context;

type Handler = fn() -> MethodRouter<Arc<Context>>;

pub(crate) mod receiver {
    pub(crate) type Receiver = ();
}

pub(crate) const ROUTES: &[(&str, &str, Handler)] = &[];
