//! Which requests are answered: those for this server's own names, with a token that has the scope of the route.

use std::sync::Arc;

use axum::body::HttpBody as _;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::audit::Sender;
use crate::context::Context;

use crate::problem::{Problem, ProblemCode};
use crate::query::pairs;
use crate::tokens::{Caller, Scope};

/// Who may use a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Everybody, also without a token.
    Open,
    /// Those whose token has this scope.
    Scope(Scope),
    /// Those whose request is signed with the secret of a webhook. It has no token.
    Signature,
    /// Processes of this user, over the private socket: it does not exist for others, whatever token they have.
    Private,
}

/// How requests arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entrance {
    /// From anywhere: each names the server, and has a token.
    Network,
    /// From processes of this user, by a connection that nobody else can have.
    #[cfg(unix)]
    Private,
}

/// Refuses requests for other names.
pub(crate) fn check_origin(context: &Context, entrance: Entrance, request: &Request) -> Result<(), Problem> {
    match entrance {
        Entrance::Network => context.origins.check(request.uri(), request.headers()),
        #[cfg(unix)]
        Entrance::Private => Ok(()),
    }
}

/// Who may use the routes that it is before.
#[derive(Clone)]
pub(crate) struct Guard {
    pub(crate) context: Arc<Context>,
    pub(crate) access: Access,
    pub(crate) entrance: Entrance,
}

impl Guard {
    /// Names the person of a caller, here and in the audit log.
    fn identify(&self, request: &Request, caller: &mut Caller) {
        caller.person = self.context.people.get(&*caller.name).cloned();
        if let Some(sender) = request.extensions().get::<Sender>() {
            sender.is(caller);
        }
    }

    /// Finds who sent a request.
    fn caller(&self, request: &Request) -> Result<Caller, Problem> {
        match self.entrance {
            Entrance::Network => {}
            #[cfg(unix)]
            Entrance::Private => return Ok(Caller::owner()),
        }
        check_query(request.uri().query().unwrap_or_default())?;
        // A header that names a token is used alone.
        if let Some(dashboard) =
            self.context.dashboard.as_deref().filter(|_| !request.headers().contains_key(AUTHORIZATION))
            && let Some(caller) = dashboard.caller(request, |caller| self.identify(request, caller))?
        {
            return Ok(caller);
        }
        let unknown = |detail: &str| Problem::new(ProblemCode::Unauthenticated, detail);
        let secret = bearer(request.headers());
        let secret = secret.ok_or_else(|| unknown("send one header `Authorization: Bearer TOKEN`"))?;
        let caller = self.context.tokens.caller(secret).map_err(|error| Problem::of_tokens(&error))?;
        caller.ok_or_else(|| unknown("the token is unknown, has expired or was revoked"))
    }
}

/// Refuses requests without a token that has the scope. Handlers find the caller among the request's extensions.
pub(crate) async fn authorize(State(guard): State<Guard>, mut request: Request, next: Next) -> Response {
    let scope = match guard.access {
        Access::Scope(scope) => scope,
        // There is no such route for others.
        Access::Private => Scope::Admin,
        Access::Open | Access::Signature => return next.run(request).await,
    };
    let mut caller = match guard.caller(&request) {
        Ok(caller) => caller,
        Err(problem) => return problem.into_response(),
    };
    guard.identify(&request, &mut caller);
    if let Err(problem) = guard.context.rates.count(&caller, guard.context.now()) {
        return problem.into_response();
    }
    if let Err(problem) = caller.needs(scope) {
        return problem.into_response();
    }
    if !request.body().is_end_stream() {
        request.extensions_mut().insert(guard.context.arriving.clone());
    }
    request.extensions_mut().insert(caller);
    next.run(request).await
}

/// Refuses tokens in the query: they would stand in logs and histories.
fn check_query(query: &str) -> Result<(), Problem> {
    match pairs(query).map(|(name, _)| name).find(|name| ["token", "access_token"].contains(&&**name)) {
        Some(name) => {
            Err(Problem::bad(format!("the query has {name}: a token is sent as `Authorization: Bearer TOKEN`")))
        }
        None => Ok(()),
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (value, None) = (values.next()?, values.next()) else { return None };
    let (scheme, secret) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(secret.trim())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn a_token_is_taken_from_one_header_alone() {
        let token = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, value.parse().unwrap());
            }
            bearer(&headers).map(str::to_owned)
        };
        assert_eq!(token(&["Bearer x"]).as_deref(), Some("x"));
        assert_eq!(token(&["bearer  x"]).as_deref(), Some("x"));
        for values in [&[][..], &["Bearer"], &["Basic x"], &["Bearer x", "Bearer x"], &["x"]] {
            assert_eq!(token(values), None, "{values:?}");
        }
        assert!(check_query("a=1&tokens=2").is_ok());
        assert!(check_query("a=1&token=2").is_err() && check_query("access_token").is_err());
        assert!(check_query("%74oken=2").is_err(), "a name may be encoded");
    }
}
