//! The process that a board is in, by which a board of the same name on the same machine sees that it is gone.

use std::fs;
use std::sync::Arc;

/// This process, as no other one has it; `None` where that cannot be known, as on systems without `/proc`.
pub(super) fn this_process() -> Option<Arc<str>> {
    let pid = std::process::id();
    Some(format!("{} {pid} {}", place()?, began(pid)?).into())
}

/// Whether a process was one of this machine and is gone. `false` if that cannot be known.
pub(super) fn is_gone(process: &str) -> bool {
    let parts = process.rsplitn(3, ' ').collect::<Vec<_>>();
    let [began_at, pid, there] = &parts[..] else { return false };
    let (Ok(began_at), Ok(pid)) = (began_at.parse(), pid.parse()) else { return false };
    // Where processes of others are hidden, none can be said to be gone.
    let sees_others = fs::read_to_string("/proc/1/stat").is_ok();
    sees_others && place().as_deref() == Some(*there) && began(pid) != Some(began_at)
}

/// The boot of the machine, and the namespace in which processes have their numbers.
fn place() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{} {}", boot.trim(), namespace.to_str()?))
}

/// When a process began, in ticks since the boot; `None` if it is not there, or only its parent has yet to notice its end.
fn began(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, which may contain anything, is in parentheses.
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?;
    fields.nth(18).filter(|_| !matches!(state, "Z" | "X"))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_is_gone_when_it_has_ended_and_its_number_may_be_anothers() {
        let this = this_process().unwrap();
        assert!(!is_gone(&this));
        let (there, began_at) = this.rsplit_once(' ').unwrap();
        let earlier = format!("{there} {}", began_at.parse::<u64>().unwrap() - 1);
        assert!(is_gone(&earlier), "another process had the number before");
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let of_child = format!("{} {} {}", place().unwrap(), child.id(), began(child.id()).unwrap());
        assert!(!is_gone(&of_child));
        child.kill().unwrap();
        while !is_gone(&of_child) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(is_gone(&of_child));
    }

    #[test]
    fn of_another_machine_nothing_is_known() {
        let elsewhere = "00000000-0000-0000-0000-000000000000 pid:[1] 1 1";
        for unknown in ["", "x", "1 2", elsewhere, &format!("{} 1 x", place().unwrap())] {
            assert!(!is_gone(unknown), "{unknown}");
        }
    }
}
