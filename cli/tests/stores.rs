//! Where runs are kept that name no store: real processes, and a state folder of their own.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod model;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use model::Model;
use serde_json::Value;
use tempfile::TempDir;

const WRITER: &str = "[agent]\nname = \"writer\"\n";

/// A project with a model, and a state folder.
struct Place {
    project: TempDir,
    state: TempDir,
    model: Model,
}

struct Said {
    code: Option<i32>,
    out: String,
    error: String,
}

impl Place {
    fn new() -> Self {
        let model = Model::start();
        Self { project: model.folder(WRITER), state: tempfile::tempdir().unwrap(), model }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_callboard"));
        command.args(arguments).current_dir(&self.project).env("XDG_STATE_HOME", self.state.path());
        command.env_remove("CALLBOARD_STORE").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn said(&self, arguments: &[&str]) -> Said {
        said(self.command(arguments))
    }

    /// Runs a task that the model answers with the same words, and returns the run's id as it was told.
    fn run(&self, words: &str) -> String {
        self.model.says(words);
        let said = self.said(&["run", words]);
        self.model.asked();
        assert_eq!((said.code, said.out), (Some(0), format!("{words}\n")), "{}", said.error);
        said.error.lines().find_map(|line| line.strip_prefix("run ")).unwrap().to_owned()
    }

    /// The project's folder in the state folder.
    fn stores(&self) -> PathBuf {
        let mut projects = fs::read_dir(self.state.path().join("callboard")).unwrap();
        let only = projects.next().unwrap().unwrap().path();
        assert!(projects.next().is_none());
        only
    }
}

fn said(mut command: Command) -> Said {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said { code: output.status.code(), out: text(output.stdout), error: text(output.stderr) }
}

fn tasks(listed: &Said) -> Vec<String> {
    let rows: Vec<Value> = serde_json::from_str(&listed.out).unwrap();
    rows.iter().filter_map(|row| row["task"].as_str().map(str::to_owned)).collect()
}

#[test]
fn runs_are_kept_for_the_project_and_found_from_its_folders() {
    let place = Place::new();
    let first = place.run("one");
    let second = place.run("two");
    fs::create_dir_all(place.project.path().join("deep/er")).unwrap();
    let mut list = place.command(&["runs", "list", "--json"]);
    list.current_dir(place.project.path().join("deep/er"));
    assert_eq!(tasks(&said(list)), ["one", "two"]);
    assert!(place.said(&["runs", "show", "@last"]).out.contains(&second));
    assert!(place.said(&["runs", "show", &first]).out.contains(&first));
    // Another project has runs of its own.
    let other = tempfile::tempdir().unwrap();
    let mut list = place.command(&["runs", "list"]);
    list.current_dir(&other);
    assert_eq!(said(list).out, "there are no runs\n");
    // Nobody else on the machine may look into them.
    let mode = fs::metadata(place.stores().join("1")).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "{mode:o}");
    assert_eq!(fs::read_dir(&place.project).unwrap().count(), 3, "agents, models.toml and deep");
}

#[test]
fn what_is_ephemeral_or_has_a_store_of_its_own_is_not_among_them() {
    let place = Place::new();
    for arguments in [&["run", "x", "--ephemeral"][..], &["run", "x", "--store", "data"]] {
        place.model.says("done");
        assert_eq!(place.said(arguments).code, Some(0));
    }
    place.model.says("done");
    let mut named = place.command(&["run", "by variable"]);
    assert_eq!(
        said({
            named.env("CALLBOARD_STORE", "data");
            named
        })
        .code,
        Some(0)
    );
    assert!(!place.state.path().join("callboard").exists());
    assert_eq!(tasks(&place.said(&["runs", "list", "--store", "data", "--json"])), ["x", "by variable"]);
    let both = place.said(&["run", "x", "--ephemeral", "--store", "data"]);
    assert_eq!(both.code, Some(2), "{}", both.error);
}

#[test]
fn processes_at_the_same_time_take_stores_of_their_own_and_are_named_while_they_have_them() {
    let place = Place::new();
    let models: Vec<Model> = (0..3).map(|_| Model::start()).collect();
    let begin = |(number, model): (usize, &Model)| {
        let catalog = format!("m{number}.toml");
        fs::write(place.project.path().join(&catalog), model.catalog()).unwrap();
        let child = place.command(&["run", &format!("task {number}"), "--models", &catalog]).spawn().unwrap();
        model.asked();
        child
    };
    let running: Vec<_> = models.iter().enumerate().map(begin).collect();
    let listed = place.said(&["runs", "list"]);
    for child in &running {
        assert!(listed.out.contains(&format!("process {} has it open", child.id())), "{}", listed.out);
    }
    let missing = place.said(&["runs", "show", "0192"]);
    assert!(missing.code == Some(1) && missing.error.matches("has it open").count() == 3, "{}", missing.error);
    models.iter().for_each(|model| model.says("done"));
    for child in running {
        assert!(child.wait_with_output().unwrap().status.success());
    }
    assert_eq!(tasks(&place.said(&["runs", "list", "--json"])), ["task 0", "task 1", "task 2"]);
    assert_eq!(fs::read_dir(place.stores()).unwrap().count(), 3);
    place.run("one more");
    assert_eq!(fs::read_dir(place.stores()).unwrap().count(), 3, "the first that is free is taken");
}

#[test]
fn a_killed_run_goes_on_at_once_by_its_id_or_as_the_last_one() {
    for by_id in [true, false] {
        let place = Place::new();
        place.run("before");
        let mut child = place.command(&["run", "write"]).spawn().unwrap();
        place.model.asked();
        child.kill().unwrap();
        child.wait().unwrap();
        let listed: Vec<Value> = serde_json::from_str(&place.said(&["runs", "list", "--json"]).out).unwrap();
        let id = listed.last().unwrap()["run"].as_str().unwrap().to_owned();
        place.model.says("never read");
        place.model.says("whole");
        let again = place.said(&["run", "--resume", if by_id { &id } else { "@last" }]);
        assert!(again.error.contains(&format!("run {id}\n")), "{}", again.error);
        assert_eq!(again.code, Some(0), "{}", again.error);
        let result = place.said(&["run", "--resume", &id]);
        assert_eq!((result.code, result.out), (Some(0), again.out), "its result is printed: {}", result.error);
    }
}

#[test]
fn a_run_that_is_deleted_is_gone_and_no_other_is() {
    let place = Place::new();
    let [first, second, third] = ["one", "two", "three"].map(|words| place.run(words));
    let deleted = place.said(&["runs", "delete", &first, &third]);
    assert_eq!(deleted.out, format!("run {first} is deleted\nrun {third} is deleted\n"), "{}", deleted.error);
    assert_eq!(tasks(&place.said(&["runs", "list", "--json"])), ["two"]);
    let again = place.said(&["runs", "delete", &second, &first]);
    assert!(again.code == Some(1) && again.error.contains(&format!("run {second} is deleted")), "{}", again.error);
}

#[test]
fn runs_are_listed_and_removed_by_what_they_are() {
    let place = Place::new();
    for words in ["Fix the parser", "write a test"] {
        place.run(words);
    }
    let failed = place.said(&["run", "judge", "--to", "complexity", "--model", "fake"]);
    assert_eq!(failed.code, Some(1), "{}", failed.error);
    let listed = |choice: &[&str]| tasks(&place.said(&[&["runs", "list", "--json"], choice].concat()));
    assert_eq!(listed(&["--text", "PARSER"]), ["Fix the parser"]);
    assert_eq!(listed(&["--state", "failed"]), ["judge"]);
    assert_eq!(listed(&["--agent", "writer", "--since", "1h"]).len(), 2);
    assert_eq!(listed(&["--older-than", "1h"]), [""; 0]);
    assert_eq!(place.said(&["runs", "list", "--text", "nothing"]).out, "there are no such runs\n");
    assert_eq!(place.said(&["runs", "prune"]).code, Some(2), "nobody means all of them");
    assert_eq!(place.said(&["runs", "prune", "--older-than", "1h"]).out, "0 runs deleted\n");
    assert_eq!(place.said(&["runs", "prune", "--state", "f", "--text", "e", "--since", "1d"]).out, "3 runs deleted\n");
    assert_eq!(listed(&[]), [""; 0]);
}

#[test]
fn an_export_is_read_into_another_project() {
    let (place, other) = (Place::new(), Place::new());
    let run = place.run("one");
    let file = place.project.path().join("runs.export");
    let exported = place.said(&["runs", "export", file.to_str().unwrap()]);
    assert!(exported.code == Some(0) && exported.out.starts_with("exported: "), "{} {}", exported.out, exported.error);
    assert_eq!(place.said(&["runs", "export", file.to_str().unwrap()]).code, Some(2), "nothing is overwritten");
    assert_eq!(place.said(&["runs", "export"]).out, fs::read_to_string(&file).unwrap());
    for expected in [1, 2] {
        let imported = other.said(&["runs", "import", file.to_str().unwrap()]);
        assert_eq!(imported.code, Some(0), "{}", imported.error);
        assert_eq!(fs::read_dir(other.stores()).unwrap().count(), expected, "each into a store of its own");
    }
    assert_eq!(tasks(&other.said(&["runs", "list", "--json"])), ["one", "one"]);
    assert!(other.said(&["runs", "show", &run]).out.contains("one"));
    fs::write(&file, "no export").unwrap();
    let refused = other.said(&["runs", "import", file.to_str().unwrap(), "--store", "data"]);
    assert!(refused.code == Some(2) && refused.error.contains("runs.export: "), "{}", refused.error);
    let several = other.said(&["runs", "export"]);
    assert!(several.code == Some(2) && several.error.contains("there are several stores"), "{}", several.error);
}

#[test]
fn a_store_that_may_not_be_written_to_is_read_from_a_copy() {
    let place = Place::new();
    place.run("one");
    let store = place.stores().join("1");
    fn change(path: &Path, mode: u32) {
        for file in fs::read_dir(path).unwrap() {
            let path = file.unwrap().path();
            if path.is_dir() {
                change(&path, mode)
            } else {
                fs::set_permissions(&path, fs::Permissions::from_mode(mode & 0o666)).unwrap()
            }
        }
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    change(&store, 0o555);
    let before = fs::read(store.join("db")).unwrap();
    let temporary = tempfile::tempdir().unwrap();
    fs::set_permissions(temporary.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let program = temporary.path().join("callboard");
    fs::copy(env!("CARGO_BIN_EXE_callboard"), &program).unwrap();
    let as_somebody_else = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.args(arguments).arg("--store").arg(&store).env("TMPDIR", temporary.path());
        if rustix::process::geteuid().is_root() {
            // Root may write to everything.
            command.uid(65_534).gid(65_534);
            for parent in store.ancestors().skip(1).take(3) {
                fs::set_permissions(parent, fs::Permissions::from_mode(0o755)).unwrap();
            }
        }
        said({
            command.current_dir("/");
            command
        })
    };
    let listed = as_somebody_else(&["runs", "list", "--json"]);
    assert_eq!(tasks(&listed), ["one"], "{}", listed.error);
    assert_eq!(fs::read(store.join("db")).unwrap(), before);
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 1, "the copy is removed");
    let resumed = as_somebody_else(&["run", "--resume", "@last", "--model", "fake"]);
    assert!(resumed.code == Some(2) && resumed.error.contains("cannot be opened"), "{}", resumed.error);
    change(&store, 0o755);
}
