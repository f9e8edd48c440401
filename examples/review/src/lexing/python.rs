//! Python: prefixed and triple-quoted strings.

use super::cursor::{Cursor, is_word_char};
use super::lexed::{Lexed, TokenKind};

pub(super) fn lex<'a>(cursor: &mut Cursor<'a>, lexed: &mut Lexed<'a>) {
    while let Some(next) = cursor.peek() {
        let (start, line) = (cursor.at(), cursor.line());
        if next.is_whitespace() {
            cursor.bump();
        } else if next == '#' {
            cursor.eat_line();
            lexed.add_comment(cursor, start, line);
        } else {
            let kind = eat_token(cursor, next);
            lexed.add_token(kind, cursor, start, line);
        }
    }
}

fn eat_token(cursor: &mut Cursor<'_>, next: char) -> TokenKind {
    if matches!(next, '"' | '\'') {
        eat_string(cursor);
        return TokenKind::Literal;
    }
    if !is_word_char(next) {
        cursor.bump();
        return TokenKind::Sign;
    }
    let start = cursor.rest();
    cursor.eat_while(is_word_char);
    let word = &start[..start.len() - cursor.rest().len()];
    let is_prefix = word.len() <= 2 && word.chars().all(|c| "rRbBuUfFtT".contains(c));
    if is_prefix && matches!(cursor.peek(), Some('"' | '\'')) {
        eat_string(cursor);
        return TokenKind::Literal;
    }
    TokenKind::Word
}

/// A string from its first quote. A raw string is no different here: a backslash cannot end it either.
fn eat_string(cursor: &mut Cursor<'_>) {
    for triple in ["\"\"\"", "'''"] {
        if cursor.eat(triple) {
            cursor.eat_string(triple, true);
            return;
        }
    }
    let quote = if cursor.bump() == Some('"') { "\"" } else { "'" };
    cursor.eat_string(quote, false);
}

#[cfg(test)]
mod tests {
    use crate::languages::Language;
    use crate::lexing::lex;

    fn tokens(text: &str) -> Vec<&str> {
        lex(Language::Python, text).tokens.into_iter().map(|token| token.text).collect()
    }

    #[test]
    fn strings_of_every_sort_are_single_tokens() {
        assert_eq!(
            tokens("f('#', \"it's\", r'\\'', Rb\"x\", '''a\n'b' ''', '')"),
            ["f", "(", "'#'", ",", "\"it's\"", ",", "r'\\''", ",", "Rb\"x\"", ",", "'''a\n'b' '''", ",", "''", ")"]
        );
    }

    #[test]
    fn a_comment_ends_with_its_line() {
        let lexed = lex(Language::Python, "a = 1  # except: 'x\r\nb");
        assert_eq!(lexed.comments[0].text, "# except: 'x");
        assert_eq!(lexed.tokens.last().map(|token| (token.text, token.line)), Some(("b", 2)));
    }

    #[test]
    fn an_unclosed_string_ends_with_its_line() {
        assert_eq!(tokens("a = 'x\nb"), ["a", "=", "'x", "b"]);
        assert_eq!(tokens("a = 'x\\\r\ny'\nb"), ["a", "=", "'x\\\r\ny'", "b"]);
    }
}
