//! Finds the functions and the public items of a file, and which of its code is test code.

mod brackets;
mod functions;
mod javascript;
mod python;
mod rust;
mod shape;

use crate::languages::Language;
use crate::lexing::Lexed;

use functions::Function;
use shape::is_within;

pub(crate) use python::{LogicalLine, logical_lines};
pub(crate) use shape::{Module, Outline};

/// Reads the shape of a file out of its tokens.
pub(crate) fn outline(language: Language, path: &str, lexed: &Lexed<'_>) -> Outline {
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
    for function in &mut outline.functions {
        function.is_test = is_within(&outline.tests, function.tokens.start);
    }
    count_code_lines(&mut outline.functions, lexed);
    outline
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
