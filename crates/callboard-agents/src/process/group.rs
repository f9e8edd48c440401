//! A program and the processes that it has started, as one that can be killed.

use std::sync::Arc;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};

/// The process group of a program, valid as long as its number cannot be reused.
#[derive(Debug)]
pub(crate) struct Group(Mutex<Option<Pid>>);

impl Group {
    pub(crate) fn of(leader: Option<Pid>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(leader)))
    }

    /// Whose group it is; nobody's once it is finished.
    #[cfg(feature = "shell")]
    pub(crate) fn leader(&self) -> Option<Pid> {
        *self.0.lock()
    }

    pub(crate) fn kill(&self) {
        if let Some(group) = *self.0.lock() {
            // There may be nobody left in it.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }

    /// Kills it for the last time: the number is given back with the program's status.
    pub(crate) fn finish(&self) {
        self.kill();
        *self.0.lock() = None;
    }
}

/// Kills a program when it is dropped, with the processes of its group.
#[derive(Debug)]
pub(crate) struct GroupGuard(Arc<Group>);

impl GroupGuard {
    pub(crate) fn on(group: &Arc<Group>) -> Self {
        Self(Arc::clone(group))
    }

    /// Another one on the same program: it is killed when the first of them is dropped.
    #[cfg_attr(not(feature = "mcp"), expect(dead_code, reason = "only sessions of MCP servers hold two"))]
    pub(crate) fn another(&self) -> Self {
        Self::on(&self.0)
    }

    pub(crate) fn kill(&self) {
        self.0.kill();
    }
}

impl Drop for GroupGuard {
    fn drop(&mut self) {
        self.kill();
    }
}
