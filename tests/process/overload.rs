//! Ten times what a board can do, on real threads: memory stays bounded, control answers, what is refused is refused in
//! words, nothing acknowledged is lost, and slow readers hear how much they missed.
//!
//! The oracle is outside: the driver counts what it submitted and what it received, follows every acknowledged run to
//! its end, reads the process's memory from the kernel, and the tasks that are left from tokio.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test may panic, and this one runs in real time")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use callboard::SubmitError;
use callboard::actors::ContextChange;
use callboard::actors::{StreamMode, Watched};
use callboard::messages::{Action, AgentName, Refusal};
use callboard::prelude::*;
use callboard::runtime::RunHandle;
use callboard::supervision::tree::EndReason;
use futures::{Stream, StreamExt};
use parking_lot::Mutex;

use crate::alone::is_alone;
use crate::campaigns::{Campaign, seconds};

use crate::common::people;

// The limits of the board, much lower than usual, so that it is full at once.
const POOL: usize = 4;
const RUNS_IN_FLIGHT: usize = 400;
const READY_PER_AGENT: usize = 100;
const WATCH_BUFFER: usize = 64;
const MEMORY_RUNS: usize = 1_000;
const RUN_SUPERVISORS: usize = 2;

/// How long the helper works: capacity is a matter of the pool, and leaves the processor time for everybody else.
const WORK: Duration = Duration::from_millis(4);

/// How much more is asked of the board than it can do.
const TIMES: f64 = 10.0;

/// Callers who wait for room with `submit`, and those who submit more and more with `try_submit`.
const WAITERS: usize = 200;
const PUSHERS: usize = 4;

const SLOW_READERS: usize = 4;
const WRITERS: usize = 2;

/// What the writers write, and how many entries there are of it.
const ENTRY: usize = 1_024;
const ENTRIES: u64 = 1_000;

/// One run in this many asks for a consent that nobody gives, unless the driver decides about it.
const ASKS: u64 = 50;

/// A run's deadline, which none comes near.
const DEADLINE: Duration = Duration::from_secs(3_600);

/// How long the slowest answer to a control request may take.
const PROMPT: Duration = Duration::from_secs(1);

/// How long what is left may take to end when the load stops; far more than it should.
const GENEROUS: Duration = Duration::from_secs(60);

/// What the board may hold in memory, by its settings, over what the process had when the load began: for each run
/// in flight its state, its journal and its turns; for each that has ended its journal; for each watcher its buffer of
/// events; the entries of the context with their watcher's buffer. And what an allocator keeps of what was given back.
const BOUND_KB: u64 = {
    let runs = RUNS_IN_FLIGHT as u64 * 16 + MEMORY_RUNS as u64 * 8;
    let watchers = (SLOW_READERS * WATCH_BUFFER) as u64 * 4;
    let entries = (ENTRIES + 256) * (ENTRY as u64 / 1_024) * 4;
    let allocator = 12 * 1_024;
    runs + watchers + entries + allocator
};

/// What memory may differ by between the middle and the end.
const NOISE_KB: u64 = 6 * 1_024;

fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

async fn start() -> Callboard {
    let lead = |turn: Turn| async move {
        if turn.task().body.as_ref() == "ask" {
            turn.people().approve(Action::new("write", "file", "text")).await?;
        }
        turn.notice("on it");
        let number: u64 = turn.input()?;
        let helped = turn.delegate("helper", "help").input(number).await?;
        turn.context().set("notes", &format!("last-{}", number % 16), "done", None).await?;
        Ok(Command::output(helped))
    };
    let helper = AgentSpec::typed("helper", |number: u64| async move {
        tokio::time::sleep(WORK).await;
        Ok(number + 1)
    });
    Callboard::builder()
        .pool(POOL)
        .capacity(|capacity| {
            capacity.runs_in_flight(RUNS_IN_FLIGHT).ready_per_agent(READY_PER_AGENT).watch_buffer(WATCH_BUFFER)
        })
        .retention(|retention| retention.memory_runs(MEMORY_RUNS))
        .capacity(|capacity| capacity.run_supervisors(RUN_SUPERVISORS))
        .with(AgentSpec::new("lead", lead).namespaces(["notes"]))
        .with(helper)
        .with(AgentSpec::typed("clerk", |number: u64| async move { Ok(number) }))
        .start()
        .await
        .unwrap()
}

/// What the driver has counted.
#[derive(Default)]
struct Counts {
    submitted: AtomicU64,
    acknowledged: AtomicU64,
    refused: AtomicU64,
    /// Acknowledged runs by how they ended.
    ended: Mutex<BTreeMap<&'static str, u64>>,
    wrong: Mutex<Vec<String>>,
    /// The slowest answer to each kind of control request, and how many there were.
    answers: Mutex<BTreeMap<&'static str, (Duration, u64)>>,
    /// A run that was just acknowledged.
    latest: Mutex<Option<RunHandle>>,
}

#[derive(Clone)]
struct Driver {
    board: Callboard,
    counts: Arc<Counts>,
    is_over: Arc<AtomicBool>,
}

impl Driver {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    fn wrong(&self, what: String) {
        let mut wrong = self.counts.wrong.lock();
        if wrong.len() < 10 {
            wrong.push(what);
        }
    }

    fn task(&self, waits: bool) -> (Task, bool) {
        let number = self.counts.submitted.fetch_add(1, Ordering::SeqCst);
        let asks = waits && number.is_multiple_of(ASKS);
        (Task::new(if asks { "ask" } else { "work" }).to("lead").input(number).deadline(DEADLINE), asks)
    }

    /// Counts what was answered to a submission, and follows what was acknowledged to its end.
    fn reported(&self, answer: Result<RunHandle, SubmitError>, asks: bool) {
        match answer {
            Ok(run) => {
                self.counts.acknowledged.fetch_add(1, Ordering::SeqCst);
                *self.counts.latest.lock() = Some(run.clone());
                tokio::spawn(self.clone().follow(run, asks));
            }
            Err(SubmitError::Refused(Refusal::Overloaded { retry_after, .. })) if retry_after > Duration::ZERO => {
                self.counts.refused.fetch_add(1, Ordering::SeqCst);
            }
            Err(error) => self.wrong(format!("neither acknowledged nor overloaded: {error}")),
        }
    }

    async fn follow(self, run: RunHandle, asks: bool) {
        if asks && tokio::time::timeout(PROMPT, run.result()).await.is_err() {
            let _ = self.timed("cancel", run.cancel("nobody answers")).await;
        }
        let how = match run.result().await {
            Ok(result) => match result.outcome {
                Outcome::Finished => "finished",
                Outcome::Cancelled { .. } => "cancelled",
                // A delegation found no room.
                Outcome::Refused(Refusal::Overloaded { .. }) => "overloaded",
                outcome => return self.wrong(format!("{}: {outcome}", run.id())),
            },
            Err(error) => return self.wrong(format!("{} has no result: {error}", run.id())),
        };
        *self.counts.ended.lock().entry(how).or_default() += 1;
    }

    /// Waits for an answer, and keeps how long it took.
    async fn timed<T>(&self, what: &'static str, request: impl Future<Output = T>) -> T {
        let began = Instant::now();
        let answer = request.await;
        let took = began.elapsed();
        let mut answers = self.counts.answers.lock();
        let (worst, count) = answers.entry(what).or_default();
        (*worst, *count) = ((*worst).max(took), *count + 1);
        answer
    }

    /// One of those who wait for room.
    async fn wait_in_queue(self) {
        while !self.is_over() {
            let (task, asks) = self.task(true);
            let answer = self.board.submit(task).await;
            self.reported(answer, asks);
        }
    }

    /// One of those who push: so many submissions a second, whatever becomes of them.
    async fn push(self, rate: f64) {
        let began = Instant::now();
        let mut pushed = 0.0;
        while !self.is_over() {
            while pushed < began.elapsed().as_secs_f64() * rate && !self.is_over() {
                let answer = self.board.try_submit(self.task(false).0).await;
                self.reported(answer, false);
                pushed += 1.0;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    async fn write_context(self, writer: usize) {
        let (value, agent) = ("x".repeat(ENTRY), AgentName::new("driver").unwrap());
        for number in 0_u64.. {
            if self.is_over() {
                return;
            }
            let key = format!("{writer}-{}", number % (ENTRIES / WRITERS as u64));
            if let Err(error) = self.board.context().set("load", &key, &value, &agent, None).await {
                self.wrong(format!("a context entry was not written: {error}"));
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Asks for everything that has to answer whatever the load.
    async fn control(self) {
        while !self.is_over() {
            if let Err(error) = self.timed("tree", self.board.tree()).await {
                self.wrong(format!("the tree does not answer: {error}"));
            }
            self.timed("load", async { self.board.load() }).await;
            for agent in ["clerk", "helper"] {
                let what = if agent == "clerk" { "ask" } else { "ask of a busy agent" };
                if let Err(error) = self.timed(what, self.board.ask::<u64, u64>(agent, 1)).await {
                    self.wrong(format!("{agent} does not answer: {error}"));
                }
            }
            if let Some(open) = people::approvals(&self.board).await.pop() {
                // It may have been withdrawn meanwhile.
                let _ = self.timed("decision", self.board.people().approve(open.id(), "ann")).await;
            }
            let latest = self.counts.latest.lock().take();
            if let Some(run) = latest {
                let cancelled = self.timed("cancel", run.cancel("planned")).await;
                cancelled.unwrap_or_else(|error| panic!("not cancelled: {error}"));
                self.timed("history", run.history()).await.unwrap();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// What a slow reader heard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Heard {
    events: u64,
    missed: u64,
}

impl Heard {
    fn total(self) -> u64 {
        self.events + self.missed
    }
}

/// Takes its time after each event while the load is on, and reads what is left afterwards. `None` is an event, a number shows
/// how many are missing. Ends with the board, and with its store, so it holds neither.
async fn read_slowly(mut events: impl Stream<Item = Option<u64>> + Unpin, is_over: Arc<AtomicBool>) -> Heard {
    let mut heard = Heard::default();
    while let Ok(Some(event)) = tokio::time::timeout(GENEROUS, events.next()).await {
        match event {
            None => heard.events += 1,
            Some(missed) => heard.missed += missed,
        }
        if !is_over.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    heard
}

fn of_run(watched: Watched) -> Option<u64> {
    match watched {
        Watched::Event { .. } | Watched::Live { .. } => None,
        Watched::Missed(count) => Some(count),
    }
}

fn of_context(change: ContextChange) -> Option<u64> {
    match change {
        ContextChange::Set(_) | ContextChange::Deleted { .. } => None,
        ContextChange::Missed(count) => Some(count),
    }
}

/// Runs a second when the board is as busy as it can be without refusing a task.
async fn capacity() -> f64 {
    const FOR: Duration = Duration::from_secs(1);
    let board = start().await;
    let began = Instant::now();
    let callers = (0..64).map(|number| {
        let board = board.clone();
        tokio::spawn(async move {
            let mut ended = 0;
            while began.elapsed() < FOR {
                let run = board.submit(Task::new("work").to("lead").input(number)).await.unwrap();
                assert_eq!(run.result().await.unwrap().outcome, Outcome::Finished);
                ended += 1;
            }
            ended
        })
    });
    let ended: u32 = futures::future::join_all(callers).await.into_iter().map(Result::unwrap).sum();
    let took = began.elapsed();
    board.shutdown().await;
    f64::from(ended) / took.as_secs_f64()
}

/// Resident memory over the time of the load.
struct Memory {
    before_kb: u64,
    samples_kb: Vec<u64>,
}

impl Memory {
    async fn watch(time: Duration) -> Self {
        let began = Instant::now();
        let (before_kb, mut samples_kb) = (resident_kb(), Vec::new());
        while began.elapsed() < time {
            tokio::time::sleep(Duration::from_millis(100)).await;
            samples_kb.push(resident_kb());
        }
        Self { before_kb, samples_kb }
    }

    fn highest_kb(&self) -> u64 {
        self.samples_kb.iter().copied().max().unwrap_or_default()
    }

    /// The median of a part of the time, in percent of it.
    fn median_kb(&self, from: usize, to: usize) -> u64 {
        let count = self.samples_kb.len();
        let mut part = self.samples_kb[count * from / 100..count * to / 100].to_vec();
        part.sort_unstable();
        part[part.len() / 2]
    }

    fn check(&self) -> Result<(), String> {
        let (before, highest) = (self.before_kb, self.highest_kb());
        if highest > before + BOUND_KB {
            return Err(format!(
                "{highest} KB are resident, {before} before the load: more than {BOUND_KB} KB over it"
            ));
        }
        let (middle, end) = (self.median_kb(40, 60), self.median_kb(80, 100));
        if end > middle + NOISE_KB {
            return Err(format!("resident memory grows: {middle} KB in the middle, {end} KB at the end"));
        }
        Ok(())
    }
}

/// Waits until it is so; `false` if it never is.
async fn comes_true(is_so: impl Fn() -> bool) -> bool {
    let began = Instant::now();
    while !is_so() {
        if began.elapsed() > GENEROUS {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    true
}

fn sum(ended: &BTreeMap<&'static str, u64>) -> u64 {
    ended.values().sum()
}

async fn overload(campaign: &mut Campaign, time: Duration) -> String {
    let capacity = capacity().await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let board = start().await;
    assert!(comes_true(|| board.load().is_idle()).await);
    let tasks_before = tasks();
    let driver = Driver { board: board.clone(), counts: Arc::default(), is_over: Arc::default() };
    let counts = Arc::clone(&driver.counts);
    let readers: Vec<_> = (0..SLOW_READERS)
        .map(|_| tokio::spawn(read_slowly(board.watch(&[StreamMode::Debug]).map(of_run), Arc::clone(&driver.is_over))))
        .collect();
    let watcher = board.context().watch("load").unwrap().map(of_context);
    let watcher = tokio::spawn(read_slowly(watcher, Arc::clone(&driver.is_over)));

    let began = Instant::now();
    let waiters = (0..WAITERS).map(|_| tokio::spawn(driver.clone().wait_in_queue()));
    let rate = capacity * TIMES / PUSHERS as f64;
    let pushers = (0..PUSHERS).map(|_| tokio::spawn(driver.clone().push(rate)));
    let writers = (0..WRITERS).map(|writer| tokio::spawn(driver.clone().write_context(writer)));
    let control = [tokio::spawn(driver.clone().control())];
    let load: Vec<_> = waiters.chain(pushers).chain(writers).chain(control).collect();
    let memory = Memory::watch(time).await;
    driver.is_over.store(true, Ordering::SeqCst);
    let submitted = counts.submitted.load(Ordering::SeqCst) as f64 / began.elapsed().as_secs_f64();
    for task in load {
        task.await.unwrap();
    }

    let acknowledged = counts.acknowledged.load(Ordering::SeqCst);
    let all_end = comes_true(|| sum(&counts.ended.lock()) == acknowledged || !counts.wrong.lock().is_empty()).await;
    let is_idle = comes_true(|| board.load().is_idle()).await;
    let left = format!("{:?}", board.load());
    // Workers that are idle, slow readers, and each run supervisor's sleep until its next timer.
    let usual = tasks_before + POOL + SLOW_READERS + 1 + RUN_SUPERVISORS;
    let tasks_end = comes_true(|| tasks() <= usual).await;
    let (tasks_left, stopping) = (tasks(), Instant::now());
    let reason = board.shutdown().await;
    let stopped_in = stopping.elapsed();
    let latest = counts.latest.lock().take();
    drop((board, driver, latest));
    let leaving = Instant::now();
    let heard = futures::future::join_all(readers).await.into_iter().map(Result::unwrap).collect::<Vec<_>>();
    let context = watcher.await.unwrap();
    let readers_left_in = leaving.elapsed();

    let (ended, answers) = (counts.ended.lock().clone(), counts.answers.lock().clone());
    let (all, refused) = (counts.submitted.load(Ordering::SeqCst), counts.refused.load(Ordering::SeqCst));
    campaign.count_many(all);
    let mut check = |is_so: bool, what: String| {
        if !is_so {
            campaign.count(Err(what));
        }
    };
    for wrong in counts.wrong.lock().drain(..) {
        check(false, wrong);
    }
    check(submitted >= capacity * TIMES * 0.9, format!("only {submitted:.0} submissions a second, {capacity:.0} runs"));
    check(acknowledged + refused == all, format!("{all} submitted, {acknowledged} acknowledged, {refused} refused"));
    check(refused > acknowledged, format!("{refused} refused of {all}: that is no overload"));
    check(all_end && sum(&ended) == acknowledged, format!("{acknowledged} acknowledged, but {ended:?}"));
    check(is_idle, format!("something is left: {left}"));
    check(tasks_end, format!("{tasks_left} tasks are left, {tasks_before} before the load"));
    check(
        reason == EndReason::Stopped && stopped_in < Duration::from_secs(5),
        format!("the board ended after {stopped_in:?}: {reason}"),
    );
    check(
        readers_left_in < Duration::from_secs(5),
        "the streams of readers do not end with the board and its store".to_owned(),
    );
    for what in ["tree", "load", "ask", "ask of a busy agent", "decision", "cancel", "history"] {
        let (worst, count) = answers.get(what).copied().unwrap_or_default();
        check(count > 0, format!("no {what} was asked for"));
        check(worst <= PROMPT, format!("{what} took {worst:?}"));
    }
    let first = heard[0];
    check(
        heard.iter().all(|heard| heard.missed > 0 && heard.total() == first.total()) && first.total() > acknowledged,
        format!("slow readers of the same events heard of {heard:?}"),
    );
    check(context.missed > 0, format!("a slow watcher of the context heard of {context:?}"));
    memory.check().unwrap_or_else(|error| check(false, error));
    let (before, highest) = (memory.before_kb, memory.highest_kb());
    let (middle, end) = (memory.median_kb(40, 60), memory.median_kb(80, 100));
    format!(
        "submissions in {time:?}, {submitted:.0} a second on a board that can do {capacity:.0}: {acknowledged} acknowledged \
         ({ended:?}), {refused} refused; {before} KB before, {highest} at most of {} allowed, {middle} in the middle, {end} \
         at the end; slowest answers {answers:?}; slow readers heard of {} events, {} missed; shutdown in {stopped_in:?}",
        before + BOUND_KB,
        first.events,
        first.missed,
    )
}

#[test]
fn ten_times_the_load_is_refused_in_words_and_bounded_in_memory() {
    if !is_alone("overload::ten_times_the_load_is_refused_in_words_and_bounded_in_memory") {
        return;
    }
    let mut campaign = Campaign::begin("overload");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let reported = runtime.block_on(overload(&mut campaign, seconds(10)));
    campaign.end(reported);
}
