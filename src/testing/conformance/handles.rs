//! Rules of stores that several processes have open: of two handles that are open at the same time.

use std::sync::Arc;

use futures::StreamExt;
use futures::future::join_all;

use super::riders::{key, stream};
use super::sessions::{LEASE_SECS, new_session};
use super::subject::{Subject, expect, text};
use crate::storage::{Append, Change, Delete, Durability, Expected, Key, Put, Rider, Storage, StorageError};

/// Puts of which a watch has to report one.
const PUTS: usize = 20;

fn append(expected: u64) -> Append {
    Append::new(stream(), expected, b"x".as_slice().into())
}

fn put(name: &str, expected: Expected) -> Put {
    Put { expected, ..Put::new(key(name), b"x".as_slice().into()) }
}

/// Records, values, deletions and riders, in both directions, as soon as they are acknowledged.
pub(super) async fn what_one_handle_writes_the_other_reads(subject: Subject) {
    let other = subject.another().await;
    let handles: [&dyn Storage; 2] = [subject.store(), &*other];
    for (round, (writes, reads)) in (0..).zip([(handles[0], handles[1]), (handles[1], handles[0])].repeat(10)) {
        let rider = Rider::put(key("rider"), round.to_string().as_bytes().into());
        assert_eq!(writes.append(Append { riders: vec![rider], ..append(round) }).await, Ok(round + 1));
        assert_eq!(expect(reads.read(&stream(), 1, usize::MAX).await).len() as u64, round + 1);
        let rider = expect(reads.get(&key("rider")).await);
        assert_eq!(rider.map(|entry| text(&entry.value)), Some(round.to_string()));
        let revision = expect(writes.put_if_revision(put("a", Expected::Absent)).await);
        assert_eq!(expect(reads.get(&key("a")).await).map(|entry| entry.revision), Some(revision));
        expect(writes.delete_if_revision(Delete::new(key("a"), revision, Durability::Sync)).await);
        assert_eq!(expect(reads.get(&key("a")).await), None);
    }
}

/// Writes to one key are linearisable over all handles.
pub(super) async fn of_puts_of_two_handles_exactly_one_wins(subject: Subject) {
    let other = subject.another().await;
    let handles: [&dyn Storage; 2] = [subject.store(), &*other];
    let puts = (0..20).map(|at| handles[at % 2].put_if_revision(put("a", Expected::Absent)));
    let won: Vec<_> = join_all(puts).await.into_iter().filter_map(Result::ok).collect();
    assert_eq!(won.len(), 1);
    let puts = (0..20).map(|at| handles[at % 2].put_if_revision(put("a", Expected::Revision(won[0]))));
    let results = join_all(puts).await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    let is_refusal = |result: &Result<_, _>| matches!(result, Ok(_) | Err(StorageError::WrongRevision { .. }));
    assert!(results.iter().all(is_refusal), "{results:?}");
}

/// Appends to one stream are linearisable over all handles.
pub(super) async fn of_appends_of_two_handles_exactly_one_wins(subject: Subject) {
    let other = subject.another().await;
    let handles: [&dyn Storage; 2] = [subject.store(), &*other];
    for expected in 0..5 {
        let results = join_all((0..20).map(|at| handles[at % 2].append(append(expected)))).await;
        assert_eq!(results.iter().filter(|result| **result == Ok(expected + 1)).count(), 1);
        let is_refusal = |result: &Result<_, _>| matches!(result, Ok(_) | Err(StorageError::WrongSequence { .. }));
        assert!(results.iter().all(is_refusal), "{results:?}");
    }
    assert_eq!(subject.records(&stream()).await.len(), 5);
}

/// Not before its lease has run out; its handle is refused then.
pub(super) async fn a_session_is_seen_and_ended_from_another_handle(subject: Subject) {
    let other = subject.another().await;
    let session = subject.begin("a").await;
    let seen = expect(other.sessions().await);
    assert_eq!(seen.iter().map(|info| (info.id, &*info.name)).collect::<Vec<_>>(), [(session, "a")]);
    let taken = other.begin_session(new_session("a")).await;
    assert!(matches!(taken, Err(StorageError::NameTaken { .. })), "{taken:?}");
    let lives = other.end_session(session, true).await;
    assert!(matches!(lives, Err(StorageError::SessionLives { .. })), "{lives:?}");
    assert_eq!(subject.append_in(session, 0).await, Ok(1));
    subject.advance_secs(LEASE_SECS);
    expect(other.end_session(session, true).await);
    let refused = subject.append_in(session, 1).await;
    assert!(matches!(refused, Err(StorageError::Stopped { .. })), "{refused:?}");
    let refused = subject.store().renew_session(session, b"renewed".as_slice().into()).await;
    assert!(matches!(refused, Err(StorageError::Stopped { .. })), "{refused:?}");
    expect(other.forget_session(session).await);
    assert_eq!(expect(subject.store().sessions().await), []);
}

/// Revisions and ids of sessions, in turn.
pub(super) async fn no_number_is_given_out_twice_over_two_handles(subject: Subject) {
    let other = subject.another().await;
    let (mut revisions, mut ids) = (Vec::new(), Vec::new());
    for round in 0..5 {
        for (number, handle) in [subject.store(), &*other].into_iter().enumerate() {
            revisions.push(expect(handle.put_if_revision(put("a", Expected::Any)).await));
            ids.push(expect(handle.begin_session(new_session(&format!("{number} {round}"))).await));
        }
    }
    assert!(revisions.is_sorted_by(|before, after| before < after), "{revisions:?}");
    assert!(ids.is_sorted_by(|before, after| before < after), "{ids:?}");
}

/// Within the time that the subject states. A watch may begin a moment after it was returned, and reports everything from then on.
pub(super) async fn a_watch_reports_what_another_handle_writes(subject: Subject) {
    let other = subject.another().await;
    for (watches, writes) in [(subject.store(), &*other), (&*other, subject.store())] {
        let mut watch = watches.watch(&Key::new(["context"]).children());
        let mut written = Vec::new();
        let first = loop {
            written.push(expect(writes.put_if_revision(put("a", Expected::Any)).await));
            assert!(written.len() < PUTS, "no put was reported");
            match subject.within(PUTS, watch.next()).await {
                Some(reported) => break reported,
                None => continue,
            }
        };
        let Some(Change::Put(changed, entry)) = first else { panic!("{first:?} is not a put") };
        assert_eq!(changed, key("a"));
        let Some(reported) = written.iter().position(|revision| *revision == entry.revision) else {
            panic!("{entry:?} is none of {written:?}")
        };
        let revision = expect(writes.put_if_revision(put("b", Expected::Any)).await);
        for expected in written[reported + 1..].iter().copied().chain([revision]) {
            let next = subject.within(1, watch.next()).await;
            assert!(matches!(&next, Some(Some(Change::Put(_, entry))) if entry.revision == expected), "{next:?}");
        }
        expect(writes.delete_if_revision(Delete::new(key("b"), revision, Durability::Sync)).await);
        assert_eq!(subject.within(1, watch.next()).await, Some(Some(Change::Deleted(key("b")))));
    }
}

/// Sessions and what expires are the store's, and not those of the handle through which they were made.
pub(super) async fn sessions_and_expiry_outlast_the_handle(mut subject: Subject) {
    let session = subject.begin("a").await;
    subject.put_for(&key("a"), "x", 20).await;
    subject.advance_secs(1);
    subject.reopen().await;
    assert_eq!(subject.append_in(session, 0).await, Ok(1));
    let left: Vec<_> = expect(subject.store().sessions().await).iter().map(|info| (info.id, info.left)).collect();
    assert_eq!(left, [(session, std::time::Duration::from_secs(LEASE_SECS - 1))]);
    let put = Put { session: Some(session), ..put("b", Expected::Any) };
    expect(subject.store().put_if_revision(put).await);
    subject.advance_secs(18);
    assert_eq!(subject.value(&key("a")).await.as_deref(), Some("x"));
    subject.advance_secs(1);
    assert_eq!(subject.value(&key("a")).await, None);
    expect(subject.store().end_session(session, true).await);
    subject.reopen().await;
    let refused = subject.store().put_if_revision(Put { session: Some(session), ..Put::new(key("b"), Arc::default()) });
    assert!(matches!(refused.await, Err(StorageError::Stopped { .. })));
    assert!(subject.begin("b").await > session);
}
