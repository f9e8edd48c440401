//! Who is signed in, and who a request is of. It knows the tokens, and nothing of the board.

use axum::extract::Request;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderName, HeaderValue, Method};
use axum::response::Response;

use super::cookies;
use super::links::Links;
use super::origin::{DashboardError, PageOrigin, PagesAt};
use super::sessions::{self, BrowserSessions};
use crate::problem::{Problem, ProblemCode};
use crate::tokens::{Caller, Tokens};

/// Who is signed in, and where the pages are.
pub(crate) struct Dashboard {
    pub(super) origin: PageOrigin,
    pub(super) links: Links,
    pub(super) sessions: BrowserSessions,
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
    pub(super) fn open(at: &PagesAt, tokens: &Tokens) -> Result<Self, DashboardError> {
        let (origin, sessions) = (PageOrigin::open(at, tokens)?, BrowserSessions::open(tokens)?);
        Ok(Self { origin, links: Links::default(), sessions, tokens: tokens.clone() })
    }

    /// Who sent a request, by the cookie of their session; `None` if it has none, or is not to the pages' host, or not below `/v1` or `/parts`.
    /// A request of another page is refused; `refused` gets whose session it had, if it had one.
    pub(crate) fn caller(
        &self,
        request: &Request,
        refused: impl FnOnce(&mut Caller),
    ) -> Result<Option<Caller>, Problem> {
        let path = request.uri().path();
        if !["/v1/", "/parts/"].iter().any(|begin| path.starts_with(begin)) {
            return Ok(None);
        }
        let Some(secret) = self.secret(request) else { return Ok(None) };
        self.origin.check_site(request.headers())?;
        let mut caller = self.signed_in(secret)?;
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            let origin = self.origin.check_origin(request.headers());
            let checked = origin.and_then(|()| sessions::check_csrf(secret, request.headers()));
            checked.inspect_err(|_| refused(&mut caller))?;
        }
        Ok(Some(caller))
    }

    /// The secret of the session that a request to the pages' host has.
    pub(super) fn secret<'r>(&self, request: &'r Request) -> Option<&'r str> {
        let is_to_pages = self.origin.is_host_of(request.uri(), request.headers());
        cookies::secret(request.headers(), self.origin.is_secure()).filter(|_| is_to_pages)
    }

    /// Who is signed in with this secret.
    pub(super) fn signed_in(&self, secret: &str) -> Result<Caller, Problem> {
        let ended = || Problem::new(ProblemCode::Unauthenticated, "the session has ended: sign in again");
        let (session, token) = self.sessions.find(secret, self.tokens.now()).ok_or_else(ended)?;
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
