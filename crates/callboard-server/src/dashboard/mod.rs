//! Pages for people in a browser. A person signs in with a link that a process of this user asks for over the private socket, and has a
//! session from then on: a cookie, which authenticates the pages and the routes below `/v1`.
//!
//! `links` and `sessions` decide who a request is of; `origin` has the one origin that the pages are on, and which requests are from it;
//! `sign_in` has the routes by which sessions begin and end, `pages` what is shown, and `assets` the script and the stylesheet. What is
//! shown of agents is untrusted: `pages` makes it visible (`callboard_text`), and maud escapes it.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, get, on, post};
use axum::{Router, http::Method};

use crate::access::{Access, Entrance, Guard, authorize};
use crate::context::Context;
use crate::origins::OriginError;
use crate::problem::{Problem, ProblemCode};
use crate::routes::Server;
use crate::tokens::{Caller, Scope, TokenError, Tokens};

mod assets;
mod cookies;
mod kept;
mod links;
mod live;
mod origin;
mod overview;
mod pages;
mod sessions;
mod sign_in;

use links::Links;
use origin::PageOrigin;
use sessions::Sessions;

/// Where the pages are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PagesAt {
    /// On a name of this machine for itself that nothing else has: `http://cb-….localhost:PORT`. Browsers send a cookie to all ports of a
    /// host, so `localhost` and `127.0.0.1` would share it with every other local program. The name is random, and is kept beside
    /// the tokens.
    Loopback {
        /// The port of the server.
        port: u16,
        /// Whether the server answers HTTPS.
        has_tls: bool,
    },
    /// On this origin, such as `https://agents.example.org`.
    Origin(String),
}

/// Why a server has no pages.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DashboardError {
    /// The text is no origin.
    #[error(transparent)]
    Origin(#[from] OriginError),
    /// The name of the pages, or the sessions, cannot be read or written beside the tokens.
    #[error(transparent)]
    Kept(#[from] TokenError),
}

impl Server {
    /// Has pages for people, at the root of this server. A process of this user gets links to sign in over the private socket
    /// (`POST /v1/sign-in`). Sessions are kept beside the tokens, so people stay signed in when the server starts again; with tokens in memory
    /// they are in memory too.
    ///
    /// # Errors
    /// See [`DashboardError`].
    pub fn dashboard(self, at: &PagesAt) -> Result<Self, DashboardError> {
        let tokens = self.context.tokens.clone();
        let origin = PageOrigin::open(at, &tokens)?;
        let origins = self.context.origins.clone().with(origin.as_str())?;
        let dashboard = Dashboard { origin, links: Links::default(), sessions: Sessions::open(&tokens)?, tokens };
        let dashboard = Some(Arc::new(dashboard));
        Ok(Self { context: Arc::new(Context { dashboard, ..self.context.renewed(origins) }) })
    }

    /// Returns the origin of the pages, as `http://cb-….localhost:7420`; `None` if there are none.
    #[must_use]
    pub fn pages(&self) -> Option<&str> {
        self.context.dashboard.as_ref().map(|dashboard| dashboard.origin.as_str())
    }
}

/// Who is signed in, and where the pages are.
pub(crate) struct Dashboard {
    origin: PageOrigin,
    links: Links,
    sessions: Sessions,
    tokens: Tokens,
}

/// What a browser may do with a page: load files of this server alone, and be framed by nothing.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The headers that each response has, unless it has others of these names.
const HEADERS: [(HeaderName, &str); 6] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
    (CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (X_FRAME_OPTIONS, "DENY"),
];

impl Dashboard {
    /// Who sent a request, by the cookie of their session; `None` if it has none, or is not to the pages' host, or not below `/v1` or `/parts`.
    /// A request of another page is refused.
    pub(crate) fn caller(&self, context: &Context, request: &Request) -> Result<Option<Caller>, Problem> {
        let path = request.uri().path();
        if !["/v1/", "/parts/"].iter().any(|begin| path.starts_with(begin)) {
            return Ok(None);
        }
        let Some(secret) = self.secret(request) else { return Ok(None) };
        self.origin.check_site(request.headers())?;
        let caller = self.signed_in(context, secret)?;
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            self.origin.check_origin(request.headers())?;
            sessions::check_csrf(secret, request.headers())?;
        }
        Ok(Some(caller))
    }

    /// The secret of the session that a request to the pages' host has.
    fn secret<'r>(&self, request: &'r Request) -> Option<&'r str> {
        let is_to_pages = self.origin.is_host_of(request.uri(), request.headers());
        cookies::secret(request.headers(), self.origin.is_secure()).filter(|_| is_to_pages)
    }

    /// Who is signed in with this secret.
    fn signed_in(&self, context: &Context, secret: &str) -> Result<Caller, Problem> {
        let ended = || Problem::new(ProblemCode::Unauthenticated, "the session has ended: sign in again");
        let (session, token) = self.sessions.find(secret, context.now()).ok_or_else(ended)?;
        match self.tokens.named(&token).map_err(|error| Problem::of_tokens(&error))? {
            Ok(mut caller) => {
                caller.session = Some(session);
                Ok(caller)
            }
            Err(why) => {
                self.sessions.end(&session).map_err(|error| Problem::of_tokens(&error))?;
                Err(Problem::new(ProblemCode::Unauthenticated, format!("{why}: sign in again")))
            }
        }
    }

    /// Returns once a session has ended.
    pub(crate) async fn ended(&self, session: &[u8; 32]) {
        self.sessions.ended(session, || self.tokens.now()).await;
    }

    /// The response with what protects its reader.
    #[expect(clippy::unused_self, reason = "a server without pages has no such response")]
    pub(crate) fn protected(&self, mut response: Response) -> Response {
        let headers = response.headers_mut();
        for (name, value) in HEADERS {
            headers.entry(name).or_insert(HeaderValue::from_static(value));
        }
        response
    }
}

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
        .route("/parts/events", get(live::events))
        .layer(from_fn_with_state(guard, authorize));
    router
        .merge(parts)
        .route("/", get(pages::overview))
        .route("/sign-in", get(pages::sign_in).post(sign_in::sign_in))
        .route("/sign-out", post(sign_in::sign_out))
        .route("/session", get(sign_in::session))
        .route("/assets/{name}", get(assets::get))
}
