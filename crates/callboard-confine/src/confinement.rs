//! The confinement that a program applies to itself between fork and exec, and that its descendants inherit.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::calls::{done, done_long};
use crate::capabilities::drop_capabilities;
use crate::processes;
use crate::view::{SHARED_MEMORY, View};

/// The confinement of a program. All parts are built before the fork.
#[derive(Debug)]
pub struct Confinement {
    /// The Landlock ruleset that restricts the program. A rule for the view's own shared memory is added to it in the
    /// child.
    pub ruleset: OwnedFd,
    /// Seccomp programs, applied in this order: if several refuse a call, the error of the last one is returned.
    pub filters: Vec<Vec<libc::sock_filter>>,
    /// The capabilities that the program keeps if it has them, as bits by their numbers.
    pub capabilities: u64,
    /// The program's view of the file system; by default that of this process. With a view it is in a PID namespace: its descendants end
    /// with it, and it ends with the thread that starts it.
    pub view: Option<View>,
    /// The accesses that the ruleset allows in the view's own shared memory, as Landlock bits.
    pub in_shared_memory: u64,
    /// The most processes and threads at a time, where the view has its own user namespace, because the kernel counts them per user and
    /// namespace. Otherwise only the limit of the user applies.
    pub processes: u64,
}

/// Applies the confinement to the program before it begins. It cannot gain privileges from then on.
///
/// Call it after [`apart`](crate::apart), which makes system calls that a filter may refuse. A step that fails in the child is the
/// error of [`Command::spawn`], and the program does not run.
#[allow(unsafe_code, reason = "a hook between fork and exec")]
pub fn confined(command: &mut Command, mut confinement: Confinement) -> &mut Command {
    let parent = std::process::id();
    // SAFETY: `take_on` makes only system calls, on memory that was allocated before the fork; it neither allocates nor takes a
    // lock, so it may run in the child of a process with several threads.
    unsafe { command.pre_exec(move || confinement.take_on(parent)) }
}

impl Confinement {
    fn take_on(&mut self, parent: u32) -> io::Result<()> {
        // Before Landlock, which forbids mounts.
        if let Some(view) = &mut self.view {
            view.mount()?;
            processes::separate()?;
            if view.has_user_namespace() {
                limit_processes(self.processes)?;
            }
            if view.has_shared_memory() {
                self.allow_shared_memory()?;
            }
        }
        drop_capabilities(self.capabilities)?;
        if self.view.is_some() {
            processes::begin(parent)?;
        }
        self.restrict()
    }

    /// The folder of shared memory did not exist when the ruleset was built.
    #[allow(unsafe_code, reason = "system calls")]
    fn allow_shared_memory(&self) -> io::Result<()> {
        // SAFETY: a path that lives through the call. Exec closes the descriptor.
        let folder = unsafe { libc::open(SHARED_MEMORY.as_ptr(), libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC) };
        done(folder)?;
        let rule = PathBeneath { allowed: self.in_shared_memory, folder };
        let (call, ruleset) = (libc::SYS_landlock_add_rule, self.ruleset.as_raw_fd());
        // SAFETY: a descriptor that is open, and a rule of the kind that is named, which lives through the call.
        done_long(unsafe { libc::syscall(call, ruleset, PATH_BENEATH, &raw const rule, 0) })
    }

    #[allow(unsafe_code, reason = "system calls")]
    fn restrict(&self) -> io::Result<()> {
        // SAFETY: integers alone.
        done(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
        // SAFETY: a descriptor that is open, and flags.
        done_long(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, self.ruleset.as_raw_fd(), 0) })?;
        for filter in &self.filters {
            let length = u16::try_from(filter.len()).map_err(|_| io::Error::from_raw_os_error(libc::E2BIG))?;
            let program = libc::sock_fprog { len: length, filter: filter.as_ptr().cast_mut() };
            // SAFETY: the program lives through the call, with as many instructions as it names; the kernel only reads them.
            done_long(unsafe {
                libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program)
            })?;
        }
        Ok(())
    }
}

/// Limits the processes of a user namespace that was just created, so that only its own are counted.
#[allow(unsafe_code, reason = "system calls")]
fn limit_processes(most: u64) -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a value that lives through the call.
    done(unsafe { libc::getrlimit(libc::RLIMIT_NPROC, &raw mut limit) })?;
    let most = most.min(limit.rlim_max);
    let limit = libc::rlimit { rlim_cur: most.min(limit.rlim_cur), rlim_max: most };
    // SAFETY: the pointer is to a value that lives through the call.
    done(unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit) })
}

/// `LANDLOCK_RULE_PATH_BENEATH`: the kind of a rule about a folder and all that is below it.
const PATH_BENEATH: libc::c_int = 1;

/// A rule of this kind.
#[repr(C, packed)]
struct PathBeneath {
    allowed: u64,
    folder: libc::c_int,
}
