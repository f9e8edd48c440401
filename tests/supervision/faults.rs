//! Agents' turns, their actors and the board's own panic, are killed, fail and hang under load, on real threads: no delegation is
//! lost, none counts twice, and each ends.
//!
//! The oracle is outside: the driver keeps what it submitted and what was acknowledged, agents write down what they began and
//! what they were answered, and a plan determines the expected results. The runtime's own account of losses is not used.
//!
//! Whether it can fail was tried by hand: an answer in a hundred not given, a run in a crashed supervisor's roster not
//! read back, and a turn in five hundred not begun were found as never-ending; one answer's updates in fifty taken
//! twice as wrong counts.

#![cfg(feature = "sled")]
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test may panic, and this one runs in real time")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use callboard::SubmitError;
use callboard::actors::{Delegation, DelegationError};
use callboard::env::{Env, Fault, Faults};
use callboard::messages::{
    Action, Backoff, LateAnswer, Reducer, RunId, RunResult, Schema, SendTo, StateRules, TurnId, Usage,
};
use callboard::prelude::*;
use callboard::runtime::RunHandle;
use callboard::supervision::runs::{BreakerPolicy, Run};
use callboard::supervision::tree::{ActorState, EndReason, TreeNode};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::campaigns::{Campaign, cases};

use crate::common::people;

/// How long a run may take, and how long what is left of it may take to go; far more than any of the faults can cost.
const GENEROUS: Duration = Duration::from_secs(60);

/// After so many rounds a kind of fault that has hit nothing is not waited for any more.
const MOST_ROUNDS: usize = 40;

/// Layers of agents: each delegates or hands off to the next one, so that no chain has a cycle.
const DEPTH: usize = 4;

/// How the agents of each layer are run: as tasks, each turn on a thread of its own, one turn at a time.
const MANNERS: [&str; 3] = ["task", "thread", "alone"];

/// Added to the key of a turn that detaches a delegation: the key of the turn in which the answer comes.
const LATE: u32 = 1_000_000;

/// After this a turn that hangs is stopped.
const TIMEOUT: Duration = Duration::from_millis(250);

/// What one turn does.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Plan {
    /// No other turn of the run has the same.
    key: u32,
    to: String,
    asks_consent: bool,
    delegations: Vec<Plan>,
    side_by_side: bool,
    then: Then,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
enum Then {
    Stop,
    Handoff(Box<Plan>),
    Fork(Vec<Plan>),
    /// Delegates without waiting; the answer comes with a turn of its own.
    Detach(Box<Plan>),
}

impl Plan {
    fn random(env: &Env, depth: usize, keys: &mut u32) -> Self {
        let key = *keys;
        *keys += 1;
        let manner = [0, 0, 0, 0, 0, 1, 1, 2][below(env, 8)];
        let mut children = |one_in: usize, most: usize| -> Vec<Self> {
            if depth + 1 == DEPTH || below(env, one_in) > 0 {
                return Vec::new();
            }
            (0..1 + below(env, most)).map(|_| Self::random(env, depth + 1, keys)).collect()
        };
        let delegations = children(if depth == 0 { 1 } else { 2 }, 4);
        let mut next = children(3, 3);
        let then = match next.len() {
            0 => Then::Stop,
            1 if below(env, 2) == 0 => Then::Detach(Box::new(next.remove(0))),
            1 => Then::Handoff(Box::new(next.remove(0))),
            _ => Then::Fork(next),
        };
        let to = format!("{}{depth}", MANNERS[manner]);
        Self { key, to, asks_consent: below(env, 16) == 0, delegations, side_by_side: below(env, 2) == 0, then }
    }

    /// The keys of everything that comes of it, in the order in which updates apply: what it waited for, the turn
    /// itself, what came after it.
    fn keys(&self) -> Vec<u32> {
        let then: Vec<u32> = match &self.then {
            Then::Stop => Vec::new(),
            Then::Handoff(next) => next.keys(),
            Then::Fork(forks) => forks.iter().flat_map(Self::keys).collect(),
            Then::Detach(child) => child.keys().into_iter().chain([self.key + LATE]).collect(),
        };
        self.delegations.iter().flat_map(Self::keys).chain([self.key]).chain(then).collect()
    }

    /// Everything that is delegated in it.
    fn delegated(&self) -> Vec<&Self> {
        let (detached, next): (&[Self], &[Self]) = match &self.then {
            Then::Stop => (&[], &[]),
            Then::Handoff(next) => (&[], std::slice::from_ref(next)),
            Then::Fork(forks) => (&[], forks),
            Then::Detach(child) => (std::slice::from_ref(child), &[]),
        };
        let given = self.delegations.iter().chain(detached);
        let below = given.clone().chain(next).flat_map(Self::delegated);
        given.chain(below).collect()
    }

    /// What its branch puts out.
    fn answer(&self) -> Value {
        match &self.then {
            Then::Stop => json!([self.key, self.delegations.iter().map(Self::answer).collect::<Vec<_>>()]),
            Then::Handoff(next) => next.answer(),
            Then::Fork(forks) => forks.iter().map(Self::answer).collect(),
            Then::Detach(child) => json!([self.key + LATE, child.answer()]),
        }
    }
}

fn below(env: &Env, bound: usize) -> usize {
    (env.random() % bound as u64) as usize
}

/// What agents write down.
#[derive(Default)]
struct Book {
    entries: Mutex<Entries>,
    /// Delegations that were asked for and are not answered.
    open: AtomicUsize,
    /// The next turn that has a thread of its own ignores that it is stopped.
    blocks: AtomicBool,
    /// How many did.
    blocked: AtomicU64,
}

#[derive(Default)]
struct Entries {
    /// Under which turns a part of a plan was begun.
    turns: BTreeMap<(RunId, u32), BTreeSet<TurnId>>,
    /// What was answered to the delegation of a part of a plan, all times it was asked for.
    answers: BTreeMap<(RunId, u32), BTreeSet<String>>,
    /// Which turns had their effect, how often.
    effects: BTreeMap<TurnId, u32>,
    wrong: Vec<String>,
}

struct Opened<'a>(&'a Book);

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Book {
    fn wrong(&self, what: String) {
        self.entries.lock().wrong.push(what);
    }

    fn open(&self) -> Opened<'_> {
        self.open.fetch_add(1, Ordering::SeqCst);
        Opened(self)
    }

    fn answered(&self, turn: &Turn, plan: &Plan, answer: String) {
        self.entries.lock().answers.entry((turn.id().run, plan.key)).or_default().insert(answer);
    }

    async fn delegate(&self, turn: &Turn, plan: &Plan, delegation: Delegation) -> Result<Json, TurnError> {
        let _opened = self.open();
        let answer = delegation.await;
        match &answer {
            Ok(answer) => self.answered(turn, plan, answer.to_string()),
            // Of an attempt that nobody wants any more.
            Err(DelegationError::Turn(_)) => {}
            Err(error) => self.answered(turn, plan, format!("no answer: {error}")),
        }
        Ok(answer?)
    }

    /// Begins the turn of this key: its effect is that it is written down.
    async fn begin(&self, turn: &Turn, key: u32) -> Result<(), TurnError> {
        let id = turn.id();
        self.entries.lock().turns.entry((id.run, key)).or_default().insert(id);
        let effect = async {
            *self.entries.lock().effects.entry(id).or_default() += 1;
            Ok::<_, TurnError>(())
        };
        turn.step("effect", effect).await
    }

    /// Takes the turn in which the answer to a detached delegation comes.
    async fn follow_late(&self, turn: &Turn, late: LateAnswer) -> Result<Command, TurnError> {
        let plan: Plan = late.original_input.parse()?;
        let Then::Detach(child) = &plan.then else { return Err(TurnError::terminal("it has detached nothing")) };
        self.begin(turn, plan.key + LATE).await?;
        let answer = if late.answer.outcome.is_finished() {
            late.answer.output.to_string()
        } else {
            format!("no answer: {}", late.answer.outcome)
        };
        self.answered(turn, child, answer);
        let output = json!([plan.key + LATE, late.answer.output]);
        Ok(Command::update("count", 1).with("keys", plan.key + LATE).with_output(output))
    }

    async fn follow(&self, turn: Turn) -> Result<Command, TurnError> {
        if let Ok(late) = turn.input::<LateAnswer>() {
            return self.follow_late(&turn, late).await;
        }
        let plan: Plan = turn.input()?;
        let reserved = turn.reserve(10).await?;
        self.begin(&turn, plan.key).await?;
        // Nobody waits for it.
        drop(reserved.settle(Usage::of(3, 4)));
        if turn.agent().as_str().starts_with("thread") {
            let blocks = self.blocks.swap(false, Ordering::SeqCst);
            self.blocked.fetch_add(u64::from(blocks), Ordering::SeqCst);
            std::thread::sleep(if blocks { TIMEOUT + Duration::from_secs(6) } else { Duration::from_millis(1) });
        }
        if plan.asks_consent {
            turn.people().approve(Action::new("write", "file", plan.key)).await?;
        }
        let given = |child: &Plan| turn.delegate(&child.to, "part").input(Json::of(child).unwrap());
        let asked = plan.delegations.iter().map(|child| self.delegate(&turn, child, given(child)));
        let answers: Vec<Json> = if plan.side_by_side {
            futures::future::try_join_all(asked).await?
        } else {
            let mut answers = Vec::new();
            for delegation in asked {
                answers.push(delegation.await?);
            }
            answers
        };
        let command = Command::update("count", 1).with("keys", plan.key);
        Ok(match &plan.then {
            Then::Stop => command.with_output(json!([plan.key, answers])),
            Then::Handoff(next) => command.with_output(Json::of(&**next).unwrap()).goto(&next.to),
            Then::Fork(forks) => {
                command.goto_many(forks.iter().map(|fork| SendTo::new(&fork.to, Json::of(fork).unwrap())))
            }
            Then::Detach(child) => {
                given(child).detach().await?;
                command
            }
        })
    }

    /// What is wrong about a run that was to follow this plan and has ended like this.
    fn judge(&self, plan: &Plan, result: &RunResult) -> Result<(), String> {
        let run = result.run;
        let keys = plan.keys();
        check("outcome", &result.outcome, &Outcome::Finished)?;
        check("output", &result.output, &Json::from(plan.answer()))?;
        check("count", &result.state["count"], &json!(keys.len()))?;
        check("keys", &result.state["keys"], &json!(keys))?;
        check("turns", &(result.metrics.turns as usize), &keys.len())?;
        let entries = self.entries.lock();
        for key in &keys {
            let turns = entries.turns.get(&(run, *key)).map_or(0, BTreeSet::len);
            check(&format!("turns of part {key}"), &turns, &1)?;
        }
        for part in plan.delegated() {
            let answers = entries.answers.get(&(run, part.key)).cloned().unwrap_or_default();
            check(&format!("answers to part {}", part.key), &answers, &[part.answer().to_string()].into())?;
        }
        let effects = entries.effects.range(TurnId { run, number: 0 }..=TurnId { run, number: u32::MAX }).count();
        check("turns with effects", &effects, &keys.len())
    }
}

fn check<T: PartialEq + std::fmt::Debug>(what: &str, is: &T, should: &T) -> Result<(), String> {
    if is == should { Ok(()) } else { Err(format!("{what}: {is:?}, not {should:?}")) }
}

/// How often something struck, and how often while delegations were open.
type Struck = BTreeMap<String, (u64, u64)>;

/// What goes wrong: turns by chance, the board's actors when a fault is armed for them.
struct Chaos {
    env: Env,
    book: Arc<Book>,
    armed: Mutex<Vec<(&'static str, Fault)>>,
    struck: Mutex<Struck>,
    is_over: AtomicBool,
}

impl Chaos {
    fn count(&self, kind: String) {
        let in_flight = self.book.open.load(Ordering::SeqCst) > 0;
        let mut struck = self.struck.lock();
        let (all, hits) = struck.entry(kind).or_default();
        (*all, *hits) = (*all + 1, *hits + u64::from(in_flight));
    }

    fn at_turn(&self) -> Option<Fault> {
        Some(match below(&self.env, 100) {
            0..4 => Fault::Panic("planned".into()),
            4..8 => Fault::Error("planned".into()),
            8..10 => Fault::Wait(Duration::MAX),
            10..20 => Fault::Wait(Duration::from_millis(below(&self.env, 10) as u64)),
            20..40 => Fault::Yield(1),
            _ => return None,
        })
    }

    fn when_armed(&self, point: &'static str) -> Option<Fault> {
        let mut armed = self.armed.lock();
        let place = armed.iter().position(|(armed, _)| *armed == point)?;
        Some(armed.swap_remove(place).1)
    }
}

impl Faults for Chaos {
    fn at(&self, point: &'static str, _: &str) -> Option<Fault> {
        if self.is_over.load(Ordering::SeqCst) {
            return None;
        }
        let fault = match point {
            "turn.begin" | "turn.end" => self.at_turn()?,
            _ => self.when_armed(point)?,
        };
        self.count(kind(point, &fault));
        Some(fault)
    }
}

/// Something that the driver does to a board under load.
#[derive(Clone, Debug)]
enum ChaosAction {
    /// The next execution of this point panics, fails or waits.
    Arm(&'static str, Fault),
    Kill(&'static [&'static str]),
    KillAgent,
    StopAgent,
    ReplaceAgent,
    RestartAgent,
    /// The next turn on a thread of its own blocks the thread until the turn is evicted.
    BlockThread,
}

fn panic() -> Fault {
    Fault::Panic("planned".into())
}

fn error() -> Fault {
    Fault::Error("planned".into())
}

impl ChaosAction {
    fn kind(&self) -> String {
        match self {
            Self::Arm(point, fault) => kind(point, fault),
            Self::Kill(path) => format!("kill of {}", path.join("/")),
            Self::KillAgent => "kill of an agent".into(),
            Self::StopAgent => "stop of an agent".into(),
            Self::ReplaceAgent => "replacement of an agent".into(),
            Self::RestartAgent => "restart of an agent".into(),
            Self::BlockThread => "block of a thread".into(),
        }
    }
}

fn kind(point: &str, fault: &Fault) -> String {
    let what = match fault {
        Fault::Error(_) => "error",
        Fault::Panic(_) => "panic",
        Fault::Wait(Duration::MAX) => "hang",
        Fault::Wait(_) | Fault::Yield(_) => "delay",
        Fault::Lose | Fault::Drop | Fault::Duplicate | Fault::Hold(_) | Fault::Kill | Fault::Crash => {
            unreachable!("not planned here")
        }
    };
    format!("{what} at {point}")
}

/// Every kind of fault that has to strike while delegations are open.
fn kinds() -> BTreeSet<String> {
    let at_turns = ["turn.begin", "turn.end"].into_iter().flat_map(|point| {
        [panic(), error(), Fault::Wait(Duration::MAX), Fault::Yield(1)].map(|fault| kind(point, &fault))
    });
    let actions = counted_actions().into_iter().flatten().chain(other_actions()).chain([ChaosAction::BlockThread]);
    actions.map(|action| action.kind()).chain(at_turns).collect()
}

/// Actions of which a supervisor of the board takes five in a minute before it gives up, together with those that are
/// struck at the same one: the board's own, that of the run supervisors, that of the gateway.
fn counted_actions() -> [Vec<ChaosAction>; 3] {
    let board = vec![
        ChaosAction::Arm("router.handle", panic()),
        ChaosAction::Kill(&["delegation-router"]),
        ChaosAction::Arm("storage.handle", panic()),
        ChaosAction::Kill(&["storage"]),
        ChaosAction::Arm("context.handle", panic()),
        ChaosAction::Kill(&["context-store"]),
        ChaosAction::Arm("router.handle", error()),
        ChaosAction::Kill(&["runs"]),
        ChaosAction::Arm("storage.sweep", panic()),
        ChaosAction::Arm("context.sweep", panic()),
        ChaosAction::Kill(&["approval-gateway"]),
    ];
    let runs = vec![
        ChaosAction::Arm("runs.taken", panic()),
        ChaosAction::Kill(&["runs", "runs-0"]),
        ChaosAction::Arm("runs.applied", panic()),
        ChaosAction::Kill(&["runs", "runs-1"]),
        ChaosAction::Arm("runs.applied", error()),
        ChaosAction::Arm("runs.taken", error()),
    ];
    let gateway =
        vec![ChaosAction::Arm("gateway.handle", panic()), ChaosAction::Kill(&["approval-gateway", "gateway"])];
    [board, runs, gateway]
}

/// Actions that a board may take as often as one likes.
fn other_actions() -> Vec<ChaosAction> {
    let delay = || Fault::Wait(Duration::from_millis(100));
    vec![
        ChaosAction::Arm("agent.handle", panic()),
        ChaosAction::KillAgent,
        ChaosAction::StopAgent,
        ChaosAction::ReplaceAgent,
        ChaosAction::RestartAgent,
        ChaosAction::Arm("agent.start", error()),
        ChaosAction::Arm("router.handle", delay()),
        ChaosAction::Arm("agent.handle", delay()),
        ChaosAction::Arm("gateway.handle", delay()),
        ChaosAction::Arm("storage.handle", delay()),
        ChaosAction::Arm("context.handle", delay()),
    ]
}

/// One board under load.
#[derive(Clone)]
struct Round {
    env: Env,
    board: Callboard,
    book: Arc<Book>,
    chaos: Arc<Chaos>,
    /// When the last blow is struck and there was enough work, submitters stop.
    has_struck: Arc<AtomicBool>,
    delegations: Arc<AtomicUsize>,
    /// What was acknowledged, and what should come of it.
    acknowledged: Arc<Mutex<BTreeMap<RunId, Plan>>>,
    again: Arc<AtomicUsize>,
}

fn spec(name: &str, book: &Arc<Book>) -> AgentSpec {
    let book = Arc::clone(book);
    let agent = move |turn: Turn| {
        let book = Arc::clone(&book);
        async move { book.follow(turn).await }
    };
    let spec = AgentSpec::new(name, agent).concurrency(3).timeout(TIMEOUT).restarts(10_000, Duration::from_secs(60));
    match name.trim_end_matches(char::is_numeric) {
        "thread" => spec.blocking(),
        "alone" => spec.non_reentrant(),
        _ => spec,
    }
}

fn names() -> impl Iterator<Item = String> {
    (0..DEPTH).flat_map(|depth| MANNERS.map(|manner| format!("{manner}{depth}")))
}

fn task(id: RunId, plan: &Plan) -> Task {
    let limits = Limits { handoffs: 10_000, agents: 1_000, depth: 100, attempts: 100, ..Limits::default() };
    let schema = Schema::swarm().channel("count", Reducer::Sum).channel("keys", Reducer::Append);
    Task::new("x").id(id).to(&plan.to).input(Json::of(plan).unwrap()).limits(limits).schema(schema)
}

impl Round {
    async fn start(seed: u64, folder: Option<&std::path::Path>) -> Self {
        let book = Arc::<Book>::default();
        let env = Env::new(Env::system().clock(), seed);
        let chaos = Arc::new(Chaos {
            env: env.clone(),
            book: Arc::clone(&book),
            armed: Mutex::default(),
            struck: Mutex::default(),
            is_over: true.into(),
        });
        let never = BreakerPolicy { threshold: u32::MAX, cooldown: Duration::ZERO, max_cooldown: Duration::ZERO };
        let mut builder = Callboard::builder()
            .env(env.clone().with_faults(Arc::clone(&chaos) as Arc<dyn Faults>))
            .breaker(never)
            .backoff(Backoff { first: Duration::from_millis(2), max: Duration::from_millis(20) })
            .retention(|retention| retention.every(Duration::from_millis(20)))
            .shutdown_grace(Duration::from_secs(2))
            .pool(6);
        if let Some(folder) = folder {
            builder = builder.storage(Sled::open(folder).unwrap());
        }
        let builder = names().fold(builder, |builder, name| builder.with(spec(&name, &book)));
        let board = builder.start().await.unwrap();
        chaos.is_over.store(false, Ordering::SeqCst);
        Self {
            env,
            board,
            book,
            chaos,
            has_struck: Arc::default(),
            delegations: Arc::default(),
            acknowledged: Arc::default(),
            again: Arc::default(),
        }
    }

    fn below(&self, bound: usize) -> usize {
        below(&self.env, bound)
    }

    async fn pause(&self, millis: usize) {
        tokio::time::sleep(Duration::from_millis(self.below(millis) as u64)).await;
    }

    fn any_agent(&self) -> String {
        names().nth(self.below(DEPTH * MANNERS.len())).unwrap()
    }

    async fn strike(&self, action: ChaosAction) {
        let kind = action.kind();
        let has_struck = match action {
            ChaosAction::Arm(point, fault) => {
                self.chaos.armed.lock().push((point, fault));
                false
            }
            ChaosAction::BlockThread => {
                self.book.blocks.store(true, Ordering::SeqCst);
                false
            }
            ChaosAction::Kill(path) => self.board.kill(path).await.unwrap(),
            ChaosAction::KillAgent => self.board.kill(&["agents", &self.any_agent()]).await.unwrap(),
            ChaosAction::StopAgent => {
                let name = self.any_agent();
                let stopped = self.board.agents().stop(&name).await;
                self.pause(20).await;
                self.bring_back(&name).await;
                stopped.is_ok()
            }
            ChaosAction::ReplaceAgent => self.board.agents().replace(spec(&self.any_agent(), &self.book)).await.is_ok(),
            ChaosAction::RestartAgent => self.board.agents().restart(&self.any_agent()).await.is_ok(),
        };
        if has_struck {
            self.chaos.count(kind);
        }
    }

    async fn bring_back(&self, name: &str) {
        let began = Instant::now();
        while let Err(error) = self.board.agents().spawn(spec(name, &self.book)).await {
            if began.elapsed() > GENEROUS {
                return self.book.wrong(format!("{name} does not come back: {error}"));
            }
            self.pause(10).await;
        }
    }

    async fn strike_all(&self, actions: Vec<ChaosAction>) {
        for action in actions {
            self.pause(40).await;
            self.strike(action).await;
        }
        self.has_struck.store(true, Ordering::SeqCst);
    }

    /// Submits until it is acknowledged: whatever is refused or interrupted may be submitted again under its id.
    async fn submit(&self, id: RunId, plan: &Plan) -> Result<RunHandle, String> {
        let began = Instant::now();
        loop {
            match self.board.submit(task(id, plan)).await {
                Ok(run) => return Ok(run),
                Err(SubmitError::Unacknowledged(_) | SubmitError::Refused(_)) if began.elapsed() < GENEROUS => {
                    self.again.fetch_add(1, Ordering::SeqCst);
                    self.pause(10).await;
                }
                Err(error) => return Err(format!("not accepted: {error}")),
            }
        }
    }

    async fn one_run(&self) -> Result<(), String> {
        let plan = Plan::random(&self.env, 0, &mut 0);
        let id = RunId(self.env.id());
        let run = self.submit(id, &plan).await?;
        check("acknowledged run", &run.id(), &id)?;
        if self.below(16) == 0 {
            self.pause(20).await;
            run.cancel("planned").await.map_err(|error| format!("not cancelled: {error}"))?;
            return match tokio::time::timeout(GENEROUS, run.result()).await {
                Ok(Ok(_)) => Ok(()),
                Ok(Err(error)) => Err(format!("a cancelled run has no result: {error}")),
                Err(_) => Err("a cancelled run never ends".into()),
            };
        }
        self.acknowledged.lock().insert(id, plan.clone());
        self.delegations.fetch_add(plan.delegated().len(), Ordering::SeqCst);
        let result = match tokio::time::timeout(GENEROUS, run.result()).await {
            Ok(Ok(result)) => result,
            Ok(Err(error)) => return Err(format!("no result: {error}")),
            Err(_) => return Err(self.never_ending(&run, &plan).await),
        };
        self.book.judge(&plan, &result)?;
        let history = run.history().await.map_err(|error| format!("no history: {error}"))?;
        let folded = Run::of(history, &StateRules::default()).and_then(|run| run.result().cloned());
        check("folded result", &folded.as_deref(), &Some(&result))
    }

    async fn never_ending(&self, run: &RunHandle, plan: &Plan) -> String {
        let tree = self.board.tree().await.map_or_else(|error| error.to_string(), |tree| tree.to_string());
        let history = run
            .history()
            .await
            .map_or_else(|error| error.to_string(), |events| events.iter().map(|event| format!("\n{event}")).collect());
        format!("never-ending: {}, {:?}\n{tree}\n{plan:?}{history}", run.id(), self.board.load())
    }

    async fn submit_until_struck(self, enough: usize) -> Vec<String> {
        let mut failures = Vec::new();
        while failures.len() < 3
            && !(self.has_struck.load(Ordering::SeqCst) && self.delegations.load(Ordering::SeqCst) >= enough)
        {
            failures.extend(self.one_run().await.err());
        }
        failures
    }

    async fn consent(self) {
        while let Some(open) = people::next_approval(&self.board).await {
            // An earlier answer may have been the first.
            let _ = self.board.people().approve(open.id(), "ann").await;
        }
    }

    /// Nothing is under way, nothing is held, and everybody is there.
    async fn assert_nothing_left(&self) -> Result<(), String> {
        let began = Instant::now();
        loop {
            let (load, tree) = (self.board.load(), self.board.tree().await.map_err(|error| error.to_string())?);
            if load.is_idle() && all_run(&tree) {
                break;
            }
            if began.elapsed() > GENEROUS {
                return Err(format!("something is left: {load:?}\n{tree}"));
            }
            self.pause(10).await;
        }
        let unfinished = self.board.unfinished_runs().await.map_err(|error| error.to_string())?;
        check("unfinished runs", &unfinished.len(), &0)?;
        check("quarantined runs", &self.board.quarantined(), &BTreeMap::new())
    }

    async fn play(&self, actions: Vec<ChaosAction>, enough: usize) -> Vec<String> {
        let consent = tokio::spawn(self.clone().consent());
        let submitters: Vec<_> = (0..8).map(|_| tokio::spawn(self.clone().submit_until_struck(enough))).collect();
        self.strike_all(actions).await;
        let mut failures = Vec::new();
        for submitter in submitters {
            failures.extend(submitter.await.unwrap());
        }
        self.chaos.is_over.store(true, Ordering::SeqCst);
        if failures.is_empty() {
            failures.extend(self.assert_nothing_left().await.err());
        }
        let began = Instant::now();
        match tokio::time::timeout(GENEROUS, self.board.shutdown()).await {
            Ok(EndReason::Stopped) if began.elapsed() < Duration::from_secs(5) => {}
            Ok(reason) => failures.push(format!("the board ended after {:?}: {reason}", began.elapsed())),
            Err(_) => failures.push("the board does not shut down".into()),
        }
        consent.await.unwrap();
        failures.append(&mut self.book.entries.lock().wrong);
        let blocked = self.book.blocked.load(Ordering::SeqCst);
        self.chaos.struck.lock().insert(ChaosAction::BlockThread.kind(), (blocked, blocked));
        failures
    }
}

fn all_run(node: &TreeNode) -> bool {
    node.state == ActorState::Running && node.children.iter().all(all_run)
}

/// So many blows of each kind that a board survives, in an order of their own in each round.
fn actions(env: &Env, number: usize) -> Vec<ChaosAction> {
    let take = |actions: Vec<ChaosAction>, count: usize| -> Vec<ChaosAction> {
        (0..count).map(|at| actions[(number * count + at) % actions.len()].clone()).collect()
    };
    let counted = counted_actions().into_iter().flat_map(|actions| take(actions, 4));
    let mut actions: Vec<_> = counted.chain(take(other_actions(), 6)).collect();
    if number % 20 == 4 {
        actions.push(ChaosAction::BlockThread);
    }
    for at in (1..actions.len()).rev() {
        actions.swap(at, below(env, at + 1));
    }
    actions
}

#[test]
fn no_delegation_is_lost_counts_twice_or_never_ends() {
    let mut campaign = Campaign::begin("faults");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    let (wanted, mut delegations, mut runs, mut again) = (cases(1_000) as usize, 0, 0, 0);
    let mut struck: Struck = kinds().into_iter().map(|kind| (kind, (0, 0))).collect();
    let missed = |struck: &Struck| struck.iter().filter(|(_, (_, hits))| *hits == 0).count();
    for number in 0..usize::MAX {
        let is_covered = number >= MOST_ROUNDS || missed(&struck) == 0;
        if campaign.has_failed() || (delegations >= wanted && is_covered) {
            break;
        }
        let seed = campaign.random();
        let folder = (number % 4 == 3).then(|| tempfile::tempdir().unwrap());
        runtime.block_on(async {
            let round = Round::start(seed, folder.as_ref().map(tempfile::TempDir::path)).await;
            let failures = round.play(actions(&round.env, number), 200).await;
            let done = round.delegations.load(Ordering::SeqCst);
            (delegations, runs) = (delegations + done, runs + round.acknowledged.lock().len());
            again += round.again.load(Ordering::SeqCst);
            campaign.count_many((done as u64).saturating_sub(failures.len() as u64));
            failures.into_iter().for_each(|failure| campaign.count(Err(format!("round {number}: {failure}"))));
            for (kind, (all, hits)) in std::mem::take(&mut *round.chaos.struck.lock()) {
                let so_far = struck.entry(kind).or_default();
                *so_far = (so_far.0 + all, so_far.1 + hits);
            }
        });
    }
    for (kind, (all, hits)) in &struck {
        println!("{kind}: {all}, {hits} while delegations were open");
    }
    let sum = |of: fn(&(u64, u64)) -> u64| struck.values().map(of).sum::<u64>();
    let (all, hits, kinds, missed) = (sum(|(all, _)| *all), sum(|(_, hits)| *hits), struck.len(), missed(&struck));
    campaign.end(format_args!(
        "delegations in {runs} runs; {all} faults of {kinds} kinds, {hits} while delegations were open; \
         {again} submissions made again"
    ));
    assert_eq!(missed, 0, "kinds of faults that hit nothing in flight");
}
