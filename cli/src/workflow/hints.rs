//! Command lines that are printed so that a person can continue a run.

use std::path::Path;

use callboard::messages::RunId;

use crate::agents::hints::{flags, limits_flag, store_flag};
use crate::quote::{quoted, quoted_path};

use super::arguments::Execution;

/// The command line that continues a run.
pub(crate) fn resumption(run: RunId, store: Option<&Path>, execution: &Execution) -> String {
    continuation(&format!("resume {run}"), store, execution)
}

/// The command line that retries a run, with these limits if they differ from the earlier ones.
pub(crate) fn retrial(run: RunId, limits: Option<&str>, store: Option<&Path>, execution: &Execution) -> String {
    continuation(&format!("retry {run}{}", limits_flag(limits)), store, execution)
}

/// The command line of `callboard run` that resumes a run without a workflow.
pub(crate) fn agent_resumption(run: RunId, store: Option<&Path>, execution: &Execution) -> String {
    of_agent(&format!("--resume {run}"), store, execution)
}

/// The command line of `callboard run` that retries a run without a workflow, with these limits if they differ from the earlier ones.
pub(crate) fn agent_retrial(run: RunId, limits: Option<&str>, store: Option<&Path>, execution: &Execution) -> String {
    of_agent(&format!("--retry {run}{}", limits_flag(limits)), store, execution)
}

fn of_agent(how: &str, store: Option<&Path>, execution: &Execution) -> String {
    let line = format!("callboard run {how}{}", store_flag(store));
    let folder = execution.folder.files(&[]).map(|files| {
        format!(" --agents {}{}", quoted_path(files.folder()), flags(&files, execution.folder.model.as_deref()))
    });
    line + &folder.unwrap_or_default()
}

fn continuation(how: &str, store: Option<&Path>, execution: &Execution) -> String {
    let mut line = format!("callboard workflow {how}{}", store_flag(store));
    for program in &execution.agent {
        line.push_str(&format!(" --agent {}", quoted(&format!("{}={}", program.name, program.command))));
    }
    if let Some(files) = execution.folder.files(&[]) {
        line.push_str(&format!(" --agents {}", quoted_path(files.folder())));
        line.push_str(&flags(&files, execution.folder.model.as_deref()));
    }
    if execution.watch {
        line.push_str(" --watch");
    }
    line
}
