//! Reaps orphans of programs, in a process that adopts them.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use callboard_confine::{children, ended_child, unless_starting};

/// The interval of reaping, so that many orphans in succession are reaped together.
const COLLECT: Duration = Duration::from_millis(20);

/// The most orphans that are reaped before programs can be started again.
const AT_ONCE: usize = 10_000;

/// Takes the status of each child of this process that has ended and was not started by an agent or a tool of this library, as
/// soon as it has ended, until it is dropped.
///
/// It is for a process that adopts what its programs leave: the first process of a container, or one that has made itself a
/// "child subreaper" (`PR_SET_CHILD_SUBREAPER`). There a command whose processes start others and end, over and over, would
/// fill the process table of the machine with zombies. A process that starts programs by itself loses their status to this.
///
/// ```no_run
/// # async fn in_a_container() {
/// tokio::spawn(callboard_agents::reap_orphans());
/// # }
/// ```
///
/// It needs a runtime with its drivers enabled (`enable_all`).
///
/// # Errors
/// The signal of ended children cannot be handled.
pub async fn reap_orphans() -> io::Result<Infallible> {
    let mut ended = signal(SignalKind::child())?;
    loop {
        while !reap() {
            sleep(COLLECT).await;
        }
        if ended.recv().await.is_none() {
            return Err(io::Error::other("the runtime ends"));
        }
        sleep(COLLECT).await;
    }
}

/// Reaps orphans. `false` if there may be more, or if programs are being started, so that orphans cannot be distinguished.
fn reap() -> bool {
    let reaped = unless_starting(|is_orphan| {
        // No program can start meanwhile, so the number of orphans per call is limited.
        for _ in 0..AT_ONCE {
            match ended_child() {
                Some(pid) if is_orphan(pid) => take(pid),
                // A program that its starter will reap: there may be others behind it.
                Some(_) => {
                    children().into_iter().filter(|pid| is_orphan(*pid)).for_each(take);
                    return true;
                }
                None => return true,
            }
        }
        false
    });
    reaped == Some(true)
}

fn take(pid: u32) {
    if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
        let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    }
}
