//! What only the seam to the disk can show: the order of syncs, how many there are, and what happens when a step fails.

use std::fs::File;
use std::io::{self, Write as _};
use std::ops::Bound;

use futures::StreamExt;
use futures::future::join_all;
use tempfile::TempDir;

use super::*;
use crate::storage::{Append, Durability, Expected, Key, Put, Rider, Sequence, Storage};

/// Records every sync, and fails one step on demand: `wal` is the sync of a file of that name; `write payload` writes half of it.
#[derive(Clone, Default)]
pub(super) struct Recorder {
    events: Arc<Mutex<Vec<String>>>,
    pub(super) failing: Arc<Mutex<Option<&'static str>>>,
}

impl Recorder {
    fn note(&self, event: &str) {
        self.events.lock().push(event.to_owned());
    }

    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.events.lock())
    }

    pub(super) fn fail(&self, step: &'static str) {
        *self.failing.lock() = Some(step);
    }

    fn try_step(&self, step: &str) -> io::Result<()> {
        if self.failing.lock().is_none_or(|failing| failing != step) {
            return Ok(());
        }
        self.note(&format!("{step} failed"));
        Err(io::Error::other("the disk is on fire"))
    }

    pub(super) fn open(&self, folder: &TempDir) -> Sled {
        let disk = Arc::new(self.clone());
        let store = Sled::open_on(folder.path(), Arc::new(SystemClock::default()), disk).unwrap();
        self.take();
        store
    }
}

impl Disk for Recorder {
    fn create(&self, path: &Path) -> io::Result<File> {
        self.try_step(&format!("create {}", name_of(path)))?;
        File::create(path)
    }

    fn write(&self, file: &mut File, path: &Path, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = self.try_step(&format!("write {}", name_of(path))) {
            file.write_all(&bytes[..bytes.len() / 2])?;
            return Err(error);
        }
        file.write_all(bytes)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.try_step(&format!("rename {}", name_of(to)))?;
        std::fs::rename(from, to)
    }

    fn create_new(&self, path: &Path) -> io::Result<File> {
        self.try_step(&format!("create {}", name_of(path)))?;
        File::create_new(path)
    }

    fn sync(&self, _: &File, path: &Path) -> io::Result<()> {
        let name = name_of(path);
        self.try_step(&name)?;
        assert!(self.failing.lock().is_none_or(|failing| failing != "panic"), "a bug in the writer");
        self.note(&name);
        Ok(())
    }
}

/// What a write with a long payload takes.
const STEPS: [&str; 8] =
    ["write wal", "wal", "create payload", "write payload", "payload", "rename payload", "payloads", "write synced"];

/// The name of a file, also of an unfinished one.
fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.trim_end_matches(".unfinished");
    match name {
        _ if name.len() == 64 => "payload".to_owned(),
        _ if name.starts_with("wal.") => "wal".to_owned(),
        _ => name.to_owned(),
    }
}

/// The name of a store's folder, which is synced when it has got a file.
fn own_name(folder: &TempDir) -> String {
    name_of(folder.path())
}

pub(super) fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

pub(super) fn append(stream: &str, expected: Sequence, payload: &[u8], durability: Durability) -> Append {
    Append { durability, ..Append::new(Key::new([stream]), expected, payload.into()) }
}

#[tokio::test]
async fn a_sync_append_is_acknowledged_after_the_log_is_synced() {
    let (recorder, folder) = (Recorder::default(), folder());
    let store = recorder.open(&folder);
    store.append(append("a", 0, b"x", Durability::Sync)).await.unwrap();
    recorder.note("acknowledged");
    assert_eq!(recorder.take(), ["wal", &*own_name(&folder), "acknowledged"]);
    store.append(append("a", 1, b"x", Durability::Sync)).await.unwrap();
    recorder.note("acknowledged");
    assert_eq!(recorder.take(), ["wal", "acknowledged"]);
}

#[tokio::test]
async fn a_long_payload_is_synced_with_its_name_before_the_record_and_the_acknowledgement() {
    let (recorder, folder) = (Recorder::default(), folder());
    let store = recorder.open(&folder);
    let payload = vec![7; 64 << 10];
    store.append(append("a", 0, &payload, Durability::Sync)).await.unwrap();
    recorder.note("acknowledged");
    assert_eq!(recorder.take(), ["payload", "payloads", "wal", &*own_name(&folder), "acknowledged"]);
    assert_eq!(store.read(&Key::new(["a"]), 1, 1).await.unwrap()[0].payload[..], payload[..]);
}

#[tokio::test]
async fn a_long_rider_of_a_short_append_is_synced_with_its_name_before_the_acknowledgement() {
    let (recorder, folder) = (Recorder::default(), folder());
    let store = recorder.open(&folder);
    let value: Arc<[u8]> = vec![7; 64 << 10].into();
    let riders = vec![Rider::put(Key::new(["k"]), Arc::clone(&value))];
    store.append(Append { riders, ..append("a", 0, b"x", Durability::Sync) }).await.unwrap();
    recorder.note("acknowledged");
    assert_eq!(recorder.take(), ["payload", "payloads", "wal", &*own_name(&folder), "acknowledged"]);
    let riders = vec![Rider::Delete { key: Key::new(["k"]) }];
    assert!(store.get(&Key::new(["k"])).await.unwrap().is_some_and(|entry| entry.value == value));
    store.append(Append { riders, ..append("a", 1, b"x", Durability::Sync) }).await.unwrap();
    store.append(append("a", 2, b"x", Durability::Sync)).await.unwrap();
    assert_eq!(std::fs::read_dir(folder.path().join("payloads")).unwrap().count(), 0, "nothing refers to it");
}

#[tokio::test]
async fn an_append_whose_writing_has_failed_at_any_step_is_there_with_all_riders_or_with_none() {
    let (old, new): (Arc<[u8]>, Arc<[u8]>) = (b"old".as_slice().into(), vec![2; 70_000].into());
    let (mut with, mut without) = (0, 0);
    for step in STEPS {
        let (recorder, folder) = (Recorder::default(), folder());
        let store = recorder.open(&folder);
        for key in ["deleted", "replaced"] {
            store.put_if_revision(Put::new(Key::new([key]), Arc::clone(&old))).await.unwrap();
        }
        recorder.fail(step);
        let riders = vec![
            Rider::put(Key::new(["new"]), Arc::clone(&new)),
            Rider::put(Key::new(["replaced"]), Arc::clone(&new)),
            Rider::Delete { key: Key::new(["deleted"]) },
        ];
        let failed = store.append(Append { riders, ..append("a", 0, &[1; 70_000], Durability::Sync) }).await;
        assert!(matches!(failed, Err(StorageError::Stopped { .. })), "{step}: {failed:?}");
        drop(store);
        *recorder.failing.lock() = None;
        let reopened = recorder.open(&folder);
        let all = Key::new([]).children();
        let values = reopened.scan(&all, None, 9).await.unwrap();
        let values: Vec<_> = values.into_iter().map(|(key, entry)| (key, entry.value)).collect();
        let is_there = !reopened.read(&Key::new(["a"]), 1, 9).await.unwrap().is_empty();
        let names = if is_there { ["new", "replaced"] } else { ["deleted", "replaced"] };
        let value = if is_there { &new } else { &old };
        assert_eq!(values, names.map(|name| (Key::new([name]), Arc::clone(value))), "{step}");
        *(if is_there { &mut with } else { &mut without }) += 1;
    }
    assert!(with > 0 && without > 0, "{with} {without}");
}

#[tokio::test]
async fn a_short_write_does_not_overtake_a_long_one_that_was_issued_before() {
    let (recorder, folder) = (Recorder::default(), folder());
    let store = recorder.open(&folder);
    let long = store.append(append("a", 0, &[7; 70_000], Durability::Memory));
    store.append(append("b", 0, b"x", Durability::Sync)).await.unwrap();
    recorder.note("acknowledged");
    assert_eq!(recorder.take(), ["payload", "payloads", "wal", &*own_name(&folder), "acknowledged"]);
    assert_eq!(store.read(&Key::new(["a"]), 1, 1).await.unwrap().len(), 1);
    long.await.unwrap();
}

/// A disk on which the log grows as soon as it is synced, as it does while others write. Remembers what was synced.
#[derive(Clone, Default)]
struct Growing(Arc<Mutex<u64>>);

impl Disk for Growing {
    fn sync(&self, file: &File, path: &Path) -> io::Result<()> {
        if path.ends_with("db") {
            *self.0.lock() = file.metadata()?.len();
            File::options().append(true).open(path)?.write_all(&[0; 24])?;
        }
        Ok(())
    }
}

#[tokio::test]
async fn what_is_noted_as_synced_was_there_before_the_sync() {
    let (growing, folder) = (Growing::default(), folder());
    let disk = Arc::new(growing.clone());
    let store = Sled::open_on(folder.path(), Arc::new(SystemClock::default()), disk).unwrap();
    store.append(append("a", 0, b"x", Durability::Sync)).await.unwrap();
    let noted = std::fs::read(folder.path().join("synced")).unwrap();
    assert_eq!(u64::from_le_bytes(noted[8..16].try_into().unwrap()), *growing.0.lock());
}

#[tokio::test]
async fn a_new_folder_is_synced_before_it_is_used() {
    let (recorder, folder) = (Recorder::default(), folder());
    let disk = Arc::new(recorder.clone());
    let path = folder.path().join("store");
    let store = Sled::open_on(&path, Arc::new(SystemClock::default()), disk).unwrap();
    let parent = folder.path().file_name().unwrap().to_string_lossy().into_owned();
    assert_eq!(recorder.take(), [&*parent, "format", "store", "conf", "store", "db"]);
    drop(store);
}

#[tokio::test]
async fn memory_and_buffered_writes_do_not_wait_for_a_sync_and_get_one_when_the_store_closes() {
    let (recorder, folder) = (Recorder::default(), folder());
    let store = recorder.open(&folder);
    store.append(append("a", 0, b"x", Durability::Memory)).await.unwrap();
    store.append(append("a", 1, b"x", Durability::Buffered)).await.unwrap();
    assert_eq!(store.read(&Key::new(["a"]), 1, 9).await.unwrap().len(), 2);
    store.close().await.unwrap();
    assert_eq!(recorder.take(), ["wal", &*own_name(&folder), "db"]);
}

/// Waits for the sync, not for a time: nothing else happens after the write.
#[tokio::test]
async fn a_buffered_write_is_synced_without_any_further_write() {
    let (recorder, folder) = (Recorder::default(), folder());
    let store = recorder.open(&folder);
    let before = store.stats().syncs;
    store.append(append("a", 0, b"x", Durability::Buffered)).await.unwrap();
    while store.stats().syncs == before {
        tokio::task::yield_now().await;
    }
    assert_eq!(recorder.take(), ["wal", &*own_name(&folder)]);
}

#[tokio::test]
async fn how_long_a_buffered_write_waits_for_its_sync_can_be_set() {
    let (recorder, folder) = (Recorder::default(), folder());
    let store = recorder.open(&folder).buffered_within(Duration::from_secs(3600));
    // The sync of the opening.
    store.append(append("a", 0, b"x", Durability::Sync)).await.unwrap();
    store.append(append("a", 1, b"x", Durability::Buffered)).await.unwrap();
    let due = store.shared.state.lock().as_ref().unwrap().sync_in().unwrap();
    assert!((2_800..=2_880).contains(&due.as_secs()), "{due:?}");
}

#[tokio::test]
async fn concurrent_writes_share_a_sync() {
    let (recorder, folder) = (Recorder::default(), folder());
    let store = recorder.open(&folder);
    let before = store.stats();
    let streams: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
    let appended = join_all(streams.iter().map(|stream| store.append(append(stream, 0, b"x", Durability::Sync)))).await;
    assert!(appended.iter().all(|result| *result == Ok(1)));
    let after = store.stats();
    assert_eq!(after.writes - before.writes, 1000);
    let syncs = after.syncs - before.syncs;
    // How many there are depends on the disk: the faster it is, the fewer writes arrive during a sync.
    assert!(syncs <= 500, "1000 appends took {syncs} syncs");
    // Once the folder's, with the name of the log's file.
    assert_eq!(recorder.take().len() as u64, syncs + 1);
}

#[tokio::test]
async fn more_writers_than_there_is_room_for_are_all_served() {
    let folder = folder();
    let store = Recorder::default().open(&folder);
    let streams: Vec<String> = (0..QUEUE + 100).map(|number| number.to_string()).collect();
    let appended =
        join_all(streams.iter().map(|stream| store.append(append(stream, 0, b"x", Durability::Memory)))).await;
    assert!(appended.iter().all(|result| *result == Ok(1)));
}

#[tokio::test]
async fn a_failed_step_stops_the_store_and_is_not_tried_again() {
    for step in STEPS {
        let (recorder, folder) = (Recorder::default(), folder());
        let store = recorder.open(&folder);
        let mut watch = store.watch(&Key::new([]).children());
        store.append(append("a", 0, b"kept", Durability::Sync)).await.unwrap();
        recorder.take();
        recorder.fail(step);
        let big = vec![1; 70_000];
        let lost = join_all((0..3).map(|_| store.append(append("b", 0, &big, Durability::Sync)))).await;
        assert!(lost.iter().all(|result| matches!(result, Err(StorageError::Stopped { .. }))), "{lost:?}");
        let Err(StorageError::Stopped { detail }) = &lost[0] else { unreachable!() };
        assert!(detail.contains("on fire"), "{detail}");
        for durability in [Durability::Sync, Durability::Buffered, Durability::Memory] {
            let late = store.append(append("c", 0, b"x", durability)).await;
            assert!(matches!(late, Err(StorageError::Stopped { .. })));
        }
        assert!(matches!(store.sessions().await, Err(StorageError::Stopped { .. })));
        assert_eq!(watch.next().await, None, "watches end");
        assert_eq!(store.read(&Key::new(["a"]), 1, 9).await.unwrap().len(), 1, "reads continue");
        let failed = recorder.take().iter().filter(|event| event.ends_with("failed")).count();
        assert_eq!(failed, 1, "{step}");
        assert!(store.close().await.is_err_and(|error| error.to_string().contains("on fire")));
        assert!(recorder.take().is_empty(), "no step after a failed one");
        *recorder.failing.lock() = None;
        let reopened = recorder.open(&folder);
        assert_eq!(reopened.read(&Key::new(["a"]), 1, 9).await.unwrap()[0].payload[..], *b"kept");
        let files = std::fs::read_dir(folder.path().join("payloads")).unwrap();
        let files: Vec<_> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        assert!(files.iter().all(|file| file.len() == 64), "{step} left {files:?}");
    }
}

#[tokio::test]
async fn a_store_whose_making_has_failed_at_any_step_can_be_made_again() {
    for step in ["create format", "write format", "format", "rename format", "conf", "db", "write synced"] {
        let (recorder, folder) = (Recorder::default(), folder());
        recorder.fail(step);
        let disk = Arc::new(recorder.clone());
        let failed = Sled::open_on(folder.path(), Arc::new(SystemClock::default()), disk).unwrap_err();
        assert!(matches!(&failed, StorageError::Open { detail, .. } if detail.contains("on fire")), "{step}: {failed}");
        *recorder.failing.lock() = None;
        let store = recorder.open(&folder);
        store.append(append("a", 0, b"x", Durability::Sync)).await.unwrap();
    }
}

#[tokio::test]
async fn closing_reports_a_last_sync_that_failed() {
    let (recorder, folder) = (Recorder::default(), folder());
    let store = recorder.open(&folder).buffered_within(Duration::from_secs(3600));
    store.append(append("a", 0, b"x", Durability::Sync)).await.unwrap();
    store.append(append("a", 1, b"x", Durability::Buffered)).await.unwrap();
    recorder.fail("wal");
    for _ in 0..2 {
        let closed = store.close().await;
        assert!(matches!(&closed, Err(StorageError::Stopped { detail }) if detail.contains("on fire")), "{closed:?}");
    }
    *recorder.failing.lock() = None;
    recorder.open(&folder).close().await.unwrap();
}

#[tokio::test]
async fn a_panic_of_the_writer_leaves_no_caller_waiting() {
    let (recorder, folder) = (Recorder::default(), folder());
    let store = recorder.open(&folder);
    let mut watch = store.watch(&Key::new([]).children());
    recorder.fail("panic");
    let stopped = StorageError::Stopped { detail: shared::ENDED.into() };
    let lost = join_all((0..3).map(|_| store.append(append("a", 0, b"x", Durability::Sync)))).await;
    assert!(lost.iter().all(|result| *result == Err(stopped.clone())), "{lost:?}");
    assert_eq!(watch.next().await, None);
}

#[tokio::test]
async fn a_payload_file_lives_as_long_as_something_refers_to_it() {
    let folder = folder();
    let store = Recorder::default().open(&folder);
    let files = || std::fs::read_dir(folder.path().join("payloads")).unwrap().count();
    let big: Arc<[u8]> = vec![1; 70_000].into();
    let put = |key: &str, value: &Arc<[u8]>| {
        let (key, value, expected) = (Key::new([key]), Arc::clone(value), Expected::Any);
        store.put_if_revision(Put { expected, ..Put::new(key, value) })
    };
    store.append(append("a", 0, &big, Durability::Sync)).await.unwrap();
    put("k", &big).await.unwrap();
    assert_eq!(files(), 1, "the same content is kept once");
    put("k", &vec![2; 70_000].into()).await.unwrap();
    assert_eq!(files(), 2);
    store.purge(&Key::new(["a"]), 1).await.unwrap();
    let short = b"short".as_slice().into();
    put("k", &short).await.unwrap();
    assert_eq!(files(), 0);
    put("k", &big).await.unwrap();
    put("k", &short).await.unwrap();
    assert_eq!(files(), 0, "a value that was short before is known to be long now");
    std::fs::write(folder.path().join("payloads").join("0".repeat(64)), b"nobody's").unwrap();
    std::fs::write(folder.path().join("payloads").join("1.unfinished"), b"half").unwrap();
    put("k", &big).await.unwrap();
    drop(store);
    let store = Recorder::default().open(&folder);
    assert_eq!(files(), 1, "opening removes what a crash left behind");
    assert!(store.get(&Key::new(["k"])).await.unwrap().is_some_and(|entry| entry.value == big));
}

#[tokio::test]
async fn expired_rows_are_removed_and_nothing_is_left_of_them() {
    let clock = Arc::new(crate::testing::conformance::ManualClock::new());
    let folder = folder();
    let store = Sled::open_on(
        folder.path(),
        Arc::<crate::testing::conformance::ManualClock>::clone(&clock),
        Arc::new(SystemDisk),
    );
    let store = store.unwrap();
    let rows = || {
        let open = store.shared.open.read();
        let stored = Stored { tree: &open.as_ref().unwrap().db, overlay: &store.shared.overlay };
        let mut count = 0;
        let counted = stored.scan((Bound::Unbounded, Bound::Unbounded), usize::MAX, |row, _| {
            count += usize::from(!matches!(row[0], rows::GROUP | b'm'));
            Ok(true)
        });
        counted.map(|()| count).unwrap()
    };
    store
        .put_if_revision(Put {
            durability: Durability::Memory,
            ..Put::new(Key::new(["other"]), b"x".as_slice().into())
        })
        .await
        .unwrap();
    let before = rows();
    for number in 0..100 {
        let (key, value) = (Key::new([&*number.to_string()]), vec![number; 70_000].into());
        let put = Put { ttl_secs: Some(10), durability: Durability::Memory, ..Put::new(key, value) };
        store.put_if_revision(put).await.unwrap();
    }
    clock.advance(Duration::from_secs(120));
    for _ in 0..3 {
        store.purge(&Key::new(["nothing"]), 1).await.unwrap();
    }
    assert_eq!(rows(), before);
    store.append(append("a", 0, b"x", Durability::Sync)).await.unwrap();
    assert_eq!(std::fs::read_dir(folder.path().join("payloads")).unwrap().count(), 0);
}

/// Full pages of the longest records that are kept in rows, removed in an order that makes sled merge pages.
#[tokio::test]
async fn sled_writes_no_page_to_a_file_that_it_does_not_sync() {
    let folder = folder();
    let store = Recorder::default().open(&folder);
    let payload = vec![7; payloads::MAX_INLINE];
    for round in 0..20 {
        let appends =
            (0..30).map(|stream: u64| store.append(append(&stream.to_string(), round, &payload, Durability::Sync)));
        assert!(join_all(appends).await.iter().all(Result::is_ok));
    }
    for stream in (0..30).rev() {
        store.purge(&Key::new([&*stream.to_string()]), 17).await.unwrap();
    }
    store.close().await.unwrap();
    assert_eq!(std::fs::read_dir(folder.path().join("blobs")).unwrap().count(), 0);
}

#[tokio::test]
async fn nothing_is_served_after_closing() {
    let folder = folder();
    let store = Recorder::default().open(&folder);
    store.append(append("a", 0, b"x", Durability::Sync)).await.unwrap();
    store.close().await.unwrap();
    store.close().await.unwrap();
    let stopped = StorageError::Stopped { detail: "it was closed".into() };
    assert_eq!(store.append(append("a", 1, b"x", Durability::Sync)).await, Err(stopped.clone()));
    assert_eq!(store.read(&Key::new(["a"]), 1, 1).await, Err(stopped));
}

#[tokio::test]
async fn a_damaged_snapshot_or_configuration_loses_nothing() {
    let damages: [fn(&mut Vec<u8>); 4] = [
        |bytes| bytes.clear(),
        |bytes| bytes.truncate(bytes.len() / 2),
        |bytes| bytes.iter_mut().for_each(|byte| *byte ^= 0x55),
        |bytes| bytes.extend([7; 100]),
    ];
    for damage in damages {
        for damaged in ["conf", "snap."] {
            let folder = folder();
            for expected in 0..3 {
                let store = Sled::open(folder.path()).unwrap();
                store.append(append("a", expected, b"x", Durability::Sync)).await.unwrap();
            }
            let names = || {
                let files = std::fs::read_dir(folder.path()).unwrap();
                files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
            };
            let hit: Vec<String> = names().into_iter().filter(|name| name.starts_with(damaged)).collect();
            assert!(!hit.is_empty(), "{damaged} {:?}", names());
            for name in hit {
                let path = folder.path().join(name);
                let mut bytes = std::fs::read(&path).unwrap();
                damage(&mut bytes);
                std::fs::write(path, bytes).unwrap();
            }
            let store = Sled::open(folder.path()).unwrap();
            assert_eq!(store.read(&Key::new(["a"]), 1, 9).await.unwrap().len(), 3);
            store.append(append("a", 3, b"x", Durability::Sync)).await.unwrap();
            drop(store);
            assert!(names().iter().all(|name| !name.starts_with("damaged.")), "{:?}", names());
            assert_eq!(Sled::open(folder.path()).unwrap().read(&Key::new(["a"]), 1, 9).await.unwrap().len(), 4);
        }
    }
}

#[tokio::test]
async fn files_that_have_grown_are_refused_or_made_again_without_being_read_whole() {
    let folder = folder();
    let store = Sled::open(&folder).unwrap();
    store.append(append("a", 0, &[7; 100_000], Durability::Sync)).await.unwrap();
    store.close().await.unwrap();
    // More than any machine has in memory; the disk keeps none of it.
    let grow = |path: &Path| File::options().write(true).open(path).unwrap().set_len(1 << 42).unwrap();
    let whole = std::fs::read(folder.path().join("format")).unwrap();
    grow(&folder.path().join("format"));
    let refused = Sled::open(&folder).unwrap_err().to_string();
    assert!(refused.contains("its file `format` is damaged"), "{refused}");
    std::fs::write(folder.path().join("format"), whole).unwrap();
    for name in ["lock", "synced"] {
        grow(&folder.path().join(name));
    }
    let payload = std::fs::read_dir(folder.path().join("payloads")).unwrap().next().unwrap().unwrap().path();
    grow(&payload);
    let store = Sled::open(&folder).unwrap();
    let refused = store.read(&Key::new(["a"]), 1, 1).await.unwrap_err().to_string();
    assert!(refused.contains("is damaged"), "{refused}");
}

#[test]
fn files_of_other_programs_are_not_written_over() {
    for name in ["conf", "lock", "synced"] {
        let folder = folder();
        let file = folder.path().join(name);
        std::fs::write(&file, "precious").unwrap();
        let error = Sled::open(folder.path()).unwrap_err().to_string();
        assert!(error.contains(&format!("has a file `{name}`, which a store would write over")), "{error}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing was put beside {name}");
    }
    // What is left of a store that was being made.
    let folder = folder();
    std::fs::write(folder.path().join("lock"), "4711").unwrap();
    std::fs::write(folder.path().join("synced"), "").unwrap();
    Sled::open(folder.path()).unwrap();
}

#[test]
fn what_was_not_wrong_is_put_back() {
    let folder = folder();
    drop(Sled::open(folder.path()).unwrap());
    std::fs::write(folder.path().join("conf"), "no configuration").unwrap();
    // Nothing was synced that it would have to hold, so this is sled's to judge.
    std::fs::remove_file(folder.path().join("synced")).unwrap();
    std::fs::remove_file(folder.path().join("db")).unwrap();
    std::fs::create_dir(folder.path().join("db")).unwrap();
    let refused = Sled::open(folder.path()).unwrap_err().to_string();
    assert!(refused.contains("`db`"), "{refused}");
    assert_eq!(std::fs::read_to_string(folder.path().join("conf")).unwrap(), "no configuration");
}
