//! The functions of a file, and how they are collected while it is read.

use std::ops::Range;

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

/// Collects functions while a file is read from front to back.
#[derive(Debug, Default)]
pub(super) struct Functions {
    done: Vec<Function>,
    /// Indices into `done` of those whose end is ahead, each with the levels that are open in it.
    open: Vec<(usize, Vec<usize>)>,
}

impl Functions {
    /// Closes what ends at or before the token at `at`.
    pub(super) fn close_until(&mut self, at: usize) {
        while let Some((function, levels)) = self.open.last_mut() {
            levels.retain(|end| *end > at);
            if self.done[*function].tokens.end > at {
                return;
            }
            self.open.pop();
        }
    }

    /// Opens a function; one without a body is not opened.
    pub(super) fn open_function(&mut self, name: String, tokens: Range<usize>, line: usize) {
        self.open.push((self.done.len(), Vec::new()));
        let function = Function { name, tokens, code_lines: 0, depth: 0, deepest_line: line, is_test: false };
        self.done.push(function);
    }

    /// Opens a level that ends before the token at `end`, in the innermost open function.
    pub(super) fn open_level(&mut self, end: usize, line: usize) {
        if let Some((function, levels)) = self.open.last_mut() {
            levels.push(end);
            let function = &mut self.done[*function];
            if levels.len() > function.depth {
                function.depth = levels.len();
                function.deepest_line = line;
            }
        }
    }

    /// Whether a function is open.
    pub(super) fn is_inside(&self) -> bool {
        !self.open.is_empty()
    }

    /// The functions in the order of their first token.
    pub(super) fn finish(mut self) -> Vec<Function> {
        self.done.sort_by_key(|function| function.tokens.start);
        self.done
    }
}
