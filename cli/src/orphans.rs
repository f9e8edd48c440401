//! Processes that programs leave behind: whatever a run has started ends with it, also what has left the session and the
//! environment of the program that started it.
//!
//! On Linux this process adopts them when their parents end, so at its end it knows them as its children. One that had children
//! before it became `callboard`, as in `sh -c 'server & exec callboard …'`, adopts none: those are not the run's.

/// Adopts what its children leave from now on.
pub(crate) fn adopt() {
    #[cfg(target_os = "linux")]
    linux::adopt();
}

/// Takes the status of adopted children as soon as they have ended, until the run ends: a command whose processes start
/// others and end, over and over, would fill the process table of the machine with zombies.
pub(crate) async fn reap() {
    #[cfg(target_os = "linux")]
    if linux::adopts() {
        // Without the signal of ended children they are reaped at the end.
        let _ = callboard_agents::reap_orphans().await;
    }
}

/// Ends all children, and those that are adopted as they end.
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

    /// How often it is looked for children, and how long in between: one that was killed takes a moment to end.
    const LOOKS: u32 = 500;
    const LOOK_AGAIN: Duration = Duration::from_millis(2);

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
        for _ in 0..LOOKS {
            reap_all();
            if !has_children() {
                return;
            }
            children().into_iter().for_each(kill);
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    fn has_children() -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !matches!(waitid(WaitId::All, options), Err(Errno::CHILD))
    }

    /// Takes the status of those that have ended.
    fn reap_all() {
        while let Ok(Some(_)) = waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {}
    }

    fn kill(pid: u32) {
        // The number may be another's by now; what is open is not.
        if let Some(process) = Pid::from_raw(pid.cast_signed())
            && let Ok(process) = pidfd_open(process, PidfdFlags::empty())
            && is_child(pid)
        {
            let _ = pidfd_send_signal(&process, Signal::KILL);
        }
    }
}
