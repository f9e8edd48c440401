//! Clocks, memory and medians.

use std::future::Future;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};
use tokio::runtime::{Builder, Runtime};

fn seconds(time: Timespec) -> f64 {
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Processor time of the whole process in seconds. For threads on other cores it may lag by some milliseconds, so measurements have to
/// be long.
pub(crate) fn cpu() -> f64 {
    seconds(clock_gettime(ClockId::ProcessCPUTime))
}

/// Wall time in seconds.
pub(crate) fn wall() -> f64 {
    seconds(clock_gettime(ClockId::Monotonic))
}

/// Resident memory of the process in bytes.
pub(crate) fn resident() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: f64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as f64
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) }
}

/// Measures several things in turn, in rounds, and returns the median of each. The first round is discarded.
pub(crate) fn interleaved<const N: usize>(rounds: usize, mut sides: [&mut dyn FnMut() -> f64; N]) -> [f64; N] {
    let mut measured = [const { Vec::new() }; N];
    for round in 0..=rounds {
        for (side, values) in sides.iter_mut().zip(&mut measured) {
            let value = side();
            if round > 0 {
                values.push(value);
            }
        }
    }
    measured.map(median)
}

/// The time of `work` by `clock`, in seconds for each of its `count` parts.
pub(crate) fn each(clock: fn() -> f64, count: usize, work: impl FnOnce()) -> f64 {
    let before = clock();
    work();
    (clock() - before) / count as f64
}

/// The variable with the number of workers that were chosen. Processes that a case starts inherit it.
pub(crate) const WORKERS: &str = "CALLBOARD_WORKERS";

/// Whether a case compares with nothing else than itself on [`one_thread`], so that it may be on the chosen workers in its place.
static IS_ON_ONE_THREAD_ALONE: AtomicBool = AtomicBool::new(false);

pub(crate) fn is_on_one_thread_alone(is_it: bool) {
    IS_ON_ONE_THREAD_ALONE.store(is_it, Relaxed);
}

fn chosen_workers() -> Option<usize> {
    std::env::var(WORKERS).ok().map(|workers| workers.parse().unwrap())
}

/// How many workers runtimes of several threads have: those that were chosen, or two.
pub(crate) fn workers() -> usize {
    chosen_workers().unwrap_or(2)
}

fn of_workers(workers: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(workers).enable_all().build().unwrap()
}

/// A runtime with two workers, as on the machine for which the targets were set, or with as many as were chosen.
pub(crate) fn two_workers() -> Runtime {
    of_workers(workers())
}

/// A runtime of one thread, without workers unless the case has no other and some were chosen.
pub(crate) fn one_thread() -> Runtime {
    match chosen_workers() {
        Some(workers) if IS_ON_ONE_THREAD_ALONE.load(Relaxed) => of_workers(workers),
        Some(_) | None => Builder::new_current_thread().enable_all().build().unwrap(),
    }
}

/// Runs a future as a task, so that its steps do not wake a thread outside of the runtime.
pub(crate) fn run<T: Send + 'static>(runtime: &Runtime, task: impl Future<Output = T> + Send + 'static) -> T {
    runtime.block_on(runtime.spawn(task)).unwrap()
}

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
