//! The capabilities of a confined command: none, or those over files of other users.

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, remove_capability_from_bounding_set,
    set_capabilities,
};

use super::super::Kept;

/// The number of the last capability that a kernel may have: they are bits of a word.
const LAST: u32 = 63;

/// Drops the capabilities of this thread, and the means to get them back by running a program as root.
///
/// # Errors
/// Why they could not be dropped.
pub(super) fn drop_all(kept: Kept) -> Result<(), String> {
    let kept = match kept {
        Kept::Nothing => CapabilitySet::empty(),
        Kept::FilesOfOthers => CapabilitySet::CHOWN | CapabilitySet::DAC_OVERRIDE | CapabilitySet::FOWNER,
    };
    let failed = |error: Errno| format!("the capabilities cannot be dropped: {error}");
    let held = capabilities(None).map_err(failed)?;
    // Without this capability the bounding set stays; a program run as root then still gains no more than is permitted here,
    // because the thread may gain no privileges.
    if held.effective.contains(CapabilitySet::SETPCAP) {
        let all = (0..=LAST).map(|number| CapabilitySet::from_bits_retain(1 << number));
        for dropped in all.filter(|one| !kept.contains(*one)) {
            match remove_capability_from_bounding_set(dropped) {
                // The kernel has no more of them.
                Ok(()) | Err(Errno::INVAL) => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }
    clear_ambient_capability_set().map_err(failed)?;
    let left = held.permitted & kept;
    set_capabilities(None, CapabilitySets { effective: left, permitted: left, inheritable: CapabilitySet::empty() })
        .map_err(failed)
}
