//! Command lines that are printed so that a person can continue a run.

use std::path::Path;

use callboard::messages::RunId;

use crate::agents::hints::{flags, store_flag};
use crate::quote::{quoted, quoted_path};

use super::arguments::Execution;

/// The command line that continues a run.
pub(crate) fn resumption(run: RunId, store: Option<&Path>, execution: &Execution) -> String {
    continuation(&format!("resume {run}"), store, execution)
}

/// The command line that retries a run, with these limits if they differ from the earlier ones.
pub(crate) fn retrial(run: RunId, limits: Option<&str>, store: Option<&Path>, execution: &Execution) -> String {
    let limits = limits.map(|limits| format!(" --limits {}", quoted(limits))).unwrap_or_default();
    continuation(&format!("retry {run}{limits}"), store, execution)
}

fn continuation(how: &str, store: Option<&Path>, execution: &Execution) -> String {
    let mut line = format!("callboard workflow {how}{}", store_flag(store));
    for program in &execution.agent {
        line.push_str(&format!(" --agent {}", quoted(&format!("{}={}", program.name, program.command))));
    }
    if let Some(files) = execution.folder.files(&[]) {
        line.push_str(&format!(" --agents {}", quoted_path(&files.agents)));
        line.push_str(&flags(&files, execution.folder.model.as_deref()));
    }
    if execution.watch {
        line.push_str(" --watch");
    }
    line
}
