//! What may happen to a store's folder, and what the store makes of it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use callboard::actors::{ContextError, ContextStore};
use callboard::env::Env;
use callboard::messages::AgentName;
use callboard::storage::{Append, Durability, Expected, Key, Put, Rider, Sled, Storage, StorageError};
use callboard::testing::conformance::ManualClock;
use tempfile::{TempDir, tempdir};

use crate::common::stores::{append, stream};

async fn put(store: &Sled, name: &str, value: &[u8]) {
    let (key, value, expected) = (stream(name), value.into(), Expected::Any);
    store.put_if_revision(Put { expected, ..Put::new(key, value) }).await.unwrap();
}

async fn lengths(store: &Sled, name: &str) -> Result<Vec<usize>, StorageError> {
    let records = store.read(&stream(name), 0, usize::MAX).await?;
    Ok(records.iter().map(|record| record.payload.len()).collect())
}

/// A closed store with a few streams, a value, a payload file and two sessions.
async fn filled() -> TempDir {
    let folder = tempdir().unwrap();
    for session in 0..2 {
        let store = Sled::open(folder.path()).unwrap();
        for number in 0..50 {
            append(&store, "a", session * 50 + number, &[b'a'; 1000]).await;
        }
        append(&store, "b", session, &[b'b'; 100_000]).await;
        put(&store, "v", b"value").await;
    }
    folder
}

fn refusal(folder: &Path) -> String {
    match Sled::open(folder) {
        Err(error @ (StorageError::Open { .. } | StorageError::InUse { .. })) => {
            let text = error.to_string();
            assert!(text.contains(&folder.display().to_string()), "the error names the folder: {text}");
            text
        }
        other => panic!("opened or failed otherwise: {other:?}"),
    }
}

/// Every file under a folder with its content, the lock aside.
fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            if entry.path().is_dir() {
                folders.push(entry.path());
            } else if entry.file_name() != "lock" {
                found.push((entry.path().display().to_string(), fs::read(entry.path()).unwrap()));
            }
        }
    }
    found.sort();
    found
}

#[cfg(unix)]
#[tokio::test]
async fn no_other_user_of_the_machine_may_read_a_store() {
    use std::os::unix::fs::PermissionsExt as _;

    let folder = tempdir().unwrap();
    let place = folder.path().join("above").join("store");
    Sled::open(&place).unwrap().close().await.unwrap();
    assert_eq!(place.metadata().unwrap().permissions().mode() & 0o777, 0o700);
}

#[tokio::test]
async fn a_half_written_snapshot_does_not_keep_the_store_from_opening() {
    let folder = filled().await;
    let snapshot = fs::read_dir(folder.path()).unwrap().map(Result::unwrap);
    let snapshot = snapshot.map(|file| file.path()).find(|path| path.to_string_lossy().contains("snap.")).unwrap();
    let whole = fs::read(&snapshot).unwrap();
    for length in [0, 5, whole.len() / 2] {
        let half = folder.path().join("snap.7FFFFFFFFFFFFFFF.generating");
        fs::write(&half, &whole[..length]).unwrap();
        let store = Sled::open(folder.path()).unwrap();
        assert_eq!(lengths(&store, "a").await.unwrap().len(), 100);
        assert!(!half.exists());
    }
}

#[tokio::test]
async fn the_same_process_cannot_open_a_store_twice_either() {
    let folder = tempdir().unwrap();
    let store = Sled::open(folder.path()).unwrap();
    assert!(refusal(folder.path()).contains(&format!("process {}", std::process::id())));
    append(&store, "a", 0, b"x").await;
    store.close().await.unwrap();
    let reopened = Sled::open(folder.path()).unwrap();
    assert_eq!(lengths(&reopened, "a").await, Ok(vec![1]));
}

#[tokio::test]
async fn a_truncated_log_is_refused_and_left_as_it_is() {
    let folder = filled().await;
    let db = folder.path().join("db");
    let whole = fs::read(&db).unwrap();
    for length in [0, 1, 19, 1000, whole.len() / 2, whole.len() - 1] {
        fs::write(&db, &whole[..length]).unwrap();
        let before = contents(folder.path());
        let refused = refusal(folder.path());
        assert!(refused.contains("truncated") || refused.contains("damaged"), "{length}: {refused}");
        assert!(contents(folder.path()) == before, "{length}: something was changed");
    }
    fs::remove_file(&db).unwrap();
    let refused = refusal(folder.path());
    assert!(
        refused.contains("the file `db` is missing: it had ") && refused.contains("only the file `lock`"),
        "{refused}"
    );
    assert!(!db.exists(), "no empty log is put in the place of a lost one");
    fs::write(&db, &whole).unwrap();
    let store = Sled::open(folder.path()).unwrap();
    assert_eq!(lengths(&store, "a").await.unwrap().len(), 100);
}

#[test]
fn an_empty_path_is_no_folder() {
    let refused = refusal(Path::new(""));
    assert!(refused.contains("cannot open the store at \"\": an empty path names no folder"), "{refused}");
}

/// Either the store is refused and left as it is, or what is damaged is reported, or nothing that counts is damaged.
#[tokio::test]
async fn a_flipped_bit_in_the_log_never_loses_a_record_silently() {
    let folder = filled().await;
    let db = folder.path().join("db");
    let whole = fs::read(&db).unwrap();
    let used = whole.iter().rposition(|byte| *byte != 0).unwrap();
    let snapshots = contents(folder.path());
    let mut refused = 0;
    for step in 0..12 {
        for (path, bytes) in &snapshots {
            fs::write(path, bytes).unwrap();
        }
        let mut damaged = whole.clone();
        damaged[used - 40 - (used / 12 - 10) * step] ^= 16;
        fs::write(&db, &damaged).unwrap();
        match Sled::open(folder.path()) {
            Ok(store) => match lengths(&store, "a").await {
                Ok(lengths) => assert_eq!(lengths.len(), 100, "step {step}"),
                Err(error) => assert!(matches!(error, StorageError::Corrupt { .. }), "step {step}: {error}"),
            },
            Err(error) => {
                assert!(error.to_string().contains("damaged"), "step {step}: {error}");
                assert!(fs::read(&db).unwrap() == damaged, "step {step}: the log was changed");
                refused += 1;
            }
        }
    }
    assert!(refused > 0, "no flip hit what was synced last");
}

/// A copy of the folder of a store that was not closed, whose last writes are in the write-ahead log alone.
async fn unclosed() -> TempDir {
    let (folder, copy) = (tempdir().unwrap(), tempdir().unwrap());
    // Nothing happens by itself.
    let store = Sled::open(folder.path()).unwrap().buffered_within(Duration::from_secs(3600));
    for number in 0..20 {
        append(&store, "a", number, &vec![1; number as usize]).await;
    }
    for (path, bytes) in contents(folder.path()) {
        let to = copy.path().join(Path::new(&path).strip_prefix(folder.path()).unwrap());
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::write(to, bytes).unwrap();
    }
    copy
}

#[tokio::test]
async fn a_damaged_write_ahead_log_is_refused_and_left_as_it_is() {
    let folder = unclosed().await;
    let files = fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path());
    let log = files.into_iter().find(|path| path.file_stem().unwrap() == "wal").unwrap();
    let log = log.as_path();
    let whole = fs::read(log).unwrap();
    let refused_with = |damaged: &[u8]| {
        fs::write(log, damaged).unwrap();
        let before = contents(folder.path());
        let refused = refusal(folder.path());
        (refused, contents(folder.path()) == before)
    };
    for length in [0, 1, 16, whole.len() / 2, whole.len() - 1] {
        let (refused, is_as_before) = refused_with(&whole[..length]);
        assert!(refused.contains("the write-ahead log (files `wal.*`) is damaged: it ends with sync"), "{refused}");
        assert!(is_as_before, "{length}: something was changed");
    }
    // Also in the middle, where the log does not end early.
    for at in (0..whole.len()).step_by(61) {
        let mut damaged = whole.clone();
        damaged[at] ^= 4;
        assert!(refused_with(&damaged).0.contains("damaged"), "{at}");
    }
    fs::remove_file(log).unwrap();
    assert!(refusal(folder.path()).contains("the write-ahead log (files `wal.*`) is damaged"));
    fs::write(log, &whole).unwrap();
    assert_eq!(lengths(&Sled::open(folder.path()).unwrap(), "a").await.unwrap().len(), 20);
    assert!(!log.exists(), "the tree has everything");
}

#[cfg(unix)]
#[tokio::test]
async fn what_is_no_file_in_the_place_of_the_write_ahead_log_is_refused() {
    let folder = filled().await;
    let log = folder.path().join("wal.99");
    fs::create_dir(&log).unwrap();
    assert!(refusal(folder.path()).contains("its `wal.99` is not a file; move away what is there"));
    fs::remove_dir(&log).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &log).unwrap();
    assert!(refusal(folder.path()).contains("its `wal.99` is not a file; move away what is there"));
    fs::remove_file(&log).unwrap();
    // One of another program where there is no store.
    let other = tempdir().unwrap();
    fs::write(other.path().join("wal.1"), "precious").unwrap();
    assert!(refusal(other.path()).contains("has a file `wal.1`, which a store would write over"));
    assert_eq!(contents(other.path()).len(), 1);
}

#[tokio::test]
async fn a_log_that_lost_whole_segments_is_refused_and_left_as_it_is() {
    let folder = tempdir().unwrap();
    let store = Sled::open(folder.path()).unwrap();
    for number in 0..200 {
        append(&store, "a", number, &[1; 60_000]).await;
    }
    drop(store);
    let db = folder.path().join("db");
    let whole = fs::read(&db).unwrap();
    assert!(whole.len() > 8 << 20);
    fs::write(&db, &whole[..8 << 20]).unwrap();
    let before = contents(folder.path());
    assert!(refusal(folder.path()).contains("cannot be reached"));
    assert!(contents(folder.path()) == before);
    fs::write(&db, &whole).unwrap();
    assert_eq!(lengths(&Sled::open(folder.path()).unwrap(), "a").await.unwrap().len(), 200);
}

#[tokio::test]
async fn a_folder_of_a_newer_version_is_refused_and_left_as_it_is() {
    let folder = filled().await;
    fs::write(folder.path().join("format"), "callboard store, format 4\n").unwrap();
    let before = contents(folder.path());
    assert!(refusal(folder.path()).contains("newer version of callboard"));
    assert!(contents(folder.path()) == before);
    fs::write(folder.path().join("format"), "something else").unwrap();
    assert!(refusal(folder.path()).contains("damaged"));
}

#[test]
fn a_database_that_callboard_did_not_make_is_left_alone() {
    let folder = tempdir().unwrap();
    sled::open(folder.path()).unwrap().insert(b"theirs", b"x").unwrap();
    let before = contents(folder.path());
    assert!(refusal(folder.path()).contains("did not make"));
    assert!(contents(folder.path()) == before);
}

/// Changes rows the way bad memory or a bug would: behind the store's back.
fn with_raw_rows(folder: &Path, change: impl FnOnce(&sled::Db)) {
    // sled's threads keep its file locked for a moment after the store is closed; this waits for the last of them.
    fs::File::open(folder.join("db")).unwrap().lock().unwrap();
    let db = sled::Config::new().path(folder).segment_size(8 << 20).open().unwrap();
    change(&db);
    db.flush().unwrap();
}

/// The row of the stream "a" that has its record 42, and the numbers of its first record and of the next row's.
fn row_of_42(db: &sled::Db) -> (sled::IVec, u64, u64) {
    let row = |sequence: u64| {
        let prefix = [b"s", stream("a").as_bytes(), &[0, 0]].concat();
        [&*prefix, &sequence.to_be_bytes()].concat()
    };
    let number = |row: &sled::IVec| u64::from_be_bytes(*row.last_chunk().unwrap());
    let (found, _) = db.range(row(1)..=row(42)).next_back().unwrap().unwrap();
    let (next, _) = db.range(row(43)..).next().unwrap().unwrap();
    let (first, after) = (number(&found), number(&next));
    (found, first, after)
}

#[tokio::test]
async fn a_damaged_record_is_reported_for_its_stream_alone() {
    let folder = filled().await;
    let (mut first, mut after) = (0, 0);
    with_raw_rows(folder.path(), |db| {
        let row;
        (row, first, after) = row_of_42(db);
        let mut record = db.get(&row).unwrap().unwrap().to_vec();
        record[500] ^= 1;
        db.insert(row, record).unwrap();
    });
    let store = Sled::open(folder.path()).unwrap();
    let corrupt = |read: Result<Vec<usize>, StorageError>| {
        let Err(StorageError::Corrupt { key, detail }) = read else { panic!("it is damaged") };
        assert_eq!(key, stream("a"));
        assert!(detail.contains(&format!("record {first}")), "{detail}");
    };
    corrupt(lengths(&store, "a").await);
    for from in first..after {
        corrupt(store.read(&stream("a"), from, 1).await.map(|_| Vec::new()));
    }
    let readable = |from, limit| store.read(&stream("a"), from, limit);
    assert_eq!(readable(1, first as usize - 1).await.unwrap().len() as u64, first - 1, "what comes before");
    assert_eq!(readable(after, 99).await.unwrap().len() as u64, 101 - after, "what comes after");
    assert_eq!(lengths(&store, "b").await, Ok(vec![100_000; 2]));
    assert!(store.get(&stream("v")).await.unwrap().is_some());
    append(&store, "a", 100, b"x").await;
}

#[tokio::test]
async fn a_missing_record_is_noticed() {
    let folder = filled().await;
    let mut first = 0;
    with_raw_rows(folder.path(), |db| {
        let row;
        (row, first, _) = row_of_42(db);
        db.remove(row).unwrap().unwrap();
    });
    let store = Sled::open(folder.path()).unwrap();
    let Err(StorageError::Corrupt { detail, .. }) = lengths(&store, "a").await else { panic!("one is missing") };
    assert!(detail.contains(&format!("record {first} is missing")), "{detail}");
}

/// Flips a bit in the row of a value.
fn damage_value(folder: &Path, name: &str) {
    let mut row = b"v".to_vec();
    row.extend_from_slice(stream(name).as_bytes());
    with_raw_rows(folder, |db| {
        let mut value = db.get(&row).unwrap().unwrap().to_vec();
        let last = value.len() - 1;
        value[last] ^= 1;
        db.insert(&row, value).unwrap();
    });
}

#[tokio::test]
async fn a_rider_on_a_damaged_value_refuses_the_append_and_the_store_continues() {
    let folder = filled().await;
    damage_value(folder.path(), "v");
    let store = Sled::open(folder.path()).unwrap();
    let (first, before) = (stream("first"), lengths(&store, "a").await.unwrap());
    let value: Arc<[u8]> = b"new".as_slice().into();
    let riders = [Rider::put(stream("v"), Arc::clone(&value)), Rider::Delete { key: stream("v") }];
    for damaged in riders {
        let riders = vec![Rider::put(first.clone(), Arc::clone(&value)), damaged];
        let append = Append::new(stream("a"), before.len() as u64, Arc::clone(&value));
        let refused = store.append(Append { riders, ..append }).await;
        assert!(matches!(&refused, Err(StorageError::Corrupt { key, .. }) if *key == stream("v")), "{refused:?}");
        assert_eq!((lengths(&store, "a").await.unwrap(), store.get(&first).await.unwrap()), (before.clone(), None));
    }
    append(&store, "a", before.len() as u64, b"x").await;
    put(&store, "first", b"x").await;
}

#[tokio::test]
async fn a_damaged_value_is_reported_for_its_key_alone_and_not_overwritten() {
    let folder = filled().await;
    put(&Sled::open(folder.path()).unwrap(), "w", b"fine").await;
    damage_value(folder.path(), "v");
    let store = Sled::open(folder.path()).unwrap();
    let corrupt = |result| assert!(matches!(result, Err(StorageError::Corrupt { key, .. }) if key == stream("v")));
    corrupt(store.get(&stream("v")).await.map(drop));
    corrupt(store.scan(&Key::new([]).children(), None, 9).await.map(drop));
    let (key, value, expected) = (stream("v"), b"new".as_slice().into(), Expected::Any);
    let over = Put { expected, ..Put::new(key, value) };
    corrupt(store.put_if_revision(over).await.map(drop));
    assert_eq!(store.scan(&Key::new([]).children(), Some(&stream("v")), 9).await.unwrap().len(), 1);
    assert!(store.get(&stream("w")).await.unwrap().is_some());
}

/// Shared memory does not fill up because one entry of it is damaged.
#[tokio::test]
async fn an_expiry_pass_over_the_context_continues_behind_a_damaged_entry() {
    let folder = tempdir().unwrap();
    let at = |secs| {
        let clock = ManualClock::new();
        clock.advance(Duration::from_secs(secs));
        let store = Arc::new(Sled::open(folder.path()).unwrap());
        ContextStore::new(store, Env::new(clock, 1), Durability::Sync, BTreeMap::new())
    };
    let context = at(0);
    let ann = AgentName::new("ann").unwrap();
    for key in ["a", "b", "c"] {
        context.set("notes", key, "x", &ann, Some(Duration::from_secs(60))).await.unwrap();
    }
    drop(context);
    let mut row = b"v".to_vec();
    row.extend_from_slice(Key::new(["context", "notes", "b"]).as_bytes());
    with_raw_rows(folder.path(), |db| {
        let mut value = db.get(&row).unwrap().unwrap().to_vec();
        value[9] ^= 1;
        db.insert(&row, value).unwrap();
    });
    let context = at(60);
    assert_eq!(context.expire().await, Ok(2));
    let stays = context.get("notes", "b").await;
    assert!(matches!(stays, Err(ContextError::Storage(StorageError::Corrupt { .. }))), "{stays:?}");
}

#[tokio::test]
async fn a_damaged_or_lost_payload_file_is_reported_for_its_stream_alone() {
    let folder = filled().await;
    let payload = fs::read_dir(folder.path().join("payloads")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&payload).unwrap();
    bytes[77] ^= 1;
    fs::write(&payload, bytes).unwrap();
    let store = Sled::open(folder.path()).unwrap();
    let Err(StorageError::Corrupt { key, detail }) = lengths(&store, "b").await else { panic!("it is damaged") };
    assert!(key == stream("b") && detail.contains("damaged"), "{detail}");
    fs::remove_file(&payload).unwrap();
    assert!(matches!(lengths(&store, "b").await, Err(StorageError::Corrupt { .. })));
    assert_eq!(lengths(&store, "a").await.unwrap().len(), 100);
}

/// A link to itself represents every error of the operating system that is no damage: it exists and cannot be opened.
#[cfg(unix)]
#[tokio::test]
async fn a_payload_file_that_cannot_be_opened_is_unavailable_and_not_damaged() {
    let folder = tempdir().unwrap();
    let store = Sled::open(folder.path()).unwrap();
    let big = vec![b'b'; 100_000];
    append(&store, "b", 0, &big).await;
    put(&store, "v", &big).await;
    let payload = fs::read_dir(folder.path().join("payloads")).unwrap().next().unwrap().unwrap().path();
    let moved = folder.path().join("moved");
    fs::rename(&payload, &moved).unwrap();
    std::os::unix::fs::symlink(&payload, &payload).unwrap();
    let failed = [
        lengths(&store, "b").await.map(drop),
        store.get(&stream("v")).await.map(drop),
        store.scan(&Key::new([]).children(), None, 9).await.map(drop),
    ];
    for result in failed {
        assert!(matches!(result, Err(StorageError::Unavailable { .. })), "{result:?}");
    }
    fs::rename(&moved, &payload).unwrap();
    assert_eq!(lengths(&store, "b").await, Ok(vec![100_000]));
    assert!(store.get(&stream("v")).await.unwrap().is_some());
}
