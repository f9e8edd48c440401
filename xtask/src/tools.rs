//! Programs that tests need and that a fresh machine may not have.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

/// `powercut` records system calls with `strace`. Where it is missing, and this may be done, it is installed; a machine on
/// which it cannot be is told what that means, and the run goes on.
pub(crate) fn provide_strace() {
    if has_strace() {
        return;
    }
    eprintln!("── strace: missing; trying to install it with apt-get");
    // As root, or as somebody who need not be asked for a password.
    let is_done = [&["apt-get"][..], &["sudo", "-n", "apt-get"]].iter().any(|apt_get| {
        // What the machine knows of its packages may be too old, or nothing.
        install(apt_get)
            || (quietly(apt_get.iter().chain(&["-o", "Acquire::http::Timeout=20", "update"])) && install(apt_get))
    });
    if is_done && has_strace() {
        eprintln!("── strace: installed");
    } else {
        eprintln!("── strace: cannot be installed here, so power cuts are SKIPPED (on CI, that is a failure)");
    }
}

fn has_strace() -> bool {
    quietly(["strace", "--version"])
}

fn install(apt_get: &[&str]) -> bool {
    quietly(apt_get.iter().chain(&["install", "--yes", "--no-install-recommends", "strace"]))
}

/// Runs a command that nobody watches; whether it succeeded.
fn quietly(command: impl IntoIterator<Item = impl AsRef<OsStr>>) -> bool {
    let mut words = command.into_iter();
    let Some(program) = words.next() else { return false };
    let mut command = Command::new(program);
    command.args(words).env("DEBIAN_FRONTEND", "noninteractive");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
