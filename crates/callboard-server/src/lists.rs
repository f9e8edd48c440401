//! Lists of runs, newest first, in pages.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{RawQuery, State};
use callboard::messages::{AgentName, DeadLetter, Timestamp, Usage, visible};
use callboard::supervision::runs::Run;
use jiff::civil;
use serde_json::{Value, json};

use crate::context::{Context, Shared};
use crate::delegations;
use crate::index::{Listed, Place, Walk, skip};
use crate::json::{self as shapes, stable, time};
use crate::problem::Problem;
use crate::query;

/// The most items of a page, and how many it has by default.
const MAX_LIMIT: usize = 200;
const LIMIT: usize = 50;
/// The most runs that are read for a page, and the most that are passed by what the lists have of them. A page whose runs do not
/// fit the filters has fewer items, and a cursor.
const MAX_READ: usize = 500;
const MAX_PASSED: usize = 5_000;
/// The length of the day at the beginning of a time.
const DAY: usize = 10;
const DAY_MILLIS: u64 = 24 * 3600 * 1_000;

/// What a query asks for.
struct Page {
    before: Option<Place>,
    limit: usize,
    agent: Option<String>,
    state: Option<String>,
    workflow: Option<String>,
    /// What the task has, in lower case.
    text: Option<String>,
    /// The beginning of a time in RFC 3339.
    since: Option<String>,
}

impl Page {
    fn read(query: Option<&str>) -> Result<Self, Problem> {
        let [limit, page, agent, state, workflow, text, since] =
            query::values(query, ["limit", "page", "agent", "state", "workflow", "text", "since"])?;
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
            workflow: workflow.map(Cow::into_owned),
            text: text.map(|text| text.to_lowercase()),
            since: since.transpose()?,
        })
    }

    /// Of the query of `/v1/usage`, which has some of it.
    fn of_usage(query: Option<&str>) -> Result<Self, Problem> {
        query::values(query, ["page", "since"])?;
        Self::read(query)
    }

    fn wants(&self, state: &str) -> bool {
        self.state.as_ref().is_none_or(|wanted| wanted == state)
    }

    fn wants_run(&self, run: &Run, now: Timestamp) -> bool {
        let task = &run.submission().task;
        let is_of_workflow = self
            .workflow
            .as_ref()
            .is_none_or(|name| task.plan.as_ref().is_some_and(|plan| plan.name.as_ref() == name.as_str()));
        let has_text = self.text.as_ref().is_none_or(|text| task.body.to_lowercase().contains(text));
        is_of_workflow && has_text && self.wants(shapes::status(run, now))
    }

    /// Whether a run may be wanted, by what the lists have of it.
    fn may_want(&self, listed: &Listed) -> bool {
        let is_of_agent = self.agent.as_ref().is_none_or(|agent| listed.agent.as_str() == agent);
        is_of_agent && listed.outcome.as_ref().is_none_or(|outcome| self.wants(outcome))
    }

    fn reaches(&self, (Reverse(at), _): &Place) -> bool {
        self.since.as_ref().is_none_or(|since| at.to_string().as_str() >= since.as_str())
    }
}

/// What `state` may be: the status of an open run, and the outcomes.
pub(crate) const STATES: [&str; 9] = [
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

fn cursor((Reverse(at), run): Place) -> String {
    format!("{}_{run}", at.as_millis())
}

fn read_cursor(text: &str) -> Result<Place, Problem> {
    let place = || {
        let (at, run) = text.split_once('_')?;
        Some((Reverse(Timestamp::from_millis(at.parse().ok()?)), run.parse().ok()?))
    };
    place().ok_or_else(|| Problem::bad("`page` in the query is the `next` of another page"))
}

/// A time or a day without its `Z`: with that it would not sort before the fractions of its second.
fn begins_time(text: &str) -> Option<String> {
    const FORM: &str = "0000-00-00T00:00:00.000";
    let text = text.strip_suffix('Z').unwrap_or(text);
    let fits = |(found, form): (char, char)| if form == '0' { found.is_ascii_digit() } else { found == form };
    let is_time = [10, 19, FORM.len()].contains(&text.len()) && text.chars().zip(FORM.chars()).all(fits);
    let is_there = || match text.len() {
        DAY => text.parse::<civil::Date>().is_ok(),
        _ => text.parse::<civil::DateTime>().is_ok(),
    };
    (is_time && is_there()).then(|| text.to_owned())
}

/// What a page takes of the lists: how many runs are passed and read is bounded.
struct Budget<'b> {
    walk: Walk<'b>,
    passed: usize,
    read: usize,
    /// The last run that was passed.
    last: Option<Place>,
}

impl<'b> Budget<'b> {
    async fn new(context: &'b Context, before: Option<Place>) -> Result<Self, Problem> {
        let walk = context.index.walk(&context.board, before).await?;
        Ok(Self { walk, passed: 0, read: 0, last: None })
    }

    /// The next run for the page, with whether the page has to end before it.
    async fn next(&mut self) -> Result<Option<(Listed, bool)>, Problem> {
        let is_over = self.passed == MAX_PASSED || self.read == MAX_READ;
        let next = self.walk.next().await?;
        Ok(next.map(|listed| (listed, is_over)))
    }

    fn pass(&mut self, listed: &Listed) {
        self.last = Some(listed.place);
        self.passed += 1;
    }
}

/// Answers with a page of the runs of the board.
pub(crate) async fn runs(State(context): Shared, RawQuery(query): RawQuery) -> Result<Json<Value>, Problem> {
    let (runs, next) = page_of(&context, query.as_deref()).await?;
    let items: Vec<Value> = runs.iter().map(|run| delegations::brief(&context, run)).collect();
    Ok(Json(json!({ "delegations": items, "next": next })))
}

/// A page of the runs of the board, and the cursor of the next one.
pub(crate) async fn page_of(context: &Context, query: Option<&str>) -> Result<(Vec<Run>, Option<String>), Problem> {
    let page = Page::read(query)?;
    let mut budget = Budget::new(context, page.before).await?;
    let mut runs = Vec::new();
    while let Some((listed, is_over)) = budget.next().await? {
        if !page.reaches(&listed.place) {
            break;
        }
        if is_over || runs.len() == page.limit {
            return Ok((runs, budget.last.map(cursor)));
        }
        budget.pass(&listed);
        if !page.may_want(&listed) {
            continue;
        }
        budget.read += 1;
        let run = listed.place.1;
        match context.board.run(run).read().await {
            Ok(fold) if page.wants_run(&fold, context.now()) => runs.push(fold),
            Ok(_) => {}
            Err(error) => skip(run, &error),
        }
    }
    Ok((runs, None))
}

/// Answers with a page of the dead letters: turns that failed for good, those of the newest runs first.
pub(crate) async fn dead_letters(State(context): Shared, RawQuery(query): RawQuery) -> Result<Json<Value>, Problem> {
    let [page] = query::values(query.as_deref(), ["page"])?;
    let mut budget = Budget::new(&context, page.as_deref().map(read_cursor).transpose()?).await?;
    let mut letters = Vec::new();
    while let Some((listed, is_over)) = budget.next().await? {
        if is_over {
            return Ok(Json(json!({ "dead_letters": letters, "next": budget.last.map(cursor) })));
        }
        budget.pass(&listed);
        budget.read += 1;
        let run = listed.place.1;
        match context.board.run(run).dead_letters().await {
            Ok(of_run) => letters.extend(of_run.iter().map(letter)),
            Err(error) => skip(run, &error),
        }
    }
    Ok(Json(json!({ "dead_letters": letters, "next": null })))
}

/// A day, an agent, a model, and who gave the task.
pub(crate) type UsedBy = (String, AgentName, Option<String>, Option<AgentName>);

/// Answers with what the runs of a page have used, by day, agent, model and token.
pub(crate) async fn usage(State(context): Shared, RawQuery(query): RawQuery) -> Result<Json<Value>, Problem> {
    let (used, next) = used(&context, query.as_deref()).await?;
    let rows = used.into_iter().rev().map(|((day, agent, model, from), (runs, usage))| {
        json!({
            "day": day,
            "agent": agent,
            "model": model,
            "from_agent": from,
            "delegations": runs,
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cost_nanodollars": usage.cost.0,
        })
    });
    Ok(Json(json!({ "usage": rows.collect::<Vec<_>>(), "next": next })))
}

/// What the runs of a page have used, by how many of them, and the cursor of the next page.
pub(crate) async fn used(
    context: &Context,
    query: Option<&str>,
) -> Result<(BTreeMap<UsedBy, (u64, Usage)>, Option<String>), Problem> {
    let page = Page::of_usage(query)?;
    let mut budget = Budget::new(context, page.before).await?;
    let mut used: BTreeMap<UsedBy, (u64, Usage)> = BTreeMap::new();
    let mut next = None;
    while let Some((listed, is_over)) = budget.next().await? {
        let (Reverse(at), run) = listed.place;
        let day = day_of(context, at);
        // A day is one of the limits, a time is in UTC.
        let is_reached = match page.since.as_ref().filter(|since| since.len() == DAY) {
            Some(since) => day >= *since,
            None => page.reaches(&listed.place),
        };
        if !is_reached {
            break;
        }
        if is_over {
            next = budget.last.map(cursor);
            break;
        }
        budget.pass(&listed);
        budget.read += 1;
        match context.board.run(run).read().await {
            Ok(fold) => {
                let submission = fold.submission();
                let by_agents = fold.used_by_agents();
                // A run that has used nothing is counted with its first agent.
                let nothing = by_agents.is_empty().then(|| (&submission.agent, None, Usage::default()));
                for (agent, model, usage) in by_agents.into_iter().chain(nothing) {
                    let key =
                        (day.clone(), agent.clone(), model.map(str::to_owned), submission.task.from_agent.clone());
                    let (runs, sum) = used.entry(key).or_default();
                    *runs += 1;
                    *sum += usage;
                }
            }
            Err(error) => skip(run, &error),
        }
    }
    Ok((used, next))
}

/// The day of the limits on which a run was submitted.
fn day_of(context: &Context, at: Timestamp) -> String {
    let begin = Timestamp::from_millis(u64::from(context.board.day_of(at)) * DAY_MILLIS);
    begin.to_string().chars().take(DAY).collect()
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
        for wrong in [
            "",
            "Z",
            "2026",
            "2026-13-01",
            "2026-02-30T00:00:00",
            "2026-01-31T24:00:01",
            "2026-01-31T12",
            "2026-01-31 12:00:00Z",
            "2026-01-31T12:00:00+01:00",
            "yesterday!",
        ] {
            assert_eq!(begins_time(wrong), None, "{wrong}");
        }
    }
}
