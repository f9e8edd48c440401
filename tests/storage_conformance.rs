//! Every store keeps every rule of `Storage`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use callboard::storage::{Memory, Sled};
use callboard::testing::conformance::Subject;

callboard::storage_conformance! {
    in_memory memory: Subject::new(|clock| async { Arc::new(Memory::new(clock)) as _ })
}

callboard::storage_conformance! {
    on_disk sled: {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        Subject::new(move |clock| {
            let folder = Arc::clone(&folder);
            async move { Arc::new(Sled::open_with_clock(folder.path(), clock).unwrap()) as _ }
        })
    }
}

callboard::storage_crash_conformance! {
    sled_killed: |folder| async move { Arc::new(Sled::open(folder).unwrap()) as _ }
}
