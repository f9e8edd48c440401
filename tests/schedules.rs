//! Random swarms under random schedules and faults: every run ends as its plan says, every command counts once, and
//! nothing is left.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::time::Duration;

use callboard::messages::state::{Reducer, Schema, StateRules};
use callboard::messages::{RunId, Send};
use callboard::prelude::*;
use callboard::runtime::Builder;
use callboard::supervision::runs::breaker::BreakerPolicy;
use callboard::supervision::runs::snapshot::fold;
use callboard::testing::{Effects, FaultPlan, Sim, seeds, simulate};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// What one turn does.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Plan {
    steps: u64,
    delegations: Vec<Plan>,
    side_by_side: bool,
    then: Then,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
enum Then {
    Stop,
    Handoff(Box<Plan>),
    Fork(Vec<Plan>),
}

/// Deep enough for every plan: one agent for each depth, so that no chain comes back.
const DEPTH: usize = 6;

impl Plan {
    fn random(sim: &Sim, depth: usize) -> Self {
        let children = |most: u64| -> Vec<Self> {
            if depth + 1 == DEPTH || sim.below(3) > 0 {
                return Vec::new();
            }
            (0..1 + sim.below(most)).map(|_| Self::random(sim, depth + 1)).collect()
        };
        let mut next = children(3);
        let then = match next.len() {
            0 => Then::Stop,
            1 => next.pop().map_or(Then::Stop, |next| Then::Handoff(Box::new(next))),
            _ => Then::Fork(next),
        };
        let side_by_side = sim.below(2) == 0;
        Self { steps: sim.below(3), delegations: children(2), side_by_side, then }
    }

    /// It and everything that comes of it.
    fn all(&self) -> Vec<&Self> {
        let next: &[Self] = match &self.then {
            Then::Stop => &[],
            Then::Handoff(next) => std::slice::from_ref(next),
            Then::Fork(forks) => forks,
        };
        let below = self.delegations.iter().chain(next).flat_map(Self::all);
        std::iter::once(self).chain(below).collect()
    }

    fn effects(&self) -> u64 {
        self.all().iter().map(|plan| plan.steps).sum()
    }
}

async fn follow(turn: Turn, effects: Effects) -> Result<Command, TurnError> {
    let plan: Plan = turn.input()?;
    for number in 0..plan.steps {
        let step = format!("step {number}");
        turn.step(&step, async { Ok::<_, TurnError>(effects.apply(&turn, &step, "done")) }).await?;
    }
    let depth: usize = turn.agent().as_str()[1..].parse()?;
    let next = format!("a{}", depth + 1);
    let asked = plan.delegations.iter().map(|child| turn.delegate(&next, "x").input(Json::of(child).unwrap()));
    if plan.side_by_side {
        let asked: Vec<_> = asked.map(IntoFuture::into_future).collect();
        futures::future::try_join_all(asked).await?;
    } else {
        for delegation in asked {
            delegation.await?;
        }
    }
    let command = Command::update("count", 1);
    Ok(match plan.then {
        Then::Stop => command,
        Then::Handoff(plan) => command.with_output(Json::of(&*plan).unwrap()).goto(&next),
        Then::Fork(forks) => command.goto_many(forks.iter().map(|fork| Send::new(&next, Json::of(fork).unwrap()))),
    })
}

fn board(sim: &Sim) -> Builder {
    let never = BreakerPolicy { threshold: u32::MAX, cooldown: Duration::ZERO, max_cooldown: Duration::ZERO };
    let mut builder = sim.board().breaker(never).pool(3).run_supervisors(2);
    for depth in 0..DEPTH {
        let effects = sim.effects();
        let agent = move |turn: Turn| follow(turn, effects.clone());
        builder = builder.with(AgentSpec::new(&format!("a{depth}"), agent).concurrency(3));
    }
    builder
}

fn task(id: RunId, plan: &Plan) -> Task {
    let limits = Limits { handoffs: 10_000, agents: 1_000, depth: 100, ..Limits::default() };
    let schema = Schema::swarm().channel("count", Reducer::Sum);
    Task::new("x").id(id).to("a0").input(Json::of(plan).unwrap()).limits(limits).schema(schema)
}

/// One thing of many that go wrong, none of them often enough to end a turn.
fn one_fault(sim: &Sim, faults: FaultPlan) -> FaultPlan {
    let agent = format!("a{}", sim.below(DEPTH as u64));
    let pass = 1 + sim.below(40);
    match sim.below(12) {
        0 => faults.panic(&agent).on_turn(1 + sim.below(3)),
        1 => faults.hang(&agent).for_secs(1 + sim.below(30)),
        2 => faults.at("turn.end").panics("planned").on_pass(pass),
        3 => faults.at("turn.end").error("planned").on_pass(pass),
        4 => faults.at("runs.applied").panics("planned").on_pass(pass),
        5 => faults.at("runs.taken").panics("planned").on_pass(pass),
        6 => faults.at("router.handle").panics("planned").on_pass(1 + sim.below(3)),
        7 => faults.at("storage.append").loses_reply().on_pass(pass),
        8 => faults.at("storage.append").error("planned").on_pass(pass),
        9 => faults.at("storage.read").error("planned").on_pass(1 + sim.below(3)),
        10 => faults.at("agent.handle").panics("planned").on_pass(pass),
        _ => faults
            .at(["storage.append", "storage.put", "turn.end", "runs.applied"][sim.below(4) as usize])
            .crash()
            .on_pass(pass),
    }
}

async fn all_end(sim: &Sim, tasks: &[(RunId, Plan)], acknowledged: &mut BTreeSet<RunId>, board: &Callboard) {
    let mut runs = Vec::new();
    for (id, plan) in tasks {
        // A node that crashed before it acknowledged a submission may not know of it: submitting again is safe.
        if !acknowledged.contains(id) {
            insist(sim, || board.submit(task(*id, plan))).await;
            acknowledged.insert(*id);
        }
        runs.push(board.run(*id));
    }
    for (run, (_, plan)) in runs.iter().zip(tasks) {
        let result = insist(sim, || run.result()).await;
        assert_eq!(result.outcome, Outcome::Finished);
        assert_eq!(result.state["count"], json!(plan.all().len()));
        let folded = fold(insist(sim, || run.history()).await, &StateRules::default()).unwrap();
        assert_eq!(**folded.result().unwrap(), result);
    }
}

/// Asks until it works: a planned fault may hit the test's own request.
async fn insist<T, E: std::fmt::Display>(sim: &Sim, ask: impl AsyncFn() -> Result<T, E>) -> T {
    for _ in 0..10 {
        match ask().await {
            Ok(value) => return value,
            Err(error) => sim.note(&format!("asked again: {error}")),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    panic!("asked ten times in vain");
}

#[test]
fn every_run_ends_as_its_plan_says_whatever_the_schedule_and_the_faults() {
    simulate(seeds(500), async |sim: Sim| {
        let tasks: Vec<(RunId, Plan)> =
            (0..1 + sim.below(3)).map(|_| (RunId(sim.env().id()), Plan::random(&sim, 0))).collect();
        let mut acknowledged = BTreeSet::new();
        for _ in 0..sim.below(4) {
            let _ = one_fault(&sim, sim.faults());
        }
        loop {
            let lived = sim
                .until_crash(async {
                    let board = insist(&sim, || board(&sim).start()).await;
                    all_end(&sim, &tasks, &mut acknowledged, &board).await;
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
    });
}
