//! What the runs have used, as a page: by day, agent, model and token, each with a bar.

use std::collections::BTreeMap;

use axum::extract::{Request, State};
use axum::response::Response;
use callboard::messages::Usage;
use maud::{Markup, html};

use super::pages::{self, Reader};
use super::run::texts::{line, tokens};
use super::runs::without_empty;
use crate::context::{Context, Shared};
use crate::lists::{self, UsedBy};
use crate::problem::Problem;
use crate::query;

/// The most rows of a table, and the most characters of a name.
const MAX_ROWS: usize = 31;
const MAX_NAME: usize = 60;
/// The width of the bars' picture, which is scaled to that of the page.
const WIDTH: u64 = 1_000;

/// The page with what was used.
pub(super) async fn page(State(context): Shared, request: Request) -> Response {
    let query = without_empty(request.uri().query().unwrap_or_default());
    let (caller, csrf) = match pages::reader_of(&context, &request, "Usage") {
        Ok(reader) => reader,
        Err(answer) => return answer,
    };
    pages::answer("Usage", "/usage", &Reader { caller: &caller, csrf }, used(&context, &query).await)
}

async fn used(context: &Context, query: &str) -> Result<Markup, Problem> {
    let (used, next) = lists::used(context, Some(query)).await?;
    let since = query::pairs(query).find(|(name, _)| name == "since").map(|(_, value)| value.into_owned());
    let by = |name: fn(&UsedBy) -> String| {
        let mut sums: BTreeMap<String, (u64, Usage)> = BTreeMap::new();
        for (key, (runs, usage)) in &used {
            let (of_runs, sum) = sums.entry(name(key)).or_default();
            *of_runs += runs;
            *sum += *usage;
        }
        sums
    };
    Ok(html! {
        h1 { "Usage" }
        form.filter method="get" action="/usage" {
            div {
                label for="since" { "Since (UTC)" }
                input #since name="since" value=(since.as_deref().unwrap_or_default()) placeholder="2026-01-31" autocomplete="off";
            }
            button type="submit" { "Show" }
            @if since.is_some() { a href="/usage" { "All" } }
        }
        @if used.is_empty() {
            section.empty {
                h2 { "Nothing was used" }
                p { "What models have read and written, and what it has cost, appears here with the first run. To give an agent a task:" }
                pre { code { "callboard send AGENT 'what is to be done'" } }
            }
        }
        @if next.is_some() { p.notice { "Not all runs are counted here, only the newest of those that are asked for: the next page has older ones." } }
        (table("By day", &by(|(day, ..)| day.clone()), true))
        (table("By agent", &by(|(_, agent, ..)| agent.to_string()), false))
        (table("By model", &by(|(_, _, model, _)| model.clone().unwrap_or_else(|| "no model".to_owned())), false))
        (table("By token", &by(|(.., from)| from.as_ref().map_or_else(|| "nobody named".to_owned(), ToString::to_string)), false))
        @if let Some(next) = next {
            p.pages { a href={ "/usage?" (super::runs::after(query, &next)) } { "What older runs have used" } }
        }
    })
}

/// A row for each name: days with the latest first, others with the most tokens first.
fn table(title: &str, sums: &BTreeMap<String, (u64, Usage)>, is_by_day: bool) -> Markup {
    let mut rows: Vec<_> = sums.iter().rev().collect();
    if !is_by_day {
        rows.sort_by_key(|(_, (_, usage))| std::cmp::Reverse(usage.total()));
    }
    let most = rows.iter().map(|(_, (_, usage))| usage.total()).max().unwrap_or_default();
    html! {
        @if !rows.is_empty() {
            h2 { (title) }
            ol.usage {
                @for (name, (runs, usage)) in rows.iter().take(MAX_ROWS) {
                    li {
                        b { bdi { (line(name, MAX_NAME)) } }
                        span.dim {
                            (tokens(*usage).unwrap_or_else(|| "no tokens".to_owned()))
                            " · " (runs) " " @if *runs == 1 { "run" } @else { "runs" }
                        }
                        svg.span viewBox={ "0 0 " (WIDTH) " 8" } preserveAspectRatio="none" aria-hidden="true" {
                            rect.info x="0" y="0" width=(width(usage.total(), most)) height="8" {}
                        }
                    }
                }
            }
            @if rows.len() > MAX_ROWS { p.dim { (rows.len() - MAX_ROWS) " more are in " code { "/v1/usage" } "." } }
        }
    }
}

/// The width of a bar: in proportion to the longest one.
fn width(tokens: u64, most: u64) -> u64 {
    u64::try_from(u128::from(tokens) * u128::from(WIDTH) / u128::from(most.max(1))).unwrap_or(WIDTH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_in_proportion_to_the_longest() {
        assert_eq!([width(0, 0), width(5, 10), width(u64::MAX, u64::MAX)], [0, 500, 1_000]);
    }
}
