//! Registers the programs that this process has started and waits for. Every other child is an orphan: a process that one of them has
//! started, and that was adopted when its parent ended. An orphan that has ended stays a zombie in the process table until it is reaped.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

/// Held for reading while a program is being started, because its process id is not known yet, and for writing while orphans are reaped.
/// Writers only try the lock, so a thread that holds it for reading may lock it for reading again.
static STARTING: RwLock<()> = RwLock::new(());

/// The number of programs with each process id: the kernel may reuse an id before its [`Started`] is dropped.
static STARTED: Mutex<BTreeMap<u32, usize>> = Mutex::new(BTreeMap::new());

/// A program whose status its starter takes. Until this is dropped, the program is not an orphan.
#[derive(Debug)]
#[must_use = "without it the program is taken for an orphan and reaped"]
pub struct Started(u32);

/// Starts and registers a program, so that the reaper of orphans does not take its status. `number` returns its process id.
///
/// ```
/// use callboard_confine::start;
/// use std::process::{Child, Command};
/// let (mut child, started) = start(|| Command::new("true").spawn(), |child| Some(child.id()))?;
/// assert!(child.wait()?.success());
/// drop(started);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// The errors of `spawn`; and a program without a process id.
pub fn start<T>(
    spawn: impl FnOnce() -> io::Result<T>,
    number: impl FnOnce(&T) -> Option<u32>,
) -> io::Result<(T, Started)> {
    while_nothing_is_reaped(|| {
        let child = spawn()?;
        let number = number(&child).ok_or_else(|| io::Error::other("it has ended before it had a number"))?;
        *started().entry(number).or_default() += 1;
        Ok((child, Started(number)))
    })
}

/// Blocks the reaping of orphans while the closure starts programs and waits for them.
pub fn while_nothing_is_reaped<T>(work: impl FnOnce() -> T) -> T {
    let _starting = STARTING.read().unwrap_or_else(PoisonError::into_inner);
    work()
}

/// Calls `reap` with a test for whether a child with this process id is an orphan. `None` while programs are being started, because that
/// is not known then.
pub fn unless_starting<T>(reap: impl FnOnce(&dyn Fn(u32) -> bool) -> T) -> Option<T> {
    let _nothing_starts = STARTING.try_write().ok()?;
    let started = started();
    Some(reap(&|number| !started.contains_key(&number)))
}

/// The first zombie among the children of this process that the kernel finds. It is not reaped.
#[allow(unsafe_code, reason = "a system call")]
pub fn ended_child() -> Option<u32> {
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: all zeros are a value of this structure, which the call writes; it is read as that of a child.
    let (found, number) = unsafe {
        let mut status: libc::siginfo_t = std::mem::zeroed();
        (libc::waitid(libc::P_ALL, 0, &raw mut status, options), status.si_pid())
    };
    (found == 0 && number > 0).then_some(number.cast_unsigned())
}

fn started() -> MutexGuard<'static, BTreeMap<u32, usize>> {
    STARTED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Started {
    fn drop(&mut self) {
        let mut started = started();
        if let Some(count) = started.get_mut(&self.0) {
            *count -= 1;
            if *count == 0 {
                started.remove(&self.0);
            }
        }
    }
}
