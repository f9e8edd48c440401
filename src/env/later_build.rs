//! Whether this process stands for one of a later build: a test of boards of two builds has only one.

#[cfg(any(test, feature = "testing"))]
static IS_LATER: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// By how many the forms of records and letters of this process are above those of the build.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn forms_ahead() -> u32 {
    u32::from(IS_LATER.load(std::sync::atomic::Ordering::Relaxed))
}

/// By how many the forms of records and letters of this process are above those of the build: none.
#[cfg(not(any(test, feature = "testing")))]
pub(crate) const fn forms_ahead() -> u32 {
    0
}

/// Has the boards that this process starts from now on be of a later build than this one: the records of their runs and their letters have
/// the next form, which boards of this build do not read. The bytes are the same. It holds until the process ends, so call it in a process
/// of its own.
#[cfg(any(test, feature = "testing"))]
pub fn become_later_build() {
    IS_LATER.store(true, std::sync::atomic::Ordering::Relaxed);
}
