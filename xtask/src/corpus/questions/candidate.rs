//! What the rules make, and of what questions are chosen.

use super::record::QuestionKind;

/// A question that may be taken.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) kind: QuestionKind,
    /// The section that it was made of.
    pub(crate) place: usize,
    /// The sections that answer it.
    pub(crate) accepted: Vec<usize>,
    /// What it has of the text, in the words of the text.
    pub(crate) kept: String,
    pub(crate) question: String,
}
