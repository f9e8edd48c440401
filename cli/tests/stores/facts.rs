//! The base of facts of a project that several programs change at once, and whose programs are killed.

#![cfg(unix)]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::support::project::Project;
use crate::support::{CALLBOARD, command, output_of};

/// How many programs there are at once, and how many facts each submits, one after the other.
const PROGRAMS: usize = 2;
const EACH: usize = 4;

#[test]
fn programs_that_submit_at_once_lose_no_fact_and_the_same_one_has_a_source_of_each() {
    let project = Project::new();
    let (folder, state) = (project.folder.path(), project.state.path());
    let submit = |statement: &str, who: usize| {
        let from = format!("program {who}");
        let mut program = command(folder, &["kb", "submit", statement, "--from", &from]);
        let submitted = output_of(program.env("XDG_STATE_HOME", state));
        assert_eq!(submitted.code, Some(0), "{statement}: {}", submitted.error);
        submitted.out.contains("is new")
    };
    let new: usize = std::thread::scope(|scope| {
        let programs: Vec<_> = (0..PROGRAMS)
            .map(|who| {
                scope.spawn(move || {
                    let own = (0..EACH).map(|number| submit(&format!("Door {who} has lock {number}."), who));
                    let common = (0..EACH).map(|number| submit(&format!("The gate has lock {number}."), who));
                    own.zip(common).map(|(own, common)| usize::from(own) + usize::from(common)).sum::<usize>()
                })
            })
            .collect();
        programs.into_iter().map(|program| program.join().unwrap()).sum()
    });
    assert_eq!(new, (PROGRAMS + 1) * EACH);
    let exported = project.callboard(&["kb", "export"]);
    let mut facts = BTreeMap::new();
    for line in exported.out.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let Some(fact) = line.get("fact") else { continue };
        let mut places: Vec<String> = Vec::new();
        for source in fact["sources"].as_array().unwrap() {
            places.push(source["place"].as_str().unwrap().to_owned());
        }
        places.sort();
        facts.insert(fact["statement"].as_str().unwrap().to_owned(), places);
    }
    assert_eq!(facts.len(), (PROGRAMS + 1) * EACH, "{facts:?}");
    let all: Vec<String> = (0..PROGRAMS).map(|who| format!("program {who}")).collect();
    for number in 0..EACH {
        assert_eq!(facts[&format!("The gate has lock {number}.")], all);
        for who in 0..PROGRAMS {
            assert_eq!(facts[&format!("Door {who} has lock {number}.")], [format!("program {who}")]);
        }
    }
    assert_eq!(project.callboard(&["kb", "doctor"]).code, Some(0));
}

/// A project with two bases, the second one larger, as an export and as a backup.
struct Prepared {
    project: Project,
    small: String,
    large: String,
}

impl Prepared {
    fn new() -> Self {
        let project = Project::new();
        let done = |arguments: &[&str]| {
            let printed = project.callboard(arguments);
            assert_eq!(printed.code, Some(0), "{arguments:?}: {}", printed.error);
            printed.out
        };
        let notes = project.folder.path().join("notes");
        fs::create_dir(&notes).unwrap();
        for number in 0..200 {
            let words: String = (0..400).map(|word| format!("word{} ", (number * 31 + word * 7) % 5_000)).collect();
            fs::write(notes.join(format!("{number}.md")), format!("# Part {number}\n\n{words}\n")).unwrap();
        }
        done(&["kb", "submit", "The key is old.", "--store", "large"]);
        done(&["kb", "init", "notes", "--store", "large"]);
        done(&["kb", "export", "large.jsonl", "--store", "large"]);
        done(&["kb", "backup", "large.db", "--store", "large"]);
        done(&["kb", "submit", "The wall is high."]);
        let (small, large) =
            (done(&["kb", "export"]), fs::read_to_string(project.folder.path().join("large.jsonl")).unwrap());
        Self { project, small, large }
    }

    /// The folder of the base of a store.
    fn folder(&self, store: &str) -> PathBuf {
        self.project.folder.path().join(store).join("knowledge")
    }

    fn start(&self, arguments: &[&str], store: &str) -> Child {
        let mut command: Command = self.project.command(&[&["kb"], arguments, &["--store", store]].concat());
        command.stdin(Stdio::piped()).spawn().unwrap()
    }

    /// Runs a command that the system ends by a signal in the middle of a write: one after which a file would have more bytes than these.
    fn end_at(&self, bytes: u64, arguments: &[&str], store: &str) {
        let mut shell = Command::new("sh");
        // In blocks of 512 bytes.
        shell
            .args(["-c", "ulimit -c 0; ulimit -f \"$0\"; exec \"$@\"", &(bytes / 512).to_string()])
            .arg(CALLBOARD)
            .arg("kb");
        shell.args(arguments).args(["--store", store]).current_dir(&self.project.folder).stdin(Stdio::null());
        let ended = output_of(shell.env("XDG_STATE_HOME", self.project.state.path()));
        assert_eq!(ended.code, None, "{bytes}: {}{}", ended.out, ended.error);
    }

    /// A sound base with this export, after a program was killed; `None` if there is no base.
    fn exported(&self, store: &str, what: &str) -> Option<String> {
        let kb = |command: &str| self.project.callboard(&["kb", command, "--store", store]);
        let doctor = kb("doctor");
        if doctor.code == Some(3) {
            return None;
        }
        assert_eq!(doctor.code, Some(0), "{what}: {}{}", doctor.out, doctor.error);
        Some(kb("export").out)
    }
}

/// Kills a process as soon as something is so, or waits for its end. Returns whether it was killed.
fn kill_once(mut child: Child, is_so: &dyn Fn() -> bool) -> bool {
    while !is_so() && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    let _ = child.kill();
    child.wait().unwrap().signal() == Some(9)
}

fn bytes(file: &Path) -> u64 {
    fs::metadata(file).map_or(0, |file| file.len())
}

/// Whether the folder has an entry whose name begins so, with a file in it of at least this size, if it is a folder.
fn has(folder: &Path, beginning: &str, least: u64) -> bool {
    let mut entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.any(|entry| {
        entry.file_name().to_string_lossy().starts_with(beginning)
            && (!entry.path().is_dir() || bytes(&entry.path().join("facts.db")) >= least)
    })
}

const STAGED: &str = ".callboard-facts-";

#[test]
fn an_import_that_is_killed_leaves_no_base_an_empty_one_or_the_whole_one() {
    let prepared = Prepared::new();
    let at = |what: &'static str, is_so: fn(&Path) -> bool| (what, is_so);
    let points = [
        at("the base is begun", |folder| has(folder, STAGED, 0)),
        at("the base is there", |folder| folder.join("facts.db").exists()),
        at("the log is begun", |folder| bytes(&folder.join("facts.db-wal")) > 0),
        at("a part of the log is written", |folder| bytes(&folder.join("facts.db-wal")) > 200_000),
        at("more of the log is written", |folder| bytes(&folder.join("facts.db-wal")) > 1_000_000),
        at("the file grows", |folder| bytes(&folder.join("facts.db")) > 200_000),
        at("it is over", |_| false),
    ];
    let mut killed = 0;
    for (number, (what, is_so)) in points.into_iter().enumerate() {
        let store = format!("imported{number}");
        let folder = prepared.folder(&store);
        let child = prepared.start(&["import", "large.jsonl"], &store);
        killed += usize::from(kill_once(child, &|| is_so(&folder)));
        let found = prepared.exported(&store, what);
        let is_whole = found.as_ref() == Some(&prepared.large);
        let is_empty = found.as_ref().is_none_or(|export| export.lines().count() == 2);
        assert!(is_whole || is_empty, "{what}: {found:?}");
        let again = prepared.project.callboard(&["kb", "import", "large.jsonl", "--store", &store]);
        assert_eq!(again.code, Some(if is_whole { 2 } else { 0 }), "{what}: {}", again.error);
        assert_eq!(prepared.exported(&store, what), Some(prepared.large.clone()), "{what}");
    }
    // Within the copy of the text, and within the log, which gets all rows in one transaction.
    let (text, base) = (prepared.large.len() as u64, bytes(&prepared.project.folder.path().join("large.db")));
    assert!(text < base / 4 * 3, "{text} {base}");
    for at in [text / 2, base / 4 * 3, base / 16 * 15] {
        let store = format!("ended{at}");
        prepared.end_at(at, &["import", "large.jsonl"], &store);
        let found = prepared.exported(&store, "a write");
        assert!(found.is_none_or(|export| export.lines().count() == 2), "{at} bytes");
        let again = prepared.project.callboard(&["kb", "import", "large.jsonl", "--store", &store]);
        assert_eq!(again.code, Some(0), "{at} bytes: {}", again.error);
        assert_eq!(prepared.exported(&store, "a write"), Some(prepared.large.clone()), "{at} bytes");
    }
    // Half of the text has arrived.
    let mut child = prepared.start(&["import", "-"], "half");
    child.stdin.as_mut().unwrap().write_all(&prepared.large.as_bytes()[..prepared.large.len() / 2]).unwrap();
    assert!(kill_once(child, &|| true));
    assert_eq!(prepared.exported("half", "half of the text"), None);
    assert!(killed > 2, "{killed} were killed");
}

#[test]
fn a_restore_that_is_killed_leaves_the_earlier_base_or_the_new_one() {
    let prepared = Prepared::new();
    let at = |what: &'static str, is_so: fn(&Path, u64) -> bool| (what, is_so);
    let points = [
        at("the copy is begun", |folder, _| has(folder, STAGED, 0)),
        at("a part is copied", |folder, _| has(folder, STAGED, 200_000)),
        at("it is copied", |folder, _| has(folder, STAGED, bytes(&folder.join("../../large.db")))),
        at("the earlier one is kept", |folder, _| has(folder, "facts.db.replaced-1", 0)),
        at("the new one is there", |folder, before| {
            fs::metadata(folder.join("facts.db")).is_ok_and(|file| file.ino() != before)
        }),
        at("it is over", |_, _| false),
    ];
    fs::write(prepared.project.folder.path().join("small.jsonl"), &prepared.small).unwrap();
    let import = |store: &str| {
        let imported = prepared.project.callboard(&["kb", "import", "small.jsonl", "--store", store]);
        assert_eq!(imported.code, Some(0), "{}", imported.error);
    };
    // Within the copy.
    import("ended");
    prepared.end_at(bytes(&prepared.project.folder.path().join("large.db")) / 2, &["restore", "large.db"], "ended");
    assert_eq!(prepared.exported("ended", "a write").as_ref(), Some(&prepared.small));
    let mut killed = 0;
    for (number, (what, is_so)) in points.into_iter().enumerate() {
        let store = format!("restored{number}");
        let folder = prepared.folder(&store);
        import(&store);
        let before = fs::metadata(folder.join("facts.db")).unwrap().ino();
        let child = prepared.start(&["restore", "large.db"], &store);
        killed += usize::from(kill_once(child, &|| is_so(&folder, before)));
        let found = prepared.exported(&store, what).unwrap();
        assert!([&prepared.small, &prepared.large].contains(&&found), "{what}: {found}");
        let again = prepared.project.callboard(&["kb", "restore", "large.db", "--store", &store]);
        assert_eq!(again.code, Some(0), "{what}: {}", again.error);
        assert_eq!(prepared.exported(&store, what).unwrap(), prepared.large, "{what}");
        assert!(!has(&folder, STAGED, 0), "{what}: a folder was left");
    }
    assert!(killed > 2, "{killed} were killed");
}
