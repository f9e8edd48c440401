//! The contents of statuses: what became of a request, for people and for programs. Texts of agents and of others are made visible.

use callboard::messages::{Outcome, Pending, RunId, RunResult, visible, visible_lines};
use serde_json::{Value, json};

use super::ledger::Request;
use super::request::Form;
use crate::matrix::message::notice;
use crate::matrix::synced::MESSAGE;
use crate::texts;

/// The longest text of a status, in units of UTF-16, of which each is at most three bytes: an event of Matrix has 64 KiB.
const MAX_TEXT: usize = 12_000;
/// The longest news, and the longest `detail`, in characters.
const MAX_NEWS: usize = 2_000;
const MAX_DETAIL: usize = 300;

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Status {
    /// `ack`, `notice`, `complete` or `fail`.
    pub(super) name: &'static str,
    /// In a few words.
    pub(super) detail: String,
    /// As a person reads it.
    pub(super) body: String,
}

impl Status {
    fn new(name: &'static str, text: &str, body: String) -> Self {
        Self { name, detail: beginning(&text.replace(['\n', '\t'], " "), MAX_DETAIL), body }
    }

    pub(super) fn acknowledged(agent: &str, run: Option<RunId>) -> Self {
        let run = run.map_or_else(String::new, |run| format!(" as run {run}"));
        let text = visible(&format!("{agent} has accepted it{run}"));
        Self::new("ack", &text, text.clone())
    }

    /// `text` is that of [`news`] or of [`waits`].
    pub(super) fn noticed(text: &str) -> Self {
        Self::new("notice", text, text.to_owned())
    }

    pub(super) fn refused(why: &str) -> Self {
        let why = beginning(&visible_lines(why), MAX_NEWS);
        Self::new("fail", &why, format!("failed: {why}"))
    }

    /// `how` says where all of it is seen.
    pub(super) fn of_result(result: &RunResult, how: &str) -> Self {
        let output = output(result);
        match &result.outcome {
            Outcome::Finished if output.is_empty() => {
                Self::new("complete", "finished", "finished, without an output".to_owned())
            }
            Outcome::Finished => Self::new("complete", "finished", texts::shortened(&output, how, MAX_TEXT)),
            Outcome::Failed { .. } | Outcome::Refused(_) | Outcome::Denied { .. } | Outcome::Cancelled { .. } => {
                let why = visible_lines(&result.outcome.to_string());
                let text =
                    if output.is_empty() { format!("failed: {why}") } else { format!("failed: {why}\n\n{output}") };
                Self::new("fail", &why, texts::shortened(&text, how, MAX_TEXT))
            }
        }
    }
}

/// The output of a run: a text as it is, anything else as JSON in lines; empty if there is none.
fn output(result: &RunResult) -> String {
    match result.output.value() {
        Value::Null => String::new(),
        Value::String(text) => visible_lines(text),
        value => visible_lines(&serde_json::to_string_pretty(value).unwrap_or_default()),
    }
}

/// A notice of a run as it is shown.
pub(super) fn news(text: &str) -> String {
    beginning(&visible_lines(text), MAX_NEWS)
}

/// What a run waits for a person with, and `how` it is answered.
pub(super) fn waits(pending: &Pending, how: &str) -> String {
    let text = match pending {
        Pending::Approval(envelope) => format!("{} wants to {}", envelope.agent, envelope.action),
        Pending::Question(question) => format!("{} asks: {}", question.agent, question.text()),
        Pending::Node(interrupt) => format!("the node {} waits for a person", interrupt.node),
        Pending::Attention { turn, why, .. } => format!("turn {} needs attention: {why}", turn.number),
    };
    format!("waits for a decision: {}\n{}", news(&text), visible(how))
}

/// The beginning of a text, of so many characters at most.
fn beginning(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The type of the event that answers a request, and its content.
pub(super) fn answer(prefix: &str, event: &str, request: &Request, status: &Status) -> (String, Value) {
    let kind = format!("{prefix}.status");
    let Status { name, detail, body } = status;
    let mut content = json!({
        "request_id": request.id, "from_agent": request.agent, "to_agent": request.to, "status": name, "detail": detail,
        "run": request.run,
    });
    if let Some(trace_id) = &request.trace_id {
        content["trace_id"] = json!(trace_id);
    }
    match request.form {
        Form::Request => {
            content["body"] = json!(body);
            content["m.relates_to"] = json!({ "rel_type": "m.reference", "event_id": event });
            (kind, content)
        }
        Form::Message => {
            let mut message = notice(event, body);
            message[kind] = content;
            (MESSAGE.to_owned(), message)
        }
    }
}

#[cfg(test)]
mod tests {
    use callboard::messages::AgentName;

    use super::*;

    #[test]
    fn a_status_has_no_character_that_deceives_and_fits_an_event() {
        let request = Request::new("!r:b", &AgentName::new("writer").unwrap(), Form::Message, ("$1", "@a:b", "ann"));
        let hostile = format!("<b>\u{202e}{}</b>", "\u{1b}€\"".repeat(20_000));
        for form in [Form::Message, Form::Request] {
            let mut request = request.clone();
            request.form = form;
            for status in [Status::refused(&hostile), Status::noticed(&news(&hostile))] {
                let (_, content) = answer("com.example", "$1", &request, &status);
                let text = content.to_string();
                assert!(text.len() < 48 << 10 && !text.contains(['\u{202e}', '\u{1b}']), "{}", text.len());
                assert!(content.get("formatted_body").is_none() && text.contains("<b>\\\\u{202e}"));
            }
        }
    }
}
