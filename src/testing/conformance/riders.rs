//! Rules of what is written with an append.

use futures::{FutureExt, StreamExt};

use super::subject::{Subject, expect, text};
use crate::storage::{Append, Change, Expected, Key, Record, Rider, Sequence, SessionId, StorageError};

pub(super) fn stream() -> Key {
    Key::new(["run", "1"])
}

pub(super) fn key(name: &str) -> Key {
    Key::new(["context", name])
}

pub(super) fn put(name: &str, value: &str) -> Rider {
    Rider::put(key(name), value.as_bytes().into())
}

fn delete(name: &str) -> Rider {
    Rider::Delete { key: key(name) }
}

impl Subject {
    pub(super) async fn append_with(&self, expected: Sequence, riders: Vec<Rider>) -> Result<Sequence, StorageError> {
        let payload = b"x".as_slice().into();
        self.store().append(Append { riders, ..Append::new(stream(), expected, payload) }).await
    }

    async fn values(&self) -> Vec<(Key, String)> {
        let found = expect(self.store().scan(&Key::new([]).children(), None, 99).await);
        found.into_iter().map(|(key, entry)| (key, text(&entry.value))).collect()
    }
}

/// Puts replace what is there, expiry included, with a revision as every put has, and may expire themselves; deletions remove it.
pub(super) async fn a_rider_is_written_with_its_append(subject: Subject) {
    let before = expect(subject.put(&key("deleted"), "0", Expected::Any).await);
    subject.put_for(&key("replaced"), "0", 10).await;
    let expires = Rider::Put { key: key("expires"), value: b"1"[..].into(), ttl_secs: Some(10) };
    let riders = vec![put("new", "1"), put("replaced", "2"), delete("deleted"), expires];
    assert_eq!(subject.append_with(0, riders).await, Ok(1));
    subject.advance_secs(9);
    assert_eq!(subject.values().await.len(), 3);
    subject.advance_secs(1);
    assert_eq!(subject.values().await, [(key("new"), "1".to_owned()), (key("replaced"), "2".to_owned())]);
    let entry = expect(subject.store().get(&key("new")).await);
    let Some(revision) = entry.map(|entry| entry.revision).filter(|revision| *revision > before) else {
        panic!("it has a revision as every put has")
    };
    expect(subject.put(&key("new"), "3", Expected::Revision(revision)).await);
    assert_eq!(subject.records(&stream()).await.len(), 1);
}

/// By its sequence or its session.
pub(super) async fn a_refused_append_writes_no_rider(subject: Subject) {
    let kept = expect(subject.put(&key("kept"), "1", Expected::Any).await);
    let riders = || vec![put("new", "1"), delete("kept")];
    let refused = subject.append_with(1, riders()).await;
    assert!(matches!(refused, Err(StorageError::WrongSequence { .. })), "{refused:?}");
    let session = Some(SessionId(7_000));
    let append = Append { session, riders: riders(), ..Append::new(stream(), 0, b"x".as_slice().into()) };
    let refused = subject.store().append(append).await;
    assert!(matches!(refused, Err(StorageError::Stopped { .. })), "{refused:?}");
    assert_eq!(subject.values().await, [(key("kept"), "1".to_owned())]);
    expect(subject.put(&key("kept"), "2", Expected::Revision(kept)).await);
}

/// As other changes are, in their order; the deletion of what is not there is no change.
pub(super) async fn riders_are_watched(subject: Subject) {
    subject.put_for(&key("expired"), "0", 1).await;
    subject.advance_secs(1);
    let mut watch = subject.store().watch(&Key::new(["context"]).children());
    expect(subject.append_with(0, vec![put("a", "1"), delete("absent"), delete("expired")]).await);
    expect(subject.append_with(1, vec![delete("a"), put("b", "2")]).await);
    let refused = subject.append_with(0, vec![put("c", "3")]).await;
    assert!(refused.is_err(), "{refused:?}");
    let Some(Change::Put(changed, entry)) = watch.next().await else { panic!("the put comes first") };
    assert_eq!((changed, text(&entry.value)), (key("a"), "1".to_owned()));
    assert_eq!(expect(subject.store().get(&key("b")).await).map(|b| b.revision > entry.revision), Some(true));
    assert_eq!(watch.next().await, Some(Change::Deleted(key("a"))));
    assert!(matches!(watch.next().await, Some(Change::Put(changed, _)) if changed == key("b")));
    assert_eq!(watch.next().now_or_never(), None, "nothing else has changed");
}

/// The append is made.
pub(super) async fn a_rider_may_delete_what_is_not_there(subject: Subject) {
    assert_eq!(subject.append_with(0, vec![delete("absent"), delete("absent")]).await, Ok(1));
    assert_eq!(subject.values().await, []);
}

/// The last one of a key counts.
pub(super) async fn riders_of_one_key_are_written_in_their_order(subject: Subject) {
    expect(subject.append_with(0, vec![put("a", "1"), put("a", "2"), put("b", "1"), delete("b")]).await);
    assert_eq!(subject.values().await, [(key("a"), "2".to_owned())]);
    expect(subject.append_with(1, vec![delete("a"), put("a", "3"), delete("b"), put("b", "2")]).await);
    assert_eq!(subject.values().await, [(key("a"), "3".to_owned()), (key("b"), "2".to_owned())]);
}

/// A long value, or a key that is too long: nothing is written.
pub(super) async fn a_rider_that_is_too_large_refuses_the_append(subject: Subject) {
    let long = "k".repeat(Key::MAX);
    for too_large in [put("a", &"x".repeat(Record::MAX + 1)), put(&long, "x"), delete(&long)] {
        let refused = subject.append_with(0, vec![put("first", "1"), too_large]).await;
        assert!(matches!(refused, Err(StorageError::TooLarge { .. })), "{refused:?}");
    }
    assert_eq!((subject.values().await, subject.records(&stream()).await), (vec![], vec![]));
    let long = "x".repeat(100_000);
    assert_eq!(subject.append_with(0, vec![put("long", &long)]).await, Ok(1));
    assert!(subject.values().await == [(key("long"), long)], "a long one is whole");
}
