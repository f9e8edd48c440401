//! The children of this process, as Linux lists them: those that it has started, and those that it has adopted.

use std::fs;
use std::io;

/// The process ids of all children, including zombies.
///
/// ```
/// use callboard_confine::{children, is_child};
/// use std::process::{Command, Stdio};
/// let mut child = Command::new("cat").stdin(Stdio::piped()).spawn()?;
/// assert!(children().contains(&child.id()) && is_child(child.id()));
/// child.wait()?;
/// assert!(!is_child(child.id()));
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use]
pub fn children() -> Vec<u32> {
    // Linux lists children by the thread that started them.
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = threads.map(|thread| fs::read_to_string(thread.path().join("children")));
    match lists.collect::<io::Result<Vec<_>>>() {
        Ok(lists) => lists.iter().flat_map(|list| list.split_whitespace()).filter_map(|pid| pid.parse().ok()).collect(),
        // An error means that the thread has ended, or that the kernel has no such list.
        Err(_) => {
            let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
            let pids = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
            pids.filter(|pid| is_child(*pid)).collect()
        }
    }
}

/// Whether the process is a child of this one.
#[must_use]
pub fn is_child(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    parent(&stat) == Some(std::process::id())
}

/// The parent's id in `/proc/PID/stat`: after the name, which is in parentheses and may contain some, and the state.
fn parent(stat: &str) -> Option<u32> {
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_is_found_behind_any_name() {
        assert_eq!(parent("17 (a) b (c) R 4 17 17 0 -1"), Some(4));
        assert_eq!(parent(""), None);
    }
}
