//! `callboard usage`: what runs have used, by day, agent, model and who gave them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use callboard::Callboard;
use callboard::env::Env;
use callboard::messages::{Cost, Timestamp, visible};
use callboard_server::private::Client;

use crate::agents::arguments::Files;
use crate::config::{self, limits};
use crate::exit::Exit;
use crate::page::{Failure, Page, grouped, lines_of, table};
use crate::stores::store::Store;
use crate::values::time_span;

use super::arguments::Usage;
use super::boards::{accepted, encoded, is_unsent, of_service, unanswered, with_own_board};

/// Rows are added up by these.
const KEYS: [&str; 4] = ["day", "agent", "model", "from_agent"];
/// What is added up.
const SUMS: [&str; 4] = ["delegations", "input_tokens", "output_tokens", "cost_nanodollars"];

/// Shows what the server answers, or without one what a board of this process reads in the stores.
pub(super) async fn usage(arguments: &Usage) -> Result<Page, Failure> {
    let Usage { since, choice, json: _ } = arguments;
    let (stores, mut rows) = (choice.stores()?, Vec::new());
    let now = Env::system().now().wall.as_millis();
    let begin = |since: &String| match time_span(since) {
        Ok(ago) => {
            let ago = u64::try_from(ago.as_millis()).unwrap_or(u64::MAX);
            Timestamp::from_millis(now.saturating_sub(ago)).to_string()
        }
        Err(_) => since.clone(),
    };
    let since = since.as_ref().map(|since| format!("since={}", encoded(&begin(since))));
    let (service, mut remarks, mut exit) = (of_service(&stores), String::new(), None);
    match service.request("GET", "/v1/health", None).await {
        Err(error) if is_unsent(&error) => {
            let open = stores.open_existing().await?;
            let limits = config::read(&Files::of_project())??.limits;
            (remarks, exit) = (open.notes(), open.exit());
            for store in &open.stores {
                rows.extend(of_store(store, &limits, since.as_deref()).await?);
            }
        }
        _ => rows = read(&service, since.as_deref()).await?,
    }
    let rows = added_up(&rows);
    let mut drawn =
        table(["day", "agent", "model", "from", "runs", "input tokens", "output tokens", "cost"], &[4, 5, 6, 7]);
    for row in &rows {
        let [day, agent, model, from] = KEYS.map(|key| visible(row[key].as_str().unwrap_or_default()));
        let [runs, input, output, cost] = SUMS.map(|key| row[key].as_u64().unwrap_or_default());
        drawn.add_row([
            day,
            agent,
            model,
            from,
            grouped(runs),
            grouped(input),
            grouped(output),
            Cost(cost).to_string(),
        ]);
    }
    let text = if rows.is_empty() { "nothing was used\n".to_owned() } else { lines_of(&drawn) };
    Ok(Page { exit: exit.unwrap_or(Exit::Done), remarks, ..Page::new(text, json!({ "usage": rows })) })
}

/// The rows of a store, by a board that works on no run and has the days of these limits.
async fn of_store(store: &Store, limits: &limits::Section, since: Option<&str>) -> Result<Vec<Value>, Failure> {
    let builder = Callboard::builder().storage(store.storage()).day_limits(|days| limits.of_days(days));
    with_own_board(builder, async |client| read(client, since).await).await
}

/// The rows of all pages. A day may be on two of them.
async fn read(client: &Client, since: Option<&str>) -> Result<Vec<Value>, Failure> {
    let (mut rows, mut next) = (Vec::new(), None);
    loop {
        let query: Vec<String> = since.map(str::to_owned).into_iter().chain(next).collect();
        let answer = client.request("GET", &format!("/v1/usage?{}", query.join("&")), None).await;
        let page = accepted(answer.map_err(|error| unanswered(&error))?)?;
        rows.extend(page["usage"].as_array().cloned().unwrap_or_default());
        match page["next"].as_str() {
            Some(cursor) => next = Some(format!("page={}", encoded(cursor))),
            None => return Ok(rows),
        }
    }
}

/// The rows, newest day first, each day, agent, model and giver once.
fn added_up(rows: &[Value]) -> Vec<Value> {
    let mut sums: BTreeMap<[Option<&str>; 4], [u64; 4]> = BTreeMap::new();
    for row in rows {
        let sum = sums.entry(KEYS.map(|key| row[key].as_str())).or_default();
        for (sum, key) in sum.iter_mut().zip(SUMS) {
            *sum = sum.saturating_add(row[key].as_u64().unwrap_or_default());
        }
    }
    let row = |(keys, sums): ([Option<&str>; 4], [u64; 4])| {
        let keys = KEYS.iter().zip(keys).map(|(key, value)| ((*key).to_owned(), json!(value)));
        keys.chain(SUMS.iter().zip(sums).map(|(key, sum)| ((*key).to_owned(), json!(sum)))).collect()
    };
    sums.into_iter().rev().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_that_is_on_two_pages_is_one_row() {
        let row = |day: &str, from: Option<&str>, runs: u64| {
            json!({
                "day": day, "agent": "a", "model": "m", "from_agent": from, "delegations": runs, "input_tokens": 10 * runs,
                "output_tokens": runs, "cost_nanodollars": 7,
            })
        };
        let rows =
            added_up(&[row("2026-01-02", Some("ci"), 1), row("2026-01-01", None, 2), row("2026-01-02", Some("ci"), 3)]);
        let mut sum = row("2026-01-02", Some("ci"), 4);
        sum["cost_nanodollars"] = 14.into();
        assert_eq!(rows, [sum, row("2026-01-01", None, 2)]);
    }
}
