//! The campaign `mutants`: cargo-mutants breaks the rules one place at a time, and their own tests have to notice.
//!
//! Its options for this workspace are in `.cargo/mutants.toml`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

pub(crate) const NAME: &str = "mutants";
pub(crate) const ABOUT: &str = "cargo-mutants breaks the rules; at least 90 % of what it does is noticed by a test";

/// Percent of the mutants of an area that have to be killed.
const ENOUGH: usize = 90;

/// Cases of the campaign `rules` for each mutant: what a broken rule does wrong is seen in the first few.
const CASES: &str = "300";

struct Area {
    name: &'static str,
    files: &'static [&'static str],
    /// Beside the library's own tests, which hold the reference models.
    tests: &'static [&'static str],
}

const AREAS: &[Area] = &[
    Area { name: "guard", files: &["src/supervision/runs/rules/guard/mod.rs"], tests: &[] },
    Area { name: "budget", files: &["src/supervision/runs/rules/budget/mod.rs"], tests: &[] },
    Area {
        name: "approval",
        files: &[
            "src/messages/approval/mod.rs",
            "src/actors/approvals/decider.rs",
            "src/actors/approvals/gateway.rs",
            "src/actors/approvals/queue.rs",
        ],
        tests: &["actors"],
    },
    Area {
        name: "restart",
        files: &[
            "src/supervision/tree/restart/mod.rs",
            "src/supervision/tree/exit.rs",
            "src/supervision/tree/intensity.rs",
            "src/supervision/tree/backoff.rs",
        ],
        tests: &[],
    },
    Area { name: "codec", files: &["src/storage/codec.rs"], tests: &[] },
    Area {
        name: "reducer",
        files: &[
            "src/messages/state/mod.rs",
            "src/messages/state/join.rs",
            "src/messages/state/schema.rs",
            "src/messages/state/stored.rs",
        ],
        tests: &[],
    },
];

/// How many mutants of a file were killed, and those that were not.
#[derive(Default)]
struct Count {
    killed: usize,
    alive: Vec<String>,
}

/// Runs the areas of these names, or all.
pub(crate) fn mutants(names: impl Iterator<Item = String>) -> ExitCode {
    match chosen(names).and_then(|areas| run(&areas)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

fn chosen(names: impl Iterator<Item = String>) -> Result<Vec<&'static Area>, String> {
    let found = names.map(|name| {
        let all: Vec<&str> = AREAS.iter().map(|area| area.name).collect();
        let area = AREAS.iter().find(|area| area.name == name);
        area.ok_or_else(|| format!("there is no area {name:?} of mutants; there are {}", all.join(", ")))
    });
    let found = found.collect::<Result<Vec<_>, String>>()?;
    Ok(if found.is_empty() { AREAS.iter().collect() } else { found })
}

/// Whether enough were killed in each area.
fn run(areas: &[&Area]) -> Result<bool, String> {
    if !crate::tools::provide_command("cargo-mutants", "mutants") {
        return Err("cargo-mutants is not installed and cannot be: see `cargo install cargo-mutants --locked`".into());
    }
    let mut is_enough = true;
    for area in areas {
        is_enough &= run_area(area)?;
    }
    Ok(is_enough)
}

fn run_area(Area { name, files, tests }: &Area) -> Result<bool, String> {
    #[allow(clippy::disallowed_methods, reason = "a chore, not the library")]
    let started = Instant::now();
    let output = Path::new("target/mutants").join(name);
    std::fs::create_dir_all(&output).map_err(|error| format!("{}: {error}", output.display()))?;
    let mut cargo = crate::commands::cargo();
    cargo.args(["mutants", "--package", "callboard", "--output"]).arg(&output).env("CALLBOARD_SEEDS", CASES);
    cargo.args(files.iter().flat_map(|file| ["--file", file]));
    // For the builds as well: nothing else is built.
    cargo.arg("--cargo-arg=--lib").args(tests.iter().map(|test| format!("--cargo-arg=--test={test}")));
    // 0: all were killed; 2: some live; 3: some made the tests hang, which they noticed.
    let status = cargo.status().map_err(|error| format!("cargo-mutants cannot be started: {error}"))?;
    if !matches!(status.code(), Some(0 | 2 | 3)) {
        return Err(format!("cargo-mutants did not come to its end: {status}"));
    }
    let counts = read(&output.join("mutants.out"))?;
    let (mut killed_in_all, mut all) = (0, 0);
    for file in *files {
        let Some(Count { killed, alive }) = counts.get(*file) else { continue };
        (killed_in_all, all) = (killed_in_all + killed, all + killed + alive.len());
        alive.iter().for_each(|mutant| println!("lives: {mutant}"));
        println!("{NAME}: {file}: {killed} of {} killed", killed + alive.len());
    }
    let is_enough = all > 0 && killed_in_all * 100 >= ENOUGH * all;
    let verdict = if is_enough { "passed" } else { "FAILED" };
    println!(
        "{NAME}: {name}: {killed_in_all} of {all} killed, {ENOUGH} % asked; {verdict} in {:.0?}",
        started.elapsed()
    );
    Ok(is_enough)
}

/// What became of each mutant, by file. Mutants that do not compile do not count.
fn read(outcomes: &Path) -> Result<BTreeMap<String, Count>, String> {
    let mut counts = BTreeMap::<String, Count>::new();
    for (list, is_killed) in [("caught.txt", true), ("timeout.txt", true), ("missed.txt", false)] {
        let path = outcomes.join(list);
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        for mutant in text.lines() {
            let file = mutant.split(':').next().unwrap_or_default();
            let count = counts.entry(file.to_owned()).or_default();
            if is_killed {
                count.killed += 1;
            } else {
                count.alive.push(mutant.to_owned());
            }
        }
    }
    Ok(counts)
}
