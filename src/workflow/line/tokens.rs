//! Reads a text to tokens with positions; brackets are checked to be paired.

use std::ops::Range;

use callboard_documents::Defect;
use callboard_text::cut;
use serde_json::Number;
use winnow::ascii::digit1;
use winnow::combinator::{alt, delimited, dispatch, fail, opt, peek, repeat};
use winnow::error::EmptyError;
use winnow::prelude::*;
use winnow::stream::{LocatingSlice, Location, Stream};
use winnow::token::{any, one_of, take_till, take_while};

use super::defects::DefectList;

/// A token.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token<'a> {
    Name(&'a str),
    Text(String),
    Number(Number),
    Arrow,
    Bar,
    Comma,
    Equals,
    Colon,
    Open(Bracket),
    Close(Bracket),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bracket {
    Round,
    Square,
    Curly,
}

pub(super) type Tokens<'a> = Vec<(Token<'a>, Range<usize>)>;

type Input<'a> = LocatingSlice<&'a str>;
type Read<T> = Result<T, EmptyError>;

/// The longest number, in bytes.
const MAX_NUMBER: usize = 64;

/// A defect, and the advice about it.
#[derive(Clone, Debug)]
struct Fault {
    place: Option<Range<usize>>,
    problem: String,
    advice: String,
}

impl Fault {
    fn new(problem: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { place: None, problem: problem.into(), advice: advice.into() }
    }
}

/// Whether a name can begin with this character.
pub(super) fn begins_name(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

/// Whether a name can continue with this character.
pub(super) fn continues_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// What a text consists of.
///
/// # Errors
/// Everything in it that is no token, and brackets without partners.
pub(super) fn read(text: &str) -> Result<Tokens<'_>, Vec<Defect>> {
    let mut found = DefectList::default();
    let mut tokens = Tokens::new();
    let mut input = LocatingSlice::new(text);
    while skip(&mut input).is_ok() && input.peek_token().is_some() && !found.is_full() {
        let (start, checkpoint) = (input.current_token_start(), input.checkpoint());
        let read = token(&mut input).unwrap_or_else(|EmptyError| {
            input.reset(&checkpoint);
            unknown(&mut input)
        });
        let place = start..input.current_token_start().max(start + 1);
        match read {
            Ok(token) => tokens.push((token, place)),
            Err(fault) => found.add(fault.place.as_ref().unwrap_or(&place), fault.problem, fault.advice),
        }
    }
    pair_brackets(&tokens, &mut found);
    found.or(tokens)
}

/// White space and comments.
fn skip(input: &mut Input<'_>) -> Read<()> {
    let space = take_while(1.., [' ', '\t', '\r', '\n']);
    repeat(0.., alt((space.void(), ('#', take_till(0.., '\n')).void()))).parse_next(input)
}

fn token<'a>(input: &mut Input<'a>) -> Read<Result<Token<'a>, Fault>> {
    dispatch! {peek(any);
        '"' => text,
        '-' => alt(("->".value(Ok(Token::Arrow)), number)),
        '0'..='9' => number,
        '|' => "|".value(Ok(Token::Bar)),
        ',' => ",".value(Ok(Token::Comma)),
        '=' => ("=", winnow::combinator::not(one_of(['=', '>']))).value(Ok(Token::Equals)),
        ':' => ":".value(Ok(Token::Colon)),
        '(' => "(".value(Ok(Token::Open(Bracket::Round))),
        ')' => ")".value(Ok(Token::Close(Bracket::Round))),
        '[' => "[".value(Ok(Token::Open(Bracket::Square))),
        ']' => "]".value(Ok(Token::Close(Bracket::Square))),
        '{' => "{".value(Ok(Token::Open(Bracket::Curly))),
        '}' => "}".value(Ok(Token::Close(Bracket::Curly))),
        c if begins_name(c) => take_while(1.., continues_name).map(|name| Ok(Token::Name(name))),
        _ => fail,
    }
    .parse_next(input)
}

/// A number as in JSON.
fn number<'a>(input: &mut Input<'a>) -> Read<Result<Token<'a>, Fault>> {
    let fraction = ('.', digit1);
    let exponent = (one_of(['e', 'E']), opt(one_of(['+', '-'])), digit1);
    let digits = (opt('-'), digit1, opt(fraction), opt(exponent)).take().parse_next(input)?;
    let advice = "write a number as 3, -2 or 0.5; digits that are no number as text, in double quotes";
    let fault = |()| Fault::new(format!("{} cannot be held as a number", cut(digits)), advice);
    // A longer number cannot be held exactly.
    let number = if digits.len() > MAX_NUMBER { Err(fault(())) } else { digits.parse().map_err(|_| fault(())) };
    Ok(number.map(Token::Number))
}

/// Part of a text in quotes.
#[derive(Clone)]
enum Piece<'a> {
    Plain(&'a str),
    Escaped(char),
    Wrong(&'static str, &'static str),
}

fn text<'a>(input: &mut Input<'a>) -> Read<Result<Token<'a>, Fault>> {
    '"'.parse_next(input)?;
    let mut whole = repeat(0.., piece.with_span()).fold(
        || Ok(String::new()),
        |whole: Result<String, Fault>, (piece, place)| match (whole, piece) {
            (Ok(mut whole), Piece::Plain(part)) => {
                whole.push_str(part);
                Ok(whole)
            }
            (Ok(mut whole), Piece::Escaped(c)) => {
                whole.push(c);
                Ok(whole)
            }
            (Ok(_), Piece::Wrong(problem, advice)) => Err(Fault { place: Some(place), ..Fault::new(problem, advice) }),
            (Err(fault), Piece::Plain(_) | Piece::Escaped(_) | Piece::Wrong(..)) => Err(fault),
        },
    );
    let whole = whole.parse_next(input)?;
    let end = opt('"').parse_next(input)?;
    Ok(match end {
        Some(_) => whole.map(Token::Text),
        None => Err(Fault::new(
            "this text has no `\"` at its end",
            "write a `\"` on the same line; a line break within a text is `\\n`",
        )),
    })
}

fn piece<'a>(input: &mut Input<'a>) -> Read<Piece<'a>> {
    let plain = take_while(1.., |c: char| c != '"' && c != '\\' && (!c.is_control() || c == '\t'));
    let control = take_while(1.., |c: char| c.is_control() && c != '\n' && c != '\r');
    alt((
        plain.map(Piece::Plain),
        escape.map(Piece::Escaped),
        ('\\', opt(take_while(1, |c: char| !c.is_control()))).value(Piece::Wrong(
            "this is no escape",
            "there are \\\" \\\\ \\n \\r \\t and \\u{1f600} with the number of a character; a backslash is \\\\",
        )),
        control.value(Piece::Wrong("a control character in a text", "write it as \\t or \\u{1b}")),
    ))
    .parse_next(input)
}

fn escape(input: &mut Input<'_>) -> Read<char> {
    let code = delimited("u{", take_while(1..=6, |c: char| c.is_ascii_hexdigit()), '}');
    let code = code.verify_map(|digits| char::from_u32(u32::from_str_radix(digits, 16).ok()?));
    let simple = alt(('"'.value('"'), '\\'.value('\\'), 'n'.value('\n'), 'r'.value('\r'), 't'.value('\t')));
    let (_, c) = ('\\', alt((simple, code))).parse_next(input)?;
    Ok(c)
}

/// Characters that begin no token, up to the next one that may.
fn unknown<'a>(input: &mut Input<'a>) -> Result<Token<'a>, Fault> {
    let ends = |c: char| c.is_whitespace() || continues_name(c) || "\"|,:()[]{}#".contains(c);
    let rest = input.peek_finish();
    let first = rest.chars().next().map_or(0, char::len_utf8);
    let sign = input.next_slice(rest[first..].find(ends).map_or(rest.len(), |more| first + more));
    let advice = match sign {
        "=>" | "→" | "-->" | ">" | ">>" => "write `->` between steps that follow each other",
        "-" => {
            "a name has letters, digits and `_` alone; an agent's name can be given: code_review(agent=\"code-review\")"
        }
        "==" => "write `=` after a key; expressions stand in double quotes",
        "'" | "`" | "“" | "”" => "write text in double quotes",
        "//" | "/*" => "a comment begins with `#`",
        "&" | "&&" | "||" => "write `|` between steps that run side by side",
        ";" => "write `->` between steps that follow each other, and `,` between arguments",
        _ => "there are names, texts in double quotes, numbers, and -> | , = : ( ) [ ] { }",
    };
    Err(Fault::new(format!("`{}` has no meaning here", cut(sign)), advice))
}

/// Finds brackets that are not closed, and those that close nothing.
fn pair_brackets(tokens: &[(Token<'_>, Range<usize>)], found: &mut DefectList) {
    let mut open: Vec<(Bracket, &Range<usize>)> = Vec::new();
    for (token, place) in tokens {
        match token {
            Token::Open(bracket) => open.push((*bracket, place)),
            Token::Close(bracket) => {
                let partner = open.iter().rposition(|(opened, _)| opened == bracket);
                let Some(partner) = partner else {
                    let problem = format!("this `{}` closes nothing", bracket.close());
                    found.add(place, problem, format!("remove it, or write a `{}` before it", bracket.open()));
                    continue;
                };
                for (unclosed, place) in open.drain(partner..).skip(1) {
                    add_unclosed(found, unclosed, place);
                }
            }
            Token::Name(_) | Token::Text(_) | Token::Number(_) | Token::Arrow | Token::Bar => {}
            Token::Comma | Token::Equals | Token::Colon => {}
        }
        if found.is_full() {
            return;
        }
    }
    for (unclosed, place) in open {
        add_unclosed(found, unclosed, place);
    }
}

fn add_unclosed(found: &mut DefectList, bracket: Bracket, place: &Range<usize>) {
    let problem = format!("this `{}` is not closed", bracket.open());
    found.add(place, problem, format!("write a `{}` where it ends", bracket.close()));
}

impl Bracket {
    pub(super) fn open(self) -> char {
        match self {
            Self::Round => '(',
            Self::Square => '[',
            Self::Curly => '{',
        }
    }

    pub(super) fn close(self) -> char {
        match self {
            Self::Round => ')',
            Self::Square => ']',
            Self::Curly => '}',
        }
    }
}

impl Token<'_> {
    /// The token in error texts.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Name(name) => format!("`{}`", cut(name)),
            Self::Text(text) => format!("the text {}", callboard_text::quoted(text)),
            Self::Number(number) => format!("the number {number}"),
            Self::Arrow => "`->`".to_owned(),
            Self::Bar => "`|`".to_owned(),
            Self::Comma => "`,`".to_owned(),
            Self::Equals => "`=`".to_owned(),
            Self::Colon => "`:`".to_owned(),
            Self::Open(bracket) => format!("`{}`", bracket.open()),
            Self::Close(bracket) => format!("`{}`", bracket.close()),
        }
    }
}
