//! What stands in for the room `decisions` where its feature is off: no routes.

pub(crate) mod receiver;

use std::sync::Arc;

use axum::routing::MethodRouter;

use crate::context::Context;

type Handler = fn() -> MethodRouter<Arc<Context>>;

pub(crate) const ROUTES: &[(&str, &str, Handler)] = &[];
