//! Runs of many boards that are gone, one after the other: which are no longer executed, and what taking many over costs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use callboard::env::Env;
use callboard::messages::{Complexity, Outcome, PlacedTurn, RunId, SendTo, TurnId};
use callboard::prelude::*;
use callboard::runtime::Builder;
use callboard::workflow::{Node, Workflow};

use crate::common::{comes_true, people};
use crate::several_boards::{HOUR, TAKEN_OVER_WITHIN, asker, hangs, question, submit};
use crate::shared_store::Shared;

/// What boards are called that are gone, or shut down, one after the other.
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Starts a board of a process that is stopped for a minute, once the one before is gone.
async fn next_that_hangs(
    (store, env): (&Arc<Shared>, &Env),
    name: &str,
    agents: impl FnOnce(Builder) -> Builder,
) -> Callboard {
    tokio::time::sleep(TAKEN_OVER_WITHIN).await;
    agents(store.board(&hangs(env)).name(name)).start().await.unwrap()
}

/// An agent whose turns are under way for ever, and the number of times that they have begun.
fn stuck(begun: &Arc<AtomicU32>) -> impl Fn(Builder) -> Builder + use<> {
    let begun = Arc::clone(begun);
    move |board| {
        let begun = Arc::clone(&begun);
        board.agent("stuck", move |_: Turn| {
            begun.fetch_add(1, Ordering::Relaxed);
            std::future::pending::<Result<Command, TurnError>>()
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_with_which_three_boards_have_ended_is_not_executed_by_a_fourth_until_a_person_restarts_it() {
    let (env, begun) = (Env::repeatable(1), Arc::new(AtomicU32::new(0)));
    let store = Shared::new(&env);
    let first = next_that_hangs((&store, &env), NAMES[0], stuck(&begun)).await;
    let run = submit(&first, "stuck").await.id();
    let mut gone = vec![first];
    for name in &NAMES[1..3] {
        gone.push(next_that_hangs((&store, &env), name, stuck(&begun)).await);
    }
    comes_true(async || begun.load(Ordering::Relaxed) == 3).await;
    tokio::time::sleep(TAKEN_OVER_WITHIN).await;
    let last = stuck(&begun)(store.board(&env).name(NAMES[3])).start().await.unwrap();
    last.recovered().await;
    let (turn, why) = people::attention(&last.run(run)).await.remove(0);
    assert_eq!(turn.number, 1);
    assert!(why.starts_with("poison run: the boards a, b, c ended while they worked on it"), "{why}");
    tokio::time::sleep(HOUR).await;
    assert_eq!(begun.load(Ordering::Relaxed), 3, "it is not executed again");
    assert_eq!(people::restart_turns(&last, &last.run(run)).await, 1);
    comes_true(async || begun.load(Ordering::Relaxed) == 4).await;
    last.shutdown().await;
    for board in gone {
        board.shutdown().await;
    }
}

/// A store with so many runs of a board that is gone.
async fn with_stuck_runs(runs: usize) -> (Env, Arc<Shared>, Callboard) {
    let env = Env::repeatable(1);
    let store = Shared::new(&env);
    let first = next_that_hangs((&store, &env), "first", stuck(&Arc::default())).await;
    for _ in 0..runs {
        submit(&first, "stuck").await;
    }
    tokio::time::sleep(TAKEN_OVER_WITHIN).await;
    (env, store, first)
}

#[tokio::test(start_paused = true)]
async fn many_runs_are_taken_over_with_few_calls() {
    const RUNS: usize = 700;
    let (env, store, first) = with_stuck_runs(RUNS).await;
    store.reads.store(0, Ordering::Relaxed);
    store.reads_of_many.store(0, Ordering::Relaxed);
    let second = stuck(&Arc::default())(store.board(&env)).start().await.unwrap();
    second.recovered().await;
    assert_eq!(second.runs_at_work().len(), RUNS);
    let reads = store.reads.load(Ordering::Relaxed);
    assert!(reads < 20, "{reads} journals of {RUNS} are read by calls of their own");
    let calls = store.reads_of_many.load(Ordering::Relaxed);
    assert!(calls <= 30, "{calls} calls for notes, snapshots and journals of {RUNS} runs");
    for board in [second, first] {
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn runs_that_cannot_be_read_together_are_read_one_by_one() {
    const RUNS: usize = 20;
    let (env, store, first) = with_stuck_runs(RUNS).await;
    store.panics_at_many.store(true, Ordering::Relaxed);
    let second = stuck(&Arc::default())(store.board(&env)).start().await.unwrap();
    second.recovered().await;
    assert_eq!(second.runs_at_work().len(), RUNS);
    for board in [second, first] {
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn boards_that_are_shut_down_are_no_losses_of_their_runs() {
    let (env, begun) = (Env::repeatable(1), Arc::new(AtomicU32::new(0)));
    let store = Shared::new(&env);
    let mut board = stuck(&begun)(store.board(&env)).start().await.unwrap();
    let run = submit(&board, "stuck").await.id();
    for number in 1..6 {
        comes_true(async || begun.load(Ordering::Relaxed) == number).await;
        let next = stuck(&begun)(store.board(&env)).start().await.unwrap();
        board.shutdown().await;
        board = next;
    }
    comes_true(async || begun.load(Ordering::Relaxed) == 6).await;
    assert_eq!(people::attention(&board.run(run)).await, []);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_gets_further_or_waits_for_people_outlives_any_number_of_boards() {
    let env = Env::repeatable(1);
    let store = Shared::new(&env);
    // One step further on each board.
    let steps = Arc::new(AtomicU32::new(0));
    let agents = |board: Builder| {
        let steps = Arc::clone(&steps);
        asker(board).agent("walker", move |turn: Turn| {
            let steps = Arc::clone(&steps);
            async move {
                let before = steps.load(Ordering::Relaxed);
                while steps.load(Ordering::Relaxed) == before {
                    turn.step("one", async { Ok::<_, TurnError>(steps.fetch_add(1, Ordering::Relaxed)) }).await?;
                }
                std::future::pending().await
            }
        })
    };
    let first = next_that_hangs((&store, &env), "first", agents).await;
    let (walks, waits) = (submit(&first, "walker").await.id(), submit(&first, "asker").await.id());
    question(&first.run(waits)).await;
    let mut gone = vec![first];
    for name in NAMES {
        comes_true(async || steps.load(Ordering::Relaxed) as usize == gone.len()).await;
        gone.push(next_that_hangs((&store, &env), name, agents).await);
    }
    comes_true(async || steps.load(Ordering::Relaxed) == 5).await;
    let last = gone.last().unwrap();
    assert_eq!(people::attention(&last.run(walks)).await, []);
    question(&last.run(waits)).await;
    for board in gone {
        board.shutdown().await;
    }
}

/// A board on which the run has been at five others that have hung, one after the other; these are with it.
async fn after_five(
    (store, env): (&Arc<Shared>, &Env),
    first: Callboard,
    agents: impl Fn(Builder) -> Builder,
) -> (Callboard, Vec<Callboard>) {
    let mut gone = vec![first];
    for name in NAMES {
        gone.push(next_that_hangs((store, env), name, &agents).await);
    }
    tokio::time::sleep(TAKEN_OVER_WITHIN).await;
    let last = agents(store.board(env).name("last")).start().await.unwrap();
    last.recovered().await;
    (last, gone)
}

async fn shut_down(boards: impl IntoIterator<Item = Callboard>) {
    for board in boards {
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_for_a_turn_at_another_board_outlives_any_number_of_boards() {
    let env = Env::repeatable(1);
    let store = Shared::new(&env);
    let back = asker(store.board(&env).name("back")).start().await.unwrap();
    let agents = |board: Builder| {
        let lead = |turn: Turn| async move { Ok(Command::output(turn.delegate("asker", "x").await?)) };
        board.max_recoveries(1).agent("lead", lead)
    };
    let first = next_that_hangs((&store, &env), "first", agents).await;
    let run = submit(&first, "lead").await.id();
    let name = back.run(run).next_pending().await.unwrap().unwrap();
    let (last, gone) = after_five((&store, &env), first, |board| asker(agents(board))).await;
    assert!(last.runs_at_work().iter().any(|at_work| at_work.id() == run));
    assert_eq!(people::attention(&last.run(run)).await, []);
    back.people().answer(&name, "ann", "tester").await.unwrap();
    assert_eq!(last.run(run).result().await.unwrap().output, "ann");
    shut_down(gone.into_iter().chain([last, back])).await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_for_the_run_of_a_workflow_outlives_any_number_of_boards() {
    let env = Env::repeatable(1);
    let store = Shared::new(&env);
    let inner = Workflow::builder("inner").node(Node::agent("only", "asker")).build().unwrap();
    let agents = |board: Builder| asker(board).max_recoveries(1).workflow("team", &inner, Complexity::Simple);
    let first = next_that_hangs((&store, &env), "first", agents).await;
    let run = submit(&first, "team").await.id();
    let name = first.people().next().await.unwrap();
    let (last, gone) = after_five((&store, &env), first, agents).await;
    assert_eq!(people::attention(&last.run(run)).await, []);
    comes_true(async || last.runs_at_work().len() == 2).await;
    last.people().answer(&name, "ann", "tester").await.unwrap();
    assert_eq!(last.run(run).result().await.unwrap().output, "ann");
    shut_down(gone.into_iter().chain([last])).await;
}

/// The run that the turn of the asker is at another board.
fn placed(run: RunId) -> RunId {
    PlacedTurn::run_of(TurnId { run, number: 3 })
}

#[tokio::test(start_paused = true)]
async fn however_a_poison_run_ends_its_turns_at_other_boards_are_cancelled() {
    let (env, begun) = (Env::repeatable(1), Arc::new(AtomicU32::new(0)));
    let store = Shared::new(&env);
    let back = asker(store.board(&env).name("back")).start().await.unwrap();
    let agents = |board: Builder| {
        let begun = Arc::clone(&begun);
        let lead = |_: Turn| async { Ok(Command::new().goto_many([SendTo::new("stuck", 1), SendTo::new("asker", 2)])) };
        board.agent("lead", lead).agent("stuck", move |turn: Turn| {
            let is_stuck = begun.fetch_add(1, Ordering::Relaxed) < 2 * 3;
            async move {
                // A board without the agent cannot continue it.
                turn.step("one", async { Ok::<_, TurnError>(()) }).await?;
                if is_stuck {
                    std::future::pending::<()>().await;
                }
                Ok(Command::new().end())
            }
        })
    };
    let first = next_that_hangs((&store, &env), "first", agents).await;
    let [cancelled, ended] = [submit(&first, "lead").await.id(), submit(&first, "lead").await.id()];
    for run in [cancelled, ended] {
        comes_true(async || !people::questions(&back.run(placed(run))).await.is_empty()).await;
    }
    let (last, gone) = after_five((&store, &env), first, |board| asker(agents(board))).await;
    assert_eq!(begun.load(Ordering::Relaxed), 2 * 3);
    let (of_cancelled, of_ended) = (last.run(cancelled), last.run(ended));
    assert_eq!(people::attention(&of_cancelled).await.len(), 2, "nothing here waits for the turn at the other board");
    assert!(of_cancelled.cancel("not needed").await.unwrap());
    let stuck = of_ended
        .pending()
        .await
        .into_iter()
        .find(|open| matches!(open, Pending::Attention { turn, .. } if *turn == TurnId { run: ended, number: 2 }));
    last.people().answer(&stuck.unwrap(), Response::Restart, "ann").await.unwrap();
    assert_eq!(of_ended.result().await.unwrap().outcome, Outcome::Finished);
    for run in [cancelled, ended] {
        let outcome = back.run(placed(run)).result().await.unwrap().outcome;
        assert!(matches!(outcome, Outcome::Cancelled { .. }), "{outcome:?}");
    }
    comes_true(async || last.unfinished_runs().await.unwrap().is_empty()).await;
    shut_down(gone.into_iter().chain([last, back])).await;
}
