//! How sessions begin and end: links for a process of this user, and what pages send.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::SET_COOKIE;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use callboard::messages::visible;
use serde::Deserialize;
use serde_json::{Value, json};

use super::state::Dashboard;
use super::{cookies, links, sessions};
use crate::audit::Sender;
use crate::body::{Body, read};
use crate::context::{Context, Shared};
use crate::json::time;
use crate::limits::HttpLimits;
use crate::problem::{Problem, ProblemCode};
use crate::tokens::Caller;

/// The most bytes that the page of a link sends: nobody is known yet who sends them.
const MAX_BODY: usize = 1024;

/// Whose link a process of this user asks for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    /// A token; without it the session is that of this user.
    #[serde(default)]
    token: Option<String>,
}

/// What the page of a link sends.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Used {
    secret: String,
}

/// The pages, if the server has them.
fn pages(context: &Context) -> Result<&Dashboard, Problem> {
    let absent = || Problem::not_found("this server has no pages");
    context.dashboard.as_deref().ok_or_else(absent)
}

/// Makes a link, for a process of this user.
pub(super) async fn link(State(context): Shared, Body(asked): Body<Asked>) -> Result<Json<Value>, Problem> {
    let (dashboard, now) = (pages(&context)?, context.now());
    let failed = |error| Problem::of_tokens(&error);
    let token = match &asked.token {
        None => Some(Caller::owner().token()),
        Some(name) => context.tokens.token(name).map_err(failed)?,
    };
    let unknown = || {
        let name = asked.token.as_deref().map(visible).unwrap_or_default();
        Problem::not_found(format!("there is no token {name}"))
    };
    let token = token.ok_or_else(unknown)?;
    let caller = context.tokens.named(&token).map_err(failed)?.map_err(Problem::not_found)?;
    let secret = dashboard.links.make(token, now).map_err(failed)?;
    Ok(Json(json!({
        "url": format!("{}/sign-in#{secret}", dashboard.origin.as_str()),
        "name": caller.name,
        "person": context.people.get(&*caller.name),
        "scopes": caller.scopes,
        "expires_at": time(now + links::LIFETIME),
    })))
}

/// Ends all links and sessions, for a process of this user.
pub(super) async fn revoke(State(context): Shared) -> Result<Json<Value>, Problem> {
    let (dashboard, now) = (pages(&context)?, context.now());
    let links = dashboard.links.end_all(now);
    let sessions = dashboard.sessions.end_all(now).map_err(|error| Problem::of_tokens(&error))?;
    Ok(Json(json!({ "links": links, "sessions": sessions })))
}

/// Begins a session with the secret of a link. The browser gets a new id, whatever cookie it had.
pub(super) async fn sign_in(
    State(context): Shared,
    Extension(sender): Extension<Sender>,
    mut request: Request,
) -> Result<Response, Problem> {
    let (dashboard, now) = (pages(&context)?, context.now());
    check_page(dashboard, &request)?;
    let before = dashboard.secret(&request).map(str::to_owned);
    request.extensions_mut().insert(HttpLimits { body_bytes: MAX_BODY, ..context.limits });
    let used = read(request).await?;
    let Used { secret } = serde_json::from_value(used).map_err(|error| Problem::bad(format!("the body: {error}")))?;
    let unknown = || Problem::new(ProblemCode::Unauthenticated, "the link was used, has expired or was revoked");
    let token = dashboard.links.take(&secret, now).ok_or_else(unknown)?;
    let failed = |error| Problem::of_tokens(&error);
    let caller = context.tokens.named(&token).map_err(failed)?;
    let caller = caller.map_err(|why| Problem::new(ProblemCode::Unauthenticated, why))?;
    sender.is(&known(&context, caller));
    let secret = dashboard.sessions.begin(token, before.as_deref(), now).map_err(failed)?;
    Ok(with_cookie(dashboard, &secret, sessions::LIFETIME))
}

/// Ends the session of a page, and its event streams.
pub(super) async fn sign_out(
    State(context): Shared,
    Extension(sender): Extension<Sender>,
    request: Request,
) -> Result<Response, Problem> {
    let dashboard = pages(&context)?;
    check_page(dashboard, &request)?;
    let nobody = || Problem::new(ProblemCode::Unauthenticated, "nobody is signed in");
    let secret = dashboard.secret(&request).ok_or_else(nobody)?;
    let caller = dashboard.signed_in(secret)?;
    sessions::check_csrf(secret, request.headers())?;
    if let Some(session) = &caller.session {
        dashboard.sessions.end(session).map_err(|error| Problem::of_tokens(&error))?;
    }
    sender.is(&known(&context, caller));
    Ok(with_cookie(dashboard, "", std::time::Duration::ZERO))
}

/// Answers whether the browser has a session: a page that was opened from another site has been sent without its cookie, and asks.
pub(super) async fn session(State(context): Shared, request: Request) -> Result<StatusCode, Problem> {
    let dashboard = pages(&context)?;
    dashboard.origin.check_site(request.headers())?;
    let is_signed_in = dashboard.secret(&request).is_some_and(|secret| dashboard.signed_in(secret).is_ok());
    // No problem: what is asked has an answer.
    Ok(if is_signed_in { StatusCode::NO_CONTENT } else { StatusCode::OK })
}

/// The caller with the person whose token it is.
pub(super) fn known(context: &Context, mut caller: Caller) -> Caller {
    caller.person = context.people.get(&*caller.name).cloned();
    caller
}

/// Refuses what is not sent by a page of this server to the host of the pages.
fn check_page(dashboard: &Dashboard, request: &Request) -> Result<(), Problem> {
    if !dashboard.origin.is_host_of(request.uri(), request.headers()) {
        return Err(Problem::not_found("the pages are not on this name of the server"));
    }
    dashboard.origin.check_origin(request.headers())
}

fn with_cookie(dashboard: &Dashboard, secret: &str, kept: std::time::Duration) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    if let Some(cookie) = cookies::set(secret, dashboard.origin.is_secure(), kept) {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
    response
}
