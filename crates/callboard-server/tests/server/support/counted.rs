//! A store in memory that counts what is read.

use std::sync::atomic::{AtomicUsize, Ordering};

use callboard::storage::{
    Append, Entry, Key, KeyPrefix, Memory, Put, Record, Revision, Sequence, Storage, StorageFuture, Watch,
};

use crate::passing::pass_on;

#[derive(Debug, Default)]
pub(crate) struct Counted {
    inside: Memory,
    reads: AtomicUsize,
}

impl Counted {
    /// How many reads of records, values and lists there were since the last time.
    pub(crate) fn reads(&self) -> usize {
        self.reads.swap(0, Ordering::Relaxed)
    }

    fn read_of(&self) -> &Memory {
        self.reads.fetch_add(1, Ordering::Relaxed);
        &self.inside
    }
}

impl Storage for Counted {
    fn read(&self, stream: &Key, from: Sequence, limit: usize) -> StorageFuture<Vec<Record>> {
        self.read_of().read(stream, from, limit)
    }

    fn streams(&self, prefix: &KeyPrefix, after: Option<&Key>, limit: usize) -> StorageFuture<Vec<Key>> {
        self.read_of().streams(prefix, after, limit)
    }

    fn get(&self, key: &Key) -> StorageFuture<Option<Entry>> {
        self.read_of().get(key)
    }

    fn scan(&self, prefix: &KeyPrefix, after: Option<&Key>, limit: usize) -> StorageFuture<Vec<(Key, Entry)>> {
        self.read_of().scan(prefix, after, limit)
    }

    pass_on!(inside: append, purge, put_if_revision, delete_if_revision, watch, sessions);
}
