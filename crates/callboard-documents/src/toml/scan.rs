//! A first look at a text, before a tree is made of it: whether its grammar is right, and whether it is nested within
//! reason.
//!
//! The tree of the `toml` crate is as deep as its brackets times the dots of its keys, and dropping it takes stack for each
//! level; a table of one key takes more than a KiB, for each dot too; its errors are as many as the text has characters. So it
//! parses only texts that passed this scan.

use std::fmt::Write as _;

use toml_parser::decoder::Encoding;
use toml_parser::parser::{Event, EventKind, EventReceiver, ValidateWhitespace, parse_document};
use toml_parser::{ErrorSink, Expected, ParseError, Source, Span};

use crate::{Defect, Found, MAX_DEPTH};

/// How deep keys and brackets may nest, each dot of a key counted: less than what the `toml` crate takes.
pub(super) const MAX_LEVELS: usize = 80;

/// The most tables. Each header, inline table and dot of a key counts as one.
pub(super) const MAX_TABLES: usize = 1 << 16;

// JSON that is made of the tree needs no check of its own.
const _: () = assert!(MAX_LEVELS <= MAX_DEPTH);

/// Whether a tree may be made of it; if not, all that is wrong with its grammar is added to what was found.
pub(super) fn is_sound(text: &str, found: &mut Found) -> bool {
    let source = Source::new(text);
    let mut levels = Levels { source, depth: 0, keys: 0, open: Vec::new(), tables: 0, is_refused: false };
    let mut receiver = ValidateWhitespace::new(&mut levels, source);
    let mut sink = |error: ParseError| found.add(defect(&error));
    parse_document(&source.lex().into_vec(), &mut receiver, &mut sink);
    found.is_empty()
}

fn defect(error: &ParseError) -> Defect {
    let place = error.unexpected().or(error.context()).map(|span| span.start()..span.end());
    let mut problem = error.description().to_owned();
    for (position, expected) in error.expected().unwrap_or_default().iter().enumerate() {
        problem.push_str(if position == 0 { ", expected " } else { ", " });
        match expected {
            Expected::Literal("\n") => problem.push_str("a new line"),
            // Writing to a string cannot fail.
            Expected::Literal(literal) => drop(write!(problem, "`{literal}`")),
            Expected::Description(description) => problem.push_str(description),
            _ => problem.push_str("something else"),
        }
    }
    Defect::new(&place, problem)
}

/// Follows how deep the text is nested, and has each key and value decoded. What it counts is right as long as the grammar
/// is.
struct Levels<'t> {
    source: Source<'t>,
    /// The levels of the last header and of the open brackets, with the keys that led to them.
    depth: usize,
    /// The keys of the path that is being read.
    keys: usize,
    /// How deep it was before each open bracket.
    open: Vec<usize>,
    tables: usize,
    is_refused: bool,
}

impl Levels<'_> {
    /// Whether all is within the limits, here and before; the first time that it is not is an error.
    fn has_room(&mut self, span: Span, errors: &mut dyn ErrorSink) -> bool {
        if self.is_refused {
            return false;
        }
        let problem = if self.depth + self.keys > MAX_LEVELS {
            format!("keys and brackets are nested more than {MAX_LEVELS} levels deep here")
        } else if self.tables > MAX_TABLES {
            format!("there are more than {MAX_TABLES} headers, inline tables and dots in keys up to here")
        } else {
            return true;
        };
        self.is_refused = true;
        errors.report_error(ParseError::new(problem).with_unexpected(span));
        false
    }

    fn open(&mut self, span: Span, errors: &mut dyn ErrorSink) -> bool {
        self.open.push(self.depth);
        self.depth += std::mem::take(&mut self.keys) + 1;
        self.has_room(span, errors)
    }

    fn close(&mut self) {
        self.depth = self.open.pop().unwrap_or_default();
        self.keys = 0;
    }

    fn begin_header(&mut self) {
        (self.depth, self.keys) = (0, 0);
        self.open.clear();
        self.tables += 1;
    }

    fn end_header(&mut self) {
        self.depth = std::mem::take(&mut self.keys);
    }
}

impl EventReceiver for Levels<'_> {
    fn std_table_open(&mut self, _: Span, _: &mut dyn ErrorSink) {
        self.begin_header();
    }

    fn std_table_close(&mut self, _: Span, _: &mut dyn ErrorSink) {
        self.end_header();
    }

    fn array_table_open(&mut self, _: Span, _: &mut dyn ErrorSink) {
        self.begin_header();
    }

    fn array_table_close(&mut self, _: Span, _: &mut dyn ErrorSink) {
        self.end_header();
    }

    fn inline_table_open(&mut self, span: Span, errors: &mut dyn ErrorSink) -> bool {
        self.tables += 1;
        self.open(span, errors)
    }

    fn inline_table_close(&mut self, _: Span, _: &mut dyn ErrorSink) {
        self.close();
    }

    fn array_open(&mut self, span: Span, errors: &mut dyn ErrorSink) -> bool {
        self.open(span, errors)
    }

    fn array_close(&mut self, _: Span, _: &mut dyn ErrorSink) {
        self.close();
    }

    fn simple_key(&mut self, span: Span, encoding: Option<Encoding>, errors: &mut dyn ErrorSink) {
        self.keys += 1;
        self.has_room(span, errors);
        if let Some(raw) = self.source.get(Event::new_unchecked(EventKind::SimpleKey, encoding, span)) {
            raw.decode_key(&mut (), errors);
        }
    }

    fn key_sep(&mut self, _: Span, _: &mut dyn ErrorSink) {
        self.tables += 1;
    }

    fn scalar(&mut self, span: Span, encoding: Option<Encoding>, errors: &mut dyn ErrorSink) {
        self.keys = 0;
        if let Some(raw) = self.source.get(Event::new_unchecked(EventKind::Scalar, encoding, span)) {
            let _ = raw.decode_scalar(&mut (), errors);
        }
    }
}
