//! Splits source text into tokens and comments, so that nothing is measured inside a string or a comment.
//!
//! A lexer never fails: text that is not valid in its language still yields tokens, each of them an exact slice of the
//! text on the line where it really is.

mod cursor;
mod javascript;
mod python;
mod rust;

use cursor::Cursor;

use crate::languages::Language;

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// An identifier, keyword, lifetime or number.
    Word,
    /// A string, character, template or regular expression, with its quotes.
    Literal,
    /// A single character of punctuation.
    Sign,
}

/// A piece of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub(crate) kind: TokenKind,
    pub(crate) text: &'a str,
    /// Offset of the first byte.
    pub(crate) start: usize,
    /// Counted from 1.
    pub(crate) line: usize,
}

impl Token<'_> {
    /// Whether it is this word or sign; a literal never is.
    pub(crate) fn is(&self, text: &str) -> bool {
        self.kind != TokenKind::Literal && self.text == text
    }

    /// Whether it is an identifier, keyword or number.
    pub(crate) fn is_word(&self) -> bool {
        self.kind == TokenKind::Word
    }

    /// Whether it is a string or another literal with quotes.
    pub(crate) fn is_literal(&self) -> bool {
        self.kind == TokenKind::Literal
    }
}

/// A comment with its delimiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Comment<'a> {
    pub(crate) text: &'a str,
    pub(crate) start: usize,
    pub(crate) line: usize,
    /// Index of the token that follows.
    pub(crate) before: usize,
}

/// A text taken apart.
#[derive(Debug)]
pub(crate) struct Lexed<'a> {
    pub(crate) text: &'a str,
    pub(crate) tokens: Vec<Token<'a>>,
    pub(crate) comments: Vec<Comment<'a>>,
}

impl<'a> Lexed<'a> {
    /// Takes `text` apart by the rules of `language`.
    pub(crate) fn new(language: Language, text: &'a str) -> Self {
        let mut lexed = Self { text, tokens: Vec::new(), comments: Vec::new() };
        let mut cursor = Cursor::new(text);
        cursor.skip_byte_order_mark();
        match language {
            Language::Rust => rust::lex(&mut cursor, &mut lexed),
            Language::Python => python::lex(&mut cursor, &mut lexed),
            Language::JavaScript => javascript::lex(&mut cursor, &mut lexed),
        }
        lexed
    }

    /// Whether the tokens from `at` on read as `texts`.
    pub(crate) fn reads(&self, at: usize, texts: &[&str]) -> bool {
        self.tokens.get(at..at + texts.len()).is_some_and(|tokens| tokens.iter().zip(texts).all(|(t, text)| t.is(text)))
    }

    /// Whether the token at `at` is this word or sign.
    pub(crate) fn is(&self, at: usize, text: &str) -> bool {
        self.tokens.get(at).is_some_and(|token| token.is(text))
    }

    /// The word at `at`, if there is one.
    pub(crate) fn word(&self, at: usize) -> Option<&'a str> {
        self.tokens.get(at).filter(|token| token.is_word()).map(|token| token.text)
    }

    /// The comments directly before the token at `at`.
    pub(crate) fn comments_before(&self, at: usize) -> &[Comment<'a>] {
        let first = self.comments.partition_point(|comment| comment.before < at);
        let end = self.comments.partition_point(|comment| comment.before <= at);
        &self.comments[first..end]
    }

    /// The tokens of each line on which a token starts, with the index of the first; such a line is a code line.
    pub(crate) fn code_lines(&self) -> impl Iterator<Item = (usize, &[Token<'a>])> {
        let mut at = 0;
        self.tokens.chunk_by(|a, b| a.line == b.line).map(move |tokens| {
            let first = at;
            at += tokens.len();
            (first, tokens)
        })
    }

    /// The code on the line of the token at `at`, without comments and with single spaces.
    pub(crate) fn snippet(&self, at: usize) -> String {
        let line = self.tokens[at].line;
        let first = self.tokens.partition_point(|token| token.line < line);
        let end = self.tokens.partition_point(|token| token.line <= line);
        normalised(&self.tokens[first..end])
    }

    fn add_token(&mut self, kind: TokenKind, cursor: &Cursor<'a>, start: usize, line: usize) {
        self.tokens.push(Token { kind, text: &self.text[start..cursor.at()], start, line });
    }

    fn add_comment(&mut self, cursor: &Cursor<'a>, start: usize, line: usize) {
        let text = self.text[start..cursor.at()].trim_end();
        self.comments.push(Comment { text, start, line, before: self.tokens.len() });
    }
}

/// Tokens joined by single spaces.
pub(crate) fn normalised(tokens: &[Token<'_>]) -> String {
    let mut joined = String::with_capacity(tokens.len() * 4);
    for token in tokens {
        if !joined.is_empty() {
            joined.push(' ');
        }
        joined.push_str(token.text);
    }
    joined
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
        let lexed = Lexed::new(language, text);
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
                assert!(Lexed::new(language, text).tokens.is_empty(), "{text:?}");
            }
        }
    }

    #[test]
    fn a_very_long_line_is_one_line() {
        let text = "x + ".repeat(50_000);
        let lexed = Lexed::new(Language::JavaScript, &text);
        assert_eq!(lexed.code_lines().count(), 1);
        assert_eq!(lexed.tokens.len(), 100_000);
    }
}
