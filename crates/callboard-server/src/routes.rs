//! The server, and the table of its routes.

use std::collections::BTreeMap;
use std::io;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::Uri;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use callboard::Callboard;
use callboard::messages::{Action, visible};
use futures::FutureExt as _;
use tokio::sync::watch;

use crate::access::{self, Access, Entrance};
use crate::agent_files::AgentFiles;
use crate::audit::{self, Audit};
use crate::context::Context;
use crate::figures::{self, Measured};
use crate::inbox::Changed;
use crate::limits::HttpLimits;
use crate::origins::{OriginError, Origins};
use crate::problem::{Problem, ProblemCode, method_not_allowed};
use crate::proxies::Network;
use crate::tokens::{Scope, Tokens};
use crate::{
    agent_inboxes, agents, dashboard, decisions, delegations, entries, events, inbox, knowledge, lists, mcp, openapi,
    people, runs, schedules, watching, workflows,
};

/// A route of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// `GET`, `POST`, `PUT`, `PATCH` or `DELETE`.
    pub method: &'static str,
    /// The path, with its parameters in braces.
    pub path: &'static str,
    /// Who may use it.
    pub access: Access,
}

/// HTTP over a board.
#[derive(Clone)]
pub struct Server {
    pub(crate) context: Arc<Context>,
}

type Handler = fn() -> MethodRouter<Arc<Context>>;

/// The routes with their handlers. The router is made of it, so that no route is without an entry.
const TABLE: &[(Route, Handler)] = &[
    (get("/v1/health", Access::Open), || on(MethodFilter::GET, agents::health)),
    (get("/v1/ready", Access::Open), || on(MethodFilter::GET, agents::ready)),
    (get("/v1/openapi.json", Access::Open), || on(MethodFilter::GET, openapi::get)),
    (get("/v1/agents", Access::Scope(Scope::Read)), || on(MethodFilter::GET, agents::list)),
    (post("/v1/agents/{name}/restart", Access::Scope(Scope::Admin)), || on(MethodFilter::POST, agents::restart)),
    (post("/v1/agents/{name}/stop", Access::Scope(Scope::Admin)), || on(MethodFilter::POST, agents::stop)),
    (get("/v1/agents/{name}/inbox", Access::Scope(Scope::Read)), || on(MethodFilter::GET, agent_inboxes::read)),
    (get("/v1/tree", Access::Scope(Scope::Admin)), || on(MethodFilter::GET, agents::tree)),
    (get("/v1/agents/{name}/events", Access::Scope(Scope::Read)), || on(MethodFilter::GET, watching::agent)),
    (get("/v1/tree/events", Access::Scope(Scope::Admin)), || on(MethodFilter::GET, watching::tree)),
    (get("/v1/workflows", Access::Scope(Scope::Read)), || on(MethodFilter::GET, workflows::list)),
    (put("/v1/workflows/{name}", Access::Scope(Scope::Admin)), || on(MethodFilter::PUT, workflows::save)),
    (get("/v1/workflows/{name}/versions", Access::Scope(Scope::Read)), || on(MethodFilter::GET, workflows::versions)),
    (get("/v1/workflows/{name}/drawing", Access::Scope(Scope::Read)), || on(MethodFilter::GET, workflows::drawing)),
    (get("/v1/context/{namespace}", Access::Scope(Scope::Read)), || on(MethodFilter::GET, entries::list)),
    (get("/v1/context/{namespace}/{key}", Access::Scope(Scope::Read)), || on(MethodFilter::GET, entries::get)),
    (put("/v1/context/{namespace}/{key}", Access::Scope(Scope::Delegate)), || on(MethodFilter::PUT, entries::set)),
    (delete("/v1/context/{namespace}/{key}", Access::Scope(Scope::Delegate)), || {
        on(MethodFilter::DELETE, entries::delete)
    }),
    (get("/v1/delegations", Access::Scope(Scope::Read)), || on(MethodFilter::GET, lists::runs)),
    (get("/v1/runs", Access::Scope(Scope::Read)), || on(MethodFilter::GET, lists::runs)),
    (get("/v1/dead-letters", Access::Scope(Scope::Read)), || on(MethodFilter::GET, lists::dead_letters)),
    (post("/v1/delegations", Access::Scope(Scope::Delegate)), || on(MethodFilter::POST, delegations::create)),
    (get("/v1/delegations/{id}", Access::Scope(Scope::Read)), || on(MethodFilter::GET, delegations::get)),
    (patch("/v1/delegations/{id}", Access::Scope(Scope::Delegate)), || on(MethodFilter::PATCH, delegations::change)),
    (post("/v1/delegations/{id}/cancel", Access::Scope(Scope::Delegate)), || {
        on(MethodFilter::POST, delegations::cancel)
    }),
    (get("/v1/delegations/{id}/events", Access::Scope(Scope::Read)), || on(MethodFilter::GET, events::stream)),
    (get("/v1/runs/{id}", Access::Scope(Scope::Read)), || on(MethodFilter::GET, delegations::get)),
    (get("/v1/runs/{id}/events", Access::Scope(Scope::Read)), || on(MethodFilter::GET, events::stream)),
    (get("/v1/runs/{id}/history", Access::Scope(Scope::Read)), || on(MethodFilter::GET, runs::history)),
    (get("/v1/runs/{id}/tree", Access::Scope(Scope::Read)), || on(MethodFilter::GET, runs::tree)),
    (post("/v1/runs/{id}/resume", Access::Scope(Scope::Approve)), || on(MethodFilter::POST, runs::resume)),
    (get("/v1/usage", Access::Scope(Scope::Read)), || on(MethodFilter::GET, lists::usage)),
    (get("/v1/metrics", Access::Scope(Scope::Read)), || on(MethodFilter::GET, figures::get)),
    (post("/v1/delegations/{id}/retry", Access::Scope(Scope::Delegate)), || on(MethodFilter::POST, delegations::retry)),
    (post("/v1/delegations/{id}/fork", Access::Scope(Scope::Delegate)), || on(MethodFilter::POST, delegations::fork)),
    (get("/delegation-status", Access::Scope(Scope::Read)), || on(MethodFilter::GET, delegations::status)),
    (get("/delegation-stream", Access::Scope(Scope::Read)), || on(MethodFilter::GET, events::stream_of_query)),
    (get("/v1/schedules", Access::Scope(Scope::Read)), || on(MethodFilter::GET, schedules::list)),
    (post("/v1/schedules", Access::Scope(Scope::Delegate)), || on(MethodFilter::POST, schedules::create)),
    (get("/v1/schedules/{name}", Access::Scope(Scope::Read)), || on(MethodFilter::GET, schedules::get)),
    (delete("/v1/schedules/{name}", Access::Scope(Scope::Delegate)), || on(MethodFilter::DELETE, schedules::delete)),
    (post("/v1/schedules/{name}/pause", Access::Scope(Scope::Delegate)), || on(MethodFilter::POST, schedules::pause)),
    (post("/v1/schedules/{name}/resume", Access::Scope(Scope::Delegate)), || on(MethodFilter::POST, schedules::resume)),
    (post("/v1/schedules/{name}/run", Access::Scope(Scope::Delegate)), || on(MethodFilter::POST, schedules::run)),
    (post("/v1/webhooks/{name}", Access::Signature), || on(MethodFilter::POST, schedules::webhooks::deliver)),
    (get("/v1/inbox", Access::Scope(Scope::Read)), || on(MethodFilter::GET, inbox::list)),
    (get("/v1/inbox/events", Access::Scope(Scope::Read)), || on(MethodFilter::GET, inbox::events)),
    (post("/v1/inbox/decisions", Access::Scope(Scope::Read)), || on(MethodFilter::POST, inbox::decide)),
    (get("/v1/inbox/{id}", Access::Scope(Scope::Read)), || on(MethodFilter::GET, inbox::get)),
    (get("/v1/pending", Access::Scope(Scope::Read)), || on(MethodFilter::GET, people::list)),
    (post("/v1/pending/{id}", Access::Scope(Scope::Approve)), || on(MethodFilter::POST, people::answer)),
];

/// All routes, with those of other rooms.
fn table() -> impl Iterator<Item = (Route, Handler)> {
    let access = Access::Scope(Scope::Read);
    let of_mcp =
        mcp::METHODS.iter().map(move |(method, handler)| (Route { method, path: mcp::PATH, access }, *handler));
    let of_facts = knowledge::ROUTES.iter().map(|(method, path, scope, handler)| {
        let access = Access::Scope(*scope);
        (Route { method, path, access }, *handler)
    });
    let of_pages = dashboard::ROUTES
        .iter()
        .map(|(method, path, handler)| (Route { method, path, access: Access::Private }, *handler));
    let of_webhooks = decisions::ROUTES
        .iter()
        .map(|(method, path, handler)| (Route { method, path, access: Access::Signature }, *handler));
    TABLE.iter().copied().chain(of_facts).chain(of_pages).chain(of_mcp).chain(of_webhooks)
}

const fn get(path: &'static str, access: Access) -> Route {
    Route { method: "GET", path, access }
}

const fn post(path: &'static str, access: Access) -> Route {
    Route { method: "POST", path, access }
}

const fn put(path: &'static str, access: Access) -> Route {
    Route { method: "PUT", path, access }
}

const fn patch(path: &'static str, access: Access) -> Route {
    Route { method: "PATCH", path, access }
}

const fn delete(path: &'static str, access: Access) -> Route {
    Route { method: "DELETE", path, access }
}

impl Server {
    /// Creates a server over a board. Requests are answered if their header `Host` is a name of this machine for itself:
    /// `localhost`, `127.0.0.1` or `[::1]`, with any port. The clock is that of the tokens.
    #[must_use]
    pub fn new(board: Callboard, tokens: Tokens) -> Self {
        Self { context: Arc::new(Context::new(board, tokens, Origins::loopback())) }
    }

    /// Adds an origin under which clients reach the server, such as `https://agents.example.org`: requests for its host are
    /// answered, and pages of this origin may send requests.
    ///
    /// # Errors
    /// The text is not `http://HOST` or `https://HOST`, with or without a port.
    pub fn public_origin(self, origin: &str) -> Result<Self, OriginError> {
        let origins = self.context.origins.clone().with(origin)?;
        Ok(Self { context: Arc::new(self.context.renewed(origins)) })
    }

    /// Checks an origin for [`Server::public_origin`], before there is a server.
    ///
    /// # Errors
    /// As for that.
    pub fn check_origin(origin: &str) -> Result<(), OriginError> {
        Origins::loopback().with(origin).map(drop)
    }

    /// Records each request that changes something, and each that is refused, in a file of JSON lines with mode 0600: `at`, `who` (the
    /// token), `person`, `from`, `method`, `path`, `status` and `code`. Requests without a known token are in the file with `.refused` after its
    /// name. A file of 16 MiB is rotated, and four older ones are kept. The same is sent to the `tracing` target
    /// `callboard::audit`, also without a file.
    ///
    /// # Errors
    /// A file cannot be opened.
    pub fn audit_file(self, path: &Path) -> io::Result<Self> {
        let audit = Arc::new(Audit::open(path)?);
        Ok(Self { context: Arc::new(Context { audit, ..self.context.renewed(self.context.origins.clone()) }) })
    }

    /// Sets limits of requests and connections.
    #[must_use]
    pub fn limits(self, limits: HttpLimits) -> Self {
        let renewed = self.context.renewed(self.context.origins.clone());
        Self { context: Arc::new(Context { limits, ..renewed }) }
    }

    /// Names the proxies before the server. The audit log has the address that they report in the header `X-Forwarded-For`; from all
    /// others that header is ignored.
    #[must_use]
    pub fn trusted_proxies(self, proxies: impl IntoIterator<Item = Network>) -> Self {
        let renewed = self.context.renewed(self.context.origins.clone());
        Self { context: Arc::new(Context { proxies: proxies.into_iter().collect(), ..renewed }) }
    }

    /// Names the people whose tokens these are. Decisions and the audit log name the person of a token, and all tokens of a person
    /// have one limit of event streams and of requests a minute.
    #[must_use]
    pub fn people(self, tokens: impl IntoIterator<Item = (String, String)>) -> Self {
        let people = tokens.into_iter().map(|(token, person)| (token, person.into())).collect();
        let renewed = self.context.renewed(self.context.origins.clone());
        Self { context: Arc::new(Context { people: Arc::new(people), ..renewed }) }
    }

    /// Names where the agents are from, now and later: `/v1/agents` shows which are built in, and which files are not used as they are.
    #[must_use]
    pub fn agent_files(self, files: watch::Receiver<AgentFiles>) -> Self {
        let renewed = self.context.renewed(self.context.origins.clone());
        Self { context: Arc::new(Context { files: Some(files), ..renewed }) }
    }

    /// Sets what reads the text that an action would change, such as that of the file which a tool writes: those who may decide about
    /// the action see line by line what it changes, or why that cannot be shown (`Err`). It may block, and is called once for an
    /// approval in two seconds.
    #[must_use]
    pub fn changed_texts(
        self,
        read: impl Fn(&Action) -> Option<Result<String, String>> + Send + Sync + 'static,
    ) -> Self {
        let renewed = self.context.renewed(self.context.origins.clone());
        Self { context: Arc::new(Context { changed: Changed::by(read), ..renewed }) }
    }

    /// Adds text for Prometheus to the figures at `/v1/metrics`, such as that of the recorder which the process has for the
    /// feature `metrics` of callboard.
    #[must_use]
    pub fn measured(self, text: impl Fn() -> String + Send + Sync + 'static) -> Self {
        let measured = Some(Arc::new(text) as Measured);
        let context = Context { measured, ..self.context.renewed(self.context.origins.clone()) };
        Self { context: Arc::new(context) }
    }

    /// Refuses approvals, answers and other decisions while `why` returns a reason, which is shown to the caller: for a machine on which
    /// programs of agents could send them.
    #[must_use]
    pub fn refuse_decisions(self, why: fn() -> Option<String>) -> Self {
        let renewed = self.context.renewed(self.context.origins.clone());
        Self { context: Arc::new(Context { refuses_decisions: why, ..renewed }) }
    }

    /// All routes, each with who may use it.
    pub fn routes() -> impl Iterator<Item = Route> {
        table().map(|(route, _)| route)
    }

    /// Returns the routes as a router, to be served, or mounted in another with `nest` (`merge` would have it answer all paths
    /// that the other does not know). Limits of headers and connections are those of what serves it; [`Server::serve`] has some.
    /// Event streams end with their delegation, their token or the board.
    pub fn router(&self) -> Router {
        self.routed(Entrance::Network)
    }

    /// The same for processes of this user, whose requests need no name and no token.
    #[cfg(unix)]
    pub(crate) fn private_router(&self) -> Router {
        self.routed(Entrance::Private)
    }

    fn routed(&self, entrance: Entrance) -> Router {
        let context = &self.context;
        let around = from_fn_with_state((Arc::clone(context), entrance), around);
        self.routes_of(entrance).layer(around).with_state(Arc::clone(context))
    }

    fn routes_of(&self, entrance: Entrance) -> Router<Arc<Context>> {
        let mut paths: BTreeMap<&str, (MethodRouter<Arc<Context>>, Vec<&str>)> = BTreeMap::new();
        let is_here = |access: Access| access != Access::Private || entrance != Entrance::Network;
        for (route, handler) in table().filter(|(route, _)| is_here(route.access)) {
            let guard = access::Guard { context: Arc::clone(&self.context), access: route.access, entrance };
            let handler = handler().layer(from_fn_with_state(guard, access::authorize));
            let (methods, names) = paths.entry(route.path).or_default();
            *methods = std::mem::take(methods).merge(handler);
            names.push(route.method);
            if route.method == "GET" {
                names.push("HEAD");
            }
        }
        let mut router = Router::new();
        for (path, (methods, names)) in paths {
            let allowed = names.join(", ");
            let refused = move |uri: Uri| std::future::ready(method_not_allowed(uri.path(), &allowed));
            router = router.route(path, methods.fallback(refused));
        }
        dashboard::with_pages(mcp::with_sessions(router), &self.context, entrance).fallback(unknown_path)
    }
}

async fn unknown_path(State(context): State<Arc<Context>>, request: Request) -> Response {
    let problem = || Problem::not_found(format!("there is no {}", visible(request.uri().path()))).into_response();
    dashboard::absent(&context, &request).unwrap_or_else(problem)
}

/// What is around each request: it is for this server, bounded in time and recorded, also if a handler panics. One layer does it all:
/// each would have cloned and boxed those within it, for each request.
async fn around(
    State((context, entrance)): State<(Arc<Context>, Entrance)>,
    mut request: Request,
    next: Next,
) -> Response {
    let recorded = audit::begin(&context, &mut request);
    request.extensions_mut().insert(context.limits);
    let answer = async {
        match access::check_origin(&context, entrance, &request) {
            Ok(()) => next.run(request).await,
            Err(problem) => problem.into_response(),
        }
    };
    let time = context.limits.answer_time;
    let response = match tokio::time::timeout(time, AssertUnwindSafe(answer).catch_unwind()).await {
        Ok(Ok(response)) => response,
        Ok(Err(_)) => Problem::internal(&"a handler has panicked").into_response(),
        Err(_) => {
            let detail =
                format!("there was no answer within {} s: it is not known whether it was carried out", time.as_secs());
            Problem::new(ProblemCode::Unavailable, detail).into_response()
        }
    };
    let response = match &context.dashboard {
        Some(dashboard) => dashboard.protected(response),
        None => response,
    };
    let (status, code) = (response.status(), response.extensions().get::<ProblemCode>().copied());
    context.answered.count(status, code);
    recorded.answered(&response);
    response
}
