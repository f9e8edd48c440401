//! A board that is shut down gives its runs to other boards, while the turns that have begun finish.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use callboard::env::Fault;
use callboard::prelude::*;
use callboard::runtime::{Builder, RunHandle};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::common::faults::FaultPlan;
use crate::common::{World, comes_true, people};

const GRACE: Duration = Duration::from_secs(60);
/// A look for runs, what its calls take, and some for the turns that stop.
const SOON: Duration = Duration::from_secs(1);

/// A board with an agent that asks for a name, one whose turn takes half a minute before it hands over, and the one after it.
fn worker(board: Builder, begun: &Arc<AtomicU32>) -> Builder {
    let begun = Arc::clone(begun);
    let slow = move |_: Turn| {
        begun.fetch_add(1, Ordering::Relaxed);
        async {
            tokio::time::sleep(GRACE / 2).await;
            Ok(Command::new().goto("last"))
        }
    };
    board
        .shutdown_grace(GRACE)
        .agent("asker", |turn: Turn| async move { Ok(Command::output(turn.people().ask("name?").await?)) })
        .agent("slow", slow)
        .agent("last", |_: Turn| async { Ok(Command::output("done")) })
}

async fn submit(board: &Callboard, to: &str) -> RunHandle {
    board.submit(Task::new("x").to(to)).await.unwrap()
}

fn works_on(board: &Callboard, run: &RunHandle) -> bool {
    board.runs_at_work().iter().any(|at_work| at_work.id() == run.id())
}

async fn asks(run: &RunHandle) {
    comes_true(async || !people::questions(run).await.is_empty()).await;
}

async fn answer(board: &Callboard, run: &RunHandle) {
    let run = board.run(run.id());
    asks(&run).await;
    let question = people::questions(&run).await.remove(0);
    board.people().answer(question.id, "ann", "tester").await.unwrap();
    assert_eq!(run.result().await.unwrap().output, json!("ann"));
}

/// A board that is being shut down, with a run that waits for a person, and one whose turn is under way.
struct Leaving {
    waits: RunHandle,
    works: RunHandle,
    task: JoinHandle<()>,
}

/// Begins to shut a board down that sees another one, with two runs.
async fn leaves(board: &Callboard, begun: &AtomicU32) -> Leaving {
    comes_true(async || board.boards().await.unwrap().len() == 2).await;
    let (waits, works) = (submit(board, "asker").await, submit(board, "slow").await);
    asks(&waits).await;
    comes_true(async || begun.load(Ordering::Relaxed) == 1).await;
    let board = board.clone();
    Leaving { waits, works, task: tokio::spawn(async move { drop(board.shutdown().await) }) }
}

#[tokio::test(start_paused = true)]
async fn runs_between_turns_go_to_another_board_while_a_turn_finishes() {
    let (world, begun) = (World::new(), Arc::default());
    let first = worker(world.board(), &begun).name("first").start().await.unwrap();
    let second = worker(world.board(), &begun).name("second").start().await.unwrap();
    let Leaving { waits, works, task } = leaves(&first, &begun).await;
    timeout(SOON, comes_true(async || works_on(&second, &waits))).await.unwrap();
    assert!(!task.is_finished() && works_on(&first, &works) && !works_on(&first, &waits));
    // The run that moved continues before the board that it came from has ended.
    answer(&second, &waits).await;

    task.await.unwrap();
    assert_eq!(second.run(works.id()).result().await.unwrap().output, json!("done"));
    assert_eq!(begun.load(Ordering::Relaxed), 1, "the turn that had begun was finished where it was");
    let history = second.run(works.id()).history().await.unwrap();
    let recoveries = history.iter().filter(|event| format!("{event:?}").starts_with("Recovered")).count();
    assert_eq!(recoveries, 1, "it changed boards once, between its turns: {history:?}");
    second.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_no_other_board_can_continue_stays_until_its_board_has_ended() {
    let (world, begun) = (World::new(), Arc::default());
    let first = worker(world.board(), &begun).name("first").start().await.unwrap();
    let other =
        world.board().name("other").agent("last", |_: Turn| async { Ok(Command::new()) }).start().await.unwrap();
    let Leaving { waits, works, task } = leaves(&first, &begun).await;
    tokio::time::sleep(GRACE / 4).await;
    assert!(works_on(&first, &waits) && works_on(&first, &works));
    task.await.unwrap();
    // Its next agent is there.
    assert!(other.run(works.id()).result().await.is_ok());
    let second = worker(world.board(), &begun).name("second").start().await.unwrap();
    answer(&second, &waits).await;
    for board in [other, second] {
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_given_to_a_board_which_does_not_take_it_is_taken_over_at_the_end() {
    let (world, begun) = (World::new(), Arc::default());
    let first = worker(world.board(), &begun).name("first").start().await.unwrap();
    let deaf = FaultPlan::default();
    let heir = world.board().env(world.env.clone().with_faults(Arc::new(deaf.clone())));
    let heir = worker(heir, &begun).name("heir").start().await.unwrap();
    comes_true(async || first.boards().await.unwrap().len() == 2).await;
    let waits = submit(&first, "asker").await;
    asks(&waits).await;
    deaf.arm("mail.take", Fault::Wait(GRACE), 1);
    timeout(SOON, first.shutdown()).await.expect("a shutdown waits for no other board");
    comes_true(async || deaf.is_carried_out()).await;
    answer(&heir, &waits).await;
    heir.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_for_a_turn_at_another_board_goes_to_one_that_has_its_agents() {
    let (world, begun) = (World::new(), Arc::new(AtomicU32::new(0)));
    let lead = |turn: Turn| async move { Ok(Command::output(turn.delegate("asker", "x").await?)) };
    let of_slow = Arc::clone(&begun);
    let slow = move |_: Turn| {
        of_slow.fetch_add(1, Ordering::Relaxed);
        async {
            tokio::time::sleep(GRACE / 2).await;
            Ok(Command::output("done"))
        }
    };
    let first = world.board().name("first").shutdown_grace(GRACE).agent("lead", lead).agent("slow", slow);
    let first = first.start().await.unwrap();
    let heir = worker(world.board(), &Arc::default()).name("heir").agent("lead", lead).start().await.unwrap();
    comes_true(async || first.boards().await.unwrap().len() == 2).await;
    let (waits, works) = (submit(&first, "lead").await, submit(&first, "slow").await);
    let name = waits.next_pending().await.unwrap().unwrap();
    comes_true(async || begun.load(Ordering::Relaxed) == 1).await;
    let leaving = first.clone();
    let task = tokio::spawn(async move { drop(leaving.shutdown().await) });
    timeout(SOON, comes_true(async || works_on(&heir, &waits))).await.unwrap();
    assert!(!task.is_finished() && works_on(&first, &works));
    heir.people().answer(&name, "ann", "tester").await.unwrap();
    assert_eq!(heir.run(waits.id()).result().await.unwrap().output, json!("ann"));
    task.await.unwrap();
    assert_eq!(heir.run(works.id()).result().await.unwrap().output, json!("done"));
    heir.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_for_a_board_that_has_just_begun_to_leave_is_taken_by_the_next_one_that_has_its_agent() {
    let (world, begun) = (World::new(), Arc::default());
    let quick = |board: Builder| board.agent("quick", |_: Turn| async { Ok(Command::output("done")) });
    let lead = |turn: Turn| async move { Ok(Command::output(turn.delegate("quick", "x").await?)) };
    let front = world.board().name("front").agent("lead", lead).start().await.unwrap();
    let first = quick(worker(world.board(), &begun)).name("first").start().await.unwrap();
    // It has looked at the other board.
    tokio::time::sleep(SOON * 3).await;
    let Leaving { task, .. } = leaves(&first, &begun).await;
    // The front does not know yet that the other board leaves.
    let run = submit(&front, "lead").await;
    tokio::time::sleep(SOON * 5).await;
    let next = quick(world.board()).name("next").start().await.unwrap();
    assert_eq!(run.result().await.unwrap().output, json!("done"));
    task.await.unwrap();
    for board in [front, next] {
        board.shutdown().await;
    }
}
