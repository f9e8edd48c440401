//! Agents whose work is counted outside of the runtime, and what the files with the counts have to show after kills.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test may panic, and it is killed in real time")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use callboard::prelude::*;
use callboard::runtime::Builder;
use serde_json::json;

/// How many turns of a run add a message to its state: those of its three agents, and of the one that helps.
pub(crate) const TURNS: usize = 4;

/// A board on a store in a folder, with agents of which each has one effect that may be repeated, and the last one that must
/// not be. The turns of all but one begin ahead of their commits.
pub(crate) fn builder(folder: &Path) -> Builder {
    let sink_of = |name| Arc::new(OpenOptions::new().create(true).append(true).open(folder.join(name)).unwrap());
    let (sink, charges) = (sink_of("effects"), sink_of("charges"));
    let agent = move |next: Option<&'static str>| {
        let sink = Arc::clone(&sink);
        move |turn: Turn| {
            let sink = Arc::clone(&sink);
            async move {
                let line = format!("{} effect\n", turn.id());
                turn.step("effect", async { (&*sink).write_all(line.as_bytes()) }).await?;
                let command = Command::output("done").with("messages", json!(["done"]));
                Ok(match next {
                    Some(next) => command.goto(next),
                    None => command,
                })
            }
        }
    };
    let (lead, last) = (agent(Some("b")), agent(None));
    Callboard::builder()
        .storage(Sled::open(folder.join("store")).unwrap())
        .with(
            AgentSpec::new("a", move |turn: Turn| {
                let handoff = lead(turn.clone());
                async move {
                    turn.delegate("helper", "help").await?;
                    handoff.await
                }
            })
            .acts_through_steps(),
        )
        .agent("b", agent(Some("c")))
        .with(
            AgentSpec::new("c", move |turn: Turn| {
                let (last, charges) = (last(turn.clone()), Arc::clone(&charges));
                async move {
                    let line = format!("{}\n", turn.id());
                    let charge = async {
                        (&*charges).write_all(line.as_bytes())?;
                        // It takes its time to answer: here most of the kills strike.
                        tokio::time::sleep(Duration::from_millis(10)).await;
                        Ok::<_, std::io::Error>(())
                    };
                    turn.effect("charge").target(&turn.id().to_string()).run(charge).await?;
                    last.await
                }
            })
            .acts_through_steps(),
        )
        .with(
            AgentSpec::new("helper", |_: Turn| async {
                Ok(Command::output("helped").with("messages", json!(["helped"])))
            })
            .acts_through_steps(),
        )
}

/// What the files show of runs that have ended.
pub(crate) struct Counted {
    /// How many effects that may be repeated were.
    pub(crate) repeated: usize,
    /// How many effects there were that must not be repeated.
    pub(crate) charges: usize,
}

/// Checks the files against the runs that were acknowledged, and those of which a person was asked what became of an effect.
pub(crate) fn check(folder: &Path, acknowledged: &BTreeSet<String>, asked: &BTreeSet<String>) -> Counted {
    let (effects, charges) = (lines(folder, "effects"), lines(folder, "charges"));
    let of_run = |counts: &BTreeMap<String, u32>, run: &str| counts.range(format!("{run}/")..format!("{run}0")).count();
    for run in acknowledged {
        let turns = of_run(&effects, run);
        assert_eq!(turns, 3, "run {run} has effects of {turns} turns");
        let is_charged = of_run(&charges, run) > 0;
        assert!(is_charged || asked.contains(run), "run {run} was neither charged nor asked about");
    }
    let twice: Vec<_> = charges.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "what must not be repeated was: {twice:?}");
    assert!(!asked.is_empty(), "no kill struck while something was done that must not be repeated");
    Counted { repeated: effects.values().filter(|count| **count > 1).count(), charges: charges.len() }
}

/// How often each line is in a file.
fn lines(folder: &Path, name: &str) -> BTreeMap<String, u32> {
    let mut counts = BTreeMap::new();
    for line in BufReader::new(File::open(folder.join(name)).unwrap()).lines() {
        *counts.entry(line.unwrap()).or_default() += 1;
    }
    counts
}
