//! Crashes (SEMANTICS 10): processes, supervisors and stores go down in the middle of the work, on one store and one clock.

#![allow(clippy::disallowed_methods, reason = "the tests run on tokio's virtual time")]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::common::faults::FaultPlan;
use crate::common::{Counter, Processes, Shaky, assert_nothing_left, builder, finish, people, quiet, secs, until};
use callboard::env::Env;
use callboard::messages::{Action, Consent, Refusal, RunEvent, TurnId, Unacknowledged};
use callboard::prelude::*;
use callboard::runtime::{Builder, RunError};
use callboard::storage::{Storage, StorageError};
use callboard::supervision::tree::TreeEventKind;
use callboard::testing::TreeRecorder;
use callboard::{AnswerError, SubmitError};
use parking_lot::Mutex;
use serde_json::json;

/// Three agents with steps, a delegation and a handoff; turns note their ids.
fn pipeline(builder: Builder, seen: &Arc<Mutex<Vec<TurnId>>>, effects: &Counter) -> Builder {
    let (seen, effects) = (Arc::clone(seen), effects.clone());
    let agent = move |seen: &Arc<Mutex<Vec<TurnId>>>| {
        let (seen, effects) = (Arc::clone(seen), effects.clone());
        move |turn: Turn| {
            seen.lock().push(turn.id());
            let effects = effects.clone();
            async move {
                let before = turn.step("effect", async { Ok::<_, TurnError>(effects.count()) }).await?;
                match turn.agent().as_str() {
                    "lead" => {
                        let helped = turn.delegate("helper", "help").await?;
                        Ok(Command::output(json!([before, helped])).with("messages", "lead").goto("writer"))
                    }
                    _ => {
                        tokio::time::sleep(secs(10)).await;
                        turn.step("second effect", async { Ok::<_, TurnError>(effects.count()) }).await?;
                        tokio::time::sleep(secs(10)).await;
                        Ok(Command::output(turn.agent().as_str()).with("messages", turn.agent().as_str()))
                    }
                }
            }
        }
    };
    builder.agent("lead", agent(&seen)).agent("helper", agent(&seen)).agent("writer", agent(&seen))
}

#[test]
fn a_run_continues_in_the_next_process_under_the_same_turn_ids_and_repeats_no_finished_step() {
    let (seen, effects) = (Arc::default(), Counter::default());
    let processes = Processes::new();
    let run = processes.run(async |builder| {
        let board = pipeline(builder, &seen, &effects).start().await.unwrap();
        board.submit(Task::new("x").to("lead")).await.unwrap().id()
    });
    // Each goes down in the middle of the work.
    for life in [15, 10, 10] {
        processes.run(async |builder| {
            let board = pipeline(builder, &seen, &effects).start().await.unwrap();
            tokio::time::sleep(secs(life)).await;
            drop(board);
        });
    }
    let result = processes.run(async |builder| {
        let board = pipeline(builder, &seen, &effects).start().await.unwrap();
        let result = board.run(run).result().await.unwrap();
        let history = board.run(run).history().await.unwrap();
        let recoveries = history.iter().filter(|event| matches!(event, RunEvent::Recovered { .. })).count();
        assert_eq!(recoveries, 4, "every process took it up");
        assert_eq!(board.unfinished_runs().await.unwrap().len(), 0);
        result
    });
    assert_eq!((result.outcome, result.output), (Outcome::Finished, json!("writer").into()));
    assert_eq!(result.state, json!({ "messages": ["helper", "lead", "writer"] }));
    assert_eq!(effects.get(), 5, "one of the lead, two of each other");
    let mut turns: Vec<u32> = seen.lock().iter().map(|turn| turn.number).collect();
    turns.sort_unstable();
    turns.dedup();
    assert_eq!(turns, [1, 2, 3]);
}

#[test]
fn a_parked_handoff_and_a_question_wait_in_the_next_process_too() {
    let processes = Processes::new();
    let board = |builder: Builder| {
        builder
            .agent("lead", |turn: Turn| async move {
                let answer = turn.people().ask("which one?").await?;
                Ok(Command::output(answer).with("messages", "lead").goto("writer"))
            })
            .agent("writer", |turn: Turn| async move { Ok(Command::output(json!(["written", turn.input_json()]))) })
            .approval_policy(|_| Consent::Ask)
    };
    let run = processes.run(async |builder| {
        let board = board(builder).start().await.unwrap();
        let run = board.submit(Task::new("x").to("lead")).await.unwrap();
        until(&run, |event| matches!(event, RunEvent::Asked { .. })).await;
        run.id()
    });
    processes.run(async |builder| {
        let board = board(builder).start().await.unwrap();
        let run = board.run(run);
        let question = people::questions(&run).await.remove(0);
        board.people().answer(question.id, json!(null), "me").await.unwrap();
        until(&run, |event| matches!(event, RunEvent::TurnEnded { .. })).await;
    });
    processes.run(async |builder| {
        let board = board(builder).start().await.unwrap();
        tokio::time::sleep(secs(1)).await;
        let open = people::approvals(&board).await;
        assert_eq!((open.len(), board.load().turns_at_work + board.load().waiting_turns), (1, 0));
        board.people().approve(open[0].id(), "me").await.unwrap();
        let result = board.run(run).result().await.unwrap();
        assert_eq!((result.outcome, result.output), (Outcome::Finished, json!(["written", null]).into()));
    });
}

/// One run supervisor that crashes where the plan has it.
fn faulty(builder: Builder) -> (Builder, FaultPlan) {
    let plan = FaultPlan::default();
    (builder.env(plan.env()).capacity(|capacity| capacity.run_supervisors(1)), plan)
}

/// Where a run supervisor has applied what it found, and not journaled it.
const APPLIED: &str = "runs.applied";

#[tokio::test(start_paused = true)]
async fn a_run_supervisor_that_crashes_is_rebuilt_and_its_runs_only_wait() {
    let begun = Counter::default();
    let counted = begun.clone();
    let (builder, plan) = faulty(builder());
    let board = builder
        .agent("lead", move |turn: Turn| {
            counted.count();
            async move {
                let helped = turn.delegate("helper", "help").await?;
                let answer = turn.people().ask("well?").await?;
                turn.people().approve(Action::new("write", "file", "text")).await?;
                Ok(Command::output(json!([helped, answer])))
            }
        })
        .agent("helper", |_: Turn| async {
            tokio::time::sleep(secs(10)).await;
            Ok(Command::output("helped").with("messages", "helped"))
        })
        .start()
        .await
        .unwrap();
    let runs = [(); 3].map(|()| board.submit(Task::new("x").to("lead")));
    let runs: Vec<_> = futures::future::join_all(runs).await.into_iter().map(Result::unwrap).collect();
    let lost = parking_lot::Mutex::new(Vec::new());
    let crash = async || {
        plan.panic_at(APPLIED);
        let submitted_again = board.submit(Task::new("crash").to("helper")).await.unwrap();
        assert!(plan.is_carried_out(), "the fault was hit");
        lost.lock().push(submitted_again);
    };
    tokio::time::sleep(secs(1)).await;
    crash().await;
    tokio::time::sleep(secs(20)).await;
    crash().await;
    for run in &runs {
        board.people().answer(people::questions(run).await[0].id, 7, "me").await.unwrap();
    }
    crash().await;
    tokio::time::sleep(secs(1)).await;
    crash().await;
    for run in &runs {
        until(run, |event| matches!(event, RunEvent::ApprovalAsked { .. })).await;
    }
    for envelope in people::approvals(&board).await {
        board.people().approve(envelope.id(), "me").await.unwrap();
    }
    for run in &runs {
        let result = run.result().await.unwrap();
        assert_eq!((result.outcome, result.output), (Outcome::Finished, json!(["helped", 7]).into()));
        assert_eq!((result.state, result.metrics.retries), (json!({ "messages": ["helped"] }).into(), 0));
    }
    for run in lost.into_inner() {
        assert_eq!(run.result().await.unwrap().outcome, Outcome::Finished);
    }
    assert_eq!(begun.get(), 3, "their turns were not begun again");
    let node = board.tree().await.unwrap().find(&["runs", "runs-0"]).unwrap().clone();
    assert_eq!(node.restarts, 4);
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_stops_takes_the_board_down_and_leaves_no_caller_waiting() {
    let env = Env::repeatable(7);
    let store = Arc::new(Shaky::new(&env, 0));
    let board = builder()
        .env(env)
        .storage(Arc::clone(&store) as Arc<dyn Storage>)
        .agent("worker", |turn: Turn| async move { Ok(Command::output(turn.people().ask("well?").await?)) })
        .start()
        .await
        .unwrap();
    let run = board.submit(Task::new("x")).await.unwrap();
    until(&run, |event| matches!(event, RunEvent::Asked { .. })).await;
    let question = people::questions(&run).await[0].id;
    store.has_stopped.store(true, Ordering::SeqCst);
    let people = board.people();
    let (result, answered) = tokio::join!(run.result(), people.answer(question, 1, "me"));
    let stopped =
        Err(RunError::StoreStopped { run: run.id(), error: StorageError::Stopped { detail: "no disk".into() } });
    assert_eq!(result, stopped);
    assert!(matches!(answered, Err(AnswerError::Storage(StorageError::Stopped { .. }))), "{answered:?}");
    board.ended().await;
    let late = board.submit(Task::new("x")).await.map(drop);
    assert!(matches!(late, Err(SubmitError::Refused(Refusal::ShuttingDown))), "{late:?}");
    let stopped = RunError::StoreStopped { run: run.id(), error: StorageError::Stopped { detail: "no disk".into() } };
    assert_eq!(run.cancel("too late").await, Err(stopped));
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_a_crashing_supervisor_loses_is_found_again() {
    let (builder, plan) = faulty(builder());
    let (begun, armed) = (Counter::default(), plan.clone());
    let counted = begun.clone();
    let board = builder
        .agent("worker", move |turn: Turn| {
            let (first, armed) = (counted.count() == 0, armed.clone());
            async move {
                let value = turn.step("effect", async { Ok::<_, TurnError>(1) }).await?;
                tokio::time::sleep(secs(1)).await;
                if first {
                    armed.panic_at(APPLIED);
                }
                Ok(Command::output(value))
            }
        })
        .start()
        .await
        .unwrap();
    let result = finish(&board, Task::new("x")).await;
    assert_eq!((result.outcome, result.output, result.metrics.retries), (Outcome::Finished, json!(1).into(), 0));
    assert_eq!(begun.get(), 2);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_lets_turns_finish_takes_nothing_new_and_leaves_no_caller_waiting() {
    let board = builder()
        .agent("worker", |turn: Turn| async move {
            tokio::time::sleep(secs(turn.input()?)).await;
            Ok(Command::output("done"))
        })
        .start()
        .await
        .unwrap();
    let short = board.submit(Task::new("x").input(5)).await.unwrap();
    let long = board.submit(Task::new("x").input(500)).await.unwrap();
    quiet().await;
    let started = tokio::time::Instant::now();
    let ((), short_result, long_result) = tokio::join!(
        async {
            board.shutdown().await;
            assert_eq!(started.elapsed().as_secs(), 10);
        },
        short.result(),
        long.result()
    );
    assert_eq!(short_result.unwrap().outcome, Outcome::Finished);
    assert!(long_result.unwrap_err().to_string().contains("continues at the next start"));
    let late = board.submit(Task::new("x").input(1)).await.map(drop);
    assert!(matches!(late, Err(SubmitError::Refused(Refusal::ShuttingDown))), "{late:?}");
    assert_eq!(long.cancel("too late").await, Err(RunError::Stopped(long.id())));
    assert_eq!(people::questions(&long).await, []);
    let request = callboard::messages::RequestId { turn: TurnId { run: long.id(), number: 1 }, ordinal: 0 };
    let nobody = callboard::messages::QuestionId { request, nonce: 0 };
    assert_eq!(board.people().answer(nobody, 1, "me").await, Err(Unacknowledged::Answer(request).into()));
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_end_was_written_and_not_acknowledged_leaves_no_turn_at_work() {
    let env = Env::repeatable(1);
    let store = Arc::new(Shaky::new(&env, 0));
    let storage: Arc<dyn Storage> = store.clone();
    let may_end = Arc::new(tokio::sync::Notify::new());
    let ends = {
        let may_end = Arc::clone(&may_end);
        move |_: Turn| {
            let may_end = Arc::clone(&may_end);
            async move {
                may_end.notified().await;
                Ok(Command::output("enough").end())
            }
        }
    };
    let board = Callboard::builder()
        .env(env)
        .storage(storage)
        .agent("lead", |_: Turn| async {
            Ok(Command::new().goto_many(["slow", "ender"].map(|to| callboard::messages::SendTo::new(to, json!(null)))))
        })
        .agent("slow", |_: Turn| async {
            tokio::time::sleep(secs(3600)).await;
            Ok(Command::new())
        })
        .agent("ender", ends)
        .start()
        .await
        .unwrap();
    let run = board.submit(Task::new("x").to("lead")).await.unwrap();
    tokio::time::sleep(secs(1)).await;
    assert_eq!(board.load().turns_at_work, 2);
    store.loses_acknowledgement.store(true, Ordering::SeqCst);
    may_end.notify_one();
    let result = run.result().await.unwrap();
    assert_eq!((result.outcome, result.output), (Outcome::Finished, json!("enough").into()));
    tokio::time::sleep(secs(1)).await;
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_keeps_its_place_when_its_supervisor_is_killed() {
    let board = builder()
        .agent("asker", |turn: Turn| async move { Ok(Command::output(turn.people().ask("now?").await?)) })
        .capacity(|capacity| capacity.run_supervisors(1).runs_in_flight(2))
        .start()
        .await
        .unwrap();
    let runs = [board.submit(Task::new("x")).await.unwrap(), board.submit(Task::new("x")).await.unwrap()];
    let recorder = TreeRecorder::new(board.tree_events());
    assert!(board.kill(&["runs", "runs-0"]).await.unwrap());
    let is_back = |kind: &TreeEventKind| matches!(kind, TreeEventKind::Restarted);
    recorder.expect("callboard/runs/runs-0", is_back, secs(5)).await;
    let first = people::question(&runs[0]).await;
    assert_eq!(board.load().runs, 2);
    let refused = board.try_submit(Task::new("one too many")).await.map(drop);
    assert!(matches!(refused, Err(SubmitError::Refused(Refusal::Overloaded { .. }))), "{refused:?}");
    board.people().answer(first.id, "yes", "ann").await.unwrap();
    runs[0].result().await.unwrap();
    assert_eq!(board.load().runs, 1);
    board.shutdown().await;
}
