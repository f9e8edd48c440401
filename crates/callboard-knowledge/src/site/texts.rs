//! Untrusted texts as they are shown. Pure.

use std::borrow::Cow;

/// The most of a title or label that is shown, in characters.
const MAX_LABEL: usize = 200;

/// Returns a title or label as one line. Control characters and those that are not shown are escapes in it; it is never empty.
pub(super) fn label(text: &str) -> String {
    let label = excerpt(text, MAX_LABEL);
    if label.is_empty() { "(no title)".to_owned() } else { label }
}

/// Returns the beginning of a text as one line, with white space as single spaces.
pub(super) fn excerpt(text: &str, max: usize) -> String {
    let mut line = String::new();
    // Of a word, as much as the line can have: a text may be one word of a megabyte.
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.extend(word.chars().take(max + 1));
        if line.len() > max * 4 {
            break;
        }
    }
    match line.char_indices().nth(max) {
        None => visible(&line),
        Some((end, _)) => visible(line[..end].trim_end()) + "…",
    }
}

/// Returns a text as one line for reading.
pub(super) fn visible(text: &str) -> String {
    without_noncharacters(callboard_text::visible(text))
}

/// Returns a text of several lines for reading, with line feeds alone between them.
pub(super) fn lines(text: &str) -> String {
    let text = if text.contains('\r') { Cow::Owned(text.replace("\r\n", "\n")) } else { Cow::Borrowed(text) };
    without_noncharacters(callboard_text::visible_lines(&text))
}

/// Makes escapes of the characters that HTML may not contain.
fn without_noncharacters(text: String) -> String {
    let is_noncharacter = |c: char| matches!(c, '\u{fdd0}'..='\u{fdef}') || (c as u32) & 0xfffe == 0xfffe;
    if !text.contains(is_noncharacter) {
        return text;
    }
    text.chars().fold(String::new(), |mut shown, c| {
        if is_noncharacter(c) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
        shown
    })
}

/// Returns the last of the titles that are joined with ` > `.
pub(super) fn last_title(titles: &str) -> &str {
    titles.rsplit(" > ").next().unwrap_or(titles)
}

/// Returns the beginning of a text that has at most so many bytes, and the number of bytes that are cut.
pub(super) fn beginning(text: &str, max: usize) -> (&str, usize) {
    let end = text.floor_char_boundary(max);
    (&text[..end], text.len() - end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_one_line_that_shows_what_is_hidden_in_it() {
        assert_eq!(label(" a\n b\u{202e}c\u{200b} "), "a b\\u{202e}c\\u{200b}");
        assert_eq!(label(" \n"), "(no title)");
        assert_eq!((label("a\u{ffff}"), lines("\u{fdd0}\r\n")), ("a\\u{ffff}".to_owned(), "\\u{fdd0}\n".to_owned()));
        let long = label(&"x".repeat(1_000_000));
        assert_eq!(long, "x".repeat(200) + "…");
        assert_eq!(excerpt(&"ab ".repeat(1_000_000), 5), "ab ab…");
    }

    #[test]
    fn a_beginning_ends_at_a_character() {
        assert_eq!(beginning("aé", 2), ("a", 2));
        assert_eq!(beginning("aé", 3), ("aé", 0));
    }
}
