//! The rules of one stream: which append is next, who owns it, what a purge leaves. Pure; every store calls it.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::{Fence, Key, Sequence, StorageError};
use crate::env::Mutant;
use crate::messages::Timestamp;

/// Ownership of a stream until a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) owner: String,
    pub(crate) until: Timestamp,
}

/// What a store has to know of a stream to decide about writes. An unknown stream has the default head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamHead {
    /// Sequence of the last record ever appended, purged or not.
    pub(crate) last: Sequence,
    /// Everything up to this sequence is purged.
    pub(crate) purged: Sequence,
    pub(crate) fence: Fence,
    pub(crate) claim: Option<Claim>,
}

impl StreamHead {
    pub(crate) fn has_records(&self) -> bool {
        self.purged < self.last
    }

    /// Admits an append and returns its sequence.
    pub(crate) fn append(&mut self, stream: &Key, fence: Fence, expected: Sequence) -> Result<Sequence, StorageError> {
        self.check_fence(stream, fence)?;
        if expected != self.last {
            return Err(StorageError::WrongSequence { stream: stream.clone(), expected, actual: self.last });
        }
        self.last += 1;
        Ok(self.last)
    }

    /// Purges up to a sequence; the records to remove.
    pub(crate) fn purge(&mut self, up_to: Sequence, now: Timestamp) -> RangeInclusive<Sequence> {
        let removed = self.purged + 1..=up_to.min(self.last);
        self.purged = self.purged.max(*removed.end());
        self.forget_if_vacant(now);
        removed
    }

    /// Gives the stream to `owner`; `fence` must be greater than every fence that the store has given out.
    pub(crate) fn claim(
        &mut self,
        stream: &Key,
        owner: &str,
        ttl_secs: u64,
        fence: Fence,
        now: Timestamp,
    ) -> Result<Fence, StorageError> {
        if let Some(claim) = self.live_claim(now).filter(|claim| claim.owner != owner) {
            let (owner, until) = (claim.owner.clone(), claim.until);
            return Err(StorageError::Held { stream: stream.clone(), owner, until });
        }
        self.fence = fence;
        self.claim = Some(Claim { owner: owner.to_owned(), until: now + Duration::from_secs(ttl_secs) });
        Ok(fence)
    }

    /// Extends a claim, also one that has expired if no other owner has claimed the stream.
    pub(crate) fn renew(
        &mut self,
        stream: &Key,
        fence: Fence,
        ttl_secs: u64,
        now: Timestamp,
    ) -> Result<(), StorageError> {
        self.check_fence(stream, fence)?;
        let current = self.fence.0;
        match &mut self.claim {
            Some(claim) => {
                claim.until = now + Duration::from_secs(ttl_secs);
                Ok(())
            }
            None => Err(StorageError::Fenced { key: stream.clone(), current }),
        }
    }

    /// Gives a claim up; doing it twice is fine.
    pub(crate) fn release(&mut self, stream: &Key, fence: Fence, now: Timestamp) -> Result<(), StorageError> {
        self.check_fence(stream, fence)?;
        self.claim = None;
        self.forget_if_vacant(now);
        Ok(())
    }

    fn live_claim(&self, now: Timestamp) -> Option<&Claim> {
        self.claim.as_ref().filter(|claim| now < claim.until)
    }

    /// Only the newest owner may act. A fence that is newer than the stream's belongs to a stream that has been purged
    /// and given up since: its holder is as late as one with an older fence.
    fn check_fence(&self, stream: &Key, fence: Fence) -> Result<(), StorageError> {
        if fence == self.fence || Mutant::IgnoreFences.is_injected() {
            Ok(())
        } else {
            Err(StorageError::Fenced { key: stream.clone(), current: self.fence.0 })
        }
    }

    /// A stream with neither records nor a claim is as good as new. Fences stay monotonic because the store never gives
    /// one out twice.
    fn forget_if_vacant(&mut self, now: Timestamp) {
        if !self.has_records() && self.live_claim(now).is_none() {
            *self = Self::default();
        }
    }
}
