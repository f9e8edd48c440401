//! The shared context as a page: the entries of a namespace that the reader's token was granted, each with its value.

use std::collections::BTreeSet;

use axum::extract::{Request, State};
use axum::response::Response;
use callboard::messages::ContextEntry;
use maud::{Markup, html};

use super::pages::{self, Reader};
use super::run::texts::{cut_lines, line, shown_time};
use super::runs::without_empty;
use crate::context::{Context, Shared};
use crate::entries;
use crate::problem::Problem;
use crate::query;
use crate::tokens::Caller;

/// The most entries of a page, namespaces that are proposed, and characters of a name, of a value, and of all values.
const MAX_ENTRIES: usize = 200;
const MAX_PROPOSED: usize = 100;
const MAX_NAME: usize = 128;
const MAX_VALUE: usize = 4_000;
const MAX_VALUES: usize = 100_000;

/// The page with the entries of a namespace.
pub(super) async fn page(State(context): Shared, request: Request) -> Response {
    let query = without_empty(request.uri().query().unwrap_or_default());
    let (caller, csrf) = match pages::reader_of(&context, &request, "Context") {
        Ok(reader) => reader,
        Err(answer) => return answer,
    };
    let contents = list(&context, &caller, &query).await;
    pages::answer("Context", "/context", &Reader { caller: &caller, csrf }, contents)
}

async fn list(context: &Context, caller: &Caller, query: &str) -> Result<Markup, Problem> {
    let [namespace, prefix] = query::values(Some(query), ["namespace", "prefix"])?;
    let (namespace, prefix) = (namespace.unwrap_or_default(), prefix.unwrap_or_default());
    let (mut entries, mut has_more) = (Vec::new(), false);
    if !namespace.is_empty() {
        entries::check(caller, &namespace)?;
        entries = context.board.context().query_by_prefix(&namespace, &prefix, MAX_ENTRIES + 1).await?;
        has_more = entries.len() > MAX_ENTRIES;
        entries.truncate(MAX_ENTRIES);
    }
    let is_empty = !namespace.is_empty() && entries.is_empty();
    let known = known(context, caller).await?;
    let mut room = MAX_VALUES;
    Ok(html! {
        h1 { "Context" }
        form.filter method="get" action="/context" {
            div {
                label for="namespace" { "Namespace" }
                input #namespace name="namespace" value=(namespace) list="namespaces" autocomplete="off" required;
                datalist #namespaces { @for name in proposed(context, caller, &known) { option value=(name) {} } }
            }
            div {
                label for="prefix" { "Keys that begin with" }
                input #prefix name="prefix" value=(prefix) autocomplete="off";
            }
            button type="submit" { "Show" }
        }
        @if namespace.is_empty() {
            section.empty {
                h2 { "Choose a namespace" }
                p { "Agents leave each other texts in namespaces of the context. " code { "memory:AGENT" } " is what an agent remembers, and " code { "run:ID" } " is of one run." }
                @if !known.is_empty() {
                    p {
                        "With entries: "
                        @for (place, name) in known.iter().enumerate() {
                            @if place > 0 { ", " }
                            a href={ "/context?" (namespaced(name)) } { bdi { (line(name, MAX_NAME)) } }
                        }
                    }
                }
            }
        }
        @if is_empty {
            section.empty {
                h2 { "There are no entries" }
                p { "To write one:" }
                pre { code { "callboard context set NAMESPACE KEY 'a text'" } }
            }
        }
        ol.runs { @for entry in &entries { (row(entry, &mut room)) } }
        @if has_more { p.dim { "There are more than " (MAX_ENTRIES) ": write how their keys begin." } }
    })
}

/// The namespaces that have entries and that a reader reaches, but for those of runs, which are very many.
async fn known(context: &Context, caller: &Caller) -> Result<Vec<String>, Problem> {
    let store = context.board.context();
    let mut known = store.namespaces(None, MAX_PROPOSED).await?;
    known.extend(store.namespaces(Some("run:\u{10ffff}"), MAX_PROPOSED).await?);
    known.retain(|name| !name.starts_with("run:") && caller.reaches(name));
    known.sort_unstable();
    known.dedup();
    Ok(known)
}

/// The query of the page of a namespace.
fn namespaced(name: &str) -> String {
    form_urlencoded::Serializer::new(String::new()).append_pair("namespace", name).finish()
}

/// The namespaces that a reader may write: those that have entries, what their token was granted, and the memory of agents.
fn proposed(context: &Context, caller: &Caller, known: &[String]) -> BTreeSet<String> {
    let memories = context.board.agents().names().into_iter().map(|agent| format!("memory:{agent}"));
    let granted = caller.namespaces().map(str::to_owned);
    let all = granted.chain(known.iter().cloned()).chain(memories.filter(|namespace| caller.reaches(namespace)));
    all.filter(|name| line(name, MAX_NAME) == *name).take(MAX_PROPOSED).collect()
}

fn row(entry: &ContextEntry, room: &mut usize) -> Markup {
    let shown = cut_lines(&entry.value, MAX_VALUE.min(*room));
    *room = room.saturating_sub(shown.len());
    html! {
        li {
            b.task { bdi { (line(&entry.key, MAX_NAME)) } }
            @if entry.is_untrusted() { span.kind.warn { "untrusted" } }
            span.dim {
                "by " bdi { (line(entry.agent.as_str(), MAX_NAME)) } " · revision " (entry.revision)
                @if let Some(at) = entry.expires_at { " · until " (shown_time(at)) }
                @if let Some(origin) = entry.origin.as_ref().filter(|origin| !origin.run.0.is_nil()) {
                    " · " a href={ "/runs/" (origin.run) } { "its run" }
                }
            }
            (shown_time(entry.updated_at))
            details data-key={ "entry-" (entry.revision) } { summary { "Its text" } pre.text dir="auto" { (shown) } }
        }
    }
}
