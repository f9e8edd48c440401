//! cargo, and other programs that run cargo.

use std::process::Command;

/// cargo, as it runs outside of this program.
#[must_use]
pub fn cargo() -> Command {
    without_package(Command::new(env!("CARGO")))
}

/// A command that runs cargo, without the variables by which cargo describes the package of this program: build scripts of
/// dependencies read variables of these names, so cargo would build those again, and with them most of the workspace, where it is
/// called with others or none.
#[must_use]
pub fn without_package(mut command: Command) -> Command {
    let is_of_package = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_of_package)) {
        command.env_remove(name);
    }
    command
}

/// Whether cargo with these arguments succeeds.
#[must_use]
pub fn succeeds(arguments: &[&str]) -> bool {
    cargo().args(arguments).output().is_ok_and(|output| output.status.success())
}
