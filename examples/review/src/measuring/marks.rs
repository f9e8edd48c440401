//! Marks that a person left for later: TODO, FIXME and XXX in comments.

use std::collections::HashSet;

use super::source::Source;
use crate::findings::{Kind, Observation, Severity};

const MARKS: [(&str, Severity); 3] = [("TODO", Severity::Low), ("FIXME", Severity::Medium), ("XXX", Severity::Low)];

/// Characters of the text that a finding keeps.
const SHOWN: usize = 120;

pub(super) fn measure(source: &Source<'_>, out: &mut Vec<Observation>) {
    let comments = &source.lexed.comments;
    let lines = comments.iter().flat_map(|comment| (comment.line..).zip(comment.text.lines()));
    let lines: Vec<(usize, &str)> = lines.collect();
    let code: HashSet<usize> = source.lexed.tokens.iter().map(|token| token.line).collect();
    let has_code = |line: usize| code.contains(&line);
    for (index, (line, text)) in lines.iter().enumerate() {
        let Some((mark, severity, rest)) = mark_in(text) else { continue };
        let said = plain(rest).trim_start_matches([':', '-', '!']).trim_start();
        out.push(Observation {
            kind: Kind::Mark,
            severity,
            line: *line,
            subject: mark.to_owned(),
            message: shown(said, &lines[index..], &has_code),
            size: 1,
            snippet: said.split_whitespace().collect::<Vec<_>>().join(" "),
            places: Vec::new(),
        });
    }
}

/// What the mark says, with the lines below that go on with the sentence, as far as a report has room. A comment behind
/// code goes on nowhere.
fn shown(said: &str, lines: &[(usize, &str)], has_code: &impl Fn(usize) -> bool) -> String {
    let mut text = said.to_owned();
    for pair in lines.windows(2) {
        let ((line, this), (below, next)) = (pair[0], pair[1]);
        let continues = below == line + 1
            && !has_code(line)
            && !has_code(below)
            && !this.ends_with("*/")
            && delimiter(this) == delimiter(next)
            && mark_in(next).is_none()
            && !plain(next).is_empty();
        if text.ends_with(['.', '!', '?']) || text.len() > SHOWN || !continues {
            break;
        }
        text = format!("{text} {}", plain(next)).trim_start().to_owned();
    }
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", text[..end].trim_end()),
        None if text.is_empty() => "left open without a word".to_owned(),
        None => text,
    }
}

/// The characters that make a line a comment.
fn delimiter(line: &str) -> &str {
    let line = line.trim_start();
    &line[..line.find(|c| !"/*#!".contains(c)).unwrap_or(line.len())]
}

/// A comment line without its delimiters.
fn plain(line: &str) -> &str {
    line.trim().trim_start_matches(['/', '*', '#', '!']).trim_end_matches("*/").trim()
}

/// The mark with which a comment line starts, or which a colon or an owner in parentheses follows; prose about marks is
/// not one.
fn mark_in(line: &str) -> Option<(&'static str, Severity, &str)> {
    MARKS.iter().find_map(|(mark, severity)| {
        line.match_indices(mark).find_map(|(at, _)| {
            let (before, after) = (&line[..at], &line[at + mark.len()..]);
            let is_word = !before.ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '`' | '"' | '\''))
                && !after.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '`' | '"' | '\''));
            let leads = before.chars().all(|c| c.is_whitespace() || "/*#!-@[(".contains(c));
            let is_addressed = after.starts_with(':') || after.starts_with('(');
            (is_word && (leads || is_addressed)).then_some((*mark, *severity, after))
        })
    })
}
