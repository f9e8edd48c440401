//! Prints the standard error of agents that are programs, which the library logs.

use std::fmt::{self, Write as _};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use callboard::messages::{visible, visible_lines};

use crate::output::note_deferrable;

/// The target under which the library logs the output of programs, and their protocol errors.
const TARGET: &str = "callboard::process";

/// Installs the subscriber that prints the log of programs.
pub(crate) fn show() {
    // It is the only subscriber of this process.
    let _ = tracing::subscriber::set_global_default(Printer);
}

/// Prints events, and ignores spans.
struct Printer;

impl Subscriber for Printer {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target() == TARGET && *metadata.level() <= Level::INFO
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::INFO)
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        note_deferrable(&line.text());
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// A line of the log, and the agent whose program wrote it.
#[derive(Default)]
struct Line {
    agent: String,
    message: String,
}

impl Line {
    /// Its lines are indented after the first, so that none looks like a line of `callboard`.
    fn text(&self) -> String {
        format!("{} │ {}", visible(&self.agent), visible_lines(&self.message).replace('\n', "\n  │ "))
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = match field.name() {
            "agent" => &mut self.agent,
            "message" => &mut self.message,
            _ => return,
        };
        // Writing to a string does not fail.
        let _ = write!(text, "{value:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_of_a_program_looks_like_one_of_callboard() {
        let line = Line { agent: "a\u{1b}[2J".into(), message: "one\nrun 2 approved\u{202e}".into() };
        assert_eq!(line.text(), "a\\u{1b}[2J │ one\n  │ run 2 approved\\u{202e}");
    }
}
