//! Refuses commands when an agent's turn has started this process: those that begin or change runs, and those that read what is hidden
//! from programs of agents.

use std::process::ExitCode;

use crate::exit::Exit;
use crate::page::{self, Failure};
use crate::usage;

/// The variable of programs from which stores and servers are hidden.
const HIDDEN_FROM: &str = "CALLBOARD_PROCESS";

/// The variables that tools and programs of agents are started with.
const WITHIN_A_TURN: [&str; 3] = [HIDDEN_FROM, "CALLBOARD_AGENT", "CALLBOARD_RUN"];

/// Runs the command, or refuses it if a turn of another run has started this process: a run that it begins would have limits, a
/// chain and a budget of its own, in place of those of the turn's run (SEMANTICS 1).
pub(crate) fn unless_nested(command: impl FnOnce() -> ExitCode) -> ExitCode {
    refused_if(&WITHIN_A_TURN, command, |evidence| {
        format!(
            "this process was started by an agent ({evidence}), and what it begins or changes would not count against the limits \
             of the agent's run: have the agent delegate the task, or call the program outside of any agent"
        )
    })
}

/// Runs the command, which reads stores or asks a server, or refuses it in a program of an agent: it would find none, or others.
pub(crate) fn unless_hidden(command: impl FnOnce() -> ExitCode) -> ExitCode {
    refused_if(&[HIDDEN_FROM], command, |evidence| {
        format!(
            "this process was started by an agent ({evidence}), and stores and servers are hidden from it: within a turn only \
             `callboard send`, `callboard status` and `callboard wait` work, for what the turn delegates"
        )
    })
}

/// Runs the command, or refuses it if one of the variables is set, or this process has the limit of programs of agents.
fn refused_if(
    variables: &[&str],
    command: impl FnOnce() -> ExitCode,
    refusal: impl FnOnce(&str) -> String,
) -> ExitCode {
    let variable = variables.iter().find(|name| std::env::var_os(name).is_some());
    let evidence = variable.map(|name| format!("{name} is set")).or_else(|| {
        has_limit_of_programs().then(|| "its limit of resident memory is one that programs of agents have".to_owned())
    });
    let Some(evidence) = evidence else { return command() };
    page::print(Err(Failure::new(Exit::Denied, refusal(&evidence))), usage::wants_json())
}

/// Whether this process has the resource limit that marks programs of agents, which stays when they clear the environment.
fn has_limit_of_programs() -> bool {
    #[cfg(target_os = "linux")]
    return callboard_agents::is_program_of_board();
    #[cfg(not(target_os = "linux"))]
    false
}
