//! What is measured of one file.

use serde::{Deserialize, Serialize};

use crate::findings::Finding;
use crate::outlining::Module;

/// What one file measures. It travels as JSON, except for the lines that are compared with other files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Measurement {
    pub(crate) file: String,
    pub(crate) bytes: u64,
    /// Lines on which code starts.
    pub(crate) code_lines: usize,
    pub(crate) is_test: bool,
    pub(crate) findings: Vec<Finding>,
    /// Input for [`settle`](super::settle), which needs all files together.
    pub(super) modules: Vec<Module>,
    pub(super) reexports: Vec<String>,
    /// Input for [`repeated_blocks`](fn@super::repeated_blocks), which needs all files together; cheaper to measure again than to keep.
    #[serde(skip)]
    pub(crate) significant: Vec<SignificantLine>,
}

/// A line that does something: not an import, an attribute or a header, and not only brackets and numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SignificantLine {
    pub(super) line: usize,
    /// Hash of the code without comments and spacing.
    pub(super) hash: u64,
    pub(super) is_test: bool,
}
