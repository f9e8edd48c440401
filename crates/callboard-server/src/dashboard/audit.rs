//! The audit log as a page, the newest requests first. Only admins see it.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use callboard::messages::RunId;
use maud::{Markup, html};
use serde_json::Value;

use super::pages::{self, Reader};
use super::run::texts::{line, shown_time_of};
use super::runs::without_empty;
use crate::audit::Lines;
use crate::context::{Context, Shared};
use crate::problem::Problem;
use crate::query;
use crate::tokens::{Caller, Scope};

/// How many requests a page has, and the most characters of a name, of a path and of a reason.
const LIMIT: usize = 50;
const MAX_NAME: usize = 60;
const MAX_PATH: usize = 160;
const MAX_TEXT: usize = 300;

/// Which requests are listed.
struct Asked {
    /// A text of any of their fields, in lower case.
    text: String,
    decisions: bool,
    refused: bool,
    /// Those of senders who are not known.
    unknown: bool,
    before: Option<String>,
}

impl Asked {
    fn read(query: &str) -> Result<Self, Problem> {
        let [text, only, unknown, before] = query::values(Some(query), ["text", "only", "unknown", "before"])?;
        let only = only.as_deref().unwrap_or_default();
        if !["", "decisions", "refused"].contains(&only) {
            return Err(Problem::bad("`only` in the query is decisions or refused"));
        }
        Ok(Self {
            text: text.unwrap_or_default().trim().to_lowercase(),
            decisions: only == "decisions",
            refused: only == "refused",
            unknown: unknown.is_some(),
            before: before.map(Into::into),
        })
    }

    fn wants(&self, request: &Value) -> bool {
        let is_refused = request["status"].as_u64().is_some_and(|status| status >= 400);
        let fields = request.as_object().into_iter().flat_map(serde_json::Map::values).filter_map(Value::as_str);
        (!self.decisions || request["response"].is_string())
            && (!self.refused || is_refused)
            && (self.text.is_empty() || fields.into_iter().any(|field| field.to_lowercase().contains(&self.text)))
    }
}

/// The page with the requests.
pub(super) async fn page(State(context): Shared, request: Request) -> Response {
    let query = without_empty(request.uri().query().unwrap_or_default());
    let (caller, csrf) = match pages::reader_of(&context, &request, "Audit") {
        Ok(reader) => reader,
        Err(answer) => return answer,
    };
    let contents = list(&context, &caller, &query).await;
    pages::answer("Audit", "/audit", &Reader { caller: &caller, csrf }, contents)
}

async fn list(context: &Context, caller: &Caller, query: &str) -> Result<Markup, Problem> {
    caller.needs(Scope::Admin)?;
    let asked = Asked::read(query)?;
    let form = form(&asked);
    let audit = Arc::clone(&context.audit);
    // It reads files.
    let read = tokio::task::spawn_blocking(move || {
        audit.newest(!asked.unknown, asked.before.as_deref(), LIMIT, |request| asked.wants(request))
    });
    let read = read.await.map_err(|error| Problem::internal(&error))?;
    let Lines { lines, before } = read.transpose().map_err(|error| Problem::internal(&error))?.unwrap_or_default();
    Ok(html! {
        h1 { "Audit log" }
        p.dim { "Each request that changes something, and each that is refused: " code { "service/audit.jsonl" } " in the folder of the store." }
        (form)
        @if lines.is_empty() {
            section.empty {
                h2 { "No request fits" }
                @if before.is_some() { p { "Older ones may." } }
            }
        }
        ol.runs { @for request in &lines { (row(request)) } }
        @if let Some(before) = before { p.pages { a href={ "/audit?" (older(query, &before)) } { "Older requests" } } }
    })
}

fn form(asked: &Asked) -> Markup {
    let only = [
        ("", "all", !asked.decisions && !asked.refused),
        ("decisions", "decisions", asked.decisions),
        ("refused", "refused", asked.refused),
    ];
    html! {
        form.filter method="get" action="/audit" {
            div {
                label for="only" { "Requests" }
                select #only name="only" {
                    @for (value, words, is_chosen) in only { option value=(value) selected[is_chosen] { (words) } }
                }
            }
            div {
                label for="text" { "Name or text" }
                input #text name="text" value=(asked.text) autocomplete="off";
            }
            label.check { input type="checkbox" name="unknown" value="1" checked[asked.unknown]; " Of unknown senders" }
            button type="submit" { "Filter" }
        }
    }
}

fn row(request: &Value) -> Markup {
    let text = |name: &str| request[name].as_str().unwrap_or_default();
    let status = request["status"].as_u64();
    let (words, tone) = match status {
        Some(status) if status >= 400 => (format!("{status} {}", line(text("code"), MAX_NAME)), "bad"),
        Some(status) => (status.to_string(), "good"),
        None => ("no answer".to_owned(), "warn"),
    };
    html! {
        li {
            span.kind.(tone) { (words) }
            b { bdi { @if text("who").is_empty() { "unknown" } @else { (line(text("who"), MAX_NAME)) } } }
            @if !text("person").is_empty() && text("person") != text("who") { span.dim { bdi { (line(text("person"), MAX_NAME)) } } }
            code { bdi { (line(text("method"), MAX_NAME)) " " (line(text("path"), MAX_PATH)) } }
            (shown_time_of(text("at")))
            div.about {
                "from " bdi { (line(text("from"), MAX_NAME)) }
                @if !text("response").is_empty() { " · " (line(text("response"), MAX_NAME)) }
                @if !text("outcome").is_empty() { " · " (line(text("outcome"), MAX_TEXT)) }
                @if !text("reason").is_empty() { " · " bdi { (line(text("reason"), MAX_TEXT)) } }
                @if !text("approval").is_empty() { " · " code { (line(text("approval"), MAX_PATH)) } }
                @if !text("action").is_empty() {
                    " · " bdi { (line(text("agent"), MAX_NAME)) } " " code { (line(text("action"), MAX_NAME)) } " " bdi { (line(text("target"), MAX_PATH)) }
                }
                @if text("request_id").parse::<RunId>().is_ok() { " · " a href={ "/runs/" (text("request_id")) } { "its run" } }
                @if !text("replaced_by").is_empty() { " · replaced by " code { (line(text("replaced_by"), MAX_PATH)) } }
                @if !text("why").is_empty() { " · " bdi { (line(text("why"), MAX_TEXT)) } }
                @if let Some(count) = request["count"].as_u64() { " · " (count) " times" }
            }
        }
    }
}

/// The query of the next page.
fn older(query: &str, before: &str) -> String {
    let mut next = form_urlencoded::Serializer::new(String::new());
    next.extend_pairs(query::pairs(query).filter(|(name, _)| name != "before"));
    next.append_pair("before", before);
    next.finish()
}
