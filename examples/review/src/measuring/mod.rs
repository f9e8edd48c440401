//! Measures files: one module per measurement, each reading the same tokens and outline.

mod deep_nesting;
mod long_functions;
mod marks;
mod modules;
mod panics;
mod repeated_blocks;
mod swallowed_errors;
mod undocumented;

use serde::{Deserialize, Serialize};

use crate::findings::{Finding, seal};
use crate::languages::Language;
use crate::lexing::Lexed;
use crate::listing::SourceFile;
use crate::outlining::{Module, Outline};

pub(crate) use modules::settle;
pub(crate) use repeated_blocks::{SignificantLine, repeated_blocks};

/// What one file measures. It travels as JSON, except for the lines that are compared with other files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Measurement {
    pub(crate) file: String,
    pub(crate) bytes: u64,
    /// Lines on which code starts.
    pub(crate) code_lines: usize,
    pub(crate) is_test: bool,
    pub(crate) findings: Vec<Finding>,
    /// Input for [`settle`], which needs all files together.
    modules: Vec<Module>,
    reexports: Vec<String>,
    /// Input for [`repeated_blocks`](fn@repeated_blocks), which needs all files together; cheaper to measure again than to keep.
    #[serde(skip)]
    pub(crate) significant: Vec<SignificantLine>,
}

/// A file as the measurements see it.
struct Source<'a> {
    language: Language,
    lexed: Lexed<'a>,
    outline: Outline,
}

/// Measures one file by itself. What only other files can tell is left to [`settle`].
pub(crate) fn measure(file: &SourceFile, text: &str) -> Measurement {
    let lexed = Lexed::new(file.language, text);
    let outline = Outline::new(file.language, &file.path, &lexed);
    let source = Source { language: file.language, lexed, outline };
    let mut observations = Vec::new();
    long_functions::measure(&source, &mut observations);
    deep_nesting::measure(&source, &mut observations);
    panics::measure(&source, &mut observations);
    swallowed_errors::measure(&source, &mut observations);
    marks::measure(&source, &mut observations);
    undocumented::measure(&source, &mut observations);
    let significant = repeated_blocks::significant_lines(&source.lexed, &source.outline);
    Measurement {
        file: file.path.clone(),
        bytes: file.bytes,
        code_lines: source.lexed.code_lines().count(),
        is_test: file.language.is_test_path(&file.path),
        findings: seal(&file.path, observations),
        modules: source.outline.modules,
        reexports: source.outline.reexports,
        significant,
    }
}

#[cfg(test)]
mod tests;
