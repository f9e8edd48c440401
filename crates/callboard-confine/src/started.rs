//! The programs whose status this process still takes. Every other child is an orphan: a process that one of them has started, and
//! that was adopted when its parent ended. Its status is taken by nobody, so it stays a zombie, in a table that all processes of the
//! machine share, until somebody reaps it.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

/// Held for reading while a program is being started, whose number is not known yet, and for writing while orphans are reaped. Nobody
/// waits to write, so a thread that reads may read again.
static STARTING: RwLock<()> = RwLock::new(());

/// How many have each number: one is given back by the kernel before its [`Started`] is dropped.
static STARTED: Mutex<BTreeMap<u32, usize>> = Mutex::new(BTreeMap::new());

/// A program whose status is still to be taken, or is being taken; until this is dropped.
#[derive(Debug)]
#[must_use = "its status may be taken by whoever reaps orphans"]
pub struct Started(u32);

/// Starts a program whose status is its starter's: whoever reaps orphans leaves it alone. `number` is its process id.
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
/// Those of `spawn`, and a program without a number.
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

/// For what starts programs and waits for them by itself.
pub fn while_nothing_is_reaped<T>(work: impl FnOnce() -> T) -> T {
    let _starting = STARTING.read().unwrap_or_else(PoisonError::into_inner);
    work()
}

/// For whoever reaps orphans: calls `reap` with a test whether a child of this number is one. `None` while programs are being
/// started, because it is not known then.
pub fn unless_starting<T>(reap: impl FnOnce(&dyn Fn(u32) -> bool) -> T) -> Option<T> {
    let _nothing_starts = STARTING.try_write().ok()?;
    let started = started();
    Some(reap(&|number| !started.contains_key(&number)))
}

/// A child of this process that has ended and whose status nobody has taken, the first that the kernel finds; its status stays.
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
