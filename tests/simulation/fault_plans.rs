//! Every kind of fault at every point that takes it, with work in flight: a day at the office ends as it should, each step
//! has its effect once, and nothing is left.

use std::collections::BTreeMap;
use std::time::Duration;

use callboard::actors::approvals::{Channel, Decider};
use callboard::env::Fault;
use callboard::messages::{Action, AgentName, Decision, Envelope, RunId};
use callboard::prelude::*;
use callboard::runtime::RunHandle;
use callboard::testing::{FaultPlan, FaultPoint, Script, Seeds, Sim, TestError};
use futures::FutureExt;
use futures::future::{join, join_all, try_join};

use crate::common::people;

const MINUTE: Duration = Duration::from_secs(60);

/// A channel whose person approves whatever they see.
struct ApprovesAll;

impl Channel for ApprovesAll {
    fn name(&self) -> &'static str {
        "desk"
    }

    fn ask(&self, envelope: &Envelope, decider: &Decider) {
        let (id, decider) = (envelope.id(), decider.clone());
        // Who could not decide is asked again.
        tokio::spawn(async move { decider.approve(id, "ann").await });
    }

    fn settled(&self, _: &Envelope, _: Option<&Decision>) {}
}

async fn lead(turn: Turn) -> Result<Command, TurnError> {
    try_join(turn.delegate("coder", "one"), turn.delegate("coder", "two")).await?;
    let write = |file: &str| turn.people().approve(Action::new("write_file", file, "fine"));
    try_join(write("a"), write("b")).await?;
    try_join(turn.people().ask("which?"), turn.people().ask("when?")).await?;
    Ok(Command::new().goto("closer"))
}

async fn start(sim: &Sim, retention: Duration) -> Callboard {
    let effects = sim.effects();
    let coder = move |turn: Turn| {
        let effects = effects.clone();
        async move {
            turn.step("patch", async { Ok::<_, TurnError>(effects.apply(&turn, "patch", "+1")) }).await?;
            turn.notice("patched");
            tokio::time::sleep(MINUTE / 2).await;
            if turn.attempt() == 1 {
                // As a panic does, but without the hook's report.
                std::panic::resume_unwind(Box::new("the first attempt at every patch is thrown away"));
            }
            Ok(Command::output("patched"))
        }
    };
    let board = || {
        let spec = AgentSpec::new("coder", coder.clone()).concurrency(2);
        sim.board()
            .agent("lead", lead)
            .with(spec)
            .agent("closer", closer)
            .with(AgentSpec::new("temp", closer).dormant())
            .channel(ApprovesAll)
            .capacity(|capacity| capacity.run_supervisors(1))
            .retention(|kept| kept.every(MINUTE / 4).runs(retention))
    };
    insist(sim, async || board().start().await).await
}

async fn closer(_: Turn) -> Result<Command, TurnError> {
    Ok(Command::output("closed"))
}

/// Asks until it works: a planned fault may hit the test's own request.
async fn insist<T, E: std::fmt::Display>(sim: &Sim, ask: impl AsyncFn() -> Result<T, E>) -> T {
    for _ in 0..10 {
        match std::panic::AssertUnwindSafe(ask()).catch_unwind().await {
            Ok(Ok(value)) => return value,
            Ok(Err(error)) => sim.note(&format!("asked again: {error}")),
            Err(_) => sim.note("asked again: the store panicked"),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    panic!("asked ten times in vain");
}

/// The morning: the run that counts begins, and what goes wrong is planned. Two others end and are forgotten, what is in
/// the context is written, read and deleted, an agent comes and goes, and the board is closed while the run waits for
/// people.
async fn morning(sim: &Sim, run: RunId, plan: impl FnOnce(FaultPlan) -> FaultPlan) {
    let board = start(sim, MINUTE).await;
    let limits = Limits { attempts: 10, ..Limits::default() };
    board.submit(Task::new("work").id(run).to("lead").limits(limits)).await.unwrap();
    drop(plan(sim.faults()));
    let other = || insist(sim, async || board.submit(Task::new("other").to("closer")).await);
    join(other(), other()).await;
    insist(sim, async || board.context().set("notes", "key", "value", &ann(), None).await).await;
    insist(sim, async || board.context().query("notes", 5).await).await;
    insist(sim, async || board.context().delete("notes", "key").await).await;
    insist(sim, async || board.runs().await).await;
    // A fault of its actor is an error here.
    let _ = board.agents().stop("temp").await;
    let _ = board.agents().spawn(AgentSpec::new("temp", closer)).await;
    let _ = tokio::time::timeout(MINUTE * 2, look_after_approvals(sim, &board)).await;
    board.shutdown().await;
}

/// The afternoon: another board continues, and people answer.
async fn afternoon(sim: &Sim, run: RunId) {
    let board = start(sim, MINUTE * 60).await;
    let run = board.run(run);
    let ended = async { insist(sim, async || run.result().await).await };
    tokio::select! {
        biased;
        result = ended => assert_eq!(result.outcome, Outcome::Finished),
        () = answer(&board, &run) => {}
        () = look_after_approvals(sim, &board) => {}
    }
}

async fn answer(board: &Callboard, run: &RunHandle) {
    loop {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let (people, questions) = (board.people(), people::questions(run).await);
        // A person whose answer has an unknown result looks at the open questions again.
        join_all(questions.into_iter().map(|open| people.answer(open.id, "today", "ann"))).await;
    }
}

/// What was on no screen is found by asking for it.
async fn look_after_approvals(sim: &Sim, board: &Callboard) {
    loop {
        tokio::time::sleep(Duration::from_secs(5)).await;
        for open in sim.open_approvals(board) {
            let _ = board.people().approve(open.id(), "bob").await;
        }
    }
}

fn ann() -> AgentName {
    AgentName::new("ann").unwrap()
}

async fn a_day(sim: &Sim, plan: impl FnOnce(FaultPlan) -> FaultPlan) {
    let run = RunId(sim.env().id());
    let mut plan = Some(plan);
    loop {
        let lived = sim
            .until_crash(async {
                if let Some(plan) = plan.take() {
                    morning(sim, run, plan).await;
                }
                afternoon(sim, run).await;
                sim.assert_nothing_left().await;
            })
            .await;
        if lived.is_some() {
            break;
        }
    }
    assert_eq!(sim.effects().count(), 2);
    sim.assert_effects_at_most_once_per_key();
}

/// A start is that of an actor which is killed before. What happens only as a board starts or ends is planned for a moment
/// without work.
fn moment(plan: FaultPlan, point: &FaultPoint) -> FaultPlan {
    let restarted = |plan: FaultPlan, handle: &str| plan.at(handle).kills().at(point.name);
    match point.name {
        "agent.start" | "agent.stop" | "runs.stop" => plan.at(point.name),
        "runs.start" => restarted(plan, "runs.applied"),
        "storage.claim" | "storage.read" | "storage.release" => plan.at(point.name).at_rest(),
        // The runs of a board that stops are put down first.
        name if name.ends_with(".stop") => plan.at(name).at_rest(),
        name => match name.strip_suffix(".start") {
            Some(actor) => restarted(plan, &format!("{actor}.handle")),
            None => plan.at(name),
        },
    }
}

/// No part of the runtime uses the sessions of a store.
const SESSIONS: [&str; 5] = ["session.begin", "session.renew", "session.end", "session.list", "session.forget"];

fn every_kind_at(is_meant: impl Fn(&FaultPoint) -> bool) {
    let mut wrong = Vec::new();
    for point in FaultPoint::all().iter().filter(|point| is_meant(point) && !SESSIONS.contains(&point.name)) {
        for fault in point.faults() {
            let result = std::panic::catch_unwind(|| {
                Seeds::new(2).simulate(async |sim: Sim| {
                    a_day(&sim, |plan| moment(plan, point).fault(fault.clone())).await;
                    Ok(())
                })
            });
            if let Err(panic) = result {
                let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
                wrong.push(format!("{} {fault:?}: {}", point.name, text.chars().take(300).collect::<String>()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n=====\n"));
}

#[test]
fn faults_around_turns_and_in_run_supervisors() {
    every_kind_at(|point| (point.name.starts_with("turn.") || point.name.starts_with("runs.")) && !is_message(point));
}

#[test]
fn faults_of_the_disk() {
    every_kind_at(|point| point.faults().contains(&Fault::Lose));
}

#[test]
fn faults_of_the_boards_actors() {
    let is_actor = |name: &str| [".start", ".handle", ".stop", ".sweep"].iter().any(|end| name.ends_with(end));
    every_kind_at(|point| is_actor(point.name) && !point.name.starts_with("runs."));
}

#[test]
fn faults_of_messages() {
    every_kind_at(is_message);
}

fn is_message(point: &FaultPoint) -> bool {
    point.name.ends_with(".dispatch") || point.name.ends_with(".reply") || point.name == "channel.ask"
}

// What comes of it.

fn lead_of(
    parts: &'static [&'static str],
) -> impl Fn(Turn) -> futures::future::BoxFuture<'static, Result<Command, TurnError>> + Clone {
    move |turn: Turn| {
        async move {
            futures::future::try_join_all(parts.iter().map(|part| turn.delegate("coder", part))).await?;
            Ok(Command::output("led"))
        }
        .boxed()
    }
}

/// Has a lead delegate these parts to a coder, under a plan, and gives what the coder's turns were asked for.
async fn delegated(
    sim: &Sim,
    parts: &'static [&'static str],
    plan: impl FnOnce(FaultPlan) -> FaultPlan,
) -> (Callboard, Vec<Json>) {
    let coder = Script::new().reply("done");
    let board = sim.board().agent("lead", lead_of(parts)).agent("coder", coder.clone()).start().await.unwrap();
    drop(plan(sim.faults()));
    let run = board.submit(Task::new("go").to("lead")).await.unwrap();
    assert_eq!(run.result().await.unwrap().outcome, Outcome::Finished);
    assert!(coder.turns().iter().all(|turn| turn.attempts == 1));
    sim.assert_nothing_left().await;
    (board, coder.turns().into_iter().map(|turn| turn.input).collect())
}

#[test]
fn a_delegation_that_is_lost_is_asked_for_again_and_one_that_arrives_twice_is_done_once() {
    Seeds::new(10).simulate(async |sim: Sim| {
        let begun = sim.env().now().monotonic;
        let (_, done) = delegated(&sim, &["one"], |plan| plan.at("delegation.dispatch").drops().of("coder")).await;
        assert_eq!(done, ["one"]);
        assert!(sim.env().now().monotonic - begun >= Duration::from_secs(1), "nobody noticed that it was lost");
        for point in ["delegation.dispatch", "turn.dispatch", "turn.reply"] {
            let (_, done) = delegated(&sim, &["one"], |plan| plan.at(point).duplicates().every(1)).await;
            assert_eq!(done, ["one"]);
        }
        let (_, done) = delegated(&sim, &["one"], |plan| plan.at("delegation.reply").drops()).await;
        assert_eq!(done, ["one"]);
        Ok(())
    });
}

#[test]
fn what_is_held_back_comes_after_what_passes_meanwhile() {
    Seeds::new(10).simulate(async |sim: Sim| {
        for point in ["delegation.dispatch", "turn.dispatch"] {
            let (_, done) = delegated(&sim, &["one", "two"], |plan| plan.at(point).reorders().of("coder")).await;
            assert_eq!(done, ["two", "one"]);
            sim.faults().forget();
        }
        Ok(())
    });
}

#[test]
fn an_inbox_shows_a_message_once_that_arrives_twice_and_finds_a_lost_one_in_the_journal() {
    Seeds::new(10).simulate(async |sim: Sim| {
        let shown = async |board: &Callboard, agent| board.agents().inbox(agent).await.unwrap().len();
        let (board, _) = delegated(&sim, &["one"], |plan| plan.at("inbox.dispatch").duplicates().every(1)).await;
        let both = (shown(&board, "coder").await, shown(&board, "lead").await);
        assert_eq!(both, (1, 2), "a request; ack and complete");
        sim.faults().forget();
        let (board, done) = delegated(&sim, &["one"], |plan| plan.at("inbox.dispatch").drops().every(1)).await;
        let both = (shown(&board, "coder").await, shown(&board, "lead").await);
        assert_eq!((done, both), (vec!["one".into()], (2, 4)), "those of the run before too");
        Ok(())
    });
}

async fn asks(turn: Turn) -> Result<Command, TurnError> {
    turn.people().approve(Action::new("write_file", "a", "fine")).await?;
    Ok(Command::output("written"))
}

#[test]
fn a_decision_that_is_lost_is_reported_as_lost_and_one_that_arrives_twice_counts_once() {
    Seeds::new(10).simulate(async |sim: Sim| {
        let board = sim.board().agent("writer", asks).start().await?;
        sim.faults().at("decision.dispatch").drops().at("decision.dispatch").duplicates().on_pass(2);
        let run = board.submit(Task::new("write")).await?;
        let open = people::approval(&board).await;
        let lost = board.people().approve(open.id(), "ann").await.unwrap_err();
        assert!(lost.to_string().contains("the decision was lost"), "{lost}");
        assert!(board.people().approve(open.id(), "bob").await?.decision.is_some_and(|decision| decision.approved));
        assert_eq!(run.result().await?.output, "written");
        Ok(())
    });
}

#[test]
fn an_expiry_that_meets_a_store_that_panics_is_tried_again() {
    Seeds::new(5).simulate(async |sim: Sim| {
        let board = sim.board().agent("writer", asks).approval_ttl(MINUTE).start().await?;
        let run = board.submit(Task::new("write")).await?;
        people::approval(&board).await;
        sim.faults().at("storage.put").panics("away");
        assert!(matches!(run.result().await?.outcome, Outcome::Denied { .. }));
        Ok(())
    });
}

#[test]
fn a_start_that_meets_a_store_that_panics_fails_and_leaves_nothing_running() {
    Seeds::new(5).simulate(async |sim: Sim| {
        sim.faults().at("storage.scan").panics("away").at_rest();
        let start = || sim.board().agent("closer", closer).start();
        let error = start().await.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains("the store panicked: away"), "{error}");
        let board = start().await?;
        let run = board.submit(Task::new("close")).await?;
        assert_eq!(run.result().await?.outcome, Outcome::Finished);
        sim.assert_nothing_left().await;
        Ok(())
    });
}

#[test]
fn a_card_that_nobody_is_shown_is_denied_by_silence() {
    Seeds::new(2).simulate(async |sim: Sim| {
        sim.time_limit(MINUTE * 60 * 2);
        let board = sim.board().approval_ttl(MINUTE * 60).agent("writer", asks).channel(ApprovesAll).start().await?;
        sim.faults().at("channel.ask").drops();
        let run = board.submit(Task::new("write")).await?;
        assert!(matches!(run.result().await?.outcome, Outcome::Denied { .. }));
        Ok(())
    });
}

#[test]
fn an_agent_that_is_killed_returns_and_its_turn_continues() {
    Seeds::new(10).simulate(async |sim: Sim| {
        let (board, done) = delegated(&sim, &["one"], |plan| plan.at("turn.begin").kills().of("coder")).await;
        assert_eq!(done, ["one"]);
        tokio::time::sleep(MINUTE).await;
        assert_eq!(board.tree().await?.find(&["agents", "coder"]).unwrap().generation, 2);
        Ok(())
    });
}

#[test]
fn a_run_whose_store_panics_as_it_is_read_back_is_read_again() {
    Seeds::new(5).simulate(async |sim: Sim| {
        let start = || sim.board().agent("closer", Script::new().wait(MINUTE).reply("closed")).start();
        let board = start().await?;
        let run = board.submit(Task::new("close")).await?.id();
        let point = ["storage.read", "storage.get", "storage.put"][sim.below(3) as usize];
        board.shutdown().await;
        sim.faults().at(point).panics("planned").at_rest();
        let board = start().await?;
        board.recovered().await;
        assert_eq!(board.quarantined(), BTreeMap::new());
        assert_eq!(board.run(run).result().await?.outcome, Outcome::Finished);
        Ok(())
    });
}

#[test]
fn an_agent_that_fails_as_it_stops_or_is_killed_is_on_the_roster_no_longer_than_it_is_there() {
    Seeds::new(10).simulate(async |sim: Sim| {
        let board = sim.board().agent("closer", closer).agent("temp", closer).start().await?;
        let mut presence = board.agents().presence();
        sim.faults().at("agent.stop").error("planned").of("temp").at_rest();
        board.agents().stop("temp").await?;
        assert_eq!(board.agents().roster().len(), 1);
        assert!(!presence.recv().await?.is_available);
        sim.faults().at("turn.begin").kills();
        assert_eq!(board.submit(Task::new("close")).await?.result().await?.outcome, Outcome::Finished);
        assert!(!presence.recv().await?.is_available);
        assert!(presence.recv().await?.is_available);
        assert_eq!(board.agents().roster().len(), 1);
        Ok(())
    });
}

// Planning.

fn failure(test: impl FnOnce() + std::panic::UnwindSafe) -> String {
    let panic = std::panic::catch_unwind(test).expect_err("it passes");
    panic.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[test]
fn a_kind_that_a_point_does_not_take_is_refused_as_it_is_planned() {
    let text = failure(|| {
        Seeds::new(1).simulate(async |sim: Sim| {
            sim.faults().at("router.handle").drops();
            Ok(())
        });
    });
    assert!(
        text.contains("router.handle does not take `drops`: it takes error, panics, waits, kills, crash"),
        "{text}"
    );
    let text = failure(|| {
        Seeds::new(1).simulate(async |sim: Sim| {
            sim.faults().at("inbox.dispatch");
            Ok(())
        });
    });
    assert!(text.contains("inbox.dispatch does not take `error`: it takes waits, drops"), "{text}");
}

async fn idle(sim: Sim, plan: fn(FaultPlan) -> FaultPlan) -> Result<(), TestError> {
    let board = sim.board().agent("closer", closer).start().await?;
    drop(plan(sim.faults()));
    board.agents().stop("closer").await?;
    tokio::time::sleep(MINUTE).await;
    let strikes = sim.faults().strikes();
    assert_eq!((strikes[0].struck, strikes[0].in_flight), (1, 0), "{strikes:?}");
    Ok(())
}

#[test]
fn a_fault_that_hits_nothing_in_flight_fails_the_test_unless_it_is_meant_to() {
    Seeds::new(2).simulate(async |sim| idle(sim, |plan| plan.at("router.handle").kills().at_rest()).await);
    let text = failure(|| Seeds::new(2).simulate(async |sim| idle(sim, |plan| plan.at("router.handle").kills()).await));
    assert!(text.contains("in none of 2 seeds did it hit work in flight"), "{text}");
    assert!(text.contains("Kill at router.handle") && text.contains(".at_rest()"), "{text}");
}

#[test]
fn every_point_is_in_the_guide() {
    let guide = include_str!("../../docs/testing.md");
    let missing = FaultPoint::all().iter().filter(|point| !guide.contains(&format!("`{}`", point.name)));
    assert_eq!(missing.map(|point| point.name).collect::<Vec<_>>(), Vec::<&str>::new());
}
