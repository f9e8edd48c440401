//! The shared context on disk, beside raw sled with the same codec.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bincode::Options;
use callboard::actors::ContextStore;
use callboard::env::Env;
use callboard::messages::{AgentName, Durability, Origin, Timestamp};
use callboard::storage::{Sled, Storage};
use serde::{Deserialize, Serialize};

use crate::disks::RawSled;
use crate::effort::Effort;
use crate::measure::{cpu, each, interleaved, run, two_workers, wall};
use crate::report::{Line, Report, Target};

const NAMESPACE: &str = "findings";
const ENTRIES: usize = 10_000;
const AT_ONCE: usize = 256;

/// The value of an entry of the context.
#[derive(Serialize, Deserialize)]
struct RawEntry {
    value: String,
    agent: AgentName,
    expires_at: Option<Timestamp>,
    created_at: Timestamp,
    updated_at: Timestamp,
    origin: Option<Origin>,
}

/// The length of a record's header in bytes, as in the store's codec.
const HEADER: usize = 14;

/// A record as the store's codec writes it: a header with length and checksum, and bincode.
fn encode(entry: &RawEntry) -> Vec<u8> {
    let mut record = vec![0; HEADER];
    bincode::DefaultOptions::new().serialize_into(&mut record, entry).unwrap();
    let length = (record.len() - HEADER) as u32;
    record[6..10].copy_from_slice(&length.to_le_bytes());
    let checksum = crc32fast::hash(&record[HEADER..]);
    record[10..HEADER].copy_from_slice(&checksum.to_le_bytes());
    record
}

fn decode(record: &[u8]) -> RawEntry {
    let payload = &record[HEADER..];
    assert_eq!(crc32fast::hash(payload).to_le_bytes(), record[10..HEADER]);
    bincode::DefaultOptions::new().with_limit(payload.len() as u64).deserialize(payload).unwrap()
}

fn key(number: usize) -> String {
    format!("src/module-{:02}/file-{number:05}.rs", number % 100)
}

fn value(number: usize) -> String {
    format!("{{\"line\":{number},\"text\":\"{}\"}}", "a long function; ".repeat(10))
}

fn entry(number: usize, agent: &AgentName, updated_at: Timestamp) -> RawEntry {
    let created_at = Timestamp::from_millis(1_767_225_600_000);
    let (agent, value) = (agent.clone(), value(number));
    RawEntry { value, agent, expires_at: None, created_at, updated_at, origin: None }
}

/// Visits all keys in an order other than the sorted one.
fn scattered(step: usize) -> usize {
    (step * 7_919) % ENTRIES
}

pub(crate) fn context(report: &mut Report, effort: Effort) {
    let (folder, raw_folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let runtime = two_workers();
    let agent = AgentName::new("analyzer").unwrap();
    let storage: Arc<dyn Storage> = Arc::new(Sled::open(folder.path()).unwrap());
    let context = ContextStore::new(storage, Env::system(), Durability::Buffered, BTreeMap::new());
    let raw = RawSled::open(raw_folder.path());
    // No two writes are equal: sled skips a write that changes nothing.
    let clock = Cell::new(Timestamp::from_millis(1_767_225_600_000));
    let raw_write = |number: usize| {
        clock.set(clock.get() + Duration::from_millis(1));
        let record = encode(&entry(number, &agent, clock.get()));
        raw.tree.insert(key(number).as_bytes(), record).unwrap();
    };
    let writes = |context: &ContextStore, count: usize, at_once: usize| {
        let (context, agent) = (context.clone(), agent.clone());
        async move {
            let writers = (0..at_once).map(|writer| {
                let (context, agent) = (context.clone(), agent.clone());
                tokio::spawn(async move {
                    for step in (writer..count).step_by(at_once) {
                        let number = scattered(step);
                        context.set(NAMESPACE, &key(number), &value(number), &agent, None).await.unwrap();
                    }
                })
            });
            for writer in writers.collect::<Vec<_>>() {
                writer.await.unwrap();
            }
        }
    };
    run(&runtime, writes(&context, ENTRIES, AT_ONCE));
    (0..ENTRIES).for_each(raw_write);

    let (rounds, count) = (effort.of(9), effort.of(20_000));
    let [one, many, raw_one] = interleaved(
        rounds,
        [
            &mut || each(wall, count, || run(&runtime, writes(&context, count, 1))) * 1e6,
            &mut || each(wall, count, || run(&runtime, writes(&context, count, AT_ONCE))) * 1e6,
            &mut || each(wall, count, || (0..count).for_each(|step| raw_write(scattered(step)))) * 1e6,
        ],
    );
    let raw_and_codec = "raw sled and codec";
    report.add(Line {
        name: "context write, Buffered, one at a time",
        value: one,
        unit: "µs",
        reference: Some((raw_and_codec, raw_one)),
        target: Target::RatioAtMost(1.5, None),
    });
    report.add(Line {
        name: "  256 at once",
        value: many,
        unit: "µs",
        reference: Some((raw_and_codec, raw_one)),
        target: Target::RatioAtMost(1.5, None),
    });

    let synced = context.clone().with_durability(Durability::Sync);
    let count = effort.of(1_000);
    let [one, raw_one] = interleaved(
        rounds,
        [&mut || each(wall, count, || run(&runtime, writes(&synced, count, 1))) * 1e6, &mut || {
            let write = |step| {
                raw_write(scattered(step));
                raw.sync();
            };
            each(wall, count, || (0..count).for_each(write)) * 1e6
        }],
    );
    report.add(Line {
        name: "context write, Sync, one at a time",
        value: one,
        unit: "µs",
        reference: Some(("raw sled and fdatasync", raw_one)),
        target: Target::RatioAtMost(1.3, None),
    });

    let count = effort.of(100_000);
    let reads = |context: ContextStore| async move {
        for step in 0..count {
            let number = scattered(step);
            assert_eq!(context.get(NAMESPACE, &key(number)).await.unwrap().unwrap().value, value(number));
        }
    };
    let raw_read = |step| {
        let number = scattered(step);
        let record = raw.tree.get(key(number).as_bytes()).unwrap().unwrap();
        assert_eq!(decode(&record).value, value(number));
    };
    let [one, raw_one] = interleaved(
        rounds,
        [&mut || each(cpu, count, || run(&runtime, reads(context.clone()))) * 1e6, &mut || {
            each(cpu, count, || (0..count).for_each(raw_read)) * 1e6
        }],
    );
    report.add(Line {
        name: "context point read",
        value: one,
        unit: "µs CPU",
        reference: Some((raw_and_codec, raw_one)),
        target: Target::RatioAtMost(1.5, None),
    });

    let count = effort.of(10_000);
    let scans = |context: ContextStore| async move {
        for step in 0..count {
            let prefix = format!("src/module-{:02}/", step % 100);
            assert_eq!(context.query_by_prefix(NAMESPACE, &prefix, 20).await.unwrap().len(), 20);
        }
    };
    let raw_scan = |step: usize| {
        let found = raw.tree.scan_prefix(format!("src/module-{:02}/", step % 100)).take(20).map(|row| {
            let (key, record) = row.unwrap();
            (String::from_utf8(key.to_vec()).unwrap(), decode(&record))
        });
        assert_eq!(found.collect::<Vec<_>>().len(), 20);
    };
    let [one, raw_one] = interleaved(
        rounds,
        [&mut || each(cpu, count, || run(&runtime, scans(context.clone()))) * 1e6, &mut || {
            each(cpu, count, || (0..count).for_each(raw_scan)) * 1e6
        }],
    );
    report.add(Line {
        name: "context scan of 20",
        value: one,
        unit: "µs CPU",
        reference: Some((raw_and_codec, raw_one)),
        target: Target::RatioAtMost(1.5, None),
    });
}
