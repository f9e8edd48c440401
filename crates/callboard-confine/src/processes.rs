//! Processes that end with their program, whatever they do: in a PID namespace the kernel ends them all with its first process.
//!
//! The program is not that first process, because the kernel keeps signals from it, and it would have to reap what others leave.
//! So there are two more of this package's own: the *keeper*, a child of the process that starts the program, which ends as the
//! program does, and the first process of the namespace, which starts the program, reaps, and ends when the program has ended. Each is
//! killed when its parent ends. Neither runs a program, so they begin with the memory of the process that starts the program, and give back
//! what they do not use of it.

use std::io;
use std::ptr;

use libc::{c_int, c_long, c_uint, pid_t};

use crate::confinement::{done, done_long};
use crate::memory::{self, call};

/// What stands for a status that is not known.
const UNKNOWN: c_int = -1;

/// The last signal, of real time.
const LAST_SIGNAL: c_int = 64;

/// What the kernel takes for the size of a set of signals, in bytes.
const SIGNAL_SET: usize = 8;

/// More than the kernel reads of an action, in words: all zeros are the usual action.
const ACTION: usize = 8;

/// Begins a PID namespace, for children.
#[allow(unsafe_code, reason = "a system call")]
pub(crate) fn separate() -> io::Result<()> {
    // SAFETY: integers alone.
    done(unsafe { libc::unshare(libc::CLONE_NEWPID) })
}

/// After [`separate`]: returns in the program alone, which is a process of it and leads a session of
/// its own. `parent` is the process that starts the program, in the thread that lives as long as the program does.
///
/// Runs in the child, between fork and exec, where there is one thread.
#[allow(unsafe_code, reason = "system calls")]
pub(crate) fn begin(parent: u32) -> io::Result<()> {
    die_with_parent()?;
    // SAFETY: it takes no arguments.
    if unsafe { libc::getppid() }.cast_unsigned() != parent {
        // It has ended before.
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
        keep(first, status, alive[1]);
    }
    begin_namespace(status, alive)
}

/// The keeper: ends as the program has ended.
#[allow(unsafe_code, reason = "system calls")]
fn keep(first: pid_t, status: *const c_int, alive: c_int) -> ! {
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
    // The first process was killed, and the program with it; or the program was.
    let signal = if status == UNKNOWN { libc::SIGKILL } else { libc::WTERMSIG(status) };
    // SAFETY: integers alone.
    unsafe { call(libc::SYS_kill, [call(libc::SYS_getpid, [0; 4]), signal.into(), 0, 0]) };
    exit(128 + signal)
}

/// The first process of the namespace. It returns in the program.
#[allow(unsafe_code, reason = "system calls")]
fn begin_namespace(status: *mut c_int, [ends, alive]: [c_int; 2]) -> io::Result<()> {
    die_with_parent()?;
    // SAFETY: a descriptor that is open.
    done(unsafe { libc::close(alive) })?;
    let mut keeper = libc::pollfd { fd: ends, events: 0, revents: 0 };
    // SAFETY: a structure that lives through the call.
    done(unsafe { libc::poll(&raw mut keeper, 1, 0) })?;
    if keeper.revents & libc::POLLHUP != 0 {
        // The keeper has ended before.
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

/// As `fork`, without what the C library does besides: 0 in the child.
#[allow(unsafe_code, reason = "a system call")]
fn fork() -> io::Result<pid_t> {
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

/// The handlers of the process that starts the program are not for these, nor are signals blocked. The C library keeps some signals to
/// itself and refuses to change them, so the kernel is asked directly.
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

/// These processes run no program, so they have the memory and the environment of the process that starts the program. The kernel writes
/// no dump of them, whatever signal the program has itself ended with, and shows both to no process of the same user.
#[allow(unsafe_code, reason = "a system call")]
fn show_no_memory() {
    // SAFETY: integers alone. It cannot fail.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
}

/// Closes these descriptors, so that nobody waits for the end of what they lead to.
#[allow(unsafe_code, reason = "a system call")]
fn close(first: c_uint, last: c_uint) {
    // SAFETY: integers alone; nothing here uses them any more.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
}

fn is_interrupted() -> bool {
    io::Error::last_os_error().raw_os_error() == Some(libc::EINTR)
}

/// Waits for a child, or for any (-1): its number, or -1.
#[allow(unsafe_code, reason = "a system call")]
fn wait(child: pid_t, ended: &mut c_int) -> pid_t {
    // SAFETY: an integer that lives through the call; what is null is not written.
    unsafe { call(libc::SYS_wait4, [child.into(), &raw mut *ended as c_long, 0, 0]) as pid_t }
}

/// Ends this process, and runs nothing of it.
#[allow(unsafe_code, reason = "a system call")]
pub(crate) fn exit(status: c_int) -> ! {
    loop {
        // SAFETY: an integer.
        unsafe { call(libc::SYS_exit_group, [status.into(), 0, 0, 0]) };
    }
}
