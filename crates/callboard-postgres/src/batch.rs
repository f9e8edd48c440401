//! Writes that become one transaction: which belong together, and their form for the server.

use std::collections::VecDeque;

use callboard::storage::StorageError;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use crate::operation::{Operation, Verdict, to_server};

/// A write in the queue, with who waits for its answer.
pub(crate) struct Waiting {
    pub(crate) operation: Operation,
    pub(crate) answer: oneshot::Sender<Result<u64, StorageError>>,
    /// Its share of the queue's bound.
    pub(crate) permit: OwnedSemaphorePermit,
}

/// The arrays of `callboard.write`, one element for each step of a write.
#[derive(Default)]
pub(crate) struct Columns<'a> {
    kinds: Vec<i16>,
    keys: Vec<&'a [u8]>,
    sessions: Vec<i64>,
    firsts: Vec<i64>,
    seconds: Vec<i64>,
    feeds: Vec<bool>,
    bodies: Vec<&'a [u8]>,
}

/// Takes the next batch out of the queue: at most so many writes and bytes, and at least one write.
pub(crate) fn take(queue: &mut VecDeque<Waiting>, writes: usize, bytes: usize) -> Vec<Waiting> {
    let mut total = 0;
    let mut steps = 0;
    let fits = queue.iter().take_while(|waiting| {
        total += waiting.operation.bytes();
        steps += waiting.operation.steps().count();
        total <= bytes && steps <= writes
    });
    let count = fits.count().max(1).min(queue.len());
    queue.drain(..count).collect()
}

impl<'a> Columns<'a> {
    pub(crate) fn of(batch: &'a [Waiting]) -> Self {
        let mut columns = Self::default();
        for Waiting { operation, .. } in batch {
            let session = operation.session().map_or(0, |session| to_server(session.0));
            for step in operation.steps() {
                columns.kinds.push(step.kind);
                columns.keys.push(step.key.as_bytes());
                columns.sessions.push(session);
                columns.firsts.push(step.first);
                columns.seconds.push(step.second);
                columns.feeds.push(step.is_fed());
                columns.bodies.push(step.body);
            }
        }
        columns
    }

    pub(crate) fn len(&self) -> usize {
        self.kinds.len()
    }

    /// The parameters of `callboard.write`, after those of the batch.
    pub(crate) fn parameters(&self) -> [(&(dyn ToSql + Sync), Type); 7] {
        [
            (&self.kinds, Type::INT2_ARRAY),
            (&self.keys, Type::BYTEA_ARRAY),
            (&self.sessions, Type::INT8_ARRAY),
            (&self.firsts, Type::INT8_ARRAY),
            (&self.seconds, Type::INT8_ARRAY),
            (&self.feeds, Type::BOOL_ARRAY),
            (&self.bodies, Type::BYTEA_ARRAY),
        ]
    }
}

/// The verdicts of an answer of `callboard.write`; `None` if they are not as many as the steps.
pub(crate) fn verdicts(row: &Row, steps: usize) -> Option<Vec<Verdict>> {
    let (moment, outcomes, numbers): (i64, Vec<i16>, Vec<i64>) =
        (row.try_get(0).ok()?, row.try_get(1).ok()?, row.try_get(2).ok()?);
    if outcomes.len() != steps || numbers.len() != steps {
        return None;
    }
    Some(outcomes.into_iter().zip(numbers).map(|(outcome, number)| Verdict { outcome, number, moment }).collect())
}
