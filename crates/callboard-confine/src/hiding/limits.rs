//! What the program may not do to processes outside.

use std::ffi::CStr;
use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};

use libc::{c_int, c_long};

use crate::calls::done_long;
use crate::mounts::write;

/// The namespaces of each of these kinds that a program may create: enough for sandboxes of its own, and too few to leave none for others.
const NAMESPACES: [&CStr; 3] =
    [c"/proc/sys/user/max_user_namespaces", c"/proc/sys/user/max_mnt_namespaces", c"/proc/sys/user/max_pid_namespaces"];

/// Limits the namespaces that are created in the one of this process.
pub(super) fn limit_namespaces() -> io::Result<()> {
    NAMESPACES.iter().try_for_each(|limit| write(limit, b"64"))
}

/// Refuses changes of the resource limits of other processes, which the kernel allows between processes of one user: by them a process can
/// be ended, or kept from opening files. Its own limits and those that it reads are left.
#[allow(unsafe_code, reason = "a system call")]
pub(super) fn refuse_limits_of_others() -> io::Result<()> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const EQUALS: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    /// `prlimit64` in the interface for 32-bit programs of x86.
    const OF_I386: u32 = 340;
    /// The bit of the interface with 32-bit addresses on x86-64.
    const WITHOUT_X32: u32 = !0x4000_0000;
    // The fields of `seccomp_data`, in little-endian order: the number, and the lower and upper words of arguments.
    const NUMBER: u32 = 0;
    const PROCESS: u32 = 16;
    const NEW_LIMIT: [u32; 2] = [32, 36];
    let step = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
    let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    let program = [
        step(LOAD, NUMBER, 0, 0),
        step(AND, WITHOUT_X32, 0, 0),
        step(EQUALS, libc::SYS_prlimit64 as u32, 1, 0),
        step(EQUALS, OF_I386, 0, 7),
        step(LOAD, PROCESS, 0, 0),
        step(EQUALS, 0, 5, 0),
        step(LOAD, NEW_LIMIT[0], 0, 0),
        step(EQUALS, 0, 0, 2),
        step(LOAD, NEW_LIMIT[1], 0, 0),
        step(EQUALS, 0, 1, 0),
        step(RETURN, refused, 0, 0),
        step(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    // SAFETY: the program lives through the call, with as many instructions as it names; the kernel only reads them.
    done_long(unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) })
}

/// A ruleset that restricts signals and abstract sockets to the program and what it starts; `None` before Linux 6.12.
#[allow(unsafe_code, reason = "a system call")]
pub(super) fn scopes() -> io::Result<Option<OwnedFd>> {
    /// The argument of `landlock_create_ruleset`.
    #[repr(C)]
    struct Attributes {
        files: u64,
        network: u64,
        scoped: u64,
    }
    const ABSTRACT_SOCKETS: u64 = 1;
    const SIGNALS: u64 = 2;
    let attributes = Attributes { files: 0, network: 0, scoped: ABSTRACT_SOCKETS | SIGNALS };
    let (call, size) = (libc::SYS_landlock_create_ruleset, size_of::<Attributes>() as c_long);
    // SAFETY: attributes of this size, which live through the call.
    let ruleset = unsafe { libc::syscall(call, &raw const attributes, size, 0) };
    match done_long(ruleset) {
        // SAFETY: a descriptor that is open, and that nothing else has.
        Ok(()) => Ok(Some(unsafe { OwnedFd::from_raw_fd(ruleset as c_int) })),
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOSYS | libc::EOPNOTSUPP | libc::E2BIG | libc::EINVAL | libc::ENOMSG) => Ok(None),
            _ => Err(error),
        },
    }
}
