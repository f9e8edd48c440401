//! Rules of keys with revisions.

use futures::future::join_all;
use futures::{FutureExt, StreamExt};

use super::subject::{ManualClock, Subject, expect, text};
use crate::storage::{Change, Delete, Durability, Entry, EntryRef, Expected, Key, StorageError};

fn key(name: &str) -> Key {
    Key::new(["context", name])
}

/// What was put is what is read.
pub(super) async fn a_put_is_read_back_with_its_revision(subject: Subject) {
    assert_eq!(expect(subject.store().get(&key("a")).await), None);
    let revision = expect(subject.put(&key("a"), "1", Expected::Any).await);
    let entry = expect(subject.store().get(&key("a")).await);
    assert_eq!(
        entry.map(|entry| (text(&entry.value), entry.revision, entry.expires_at)),
        Some(("1".into(), revision, None))
    );
}

/// Revisions order the writes of the whole store.
pub(super) async fn revisions_grow_across_keys(subject: Subject) {
    let mut last = 0;
    for name in ["b", "a", "b", "c"] {
        let revision = expect(subject.put(&key(name), "x", Expected::Any).await);
        assert!(revision > last);
        last = revision;
    }
}

/// The refusal has the actual revision.
pub(super) async fn a_put_that_expects_another_revision_is_refused(subject: Subject) {
    let refused = |expected, actual| Err(StorageError::WrongRevision { key: key("a"), expected, actual });
    let never = Expected::Revision(99);
    assert_eq!(subject.put(&key("a"), "0", never).await, refused(never, None));
    let first = expect(subject.put(&key("a"), "1", Expected::Absent).await);
    assert_eq!(subject.put(&key("a"), "0", Expected::Absent).await, refused(Expected::Absent, Some(first)));
    let second = expect(subject.put(&key("a"), "2", Expected::Revision(first)).await);
    let stale = Expected::Revision(first);
    assert_eq!(subject.put(&key("a"), "0", stale).await, refused(stale, Some(second)));
    assert_eq!(subject.value(&key("a")).await.as_deref(), Some("2"));
}

/// Writes to one key are linearisable.
pub(super) async fn of_concurrent_puts_exactly_one_wins(subject: Subject) {
    let results = join_all((0..20).map(|_| async { subject.put(&key("a"), "x", Expected::Absent).await })).await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
}

/// A deleted value is absent, and only the newest can be deleted.
pub(super) async fn a_delete_needs_the_current_revision(subject: Subject) {
    let delete = |revision| subject.store().delete_if_revision(Delete::new(key("a"), revision, Durability::Sync));
    let refused = |revision, actual| {
        Err(StorageError::WrongRevision { key: key("a"), expected: Expected::Revision(revision), actual })
    };
    assert_eq!(delete(1).await, refused(1, None));
    let first = expect(subject.put(&key("a"), "1", Expected::Any).await);
    let second = expect(subject.put(&key("a"), "2", Expected::Any).await);
    assert_eq!(delete(first).await, refused(first, Some(second)));
    assert_eq!(delete(second).await, Ok(()));
    assert_eq!(subject.value(&key("a")).await, None);
    assert_eq!(delete(second).await, refused(second, None));
    let third = expect(subject.put(&key("a"), "3", Expected::Absent).await);
    assert!(third > second, "a value that was deleted does not take its revision with it");
}

/// From the very second of expiry on a value is neither read nor scanned, and a put finds nothing.
pub(super) async fn expired_values_are_absent(subject: Subject) {
    let revision = subject.put_for(&key("a"), "x", 10).await;
    subject.advance_secs(9);
    let entry = expect(subject.store().get(&key("a")).await);
    let expiry = ManualClock::START + std::time::Duration::from_secs(10);
    assert_eq!(entry.and_then(|entry| entry.expires_at), Some(expiry));
    subject.advance_secs(1);
    assert_eq!(subject.value(&key("a")).await, None);
    assert_eq!(expect(subject.store().scan(&Key::new([]).children(), None, 9).await), []);
    let stale = Expected::Revision(revision);
    assert_eq!(
        subject.put(&key("a"), "y", stale).await,
        Err(StorageError::WrongRevision { key: key("a"), expected: stale, actual: None })
    );
    expect(subject.put(&key("a"), "y", Expected::Absent).await);
    assert_eq!(subject.value(&key("a")).await.as_deref(), Some("y"));
}

/// A put without a TTL keeps the value; one with a TTL, the first or another, moves the expiry.
pub(super) async fn a_new_value_replaces_the_expiry(subject: Subject) {
    subject.put_for(&key("kept"), "1", 10).await;
    expect(subject.put(&key("kept"), "2", Expected::Any).await);
    subject.put_for(&key("later"), "1", 10).await;
    subject.put_for(&key("later"), "2", 20).await;
    subject.put_for(&key("sooner"), "1", 20).await;
    subject.put_for(&key("sooner"), "2", 10).await;
    expect(subject.put(&key("mortal"), "1", Expected::Any).await);
    subject.put_for(&key("mortal"), "2", 10).await;
    subject.advance_secs(15);
    expect(subject.put(&key("mortal"), "3", Expected::Absent).await);
    expect(subject.put(&key("other"), "x", Expected::Any).await);
    assert_eq!(subject.value(&key("kept")).await.as_deref(), Some("2"));
    assert_eq!(subject.value(&key("later")).await.as_deref(), Some("2"));
    assert_eq!(subject.value(&key("sooner")).await, None);
    subject.advance_secs(5);
    expect(subject.put(&key("other"), "x", Expected::Any).await);
    assert_eq!(subject.value(&key("later")).await, None);
    assert_eq!(subject.value(&key("kept")).await.as_deref(), Some("2"));
}

/// A store that passes on what it has at hand passes on what its other reads return, also of long and of expired values.
pub(super) async fn what_is_passed_on_at_once_is_what_reads_return(subject: Subject) {
    let long = "x".repeat(100_000);
    for (name, value) in [("a", "1"), ("b\0", "2"), ("long", &*long), ("z", "")] {
        expect(subject.put(&key(name), value, Expected::Any).await);
    }
    subject.put_for(&key("ended"), "3", 10).await;
    subject.put_for(&key("lasts"), "4", 20).await;
    subject.advance_secs(10);
    let store = subject.store();
    for name in ["a", "b\0", "long", "ended", "lasts", "none"] {
        let mut passed = None;
        if let Some(read) = store.get_here(&key(name), &mut |entry| passed = Some(Entry::from(entry))) {
            assert_eq!(read.map(|()| passed), store.get(&key(name)).await, "{name:?}");
        }
    }
    let all = Key::new(["context"]).children();
    for (after, limit) in [(None, 9), (None, 2), (Some(key("b\0")), 2), (Some(key("z")), 9), (None, 0)] {
        let mut passed = Vec::new();
        let mut add = |key: &[u8], entry: EntryRef<'_>| passed.push((Key::from_bytes(key), Entry::from(entry)));
        if let Some(read) = store.scan_here(&all, after.as_ref(), limit, &mut add) {
            assert_eq!(read, Ok(passed.len()), "after {after:?}, with the limit {limit}");
            let scanned = expect(store.scan(&all, after.as_ref(), limit).await);
            let scanned: Vec<_> = scanned.into_iter().map(|(key, entry)| (Some(key), entry)).collect();
            assert_eq!(passed, scanned, "after {after:?}, with the limit {limit}");
        }
    }
}

/// `after` continues where the last page ended; it may lie outside the prefix.
pub(super) async fn scans_page_through_a_prefix_in_order(subject: Subject) {
    let names = ["a", "aa", "b", "c"];
    for name in names.iter().rev() {
        expect(subject.put(&key(name), name, Expected::Any).await);
    }
    expect(subject.put(&Key::new(["contexts", "x"]), "x", Expected::Any).await);
    let check = async |prefix, after: Option<Key>, limit, expected: &[&str]| {
        let found = expect(subject.store().scan(&prefix, after.as_ref(), limit).await);
        let found: Vec<_> = found.into_iter().map(|(key, entry)| (key, text(&entry.value))).collect();
        let expected: Vec<_> = expected.iter().map(|name| (key(name), (*name).to_owned())).collect();
        assert_eq!(found, expected, "what a scan finds after {after:?}, with the limit {limit}");
    };
    let all = Key::new(["context"]).children();
    check(all.clone(), None, 9, &names).await;
    check(all.clone(), None, 2, &["a", "aa"]).await;
    check(all.clone(), Some(key("aa")), 2, &["b", "c"]).await;
    check(all.clone(), Some(key("ab")), 1, &["b"]).await;
    check(all.clone(), Some(Key::new(["a"])), 1, &["a"]).await;
    check(all.clone(), Some(Key::new(["z"])), 9, &[]).await;
    check(all, None, 0, &[]).await;
    let beginning = Key::new(["context"]).children_beginning_with("a");
    check(beginning, None, 9, &["a", "aa"]).await;
}

/// Puts and deletes, in order, and nothing else.
pub(super) async fn watches_report_changes_under_their_prefix(subject: Subject) {
    expect(subject.put(&key("before"), "x", Expected::Any).await);
    let mut watch = subject.store().watch(&Key::new(["context"]).children());
    let revision = expect(subject.put(&key("a"), "1", Expected::Any).await);
    expect(subject.put(&Key::new(["elsewhere"]), "x", Expected::Any).await);
    expect(subject.store().delete_if_revision(Delete::new(key("a"), revision, Durability::Sync)).await);
    let Some(Change::Put(put, entry)) = watch.next().await else { panic!("the put comes first") };
    assert_eq!((put, text(&entry.value), entry.revision), (key("a"), "1".into(), revision));
    assert_eq!(watch.next().await, Some(Change::Deleted(key("a"))));
    assert_eq!(watch.next().now_or_never(), None, "nothing else has changed");
    let refused = subject.put(&key("a"), "2", Expected::Revision(revision)).await;
    assert!(matches!(refused, Err(StorageError::WrongRevision { actual: None, .. })), "{refused:?}");
    assert_eq!(watch.next().now_or_never(), None, "a refused write is no change");
}

/// The marker stands where the lost changes would, and later changes follow it.
pub(super) async fn a_slow_watch_learns_how_much_it_missed(subject: Subject) {
    const HELD: usize = 256;
    let mut watch = subject.store().watch(&Key::new(["context"]).children());
    for number in 0..HELD + 44 {
        expect(subject.put(&key("a"), &number.to_string(), Expected::Any).await);
    }
    for number in 0..HELD {
        let Some(Change::Put(_, entry)) = watch.next().await else { panic!("change {number} is held") };
        assert_eq!(text(&entry.value), number.to_string());
    }
    expect(subject.put(&key("a"), "after", Expected::Any).await);
    assert_eq!(watch.next().await, Some(Change::Missed(44)));
    let Some(Change::Put(_, entry)) = watch.next().await else { panic!("what comes after the marker is whole") };
    assert_eq!(text(&entry.value), "after");
}
