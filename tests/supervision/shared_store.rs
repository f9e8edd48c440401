//! A store that several processes share, whose sessions can be neither renewed nor given up while it is mute.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use callboard::env::Env;
use callboard::messages::Durability;
use callboard::prelude::*;
use callboard::runtime::Builder;
use callboard::storage::{
    Append, Entry, Key, KeyPrefix, Memory, Put, Record, Revision, Sequence, SessionId, Storage, StorageError,
    StorageFuture, Watch,
};

use crate::passing::pass_on;

/// The store. Counts the looks at all notes of open runs, the reads of journals, and the calls that read several things at once.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) inside: Memory,
    pub(crate) is_mute: AtomicBool,
    pub(crate) note_scans: AtomicU32,
    pub(crate) reads: AtomicU32,
    pub(crate) reads_of_many: AtomicU32,
    /// Whether a call that reads several journals at once panics.
    pub(crate) panics_at_many: AtomicBool,
    /// Why sessions have ended, as renewals are told and other writes are not.
    pub(crate) why_ended: OnceLock<&'static str>,
}

impl Shared {
    pub(crate) fn new(env: &Env) -> Arc<Self> {
        let [note_scans, reads, reads_of_many] = [0; 3].map(AtomicU32::new);
        let [is_mute, panics_at_many] = [false; 2].map(AtomicBool::new);
        let inside = Memory::new(env.clock());
        let why_ended = OnceLock::new();
        Arc::new(Self { inside, is_mute, note_scans, reads, reads_of_many, panics_at_many, why_ended })
    }

    pub(crate) fn board(self: &Arc<Self>, env: &Env) -> Builder {
        let builder = Callboard::builder().env(env.clone()).storage(Arc::clone(self));
        builder.durability(Durability::Sync).shutdown_grace(Duration::ZERO)
    }
}

impl Storage for Shared {
    pass_on!(
        inside: append, streams, purge, get, put_if_revision, delete_if_revision, watch,
        begin_session, list_sessions, forget_session
    );

    fn is_shared(&self) -> bool {
        true
    }

    fn read(&self, stream: &Key, from: Sequence, limit: usize) -> StorageFuture<Vec<Record>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.inside.read(stream, from, limit)
    }

    fn get_many(&self, keys: &[Key]) -> StorageFuture<Vec<Result<Option<Entry>, StorageError>>> {
        self.reads_of_many.fetch_add(1, Ordering::Relaxed);
        self.inside.get_many(keys)
    }

    fn read_many(
        &self,
        streams: &[(Key, Sequence)],
        limit: usize,
    ) -> StorageFuture<Vec<Result<Vec<Record>, StorageError>>> {
        self.reads_of_many.fetch_add(1, Ordering::Relaxed);
        assert!(streams.len() < 2 || !self.panics_at_many.load(Ordering::Relaxed), "a journal makes the store panic");
        self.inside.read_many(streams, limit)
    }

    fn scan(&self, prefix: &KeyPrefix, after: Option<&Key>, limit: usize) -> StorageFuture<Vec<(Key, Entry)>> {
        if *prefix == Key::new(["open"]).children() {
            self.note_scans.fetch_add(1, Ordering::Relaxed);
        }
        self.inside.scan(prefix, after, limit)
    }

    fn renew_session(&self, id: SessionId, about: Arc<[u8]>) -> StorageFuture<()> {
        if self.is_mute.load(Ordering::Relaxed) {
            return Box::pin(std::future::pending());
        }
        if let Some(detail) = self.why_ended.get() {
            let detail = (*detail).to_owned();
            return Box::pin(std::future::ready(Err(StorageError::Stopped { detail })));
        }
        self.inside.renew_session(id, about)
    }

    fn end_session(&self, id: SessionId, only_if_expired: bool) -> StorageFuture<()> {
        if !only_if_expired && self.is_mute.load(Ordering::Relaxed) {
            return Box::pin(std::future::ready(Err(StorageError::Unavailable { detail: "it is mute".to_owned() })));
        }
        self.inside.end_session(id, only_if_expired)
    }
}
