//! Starts programs apart from the process that starts them: in a session of their own, so without a controlling terminal, and
//! without descriptors that were not meant for them.
//!
//! A program in the session of its parent can type into the parent's terminal (`TIOCSTI`) or take the keyboard
//! (`tcsetpgrp`), and so answer questions that are put to a person. A descriptor above 2 that was opened without
//! close-on-exec by any library of the process is inherited, whatever the program may open itself.
//!
//! A session alone is not a security boundary: a program of the same user that is not confined can trace its parent, or open the
//! terminal by its path. On Linux [`confined`] also applies a [`Confinement`]: Landlock, seccomp, no capabilities, and a view of the file
//! system that is read-only except for what is named. With a view the program is also in its own PID namespace, so that it ends with all
//! processes that it has started, and with the process that started it.
//!
//! The package holds the only `unsafe` code of callboard. What runs between fork and exec allocates nothing, takes no lock and makes
//! only calls that are async-signal-safe.

#![cfg(unix)]

#[cfg(target_os = "linux")]
mod calls;
#[cfg(target_os = "linux")]
mod capabilities;
mod children;
#[cfg(target_os = "linux")]
mod confinement;
#[cfg(target_os = "linux")]
mod hiding;
#[cfg(target_os = "linux")]
mod identity;
mod inherited;
#[cfg(target_os = "linux")]
mod memory;
#[cfg(target_os = "linux")]
mod mounts;
#[cfg(target_os = "linux")]
mod processes;
mod started;
#[cfg(target_os = "linux")]
mod view;

#[cfg(target_os = "linux")]
pub use confinement::{Confinement, confined};
#[cfg(target_os = "linux")]
pub use hiding::{Hiding, forbid_inspection, hidden};
#[cfg(target_os = "linux")]
pub use view::{Pin, View};

pub use children::{children, is_child};
pub use inherited::{inherited, inherits};
pub use started::{Started, ended_child, start, unless_starting, while_nothing_is_reaped};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

#[cfg(target_os = "linux")]
use calls::done;

/// Whether a program may dump core when it crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoreDumps {
    /// The limit of this process (`RLIMIT_CORE`) applies.
    Inherited,
    /// No core dumps: the kernel would write one, or pass it to another program, whatever the confinement lets the program write.
    Forbidden,
}

/// Starts the program in its own session, without a controlling terminal, and lets it inherit only its standard streams, and what
/// [`inherits`] passes. It leads a
/// process group, so `kill(-pid)` reaches it and the processes that it starts, unless these leave the group.
///
/// Do not also set [`process_group`](std::os::unix::process::CommandExt::process_group): a group leader cannot create a session, so the
/// start would fail.
///
/// ```
/// use callboard_confine::{CoreDumps, apart};
/// use std::process::Command;
///
/// // Field 6 of `stat` is the session: its own.
/// let mut shell = Command::new("sh");
/// shell.args(["-c", "set -- $(cat /proc/$$/stat 2>/dev/null || echo $$ - - - - $$); test $6 = $$"]);
/// assert!(apart(&mut shell, CoreDumps::Forbidden).status().unwrap().success());
/// ```
///
/// A step that fails in the child is the error of [`Command::spawn`].
#[allow(unsafe_code, reason = "a hook between fork and exec")]
pub fn apart(command: &mut Command, core_dumps: CoreDumps) -> &mut Command {
    // SAFETY: the closure owns a `Copy` value, and `separate` makes only async-signal-safe calls: it neither allocates nor
    // takes a lock, so it may run in the child of a process with several threads.
    unsafe { command.pre_exec(move || separate(core_dumps)) }
}

/// Numbers by which a program and all its descendants can be found. They are its limits of resident memory (`RLIMIT_RSS`), which Linux
/// has ignored since version 2.4.30 and which every process can read in `/proc/PID/limits`, whatever the program does to its environment
/// or to the access to its memory. A [`Confinement`] has to refuse changes of that limit.
#[cfg(target_os = "linux")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// The soft limit, at most `hard`.
    pub soft: u64,
    /// The hard limit, which a program without privileges cannot raise.
    pub hard: u64,
}

/// Starts the program with these marks, unless its limit of resident memory is set already.
///
/// Call it before [`confined`].
///
/// ```
/// use callboard_confine::{Marks, marked};
/// use std::process::Command;
///
/// let mut shell = Command::new("sh");
/// shell.args(["-c", "grep resident /proc/$$/limits"]);
/// let output = marked(&mut shell, Marks { soft: 4_711, hard: 4_712 }).output().unwrap();
/// let words: Vec<_> = output.stdout.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect();
/// assert_eq!(words[3..5], [b"4711", b"4712"]);
/// ```
#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "a hook between fork and exec")]
pub fn marked(command: &mut Command, marks: Marks) -> &mut Command {
    // SAFETY: the closure owns a `Copy` value, and `mark` makes only system calls: it neither allocates nor takes a lock, so it may
    // run in the child of a process with several threads.
    unsafe { command.pre_exec(move || mark(marks)) }
}

/// Runs in the child, between fork and exec.
#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "system calls")]
fn mark(marks: Marks) -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a value that lives through the call.
    done(unsafe { libc::getrlimit(libc::RLIMIT_RSS, &raw mut limit) })?;
    if limit.rlim_max != libc::RLIM_INFINITY {
        return Ok(());
    }
    let limit = libc::rlimit { rlim_cur: marks.soft, rlim_max: marks.hard };
    // SAFETY: the pointer is to a value that lives through the call.
    done(unsafe { libc::setrlimit(libc::RLIMIT_RSS, &raw const limit) })
}

/// Runs in the child, between fork and exec.
#[allow(unsafe_code, reason = "system calls")]
fn separate(core_dumps: CoreDumps) -> io::Result<()> {
    // SAFETY: it takes no arguments.
    if unsafe { libc::setsid() } == -1 {
        return Err(io::Error::last_os_error());
    }
    if core_dumps == CoreDumps::Forbidden {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the pointer is to a value that lives through the call.
        if unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) } == -1 {
            return Err(io::Error::last_os_error());
        }
    }
    keep_only_standard_streams()
}

/// Has exec close every descriptor above 2. They are not closed at once: the standard library reports a failed exec through one.
#[allow(unsafe_code, reason = "system calls")]
fn keep_only_standard_streams() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: three integers; no memory is passed.
        let all = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
        if all == 0 {
            return Ok(());
        }
    }
    // Before Linux 5.11, and elsewhere: one by one, up to the limit.
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a value that lives through the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == -1 {
        return Err(io::Error::last_os_error());
    }
    let end = libc::c_int::try_from(limit.rlim_cur).unwrap_or(libc::c_int::MAX);
    for descriptor in 3..end {
        // SAFETY: integers; a descriptor that is not open is an error that changes nothing.
        unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    Ok(())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::fs::File;
    use std::os::fd::{AsRawFd as _, IntoRawFd as _};
    use std::process::Stdio;

    use super::*;

    fn output(command: &mut Command) -> String {
        let output = command.stdin(Stdio::null()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    fn shell(line: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", line]);
        shell
    }

    /// A descriptor that is inherited, as one that a library opened without close-on-exec.
    #[allow(unsafe_code, reason = "the standard library opens none without close-on-exec")]
    fn inherited() -> libc::c_int {
        let file = File::open("/proc/self/status").unwrap();
        // SAFETY: the descriptor is open.
        assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFD, 0) }, 0);
        file.into_raw_fd()
    }

    #[test]
    fn a_program_has_a_session_of_its_own_and_no_terminal() {
        let line = "set -- $(cat /proc/$$/stat); echo $6 $7 $$; (: < /dev/tty) 2>/dev/null || echo no terminal";
        let printed = output(apart(&mut shell(line), CoreDumps::Inherited));
        let words: Vec<_> = printed.split_whitespace().collect();
        assert_eq!((words[0], words[1], &words[3..]), (words[2], "0", &["no", "terminal"][..]), "{printed}");
    }

    #[test]
    fn only_the_standard_streams_are_inherited() {
        let descriptor = inherited();
        let line = format!("test -e /proc/self/fd/{descriptor} && echo open");
        assert_eq!(output(&mut shell(&line)), "open\n", "else the test shows nothing");
        assert_eq!(output(apart(&mut shell(&line), CoreDumps::Inherited)), "");
    }

    #[test]
    fn core_dumps_are_forbidden_where_that_was_asked_for() {
        let limits = |dumps| output(apart(&mut shell("ulimit -Hc"), dumps));
        assert_eq!(limits(CoreDumps::Forbidden), "0\n");
        assert_eq!(limits(CoreDumps::Inherited), output(&mut shell("ulimit -Hc")));
    }

    #[test]
    fn a_program_that_is_not_there_is_still_an_error_of_the_start() {
        let error = apart(&mut Command::new("/nonexistent"), CoreDumps::Forbidden).spawn().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
