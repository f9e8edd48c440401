//! Runs a test once more as an ordinary user, where the tests run as root.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use rustix::process::geteuid;

/// Has this binary, started by another user, do a test there.
pub(crate) const AS_OTHER: &str = "CALLBOARD_SANDBOX_AS_OTHER";

/// Runs a test of this binary, `module::test`, as `nobody`, where it runs as root.
pub(crate) fn as_an_ordinary_user(test: &str) {
    if !geteuid().is_root() || std::env::var_os(AS_OTHER).is_some() {
        return;
    }
    let place = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir().unwrap();
    let binary = place.path().join("test");
    // Not by this process: what it has open for writing is open, for a moment, in programs that other tests start too, and cannot
    // be executed meanwhile.
    let copy = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&binary).status().unwrap();
    assert!(copy.success());
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(binary)
        .args(["--exact", test, "--nocapture"])
        .current_dir("/")
        .env(AS_OTHER, "1")
        .env("HOME", "/nonexistent")
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && printed.contains("1 passed"), "as an ordinary user: {printed}");
}
