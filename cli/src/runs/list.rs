//! `callboard runs list`.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use comfy_table::ColumnConstraint;
use serde_json::{Value, json};

use callboard::env::Env;
use callboard::messages::{Pending, RunEvent, RunId, Timestamp, TurnId};
use callboard::supervision::runs::Run;
use callboard_server::json::{self as shapes, Status};

use crate::page::{Failure, Page, brief, count, duration, grouped, lines_of, table, time};
use crate::run_names::{names, short};
use crate::stores::open::{ClosedStore, OpenStores, in_several_stores};
use crate::stores::store::Rules;
use crate::values::time_span;

/// Which runs a command selects.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Filter {
    /// Runs with this status: finished, failed, refused, denied, cancelled, open, waits_for_answer, waits_for_consent or
    /// needs_attention; or a prefix of one of them
    #[arg(long, value_name = "STATUS", value_parser = state)]
    state: Option<&'static str>,
    /// Runs that were submitted to this agent
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    agent: Option<String>,
    /// Runs that were submitted within this time: 90m, 12h or 7d
    #[arg(long, value_name = "TIME", value_parser = time_span)]
    since: Option<Duration>,
    /// Runs that were submitted longer ago than this time: 90m, 12h or 30d
    #[arg(long, value_name = "TIME", value_parser = time_span)]
    older_than: Option<Duration>,
    /// Runs whose task contains these words, in upper or lower case
    #[arg(long, value_name = "WORDS", value_parser = NonEmptyStringValueParser::new())]
    text: Option<String>,
}

impl Filter {
    /// Whether it selects all runs.
    pub(crate) fn is_empty(&self) -> bool {
        let Self { state, agent, since, older_than, text } = self;
        state.is_none() && agent.is_none() && since.is_none() && older_than.is_none() && text.is_none()
    }

    /// Whether it selects the run.
    pub(crate) fn selects(&self, run: &Run, now: Timestamp) -> bool {
        let submission = run.submission();
        let (age, body) = (now.since(submission.at), submission.task.body.to_lowercase());
        self.state.is_none_or(|state| shapes::status(run, now).starts_with(state))
            && self.agent.as_ref().is_none_or(|agent| submission.agent.as_str() == agent)
            && self.since.is_none_or(|since| age <= since)
            && self.older_than.is_none_or(|older_than| age > older_than)
            && self.text.as_ref().is_none_or(|text| body.contains(&text.to_lowercase()))
    }
}

/// The statuses of runs ([`shapes::status`]).
const STATES: [&str; 9] = [
    "finished",
    "failed",
    "refused",
    "denied",
    "cancelled",
    "open",
    "waits_for_answer",
    "waits_for_consent",
    "needs_attention",
];

/// The only status with this prefix: a misspelt or ambiguous one must not select runs to delete.
fn state(text: &str) -> Result<&'static str, String> {
    let text = text.replace(' ', "_");
    let fitting: Vec<&str> = STATES.into_iter().filter(|state| !text.is_empty() && state.starts_with(&text)).collect();
    match fitting.as_slice() {
        [only] => Ok(only),
        [] => Err(format!("there is no such state; the states are {}", STATES.join(", "))),
        several => Err(format!("this could be {}", several.join(" or "))),
    }
}

/// Lists the runs, one line each. A run that cannot be read is listed as unreadable if the filter selects all.
pub(crate) async fn list(open: &OpenStores, filter: &Filter, limit: Option<u32>) -> Result<Page, Failure> {
    let (mut lines, mut rows, mut unreadable) = (Vec::new(), Vec::new(), open.notes());
    // A run in two stores has two lines, and is one run.
    let mut listed = BTreeSet::new();
    let now = Env::system().now().wall;
    let (mut duplicates, runs) = (String::new(), open.runs().await?);
    for (run, places) in runs.iter().filter(|(_, places)| places.len() > 1) {
        let folders = places.iter().map(|place| open.stores[*place].place());
        duplicates.push_str(&format!("{}\n", in_several_stores(&format!("run {}", short(*run)), folders)));
    }
    let name = names(runs.keys().copied());
    let ordered = open.by_age(&runs).await?;
    let each = ordered.iter().flat_map(|run| runs[run].iter().map(|place| (*run, *place, &runs[run])));
    for (run, place, places) in each {
        let store = &open.stores[place];
        let also_in: Vec<&Path> =
            places.iter().filter(|other| **other != place).map(|other| open.stores[*other].place()).collect();
        let read = match store.history(run).await {
            Ok(history) => {
                let origin = origin(&history);
                folded(history).map(|fold| (fold, origin))
            }
            Err(error) => Err(error.to_string()),
        };
        match read {
            Ok((fold, _)) if !filter.selects(&fold, now) => {}
            Err(_) if !filter.is_empty() => {}
            Ok((fold, origin)) => {
                let metrics = fold.metrics();
                let submission = fold.submission();
                lines.push([
                    name(run),
                    time(submission.at),
                    submission.agent.to_string(),
                    status(&fold, now),
                    metrics.turns.to_string(),
                    grouped(metrics.tokens_spent),
                    duration(metrics.elapsed),
                    format!("{}{}", if origin.is_some() { "fork: " } else { "" }, brief(&submission.task.body, 40)),
                ]);
                listed.insert(run);
                rows.push(row(run, &fold, now, origin, (store.place(), &also_in)));
            }
            Err(error) => {
                unreadable.push_str(&format!("error: run {}: {}\n", name(run), brief(&error, 300)));
                let mut line: [String; 8] = Default::default();
                (line[0], line[OUTCOME]) = (name(run), "unreadable".to_owned());
                lines.push(line);
                listed.insert(run);
                rows.push(json!({ "run": run, "store": store.place().to_string_lossy(), "error": error }));
            }
        }
    }
    let (count_of_runs, most) = (listed.len(), limit.map_or(usize::MAX, |limit| limit as usize));
    let left_out = lines.len().saturating_sub(most);
    lines.drain(..left_out);
    rows.drain(..left_out);
    rows.extend(open.closed.iter().map(ClosedStore::json));
    if count_of_runs == 0 {
        let such = if filter.is_empty() { "" } else { "such " };
        let (text, exit) = open.nothing_found(&format!("{such}runs"));
        return Ok(Page { exit, ..Page::new(text, Value::from(rows)) });
    }
    let width = table([""], &[]).width();
    let of_all = if left_out > 0 { format!("the newest {} of ", lines.len()) } else { String::new() };
    let text =
        format!("{}{of_all}{}\n{duplicates}{unreadable}", lines_of(&drawn(&lines, width)), count(count_of_runs, "run"));
    Ok(Page::new(text, Value::from(rows)))
}

const COLUMNS: [&str; 8] = ["run", "submitted", "agent", "outcome", "turns", "tokens", "took", "task"];
const OUTCOME: usize = 3;
const NUMBERS: [usize; 3] = [4, 5, 6];
const TASK: usize = 7;

/// The columns that are omitted, in this order, where the terminal is too narrow for all.
const OMITTED: [usize; 5] = [6, 5, 4, 1, 2];

/// The least width of a task, in characters.
const LEAST_TASK: usize = 12;

/// The table, with as many columns as fit: ids are not wrapped, because a wrapped one cannot be copied.
fn drawn(lines: &[[String; 8]], width: Option<u16>) -> comfy_table::Table {
    let kept = kept(lines, width);
    let numbers: Vec<usize> = (0..kept.len()).filter(|place| NUMBERS.contains(&kept[*place])).collect();
    let mut table = table(kept.iter().map(|column| COLUMNS[*column]).collect::<Vec<_>>(), &numbers);
    if let Some(width) = width {
        table.set_width(width);
    }
    for line in lines {
        table.add_row(kept.iter().map(|column| &line[*column]));
    }
    for (place, column) in kept.iter().enumerate() {
        if let Some(drawn) = table.column_mut(place).filter(|_| *column != TASK) {
            drawn.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    table
}

/// The columns that fit into the width.
fn kept(lines: &[[String; 8]], width: Option<u16>) -> Vec<usize> {
    let mut kept: Vec<usize> = (0..COLUMNS.len()).collect();
    let Some(width) = width.map(usize::from) else { return kept };
    let needed = |column: &usize| {
        let longest = lines.iter().map(|line| line[*column].chars().count()).max().unwrap_or_default();
        // With a blank at each side, and one between columns.
        let head = COLUMNS[*column].len();
        3 + if *column == TASK { longest.clamp(head, LEAST_TASK) } else { longest.max(head) }
    };
    for omitted in OMITTED {
        if kept.iter().map(needed).sum::<usize>() > width {
            kept.retain(|column| *column != omitted);
        }
    }
    kept
}

/// The turn that a run was forked from, by its last `Forked` event: earlier ones were copied from runs that were forks themselves.
fn origin(history: &[RunEvent]) -> Option<TurnId> {
    history.iter().rev().find_map(|event| match event {
        RunEvent::Forked { from, .. } => Some(*from),
        _ => None,
    })
}

/// The state of a run after its events; an error if the first is missing.
pub(crate) fn folded(history: Vec<RunEvent>) -> Result<Run, String> {
    let rules = Rules::of(&history);
    Run::of(history, &rules.state).ok_or_else(|| "its journal does not go back to its beginning".to_owned())
}

/// How the run ended, or what it waits for, in words.
pub(crate) fn status(run: &Run, now: Timestamp) -> String {
    if let Some(result) = run.result() {
        return result.outcome.name().to_owned();
    }
    match Status::of(run, now) {
        Status::NeedsAttention => "needs attention".to_owned(),
        Status::WaitsForConsent => "waits for consent".to_owned(),
        Status::WaitsForAnswer => "waits for an answer".to_owned(),
        Status::Open => {
            let turns = count(run.open_turns().count(), "turn");
            let expired = run.pending().iter().find_map(|wait| match wait {
                Pending::Approval(_) => Some(", consent expired"),
                Pending::Question(_) => Some(", question expired"),
                // These do not expire.
                Pending::Node(_) | Pending::Attention { .. } => None,
            });
            format!("open ({turns}{})", expired.unwrap_or_default())
        }
    }
}

fn row(run: RunId, fold: &Run, now: Timestamp, origin: Option<TurnId>, (store, also_in): (&Path, &[&Path])) -> Value {
    let submission = fold.submission();
    json!({
        "run": run,
        "store": store.to_string_lossy(),
        "also_in": also_in.iter().map(|store| store.to_string_lossy()).collect::<Vec<_>>(),
        "submitted_at": shapes::time(submission.at),
        "agent": submission.agent,
        "task": submission.task.body,
        "forked_from": origin.map(shapes::turn_of),
        "status": shapes::status(fold, now),
        "outcome": fold.result().map(|result| shapes::stable(&result.outcome)),
        "open_turns": shapes::stable(&fold.open_turns().collect::<Vec<_>>()),
        "metrics": shapes::stable(&fold.metrics()),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use callboard::messages::Action;
    use callboard::prelude::*;

    use super::*;
    use crate::waits::{all_json, line};

    #[test]
    fn an_expired_approval_is_shown_as_expired_and_no_longer_waited_for() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let pays = |turn: Turn| async move {
                turn.people().approve(Action::new("pay", "order 1", json!({}))).await?;
                Ok(Command::new())
            };
            let board = Callboard::builder().agent("pays", pays).start().await.unwrap();
            let run = board.submit(Task::new("x")).await.unwrap();
            let expires_at = board.people().next().await.unwrap().expires_at().unwrap();
            let (run, before) = (run.read().await.unwrap(), Timestamp::from_millis(expires_at.as_millis() - 1));
            assert_eq!(Status::of(&run, before), Status::WaitsForConsent);
            assert_eq!(line(&run.pending()[0], before), ("consent", "pays wants to pay order 1".to_owned()));
            assert_eq!(
                (status(&run, before), status(&run, expires_at)),
                ("waits for consent".to_owned(), "open (1 turn, consent expired)".to_owned())
            );
            let (_, line) = line(&run.pending()[0], expires_at);
            assert!(
                line.starts_with("pays wants to pay order 1; expired at 20")
                    && line.ends_with(": it is denied when the run is resumed"),
                "{line}"
            );
            assert_eq!(
                (&all_json(&run, before)[0]["is_expired"], &all_json(&run, expires_at)[0]["is_expired"]),
                (&false.into(), &true.into())
            );
            board.shutdown().await;
        });
    }

    #[test]
    fn a_duration_has_a_unit() {
        assert_eq!(["90m", "12h", "7d"].map(time_span), [5_400, 43_200, 604_800].map(|s| Ok(Duration::from_secs(s))));
        for wrong in ["", "7", "d", "7 d", "-1d", "7w", "99999999999999999999d", "1ä"] {
            let problem = "write a number of seconds, minutes, hours or days: 30s, 90m, 12h or 7d";
            assert_eq!(time_span(wrong), Err(problem.to_owned()), "{wrong}");
        }
    }

    #[test]
    fn a_status_is_named_by_a_prefix_that_no_other_has() {
        assert_eq!(
            ["finished", "fa", "waits for c", "waits_for_a", "o"].map(state),
            ["finished", "failed", "waits_for_consent", "waits_for_answer", "open"].map(Ok)
        );
        for (ambiguous, states) in [("f", "finished or failed"), ("waits", "waits_for_answer or waits_for_consent")] {
            assert_eq!(state(ambiguous), Err(format!("this could be {states}")), "{ambiguous}");
        }
        for unknown in ["", "Finished", "finishes", "open (1 turn)"] {
            let problem = format!("there is no such state; the states are {}", STATES.join(", "));
            assert_eq!(state(unknown), Err(problem), "{unknown}");
        }
    }

    #[test]
    fn ids_are_not_wrapped_on_the_narrowest_terminal() {
        let id = "01a208d6-b322-7315-8a60-6c8f3f5a0d11";
        let line = [
            id,
            "2026-11-23 14:10:31",
            "researcher",
            "finished",
            "12",
            "150,000",
            "1.234 s",
            "review this repository, all of it",
        ];
        let lines = [line.map(str::to_owned)];
        for width in [60, 80, 100, 120, 200] {
            let table = drawn(&lines, Some(width));
            let shown = lines_of(&table);
            assert!(shown.contains(id), "{width}:\n{shown}");
            assert!(shown.lines().all(|line| line.chars().count() <= usize::from(width)), "{width}:\n{shown}");
        }
        let mut short = lines.clone();
        short[0][TASK] = "hi".to_owned();
        for width in 60..=140 {
            let shown = lines_of(&drawn(&short, Some(width)));
            assert!(shown.contains("task") && shown.contains("hi"), "{width}: a word is broken\n{shown}");
        }
        let heads =
            |width| lines_of(&drawn(&lines, width)).lines().find(|line| line.contains("run")).map(str::to_owned);
        assert!(heads(Some(80)).is_some_and(|head| head.contains("outcome") && !head.contains("tokens")));
        assert!(heads(None).is_some_and(|head| COLUMNS.iter().all(|column| head.contains(column))));
    }
}
