//! The same swarms with agents that sleep soon after their turns, and are woken by the next ones.

use callboard::testing::{Seeds, Sim, TestError};

use super::play_on;
use super::swarm::{dormant_board, insist, one_fault};

/// One thing of many that go wrong as agents wake and fall asleep.
fn fault_of_sleep(sim: &Sim) {
    let (faults, pass) = (sim.faults(), 1 + sim.below(10));
    match sim.below(6) {
        0 => faults.at("agent.start").error("a planned error").on_pass(pass),
        1 => faults.at("agent.start").for_secs(1 + sim.below(5)).on_pass(pass),
        2 => faults.at("agent.start").panics("planned").on_pass(pass),
        3 => faults.at("agent.stop").for_secs(1 + sim.below(8)).on_pass(pass),
        4 => faults.at("agent.stop").error("a planned error").on_pass(pass),
        _ => faults.at("turn.begin").kills().on_pass(pass),
    };
}

async fn play(sim: Sim) -> Result<(), TestError> {
    let fails = || {
        for _ in 0..sim.below(3) {
            fault_of_sleep(&sim);
            one_fault(&sim, sim.faults());
        }
    };
    play_on(&sim, fails, async || (vec![insist(&sim, async || dormant_board(&sim).start().await).await], None)).await
}

#[test]
fn swarms_of_dormant_agents_end_as_those_of_others() {
    Seeds::new(150).simulate(play);
}
