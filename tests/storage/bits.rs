//! Flipped bits in what is stored: reported, or harmless. Nothing panics, and no wrong value is given out.
//!
//! Every bit of every stored type is flipped in `testing::golden`. Here a store on disk holds records of every kind, and
//! bits are flipped in its files, as a disk does, and in its rows, as bad memory or a bug does.

#![cfg(feature = "sled")]
#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test that cannot go on fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callboard::storage::{Append, Durability, Expected, Key, Put, Rider, Sled, Storage, StorageError};
use tempfile::{TempDir, tempdir};

use crate::campaigns::{Campaign, cases, hex_files};

/// What the store was to keep.
#[derive(Default)]
struct Kept {
    streams: BTreeMap<Key, Vec<Vec<u8>>>,
    values: BTreeMap<Key, Vec<u8>>,
}

/// Records of every stored type.
fn golden() -> Vec<Vec<u8>> {
    hex_files("golden", "")
}

/// Goes to a payload file.
fn long(number: usize) -> Vec<u8> {
    (0..70_000).map(|at| (at * 31 + number) as u8).collect()
}

async fn fill(folder: &Path) -> Kept {
    let mut kept = Kept::default();
    let durability = Durability::Sync;
    for session in 0..2 {
        let store = Sled::open(folder).unwrap();
        for number in 0..6 {
            let stream = Key::new(["run", &number.to_string()]);
            let records = kept.streams.entry(stream.clone()).or_default();
            for payload in golden().into_iter().chain([long(number)]) {
                let (expected, bytes): (_, Arc<[u8]>) = (records.len() as u64, payload.as_slice().into());
                let key = Key::new(["noted", &number.to_string()]);
                let riders = vec![Rider::put(key.clone(), Arc::clone(&bytes))];
                let append = Append { durability, riders, ..Append::new(stream.clone(), expected, bytes) };
                store.append(append).await.unwrap();
                kept.values.insert(key, payload.clone());
                records.push(payload);
            }
        }
        for (number, value) in golden().into_iter().chain([long(100)]).enumerate() {
            for kind in ["snapshot", "context", "approval", "letter"] {
                let key = Key::new([kind, &format!("{session} {number}")]);
                let (expected, bytes) = (Expected::Any, value.as_slice().into());
                let ttl_secs = (kind == "context").then_some(1 << 30);
                store
                    .put_if_revision(Put { expected, ttl_secs, durability, ..Put::new(key.clone(), bytes) })
                    .await
                    .unwrap();
                kept.values.insert(key, value.clone());
            }
        }
    }
    kept
}

impl Kept {
    /// Reads everything; returns the keys that the store reports as damaged.
    async fn compare(&self, store: &Sled) -> Result<BTreeSet<Key>, String> {
        let mut damaged = BTreeSet::new();
        let mut judge = |key: &Key, is_right: Result<bool, StorageError>| match is_right {
            Ok(true) => Ok(()),
            Ok(false) => Err(format!("{key}: something else was given out")),
            Err(_) => {
                damaged.insert(key.clone());
                Ok(())
            }
        };
        for (stream, records) in &self.streams {
            let read = store.read(stream, 1, usize::MAX).await;
            let is_right = |read: &[callboard::storage::Record]| {
                let right = read
                    .iter()
                    .zip(1..)
                    .zip(records)
                    .all(|((read, at), record)| read.sequence == at && read.payload[..] == record[..]);
                right && read.len() == records.len()
            };
            judge(stream, read.map(|read| is_right(&read)))?;
        }
        for (key, value) in &self.values {
            let read = store.get(key).await;
            judge(key, read.map(|read| read.is_some_and(|read| read.value[..] == value[..])))?;
        }
        let listed = store.streams(&Key::new([]).children(), None, usize::MAX).await;
        judge(&Key::new([]), listed.map(|listed| listed.iter().eq(self.streams.keys())))?;
        Ok(damaged)
    }
}

enum Met {
    Refused,
    Opened { damaged: BTreeSet<Key> },
}

fn open_and_compare(folder: &Path, kept: &Kept) -> Result<Met, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let met = catch_unwind(AssertUnwindSafe(|| match Sled::open(folder) {
        Ok(store) => runtime.block_on(kept.compare(&store)).map(|damaged| Met::Opened { damaged }),
        Err(StorageError::Open { .. }) => Ok(Met::Refused),
        Err(error) => Err(format!("another error than that it cannot be opened: {error}")),
    }));
    met.unwrap_or_else(|_| Err("it panicked".to_owned()))
}

/// The files of a closed store, the lock aside.
struct Files(Vec<StoredFile>);

struct StoredFile {
    path: PathBuf,
    /// Up to the last one that is not zero: the log is made longer than it is needed.
    used: Vec<u8>,
    length: u64,
}

impl Files {
    fn read(root: &Path) -> Self {
        let (mut found, mut folders) = (Vec::new(), vec![root.to_owned()]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
                let path = entry.path();
                if path.is_dir() {
                    folders.push(path);
                } else if entry.file_name() != "lock" {
                    let mut used = fs::read(&path).unwrap();
                    let length = used.len() as u64;
                    used.truncate(used.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
                    found.push(StoredFile { path: path.strip_prefix(root).unwrap().to_owned(), used, length });
                }
            }
        }
        found.sort_by(|one, other| one.path.cmp(&other.path));
        Self(found)
    }

    /// Copies them, with one bit flipped.
    fn copy(&self, flipped: Option<(usize, usize)>) -> TempDir {
        let folder = tempdir().unwrap();
        fs::create_dir_all(folder.path().join("payloads")).unwrap();
        for (number, StoredFile { path, used, length }) in self.0.iter().enumerate() {
            let path = folder.path().join(path);
            let mut file = fs::File::create(&path).unwrap();
            file.write_all(used).unwrap();
            if let Some((_, bit)) = flipped.filter(|(file, _)| *file == number) {
                file.seek(SeekFrom::Start(bit as u64 / 8)).unwrap();
                file.write_all(&[used[bit / 8] ^ 1 << (bit % 8)]).unwrap();
            }
            file.set_len(*length).unwrap();
        }
        folder
    }
}

fn filled() -> (Kept, Files) {
    let folder = tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let kept = runtime.block_on(fill(folder.path()));
    (kept, Files::read(folder.path()))
}

#[test]
fn a_flipped_bit_in_a_file_is_reported_or_harmless() {
    let (kept, files) = filled();
    let mut campaign = Campaign::begin("bits");
    let (mut refused, mut reported, mut harmless) = (0, 0, 0);
    for _ in 0..cases(300).div_ceil(5) {
        let file = campaign.below(files.0.len());
        let StoredFile { path, used, .. } = &files.0[file];
        let bit = campaign.below(used.len() * 8);
        let folder = files.copy(Some((file, bit)));
        campaign.count(match open_and_compare(folder.path(), &kept) {
            Ok(Met::Refused) => {
                refused += 1;
                Ok(())
            }
            Ok(Met::Opened { damaged }) if damaged.is_empty() => {
                harmless += 1;
                Ok(())
            }
            Ok(Met::Opened { .. }) => {
                reported += 1;
                Ok(())
            }
            Err(error) => Err(format!("bit {bit} of {}: {error}", path.display())),
        });
    }
    assert!(refused > 0 && reported > 0, "{refused} refused, {reported} reported: nothing that counts was hit");
    campaign.end(format_args!("in files: {refused} stores refused, {reported} keys reported, {harmless} harmless"));
}

/// The store's key that a row belongs to, for rows by which it is read.
fn owner(row: &[u8]) -> Option<Key> {
    match row[0] {
        b's' | b'q' | b'r' => Key::from_bytes(&row[1..row.len() - 10]),
        b'h' | b'v' => Key::from_bytes(&row[1..]),
        b'd' => {
            (1..row.len()).filter(|end| row[*end..].starts_with(&[0, 0])).find_map(|end| Key::from_bytes(&row[1..end]))
        }
        _ => None,
    }
}

#[test]
fn a_flipped_bit_in_a_row_is_reported_for_its_key_alone() {
    const AT_ONCE: usize = 20;
    let (kept, files) = filled();
    let mut campaign = Campaign::begin("bits");
    let mut by_kind: BTreeMap<char, (u64, u64)> = BTreeMap::new();
    let rows = cases(300) - cases(300).div_ceil(5);
    let mut flips = 0;
    while flips < rows {
        let folder = files.copy(None);
        let flipped = flip_rows(folder.path(), AT_ONCE, &campaign);
        flips += flipped.len() as u64;
        campaign.count_many(flipped.len() as u64 - 1);
        campaign.count(is_reported(&flipped, open_and_compare(folder.path(), &kept), &mut by_kind));
    }
    let kinds: Vec<String> =
        by_kind.iter().map(|(kind, (flips, reported))| format!("{kind} {reported} of {flips}")).collect();
    campaign.end(format_args!("in rows, reported by kind: {}", kinds.join(", ")));
}

fn is_reported(
    flipped: &[Vec<u8>],
    met: Result<Met, String>,
    by_kind: &mut BTreeMap<char, (u64, u64)>,
) -> Result<(), String> {
    let owners: BTreeSet<Key> = flipped.iter().filter_map(|row| owner(row)).collect();
    let (is_refused, damaged) = match met? {
        Met::Refused if flipped.iter().all(|row| row[0] == b'm') => (true, BTreeSet::new()),
        Met::Refused => return Err("the store was refused".to_owned()),
        Met::Opened { damaged } => (false, damaged),
    };
    // A listing of all streams meets every damaged row.
    if let Some(key) = damaged.iter().find(|key| !owners.contains(key) && **key != Key::new([])) {
        return Err(format!("{key} is said to be damaged, and is not"));
    }
    for row in flipped {
        let (flips, reported) = by_kind.entry(row[0].into()).or_default();
        let is_reported = is_refused || owner(row).is_some_and(|key| damaged.contains(&key));
        *flips += 1;
        *reported += u64::from(is_reported);
        if matches!(row[0], b's' | b'v' | b'm') && !is_reported {
            return Err(format!("row {} was read without a word", row.escape_ascii()));
        }
    }
    Ok(())
}

/// Flips a bit in some rows behind the store's back; their keys.
fn flip_rows(folder: &Path, count: usize, campaign: &Campaign) -> Vec<Vec<u8>> {
    let db = sled::Config::new().path(folder).segment_size(8 << 20).open().unwrap();
    let rows: Vec<_> = db.iter().map(Result::unwrap).collect();
    // The store's own row ends a test at once, so it comes alone; rows without bytes are nothing but their keys.
    let takes_own = campaign.below(10) == 0;
    let rows: Vec<_> = rows.iter().filter(|(row, value)| (row[0] == b'm') == takes_own && !value.is_empty()).collect();
    let chosen: BTreeSet<usize> = (0..count).map(|_| campaign.below(rows.len())).collect();
    let mut keys = Vec::new();
    for (row, value) in chosen.into_iter().map(|row| rows[row]) {
        let mut value = value.to_vec();
        let bit = campaign.below(value.len() * 8);
        value[bit / 8] ^= 1 << (bit % 8);
        db.insert(row, value).unwrap();
        keys.push(row.to_vec());
    }
    db.flush().unwrap();
    drop(db);
    // sled's threads keep its file locked for a moment; this waits for the last of them.
    fs::File::open(folder.join("db")).unwrap().lock().unwrap();
    keys
}

/// Not a test of the store, but of the two above: they look at everything that was put there.
#[test]
fn an_undamaged_copy_is_read_as_it_was_filled() {
    let (kept, files) = filled();
    let folder = files.copy(None);
    let met = open_and_compare(folder.path(), &kept);
    assert!(matches!(met, Ok(Met::Opened { damaged }) if damaged.is_empty()));
}
