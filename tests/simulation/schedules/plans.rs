//! Random workflows under random schedules, faults and crashes. What every node sees, what is left in the end, and what is
//! taken back of it after a failure, follows from the plan alone: it is worked out here node by node, in plan order.

use std::time::Duration;

use callboard::messages::{Durability, Reducer, RunId, StateRules};
use callboard::prelude::*;
use callboard::runtime::{Builder, RunHandle};
use callboard::supervision::runs::{BreakerPolicy, Cause, Replay, Run};
use callboard::testing::{Effects, Seeds, Sim, TestError};
use callboard::workflow::{Node, Workflow};
use serde_json::{Value, json};

use super::swarm::{insist, limits, one_fault};

/// Whom the planned faults know.
const AGENTS: u64 = 6;

/// A node, and what comes of it.
struct Spec {
    name: String,
    agent: u64,
    /// Its own condition does not hold.
    is_skipped: bool,
    fails: bool,
    /// It names an agent that compensates it.
    is_undone: bool,
    /// A person has to let it start.
    is_interrupted: bool,
    /// The nodes that it comes after: their places, and whether it does if they fail.
    after: Vec<(usize, bool)>,
    work: Work,
}

enum Work {
    Turn,
    Group(Vec<Spec>),
    Times(u32, Vec<Spec>),
    Each(u32, Vec<Spec>),
}

fn block(sim: &Sim, depth: u64, names: &mut usize) -> Vec<Spec> {
    let mut nodes: Vec<Spec> = Vec::new();
    for _ in 0..1 + sim.below(5 - depth) {
        let mut after: Vec<(usize, bool)> = Vec::new();
        for (earlier, node) in nodes.iter().enumerate() {
            if sim.below(3) == 0 {
                after.push((earlier, node.fails || sim.below(12) == 0));
            }
        }
        *names += 1;
        let name = format!("n{names}");
        let work = match sim.below(8) {
            0 if depth < 2 => Work::Group(block(sim, depth + 1, names)),
            1 if depth < 2 => Work::Times(1 + sim.below(2) as u32, block(sim, depth + 1, names)),
            2 if depth < 2 => Work::Each(sim.below(4) as u32, block(sim, depth + 1, names)),
            _ => Work::Turn,
        };
        let is_turn = matches!(work, Work::Turn);
        let fails = is_turn && sim.below(6) == 0;
        let (agent, is_skipped) = (sim.below(AGENTS), sim.below(10) == 0);
        let (is_undone, is_interrupted) = (sim.below(4) == 0, is_turn && sim.below(12) == 0);
        nodes.push(Spec { name, agent, is_skipped, fails, is_undone, is_interrupted, after, work });
    }
    // A failure that nobody deals with would end it all.
    for place in 0..nodes.len() {
        let is_dealt_with = nodes.iter().any(|node| node.after.contains(&(place, true)));
        nodes[place].fails &= is_dealt_with;
    }
    nodes
}

fn node(spec: &Spec, around: &[Spec]) -> Node {
    let inner = |nodes: &[Spec]| Node::nodes(&spec.name, nodes.iter().map(|inner| node(inner, nodes)));
    let begun = match &spec.work {
        Work::Turn => {
            Node::agent(&spec.name, &format!("a{}", spec.agent)).input(json!([&spec.name, spec.fails, "{{ input }}"]))
        }
        Work::Group(nodes) => inner(nodes),
        Work::Times(times, nodes) => inner(nodes).times(*times),
        Work::Each(items, nodes) => inner(nodes).for_each(&format!("range({items}) | list")),
    };
    let begun = if spec.is_skipped { begun.when("false") } else { begun };
    let begun = if spec.is_undone { begun.compensated_by("undo") } else { begun };
    let begun = if spec.is_interrupted { begun.interrupted() } else { begun };
    spec.after.iter().fold(begun, |begun, (before, is_failure)| {
        let name = &around[*before].name;
        if *is_failure { begun.after_failure_of(name) } else { begun.after(name) }
    })
}

/// What a turn writes: its node, and a sum of what it has seen.
fn mark(name: &str, seen: &Value) -> String {
    format!("{name} {:08x}", crc32fast::hash(seen.to_string().as_bytes()))
}

/// What comes of a block.
#[derive(Default)]
struct Done {
    /// What its turns write, in plan order.
    writes: Vec<String>,
    turns: usize,
    /// Some of its nodes finish.
    is_any_finished: bool,
    /// The nodes that are taken back if what is around it fails, the first first.
    undone: Vec<String>,
}

/// What comes of a block if this was written before it.
fn done(nodes: &[Spec], before: &[String]) -> Done {
    let (mut writes, mut is_active, mut ancestors) = (Vec::<Vec<String>>::new(), Vec::new(), Vec::<Vec<bool>>::new());
    let mut all = Done::default();
    for (place, spec) in nodes.iter().enumerate() {
        let taken: Vec<usize> = spec
            .after
            .iter()
            .filter(|(from, is_failure)| is_active[*from] && nodes[*from].fails == *is_failure)
            .map(|(from, _)| *from)
            .collect();
        let is_reached = (spec.after.is_empty() || !taken.is_empty()) && !spec.is_skipped;
        let mut earlier = vec![false; place];
        for from in &taken {
            earlier[*from] = true;
            for (other, is_earlier) in ancestors[*from].iter().enumerate() {
                earlier[other] |= is_earlier;
            }
        }
        let own = (0..place).filter(|other| earlier[*other]).flat_map(|other| writes[other].iter().cloned());
        let sees: Vec<String> = before.iter().cloned().chain(own).collect();
        let mut own = Done::default();
        let mut add = |more: Done| {
            own.writes.extend(more.writes);
            own.turns += more.turns;
            own.undone.extend(more.undone);
            own.writes.clone()
        };
        if is_reached {
            match &spec.work {
                Work::Turn => {
                    let writes = (!spec.fails).then(|| mark(&spec.name, &json!(sees))).into_iter().collect();
                    add(Done { writes, turns: 1, ..Done::default() });
                }
                Work::Group(inner) => drop(add(done(inner, &sees))),
                Work::Times(times, inner) => {
                    (0..*times).fold(sees.clone(), |so_far, _| [&sees[..], &add(done(inner, &so_far))].concat());
                }
                Work::Each(items, inner) => (0..*items).for_each(|_| drop(add(done(inner, &sees)))),
            }
            if spec.is_undone && !spec.fails {
                own.undone = vec![spec.name.clone()];
            }
        }
        all.is_any_finished |= is_reached && !spec.fails;
        all.turns += own.turns;
        all.undone.extend(own.undone);
        writes.push(own.writes);
        is_active.push(is_reached);
        ancestors.push(earlier);
    }
    Done { writes: writes.concat(), ..all }
}

async fn follow(turn: Turn, effects: Effects) -> Result<Command, TurnError> {
    let (name, fails, _): (String, bool, Value) = turn.input()?;
    turn.step("work", async { Ok::<_, TurnError>(effects.apply(&turn, "work", "done")) }).await?;
    if fails {
        return Err(TurnError::terminal("as planned"));
    }
    let seen = turn.state().get("seen").map_or(json!([]), |seen| seen.value().clone());
    Ok(Command::output(name.as_str()).with("seen", mark(&name, &seen)))
}

fn board(sim: &Sim) -> Builder {
    let never = BreakerPolicy { threshold: u32::MAX, cooldown: Duration::ZERO, max_cooldown: Duration::ZERO };
    let effects = sim.effects();
    let undo = move |turn: Turn| {
        effects.apply(&turn, "undo", "done");
        async { Ok(Command::new()) }
    };
    (0..AGENTS).fold(
        sim.board().breaker(never).pool(3).capacity(|capacity| capacity.run_supervisors(2)).agent("undo", undo),
        |builder, number| {
            let effects = sim.effects();
            let agent = move |turn: Turn| follow(turn, effects.clone());
            builder.with(AgentSpec::new(&format!("a{number}"), agent).concurrency(3))
        },
    )
}

/// What was taken back, by the names of the nodes.
fn compensated(replay: &Replay) -> Vec<String> {
    let undone = replay.turns().filter(|turn| turn.agent.as_str() == "undo");
    let node = |cause: &Cause| match cause {
        Cause::Compensation { node } => node.rsplit('/').next().unwrap().to_owned(),
        other => panic!("{other:?}"),
    };
    undone.map(|turn| node(&turn.cause)).collect()
}

/// A person who starts every waiting node, until the run has ended.
async fn person(sim: &Sim, board: &Callboard, run: &RunHandle) {
    while let Some(waits) = insist(sim, async || run.next_pending().await).await {
        // It may have gone on meanwhile.
        let _ = board.people().answer(&waits, Resume::default(), "ann").await;
    }
}

async fn play(sim: Sim) -> Result<(), TestError> {
    let nodes = block(&sim, 0, &mut 0);
    let fails = sim.below(3) == 0;
    let workflow = Workflow::builder("random").channel("seen", Reducer::Append);
    let workflow = nodes.iter().fold(workflow, |workflow, spec| workflow.node(node(spec, &nodes)));
    let after_all = |last: Node| nodes.iter().fold(last, |last, spec| last.after(&spec.name));
    let last = after_all(Node::join("last").settled());
    let workflow = if fails { workflow.node(last.input("{{ state.seen.nothing }}")) } else { workflow }.build();
    let workflow = workflow.unwrap_or_else(|defects| panic!("{defects}"));
    let id = RunId(sim.env().id());
    let task = || workflow.task("x").id(id).limits(limits()).durability(Durability::Sync);
    for _ in 0..sim.below(4) {
        one_fault(&sim, sim.faults());
    }
    let mut is_acknowledged = false;
    let Done { writes, turns, undone, is_any_finished } = done(&nodes, &[]);
    let fails = fails && is_any_finished;
    let undone: Vec<String> = if fails { undone.into_iter().rev().collect() } else { Vec::new() };
    let turns = turns + undone.len();
    loop {
        let lived = sim
            .until_crash(async {
                let board = insist(&sim, async || board(&sim).start().await).await;
                if !is_acknowledged {
                    insist(&sim, async || board.submit(task()).await).await;
                    is_acknowledged = true;
                }
                let run = board.run(id);
                let (result, ()) =
                    futures::join!(insist(&sim, async || run.result().await), person(&sim, &board, &run));
                match &result.outcome {
                    Outcome::Finished => assert!(!fails),
                    Outcome::Failed { error } => assert!(fails && error.starts_with("node last: "), "{error}"),
                    other => panic!("{other}"),
                }
                let seen = result.state.get("seen").cloned().unwrap_or(json!([]));
                assert_eq!(seen, json!(writes), "{:#?}", workflow.plan());
                assert_eq!(result.metrics.turns as usize, turns);
                let history = insist(&sim, async || run.history().await).await;
                let replay = Replay::of(history.clone(), &StateRules::default()).unwrap();
                assert_eq!(compensated(&replay), undone, "{:#?}", workflow.plan());
                assert_eq!(**Run::of(history, &StateRules::default()).unwrap().result().unwrap(), result);
                sim.assert_nothing_left().await;
            })
            .await;
        if lived.is_some() {
            break;
        }
    }
    assert_eq!(sim.effects().count(), turns, "each turn was at work once");
    sim.assert_effects_at_most_once_per_key();
    Ok(())
}

#[test]
fn every_node_sees_what_came_before_it_and_works_once_whatever_the_schedule_and_the_faults() {
    Seeds::new(100).simulate(play);
}
