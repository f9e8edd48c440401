//! The same swarms with their agents on two or three boards, which reach each other by letters.

use std::collections::BTreeSet;
use std::time::Duration;

use callboard::messages::RunId;
use callboard::prelude::*;
use callboard::testing::{Seeds, Sim, TestError};
use serde_json::json;

use super::swarm::{Plan, board_with, insist, one_fault, task};

/// One thing of many that go wrong between boards. Deletes work: a note of an open run that stays is looked at by the next start.
fn fault_between_boards(sim: &Sim) {
    let pass = 1 + sim.below(20);
    let faults = sim.faults();
    match sim.below(6) {
        0 => faults.at("mail.take").duplicates().on_pass(pass),
        1 => faults.at("mail.take").for_secs(1 + sim.below(10)).on_pass(pass),
        2 => faults.at("mail.take").error("a planned error").on_pass(pass),
        3 => faults.at("session.list").error("a planned error").on_pass(pass),
        4 => faults.at("mail.take").crash().on_pass(pass),
        _ => faults.at(["storage.put", "storage.scan"][sim.below(2) as usize]).error("away").on_pass(pass),
    };
}

async fn all_are_accepted(
    sim: &Sim,
    tasks: &[(RunId, Plan)],
    acknowledged: &mut BTreeSet<RunId>,
    boards: &[Callboard],
) {
    for (id, plan) in tasks {
        if !acknowledged.contains(id) {
            let at = &boards[sim.below(boards.len() as u64) as usize];
            insist(sim, async || at.submit(task(*id, plan)).await).await;
            acknowledged.insert(*id);
        }
    }
}

async fn all_end(sim: &Sim, tasks: &[(RunId, Plan)], boards: &[Callboard]) {
    for (id, plan) in tasks {
        let seen = insist(sim, async || boards[0].run(*id).result().await).await;
        assert_eq!(seen.outcome, Outcome::Finished);
        assert_eq!(seen.state["count"], json!(plan.turns()));
        for other in &boards[1..] {
            assert_eq!(insist(sim, async || other.run(*id).result().await).await, seen);
        }
    }
}

async fn play(sim: Sim) -> Result<(), TestError> {
    let tasks: Vec<(RunId, Plan)> =
        (0..1 + sim.below(3)).map(|_| (RunId(sim.env().id()), Plan::random(&sim, &|_| Vec::new()))).collect();
    for _ in 0..sim.below(3) {
        fault_between_boards(&sim);
        one_fault(&sim, sim.faults());
    }
    let count = 2 + sim.below(2) as usize;
    let mut acknowledged = BTreeSet::new();
    loop {
        let lived = sim
            .until_crash(async {
                let start = async |part| board_with(&sim, |depth| depth % count == part).start().await;
                let mut boards = Vec::new();
                for part in 0..count {
                    boards.push(insist(&sim, async || start(part).await).await);
                }
                // Until each has looked at what the other hosts.
                tokio::time::sleep(Duration::from_secs(5)).await;
                all_are_accepted(&sim, &tasks, &mut acknowledged, &boards).await;
                if sim.below(2) == 0 {
                    all_end(&sim, &tasks, &boards).await;
                } else {
                    // Another one with the same agents takes the place of a board.
                    let part = 1 + sim.below(count as u64 - 1) as usize;
                    let next = insist(&sim, async || start(part).await).await;
                    let replaced = std::mem::replace(&mut boards[part], next);
                    tokio::join!(replaced.shutdown(), all_end(&sim, &tasks, &boards));
                }
                sim.assert_nothing_left().await;
            })
            .await;
        if lived.is_some() {
            break;
        }
    }
    assert_eq!(sim.effects().count() as u64, tasks.iter().map(|(_, plan)| plan.effects()).sum::<u64>());
    sim.assert_effects_at_most_once_per_key();
    Ok(())
}

#[test]
fn swarms_on_several_boards_end_as_on_one() {
    Seeds::new(200).simulate(play);
}
