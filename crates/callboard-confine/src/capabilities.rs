//! Drops capabilities of a process.

use std::io;

use crate::calls::{done, done_long};

/// The number of the last capability that a kernel may have: capabilities are bits of a word.
const LAST_CAPABILITY: u32 = 63;

/// The values of `capset` for "this thread" and "version 3" (two words for each set).
const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

/// One word of each set; an array of two has the lower and the upper capabilities.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Sets {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Drops all other capabilities of this thread, also from the bounding set, so that a program run as root does not regain them.
#[allow(unsafe_code, reason = "system calls")]
pub(crate) fn drop_capabilities(kept: u64) -> io::Result<()> {
    let header = [CAPABILITY_VERSION_3, 0];
    let mut held = [Sets::default(); 2];
    // SAFETY: the header and both words of the sets live through the call.
    done_long(unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), held.as_mut_ptr()) })?;
    const SETPCAP: u32 = 8;
    // Without this capability the bounding set cannot be changed; a program run as root then still gains no more than is permitted
    // here, because of `no_new_privs`.
    if held[0].effective & 1 << SETPCAP != 0 {
        for number in (0..=LAST_CAPABILITY).filter(|number| kept & 1 << number == 0) {
            // SAFETY: integers alone.
            match done(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0) }) {
                // The kernel has no further capabilities.
                Err(error) if error.raw_os_error() != Some(libc::EINVAL) => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
    }
    // SAFETY: integers alone.
    done(unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) })?;
    let left = |held: Sets, kept: u32| {
        let left = held.permitted & kept;
        Sets { effective: left, permitted: left, inheritable: 0 }
    };
    let left = [left(held[0], kept as u32), left(held[1], (kept >> 32) as u32)];
    // SAFETY: the header and both words of the sets live through the call.
    done_long(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), left.as_ptr()) })
}
