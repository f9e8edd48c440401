//! A program and its processes as a group that can be killed.

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

    /// The leader of the group; `None` once it is finished.
    #[cfg(feature = "shell")]
    pub(crate) fn leader(&self) -> Option<Pid> {
        *self.0.lock()
    }

    pub(crate) fn kill(&self) {
        if let Some(group) = *self.0.lock() {
            // The group may be empty.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }

    /// Kills it for the last time, because reaping the program releases its number.
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

    /// A second guard of the same program, which is killed when the first of them is dropped.
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
