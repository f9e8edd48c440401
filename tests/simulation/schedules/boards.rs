//! The same swarms with their agents on two or three boards, which reach each other by letters.

use std::time::Duration;

use callboard::testing::{Seeds, Sim, TestError};

use super::play_on;
use super::swarm::{board_with, insist, one_fault};

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

async fn play(sim: Sim) -> Result<(), TestError> {
    let count = 2 + sim.below(2) as usize;
    let fails = || {
        for _ in 0..sim.below(3) {
            fault_between_boards(&sim);
            one_fault(&sim, sim.faults());
        }
    };
    let board = async |part| insist(&sim, async || board_with(&sim, |depth| depth % count == part).start().await).await;
    let start = async || {
        // One that is replaced, by the one that has the same agents.
        let leaving = if sim.below(2) == 0 { Some(board(sim.below(count as u64) as usize).await) } else { None };
        let mut boards = Vec::new();
        for part in 0..count {
            boards.push(board(part).await);
        }
        // Until each has looked at what the other hosts.
        tokio::time::sleep(Duration::from_secs(5)).await;
        (boards, leaving)
    };
    play_on(&sim, fails, start).await
}

#[test]
fn swarms_on_several_boards_end_as_on_one() {
    Seeds::new(200).simulate(play);
}
