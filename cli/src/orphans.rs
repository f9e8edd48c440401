//! Orphans: processes that programs of a run leave behind, in whatever session and environment. All of them end with the run.
//!
//! On Linux this process is their subreaper, so that orphans become its children and are killed at its end. A process that had
//! children before it became `callboard`, as in `sh -c 'server & exec callboard …'`, adopts none: those do not belong to the run.

/// Makes this process the subreaper of its descendants.
pub(crate) fn adopt() {
    #[cfg(target_os = "linux")]
    linux::adopt();
}

/// Reaps adopted children as they end, until the run ends: otherwise a command that starts processes over and over would fill the
/// process table with zombies.
pub(crate) async fn reap() {
    #[cfg(target_os = "linux")]
    if linux::adopts() {
        // Where SIGCHLD cannot be received, they are reaped at the end.
        let _ = callboard_agents::reap_orphans().await;
    }
}

/// Kills all children, and the orphans that are adopted when these end.
pub(crate) fn end() {
    #[cfg(target_os = "linux")]
    linux::end();
}

#[cfg(target_os = "linux")]
mod linux {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use callboard_confine::{children, is_child};
    use rustix::io::Errno;
    use rustix::process::{
        Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, pidfd_open, pidfd_send_signal, set_child_subreaper,
        waitid,
    };

    /// How many times children are killed and reaped, and the pause in between: a killed process takes a moment to end.
    const ROUNDS: u32 = 500;
    const PAUSE: Duration = Duration::from_millis(2);

    static ADOPTS: AtomicBool = AtomicBool::new(false);

    pub(super) fn adopt() {
        if adopts() || has_children() {
            return;
        }
        ADOPTS.store(set_child_subreaper(Some(getpid())).is_ok(), Ordering::Relaxed);
    }

    pub(super) fn adopts() -> bool {
        ADOPTS.load(Ordering::Relaxed)
    }

    pub(super) fn end() {
        if !adopts() {
            return;
        }
        for _ in 0..ROUNDS {
            reap_all();
            if !has_children() {
                return;
            }
            children().into_iter().for_each(kill);
            std::thread::sleep(PAUSE);
        }
    }

    fn has_children() -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !matches!(waitid(WaitId::All, options), Err(Errno::CHILD))
    }

    /// Reaps the children that have ended.
    fn reap_all() {
        while let Ok(Some(_)) = waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {}
    }

    fn kill(pid: u32) {
        // Another process may have the number by now; the descriptor stays that of the process that it was opened for.
        if let Some(process) = Pid::from_raw(pid.cast_signed())
            && let Ok(process) = pidfd_open(process, PidfdFlags::empty())
            && is_child(pid)
        {
            let _ = pidfd_send_signal(&process, Signal::KILL);
        }
    }
}
