//! Boards with very many agents: dormant ones, one turn of each agent, and the shutdown. Each value is measured in its own process.

use callboard::prelude::*;

use crate::effort::Effort;
use crate::measure::{run, two_workers};
use crate::report::{Line, Report, Target};
use crate::sizes::{Before, Each};

fn at_most(report: &mut Report, name: &'static str, value: f64, unit: &'static str, most: f64) {
    report.add(Line { name, value, unit, reference: None, target: Target::AtMost(most, None) });
}

pub(crate) fn dormant(report: &mut Report, effort: Effort) {
    let each = Each::of("dormant", effort.of(1_000_000));
    at_most(report, "dormant agent (1,000,000)", each.bytes, "bytes", 640.0);
    at_most(report, "declaring a dormant agent (1,000,000)", each.seconds * 1e6, "µs", 5.0);
}

pub(crate) fn spread(report: &mut Report, effort: Effort) {
    let count = effort.of(100_000);
    let [awake, dormant] = ["spread", "woken"].map(|what| Each::of(what, count).seconds * 1e6);
    at_most(report, "one turn each over 100,000 agents", awake, "µs", 7.0);
    report.add(Line {
        name: "first turn of a dormant agent (100,000)",
        value: dormant,
        unit: "µs",
        reference: Some(("first turn of an awake one", awake)),
        target: Target::None,
    });
    at_most(report, "waking a dormant agent (100,000)", dormant - awake, "µs", 30.0);
}

pub(crate) fn shutdown(report: &mut Report, effort: Effort) {
    let count = effort.of(100_000);
    let seconds = Each::of("shutdown", count).seconds * count as f64;
    at_most(report, "shutting down 100,000 agents", seconds, "s", 0.5);
}

async fn done(_: Turn) -> Result<Command, TurnError> {
    Ok(Command::new())
}

fn names(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|number| format!("agent-{number}"))
}

/// A board with so many agents.
async fn board(count: usize, are_dormant: bool) -> Callboard {
    let board = Callboard::builder().start().await.unwrap();
    if are_dormant {
        board.agents().declare(&AgentSpec::new("agent", done), names(count)).await.unwrap();
    } else {
        for name in names(count) {
            board.agents().spawn(AgentSpec::new(&name, done)).await.unwrap();
        }
    }
    board
}

pub(crate) fn declared(count: usize) -> Each {
    run(&two_workers(), async move {
        let board = Callboard::builder().start().await.unwrap();
        let before = Before::now();
        board.agents().declare(&AgentSpec::new("agent", done), names(count)).await.unwrap();
        before.each(count)
    })
}

pub(crate) fn one_turn_each(count: usize, are_dormant: bool) -> Each {
    run(&two_workers(), async move {
        let board = board(count, are_dormant).await;
        let before = Before::now();
        for name in names(count) {
            board.submit(Task::new("x").to(&name)).await.unwrap().result().await.unwrap();
        }
        before.each(count)
    })
}

pub(crate) fn shut_down(count: usize) -> Each {
    run(&two_workers(), async move {
        let board = board(count, false).await;
        let before = Before::now();
        board.shutdown().await;
        before.each(count)
    })
}
