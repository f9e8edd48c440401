//! `callboard runs list`.

use serde_json::{Value, json};

use callboard::messages::{RunEvent, RunId, TurnId};
use callboard::supervision::runs::run::Run;
use callboard::supervision::runs::snapshot::fold;

use crate::page::{Failure, Page, brief, count, duration, grouped, lines_of, table, time};
use crate::store::{Rules, Store};

/// All runs, one line each. One that cannot be read is listed as such.
pub(crate) async fn list(store: &Store) -> Result<Page, Failure> {
    let mut table = table(["run", "submitted", "agent", "outcome", "turns", "tokens", "took", "task"], &[4, 5, 6]);
    let (mut rows, mut unreadable) = (Vec::new(), String::new());
    for run in store.ids().await? {
        let read = match store.history(run).await {
            Ok(history) => {
                let origin = origin(&history);
                folded(history).map(|fold| (fold, origin))
            }
            Err(error) => Err(error.to_string()),
        };
        match read {
            Ok((fold, origin)) => {
                let metrics = fold.metrics();
                let submission = fold.submission();
                table.add_row([
                    run.to_string(),
                    time(submission.at),
                    submission.agent.to_string(),
                    standing(&fold),
                    metrics.turns.to_string(),
                    grouped(metrics.tokens_spent),
                    duration(metrics.elapsed),
                    format!("{}{}", if origin.is_some() { "fork: " } else { "" }, brief(&submission.task.body, 40)),
                ]);
                rows.push(row(run, &fold, origin));
            }
            Err(error) => {
                unreadable.push_str(&format!("error: run {run}: {}\n", brief(&error, 300)));
                table.add_row([run.to_string(), String::new(), String::new(), "unreadable".to_owned()]);
                rows.push(json!({ "run": run, "error": error }));
            }
        }
    }
    if rows.is_empty() {
        return Ok(Page::new("the store has no runs\n".to_owned(), json!([])));
    }
    let text = format!("{}{}\n{unreadable}", lines_of(&table), count(rows.len(), "run"));
    Ok(Page::new(text, Value::from(rows)))
}

/// The turn that a fork began with; what it has copied may say so of other forks before.
fn origin(history: &[RunEvent]) -> Option<TurnId> {
    history.iter().rev().find_map(|event| match event {
        RunEvent::Forked { from, .. } => Some(*from),
        _ => None,
    })
}

fn folded(history: Vec<RunEvent>) -> Result<Run, String> {
    let rules = Rules::of(&history);
    fold(history, &rules.state).ok_or_else(|| "its journal does not go back to its beginning".to_owned())
}

/// How the run ended, or what it waits for.
pub(crate) fn standing(run: &Run) -> String {
    if let Some(result) = run.result() {
        return result.outcome.name().to_owned();
    }
    if run.turns_that_need_attention().next().is_some() {
        return "needs attention".to_owned();
    }
    if run.open_approvals().next().is_some() {
        return "waits for consent".to_owned();
    }
    format!("open ({})", count(run.open_turns().count(), "turn"))
}

fn row(run: RunId, fold: &Run, origin: Option<TurnId>) -> Value {
    let submission = fold.submission();
    json!({
        "run": run,
        "submitted": submission.at,
        "agent": submission.agent,
        "task": submission.task.body,
        "forked_from": origin.map(|TurnId { run, number }| json!({ "run": run, "turn": number })),
        "standing": standing(fold),
        "outcome": fold.result().map(|result| &result.outcome),
        "open_turns": fold.open_turns().collect::<Vec<_>>(),
        "metrics": fold.metrics(),
    })
}
