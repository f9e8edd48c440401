//! What a release needs: a check that it may be made, the program, and the packages that carry the program for npm and PyPI.
//! docs/releasing.md is the recipe. Nothing here uploads anything.

mod check;
mod packages;
mod program;

use std::path::PathBuf;
use std::process::Command;

pub(crate) use check::check;
pub(crate) use packages::packages;
pub(crate) use program::release;

/// The folder that cargo builds in.
fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from)
}

/// Makes the workspace's folder the current one, whose files the other functions name.
fn enter_workspace() -> Result<(), String> {
    let root = crate::workspace::metadata()?["workspace_root"].as_str().map(PathBuf::from).unwrap_or_default();
    std::env::set_current_dir(&root).map_err(|error| format!("{}: {error}", root.display()))
}

/// Runs a command that prints for itself; an exit code other than 0 is an error that shows the command.
fn run(command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?}: {status}")),
        Err(error) => Err(format!("{command:?}: {error}")),
    }
}

/// Runs a command for its standard output, without the last line end.
fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim_end()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}
