//! The capabilities of a command of the superuser.

/// The capabilities that a confined command of the superuser keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeptCapabilities {
    Nothing,
    /// `CAP_CHOWN`, `CAP_DAC_OVERRIDE` and `CAP_FOWNER`.
    FilesOfOthers,
}
