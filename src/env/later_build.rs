//! Whether this process stands for one of a later build: a test of boards of two builds has only one.

use std::sync::atomic::{AtomicBool, Ordering};

static IS_LATER: AtomicBool = AtomicBool::new(false);

/// By how many the forms of records and letters of this process are above those of the build.
pub(crate) fn forms_ahead() -> u32 {
    u32::from(IS_LATER.load(Ordering::Relaxed))
}

/// Has the boards that this process starts from now on be of a later build than this one: the records of their runs and their letters have
/// the next form, which boards of this build do not read. The bytes are the same. It holds until the process ends, so call it in a process
/// of its own.
#[cfg(any(test, feature = "testing"))]
pub fn become_later_build() {
    IS_LATER.store(true, Ordering::Relaxed);
}
