//! Rules of claims and fences.

use std::time::Duration;

use super::subject::{ManualClock, Subject, expect};
use crate::storage::{Fence, Key, StorageError};

fn stream() -> Key {
    Key::new(["run", "1"])
}

fn fenced(current: Fence) -> StorageError {
    StorageError::Fenced { key: stream(), current: current.0 }
}

impl Subject {
    /// Claims the stream for 10 s.
    async fn claim(&self, owner: &str) -> Result<Fence, StorageError> {
        self.store().claim(&stream(), owner, 10).await
    }
}

/// After a claim only its holder can append.
pub(super) async fn a_claim_shuts_out_older_fences(subject: Subject) {
    assert_eq!(subject.append(&stream(), 0, "unclaimed").await, Ok(1));
    let first = expect(subject.claim("a").await);
    assert!(first > Fence::FIRST);
    assert_eq!(subject.append(&stream(), 1, "late").await, Err(fenced(first)));
    assert_eq!(subject.append_as(&stream(), first, 1, "claimed").await, Ok(2));
    subject.advance_secs(10);
    let second = expect(subject.claim("b").await);
    assert!(second > first);
    assert_eq!(subject.append_as(&stream(), first, 2, "late").await, Err(fenced(second)));
    assert_eq!(subject.append_as(&stream(), second, 2, "claimed").await, Ok(3));
    assert_eq!(subject.store().renew(&stream(), first, 10).await, Err(fenced(second)));
    assert_eq!(subject.store().release(&stream(), first).await, Err(fenced(second)));
    assert_eq!(subject.records(&stream()).await.len(), 3);
}

/// The refusal names the owner and the end.
pub(super) async fn a_live_claim_is_held(subject: Subject) {
    expect(subject.claim("a").await);
    subject.advance_secs(9);
    let until = ManualClock::START + Duration::from_secs(10);
    let held = StorageError::Held { stream: stream(), owner: "a".into(), until };
    assert_eq!(subject.claim("b").await, Err(held));
}

/// Claiming again replaces one's own fence.
pub(super) async fn the_holder_may_claim_again(subject: Subject) {
    let first = expect(subject.claim("a").await);
    let second = expect(subject.claim("a").await);
    assert!(second > first);
    assert_eq!(subject.append_as(&stream(), first, 0, "late").await, Err(fenced(second)));
    assert_eq!(subject.append_as(&stream(), second, 0, "x").await, Ok(1));
}

/// Expiry is at the very second.
pub(super) async fn a_claim_that_ran_out_can_be_taken(subject: Subject) {
    let first = expect(subject.claim("a").await);
    subject.advance_secs(10);
    assert!(expect(subject.claim("b").await) > first);
}

/// A renewal counts from now.
pub(super) async fn a_renewed_claim_lasts_longer(subject: Subject) {
    let fence = expect(subject.claim("a").await);
    subject.advance_secs(9);
    assert_eq!(subject.store().renew(&stream(), fence, 10).await, Ok(()));
    subject.advance_secs(9);
    assert!(matches!(subject.claim("b").await, Err(StorageError::Held { .. })));
    assert_eq!(subject.append_as(&stream(), fence, 0, "x").await, Ok(1));
}

/// An owner that was slow and lost nothing continues.
pub(super) async fn a_claim_that_ran_out_can_be_renewed_until_another_owner_takes_it(subject: Subject) {
    let fence = expect(subject.claim("a").await);
    subject.advance_secs(60);
    assert_eq!(subject.append_as(&stream(), fence, 0, "x").await, Ok(1));
    assert_eq!(subject.store().renew(&stream(), fence, 10).await, Ok(()));
    subject.advance_secs(60);
    let taken = expect(subject.claim("b").await);
    assert_eq!(subject.store().renew(&stream(), fence, 10).await, Err(fenced(taken)));
}

/// A release frees the stream for others and does not let older writers back in.
pub(super) async fn a_released_stream_is_free_and_keeps_its_fence(subject: Subject) {
    let first = expect(subject.claim("a").await);
    assert_eq!(subject.append_as(&stream(), first, 0, "x").await, Ok(1));
    assert_eq!(subject.store().release(&stream(), first).await, Ok(()));
    assert_eq!(subject.store().release(&stream(), first).await, Ok(()), "twice is fine");
    assert_eq!(subject.store().renew(&stream(), first, 10).await, Err(fenced(first)));
    assert_eq!(subject.append(&stream(), 1, "unclaimed").await, Err(fenced(first)));
    assert!(expect(subject.claim("b").await) > first);
}

/// While a claim lives, an emptied stream continues to count.
pub(super) async fn a_claim_keeps_an_emptied_stream(subject: Subject) {
    let fence = expect(subject.claim("a").await);
    assert_eq!(subject.append_as(&stream(), fence, 0, "x").await, Ok(1));
    expect(subject.store().purge(&stream(), 1).await);
    assert_eq!(expect(subject.store().streams(&Key::new([]).children()).await), []);
    assert_eq!(subject.append_as(&stream(), fence, 1, "y").await, Ok(2));
    assert_eq!(subject.records(&stream()).await, [(2, "y".into())]);
}

/// The end of a claim forgets nothing. The purge, or the release, that leaves neither a record nor a claim does.
pub(super) async fn a_claim_that_ran_out_keeps_an_emptied_stream(subject: Subject) {
    let fence = expect(subject.claim("a").await);
    assert_eq!(subject.append_as(&stream(), fence, 0, "x").await, Ok(1));
    expect(subject.store().purge(&stream(), 1).await);
    subject.advance_secs(60);
    assert_eq!(subject.append(&stream(), 0, "late").await, Err(fenced(fence)));
    assert_eq!(subject.append_as(&stream(), fence, 1, "y").await, Ok(2));
    expect(subject.store().purge(&stream(), 2).await);
    assert_eq!(subject.append(&stream(), 0, "new").await, Ok(1), "the purge has left neither a record nor a claim");
    let fence = expect(subject.claim("a").await);
    expect(subject.store().purge(&stream(), 1).await);
    expect(subject.store().release(&stream(), fence).await);
    assert_eq!(subject.append(&stream(), 0, "new").await, Ok(1), "the release has left neither a record nor a claim");
}

/// Also not when the stream was forgotten in between; its owner then is shut out.
pub(super) async fn fences_never_come_twice(subject: Subject) {
    let mut last = Fence::FIRST;
    for _ in 0..3 {
        let fence = expect(subject.claim("a").await);
        assert!(fence > last);
        assert_eq!(subject.append_as(&stream(), fence, 0, "x").await, Ok(1));
        expect(subject.store().release(&stream(), fence).await);
        expect(subject.store().purge(&stream(), 1).await);
        assert_eq!(subject.append_as(&stream(), fence, 0, "x").await, Err(fenced(Fence::FIRST)));
        last = fence;
    }
}
