//! Lists of runs, newest first, in pages.

use std::borrow::Cow;

use axum::Json;
use axum::extract::{RawQuery, State};
use callboard::messages::{DeadLetter, Timestamp, visible};
use serde_json::{Value, json};

use crate::context::Shared;
use crate::delegations;
use crate::index::{Place, skip};
use crate::json::{self as shapes, stable, time};
use crate::problem::Problem;
use crate::query;

/// The most items of a page, and how many it has by default.
const MAX_LIMIT: usize = 200;
const LIMIT: usize = 50;
/// The most runs that are read for a page. One whose runs do not fit the filters has fewer items, and a cursor.
const MAX_READ: usize = 500;

/// What a query asks for.
struct Page {
    before: Option<Place>,
    limit: usize,
    agent: Option<String>,
    state: Option<String>,
    /// The beginning of a time in RFC 3339.
    since: Option<String>,
}

impl Page {
    fn read(query: Option<&str>) -> Result<Self, Problem> {
        let [limit, page, agent, state, since] = query::values(query, ["limit", "page", "agent", "state", "since"])?;
        let invalid = |name: &str, needed: &str| Problem::bad(format!("`{name}` in the query is {needed}"));
        let limit =
            limit.map_or(Some(LIMIT), |limit| limit.parse().ok().filter(|limit| (1..=MAX_LIMIT).contains(limit)));
        let since = since.map(|since| {
            begins_time(&since).ok_or_else(|| invalid("since", "a time in UTC, such as 2026-01-31T12:00:00Z"))
        });
        let state = state.map(Cow::into_owned);
        if let Some(state) = state.as_ref().filter(|state| !STATES.contains(&state.as_str())) {
            return Err(Problem::bad(format!("{} is no state: there are {}", visible(state), STATES.join(", "))));
        }
        Ok(Self {
            before: page.as_deref().map(read_cursor).transpose()?,
            limit: limit.ok_or_else(|| invalid("limit", &format!("a number from 1 to {MAX_LIMIT}")))?,
            agent: agent.map(Cow::into_owned),
            state,
            since: since.transpose()?,
        })
    }

    fn wants(&self, state: &str) -> bool {
        self.state.as_ref().is_none_or(|wanted| wanted == state)
    }

    fn reaches(&self, (at, _): &Place) -> bool {
        self.since.as_ref().is_none_or(|since| at.to_string().as_str() >= since.as_str())
    }
}

/// What `state` may be: the status of an open run, and the outcomes.
const STATES: [&str; 9] = [
    "open",
    "waits_for_answer",
    "waits_for_consent",
    "needs_attention",
    "finished",
    "failed",
    "refused",
    "denied",
    "cancelled",
];

fn cursor((at, run): Place) -> String {
    format!("{}_{run}", at.as_millis())
}

fn read_cursor(text: &str) -> Result<Place, Problem> {
    let place = || {
        let (at, run) = text.split_once('_')?;
        Some((Timestamp::from_millis(at.parse().ok()?), run.parse().ok()?))
    };
    place().ok_or_else(|| Problem::bad("`page` in the query is the `next` of another page"))
}

/// A time or a day without its `Z`: with that it would not sort before the fractions of its second.
fn begins_time(text: &str) -> Option<String> {
    const FORM: &str = "0000-00-00T00:00:00.000";
    let text = text.strip_suffix('Z').unwrap_or(text);
    let fits = |(found, form): (char, char)| if form == '0' { found.is_ascii_digit() } else { found == form };
    let is_time = [10, 19, FORM.len()].contains(&text.len()) && text.chars().zip(FORM.chars()).all(fits);
    is_time.then(|| text.to_owned())
}

/// Answers with a page of the runs of the board.
pub(crate) async fn runs(State(context): Shared, RawQuery(query): RawQuery) -> Result<Json<Value>, Problem> {
    let page = Page::read(query.as_deref())?;
    context.index.update(&context.board).await?;
    let (mut items, mut last) = (Vec::new(), None);
    let places = context.index.before(page.before, page.agent.as_deref(), MAX_READ + 1);
    for place in places.iter().take(MAX_READ).take_while(|place| page.reaches(place)) {
        if items.len() == page.limit {
            return Ok(Json(json!({ "delegations": items, "next": last.map(cursor) })));
        }
        last = Some(*place);
        match context.board.run(place.1).read().await {
            Ok(fold) if page.wants(shapes::status(&fold, context.now())) => {
                items.push(delegations::brief(&context, &fold));
            }
            Ok(_) => {}
            Err(error) => skip(place.1, &error),
        }
    }
    let has_more = places.len() > MAX_READ && page.reaches(&places[MAX_READ]);
    Ok(Json(json!({ "delegations": items, "next": last.filter(|_| has_more).map(cursor) })))
}

/// Answers with a page of the dead letters: turns that failed for good, those of the newest runs first.
pub(crate) async fn dead_letters(State(context): Shared, RawQuery(query): RawQuery) -> Result<Json<Value>, Problem> {
    let [page] = query::values(query.as_deref(), ["page"])?;
    let before = page.as_deref().map(read_cursor).transpose()?;
    context.index.update(&context.board).await?;
    let places = context.index.before(before, None, MAX_READ + 1);
    let mut letters = Vec::new();
    for (_, run) in places.iter().take(MAX_READ) {
        match context.board.run(*run).dead_letters().await {
            Ok(of_run) => letters.extend(of_run.iter().map(letter)),
            Err(error) => skip(*run, &error),
        }
    }
    let next = places.get(MAX_READ).and(places.get(MAX_READ - 1)).copied();
    Ok(Json(json!({ "dead_letters": letters, "next": next.map(cursor) })))
}

fn letter(letter: &DeadLetter) -> Value {
    let DeadLetter { turn, agent, input, attempts, failure, at, retried_as } = letter;
    json!({
        "request_id": turn.run,
        "turn": turn.number,
        "agent": agent,
        "input": input,
        "attempts": attempts,
        "failure": stable(failure),
        "at": time(*at),
        "retried_as": retried_as,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_utc_and_may_be_cut() {
        let cut = |text| begins_time(text);
        assert_eq!(cut("2026-01-31").as_deref(), Some("2026-01-31"));
        assert_eq!(cut("2026-01-31T12:00:00Z").as_deref(), Some("2026-01-31T12:00:00"));
        assert_eq!(cut("2026-01-31T12:00:00.000Z").as_deref(), Some("2026-01-31T12:00:00.000"));
        for wrong in
            ["", "Z", "2026", "2026-01-31T12", "2026-01-31 12:00:00Z", "2026-01-31T12:00:00+01:00", "yesterday!"]
        {
            assert_eq!(begins_time(wrong), None, "{wrong}");
        }
    }
}
