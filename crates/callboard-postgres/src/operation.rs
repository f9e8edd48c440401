//! One write, as the lane has it: what it is, how large, and what its answer means.

use std::sync::Arc;

use callboard::messages::Timestamp;
use callboard::storage::{
    Append, Change, Delete, Entry, Expected, Key, Put, Revision, Rider, Sequence, SessionId, StorageError,
};

use crate::place::{Channel, is_fed};
use crate::watchers::Watchers;

/// A write that waits for its batch.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Append(Append),
    Put(Put),
    Delete(Delete),
    Purge { stream: Key, up_to: Sequence },
}

/// One element of the arrays of `callboard.write`, see `functions.sql`. An append with riders has several.
pub(crate) struct Step<'a> {
    pub(crate) kind: i16,
    pub(crate) key: &'a Key,
    pub(crate) first: i64,
    pub(crate) second: i64,
    pub(crate) body: &'a [u8],
}

/// What the server says of one write: `outcome` 0 if it was made, see `functions.sql`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Verdict {
    pub(crate) outcome: i16,
    pub(crate) number: i64,
    /// The server's time of the batch, in milliseconds.
    pub(crate) moment: i64,
}

/// A number of the contract for the server. None that is too large is ever reached.
pub(crate) fn to_server(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(crate) fn from_server(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Seconds in milliseconds; so far in the future that sums of them stay in range.
pub(crate) fn millis(secs: u64) -> i64 {
    to_server(secs.saturating_mul(1000)).min(i64::MAX / 4)
}

impl Operation {
    /// What it consists of.
    pub(crate) fn steps(&self) -> impl Iterator<Item = Step<'_>> {
        let (step, riders) = match self {
            Self::Append(Append { stream: key, expected, payload, riders, .. }) => {
                (Step { kind: 1, key, first: to_server(*expected), second: 0, body: payload }, &riders[..])
            }
            Self::Put(Put { key, value, expected, ttl_secs, .. }) => {
                let first = match expected {
                    Expected::Any => -1,
                    Expected::Absent => 0,
                    // Revision 0 was never given out.
                    Expected::Revision(0) => i64::MAX,
                    Expected::Revision(revision) => to_server(*revision),
                };
                (Step { kind: 2, key, first, second: ttl_secs.map_or(-1, millis), body: value }, &[][..])
            }
            Self::Delete(Delete { key, revision, .. }) => {
                (Step { kind: 3, key, first: to_server(*revision), second: 0, body: &[] }, &[][..])
            }
            Self::Purge { stream: key, up_to } => {
                (Step { kind: 4, key, first: to_server(*up_to), second: 0, body: &[] }, &[][..])
            }
        };
        let riders = riders.iter().map(|rider| match rider {
            Rider::Put { key, value, ttl_secs } => {
                Step { kind: 5, key, first: -1, second: ttl_secs.map_or(-1, millis), body: value }
            }
            Rider::Delete { key } => Step { kind: 6, key, first: -1, second: -1, body: &[] },
        });
        std::iter::once(step).chain(riders)
    }

    pub(crate) fn session(&self) -> Option<SessionId> {
        match self {
            Self::Append(append) => append.session,
            Self::Put(put) => put.session,
            Self::Delete(delete) => delete.session,
            Self::Purge { .. } => None,
        }
    }

    /// Bytes that it takes in a batch, about.
    pub(crate) fn bytes(&self) -> usize {
        self.steps().map(|step| 64 + step.key.as_bytes().len() + step.body.len()).sum()
    }

    /// The answer to whoever made the call.
    pub(crate) fn answer(&self, verdict: Verdict) -> Result<u64, StorageError> {
        let number = from_server(verdict.number);
        let wrong_revision = |key: &Key, expected| {
            let actual = Some(number).filter(|number| *number > 0);
            Err(StorageError::WrongRevision { key: key.clone(), expected, actual })
        };
        match (verdict.outcome, self) {
            (0, _) => Ok(number),
            (1, Self::Append(Append { stream, expected, .. })) => {
                Err(StorageError::WrongSequence { stream: stream.clone(), expected: *expected, actual: number })
            }
            (3, Self::Put(put)) => wrong_revision(&put.key, put.expected),
            (3, Self::Delete(delete)) => wrong_revision(&delete.key, Expected::Revision(delete.revision)),
            (outcome, _) => Err(match self.session().filter(|_| outcome == 4) {
                Some(session) => session.has_ended(),
                None => StorageError::Unavailable { detail: format!("the server answers with outcome {outcome}") },
            }),
        }
    }

    /// Shows this handle's watches what the write has changed.
    pub(crate) fn publish(&self, verdicts: &[Verdict], watchers: &Watchers) {
        for (step, verdict) in self.steps().zip(verdicts).filter(|(step, verdict)| step.changes_value(**verdict)) {
            let revision = from_server(verdict.number);
            watchers.publish(step.key, revision, || step.change(self, revision, *verdict));
        }
    }

    /// The channels of other handles that watch what the write has changed.
    pub(crate) fn channels(&self, schema: &str, verdicts: &[Verdict]) -> impl Iterator<Item = Channel> {
        let changed =
            self.steps().zip(verdicts).filter(|(step, verdict)| step.is_fed() && step.changes_value(**verdict));
        changed.filter_map(move |(step, _)| Channel::of_key(schema, step.key))
    }
}

impl Step<'_> {
    /// Whether watches of other handles are to see what it changes.
    pub(crate) fn is_fed(&self) -> bool {
        is_fed(self.key, matches!(self.kind, 3 | 6))
    }

    /// Whether it has changed a value. What was not there was not deleted, and has no revision.
    fn changes_value(&self, verdict: Verdict) -> bool {
        matches!(self.kind, 2 | 3 | 5 | 6) && verdict.outcome == 0 && verdict.number > 0
    }

    fn change(&self, operation: &Operation, revision: Revision, verdict: Verdict) -> Change {
        let value = match operation {
            Operation::Put(put) => Arc::clone(&put.value),
            // A copy, as a step only borrows: values of riders are short.
            Operation::Append(_) if self.kind == 5 => self.body.into(),
            Operation::Append(_) | Operation::Delete(_) | Operation::Purge { .. } => {
                return Change::Deleted(self.key.clone());
            }
        };
        let ends = Timestamp::from_millis(from_server(verdict.moment.saturating_add(self.second)));
        Change::Put(self.key.clone(), Entry { value, revision, expires_at: (self.second >= 0).then_some(ends) })
    }
}
