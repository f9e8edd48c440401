//! Finds processes that have left the group of their program, by a variable of their environment and, on Linux, by a number that
//! they cannot change if they are confined: their limit of resident memory, which the kernel ignores otherwise.

use std::process::Command;

/// The variable with a unique value for each started program.
pub(crate) const MARK: &str = "CALLBOARD_PROCESS";

/// The variable with the same value for all tries of a command on a board, by which the next try finds the processes of an
/// earlier one.
#[cfg(feature = "shell")]
pub(crate) const KEY: &str = "CALLBOARD_KEY";

/// Marks a program, so that its processes are found by these values of [`MARK`] and of `KEY`. To be called before the program is
/// confined.
pub(crate) fn mark(command: &mut Command, mark: &str, key: Option<&str>) {
    command.env(MARK, mark);
    #[cfg(feature = "shell")]
    command.envs(key.map(|key| (KEY, key)));
    #[cfg(target_os = "linux")]
    linux::mark(command, mark, key);
    #[cfg(not(all(target_os = "linux", feature = "shell")))]
    let _ = key;
}

/// Kills all processes with this value of the variable, or its number, and those that they start meanwhile. Processes of another
/// user are not found, nor any where there is no `/proc`. Blocks.
pub(crate) fn kill(variable: &str, value: &str) {
    #[cfg(target_os = "linux")]
    linux::kill(variable, value);
    #[cfg(not(target_os = "linux"))]
    let _ = (variable, value);
}

/// Whether an agent or a tool of a board has started this process, or a process that has: by a number that it cannot change if it is
/// confined, whatever its environment is. If the board itself had a limit of resident memory, there is no number, and this is false.
///
/// ```
/// assert!(!callboard_agents::is_program_of_board());
/// ```
#[cfg(target_os = "linux")]
#[must_use]
pub fn is_program_of_board() -> bool {
    linux::is_marked()
}

/// Whether a process has a mount at this path, or may have one that cannot be read: processes of a killed board may.
#[cfg(all(target_os = "linux", feature = "shell"))]
pub(crate) fn has_mount(place: &std::path::Path) -> bool {
    linux::pids().any(|pid| linux::has_mount(pid, place))
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    #[cfg(feature = "shell")]
    use std::io;
    use std::os::unix::fs::MetadataExt as _;
    #[cfg(feature = "shell")]
    use std::path::Path;
    use std::process::Command;

    use callboard_confine::{Marks, marked};
    use rustix::process::{Pid, PidfdFlags, Resource, Signal, geteuid, getrlimit, pidfd_open, pidfd_send_signal};
    use xxhash_rust::xxh3::xxh3_64;

    use super::MARK;

    /// How often processes are searched again, because more may have been started meanwhile.
    const LOOKS: usize = 20;

    /// The numbers of programs have this bit, which puts them above all other numbers and above any real limit.
    const OF_PROGRAM: u64 = 1 << 62;

    pub(super) fn mark(command: &mut Command, mark: &str, key: Option<&str>) {
        let hard = number(mark) | OF_PROGRAM;
        marked(command, Marks { soft: key.map_or(hard, number), hard });
    }

    /// A number below those of programs, and above any real limit.
    fn number(value: &str) -> u64 {
        xxh3_64(value.as_bytes()) & (OF_PROGRAM - 1) | OF_PROGRAM >> 1
    }

    pub(super) fn kill(variable: &str, value: &str) {
        let entry = format!("{variable}={value}");
        let has_number = |(soft, hard): (u64, u64)| match variable {
            MARK => hard == number(value) | OF_PROGRAM,
            // Only for programs, whatever limits other processes have.
            _ => soft == number(value) && is_of_program(hard),
        };
        for _ in 0..LOOKS {
            let killed = pids().filter(|pid| kill_if(*pid, entry.as_bytes(), has_number)).count();
            if killed == 0 {
                return;
            }
        }
    }

    pub(super) fn pids() -> impl Iterator<Item = Pid> {
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        processes.filter_map(|process| Pid::from_raw(process.file_name().to_str()?.parse().ok()?))
    }

    pub(super) fn is_marked() -> bool {
        getrlimit(Resource::Rss).maximum.is_some_and(is_of_program)
    }

    fn is_of_program(hard: u64) -> bool {
        hard / OF_PROGRAM == 1
    }

    #[cfg(feature = "shell")]
    pub(super) fn has_mount(pid: Pid, place: &Path) -> bool {
        match fs::read(file(pid, "mountinfo")) {
            Ok(mounts) => mounts.split(|byte| *byte == b'\n').any(|mount| is_at(mount, place)),
            // A process that has ended has no mounts.
            Err(error) => {
                error.kind() == io::ErrorKind::PermissionDenied
                    && limits(pid).is_some_and(|(_, hard)| is_of_program(hard))
            }
        }
    }

    /// Whether a line of a list of mounts is about this path. The kernel writes white space and backslashes in octal.
    #[cfg(feature = "shell")]
    fn is_at(mount: &[u8], place: &Path) -> bool {
        use std::os::unix::ffi::OsStrExt as _;

        let Some(written) = mount.split(|byte| *byte == b' ').nth(4) else { return false };
        let mut expected = Vec::new();
        for byte in place.as_os_str().as_bytes() {
            match byte {
                b' ' | b'\t' | b'\n' | b'\\' => expected.extend(format!("\\{byte:03o}").bytes()),
                byte => expected.push(*byte),
            }
        }
        written == expected
    }

    fn file(pid: Pid, name: &str) -> String {
        format!("/proc/{}/{name}", pid.as_raw_nonzero())
    }

    /// Limits are readable also of processes whose memory, and so whose environment, is not.
    fn limits(pid: Pid) -> Option<(u64, u64)> {
        resident(&fs::read_to_string(file(pid, "limits")).ok()?)
    }

    fn kill_if(pid: Pid, entry: &[u8], has_number: impl Fn((u64, u64)) -> bool) -> bool {
        // The process id may be reused before the signal; the open descriptor is not.
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
        let has_entry = || {
            fs::metadata(file(pid, "")).is_ok_and(|it| it.uid() == geteuid().as_raw())
                && fs::read(file(pid, "environ")).unwrap_or_default().split(|byte| *byte == 0).any(|it| it == entry)
        };
        (has_entry() || limits(pid).is_some_and(has_number)) && pidfd_send_signal(&process, Signal::KILL).is_ok()
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
