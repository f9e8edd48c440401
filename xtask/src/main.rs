//! Chores of the workspace: `cargo xtask test` is the whole test run, `cargo xtask campaign` repeats a part of it.

mod campaign;
mod circles;
mod mutants;
mod public_names;
mod release;
mod tools;
mod words;
mod workspace;

use std::process::{Command, ExitCode};
use std::time::Instant;

fn main() -> ExitCode {
    if public_names::is_rustdoc() {
        return public_names::rustdoc();
    }
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("test") => test(),
        Some("campaign") => campaign::campaign(arguments),
        Some("circles") => circles::report(arguments),
        Some("public-names") => public_names::report(arguments),
        Some("release") => release::release(),
        Some("words") => words::report(),
        name => {
            if let Some(name) = name {
                eprintln!("there is no chore {name:?}");
            }
            eprintln!("usage: cargo xtask test    format, lints, tests, doc tests, docs, minimal build, licences");
            eprintln!("       cargo xtask campaign NAME    one campaign by its name: see cargo xtask campaign --list");
            eprintln!(
                "       cargo xtask circles [--max N]    files that import each other; fails if more than N [3] do"
            );
            eprintln!(
                "       cargo xtask public-names [--check FILE]    what users can name; fails if FILE has other names"
            );
            eprintln!("       cargo xtask words    retired words that are still used; fails if there are any");
            eprintln!("       cargo xtask release    the program callboard without symbols, and its symbols beside it");
            ExitCode::from(2)
        }
    }
}

/// Everything that must hold before a change lands, cheapest first; stops at the first failure.
fn test() -> ExitCode {
    tools::provide_strace();
    let has_nextest = succeeds(&["nextest", "--version"]);
    let tests: &[&str] = if has_nextest {
        &["nextest", "run", "--workspace", "--lib", "--bins", "--tests", "--examples"]
    } else {
        &["test", "--workspace", "--lib", "--bins", "--tests", "--examples"]
    };
    let steps: [(&str, &[&str]); 7] = [
        ("format", &["fmt", "--all", "--", "--check"]),
        ("lints", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
        ("tests", tests),
        ("doc tests", &["test", "--workspace", "--doc"]),
        ("docs", &["doc", "--workspace", "--no-deps"]),
        // What a user builds: warnings that only show with fewer features than the tests need.
        ("default build", &["clippy", "--package", "callboard", "--lib", "--", "-D", "warnings"]),
        (
            "minimal build",
            &["clippy", "--package", "callboard", "--lib", "--no-default-features", "--", "-D", "warnings"],
        ),
    ];
    for (name, arguments) in steps {
        if !run(name, arguments) {
            return ExitCode::FAILURE;
        }
    }
    // Advisories need a database from the network; licences, bans and sources are checked from the lock file.
    if succeeds(&["deny", "--version"]) {
        if !run("licences", &["deny", "check", "bans", "licenses", "sources"]) {
            return ExitCode::FAILURE;
        }
    } else {
        eprintln!("── licences: skipped, cargo-deny is not installed");
    }
    ExitCode::SUCCESS
}

fn run(name: &str, arguments: &[&str]) -> bool {
    eprintln!("── {name}: cargo {}", arguments.join(" "));
    #[allow(clippy::disallowed_methods, reason = "a chore, not the library")]
    let started = Instant::now();
    let passed = cargo().args(arguments).env("RUSTDOCFLAGS", "-D warnings").status().is_ok_and(|s| s.success());
    eprintln!("── {name}: {} in {:.0?}", if passed { "passed" } else { "FAILED" }, started.elapsed());
    passed
}

/// cargo, without what it has told this program of its package: build scripts of dependencies read variables of these names, so
/// cargo would build those again, and with them most of the workspace, where it is called with others or none.
fn cargo() -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    let is_of_package = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_of_package)) {
        cargo.env_remove(name);
    }
    cargo
}

fn succeeds(arguments: &[&str]) -> bool {
    cargo().args(arguments).output().is_ok_and(|output| output.status.success())
}
