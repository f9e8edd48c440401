//! Rules of sessions.

use std::time::Duration;

use futures::future::join_all;

use super::riders::put as rider;
use super::subject::{Subject, expect, text};
use crate::storage::{Append, Delete, Durability, Key, NewSession, Put, SessionId, StorageError};

fn stream() -> Key {
    Key::new(["run", "1"])
}

fn key() -> Key {
    Key::new(["context", "a"])
}

pub(super) const LEASE_SECS: u64 = 10;

pub(super) fn new_session(name: &str) -> NewSession {
    NewSession { name: name.into(), about: b"begun".as_slice().into(), lease: Duration::from_secs(LEASE_SECS) }
}

impl Subject {
    pub(super) async fn begin(&self, name: &str) -> SessionId {
        expect(self.store().begin_session(new_session(name)).await)
    }

    pub(super) async fn append_in(&self, session: SessionId, expected: u64) -> Result<u64, StorageError> {
        let (session, riders) = (Some(session), vec![rider("rider", "x")]);
        let append = Append::new(stream(), expected, b"x".as_slice().into());
        self.store().append(Append { session, riders, ..append }).await
    }

    async fn put_in(&self, session: SessionId) -> Result<u64, StorageError> {
        let put = Put::new(key(), b"x".as_slice().into());
        self.store().put_if_revision(Put { session: Some(session), ..put }).await
    }

    async fn delete_in(&self, session: SessionId, revision: u64) -> Result<(), StorageError> {
        let delete = Delete::new(key(), revision, Durability::Sync);
        self.store().delete_if_revision(Delete { session: Some(session), ..delete }).await
    }

    /// That all kinds of writes of a session are refused, and write nothing.
    async fn writes_nothing(&self, session: SessionId) {
        let stopped = |kind: &str, refused: Result<(), StorageError>| {
            assert!(matches!(refused, Err(StorageError::Stopped { .. })), "the {kind}: {refused:?}");
        };
        let revision = expect(self.store().put_if_revision(Put::new(key(), b"kept".as_slice().into())).await);
        let records = self.records(&stream()).await;
        let rider = self.value(&super::riders::key("rider")).await;
        stopped("append", self.append_in(session, records.len() as u64).await.map(drop));
        stopped("put", self.put_in(session).await.map(drop));
        stopped("deletion", self.delete_in(session, revision).await);
        assert_eq!(self.records(&stream()).await, records);
        assert_eq!(self.value(&super::riders::key("rider")).await, rider);
        assert_eq!(self.value(&key()).await.as_deref(), Some("kept"));
    }

    async fn is_live(&self, session: SessionId) -> bool {
        let sessions = expect(self.store().sessions().await);
        sessions.iter().any(|info| info.id == session && !info.left.is_zero())
    }
}

/// Appends, puts and deletions, each as without a session.
pub(super) async fn writes_of_a_session_count_while_it_lasts(subject: Subject) {
    let (session, other) = (subject.begin("a").await, subject.begin("b").await);
    assert_eq!(subject.append_in(session, 0).await, Ok(1));
    assert_eq!(subject.append_in(other, 1).await, Ok(2));
    let revision = expect(subject.put_in(session).await);
    assert_eq!(subject.value(&key()).await.as_deref(), Some("x"));
    assert_eq!(subject.delete_in(other, revision).await, Ok(()));
    assert_eq!(subject.value(&key()).await, None);
    let refused = subject.append_in(session, 0).await;
    assert!(matches!(refused, Err(StorageError::WrongSequence { .. })), "{refused:?}");
}

/// Of that session alone, and again after its end was asked for twice.
pub(super) async fn writes_of_a_session_that_has_ended_are_refused(subject: Subject) {
    let (session, other) = (subject.begin("a").await, subject.begin("b").await);
    expect(subject.append_in(session, 0).await);
    for _ in 0..2 {
        expect(subject.store().end_session(session, false).await);
        subject.writes_nothing(session).await;
    }
    assert_eq!(subject.append_in(other, 1).await, Ok(2));
    expect(subject.store().end_session(session, true).await);
    expect(subject.store().forget_session(session).await);
    subject.writes_nothing(session).await;
}

/// A board that was slow and lost nothing continues, and can renew its lease.
pub(super) async fn a_session_that_ran_out_goes_on_until_it_is_ended(subject: Subject) {
    let session = subject.begin("a").await;
    subject.advance_secs(LEASE_SECS);
    assert!(!subject.is_live(session).await);
    assert_eq!(subject.append_in(session, 0).await, Ok(1));
    expect(subject.store().renew_session(session, b"renewed".as_slice().into()).await);
    let refused = subject.store().end_session(session, true).await;
    assert_eq!(refused, Err(StorageError::SessionLives { left: Duration::from_secs(LEASE_SECS) }));
    subject.advance_secs(LEASE_SECS);
    expect(subject.store().end_session(session, true).await);
    subject.writes_nothing(session).await;
}

/// With `only_if_expired`; the refusal says how long the lease lasts. Without, it is ended.
pub(super) async fn a_live_session_is_not_ended_as_one_that_ran_out(subject: Subject) {
    let session = subject.begin("a").await;
    subject.advance_secs(LEASE_SECS - 1);
    let refused = subject.store().end_session(session, true).await;
    assert_eq!(refused, Err(StorageError::SessionLives { left: Duration::from_secs(1) }));
    assert_eq!(subject.append_in(session, 0).await, Ok(1));
    expect(subject.store().end_session(session, false).await);
    assert!(!subject.is_live(session).await);
    subject.writes_nothing(session).await;
}

/// The refusal has what that session says about itself. After its end, and once its lease has run out, the name is free.
pub(super) async fn a_name_is_taken_while_its_session_lives(subject: Subject) {
    let begin = || subject.store().begin_session(new_session("a"));
    let first = expect(begin().await);
    let taken = |secs| {
        let (name, about, left) = ("a".to_owned(), b"begun".as_slice().into(), Duration::from_secs(secs));
        Err(StorageError::NameTaken { name, about, left })
    };
    assert_eq!(begin().await, taken(LEASE_SECS));
    subject.advance_secs(LEASE_SECS - 1);
    assert_eq!(begin().await, taken(1));
    subject.begin("b").await;
    expect(subject.store().end_session(first, false).await);
    let second = expect(begin().await);
    assert_eq!(begin().await, taken(LEASE_SECS));
    subject.advance_secs(LEASE_SECS);
    let third = expect(begin().await);
    assert!(first < second && second < third);
    assert_eq!(subject.append_in(second, 0).await, Ok(1), "it was not ended");
}

/// Whatever else is given out meanwhile, and whatever becomes of the sessions.
pub(super) async fn ids_of_sessions_grow_and_never_come_twice(subject: Subject) {
    let mut last = SessionId(0);
    for number in 0..5 {
        let id = subject.begin(&number.to_string()).await;
        assert!(id > last, "{id:?} after {last:?}");
        last = id;
        expect(subject.store().end_session(id, false).await);
        expect(subject.store().forget_session(id).await);
    }
}

/// Each by its id, with its name, what was said about it last, and what is left of its lease.
pub(super) async fn sessions_are_listed(subject: Subject) {
    let listed = async || {
        let sessions = expect(subject.store().sessions().await);
        let brief = |info: &crate::storage::SessionInfo| {
            (info.id, info.name.to_string(), text(&info.about), info.left.as_secs())
        };
        sessions.iter().map(brief).collect::<Vec<_>>()
    };
    assert_eq!(listed().await, []);
    let z = subject.begin("z").await;
    subject.advance_secs(3);
    let a = subject.begin("a").await;
    let row = |id, name: &str, about: &str, left| (id, name.to_owned(), about.to_owned(), left);
    assert_eq!(listed().await, [row(z, "z", "begun", 7), row(a, "a", "begun", 10)]);
    expect(subject.store().renew_session(z, b"renewed".as_slice().into()).await);
    subject.advance_secs(9);
    assert_eq!(listed().await, [row(z, "z", "renewed", 1), row(a, "a", "begun", 1)]);
    expect(subject.store().end_session(a, false).await);
    assert_eq!(listed().await, [row(z, "z", "renewed", 1), row(a, "a", "begun", 0)]);
    subject.advance_secs(9);
    assert_eq!(listed().await, [row(z, "z", "renewed", 0), row(a, "a", "begun", 0)]);
}

/// One that has not ended stays, its lease over or not; an unknown one is fine.
pub(super) async fn only_a_session_that_has_ended_is_forgotten(subject: Subject) {
    let (session, ended) = (subject.begin("a").await, subject.begin("b").await);
    expect(subject.store().end_session(ended, false).await);
    for id in [session, ended, ended, SessionId(u64::MAX)] {
        expect(subject.store().forget_session(id).await);
    }
    let ids = async || expect(subject.store().sessions().await).iter().map(|info| info.id).collect::<Vec<_>>();
    assert_eq!(ids().await, [session]);
    subject.advance_secs(LEASE_SECS);
    expect(subject.store().forget_session(session).await);
    assert_eq!(ids().await, [session]);
    assert_eq!(subject.append_in(session, 0).await, Ok(1));
}

/// Nor is one that was forgotten.
pub(super) async fn a_session_that_has_ended_is_not_renewed(subject: Subject) {
    let session = subject.begin("a").await;
    expect(subject.store().end_session(session, false).await);
    let stopped = async || {
        let refused = subject.store().renew_session(session, b"renewed".as_slice().into()).await;
        assert!(matches!(refused, Err(StorageError::Stopped { .. })), "{refused:?}");
    };
    stopped().await;
    subject.writes_nothing(session).await;
    expect(subject.store().forget_session(session).await);
    stopped().await;
    assert_eq!(expect(subject.store().sessions().await), []);
}

/// Of whatever session there is.
pub(super) async fn writes_without_a_session_always_count(subject: Subject) {
    let session = subject.begin("a").await;
    assert_eq!(subject.append(&stream(), 0, "1").await, Ok(1));
    subject.advance_secs(LEASE_SECS);
    assert_eq!(subject.append(&stream(), 1, "2").await, Ok(2));
    expect(subject.store().end_session(session, false).await);
    assert_eq!(subject.append(&stream(), 2, "3").await, Ok(3));
    let revision = expect(subject.put(&key(), "1", crate::storage::Expected::Any).await);
    expect(subject.store().delete_if_revision(Delete::new(key(), revision, Durability::Sync)).await);
}

/// It writes nothing and is not renewed; ending it is fine.
pub(super) async fn an_unknown_session_is_refused(subject: Subject) {
    let unknown = SessionId(subject.begin("a").await.0 + 1_000_000);
    subject.writes_nothing(unknown).await;
    let refused = subject.store().renew_session(unknown, b"renewed".as_slice().into()).await;
    assert!(matches!(refused, Err(StorageError::Stopped { .. })), "{refused:?}");
    assert_eq!(subject.store().end_session(unknown, true).await, Ok(()));
    assert_eq!(subject.store().end_session(unknown, false).await, Ok(()));
}

/// Of appends that are under way when a session is ended, those that are made are read afterwards.
pub(super) async fn nothing_of_a_session_comes_after_its_end(subject: Subject) {
    const STREAMS: u64 = 100;
    let session = subject.begin("a").await;
    let name = |number: u64| Key::new(["under way", &number.to_string()]);
    let append = |number: u64| {
        // Some need longer than others.
        let payload = vec![b'x'; if number.is_multiple_of(3) { 70_000 } else { 1 }].into();
        let durability = if number.is_multiple_of(2) { Durability::Sync } else { Durability::Memory };
        let append = Append::new(name(number), 0, payload);
        subject.store().append(Append { durability, session: Some(session), ..append })
    };
    let mut under_way: Vec<_> = (0..STREAMS).map(append).collect();
    expect(subject.store().end_session(session, false).await);
    let made = async || expect(subject.store().streams(&Key::new(["under way"]).children(), None, usize::MAX).await);
    let made_at_the_end = made().await;
    under_way.extend((STREAMS..2 * STREAMS).map(append));
    let answers = join_all(under_way).await;
    assert_eq!(made().await, made_at_the_end, "what was under way has ended with the session");
    for (number, answer) in (0..).zip(answers) {
        let is_made = made_at_the_end.contains(&name(number));
        assert_eq!(answer.is_ok(), is_made, "append {number}: {answer:?}");
        assert!(matches!(answer, Ok(1) | Err(StorageError::Stopped { .. })), "{answer:?}");
    }
}
