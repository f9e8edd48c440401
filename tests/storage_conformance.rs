//! Every store keeps every rule of `Storage`.

use std::sync::Arc;

use callboard::storage::Memory;
use callboard::testing::conformance::Subject;

callboard::storage_conformance! {
    in_memory memory: Subject::new(|clock| async { Arc::new(Memory::new(clock)) as _ })
}
