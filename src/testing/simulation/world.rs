//! What the parts of a simulation share: clock, chance, plan, trace, and the node's life.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::time::Instant;
use xxhash_rust::xxh3::xxh3_64;

use crate::env::{Clock, Fault, Faults, Now, Random, simulated};
use crate::messages::Timestamp;
use crate::runtime::Callboard;

use super::coverage::Uncovered;
use super::faults::{Passed, Planned, TURN};
use super::points::FaultPoint;
use super::trace::{Trace, Weight};

pub(super) struct World {
    pub(super) clock: SimClock,
    chance: Random,
    plan: Mutex<Vec<Planned>>,
    /// Writes that the disk has not acknowledged.
    writes: AtomicUsize,
    /// Every fault point that was reached, with some of its subjects.
    points: Mutex<Passed>,
    trace: Mutex<Trace>,
    pub(super) boards: Mutex<Vec<Callboard>>,
    /// How often the node has been started.
    life: AtomicUsize,
    has_crashed: AtomicBool,
    /// How many futures of the test wait for a crash.
    crashes_awaited: AtomicUsize,
    /// What ends the simulation with an error.
    violation: Mutex<Option<String>>,
    /// Notified of a crash and of a violation.
    pub(super) waker: AtomicWaker,
    pub(super) limit: Mutex<Duration>,
}

/// Virtual time from a fixed date on, over all lives of the node, and by how much the date has been corrected.
#[derive(Clone, Default)]
pub(super) struct SimClock(Arc<Mutex<(Duration, Option<Instant>)>>, Arc<AtomicI64>);

impl Clock for SimClock {
    fn now(&self) -> Now {
        /// 2026-01-01 00:00:00 UTC.
        const START: Timestamp = Timestamp::from_millis(1_767_225_600_000);
        let (before, started) = *self.0.lock();
        let monotonic = before + started.map(|started| started.elapsed()).unwrap_or_default();
        let millis = (START + monotonic).as_millis().saturating_add_signed(self.1.load(Ordering::Relaxed));
        Now { monotonic, wall: Timestamp::from_millis(millis) }
    }
}

impl SimClock {
    pub(super) fn correct_date(&self, millis: i64) {
        self.1.fetch_add(millis, Ordering::Relaxed);
    }
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        /// A run that stands still looks for its result every second; longer would take long.
        const LIMIT: Duration = Duration::from_secs(3600);
        Self {
            clock: SimClock::default(),
            chance: Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5eed),
            plan: Mutex::default(),
            writes: AtomicUsize::new(0),
            points: Mutex::default(),
            trace: Mutex::default(),
            boards: Mutex::default(),
            life: AtomicUsize::new(0),
            has_crashed: AtomicBool::new(false),
            crashes_awaited: AtomicUsize::new(0),
            violation: Mutex::default(),
            waker: AtomicWaker::new(),
            limit: Mutex::new(LIMIT),
        }
    }

    /// Begins the node's next life, inside its runtime.
    #[allow(clippy::disallowed_methods, reason = "tokio's paused time is the simulation's clock")]
    pub(super) fn begin_life(&self) {
        let before = self.clock.now().monotonic;
        *self.clock.0.lock() = (before, Some(Instant::now()));
        self.has_crashed.store(false, Ordering::SeqCst);
        let life = self.life.fetch_add(1, Ordering::SeqCst) + 1;
        if life > 1 {
            self.note(Weight::Shown, format!("the node starts again (life {life})"));
        }
    }

    /// Ends the node's life, inside its runtime: time stands still until the next.
    pub(super) fn end_life(&self) {
        let now = self.clock.now().monotonic;
        *self.clock.0.lock() = (now, None);
    }

    pub(super) fn life(&self) -> usize {
        self.life.load(Ordering::SeqCst)
    }

    pub(super) fn has_crashed(&self) -> bool {
        self.has_crashed.load(Ordering::SeqCst)
    }

    pub(super) fn crash(&self, point: &str) {
        if !self.has_crashed.swap(true, Ordering::SeqCst) {
            self.note(Weight::Shown, format!("the node crashes at {point}"));
            self.waker.wake();
        }
    }

    /// Counts a waiter for a crash until the returned guard is dropped.
    pub(super) fn await_crash(&self) -> impl Drop {
        self.crashes_awaited.fetch_add(1, Ordering::SeqCst);
        Awaiting(self)
    }

    pub(super) fn is_crash_awaited(&self) -> bool {
        self.crashes_awaited.load(Ordering::SeqCst) > 0
    }

    /// The first thing that a simulation cannot have.
    pub(super) fn violation(&self) -> Option<String> {
        self.violation.lock().clone()
    }

    /// Makes it the world of this thread until what is returned is dropped.
    pub(super) fn enter(self: &Arc<Self>) -> impl Drop + use<> {
        let world = Arc::clone(self);
        simulated::enter(move || {
            world.violate("a board was started that is not of this simulation: describe it with sim.board()");
        })
    }

    pub(super) fn violate(&self, what: &str) {
        self.violation.lock().get_or_insert_with(|| what.to_owned());
        self.waker.wake();
    }

    pub(super) fn note(&self, weight: Weight, text: String) {
        let at = self.clock.now().monotonic;
        self.trace.lock().note(at, weight, text);
    }

    /// Bytes that are part of what happened, for the fingerprint alone.
    pub(super) fn note_bytes(&self, bytes: &[u8]) {
        self.note(Weight::Fine, format!("  {} bytes, hash {:016x}", bytes.len(), xxh3_64(bytes)));
    }

    /// How much has happened.
    pub(super) fn progress(&self) -> usize {
        self.trace.lock().len()
    }

    pub(super) fn take_trace(&self) -> Trace {
        std::mem::take(&mut *self.trace.lock())
    }

    pub(super) fn with_plan<T>(&self, change: impl FnOnce(&mut Vec<Planned>) -> T) -> T {
        change(&mut self.plan.lock())
    }

    /// The planned faults that showed nothing, with what they may have meant.
    pub(super) fn uncovered(&self) -> Uncovered {
        let points = self.points.lock();
        let uncovered = |planned: &&Planned| !planned.is_covered();
        self.with_plan(|plan| plan.iter().filter(uncovered).map(|planned| (planned, &*points)).collect())
    }

    fn note_passed(&self, point: &'static str, subject: &str) {
        /// So many are enough to list what there is.
        const SUBJECTS: usize = 32;
        let mut points = self.points.lock();
        let subjects = points.entry(point).or_default();
        if subjects.len() < SUBJECTS && !subjects.contains(subject) {
            subjects.insert(subject.into());
        }
    }

    /// Whether a board that has not ended has something under way, or a write is not acknowledged.
    fn has_work(&self) -> bool {
        let works = |board: &Callboard| !board.load().is_idle() && board.ended().now_or_never().is_none();
        self.writes.load(Ordering::SeqCst) > 0 || self.boards.lock().iter().any(works)
    }

    /// Counts a write until what is returned is dropped.
    pub(super) fn begin_write(self: &Arc<Self>) -> impl Drop + Send + use<> {
        self.writes.fetch_add(1, Ordering::SeqCst);
        Writing(Arc::clone(self))
    }

    /// A number below `bound`.
    pub(super) fn below(&self, bound: u64) -> u64 {
        self.chance.next() % bound
    }

    /// What the plan has for this point; a crash has happened when this returns.
    pub(super) fn strike(&self, point: &'static str, subject: &str) -> Option<Fault> {
        if self.has_crashed() {
            return Some(Fault::Crash);
        }
        self.note_passed(point, subject);
        let now = self.clock.now().monotonic;
        let hit = self.with_plan(|plan| {
            // Each counts the pass; of those that are due the first strikes.
            let mut hit = None;
            for (position, planned) in plan.iter_mut().enumerate() {
                let fault = planned.pass(point, subject, |bound| self.below(bound));
                planned.gave_way |= fault.is_some() && hit.is_some();
                hit = hit.or(fault.map(|fault| (position, fault)));
            }
            if hit.is_none() {
                plan.iter_mut().for_each(|planned| planned.overtake(point, now));
            }
            hit
        });
        let (position, fault) = hit?;
        // A plan that was forgotten meanwhile has nothing to count.
        let has_work = self.has_work();
        self.with_plan(|plan| plan.get_mut(position).into_iter().for_each(|planned| planned.strike(has_work, now)));
        let rest = if has_work { "" } else { ", with nothing in flight" };
        self.note(Weight::Shown, format!("fault at {point} {subject}: {fault:?}{rest}"));
        if fault == Fault::Crash {
            self.crash(point);
        }
        Some(fault)
    }
}

struct Writing(Arc<World>);

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.writes.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Awaiting<'a>(&'a World);

impl Drop for Awaiting<'_> {
    fn drop(&mut self) {
        self.0.crashes_awaited.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Faults for World {
    /// Without a planned fault, chance decides who goes first.
    fn at(&self, point: &'static str, subject: &str) -> Option<Fault> {
        if let Some(fault) = self.strike(point, subject) {
            return Some(fault);
        }
        if FaultPoint::of(point).is_some_and(|point| point.is_steady) {
            self.note(Weight::Fine, format!("{point} {subject}"));
            return None;
        }
        let weight = if point == TURN { Weight::Shown } else { Weight::Fine };
        self.note(weight, format!("{point} {subject}"));
        match self.below(4) {
            0 if subject.is_empty() => Some(Fault::Yield(1 + self.below(3) as u32)),
            0 => Some(Fault::Wait(Duration::from_millis(self.below(20)))),
            _ => None,
        }
    }
}
