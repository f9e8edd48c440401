//! Text in pictures: made visible, cut, measured and escaped.

use std::fmt::Write as _;

use crate::messages::visible;

/// The longest text that is shown, in characters.
pub(super) const MAX_SHOWN: usize = 60;

/// The text with deceptive characters made visible, cut to so many characters.
pub(super) fn clip(text: &str, max: usize) -> String {
    let beginning: String = text.chars().take(max + 1).collect();
    let shown = visible(&beginning);
    if shown.chars().count() <= max {
        return shown;
    }
    shown.chars().take(max - 1).chain(['…']).collect()
}

/// The text cut to be no wider than this, in pixels.
pub(super) fn fit(text: &str, size: i32, most: i32) -> String {
    let shown = clip(text, MAX_SHOWN);
    if width(&shown, size) <= most {
        return shown;
    }
    let left = most - width("…", size);
    let mut end = 0;
    for (start, c) in shown.char_indices() {
        end = start;
        if width(&shown[..start + c.len_utf8()], size) > left {
            break;
        }
    }
    format!("{}…", &shown[..end])
}

/// The width of a text in a usual font of this size, in pixels; an upper estimate.
pub(super) fn width(text: &str, size: i32) -> i32 {
    let hundredths: i32 = text.chars().map(hundredths_of_em).sum();
    (hundredths * size + 99) / 100
}

fn hundredths_of_em(c: char) -> i32 {
    match c {
        'i' | 'j' | 'l' | '\'' | '|' | '.' | ',' | ':' | ';' | '!' => 32,
        'f' | 'r' | 't' | 'I' | '(' | ')' | '[' | ']' | '{' | '}' | '/' | '\\' | ' ' | '"' | '-' | '`' => 42,
        'm' | 'w' | 'M' | 'W' | '@' | '%' | '…' => 96,
        'A'..='Z' => 74,
        '\0'..='~' => 62,
        '\u{a0}'..='\u{10ff}' => 72,
        _ => 110,
    }
}

/// Escapes a text for XML. Characters that XML cannot hold are replaced by a visible sign.
pub(super) fn xml(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Escapes a text in quotes of Mermaid, where `#` begins an entity, and backticks, brackets and `%%` can have a meaning.
pub(super) fn mermaid(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_alphanumeric() || !c.is_ascii() || " _-.,:/()=+!?".contains(c) {
            escaped.push(c);
        } else {
            // Writing to a string cannot fail.
            let _ = write!(escaped, "#{};", c as u32);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_where_it_gets_too_long_or_too_wide() {
        assert_eq!(clip("short", 60), "short");
        assert_eq!(clip(&"x".repeat(10_000), 60), format!("{}…", "x".repeat(59)));
        assert_eq!(clip("a\nb", 60), "a\\u{a}b");
        assert!(width(&fit(&"W".repeat(50), 13, 200), 13) <= 200);
        assert_eq!(fit("short", 13, 200), "short");
    }

    #[test]
    fn what_means_something_is_escaped() {
        assert_eq!(xml("<a b='\"&\u{ffff}'>"), "&lt;a b=&#39;&quot;&amp;\u{fffd}&#39;&gt;");
        assert_eq!(mermaid("\"]; %%{x}` #é"), "#34;#93;#59; #37;#37;#123;x#125;#96; #35;é");
    }
}
