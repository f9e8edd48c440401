//! A store that is slow and whose writes fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use callboard::env::Env;
use callboard::messages::Durability;
use callboard::storage::{
    Append, Delete, Entry, Key, KeyPrefix, Memory, NewSession, Put, Record, Revision, Sequence, SessionId, SessionInfo,
    Storage, StorageError, StorageFuture, Watch,
};
use futures::FutureExt;
use parking_lot::Mutex;

use super::counts::Counter;

/// A store that takes its time, and whose appends fail now and then: with the record written, or without.
#[derive(Debug)]
pub(crate) struct Shaky {
    store: Memory,
    random: Mutex<u64>,
    /// One append in this many fails; 0 for none.
    one_in: u64,
    pub(crate) failed: Counter,
    /// How often a board has renewed its session.
    pub(crate) renewed: Counter,
    pub(crate) has_stopped: AtomicBool,
    /// The next append is written, and reported as failed.
    pub(crate) loses_acknowledgement: AtomicBool,
    /// The next decisions about approvals fail: with the decision written, or without.
    pub(crate) decision_faults: Mutex<Vec<bool>>,
    /// How long it takes to read a decision about an approval.
    pub(crate) decision_reads_take: Mutex<Duration>,
}

impl Shaky {
    pub(crate) fn new(env: &Env, one_in: u64) -> Self {
        Self {
            store: Memory::new(env.clock()),
            random: Mutex::new(env.random()),
            one_in,
            failed: Counter::default(),
            renewed: Counter::default(),
            has_stopped: false.into(),
            loses_acknowledgement: false.into(),
            decision_faults: Mutex::default(),
            decision_reads_take: Mutex::default(),
        }
    }

    fn random(&self) -> u64 {
        let mut random = self.random.lock();
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *random >> 33
    }

    /// What was handed over happens at once; its acknowledgement comes later.
    fn later<T: Send + 'static>(&self, done: StorageFuture<T>) -> StorageFuture<T> {
        let (wait, done) = (Duration::from_millis(self.random() % 20), done.now_or_never().unwrap());
        Box::pin(async move {
            tokio::time::sleep(wait).await;
            done
        })
    }
}

/// Whether the write was made is not known to its caller.
fn no_acknowledgement() -> StorageError {
    StorageError::Unavailable { detail: "no acknowledgement".to_owned() }
}

fn is_decision(key: &Key) -> bool {
    key.starts_with(&Key::new(["approval"]).children())
}

impl Storage for Shaky {
    fn append(&self, append: Append) -> StorageFuture<Sequence> {
        if self.has_stopped.load(Ordering::SeqCst) {
            return self.later(Box::pin(std::future::ready(Err(StorageError::Stopped { detail: "no disk".into() }))));
        }
        if self.loses_acknowledgement.swap(false, Ordering::SeqCst) {
            let _ = self.store.append(append).now_or_never();
            return self.later(Box::pin(std::future::ready(Err(no_acknowledgement()))));
        }
        let fails = self.one_in > 0 && append.expected > 0 && self.random().is_multiple_of(self.one_in);
        if !fails {
            return self.later(self.store.append(append));
        }
        self.failed.count();
        if self.random().is_multiple_of(2) {
            let _ = self.store.append(append).now_or_never();
        }
        self.later(Box::pin(std::future::ready(Err(no_acknowledgement()))))
    }

    fn read(&self, stream: &Key, from: Sequence, limit: usize) -> StorageFuture<Vec<Record>> {
        self.later(self.store.read(stream, from, limit))
    }

    fn streams(&self, prefix: &KeyPrefix, after: Option<&Key>, limit: usize) -> StorageFuture<Vec<Key>> {
        self.store.streams(prefix, after, limit)
    }

    fn purge(&self, stream: &Key, up_to: Sequence) -> StorageFuture<()> {
        self.later(self.store.purge(stream, up_to))
    }

    fn get(&self, key: &Key) -> StorageFuture<Option<Entry>> {
        let (wait, entry) = (*self.decision_reads_take.lock(), self.later(self.store.get(key)));
        if !is_decision(key) {
            return entry;
        }
        Box::pin(async move {
            tokio::time::sleep(wait).await;
            entry.await
        })
    }

    fn put_if_revision(&self, put: Put) -> StorageFuture<Revision> {
        let Some(is_written) = self.decision_faults.lock().pop_if(|_| is_decision(&put.key)) else {
            return self.later(self.store.put_if_revision(put));
        };
        if is_written {
            let _ = self.store.put_if_revision(put).now_or_never();
        }
        self.later(Box::pin(std::future::ready(Err(no_acknowledgement()))))
    }

    fn delete_if_revision(&self, delete: Delete) -> StorageFuture<()> {
        self.later(self.store.delete_if_revision(delete))
    }

    fn scan(&self, prefix: &KeyPrefix, after: Option<&Key>, limit: usize) -> StorageFuture<Vec<(Key, Entry)>> {
        self.store.scan(prefix, after, limit)
    }

    fn watch(&self, prefix: &KeyPrefix) -> Watch {
        self.store.watch(prefix)
    }

    fn begin_session(&self, new: NewSession) -> StorageFuture<SessionId> {
        self.store.begin_session(new)
    }

    fn renew_session(&self, id: SessionId, about: Arc<[u8]>) -> StorageFuture<()> {
        self.renewed.count();
        self.later(self.store.renew_session(id, about))
    }

    fn end_session(&self, id: SessionId, only_if_expired: bool) -> StorageFuture<()> {
        self.later(self.store.end_session(id, only_if_expired))
    }

    fn sessions(&self) -> StorageFuture<Vec<SessionInfo>> {
        self.store.sessions()
    }

    fn forget_session(&self, id: SessionId) -> StorageFuture<()> {
        self.store.forget_session(id)
    }
}
