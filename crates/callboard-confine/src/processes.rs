//! Descendants that end with their program, whatever they do: in a PID namespace the kernel kills all processes with the first one.
//!
//! The program is not that first process, because the kernel withholds signals from it, and it would have to reap orphans. So there are
//! two processes of this package: the *monitor*, a child of the process that starts the program, which ends with the program's status,
//! and the first process of the namespace, which starts the program, reaps, and ends when the program has ended. Each is killed when its
//! parent ends. Neither executes a program, so both begin with the memory of the process that starts the program, and release what they
//! do not use of it.

use std::io;
use std::ptr;

use libc::{c_int, c_long, c_uint, pid_t};

use crate::calls::{done, done_long};
use crate::memory::{self, call};

/// The status before the program has ended.
const UNKNOWN: c_int = -1;

/// The number of the last signal, a real-time one.
const LAST_SIGNAL: c_int = 64;

/// The size of a signal set in the kernel, in bytes.
const SIGNAL_SET: usize = 8;

/// At least the size of the kernel's `sigaction`, in words: all zeros are the default action.
const ACTION: usize = 8;

/// Creates a PID namespace for the children of this process.
#[allow(unsafe_code, reason = "a system call")]
pub(crate) fn separate() -> io::Result<()> {
    // SAFETY: integers alone.
    done(unsafe { libc::unshare(libc::CLONE_NEWPID) })
}

/// Starts the monitor and the first process, after [`separate`]. Returns only in the program, which is in the namespace and leads its own
/// session. `parent` is the process that starts the program, on a thread that lives as long as the program.
///
/// Runs in the child, between fork and exec, where there is one thread.
#[allow(unsafe_code, reason = "system calls")]
pub(crate) fn begin(parent: u32) -> io::Result<()> {
    die_with_parent()?;
    // SAFETY: it takes no arguments.
    if unsafe { libc::getppid() }.cast_unsigned() != parent {
        // The parent ended before the death signal was set.
        exit(1);
    }
    let (shared, private) = (libc::MAP_SHARED | libc::MAP_ANONYMOUS, libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: memory of its own, of the size of what is written there.
    let status = unsafe { libc::mmap(ptr::null_mut(), size_of::<c_int>(), private, shared, -1, 0) };
    if status == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let status = status.cast::<c_int>();
    // SAFETY: memory that was just mapped, and is aligned to a page.
    unsafe { status.write_volatile(UNKNOWN) };
    let mut alive = [-1; 2];
    // SAFETY: two integers that live through the call.
    done(unsafe { libc::pipe2(alive.as_mut_ptr(), libc::O_CLOEXEC) })?;
    let first = fork()?;
    if first != 0 {
        monitor(first, status, alive[1]);
    }
    begin_namespace(status, alive)
}

/// The monitor: ends with the status or the signal of the program.
#[allow(unsafe_code, reason = "system calls")]
fn monitor(first: pid_t, status: *const c_int, alive: c_int) -> ! {
    let alive = alive.cast_unsigned();
    close(0, alive - 1);
    close(alive + 1, c_uint::MAX);
    forget_handlers();
    show_no_memory();
    memory::release();
    let mut ended = 0;
    while wait(first, &mut ended) == -1 && is_interrupted() {}
    // SAFETY: memory that stays mapped; the process that wrote there has ended.
    let status = unsafe { status.read_volatile() };
    if status != UNKNOWN && libc::WIFEXITED(status) {
        exit(libc::WEXITSTATUS(status));
    }
    // The first process was killed, and the program with it, or only the program.
    let signal = if status == UNKNOWN { libc::SIGKILL } else { libc::WTERMSIG(status) };
    // SAFETY: integers alone.
    unsafe { call(libc::SYS_kill, [call(libc::SYS_getpid, [0; 4]), signal.into(), 0, 0]) };
    exit(128 + signal)
}

/// The first process of the namespace. Returns only in the program.
#[allow(unsafe_code, reason = "system calls")]
fn begin_namespace(status: *mut c_int, [ends, alive]: [c_int; 2]) -> io::Result<()> {
    die_with_parent()?;
    // SAFETY: a descriptor that is open.
    done(unsafe { libc::close(alive) })?;
    let mut monitor = libc::pollfd { fd: ends, events: 0, revents: 0 };
    // SAFETY: a structure that lives through the call.
    done(unsafe { libc::poll(&raw mut monitor, 1, 0) })?;
    if monitor.revents & libc::POLLHUP != 0 {
        // The monitor ended before the death signal was set.
        exit(1);
    }
    let program = fork()?;
    if program == 0 {
        // SAFETY: it takes no arguments.
        return if unsafe { libc::setsid() } == -1 { Err(io::Error::last_os_error()) } else { Ok(()) };
    }
    close(0, c_uint::MAX);
    forget_handlers();
    show_no_memory();
    memory::release();
    loop {
        let mut ended = 0;
        let pid = wait(-1, &mut ended);
        if pid == program {
            // SAFETY: memory that stays mapped.
            unsafe { status.write_volatile(ended) };
            exit(0);
        }
        if pid == -1 && !is_interrupted() {
            exit(1);
        }
    }
}

/// `fork` as a plain system call, without the handlers of the C library; 0 in the child.
#[allow(unsafe_code, reason = "a system call")]
pub(crate) fn fork() -> io::Result<pid_t> {
    // SAFETY: the child has a copy of this thread, its stack included, and no other thread's lock is taken between fork and exec.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::c_long::from(libc::SIGCHLD), 0, 0, 0, 0) };
    done_long(pid)?;
    Ok(pid as pid_t)
}

#[allow(unsafe_code, reason = "a system call")]
fn die_with_parent() -> io::Result<()> {
    // SAFETY: integers alone.
    done(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) })
}

/// Resets all signal handlers to the default, and unblocks all signals. By system calls, because the C library refuses to change the
/// signals that it reserves for itself.
#[allow(unsafe_code, reason = "system calls")]
fn forget_handlers() {
    let usual = [0_u64; ACTION];
    for signal in 1..=LAST_SIGNAL {
        let call = libc::SYS_rt_sigaction;
        // SAFETY: an action that lives through the call; a signal that has no other one is an error that changes nothing.
        unsafe { libc::syscall(call, signal, usual.as_ptr(), ptr::null_mut::<u64>(), SIGNAL_SET) };
    }
    let (call, none) = (libc::SYS_rt_sigprocmask, 0_u64);
    // SAFETY: a set of this size that lives through the call.
    unsafe { libc::syscall(call, libc::SIG_SETMASK, &raw const none, ptr::null_mut::<u64>(), SIGNAL_SET) };
}

/// Makes this process not dumpable. It has the memory and the environment of the process that starts the program: the kernel then writes
/// no core dump of it, and hides both from other processes of the same user.
#[allow(unsafe_code, reason = "a system call")]
fn show_no_memory() {
    // SAFETY: integers alone. It cannot fail.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
}

/// Closes these descriptors, so that their other ends see the end of the stream.
#[allow(unsafe_code, reason = "a system call")]
fn close(first: c_uint, last: c_uint) {
    // SAFETY: integers alone; nothing here uses them any more.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
}

fn is_interrupted() -> bool {
    io::Error::last_os_error().raw_os_error() == Some(libc::EINTR)
}

/// Waits for a child, or for any (-1); returns its process id, or -1.
#[allow(unsafe_code, reason = "a system call")]
pub(crate) fn wait(child: pid_t, ended: &mut c_int) -> pid_t {
    // SAFETY: an integer that lives through the call; what is null is not written.
    unsafe { call(libc::SYS_wait4, [child.into(), &raw mut *ended as c_long, 0, 0]) as pid_t }
}

/// Ends this process without running exit handlers.
#[allow(unsafe_code, reason = "a system call")]
pub(crate) fn exit(status: c_int) -> ! {
    loop {
        // SAFETY: an integer.
        unsafe { call(libc::SYS_exit_group, [status.into(), 0, 0, 0]) };
    }
}
