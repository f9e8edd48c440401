//! Where runs are kept that name no store: real processes, and a state folder of their own.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod model;

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use model::Model;
use rustix::fs::Mode;
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

/// The stores of a project, as the numbers that they have.
fn numbers(stores: &Path) -> Vec<u32> {
    let files = fs::read_dir(stores).unwrap().map(|file| file.unwrap().file_name());
    let mut numbers: Vec<u32> = files.filter_map(|name| name.to_str()?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
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
    assert_eq!(numbers(&place.stores()), [1, 2, 3]);
    place.run("one more");
    assert_eq!(numbers(&place.stores()), [1, 2, 3], "the first that is free is taken");
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
    assert_eq!(place.said(&["runs", "prune", "--state", "fa", "--text", "e", "--since", "1d"]).out, "1 run deleted\n");
    assert_eq!(listed(&[]), ["Fix the parser", "write a test"]);
    // What could mean more than was meant removes nothing.
    for wrong in [["--state", "f"], ["--state", ""], ["--state", "finisched"], ["--text", ""], ["--agent", ""]] {
        let refused = place.said(&["runs", "prune", wrong[0], wrong[1]]);
        assert_eq!(refused.code, Some(2), "{wrong:?}: {} {}", refused.out, refused.error);
    }
    assert_eq!(listed(&[]).len(), 2);
    assert_eq!(place.said(&["runs", "prune", "--older-than", "0m"]).out, "2 runs deleted\n");
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
    for expected in [&[1][..], &[1, 2]] {
        let imported = other.said(&["runs", "import", file.to_str().unwrap()]);
        assert_eq!(imported.code, Some(0), "{}", imported.error);
        assert_eq!(numbers(&other.stores()), expected, "each into a store of its own");
    }
    let named = other.said(&["runs", "import", file.to_str().unwrap(), "--store", "named"]);
    assert_eq!(named.code, Some(0), "{}", named.error);
    assert_eq!(tasks(&other.said(&["runs", "list", "--json", "--store", "named"])), ["one"]);
    let again = other.said(&["runs", "import", file.to_str().unwrap(), "--store", "named"]);
    assert!(again.code == Some(2) && again.error.contains("not empty"), "{}", again.error);
    assert_eq!(tasks(&other.said(&["runs", "list", "--json"])), ["one", "one"]);
    assert!(other.said(&["runs", "show", &run]).out.contains("one"));
    fs::write(&file, "no export").unwrap();
    let refused = other.said(&["runs", "import", file.to_str().unwrap(), "--store", "data"]);
    assert!(refused.code == Some(2) && refused.error.contains("runs.export: "), "{}", refused.error);
    assert!(!other.project.path().join("data").exists(), "nothing of it is left");
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

#[test]
fn a_run_that_is_meant_by_last_is_not_removed_while_a_newer_one_may_be_there() {
    let (place, busy) = (Place::new(), Model::start());
    fs::write(place.project.path().join("busy.toml"), busy.catalog()).unwrap();
    let child = place.command(&["run", "two", "--models", "busy.toml"]).spawn().unwrap();
    busy.asked();
    let names = format!("process {} has it open", child.id());
    let exported = place.said(&["runs", "export"]);
    assert!(exported.code == Some(2) && exported.error.contains(&names), "{}", exported.error);
    let other = place.run("three");
    let shown = place.said(&["runs", "show", "@last"]);
    assert!(shown.out.contains(&other) && shown.error.contains(&names), "{} {}", shown.out, shown.error);
    let refused = place.said(&["runs", "delete", "@last"]);
    assert!(refused.code == Some(2) && refused.error.contains(&names), "{}", refused.error);
    assert_eq!(place.said(&["runs", "delete", &other]).out, format!("run {other} is deleted\n"));
    busy.says("two");
    assert!(child.wait_with_output().unwrap().status.success());
    assert_eq!(tasks(&place.said(&["runs", "list", "--json"])), ["two"]);
    assert_eq!(place.said(&["runs", "delete", "@last"]).code, Some(0));
}

#[test]
fn an_import_that_is_killed_leaves_no_run_and_nothing_after_the_next_one() {
    let (place, other) = (Place::new(), Place::new());
    place.run("one");
    let exported = place.said(&["runs", "export"]).out;
    let mut child = other.command(&["runs", "import", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let (begin, _) = exported.split_at(exported.rfind("{\"end\"").unwrap());
    stdin.write_all(begin.as_bytes()).unwrap();
    // It has a store open, whatever that is called.
    let is_open = |folder: fs::DirEntry| folder.path().join("format").exists();
    let projects = || fs::read_dir(other.state.path().join("callboard")).into_iter().flatten().flatten();
    while !projects().any(|project| fs::read_dir(project.path()).unwrap().flatten().any(is_open)) {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(tasks(&other.said(&["runs", "list", "--json"])), [""; 0]);
    let file = other.project.path().join("runs.export");
    fs::write(&file, &exported).unwrap();
    assert_eq!(other.said(&["runs", "import", "runs.export"]).code, Some(0));
    assert_eq!(tasks(&other.said(&["runs", "list", "--json"])), ["one"]);
    let mut left: Vec<_> = fs::read_dir(other.stores()).unwrap().map(|file| file.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["1", "project.json"]);
}

#[test]
fn a_store_with_a_damaged_file_opens_or_is_refused_with_a_way_out_that_works() {
    let place = Place::new();
    place.model.says("done");
    assert_eq!(place.said(&["run", "one", "--store", "data"]).code, Some(0));
    place.model.asked();
    let at = |name: &str| place.project.path().join("data").join(name);
    let pipe = |name: &str| {
        let _ = fs::remove_file(at(name));
        let made =
            rustix::fs::mknodat(rustix::fs::CWD, at(name), rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0);
        made.unwrap();
    };
    let listed = |wanted: &str, help: &str| {
        let said = place.said(&["runs", "list", "--json", "--store", "data"]);
        let is_as_wanted = if help.is_empty() { said.code == Some(0) } else { said.out.contains(help) };
        assert!(is_as_wanted && said.out.contains(wanted), "{wanted} {help}: {} {}", said.out, said.error);
    };
    listed("one", "");
    // What sled makes again is moved out of its way.
    for name in ["conf", "snap.00ff", "snap.0a.generating"] {
        pipe(name);
        listed("one", "");
        fs::remove_file(at(name)).unwrap_or_default();
        fs::create_dir(at(name)).unwrap();
        listed("one", "");
    }
    let remake = |name: &str, help: &str, make: &dyn Fn()| {
        let whole = fs::read(at(name)).unwrap();
        let break_it: [&dyn Fn(); 2] = [&|| pipe(name), &|| fs::create_dir(at(name)).unwrap()];
        for break_it in break_it {
            fs::remove_file(at(name)).unwrap();
            break_it();
            listed(&format!("`{name}` is not a file"), help);
            fs::remove_file(at(name)).or_else(|_| fs::remove_dir(at(name))).unwrap();
            make();
            listed("one", "");
        }
        fs::write(at(name), whole).unwrap();
    };
    remake("lock", "remove it", &|| {});
    remake("synced", "remove it", &|| {});
    let rewrite = "write the line `callboard store, format 1` into its file `format`";
    let format = || fs::write(at("format"), "callboard store, format 1\n").unwrap();
    remake("format", rewrite, &format);
    for broken in ["", "nonsense", "callboard store, format 0"] {
        fs::write(at("format"), broken).unwrap();
        listed("`format` is damaged", rewrite);
    }
    fs::remove_file(at("format")).unwrap();
    listed("`format` was lost", rewrite);
    format();
    for name in ["payloads", "blobs"] {
        fs::remove_dir(at(name)).unwrap();
        fs::write(at(name), "").unwrap();
        listed(&format!("`{name}` is not a folder"), "move away");
        fs::remove_file(at(name)).unwrap();
        listed("one", "");
    }
    pipe("db");
    listed("`db` is not a file", "import an export into a new one");
}

#[test]
fn a_project_that_was_moved_is_told_where_its_runs_are() {
    let place = Place::new();
    let run = place.run("one");
    let (parent, old) = (tempfile::tempdir().unwrap(), place.stores());
    let site = parent.path().join("site");
    fs::rename(place.project.path(), &site).unwrap();
    let list = |place: &Place| {
        let mut list = place.command(&["runs", "list"]);
        list.current_dir(&site);
        said(list)
    };
    let listed = list(&place);
    assert_eq!(listed.out, "there are no runs\n");
    let moves = listed.error.split_once("taken along by: ").unwrap().1.trim();
    assert!(moves.contains(&*old.to_string_lossy()), "{moves}");
    assert!(Command::new("sh").args(["-c", moves]).status().unwrap().success());
    assert!(list(&place).out.contains(&run));
    fs::rename(&site, place.project.path()).unwrap();
}

#[test]
fn where_no_store_can_be_made_the_error_names_the_ways_out() {
    let place = Place::new();
    let state = place.state.path().join("file");
    fs::write(&state, "no folder").unwrap();
    let file = state.to_str().unwrap();
    // By the rules of XDG a relative one counts as none.
    for variables in [
        &[("XDG_STATE_HOME", ""), ("HOME", "relative")][..],
        &[("XDG_STATE_HOME", file)],
        &[("XDG_STATE_HOME", "relative"), ("HOME", file)],
    ] {
        let mut run = place.command(&["run", "x"]);
        run.envs(variables.iter().copied());
        let refused = said(run);
        let names_them = ["--store", "CALLBOARD_STORE", "--ephemeral"].iter().all(|way| refused.error.contains(way));
        assert!(refused.code == Some(2) && names_them, "{}", refused.error);
    }
}

#[test]
fn others_are_kept_out_of_a_state_folder_that_was_open_to_them() {
    let place = Place::new();
    let state = place.state.path().join("callboard");
    fs::create_dir(&state).unwrap();
    fs::set_permissions(&state, fs::Permissions::from_mode(0o777)).unwrap();
    place.run("one");
    assert_eq!(fs::metadata(&state).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn a_store_whose_process_was_killed_is_open_to_the_next_at_once() {
    // A program that is being started has the lock as well, until it has become that program.
    let place = Place::new();
    let agent = "[agent]\nname = \"spawner\"\n[agent.process]\ncommand = [\"sh\", \"-c\", \"exit 1\"]\n";
    fs::write(place.project.path().join("agents/spawner.toml"), agent).unwrap();
    for round in 0..60 {
        let run = ["run", "x", "--to", "spawner", "--store", "data", "--limits", r#"{"attempts":9}"#];
        let mut child = place.command(&run).spawn().unwrap();
        let mut told = BufReader::new(child.stderr.take().unwrap()).lines();
        let id = told.find_map(|line| Some(line.unwrap().strip_prefix("run ")?.to_owned())).unwrap();
        // Later by a little each time: the program is started about now.
        #[allow(clippy::disallowed_methods, reason = "the kill comes at a moment of real time")]
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_micros(100 * round) {}
        child.kill().unwrap();
        let next = place.said(&["runs", "show", &id, "--store", "data"]);
        assert_eq!(next.code, Some(0), "round {round}: {}", next.error);
        child.wait().unwrap();
    }
}
