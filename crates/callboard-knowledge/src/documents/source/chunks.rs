//! Where items of a source file begin. Pure.

use std::ops::Range;

use super::super::formats::Language;
use super::definitions::definition;

/// Cuts a file before each line that begins an item: one without indentation, after a blank line, or the first line of comments and attributes
/// that are directly above a definition. So these are in the chunk of the item below them. Lines that end a block, and those within a comment or
/// a docstring of several lines, begin none.
pub(super) fn chunks(text: &str, language: Language) -> impl Iterator<Item = Range<usize>> {
    let mut within = Within::Code;
    let (mut is_after_blank, mut head) = (false, Head::None);
    let mut at = 0;
    let mut start = 0;
    let begins = text.split_inclusive('\n').filter_map(move |line| {
        let place = at;
        at += line.len();
        let own = if within == Within::Code { Head::of(line, language) } else { head };
        let begins = within == Within::Code
            && if is_after_blank {
                begins_item(line) && head != Head::OfItem
            } else {
                head == Head::None && own != Head::None && is_above_definition(&text[place..], language)
            };
        within = within.after(line, language);
        is_after_blank = line.trim().is_empty();
        if !is_after_blank {
            head = own;
        }
        begins.then_some(place)
    });
    begins.chain(std::iter::once(text.len())).filter_map(move |end| {
        let chunk = std::mem::replace(&mut start, end)..end;
        (!chunk.is_empty()).then_some(chunk)
    })
}

/// What a line without indentation says of what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Head {
    None,
    /// A comment or an attribute, of what follows it directly.
    Of,
    /// A doc comment or an attribute that is of the next item even after blank lines.
    OfItem,
}

impl Head {
    fn of(line: &str, language: Language) -> Self {
        let begins = |beginnings: &[&str]| beginnings.iter().any(|beginning| line.starts_with(beginning));
        let is_comment = match language {
            Language::Rust if begins(&["///", "#["]) => return Self::OfItem,
            Language::Rust => begins(&["//", "/*"]) && !begins(&["//!", "/*!"]),
            Language::Python => begins(&["#", "@"]),
            Language::Script | Language::Java => begins(&["//", "/*", "@"]),
            Language::Go | Language::C => begins(&["//", "/*"]),
        };
        if is_comment { Self::Of } else { Self::None }
    }
}

/// Whether the last line of a text is a comment or an attribute, also an indented one.
pub(super) fn ends_in_head(text: &str, language: Language) -> bool {
    text.lines().next_back().is_some_and(|line| Head::of(line.trim_start(), language) != Head::None)
}

/// Whether the comments and attributes with which a text begins are directly above a line that defines a name.
fn is_above_definition(text: &str, language: Language) -> bool {
    let mut within = Within::Code;
    let first = text.split_inclusive('\n').find(|line| {
        let is_head = within != Within::Code || Head::of(line, language) != Head::None;
        within = within.after(line, language);
        !is_head
    });
    first.is_some_and(|line| definition(line, language, None).is_some())
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
    fn what_is_directly_above_a_definition_is_in_its_chunk_without_a_blank_line_before_it() {
        for (language, text) in [
            (Language::Rust, "fn one() {}\n|/// Two.\n#[inline]\nfn two() {}\n|#[test]\n/// Three.\nfn three() {}\n"),
            (Language::Rust, "const A: u32 = 1;\n|// Why.\nconst B: u32 = 2;\n// The end.\n"),
            (Language::Rust, "use a;\n\n|/// Two.\n\n#[inline]\n\nfn two() {}\n\n|fn three() {}\n"),
            (Language::Script, "function one() {\n}\n|/**\n * Two.\n */\nfunction two() {\n}\n"),
            (Language::Java, "class One {\n}\n|/** Two. */\n@Old\nclass Two {\n}\n"),
            (Language::C, "int one(void) {\n}\n|/* Two.\n\n   It is long. */\nint two(void) {\n}\n"),
            (Language::Go, "func One() {\n}\n|// Two is it.\nfunc Two() {\n}\n"),
            (Language::Python, "import a\n|# Two.\n@old\ndef two():\n    # in it\n    pass\n"),
        ] {
            assert_eq!(cut(&text.replace('|', ""), language), text.split('|').collect::<Vec<_>>());
        }
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
