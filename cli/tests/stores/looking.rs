//! `callboard runs list|show|replay|diff`: what people see, and what machines read.

use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use crate::common::{Runs, callboard, command, make_store, said};
use callboard::messages::Durability;
use callboard::prelude::*;
use callboard::storage::{Append, Journal, Storage, transfer};
use serde_json::Value;
use tempfile::TempDir;

fn store() -> (TempDir, Runs) {
    let folder = tempfile::tempdir().unwrap();
    let runs = make_store(folder.path());
    (folder, runs)
}

/// What a command shows that has an answer, and nothing else.
fn shown(folder: &Path, arguments: &[&str], code: i32) -> String {
    let said = callboard(folder, arguments);
    assert_eq!((said.code, said.error.as_str()), (code, ""), "{arguments:?}: {}", said.out);
    let deceiving = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    assert!(!said.out.contains(deceiving), "{:?}", said.out);
    said.out
}

fn read(folder: &Path, arguments: &[&str], code: i32) -> Value {
    serde_json::from_str(&shown(folder, &[arguments, &["--json"]].concat(), code)).unwrap()
}

#[test]
fn people_see_the_runs_their_turns_and_where_they_went_apart() {
    let (folder, runs) = store();
    let folder = folder.path();
    let [printed, short, waiting, judged] =
        [runs.printed, runs.too_short, runs.waiting, runs.judged].map(|run| run.to_string());
    insta::assert_snapshot!("list", shown(folder, &["list"], 0));
    insta::assert_snapshot!("show_finished", shown(folder, &["show", &printed], 0));
    insta::assert_snapshot!("show_failed", shown(folder, &["show", &short], 0));
    insta::assert_snapshot!("show_open", shown(folder, &["show", &waiting], 0));
    insta::assert_snapshot!("replay", shown(folder, &["replay", &printed], 0));
    insta::assert_snapshot!("replay_of_a_fan_out", shown(folder, &["replay", &judged], 0));
    insta::assert_snapshot!("replay_at_a_turn", shown(folder, &["replay", &printed, "--turn", "3"], 0));
    insta::assert_snapshot!("diff", shown(folder, &["diff", &printed, &short], 1));
    insta::assert_snapshot!("diff_with_itself", shown(folder, &["diff", &printed, &printed], 0));
}

#[test]
fn machines_read_the_same() {
    let (folder, runs) = store();
    let (folder, printed, short) = (folder.path(), runs.printed.to_string(), runs.too_short.to_string());
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
    let diff = read(folder, &["diff", &printed, &short], 1);
    assert_eq!((&diff["differ"], &diff["turns"][0]["other"][0]), (&true.into(), &"input".into()));
    let error = read(folder, &["show", "77"], 1);
    assert_eq!(error["code"], 1);
}

#[test]
fn what_machines_read_has_the_shape_that_is_documented() {
    let (folder, runs) = store();
    let place = folder.path().display().to_string();
    let (folder, printed, short) = (folder.path(), runs.printed.to_string(), runs.too_short.to_string());
    let json =
        |arguments: &[&str], code| shown(folder, &[arguments, &["--json"]].concat(), code).replace(&place, "STORE");
    insta::assert_snapshot!("json_list", json(&["list"], 0));
    insta::assert_snapshot!("json_show", json(&["show", &short], 0));
    insta::assert_snapshot!("json_replay", json(&["replay", &printed], 0));
    insta::assert_snapshot!("json_replay_at_a_turn", json(&["replay", &printed, "--turn", "3"], 0));
    insta::assert_snapshot!("json_diff", json(&["diff", &printed, &short], 1));
    insta::assert_snapshot!("json_error", json(&["show", "77"], 1));
}

#[test]
fn stepping_stops_after_each_event_until_somebody_goes_on() {
    let (folder, runs) = store();
    let mut child = command(folder.path(), &["replay", &runs.printed.to_string(), "--step"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"\nq\n").unwrap();
    let said = said(child.wait_with_output().unwrap());
    insta::assert_snapshot!("step", said.out);
}

#[test]
fn a_run_is_found_by_any_beginning_of_its_id_that_no_other_has() {
    let (folder, runs) = store();
    let printed = runs.printed.to_string();
    let wanted = printed[..14].to_uppercase();
    assert!(shown(folder.path(), &["show", &wanted], 0).contains("write about sleds"));
    assert!(shown(folder.path(), &["show", &printed.replace('-', "")], 0).contains("write about sleds"));

    let several = callboard(folder.path(), &["show", "0"]);
    assert_eq!((several.code, several.out.as_str()), (1, ""));
    insta::assert_snapshot!("several", several.error);
    let unknown = callboard(folder.path(), &["show", &printed.replace("-a", "-b")]);
    assert_eq!(unknown.code, 1);
    assert_eq!(unknown.error.lines().nth(1), Some(&*format!("  {printed}")), "{}", unknown.error);
    let none = callboard(folder.path(), &["replay", &printed, "--turn", "9"]);
    assert_eq!((none.code, none.error), (1, format!("error: run {printed} has no turn 9: it has 4 turns\n")));
    assert_eq!(callboard(folder.path(), &["show"]).code, 2);
    assert_eq!(callboard(folder.path(), &["show", ""]).code, 1);
}

#[test]
fn whoever_leaves_out_a_word_is_told_the_whole_of_it() {
    let output =
        std::process::Command::new(env!("CARGO_BIN_EXE_callboard")).args(["list", "--data", "x"]).output().unwrap();
    let said = crate::common::said(output);
    assert_eq!(said.code, 2);
    assert!(said.error.contains("tip: a similar subcommand exists: 'runs list'"), "{}", said.error);
}

#[test]
fn a_store_that_another_process_holds_is_left_alone() {
    let (folder, _) = store();
    let held = Sled::open(folder.path()).unwrap();
    let refused = callboard(folder.path(), &["list"]);
    drop(held);
    assert_eq!((refused.code, refused.out.as_str()), (2, ""));
    let expected = format!("process {} has it open; one process at a time can use a store", std::process::id());
    assert!(refused.error.contains(&expected), "{}", refused.error);
    assert_eq!(callboard(folder.path(), &["list"]).code, 0);
}

#[test]
fn a_folder_that_is_no_store_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("mispelt");
    let refused = callboard(&missing, &["list"]);
    assert_eq!(refused.code, 2);
    assert!(refused.error.contains("there is no callboard store in"), "{}", refused.error);
    assert!(!missing.exists());
    assert_eq!(callboard(folder.path(), &["list"]).code, 2);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_file_is_no_store_and_an_empty_store_has_no_runs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "text").unwrap();
    let refused = callboard(&file, &["list"]);
    assert_eq!((refused.code, refused.out.as_str()), (2, ""));
    assert!(refused.error.contains("there is no callboard store in"), "{}", refused.error);
    let empty = folder.path().join("store");
    drop(Sled::open(&empty).unwrap());
    assert_eq!(shown(&empty, &["list"], 0), "there are no runs\n");
    assert_eq!(callboard(&empty, &["show", "7"]).error, "error: there is no run \"7\": no store has any\n");
    assert_eq!(callboard(&empty, &["show", "7", "--step"]).code, 2);
    assert_eq!(callboard(&empty, &["replay", "7", "--step", "--json"]).code, 2, "machines do not press Enter");
}

#[test]
#[cfg(target_os = "linux")]
fn an_answer_that_nobody_reads_to_its_end_is_no_error_and_one_that_is_not_written_is() {
    let (folder, runs) = store();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let told_to = |arguments: &[&str], out: Stdio| {
        said(command(folder.path(), arguments).stdout(out).stderr(Stdio::piped()).output().unwrap())
    };
    let gone = told_to(&["replay", &runs.printed.to_string()], writer.into());
    assert_eq!((gone.code, gone.error.as_str()), (0, ""));
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let refused = told_to(&["list"], full.into());
    assert_eq!(refused.code, 2);
    assert!(refused.error.contains("the answer cannot be written"), "{}", refused.error);
}

#[test]
fn looking_changes_nothing_that_is_stored() {
    let (folder, runs) = store();
    let before = exported(folder.path());
    let (printed, short) = (runs.printed.to_string(), runs.too_short.to_string());
    for arguments in [&["list"][..], &["show", &printed], &["replay", &printed], &["diff", &printed, &short]] {
        callboard(folder.path(), arguments);
    }
    assert!(exported(folder.path()) == before);
}

#[tokio::main(flavor = "current_thread")]
async fn exported(folder: &Path) -> Vec<u8> {
    let mut copy = Vec::new();
    transfer::export(&Sled::open(folder).unwrap(), &mut copy).await.unwrap();
    copy
}

#[test]
fn a_damaged_record_hides_its_own_run_and_no_other() {
    let (folder, runs) = store();
    damage(folder.path(), &runs);
    let list = shown(folder.path(), &["list"], 0);
    insta::assert_snapshot!("list_with_a_damaged_run", list);
    let damaged = callboard(folder.path(), &["show", &runs.too_short.to_string()]);
    assert_eq!((damaged.code, damaged.out.as_str()), (2, ""));
    assert!(damaged.error.contains(&format!("run {}", runs.too_short)), "{}", damaged.error);
    assert!(shown(folder.path(), &["show", &runs.printed.to_string()], 0).contains("finished"));
}

#[tokio::main(flavor = "current_thread")]
async fn damage(folder: &Path, runs: &Runs) {
    let sled = Sled::open(folder).unwrap();
    let stream = Journal::stream(runs.too_short);
    let expected = sled.read(&stream, 1, 1000).await.unwrap().last().unwrap().sequence;
    let payload = b"no record".as_slice().into();
    let fence = sled.claim(&stream, "test", 60).await.unwrap();
    sled.append(Append { stream, fence, expected, payload, durability: Durability::Sync }).await.unwrap();
}
