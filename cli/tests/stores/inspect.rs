//! `callboard runs list|show|replay|diff`, as text and as JSON.

use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use callboard::storage::{Append, Journal, Sled, Storage, Transfer};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::runs::{Runs, make_store, released, runs, runs_command};
use crate::support::{CALLBOARD, assert_visible, callboard, ended, output_of, short, write};

fn store() -> (TempDir, Runs) {
    let folder = tempfile::tempdir().unwrap();
    let ids = make_store(folder.path());
    (folder, ids)
}

/// The standard output of a command that prints no error.
fn shown(folder: &Path, arguments: &[&str], code: i32) -> String {
    let printed = runs(folder, arguments);
    assert_eq!((printed.code, printed.error.as_str()), (Some(code), ""), "{arguments:?}: {}", printed.out);
    assert_visible(&printed.out);
    printed.out
}

fn read(folder: &Path, arguments: &[&str], code: i32) -> Value {
    serde_json::from_str(&shown(folder, &[arguments, &["--json"]].concat(), code)).unwrap()
}

#[test]
fn the_text_shows_runs_their_turns_and_their_differences() {
    let (folder, ids) = store();
    let folder = folder.path();
    let [printed, other, waiting, judged] =
        [ids.printed, ids.too_short, ids.waiting, ids.judged].map(|run| run.to_string());
    insta::assert_snapshot!("list", shown(folder, &["list"], 0));
    insta::assert_snapshot!("show_finished", shown(folder, &["show", &printed], 0));
    insta::assert_snapshot!("show_failed", shown(folder, &["show", &other], 0));
    insta::assert_snapshot!("show_open", shown(folder, &["show", &waiting], 0));
    insta::assert_snapshot!("replay", shown(folder, &["replay", &printed], 0));
    insta::assert_snapshot!("replay_of_a_fan_out", shown(folder, &["replay", &judged], 0));
    insta::assert_snapshot!("replay_at_a_turn", shown(folder, &["replay", &printed, "--turn", "3"], 0));
    insta::assert_snapshot!("diff", shown(folder, &["diff", &printed, &other], 1));
    insta::assert_snapshot!("diff_with_itself", shown(folder, &["diff", &printed, &printed], 0));
}

#[test]
fn all_runs_are_compared_with_what_another_build_makes_of_them() {
    let (folder, ids) = store();
    let place = tempfile::tempdir().unwrap();
    let misprints = "s/\"printed: draft, polished\"/\"misprinted\"/g";
    write(&place, "other.sh", &format!("#!/bin/sh\n'{CALLBOARD}' \"$@\" | sed '{misprints}'\n"));
    write(&place, "failing.sh", "#!/bin/sh\necho 'error: it has no --all' >&2\nexit 2\n");
    let against = |build: &str| runs(folder.path(), &["replay", "--all", "--against", build]);
    let here = |name: &str| place.path().join(name).to_str().unwrap().to_owned();

    let same = against(CALLBOARD);
    assert_eq!((same.code, &*same.out), (Some(0), "4 runs, none differs\n"), "{}", same.error);
    let other = against(&here("other.sh"));
    let lines: Vec<&str> = other.out.lines().collect();
    assert_eq!((other.code, lines.len(), lines[1]), (Some(1), 2, "4 runs, 1 differ"), "{} {}", other.out, other.error);
    assert!(
        lines[0].starts_with(&short(&ids.printed.to_string())) && lines[0].ends_with("\"misprinted\" there"),
        "{}",
        lines[0]
    );
    let failing = against(&here("failing.sh"));
    assert!(
        failing.code == Some(1) && failing.error.ends_with("has failed (exit status: 2): error: it has no --all\n"),
        "{:?} {}",
        failing.code,
        failing.error
    );
    assert_eq!(against(&here("nothing")).code, Some(2));
    let all = shown(folder.path(), &["replay", "--all"], 0);
    let runs: Vec<Value> = all.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(runs.len() == 4 && runs.iter().all(|run| run["steps"].is_array()), "{all}");
    assert_eq!(
        read_error(folder.path(), &["replay", "--all", "--json"]),
        "--all prints a JSON object in each line, and is no JSON as a whole: leave --json out"
    );
}

/// The error of a command that prints JSON.
fn read_error(folder: &Path, arguments: &[&str]) -> String {
    let printed = runs(folder, arguments);
    printed.json()["error"].as_str().unwrap().to_owned()
}

#[test]
fn the_json_has_the_same_content() {
    let (folder, ids) = store();
    let (folder, printed, other) = (folder.path(), ids.printed.to_string(), ids.too_short.to_string());
    let list = read(folder, &["list"], 0);
    assert_eq!(list.as_array().unwrap().len(), 4);
    assert_eq!((&list[0]["run"], &list[0]["status"]), (&printed.clone().into(), &"finished".into()));
    let show = read(folder, &["show", &printed], 0);
    assert_eq!(show["result"]["output"], "printed: draft, polished");
    assert_eq!(show["turns"][1]["usage"]["input_tokens"], 1000);
    let replay = read(folder, &["replay", &printed], 0);
    assert_eq!(replay[9]["changes"][0]["difference"]["values"][0], "printed");
    let turn = read(folder, &["replay", &printed, "--turn", "4"], 0);
    assert_eq!((&turn["saw"]["event"], &turn["left"]["outcome"]["kind"]), (&9.into(), &"finished".into()));
    let diff = read(folder, &["diff", &printed, &other], 1);
    assert_eq!((&diff["differ"], &diff["turns"][0]["other"][0]), (&true.into(), &"input".into()));
    let error = read(folder, &["show", "77"], 3);
    assert_eq!(error["code"], 3);
}

#[test]
fn the_json_has_the_documented_shape() {
    let (folder, ids) = store();
    let place = folder.path().display().to_string();
    let (folder, printed, other) = (folder.path(), ids.printed.to_string(), ids.too_short.to_string());
    let json =
        |arguments: &[&str], code| shown(folder, &[arguments, &["--json"]].concat(), code).replace(&place, "STORE");
    insta::assert_snapshot!("json_list", json(&["list"], 0));
    insta::assert_snapshot!("json_show", json(&["show", &other], 0));
    insta::assert_snapshot!("json_replay", json(&["replay", &printed], 0));
    insta::assert_snapshot!("json_replay_at_a_turn", json(&["replay", &printed, "--turn", "3"], 0));
    insta::assert_snapshot!("json_diff", json(&["diff", &printed, &other], 1));
    insta::assert_snapshot!("json_error", json(&["show", "77"], 3));
}

#[test]
fn stepping_shows_one_event_at_a_time() {
    let (folder, ids) = store();
    let mut child = runs_command(folder.path(), &["replay", &ids.printed.to_string(), "--step"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"\nq\n").unwrap();
    let printed = ended(child);
    insta::assert_snapshot!("step", printed.out);
}

#[test]
fn a_run_is_found_by_any_prefix_of_its_id_that_no_other_has() {
    let (folder, ids) = store();
    let printed = ids.printed.to_string();
    let wanted = printed[..14].to_uppercase();
    assert!(shown(folder.path(), &["show", &wanted], 0).contains("write about sleds"));
    assert!(shown(folder.path(), &["show", &printed.replace('-', "")], 0).contains("write about sleds"));

    let of_short = short(&printed);
    for name in [&of_short, &of_short.to_uppercase(), &of_short[4..], &of_short[..8], &of_short[4..8]] {
        assert!(shown(folder.path(), &["show", name], 0).contains("write about sleds"), "{name}");
    }

    let several = runs(folder.path(), &["show", "0"]);
    assert_eq!((several.code, several.out.as_str()), (Some(2), ""));
    insta::assert_snapshot!("several", several.error);
    let unknown = runs(folder.path(), &["show", &printed.replace("-a", "-b")]);
    assert_eq!(unknown.code, Some(3));
    assert_eq!(unknown.error.lines().nth(1), Some(&*format!("  {}  {printed}", short(&printed))), "{}", unknown.error);
    let none = runs(folder.path(), &["replay", &printed, "--turn", "9"]);
    assert_eq!(
        (none.code, none.error),
        (Some(3), format!("error: run {} has no turn 9: it has 4 turns\n", short(&printed)))
    );
    assert_eq!(runs(folder.path(), &["show"]).code, Some(2));
    let empty = runs(folder.path(), &["show", ""]);
    let why = "error: invalid value '' for '<RUN>': it is empty: write an id, short or whole, or @last\n";
    assert!(empty.code == Some(2) && empty.error.starts_with(why), "{}", empty.error);
}

#[test]
fn a_command_without_its_first_word_is_corrected_in_a_tip() {
    let printed = callboard(".", &["list", "--data", "x"]);
    assert_eq!(printed.code, Some(2));
    assert!(printed.error.contains("tip: a similar subcommand exists: 'runs list'"), "{}", printed.error);
}

#[test]
fn a_store_that_another_process_has_open_is_refused() {
    let (folder, _) = store();
    let held = Sled::open(folder.path()).unwrap();
    let refused = runs(folder.path(), &["list"]);
    drop(held);
    released(folder.path());
    assert_eq!((refused.code, refused.out.as_str()), (Some(6), ""));
    let expected = format!("process {} has it open; one process at a time can use a store", std::process::id());
    assert!(refused.error.contains(&expected), "{}", refused.error);
    assert_eq!(runs(folder.path(), &["list"]).code, Some(0));
}

#[test]
fn a_folder_that_is_not_a_store_is_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("mispelt");
    let refused = runs(&missing, &["list"]);
    assert_eq!(refused.code, Some(3));
    assert!(refused.error.contains("there is no callboard store in"), "{}", refused.error);
    assert!(!missing.exists());
    assert_eq!(runs(folder.path(), &["list"]).code, Some(3));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_file_is_not_a_store_and_an_empty_store_has_no_runs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "text").unwrap();
    let refused = runs(&file, &["list"]);
    assert_eq!((refused.code, refused.out.as_str()), (Some(3), ""));
    assert!(refused.error.contains("there is no callboard store in"), "{}", refused.error);
    let empty = folder.path().join("store");
    drop(Sled::open(&empty).unwrap());
    released(&empty);
    assert_eq!(shown(&empty, &["list"], 0), "there are no runs\n");
    assert_eq!(runs(&empty, &["show", "7"]).error, "error: there is no run \"7\": no store has any\n");
    assert_eq!(runs(&empty, &["show", "7", "--step"]).code, Some(2));
    assert_eq!(runs(&empty, &["replay", "7", "--step", "--json"]).code, Some(2), "programs do not press Enter");
}

#[test]
#[cfg(target_os = "linux")]
fn a_closed_pipe_is_not_an_error_and_a_full_disk_is() {
    let (folder, ids) = store();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let written_to = |arguments: &[&str], out: Stdio| {
        output_of(runs_command(folder.path(), arguments).stdout(out).stderr(Stdio::piped()))
    };
    let gone = written_to(&["replay", &ids.printed.to_string()], writer.into());
    assert_eq!((gone.code, gone.error.as_str()), (Some(0), ""));
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let refused = written_to(&["list"], full.into());
    assert_eq!(refused.code, Some(1));
    assert!(refused.error.contains("the output cannot be written"), "{}", refused.error);
}

#[test]
fn reading_commands_change_nothing_in_the_store() {
    let (folder, ids) = store();
    let before = exported(folder.path());
    let (printed, other) = (ids.printed.to_string(), ids.too_short.to_string());
    for arguments in [&["list"][..], &["show", &printed], &["replay", &printed], &["diff", &printed, &other]] {
        runs(folder.path(), arguments);
    }
    assert!(exported(folder.path()) == before);
}

#[tokio::main(flavor = "current_thread")]
async fn exported(folder: &Path) -> Vec<u8> {
    let mut copy = Vec::new();
    Transfer::export(&Sled::open(folder).unwrap(), &mut copy).await.unwrap();
    released(folder);
    copy
}

#[test]
fn a_damaged_record_affects_only_its_own_run() {
    let (folder, ids) = store();
    damage(folder.path(), &ids);
    let list = shown(folder.path(), &["list"], 0);
    insta::assert_snapshot!("list_with_a_damaged_run", list);
    let damaged = runs(folder.path(), &["show", &ids.too_short.to_string()]);
    assert_eq!((damaged.code, damaged.out.as_str()), (Some(1), ""));
    assert!(damaged.error.contains(&format!("run {}", short(&ids.too_short.to_string()))), "{}", damaged.error);
    assert!(shown(folder.path(), &["show", &ids.printed.to_string()], 0).contains("finished"));
}

#[tokio::main(flavor = "current_thread")]
async fn damage(folder: &Path, ids: &Runs) {
    let sled = Sled::open(folder).unwrap();
    let stream = Journal::stream(ids.too_short);
    let expected = sled.read(&stream, 1, 1000).await.unwrap().last().unwrap().sequence;
    let payload = b"no record".as_slice().into();
    sled.append(Append::new(stream, expected, payload)).await.unwrap();
    drop(sled);
    released(folder);
}

#[test]
fn a_check_reports_the_first_damage_of_each_run() {
    let (folder, ids) = store();
    let folder = folder.path();
    let whole = callboard(folder, &["store", "check", "--store", "."]);
    assert_eq!((whole.code, &*whole.out), (Some(0), ".: 4 runs, no damage\n"), "{}", whole.error);
    damage(folder, &ids);
    let damaged = callboard(folder, &["store", "check", "--store", "."]);
    assert_eq!(damaged.code, Some(1), "{}", damaged.error);
    assert!(
        damaged.out.starts_with(&format!("damaged: run {}: ", short(&ids.too_short.to_string()))),
        "{}",
        damaged.out
    );
    assert!(damaged.out.ends_with(".: 4 runs, 1 damaged\n"), "{}", damaged.out);
    let json = callboard(folder, &["store", "check", "--store", ".", "--json"]).json();
    assert_eq!((&json[0]["runs"], &json[0]["damaged"][0]["run"]), (&4.into(), &ids.too_short.to_string().into()));
}
