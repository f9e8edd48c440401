//! The messages that a run stores in its conversation, and those that the next run reads (SEMANTICS 15).

use std::sync::Arc;

use callboard_text::cut;

use crate::messages::{Json, Message, RunId, Timestamp};
use crate::storage::{Taken, TicketEnd};

use super::run::Run;

/// The longest message that is kept whole, in bytes.
const MAX_MESSAGE: usize = 256 << 10;

/// The most bytes of a conversation that a run reads: the newest runs whose messages fit.
const MAX_READ: u64 = 1 << 20;

/// The messages that an ended run stores in its conversation: its task, and its answer if it has one.
#[must_use]
fn messages_of(run: &Run) -> Vec<Message> {
    let task = &run.submission().task;
    let asked = task.input.as_ref().map_or_else(|| task.body.to_string(), words);
    let user = Message::user(shortened(&asked, run.id()));
    let output = run.result().map(|result| &result.output).filter(|output| !output.is_null());
    let answer =
        output.map(|output| Message::Assistant { text: shortened(&words(output), run.id()), calls: Vec::new() });
    std::iter::once(user).chain(answer).collect()
}

fn words(json: &Json) -> String {
    json.as_str().map_or_else(|| json.to_string(), str::to_owned)
}

fn shortened(text: &str, run: RunId) -> Arc<str> {
    if text.len() <= MAX_MESSAGE {
        return text.into();
    }
    let kept = text.floor_char_boundary(MAX_MESSAGE);
    format!("{}\n[{} more bytes are in the journal of run {run}]", &text[..kept], text.len() - kept).into()
}

/// How a run ended, and the messages that it stores; `None` before its end.
pub(in crate::supervision::runs) fn end_of(run: &Run) -> Option<(TicketEnd, Json)> {
    let result = run.result()?;
    let messages = messages_of(run);
    let failure = (!result.outcome.is_finished()).then(|| cut(&result.outcome.to_string()).into());
    let end = TicketEnd {
        at: run.last_at(),
        failure,
        is_tainted: run.is_tainted(),
        messages: u32::try_from(messages.len()).unwrap_or(u32::MAX),
        bytes: messages.iter().map(|message| message.size() as u64).sum(),
    };
    Some((end, json(&messages)))
}

/// Messages as they are stored.
pub(in crate::supervision::runs) fn json(messages: &[Message]) -> Json {
    Json::of(messages).unwrap_or_else(|_| Json::null())
}

/// The end of a run without a readable journal: later runs skip it.
pub(in crate::supervision::runs) fn lost(at: Timestamp, why: &str) -> (TicketEnd, Json) {
    let end = TicketEnd { at, failure: Some(cut(why).into()), is_tainted: false, messages: 0, bytes: 0 };
    (end, json(&[]))
}

/// The messages of a run as a model reads them. Without an answer, one is added that reports how the run ended, because models
/// expect an answer after each message.
#[must_use]
pub(in crate::supervision::runs) fn as_read(mut messages: Vec<Message>, end: &TicketEnd) -> Vec<Message> {
    if end.failure.is_some() && matches!(messages.last(), Some(Message::User { .. })) {
        messages.push(Message::Assistant { text: "[There is no answer: the run failed.]".into(), calls: Vec::new() });
    }
    messages
}

/// How many of the earlier runs are read: the newest whose messages fit, and at least one.
pub(in crate::supervision::runs) fn newest(ended: &[Taken]) -> usize {
    let mut bytes = 0;
    let fits = |taken: &&Taken| {
        bytes += taken.ticket.end.as_ref().map_or(0, |end| end.bytes);
        bytes <= MAX_READ
    };
    ended.iter().rev().take_while(fits).count().max(1).min(ended.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(bytes: u64, failure: Option<&str>) -> TicketEnd {
        let at = Timestamp::default();
        TicketEnd { at, failure: failure.map(Arc::from), is_tainted: false, messages: 1, bytes }
    }

    #[test]
    fn a_run_without_an_answer_is_read_as_one() {
        let asked = vec![Message::user("hello")];
        assert_eq!(as_read(asked.clone(), &end(5, None)), asked);
        let read = as_read(asked, &end(5, Some("failed")));
        assert!(matches!(&read[..], [Message::User { .. }, Message::Assistant { .. }]), "{read:?}");
        let answered = vec![Message::user("hello"), Message::Assistant { text: "half".into(), calls: Vec::new() }];
        assert_eq!(as_read(answered.clone(), &end(9, Some("failed"))), answered);
    }

    #[test]
    fn a_long_message_is_cut_at_a_character() {
        let text = "é".repeat(MAX_MESSAGE);
        let short = shortened(&text, RunId(uuid::Uuid::nil()));
        assert!(short.len() < MAX_MESSAGE + 100 && short.contains("more bytes are in the journal"), "{}", short.len());
    }
}
