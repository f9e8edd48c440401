//! The tokens as a page: what each allows and until when, without their secrets. Only admins see it.

use axum::extract::{Request, State};
use axum::response::Response;
use callboard::messages::Timestamp;
use maud::{Markup, html};

use super::pages::{self, Reader};
use super::run::texts::{line, shown_time};
use crate::context::{Context, Shared};
use crate::problem::Problem;
use crate::tokens::{Caller, Scope, Token};

/// The most tokens of a page, and the most characters of a name.
const MAX_TOKENS: usize = 200;
const MAX_NAME: usize = 60;
const MAX_LIST: usize = 200;

/// The page with the tokens.
pub(super) async fn page(State(context): Shared, request: Request) -> Response {
    let (caller, csrf) = match pages::reader_of(&context, &request, "Tokens") {
        Ok(reader) => reader,
        Err(answer) => return answer,
    };
    let contents = list(&context, &caller);
    pages::answer("Tokens", "/tokens", &Reader { caller: &caller, csrf }, contents)
}

fn list(context: &Context, caller: &Caller) -> Result<Markup, Problem> {
    caller.needs(Scope::Admin)?;
    let mut tokens = context.tokens.list().map_err(|error| Problem::internal(&error))?;
    tokens.sort_by(|one, other| one.name.cmp(&other.name));
    let left_out = tokens.len().saturating_sub(MAX_TOKENS);
    tokens.truncate(MAX_TOKENS);
    let now = context.now();
    Ok(html! {
        h1 { "Tokens" }
        p.dim {
            "To add one: " code { "callboard tokens add NAME --scope read,delegate" } "; to revoke one: "
            code { "callboard tokens revoke NAME" } ". A secret is shown once, when its token is added."
        }
        ol.runs { @for token in &tokens { (row(context, token, now)) } }
        @if left_out > 0 { p.dim { (left_out) " more: " code { "callboard tokens list" } " has all." } }
    })
}

fn row(context: &Context, token: &Token, now: Timestamp) -> Markup {
    let person = context.people.get(&token.name).map(|person| &**person).or(token.owner.as_deref());
    let scopes: Vec<String> = token.scopes.iter().map(ToString::to_string).collect();
    let namespaces = token.namespaces.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    html! {
        li {
            b.task { bdi { (line(&token.name, MAX_NAME)) } }
            @if token.is_owner { span.kind.info { "of this user" } }
            @match token.expires_at {
                Some(at) if at <= now => span.kind.bad { "expired" },
                Some(at) => span.dim { "until " (shown_time(at)) },
                None => span.dim { "does not expire" },
            }
            (shown_time(token.created_at))
            div.about {
                "May " (scopes.join(", "))
                @if let Some(person) = person { " · of " bdi { (line(person, MAX_NAME)) } }
                @if !namespaces.is_empty() { " · context " bdi { (line(&namespaces, MAX_LIST)) } }
                @if let Some(requests) = token.requests_a_minute { " · " (requests) " requests a minute" }
            }
        }
    }
}
