//! `callboard read`: the inbox of an agent, or of who delegates from terminals.

use serde_json::Value;

use callboard::messages::{Json, visible};

use crate::page::{Failure, Page, brief, brief_json, lines_of, table};
use crate::run_names::short;

use super::arguments::Read;
use super::boards::{ask_service, encoded};

/// The most characters of a message in a line.
const SHOWN: usize = 200;

/// Prints the newest messages of an inbox.
pub(super) async fn read(arguments: &Read) -> Result<Page, Failure> {
    let Read { agent, choice, json: _ } = arguments;
    let path = format!("/v1/agents/{}/inbox", encoded(agent));
    let inbox = ask_service(&choice.stores()?, ("GET", &path), None).await?;
    let mut drawn = table(["at", "run", "from", "message"], &[]);
    let messages = inbox["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    for message in messages {
        let text = |field: &str| message[field].as_str().unwrap_or_default();
        let run = text("request_id").parse().map_or_else(|_| visible(text("request_id")), short);
        let at: String = text("at").replace('T', " ").chars().take(19).collect();
        drawn.add_row([at, run, visible(text("from_agent")), said(message)]);
    }
    let text = if messages.is_empty() {
        format!("the inbox of {} has no messages\n", visible(agent))
    } else {
        lines_of(&drawn)
    };
    Ok(Page::new(text, inbox))
}

/// A message in a line: the task of a request; the status, and its text or output.
fn said(message: &Value) -> String {
    if message["kind"] == "request" {
        return format!("asks: {}", brief(message["body"].as_str().unwrap_or_default(), SHOWN));
    }
    let status = visible(message["status"].as_str().unwrap_or_default());
    let body = (!message["body"].is_null()).then(|| brief_json(&Json::from(message["body"].clone()), SHOWN));
    match (message["detail"].as_str().filter(|detail| !detail.is_empty()), body) {
        (Some(detail), _) => format!("{status}: {}", brief(detail, SHOWN)),
        (None, Some(body)) => format!("{status}: {body}"),
        (None, None) => status,
    }
}
