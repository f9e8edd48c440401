//! `callboard dead-letters` and `callboard retry`: turns that failed for good.

use serde_json::json;

use callboard::messages::{RunId, visible};

use crate::limits::LimitChoice;
use crate::page::{Failure, Page, brief, lines_of, table, time_of};
use crate::run_names::short;
use crate::stores::Common;
use crate::stores::Stores;

use super::arguments::{DeadLetters, Retry};
use super::boards::{ask_any, run_of};
use super::follow::read;

/// Lists the letters, or retries one.
pub(super) async fn main(arguments: &DeadLetters) -> Result<Page, Failure> {
    let common = arguments.common();
    let stores = common.choice.stores()?;
    match arguments.retried() {
        None => list(&stores).await,
        Some(letter) => {
            let (run, turn) = match letter.rsplit_once('/').map(|(run, turn)| (run, turn.parse())) {
                Some((run, Ok(turn))) => (run, Some(turn)),
                Some((_, Err(_))) => {
                    let text =
                        format!("{} is no dead letter: write RUN/TURN, as the list has it, or RUN", visible(letter));
                    return Err(Failure::usage(text));
                }
                None => (letter, None),
            };
            begin(&stores, run, turn, None).await
        }
    }
}

/// Tries a turn that failed for good again.
pub(super) async fn retry(arguments: &Retry) -> Result<Page, Failure> {
    let Retry { run, turn, limits, common: Common { choice, json: _ } } = arguments;
    begin(&choice.stores()?, run, *turn, limits.as_ref()).await
}

async fn begin(stores: &Stores, run: &str, turn: Option<u32>, limits: Option<&LimitChoice>) -> Result<Page, Failure> {
    let (store, run) = stores.find(run).await?;
    let mut body = json!({});
    if let Some(turn) = turn {
        body["turn"] = turn.into();
    }
    if let Some(limits) = limits {
        body["limits"] = json!(limits.over(read(&store, run).await?.submission().limits()));
    }
    drop(store);
    let path = format!("/v1/delegations/{run}/retry");
    let delegation = ask_any(stores, ("POST", &path), &[], Some(&body)).await?;
    let id = short(run_of(&delegation)?);
    let page = Page::of_data(&id, &format!("continues from {}", short(run)), delegation);
    Ok(Page { done: Some(format!("the retry is journaled as {id}")), ..page })
}

async fn list(stores: &Stores) -> Result<Page, Failure> {
    let (mut letters, mut next) = (Vec::new(), String::new());
    loop {
        let page = ask_any(stores, ("GET", &format!("/v1/dead-letters{next}")), &[], None).await?;
        letters.extend(page["dead_letters"].as_array().cloned().unwrap_or_default());
        match page["next"].as_str() {
            Some(cursor) => next = format!("?page={cursor}"),
            None => break,
        }
    }
    let mut drawn = table(["letter", "at", "agent", "tries", "failure", "retried as"], &[3]);
    for letter in &letters {
        let text = |field: &str| visible(letter[field].as_str().unwrap_or_default());
        let run = |field: &str| letter[field].as_str().and_then(|id| id.parse::<RunId>().ok()).map(short);
        drawn.add_row([
            format!("{}/{}", run("request_id").unwrap_or_default(), letter["turn"]),
            time_of(&letter["at"]),
            text("agent"),
            letter["attempts"].to_string(),
            brief(letter["failure"]["text"].as_str().unwrap_or_default(), 120),
            run("retried_as").unwrap_or_default(),
        ]);
    }
    let text = if letters.is_empty() { "there are no dead letters\n".to_owned() } else { lines_of(&drawn) };
    Ok(Page::new(text, json!({ "dead_letters": letters })))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_failure_is_an_object_with_a_text() {
        let failure = callboard::messages::Failure::new(callboard::messages::FailureKind::Terminal, "it is down");
        assert_eq!(callboard_server::json::stable(&failure)["text"], serde_json::Value::from("it is down"));
    }
}
