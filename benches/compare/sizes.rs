//! Resident memory of runs, agents and actors, and the time to create them. Each value is measured in its own process, so that no case
//! reuses memory that another has freed.

use std::process::Command as Process;

use callboard::prelude::*;

use crate::effort::Effort;
use crate::measure::{median, resident, run, two_workers, wall};
use crate::raw::doubler;
use crate::report::{Line, Report, Target};

/// The argument with which this program is started as a child that measures one thing.
pub(crate) const CHILD: &str = "--measure";

const KIB: f64 = 1024.0;

/// The cost of each of `count` things, as a child process has measured it.
pub(crate) struct Each {
    pub(crate) bytes: f64,
    /// The time to create it.
    pub(crate) seconds: f64,
}

impl Each {
    pub(crate) fn of(what: &str, count: usize) -> Self {
        let program = std::env::current_exe().unwrap();
        let output = Process::new(program).args([CHILD, what, &count.to_string()]).output().unwrap();
        assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
        let printed = String::from_utf8(output.stdout).unwrap();
        let mut numbers = printed.split_whitespace().map(|number| number.parse().unwrap());
        Self { bytes: numbers.next().unwrap(), seconds: numbers.next().unwrap() }
    }

    /// Prints it, for the process that has started this one.
    pub(crate) fn print(&self) {
        println!("{} {}", self.bytes, self.seconds);
    }
}

/// Memory and time before something is created.
pub(crate) struct Before {
    bytes: f64,
    seconds: f64,
}

impl Before {
    pub(crate) fn now() -> Self {
        Self { bytes: resident(), seconds: wall() }
    }

    pub(crate) fn each(&self, count: usize) -> Each {
        let count = count as f64;
        Each { bytes: (resident() - self.bytes) / count, seconds: (wall() - self.seconds) / count }
    }
}

pub(crate) fn waiting_runs(report: &mut Report, effort: Effort) {
    let count = effort.of(10_000);
    let each = median_of("waiting", count);
    report.add(Line {
        name: "run in flight whose turn waits (10,000)",
        value: each / KIB,
        unit: "KiB",
        reference: None,
        target: Target::AtMost(6.0, Some(4.0)),
    });
}

/// The bytes of each, as the median of three processes.
pub(crate) fn median_of(what: &str, count: usize) -> f64 {
    median((0..3).map(|_| Each::of(what, count).bytes).collect())
}

pub(crate) fn idle_agents(report: &mut Report, effort: Effort) {
    let count = effort.of(100_000);
    let [agent, actor] = ["agents", "actors"].map(|what| Each::of(what, count));
    report.add(Line {
        name: "idle agent (100,000)",
        value: agent.bytes,
        unit: "bytes",
        reference: Some(("raw ractor actor", actor.bytes)),
        target: Target::RatioAtMost(1.5, None),
    });
    report.add(Line {
        name: "adding an agent (100,000)",
        value: agent.seconds * 1e6,
        unit: "µs",
        reference: Some(("spawning a ractor actor", actor.seconds * 1e6)),
        target: Target::None,
    });
}

/// Runs whose only turn waits for an answer.
pub(crate) fn waiting(count: usize) -> Each {
    run(&two_workers(), async move {
        let asking = |turn: Turn| async move { Ok(Command::output(turn.people().ask("which one?").await?)) };
        let board = Callboard::builder()
            .agent("asker", asking)
            .capacity(|capacity| capacity.runs_in_flight(count + 1))
            .start()
            .await
            .unwrap();
        let before = Before::now();
        let mut runs = Vec::with_capacity(count);
        for _ in 0..count {
            runs.push(board.submit(Task::new("choose").to("asker")).await.unwrap().id());
        }
        for id in runs {
            while board.run(id).pending().await.is_empty() {
                tokio::task::yield_now().await;
            }
        }
        before.each(count)
    })
}

pub(crate) fn agents(count: usize) -> Each {
    run(&two_workers(), async move {
        let board = Callboard::builder().start().await.unwrap();
        let before = Before::now();
        for number in 0..count {
            let idle = |_: Turn| async { Ok(Command::new()) };
            board.agents().spawn(AgentSpec::new(&format!("agent-{number}"), idle)).await.unwrap();
        }
        before.each(count)
    })
}

pub(crate) fn actors(count: usize) -> Each {
    run(&two_workers(), async move {
        let mut actors = Vec::with_capacity(count);
        let before = Before::now();
        for _ in 0..count {
            actors.push(doubler().await);
        }
        let each = before.each(count);
        drop(actors);
        each
    })
}
