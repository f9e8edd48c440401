//! Everything that is exported can be restored.

use std::sync::Arc;
use std::time::Duration;

use callboard::env::Clock;
use callboard::messages::{AgentName, ConversationId};
use callboard::prelude::*;
use callboard::storage::{
    Append, Durability, Journal, Key, Memory, Put, Record, Sled, Storage, Transfer, TransferError,
};
use callboard::testing::conformance::ManualClock;
use serde_json::Value;

use crate::common::{builder, finish};

/// Streams with hostile names, a purged beginning, a long payload, and values with and without expiry.
async fn fill(store: &dyn Storage) {
    for (name, records) in [("", 3), ("a\0b", 300), ("ä/\"\n", 1)] {
        for expected in 0..records {
            let payload = if expected == 2 { vec![0xab; 100_000] } else { vec![expected as u8; 9] };
            let (stream, payload) = (Key::new(["run", name]), payload.into());
            let append = Append { durability: Durability::Buffered, ..Append::new(stream, expected, payload) };
            store.append(append).await.unwrap();
        }
    }
    store.purge(&Key::new(["run", "a\0b"]), 7).await.unwrap();
    for (number, ttl_secs) in (0..600).zip([None, Some(10), Some(1000)].into_iter().cycle()) {
        let (key, value) = (Key::new(["context", &*format!("{number:03}")]), vec![number as u8; 5].into());
        let put = Put { ttl_secs, durability: Durability::Buffered, ..Put::new(key, value) };
        store.put_if_revision(put).await.unwrap();
    }
}

type Everything = (Vec<(Key, Vec<Record>)>, Vec<(Key, Arc<[u8]>, Option<u64>)>);

/// All that a store holds, revisions aside.
async fn everything(store: &dyn Storage) -> Everything {
    let all = Key::new([]).children();
    let mut streams = Vec::new();
    for stream in store.streams(&all, None, usize::MAX).await.unwrap() {
        let records = store.read(&stream, 0, usize::MAX).await.unwrap();
        streams.push((stream, records));
    }
    let values = store.scan(&all, None, usize::MAX).await.unwrap().into_iter();
    let values = values.map(|(key, entry)| (key, entry.value, entry.expires_at.map(|at| at.as_millis()))).collect();
    (streams, values)
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new())
}

#[tokio::test]
async fn an_export_restores_a_store_on_disk() {
    let clock = clock();
    let now = || clock.now().wall;
    let source_folder = tempfile::tempdir().unwrap();
    let source = Sled::open_with_clock(source_folder.path(), clock.clone()).unwrap();
    fill(&source).await;
    clock.advance(Duration::from_secs(20));
    let mut text = Vec::new();
    let exported = Transfer::export(&source, &mut text).await.unwrap();
    assert_eq!(exported, Transfer { records: 297, values: 400 });

    let folder = tempfile::tempdir().unwrap();
    let target = Sled::open_with_clock(folder.path(), clock.clone()).unwrap();
    assert_eq!(Transfer::import(&mut &text[..], &target, now()).await.unwrap(), exported);
    drop(target);
    let target = Sled::open_with_clock(folder.path(), clock.clone()).unwrap();
    assert_eq!(everything(&target).await, everything(&source).await);
    assert!(matches!(Transfer::import(&mut &text[..], &target, now()).await, Err(TransferError::NotEmpty)));
}

#[tokio::test]
async fn copying_moves_everything_between_kinds_of_stores() {
    let clock = clock();
    let (source, back) = (Memory::new(clock.clone()), Memory::new(clock.clone()));
    fill(&source).await;
    let folder = tempfile::tempdir().unwrap();
    let disk = Sled::open_with_clock(folder.path(), clock.clone()).unwrap();
    let there = Transfer::copy(&source, &disk, clock.now().wall).await.unwrap();
    assert_eq!(Transfer::copy(&disk, &back, clock.now().wall).await.unwrap(), there);
    assert_eq!(everything(&back).await, everything(&source).await);
}

#[tokio::test]
async fn an_export_that_was_cut_or_changed_is_noticed() {
    let clock = clock();
    let source = Memory::new(clock.clone());
    fill(&source).await;
    let mut text = Vec::new();
    Transfer::export(&source, &mut text).await.unwrap();
    let text = String::from_utf8(text).unwrap();
    let import = async |text: String| {
        Transfer::import(&mut text.as_bytes(), &Memory::new(clock.clone()), clock.now().wall).await.unwrap_err()
    };
    let lines: Vec<&str> = text.lines().collect();
    let without = |left_out: usize| {
        let kept = lines.iter().enumerate().filter(|(number, _)| *number != left_out).map(|(_, line)| *line);
        kept.collect::<Vec<_>>().join("\n")
    };
    assert!(matches!(import(without(lines.len() - 1)).await, TransferError::Incomplete { stated: None, .. }));
    assert!(matches!(import(without(lines.len() - 2)).await, TransferError::Incomplete { stated: Some(_), .. }));
    assert!(matches!(import(without(0)).await, TransferError::Line { line: 1, .. }));
    let after = |rest: &str| import(format!("{text}\n \n{rest}"));
    let followed = [after(&text).await, after("x").await].map(|error| error.to_string());
    let end = lines.len();
    let why =
        format!("line {} of the export is wrong: the export has ended in line {end}, and nothing may follow", end + 3);
    assert!(followed.iter().all(|error| error.starts_with(&why)), "{followed:?}");
    let blank = Memory::new(clock.clone());
    Transfer::import(&mut format!("{text}\n \t\r\n").as_bytes(), &blank, clock.now().wall).await.unwrap();
    assert!(matches!(import(without(2)).await, TransferError::Line { line: 3, .. }), "a gap");
    assert!(matches!(import(text.replacen("\"payload\":\"0", "\"payload\":\"x", 1)).await, TransferError::Line { .. }));
    for changed in [text.replacen("abab", "abac", 1), text.replacen("\"sequence\":3", "\"sequence\": 3", 1)] {
        assert!(changed != text && matches!(import(changed).await, TransferError::Damaged));
    }
    // As an older version wrote it.
    let (without, _) = text.trim_end().rsplit_once(",\"crc32\":").unwrap();
    let into = Memory::new(clock.clone());
    let without = format!("{without}}}\n");
    Transfer::import(&mut without.as_bytes(), &into, clock.now().wall).await.unwrap();
    let newer = import(text.replacen("\"version\":1", "\"version\":2", 1)).await;
    assert!(newer.to_string().contains("newer version"), "{newer}");
    let hostile =
        "{\"callboard\":\"export\",\"version\":1}\n{\"stream\":[\"a\"],\"sequence\":99999999999,\"payload\":\"\"}\n";
    assert!(matches!(import(hostile.to_owned()).await, TransferError::Line { line: 2, .. }));
    let zero = hostile.replace("99999999999", "0");
    assert!(matches!(import(zero).await, TransferError::Line { line: 2, .. }));
}

/// The text of an export without its checksum, as an older version wrote it, or as somebody edits it.
async fn edited(source: &dyn Storage, edit: impl Fn(&str) -> String) -> String {
    let mut text = Vec::new();
    Transfer::export(source, &mut text).await.unwrap();
    let text = edit(&String::from_utf8(text).unwrap());
    let (without, _) = text.trim_end().rsplit_once(",\"crc32\":").unwrap();
    format!("{without}}}\n")
}

/// Why an export is refused, and the store that it was to go to.
async fn refused(text: impl AsRef<[u8]>) -> (String, Memory) {
    let store = Memory::new(clock());
    let error = Transfer::import(&mut text.as_ref(), &store, Default::default()).await.unwrap_err();
    (error.to_string(), store)
}

/// A store with a run of one conversation, and an entry of the shared context.
async fn worked_in() -> Arc<Memory> {
    let store = Arc::new(Memory::new(clock()));
    let agent = |turn: Turn| async move { Ok(Command::output(turn.input_json().clone())) };
    let board = builder().storage(store.clone()).agent("echo", agent).start().await.unwrap();
    board.context().set("shared", "key", "value", &AgentName::new("echo").unwrap(), None).await.unwrap();
    finish(&board, Task::new("x").conversation(&ConversationId::new("ann").unwrap())).await;
    board.shutdown().await;
    store
}

#[tokio::test(start_paused = true)]
async fn a_changed_sequence_is_refused_with_its_line_and_nothing_is_filled_for_it() {
    let store = worked_in().await;
    let run = Journal::new(store.clone()).runs().await.unwrap()[0];
    for (sequence, why) in [
        (1, format!("line 2 of the export is wrong: the first record of run {run} has the sequence 9999999")),
        (2, format!("line 3 of the export is wrong: record 9999999 of {} follows record 1", Journal::stream(run))),
    ] {
        let change = |text: &str| text.replacen(&format!("\"sequence\":{sequence},"), "\"sequence\":9999999,", 1);
        let (error, target) = refused(edited(&*store, change).await).await;
        assert_eq!(error, format!("{why}; use another copy of the export"));
        let filled = target.read(&Journal::stream(run), 0, usize::MAX).await.unwrap().len();
        assert_eq!(filled, 0, "it is refused before it is written");
    }
    // What other programs keep is not looked into; the next line contradicts it.
    let own = Memory::new(clock());
    for expected in 0..2 {
        let (stream, payload) = (Key::new(["own"]), [1].into());
        let durability = Durability::Buffered;
        own.append(Append { durability, ..Append::new(stream, expected, payload) }).await.unwrap();
    }
    let change = |text: &str| text.replacen("\"sequence\":1,", "\"sequence\":9999999,", 1);
    let (error, target) = refused(edited(&own, change).await).await;
    let why =
        "line 3 of the export is wrong: record 2 of [\"own\"] follows record 9999999; use another copy of the export";
    assert_eq!(error, why);
    assert_eq!(target.streams(&Key::new([]).children(), None, 1).await, Ok(Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_read_afterwards_is_refused_with_its_line() {
    let store = worked_in().await;
    let whole = edited(&*store, str::to_owned).await;
    let lines: Vec<&str> = whole.lines().collect();
    let mut kinds = Vec::new();
    for (place, line) in lines.iter().enumerate() {
        let item: Value = serde_json::from_str(line).unwrap();
        let Some(hex) =
            [&item["payload"], &item["value"]].into_iter().find_map(Value::as_str).filter(|hex| !hex.is_empty())
        else {
            continue;
        };
        // Another last byte.
        let last = if hex.ends_with("00") { "01" } else { "00" };
        let changed = line.replace(hex, &format!("{}{last}", &hex[..hex.len() - 2]));
        let text = [&lines[..place], &[&*changed], &lines[place + 1..]].concat().join("\n");
        let kind = line.split('"').nth(3).unwrap();
        let target = Memory::new(clock());
        match Transfer::import(&mut text.as_bytes(), &target, Default::default()).await {
            Ok(_) => {}
            Err(TransferError::Line { line, detail }) => {
                let is_named = detail.ends_with(" cannot be read: the checksum does not match: the record is damaged; use another copy of the export");
                assert!(line == place as u64 + 1 && is_named, "line {line}: {detail}");
                kinds.push(kind);
            }
            Err(error) => panic!("{kind}: {error}"),
        }
    }
    kinds.dedup();
    assert_eq!(kinds, ["run", "context", "conversation", "conversation-messages"]);
}

#[tokio::test]
async fn a_run_whose_id_was_changed_is_refused() {
    let store = worked_in().await;
    let whole = edited(&*store, str::to_owned).await;
    let run = whole.lines().find_map(|line| {
        let item: Value = serde_json::from_str(line).ok()?;
        (item["stream"][0] == "run").then(|| item["stream"][1].as_str().map(str::to_owned))?
    });
    let run = run.unwrap();
    let other = format!("{}{}", &run[..run.len() - 1], if run.ends_with('0') { '1' } else { '0' });
    let changed = whole.replace(&format!("[\"run\",\"{run}\"]"), &format!("[\"run\",\"{other}\"]"));
    match Transfer::import(&mut changed.as_bytes(), &Memory::new(clock()), Default::default()).await {
        Err(TransferError::Line { detail, .. }) => {
            let id = |text: &str| text.parse::<RunId>().unwrap();
            let expected =
                format!("record 1 of run {} is that of run {}; use another copy of the export", id(&other), id(&run));
            assert_eq!(detail, expected);
        }
        other => panic!("{other:?}"),
    }
}

/// A reader that has no end, as `/dev/zero`.
struct Endless;

impl std::io::Read for Endless {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        bytes.fill(0);
        Ok(bytes.len())
    }
}

#[tokio::test]
async fn a_line_without_end_is_refused() {
    let target = Memory::new(clock());
    let mut endless = std::io::BufReader::with_capacity(1 << 20, Endless);
    match Transfer::import(&mut endless, &target, Default::default()).await {
        Err(TransferError::Line { line: 1, detail }) => {
            assert_eq!(detail, "it is longer than a line of an export; use another copy of the export");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn every_line_that_an_import_refuses_is_named_with_what_to_do() {
    const BEGIN: &str = "{\"callboard\":\"export\",\"version\":1}\n";
    let record = |stream: &str, sequence: u32| {
        format!("{{\"stream\":[\"{stream}\"],\"sequence\":{sequence},\"payload\":\"00\"}}\n")
    };
    let value = |key: &str, value: &str| format!("{{\"key\":[\"{key}\"],\"value\":\"{value}\",\"expires_at\":null}}\n");
    let long = "k".repeat(2_000);
    let cases = [
        ([value("a", "00"), value("a", "00")].concat(), 3, "an earlier line has a value of [\"a\"]"),
        (
            [record("a", 1), record("b", 1), record("a", 1)].concat(),
            4,
            "an earlier line has records of [\"a\"], and another is between them",
        ),
        (value("a", "0x"), 2, "the value is not hexadecimal"),
        (record("a", 0), 2, "the sequence of a record is 1 or more"),
        (value(&long, "00"), 2, "a key is 2002 bytes long; at most 1024 are allowed"),
        ("nothing".to_owned(), 2, "it is no record, no value and no end"),
        (BEGIN.to_owned(), 2, "an export begins in it, and another has not ended; import each export by itself"),
    ];
    for (lines, line, why) in cases {
        let (error, _) = refused(format!("{BEGIN}{lines}{}", value("z", "00"))).await;
        let expected = format!("line {line} of the export is wrong: {why}");
        assert!(error.starts_with(&expected) && error.contains("; "), "{expected}\n{error}");
    }
    let (error, _) =
        refused([BEGIN.as_bytes(), b"{\"key\":[\"\xff\"],\"value\":\"\",\"expires_at\":null}\n"].concat()).await;
    assert_eq!(
        error,
        "line 2 of the export is wrong: it is no record, no value and no end; use another copy of the export"
    );
    let (error, _) = refused("{\"callboard\":\"export\",\"version\":2}\n").await;
    let newer = "written by a newer version of callboard (format 2); import it with that version";
    assert_eq!(error, format!("line 1 of the export is wrong: {newer}"));
    let (error, _) = refused(BEGIN).await;
    let cut =
        "the export is incomplete: 0 records and 0 values were read, and it has no end; use another copy of the export";
    assert_eq!(error, cut);
}
