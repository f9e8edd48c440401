//! Random swarms under random schedules and faults: every run ends as planned, every command counts once, and nothing is left.

mod ahead;
mod boards;
mod dormant;
mod people;
mod plans;
mod swarm;

use std::collections::BTreeSet;
use std::time::Duration;

use callboard::messages::{RunId, StateRules};
use callboard::prelude::*;
use callboard::supervision::runs::Run;
use callboard::testing::{Seeds, Sim, TestError};
use serde_json::json;
use swarm::{Plan, board, insist, one_fault, task};

/// Each task is accepted by one of the boards, and all boards have its end.
async fn all_end(sim: &Sim, tasks: &[(RunId, Plan)], acknowledged: &mut BTreeSet<RunId>, boards: &[Callboard]) {
    for (id, plan) in tasks {
        // A node that crashed before it acknowledged a submission may not know of it: submitting again is safe.
        if !acknowledged.contains(id) {
            let at = match boards {
                [only] => only,
                several => &several[sim.below(several.len() as u64) as usize],
            };
            insist(sim, async || at.submit(task(*id, plan)).await).await;
            acknowledged.insert(*id);
        }
    }
    for (id, plan) in tasks {
        for board in boards {
            let run = board.run(*id);
            let result = insist(sim, async || run.result().await).await;
            assert_eq!(result.outcome, Outcome::Finished);
            assert_eq!(result.state["count"], json!(plan.turns()));
            let folded = Run::of(insist(sim, async || run.history().await).await, &StateRules::default()).unwrap();
            assert_eq!(**folded.result().unwrap(), result);
        }
    }
}

/// Plays random tasks until a life without a crash has ended all of them: `fails` plans what goes wrong, and `start` starts the boards of
/// a life.
async fn play_on(
    sim: &Sim,
    fails: impl FnOnce(),
    start: impl AsyncFn() -> (Vec<Callboard>, Option<Callboard>),
) -> Result<(), TestError> {
    let tasks: Vec<(RunId, Plan)> =
        (0..1 + sim.below(3)).map(|_| (RunId(sim.env().id()), Plan::random(sim, &|_| Vec::new()))).collect();
    let mut acknowledged = BTreeSet::new();
    fails();
    loop {
        let lived = sim
            .until_crash(async {
                let (boards, leaving) = start().await;
                let leave = async {
                    if let Some(leaving) = leaving {
                        tokio::time::sleep(Duration::from_millis(sim.below(4_000))).await;
                        leaving.shutdown().await;
                    }
                };
                tokio::join!(all_end(sim, &tasks, &mut acknowledged, &boards), leave);
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

async fn play(sim: Sim) -> Result<(), TestError> {
    let fails = || (0..sim.below(4)).for_each(|_| drop(one_fault(&sim, sim.faults())));
    play_on(&sim, fails, async || (vec![insist(&sim, async || board(&sim).start().await).await], None)).await
}

#[test]
fn every_run_ends_as_its_plan_requires_whatever_the_schedule_and_the_faults() {
    Seeds::new(150).simulate(play);
}

/// Seeds that once failed.
#[test]
fn what_went_wrong_once_does_not_again() {
    // 42: a run that the store did not give out at once was quarantined. 97: an ended task that was submitted again left a
    // note. 766: a note was written
    // after the end of a run by an earlier life of its supervisor. 505, 9076: a turn that had ended while its run was read back was begun again. 2793: a run was taken over twice.
    // 26,673: a note that was written again was not removed. 3000: waiting turns were reported in another order each time. 4913: a run was read back twice, one into the other.
    for seed in [42, 97, 505, 766, 2793, 3000, 4913, 9076, 26_673] {
        Seeds::only(seed).simulate(play);
    }
}
