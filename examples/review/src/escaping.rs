//! Makes untrusted text safe to show: file names and comments come from the tree under review.

pub(crate) use callboard::messages::visible;

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
    fn a_code_span_holds_backticks() {
        assert_eq!(code("a.rs"), "`a.rs`");
        assert_eq!(code("a`b``c"), "```a`b``c```");
        assert_eq!(code("`"), "`` ` ``");
        assert_eq!(code(""), "`  `");
    }

    #[test]
    fn prose_holds_no_markup() {
        assert_eq!(prose("[x](y) <b> | `c`\n# d"), "\\[x\\](y) \\<b\\> \\| \\`c\\`\\\\u{a}\\# d");
    }
}
