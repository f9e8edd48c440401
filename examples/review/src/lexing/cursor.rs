//! A position in a text that knows its line.

/// Reads a text character by character.
pub(super) struct Cursor<'a> {
    text: &'a str,
    at: usize,
    line: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0, line: 1 }
    }

    /// Offset of the next byte.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// The line of the next character, counted from 1.
    pub(super) fn line(&self) -> usize {
        self.line
    }

    /// What is left.
    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// The next character, which stays.
    pub(super) fn peek(&self) -> Option<char> {
        match self.text.as_bytes().get(self.at) {
            Some(byte) if byte.is_ascii() => Some(char::from(*byte)),
            Some(_) => self.rest().chars().next(),
            None => None,
        }
    }

    /// Takes the next character.
    pub(super) fn bump(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += next.len_utf8();
        self.line += usize::from(next == '\n');
        Some(next)
    }

    /// Takes `count` characters, or what is left.
    pub(super) fn bump_many(&mut self, count: usize) {
        for _ in 0..count {
            self.bump();
        }
    }

    /// Takes `prefix` if it is next.
    pub(super) fn eat(&mut self, prefix: &str) -> bool {
        let is_next = self.rest().starts_with(prefix);
        if is_next {
            self.bump_many(prefix.chars().count());
        }
        is_next
    }

    /// Takes characters as long as they are `wanted`.
    pub(super) fn eat_while(&mut self, wanted: impl Fn(char) -> bool) {
        while self.peek().is_some_and(&wanted) {
            self.bump();
        }
    }

    /// Takes the rest of the line without its end.
    pub(super) fn eat_line(&mut self) {
        self.eat_while(|c| c != '\n');
    }

    /// Takes a string up to and with `quote`; a backslash hides the character after it. A string that may not span lines
    /// ends before the end of the line.
    pub(super) fn eat_string(&mut self, quote: &str, spans_lines: bool) {
        while let Some(next) = self.peek() {
            if self.eat(quote) {
                return;
            }
            if next == '\\' {
                self.bump();
                self.eat("\r");
            } else if next == '\n' && !spans_lines {
                return;
            }
            self.bump();
        }
    }

    pub(super) fn skip_byte_order_mark(&mut self) {
        self.eat("\u{feff}");
    }
}

/// Whether an identifier, keyword or number may hold this character.
pub(super) fn is_word_char(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}
