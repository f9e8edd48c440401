//! The same work in callboard and in other frameworks, in turn: for each case all sides are measured once in each round, one after the other.
//! The table of the results is in docs/performance.md, with how each of them was made to do the work.

mod cases;
mod programs;
mod results;
mod table;

use std::fs;
use std::process::ExitCode;

use cases::{CASES, Case, SIDES, Unit};
use programs::{Programs, Running};
use results::{Measured, Results};

use crate::mcp_clients::target;

/// What was measured is kept below `target`, so that one case can be measured again.
const FILE: &str = "peers/results.json";

const DOCUMENT: &str = "docs/performance.md";

pub(crate) fn compare(arguments: impl Iterator<Item = String>) -> ExitCode {
    let mut arguments: Vec<String> = arguments.collect();
    let mut take = |flag: &str| {
        let before = arguments.len();
        arguments.retain(|argument| argument != flag);
        arguments.len() < before
    };
    let (rounds, writes) = (if take("--quick") { 3 } else { 9 }, take("--write"));
    if let Some(unknown) = arguments.iter().find(|name| CASES.iter().all(|case| case.name != **name)) {
        let names: Vec<&str> = CASES.iter().map(|case| case.name).collect();
        eprintln!("there is no case {unknown:?}; the cases are {}", names.join(", "));
        return ExitCode::from(2);
    }
    match run(rounds, writes, &arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("── peers: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(rounds: usize, writes: bool, wanted: &[String]) -> Result<(), String> {
    let programs = Programs::build()?;
    let file = target()?.join(FILE);
    let mut results = Results::continued(&file, programs.conditions()?);
    for case in CASES.iter().filter(|case| wanted.is_empty() || wanted.iter().any(|name| name == case.name)) {
        eprintln!("── {}", case.title);
        results.replace(case.name, measure(&programs, case, rounds)?);
        results.write(&file)?;
    }
    let table = table::render(&results);
    println!("{table}");
    if writes {
        let failed = |error: std::io::Error| format!("{DOCUMENT}: {error}");
        let document = fs::read_to_string(DOCUMENT).map_err(failed)?;
        fs::write(DOCUMENT, table::written(&document, &table)?).map_err(failed)?;
    }
    Ok(())
}

/// Measures all sides in turn. The first round does not count, unless each measurement has a process of its own.
fn measure(programs: &Programs, case: &Case, rounds: usize) -> Result<Vec<Measured>, String> {
    let sides = SIDES.iter().filter(|side| side.cases.contains(&case.name));
    let mut measured: Vec<_> = sides
        .map(|side| (side, Measured { case: case.name.into(), side: side.name.into(), rounds: Vec::new() }))
        .collect();
    if case.unit == Unit::Kibibytes {
        for _ in 0..rounds {
            for (side, measured) in &mut measured {
                measured.rounds.push(programs.start(side, case.name)?.measure()?);
            }
        }
    } else {
        let started = measured.iter().map(|(side, _)| programs.start(side, case.name));
        let mut running = started.collect::<Result<Vec<Running>, _>>()?;
        for round in 0..=rounds {
            for (running, (_, measured)) in running.iter_mut().zip(&mut measured) {
                let value = running.measure()?;
                if round > 0 {
                    measured.rounds.push(value);
                }
            }
        }
    }
    Ok(measured.into_iter().map(|(_, measured)| measured).collect())
}
