//! Processes that have left the group of the program that started them, found by a variable of their environment and, on Linux, by a
//! number that they cannot change if they are confined: their limit of resident memory, which the kernel ignores otherwise.

use std::process::Command;

/// The variable with a value of its own for each program that is started.
pub(in crate::agents) const MARK: &str = "CALLBOARD_PROCESS";

/// The variable that is the same for all tries of a command on a board, by which what a try has left is found by the next one.
#[cfg(feature = "shell")]
pub(in crate::agents) const KEY: &str = "CALLBOARD_KEY";

/// Has what the program leaves found by these values of [`MARK`] and of `KEY`. Call it before the program is confined.
pub(in crate::agents) fn mark(command: &mut Command, mark: &str, key: Option<&str>) {
    command.env(MARK, mark);
    #[cfg(feature = "shell")]
    command.envs(key.map(|key| (KEY, key)));
    #[cfg(target_os = "linux")]
    linux::mark(command, mark, key);
    #[cfg(not(all(target_os = "linux", feature = "shell")))]
    let _ = key;
}

/// Ends all processes that have a variable with this value, or its number, and those that they start meanwhile. One that belongs to
/// another user is not found; nor is any where the system has no `/proc`. It blocks.
pub(in crate::agents) fn kill(variable: &str, value: &str) {
    #[cfg(target_os = "linux")]
    linux::kill(variable, value);
    #[cfg(not(target_os = "linux"))]
    let _ = (variable, value);
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;
    use std::process::Command;

    use callboard_confine::{Marks, marked};
    use rustix::process::{Pid, PidfdFlags, Signal, geteuid, pidfd_open, pidfd_send_signal};
    use xxhash_rust::xxh3::xxh3_64;

    use super::MARK;

    /// How often it is looked again for what has been started meanwhile.
    const LOOKS: usize = 20;

    /// Numbers of programs have this bit, so that they are above all others, and above what any machine has.
    const OF_PROGRAM: u64 = 1 << 62;

    pub(super) fn mark(command: &mut Command, mark: &str, key: Option<&str>) {
        let hard = number(mark) | OF_PROGRAM;
        marked(command, Marks { soft: key.map_or(hard, number), hard });
    }

    /// A number below those of programs, and above what any machine has.
    fn number(value: &str) -> u64 {
        xxh3_64(value.as_bytes()) & (OF_PROGRAM - 1) | OF_PROGRAM >> 1
    }

    pub(super) fn kill(variable: &str, value: &str) {
        let entry = format!("{variable}={value}");
        let has_number = |(soft, hard): (u64, u64)| match variable {
            MARK => hard == number(value) | OF_PROGRAM,
            // Of programs alone, whatever others have for a limit.
            _ => soft == number(value) && hard / OF_PROGRAM == 1,
        };
        for _ in 0..LOOKS {
            let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
            let pids = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
            let killed =
                pids.filter_map(Pid::from_raw).filter(|pid| kill_if(*pid, entry.as_bytes(), has_number)).count();
            if killed == 0 {
                return;
            }
        }
    }

    fn kill_if(pid: Pid, entry: &[u8], has_number: impl Fn((u64, u64)) -> bool) -> bool {
        // The number may be another's by the time of the signal; what is open is not.
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
        let file = |name: &str| format!("/proc/{}/{name}", pid.as_raw_nonzero());
        let has_entry = || {
            fs::metadata(file("")).is_ok_and(|it| it.uid() == geteuid().as_raw())
                && fs::read(file("environ")).unwrap_or_default().split(|byte| *byte == 0).any(|it| it == entry)
        };
        // It is readable also of those whose memory is not, to which the environment belongs.
        let limits = || fs::read_to_string(file("limits")).ok().and_then(|limits| resident(&limits));
        (has_entry() || limits().is_some_and(has_number)) && pidfd_send_signal(&process, Signal::KILL).is_ok()
    }

    /// The soft and the hard limit of resident memory.
    fn resident(limits: &str) -> Option<(u64, u64)> {
        let line = limits.lines().find_map(|line| line.strip_prefix("Max resident set"))?;
        let mut words = line.split_whitespace().map(|word| word.parse().unwrap_or(u64::MAX));
        Some((words.next()?, words.next()?))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn the_limits_of_a_process_are_read_as_the_kernel_writes_them() {
            let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                          Max resident set          unlimited            4711                 bytes     \n";
            assert_eq!(resident(limits), Some((u64::MAX, 4_711)));
            assert_eq!(resident(""), None);
            assert!(resident(&fs::read_to_string("/proc/self/limits").unwrap()).is_some());
        }
    }
}
