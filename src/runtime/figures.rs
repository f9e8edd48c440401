//! Checks the figures of docs/semantics.md against the code: each [bracketed] default of a section, in the order of the text.
//!
//! A new bracket needs a row in [`figures`]: the code's value, written as the text writes it.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests may panic, and read files")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::actors::ContextStore;
use crate::actors::{AgentSpec, Turn};
use crate::messages::{Command, Complexity, ContextStrategy, Limits, OnUnknown};
use crate::storage::Losses;
use crate::supervision::runs::breaker::BreakerPolicy;

use super::reach::{LISTED_WITHIN, TAKEN_OVER_WITHIN};
use super::settings::Settings;

/// The values in the code, by section.
fn figures() -> Vec<(u32, Vec<String>)> {
    let Limits { depth, repeat_window, attempts, .. } = Limits::default();
    let BreakerPolicy { threshold, cooldown, max_cooldown } = BreakerPolicy::default();
    let settings = Settings::default();
    let agent = AgentSpec::new("a", |_: Turn| async { Ok(Command::new()) });
    assert_eq!((ContextStrategy::default(), OnUnknown::default()), (ContextStrategy::None, OnUnknown::Ask));
    assert_eq!(settings.on_unknown, OnUnknown::Ask);
    assert_eq!(settings.attempts, attempts);
    written("src/storage/sled/write_state.rs", "const BUFFERED_FOR: Duration = Duration::from_millis(80);");
    written("src/actors/boards/exchange.rs", "const KEPT: u64 = 24 * 3600;");
    written("src/runtime/placed_turns.rs", "const LONGEST: Duration = Duration::from_secs(24 * 3600);");
    written("src/workflow/graph/mod.rs", "const MAP_BOUND: u32 = 1_000;");
    written("src/actors/approvals/queue.rs", "const KEEP_SECS: u64 = 60 * 24 * 3600;");
    let agent = agent.source().config;
    written("src/supervision/runs/rules/conversation.rs", "const MAX_READ: u64 = 1 << 20;");
    let retention = time(settings.retention.runs);
    vec![
        (1, vec![format!("{depth}: three steps, four agents")]),
        (2, vec!["1,000".to_owned()]),
        (3, vec![count(threshold), format!("{}, doubling to {}", time(cooldown), time(max_cooldown))]),
        (4, vec![count(repeat_window)]),
        (5, vec!["none".to_owned()]),
        (8, vec![count(attempts), count(agent.slots), count(settings.capacity.pool), time(settings.grace)]),
        (
            9,
            vec![
                time(settings.approval_ttl),
                format!(
                    "{} h before, or when half of the time is over",
                    settings.timings.remind_before.as_secs() / 3600
                ),
                "60 days".to_owned(),
                agent.question_ttl.map_or("never".to_owned(), time),
                "1".to_owned(),
            ],
        ),
        (
            10,
            vec![
                "`Sync` on disk stores".to_owned(),
                "100 ms".to_owned(),
                count(attempts),
                count(settings.max_recoveries),
                Losses::MAX.to_string(),
                count(settings.capacity.runs_in_flight),
                count(settings.capacity.ready_per_agent),
                count(settings.capacity.watch_buffer),
                format!(
                    "{retention} after the end; Memory runs keep their last {} turns",
                    count(settings.retention.memory_turns)
                ),
            ],
        ),
        (
            11,
            vec![
                format!("{} s", settings.timings.offline_after.as_secs()),
                time(settings.timings.sleep_after),
                count(settings.capacity.inbox),
            ],
        ),
        (12, vec![time(ContextStore::EXTENSION)]),
        (13, vec![count(settings.capacity.dynamic_agents)]),
        (
            14,
            vec![
                format!("{}; its error or panic means unknown", time(settings.timings.reconcile_within)),
                "default; a person answers done with a result, run it again, or give up, which fails the turn with \
                 `OutcomeUnknown`"
                    .to_owned(),
            ],
        ),
        (
            15,
            vec![
                "the newest runs that fit 1 MiB".to_owned(),
                format!("{} after its last run", time(settings.retention.conversations)),
            ],
        ),
        (
            16,
            vec![
                "24 h".to_owned(),
                time(settings.timings.scan_every),
                time(settings.retention.every),
                format!("{} s", settings.timings.offline_after.as_secs()),
                time(LISTED_WITHIN),
                time(TAKEN_OVER_WITHIN),
                time(TAKEN_OVER_WITHIN),
                "24 h if there is none".to_owned(),
                Losses::MAX.to_string(),
            ],
        ),
    ]
}

/// `10,000`.
fn count(number: impl TryInto<u64>) -> String {
    let digits = number.try_into().ok().unwrap().to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `90 days`, `10 min`, `30 s`.
fn time(time: Duration) -> String {
    let secs = time.as_secs();
    let units = [(24 * 3600, "days"), (3600, "h"), (60, "min")];
    let unit = units.into_iter().find(|(unit, _)| secs >= *unit && secs.is_multiple_of(*unit));
    let (unit, name) = unit.unwrap_or((1, "s"));
    format!("{} {name}", secs / unit)
}

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Checks a constant that only its own file can name.
fn written(file: &str, line: &str) {
    assert!(read(file).contains(line), "{file} no longer has {line:?}: does docs/semantics.md still hold?");
}

/// The text of each section, with single spaces.
fn sections() -> BTreeMap<u32, String> {
    let (mut sections, mut section) = (BTreeMap::<u32, String>::new(), None);
    for line in read("docs/semantics.md").lines() {
        if let Some(title) = line.strip_prefix("## ") {
            section = Some(title.split('.').next().unwrap().parse().unwrap());
        }
        if let Some(section) = section {
            let text = sections.entry(section).or_default();
            text.push_str(line.trim());
            text.push(' ');
        }
    }
    sections
}

/// The texts in brackets that are no links.
fn brackets(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find('[') {
        let end = start + rest[start..].find(']').unwrap();
        if !rest[end + 1..].starts_with('(') {
            found.push(rest[start + 1..end].to_owned());
        }
        rest = &rest[end + 1..];
    }
    found
}

#[test]
fn the_bracketed_defaults_of_the_rules_are_those_of_the_code() {
    let reported: Vec<(u32, Vec<String>)> = sections()
        .into_iter()
        .map(|(section, text)| (section, brackets(&text)))
        .filter(|(_, brackets)| !brackets.is_empty())
        .collect();
    for (reported, figures) in reported.iter().zip(figures()) {
        assert_eq!(*reported, figures, "section {} of docs/semantics.md, and what the code has", reported.0);
    }
    assert_eq!(reported.len(), figures().len(), "a section with brackets has rows, and the other way round");
}

#[test]
fn the_classes_of_the_rules_are_those_of_the_code() {
    for (word, class) in
        [("simple", Complexity::Simple), ("medium", Complexity::Medium), ("complex", Complexity::Complex)]
    {
        let Limits { handoffs, tokens, agents, .. } = Limits::of(class);
        let cells = format!("| {} | {} | {} |", count(handoffs), count(tokens), count(agents));
        let text = read("docs/semantics.md");
        let row = text.lines().find(|line| line.starts_with(&format!("| {word}"))).unwrap();
        assert!(row.ends_with(&cells), "{row}: the code has {cells}");
    }
}

fn sources(folder: &Path, files: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn the_documentation_of_the_code_cites_sections_that_there_are_and_each_of_them() {
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    let cited: BTreeSet<u32> = files
        .iter()
        .flat_map(|text| text.split("SEMANTICS ").skip(1))
        .filter_map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok())
        .collect();
    let there = sections();
    for section in &cited {
        assert!(there.contains_key(section), "there is no section {section} in docs/semantics.md");
    }
    for (section, text) in there {
        let is_planned = text.split(" - ").next().unwrap().contains("*planned*");
        assert!(is_planned || cited.contains(&section), "section {section} of docs/semantics.md is cited nowhere");
    }
}
