//! Where items of a source file begin. Pure.

use std::ops::Range;

use super::super::formats::Language;

/// Cuts a file before each line that begins an item: one without indentation, after a blank line. So the comment that is directly above an
/// item is in its chunk. Lines that end a block, and those within a comment or a docstring of several lines, begin none.
pub(super) fn chunks(text: &str, language: Language) -> impl Iterator<Item = Range<usize>> {
    let mut within = Within::Code;
    let mut is_after_blank = false;
    let mut at = 0;
    let mut start = 0;
    let begins = text.split_inclusive('\n').filter_map(move |line| {
        let begins = within == Within::Code && is_after_blank && begins_item(line);
        within = within.after(line, language);
        is_after_blank = line.trim().is_empty();
        let place = at;
        at += line.len();
        begins.then_some(place)
    });
    begins.chain(std::iter::once(text.len())).filter_map(move |end| {
        let chunk = std::mem::replace(&mut start, end)..end;
        (!chunk.is_empty()).then_some(chunk)
    })
}

fn begins_item(line: &str) -> bool {
    !line.starts_with(|c: char| c.is_whitespace() || matches!(c, '}' | ')' | ']'))
        && !["#e", "# e"].iter().any(|directive| line.starts_with(directive))
}

/// What a line is within.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Within {
    Code,
    Comment,
    /// A Python string in three quotation marks.
    Docstring(&'static str),
}

impl Within {
    fn after(self, line: &str, language: Language) -> Self {
        match (self, language) {
            (Self::Code, Language::Python) => {
                let quotes =
                    ["\"\"\"", "'''"].into_iter().filter_map(|quotes| Some((line.find(quotes)?, quotes))).min();
                quotes.map_or(Self::Code, |(_, quotes)| Self::toggled(line, quotes, Self::Code))
            }
            (Self::Docstring(quotes), _) => Self::toggled(line, quotes, self),
            (Self::Code, Language::Rust | Language::Script | Language::Go | Language::Java | Language::C) => {
                if line.trim_start().starts_with("/*") && !line.contains("*/") { Self::Comment } else { Self::Code }
            }
            (Self::Comment, _) => {
                if line.contains("*/") {
                    Self::Code
                } else {
                    Self::Comment
                }
            }
        }
    }

    fn toggled(line: &str, quotes: &'static str, before: Self) -> Self {
        let is_toggled = line.matches(quotes).count() % 2 == 1;
        match (before, is_toggled) {
            (Self::Code | Self::Comment, true) => Self::Docstring(quotes),
            (Self::Docstring(_), true) => Self::Code,
            (before, false) => before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str, language: Language) -> Vec<&str> {
        chunks(text, language).map(|chunk| &text[chunk]).collect()
    }

    #[test]
    fn a_comment_is_in_the_chunk_of_the_item_below_it() {
        let text = "//! The file.\n\nuse a;\n\n/// One.\n#[test]\nfn one() {\n    a();\n\n    b();\n}\n\nfn two() {}\n";
        let expected = [
            "//! The file.\n\n",
            "use a;\n\n",
            "/// One.\n#[test]\nfn one() {\n    a();\n\n    b();\n}\n\n",
            "fn two() {}\n",
        ];
        assert_eq!(cut(text, Language::Rust), expected);
    }

    #[test]
    fn no_item_begins_at_the_end_of_a_block() {
        let text = "a = [\n\n]\n\n#if X\n\n#else\n\n#endif\n";
        assert_eq!(cut(text, Language::C), ["a = [\n\n]\n\n", "#if X\n\n#else\n\n#endif\n"]);
    }

    #[test]
    fn no_item_begins_within_a_comment_or_a_docstring() {
        let text = "/*\none\n\ntwo\n*/\nint a;\n\nint b;\n";
        assert_eq!(cut(text, Language::C), ["/*\none\n\ntwo\n*/\nint a;\n\n", "int b;\n"]);
        let text = "\"\"\"One.\n\nTwo '''.\n\"\"\"\n\nimport a\n\nx = '''a'''\n\nb = 1\n";
        assert_eq!(
            cut(text, Language::Python),
            ["\"\"\"One.\n\nTwo '''.\n\"\"\"\n\n", "import a\n\n", "x = '''a'''\n\n", "b = 1\n"]
        );
    }
}
