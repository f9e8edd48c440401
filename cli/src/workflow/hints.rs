//! Command lines that are printed so that a person can continue a run.

use std::fmt::Display;
use std::path::Path;

use crate::command_line::{agents_options, command_line, limits_option};
use crate::quote::quoted;

use super::arguments::Execution;

/// The command line that continues a run.
pub(crate) fn resumption(run: impl Display, store: Option<&Path>, execution: &Execution) -> String {
    continuation(&format!("resume {run}"), store, execution)
}

/// The command line that retries a run, with these limits if they differ from the earlier ones.
pub(crate) fn retrial(run: impl Display, limits: Option<&str>, store: Option<&Path>, execution: &Execution) -> String {
    continuation(&format!("retry {run}{}", limits_option(limits)), store, execution)
}

/// The command line that retries the run that the person named, with limits that the person has to choose.
pub(crate) fn retrial_with_limits(run: &str, store: Option<&Path>, execution: &Execution) -> String {
    continuation(&format!("retry {} --limits …", quoted(run)), store, execution)
}

/// The command line that forks a run at a node that the person has to choose.
pub(crate) fn fork(run: impl Display, store: Option<&Path>, execution: &Execution) -> String {
    continuation(&format!("fork {run} --node NODE"), store, execution)
}

/// The command line of `callboard run` that resumes a run without a workflow.
pub(crate) fn agent_resumption(run: impl Display, store: Option<&Path>, execution: &Execution) -> String {
    of_agent(&format!("--resume {run}"), store, execution)
}

/// The command line of `callboard run` that retries a run without a workflow, with these limits if they differ from the earlier ones.
pub(crate) fn agent_retrial(
    run: impl Display,
    limits: Option<&str>,
    store: Option<&Path>,
    execution: &Execution,
) -> String {
    of_agent(&format!("--retry {run}{}", limits_option(limits)), store, execution)
}

fn of_agent(how: &str, store: Option<&Path>, execution: &Execution) -> String {
    command_line(&format!("run {how}"), store) + &folder_options(execution)
}

fn continuation(how: &str, store: Option<&Path>, execution: &Execution) -> String {
    let mut line = command_line(&format!("workflow {how}"), store);
    for program in &execution.agent {
        line.push_str(&format!(" --agent {}", quoted(&format!("{}={}", program.name, program.command))));
    }
    line.push_str(&folder_options(execution));
    if execution.watch {
        line.push_str(" --watch");
    }
    line
}

fn folder_options(execution: &Execution) -> String {
    let files = execution.folder.files(&[]);
    files.map(|files| agents_options(&files, execution.folder.model.as_deref())).unwrap_or_default()
}
