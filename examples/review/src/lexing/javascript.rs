//! JavaScript and TypeScript: template literals and, as well as tokens alone allow, regular expressions.

use super::cursor::{Cursor, is_word_char};
use super::lexed::{Lexed, Token, TokenKind};

pub(super) fn lex<'a>(cursor: &mut Cursor<'a>, lexed: &mut Lexed<'a>) {
    if cursor.rest().starts_with("#!") {
        cursor.eat_line();
    }
    while let Some(next) = cursor.peek() {
        let (start, line) = (cursor.at(), cursor.line());
        if next.is_whitespace() {
            cursor.bump();
        } else if cursor.rest().starts_with("//") {
            cursor.eat_line();
            lexed.add_comment(cursor, start, line);
        } else if cursor.eat("/*") {
            while cursor.peek().is_some() && !cursor.eat("*/") {
                cursor.bump();
            }
            lexed.add_comment(cursor, start, line);
        } else {
            let kind = eat_token(cursor, next, &lexed.tokens);
            lexed.add_token(kind, cursor, start, line);
        }
    }
}

fn eat_token(cursor: &mut Cursor<'_>, next: char, before: &[Token<'_>]) -> TokenKind {
    match next {
        '"' | '\'' => {
            cursor.bump();
            cursor.eat_string(if next == '"' { "\"" } else { "'" }, false);
            TokenKind::Literal
        }
        '`' => {
            eat_template(cursor);
            TokenKind::Literal
        }
        '/' => match regex_length(cursor.rest()) {
            Some(length) if may_start_regex(before, cursor.rest()) => {
                cursor.bump_many(length);
                cursor.eat_while(is_word_char);
                TokenKind::Literal
            }
            _ => {
                cursor.bump();
                TokenKind::Sign
            }
        },
        c if c == '$' || is_word_char(c) => {
            cursor.eat_while(|c| c == '$' || is_word_char(c));
            TokenKind::Word
        }
        _ => {
            cursor.bump();
            TokenKind::Sign
        }
    }
}

/// A template with everything in it, the code between `${` and `}` included.
fn eat_template(cursor: &mut Cursor<'_>) {
    enum Open {
        Template,
        Braces,
    }
    let mut open = Vec::new();
    loop {
        let inside = open.last();
        match (cursor.peek(), inside) {
            (None, _) => return,
            (Some('\\'), Some(Open::Template)) => cursor.bump_many(2),
            (Some('`'), Some(Open::Template)) => {
                cursor.bump();
                open.pop();
            }
            (Some('$'), Some(Open::Template)) => {
                cursor.bump();
                if cursor.eat("{") {
                    open.push(Open::Braces);
                }
            }
            (Some(_), Some(Open::Template)) => cursor.bump_many(1),
            (Some('`'), _) => {
                cursor.bump();
                open.push(Open::Template);
            }
            (Some('{'), _) => {
                cursor.bump();
                open.push(Open::Braces);
            }
            (Some('}'), _) => {
                cursor.bump();
                open.pop();
            }
            (Some(quote @ ('"' | '\'')), _) => {
                cursor.bump();
                cursor.eat_string(if quote == '"' { "\"" } else { "'" }, false);
            }
            (Some(_), _) => cursor.bump_many(1),
        }
        if open.is_empty() {
            return;
        }
    }
}

/// Whether a slash after these tokens is not a division, a closing tag or the end of one.
fn may_start_regex(before: &[Token<'_>], rest: &str) -> bool {
    const BEFORE_EXPRESSION: [&str; 12] =
        ["return", "typeof", "case", "in", "of", "delete", "void", "throw", "new", "else", "do", "await"];
    let Some(last) = before.last() else { return true };
    match last.kind {
        TokenKind::Literal => false,
        TokenKind::Word => BEFORE_EXPRESSION.contains(&last.text),
        TokenKind::Sign => !matches!(last.text, ")" | "]" | "<") && !rest.starts_with("/>"),
    }
}

/// Characters up to and with the closing slash, if there is one on this line.
fn regex_length(rest: &str) -> Option<usize> {
    let mut in_class = false;
    let mut chars = rest.chars().enumerate().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '\n' => return None,
            '\\' if chars.next().is_none_or(|(_, escaped)| escaped == '\n') => return None,
            '[' => in_class = true,
            ']' => in_class = false,
            '/' if !in_class => return Some(at + 1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use crate::languages::Language;
    use crate::lexing::lex;

    fn tokens(text: &str) -> Vec<&str> {
        lex(Language::JavaScript, text).tokens.into_iter().map(|token| token.text).collect()
    }

    #[test]
    fn a_template_is_one_token_with_its_code() {
        assert_eq!(
            tokens("a = `x ${ f({b: `}`}) + '}' } // y\n z` + 1"),
            ["a", "=", "`x ${ f({b: `}`}) + '}' } // y\n z`", "+", "1"]
        );
        assert_eq!(tokens("`\\`${1}$` b"), ["`\\`${1}$`", "b"]);
    }

    #[test]
    fn a_regex_is_distinguished_from_a_division() {
        assert_eq!(tokens("a = /[/'\"]{2}\\//g;"), ["a", "=", "/[/'\"]{2}\\//g", ";"]);
        assert_eq!(tokens("return /{/.test(b)"), ["return", "/{/", ".", "test", "(", "b", ")"]);
        assert_eq!(tokens("a / b / c"), ["a", "/", "b", "/", "c"]);
        assert_eq!(tokens("(a) / 2 / [1]"), ["(", "a", ")", "/", "2", "/", "[", "1", "]"]);
        assert_eq!(tokens("x = a\n/ 2"), ["x", "=", "a", "/", "2"]);
    }

    #[test]
    fn markup_in_code_does_not_open_a_regex() {
        assert_eq!(tokens("<p></p>").len(), 7);
        assert_eq!(
            tokens("<A x={1} /><B y={2} />"),
            ["<", "A", "x", "=", "{", "1", "}", "/", ">", "<", "B", "y", "=", "{", "2", "}", "/", ">"]
        );
    }

    #[test]
    fn comments_and_strings_hide_what_they_hold() {
        let lexed = lex(Language::JavaScript, "#!/usr/bin/env node\na /* { ` */ = '//' // catch {}\r\nb");
        let words: Vec<_> = lexed.tokens.iter().map(|token| (token.text, token.line)).collect();
        assert_eq!(words, [("a", 2), ("=", 2), ("'//'", 2), ("b", 3)]);
    }
}
