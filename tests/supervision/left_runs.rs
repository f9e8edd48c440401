//! Runs whose boards are gone, while no other board has taken them over: what can be done about them from any board.

use std::sync::Arc;
use std::time::Duration;

use callboard::AnswerError;
use callboard::env::{Env, Fault};
use callboard::messages::{Action, AgentName, Durability, Outcome, PlacedTurn, Response, RunEvent, RunId, TurnId};
use callboard::prelude::*;
use callboard::runtime::{Builder, RunError, RunHandle, Unfinished};

use crate::common::faults::FaultPlan;
use crate::common::{comes_true, people};
use crate::several_boards::{HOUR, asked, asker, submit};
use crate::shared_store::Shared;

/// A board that is not found to be gone before its lease has run out: it renews nothing from now on, and replies to no letter.
fn dead(store: &Arc<Shared>, env: &Env) -> Builder {
    let (dies, long) = (FaultPlan::default(), Fault::Wait(Duration::from_secs(3600)));
    dies.arm("storage.handle", long.clone(), 1);
    dies.arm("mail.take", long, u32::MAX);
    store.board(&env.clone().with_faults(Arc::new(dies)))
}

#[tokio::test(start_paused = true)]
async fn a_run_that_has_asked_for_nothing_waits_as_long_for_a_board_that_has_its_agent() {
    let env = Env::repeatable(1);
    let store = Shared::new(&env);
    let slow = |_: Turn| async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        Ok(Command::output("slept"))
    };
    let first = store.board(&env).agent("slow", slow).start().await.unwrap();
    let other = store.board(&env).agent("other", |_: Turn| async { Ok(Command::new()) }).start().await.unwrap();
    let run = other.submit(Task::new("x").to("slow")).await.unwrap();
    first.shutdown().await;
    tokio::time::sleep(HOUR).await;
    assert!(run.read().await.unwrap().result().is_none(), "it is not refused");
    assert!(other.runs_at_work().is_empty(), "and is taken by no board that could only wait");
    let second = store.board(&env).agent("slow", slow).start().await.unwrap();
    assert_eq!(run.result().await.unwrap().output, "slept");
    for board in [other, second] {
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_board_that_replies_to_nothing_does_not_delay_a_decision() {
    let env = Env::repeatable(1);
    let store = Shared::new(&env);
    let clerk = |turn: Turn| async move {
        turn.people().approve(Action::new("write_file", "a.txt", "hello")).await?;
        Ok(Command::output("written"))
    };
    let front = store.board(&env).agent("clerk", clerk).start().await.unwrap();
    let dead = dead(&store, &env).start().await.unwrap();
    let client = store.board(&env).start().await.unwrap();
    let run = front.submit(Task::new("x").to("clerk")).await.unwrap();
    let Some(Pending::Approval(envelope)) = run.next_pending().await.unwrap() else { panic!("no approval") };
    let at = env.now().monotonic;
    client.people().approve(envelope.id(), "ann").await.unwrap();
    assert!(env.now().monotonic - at < Duration::from_secs(1));
    assert_eq!(run.result().await.unwrap().output, "written");
    for board in [front, client, dead] {
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_agents_no_board_has_is_cancelled_by_any_board_and_its_turn_elsewhere_with_it() {
    let env = Env::repeatable(1);
    let store = Shared::new(&env);
    let both = |turn: Turn| async move { Ok(Command::output(turn.people().ask("which?").await?)) };
    let back = asker(store.board(&env)).agent("both", both).start().await.unwrap();
    let lead = |turn: Turn| async move { Ok(Command::output(turn.delegate("asker", "x").await?)) };
    let front = store.board(&env).agent("lead", lead).agent("both", both).start().await.unwrap();
    let client = store.board(&env).on_unfinished(Unfinished::Leave).start().await.unwrap();
    let given = front.submit(Task::new("x").to("both")).await.unwrap().id();
    let run = front.submit(Task::new("x").to("lead")).await.unwrap().id();
    let placed = client.run(run).next_pending().await.unwrap().unwrap().run();
    front.shutdown().await;
    let left = async || {
        let boards = client.boards().await.unwrap();
        boards.iter().find(|board| board.left.is_zero()).map(|board| board.info.runs)
    };
    comes_true(async || left().await == Some(1)).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(left().await, Some(1), "the other run is that of its heir");
    assert!(back.run(given).cancel("not needed either").await.unwrap());
    assert!(client.run(run).read().await.unwrap().result().is_none());
    assert!(back.runs_at_work().iter().all(|at_work| at_work.id() != run), "it does not have its agent");
    assert!(client.run(run).cancel("not needed").await.unwrap());
    let outcome = back.run(run).result().await.unwrap().outcome;
    assert_eq!(outcome, Outcome::Cancelled { reason: "not needed".into() });
    let outcome = client.run(placed).result().await.unwrap().outcome;
    assert!(matches!(outcome, Outcome::Cancelled { .. }), "{outcome:?}");
    assert!(!back.run(run).cancel("again").await.unwrap(), "it has ended");
    assert!(client.unfinished_runs().await.unwrap().is_empty());
    comes_true(async || client.boards().await.unwrap().len() == 2).await;
    for board in [back, client] {
        board.shutdown().await;
    }
}

/// A board with the agent `asker`, with these faults, and one that works on a run which has asked it for a turn.
async fn with_turn_elsewhere(env: &Env, faults: &FaultPlan, kept: Durability) -> (Callboard, Callboard, RunHandle) {
    let store = Shared::new(env);
    let back = asker(store.board(&env.clone().with_faults(Arc::new(faults.clone())))).start().await.unwrap();
    let lead = |turn: Turn| async move { Ok(Command::output(turn.delegate("asker", "x").await?)) };
    let front = store.board(env).agent("lead", lead).start().await.unwrap();
    let run = front.submit(Task::new("x").to("lead").durability(kept)).await.unwrap();
    let is_share = |event: &RunEvent| matches!(event, RunEvent::Reserved { is_share: true, .. });
    comes_true(async || run.history().await.unwrap().iter().any(is_share)).await;
    (back, front, run)
}

/// The run that the turn of the asker is at the other board.
fn placed(run: RunId) -> RunId {
    PlacedTurn::run_of(TurnId { run, number: 2 })
}

#[tokio::test(start_paused = true)]
async fn a_turn_elsewhere_that_begins_after_its_run_was_cancelled_is_cancelled_as_well() {
    for kept in [Durability::Sync, Durability::Memory] {
        let (env, slow) = (Env::repeatable(1), FaultPlan::default());
        slow.arm("mail.take", Fault::Wait(Duration::from_secs(5)), u32::MAX);
        let (back, front, run) = with_turn_elsewhere(&env, &slow, kept).await;
        assert!(run.cancel("not needed").await.unwrap());
        let turn = back.run(placed(run.id()));
        assert!(matches!(turn.read().await, Err(RunError::Unknown(_))), "the letter is not read yet");
        comes_true(async || turn.read().await.is_ok()).await;
        let outcome = turn.result().await.unwrap().outcome;
        assert!(matches!(outcome, Outcome::Cancelled { .. }), "{outcome:?}");
        for board in [front, back] {
            board.shutdown().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_elsewhere_that_a_board_could_not_cancel_before_it_ended_is_cancelled_by_the_next_one() {
    let (env, deaf) = (Env::repeatable(1), FaultPlan::default());
    let (back, front, run) = with_turn_elsewhere(&env, &deaf, Durability::Sync).await;
    let turn = back.run(placed(run.id()));
    comes_true(async || !people::questions(&turn).await.is_empty()).await;
    deaf.arm("mail.take", Fault::Error("it replies nothing that fits".into()), u32::MAX);
    assert!(run.cancel("not needed").await.unwrap());
    front.shutdown().await;
    assert_eq!(turn.read().await.unwrap().result(), None);
    deaf.clear();
    let outcome = turn.result().await.unwrap().outcome;
    assert!(matches!(outcome, Outcome::Cancelled { .. }), "{outcome:?}");
    comes_true(async || back.unfinished_runs().await.unwrap().is_empty()).await;
    back.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_of_a_board_that_lives_is_not_ended_by_another_one_that_cannot_ask_it() {
    let env = Env::repeatable(1);
    let store = Shared::new(&env);
    let mute = FaultPlan::default();
    mute.arm("mail.take", Fault::Error("it replies nothing that fits".into()), u32::MAX);
    let owner = asker(store.board(&env.clone().with_faults(Arc::new(mute)))).start().await.unwrap();
    let client = store.board(&env).start().await.unwrap();
    let (run, name) = asked(&owner).await;
    let refused = client.run(run.id()).cancel("not needed").await.unwrap_err();
    assert!(matches!(refused, RunError::Storage(_)), "{refused}");
    owner.people().answer(name.id, "ann", "tester").await.unwrap();
    assert_eq!(run.result().await.unwrap().output, "ann");
    for board in [owner, client] {
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_begun_before_the_lease_of_a_dead_board_has_ended_reaches_its_heir() {
    let env = Env::repeatable(1);
    let store = Shared::new(&env);
    let client = store.board(&env).on_unfinished(Unfinished::Leave).start().await.unwrap();
    let first = asker(dead(&store, &env)).start().await.unwrap();
    let (run, name) = asked(&first).await;
    let answering = tokio::spawn(async move { client.people().answer(name.id, "ann", "tester").await });
    // It comes before the board that replies to nothing is known to be late.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let heir = asker(store.board(&env)).start().await.unwrap();
    answering.await.unwrap().unwrap();
    assert_eq!(heir.run(run.id()).result().await.unwrap().output, "ann");
    for board in [heir, first] {
        board.shutdown().await;
    }
}

/// A board with an agent that asks for a consent.
fn clerk(board: Builder) -> Builder {
    board.agent("clerk", |turn: Turn| async move {
        turn.people().approve(Action::new("write_file", "a.txt", "hello")).await?;
        Ok(Command::output("written"))
    })
}

/// The run and what it waits for.
async fn waiting(board: &Callboard, to: &str) -> (RunHandle, Pending) {
    let run = submit(board, to).await;
    let open = run.next_pending().await.unwrap().unwrap();
    (run, open)
}

fn response(open: &Pending) -> Response {
    if matches!(open, Pending::Approval(_)) { Response::Approve } else { "ann".into() }
}

#[tokio::test(start_paused = true)]
async fn a_decision_for_which_no_board_has_the_agent_is_refused_soon_with_its_name() {
    let env = Env::repeatable(1);
    let store = Shared::new(&env);
    for (is_killed, has_others) in [(false, true), (false, false), (true, true), (true, false)] {
        let client = store.board(&env).on_unfinished(Unfinished::Leave).start().await.unwrap();
        let other = store.board(&env).agent("other", |_: Turn| async { Ok(Command::new()) });
        let others = if has_others { vec![other.start().await.unwrap()] } else { Vec::new() };
        let first = if is_killed { dead(&store, &env) } else { store.board(&env) };
        let first = clerk(asker(first)).name("first").start().await.unwrap();
        let waits = [waiting(&first, "asker").await, waiting(&first, "clerk").await];
        if !is_killed {
            first.shutdown().await;
        }
        let silent = is_killed.then(|| Arc::from("first"));
        for ((run, open), agent) in waits.iter().zip(["asker", "clerk"]) {
            let at = env.now().monotonic;
            let refused = client.people().answer(open, response(open), "tester").await.unwrap_err();
            let agents = [AgentName::new(agent).unwrap()].into();
            assert_eq!(refused, AnswerError::NotHosted { run: run.id(), agents, silent: silent.clone() });
            assert!(refused.to_string().contains(&format!("`{agent}`")), "{refused}");
            // Two looks of 2 s; a board that is late is seen so within half of its lease, and the look after it.
            let most = Duration::from_secs(if is_killed { 11 } else { 5 });
            assert!(env.now().monotonic - at < most, "{:?}", env.now().monotonic - at);
        }
        for (run, _) in &waits {
            assert!(client.run(run.id()).cancel("not needed").await.unwrap());
        }
        for board in others.into_iter().chain([client, first]) {
            board.shutdown().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_decision_waits_for_a_board_that_has_the_agent_and_is_just_starting() {
    let env = Env::repeatable(1);
    let store = Shared::new(&env);
    let client = store.board(&env).on_unfinished(Unfinished::Leave).start().await.unwrap();
    let other = store.board(&env).agent("other", |_: Turn| async { Ok(Command::new()) }).start().await.unwrap();
    let first = clerk(asker(store.board(&env))).start().await.unwrap();
    let waits = [waiting(&first, "asker").await, waiting(&first, "clerk").await];
    first.shutdown().await;
    let deciding = waits.map(|(run, open)| {
        let client = client.clone();
        (run, tokio::spawn(async move { client.people().answer(&open, response(&open), "tester").await }))
    });
    tokio::time::sleep(Duration::from_secs(3)).await;
    let heir = clerk(asker(store.board(&env))).start().await.unwrap();
    for (run, deciding) in deciding {
        deciding.await.unwrap().unwrap();
        assert!(heir.run(run.id()).result().await.unwrap().outcome.is_finished());
    }
    for board in [heir, other, client] {
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_board_that_leaves_nothing_is_forgotten_at_its_end_and_any_other_once_its_run_is_taken_over() {
    let env = Env::repeatable(1);
    let store = Shared::new(&env);
    let board = asker(store.board(&env)).name("board").start().await.unwrap();
    let names = async || {
        let boards = board.boards().await.unwrap();
        boards.iter().map(|board| board.name.to_string()).collect::<Vec<_>>()
    };
    let client = store.board(&env).on_unfinished(Unfinished::Leave).name("client").start().await.unwrap();
    let run = client.submit(Task::new("x").to("asker")).await.unwrap().id();
    let ended = client.submit(Task::new("x").to("asker")).await.unwrap();
    assert_eq!(names().await, ["board", "client"]);
    client.shutdown().await;
    assert_eq!(names().await, ["board"]);
    // It has the run's agent, and does not give it away: the turn is at work.
    let slow = |turn: Turn| async move {
        turn.people().ask("name?").await?;
        Ok(Command::new())
    };
    let other = store.board(&env).agent("lone", slow).name("other").start().await.unwrap();
    let left = submit(&other, "lone").await.id();
    other.shutdown().await;
    assert_eq!(names().await, ["board", "other"], "a run waits for its agent");
    for run in [run, ended.id(), left] {
        assert!(board.run(run).cancel("not needed").await.unwrap());
    }
    comes_true(async || names().await == ["board"]).await;
    board.shutdown().await;
}
