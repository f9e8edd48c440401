//! Boards with the channel that is tested, one after another, on one store and one clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::watch;

use crate::actors::Turn;
use crate::actors::approvals::{Channel, Decider};
use crate::env::{Clock, Env, Now};
use crate::messages::{Action, Command, Decision, Durability, Envelope, Pending, Task, Timestamp};
use crate::runtime::{Builder, Callboard, RunHandle};
use crate::storage::{Memory, Storage};

use super::{Audience, SeenCard};

/// How long a rule may take, of the machine's time.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long after one process ends the next one starts: the claims of the first have run out.
const BETWEEN: Duration = Duration::from_secs(60);

/// What the channel does beside what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mishap {
    None,
    /// Each question is asked twice.
    AsksTwice,
    /// It panics over its first question, before it shows it.
    PanicsBefore,
    /// It panics over its first question when it has shown it.
    PanicsAfter,
}

/// Continues where the process before has left it.
#[derive(Clone, Default)]
struct ContinuedClock(Arc<Mutex<Elapsed>>);

#[derive(Default)]
struct Elapsed {
    /// Before the process that runs.
    before: Duration,
    running: Option<Arc<dyn Clock>>,
}

impl Clock for ContinuedClock {
    fn now(&self) -> Now {
        const START: Timestamp = Timestamp::from_millis(1_767_225_600_000);
        let Elapsed { before, running } = &*self.0.lock();
        let monotonic = *before + running.as_ref().map(|clock| clock.now().monotonic).unwrap_or_default();
        Now { monotonic, wall: START + monotonic }
    }
}

/// What a rule is checked on.
pub(super) struct Stage {
    audience: Box<dyn Audience>,
    storage: Arc<Memory>,
    clock: ContinuedClock,
    seed: AtomicU64,
}

impl Stage {
    pub(super) fn new(audience: Box<dyn Audience>) -> Self {
        let clock = ContinuedClock::default();
        Self { audience, storage: Arc::new(Memory::new(Arc::new(clock.clone()))), clock, seed: AtomicU64::new(1) }
    }

    /// Checks a rule on a thread of its own: a channel that blocks its thread is reported as well.
    pub(super) fn check_with(self, rule: fn(&Self)) {
        let (end, ended) = channel::<()>();
        let checking = std::thread::spawn(move || {
            let _end = end;
            rule(&self);
        });
        match ended.recv_timeout(PATIENCE) {
            Err(RecvTimeoutError::Timeout) => panic!("the channel has kept this rule waiting for {PATIENCE:?}"),
            Ok(()) | Err(RecvTimeoutError::Disconnected) => {}
        }
        if let Err(panic) = checking.join() {
            std::panic::resume_unwind(panic);
        }
    }

    pub(super) fn names(&self) -> [String; 2] {
        self.audience.names()
    }

    /// A process with a board that has the channel. It ends without a shutdown when `main` returns.
    pub(super) fn process<T>(&self, mishap: Mishap, main: impl AsyncFnOnce(Process<'_>) -> T) -> T {
        self.run(async |builder| {
            let counts = watch::Sender::new(Counts::default());
            let observed = counts.subscribe();
            let channel = self.audience.open();
            let name = channel.name().to_owned();
            let board = board(builder.channel(Observed { channel, mishap, counts })).await;
            main(Process { board, name, audience: &*self.audience, observed }).await
        })
    }

    /// A process with a board that does not have the channel.
    pub(super) fn process_without_channel<T>(&self, main: impl AsyncFnOnce(Callboard) -> T) -> T {
        self.run(async |builder| main(board(builder).await).await)
    }

    fn run<T>(&self, main: impl AsyncFnOnce(Builder) -> T) -> T {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => panic!("cannot start a runtime: {error}"),
        };
        runtime.block_on(async {
            let seed = self.seed.fetch_add(1, Ordering::Relaxed);
            self.clock.0.lock().running = Some(Env::repeatable(seed).clock());
            let storage: Arc<dyn Storage> = Arc::<Memory>::clone(&self.storage);
            let env = Env::new(self.clock.clone(), seed);
            let builder = Callboard::builder().env(env).storage(storage).durability(Durability::Sync);
            let result = main(builder).await;
            let next = self.clock.now().monotonic + BETWEEN;
            *self.clock.0.lock() = Elapsed { before: next, running: None };
            result
        })
    }

    /// Lets time pass in which no process runs.
    pub(super) fn pass(&self, time: Duration) {
        self.clock.0.lock().before += time;
    }
}

async fn board(builder: Builder) -> Callboard {
    let writer = |turn: Turn| async move {
        let path: String = turn.input()?;
        let action = Action::new("write_file", &path, json!({ "path": path, "text": "one\ntwo" }));
        Ok(Command::output(match turn.people().approve(action).await {
            Ok(_) => "written".to_owned(),
            Err(error) => error.to_string(),
        }))
    };
    match builder.agent("writer", writer).start().await {
        Ok(board) => board,
        Err(error) => panic!("the board does not start: {error}"),
    }
}

/// How many calls of the channel have returned.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    /// The questions that it was asked to show; calls that panicked count as well.
    pub(super) asked: u32,
    pub(super) settled: u32,
}

/// The channel, with what happens to it.
struct Observed {
    channel: Arc<dyn Channel>,
    mishap: Mishap,
    counts: watch::Sender<Counts>,
}

impl Channel for Observed {
    fn name(&self) -> &str {
        self.channel.name()
    }

    fn asks_for_other_boards(&self) -> bool {
        self.channel.asks_for_other_boards()
    }

    fn started(&self, decider: &Decider) {
        self.channel.started(decider);
    }

    fn ask(&self, envelope: &Envelope, decider: &Decider) {
        let is_first = self.counts.borrow().asked == 0;
        let panics = |mishap| is_first && self.mishap == mishap;
        let count = || self.counts.send_modify(|counts| counts.asked += 1);
        if panics(Mishap::PanicsBefore) {
            count();
            panic!("the channel fails, as the rule has it");
        }
        self.channel.ask(envelope, decider);
        if self.mishap == Mishap::AsksTwice {
            self.channel.ask(envelope, decider);
        }
        count();
        if panics(Mishap::PanicsAfter) {
            panic!("the channel fails, as the rule has it");
        }
    }

    fn settled(&self, envelope: &Envelope, decision: Option<&Decision>) {
        self.channel.settled(envelope, decision);
        self.counts.send_modify(|counts| counts.settled += 1);
    }

    fn remind(&self, envelope: &Envelope, decider: &Decider) {
        self.channel.remind(envelope, decider);
    }
}

/// A process with a board that has the channel, and the people whom it reaches.
pub(super) struct Process<'a> {
    pub(super) board: Callboard,
    /// The channel's name.
    pub(super) name: String,
    pub(super) audience: &'a dyn Audience,
    observed: watch::Receiver<Counts>,
}

impl Process<'_> {
    /// Has the agent ask about writing this file; the question expires after this time.
    pub(super) async fn submit(&self, path: &str, time: Duration) -> RunHandle {
        let mut task = Task::new("write").to("writer").input(path);
        task.approval_ttl = Some(time);
        match self.board.submit(task).await {
            Ok(run) => run,
            Err(error) => panic!("the board refuses a task: {error}"),
        }
    }

    /// As [`Process::submit`], and returns when the board has the question.
    pub(super) async fn ask_within(&self, path: &str, time: Duration) -> (RunHandle, Envelope) {
        (self.submit(path, time).await, approval(&self.board, path).await)
    }

    pub(super) async fn ask(&self, path: &str) -> (RunHandle, Envelope) {
        self.ask_within(path, super::rules::WEEK).await
    }

    /// Waits until the calls that have returned are as wanted.
    pub(super) async fn returned(&self, is_wanted: impl FnMut(&Counts) -> bool) {
        let mut observed = self.observed.clone();
        assert!(observed.wait_for(is_wanted).await.is_ok(), "the board has dropped the channel");
    }

    /// The cards about this file.
    pub(super) fn cards(&self, path: &str) -> Vec<SeenCard> {
        let mut cards = self.audience.cards();
        cards.retain(|card| card.text.contains(path));
        cards
    }

    /// The open cards about this file, as soon as there is one.
    pub(super) async fn opened(&self, path: &str) -> Vec<SeenCard> {
        self.seen(path, |cards| cards.iter().any(|card| card.is_open)).await.into_iter().filter(|c| c.is_open).collect()
    }

    /// The cards about this file, as soon as there are some and none is open.
    pub(super) async fn closed(&self, path: &str) -> Vec<SeenCard> {
        self.seen(path, |cards| !cards.is_empty() && cards.iter().all(|card| !card.is_open)).await
    }

    async fn seen(&self, path: &str, is_wanted: impl Fn(&[SeenCard]) -> bool) -> Vec<SeenCard> {
        let mut changes = self.audience.changes();
        loop {
            let cards = self.cards(path);
            if is_wanted(&cards) {
                return cards;
            }
            assert!(
                changes.changed().await.is_ok(),
                "the audience no longer sees changes; these are the cards: {cards:?}"
            );
        }
    }

    /// What the channel tells a person who chooses.
    pub(super) async fn choose(&self, person: usize, card: &SeenCard, approves: bool) -> String {
        self.audience.choose(person, card, approves).await
    }

    /// What was decided.
    pub(super) async fn decision(&self, asked: &Envelope) -> Decision {
        match self.board.people().decision(asked.id()).await {
            Ok(Some(decision)) => decision,
            other => panic!("nothing was decided: {other:?}"),
        }
    }
}

/// The question about this file, as soon as the board has it.
pub(super) async fn approval(board: &Callboard, path: &str) -> Envelope {
    let is_it = |open: &Pending| matches!(open, Pending::Approval(envelope) if &*envelope.action.target == path);
    match board.people().next_where(is_it).await {
        Some(Pending::Approval(envelope)) => *envelope,
        other => panic!("the board asks nothing about {path}: {other:?}"),
    }
}
