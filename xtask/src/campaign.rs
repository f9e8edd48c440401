//! Campaigns: tests that repeat with chance, as often as asked. `cargo xtask test` repeats each as often as a run of all tests
//! has time for; here one is run by its name, and prints its result in one line.
//!
//! A campaign is a test binary that takes its count from the environment. It may print lines that begin with `campaign `;
//! for one that does not, the count that it was given and its exit say it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::time::Instant;

use crate::{injected, mutants};

struct Campaign {
    name: &'static str,
    /// What it looks for.
    about: &'static str,
    /// The test binary, after the package that it is of if that is not `callboard`, or [`LIBRARY`]; and what the names of its tests
    /// contain, or one of several parts.
    test: &'static str,
    filter: &'static str,
    /// The variable that sets how much to do, and the unit of the amount.
    variable: &'static str,
    unit: &'static str,
    fast: u64,
    long: u64,
}

/// The variables that set the number of cases or the time of a test, and its first seed.
const COUNT: &str = "CALLBOARD_SEEDS";
const SECONDS: &str = "CALLBOARD_SECONDS";
const SEED: &str = "CALLBOARD_SEED";

/// The library's own tests.
const LIBRARY: &str = "--lib";

const CAMPAIGNS: &[Campaign] = &[
    Campaign {
        name: "schedules",
        about: "random swarms under random schedules, faults and crashes end as planned",
        test: "simulation",
        filter: "schedules::",
        variable: COUNT,
        unit: "seeds",
        fast: 500,
        long: 50_000,
    },
    Campaign {
        name: "kills",
        about: "SIGKILL under load, one store kept: nothing acknowledged is lost",
        test: "process",
        filter: "kill::nothing_acknowledged",
        variable: COUNT,
        unit: "kills",
        fast: 50,
        long: 1_000,
    },
    Campaign {
        name: "serve",
        about: "SIGKILL of a server under load over HTTP: nothing acknowledged is lost or done twice, streams have no gap",
        test: "callboard-server/server",
        filter: "nothing_that_a_killed_server",
        variable: COUNT,
        unit: "kills",
        fast: 50,
        long: 1_000,
    },
    Campaign {
        name: "knowledge",
        about: "SIGKILL while facts are submitted and invalidated: nothing acknowledged is lost, done twice or half written; SIGKILL of commands \
                on a base: the next one completes them",
        test: "callboard-knowledge/knowledge",
        filter: "kills::nothing interrupted::a_command",
        variable: COUNT,
        unit: "kills",
        fast: 20,
        long: 1_000,
    },
    Campaign {
        name: "cycles",
        about: "SIGKILL at each event of an initialisation: it continues at its cycle, and no ended call of a model is repeated",
        test: "callboard-knowledge/knowledge",
        filter: "cycle_kills::an_initialisation",
        variable: COUNT,
        unit: "kills",
        fast: 20,
        long: 1_000,
    },
    Campaign {
        name: "holders",
        about: "SIGKILL of the process with the store while ten runs work on it: all continue",
        test: "callboard-cli/stores",
        filter: "holders::",
        variable: COUNT,
        unit: "kills",
        fast: 20,
        long: 1_000,
    },
    Campaign {
        name: "cluster",
        about: "boards on one PostgreSQL are killed, stopped, cut off and shut down, and so is the database: each run ends once, no `once` \
                effect is repeated, shared values are linearizable",
        test: "callboard-postgres/cluster",
        filter: "each_run_ends_once",
        variable: COUNT,
        unit: "faults",
        fast: 13,
        long: 1_000,
    },
    Campaign {
        name: "http",
        about: "requests put together by chance are answered, and do what their answers say",
        test: "callboard-server/server",
        filter: "requests_by_chance",
        variable: COUNT,
        unit: "requests",
        fast: 20_000,
        long: 1_000_000,
    },
    Campaign {
        name: "powercut",
        about: "a store's disk with any unsynced part missing holds what was acknowledged as synced",
        test: "process",
        filter: "powercut::nothing_acknowledged",
        variable: COUNT,
        unit: "images",
        fast: 500,
        long: 20_000,
    },
    Campaign {
        name: "bits",
        about: "flipped bits in stored files and rows are reported or harmless",
        test: "storage",
        filter: "bits::a_flipped_bit",
        variable: COUNT,
        unit: "bits",
        fast: 1_000,
        long: 10_000,
    },
    Campaign {
        name: "rules",
        about: "budget, chain, breaker, approval, reducer and restart rules do what their reference models do",
        test: LIBRARY,
        filter: "::reference::",
        variable: COUNT,
        unit: "cases each",
        fast: 10_000,
        long: 1_000_000,
    },
    Campaign {
        name: "fuzz",
        about: "bytes that nobody would send are read or refused",
        test: "simulation",
        filter: "fuzz::",
        variable: SECONDS,
        unit: "seconds each",
        fast: 10,
        long: 3_600,
    },
    Campaign {
        name: "sandbox",
        about: "no attempt of a confined command, as root or as an ordinary user, reaches what it may not",
        test: "callboard-agents/process",
        filter: "sandbox::no_attempt",
        variable: COUNT,
        unit: "attempts",
        fast: 340,
        long: 340,
    },
    Campaign {
        name: "faults",
        about: "panics, kills and hangs under load: no delegation is lost, counts twice or never ends",
        test: "supervision",
        filter: "faults::",
        variable: COUNT,
        unit: "delegations",
        fast: 1_000,
        long: 100_000,
    },
    Campaign {
        name: "overload",
        about: "ten times capacity: memory bounded, control answers, refusals in words, nothing acknowledged lost",
        test: "process",
        filter: "overload::",
        variable: SECONDS,
        unit: "seconds",
        fast: 60,
        long: 600,
    },
    Campaign {
        name: "overload-http",
        about: "ten times capacity over HTTP: refused with a time, nothing acknowledged lost, memory bounded",
        test: "callboard-server/server",
        filter: "overload::",
        variable: SECONDS,
        unit: "seconds",
        fast: 20,
        long: 600,
    },
];

struct Wish {
    campaign: &'static Campaign,
    is_long: bool,
    seed: Option<u64>,
    /// How many parts it is run in.
    parts: Option<u64>,
}

/// The seed of the first part, if none is given: that of the tests.
const FIRST_SEED: u64 = 20_261_122;

/// `cargo xtask campaign` with these arguments.
pub(crate) fn campaign(arguments: impl Iterator<Item = String>) -> ExitCode {
    let mut arguments = arguments.peekable();
    if arguments.next_if(|name| name == mutants::NAME).is_some() {
        return mutants::mutants(arguments);
    }
    if arguments.next_if(|name| name == injected::NAME).is_some() {
        return injected::injected();
    }
    match parse(arguments) {
        Ok(Some(Wish { parts: Some(parts), campaign, is_long, seed })) => {
            in_parts(campaign, is_long, seed.unwrap_or(FIRST_SEED), parts)
        }
        Ok(Some(wish)) => run(wish.campaign, wish.is_long, amount(wish.campaign, wish.is_long), wish.seed).1,
        Ok(None) => {
            list();
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!(
                "{error}\nusage: cargo xtask campaign NAME [--long] [--seed N] [--parts N], cargo xtask campaign mutants [AREA...], \
                 cargo xtask campaign --list"
            );
            ExitCode::from(2)
        }
    }
}

/// `None` asks for the list.
fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Option<Wish>, String> {
    let (mut campaign, mut is_long, mut seed, mut parts) = (None, false, None, None);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--list" => return Ok(None),
            "--long" => is_long = true,
            "--seed" => {
                let number = arguments.next().and_then(|text| text.parse().ok());
                seed = Some(number.ok_or("--seed needs a number")?);
            }
            "--parts" => {
                let number = arguments.next().and_then(|text| text.parse().ok()).filter(|number| *number > 0);
                parts = Some(number.ok_or("--parts needs a number above 0")?);
            }
            name if campaign.is_none() && !name.starts_with('-') => {
                let found = CAMPAIGNS.iter().find(|campaign| campaign.name == name);
                campaign = Some(found.ok_or_else(|| format!("there is no campaign {name:?}: see --list"))?);
            }
            other => return Err(format!("what is {other:?}?")),
        }
    }
    let campaign = campaign.ok_or("which campaign?")?;
    Ok(Some(Wish { campaign, is_long, seed, parts }))
}

fn list() {
    for Campaign { name, about, unit, fast, long, .. } in CAMPAIGNS {
        println!("{name:<10} {fast} {unit}, --long {long}: {about}");
    }
    println!("{:<10} the same in both forms: {}", injected::NAME, injected::ABOUT);
    println!("{:<10} by area, no fast form: {}", mutants::NAME, mutants::ABOUT);
}

fn amount(campaign: &Campaign, is_long: bool) -> u64 {
    if is_long { campaign.long } else { campaign.fast }
}

/// Runs a campaign in parts, each with a seed of its own. Those that have passed are noted in a file below `target`, and not run again
/// by the same command: so a campaign that was stopped continues.
fn in_parts(campaign: &Campaign, is_long: bool, seed: u64, parts: u64) -> ExitCode {
    let (name, all) = (campaign.name, amount(campaign, is_long));
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    let file = target.join("campaigns").join(format!("{name}-{all}-{seed}-{parts}.txt"));
    let mut passed = fs::read_to_string(&file).unwrap_or_default();
    for part in 0..parts {
        let begin = format!("part {} of {parts}: ", part + 1);
        if passed.contains(&begin) {
            continue;
        }
        let count = all * (part + 1) / parts - all * part / parts;
        let (reported, exit) = run(campaign, is_long, count, Some(seed + part));
        if exit != ExitCode::SUCCESS {
            return exit;
        }
        passed += &reported.iter().map(|line| format!("{begin}{line}\n")).collect::<String>();
        let written = fs::create_dir_all(target.join("campaigns")).and_then(|()| fs::write(&file, &passed));
        if let Err(error) = written {
            eprintln!("{}: {error}", file.display());
            return ExitCode::FAILURE;
        }
    }
    print!("{passed}");
    ExitCode::SUCCESS
}

/// The long form runs in release, the fast one in what `cargo xtask test` has built. Returns what it has reported.
fn run(campaign: &Campaign, is_long: bool, count: u64, seed: Option<u64>) -> (Vec<String>, ExitCode) {
    let Campaign { name, about, test, filter, variable, unit, .. } = campaign;
    if *name == "powercut" {
        crate::tools::provide_strace();
    }
    let profile = if is_long { "release" } else { "dev" };
    let (package, test) = test.split_once('/').unwrap_or(("callboard", test));
    let mut cargo = crate::commands::cargo();
    cargo.args(["test", "--package", package, "--profile", profile]);
    match test {
        LIBRARY => cargo.arg(LIBRARY),
        test => cargo.args(["--test", test]),
    };
    cargo.args(["--", "--nocapture"]).args(filter.split(' '));
    cargo.env(variable, count.to_string()).stdout(Stdio::piped());
    if let Some(seed) = seed {
        cargo.env(SEED, seed.to_string());
    }
    #[allow(clippy::disallowed_methods, reason = "a chore, not the library")]
    let started = Instant::now();
    let mut child = match cargo.spawn() {
        Ok(child) => child,
        Err(error) => {
            eprintln!("cargo cannot be started: {error}");
            return (Vec::new(), ExitCode::FAILURE);
        }
    };
    let mut reported = Vec::new();
    for line in child.stdout.take().into_iter().flat_map(|output| BufReader::new(output).lines()).map_while(Result::ok)
    {
        match line.strip_prefix("campaign ") {
            Some(line) => reported.push(line.to_owned()),
            None => eprintln!("{line}"),
        }
    }
    let passed = child.wait().is_ok_and(|status| status.success());
    if reported.is_empty() {
        let seeds = seed.map_or_else(|| format!("{count} {unit}"), |seed| format!("seed {seed}"));
        reported.push(format!(
            "{name}: {seeds}, {}; {about}",
            if passed { "0 failures" } else { "it stopped at a failure" }
        ));
    }
    let verdict = if passed { "passed" } else { "FAILED" };
    reported.iter().for_each(|line| println!("{line}; {verdict} in {:.1?}", started.elapsed()));
    (reported, if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
