//! The same swarms with agents whose turns begin ahead of their commits.

use callboard::testing::{Seeds, Sim, TestError};

use super::play_on;
use super::swarm::{insist, one_fault, through_steps_board};

/// One thing of many that go wrong with the commits that turns are ahead of.
fn fault_of_commits(sim: &Sim) {
    let (faults, pass) = (sim.faults(), 1 + sim.below(20));
    match sim.below(6) {
        0 => faults.at("storage.append").loses_reply().on_pass(pass),
        1 => faults.at("storage.append").error("a planned error").on_pass(pass),
        2 => faults.at("storage.append").for_secs(1 + sim.below(5)).on_pass(pass),
        3 => faults.at("runs.applied").panics("planned").on_pass(pass),
        4 => faults.at("storage.append").crash().on_pass(pass),
        _ => faults.at("turn.end").crash().on_pass(pass),
    };
}

async fn play(sim: Sim) -> Result<(), TestError> {
    let fails = || {
        for _ in 0..sim.below(3) {
            fault_of_commits(&sim);
            one_fault(&sim, sim.faults());
        }
    };
    play_on(&sim, fails, async || (vec![insist(&sim, async || through_steps_board(&sim).start().await).await], None))
        .await
}

#[test]
fn swarms_that_are_ahead_of_their_commits_end_as_others() {
    Seeds::new(150).simulate(play);
}
