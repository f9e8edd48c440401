//! Checks which parts of the confinement of commands work on this machine.

use std::process::Stdio;

use callboard_confine::while_nothing_is_reaped;

use super::super::root::Root;
use super::home::Home;
use super::protection::Protection;
use super::{ShellExec, confinement};

impl ShellExec {
    /// What of the confinement of commands holds on this machine. The first part is the one without which no command runs; if it
    /// does not hold there are no others. A command that does nothing is started to find out, so this blocks for some milliseconds.
    ///
    /// ```
    /// use callboard_agents::tools::ShellExec;
    /// for part in ShellExec::confinement() {
    ///     println!("{}: {}", part.name, part.lacks.unwrap_or_else(|| part.means.to_owned()));
    /// }
    /// ```
    #[must_use]
    pub fn confinement() -> Vec<Protection> {
        let all = |lacks| Protection { name: "files that are not named", means: "refused", lacks };
        if let Err(problem) = tried() {
            return vec![all(Some(format!("{problem}; so no command runs")))];
        }
        let mut parts = vec![all(None)];
        parts.extend(confinement::protections());
        parts
    }
}

/// Starts a confined command that does nothing.
fn tried() -> Result<(), String> {
    let home = Home::new().map_err(|error| format!("there is no folder for a command: {error}"))?;
    let [folder, _] = home.folders();
    let shell = ShellExec::new(&Root::open(folder).map_err(|error| error.to_string())?);
    let mut nothing = shell.command((":", None, ""), &home);
    let _held = shell.confine(&mut nothing, &home).map_err(|error| error.to_string())?;
    nothing.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match while_nothing_is_reaped(|| nothing.status()) {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("a confined command that does nothing ended with {status}")),
        Err(error) => Err(format!("a confined command cannot be started: {error}")),
    }
}
