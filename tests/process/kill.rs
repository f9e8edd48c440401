//! A process under load is killed again and again on one growing store; nothing that was acknowledged is lost.
//!
//! The oracle is outside: the driver keeps what the child printed as acknowledged, effects go to a file of their own, and the
//! runtime is never asked what it lost.
//!
//! Whether it can fail was tried by hand. With the sled writer answering `Sync` writes before its batch was applied and
//! synced, and again with the last journal record removed at each opening, `nothing_acknowledged_is_lost_to_kills` failed
//! both times.

#![cfg(feature = "sled")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;
use std::path::Path;

use callboard::messages::RunId;
use callboard::prelude::*;

use crate::campaigns::children::{answers, kill_after, role, runtime, spawn};
use crate::campaigns::{Campaign, cases};
use crate::charges::{self, Counted, TURNS};
use crate::common::people;

/// Submits endlessly, eight at a time, and prints what was acknowledged.
async fn child_under_load(folder: &Path) {
    let board = charges::builder(folder).start().await.unwrap();
    println!("started");
    let submitters = (0..8).map(|_| {
        let board = board.clone();
        tokio::spawn(async move {
            loop {
                let run = board.submit(Task::new("work").to("a")).await.unwrap();
                println!("acknowledged {}", run.id());
                if run.result().await.is_err() {
                    return;
                }
            }
        })
    });
    futures::future::join_all(submitters.collect::<Vec<_>>()).await;
}

/// Waits until everything has ended, and prints how.
async fn child_that_finishes(folder: &Path) {
    let board = charges::builder(folder).start().await.unwrap();
    for line in std::io::stdin().lock().lines() {
        let run: RunId = line.unwrap().parse().unwrap();
        let handle = board.run(run);
        // A person checks the shop's own ledger, and answers that it was done.
        while let Ok(Some(open)) = people::next_question(&handle).await {
            println!("asked {run}");
            board.people().answer(open.id, serde_json::json!({ "done": null }), "ann").await.unwrap();
        }
        match handle.result().await {
            Ok(result) => {
                let turns = result.state["messages"].as_array().map_or(0, Vec::len);
                println!("ended {run} {} {turns}", result.outcome.is_finished());
            }
            Err(error) => println!("ended {run} lost {error}"),
        }
    }
    println!("unfinished {}", board.unfinished_runs().await.unwrap().len());
    board.shutdown().await;
}

/// Not a test: what the killed processes run.
#[test]
fn the_child() {
    match role() {
        None => {}
        Some((role, folder)) if role == "load" => runtime().block_on(child_under_load(&folder)),
        Some((_, folder)) => runtime().block_on(child_that_finishes(&folder)),
    }
}

#[test]
fn nothing_acknowledged_is_lost_to_kills() {
    let mut campaign = Campaign::begin("kills");
    let kills = cases(15) as usize;
    let folder = tempfile::tempdir().unwrap();
    let mut acknowledged = BTreeSet::new();
    let mut kills_in_flight = 0;
    for _ in 0..kills {
        let child = spawn("kill::the_child", "load", folder.path());
        let status = kill_after(child, 1 + campaign.below(120), |line| {
            let run = line.strip_prefix("acknowledged ");
            acknowledged.extend(run.map(str::to_owned));
            run.is_some()
        });
        kills_in_flight += usize::from(status.code().is_none());
    }
    assert_eq!(kills_in_flight, kills, "a child ended before it was killed");
    assert!(acknowledged.len() > kills * 20, "too little load: {}", acknowledged.len());

    let runs = acknowledged.iter().cloned().collect();
    let lines = answers(spawn("kill::the_child", "finish", folder.path()), runs);
    let ended: BTreeMap<&str, &str> =
        lines.iter().filter_map(|line| line.strip_prefix("ended ")?.split_once(' ')).collect();
    let wrong: Vec<_> = acknowledged
        .iter()
        .map(|run| (run, ended.get(run.as_str()).copied().unwrap_or("no line")))
        .filter(|(_, end)| *end != format!("true {TURNS}"))
        .collect();
    assert!(wrong.is_empty(), "{} of {} runs: {wrong:?}", wrong.len(), acknowledged.len());

    let asked = lines.iter().filter_map(|line| line.strip_prefix("asked ")).map(str::to_owned).collect();
    let Counted { repeated, charges } = charges::check(folder.path(), &acknowledged, &asked);
    campaign.count_many(kills as u64);
    let (runs, asked) = (acknowledged.len(), asked.len());
    campaign.end(format_args!(
        "{runs} runs acknowledged, each ended as it should; {repeated} idempotent effects repeated; 0 of {charges} `once` effects \
         repeated, {asked} asked about"
    ));
}
