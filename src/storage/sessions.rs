//! The sessions of a store that one process has open: which boards work on it, and whose writes count. Pure; the store calls it
//! under the lock under which it decides about writes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{NewSession, SessionId, SessionInfo, StorageError};
use crate::env::Mutant;

/// Every session that was begun and not forgotten.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    sessions: BTreeMap<SessionId, Session>,
}

#[derive(Debug)]
struct Session {
    name: Arc<str>,
    about: Arc<[u8]>,
    lease: Duration,
    /// When the lease runs out, by the monotonic clock; `None` once the session has ended.
    until: Option<Duration>,
}

impl Session {
    fn left(&self, now: Duration) -> Duration {
        self.until.unwrap_or_default().saturating_sub(now)
    }
}

impl Sessions {
    /// Begins a session; `id` must be greater than every earlier one.
    pub(crate) fn begin(&mut self, id: SessionId, new: NewSession, now: Duration) -> Result<SessionId, StorageError> {
        let NewSession { name, about, lease } = new;
        if let Some(other) = self.sessions.values().find(|other| other.name == name && !other.left(now).is_zero()) {
            let (name, about, left) = (name.to_string(), Arc::clone(&other.about), other.left(now));
            return Err(StorageError::NameTaken { name, about, left });
        }
        self.sessions.insert(id, Session { name, about, lease, until: Some(now.saturating_add(lease)) });
        Ok(id)
    }

    /// Has a session that was begun before the store was opened count again, with a new lease; one that is known stays as it is.
    #[cfg(feature = "sled")]
    pub(crate) fn resume(&mut self, id: SessionId, new: NewSession, now: Duration) -> Result<(), StorageError> {
        if self.sessions.contains_key(&id) {
            return self.check(Some(id));
        }
        let NewSession { name, about, lease } = new;
        let is_taken = self.sessions.values().any(|other| other.name == name && !other.left(now).is_zero());
        // Two live sessions do not share a name: this one continues until it is ended.
        let until = if is_taken { now } else { now.saturating_add(lease) };
        self.sessions.insert(id, Session { name, about, lease, until: Some(until) });
        Ok(())
    }

    /// Whether the writes of a session count.
    pub(crate) fn check(&self, session: Option<SessionId>) -> Result<(), StorageError> {
        let Some(id) = session else { return Ok(()) };
        match self.sessions.get(&id) {
            Some(Session { until: Some(_), .. }) => Ok(()),
            Some(_) if Mutant::IgnoreEndedSessions.is_injected() => Ok(()),
            Some(_) | None => Err(id.has_ended()),
        }
    }

    pub(crate) fn renew(&mut self, id: SessionId, about: Arc<[u8]>, now: Duration) -> Result<(), StorageError> {
        self.check(Some(id))?;
        if let Some(session) = self.sessions.get_mut(&id) {
            (session.about, session.until) = (about, Some(now.saturating_add(session.lease)));
        }
        Ok(())
    }

    pub(crate) fn end(&mut self, id: SessionId, only_if_expired: bool, now: Duration) -> Result<(), StorageError> {
        let Some(session) = self.sessions.get_mut(&id) else { return Ok(()) };
        let left = session.left(now);
        if only_if_expired && !left.is_zero() {
            return Err(StorageError::SessionLives { left });
        }
        session.until = None;
        Ok(())
    }

    pub(crate) fn list(&self, now: Duration) -> Vec<SessionInfo> {
        let info = |(id, session): (&SessionId, &Session)| SessionInfo {
            id: *id,
            name: Arc::clone(&session.name),
            about: Arc::clone(&session.about),
            left: session.left(now),
        };
        self.sessions.iter().map(info).collect()
    }

    /// Forgets a session that has ended; another one stays.
    pub(crate) fn forget(&mut self, id: SessionId) {
        if self.sessions.get(&id).is_some_and(|session| session.until.is_none()) {
            self.sessions.remove(&id);
        }
    }
}
