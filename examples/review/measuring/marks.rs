//! Marks that a person left for later: TODO, FIXME and XXX in comments.

use super::Source;
use crate::findings::{Kind, Observation, Severity};

const MARKS: [(&str, Severity); 3] = [("TODO", Severity::Low), ("FIXME", Severity::Medium), ("XXX", Severity::Low)];

/// Characters of the text that a finding keeps.
const SHOWN: usize = 120;

pub(super) fn measure(source: &Source<'_>, out: &mut Vec<Observation>) {
    for comment in &source.lexed.comments {
        for (offset, line) in comment.text.lines().enumerate() {
            let Some((mark, severity, rest)) = mark_in(line) else { continue };
            let said = rest.trim_start_matches([':', '-', ' ', '!']).trim_end_matches("*/").trim();
            let shown: String = said.chars().take(SHOWN).collect();
            let message = match shown.as_str() {
                "" => "is left open without a word".to_owned(),
                _ if shown.len() < said.len() => format!("{}…", shown.trim_end()),
                _ => shown,
            };
            out.push(Observation {
                kind: Kind::Mark,
                severity,
                line: comment.line + offset,
                subject: mark.to_owned(),
                message,
                size: 1,
                snippet: said.split_whitespace().collect::<Vec<_>>().join(" "),
                places: Vec::new(),
            });
        }
    }
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
