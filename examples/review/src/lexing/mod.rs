//! Splits source text into tokens and comments, so that nothing is measured inside a string or a comment.
//!
//! A lexer never fails: text that is not valid in its language still yields tokens, each of them an exact slice of the
//! text on the line where it really is.

mod cursor;
mod javascript;
mod lexed;
mod python;
mod rust;

use cursor::Cursor;

use crate::languages::Language;

pub(crate) use lexed::{Lexed, Token, normalised};

/// Splits `text` by the rules of `language`.
pub(crate) fn lex(language: Language, text: &str) -> Lexed<'_> {
    let mut lexed = Lexed::new(text);
    let mut cursor = Cursor::new(text);
    cursor.skip_byte_order_mark();
    match language {
        Language::Rust => rust::lex(&mut cursor, &mut lexed),
        Language::Python => python::lex(&mut cursor, &mut lexed),
        Language::JavaScript => javascript::lex(&mut cursor, &mut lexed),
    }
    lexed
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Fragments that open, close or confuse every construct of the three languages.
    const FRAGMENTS: [&str; 40] = [
        "\"", "'", "`", "\"\"\"", "'''", "r#\"", "\"#", "br##\"", "/*", "*/", "//", "/", "\\", "\n", "\r\n", "\t",
        "${", "{", "}", "(", ")", "[", "]", "#", "r", "b'", "'a", "x", "return", "=", "<", ">", "=>", "é", "\u{feff}",
        "😀", "0", ";", "\u{2028}", ".",
    ];

    fn check(language: Language, text: &str) {
        let lexed = lex(language, text);
        let mut pieces: Vec<(usize, &str, usize)> = lexed.tokens.iter().map(|t| (t.start, t.text, t.line)).collect();
        pieces.extend(lexed.comments.iter().map(|c| (c.start, c.text, c.line)));
        pieces.sort_unstable();
        let (mut end, mut line) = (0, 1);
        for (start, piece, at) in pieces {
            assert!(start >= end, "pieces overlap at byte {start}");
            assert_eq!(&text[start..start + piece.len()], piece);
            line += text[end..start].matches('\n').count();
            assert_eq!(at, line, "wrong line for {piece:?}");
            line += piece.matches('\n').count();
            end = start + piece.len();
        }
        let lines = lexed.code_lines().count();
        assert!(lines <= text.lines().count());
        assert_eq!(lexed.code_lines().map(|(_, tokens)| tokens.len()).sum::<usize>(), lexed.tokens.len());
    }

    proptest! {
        #[test]
        fn any_text_is_taken_apart_on_its_own_lines(text in "\\PC*(\n\\PC*)*") {
            for language in [Language::Rust, Language::Python, Language::JavaScript] {
                check(language, &text);
            }
        }

        #[test]
        fn any_mix_of_delimiters_is_taken_apart_on_its_own_lines(
            picks in prop::collection::vec(0..FRAGMENTS.len(), 0..60)
        ) {
            let text: String = picks.into_iter().map(|pick| FRAGMENTS[pick]).collect();
            for language in [Language::Rust, Language::Python, Language::JavaScript] {
                check(language, &text);
            }
        }
    }

    #[test]
    fn empty_texts_have_no_code() {
        for text in ["", "\u{feff}", "\r\n\r\n", "\t \n"] {
            for language in [Language::Rust, Language::Python, Language::JavaScript] {
                check(language, text);
                assert!(lex(language, text).tokens.is_empty(), "{text:?}");
            }
        }
    }

    #[test]
    fn a_very_long_line_is_one_line() {
        let text = "x + ".repeat(50_000);
        let lexed = lex(Language::JavaScript, &text);
        assert_eq!(lexed.code_lines().count(), 1);
        assert_eq!(lexed.tokens.len(), 100_000);
    }
}
