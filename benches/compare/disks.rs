//! Runs on disk, beside raw sled that commits the same bytes.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::sync::Arc;

use callboard::messages::{Durability, RunId};
use callboard::prelude::*;
use callboard::runtime::Builder;
use callboard::storage::{Journal, Sled, SledStats, Storage};
use tempfile::TempDir;

use crate::effort::Effort;
use crate::measure::{PATIENCE, cpu, median, run, two_workers, wall};
use crate::report::{Line, Report, Target};
use crate::runs::{chain_of_three, chain_task, chain_through_steps};

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
    fn new(agents: fn() -> Builder) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let runtime = two_workers();
        let store = Arc::new(Sled::open(folder.path()).unwrap());
        let storage: Arc<dyn Storage> = Arc::clone(&store) as _;
        let board = run(&runtime, async move { agents().storage(storage).start().await.unwrap() });
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

async fn complete(board: &Callboard, task: Task) {
    assert_eq!(board.complete(task).await.unwrap().outcome, Outcome::Finished);
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
    let ours = [DiskBoard::new(chain_of_three), DiskBoard::new(chain_through_steps)];
    let raw_folder = tempfile::tempdir().unwrap();
    let raw = RawSled::open(raw_folder.path());

    let count = effort.of(800);
    let one = |board: &DiskBoard| {
        let (took, did, ()) = board.time(|board| async move {
            for _ in 0..count {
                complete(&board, chain_task()).await;
            }
        });
        (took * 1e3 / count as f64, did.syncs as f64 / count as f64)
    };
    let [as_they_are, through_steps] = [one(&ours[0]), one(&ours[1])];
    // The records of three turns and of the submission; where the agents act through steps, the submission's and one for all turns.
    for (name, (took, syncs), most) in [
        ("durable chain, Sync, one at a time", as_they_are, 4.0),
        ("  of agents that act through steps", through_steps, 2.0),
    ] {
        report.add(Line { name, value: took, unit: "ms", reference: None, target: Target::None });
        report.add(Line {
            name: "  its syncs",
            value: syncs,
            unit: "a chain",
            reference: None,
            target: Target::AtMost(most, None),
        });
    }

    let width = effort.of(4) * WIDTH;
    let mut pattern = SledStats::default();
    let mut records = Vec::new();
    let mut raw_time = Vec::new();
    let mut our_time = [Vec::new(), Vec::new()];
    for round in 0..=effort.of(9) {
        let [as_they_are, through_steps] = [&ours[0], &ours[1]].map(|board| {
            board.time(|board| async move {
                let mut ids = Vec::new();
                for _ in 0..width / WIDTH {
                    ids.extend(crowd(board.clone(), WIDTH, chain_task).await);
                }
                ids
            })
        });
        let (took, did, ids) = as_they_are;
        (pattern, records) = (did, ours[0].records(ids));
        // It makes no decisions, and has larger batches than the store, whose syncs cost it less.
        let began = wall();
        raw.write(&records, BATCH.max(records.len().div_ceil(did.syncs as usize)));
        if round > 0 {
            raw_time.push(wall() - began);
            our_time[0].push(took);
            our_time[1].push(through_steps.0);
        }
    }
    let [as_they_are, through_steps] = our_time.map(|times| width as f64 / median(times));
    let raw_rate = width as f64 / median(raw_time);
    for (name, rate) in
        [("durable chain, Sync, 1,000 at once", as_they_are), ("  of agents that act through steps", through_steps)]
    {
        report.add(Line {
            name,
            value: rate,
            unit: "chains/s",
            reference: Some(("raw sled, the bytes of the first", raw_rate)),
            target: Target::RatioAtLeast(1.0),
        });
    }
    report.add(Line {
        name: "  records a sync",
        value: records.len() as f64 / pattern.syncs as f64,
        unit: "records",
        reference: None,
        target: Target::None,
    });
    for DiskBoard { runtime, board, .. } in ours {
        run(&runtime, async move { board.shutdown().await });
    }
}

/// Rows in a batch of raw sled, at least.
const BATCH: usize = 250;

/// Durable chains, some times 1,000 at once, for a profiler.
pub(crate) fn repeat_chains(agents: fn() -> Builder, times: usize) {
    let board = DiskBoard::new(agents);
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

/// Durable chains one at a time, for a profiler.
pub(crate) fn repeat_one(agents: fn() -> Builder, times: usize) {
    let board = DiskBoard::new(agents);
    let before = cpu();
    let (took, did, ()) = board.time(|board| async move {
        for _ in 0..times {
            complete(&board, chain_task()).await;
        }
    });
    let each = 1e6 / times as f64;
    println!("{:.2} µs, {:.2} µs CPU, {} syncs", took * each, (cpu() - before) * each, did.syncs);
    run(&board.runtime, async move { board.board.shutdown().await });
}

/// The rows of as many chains, written to raw sled, for a profiler.
pub(crate) fn repeat_rows(times: usize) {
    let (board, folder) = (DiskBoard::new(chain_of_three), tempfile::tempdir().unwrap());
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

fn asking() -> Builder {
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
