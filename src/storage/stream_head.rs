//! The rules of one stream: which append is next, what a purge leaves. Pure; every store calls it.

use std::ops::RangeInclusive;

use super::{Key, Sequence, StorageError};

/// What a store has to know of a stream to decide about writes. An unknown stream has the default head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamHead {
    /// Sequence of the last record ever appended, purged or not.
    pub(crate) last: Sequence,
    /// Everything up to this sequence is purged.
    pub(crate) purged: Sequence,
}

impl StreamHead {
    /// Admits an append and returns its sequence.
    pub(crate) fn append(&mut self, stream: &Key, expected: Sequence) -> Result<Sequence, StorageError> {
        if expected != self.last {
            return Err(StorageError::WrongSequence { stream: stream.clone(), expected, actual: self.last });
        }
        self.last += 1;
        Ok(self.last)
    }

    /// Purges up to a sequence; the records to remove. A stream without records is as good as new.
    pub(crate) fn purge(&mut self, up_to: Sequence) -> RangeInclusive<Sequence> {
        let removed = self.purged + 1..=up_to.min(self.last);
        self.purged = self.purged.max(*removed.end());
        if self.purged == self.last {
            *self = Self::default();
        }
        removed
    }
}
