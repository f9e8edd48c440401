//! The questions that a run has asked people, with the answers.

use callboard::messages::{Json, RunEvent, RunId, Timestamp};
use maud::{Markup, html};

use super::texts::{line, lines, shown_time};

/// The most questions of a page, and the most characters of a question, of an answer and of a name.
const MAX_ASKED: usize = 20;
const MAX_TEXT: usize = 1_000;
const MAX_NAME: usize = 80;

/// Questions, the last of them, and how many there were before.
#[derive(Debug, Default)]
pub(super) struct Questions<'h> {
    asked: Vec<Asked<'h>>,
    left_out: usize,
}

/// A question.
#[derive(Debug)]
struct Asked<'h> {
    turn: u32,
    ordinal: u32,
    question: &'h Json,
    at: Timestamp,
    end: Option<End<'h>>,
}

#[derive(Debug)]
enum End<'h> {
    Answered { answer: &'h Json, by: &'h str, at: Timestamp },
    Expired,
}

impl<'h> Questions<'h> {
    /// Those that these events are about.
    pub(super) fn of(history: &'h [RunEvent]) -> Self {
        let mut asked: Vec<Asked<'h>> = Vec::new();
        for event in history {
            let (turn, ordinal, end) = match event {
                RunEvent::Asked { turn, ordinal, question, at, .. }
                | RunEvent::AskedUntil { turn, ordinal, question, at, .. } => {
                    asked.push(Asked { turn: *turn, ordinal: *ordinal, question, at: *at, end: None });
                    continue;
                }
                RunEvent::Answered { turn, ordinal, answer, by, at } => {
                    (turn, ordinal, End::Answered { answer, by, at: *at })
                }
                RunEvent::QuestionExpired { turn, ordinal, .. } => (turn, ordinal, End::Expired),
                _ => continue,
            };
            let found = asked.iter_mut().rev().find(|asked| asked.turn == *turn && asked.ordinal == *ordinal);
            if let Some(asked) = found {
                asked.end = Some(end);
            }
        }
        let left_out = asked.len().saturating_sub(MAX_ASKED);
        Self { asked: asked.split_off(left_out), left_out }
    }

    pub(super) fn shown(&self, run: RunId) -> Markup {
        html! {
            @if !self.asked.is_empty() {
                h2 { "Questions to people" }
                @if self.left_out > 0 { p.dim { (self.left_out) " earlier ones are among the events." } }
                ol.consents { @for asked in &self.asked { (asked.row(run)) } }
            }
        }
    }
}

impl Asked<'_> {
    fn row(&self, run: RunId) -> Markup {
        let (words, tone) = match &self.end {
            None => ("open", "warn"),
            Some(End::Answered { .. }) => ("answered", "good"),
            Some(End::Expired) => ("expired", "dim"),
        };
        html! {
            li {
                div.head {
                    a href={ "/runs/" (run) "/turns/" (self.turn) } { "Turn " (self.turn) }
                    bdi { (line(&text(self.question), MAX_TEXT)) }
                    span.kind.(tone) { (words) }
                    (shown_time(self.at))
                }
                @if let Some(End::Answered { answer, by, at }) = &self.end {
                    p.dim { "Answered by " bdi { (line(by, MAX_NAME)) } " " (shown_time(*at)) ":" }
                    pre.text.prose dir="auto" { (lines(&text(answer), MAX_TEXT)) }
                }
            }
        }
    }
}

/// A text as it is, anything else as JSON.
fn text(value: &Json) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
