//! Texts of agents in the pages of runs: visible, in a line, and cut.

use std::time::Duration;

use callboard::messages::{RunId, Timestamp, Usage, visible, visible_lines};
use callboard_text::exact;
use maud::{Markup, html};
use serde::Serialize;

/// A text in a line of at most so many characters, with signs for its line breaks.
pub(crate) fn line(text: &str, most: usize) -> String {
    let in_line = |text: &str| visible(&text.replace('\n', " ⏎ "));
    match text.char_indices().nth(most) {
        None => in_line(text),
        Some((end, _)) => in_line(&text[..end]) + "…",
    }
}

/// A text of several lines, of at most so many characters.
pub(crate) fn lines(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => visible_lines(text),
        Some((end, _)) => visible_lines(&text[..end]) + "…",
    }
}

/// As [`lines`], of what people decide by: what is left out is counted.
pub(crate) fn cut_lines(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => visible_lines(text),
        Some((end, _)) => {
            format!("{}… ({} more characters)", visible_lines(&text[..end]), text[end..].chars().count())
        }
    }
}

/// A value as JSON that a person reads and changes: what does not show is written as an escape of JSON.
pub(crate) fn json_text(value: &(impl Serialize + ?Sized)) -> String {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.chars().fold(String::with_capacity(text.len()), |mut shown, c| {
        let is_plain = c == '\n' || c == ' ' || exact(c.encode_utf8(&mut [0; 4])).chars().eq([c]);
        match is_plain {
            true => shown.push(c),
            false => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| shown.push_str(&format!("\\u{unit:04x}"))),
        }
        shown
    })
}

/// A time, which the script shows in the zone of the reader.
pub(crate) fn shown_time(at: Timestamp) -> Markup {
    shown_time_of(&at.to_string())
}

/// As [`shown_time`], of a time as JSON has it.
pub(crate) fn shown_time_of(at: &str) -> Markup {
    html! { time datetime=(at) { (at.get(..16).unwrap_or_default().replace('T', " ")) " UTC" } }
}

/// `350 ms`, `4.2 s`, `3 min 5 s` or `2 h 4 min`.
pub(crate) fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{} ms", duration.subsec_millis()),
        1..60 => format!("{seconds}.{} s", duration.subsec_millis() / 100),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// `1234 tokens, $0.00002`, or nothing for no tokens.
pub(crate) fn tokens(usage: Usage) -> Option<String> {
    let total = usage.total();
    let cost = if usage.cost.0 == 0 { String::new() } else { format!(", {}", usage.cost) };
    (total > 0).then(|| format!("{total} {}{cost}", if total == 1 { "token" } else { "tokens" }))
}

/// The short id of a run.
pub(crate) fn short(run: RunId) -> String {
    let id = run.to_string();
    format!("req-{}", id.rsplit('-').next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_visible_and_cut_and_a_span_has_two_units() {
        assert_eq!(line("a\u{202e}b\nc", 3), "a\\u{202e}b…");
        assert_eq!(line("a\nb", 9), "a ⏎ b");
        assert_eq!(lines("a\n\u{1b}", 9), "a\n\\u{1b}");
        let shown = [350, 4_250, 185_000, 7_445_000].map(|millis| span(Duration::from_millis(millis)));
        assert_eq!(shown, ["350 ms", "4.2 s", "3 min 5 s", "2 h 4 min"]);
    }
}
