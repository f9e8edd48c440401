//! The shape of a Python file.

use std::ops::Range;

use super::functions::Functions;
use super::shape::{Item, Outline};
use crate::lexing::{Lexed, Token};

pub(super) fn outline(lexed: &Lexed<'_>) -> Outline {
    let lines = logical_lines(lexed);
    let exported = exported_names(lexed);
    let mut functions = Functions::default();
    let mut items = Vec::new();
    let mut classes: Vec<(usize, &str)> = Vec::new();
    let mut decorated_as_overload = false;
    for (index, line) in lines.iter().enumerate() {
        let first = line.tokens.start;
        functions.close_until(first);
        classes.retain(|(end, _)| *end > first);
        if lexed.is(first, "@") {
            decorated_as_overload |= (line.tokens.clone()).any(|at| lexed.is(at, "overload"));
            continue;
        }
        let Some(header) = Header::read(lexed, line) else {
            decorated_as_overload = false;
            continue;
        };
        let end = block_end(&lines, index);
        match header {
            Header::Control => functions.open_level(end, lexed.tokens[line.tokens.end - 1].line + 1),
            Header::Definition { what, name } => {
                let is_public = exported.as_ref().map_or(!name.starts_with('_'), |names| names.contains(&name));
                if line.indent == 0 && is_public && !decorated_as_overload {
                    let is_documented = has_docstring(lexed, &lines, index);
                    let line = lexed.tokens[first].line;
                    items.push(Item { what, name: name.to_owned(), line, is_documented });
                }
                if what == "class" {
                    classes.push((end, name));
                } else {
                    let mut path: Vec<_> = classes.iter().map(|(_, class)| *class).collect();
                    path.push(name);
                    functions.open_function(path.join("."), first..end, lexed.tokens[first].line);
                }
            }
        }
        decorated_as_overload = false;
    }
    Outline { functions: functions.finish(), items, ..Outline::default() }
}

/// A statement with its indentation; brackets and backslashes may carry it over several lines.
#[derive(Debug)]
pub(crate) struct LogicalLine {
    pub(crate) tokens: Range<usize>,
    /// In columns, a tab reaching to the next multiple of eight.
    pub(crate) indent: usize,
}

/// Splits the tokens into logical lines.
pub(crate) fn logical_lines(lexed: &Lexed<'_>) -> Vec<LogicalLine> {
    let mut lines: Vec<LogicalLine> = Vec::new();
    let mut depth = 0_usize;
    let mut previous: Option<&Token<'_>> = None;
    for (at, token) in lexed.tokens.iter().enumerate() {
        let is_new_line = previous.is_none_or(|last| last.line != token.line && end_line(last) != token.line);
        let continues = depth > 0 || previous.is_some_and(|last| last.is("\\"));
        match lines.last_mut() {
            Some(line) if !is_new_line || continues => line.tokens.end = at + 1,
            _ => lines.push(LogicalLine { tokens: at..at + 1, indent: indent(lexed.text, token.start) }),
        }
        if token.is("(") || token.is("[") || token.is("{") {
            depth += 1;
        } else if token.is(")") || token.is("]") || token.is("}") {
            depth = depth.saturating_sub(1);
        }
        previous = Some(token);
    }
    lines
}

fn end_line(token: &Token<'_>) -> usize {
    token.line + if token.is_literal() { token.text.matches('\n').count() } else { 0 }
}

fn indent(text: &str, start: usize) -> usize {
    let line_start = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
    text[line_start..start].chars().fold(0, |column, c| match c {
        '\t' => (column / 8 + 1) * 8,
        '\u{feff}' | '\u{c}' => 0,
        _ => column + 1,
    })
}

/// One past the last token of the block that the header at `index` opens.
fn block_end(lines: &[LogicalLine], index: usize) -> usize {
    let body = lines[index + 1..].iter().take_while(|line| line.indent > lines[index].indent);
    body.last().unwrap_or(&lines[index]).tokens.end
}

enum Header<'a> {
    Definition { what: &'static str, name: &'a str },
    Control,
}

impl<'a> Header<'a> {
    fn read(lexed: &Lexed<'a>, line: &LogicalLine) -> Option<Self> {
        let opens_block = lexed.is(line.tokens.end - 1, ":");
        let at = line.tokens.start + usize::from(lexed.is(line.tokens.start, "async"));
        match (lexed.word(at)?, lexed.word(at + 1)) {
            ("def", Some(name)) => Some(Self::Definition { what: "def", name }),
            ("class", Some(name)) => Some(Self::Definition { what: "class", name }),
            ("if" | "elif" | "else" | "for" | "while" | "with" | "try" | "except" | "finally" | "match", _) => {
                opens_block.then_some(Self::Control)
            }
            _ => None,
        }
    }
}

/// Whether the first statement of the body is a string.
fn has_docstring(lexed: &Lexed<'_>, lines: &[LogicalLine], index: usize) -> bool {
    let header = &lines[index];
    let body = if lexed.is(header.tokens.end - 1, ":") {
        match lines.get(index + 1) {
            Some(line) if line.indent > header.indent => line.tokens.start,
            _ => return false,
        }
    } else {
        let mut depth = 0_usize;
        let colon = header.tokens.clone().find(|at| {
            let token = &lexed.tokens[*at];
            if token.is("(") || token.is("[") || token.is("{") {
                depth += 1;
            } else if token.is(")") || token.is("]") || token.is("}") {
                depth = depth.saturating_sub(1);
            }
            depth == 0 && token.is(":")
        });
        colon.map_or(header.tokens.start, |colon| colon + 1)
    };
    lexed.tokens.get(body).is_some_and(Token::is_literal)
}

/// The names in `__all__`, when the module has one that is written out.
fn exported_names<'a>(lexed: &Lexed<'a>) -> Option<Vec<&'a str>> {
    let start = (0..lexed.tokens.len()).find(|at| lexed.reads(*at, &["__all__", "="]))?;
    let names = lexed.tokens[start + 2..].iter().skip(1).take_while(|token| !token.is("]") && !token.is(")"));
    Some(names.filter(|token| token.is_literal()).map(|token| token.text.trim_matches(['"', '\''])).collect())
}
