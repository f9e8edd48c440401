//! What an edit of a file changes, line by line. Pure.

use std::time::Duration;

use callboard::messages::Envelope;
use callboard_text::exact;
use similar::{ChangeTag, TextDiff};

/// The longest texts that are compared, in bytes of both.
const MAX_COMPARED: usize = 200_000;
/// How long texts are compared, before the difference is coarser than it could be.
const MAX_TIME: Duration = Duration::from_millis(20);
/// The lines around a change that are shown.
const CONTEXT: usize = 3;

/// A line of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    Same(&'a str),
    Removed(&'a str),
    Added(&'a str),
    /// Lines that are the same are left out here.
    Cut,
}

/// The two texts of an edit: what is in the file, and what takes its place.
fn texts(envelope: &Envelope) -> Option<(&str, &str)> {
    let arguments = envelope.action.arguments.value();
    let text = |name: &str| arguments.get(name)?.as_str();
    text("old").zip(text("new")).filter(|(old, new)| old.len() + new.len() <= MAX_COMPARED)
}

/// The lines of the difference that an edit makes, each exactly as it is; `None` if the action is no edit.
pub(crate) fn text_of(envelope: &Envelope) -> Option<String> {
    let (old, new) = texts(envelope)?;
    let lines = lines(old, new).into_iter().map(|line| match line {
        Line::Same(text) => format!("  {}\n", exact(text)),
        Line::Removed(text) => format!("- {}\n", exact(text)),
        Line::Added(text) => format!("+ {}\n", exact(text)),
        Line::Cut => "…\n".to_owned(),
    });
    Some(lines.collect())
}

fn lines<'a>(old: &'a str, new: &'a str) -> Vec<Line<'a>> {
    let difference = TextDiff::configure().timeout(MAX_TIME).diff_lines(old, new);
    let mut lines = Vec::new();
    let (mut before, mut after) = (0, 0);
    for group in difference.grouped_ops(CONTEXT) {
        let begin = group.first().map_or(0, |operation| operation.old_range().start);
        if begin > before {
            lines.push(Line::Cut);
        }
        for operation in &group {
            for change in difference.iter_changes(operation) {
                let text = change.value();
                let text = text.strip_suffix('\n').unwrap_or(text);
                lines.push(match change.tag() {
                    ChangeTag::Equal => Line::Same(text),
                    ChangeTag::Delete => Line::Removed(text),
                    ChangeTag::Insert => Line::Added(text),
                });
            }
            (before, after) = (operation.old_range().end, operation.new_range().end);
        }
    }
    let has_more = old.lines().count() > before || new.lines().count() > after;
    if has_more && !lines.is_empty() {
        lines.push(Line::Cut);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_lines_are_shown_with_those_around_them() {
        let old: String = (1..=20).map(|number| format!("{number}\n")).collect();
        let new = old.replace("10\n", "new\u{202e}\n");
        let found = lines(&old, &new);
        let expected = [
            Line::Cut,
            Line::Same("7"),
            Line::Same("8"),
            Line::Same("9"),
            Line::Removed("10"),
            Line::Added("new\u{202e}"),
            Line::Same("11"),
            Line::Same("12"),
            Line::Same("13"),
            Line::Cut,
        ];
        assert_eq!(found, expected);
        assert_eq!(lines("a", "b\n"), [Line::Removed("a"), Line::Added("b")]);
        assert_eq!(lines("", "a\nb"), [Line::Added("a"), Line::Added("b")]);
        assert_eq!(lines("a", "a"), [] as [Line<'_>; 0]);
    }
}
