//! The shell on systems without confinement of commands.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::root::Root;
use super::capabilities::KeptCapabilities;
use super::protection::Protection;

/// The resources that are held while a command runs: none.
pub(super) struct Held;

pub(super) fn confine(
    _: &mut Command,
    _: &Root,
    _: &[PathBuf],
    _: &[&Path],
    _: KeptCapabilities,
) -> Result<Held, String> {
    Err("only Linux has it; ShellExec::unconfined does without".to_owned())
}

pub(super) fn protections() -> Vec<Protection> {
    Vec::new()
}
