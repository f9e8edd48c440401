//! Injected faults, to show what the board does about them.

use std::panic::resume_unwind;
use std::process::abort;
use std::sync::atomic::{AtomicBool, Ordering};

/// What goes wrong, and whether it has yet.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    crash: Option<String>,
    kill_at: Option<String>,
    has_crashed: AtomicBool,
}

impl Faults {
    pub(crate) fn new(crash: Option<String>, kill_at: Option<String>) -> Self {
        Self { crash, kill_at, has_crashed: AtomicBool::new(false) }
    }

    /// Passed by an agent at work: it panics here once, or takes the whole process along.
    pub(crate) fn strike(&self, agent: &str) {
        if self.kill_at.as_deref() == Some(agent) {
            eprintln!("The process dies here, as --kill-at {agent} wants. The same command with --resume goes on.");
            abort();
        }
        if self.crash.as_deref() == Some(agent) && !self.has_crashed.swap(true, Ordering::Relaxed) {
            // A panic without the default hook's output on the terminal; the run reports it.
            resume_unwind(Box::new(format!("injected by --crash {agent}")));
        }
    }
}
