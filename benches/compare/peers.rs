//! callboard's side of `cargo xtask compare-peers`, which runs the same work in callboard and in other frameworks, in turn. Each of them is
//! a program that does one case: for each line that it reads it measures once, and answers with a line.

use std::io::{BufRead, Write};

use callboard::messages::{RunResult, SendTo};
use callboard::prelude::*;
use callboard::runtime::Builder;
use tempfile::TempDir;

use crate::measure::{cpu, resident, run, two_workers, wall};
use crate::runs::{chain_of_three, chain_task, chain_through_steps};

/// The argument with which `cargo xtask compare-peers` starts this program.
pub(crate) const SIDE: &str = "--side";

/// How long a measurement takes at least, in seconds; the other sides have the same.
const LEAST: f64 = 0.3;

const WIDTH: usize = 1_000;

/// Requests in a run.
const REQUESTS: usize = 10;

/// Runs that wait at once.
const WAITING: usize = 10_000;

/// Measures a case once for each line of the standard input.
pub(crate) fn serve(case: &str) {
    for line in std::io::stdin().lock().lines() {
        line.unwrap();
        let numbers = match case {
            "chain" => time(Kept::Memory, chain_of_three, 500, |board| chains(board, 500)),
            "crowd" => time(Kept::Memory, chain_of_three, WIDTH, crowd),
            "fan-out" => time(Kept::Memory, fanning, 1, fan),
            "request" => time(Kept::Memory, requesting, 100 * REQUESTS, |board| requests(board, 100)),
            "ask" => time(Kept::Memory, requesting, 1_000, asks),
            "durable-chain" => time(Kept::Disk, chain_of_three, 100, |board| chains(board, 100)),
            "durable-chain-steps" => time(Kept::Disk, chain_through_steps, 100, |board| chains(board, 100)),
            "interrupt" => time(Kept::Disk, asking, 20, |board| answered(board, 20)),
            "waiting" => memory(),
            other => panic!("there is no case {other}"),
        };
        println!("{numbers}");
        std::io::stdout().flush().unwrap();
    }
}

/// Where the journals of a board are.
enum Kept {
    Memory,
    Disk,
}

/// The time and the processor time in seconds for each of the `parts` of `work`, which is repeated until [`LEAST`] has passed. Each
/// measurement has a new board.
fn time<F: Future<Output = ()> + std::marker::Send + 'static>(
    kept: Kept,
    builder: fn() -> Builder,
    parts: usize,
    work: impl Fn(Callboard) -> F + std::marker::Send + 'static,
) -> String {
    let runtime = two_workers();
    let (builder, _folder) = stored(kept, builder());
    run(&runtime, async move {
        let board = builder.start().await.unwrap();
        work(board.clone()).await;
        let (began, processor, mut done) = (wall(), cpu(), 0);
        while wall() - began < LEAST {
            work(board.clone()).await;
            done += parts;
        }
        let each = |seconds: f64| seconds / done as f64;
        let numbers = format!("{:e} {:e}", each(wall() - began), each(cpu() - processor));
        board.shutdown().await;
        numbers
    })
}

fn stored(kept: Kept, builder: Builder) -> (Builder, Option<TempDir>) {
    match kept {
        Kept::Memory => (builder, None),
        Kept::Disk => {
            let folder = tempfile::tempdir().unwrap();
            (builder.storage(Sled::open(folder.path()).unwrap()), Some(folder))
        }
    }
}

/// Submits a task and waits for its result, as docs/embed.md advises a caller that waits anyway.
async fn finish(board: &Callboard, task: Task) -> RunResult {
    finished(board.complete(task).await.unwrap())
}

fn finished(result: RunResult) -> RunResult {
    assert_eq!(result.outcome, Outcome::Finished);
    result
}

/// A task for many handoffs.
fn wide(body: &str) -> Task {
    Task::new(body).to("lead").limits(Limits { handoffs: u32::MAX, ..Limits::default() })
}

async fn chain(board: &Callboard) {
    let result = finish(board, chain_task()).await;
    assert_eq!(result.output, "done");
    assert_eq!(result.state["artifacts"].as_object().unwrap().len(), 3);
}

/// One after the other.
async fn chains(board: Callboard, count: usize) {
    for _ in 0..count {
        chain(&board).await;
    }
}

/// All at once.
async fn crowd(board: Callboard) {
    let chains = (0..WIDTH).map(|_| {
        let board = board.clone();
        tokio::spawn(async move { chain(&board).await })
    });
    for chain in chains.collect::<Vec<_>>() {
        chain.await.unwrap();
    }
}

fn fanning() -> Builder {
    Callboard::builder()
        .agent("lead", |turn: Turn| async move {
            Ok(Command::new().goto_many((0..turn.input::<u64>()?).map(|part| SendTo::new("worker", part))))
        })
        .agent("worker", |turn: Turn| async move {
            let part: u64 = turn.input()?;
            Ok(Command::update("messages", part * part))
        })
}

async fn fan(board: Callboard) {
    let result = finish(&board, wide("squares").input(WIDTH)).await;
    assert_eq!(result.state["messages"].as_array().unwrap().len(), WIDTH);
}

fn requesting() -> Builder {
    Callboard::builder()
        .agent("lead", |turn: Turn| async move {
            for _ in 0..turn.input::<u32>()? {
                assert_eq!(turn.delegate("worker", "double it").input(21).await?, 42);
            }
            Ok(Command::output("done"))
        })
        .agent("worker", |turn: Turn| async move { Ok(Command::output(turn.input::<u64>()? * 2)) })
        .with(AgentSpec::typed("doubler", |number: u64| async move { Ok(number * 2) }))
}

/// Runs of [`REQUESTS`] delegations each.
async fn requests(board: Callboard, runs: usize) {
    for _ in 0..runs {
        assert_eq!(finish(&board, wide("work").input(REQUESTS)).await.output, "done");
    }
}

/// Typed requests to an agent, outside of any run.
async fn asks(board: Callboard) {
    for number in 0..1_000_u64 {
        assert_eq!(board.ask::<u64, u64>("doubler", number).await.unwrap(), number * 2);
    }
}

/// An agent that does something, and one that asks a person.
fn asking() -> Builder {
    Callboard::builder()
        .agent("writer", |_: Turn| async move { Ok(Command::update("artifacts", "text.md").goto("editor")) })
        .agent("editor", |turn: Turn| async move { Ok(Command::output(turn.people().ask("is it good?").await?)) })
        .capacity(|capacity| capacity.runs_in_flight(WAITING + 1))
}

/// Runs that are answered as soon as they wait.
async fn answered(board: Callboard, count: usize) {
    for _ in 0..count {
        let run = board.submit(Task::new("the design").to("writer")).await.unwrap();
        let open = run.next_pending().await.unwrap().unwrap();
        board.people().answer(&open, "yes", "ann").await.unwrap();
        assert_eq!(run.result().await.unwrap().output, "yes");
    }
}

/// The resident memory of each run that waits for a person, in bytes. The first measurement of a process is the one that counts, as
/// later ones use memory again.
fn memory() -> String {
    run(&two_workers(), async move {
        let board = asking().start().await.unwrap();
        let before = resident();
        let mut runs = Vec::with_capacity(WAITING);
        for _ in 0..WAITING {
            runs.push(board.submit(Task::new("the design").to("writer")).await.unwrap().id());
        }
        for id in runs {
            while board.run(id).pending().await.is_empty() {
                tokio::task::yield_now().await;
            }
        }
        format!("{:e}", (resident() - before) / WAITING as f64)
    })
}
