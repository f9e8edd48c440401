//! The stores of a project: real processes, with a state folder of their own.

#![cfg(unix)]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use callboard::messages::Durability;
use callboard::prelude::{Callboard, Task, Turn};
use callboard::storage::{Expected, Key, Put, Sled, Storage as _};
use serde_json::Value;

use crate::support::agents::program;
use crate::support::model::Model;
use crate::support::project::{Project, tasks};
use crate::support::runs::released;
use crate::support::{CALLBOARD, Printed, copy_callboard, ended, make_pipe, output_of, short};

/// The numbers of a project's stores.
fn numbers(stores: &Path) -> Vec<u32> {
    let files = fs::read_dir(stores).unwrap().map(|file| file.unwrap().file_name());
    let mut numbers: Vec<u32> = files.filter_map(|name| name.to_str()?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn runs_are_stored_for_the_project_and_found_from_its_folders() {
    let project = Project::new();
    let first = project.run("one");
    let second = project.run("two");
    fs::create_dir_all(project.folder.path().join("deep/er")).unwrap();
    let mut list = project.command(&["runs", "list", "--json"]);
    list.current_dir(project.folder.path().join("deep/er"));
    assert_eq!(tasks(&output_of(list)), ["one", "two"]);
    assert!(project.callboard(&["runs", "show", "@last"]).out.contains(&second));
    assert!(project.callboard(&["runs", "show", &first]).out.contains(&first));
    // Another project has its own runs.
    let other = tempfile::tempdir().unwrap();
    let mut list = project.command(&["runs", "list"]);
    list.current_dir(&other);
    let none = output_of(list);
    assert_eq!((none.code, &*none.out), (Some(0), "there are no runs\n"));
    let why = format!("the project {} has no store: none is in ", other.path().display());
    assert!(none.error.starts_with(&why), "{}", none.error);
    let newest = project.callboard(&["runs", "list", "--limit", "1"]);
    assert!(newest.out.contains(&second) && !newest.out.contains(&first), "{}", newest.out);
    assert!(newest.out.ends_with("\nthe newest 1 of 2 runs\n"), "{}", newest.out);
    assert_eq!(tasks(&project.callboard(&["runs", "list", "--limit", "1", "--json"])), ["two"]);
    assert_eq!(project.callboard(&["runs", "list", "--limit", "0"]).code, Some(2));
    // Other users cannot read them.
    let mode = fs::metadata(project.stores().join("1")).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "{mode:o}");
    assert_eq!(fs::read_dir(&project.folder).unwrap().count(), 3, "agents, models.toml and deep");
}

#[test]
fn ephemeral_runs_and_runs_in_a_named_store_are_not_among_those_of_the_project() {
    let project = Project::new();
    for arguments in [&["run", "x", "--ephemeral"][..], &["run", "x", "--store", "data"]] {
        project.model.answers("done");
        assert_eq!(project.callboard(arguments).code, Some(0));
    }
    project.model.answers("done");
    let mut named = project.command(&["run", "by variable"]);
    assert_eq!(output_of(named.env("CALLBOARD_STORE", "data")).code, Some(0));
    assert!(!project.state.path().join("callboard").exists());
    assert_eq!(tasks(&project.callboard(&["runs", "list", "--store", "data", "--json"])), ["x", "by variable"]);
    let both = project.callboard(&["run", "x", "--ephemeral", "--store", "data"]);
    assert_eq!(both.code, Some(2), "{}", both.error);
}

/// Processes that each run a task, with a model each that has received its request.
fn begun(project: &Project, models: &[Model]) -> Vec<Child> {
    let begin = |(number, model): (usize, &Model)| {
        let catalog = format!("m{number}.toml");
        fs::write(project.folder.path().join(&catalog), model.catalog()).unwrap();
        let child = project.command(&["run", &format!("task {number}"), "--models", &catalog]).spawn().unwrap();
        model.request();
        child
    };
    models.iter().enumerate().map(begin).collect()
}

#[test]
fn concurrent_processes_share_a_store_and_see_each_others_runs() {
    let project = Project::new();
    let models: Vec<Model> = (0..3).map(|_| Model::start()).collect();
    let running = begun(&project, &models);
    let listed = project.callboard(&["runs", "list", "--json"]);
    assert_eq!(tasks(&listed), ["task 0", "task 1", "task 2"]);
    for row in listed.parsed::<Value>().as_array().unwrap() {
        let run = row["run"].as_str().unwrap();
        assert_eq!(project.callboard(&["runs", "show", run]).code, Some(0));
        for line in [["runs", "delete", run], ["run", "--resume", run]] {
            let refused = project.callboard(&line);
            let reason = format!("another process works on run {run}: wait until it has ended, or cancel it");
            assert!(refused.code == Some(6) && refused.error.contains(&reason), "{line:?}: {}", refused.error);
        }
    }
    models.iter().for_each(|model| model.answers("done"));
    for child in running {
        assert_eq!(ended(child).code, Some(0));
    }
    assert_eq!(tasks(&project.callboard(&["runs", "list", "--state", "finished", "--json"])).len(), 3);
    assert_eq!(numbers(&project.stores()), [1]);
}

#[test]
fn runs_of_other_processes_continue_when_the_one_that_has_the_files_open_is_killed() {
    let project = Project::new();
    let models: Vec<Model> = (0..4).map(|_| Model::start()).collect();
    let mut running = begun(&project, &models);
    // The first opened the files.
    let mut first = running.remove(0);
    first.kill().unwrap();
    first.wait().unwrap();
    models[1..].iter().for_each(|model| model.answers("done"));
    for child in running {
        let ended = ended(child);
        assert_eq!((ended.code, &*ended.out), (Some(0), "done\n"), "{}", ended.error);
    }
    let open = project.callboard(&["runs", "list", "--state", "open", "--json"]);
    assert_eq!(tasks(&open), ["task 0"]);
    models[0].answers("never read");
    models[0].answers("late");
    let resumed = project.callboard(&[
        "run",
        "--resume",
        open.parsed::<Value>()[0]["run"].as_str().unwrap(),
        "--models",
        "m0.toml",
    ]);
    assert_eq!((resumed.code, &*resumed.out), (Some(0), "late\n"), "{}", resumed.error);
}

#[test]
fn the_last_run_is_the_newest_by_time_also_beside_ids_that_are_no_times() {
    let project = Project::new();
    project.run("first");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Sled::open(project.stores().join("1")).unwrap();
        let echo = |_: Turn| async { Ok(callboard::prelude::Command::new()) };
        let board = Callboard::builder().storage(store).agent("writer", echo).start().await.unwrap();
        // As an idempotency key makes one: it sorts behind all others.
        let task = Task { id: Some("ffffffff-ffff-8fff-bfff-ffffffffffff".parse().unwrap()), ..Task::new("keyed") };
        board.submit(task).await.unwrap().result().await.unwrap();
        board.shutdown().await;
    });
    project.run("last");
    assert_eq!(tasks(&project.callboard(&["runs", "list", "--json"])), ["first", "keyed", "last"]);
    assert!(project.callboard(&["runs", "show", "@last"]).out.contains("last"));
    assert!(project.callboard(&["runs", "delete", "@last"]).out.contains(" is deleted"));
    assert_eq!(tasks(&project.callboard(&["runs", "list", "--json"])), ["first", "keyed"]);
}

#[test]
fn a_killed_run_is_resumed_at_once_by_its_id_or_as_the_last_one() {
    for by_id in [true, false] {
        let project = Project::new();
        project.run("before");
        project.run_killed(&["run", "write"]);
        let listed: Vec<Value> = project.callboard(&["runs", "list", "--json"]).parsed();
        let id = listed.last().unwrap()["run"].as_str().unwrap().to_owned();
        project.model.answers("never read");
        project.model.answers("whole");
        let again = project.callboard(&["run", "--resume", if by_id { &id } else { "@last" }]);
        assert!(again.error.contains(&format!("run {}\n", short(&id))), "{}", again.error);
        assert_eq!(again.code, Some(0), "{}", again.error);
        let result = project.callboard(&["run", "--resume", &id]);
        assert_eq!((result.code, result.out), (Some(0), again.out), "its result is printed: {}", result.error);
    }
}

#[test]
fn a_store_is_not_created_among_other_files() {
    let project = Project::new();
    let run = project.run("one");
    let files = project.folder.path().join("files");
    fs::create_dir(&files).unwrap();
    fs::write(files.join("notes.txt"), "mine").unwrap();
    assert_eq!(project.callboard(&["runs", "export", "one.export"]).code, Some(0));
    for arguments in [
        &["run", "x", "--model", "fake", "--store", "files"][..],
        &["workflow", "run", "--line", "a", "--agent", "a=cat", "--store", "files"],
        &["runs", "import", "one.export", "--store", "files"],
    ] {
        let refused = project.callboard(arguments);
        let error = "error: files has other files and no store: name a folder that is empty, or does not exist\n";
        assert_eq!((refused.code, &*refused.error), (Some(2), error), "{arguments:?}");
        assert_eq!(fs::read_dir(&files).unwrap().count(), 1, "{arguments:?}");
    }
    // The creation of a store was killed there.
    fs::remove_file(files.join("notes.txt")).unwrap();
    ["lock", "synced", "format.unfinished"].iter().for_each(|file| fs::write(files.join(file), "").unwrap());
    let imported = project.callboard(&["runs", "import", "one.export", "--store", "files"]);
    assert_eq!(imported.code, Some(0), "{}", imported.error);
    assert_eq!(project.callboard(&["runs", "show", &run, "--store", "files"]).code, Some(0));
}

#[test]
fn deleting_a_run_deletes_no_other() {
    let project = Project::new();
    let [first, second, third] = ["one", "two", "three"].map(|words| project.run(words));
    let deleted = project.callboard(&["runs", "delete", &first, &third]);
    assert_eq!(deleted.out, format!("run {first} is deleted\nrun {third} is deleted\n"), "{}", deleted.error);
    assert_eq!(tasks(&project.callboard(&["runs", "list", "--json"])), ["two"]);
    let again = project.callboard(&["runs", "delete", &second, &first]);
    assert!(again.code == Some(3) && again.error.contains(&format!("run {second} is deleted")), "{}", again.error);
}

#[test]
fn runs_are_listed_and_pruned_by_filters() {
    let project = Project::new();
    for words in ["Fix the parser", "write a test"] {
        project.run(words);
    }
    let failed = project.callboard(&["run", "judge", "--to", "complexity", "--model", "fake"]);
    assert_eq!(failed.code, Some(1), "{}", failed.error);
    let listed = |choice: &[&str]| tasks(&project.callboard(&[&["runs", "list", "--json"], choice].concat()));
    assert_eq!(listed(&["--text", "PARSER"]), ["Fix the parser"]);
    assert_eq!(listed(&["--state", "failed"]), ["judge"]);
    assert_eq!(listed(&["--agent", "writer", "--since", "1h"]).len(), 2);
    assert_eq!(listed(&["--older-than", "1h"]), [""; 0]);
    assert_eq!(project.callboard(&["runs", "list", "--text", "nothing"]).out, "there are no such runs\n");
    assert_eq!(project.callboard(&["runs", "prune"]).code, Some(2), "without a filter nothing is deleted");
    assert_eq!(project.callboard(&["runs", "prune", "--older-than", "1h"]).out, "0 runs deleted\n");
    assert_eq!(
        project.callboard(&["runs", "prune", "--state", "fa", "--text", "e", "--since", "1d"]).out,
        "1 run deleted\n"
    );
    assert_eq!(listed(&[]), ["Fix the parser", "write a test"]);
    // An ambiguous or empty filter deletes nothing.
    for wrong in [["--state", "f"], ["--state", ""], ["--state", "finisched"], ["--text", ""], ["--agent", ""]] {
        let refused = project.callboard(&["runs", "prune", wrong[0], wrong[1]]);
        assert_eq!(refused.code, Some(2), "{wrong:?}: {} {}", refused.out, refused.error);
    }
    assert_eq!(listed(&[]).len(), 2);
    assert_eq!(project.callboard(&["runs", "prune", "--older-than", "0m"]).out, "2 runs deleted\n");
    assert_eq!(listed(&[]), [""; 0]);
}

#[test]
fn an_export_is_imported_into_another_project() {
    let (project, other) = (Project::new(), Project::new());
    let run = project.run("one");
    let file = project.folder.path().join("runs.export");
    let exported = project.callboard(&["runs", "export", file.to_str().unwrap()]);
    assert!(exported.code == Some(0) && exported.out.starts_with("exported: "), "{} {}", exported.out, exported.error);
    assert_eq!(
        project.callboard(&["runs", "export", file.to_str().unwrap()]).code,
        Some(2),
        "files are not overwritten"
    );
    assert_eq!(project.callboard(&["runs", "export"]).out, fs::read_to_string(&file).unwrap());
    assert_eq!(project.callboard(&["runs", "export", "-"]).out, fs::read_to_string(&file).unwrap());
    assert!(!project.folder.path().join("-").exists());
    let refused = project.callboard(&["runs", "export", "-", "--json"]);
    assert!(refused.code == Some(2) && refused.out.contains("without a FILE"), "{}", refused.out);
    other.run("two");
    let imported = other.callboard(&["runs", "import", file.to_str().unwrap()]);
    assert_eq!(imported.code, Some(0), "{}", imported.error);
    assert_eq!(numbers(&other.stores()), [1, 2], "into a store of its own");
    let named = other.callboard(&["runs", "import", file.to_str().unwrap(), "--store", "named"]);
    assert_eq!(named.code, Some(0), "{}", named.error);
    assert_eq!(tasks(&other.callboard(&["runs", "list", "--json", "--store", "named"])), ["one"]);
    let again = other.callboard(&["runs", "import", file.to_str().unwrap(), "--store", "named"]);
    assert!(again.code == Some(2) && again.error.contains("not empty"), "{}", again.error);
    assert_eq!(tasks(&other.callboard(&["runs", "list", "--json"])), ["one", "two"]);
    assert!(other.callboard(&["runs", "show", &run]).out.contains("one"));
    fs::write(&file, "no export").unwrap();
    let refused = other.callboard(&["runs", "import", file.to_str().unwrap(), "--store", "data"]);
    let why =
        "runs.export: line 1 of the export is wrong: an export begins with {\"callboard\":\"export\",\"version\":1}";
    assert!(refused.code == Some(2) && refused.error.contains(why), "{}", refused.error);
    assert!(!other.folder.path().join("data").exists(), "nothing of it is left");
    let several = other.callboard(&["runs", "export"]);
    assert!(several.code == Some(2) && several.error.contains("there are several stores"), "{}", several.error);
}

#[test]
fn nothing_of_an_import_is_taken_if_something_follows_its_end() {
    let (project, other) = (Project::new(), Project::new());
    project.run("one");
    let export = project.callboard(&["runs", "export"]).out;
    let end = export.lines().count();
    let (twice, blank) = (other.folder.path().join("twice"), other.folder.path().join("blank"));
    fs::write(&twice, format!("{export}\n{export}")).unwrap();
    fs::write(&blank, format!("{export}\n  \n")).unwrap();
    let why = format!(
        "twice: line {} of the export is wrong: the export has ended in line {end}, and nothing may follow; import each export by itself; \
         nothing is imported\n",
        end + 2
    );
    fs::create_dir(other.folder.path().join("named")).unwrap();
    let import =
        |file: &Path, store: &[&str]| other.callboard(&[&["runs", "import", file.to_str().unwrap()], store].concat());
    for store in [&[][..], &["--store", "new"], &["--store", "named"]] {
        let refused = import(&twice, store);
        assert!(refused.code == Some(2) && refused.error.ends_with(&why), "{store:?}: {}", refused.error);
    }
    assert_eq!(fs::read_dir(other.folder.path().join("named")).unwrap().count(), 0, "nothing is written");
    assert!(!other.folder.path().join("new").exists());
    assert_eq!(other.callboard(&["runs", "list"]).out, "there are no runs\n");
    for store in [&[][..], &["--store", "named"]] {
        assert_eq!(import(&blank, store).code, Some(0), "{store:?}");
    }
    assert_eq!(tasks(&other.callboard(&["runs", "list", "--json", "--store", "named"])), ["one"]);
}

#[test]
fn a_run_that_could_not_be_read_is_refused_with_its_line() {
    let (project, other) = (Project::new(), Project::new());
    project.run("one");
    let run = project.callboard(&["runs", "list", "--json"]).json()[0]["run"].as_str().unwrap().to_owned();
    let export = project.callboard(&["runs", "export"]).out;
    let (without, _) = export.trim_end().rsplit_once(",\"crc32\":").unwrap();
    let changed = |from: &str, to: &str| format!("{}}}\n", without.replacen(from, to, 1));
    let file = other.folder.path().join("changed");
    for (from, to, why) in [
        ("\"sequence\":1,", "\"sequence\":9999999,", format!("the first record of run {run} has the sequence 9999999")),
        (
            "\"payload\":\"cb1d",
            "\"payload\":\"cb1c",
            format!("record 1 of run {run} cannot be read: these bytes are not a callboard record"),
        ),
    ] {
        fs::write(&file, changed(from, to)).unwrap();
        let refused = other.callboard(&["runs", "import", "changed"]);
        let why = format!(
            "error: changed: line 2 of the export is wrong: {why}; use another copy of the export; nothing is imported\n"
        );
        assert_eq!((refused.code, &*refused.error), (Some(2), &*why));
    }
    assert_eq!(other.callboard(&["runs", "list"]).out, "there are no runs\n");
}

#[test]
fn files_that_cannot_be_imported_or_exported_are_named_with_what_to_do() {
    let project = Project::new();
    let run = project.run("one");
    let folder = project.folder.path();
    fs::write(folder.join("there"), "mine").unwrap();
    for (arguments, expected) in [
        (&["runs", "import", "nowhere"][..], "error: nowhere: there is no such file; nothing is imported\n"),
        (&["runs", "import", "agents"], "error: agents: it is not a file; nothing is imported\n"),
        (&["runs", "export", "there"], "to there: it exists already; name another one, or remove it first\n"),
        (
            &["runs", "export", "@last"],
            "error: `runs export` writes a whole store, and @last names a run: name a FILE, or leave it out for standard \
             output; a file of that name is ./@last\n",
        ),
        (&["runs", "export", &*run], "writes a whole store, and "),
        (&["runs", "export", "no/where"], "error: the export cannot be written to no/where: there is no such "),
    ] {
        let refused = project.callboard(arguments);
        let is_worded = refused.error.contains(expected) && !refused.error.contains("os error");
        assert!(refused.code == Some(2) && is_worded, "{arguments:?}: {}", refused.error);
    }
    let mut command = project.command(&["runs", "import", "-"]);
    let refused = output_of(command.stdin(fs::File::open(folder).unwrap()));
    let expected = "error: standard input: it is a folder; name a file; nothing is imported\n";
    assert_eq!((refused.code, &*refused.error), (Some(2), expected));
}

/// The values of --store in an error or a note.
fn choices(text: &str) -> Vec<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.windows(2).filter(|words| words[0] == "--store").map(|words| words[1].to_owned()).collect()
}

#[test]
fn duplicates_are_imported_only_with_the_option_and_are_named_from_then_on() {
    let project = Project::new();
    let run = project.run_with("one", &["--conversation", "ann"]);
    let stores = project.stores();
    let file = project.folder.path().join("runs.export");
    let file = file.to_str().unwrap();
    assert_eq!(project.callboard(&["runs", "export", file]).code, Some(0));
    let second = stores.join("2");
    for target in [&[][..], &["--store", stores.join("1").to_str().unwrap()], &["--store", second.to_str().unwrap()]] {
        let refused = project.callboard(&[&["runs", "import", file], target].concat());
        let is_named = refused.error.contains(&format!("run {run} in {}", stores.join("1").display()))
            && refused.error.contains(&format!("callboard runs delete {run}"))
            && refused.error.contains("conversation ann in ")
            && refused.error.contains("--store FOLDER");
        assert!(refused.code == Some(2) && is_named, "{target:?}: {} {}", refused.out, refused.error);
        assert_eq!(numbers(&stores), [1], "{target:?}");
    }
    assert_eq!(project.callboard(&["runs", "import", file, "--store", "elsewhere"]).code, Some(0));

    let again = project.callboard(&["runs", "import", file, "--again"]);
    assert_eq!((again.code, numbers(&stores)), (Some(0), vec![1, 2]), "{}", again.error);
    let listed = project.callboard(&["runs", "list"]).out;
    assert!(listed.contains("\n1 run\n") && listed.matches(&run).count() > 2, "one run, in two lines: {listed}");
    let listed = project.callboard(&["runs", "list"]);
    assert!(
        listed.out.contains(&format!("run {run} is in several stores: choose one with --store ")),
        "{}",
        listed.out
    );
    let rows: Vec<Value> = project.callboard(&["runs", "list", "--json"]).parsed();
    assert_eq!(
        (rows[0]["also_in"][0].clone(), rows[1]["also_in"][0].clone()),
        (rows[1]["store"].clone(), rows[0]["store"].clone())
    );
    let rows = project.callboard(&["conversations", "list"]).out;
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
        let refused = project.callboard(line);
        let is_named = refused.error.contains("is in several stores") && choices(&refused.error).len() == 2;
        assert!(refused.code == Some(2) && is_named, "{line:?}: {} {}", refused.out, refused.error);
    }
    let other = choices(&project.callboard(&["runs", "show", &run]).error).remove(1);
    for line in [["conversations", "delete", "ann"], ["runs", "delete", &run]] {
        assert_eq!(project.callboard(&[&line[..], &["--store", &other]].concat()).code, Some(0));
    }
    assert_eq!(project.callboard(&["runs", "show", &run]).code, Some(0));
    assert_eq!(project.callboard(&["conversations", "show", "ann"]).code, Some(0));

    // A conversation that has continued since differs.
    project.run_with("two", &["--conversation", "ann"]);
    assert_eq!(project.callboard(&["runs", "delete", &run]).code, Some(0));
    let refused = project.callboard(&["runs", "import", file, "--again"]);
    let is_named = refused.error.contains("with other content") && refused.error.contains("conversation ann in ");
    assert!(refused.code == Some(2) && is_named && !refused.error.contains(&run), "{} {}", refused.out, refused.error);
}

#[test]
fn an_imported_conversation_continues_in_its_own_store() {
    let (project, other) = (Project::new(), Project::new());
    project.run_with("one", &["--conversation", "ann"]);
    let export = project.callboard(&["runs", "export"]).out;
    fs::write(other.folder.path().join("runs.export"), export).unwrap();
    other.run("first");
    assert_eq!(other.callboard(&["runs", "import", "runs.export"]).code, Some(0));
    other.run_with("two", &["--conversation", "ann"]);
    let second = other.stores().join("2");
    let listed = other.callboard(&["runs", "list", "--json", "--store", second.to_str().unwrap()]);
    assert_eq!(tasks(&listed), ["one", "two"]);
}

#[test]
fn a_run_that_may_be_in_a_store_that_cannot_be_opened_is_not_reported_as_missing() {
    let project = Project::new();
    let id = project.run_with("two", &["--conversation", "ann"]);
    // As an earlier version of the program has it open.
    let unshared = Sled::open(project.stores().join("1")).unwrap();
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
    let refused = |code: i32, why: &str| {
        for line in lines {
            let refused = project.callboard(line);
            let is_named = refused.error.contains("may be in a store that could not be opened")
                && refused.error.contains(why)
                && !refused.error.contains("there is no");
            assert!(refused.code == Some(code) && is_named, "{line:?}: {} {}", refused.out, refused.error);
        }
    };
    refused(6, &format!("process {} has it open: wait until it has ended, or stop it", std::process::id()));
    let second = project.run("three");
    let beginning = project.callboard(&["runs", "delete", &second[..13]]);
    assert!(beginning.code == Some(6) && beginning.error.contains("whole id"), "{}", beginning.error);
    refused(6, "has it open");
    drop(unshared);
    // A damaged store cannot be opened either.
    let format = project.stores().join("1/format");
    let whole = fs::read(&format).unwrap();
    fs::write(&format, "x").unwrap();
    refused(1, "its file `format` is damaged");
    fs::write(&format, whole).unwrap();
    assert_eq!(project.callboard(&["runs", "show", &id]).code, Some(0));
}

#[test]
fn a_prune_that_skips_a_store_names_it_and_fails() {
    let project = Project::new();
    project.run("one");
    let unshared = Sled::open(project.stores().join("1")).unwrap();
    let names = format!("process {} has it open", std::process::id());
    let nothing = project.callboard(&["runs", "prune", "--older-than", "0m"]);
    let is_named = nothing.out.contains("0 runs deleted\n") && nothing.out.contains(&names);
    assert!(nothing.code == Some(6) && is_named, "{} {}", nothing.out, nothing.error);
    project.run("three");
    let some: Value = project.callboard(&["runs", "prune", "--older-than", "0m", "--json"]).parsed();
    assert_eq!(some["deleted"].as_array().unwrap().len(), 1);
    assert!(some["not_looked_into"][0]["error"].as_str().unwrap().contains(&names), "{some}");
    drop(unshared);
    let all = project.callboard(&["runs", "prune", "--older-than", "0m"]);
    assert_eq!((all.code, all.out), (Some(0), "1 run deleted\n".to_owned()));
}

#[test]
fn nothing_is_left_of_a_store_that_could_not_be_created() {
    let project = Project::new();
    // As on a full disk: no file may have a byte.
    let on_a_full_disk = |arguments: &[&str]| {
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\" --model fake", CALLBOARD]).args(arguments);
        shell.current_dir(&project.folder).env("XDG_STATE_HOME", project.state.path()).env_remove("CALLBOARD_STORE");
        output_of(shell)
    };
    let state = project.state.path().join("callboard");
    for arguments in [&["run", "x"][..], &["run", "x", "--store", "deep/data"]] {
        let refused = on_a_full_disk(arguments);
        assert_eq!(refused.code, Some(1), "{}", refused.error);
        assert!(refused.error.contains("cannot open the store"), "{}", refused.error);
    }
    assert!(!state.exists() && !project.folder.path().join("deep").exists());
    // An existing store is kept, and none is added.
    project.run("one");
    let format = project.stores().join("1/format");
    let whole = fs::read(&format).unwrap();
    fs::write(&format, "x").unwrap();
    for _ in 0..3 {
        assert_eq!(on_a_full_disk(&["run", "x"]).code, Some(1));
        assert_eq!(numbers(&project.stores()), [1]);
    }
    fs::write(&format, whole).unwrap();
    assert_eq!(tasks(&project.callboard(&["runs", "list", "--json"])), ["one"]);
}

#[test]
fn a_killed_export_leaves_nothing() {
    let project = Project::new();
    let store = project.folder.path().join("data");
    fill(&store);
    let target = tempfile::tempdir().unwrap();
    let mut export = project.command(&["runs", "export", "--store", "data"]);
    let mut child = export.arg(target.path().join("runs.export")).spawn().unwrap();
    // Wait until it has opened the file that it writes to, whatever its name is.
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

/// Makes a large store.
fn fill(folder: &Path) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Sled::open(folder).unwrap();
        for number in 0..24 {
            let (key, value) = (Key::new(["x", &number.to_string()]), vec![7; 1 << 20].into());
            let (expected, durability) = (Expected::Absent, Durability::Memory);
            store.put_if_revision(Put { expected, durability, ..Put::new(key, value) }).await.unwrap();
        }
        store.close().await.unwrap();
    });
    released(folder);
}

#[test]
fn entries_that_are_not_files_beside_the_stores_of_a_project_are_ignored() {
    let project = Project::new();
    project.run("one");
    let stores = project.stores();
    fs::remove_file(stores.join("project.json")).unwrap();
    make_pipe(stores.join("project.json"));
    for folder in [stores.join(".import-left"), project.state.path().join("callboard/scratch/left")] {
        fs::create_dir_all(&folder).unwrap();
        make_pipe(folder.join("lock"));
    }
    project.run("two");
    let about = fs::symlink_metadata(stores.join("project.json")).unwrap();
    assert!(about.is_file(), "it is written again");
    let export = project.callboard(&["runs", "export"]).out;
    fs::write(project.folder.path().join("runs.export"), export).unwrap();
    assert_eq!(project.callboard(&["runs", "import", "runs.export", "--again"]).code, Some(0));
}

#[test]
fn a_store_without_write_permission_is_read_from_a_copy() {
    let project = Project::new();
    project.run("one");
    let store = project.stores().join("1");
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
    copy_callboard(&program);
    let as_another_user = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.args(arguments).arg("--store").arg(&store).env("TMPDIR", temporary.path());
        if rustix::process::geteuid().is_root() {
            // Root can write to everything.
            command.uid(65_534).gid(65_534);
            for parent in store.ancestors().skip(1).take(3) {
                fs::set_permissions(parent, fs::Permissions::from_mode(0o755)).unwrap();
            }
        }
        output_of(command.current_dir("/"))
    };
    let listed = as_another_user(&["runs", "list", "--json"]);
    assert_eq!(tasks(&listed), ["one"], "{}", listed.error);
    assert_eq!(fs::read(store.join("db")).unwrap(), before);
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 1, "the copy is removed");
    let resumed = as_another_user(&["run", "--resume", "@last", "--model", "fake"]);
    assert_eq!((resumed.code, resumed.out.as_str()), (Some(0), "one\n"), "its result is printed: {}", resumed.error);
    let refused = || {
        let retried = as_another_user(&["run", "--retry", "@last", "--model", "fake"]);
        let remedy = "; this user may not write to it, and only commands that read runs work without that: change its permissions, or \
                      copy the folder of the store and name the copy with --store\n";
        assert!(retried.code == Some(4) && retried.error.ends_with(remedy), "{}", retried.error);
    };
    refused();
    // Its files may be written, and none may be created.
    change(&store, 0o777);
    fs::set_permissions(&store, fs::Permissions::from_mode(0o555)).unwrap();
    let before = fs::read(store.join("db")).unwrap();
    for command in [&["list"][..], &["show", "@last"], &["export"]] {
        let read = as_another_user(&[&["runs"], command].concat());
        assert!(read.code == Some(0) && !read.out.is_empty(), "{command:?}: {} {}", read.out, read.error);
    }
    assert_eq!(fs::read(store.join("db")).unwrap(), before);
    refused();
    change(&store, 0o755);
}

#[test]
fn a_store_without_read_permission_is_not_reported_as_absent() {
    const NOBODY: u32 = 65_534;
    let project = Project::new();
    let run = project.run("one");
    let store = project.stores().join("1");
    let temporary = tempfile::tempdir().unwrap();
    let program = temporary.path().join("callboard");
    copy_callboard(&program);
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        // Root can read everything.
        for folder in
            [temporary.path(), project.state.path(), &project.stores(), &project.state.path().join("callboard")]
        {
            std::os::unix::fs::chown(folder, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        fs::set_permissions(project.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::set_permissions(&store, fs::Permissions::from_mode(0o000)).unwrap();
    let callboard = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.args(arguments).env("XDG_STATE_HOME", project.state.path()).current_dir(&project.folder);
        if is_root {
            command.uid(NOBODY).gid(NOBODY);
        }
        output_of(command)
    };
    let named = store.to_str().unwrap();
    for arguments in [&["list"][..], &["show", &run], &["export"], &["delete", &run]] {
        let refused = callboard(&[&["runs"], arguments, &["--store", named]].concat());
        let why = format!("store in {named} is not known: this user has no permission to access it\n");
        assert!(refused.code == Some(4) && refused.error.ends_with(&why), "{arguments:?}: {}", refused.error);
        let refused = callboard(&[&["runs"], arguments].concat());
        let printed = refused.out + &refused.error;
        let is_named = printed.contains(named) && printed.to_lowercase().contains("permission");
        assert!(refused.code == Some(4) && is_named, "{arguments:?}: {printed}");
    }
    fs::set_permissions(&store, fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn the_last_run_is_not_deleted_while_a_newer_one_may_exist() {
    let project = Project::new();
    project.run("two");
    let unshared = Sled::open(project.stores().join("1")).unwrap();
    let names = format!("process {} has it open", std::process::id());
    let exported = project.callboard(&["runs", "export"]);
    assert!(exported.code == Some(6) && exported.error.contains(&names), "{}", exported.error);
    let other = project.run("three");
    let shown = project.callboard(&["runs", "show", "@last"]);
    assert!(shown.out.contains(&other) && shown.error.contains(&names), "{} {}", shown.out, shown.error);
    let refused = project.callboard(&["runs", "delete", "@last"]);
    assert!(refused.code == Some(6) && refused.error.contains(&names), "{}", refused.error);
    assert_eq!(project.callboard(&["runs", "delete", &other]).out, format!("run {other} is deleted\n"));
    drop(unshared);
    assert_eq!(tasks(&project.callboard(&["runs", "list", "--json"])), ["two"]);
    assert_eq!(project.callboard(&["runs", "delete", "@last"]).code, Some(0));
}

#[test]
fn a_killed_import_leaves_no_run_and_its_files_are_removed_by_the_next_one() {
    let (project, other) = (Project::new(), Project::new());
    project.run("one");
    let exported = project.callboard(&["runs", "export"]).out;
    let mut child = other.command(&["runs", "import", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let (begin, _) = exported.split_at(exported.rfind("{\"end\"").unwrap());
    stdin.write_all(begin.as_bytes()).unwrap();
    // Wait until it has opened a store, whatever its name is.
    let is_open = |folder: fs::DirEntry| folder.path().join("format").exists();
    let projects = || fs::read_dir(other.state.path().join("callboard")).into_iter().flatten().flatten();
    while !projects().any(|project| fs::read_dir(project.path()).unwrap().flatten().any(is_open)) {
        assert!(child.try_wait().unwrap().is_none(), "the import has ended before it has opened a store");
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(tasks(&other.callboard(&["runs", "list", "--json"])), [""; 0]);
    let file = other.folder.path().join("runs.export");
    fs::write(&file, &exported).unwrap();
    assert_eq!(other.callboard(&["runs", "import", "runs.export"]).code, Some(0));
    assert_eq!(tasks(&other.callboard(&["runs", "list", "--json"])), ["one"]);
    let mut left: Vec<_> = fs::read_dir(other.stores()).unwrap().map(|file| file.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["1", "project.json"]);
}

#[test]
fn a_store_with_a_damaged_file_opens_or_is_refused_with_a_remedy_that_works() {
    let project = Project::new();
    project.model.answers("done");
    assert_eq!(project.callboard(&["run", "one", "--store", "data"]).code, Some(0));
    project.model.request();
    let at = |name: &str| project.folder.path().join("data").join(name);
    let pipe = |name: &str| {
        let _ = fs::remove_file(at(name));
        make_pipe(at(name));
    };
    let listed = |wanted: &str, help: &str| {
        let printed = project.callboard(&["runs", "list", "--json", "--store", "data"]);
        let is_as_wanted = if help.is_empty() { printed.code == Some(0) } else { printed.out.contains(help) };
        assert!(is_as_wanted && printed.out.contains(wanted), "{wanted} {help}: {} {}", printed.out, printed.error);
    };
    listed("one", "");
    // Entries in the place of files that sled recreates are moved away.
    for name in ["conf", "snap.00ff", "snap.0a.generating"] {
        pipe(name);
        listed("one", "");
        fs::remove_file(at(name)).unwrap_or_default();
        fs::create_dir(at(name)).unwrap();
        listed("one", "");
    }
    let check = |name: &str, help: &str, repair: &dyn Fn()| {
        let whole = fs::read(at(name)).unwrap();
        let break_it: [&dyn Fn(); 2] = [&|| pipe(name), &|| fs::create_dir(at(name)).unwrap()];
        for break_it in break_it {
            fs::remove_file(at(name)).unwrap();
            break_it();
            listed(&format!("`{name}` is not a file"), help);
            fs::remove_file(at(name)).or_else(|_| fs::remove_dir(at(name))).unwrap();
            repair();
            listed("one", "");
        }
        fs::write(at(name), whole).unwrap();
    };
    check("lock", "remove it", &|| {});
    check("synced", "remove it", &|| {});
    let rewrite = "write the line `callboard store, format 3` into its file `format`";
    let format = || fs::write(at("format"), "callboard store, format 3\n").unwrap();
    check("format", rewrite, &format);
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

/// The command that the hint of a moved project prints; the hint has to name the path where it was.
fn moves<'a>(printed: &'a Printed, before: &Path) -> Option<&'a str> {
    let (_, hint) = printed.error.split_once(&format!("this project was at {} before; ", before.display()))?;
    Some(hint.strip_prefix("to keep its runs and facts: ").unwrap().lines().next().unwrap())
}

#[test]
fn a_moved_project_has_a_hint_to_its_stores_until_they_are_moved() {
    let project = Project::new();
    let run = project.run_with("one", &["--conversation", "ann"]);
    assert_eq!(output_of(&mut project.command(&["kb", "submit", "The gate is open."])).code, Some(0));
    let (parent, before, old) = (tempfile::tempdir().unwrap(), project.folder.path(), project.stores());
    let site = parent.path().join("site");
    fs::rename(before, &site).unwrap();
    let callboard = |arguments: &[&str]| {
        if arguments[0] == "run" {
            project.model.answers("done");
        }
        output_of(project.command(arguments).current_dir(&site))
    };
    let has_hint = |arguments: &[&str]| moves(&callboard(arguments), before).is_some();
    let listed = callboard(&["runs", "list"]);
    assert_eq!(listed.out, "there are no runs\n");
    let whole = moves(&listed, before).unwrap();
    assert!(whole.starts_with(&format!("mv {} ", old.display())) && !whole.contains("&&"), "{whole}");
    assert!(has_hint(&["runs", "show", &run]) && has_hint(&["run", "--resume", &run]), "the run is missed");
    assert!(has_hint(&["conversations", "list"]) && has_hint(&["kb", "query", "gate"]));
    // A run in the new place does not end it, and its command takes both to one place.
    let two = callboard(&["run", "two"]);
    let line = moves(&two, before).unwrap();
    assert!(line.starts_with(&format!("mv {}/1 ", old.display())) && line.ends_with("/knowledge"), "{line}");
    assert!(!has_hint(&["run", "quiet", "--quiet"]) && !has_hint(&["run", "x", "--ephemeral"]));
    assert!(has_hint(&["workflow", "run", "--line", "a", "--agent", "a=echo well"]));
    fs::create_dir(before).unwrap();
    assert!(!has_hint(&["runs", "list"]), "another project is there now");
    fs::remove_dir(before).unwrap();
    assert!(Command::new("sh").args(["-c", line]).status().unwrap().success());
    let listed = callboard(&["runs", "list"]);
    assert!(listed.out.contains(&run) && moves(&listed, before).is_none(), "{}{}", listed.out, listed.error);
    assert_eq!(callboard(&["run", "three", "--conversation", "ann"]).code, Some(0));
    assert!(callboard(&["conversations", "show", "ann"]).out.contains(&run), "it continues");
    assert!(callboard(&["kb", "query", "gate"]).out.contains("The gate is open."));
    fs::rename(&site, before).unwrap();
}

#[test]
fn a_moved_project_whose_earlier_stores_have_no_run_has_no_hint() {
    let project = Project::new();
    let run = project.run("one");
    assert_eq!(project.callboard(&["runs", "delete", &run]).code, Some(0));
    let site = tempfile::tempdir().unwrap();
    fs::rename(project.folder.path(), site.path().join("site")).unwrap();
    let listed = output_of(project.command(&["runs", "list"]).current_dir(site.path().join("site")));
    assert_eq!(listed.out, "there are no runs\n");
    assert!(
        listed.error.starts_with("the project ") && moves(&listed, project.folder.path()).is_none(),
        "{}",
        listed.error
    );
    fs::rename(site.path().join("site"), project.folder.path()).unwrap();
}

#[test]
fn where_no_store_can_be_created_the_error_names_the_remedies() {
    let project = Project::new();
    let state = project.state.path().join("file");
    fs::write(&state, "no folder").unwrap();
    let file = state.to_str().unwrap();
    // By the XDG specification a relative path is ignored.
    for variables in [
        &[("XDG_STATE_HOME", ""), ("HOME", "relative")][..],
        &[("XDG_STATE_HOME", file)],
        &[("XDG_STATE_HOME", "relative"), ("HOME", file)],
    ] {
        let mut run = project.command(&["run", "x"]);
        run.envs(variables.iter().copied());
        let refused = output_of(run);
        let names_them =
            ["--store", "CALLBOARD_STORE", "--ephemeral"].iter().all(|remedy| refused.error.contains(remedy));
        assert!(refused.code == Some(2) && names_them, "{}", refused.error);
    }
}

#[test]
fn other_users_lose_their_permissions_on_the_state_folder() {
    let project = Project::new();
    let state = project.state.path().join("callboard");
    fs::create_dir(&state).unwrap();
    fs::set_permissions(&state, fs::Permissions::from_mode(0o777)).unwrap();
    project.run("one");
    assert_eq!(fs::metadata(&state).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn the_store_of_a_killed_process_can_be_opened_at_once() {
    // A program that is being started holds the lock too, between fork and exec.
    let project = Project::new();
    let agent = program("spawner", &["sh", "-c", "exit 1"]);
    fs::write(project.folder.path().join("agents/spawner.toml"), agent).unwrap();
    for round in 0..30 {
        let run = ["run", "x", "--to", "spawner", "--store", "data", "--limits", r#"{"attempts":9}"#];
        let mut child = project.command(&run).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let id = lines.find_map(|line| Some(line.unwrap().strip_prefix("run ")?.to_owned())).unwrap();
        // A little later in each round, around the moment at which the program is started.
        #[allow(clippy::disallowed_methods, reason = "the kill comes at a moment of real time")]
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_micros(200 * round) {}
        child.kill().unwrap();
        let next = project.callboard(&["runs", "show", &id, "--store", "data"]);
        assert_eq!(next.code, Some(0), "round {round}: {}", next.error);
        child.wait().unwrap();
    }
}
