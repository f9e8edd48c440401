//! Resident memory. Each figure comes from a process of its own, so that nobody reuses what another has freed.

use std::process::Command as Process;

use callboard::prelude::*;

use crate::Effort;
use crate::measure::{median, resident, run, two_workers};
use crate::raw::doubler;
use crate::report::{Line, Report, Target};

/// The argument under which this program measures one thing and prints it.
pub(crate) const CHILD: &str = "--measure";

const KIB: f64 = 1024.0;

/// Bytes for each of `count` things, as a process of its own has measured them.
fn bytes_each(what: &str, count: usize) -> f64 {
    let program = std::env::current_exe().unwrap();
    let output = Process::new(program).args([CHILD, what, &count.to_string()]).output().unwrap();
    assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

pub(crate) fn child(arguments: &[String]) {
    let (what, count) = (arguments[0].as_str(), arguments[1].parse().unwrap());
    let growth = match what {
        "waiting" => waiting(count),
        "agents" => agents(count),
        "actors" => actors(count),
        other => panic!("nothing is named {other}"),
    };
    println!("{growth}");
}

pub(crate) fn waiting_runs(report: &mut Report, effort: Effort) {
    let count = effort.of(10_000);
    let each = median((0..3).map(|_| bytes_each("waiting", count)).collect());
    report.add(Line {
        name: "run in flight whose turn waits (10,000)",
        value: each / KIB,
        unit: "KiB",
        reference: None,
        target: Target::AtMost(6.0, Some(4.0)),
    });
}

pub(crate) fn idle_agents(report: &mut Report, effort: Effort) {
    let count = effort.of(100_000);
    let [agent, actor] = ["agents", "actors"].map(|what| bytes_each(what, count));
    report.add(Line {
        name: "idle agent (100,000)",
        value: agent,
        unit: "bytes",
        reference: Some(("raw ractor actor", actor)),
        target: Target::RatioAtMost(1.5, None),
    });
}

/// Runs whose one turn waits for an answer.
fn waiting(count: usize) -> f64 {
    run(&two_workers(), async move {
        let asking = |turn: Turn| async move { Ok(Command::output(turn.ask("which one?").await?)) };
        let board = Callboard::builder().agent("asker", asking).runs_in_flight(count + 1).start().await.unwrap();
        let before = resident();
        let mut runs = Vec::with_capacity(count);
        for _ in 0..count {
            runs.push(board.submit(Task::new("choose").to("asker")).await.unwrap().id());
        }
        for id in runs {
            while board.run(id).questions().await.is_empty() {
                tokio::task::yield_now().await;
            }
        }
        (resident() - before) / count as f64
    })
}

fn agents(count: usize) -> f64 {
    run(&two_workers(), async move {
        let board = Callboard::builder().start().await.unwrap();
        let before = resident();
        for number in 0..count {
            let idle = |_: Turn| async { Ok(Command::new()) };
            board.spawn(AgentSpec::new(&format!("agent-{number}"), idle)).await.unwrap();
        }
        (resident() - before) / count as f64
    })
}

fn actors(count: usize) -> f64 {
    run(&two_workers(), async move {
        let mut actors = Vec::with_capacity(count);
        let before = resident();
        for _ in 0..count {
            actors.push(doubler().await);
        }
        let growth = resident() - before;
        drop(actors);
        growth / count as f64
    })
}
