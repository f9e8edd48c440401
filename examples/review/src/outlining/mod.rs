//! Finds the functions and the public items of a file, and which of its code is test code.

mod brackets;
mod javascript;
mod python;
mod rust;

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::languages::Language;
use crate::lexing::Lexed;

pub(crate) use python::{LogicalLine, logical_lines};

/// A function, method or named closure with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    /// With the type or class that it belongs to.
    pub(crate) name: String,
    /// Its tokens, from the keyword or name to the end of the body.
    pub(crate) tokens: Range<usize>,
    /// Lines on which code starts, without those of functions inside.
    pub(crate) code_lines: usize,
    /// How many control structures and closures enclose its innermost code.
    pub(crate) depth: usize,
    /// The line on which that depth is first reached.
    pub(crate) deepest_line: usize,
    pub(crate) is_test: bool,
}

/// A public item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    /// The keyword: `fn`, `class` and so on.
    pub(crate) what: &'static str,
    pub(crate) name: String,
    pub(crate) line: usize,
    pub(crate) is_documented: bool,
}

/// A declaration `mod name;` whose code is in another file (Rust).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Module {
    pub(crate) name: String,
    pub(crate) is_public: bool,
    pub(crate) is_test: bool,
}

/// The shape of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outline {
    /// In the order of their first token.
    pub(crate) functions: Vec<Function>,
    /// Public items outside tests.
    pub(crate) items: Vec<Item>,
    pub(crate) modules: Vec<Module>,
    /// Words in public re-exports, and `name::*` for all of a module (Rust).
    pub(crate) reexports: Vec<String>,
    /// Token ranges of test code.
    pub(crate) tests: Vec<Range<usize>>,
}

impl Outline {
    /// Reads the shape out of the tokens.
    pub(crate) fn new(language: Language, path: &str, lexed: &Lexed<'_>) -> Self {
        let mut outline = match language {
            Language::Rust => rust::outline(path, lexed),
            Language::Python => python::outline(lexed),
            Language::JavaScript => javascript::outline(lexed),
        };
        if language.is_test_path(path) {
            outline.tests.clear();
            outline.tests.push(0..lexed.tokens.len());
            outline.items.clear();
        }
        let tests = outline.tests.clone();
        for function in &mut outline.functions {
            function.is_test = is_within(&tests, function.tokens.start);
        }
        count_code_lines(&mut outline.functions, lexed);
        outline
    }

    /// Whether the token at `at` is test code.
    pub(crate) fn is_test(&self, at: usize) -> bool {
        is_within(&self.tests, at)
    }

    /// The name of the innermost function around the token at `at`; empty at file level.
    pub(crate) fn owner(&self, at: usize) -> &str {
        let before = self.functions.partition_point(|function| function.tokens.start <= at);
        let innermost = self.functions[..before].iter().rev().find(|function| function.tokens.contains(&at));
        innermost.map_or("", |function| &function.name)
    }
}

fn is_within(ranges: &[Range<usize>], at: usize) -> bool {
    ranges.iter().any(|range| range.contains(&at))
}

/// Gives each function its own lines: a line belongs to the innermost function of its first token.
fn count_code_lines(functions: &mut [Function], lexed: &Lexed<'_>) {
    let mut open: Vec<usize> = Vec::new();
    let mut next = 0;
    for (first, tokens) in lexed.code_lines() {
        let end = first + tokens.len();
        open.retain(|&function| functions[function].tokens.end > first);
        while next < functions.len() && functions[next].tokens.start < end {
            open.push(next);
            next += 1;
        }
        if let Some(&innermost) = open.last() {
            functions[innermost].code_lines += 1;
        }
    }
}

/// Collects functions while a file is read from front to back.
#[derive(Debug, Default)]
struct Functions {
    done: Vec<Function>,
    /// Indices into `done` of those whose end is ahead, each with the levels that are open in it.
    open: Vec<(usize, Vec<usize>)>,
}

impl Functions {
    /// Closes what ends at or before the token at `at`.
    fn close_until(&mut self, at: usize) {
        while let Some((function, levels)) = self.open.last_mut() {
            levels.retain(|end| *end > at);
            if self.done[*function].tokens.end > at {
                return;
            }
            self.open.pop();
        }
    }

    /// Opens a function; one without a body is not opened.
    fn open_function(&mut self, name: String, tokens: Range<usize>, line: usize) {
        self.open.push((self.done.len(), Vec::new()));
        let function = Function { name, tokens, code_lines: 0, depth: 0, deepest_line: line, is_test: false };
        self.done.push(function);
    }

    /// Opens a level that ends before the token at `end`, in the innermost open function.
    fn open_level(&mut self, end: usize, line: usize) {
        if let Some((function, levels)) = self.open.last_mut() {
            levels.push(end);
            let function = &mut self.done[*function];
            if levels.len() > function.depth {
                function.depth = levels.len();
                function.deepest_line = line;
            }
        }
    }

    fn is_inside(&self) -> bool {
        !self.open.is_empty()
    }

    fn finish(mut self) -> Vec<Function> {
        self.done.sort_by_key(|function| function.tokens.start);
        self.done
    }
}
