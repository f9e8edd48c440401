//! Tests of what is in memory and in the write-ahead log before sled's tree has it.

use tempfile::TempDir;

use super::tests::{Recorder, append, folder};
use super::*;
use crate::storage::{Append, Delete, Durability, Key, Memory, Put, Rider, Sequence, Storage};

/// What a store holds, without revisions.
async fn contents(store: &dyn Storage, from: Sequence, limit: usize) -> (Vec<(Key, Vec<Sequence>)>, Vec<(Key, usize)>) {
    let all = Key::new([]).children();
    let (mut streams, mut after) = (Vec::new(), None);
    loop {
        let page = store.streams(&all, after.as_ref(), limit).await.unwrap();
        after = page.last().cloned();
        for stream in &page {
            let records = store.read(stream, from, limit).await.unwrap();
            assert!(records.iter().all(|record| record.payload.len() as u64 == length(record.sequence)));
            streams.push((stream.clone(), records.into_iter().map(|record| record.sequence).collect()));
        }
        if page.len() < limit {
            break;
        }
    }
    let (mut values, mut after) = (Vec::new(), None);
    loop {
        let page = store.scan(&all, after.as_ref(), limit).await.unwrap();
        after = page.last().map(|(key, _)| key.clone());
        let is_last = page.len() < limit;
        for (key, entry) in page {
            assert_eq!(store.get(&key).await.unwrap().unwrap(), entry);
            values.push((key, entry.value.len()));
        }
        if is_last {
            return (streams, values);
        }
    }
}

/// The length of the record with a number.
fn length(sequence: Sequence) -> u64 {
    if sequence.is_multiple_of(97) { 70_000 } else { sequence * 37 % 300 }
}

#[tokio::test]
async fn a_store_whose_rows_are_applied_later_holds_what_one_in_memory_does() {
    let folder = folder();
    let open = || Recorder::default().open(&folder).applied_from(4 << 10);
    let (mut store, memory) = (open(), Memory::default());
    let mut random = 1_u64;
    let mut below = |bound: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % bound
    };
    let mut last = [0; 5];
    for step in 0..4_000 {
        let number = below(5) as usize;
        let stream = Key::new(["run", &number.to_string()]);
        let key = Key::new(["value", &below(40).to_string()]);
        let stores: [&dyn Storage; 2] = [&store, &memory];
        let durability = [Durability::Sync, Durability::Buffered, Durability::Memory][below(3) as usize];
        match below(10) {
            0 => {
                let up_to = if below(4) == 0 { u64::MAX } else { last[number] / 2 + below(3) };
                for store in stores {
                    store.purge(&stream, up_to).await.unwrap();
                }
                if up_to >= last[number] {
                    last[number] = 0;
                }
            }
            1 => {
                for store in stores {
                    let Some(entry) = store.get(&key).await.unwrap() else { continue };
                    store.delete_if_revision(Delete::new(key.clone(), entry.revision, durability)).await.unwrap();
                }
            }
            2 => {
                let value: Arc<[u8]> = vec![7; if below(20) == 0 { 70_000 } else { below(100) as usize }].into();
                for store in stores {
                    let put = Put { durability, ..Put::new(key.clone(), Arc::clone(&value)) };
                    store.put_if_revision(put).await.unwrap();
                }
            }
            _ => {
                let payload: Arc<[u8]> = vec![1; length(last[number] + 1) as usize].into();
                let rider = match below(4) {
                    0 => vec![Rider::put(key, Arc::clone(&payload))],
                    1 => vec![Rider::Delete { key }],
                    _ => Vec::new(),
                };
                for store in stores {
                    let append = Append::new(stream.clone(), last[number], Arc::clone(&payload));
                    let append = Append { durability, riders: rider.clone(), ..append };
                    assert_eq!(store.append(append).await, Ok(last[number] + 1), "step {step}");
                }
                last[number] += 1;
            }
        }
        if below(40) == 0 {
            let (from, limit) = (below(last[number] + 2), 1 + below(70) as usize);
            assert_eq!(contents(&store, from, limit).await, contents(&memory, from, limit).await, "step {step}");
        }
        if below(1_000) == 0 {
            drop(store);
            store = open();
        }
    }
    assert!(store.stats().syncs > 10);
}

/// A store on which nothing happens by itself.
fn still(recorder: &Recorder, folder: &TempDir) -> Sled {
    recorder.open(folder).buffered_within(Duration::from_secs(3600))
}

/// How many files the write-ahead log has.
fn log_files(folder: &TempDir) -> usize {
    write_ahead::files_in(folder.path()).unwrap().len()
}

/// Waits for it, and not for a time.
#[tokio::test]
async fn what_is_in_the_log_while_nothing_is_written_is_applied() {
    let folder = folder();
    let store = Recorder::default().open(&folder).applied_from(64 * 100);
    store.append(append("a", 0, &[7; 100], Durability::Sync)).await.unwrap();
    let syncs = store.stats().syncs;
    while log_files(&folder) > 0 || store.shared.overlay.young_bytes() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(store.stats().syncs, syncs);
    assert_eq!(store.read(&Key::new(["a"]), 1, 9).await.unwrap().len(), 1);
    store.append(append("a", 1, b"x", Durability::Sync)).await.unwrap();
    assert_eq!(log_files(&folder), 1);
}

#[tokio::test]
async fn what_was_only_in_the_log_when_the_store_stopped_is_there_when_it_is_opened() {
    let (recorder, folder) = (Recorder::default(), folder());
    let store = still(&recorder, &folder);
    let rows = |store: &Sled| store.shared.open.read().as_ref().unwrap().db.scan_prefix("s").count();
    let key = Key::new(["open"]);
    for expected in 0..9 {
        let riders = match expected % 2 {
            0 => vec![Rider::put(key.clone(), b"x".as_slice().into())],
            _ => vec![Rider::Delete { key: key.clone() }],
        };
        store.append(Append { riders, ..append("a", expected, b"kept", Durability::Sync) }).await.unwrap();
    }
    assert_eq!(rows(&store), 0);
    recorder.fail("wal");
    assert!(store.append(append("a", 9, b"lost?", Durability::Sync)).await.is_err());
    drop(store);
    *recorder.failing.lock() = None;
    let store = recorder.open(&folder);
    assert!(rows(&store) >= 9, "they were applied");
    let records = store.read(&Key::new(["a"]), 1, 99).await.unwrap();
    assert!(records.len() >= 9 && records[..9].iter().all(|record| record.payload[..] == *b"kept"));
    assert!(store.get(&key).await.unwrap().is_some());
}

#[tokio::test]
async fn the_records_of_a_run_that_has_just_ended_are_one_row_of_the_closed_store() {
    let folder = folder();
    let store = still(&Recorder::default(), &folder);
    let noted = |key: &str| Rider::put(Key::new([key]), b"x".as_slice().into());
    for sequence in 0..4 {
        let riders = match sequence {
            0 => vec![noted("open")],
            3 => vec![noted("ended"), Rider::Delete { key: Key::new(["open"]) }],
            _ => Vec::new(),
        };
        store.append(Append { riders, ..append("a", sequence, b"x", Durability::Sync) }).await.unwrap();
    }
    store.close().await.unwrap();
    drop(store);
    let store = Recorder::default().open(&folder);
    let rows: Vec<u8> =
        store.shared.open.read().as_ref().unwrap().db.iter().keys().map(|row| row.unwrap()[0]).collect();
    assert_eq!(rows, *b"msv");
    store.append(append("a", 4, b"x", Durability::Sync)).await.unwrap();
    let read = async |from, limit| store.read(&Key::new(["a"]), from, limit).await.unwrap().len();
    assert_eq!((read(1, 9).await, read(3, 9).await, read(2, 2).await, read(5, 9).await), (5, 3, 2, 1));
}

/// In the first format each record had a row, and there was no log.
#[tokio::test]
async fn a_store_of_the_first_format_is_read_and_names_the_present_one_before_anything_else_is_written() {
    let (recorder, folder) = (Recorder::default(), folder());
    recorder.open(&folder).close().await.unwrap();
    let (stream, key) = (Key::new(["a"]), Key::new(["v"]));
    let db = open_sled(folder.path()).unwrap();
    let write = |row: Vec<u8>, revision, bytes: &[u8]| {
        let sealed = rows::PayloadRow { revision, expires_at: None, content: rows::Content::Inline(bytes) }.seal(&row);
        db.insert(row, sealed).unwrap();
    };
    (1..=3).for_each(|sequence| write(rows::record(&stream, sequence), 0, b"old"));
    write(rows::value(&key), 7, b"old");
    db.flush().unwrap();
    drop(db);
    let format = folder.path().join("format");
    std::fs::write(&format, "callboard store, format 1\n").unwrap();
    recorder.fail("write format");
    let disk = Arc::new(recorder.clone());
    let failed = Sled::open_on(folder.path(), Arc::new(SystemClock::default()), disk).unwrap_err();
    assert!(failed.to_string().contains("the file `format` cannot be written"), "{failed}");
    assert_eq!(std::fs::read_to_string(&format).unwrap(), "callboard store, format 1\n");
    *recorder.failing.lock() = None;
    let store = Sled::open_on(folder.path(), Arc::new(SystemClock::default()), Arc::new(recorder.clone())).unwrap();
    let name = folder.path().file_name().unwrap().to_string_lossy().into_owned();
    let syncs = recorder.take();
    assert_eq!(syncs[syncs.len() - 5..], ["format", &*name, "conf", &*name, "db"]);
    assert_eq!(std::fs::read_to_string(&format).unwrap(), "callboard store, format 3\n");
    assert_eq!(store.read(&stream, 1, 9).await.unwrap().len(), 3);
    assert_eq!(store.get(&key).await.unwrap().unwrap().revision, 7);
    store.append(append("a", 3, b"new", Durability::Sync)).await.unwrap();
}
