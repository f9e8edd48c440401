//! Rules of stores that outlive their process: the last handle is dropped and the store opened again.

use super::riders;
use super::subject::{Subject, expect, text};
use crate::storage::{Append, Delete, Durability, Expected, Key, Put, Rider, StorageError};

fn stream() -> Key {
    Key::new(["run", "1"])
}

fn key(name: &str) -> Key {
    Key::new(["context", name])
}

/// Sequences, bytes and order.
pub(super) async fn synced_records_are_there_after_reopening(mut subject: Subject) {
    let big = "x".repeat(100_000);
    for (last, payload) in (0..).zip(["1", &big, "3"]) {
        expect(subject.append(&stream(), last, payload).await);
    }
    subject.reopen().await;
    assert_eq!(subject.records(&stream()).await, [(1, "1".into()), (2, big), (3, "3".into())]);
    assert_eq!(expect(subject.store().streams(&Key::new([]).children(), None, usize::MAX).await), [stream()]);
}

/// Values, revisions and deletions.
pub(super) async fn synced_values_are_there_after_reopening(mut subject: Subject) {
    let kept = expect(subject.put(&key("kept"), "x", Expected::Any).await);
    let deleted = expect(subject.put(&key("deleted"), "y", Expected::Any).await);
    expect(subject.store().delete_if_revision(Delete::new(key("deleted"), deleted, Durability::Sync)).await);
    subject.reopen().await;
    let found = expect(subject.store().scan(&Key::new([]).children(), None, 9).await);
    let found: Vec<_> = found.into_iter().map(|(key, entry)| (key, text(&entry.value), entry.revision)).collect();
    assert_eq!(found, [(key("kept"), "x".into(), kept)]);
}

/// Closing is not a crash: whatever was acknowledged is written first.
pub(super) async fn every_write_of_a_closed_store_is_there_after_reopening(mut subject: Subject) {
    for (expected, durability) in (0..).zip([Durability::Memory, Durability::Buffered, Durability::Memory]) {
        let append = Append::new(stream(), expected, b"x".as_slice().into());
        expect(subject.store().append(Append { durability, ..append }).await);
        let (value, expected) = (b"x".as_slice().into(), Expected::Any);
        let put = Put { expected, durability, ..Put::new(key("a"), value) };
        expect(subject.store().put_if_revision(put).await);
    }
    subject.reopen().await;
    assert_eq!(subject.records(&stream()).await.len(), 3);
    assert_eq!(subject.value(&key("a")).await.as_deref(), Some("x"));
}

/// Nothing is given out twice.
pub(super) async fn sequences_and_revisions_continue_after_reopening(mut subject: Subject) {
    expect(subject.append(&stream(), 0, "1").await);
    let before = expect(subject.put(&key("a"), "x", Expected::Any).await);
    expect(subject.store().delete_if_revision(Delete::new(key("a"), before, Durability::Sync)).await);
    subject.reopen().await;
    assert!(matches!(subject.append(&stream(), 0, "again").await, Err(StorageError::WrongSequence { actual: 1, .. })));
    assert_eq!(subject.append(&stream(), 1, "2").await, Ok(2));
    assert!(expect(subject.put(&key("b"), "y", Expected::Any).await) > before);
}

/// What was purged stays away, and the rest keeps its sequences.
pub(super) async fn purges_hold_after_reopening(mut subject: Subject) {
    for last in 0..4 {
        expect(subject.append(&stream(), last, "x").await);
        expect(subject.append(&Key::new(["emptied"]), last, &"y".repeat(70_000)).await);
    }
    expect(subject.store().purge(&stream(), 2).await);
    expect(subject.store().purge(&Key::new(["emptied"]), 4).await);
    subject.reopen().await;
    assert_eq!(subject.records(&stream()).await, [(3, "x".into()), (4, "x".into())]);
    assert_eq!(expect(subject.store().streams(&Key::new([]).children(), None, usize::MAX).await), [stream()]);
    assert_eq!(subject.append(&stream(), 4, "x").await, Ok(5));
    assert_eq!(subject.append(&Key::new(["emptied"]), 0, "y").await, Ok(1));
}

/// Expiry is a date, not a timer.
pub(super) async fn expiry_holds_after_reopening(mut subject: Subject) {
    subject.put_for(&key("a"), "x", 10).await;
    subject.put_for(&key("b"), "y", 30).await;
    subject.advance_secs(10);
    subject.reopen().await;
    assert_eq!(subject.value(&key("a")).await, None);
    assert_eq!(subject.value(&key("b")).await.as_deref(), Some("y"));
}

/// With the records that they came with.
pub(super) async fn riders_are_there_after_reopening(mut subject: Subject) {
    expect(subject.append_with(0, vec![riders::put("a", "1"), riders::put("b", "1")]).await);
    let long = "x".repeat(100_000);
    let deletion = Rider::Delete { key: riders::key("b") };
    expect(subject.append_with(1, vec![riders::put("a", "2"), riders::put("long", &long), deletion]).await);
    let entry = expect(subject.store().get(&riders::key("a")).await);
    subject.reopen().await;
    assert_eq!(expect(subject.store().get(&riders::key("a")).await), entry);
    assert!(subject.value(&riders::key("long")).await == Some(long), "the long one is whole");
    assert_eq!(subject.value(&riders::key("b")).await, None);
    assert_eq!(subject.records(&riders::stream()).await.len(), 2);
}

/// Whoever opens the store is its only writer.
pub(super) async fn sessions_of_the_process_before_are_forgotten_and_ids_still_grow(mut subject: Subject) {
    let (first, ended) = (subject.begin("a").await, subject.begin("b").await);
    expect(subject.append_in(first, 0).await);
    expect(subject.store().end_session(ended, false).await);
    subject.reopen().await;
    assert_eq!(expect(subject.store().sessions().await), []);
    for before in [first, ended] {
        let refused = subject.append_in(before, 1).await;
        assert!(matches!(refused, Err(StorageError::Stopped { .. })), "{refused:?}");
    }
    let refused = subject.store().renew_session(first, b"renewed".as_slice().into()).await;
    assert!(matches!(refused, Err(StorageError::Stopped { .. })), "{refused:?}");
    let second = subject.begin("a").await;
    assert!(second > ended, "{second:?} after {ended:?}");
    assert_eq!(subject.append_in(second, 1).await, Ok(2));
}
