//! Runs on disk, beside raw sled that commits the same bytes.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::sync::Arc;

use callboard::messages::{Durability, RunId};
use callboard::prelude::*;
use callboard::storage::{Journal, Sled, SledStats, Storage};
use tempfile::TempDir;

use crate::effort::Effort;
use crate::measure::{PATIENCE, cpu, median, run, two_workers, wall};
use crate::report::{Line, Report, Target};
use crate::runs::{chain_of_three, chain_task};

const WIDTH: usize = 1_000;

/// sled with callboard's settings, and the file that has to be synced.
pub(crate) struct RawSled {
    pub(crate) tree: sled::Db,
    log: File,
}

impl RawSled {
    pub(crate) fn open(folder: &Path) -> Self {
        let config = sled::Config::new()
            .path(folder)
            .mode(sled::Mode::HighThroughput)
            .cache_capacity(64 << 20)
            .flush_every_ms(None);
        let tree = config.open().unwrap();
        let log = OpenOptions::new().write(true).open(folder.join("db")).unwrap();
        Self { tree, log }
    }

    /// Writes rows in batches, each of which is durable before the next one.
    fn write(&self, rows: &[(Vec<u8>, Arc<[u8]>)], batch: usize) {
        for rows in rows.chunks(batch) {
            let mut changes = sled::Batch::default();
            for (key, payload) in rows {
                changes.insert(key.as_slice(), &**payload);
            }
            self.tree.apply_batch(changes).unwrap();
            self.sync();
        }
    }

    /// Makes everything written so far durable.
    pub(crate) fn sync(&self) {
        self.tree.flush().unwrap();
        self.log.sync_data().unwrap();
    }
}

/// A board on a new disk store.
struct DiskBoard {
    runtime: tokio::runtime::Runtime,
    store: Arc<Sled>,
    board: Callboard,
    _folder: TempDir,
}

impl DiskBoard {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let runtime = two_workers();
        let store = Arc::new(Sled::open(folder.path()).unwrap());
        let storage: Arc<dyn Storage> = Arc::clone(&store) as _;
        let board = run(&runtime, async { chain_of_three().storage(storage).start().await.unwrap() });
        Self { runtime, store, board, _folder: folder }
    }

    /// Does some work; returns its time, and the store's counters.
    fn time<F, T>(&self, work: impl FnOnce(Callboard) -> F) -> (f64, SledStats, T)
    where
        F: Future<Output = T> + std::marker::Send + 'static,
        T: std::marker::Send + 'static,
    {
        let (before, began) = (self.store.stats(), wall());
        let done = run(&self.runtime, work(self.board.clone()));
        let (after, took) = (self.store.stats(), wall() - began);
        let SledStats { syncs, batches, writes } = after;
        let did = SledStats {
            syncs: syncs - before.syncs,
            batches: batches - before.batches,
            writes: writes - before.writes,
        };
        (took, did, done)
    }

    /// The keys and payloads of these runs' journals.
    fn records(&self, runs: Vec<RunId>) -> Vec<(Vec<u8>, Arc<[u8]>)> {
        let store = Arc::clone(&self.store);
        run(&self.runtime, async move {
            let mut records = Vec::new();
            for id in runs {
                let stream = Journal::stream(id);
                for record in store.read(&stream, 1, 100).await.unwrap() {
                    let key = [stream.as_bytes(), &record.sequence.to_be_bytes()].concat();
                    records.push((key, record.payload));
                }
            }
            records
        })
    }
}

async fn finish(board: Callboard, task: Task) -> RunId {
    let result = board.submit(task).await.unwrap().result().await.unwrap();
    assert_eq!(result.outcome, Outcome::Finished);
    result.run
}

async fn crowd(board: Callboard, count: usize, task: fn() -> Task) -> Vec<RunId> {
    let runs: Vec<_> = (0..count).map(|_| tokio::spawn(finish(board.clone(), task()))).collect();
    let mut ids = Vec::with_capacity(count);
    for run in runs {
        ids.push(run.await.unwrap());
    }
    ids
}

pub(crate) fn chain(report: &mut Report, effort: Effort) {
    let (ours, raw_folder) = (DiskBoard::new(), tempfile::tempdir().unwrap());
    let raw = RawSled::open(raw_folder.path());

    let count = effort.of(800);
    let (_, one, _) = ours.time(|board| async move {
        for _ in 0..count {
            finish(board.clone(), chain_task()).await;
        }
    });
    report.add(Line {
        name: "durable chain, Sync, one at a time: syncs",
        value: one.syncs as f64 / count as f64,
        unit: "a chain",
        reference: None,
        // The records of three turns and of the submission.
        target: Target::AtMost(4.0, None),
    });

    let width = effort.of(4) * WIDTH;
    let mut pattern = SledStats::default();
    let mut records = Vec::new();
    let mut raw_time = Vec::new();
    let mut our_time = Vec::new();
    for round in 0..=effort.of(9) {
        let (took, did, ids) = ours.time(|board| async move {
            let mut ids = Vec::new();
            for _ in 0..width / WIDTH {
                ids.extend(crowd(board.clone(), WIDTH, chain_task).await);
            }
            ids
        });
        (pattern, records) = (did, ours.records(ids));
        // One batch per sync, which is the fastest that raw sled can be; it makes no decisions.
        let began = wall();
        raw.write(&records, records.len().div_ceil(did.syncs as usize));
        if round > 0 {
            raw_time.push(wall() - began);
            our_time.push(took);
        }
    }
    report.add(Line {
        name: "durable chain, Sync, 1,000 at once",
        value: width as f64 / median(our_time),
        unit: "chains/s",
        reference: Some(("raw sled, same bytes", width as f64 / median(raw_time))),
        target: Target::RatioAtLeast(0.8),
    });
    report.add(Line {
        name: "  records a sync",
        value: records.len() as f64 / pattern.syncs as f64,
        unit: "records",
        reference: None,
        target: Target::None,
    });
    run(&ours.runtime, async move { ours.board.shutdown().await });
}

/// Rows in a batch of raw sled: about as many records as a sync of durable chains has.
const BATCH: usize = 250;

/// Durable chains, some times 1,000 at once, for a profiler.
pub(crate) fn repeat_chains(times: usize) {
    let board = DiskBoard::new();
    let (mut took, mut syncs) = (0.0, 0);
    let before = cpu();
    for _ in 0..times {
        let (seconds, did, _) = board.time(|board| crowd(board, WIDTH, chain_task));
        (took, syncs) = (took + seconds, syncs + did.syncs);
    }
    let each = 1e6 / (times * WIDTH) as f64;
    println!("{:.2} µs, {:.2} µs CPU, {syncs} syncs", took * each, (cpu() - before) * each);
    run(&board.runtime, async move { board.board.shutdown().await });
}

/// The rows of as many chains, written to raw sled, for a profiler.
pub(crate) fn repeat_rows(times: usize) {
    let (board, folder) = (DiskBoard::new(), tempfile::tempdir().unwrap());
    let raw = RawSled::open(folder.path());
    let (mut took, mut used) = (0.0, 0.0);
    for _ in 0..times {
        let (.., ids) = board.time(|board| crowd(board, WIDTH, chain_task));
        let records = board.records(ids);
        let before = (wall(), cpu());
        raw.write(&records, BATCH);
        (took, used) = (took + wall() - before.0, used + cpu() - before.1);
    }
    let each = 1e6 / (times * WIDTH) as f64;
    println!("{:.2} µs, {:.2} µs CPU", took * each, used * each);
}

fn asking() -> callboard::runtime::Builder {
    chain_of_three()
        .agent("asker", |turn: Turn| async move { Ok(Command::output(turn.people().ask("which one?").await?)) })
        .capacity(|capacity| capacity.runs_in_flight(100_000))
}

pub(crate) fn start(report: &mut Report, effort: Effort) {
    let folder = tempfile::tempdir().unwrap();
    let runtime = two_workers();
    let (finished, unfinished) = (effort.of(100_000), effort.of(1_000));
    let path = folder.path().to_owned();
    run(&runtime, async move {
        let board = asking().storage(Sled::open(&path).unwrap()).start().await.unwrap();
        for _ in 0..finished / WIDTH {
            crowd(board.clone(), WIDTH, || chain_task().durability(Durability::Buffered)).await;
        }
        for _ in 0..unfinished {
            board.submit(Task::new("choose").to("asker").durability(Durability::Buffered)).await.unwrap();
        }
        board.shutdown().await;
    });
    let path = folder.path().to_owned();
    let starts = run(&runtime, async move {
        let mut starts = Vec::new();
        for _ in 0..3 {
            let began = wall();
            let store = open_when_free(&path).await;
            let opened = wall() - began;
            let board = asking().storage(store).start().await.unwrap();
            finish(board.clone(), chain_task()).await;
            starts.push((opened, wall() - began));
            // The record of the run that has just ended may not be deleted yet.
            assert!(board.unfinished_runs().await.unwrap().len() >= unfinished);
            board.shutdown().await;
        }
        starts
    });
    let (opened, working): (Vec<f64>, Vec<f64>) = starts.into_iter().unzip();
    report.add(Line {
        name: "start with 100,000 finished, 1,000 open runs",
        value: median(working),
        unit: "s",
        reference: Some(("opening the store", median(opened))),
        target: Target::AtMost(2.0, None),
    });
}

/// A board that was shut down releases its store when the last task that holds it has ended.
async fn open_when_free(path: &Path) -> Sled {
    let began = wall();
    loop {
        match Sled::open(path) {
            Ok(store) => return store,
            Err(error) if wall() - began > PATIENCE.as_secs_f64() => panic!("{error}"),
            Err(_) => tokio::task::yield_now().await,
        }
    }
}
