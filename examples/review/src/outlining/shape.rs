//! The shape of a file: its functions, its public items, its modules and its tests.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::functions::Function;

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

pub(super) fn is_within(ranges: &[Range<usize>], at: usize) -> bool {
    ranges.iter().any(|range| range.contains(&at))
}
