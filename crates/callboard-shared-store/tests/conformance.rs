//! The rules of every store, with the files open in the process that calls, and in another one.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use callboard::storage::{
    Append, Entry, Key, KeyPrefix, Put, Record, Revision, Sequence, Storage, StorageFuture, Watch,
};
use callboard::testing::conformance::Subject;
use callboard_shared_store::SharedStore;

use crate::passing::pass_on;

#[path = "../../../tests/passing/mod.rs"]
mod passing;

callboard::storage_conformance! {
    on_disk here: {
        let folder = tempfile::tempdir().unwrap();
        Subject::new(move |clock| {
            let store = SharedStore::open_with_clock(folder.path(), clock).unwrap();
            async move { Arc::new(store) as _ }
        })
    }
}

callboard::storage_conformance! {
    on_disk elsewhere: {
        let folder = tempfile::tempdir().unwrap();
        Subject::new(move |clock| {
            let holder = SharedStore::open_with_clock(folder.path(), Arc::clone(&clock)).unwrap();
            let client = SharedStore::open_with_clock(folder.path(), clock).unwrap();
            assert!(holder.is_here() && !client.is_here());
            async move { Arc::new(Elsewhere { client, _holder: holder }) as _ }
        })
    }
}

// Sessions end with the process that made them, so this is no store of the form `shared`.
callboard::storage_conformance! {
    handles side_by_side: {
        let folder = tempfile::tempdir().unwrap();
        Subject::new(move |clock| {
            let store = SharedStore::open_with_clock(folder.path(), clock).unwrap();
            async move { Arc::new(store) as _ }
        })
    }
}

callboard::storage_conformance! {
    killed killed: |folder| async move { Arc::new(SharedStore::open(folder).unwrap()) as _ }
}

/// A store whose files another handle has open, which is dropped after it.
#[derive(Debug)]
struct Elsewhere {
    client: SharedStore,
    _holder: SharedStore,
}

impl Storage for Elsewhere {
    pass_on!(
        client: append, read, streams, purge, get, put_if_revision, delete_if_revision, scan, watch, sessions
    );
}
