//! The whole test run, and the tests of one room.

use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use crate::commands::cargo;
use crate::{api, book, circles, injected, mcp_clients, public_names, telemetry, tools, words};

/// The file in which tests report that they could not run, one line each.
const SKIPPED: &str = "CALLBOARD_SKIPPED";

/// What a part of the run does.
enum Part {
    Cargo(&'static [&'static str]),
    Chore(fn() -> ExitCode),
}

/// The part that needs mdbook.
const BOOK: &str = "book";

/// The part that needs schemathesis.
const API: &str = "api";

/// Cheapest first.
const PARTS: [(&str, Part); 15] = [
    ("format", Part::Cargo(&["fmt", "--all", "--", "--check"])),
    ("words", Part::Chore(words::report)),
    ("circles", Part::Chore(circles::check)),
    (BOOK, Part::Chore(book::build)),
    // Advisories need a database from the network; licences, bans and sources are checked from the lock file.
    ("licences", Part::Cargo(&["deny", "check", "bans", "licenses", "sources"])),
    (
        "lints",
        Part::Cargo(&[
            "clippy",
            "--workspace",
            "--all-targets",
            "--features",
            "callboard-cli/otel",
            "--",
            "-D",
            "warnings",
        ]),
    ),
    ("tests", Part::Cargo(&["nextest", "run", "--workspace", "--lib", "--bins", "--tests"])),
    // With the program that the tests have built.
    (API, Part::Chore(api::check)),
    ("injected bugs", Part::Chore(injected::injected)),
    ("doc tests", Part::Cargo(&["test", "--workspace", "--doc"])),
    ("docs", Part::Chore(public_names::check_committed)),
    // What a user builds: warnings that only show with fewer features than the tests need.
    (
        "default build",
        Part::Cargo(&["clippy", "-p", "callboard", "-p", "callboard-agents", "--lib", "--", "-D", "warnings"]),
    ),
    (
        "minimal build",
        Part::Cargo(&[
            "clippy",
            "-p",
            "callboard",
            "-p",
            "callboard-agents",
            "--lib",
            "--no-default-features",
            "--",
            "-D",
            "warnings",
        ]),
    ),
    // It installs them from the registries of their languages.
    ("mcp clients", Part::Chore(mcp_clients::check)),
    // With the python and the program of the part before.
    ("telemetry", Part::Chore(telemetry::check)),
];

/// Everything that must hold before a change lands; stops at the first failure. Prints what each part took.
pub(crate) fn whole() -> ExitCode {
    let started = now();
    let lacks = tools::provide();
    let mut report = vec![("tools", started.elapsed(), if lacks.is_empty() { "there" } else { "INCOMPLETE" })];
    let skipped = Skipped::new();
    let started = now();
    let mut passes = true;
    for (name, part) in &PARTS {
        let begun = now();
        let verdict = part.run(name, &lacks, &skipped);
        eprintln!("── {name}: {verdict} in {:.0?}", begun.elapsed());
        report.push((name, begun.elapsed(), verdict));
        if verdict == FAILED {
            passes = false;
            break;
        }
    }
    eprintln!("── summary");
    for (name, took, verdict) in report {
        eprintln!("   {name:<16}{:>6.0} s  {verdict}", took.as_secs_f64());
    }
    eprintln!("   {:<16}{:>6.0} s, without the tools", "together", started.elapsed().as_secs_f64());
    skipped.report();
    if passes { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

const PASSED: &str = "passed";
const FAILED: &str = "FAILED";

impl Part {
    fn run(&self, name: &str, lacks: &[&str], skipped: &Skipped) -> &'static str {
        let arguments = match self {
            Self::Chore(_) if name == BOOK && lacks.contains(&tools::MDBOOK) => return "SKIPPED, there is no mdbook",
            Self::Chore(_) if name == API && lacks.contains(&tools::SCHEMATHESIS) => {
                return "SKIPPED, there is no schemathesis";
            }
            Self::Chore(chore) => return if chore() == ExitCode::SUCCESS { PASSED } else { FAILED },
            Self::Cargo(["deny", ..]) if lacks.contains(&"cargo-deny") => return "SKIPPED, there is no cargo-deny",
            // The runner of cargo itself: the same tests, and each binary of them one after the other.
            Self::Cargo(["nextest", "run", rest @ ..]) if lacks.contains(&"cargo-nextest") => {
                [&["test"][..], rest].concat()
            }
            Self::Cargo(arguments) => arguments.to_vec(),
        };
        eprintln!("── {name}: cargo {}", arguments.join(" "));
        let mut cargo = cargo();
        if arguments.first() == Some(&"nextest") {
            // Many tests wait for a process, the disk or a time: with one for each core, half a core was idle.
            let threads = std::thread::available_parallelism().map_or(2, NonZero::get) * 2;
            cargo.env("NEXTEST_TEST_THREADS", threads.to_string());
        }
        cargo.args(arguments).env("RUSTDOCFLAGS", "-D warnings").env(SKIPPED, &skipped.0);
        cargo.envs(mcp_clients::axe().map(|file| ("CALLBOARD_AXE", file)));
        cargo.envs(mcp_clients::synapse().map(|python| ("CALLBOARD_SYNAPSE", python)));
        cargo.envs(mcp_clients::aiosmtpd().map(|python| ("CALLBOARD_AIOSMTPD", python)));
        if cargo.status().is_ok_and(|status| status.success()) { PASSED } else { FAILED }
    }
}

/// The tests of one room: `tests/ROOM`, and the unit tests of `src/ROOM`, if there is such a folder; or those of the package
/// `crates/callboard-ROOM`.
pub(crate) fn room(name: &str) -> ExitCode {
    let started = now();
    let package = Path::new("crates").join(format!("callboard-{name}"));
    let units = match package.is_dir() {
        true => format!("package(=callboard-{name})"),
        false => format!("package(=callboard) & test(/^{name}::/)"),
    };
    let of_room = format!("binary(={name}) | ({units} & kind(lib))");
    // The whole workspace, so that dependencies have the features that the whole run has built them with.
    let mut arguments = vec!["nextest", "run", "--workspace"];
    if !package.is_dir() || package.join("tests").join(name).is_dir() {
        arguments.extend(["--test", name]);
    }
    if package.is_dir() || Path::new("src").join(name).is_dir() {
        arguments.extend(["--lib", "-E", &of_room]);
    }
    let passes = cargo().args(arguments).status().is_ok_and(|status| status.success());
    eprintln!("── {name}: {} in {:.0?}", if passes { PASSED } else { FAILED }, started.elapsed());
    if passes { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The file to which tests that cannot run here write why.
struct Skipped(PathBuf);

impl Skipped {
    fn new() -> Self {
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
        let file = std::path::absolute(target.join("skipped-tests.txt")).unwrap_or_default();
        // One of a run before.
        let _ = fs::remove_file(&file);
        Self(file)
    }

    /// Those tests passed for the runner, and tested nothing.
    fn report(&self) {
        let text = fs::read_to_string(&self.0).unwrap_or_default();
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        lines.dedup();
        if !lines.is_empty() {
            eprintln!("   SKIPPED, counted as passed above although nothing was tested: {} tests", lines.len());
            lines.iter().for_each(|line| eprintln!("      {line}"));
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "a chore, not the library")]
fn now() -> Instant {
    Instant::now()
}
