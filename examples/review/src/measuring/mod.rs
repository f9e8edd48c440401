//! Measures files: one module per measurement, each reading the same tokens and outline.

mod deep_nesting;
mod long_functions;
mod marks;
mod measurement;
mod modules;
mod panics;
mod repeated_blocks;
mod source;
mod swallowed_errors;
mod undocumented;

use crate::findings::seal;
use crate::lexing::lex;
use crate::listing::SourceFile;
use crate::outlining::outline;

use source::Source;

pub(crate) use measurement::Measurement;
pub(crate) use modules::settle;
pub(crate) use repeated_blocks::repeated_blocks;

/// Measures one file by itself. What only other files can tell is left to [`settle`].
pub(crate) fn measure(file: &SourceFile, text: &str) -> Measurement {
    let lexed = lex(file.language, text);
    let outline = outline(file.language, &file.path, &lexed);
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
