//! Everything that is exported can be restored.

use std::sync::Arc;
use std::time::Duration;

use callboard::env::Clock;
use callboard::storage::{
    Append, Durability, Expected, Fence, Key, Memory, Put, Record, Sled, Storage, StorageError, Transfer, TransferError,
};
use callboard::testing::conformance::ManualClock;

/// Streams with hostile names, a purged beginning, a long payload, and values with and without expiry.
async fn fill(store: &dyn Storage) {
    for (name, records) in [("", 3), ("a\0b", 300), ("ä/\"\n", 1)] {
        for expected in 0..records {
            let payload = if expected == 2 { vec![0xab; 100_000] } else { vec![expected as u8; 9] };
            let (stream, payload) = (Key::new(["run", name]), payload.into());
            let append = Append { stream, fence: Fence::FIRST, expected, payload, durability: Durability::Buffered };
            store.append(append).await.unwrap();
        }
    }
    store.purge(&Key::new(["run", "a\0b"]), 7).await.unwrap();
    for (number, ttl_secs) in (0..600).zip([None, Some(10), Some(1000)].into_iter().cycle()) {
        let (key, value) = (Key::new(["context", &*format!("{number:03}")]), vec![number as u8; 5].into());
        let put = Put { key, value, expected: Expected::Any, ttl_secs, durability: Durability::Buffered };
        store.put_if_revision(put).await.unwrap();
    }
}

type Everything = (Vec<(Key, Vec<Record>)>, Vec<(Key, Arc<[u8]>, Option<u64>)>);

/// All that a store holds, revisions aside.
async fn everything(store: &dyn Storage) -> Everything {
    let all = Key::new([]).children();
    let mut streams = Vec::new();
    for stream in store.streams(&all).await.unwrap() {
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
    let gap = import(without(2)).await;
    assert!(matches!(gap, TransferError::Store(StorageError::WrongSequence { .. })), "{gap}");
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
    assert!(matches!(import(hostile.to_owned()).await, TransferError::Store(StorageError::TooLarge { .. })));
    let zero = hostile.replace("99999999999", "0");
    assert!(matches!(import(zero).await, TransferError::Store(StorageError::WrongSequence { .. })));
}
