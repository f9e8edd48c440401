//! Scans a text before it is parsed to a tree: checks its grammar and its nesting.
//!
//! The tree of the `toml` crate is as deep as its brackets times the dots of its keys, and dropping it takes stack for each
//! level; a table of one key takes more than a KiB, for each dot too; its errors are as many as the text has characters. So it
//! parses only texts that passed this scan.

use std::fmt::Write as _;

use toml_parser::decoder::Encoding;
use toml_parser::parser::{Event, EventKind, EventReceiver, ValidateWhitespace, parse_document};
use toml_parser::{ErrorSink, Expected, ParseError, Source, Span};

use crate::{Defect, Found, MAX_DEPTH};

/// The deepest nesting of keys and brackets, counting each dot of a key: less than the limit of the `toml` crate.
pub(super) const MAX_LEVELS: usize = 80;

/// The most tables. Each header, inline table and dot of a key counts as one.
pub(super) const MAX_TABLES: usize = 1 << 16;

// JSON made from the tree needs no check of its depth.
const _: () = assert!(MAX_LEVELS <= MAX_DEPTH);

/// Whether the text may be parsed to a tree; otherwise all its grammatical errors are added to `found`.
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

/// Tracks the nesting of the text, and has each key and value decoded. Its counts are correct as long as the grammar is.
struct Levels<'t> {
    source: Source<'t>,
    /// The depth of the last header and of the open brackets, with their keys.
    depth: usize,
    /// The number of keys of the current path.
    keys: usize,
    /// The depth before each open bracket.
    open: Vec<usize>,
    tables: usize,
    is_refused: bool,
}

impl Levels<'_> {
    /// Whether everything so far is within the limits; the first violation is reported as an error.
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
