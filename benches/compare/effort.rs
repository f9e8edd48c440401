//! How many repetitions are measured.

/// Chosen by `--quick`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    Quick,
    Full,
}

impl Effort {
    /// The count of a full run, or a quarter of it.
    pub(crate) fn of(self, full: usize) -> usize {
        match self {
            Self::Quick => full.div_ceil(4),
            Self::Full => full,
        }
    }
}
