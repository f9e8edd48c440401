//! Threads where the system may refuse them: a user has a limit of processes (`ulimit -u`), and tokio panics at it.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::Env;

/// The number of this thread among those that have asked, from 0.
pub(super) fn number() -> usize {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static NUMBER: usize = ASKED.fetch_add(1, Ordering::Relaxed));
    NUMBER.with(|number| *number)
}

impl Env {
    /// Whether a thread can be started now. Whoever cannot have one does its work in the thread that it has.
    #[must_use]
    pub fn can_start_thread() -> bool {
        let tried = std::thread::Builder::new().name("callboard-try".to_owned()).spawn(|| {});
        if let Err(error) = &tried {
            tracing::warn!(
                %error,
                "no thread can be started, so work that waits for the disk holds up other work; end other processes of this user, or \
                 raise the limit of them (ulimit -u)"
            );
        }
        tried.is_ok()
    }
}
