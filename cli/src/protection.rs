//! Keeps programs of agents and of MCP servers from deciding about their own approvals: from the state and the sockets of this user, and
//! from the memory of this process.

use std::sync::OnceLock;

use callboard_agents::{can_hide_from_programs, hide_folder_from_programs, is_exposed_to_programs};

use crate::stores::project::state_folder;

/// Protects this process, before it starts a program.
pub(crate) fn protect() {
    #[cfg(target_os = "linux")]
    if let Err(error) = callboard_confine::forbid_inspection() {
        tracing::warn!(%error, "other processes of this user can read the memory of this one");
    }
    state_folder().into_iter().for_each(hide_folder_from_programs);
}

/// Why nothing can be hidden from programs on this machine, if it is so: looked at once, since it starts a process.
fn cannot_hide() -> Option<&'static str> {
    static WHY: OnceLock<Option<String>> = OnceLock::new();
    WHY.get_or_init(|| can_hide_from_programs().err()).as_deref()
}

/// The warning of a server on a machine where nothing can be hidden from programs.
pub(crate) fn warning() -> Option<String> {
    let why = cannot_hide()?;
    Some(format!(
        "warning: programs of agents and MCP servers can reach the tokens and sockets of this user: {why}. This server takes decisions only \
         at its own terminal"
    ))
}

/// Why decisions of other processes are refused, if they are: also before this process has started a program, because one of an earlier
/// process may be left.
pub(crate) fn refuses_decisions() -> Option<String> {
    (cannot_hide().is_some() || is_exposed_to_programs()).then(|| {
        "programs of agents could send decisions too, because nothing can be hidden from them on this machine: decide at the terminal of \
         the process that works on the run"
            .to_owned()
    })
}
