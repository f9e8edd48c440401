//! The chore `public-names`: everything of the root package that its users can name. No two types may have one name.
//!
//! rustdoc resolves the names: its JSON output has each item and each re-export. That output is not stable yet, so rustdoc
//! is run with `RUSTC_BOOTSTRAP`. Cargo does not get that variable: it would build all dependencies again. So cargo runs
//! this program in the place of rustdoc, and this program runs rustdoc. It does so while it builds the documentation of the
//! whole workspace, in which the package has all its features, and for which the dependencies have been checked.

mod listing;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode};

use serde_json::Value;

use crate::commands::cargo;
use crate::workspace;

const PACKAGE: &str = "callboard";

/// In the environment of this program when it is run in the place of rustdoc: the rustdoc to run.
const RUSTDOC: &str = "XTASK_RUSTDOC";

/// Prints the names, or their differences from those of a file.
pub(crate) fn report(mut arguments: impl Iterator<Item = String>) -> ExitCode {
    let file = match (arguments.next().as_deref(), arguments.next(), arguments.next()) {
        (None, None, None) => None,
        (Some("--check"), Some(file), None) => Some(file),
        _ => {
            eprintln!("usage: cargo xtask public-names [--check FILE]");
            return ExitCode::from(2);
        }
    };
    match (names(), file) {
        (Ok(names), None) => {
            names.iter().for_each(|name| println!("{name}"));
            eprintln!("{} names", names.len());
            ExitCode::SUCCESS
        }
        (Ok(names), Some(file)) => check(&names, Path::new(&file)),
        (Err(why), _) => {
            eprintln!("public-names: {why}");
            ExitCode::from(2)
        }
    }
}

/// Fails if the names are others than those of the committed list.
pub(crate) fn check_committed() -> ExitCode {
    report(["--check".to_owned(), "xtask/public-names.txt".to_owned()].into_iter())
}

fn check(names: &[String], file: &Path) -> ExitCode {
    let known = match std::fs::read_to_string(file) {
        Ok(known) => known,
        Err(error) => {
            eprintln!("public-names: {}: {error}", file.display());
            return ExitCode::from(2);
        }
    };
    let shared = shared_names(names);
    if !shared.is_empty() {
        shared.iter().for_each(|paths| println!("{paths}"));
        eprintln!("public-names: types share a name: rename the one that is less central");
        return ExitCode::FAILURE;
    }
    let changes = changes(&known, names);
    changes.iter().for_each(|change| println!("{change}"));
    if changes.is_empty() {
        eprintln!("{} names, as in {}", names.len(), file.display());
        return ExitCode::SUCCESS;
    }
    let file = file.display();
    eprintln!("{} names, other than in {file}; if that is meant: cargo xtask public-names > {file}", names.len());
    ExitCode::FAILURE
}

/// The lines that are only in `known`, with `-`, and those that are only in `names`, with `+`; sorted by name.
fn changes(known: &str, names: &[String]) -> Vec<String> {
    let known: BTreeSet<&str> = known.lines().collect();
    let names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    let sign = |name: &&str| if known.contains(name) { '-' } else { '+' };
    known.symmetric_difference(&names).map(|name| format!("{}{name}", sign(name))).collect()
}

/// For each name that several types have, their paths.
fn shared_names(names: &[String]) -> Vec<String> {
    let mut paths: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for name in names {
        let Some((path, kind)) = name.trim_end_matches(')').split_once(" (") else { continue };
        if ["struct", "enum", "union", "trait", "type"].contains(&kind) {
            let last = path.rsplit("::").next().unwrap_or(path);
            paths.entry(last).or_default().push(path);
        }
    }
    paths.into_values().filter(|paths| paths.len() > 1).map(|paths| paths.join(" and ")).collect()
}

fn names() -> Result<Vec<String>, String> {
    let program = std::env::current_exe().map_err(|error| format!("the path of this program: {error}"))?;
    let status = cargo()
        .args(["doc", "--workspace", "--no-deps", "--all-features"])
        .env(RUSTDOC, std::env::var_os("RUSTDOC").unwrap_or_else(|| "rustdoc".into()))
        .env("RUSTDOC", program)
        // The cfg separates these outputs from those of a `cargo doc` that did not run this program.
        .env("RUSTDOCFLAGS", "-D warnings --cfg public_names")
        .status()
        .map_err(|error| format!("cargo doc: {error}"))?;
    if !status.success() {
        return Err(format!("cargo doc: {status}"));
    }
    let metadata = workspace::metadata()?;
    let target = metadata["target_directory"].as_str().ok_or("cargo metadata names no target directory")?;
    let file = Path::new(target).join("doc").join(format!("{PACKAGE}.json"));
    let of_file = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    let text = std::fs::read(&file).map_err(|error| of_file(&error))?;
    let documentation: Value = serde_json::from_slice(&text).map_err(|error| of_file(&error))?;
    listing::names(&documentation).map_err(|why| of_file(&why))
}

/// Whether cargo runs this program in the place of rustdoc.
pub(crate) fn is_rustdoc() -> bool {
    std::env::var_os(RUSTDOC).is_some()
}

/// Runs rustdoc, for the root package a second time: with the options for JSON, which are not stable.
pub(crate) fn rustdoc() -> ExitCode {
    let rustdoc = std::env::var_os(RUSTDOC).unwrap_or_default();
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let runs = |command: &mut Command| match command.args(&arguments).status() {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("{}: {error}", rustdoc.display());
            false
        }
    };
    let is_package = arguments.windows(2).any(|pair| pair[0] == "--crate-name" && pair[1] == PACKAGE);
    let mut json = Command::new(&rustdoc);
    json.args(["-Z", "unstable-options", "--output-format", "json", "--document-hidden-items", "--cap-lints", "allow"]);
    json.env("RUSTC_BOOTSTRAP", "1");
    if runs(&mut Command::new(&rustdoc)) && (!is_package || runs(&mut json)) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

#[cfg(test)]
mod tests {
    use super::{changes, shared_names};

    #[test]
    fn types_that_share_a_name_are_found_and_other_items_may_have_it_too() {
        let names = ["a::B (struct)", "a::b::C (enum)", "a::c (module)", "c::B (trait)", "d::c (fn)", "d::C (macro)"];
        assert_eq!(shared_names(&names.map(str::to_owned)), ["a::B and c::B"]);
    }

    #[test]
    fn a_change_names_what_is_gone_and_what_is_new() {
        let names = ["a::B (struct)", "a::C (enum)"].map(str::to_owned);
        assert_eq!(changes("a::B (struct)\na::C (enum)\n", &names), [""; 0]);
        assert_eq!(changes("a::A (fn)\na::B (struct)\n", &names), ["-a::A (fn)", "+a::C (enum)"]);
    }
}
