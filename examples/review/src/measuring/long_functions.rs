//! Functions that are too long to hold in mind.

use super::source::Source;
use crate::findings::{Kind, Observation, Severity};

/// Code lines a function may have.
const LIMIT: usize = 60;

/// Levels of a function that reads from top to bottom, such as a table: it is long, but easy to follow.
const FLAT: usize = 2;

pub(super) fn measure(source: &Source<'_>, out: &mut Vec<Observation>) {
    for function in source.outline.functions.iter().filter(|function| function.code_lines > LIMIT) {
        let tokens = &source.lexed.tokens;
        let (first, last) =
            (tokens[function.tokens.start].line, tokens[function.tokens.end.min(tokens.len()) - 1].line);
        let severity = match function.code_lines {
            _ if function.is_test => Severity::Low,
            lines if lines > 2 * LIMIT && function.depth > FLAT => Severity::High,
            lines if lines > 2 * LIMIT || function.depth > FLAT => Severity::Medium,
            _ => Severity::Low,
        };
        out.push(Observation {
            kind: Kind::LongFunction,
            severity,
            line: first,
            subject: function.name.clone(),
            message: format!("has {} code lines (lines {first}–{last}, limit {LIMIT})", function.code_lines),
            size: function.code_lines,
            snippet: String::new(),
            places: Vec::new(),
        });
    }
}
