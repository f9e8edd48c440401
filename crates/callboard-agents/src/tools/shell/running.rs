//! A command that runs, until it ends or its time is over.

use std::io::{self, PipeReader};
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{WaitId, WaitIdOptions, waitid};
use tokio::io::AsyncReadExt as _;
use tokio::process::ChildStdout;
use tokio::sync::oneshot;

use super::printed::Printed;
use crate::ToolError;
use crate::process::group::{Group, GroupGuard};
use crate::process::turn_socket::{OpenSocket, TurnSocket, waits};

/// The most bytes that a pipe can hold after its writer has ended.
const MAX_PIPE: usize = 1 << 20;

/// A command that runs.
pub(super) struct Running {
    pub(super) group: GroupGuard,
    pub(super) output: ChildStdout,
    /// A second handle of the pipe, which is emptied at the end without blocking.
    pub(super) rest: PipeReader,
    pub(super) ended: oneshot::Receiver<io::Result<ExitStatus>>,
    /// Closed when this is dropped.
    pub(super) socket: Option<(OpenSocket, TurnSocket)>,
}

pub(super) enum End {
    Exited(ExitStatus),
    TimedOut,
}

impl Running {
    /// Collects the output until the command ends or its time is over.
    pub(super) async fn end(mut self, limit: Duration) -> Result<(Printed, End), ToolError> {
        let mut printed = Printed::default();
        let mut buffer = vec![0; 64 << 10];
        let mut is_open = true;
        let time = tokio::time::sleep(limit);
        tokio::pin!(time);
        let status = loop {
            tokio::select! {
                biased;
                status = &mut self.ended => break Some(status),
                () = &mut time => break None,
                () = waits(self.socket.as_ref().map(|(open, _)| open)) => {}
                read = self.output.read(&mut buffer), if is_open => match read {
                    Ok(0) | Err(_) => is_open = false,
                    Ok(read) => printed.take(&buffer[..read]),
                },
            }
        };
        self.group.kill();
        let gone = |_| ToolError("the command was lost: its thread has ended".to_owned());
        let end = match status {
            Some(status) => End::Exited(status.map_err(gone)??),
            None => {
                (&mut self.ended).await.map_err(gone)??;
                End::TimedOut
            }
        };
        // Processes that have left the group may hold the pipe open, so its end is not waited for.
        let mut left = MAX_PIPE;
        while let Ok(read @ 1..) = rustix::io::read(&self.rest, &mut *buffer) {
            printed.take(&buffer[..read]);
            match left.checked_sub(read) {
                Some(rest) => left = rest,
                None => break,
            }
        }
        Ok((printed, end))
    }
}

/// Waits for a command, and kills its remaining processes. Its process id is not reused until then.
pub(super) fn see_out(group: &Group) {
    let Some(leader) = group.leader() else { return };
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    // An error means that there is no such child any more, so it has ended.
    let _ = rustix::io::retry_on_intr(|| waitid(WaitId::Pid(leader), options));
    group.finish();
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    use rustix::process::Pid;

    use super::*;

    #[test]
    fn a_number_that_may_be_anothers_is_not_killed() {
        let mut child = Command::new("true").process_group(0).spawn().unwrap();
        let group = Group::of(Pid::from_raw(child.id().cast_signed()));
        see_out(&group);
        assert_eq!(group.leader(), None);
        assert!(child.wait().unwrap().success(), "it is left to be waited for");
    }
}
