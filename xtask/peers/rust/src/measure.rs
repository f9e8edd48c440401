//! The clocks and the runtime that the side of callboard has.

use rustix::time::{ClockId, Timespec, clock_gettime};
use tokio::runtime::{Builder, Runtime};

/// How long a measurement takes at least, in seconds; the other sides have the same.
const LEAST: f64 = 0.3;

pub(crate) const WIDTH: usize = 1_000;

fn seconds(time: Timespec) -> f64 {
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn cpu() -> f64 {
    seconds(clock_gettime(ClockId::ProcessCPUTime))
}

fn wall() -> f64 {
    seconds(clock_gettime(ClockId::Monotonic))
}

/// Resident memory of the process in bytes.
pub(crate) fn resident() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: f64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as f64
}

pub(crate) fn two_workers() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Runs a future as a task, so that its steps do not wake a thread outside of the runtime.
pub(crate) fn run<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> T {
    let runtime = two_workers();
    let done = runtime.block_on(runtime.spawn(task)).unwrap();
    runtime.shutdown_background();
    done
}

/// The time and the processor time in seconds for each of the `parts` of `work`, which is repeated until [`LEAST`] has passed.
pub(crate) async fn time<F: Future<Output = ()>>(parts: usize, work: impl Fn() -> F) -> String {
    work().await;
    let (began, processor, mut done) = (wall(), cpu(), 0);
    while wall() - began < LEAST {
        work().await;
        done += parts;
    }
    let each = |seconds: f64| seconds / done as f64;
    format!("{:e} {:e}", each(wall() - began), each(cpu() - processor))
}
