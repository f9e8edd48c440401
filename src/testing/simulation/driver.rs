//! Runs a test seed after seed: one runtime for each life of the node, and the test's own future over all of them.

use std::cell::Cell;
use std::fmt;
use std::future::poll_fn;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, Once};
use std::task::Poll;
use std::time::Duration;

use crate::messages::visible_lines;
use crate::supervision::panic_text;

use super::Sim;
use super::coverage::Uncovered;
use super::trace::Trace;
use super::watchdog::Watchdog;

/// The only seed that is run, or the first of [`SEEDS`].
const SEED: &str = "CALLBOARD_SEED";
/// The number of seeds that each test runs, in place of its own.
const SEEDS: &str = "CALLBOARD_SEEDS";
/// Set to `all`: a failing seed shows everything that happened.
const TRACE: &str = "CALLBOARD_TRACE";
/// One seed in this many runs twice, and both runs must be the same.
const TWICE_IN: u64 = 100;

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// The seeds of a simulated test: [`Seeds::simulate`] runs the test once for each of them, in order.
#[derive(Clone, Copy, Debug)]
pub struct Seeds {
    first: u64,
    count: u64,
}

impl Seeds {
    /// The first `count` seeds, from 0 on; as many as `CALLBOARD_SEEDS` if that is set and `count` is above 1. If `CALLBOARD_SEED` is
    /// set, it is the first of those that `CALLBOARD_SEEDS` asks for, or the only one.
    #[must_use]
    pub fn new(count: u64) -> Self {
        Self { first: 0, count }
    }

    /// The same number of seeds from another first one on; 0 follows the highest.
    #[must_use]
    pub fn from(self, first: u64) -> Self {
        Self { first, ..self }
    }

    /// What the environment asks for in place of these.
    fn as_asked(self, first: Option<u64>, count: Option<u64>) -> Self {
        match (first, count.filter(|_| self.count > 1)) {
            (first, Some(count)) => Self { first: first.unwrap_or(self.first), count },
            (Some(seed), None) => Self::only(seed),
            (None, None) => self,
        }
    }

    fn all(self) -> impl Iterator<Item = u64> {
        (0..self.count).map(move |number| self.first.wrapping_add(number))
    }

    /// This seed alone: a failure that was found once, kept.
    #[must_use]
    pub fn only(seed: u64) -> Self {
        Self { first: seed, count: 1 }
    }

    /// Runs a test in a simulated world, once for each seed, and stops at the first seed that fails. How it failed, the line
    /// that runs it again, and what happened before are in the panic's text.
    ///
    /// # Panics
    /// When a seed fails: its test panics or returns an error, stands still, crashes where it does not expect to, uses what a
    /// simulation cannot have, or differs when it is run again. Also when a planned fault was reached in none of several seeds
    /// or its point does not exist, when there is no seed, and when it is called from async code.
    pub fn simulate(self, test: impl AsyncFn(Sim) -> Result<(), TestError>) {
        simulate_under(&Watchdog::start(Duration::from_secs(1)), self, test);
    }
}

/// The error that a simulated test returns to fail its seed. Any error that is `Send`, `Sync` and `'static` converts to
/// it by `?`.
pub struct TestError(Box<dyn std::error::Error + Send + Sync>);

impl<E: std::error::Error + Send + Sync + 'static> From<E> for TestError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl fmt::Debug for TestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

fn simulate_under(watchdog: &Watchdog, seeds: Seeds, test: impl AsyncFn(Sim) -> Result<(), TestError>) {
    assert!(
        tokio::runtime::Handle::try_current().is_err(),
        "a simulation has a runtime of its own: call simulate(..) from a plain #[test], not from async code"
    );
    let seeds = seeds.as_asked(number_in(SEED), number_in(SEEDS));
    assert!(seeds.count > 0, "no seed is to run, which would show nothing");
    let mut uncovered: Option<Uncovered> = None;
    for (position, seed) in seeds.all().enumerate() {
        let run = quietly(|| run_seed(watchdog, seed, &test));
        if run.error.is_some() || (position as u64).is_multiple_of(TWICE_IN) {
            // The panic that failed it is printed as any other is, with its place and backtrace.
            let again = if run.error.is_some() {
                run_seed(watchdog, seed, &test)
            } else {
                quietly(|| run_seed(watchdog, seed, &test))
            };
            let differs = run.trace.difference(&again.trace).map(|difference| {
                format!("when it ran again it went otherwise, so something in it does not follow from the seed: {difference}")
            });
            let mut error: Vec<_> = run.error.into_iter().chain(differs).collect();
            if !error.is_empty() {
                let unreached = run.uncovered.unreached();
                error.extend((!unreached.is_empty()).then(|| format!("planned, and not reached by then: {unreached}")));
                fail(seed, &error.join("\n"), &run.trace);
            }
        }
        uncovered = Some(match uncovered {
            None => run.uncovered,
            Some(before) => before.and(run.uncovered),
        });
    }
    let (count, uncovered) = (seeds.count, uncovered.unwrap_or_default());
    // One seed alone was chosen for what happens in it.
    let uncovered = if count == 1 { uncovered.unknown() } else { uncovered };
    assert!(uncovered.is_empty(), "in none of {count} seeds {uncovered}");
}

/// Runs it without calling the panic hook for its panics: planned ones are as many as seeds, and of no interest.
fn quietly(run: impl FnOnce() -> SeedRun) -> SeedRun {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let loud = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !IS_QUIET.get() {
                loud(info);
            }
        }));
    });
    IS_QUIET.set(true);
    let ran = catch_unwind(AssertUnwindSafe(run));
    IS_QUIET.set(false);
    ran.unwrap_or_else(|panic| panic!("{}", panic_text(&*panic)))
}

fn number_in(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text:?} is not a number from 0 to {}", u64::MAX)))
}

struct SeedRun {
    trace: Trace,
    error: Option<String>,
    uncovered: Uncovered,
}

fn fail(seed: u64, error: &str, trace: &Trace) -> ! {
    let shows_all = match std::env::var(TRACE).as_deref() {
        Ok("all") => true,
        Ok("") | Err(_) => false,
        Ok(other) => panic!("{TRACE}={other:?} is not known: it is \"all\", or not set"),
    };
    let thread = std::thread::current();
    let test = thread.name().filter(|name| *name != "main").unwrap_or_default();
    let hint = if shows_all { String::new() } else { format!(" ({TRACE}=all shows everything)") };
    let (error, happened) = trace.render(error, shows_all);
    panic!(
        "seed {seed} failed: {}\nrun it again: {SEED}={seed} cargo test {test}\nwhat happened{hint}:\n{}",
        visible_lines(&error),
        visible_lines(&happened),
    );
}

/// How a life of the node ended.
enum End {
    Returned(Result<(), TestError>),
    Crashed,
    StoodStill,
    Violated(String),
}

fn run_seed(watchdog: &Watchdog, seed: u64, test: &impl AsyncFn(Sim) -> Result<(), TestError>) -> SeedRun {
    let sim = Sim::new(seed);
    let _watched = watchdog.watch(seed, &sim.world);
    let _entered = sim.world.enter();
    let mut body = Box::pin(test(sim.clone()));
    let error = loop {
        let runtime = match node(&sim) {
            Ok(runtime) => runtime,
            Err(error) => break Some(format!("no runtime for the node: {error}")),
        };
        let lived = catch_unwind(AssertUnwindSafe(|| {
            runtime.block_on(async {
                sim.world.begin_life();
                let end = live(&sim, body.as_mut()).await;
                sim.world.end_life();
                end
            })
        }));
        // The process is dead: whatever it still had under way is dropped where it stood.
        let boards = std::mem::take(&mut *sim.world.boards.lock());
        drop((boards, runtime));
        match lived {
            Ok(End::Returned(Ok(()))) => break sim.world.violation(),
            Ok(End::Returned(Err(error))) => break Some(format!("{error:?}")),
            Ok(End::Violated(violation)) => break Some(violation),
            Ok(End::StoodStill) => {
                let limit = *sim.world.limit.lock();
                break Some(format!(
                    "after {limit:?} of virtual time the test still waits; what it waits for does not come, or comes \
                     from outside the simulation (another thread, a socket, a handle of before a crash)"
                ));
            }
            Ok(End::Crashed) if sim.world.is_crash_awaited() => sim.disk.crash(),
            Ok(End::Crashed) => {
                break Some("the node crashed and the test does not expect it: work inside sim.until_crash(..)".into());
            }
            Err(panic) => break Some(panic_text(&*panic)),
        }
    };
    SeedRun { trace: sim.world.take_trace(), error, uncovered: sim.world.uncovered() }
}

/// A runtime of one thread, on virtual time, without sockets.
fn node(sim: &Sim) -> std::io::Result<tokio::runtime::Runtime> {
    // The world has the waker of the runtime: a strong reference would keep both for ever.
    let world = Arc::downgrade(&sim.world);
    let started = move || {
        if let Some(world) = world.upgrade() {
            world.violate(
                "a thread was started: a simulation has one; run blocking work inline, or test it outside a simulation",
            );
        }
    };
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).on_thread_start(started).build()
}

/// Polls the test until it returns or the node's life ends.
async fn live(sim: &Sim, mut body: Pin<&mut impl Future<Output = Result<(), TestError>>>) -> End {
    let mut allowed = *sim.world.limit.lock();
    let mut limit = pin!(tokio::time::sleep(time_left(sim)));
    poll_fn(|context| {
        sim.world.waker.register(context.waker());
        if let Some(violation) = sim.world.violation() {
            return Poll::Ready(End::Violated(violation));
        }
        if sim.world.has_crashed() {
            return Poll::Ready(End::Crashed);
        }
        if let Poll::Ready(result) = body.as_mut().poll(context) {
            return Poll::Ready(if sim.world.has_crashed() { End::Crashed } else { End::Returned(result) });
        }
        let asked = *sim.world.limit.lock();
        if asked != allowed {
            allowed = asked;
            limit.set(tokio::time::sleep(time_left(sim)));
        }
        limit.as_mut().poll(context).map(|()| End::StoodStill)
    })
    .await
}

fn time_left(sim: &Sim) -> Duration {
    sim.world.limit.lock().saturating_sub(sim.env().now().monotonic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_in_which_nothing_happens_any_more_is_named() {
        let impatient = Watchdog::start(Duration::from_millis(1));
        let loops = async |_: Sim| loop {
            tokio::task::yield_now().await;
        };
        let failed = catch_unwind(AssertUnwindSafe(|| simulate_under(&impatient, Seeds::only(17), loops)));
        let text = failed.map_or_else(|panic| panic_text(&*panic), |()| "it ended".to_owned());
        assert!(text.starts_with("seed 17 failed: nothing has happened for"), "{text}");
    }

    #[test]
    fn the_environment_chooses_how_many_seeds_run_and_the_first() {
        let asked = |seeds: Seeds, first, count| seeds.as_asked(first, count).all().collect::<Vec<_>>();
        assert_eq!(asked(Seeds::new(2), None, None), [0, 1]);
        assert_eq!(asked(Seeds::new(2).from(5), None, Some(3)), [5, 6, 7]);
        assert_eq!(asked(Seeds::new(2), Some(9), None), [9]);
        assert_eq!(asked(Seeds::new(2), Some(9), Some(3)), [9, 10, 11]);
        assert_eq!(asked(Seeds::only(4), None, Some(3)), [4], "a failure that was found once is one seed");
    }

    #[test]
    fn a_seed_that_has_run_leaves_nothing_in_memory() {
        let world = parking_lot::Mutex::new(std::sync::Weak::new());
        Seeds::new(1).simulate(async |sim: Sim| {
            *world.lock() = Arc::downgrade(&sim.world);
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(())
        });
        assert!(world.lock().upgrade().is_none());
    }
}
