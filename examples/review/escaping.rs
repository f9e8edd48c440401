//! Makes untrusted text safe to show: file names and comments come from the tree under review.

use std::fmt::Write;

/// One line of visible characters: control and direction characters are spelled out.
pub(crate) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        let is_invisible = matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
        match c {
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            _ if c.is_control() || is_invisible => {
                // Writing to a string cannot fail.
                let _ = write!(shown, "\\u{{{:x}}}", u32::from(c));
            }
            _ => shown.push(c),
        }
    }
    shown
}

/// A Markdown code span, with as many backticks around it as the text needs.
pub(crate) fn code(text: &str) -> String {
    let text = visible(text);
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let needs_space = text.is_empty() || text.starts_with(['`', ' ']) || text.ends_with(['`', ' ']);
    let space = if needs_space { " " } else { "" };
    format!("{fence}{space}{text}{space}{fence}")
}

/// Plain Markdown text in which nothing is markup.
pub(crate) fn prose(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in visible(text).chars() {
        if matches!(c, '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '#' | '|' | '&' | '~' | '$' | '@') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_direction_characters_are_spelled_out() {
        assert_eq!(visible("a\nb\x1b[31m\u{202e}c\u{7f}é"), "a\\nb\\u{1b}[31m\\u{202e}c\\u{7f}é");
    }

    #[test]
    fn a_code_span_holds_backticks() {
        assert_eq!(code("a.rs"), "`a.rs`");
        assert_eq!(code("a`b``c"), "```a`b``c```");
        assert_eq!(code("`"), "`` ` ``");
        assert_eq!(code(""), "`  `");
    }

    #[test]
    fn prose_holds_no_markup() {
        assert_eq!(prose("[x](y) <b> | `c`\n# d"), "\\[x\\](y) \\<b\\> \\| \\`c\\`\\\\n\\# d");
    }
}
