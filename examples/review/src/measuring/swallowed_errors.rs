//! Errors that are caught and dropped without a word (Python and JavaScript), and handlers that take everything (Python).
//!
//! A handler that raises again is not counted, nor is one that says in a comment why nothing is to be done.

use super::source::Source;
use crate::findings::{Kind, Observation, Severity};
use crate::languages::Language;
use crate::outlining::{LogicalLine, logical_lines};

pub(super) fn measure(source: &Source<'_>, out: &mut Vec<Observation>) {
    let mut found = |at: usize, kind: Kind, severity: Severity, message: &str| {
        out.push(Observation {
            kind,
            severity: if source.outline.is_test(at) { Severity::Low } else { severity },
            line: source.lexed.tokens[at].line,
            subject: source.outline.owner(at).to_owned(),
            message: message.to_owned(),
            size: 1,
            snippet: source.lexed.snippet(at),
            places: Vec::new(),
        });
    };
    match source.language {
        Language::Rust => {}
        Language::Python => in_python(source, &mut found),
        Language::JavaScript => in_javascript(source, &mut found),
    }
}

fn in_python(source: &Source<'_>, found: &mut impl FnMut(usize, Kind, Severity, &str)) {
    let lexed = &source.lexed;
    let lines = logical_lines(lexed);
    for (index, line) in lines.iter().enumerate() {
        let first = line.tokens.start;
        if !lexed.is(first, "except") {
            continue;
        }
        let body = Body::new(source, &lines, index);
        let is_bare = lexed.is(first + 1, ":");
        let is_broad = (lexed.is(first + 1, "Exception") || lexed.is(first + 1, "BaseException"))
            && (lexed.is(first + 2, ":") || lexed.reads(first + 2, &["as"]) && lexed.is(first + 4, ":"));
        if is_bare && body.is_silent {
            found(first, Kind::SwallowedError, Severity::High, "catches everything, even an interrupt, and drops it");
        } else if is_bare && !body.raises {
            found(first, Kind::BareExcept, Severity::Low, "catches everything, even an interrupt");
        } else if is_broad && body.is_silent {
            found(first, Kind::SwallowedError, Severity::Medium, "catches every exception and drops it");
        }
    }
}

/// What a handler does.
struct Body {
    /// Nothing at all, and no comment says why.
    is_silent: bool,
    raises: bool,
}

impl Body {
    fn new(source: &Source<'_>, lines: &[LogicalLine], header: usize) -> Self {
        let lexed = &source.lexed;
        let block = lines[header + 1..].iter().take_while(|line| line.indent > lines[header].indent);
        let start = lines[header].tokens.start;
        let colon = lines[header].tokens.clone().find(|at| lexed.is(*at, ":")).unwrap_or(start);
        let end = block.last().unwrap_or(&lines[header]).tokens.end;
        let tokens = &lexed.tokens[colon + 1..end];
        let does_nothing = tokens.iter().all(|token| token.is("pass") || token.is(".") || token.is("continue"));
        let is_explained = (colon + 1..end).any(|at| !lexed.comments_before(at).is_empty())
            || lexed
                .comments_before(end)
                .iter()
                .any(|comment| Some(comment.line) == tokens.last().map(|last| last.line));
        Self { is_silent: does_nothing && !is_explained, raises: tokens.iter().any(|token| token.is("raise")) }
    }
}

fn in_javascript(source: &Source<'_>, found: &mut impl FnMut(usize, Kind, Severity, &str)) {
    let lexed = &source.lexed;
    for at in 0..lexed.tokens.len() {
        let is_call = at > 0 && lexed.is(at - 1, ".");
        let body = match (lexed.is(at, "catch"), is_call) {
            (false, _) => None,
            (true, true) => empty_callback(source, at + 1),
            (true, false) if lexed.is(at + 1, "{") => Some(at + 1),
            (true, false) => (at + 2..at + 6).find(|body| lexed.reads(*body - 1, &[")", "{"])),
        };
        let is_silent = body.is_some_and(|body| lexed.is(body + 1, "}") && lexed.comments_before(body + 1).is_empty());
        if is_silent && !(is_call && has_comment_above(source, at)) {
            let message = if is_call { "drops the error of a promise" } else { "drops the error (empty catch)" };
            found(at, Kind::SwallowedError, Severity::Medium, message);
        }
    }
}

/// The brace of a callback that does nothing: `(() => {`, `(e => {`, `(function () {`. One that returns an empty object
/// gives a default instead.
fn empty_callback(source: &Source<'_>, open: usize) -> Option<usize> {
    let lexed = &source.lexed;
    let mut ahead = (open + 1..open + 8).take_while(|at| !lexed.is(*at, ";"));
    ahead.find(|at| lexed.is(*at, "{") && (lexed.is(*at - 1, ">") || lexed.is(*at - 1, ")")))
}

/// Whether a comment ends the line or stands on the line above.
fn has_comment_above(source: &Source<'_>, at: usize) -> bool {
    let line = source.lexed.tokens[at].line;
    source.lexed.comments.iter().any(|comment| comment.line == line || comment.line + 1 == line)
}
