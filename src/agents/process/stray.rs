//! Processes that have left the group of the program that started them, found by a variable of their environment.

/// The variable with a value of its own for each program that is started.
pub(in crate::agents) const MARK: &str = "CALLBOARD_PROCESS";

/// Ends all processes that have a variable with this value, and those that they start meanwhile. One that has taken it out of its
/// environment, or belongs to another user, is not found; nor is any where the system has no `/proc`. It blocks.
pub(in crate::agents) fn kill(variable: &str, value: &str) {
    #[cfg(target_os = "linux")]
    linux::kill(format!("{variable}={value}").as_bytes());
    #[cfg(not(target_os = "linux"))]
    let _ = (variable, value);
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;

    use rustix::process::{Pid, PidfdFlags, Signal, geteuid, pidfd_open, pidfd_send_signal};

    /// How often it is looked again for what has been started meanwhile.
    const LOOKS: usize = 20;

    pub(super) fn kill(entry: &[u8]) {
        for _ in 0..LOOKS {
            let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
            let pids = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
            let killed = pids.filter_map(Pid::from_raw).filter(|pid| kill_if(*pid, entry)).count();
            if killed == 0 {
                return;
            }
        }
    }

    fn kill_if(pid: Pid, entry: &[u8]) -> bool {
        // The number may be another's by the time of the signal; what is open is not.
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
        if fs::metadata(format!("/proc/{}", pid.as_raw_nonzero())).is_ok_and(|it| it.uid() != geteuid().as_raw()) {
            return false;
        }
        let environment = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|it| it == entry) && pidfd_send_signal(&process, Signal::KILL).is_ok()
    }
}
