//! Stores on disks that are full or read-only: real file systems, which a process mounts for itself.

#![cfg(target_os = "linux")]

use std::process::{Command, Stdio};

use crate::support::project::{Project, tasks};
use crate::support::{CALLBOARD, Printed, output_of};

/// Runs the program with a copy of the project's state folder on a file system of its own, after the shell command `then` has changed
/// that file system, which is mounted at `$1`.
fn on_a_disk(project: &Project, then: &str, arguments: &[&str]) -> Printed {
    let disk = tempfile::tempdir().unwrap();
    let script = format!(
        "mount -t tmpfs -o size=48m none \"$1\" && cp -a \"$2\"/. \"$1\" && {then} && \
         export XDG_STATE_HOME=\"$1\" && shift 2 && exec \"$@\""
    );
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script, "sh"]);
    command.arg(disk.path()).arg(project.state.path()).arg(CALLBOARD).args(arguments);
    command.current_dir(&project.folder).env_remove("CALLBOARD_STORE").stdin(Stdio::null());
    output_of(command)
}

/// Fills the file system.
const FULL: &str = "{ cat /dev/zero > \"$1/filler\" 2>/dev/null || true; }";
/// Makes the file system read-only.
const READ_ONLY: &str = "mount -o remount,ro \"$1\"";

#[test]
fn the_result_of_a_run_that_has_ended_is_printed_from_a_full_or_read_only_disk() {
    let project = Project::new();
    let id = project.run("one");
    let workflow = project.callboard(&["workflow", "run", "--line", "a", "--agent", "a=echo two"]);
    assert_eq!((workflow.code, workflow.out.as_str()), (Some(0), "two\n"), "{}", workflow.error);
    let last = workflow.error.lines().find_map(|line| line.strip_prefix("run ")?.split(' ').next()).unwrap();
    for disk in [FULL, READ_ONLY] {
        let resumed = on_a_disk(&project, disk, &["run", "--resume", &id]);
        assert_eq!((resumed.code, resumed.out.as_str()), (Some(0), "one\n"), "{disk}: {}", resumed.error);
        let resumed = on_a_disk(&project, disk, &["workflow", "resume", last]);
        assert_eq!((resumed.code, resumed.out.as_str()), (Some(0), "two\n"), "{disk}: {}", resumed.error);
        let listed = on_a_disk(&project, disk, &["runs", "list", "--json"]);
        assert_eq!(tasks(&listed)[0], "one", "{disk}: {}", listed.error);
    }
}

#[test]
fn an_open_run_is_not_resumed_in_a_copy_of_its_store() {
    let project = Project::new();
    project.run_killed(&["run", "write"]);
    for (disk, why) in [(FULL, "No space left on device"), (READ_ONLY, "Read-only file system")] {
        let refused = on_a_disk(&project, disk, &["run", "--resume", "@last", "--model", "fake"]);
        assert!(refused.code == Some(1) && refused.error.contains(why), "{disk}: {} {}", refused.out, refused.error);
    }
}

#[test]
fn the_error_of_a_full_disk_has_the_bytes_that_deleting_runs_needs() {
    let project = Project::new();
    let id = project.run("one");
    let store = project.stores().strip_prefix(project.state.path()).unwrap().join("1");
    for command in [&["runs", "delete", &id][..], &["runs", "prune", "--older-than", "0m"]] {
        let refused = on_a_disk(&project, FULL, command);
        let text = format!("{}{}", refused.out, refused.error);
        assert_eq!(refused.code, Some(1), "{command:?}: {text}");
        for wanted in
            ["its disk has 0 bytes free", "takes 16777216", "remove other files", "--store", store.to_str().unwrap()]
        {
            assert!(text.contains(wanted), "{command:?}, {wanted}: {text}");
        }
    }
    // With that many bytes free, it works.
    let room =
        "{ head -c 16777216 /dev/zero > \"$1/room\"; cat /dev/zero > \"$1/filler\" 2>/dev/null; rm \"$1/room\"; }";
    let deleted = on_a_disk(&project, room, &["runs", "delete", &id]);
    assert_eq!(deleted.out, format!("run {id} is deleted\n"), "{}", deleted.error);
}

#[test]
fn where_no_store_can_be_opened_it_is_unknown_whether_there_are_runs() {
    let project = Project::new();
    project.run("one");
    let no_copy = format!("{FULL} && export TMPDIR=\"$1\"");
    for (what, command) in [("runs", "runs"), ("conversations", "conversations")] {
        let listed = on_a_disk(&project, &no_copy, &[command, "list"]);
        let unknown = format!("whether there are {what} is not known: no store could be opened\nnot opened: ");
        assert!(listed.code == Some(1) && listed.out.starts_with(&unknown), "{}{}", listed.out, listed.error);
        let json = on_a_disk(&project, &no_copy, &[command, "list", "--json"]);
        assert_eq!(json.code, Some(1), "{}", json.out);
    }
}

/// A server and its clients on a disk that is filled, and has room again. The server is started by `serve`, with its first line in `$line`.
const FILLED: &str = r#"
serve() {
    rm -f "$outside/out" && mkfifo "$outside/out"
    "$program" serve --listen 127.0.0.1:0 --model fake > "$outside/out" 2>> "$outside/errors" &
    server=$!
    exec 3< "$outside/out" && read line <&3
}
serve
acknowledged=$("$program" send writer before)
cat /dev/zero > "$disk/filler" 2> /dev/null
task=0
while [ $task -lt 1000 ]; do
    id=$("$program" send writer $task) || break
    acknowledged="$acknowledged $id"
    task=$((task + 1))
done
"$program" send writer more
echo "$task were acknowledged, then $?" >&2
wait $server
echo "the server ended with $?" >&2
rm "$disk/filler"
serve
for id in $acknowledged; do
    "$program" wait $id > /dev/null || echo "$id was lost" >&2
done
kill -INT $server
wait $server
exec "$program" runs list --json
"#;

#[test]
fn what_a_server_has_acknowledged_before_its_disk_was_full_is_done_once_after_there_is_room() {
    let (project, outside) = (Project::new(), tempfile::tempdir().unwrap());
    let shown = outside.path().display();
    let script =
        format!("disk=\"$1\"; program=\"$3\"; outside=\"{shown}\"; export XDG_STATE_HOME=\"$disk\"; {FILLED} true");
    let printed = on_a_disk(&project, &script, &[]);
    let (errors, said) = (std::fs::read_to_string(outside.path().join("errors")).unwrap(), &printed.error);
    let (count, _) = said.split_once(" were acknowledged, then 6\n").unwrap_or_else(|| panic!("{said} {errors}"));
    let count: usize = count.rsplit('\n').next().unwrap().parse().unwrap();
    assert!(said.contains("the server ended with 6\n") && !said.contains("was lost"), "{said}");
    let why = "the store has stopped: the log was not written";
    assert!(errors.contains(why) && errors.contains("No space left on device"), "{errors}");
    let mut found = tasks(&printed);
    let rows = found.len();
    found.sort();
    found.dedup();
    assert_eq!(found.len(), rows, "each task is there once: {found:?}");
    let expected = (0..count).map(|task| task.to_string()).chain(["before".to_owned()]);
    assert!(expected.into_iter().all(|task| found.contains(&task)), "{count}: {found:?}");
}

#[test]
fn a_server_whose_disk_is_full_or_read_only_does_not_start_and_names_the_reason() {
    let project = Project::new();
    project.run("one");
    for (disk, why) in [(FULL, "No space left on device"), (READ_ONLY, "Read-only file system")] {
        let served = on_a_disk(&project, disk, &["serve", "--listen", "127.0.0.1:0", "--model", "fake"]);
        assert!(served.code == Some(1) && served.out.is_empty(), "{disk}: {}", served.out);
        let advice = "name a folder with --store or CALLBOARD_STORE, or have `run` or `workflow run` store nothing";
        for wanted in [why, "/2: ", advice] {
            assert!(served.error.contains(wanted), "{disk}, {wanted}: {}", served.error);
        }
        let added = on_a_disk(&project, disk, &["tokens", "add", "ci"]);
        let code = if disk == FULL { 1 } else { 4 };
        assert!(added.code == Some(code) && added.error.contains(why), "{disk}: {:?} {}", added.code, added.error);
    }
}

#[test]
fn a_base_of_facts_on_a_full_disk_is_as_it_was_and_goes_on_once_there_is_space() {
    let project = Project::new();
    let notes = project.folder.path().join("notes");
    std::fs::create_dir(&notes).unwrap();
    let text = "The gate of the old town opens at nine. ".repeat(40);
    for number in 0..100 {
        std::fs::write(notes.join(format!("{number}.md")), format!("# Part {number}\n\n{text}\n")).unwrap();
    }
    let submitted = project.callboard(&["kb", "submit", "The key is old."]);
    assert_eq!(submitted.code, Some(0), "{}", submitted.error);
    for command in [&["kb", "submit", "The wall is high."][..], &["kb", "init", "notes"]] {
        let full = on_a_disk(&project, FULL, command);
        assert!(full.code == Some(1) && full.error.contains("the disk is full"), "{command:?}: {}", full.error);
        assert!(full.error.contains("facts.db"), "{command:?}: {}", full.error);
    }
    for arguments in [["kb", "init", "notes"], ["kb", "export", "other.jsonl"]] {
        let done = project.callboard(&[&arguments[..], &["--store", "other"]].concat());
        assert_eq!(done.code, Some(0), "{}", done.error);
    }
    // An export is read into a file beside the base first, and then its rows may not fit.
    let room = |bytes: u32| {
        format!("head -c {bytes} /dev/zero > \"$1/room\"; cat /dev/zero > \"$1/filler\" 2>/dev/null; rm \"$1/room\"")
    };
    for then in [FULL.to_owned(), room(100_000), room(300_000), room(400_000)] {
        let import = "\"$3\" kb import other.jsonl --store \"$1/new\" >&2";
        let then = format!("{then}; {import}; echo \"code $?\" >&2; rm \"$1/filler\"; {import} && echo imported >&2");
        let doctor = on_a_disk(&project, &then, &["kb", "doctor"]);
        let (refused, done) = doctor.error.split_once("code 1\n").unwrap_or_else(|| panic!("{then}: {}", doctor.error));
        assert!(refused.contains("the disk is full") && refused.contains("/new"), "{then}: {refused}");
        assert!(done.contains("imported: 100 documents") && done.ends_with("imported\n"), "{then}: {done}");
        assert_eq!(doctor.code, Some(0), "{then}: {}{}", doctor.out, doctor.error);
    }
    for command in [&["kb", "submit", "The wall is high."][..], &["kb", "query", "key"], &["kb", "doctor"]] {
        let denied = on_a_disk(&project, READ_ONLY, command);
        assert!(denied.code == Some(4) && denied.error.contains("facts.db"), "{command:?}: {}", denied.error);
    }
    // Space for a part of the documents.
    let some = "head -c 47000000 /dev/zero > \"$1/filler\"";
    let tried = |then: &str| {
        format!("{then}; ! XDG_STATE_HOME=\"$1\" \"$3\" kb init notes > /dev/null 2>&1 && rm \"$1/filler\"")
    };
    for then in [tried(FULL), tried(some)] {
        let doctor = on_a_disk(&project, &then, &["kb", "doctor"]);
        assert_eq!(doctor.code, Some(0), "{then}: {}{}", doctor.out, doctor.error);
        let again = on_a_disk(&project, &then, &["kb", "init", "notes"]);
        assert!(again.out.starts_with("100 documents: "), "{then}: {}{}", again.out, again.error);
        let found = on_a_disk(&project, &then, &["kb", "query", "key"]);
        assert!(found.out.contains("The key is old."), "{then}: {}{}", found.out, found.error);
    }
}

#[test]
fn what_is_known_is_read_from_a_full_disk() {
    let project = Project::new();
    for words in ["The key is old.", "The gate is green."] {
        let submitted = project.callboard(&["kb", "submit", words]);
        assert_eq!(submitted.code, Some(0), "{}", submitted.error);
    }
    let outside = tempfile::tempdir().unwrap();
    let [export, backup, pulled] = ["export", "backup", "pulled"].map(|name| outside.path().join(name));
    let [export, backup] = [&export, &backup].map(|file| file.to_str().unwrap());
    for (command, expected) in [
        (&["kb", "query", "key"][..], "The key is old."),
        (&["kb", "log", "The key is old."], "submitted"),
        (&["kb", "doctor"], "2 facts (2 current, 0 disputed, 0 invalid)"),
        (&["kb", "export", export], "exported: 0 documents with 0 passages, 2 facts"),
        (&["kb", "backup", backup], "the base is copied"),
    ] {
        let read = on_a_disk(&project, FULL, command);
        assert_eq!(read.code, Some(0), "{command:?}: {}{}", read.out, read.error);
        assert!(read.out.contains(expected), "{command:?}: {}{}", read.out, read.error);
    }
    let imported = project.callboard(&["kb", "import", export, "--store", pulled.to_str().unwrap()]);
    assert!(imported.out.contains("2 facts"), "{}{}", imported.out, imported.error);
    let restored = project.callboard(&["kb", "restore", backup]);
    assert!(restored.out.contains("2 facts"), "{}{}", restored.out, restored.error);
}
