//! What a change of a file changes, line by line. Pure.

use std::time::Duration;

use callboard::messages::{Envelope, visible};
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

/// What a person sees of the change that an action makes to a text.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Difference {
    /// The lines, each exactly as it is; `None` if they are not known.
    pub(crate) lines: Option<String>,
    /// What else there is to know, or why there are no lines.
    pub(crate) note: Option<String>,
    /// Whether it is to the text as it is now, and not to a part of it as the agent has written it.
    pub(crate) is_to_present: bool,
}

impl Difference {
    /// The change that an action makes: that of an edit (`old`, `new`), or of what replaces a whole text (`content`). `present` is the
    /// text as it is now, or why it cannot be shown; `None` if there is none, or it is not known.
    pub(crate) fn of(envelope: &Envelope, present: Option<&Result<String, String>>) -> Self {
        let arguments = envelope.action.arguments.value();
        let text = |name: &str| arguments.get(name)?.as_str();
        if let Some((old, new)) = text("old").zip(text("new")) {
            let note = match present {
                Some(Err(why)) => Some(format!("The edit would fail: {}", visible(why))),
                Some(Ok(text)) if text.matches(old).nth(1).is_some() => {
                    Some("The edit would fail: the file has what it replaces more than once.".to_owned())
                }
                Some(Ok(text)) if !text.contains(old) => {
                    Some("The edit would fail: the file, as it is now, does not have what it replaces.".to_owned())
                }
                Some(Ok(_)) | None => None,
            };
            return Self { lines: compared(old, new), note, is_to_present: false };
        }
        let (Some(present), Some(new)) = (present, text("content")) else { return Self::default() };
        let lines = present.as_ref().ok().filter(|old| !old.is_empty()).and_then(|old| compared(old, new));
        let note = match present {
            Ok(old) if old.is_empty() => Some("There is no such file yet, or it is empty.".to_owned()),
            Err(why) => Some(format!("What is there now cannot be compared: {}", visible(why))),
            Ok(old) if lines.is_none() => {
                let size = old.chars().count();
                Some(format!("All of the file is replaced, {size} characters: the texts are too long to be compared."))
            }
            Ok(old) if old == new => Some("The file has this text already.".to_owned()),
            Ok(_) => None,
        };
        Self { lines, note, is_to_present: true }
    }
}

/// The lines of the difference of two texts; `None` if they are too long.
fn compared(old: &str, new: &str) -> Option<String> {
    if old.len() + new.len() > MAX_COMPARED {
        return None;
    }
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
    use callboard::messages::Action;
    use serde_json::json;

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

    #[test]
    fn an_edit_that_would_fail_is_named() {
        let action = Action::new("FileWrite", "a", json!({ "path": "a", "old": "one", "new": "two" }));
        let envelope = Envelope { action, ..crate::json::tests::envelope() };
        let note = |present: &Result<String, String>| Difference::of(&envelope, Some(present)).note.unwrap_or_default();
        for (present, part) in [
            (Ok("one".to_owned()), ""),
            (Ok("two".to_owned()), "does not have what it replaces"),
            (Ok("one one".to_owned()), "more than once"),
            (Err("\"a\" is\u{202e} not there".to_owned()), "The edit would fail: \"a\" is\\u{202e} not there"),
        ] {
            assert!(
                note(&present).contains(part) && note(&present).is_empty() == part.is_empty(),
                "{}",
                note(&present)
            );
        }
        assert_eq!(Difference::of(&envelope, None).lines.as_deref(), Some("- one\n+ two\n"));
    }
}
