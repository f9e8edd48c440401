//! Runs in memory: handoffs, delegations, fan-outs, and typed requests beside them.

use std::sync::Arc;

use callboard::messages::SendTo;
use callboard::prelude::*;
use callboard::storage::{Memory, Storage};
use parking_lot::Mutex;
use ractor::ActorRef;
use serde_json::json;
use tokio::runtime::Runtime;

use crate::effort::Effort;
use crate::measure::{cpu, each, interleaved, median, one_thread, run, two_workers, wall};
use crate::raw::{Double, call, doubler};
use crate::report::{Line, Report, Target};

const WIDTH: usize = 1_000;

/// The parts of a wide fan-out.
const WIDE: usize = 10_000;

/// Three agents that hand off with an update each.
pub(crate) fn chain_of_three() -> callboard::runtime::Builder {
    chain_of(|agent| agent)
}

/// The same, of agents that declare that they act outside only through their run.
pub(crate) fn chain_through_steps() -> callboard::runtime::Builder {
    chain_of(AgentSpec::acts_through_steps)
}

fn chain_of(as_they_are: impl Fn(AgentSpec) -> AgentSpec) -> callboard::runtime::Builder {
    let researcher = AgentSpec::new("researcher", |turn: Turn| async move {
        let notes = format!("notes on {}", turn.task().body);
        Ok(Command::update("artifacts", json!({ "notes": notes })).with_output("72 of 100").goto("writer"))
    });
    let writer = AgentSpec::new("writer", |_: Turn| async move {
        Ok(Command::update("artifacts", json!({ "text": "text.md" })).with_output("88 of 100").goto("editor"))
    });
    let editor = AgentSpec::new("editor", |_: Turn| async move {
        Ok(Command::update("artifacts", json!({ "final": "final.md" })).with_output("done"))
    });
    [researcher, writer, editor]
        .into_iter()
        .fold(Callboard::builder(), |builder, agent| builder.with(as_they_are(agent)))
}

pub(crate) fn chain_task() -> Task {
    Task::new("the design").to("researcher")
}

async fn finish(board: &Callboard, task: Task) -> callboard::messages::RunResult {
    let result = board.submit(task).await.unwrap().result().await.unwrap();
    assert_eq!(result.outcome, Outcome::Finished);
    result
}

/// One run after the other.
pub(crate) async fn in_turn(board: Callboard, task: fn() -> Task, count: usize) {
    for _ in 0..count {
        finish(&board, task()).await;
    }
}

/// One run after the other, whose turns are taken in the task of the caller.
pub(crate) async fn completed(board: Callboard, task: fn() -> Task, count: usize) {
    for _ in 0..count {
        let result = board.complete(task()).await.unwrap();
        assert_eq!(result.outcome, Outcome::Finished);
    }
}

/// How many callers complete runs at the same time.
const SUBMITTERS: usize = 16;

/// Several callers that complete runs, each one after the other. Returns the time for each run in µs.
async fn submitters(board: Callboard, task: fn() -> Task, count: usize) -> f64 {
    let before = wall();
    let each = (0..SUBMITTERS).map(|_| tokio::spawn(completed(board.clone(), task, count / SUBMITTERS)));
    for submitter in each.collect::<Vec<_>>() {
        submitter.await.unwrap();
    }
    (wall() - before) / count as f64 * 1e6
}

/// All at once.
pub(crate) async fn at_once(board: Callboard, task: fn() -> Task, count: usize) {
    let runs = (0..count).map(|_| {
        let board = board.clone();
        tokio::spawn(async move { finish(&board, task()).await })
    });
    for run in runs.collect::<Vec<_>>() {
        run.await.unwrap();
    }
}

/// A runtime with a board and a raw actor. Finished runs stay in a board's memory store, so long measurements use a new board for each
/// round.
struct Stage {
    runtime: Runtime,
    actor: ActorRef<Double>,
}

impl Stage {
    fn new(runtime: Runtime) -> Self {
        let actor = runtime.block_on(doubler());
        Self { runtime, actor }
    }

    /// Processor time of one raw call in µs.
    fn raw_call(&self, count: usize) -> f64 {
        each(cpu, count, || run(&self.runtime, call(self.actor.clone(), count))) * 1e6
    }

    /// What `work` measures with a new board.
    fn measured<F: Future<Output = f64> + std::marker::Send + 'static>(
        &self,
        builder: fn() -> callboard::runtime::Builder,
        work: impl FnOnce(Callboard) -> F + std::marker::Send + 'static,
    ) -> f64 {
        run(&self.runtime, async move {
            let board = builder().start().await.unwrap();
            // Warm up: the first runs grow the maps.
            finish(&board, chain_or_only(&board)).await;
            let measured = work(board.clone()).await;
            board.shutdown().await;
            measured
        })
    }

    /// Processor time in µs for each of `count` parts of `work` with a new board.
    fn cost<F: Future<Output = ()> + std::marker::Send + 'static>(
        &self,
        builder: fn() -> callboard::runtime::Builder,
        count: usize,
        work: impl FnOnce(Callboard) -> F + std::marker::Send + 'static,
    ) -> f64 {
        self.measured(builder, move |board| async move {
            let before = cpu();
            work(board).await;
            (cpu() - before) / count as f64 * 1e6
        })
    }
}

/// The cheapest task that every board here accepts.
fn chain_or_only(board: &Callboard) -> Task {
    match board.agents().names().as_slice() {
        [.., first] if first.as_str() == "writer" => chain_task(),
        _ => fan_of(0),
    }
}

pub(crate) fn chain(report: &mut Report, effort: Effort) {
    let stage = Stage::new(two_workers());
    let count = effort.of(20_000);
    let [chain, one_turn, call] = interleaved(
        effort.of(9),
        [
            &mut || stage.cost(chain_of_three, count, move |board| in_turn(board, chain_task, count)),
            &mut || {
                let last = || Task::new("the design").to("editor");
                stage.cost(chain_of_three, count, move |board| in_turn(board, last, count))
            },
            &mut || stage.raw_call(count * 4),
        ],
    );
    report.add(Line {
        name: "handoff chain of three, one at a time",
        value: chain,
        unit: "µs CPU",
        reference: Some(("raw ractor call", call)),
        target: Target::AtMost(15.0, Some(10.0)),
    });
    report.add(Line {
        name: "  per handoff (chain less a run of one turn)",
        value: (chain - one_turn) / 2.0,
        unit: "µs CPU",
        reference: Some(("raw ractor call", call)),
        target: Target::RatioAtMost(8.0, None),
    });
    report.add(Line {
        name: "  per handoff (half of the whole chain)",
        value: chain / 2.0,
        unit: "µs CPU",
        reference: Some(("raw ractor call", call)),
        target: Target::RatioAtMost(8.0, None),
    });
}

/// The same chains by callers that take the turns of their runs themselves.
pub(crate) fn completion(report: &mut Report, effort: Effort) {
    let (two, one) = (Stage::new(two_workers()), Stage::new(one_thread()));
    let count = effort.of(20_000);
    let work = move |board| completed(board, chain_task, count);
    let many = move |board| submitters(board, chain_task, count);
    let [on_two, on_one, many_on_two, many_on_one] = interleaved(
        effort.of(9),
        [
            &mut || two.cost(chain_of_three, count, work),
            &mut || one.cost(chain_of_three, count, work),
            &mut || two.measured(chain_of_three, many),
            &mut || one.measured(chain_of_three, many),
        ],
    );
    report.add(Line {
        name: "chain completed by its caller",
        value: on_two,
        unit: "µs CPU",
        reference: Some(("on one thread", on_one)),
        target: Target::AtMost(8.0, Some(6.4)),
    });
    report.add(Line {
        name: "  on one thread",
        value: on_one,
        unit: "µs CPU",
        reference: None,
        target: Target::AtMost(7.0, None),
    });
    report.add(Line {
        name: "  by 16 submitters on two workers",
        value: many_on_two,
        unit: "µs wall",
        reference: Some(("on one thread", many_on_one)),
        target: Target::AtMost(6.25, None),
    });
    report.add(Line {
        name: "  by 16 submitters: two workers against one",
        value: many_on_one,
        unit: "µs wall",
        reference: Some(("on two workers", many_on_two)),
        target: Target::RatioAtLeast(1.8),
    });
}

/// A lead that delegates as many times as its input says.
fn delegating() -> callboard::runtime::Builder {
    Callboard::builder()
        .agent("lead", |turn: Turn| async move {
            for _ in 0..turn.input::<u32>()? {
                turn.delegate("worker", "double it").input(21).await?;
            }
            Ok(Command::output("done"))
        })
        .agent("worker", |turn: Turn| async move { Ok(Command::output(turn.input::<u64>()? * 2)) })
}

fn delegations(count: usize) -> Task {
    let limits = Limits { handoffs: u32::MAX, ..Limits::default() };
    Task::new("work").to("lead").input(count).limits(limits)
}

pub(crate) fn delegation(report: &mut Report, effort: Effort) {
    let stage = Stage::new(two_workers());
    // Ten per run: enough that the run itself hardly counts, and few enough that the record of the turn stays small.
    let (runs, each_run) = (effort.of(4_000), 10);
    let [many, none, call] = interleaved(
        effort.of(9),
        [
            &mut || stage.cost(delegating, runs, move |board| in_turn(board, || delegations(10), runs)),
            &mut || stage.cost(delegating, runs, move |board| in_turn(board, || delegations(0), runs)),
            &mut || stage.raw_call(runs * 20),
        ],
    );
    report.add(Line {
        name: "delegation round trip",
        value: (many - none) / f64::from(each_run),
        unit: "µs CPU",
        reference: Some(("raw ractor call", call)),
        target: Target::RatioAtMost(12.0, Some(8.0)),
    });
}

pub(crate) fn ask(report: &mut Report, effort: Effort) {
    let stage = Stage::new(two_workers());
    let count = effort.of(200_000);
    let board = run(&stage.runtime, async {
        let doubler = AgentSpec::typed("doubler", |number: u64| async move { Ok(number * 2) });
        Callboard::builder().with(doubler).start().await.unwrap()
    });
    let asking = |board: Callboard| async move {
        for number in 0..count as u64 {
            assert_eq!(board.ask::<u64, u64>("doubler", number).await.unwrap(), number * 2);
        }
    };
    let [ask, call] = interleaved(
        effort.of(9),
        [&mut || each(cpu, count, || run(&stage.runtime, asking(board.clone()))) * 1e6, &mut || stage.raw_call(count)],
    );
    report.add(Line {
        name: "typed ask outside any run",
        value: ask,
        unit: "µs CPU",
        reference: Some(("raw ractor call", call)),
        target: Target::RatioAtMost(3.0, None),
    });
}

pub(crate) fn crowd(report: &mut Report, effort: Effort) {
    let (two, one) = (Stage::new(two_workers()), Stage::new(one_thread()));
    let rounds = effort.of(20);
    let count = rounds * WIDTH;
    let crowd = move |board: Callboard| async move {
        for _ in 0..rounds {
            at_once(board.clone(), chain_task, WIDTH).await;
        }
    };
    let [two_at_once, one_at_once, one_in_turn] = interleaved(
        effort.of(9),
        [&mut || two.cost(chain_of_three, count, crowd), &mut || one.cost(chain_of_three, count, crowd), &mut || {
            one.cost(chain_of_three, count, move |board| in_turn(board, chain_task, count))
        }],
    );
    report.add(Line {
        name: "handoff chain, 1,000 at once",
        value: two_at_once,
        unit: "µs CPU",
        reference: None,
        target: Target::AtMost(20.0, Some(12.0)),
    });
    report.add(Line {
        name: "  on one thread, against one at a time",
        value: one_at_once,
        unit: "µs CPU",
        reference: Some(("one at a time, one thread", one_in_turn)),
        target: Target::RatioAtMost(1.0, None),
    });
}

/// A lead that sends as many parts as its input says.
pub(crate) fn fanning() -> callboard::runtime::Builder {
    Callboard::builder()
        .agent("lead", |turn: Turn| async move {
            Ok(Command::new().goto_many((0..turn.input::<u64>()?).map(|part| SendTo::new("worker", part))))
        })
        .agent("worker", |turn: Turn| async move {
            let part: u64 = turn.input()?;
            Ok(Command::output(part * part).with("messages", part))
        })
}

fn fan_of(width: usize) -> Task {
    let limits = Limits { handoffs: u32::MAX, ..Limits::default() };
    Task::new("squares").to("lead").input(width).limits(limits)
}

pub(crate) fn fan() -> Task {
    fan_of(WIDTH)
}

pub(crate) fn wide_fan() -> Task {
    fan_of(WIDE)
}

pub(crate) fn fan_out(report: &mut Report, effort: Effort) {
    let stage = Stage::new(two_workers());
    let count = effort.of(60);
    let spawning = |count: usize| async move {
        for _ in 0..count {
            let tasks: Vec<_> = (0..WIDTH).map(|part| tokio::spawn(async move { part * part })).collect();
            for task in tasks {
                std::hint::black_box(task.await.unwrap());
            }
        }
    };
    let wide = effort.of(6);
    let [fan_out, spawn, branch] = interleaved(
        effort.of(9),
        [
            &mut || stage.cost(fanning, count, move |board| in_turn(board, fan, count)) / 1e3,
            &mut || each(cpu, count, || run(&stage.runtime, spawning(count))) * 1e3,
            &mut || stage.cost(fanning, wide * WIDE, move |board| in_turn(board, wide_fan, wide)),
        ],
    );
    report.add(Line {
        name: "fan-out to 1,000 and join",
        value: fan_out,
        unit: "ms CPU",
        reference: Some(("1,000 tokio tasks", spawn)),
        target: Target::AtMost(6.0, Some(2.0)),
    });
    report.add(Line {
        name: "  to 10,000: a branch",
        value: branch,
        unit: "µs CPU",
        reference: Some(("to 1,000", fan_out)),
        target: Target::AtMost(2.5, None),
    });
}

/// The turns of a run that hand a large value in the state on.
const HANDED_ON: usize = 1_000;

/// The value is written once, and each turn writes a small one to another channel.
pub(crate) fn handing_on() -> callboard::runtime::Builder {
    let to = |other: &'static str| {
        move |turn: Turn| async move {
            let number: usize = turn.input()?;
            let command = Command::update("count", number).with_output(number + 1);
            Ok(if number < HANDED_ON { command.goto(other) } else { command })
        }
    };
    Callboard::builder()
        .agent("lead", |turn: Turn| async move {
            let text = "x".repeat(turn.input()?);
            Ok(Command::update("kept", text).with_output(1).goto("ping"))
        })
        .agent("ping", to("pong"))
        .agent("pong", to("ping"))
}

fn handed_on(bytes: usize) -> Task {
    let limits = Limits { handoffs: u32::MAX, ..Limits::default() };
    Task::new("count").to("lead").input(bytes).limits(limits)
}

pub(crate) fn large_state() -> Task {
    handed_on(1_000_000)
}

pub(crate) fn small_state() -> Task {
    handed_on(100)
}

/// Turns that hand 1 MB of state on, which they do not change.
pub(crate) fn state(report: &mut Report, effort: Effort) {
    let stage = Stage::new(one_thread());
    let runs = effort.of(10);
    let [large, small] = interleaved(
        effort.of(9),
        [&mut || stage.cost(handing_on, runs * HANDED_ON, move |board| in_turn(board, large_state, runs)), &mut || {
            stage.cost(handing_on, runs * HANDED_ON, move |board| in_turn(board, small_state, runs))
        }],
    );
    report.add(Line {
        name: "handoff with 1 MB of state, a turn",
        value: large,
        unit: "µs CPU",
        reference: Some(("with 100 bytes", small)),
        target: Target::AtMost(3.0, None),
    });
}

/// Hands a growing state back and forth, and records the time at some turns.
pub(crate) fn long_run(report: &mut Report, effort: Effort) {
    const WINDOW: u32 = 1_000;
    const STARTS: [u32; 2] = [10, 10_000];
    let mut costs = [Vec::new(), Vec::new()];
    for _ in 0..=effort.of(24) {
        let times = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&times);
        one_thread().block_on(async move {
            let to = |other: &'static str, noted: Arc<Mutex<Vec<f64>>>| {
                move |turn: Turn| {
                    let noted = Arc::clone(&noted);
                    async move {
                        let number: u32 = turn.input()?;
                        if STARTS.iter().any(|start| number == *start || number == start + WINDOW) {
                            noted.lock().push(cpu());
                        }
                        let command = Command::update("messages", number).with_output(number + 1);
                        let has_more = number < STARTS[1] + WINDOW;
                        Ok(if has_more { command.goto(other) } else { command })
                    }
                }
            };
            let storage: Arc<dyn Storage> = Arc::new(Memory::default());
            let builder = Callboard::builder().storage(storage);
            let builder = builder.agent("ping", to("pong", Arc::clone(&noted))).agent("pong", to("ping", noted));
            let board = builder.start().await.unwrap();
            let limits = Limits { handoffs: u32::MAX, ..Limits::default() };
            finish(&board, Task::new("count").to("ping").input(1).limits(limits)).await;
            board.shutdown().await;
        });
        let times = times.lock();
        for (window, costs) in times.chunks(2).zip(&mut costs) {
            costs.push((window[1] - window[0]) / f64::from(WINDOW) * 1e6);
        }
    }
    let [early, late] = costs.map(median);
    report.add(Line {
        name: "turn 10,000 of a run",
        value: late,
        unit: "µs CPU",
        reference: Some(("turn 10 of the same run", early)),
        target: Target::Within(0.2),
    });
}

/// Repeats one case for some seconds and prints its cost; the prefix `one-` runs it on one thread.
pub(crate) fn repeat(what: &str, for_seconds: f64) {
    let end = wall() + for_seconds;
    let stage = Stage::new(if what.starts_with("one-") { one_thread() } else { two_workers() });
    // A profiler that counts instructions is slow: with a time of zero, few repetitions are done.
    let count = if for_seconds > 0.0 { 8_000 } else { 1_000 };
    loop {
        let cost = match what.trim_start_matches("one-") {
            "chain" => stage.cost(chain_of_three, count, move |board| in_turn(board, chain_task, count)),
            "complete" => stage.cost(chain_of_three, count, move |board| completed(board, chain_task, count)),
            "submitters" => stage.measured(chain_of_three, move |board| submitters(board, chain_task, count)),
            "crowd" => stage.cost(chain_of_three, count, move |board| async move {
                for _ in 0..count / WIDTH {
                    at_once(board.clone(), chain_task, WIDTH).await;
                }
            }),
            "delegation" => stage.cost(delegating, count, move |board| in_turn(board, || delegations(10), count / 10)),
            "fan-out" => stage.cost(fanning, count / WIDTH, move |board| in_turn(board, fan, count / WIDTH)),
            "wide" => stage.cost(fanning, count.max(WIDE), move |board| in_turn(board, wide_fan, count.div_ceil(WIDE))),
            "state" => stage.cost(handing_on, count, move |board| in_turn(board, large_state, count / HANDED_ON)),
            "raw" => stage.raw_call(count * 10),
            other => panic!("there is no loop named {other}"),
        };
        println!("{cost:.2} µs");
        if wall() >= end {
            return;
        }
    }
}
