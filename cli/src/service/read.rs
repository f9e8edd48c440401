//! `callboard read`: the inbox of an agent, or of who delegates from terminals.

use serde_json::Value;

use callboard::messages::visible;
use callboard_text::quoted;

use crate::page::{Failure, Page, brief, brief_lines, lines_of, table, time_of};
use crate::run_names::short;
use crate::stores::Stores;

use super::arguments::Read;
use super::boards::{ask_any, encoded};
use super::own_tokens;
use super::sending::is_agent;

/// The most characters of a message.
const SHOWN: usize = 200;

/// Prints the newest messages of an inbox.
pub(super) async fn read(arguments: &Read) -> Result<Page, Failure> {
    let Read { agent, choice, json: _ } = arguments;
    let path = format!("/v1/agents/{}/inbox", encoded(agent));
    let stores = choice.stores()?;
    let inbox = ask_any(&stores, ("GET", &path), &[], None).await?;
    let messages = inbox["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    if messages.is_empty() && !is_known(&stores, agent).await? {
        return Err(Failure::not_found(format!("no agent and no token has the name {}", visible(&quoted(agent)))));
    }
    // Tasks have no time of their own.
    let has_times = messages.iter().any(|message| message["at"].is_string());
    let cells = |cells: [String; 4]| cells.into_iter().skip(usize::from(!has_times));
    let mut drawn = table(cells(["at", "run", "from", "message"].map(str::to_owned)).collect::<Vec<_>>(), &[]);
    for message in messages {
        let text = |field: &str| message[field].as_str().unwrap_or_default();
        let run = text("request_id").parse().map_or_else(|_| visible(text("request_id")), short);
        drawn.add_row(cells([time_of(&message["at"]), run, visible(text("from_agent")), said(message)]));
    }
    let text = if messages.is_empty() {
        format!("the inbox of {} has no messages\n", visible(agent))
    } else {
        lines_of(&drawn)
    };
    Ok(Page::new(text, inbox))
}

/// Whether an agent of the server or a token has this name.
async fn is_known(stores: &Stores, name: &str) -> Result<bool, Failure> {
    if is_agent(stores, name).await? {
        return Ok(true);
    }
    Ok(own_tokens::open(stores)?.list().map_err(own_tokens::failure)?.iter().any(|token| token.name == name))
}

/// A message: the task of a request; the status, and its text or output.
fn said(message: &Value) -> String {
    if message["kind"] == "request" {
        return format!("asks: {}", brief_lines(message["body"].as_str().unwrap_or_default(), SHOWN));
    }
    let status = visible(message["status"].as_str().unwrap_or_default());
    let body = match &message["body"] {
        Value::Null => None,
        Value::String(text) => Some(brief_lines(text, SHOWN)),
        value => Some(brief(&value.to_string(), SHOWN)),
    };
    match (message["detail"].as_str().filter(|detail| !detail.is_empty()), body) {
        (Some(detail), _) => format!("{status}: {}", brief_lines(detail, SHOWN)),
        (None, Some(body)) => format!("{status}: {body}"),
        (None, None) => status,
    }
}
