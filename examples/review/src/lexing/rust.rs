//! Rust: nested block comments, raw strings, characters and lifetimes.

use super::cursor::{Cursor, is_word_char};
use super::lexed::{Lexed, TokenKind};

pub(super) fn lex<'a>(cursor: &mut Cursor<'a>, lexed: &mut Lexed<'a>) {
    if cursor.rest().starts_with("#!") && !cursor.rest().starts_with("#![") {
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
            eat_block_comment(cursor);
            lexed.add_comment(cursor, start, line);
        } else {
            let kind = eat_token(cursor, next);
            lexed.add_token(kind, cursor, start, line);
        }
    }
}

fn eat_block_comment(cursor: &mut Cursor<'_>) {
    let mut depth = 1;
    while depth > 0 && cursor.peek().is_some() {
        if cursor.eat("/*") {
            depth += 1;
        } else if cursor.eat("*/") {
            depth -= 1;
        } else {
            cursor.bump();
        }
    }
}

fn eat_token(cursor: &mut Cursor<'_>, next: char) -> TokenKind {
    if next == '"' {
        cursor.bump();
        cursor.eat_string("\"", true);
        TokenKind::Literal
    } else if next == '\'' {
        eat_quote(cursor)
    } else if is_word_char(next) {
        eat_word(cursor)
    } else {
        cursor.bump();
        TokenKind::Sign
    }
}

/// A character such as `'{'`, or a lifetime such as `'a`.
fn eat_quote(cursor: &mut Cursor<'_>) -> TokenKind {
    cursor.bump();
    let mut ahead = cursor.rest().chars();
    match (ahead.next(), ahead.next()) {
        (Some('\\'), _) => {
            cursor.eat_string("'", false);
            TokenKind::Literal
        }
        (Some(c), Some('\'')) if c != '\n' => {
            cursor.bump_many(2);
            TokenKind::Literal
        }
        (Some(c), _) if is_word_char(c) => {
            cursor.eat_while(is_word_char);
            TokenKind::Word
        }
        _ => TokenKind::Sign,
    }
}

/// A word, or the literal of which it is the prefix.
fn eat_word(cursor: &mut Cursor<'_>) -> TokenKind {
    let rest = cursor.rest();
    let word = &rest[..rest.find(|c| !is_word_char(c)).unwrap_or(rest.len())];
    cursor.bump_many(word.chars().count());
    let hashes = cursor.rest().bytes().take_while(|byte| *byte == b'#').count();
    let quote = cursor.rest()[hashes..].chars().next();
    match (word, quote) {
        ("r" | "br" | "cr", Some('"')) => {
            cursor.bump_many(hashes + 1);
            eat_raw_string(cursor, hashes);
            TokenKind::Literal
        }
        ("b" | "c", Some('"')) if hashes == 0 => {
            cursor.bump();
            cursor.eat_string("\"", true);
            TokenKind::Literal
        }
        ("b", Some('\'')) if hashes == 0 => match eat_quote(cursor) {
            TokenKind::Literal => TokenKind::Literal,
            TokenKind::Word | TokenKind::Sign => TokenKind::Word,
        },
        ("r", Some(c)) if hashes == 1 && is_word_char(c) => {
            cursor.bump();
            cursor.eat_while(is_word_char);
            TokenKind::Word
        }
        _ => TokenKind::Word,
    }
}

fn eat_raw_string(cursor: &mut Cursor<'_>, hashes: usize) {
    let end = format!("\"{}", "#".repeat(hashes));
    while cursor.peek().is_some() && !cursor.eat(&end) {
        cursor.bump();
    }
}

#[cfg(test)]
mod tests {
    use crate::languages::Language;
    use crate::lexing::lex;

    fn tokens(text: &str) -> Vec<&str> {
        lex(Language::Rust, text).tokens.into_iter().map(|token| token.text).collect()
    }

    #[test]
    fn strings_of_every_sort_are_single_tokens() {
        let text = r###"f("a { \" b", r#"x " } "#, br##"y "# "##, b"z", c"w", b'{')"###;
        let expected = [
            "f",
            "(",
            r#""a { \" b""#,
            ",",
            "r#\"x \" } \"#",
            ",",
            "br##\"y \"# \"##",
            ",",
            "b\"z\"",
            ",",
            "c\"w\"",
            ",",
            "b'{'",
            ")",
        ];
        assert_eq!(tokens(text), expected);
    }

    #[test]
    fn characters_and_lifetimes_differ() {
        assert_eq!(
            tokens("'{' 'a '\\'' '\\u{7d}' &'static str"),
            ["'{'", "'a", "'\\''", "'\\u{7d}'", "&", "'static", "str"]
        );
        assert_eq!(tokens("'outer: loop"), ["'outer", ":", "loop"]);
        assert_eq!(tokens("r#type"), ["r#type"]);
    }

    #[test]
    fn comments_nest_and_hide_what_they_hold() {
        let lexed = lex(Language::Rust, "a /* x /* \" */ unwrap() */ b // 'c {\n/// d.unwrap()\ne");
        let words: Vec<_> = lexed.tokens.iter().map(|token| (token.text, token.line)).collect();
        assert_eq!(words, [("a", 1), ("b", 1), ("e", 3)]);
        assert_eq!(lexed.comments.len(), 3);
        assert_eq!(lexed.comments_before(2).len(), 2);
    }

    #[test]
    fn a_string_over_lines_keeps_the_lines_after_it() {
        let lexed = lex(Language::Rust, "let a = \"x\r\n  y\";\r\nb");
        assert_eq!(lexed.tokens.last().map(|token| (token.text, token.line)), Some(("b", 3)));
    }
}
