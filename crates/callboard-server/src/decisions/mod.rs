//! Decisions that receivers of webhooks send back: signed requests without a token, which the channel of the webhooks checks and carries out.
//!
//! `handler` has the route, `receiver` what takes decisions, and `serving` the method of the server that sets it.

mod handler;
pub(crate) mod receiver;
mod serving;

use std::sync::Arc;

use axum::routing::{MethodFilter, MethodRouter, on};

use crate::context::Context;

type Handler = fn() -> MethodRouter<Arc<Context>>;

pub(crate) const ROUTES: &[(&str, &str, Handler)] =
    &[("POST", "/v1/channels/webhooks/{name}", || on(MethodFilter::POST, handler::receive))];
