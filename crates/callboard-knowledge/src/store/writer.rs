//! The one writer of a base: a thread that makes several changes in one transaction, and answers them after its commit.

use std::sync::Arc;

use callboard::env::Env;
use callboard::messages::Timestamp;
use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};

use super::error::{KnowledgeError, reported};
use super::lock::Lock;

/// The most changes that wait for the writer; more wait in their callers.
const QUEUE: usize = 1024;

/// The most changes of one transaction.
const BATCH: usize = 256;

/// Makes a change, or learns that there is no transaction for it. Returns whether it was made, and how its caller is answered.
type Change = Box<dyn FnOnce(Result<(&Connection, Timestamp), &KnowledgeError>) -> (bool, Answer) + Send>;

/// Answers the caller, with the error of the commit if there was one.
type Answer = Box<dyn FnOnce(Option<&KnowledgeError>) + Send>;

/// The queue of the writer's thread.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    queue: mpsc::Sender<Change>,
}

/// Completes when the writer's thread has ended and its connection is closed.
pub(super) type Ended = oneshot::Receiver<()>;

impl Writer {
    /// Starts the thread. It ends when all clones of the writer are gone, and holds the lock until its connection is closed.
    pub(super) fn start(connection: Connection, lock: Arc<Lock>, env: Env) -> std::io::Result<(Self, Ended)> {
        let (queue, changes) = mpsc::channel(QUEUE);
        let (ended, has_ended) = oneshot::channel();
        std::thread::Builder::new().name("knowledge-writer".to_owned()).spawn(move || {
            work(connection, changes, &env);
            drop(lock);
            let _ = ended.send(());
        })?;
        Ok((Self { queue }, has_ended))
    }

    /// Makes a change in a savepoint of its own, and returns its result when it is on disk.
    pub(super) async fn write<T, F>(&self, change: F) -> Result<T, KnowledgeError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection, Timestamp) -> Result<T, KnowledgeError> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let change: Change = Box::new(move |within| {
            let result = within.map_err(copy).and_then(|(connection, now)| change(connection, now));
            let is_made = result.is_ok();
            let reply = move |failed: Option<&KnowledgeError>| {
                // A change that was refused is answered by its reason, whatever became of the others of the transaction.
                let result = result.and_then(|made| failed.map_or(Ok(made), |failed| Err(copy(failed))));
                let _ = answer.send(result);
            };
            (is_made, Box::new(reply))
        });
        self.queue.send(change).await.map_err(|_| KnowledgeError::Closed)?;
        answered.await.map_err(|_| KnowledgeError::Closed)?
    }
}

fn work(mut connection: Connection, mut changes: mpsc::Receiver<Change>, env: &Env) {
    while let Some(first) = changes.blocking_recv() {
        let mut batch = vec![first];
        while batch.len() < BATCH
            && let Ok(change) = changes.try_recv()
        {
            batch.push(change);
        }
        let failed = commit(&mut connection, batch, env);
        if let Some(KnowledgeError::Failed { .. }) = &failed {
            // Whoever waits, and whoever comes later, learns that the base is closed.
            return;
        }
    }
    // Nothing is lost without it: the next process does it.
    let _ = connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE); PRAGMA optimize");
}

/// Makes the changes in one transaction and answers them. Returns what SQLite reported if it failed.
fn commit(connection: &mut Connection, batch: Vec<Change>, env: &Env) -> Option<KnowledgeError> {
    let mut transaction = match Transaction::new(connection, TransactionBehavior::Immediate) {
        Ok(transaction) => transaction,
        Err(error) => {
            let failed = error.into();
            batch.into_iter().for_each(|change| change(Err(&failed)).1(Some(&failed)));
            return Some(failed);
        }
    };
    let now = env.now().wall;
    let mut answers = Vec::with_capacity(batch.len());
    let mut made = Ok(());
    for change in batch {
        match (&made, transaction.savepoint()) {
            (Ok(()), Ok(savepoint)) => {
                let (is_made, answer) = change(Ok((&savepoint, now)));
                answers.push(answer);
                // A savepoint that is dropped is rolled back.
                made = if is_made { savepoint.commit() } else { savepoint.finish() };
            }
            (Ok(()), Err(error)) => {
                let failed = error.into();
                answers.push(change(Err(&failed)).1);
            }
            (Err(_), _) => answers.push(change(Err(&KnowledgeError::Closed)).1),
        }
    }
    let failed = made.and_then(|()| transaction.commit()).err().map(|error| match error.sqlite_error_code() {
        // It is unknown what of the transaction is on disk, and a second sync would report success without it.
        Some(ErrorCode::SystemIoFailure) => KnowledgeError::Failed { cause: reported(&error) },
        _ => error.into(),
    });
    answers.into_iter().for_each(|answer| answer(failed.as_ref()));
    failed
}

fn copy(error: &KnowledgeError) -> KnowledgeError {
    match error {
        KnowledgeError::Full => KnowledgeError::Full,
        KnowledgeError::ReadOnly => KnowledgeError::ReadOnly,
        KnowledgeError::Busy => KnowledgeError::Busy,
        KnowledgeError::Damaged { cause } => KnowledgeError::Damaged { cause: cause.clone() },
        error => KnowledgeError::Failed { cause: error.to_string() },
    }
}
