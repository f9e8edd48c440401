//! Tokens and comments of a text, and what they are asked for.

use super::cursor::Cursor;

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

/// The tokens and comments of a text.
#[derive(Debug)]
pub(crate) struct Lexed<'a> {
    pub(crate) text: &'a str,
    pub(crate) tokens: Vec<Token<'a>>,
    pub(crate) comments: Vec<Comment<'a>>,
}

impl<'a> Lexed<'a> {
    /// A text of which nothing is read yet.
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, tokens: Vec::new(), comments: Vec::new() }
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

    /// Adds the token from byte `start` to the cursor.
    pub(super) fn add_token(&mut self, kind: TokenKind, cursor: &Cursor<'a>, start: usize, line: usize) {
        self.tokens.push(Token { kind, text: &self.text[start..cursor.at()], start, line });
    }

    /// Adds the comment from byte `start` to the cursor.
    pub(super) fn add_comment(&mut self, cursor: &Cursor<'a>, start: usize, line: usize) {
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
