//! Compares callboard with the crates that it is built on, raw ractor, raw tokio and raw sled, in the same process and in interleaved
//! rounds. It prints one line per case; the table with the machine that it was measured on is in `docs/performance.md`.
//!
//! ```text
//! cargo bench --bench compare                 every case; minutes, and a few gigabytes of memory and disk
//! cargo bench --bench compare -- --quick      fewer rounds, and without the largest cases
//! cargo bench --bench compare -- chain        the cases whose names contain "chain"
//! cargo bench --bench compare -- --json       the same lines as JSON
//! cargo bench --bench compare -- --workers 1  on runtimes with one worker, and not with two; before other options or behind them
//! cargo bench --bench compare -- --loop chain 20    one case over and over for 20 s, for a profiler
//! cargo bench --bench compare -- growth       how costs grow with what else there is; --svg FOLDER writes the picture
//! cargo bench --bench compare -- --loop durable 3   durable chains, 3 times 1,000 at once; `durable-one 500`: one at a time;
//!                                             `steps`, `steps-one`: of agents that act through steps; `raw-sled 3`: what raw
//!                                             sled does for them; `map 3`: 3 maps over 1,000; `iteration 3`: 3 runs of an
//!                                             agent with a model and 100 iterations
//! ```
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot continue stops")]

mod agents;
mod allocator;
mod charts;
mod contexts;
mod crowds;
mod disks;
mod effort;
mod growth;
mod measure;
mod peers;
mod raw;
mod report;
mod runs;
mod sizes;
mod workflows;

use std::num::NonZeroU8;
use std::os::unix::process::CommandExt as _;
use std::process::{Command as Process, ExitCode};

use effort::Effort;
use report::Report;

/// Measures one case or several that share their setup.
type Measure = fn(&mut Report, Effort);

/// The cases, by the names that a filter is compared with.
const CASES: [(&str, Measure); 26] = [
    ("chain", runs::chain),
    ("completed chain", runs::completion),
    ("delegation", runs::delegation),
    ("ask", runs::ask),
    ("crowd chain 1,000", runs::crowd),
    ("waiting runs memory", sizes::waiting_runs),
    ("fan-out", runs::fan_out),
    ("state handed on", runs::state),
    ("durable chain", disks::chain),
    ("context", contexts::context),
    ("long run", runs::long_run),
    ("workflow planning", workflows::planning),
    ("workflow drawing", workflows::drawing),
    ("workflow node", workflows::node),
    ("workflow map", workflows::fan),
    ("workflow loop", workflows::looping),
    ("workflow disk", workflows::disk),
    ("workflow people", workflows::people),
    ("agent loop", agents::iteration),
    ("agent memory", agents::waiting),
    ("agent words", agents::words),
    ("start", disks::start),
    ("idle agents memory", sizes::idle_agents),
    ("dormant agents memory", crowds::dormant),
    ("agents one turn each", crowds::spread),
    ("agents shutdown", crowds::shutdown),
];

/// The cases that have no other runtime than one of one thread.
const ON_ONE_THREAD: [&str; 4] = ["state handed on", "long run", "workflow loop", "agent loop"];

/// Starts the benchmark again in the place of this process, with so many workers.
fn with_workers(workers: &str, arguments: &[String]) -> ExitCode {
    let Ok(workers) = workers.parse::<NonZeroU8>() else {
        eprintln!("--workers takes a number from 1 to 255, and has \"{workers}\"");
        return ExitCode::FAILURE;
    };
    let mut again = Process::new(std::env::current_exe().unwrap());
    panic!("{}", again.args(arguments).env(measure::WORKERS, workers.to_string()).exec());
}

/// Measures one thing in this process, as a child of the benchmark, and prints the result.
fn child(what: &str, count: usize) {
    let each = match what {
        "waiting" => sizes::waiting(count),
        "agents" => sizes::agents(count),
        "actors" => sizes::actors(count),
        "dormant" => crowds::declared(count),
        "spread" => crowds::one_turn_each(count, false),
        "woken" => crowds::one_turn_each(count, true),
        "shutdown" => crowds::shut_down(count),
        "unanswered" => agents::unanswered(count),
        "connected" => agents::connected(count),
        other => panic!("there is no case {other}"),
    };
    each.print();
}

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "--workers") {
        let option: Vec<String> = arguments.drain(at..arguments.len().min(at + 2)).collect();
        return with_workers(option.get(1).map_or("", String::as_str), &arguments);
    }
    if let Some(at) = arguments.iter().position(|argument| argument == sizes::CHILD) {
        child(&arguments[at + 1], arguments[at + 2].parse().unwrap());
        return ExitCode::SUCCESS;
    }
    if let Some(at) = arguments.iter().position(|argument| argument == peers::SIDE) {
        peers::serve(&arguments[at + 1]);
        return ExitCode::SUCCESS;
    }
    if let Some(at) = arguments.iter().position(|argument| argument == "--loop") {
        let (what, times) = (&*arguments[at + 1], &*arguments[at + 2]);
        match what {
            "durable" => disks::repeat_chains(runs::chain_of_three, times.parse().unwrap()),
            "durable-one" => disks::repeat_one(runs::chain_of_three, times.parse().unwrap()),
            "steps" => disks::repeat_chains(runs::chain_through_steps, times.parse().unwrap()),
            "steps-one" => disks::repeat_one(runs::chain_through_steps, times.parse().unwrap()),
            "raw-sled" => disks::repeat_rows(times.parse().unwrap()),
            "map" => workflows::repeat_maps(times.parse().unwrap()),
            "iteration" => agents::repeat(times.parse().unwrap()),
            _ => runs::repeat(what, times.parse().unwrap()),
        }
        return ExitCode::SUCCESS;
    }
    if let Some(at) = arguments.iter().position(|argument| argument == growth::GROWTH) {
        arguments.remove(at);
        growth::report(arguments);
        return ExitCode::SUCCESS;
    }
    let mut take = |flag: &str| {
        let before = arguments.len();
        arguments.retain(|argument| argument != flag);
        arguments.len() < before
    };
    let effort = if take("--quick") { Effort::Quick } else { Effort::Full };
    let as_json = take("--json");
    if !as_json {
        println!("allocator: {}; workers: {}", allocator::NAME, measure::workers());
    }
    let mut report = Report::new(as_json);
    for (name, case) in CASES {
        if arguments.is_empty() || arguments.iter().any(|wanted| name.contains(wanted.as_str())) {
            measure::is_on_one_thread_alone(ON_ONE_THREAD.contains(&name));
            case(&mut report, effort);
        }
    }
    report.finish();
    ExitCode::SUCCESS
}
