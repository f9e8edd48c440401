//! The bug that this process was started with.

use std::sync::LazyLock;

use super::Bug;

/// Names the bug.
const PLANT: &str = "CALLBOARD_PLANT";

/// Read once: a bug is there from the beginning, or never.
static PLANTED: LazyLock<Option<Bug>> = LazyLock::new(|| {
    let name = std::env::var(PLANT).ok()?;
    let bug = Bug::ALL.into_iter().find(|bug| bug.to_string() == name);
    let bug =
        bug.unwrap_or_else(|| panic!("{PLANT}={name:?} is none of {}", Bug::ALL.map(|bug| bug.to_string()).join(", ")));
    eprintln!("{PLANT}: this process has the bug {bug}");
    Some(bug)
});

/// Whether this process has the bug.
pub(crate) fn is_planted(bug: Bug) -> bool {
    *PLANTED == Some(bug)
}
