//! Command lines that are printed to continue with.

use std::path::Path;

use callboard::messages::RunId;

use crate::agents::hints::{flags, store_flag};
use crate::quote::{quoted, quoted_path};

use super::arguments::Going;

/// The command line that continues a run.
pub(crate) fn resumption(run: RunId, store: Option<&Path>, going: &Going) -> String {
    continuation(&format!("resume {run}"), store, going)
}

/// The command line that does what failed in a run again, in a run of its own, with these limits if others than before.
pub(crate) fn retrial(run: RunId, limits: Option<&str>, store: Option<&Path>, going: &Going) -> String {
    let limits = limits.map(|limits| format!(" --limits {}", quoted(limits))).unwrap_or_default();
    continuation(&format!("retry {run}{limits}"), store, going)
}

fn continuation(how: &str, store: Option<&Path>, going: &Going) -> String {
    let mut line = format!("callboard workflow {how}{}", store_flag(store));
    for program in &going.agent {
        line.push_str(&format!(" --agent {}", quoted(&format!("{}={}", program.name, program.command))));
    }
    if let Some(files) = going.thinkers.files(&[]) {
        line.push_str(&format!(" --agents {}", quoted_path(&files.agents)));
        line.push_str(&flags(&files, going.thinkers.model.as_deref()));
    }
    if going.watch {
        line.push_str(" --watch");
    }
    line
}
