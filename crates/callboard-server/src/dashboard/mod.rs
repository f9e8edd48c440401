//! Pages for people in a browser. A person signs in with a link that a process of this user asks for over the private socket, and has a
//! session from then on: a cookie, which authenticates the pages and the routes below `/v1`.
//!
//! `links` and `sessions` have who may sign in and who has, and `state` finds who a request is of; `origin` has the one origin that the pages are on, and which requests are from it;
//! `sign_in` has the routes by which sessions begin and end, `pages` the frame of each page and the overview, `runs` the list of runs, `run` the pages of
//! one, `measured` figures of a recorder, and `assets` the script and the stylesheet; the others are pages of these names. What is
//! shown of agents is untrusted: `pages` makes it visible (`callboard_text`), and maud escapes it.

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodFilter, MethodRouter, get, on, post};

use crate::access::{Access, Entrance, Guard, authorize};
use crate::context::Context;
use crate::tokens::Scope;

mod agent;
mod agents;
mod assets;
mod audit;
mod context;
mod cookies;
mod handoffs;
mod kept;
mod links;
mod live;
mod measured;
mod origin;
mod overview;
mod pages;
mod run;
mod runs;
mod schedules;
mod serving;
mod sessions;
mod sign_in;
pub(crate) mod state;
mod tokens;
mod usage;
mod workflows;

pub use origin::{DashboardError, PagesAt};
pub(crate) use pages::absent;

type Handler = fn() -> MethodRouter<Arc<Context>>;

/// The routes for processes of this user: method, path and handler.
pub(crate) const ROUTES: &[(&str, &str, Handler)] = &[
    ("POST", "/v1/sign-in", || on(MethodFilter::POST, sign_in::link)),
    ("DELETE", "/v1/sign-in", || on(MethodFilter::DELETE, sign_in::revoke)),
];

/// Adds the pages to a router for clients over the network.
pub(crate) fn with_pages(
    router: Router<Arc<Context>>,
    context: &Arc<Context>,
    entrance: Entrance,
) -> Router<Arc<Context>> {
    if context.dashboard.is_none() || entrance != Entrance::Network {
        return router;
    }
    let guard = Guard { context: Arc::clone(context), access: Access::Scope(Scope::Read), entrance };
    let parts = Router::new()
        .route("/parts/overview", get(pages::overview_part))
        .route("/parts/whole", get(pages::whole))
        .route("/parts/ended", get(pages::ended))
        .route("/parts/agents", get(agents::part))
        .route("/parts/arguments", get(pages::arguments))
        .route("/parts/events", get(live::events))
        .route("/parts/run", get(run::part))
        .route("/parts/workflow", get(workflows::drawing))
        .route("/parts/run/moment", get(run::moment::part))
        .route("/parts/run/drawing", get(run::drawing))
        .route("/parts/run/events", get(run::events))
        .layer(from_fn_with_state(guard, authorize));
    router
        .merge(parts)
        .route("/", get(pages::overview))
        .route("/agents", get(agents::page))
        .route("/agents/{name}", get(agent::page))
        .route("/files", get(agent::files))
        .route("/audit", get(audit::page))
        .route("/context", get(context::page))
        .route("/handoffs", get(handoffs::page))
        .route("/runs", get(runs::page))
        .route("/schedules", get(schedules::page))
        .route("/tokens", get(tokens::page))
        .route("/usage", get(usage::page))
        .route("/workflows", get(workflows::page))
        .route("/workflows/{name}", get(workflows::one))
        .route("/runs/{id}", get(run::page))
        .route("/runs/{id}/journal", get(run::moment::page))
        .route("/runs/{id}/nodes", get(run::nodes::page))
        .route("/runs/{id}/turns/{number}", get(run::turn::page))
        .route("/sign-in", get(pages::sign_in).post(sign_in::sign_in))
        .route("/sign-out", post(sign_in::sign_out))
        .route("/session", get(sign_in::session))
        .route("/assets/{name}", get(assets::get))
}
