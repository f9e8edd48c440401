//! Where runs are kept that name no store: real processes, and a state folder of their own.

#![cfg(unix)]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::model::Model;
use crate::place::{Place, ended, said, tasks};
use callboard::messages::Durability;
use callboard::storage::{Expected, Key, Put, Sled, Storage as _};
use rustix::fs::Mode;
use serde_json::Value;

/// The stores of a project, as the numbers that they have.
fn numbers(stores: &Path) -> Vec<u32> {
    let files = fs::read_dir(stores).unwrap().map(|file| file.unwrap().file_name());
    let mut numbers: Vec<u32> = files.filter_map(|name| name.to_str()?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
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
    assert!(missing.code == Some(2) && missing.error.matches("has it open").count() == 3, "{}", missing.error);
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
    other.run("two");
    let imported = other.said(&["runs", "import", file.to_str().unwrap()]);
    assert_eq!(imported.code, Some(0), "{}", imported.error);
    assert_eq!(numbers(&other.stores()), [1, 2], "into a store of its own");
    let named = other.said(&["runs", "import", file.to_str().unwrap(), "--store", "named"]);
    assert_eq!(named.code, Some(0), "{}", named.error);
    assert_eq!(tasks(&other.said(&["runs", "list", "--json", "--store", "named"])), ["one"]);
    let again = other.said(&["runs", "import", file.to_str().unwrap(), "--store", "named"]);
    assert!(again.code == Some(2) && again.error.contains("not empty"), "{}", again.error);
    assert_eq!(tasks(&other.said(&["runs", "list", "--json"])), ["one", "two"]);
    assert!(other.said(&["runs", "show", &run]).out.contains("one"));
    fs::write(&file, "no export").unwrap();
    let refused = other.said(&["runs", "import", file.to_str().unwrap(), "--store", "data"]);
    assert!(refused.code == Some(2) && refused.error.contains("runs.export: "), "{}", refused.error);
    assert!(!other.project.path().join("data").exists(), "nothing of it is left");
    let several = other.said(&["runs", "export"]);
    assert!(several.code == Some(2) && several.error.contains("there are several stores"), "{}", several.error);
}

/// The choices that an error or a note names.
fn choices(text: &str) -> Vec<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.windows(2).filter(|words| words[0] == "--store").map(|words| words[1].to_owned()).collect()
}

#[test]
fn what_the_project_has_is_imported_only_if_it_is_asked_for_again_and_is_named_as_double_then() {
    let place = Place::new();
    let run = place.run_with("one", &["--conversation", "ann"]);
    let stores = place.stores();
    let file = place.project.path().join("runs.export");
    let file = file.to_str().unwrap();
    assert_eq!(place.said(&["runs", "export", file]).code, Some(0));
    let second = stores.join("2");
    for target in [&[][..], &["--store", stores.join("1").to_str().unwrap()], &["--store", second.to_str().unwrap()]] {
        let refused = place.said(&[&["runs", "import", file], target].concat());
        let is_named = refused.error.contains(&format!("run {run} in {}", stores.join("1").display()))
            && refused.error.contains(&format!("callboard runs delete {run}"))
            && refused.error.contains("conversation ann in ")
            && refused.error.contains("--store FOLDER");
        assert!(refused.code == Some(2) && is_named, "{target:?}: {} {}", refused.out, refused.error);
        assert_eq!(numbers(&stores), [1], "{target:?}");
    }
    assert_eq!(place.said(&["runs", "import", file, "--store", "elsewhere"]).code, Some(0));

    let again = place.said(&["runs", "import", file, "--again"]);
    assert_eq!((again.code, numbers(&stores)), (Some(0), vec![1, 2]), "{}", again.error);
    let listed = place.said(&["runs", "list"]);
    assert!(
        listed.out.contains(&format!("run {run} is in several stores: choose one with --store ")),
        "{}",
        listed.out
    );
    let rows: Vec<Value> = serde_json::from_str(&place.said(&["runs", "list", "--json"]).out).unwrap();
    assert_eq!(
        (rows[0]["also_in"][0].clone(), rows[1]["also_in"][0].clone()),
        (rows[1]["store"].clone(), rows[0]["store"].clone())
    );
    let rows = place.said(&["conversations", "list"]).out;
    assert!(rows.contains("conversation ann is in several stores"), "{rows}");
    for line in [
        &["run", "--resume", &run][..],
        &["run", "--retry", &run],
        &["runs", "delete", &run],
        &["runs", "delete", "@last"],
        &["runs", "show", &run[..13]],
        &["runs", "fork", &run, "--turn", "1"],
        &["conversations", "show", "ann"],
        &["conversations", "delete", "ann"],
    ] {
        let refused = place.said(line);
        let is_named = refused.error.contains("is in several stores") && choices(&refused.error).len() == 2;
        assert!(refused.code == Some(2) && is_named, "{line:?}: {} {}", refused.out, refused.error);
    }
    let other = choices(&place.said(&["runs", "show", &run]).error).remove(1);
    for line in [["conversations", "delete", "ann"], ["runs", "delete", &run]] {
        assert_eq!(place.said(&[&line[..], &["--store", &other]].concat()).code, Some(0));
    }
    assert_eq!(place.said(&["runs", "show", &run]).code, Some(0));
    assert_eq!(place.said(&["conversations", "show", "ann"]).code, Some(0));

    // What has gone on since is not the same.
    place.run_with("two", &["--conversation", "ann"]);
    assert_eq!(place.said(&["runs", "delete", &run]).code, Some(0));
    let refused = place.said(&["runs", "import", file, "--again"]);
    let is_named = refused.error.contains("with other content") && refused.error.contains("conversation ann in ");
    assert!(refused.code == Some(2) && is_named && !refused.error.contains(&run), "{} {}", refused.out, refused.error);
}

#[test]
fn a_conversation_that_was_imported_continues_in_its_store_while_others_are_busy() {
    let (place, other, busy) = (Place::new(), Place::new(), Model::start());
    place.run_with("one", &["--conversation", "ann"]);
    let export = place.said(&["runs", "export"]).out;
    fs::write(other.project.path().join("runs.export"), export).unwrap();
    other.run("first");
    assert_eq!(other.said(&["runs", "import", "runs.export"]).code, Some(0));
    fs::write(other.project.path().join("busy.toml"), busy.catalog()).unwrap();
    let mut slow = other.command(&["run", "slow", "--store"]);
    let child = slow.arg(other.stores().join("2")).args(["--models", "busy.toml"]).spawn().unwrap();
    busy.asked();
    // The answer to a run that would begin in another store.
    other.model.says("never read");
    let refused = other.said(&["run", "two", "--conversation", "ann"]);
    let reason = format!("which process {} has open", child.id());
    assert!(refused.code == Some(2) && refused.error.contains(&reason), "{} {}", refused.out, refused.error);
    busy.says("done");
    assert_eq!(ended(child).code, Some(0));
}

#[test]
fn what_may_be_in_a_store_that_cannot_be_looked_into_is_not_reported_as_missing() {
    let (place, busy) = (Place::new(), Model::start());
    fs::write(place.project.path().join("busy.toml"), busy.catalog()).unwrap();
    let mut child = place.command(&["run", "two", "--models", "busy.toml", "--conversation", "ann"]).spawn().unwrap();
    let mut printed = BufReader::new(child.stderr.take().unwrap()).lines();
    let id = printed.find_map(|line| Some(line.unwrap().strip_prefix("run ")?.to_owned())).unwrap();
    busy.asked();
    let lines = [
        &["runs", "show", &id][..],
        &["runs", "replay", &id],
        &["runs", "diff", &id, &id],
        &["runs", "fork", &id, "--turn", "1"],
        &["runs", "delete", &id],
        &["run", "--resume", &id],
        &["run", "--retry", &id],
        &["workflow", "history", &id],
        &["workflow", "resume", &id],
        &["conversations", "show", "ann"],
        &["conversations", "delete", "ann"],
    ];
    let refused = |why: &str| {
        for line in lines {
            let refused = place.said(line);
            let is_named = refused.error.contains("may be in a store that could not be looked into")
                && refused.error.contains(why)
                && !refused.error.contains("there is no");
            assert!(refused.code == Some(2) && is_named, "{line:?}: {} {}", refused.out, refused.error);
        }
    };
    refused(&format!("process {} has it open: wait until it has ended, or stop it", child.id()));
    let first = place.run("three");
    let beginning = place.said(&["runs", "delete", &first[..13]]);
    assert!(beginning.code == Some(2) && beginning.error.contains("whole id"), "{}", beginning.error);
    refused("has it open");
    busy.says("two");
    assert!(child.wait().unwrap().success());
    // One that is damaged is as unknown.
    let format = place.stores().join("1/format");
    let whole = fs::read(&format).unwrap();
    fs::write(&format, "x").unwrap();
    refused("its file `format` is damaged");
    fs::write(&format, whole).unwrap();
    assert_eq!(place.said(&["runs", "show", &id]).code, Some(0));
}

#[test]
fn a_prune_that_skips_a_store_names_it_and_fails() {
    let (place, busy) = (Place::new(), Model::start());
    place.run("one");
    fs::write(place.project.path().join("busy.toml"), busy.catalog()).unwrap();
    let child = place.command(&["run", "two", "--models", "busy.toml"]).spawn().unwrap();
    busy.asked();
    let names = format!("process {} has it open", child.id());
    let nothing = place.said(&["runs", "prune", "--older-than", "0m"]);
    let is_named = nothing.out.contains("0 runs deleted\n") && nothing.out.contains(&names);
    assert!(nothing.code == Some(2) && is_named, "{} {}", nothing.out, nothing.error);
    place.run("three");
    let some: Value =
        serde_json::from_str(&place.said(&["runs", "prune", "--older-than", "0m", "--json"]).out).unwrap();
    assert_eq!(some["deleted"].as_array().unwrap().len(), 1);
    assert!(some["not_looked_into"][0]["error"].as_str().unwrap().contains(&names), "{some}");
    busy.says("two");
    assert!(child.wait_with_output().unwrap().status.success());
    let all = place.said(&["runs", "prune", "--older-than", "0m"]);
    assert_eq!((all.code, all.out), (Some(0), "2 runs deleted\n".to_owned()));
}

#[test]
fn nothing_is_left_of_a_store_that_could_not_be_made() {
    let place = Place::new();
    // As on a disk that is full: no file may have a byte.
    let on_a_full_disk = |arguments: &[&str]| {
        let program = env!("CARGO_BIN_EXE_callboard");
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\" --model fake", program]).args(arguments);
        shell.current_dir(&place.project).env("XDG_STATE_HOME", place.state.path()).env_remove("CALLBOARD_STORE");
        said(shell)
    };
    let state = place.state.path().join("callboard");
    for arguments in [&["run", "x"][..], &["run", "x", "--store", "deep/data"]] {
        let refused = on_a_full_disk(arguments);
        assert_eq!(refused.code, Some(2), "{}", refused.error);
        assert!(refused.error.contains("cannot open the store"), "{}", refused.error);
    }
    assert!(!state.exists() && !place.project.path().join("deep").exists());
    // A store that was there stays, and none is added.
    place.run("one");
    let format = place.stores().join("1/format");
    let whole = fs::read(&format).unwrap();
    fs::write(&format, "x").unwrap();
    for _ in 0..3 {
        assert_eq!(on_a_full_disk(&["run", "x"]).code, Some(2));
        assert_eq!(numbers(&place.stores()), [1]);
    }
    fs::write(&format, whole).unwrap();
    assert_eq!(tasks(&place.said(&["runs", "list", "--json"])), ["one"]);
}

#[test]
fn an_export_that_is_killed_leaves_nothing() {
    let place = Place::new();
    let store = place.project.path().join("data");
    fill(&store);
    let target = tempfile::tempdir().unwrap();
    let mut export = place.command(&["runs", "export", "--store", "data"]);
    let mut child = export.arg(target.path().join("runs.export")).spawn().unwrap();
    // It has opened what it writes to, whatever that is called.
    let files = PathBuf::from(format!("/proc/{}/fd", child.id()));
    let folder = fs::canonicalize(&target).unwrap();
    let is_of_target = |file: fs::DirEntry| fs::read_link(file.path()).is_ok_and(|file| file.starts_with(&folder));
    while child.try_wait().unwrap().is_none() && !fs::read_dir(&files).into_iter().flatten().flatten().any(is_of_target)
    {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let left: Vec<_> = fs::read_dir(&target).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert!(left.is_empty() || left == ["runs.export"], "{left:?}");
    for file in left {
        let whole = fs::read_to_string(target.path().join(file)).unwrap();
        assert!(whole.lines().last().unwrap().starts_with("{\"end\""));
    }
}

/// A store with much in it.
fn fill(folder: &Path) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Sled::open(folder).unwrap();
        for number in 0..24 {
            let (key, value) = (Key::new(["x", &number.to_string()]), vec![7; 1 << 20].into());
            let (expected, durability) = (Expected::Absent, Durability::Memory);
            store.put_if_revision(Put { key, value, expected, ttl_secs: None, durability }).await.unwrap();
        }
        store.close().await;
    });
}

#[test]
fn what_is_no_file_beside_the_stores_of_a_project_stops_nothing() {
    let place = Place::new();
    place.run("one");
    let stores = place.stores();
    let make_pipe = |path: &Path| {
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    };
    fs::remove_file(stores.join("project.json")).unwrap();
    make_pipe(&stores.join("project.json"));
    for folder in [stores.join(".import-left"), place.state.path().join("callboard/scratch/left")] {
        fs::create_dir_all(&folder).unwrap();
        make_pipe(&folder.join("lock"));
    }
    place.run("two");
    let about = fs::symlink_metadata(stores.join("project.json")).unwrap();
    assert!(about.is_file(), "it is made again");
    let export = place.said(&["runs", "export"]).out;
    fs::write(place.project.path().join("runs.export"), export).unwrap();
    assert_eq!(place.said(&["runs", "import", "runs.export", "--again"]).code, Some(0));
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
    assert_eq!((resumed.code, resumed.out.as_str()), (Some(0), "one\n"), "its result is printed: {}", resumed.error);
    let retried = as_somebody_else(&["run", "--retry", "@last", "--model", "fake"]);
    assert!(retried.code == Some(2) && retried.error.contains("cannot be opened"), "{}", retried.error);
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
