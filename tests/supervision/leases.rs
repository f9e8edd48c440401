//! Boards that cannot renew their leases: what they begin no more, and what becomes of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use callboard::env::{Env, Fault};
use callboard::prelude::*;
use callboard::runtime::Builder;
use futures::FutureExt;
use serde_json::json;

use crate::common::faults::FaultPlan;
use crate::common::{comes_true, people};
use crate::several_boards::{HOUR, TAKEN_OVER_WITHIN, asker, question, submit};
use crate::shared_store::Shared;

/// Counts steps of a second each, until it is stopped.
fn stepper(board: Builder, steps: &Arc<AtomicU32>) -> Builder {
    let steps = Arc::clone(steps);
    board.agent("stepper", move |turn: Turn| {
        let steps = Arc::clone(&steps);
        async move {
            loop {
                let step = async {
                    steps.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    Ok::<_, TurnError>(())
                };
                turn.step("one", step).await?;
            }
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_board_that_cannot_renew_its_lease_begins_no_step_after_two_thirds_and_ends_with_it() {
    let (env, steps) = (Env::repeatable(1), Arc::new(AtomicU32::new(0)));
    let store = Shared::new(&env);
    let board = stepper(store.board(&env), &steps).start().await.unwrap();
    submit(&board, "stepper").await;
    tokio::time::sleep(Duration::from_millis(12_500)).await;
    store.is_mute.store(true, Ordering::Relaxed);
    // It was renewed last when 10 s were over.
    tokio::time::sleep(Duration::from_secs(8)).await;
    let begun = steps.load(Ordering::Relaxed);
    assert_eq!(begun, 20, "one each second, until 20 s were over");
    assert!(board.ended().now_or_never().is_none());
    tokio::time::sleep(Duration::from_millis(4_000)).await;
    assert_eq!(steps.load(Ordering::Relaxed), begun);
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let ended = board.ended().now_or_never().unwrap().to_string();
    assert!(ended.contains("storage"), "{ended}");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_effect_does_not_begin_when_the_lease_has_run_low_since_its_intent() {
    let (env, done) = (Env::repeatable(1), Arc::new(AtomicU32::new(0)));
    let store = Shared::new(&env);
    let stopped = FaultPlan::default();
    stopped.arm("step.begin", Fault::Wait(Duration::from_secs(12)), 1);
    let counted = Arc::clone(&done);
    let charger = move |turn: Turn| {
        let counted = Arc::clone(&counted);
        async move {
            let charge = async { Ok::<_, TurnError>(counted.fetch_add(1, Ordering::Relaxed)) };
            Ok(Command::output(turn.effect("charge").run(charge).await?))
        }
    };
    let board = store.board(&env.clone().with_faults(Arc::new(stopped))).agent("charger", charger);
    let board = board.start().await.unwrap();
    submit(&board, "charger").await;
    store.is_mute.store(true, Ordering::Relaxed);
    board.ended().await;
    assert_eq!(done.load(Ordering::Relaxed), 0);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_board_that_loses_its_lease_does_not_cancel_what_another_one_does_for_it() {
    let env = Env::repeatable(1);
    let store = Shared::new(&env);
    // It renews its own lease seldom.
    let back = asker(store.board(&env)).timings(|timings| timings.lease(HOUR)).start().await.unwrap();
    let lead = |turn: Turn| async move { Ok(Command::output(turn.delegate("asker", "ask").await?)) };
    let front = store.board(&env).agent("lead", lead).start().await.unwrap();
    let run = submit(&front, "lead").await;
    comes_true(async || !back.runs_at_work().is_empty()).await;
    let placed = back.runs_at_work().remove(0);
    let name = question(&placed).await;
    store.is_mute.store(true, Ordering::Relaxed);
    front.ended().await;
    store.is_mute.store(false, Ordering::Relaxed);
    tokio::time::sleep(TAKEN_OVER_WITHIN).await;
    assert_eq!(people::questions(&placed).await.len(), 1, "the turn continues");
    let heir = store.board(&env).agent("lead", lead).start().await.unwrap();
    back.people().answer(name.id, "ann", "tester").await.unwrap();
    assert_eq!(heir.run(run.id()).result().await.unwrap().output, json!("ann"));
    for board in [heir, back, front] {
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_renewed_late_lets_the_work_go_on() {
    let (env, steps) = (Env::repeatable(1), Arc::new(AtomicU32::new(0)));
    let store = Shared::new(&env);
    let greeter = |_: Turn| async { Ok(Command::output("hello")) };
    let board = stepper(store.board(&env), &steps).agent("greeter", greeter).start().await.unwrap();
    submit(&board, "stepper").await;
    tokio::time::sleep(Duration::from_millis(12_500)).await;
    store.is_mute.store(true, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let begun = steps.load(Ordering::Relaxed);
    let waits = submit(&board, "greeter").await;
    store.is_mute.store(false, Ordering::Relaxed);
    assert_eq!(waits.result().await.unwrap().output, json!("hello"));
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(steps.load(Ordering::Relaxed) > begun + 250);
    assert!(board.ended().now_or_never().is_none());
    board.shutdown().await;
}
