//! The rooms import only what ARCHITECTURE.md allows them to.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use xtask::imports::Sources;

/// The rooms that are rules and data alone: they run in any thread, and without a runtime.
const WITHOUT_RUNTIME: &[&str] = &["messages", "workflow", "supervision::runs::rules"];

/// Where the library names the feature `testing`, apart from the test kit itself: the file, how often, and what the feature adds
/// there. It must not change what the library does without it.
const TESTING: &[(&str, usize, &str)] = &[
    ("env/clocks.rs", 3, "the system's clock follows tokio's where a test has paused that"),
    ("env/later_build.rs", 1, "how a test stands for a process of a later build"),
    ("env/simulated.rs", 1, "how the test kit says that this thread runs a simulation"),
    ("guides.rs", 2, "two guides that use it"),
    ("lib.rs", 1, "the module `testing`"),
    ("runtime/builder.rs", 1, "how a simulation gets to know its boards"),
    ("runtime/watching.rs", 1, "`Callboard::kill`"),
    ("supervision/tree/mod.rs", 1, "`Callboard::kill`"),
    ("supervision/tree/message.rs", 1, "`Callboard::kill`"),
    ("supervision/tree/supervisor.rs", 1, "`Callboard::kill`"),
];

/// The one file that knows injected bugs.
const MUTANTS: &str = "env/mutants.rs";

/// Each room with the rooms that it may import, as in the table of ARCHITECTURE.md. Everything may import the first two.
fn table() -> BTreeMap<String, BTreeSet<String>> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let rows = text.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split('|');
        let room = cells.next()?.trim().trim_end_matches('`').to_owned();
        let allowed = cells.next()?.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        Some((room, allowed))
    });
    rows.collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The room of a file such as `supervision/runs/rules/run/step.rs`: the innermost of the table. The root of the crate has none.
fn room<'a>(path: &Path, table: &'a BTreeMap<String, BTreeSet<String>>) -> Option<&'a str> {
    let path = path.with_extension("");
    let parts: Vec<&str> = path.iter().map(|part| part.to_str().unwrap()).collect();
    let mut rooms = (1..=parts.len()).rev().filter_map(|length| table.get_key_value(&parts[..length].join("::")));
    let room = rooms.next().map(|(room, _)| room.as_str());
    assert!(room.is_some() || parts == ["lib"], "{}: it is in no room of the table", path.display());
    room
}

fn is_within(room: &str, outer: &str) -> bool {
    room.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// The library with all its features, and without what is compiled for tests alone.
fn library() -> Sources<'static> {
    let src = root().join("src");
    let mut sources = Sources::reading(move |path| fs::read_to_string(src.join(path)).ok());
    sources.add(Path::new("lib.rs")).unwrap();
    sources
}

#[test]
fn rooms_import_only_what_the_table_allows() {
    let table = table();
    assert!(table.len() >= 7, "the table of ARCHITECTURE.md was not found: {table:?}");
    let library = library();
    assert_eq!(library.unresolved(), [], "a path that leads to no file cannot be judged");
    let mut wrong = BTreeMap::new();
    for import in library.imports() {
        let (Some(own), Some(other)) = (room(&import.from, &table), room(&import.to, &table)) else { continue };
        let allowed = &table[own];
        let all_of = |outer: &String| outer.strip_suffix("::*").is_some_and(|outer| is_within(other, outer));
        let is_allowed = own == other || ["all", other].iter().any(|room| allowed.contains(*room));
        let is_allowed = is_allowed || allowed.iter().any(all_of);
        if !is_allowed && !["env", "messages"].contains(&other) {
            let from = import.from.to_str().unwrap().to_owned();
            let line = format!("{from}:{} imports {} of {}", import.line, import.item, import.to.display());
            wrong.entry((from, other.to_owned())).or_insert(line);
        }
    }
    let wrong: Vec<_> = wrong.values().collect();
    assert!(wrong.is_empty(), "the table of ARCHITECTURE.md does not allow this:\n{wrong:#?}");
}

#[test]
fn rooms_of_rules_and_data_name_neither_tokio_nor_ractor() {
    let table = table();
    assert!(WITHOUT_RUNTIME.iter().all(|room| table.contains_key(*room)), "a room is not in the table: {table:?}");
    let found = library().outside(&["tokio", "ractor"]);
    assert!(found.iter().any(|outside| outside.file.starts_with("actors")), "actors name both");
    let is_wrong = |file: &Path| room(file, &table).is_some_and(|room| WITHOUT_RUNTIME.contains(&room));
    let wrong: Vec<_> = found.iter().filter(|outside| is_wrong(&outside.file)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Public errors that `callboard::Error` does not join, and why.
const NOT_JOINED: &[(&str, &str)] = &[
    ("Error", "it is the one that joins"),
    ("TurnError", "agents return it"),
    ("DelegationError", "it is returned within a turn, and becomes a `TurnError`"),
    ("SendError", "it gives a message of any type back"),
    ("SpecError", "`StartError` and `ControlError` have it"),
    ("TestError", "it ends a simulated test"),
];

#[test]
fn the_roll_up_error_joins_every_public_error() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let (names, joined) = (read("xtask/public-names.txt"), read("src/error.rs"));
    let names = names.lines().filter_map(|line| line.split_once(" (")?.0.rsplit("::").next());
    let errors: BTreeSet<&str> = names.filter(|name| name.ends_with("Error") || *name == "Defects").collect();
    assert!(errors.len() > 20, "the list of public names was not found: {errors:?}");
    let is_joined = |error: &&&str| joined.contains(&format!("(#[from] {error})"));
    let others: BTreeSet<&str> = errors.iter().filter(|error| !is_joined(error)).copied().collect();
    assert_eq!(others, NOT_JOINED.iter().map(|(error, _)| *error).collect());
}

/// The library's files with their texts, tests within them included.
fn texts(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            texts(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(root().join("src")).unwrap().to_str().unwrap().to_owned();
            found.push((name, fs::read_to_string(&path).unwrap()));
        }
    }
}

#[test]
fn the_feature_testing_replaces_nothing_and_no_feature_brings_injected_bugs() {
    let mut files = Vec::new();
    texts(&root().join("src"), &mut files);
    let mut named = BTreeMap::new();
    for (file, text) in files.iter().filter(|(file, _)| !file.starts_with("testing/")) {
        let lines: Vec<&str> = text.lines().filter(|line| line.contains(r#"feature = "testing""#)).collect();
        let is_addition = |line: &&&str| line.trim_start().starts_with("#[cfg(") && !line.contains("not(");
        assert_eq!(lines.iter().find(|line| !is_addition(line)), None, "{file}");
        named.extend((!lines.is_empty()).then_some((file.as_str(), lines.len())));
    }
    let known: BTreeMap<&str, usize> = TESTING.iter().map(|(file, times, _)| (*file, *times)).collect();
    assert_eq!(named, known);

    let with_mutants =
        files.iter().filter(|(_, text)| text.contains("callboard_mutants")).map(|(file, _)| file.as_str());
    assert_eq!(with_mutants.collect::<Vec<_>>(), [MUTANTS]);
    let mutants = fs::read_to_string(root().join("src").join(MUTANTS)).unwrap();
    assert!(!mutants.contains("feature"), "{MUTANTS} names a feature");
}
