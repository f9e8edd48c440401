//! The pages as HTML: the frame of each, the overview, and how to sign in.

use axum::extract::{RawQuery, Request, State};
use axum::http::StatusCode;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use callboard::messages::visible;
use maud::{DOCTYPE, Markup, html};
use serde_json::{Value, json};

use super::assets::{ICON, RUN_SCRIPT, RUN_STYLE, SCRIPT, STYLE};
use super::state::Dashboard;
use super::{overview, sessions, sign_in as signing};
use crate::audit::Sender;
use crate::context::{Context, Shared};
use crate::inbox::{Gathered, closed, no_longer};
use crate::problem::Problem;
use crate::query;
use crate::tokens::{Caller, Scope};

/// Who reads a page.
pub(super) struct Reader<'r> {
    pub(super) caller: &'r Caller,
    /// The text that requests of the page have.
    pub(super) csrf: String,
}

/// The pages that each page links to, and where they are: those in the bar, and those in its menu.
const PAGES: [(&str, &str); 4] =
    [("Overview", "/"), ("Runs", "/runs"), ("Agents", "/agents"), ("Workflows", "/workflows")];
const MORE_PAGES: [(&str, &str); 7] = [
    ("Schedules", "/schedules"),
    ("Context", "/context"),
    ("Handoffs", "/handoffs"),
    ("Files", "/files"),
    ("Usage", "/usage"),
    ("Tokens", "/tokens"),
    ("Audit", "/audit"),
];

/// Puts the contents of a page into the frame. `reader` is `None` if nobody is signed in.
pub(super) fn framed(title: &str, reader: Option<&Reader<'_>>, contents: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="robots" content="noindex";
                @if let Some(reader) = reader { meta name="csrf" content=(reader.csrf); }
                title { (title) " · callboard" }
                link rel="icon" href=(ICON.path) type="image/svg+xml";
                link rel="stylesheet" href=(STYLE.path);
                script src=(SCRIPT.path) defer {}
                @if reader.is_some() && title != "Overview" {
                    link rel="stylesheet" href=(RUN_STYLE.path);
                    script src=(RUN_SCRIPT.path) defer {}
                }
            }
            body {
                a.skip href="#main" { "Skip to the contents" }
                header.top {
                    div.bar {
                        a.name href="/" { "callboard" }
                        @if let Some(reader) = reader {
                            (links(title))
                            div.who {
                                span title="Signed in as" { (reader.caller.by()) }
                                button.quiet type="button" data-sign-out { "Sign out" }
                            }
                        }
                    }
                }
                main id="main" tabindex="-1" { (contents) }
            }
        }
    }
}

/// The links to the other pages.
fn links(title: &str) -> Markup {
    let link = |(page, path): (&str, &str)| {
        html! { a href=(path) aria-current=[(page == title).then_some("page")] { (page) } }
    };
    let of_menu = MORE_PAGES.into_iter().find(|(page, _)| *page == title);
    html! {
        nav aria-label="Pages" {
            @for page in PAGES { (link(page)) }
            details.menu {
                summary.current[of_menu.is_some()] { (of_menu.map_or("More", |(page, _)| page)) }
                div { @for page in MORE_PAGES { (link(page)) } }
            }
        }
    }
}

/// The answer with the contents of a page, or with why they cannot be shown, and a link to the page without a filter.
pub(super) fn answer(title: &str, path: &str, reader: &Reader<'_>, contents: Result<Markup, Problem>) -> Response {
    let (status, contents) = match contents {
        Ok(contents) => (StatusCode::OK, contents),
        Err(problem) => {
            let contents = html! {
                h1 { "This cannot be shown" }
                p { (problem.detail) }
                p { a href=(path) { "Back" } }
            };
            (problem.code.status(), contents)
        }
    };
    page(status, framed(title, Some(reader), &contents))
}

/// A name as a segment of a path.
pub(super) fn segment(name: &str) -> String {
    form_urlencoded::byte_serialize(name.as_bytes()).collect::<String>().replace('+', "%20")
}

pub(super) fn page(status: StatusCode, markup: Markup) -> Response {
    (status, [(CONTENT_TYPE, "text/html; charset=utf-8")], markup.into_string()).into_response()
}

/// The pages of a request to their host; `None` on other names of the server.
fn on_host<'c>(context: &'c Context, request: &Request) -> Option<&'c Dashboard> {
    let dashboard = context.dashboard.as_deref()?;
    dashboard.origin.is_host_of(request.uri(), request.headers()).then_some(dashboard)
}

/// Who reads a page with this title, and the text that its requests have; or else the answer for somebody who may not.
#[expect(clippy::result_large_err, reason = "it is an answer, and made once for a page")]
pub(super) fn reader_of(context: &Context, request: &Request, title: &str) -> Result<(Caller, String), Response> {
    let Some(dashboard) = on_host(context, request) else { return Err(other_name()) };
    let signed_in = dashboard.secret(request).map(|secret| (secret, dashboard.signed_in(secret)));
    let Some((secret, Ok(caller))) = signed_in else { return Err(signing_in(StatusCode::UNAUTHORIZED)) };
    let (caller, csrf) = (signing::known(context, caller), sessions::csrf(secret));
    // The audit log has requests that are refused.
    request.extensions().get::<Sender>().into_iter().for_each(|sender| sender.is(&caller));
    if !caller.scopes.contains(&Scope::Read) {
        let contents = html! {
            h1 { "Nothing to read" }
            p { "The token " b { (caller.name) } " does not have the scope " code { "read" } "." }
        };
        let reader = Reader { caller: &caller, csrf };
        return Err(page(StatusCode::FORBIDDEN, framed(title, Some(&reader), &contents)));
    }
    Ok((caller, csrf))
}

/// The answer to a browser that asks for a page where there is none; `None` for other requests.
pub(crate) fn absent(context: &Context, request: &Request) -> Option<Response> {
    let is_browser = request.headers().get(ACCEPT)?.to_str().is_ok_and(|accepts| accepts.contains("text/html"));
    on_host(context, request).filter(|_| is_browser)?;
    Some(match reader_of(context, request, "No page") {
        Ok((caller, csrf)) => {
            let problem = Problem::not_found(format!("There is no page {}.", visible(request.uri().path())));
            answer("No page", "/", &Reader { caller: &caller, csrf }, Err(problem))
        }
        Err(answer) => answer,
    })
}

/// Where the part of the overview is that changes.
const PART: &str = "/parts/overview";

/// The overview, or how to sign in.
pub(super) async fn overview(State(context): Shared, request: Request) -> Response {
    let (caller, csrf) = match reader_of(&context, &request, "Overview") {
        Ok(reader) => reader,
        Err(answer) => return answer,
    };
    let reader = Reader { caller: &caller, csrf };
    let query = request.uri().query().map(str::to_owned);
    let contents = match overview::overview(&context, &caller, query.as_deref()).await {
        Ok(contents) => contents,
        Err(problem) => {
            let contents = html! {
                h1 { "The overview cannot be shown" }
                p { (problem.detail) }
                p { a href="/" { "The whole overview" } }
            };
            return page(problem.code.status(), framed("Overview", Some(&reader), &contents));
        }
    };
    let part = query.map_or_else(|| PART.to_owned(), |query| format!("{PART}?{query}"));
    page(
        StatusCode::OK,
        framed("Overview", Some(&reader), &html! { div data-part=(part) data-events="/parts/events" { (contents) } }),
    )
}

/// The part of the overview that changes.
pub(super) async fn overview_part(
    State(context): Shared,
    RawQuery(query): RawQuery,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Problem> {
    Ok(page(StatusCode::OK, overview::overview(&context, &caller, query.as_deref()).await?))
}

/// The id that a query names, and what waits.
async fn asked(context: &Context, caller: &Caller, query: Option<&str>) -> Result<(String, Gathered), Problem> {
    let [id] = query::values(query, ["id"])?;
    let id = id.ok_or_else(|| Problem::bad("the query has no `id`"))?;
    Ok((id.into_owned(), context.inbox_sources().gather().await?.seen_by(caller)))
}

/// All of the text of something that waits, of which the overview has the beginning.
pub(super) async fn whole(
    State(context): Shared,
    RawQuery(query): RawQuery,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Problem> {
    let (id, gathered) = asked(&context, &caller, query.as_deref()).await?;
    match gathered.items.iter().find(|item| item.id.to_string() == id) {
        Some(item) => Ok(page(StatusCode::OK, overview::whole(item, gathered.pending_of(item)))),
        None => Err(no_longer(&context, &id).await),
    }
}

/// Whether something still waits, and what became of it if it does not.
pub(super) async fn ended(
    State(context): Shared,
    RawQuery(query): RawQuery,
    Extension(caller): Extension<Caller>,
) -> Result<Json<Value>, Problem> {
    let (id, gathered) = asked(&context, &caller, query.as_deref()).await?;
    let waits = gathered.items.iter().any(|item| item.id.to_string() == id);
    let how = if waits { None } else { closed(&context, &id).await };
    Ok(Json(json!({ "waits": waits, "how": how })))
}

/// The arguments of an approval, as a text that a person changes.
pub(super) async fn arguments(
    State(context): Shared,
    RawQuery(query): RawQuery,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Problem> {
    let (id, gathered) = asked(&context, &caller, query.as_deref()).await?;
    let item = gathered.items.iter().find(|item| item.id.to_string() == id);
    let text = item.and_then(|item| overview::arguments_to_edit(gathered.pending_of(item)?));
    match text {
        Some(text) => Ok(([(CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()),
        None => Err(no_longer(&context, &id).await),
    }
}

/// The page of a link: its script reads the secret after `#`, which browsers do not send.
pub(super) async fn sign_in(State(context): Shared, request: Request) -> Response {
    match on_host(&context, &request) {
        Some(_) => signing_in(StatusCode::OK),
        None => other_name(),
    }
}

fn signing_in(status: StatusCode) -> Response {
    let contents = html! {
        section.sign-in data-sign-in {
            h1 { "Sign in" }
            p role="status" data-status { "Run this in the folder of the project, and open the link that it prints:" }
            pre { code { "callboard sign-in" } }
            p.hint { "A link can be used once, within 5 minutes." }
            noscript { p { "These pages need JavaScript." } }
        }
    };
    page(status, framed("Sign in", None, &contents))
}

/// What other names of the server answer: neither data nor where the pages are.
fn other_name() -> Response {
    let contents = html! {
        section.sign-in {
            h1 { "This is callboard" }
            p { "Its pages have an address of their own. Run this in the folder of the project, and open the link that it prints:" }
            pre { code { "callboard sign-in" } }
        }
    };
    page(StatusCode::OK, framed("callboard", None, &contents))
}
