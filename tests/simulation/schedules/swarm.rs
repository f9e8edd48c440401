//! Random swarms: what each turn is to do follows from the seed, and travels as its input.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::time::Duration;

use callboard::env::Fault;
use callboard::messages::{Action, Durability, Reducer, RunId, Schema, SendTo, Usage};
use callboard::prelude::*;
use callboard::runtime::Builder;
use callboard::supervision::runs::BreakerPolicy;
use callboard::testing::{Effects, FaultPlan, FaultPoint, Sim};
use futures::FutureExt;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The text of planned faults.
const PLANNED: &str = "planned";

/// What one turn does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    steps: u64,
    wishes: Vec<Wish>,
    delegations: Vec<Plan>,
    side_by_side: bool,
    then: Then,
}

/// What a turn wants of people, or of its run's budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Wish {
    Answer,
    Approval(Reaction),
    Tokens(u64),
}

/// What people do about an approval. It stands in the action's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reaction {
    Approve,
    Deny,
    Ignore,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
enum Then {
    Stop,
    Handoff(Box<Plan>),
    Fork(Vec<Plan>),
}

/// Deep enough for every plan: one agent for each depth, so that no chain has a cycle.
const DEPTH: usize = 6;

impl Plan {
    pub(crate) fn random(sim: &Sim, wishes: &impl Fn(&Sim) -> Vec<Wish>) -> Self {
        Self::at_depth(sim, 0, wishes)
    }

    fn at_depth(sim: &Sim, depth: usize, wishes: &impl Fn(&Sim) -> Vec<Wish>) -> Self {
        let children = |most: u64| -> Vec<Self> {
            if depth + 1 == DEPTH || sim.below(3) > 0 {
                return Vec::new();
            }
            (0..1 + sim.below(most)).map(|_| Self::at_depth(sim, depth + 1, wishes)).collect()
        };
        let mut next = children(3);
        let then = match next.len() {
            0 => Then::Stop,
            1 => next.pop().map_or(Then::Stop, |next| Then::Handoff(Box::new(next))),
            _ => Then::Fork(next),
        };
        let side_by_side = sim.below(2) == 0;
        Self { steps: sim.below(3), wishes: wishes(sim), delegations: children(2), side_by_side, then }
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

    pub(crate) fn turns(&self) -> usize {
        self.all().len()
    }

    pub(crate) fn effects(&self) -> u64 {
        let approved =
            |plan: &Self| plan.wishes.iter().filter(|wish| **wish == Wish::Approval(Reaction::Approve)).count();
        self.all().iter().map(|plan| plan.steps + approved(plan) as u64).sum()
    }
}

/// What the people of these tests answer.
pub(crate) fn answer_to(question: &Json) -> Json {
    json!({ "you asked": question }).into()
}

async fn follow(turn: Turn, effects: Effects) -> Result<Command, TurnError> {
    let plan: Plan = turn.input()?;
    for number in 0..plan.steps {
        let step = format!("step {number}");
        turn.step(&step, async { Ok::<_, TurnError>(effects.apply(&turn, &step, "done")) }).await?;
    }
    for (number, wish) in plan.wishes.iter().enumerate() {
        fulfil(*wish, number, &turn, &effects).await?;
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
        Then::Fork(forks) => command.goto_many(forks.iter().map(|fork| SendTo::new(&next, Json::of(fork).unwrap()))),
    })
}

/// Fails for good, which no plan expects, when people's words reach the turn changed, late or for something else.
async fn fulfil(wish: Wish, number: usize, turn: &Turn, effects: &Effects) -> Result<(), TurnError> {
    match wish {
        Wish::Answer => {
            let question = json!([turn.id().to_string(), number]);
            let answer = turn.people().ask(question.clone()).await?;
            if answer != answer_to(&question.into()) {
                return Err(TurnError::terminal(format!("the answer is to something else: {answer}")));
            }
        }
        Wish::Approval(reaction) => {
            let action = Action::new("push", &turn.id().to_string(), json!([reaction, number]));
            match (turn.people().approve(action.clone()).await, reaction) {
                (Ok(approved), Reaction::Approve) if approved == action => {
                    let step = format!("push {number}");
                    let push = async { Ok::<_, TurnError>(effects.apply(turn, &step, &approved.to_string())) };
                    turn.step(&step, push).await?;
                }
                (Ok(approved), _) => {
                    return Err(TurnError::terminal(format!("{approved} is not what people approved")));
                }
                (Err(error), Reaction::Deny) if error.to_string().contains("denied by bob: no") => {}
                (Err(error), Reaction::Ignore) if error.to_string().contains("before anybody decided") => {}
                (Err(error), _) => return Err(error),
            }
        }
        Wish::Tokens(tokens) => {
            let reservation = turn.reserve(tokens).await?;
            tokio::time::sleep(Duration::from_millis(20)).await;
            reservation.settle(Usage::of(tokens / 2, tokens / 4));
        }
    }
    Ok(())
}

pub(crate) fn board(sim: &Sim) -> Builder {
    board_with(sim, |_| true)
}

/// A board with the agents of these depths.
pub(crate) fn board_with(sim: &Sim, has: impl Fn(usize) -> bool) -> Builder {
    board_of(sim, has, |agent| agent)
}

/// A board whose agents sleep soon after their last turns.
pub(crate) fn dormant_board(sim: &Sim) -> Builder {
    let idle = Duration::from_millis(1 + sim.below(2_000));
    board_of(sim, |_| true, AgentSpec::dormant).timings(|timings| timings.sleep_after(idle))
}

/// A board of which every second agent declares that it acts outside only through its run, on a store that syncs every commit.
pub(crate) fn through_steps_board(sim: &Sim) -> Builder {
    let change = |agent: AgentSpec| match agent.name().unwrap().as_str() {
        "a1" | "a3" => agent,
        _ => agent.acts_through_steps(),
    };
    board_of(sim, |_| true, change).durability(Durability::Sync)
}

fn board_of(sim: &Sim, has: impl Fn(usize) -> bool, change: impl Fn(AgentSpec) -> AgentSpec) -> Builder {
    let never = BreakerPolicy { threshold: u32::MAX, cooldown: Duration::ZERO, max_cooldown: Duration::ZERO };
    let mut builder = sim.board().breaker(never).pool(3).capacity(|capacity| capacity.run_supervisors(2));
    for depth in (0..DEPTH).filter(|depth| has(*depth)) {
        let effects = sim.effects();
        let agent = move |turn: Turn| follow(turn, effects.clone());
        builder = builder.with(change(AgentSpec::new(&format!("a{depth}"), agent).concurrency(3)));
    }
    builder
}

/// Room for every plan.
pub(crate) fn limits() -> Limits {
    Limits { handoffs: 10_000, agents: 1_000, depth: 100, tokens: 1_000_000, ..Limits::default() }
}

pub(crate) fn task(id: RunId, plan: &Plan) -> Task {
    let schema = Schema::swarm().channel("count", Reducer::Sum);
    Task::new("x").id(id).to("a0").input(Json::of(plan).unwrap()).limits(limits()).schema(schema)
}

/// One thing of many that go wrong, none of them often enough to end a turn.
pub(crate) fn one_fault(sim: &Sim, faults: FaultPlan) -> FaultPlan {
    let agent = format!("a{}", sim.below(DEPTH as u64));
    let pass = 1 + sim.below(40);
    match sim.below(12) {
        0 => faults.panic(&agent).on_turn(1 + sim.below(3)),
        1 => faults.hang(&agent).for_secs(1 + sim.below(30)),
        2 => faults.at("turn.end").panics(PLANNED).on_pass(pass),
        3 => faults.at("turn.end").error(PLANNED).on_pass(pass),
        4 => faults.at("runs.applied").panics(PLANNED).on_pass(pass),
        5 => faults.at("runs.taken").panics(PLANNED).on_pass(pass),
        6 => faults.at("router.handle").panics(PLANNED).on_pass(1 + sim.below(3)),
        7 => faults.at("storage.append").loses_reply().on_pass(pass),
        8 => faults.at("storage.append").error(PLANNED).on_pass(pass),
        9 => faults.at("storage.read").error(PLANNED).on_pass(1 + sim.below(3)),
        10 => faults.at("agent.handle").panics(PLANNED).on_pass(pass),
        _ => faults
            .at(["storage.append", "storage.put", "turn.end", "runs.applied"][sim.below(4) as usize])
            .crash()
            .on_pass(pass),
    }
}

/// Anything that can go wrong anywhere, once.
pub(crate) fn any_fault(sim: &Sim, faults: FaultPlan) -> FaultPlan {
    let one_of = |count: usize| sim.below(count as u64) as usize;
    let point = FaultPoint::all()[one_of(FaultPoint::all().len())];
    let mut taken = point.faults();
    let planned = taken.swap_remove(one_of(taken.len()));
    let pass = 1 + sim.below([3, 10, 40][one_of(3)]);
    let fault = faults.at(point.name);
    let fault = match planned {
        // A note that is not removed is looked at by the next start, and counts as unfinished until then.
        _ if point.name == "storage.delete" => fault.for_secs(1 + sim.below(30)),
        // Nor one that is not found to be removed.
        Fault::Error(_) | Fault::Panic(_) | Fault::Lose if point.name == "storage.get" => fault.for_secs(1),
        Fault::Error(_) => fault.error(PLANNED),
        Fault::Panic(_) => fault.panics(PLANNED),
        Fault::Wait(_) => fault.for_secs(1 + sim.below(30)),
        planned => fault.fault(planned),
    };
    fault.on_pass(pass)
}

/// What was asked, or what went wrong: a planned fault may hit the test's own request, and a store's panic is one of the caller
/// that asks it.
pub(crate) async fn tried<T, E: std::fmt::Display>(asked: impl Future<Output = Result<T, E>>) -> Result<T, String> {
    match AssertUnwindSafe(asked).catch_unwind().await {
        Ok(reported) => reported.map_err(|error| error.to_string()),
        Err(panic) if panic.downcast_ref::<String>().is_some_and(|text| text == PLANNED) => Err("it panicked".into()),
        Err(panic) => resume_unwind(panic),
    }
}

/// Asks until it works.
pub(crate) async fn insist<T, E: std::fmt::Display>(sim: &Sim, mut ask: impl AsyncFnMut() -> Result<T, E>) -> T {
    for _ in 0..100 {
        match tried(ask()).await {
            Ok(value) => return value,
            Err(error) => sim.note(&format!("asked again: {error}")),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    panic!("asked a hundred times in vain");
}
