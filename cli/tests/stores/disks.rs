//! Stores on disks that are full or read-only: real file systems, which a process mounts for itself.

#![cfg(target_os = "linux")]

use std::process::{Command, Stdio};

use crate::place::{Place, Said, said, tasks};

/// Runs the program with a copy of the place's state folder on a file system of its own, which the shell command `then` changes in
/// its folder `$1`.
fn on_a_disk(place: &Place, then: &str, arguments: &[&str]) -> Said {
    let disk = tempfile::tempdir().unwrap();
    let script = format!(
        "mount -t tmpfs -o size=48m none \"$1\" && cp -a \"$2\"/. \"$1\" && {then} && \
         export XDG_STATE_HOME=\"$1\" && shift 2 && exec \"$@\""
    );
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script, "sh"]);
    command.arg(disk.path()).arg(place.state.path()).arg(env!("CARGO_BIN_EXE_callboard")).args(arguments);
    command.current_dir(&place.project).env_remove("CALLBOARD_STORE").stdin(Stdio::null());
    said(command)
}

/// Leaves no room.
const FULL: &str = "{ cat /dev/zero > \"$1/filler\" 2>/dev/null || true; }";
/// Lets nothing be written.
const READ_ONLY: &str = "mount -o remount,ro \"$1\"";

#[test]
fn the_result_of_a_run_that_has_ended_is_printed_from_a_disk_that_is_full_or_read_only() {
    let place = Place::new();
    let id = place.run("one");
    let workflow = place.said(&["workflow", "run", "--line", "a", "--agent", "a=echo two"]);
    assert_eq!((workflow.code, workflow.out.as_str()), (Some(0), "two\n"), "{}", workflow.error);
    let last = workflow.error.lines().find_map(|line| line.strip_prefix("run ")?.split(' ').next()).unwrap();
    for disk in [FULL, READ_ONLY] {
        let resumed = on_a_disk(&place, disk, &["run", "--resume", &id]);
        assert_eq!((resumed.code, resumed.out.as_str()), (Some(0), "one\n"), "{disk}: {}", resumed.error);
        let resumed = on_a_disk(&place, disk, &["workflow", "resume", last]);
        assert_eq!((resumed.code, resumed.out.as_str()), (Some(0), "two\n"), "{disk}: {}", resumed.error);
        let listed = on_a_disk(&place, disk, &["runs", "list", "--json"]);
        assert_eq!(tasks(&listed)[0], "one", "{disk}: {}", listed.error);
    }
}

#[test]
fn a_run_that_has_not_ended_is_not_resumed_in_a_copy() {
    let place = Place::new();
    let mut child = place.command(&["run", "write"]).spawn().unwrap();
    place.model.asked();
    child.kill().unwrap();
    child.wait().unwrap();
    for (disk, why) in [(FULL, "No space left on device"), (READ_ONLY, "Read-only file system")] {
        let refused = on_a_disk(&place, disk, &["run", "--resume", "@last", "--model", "fake"]);
        assert!(refused.code == Some(2) && refused.error.contains(why), "{disk}: {} {}", refused.out, refused.error);
    }
}

#[test]
fn where_a_full_disk_lets_no_run_be_removed_the_error_has_the_bytes_that_are_needed() {
    let place = Place::new();
    let id = place.run("one");
    let store = place.stores().strip_prefix(place.state.path()).unwrap().join("1");
    for command in [&["runs", "delete", &id][..], &["runs", "prune", "--older-than", "0m"]] {
        let refused = on_a_disk(&place, FULL, command);
        let text = format!("{}{}", refused.out, refused.error);
        assert_eq!(refused.code, Some(2), "{command:?}: {text}");
        for wanted in
            ["its disk has 0 bytes free", "takes 16777216", "remove other files", "--store", store.to_str().unwrap()]
        {
            assert!(text.contains(wanted), "{command:?}, {wanted}: {text}");
        }
    }
    // What it asks for is enough.
    let room =
        "{ head -c 16777216 /dev/zero > \"$1/room\"; cat /dev/zero > \"$1/filler\" 2>/dev/null; rm \"$1/room\"; }";
    let deleted = on_a_disk(&place, room, &["runs", "delete", &id]);
    assert_eq!(deleted.out, format!("run {id} is deleted\n"), "{}", deleted.error);
}

#[test]
fn that_there_are_no_runs_is_not_printed_of_stores_that_could_not_be_looked_into() {
    let place = Place::new();
    place.run("one");
    let no_copy = format!("{FULL} && export TMPDIR=\"$1\"");
    for (what, command) in [("runs", "runs"), ("conversations", "conversations")] {
        let listed = on_a_disk(&place, &no_copy, &[command, "list"]);
        let unknown =
            format!("whether there are {what} is not known: no store could be looked into\nnot looked into: ");
        assert!(listed.code == Some(2) && listed.out.starts_with(&unknown), "{}{}", listed.out, listed.error);
        let json = on_a_disk(&place, &no_copy, &[command, "list", "--json"]);
        assert_eq!(json.code, Some(2), "{}", json.out);
    }
}
