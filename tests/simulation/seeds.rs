//! The same seed gives the same run of a whole system; what goes wrong is planned, seen and reproducible.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use callboard::SubmitError;
use callboard::actors::{StreamMode, Watched};
use callboard::messages::{Action, Durability, RunId, SendTo, Status, TurnId};
use callboard::prelude::*;
use callboard::storage::StorageError;
use callboard::supervision::runs::Fork;
use callboard::testing::{FaultPlan, Gate, Script, Seeds, Sim};
use futures::StreamExt;
use serde_json::json;

use crate::common::people;

/// The text with which a simulation fails.
fn failure(test: impl FnOnce() + std::panic::UnwindSafe) -> String {
    let panic = std::panic::catch_unwind(test).expect_err("it passes");
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

async fn coder(_: Turn) -> Result<Command, TurnError> {
    Ok(Command::update("artifacts", json!({ "patch": "+1" })).goto("reviewer"))
}

async fn reviewer(_: Turn) -> Result<Command, TurnError> {
    Ok(Command::output("fine"))
}

#[test]
fn a_crashed_reviewer_and_a_hanging_coder_lose_nothing() {
    Seeds::new(200).simulate(async |sim: Sim| {
        let board = sim.board().agent("coder", coder).agent("reviewer", reviewer).start().await?;
        sim.faults().panic("reviewer").on_turn(1).hang("coder").for_secs(90);
        let run = board.submit(Task::new("fix the bug").to("coder")).await?;
        assert_eq!(run.result().await?.outcome, Outcome::Finished);
        sim.assert_restarted("reviewer", 1).await;
        sim.assert_effects_at_most_once_per_key();
        sim.assert_nothing_left().await;
        Ok(())
    });
}

#[test]
fn a_node_that_crashes_anywhere_loses_nothing_that_it_acknowledged() {
    Seeds::new(300).simulate(async |sim: Sim| {
        let effects = sim.effects();
        let coder = move |turn: Turn| {
            let effects = effects.clone();
            async move {
                let work = async { Ok::<_, TurnError>(effects.apply(&turn, "patch", "+1")) };
                turn.step("patch", work).await?;
                Ok(Command::default().goto("reviewer"))
            }
        };
        let start = || sim.board().agent("coder", coder.clone()).agent("reviewer", reviewer).start();
        sim.faults().at("storage.append").crash().on_pass(1 + sim.below(5));
        let mut submitted = None;
        let finished = sim
            .until_crash(async {
                let board = start().await?;
                let run = board.submit(Task::new("fix").to("coder")).await?;
                submitted = Some(run.id());
                Ok::<_, callboard::Error>(run.result().await?)
            })
            .await;
        if let Some(finished) = finished {
            assert_eq!(finished?.outcome, Outcome::Finished);
            return Ok(());
        }
        let board = start().await?;
        board.recovered().await;
        if let Some(run) = submitted {
            assert_eq!(board.run(run).result().await?.outcome, Outcome::Finished);
            assert_eq!(sim.effects().count(), 1);
        }
        sim.assert_effects_at_most_once_per_key();
        sim.assert_nothing_left().await;
        Ok(())
    });
}

#[test]
fn a_failing_seed_reports_how_to_run_it_again_and_what_happened() {
    let text = failure(|| {
        Seeds::new(50).simulate(async |sim: Sim| {
            let board = sim.board().agent("coder", coder).agent("reviewer", reviewer).start().await?;
            let run = board.submit(Task::new("fix").to("coder")).await?;
            run.result().await?;
            assert_ne!(sim.below(5), 0, "one in five");
            Ok(())
        });
    });
    println!("{text}");
    assert!(text.contains("CALLBOARD_SEED="), "{text}");
    assert!(text.contains("turn.begin coder"), "{text}");
}

#[test]
fn a_test_that_waits_for_nothing_stands_still() {
    let text = failure(|| {
        Seeds::new(1).simulate(async |sim: Sim| {
            let _board = sim.board().agent("coder", coder).start().await?;
            std::future::pending::<()>().await;
            Ok(())
        });
    });
    assert!(text.contains("still waits"), "{text}");
}

#[test]
fn a_thread_ends_a_simulation() {
    let text = failure(|| {
        Seeds::new(1).simulate(async |sim: Sim| {
            tokio::task::spawn_blocking(|| ()).await?;
            tokio::time::sleep(Duration::from_secs(1)).await;
            sim.note("unreached");
            Ok(())
        });
    });
    assert!(text.contains("a thread was started"), "{text}");
}

#[test]
fn a_fault_that_no_seed_comes_to_fails_the_test_and_reports_why_not() {
    type Plan = fn(FaultPlan) -> FaultPlan;
    let cases: [(Plan, &str); 5] = [
        (|faults| faults.at("storage.apend").error("x"), "; there is no such point; did you mean \"storage.append\"?"),
        (|faults| faults.at("question.dispatch").drops(), "; nothing came there"),
        (|faults| faults.panic("reviewr"), "; what came there: reviewer; did you mean \"reviewer\"?"),
        (|faults| faults.panic("reviewer").on_turn(2), "; passes: 1"),
        (|faults| faults.at("router.start").of("x"), "; what comes there has no name, so leave `.of(..)` out"),
    ];
    for (plan, why) in cases {
        let text = failure(|| {
            Seeds::new(3).simulate(async |sim: Sim| {
                let _ = plan(sim.faults());
                let board = sim.board().agent("reviewer", reviewer).start().await?;
                board.submit(Task::new("fix")).await?.result().await?;
                Ok(())
            });
        });
        assert!(text.contains("in none of 3 seeds was it reached: ") && text.contains(why), "{why} in {text}");
    }
}

#[test]
fn one_seed_alone_may_miss_a_fault_but_not_a_point_that_does_not_exist() {
    let with = |point: &'static str| {
        move || {
            Seeds::only(3).simulate(async |sim: Sim| {
                let board = sim.board().agent("reviewer", reviewer).start().await?;
                sim.faults().at(point).error("x").on_pass(9);
                board.submit(Task::new("fix")).await?.result().await?;
                Ok(())
            });
        }
    };
    with("turn.end")();
    let text = failure(with("turn.edn"));
    assert!(text.contains("there is no such point; did you mean \"turn.end\"?"), "{text}");
}

#[test]
fn a_failing_seed_reports_which_faults_of_the_plan_it_has_not_reached() {
    let text = failure(|| {
        Seeds::new(2).simulate(async |sim: Sim| {
            let board = sim.board().agent("reviewer", reviewer).start().await?;
            sim.faults().panic("reviewer").panic("reviewer").on_turn(1).hang("reviewer").on_turn(2).for_secs(1);
            board.submit(Task::new("fix")).await?.result().await?;
            sim.assert_restarted("reviewer", 2).await;
            Ok(())
        });
    });
    assert!(text.contains("restarts of reviewer"), "{text}");
    assert!(text.contains("planned, and not reached by then: Panic"), "{text}");
    assert!(text.contains("; another planned fault struck in its stead"), "{text}");
}

#[test]
fn an_agent_whose_actor_was_killed_counts_as_restarted() {
    Seeds::new(5).simulate(async |sim: Sim| {
        let board = sim.board().agent("reviewer", reviewer).start().await?;
        let other = sim.board().start().await?;
        sim.faults().at("turn.begin").of("reviewer").kills().panic("reviewer").on_turn(2);
        for _ in 0..2 {
            board.submit(Task::new("fix")).await?.result().await?;
            // A panic beside the restart would be made good by it.
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        other.shutdown().await;
        sim.assert_restarted("reviewer", 2).await;
        Ok(())
    });
}

#[test]
fn a_race_over_a_step_is_found() {
    let lost = AtomicU64::new(0);
    Seeds::new(50).simulate(async |sim: Sim| {
        let cell = Arc::new(AtomicU64::new(0));
        let (counted, split) = (Arc::clone(&cell), [SendTo::new("adder", 1), SendTo::new("adder", 2)]);
        let adder = move |turn: Turn| {
            let cell = Arc::clone(&counted);
            async move {
                let before = cell.load(Ordering::Relaxed);
                turn.step("think", async { Ok::<_, TurnError>(1) }).await?;
                cell.store(before + 1, Ordering::Relaxed);
                Ok(Command::new())
            }
        };
        let lead = move |_: Turn| {
            let split = split.clone();
            async move { Ok(Command::new().goto_many(split)) }
        };
        let board = sim.board().agent("lead", lead).agent("adder", adder).start().await?;
        board.submit(Task::new("add").to("lead")).await?.result().await?;
        lost.fetch_add(2 - cell.load(Ordering::Relaxed), Ordering::Relaxed);
        Ok(())
    });
    assert!(lost.into_inner() > 0, "both adders read before one of them writes in some schedule");
}

#[test]
fn a_fork_of_which_the_store_does_not_report_continues_all_the_same() {
    Seeds::new(20).simulate(async |sim: Sim| {
        let board = sim.board().agent("reviewer", reviewer).start().await?;
        let run = board.submit(Task::new("fix")).await?;
        run.result().await?;
        sim.faults().at("storage.append").loses_reply().at_rest();
        let fork = board.fork(run.id(), 1, Fork::new()).await?;
        assert_eq!(fork.result().await?.outcome, Outcome::Finished);
        sim.assert_nothing_left().await;
        Ok(())
    });
}

#[test]
fn a_run_that_was_found_is_counted_until_it_has_ended() {
    Seeds::new(20).simulate(async |sim: Sim| {
        let asker = |turn: Turn| async move { Ok(Command::output(turn.people().ask("well?").await?)) };
        let first = sim.board().agent("asker", asker).start().await?;
        let run = first.submit(Task::new("ask").to("asker")).await?;
        let question = people::next_question(&run).await?.expect("it asks");
        sim.crash().await;
        let board = sim.board().agent("asker", asker).start().await?;
        board.recovered().await;
        people::next_question(&board.run(run.id())).await?;
        assert_eq!(board.load().runs, 1);
        board.people().answer(question.id, "yes", "ann").await?;
        board.run(run.id()).result().await?;
        sim.assert_nothing_left().await;
        assert_eq!(board.load().runs, 0);
        Ok(())
    });
}

#[test]
fn after_a_crash_anywhere_each_message_of_a_journaled_delegation_is_in_its_inbox_once() {
    Seeds::new(200).simulate(async |sim: Sim| {
        let lead = |turn: Turn| async move {
            let parts = ["one", "two"].map(|part| turn.delegate("coder", part));
            futures::future::try_join_all(parts).await?;
            Ok(Command::output("both"))
        };
        let start = || sim.board().agent("lead", lead).agent("coder", Script::new().reply("done")).start();
        sim.faults().at("storage.append").crash().on_pass(1 + sim.below(8));
        let (mut submitted, mut seen) = (None, 0);
        sim.until_crash(async {
            let board = start().await?;
            let run = board.submit(Task::new("fix").to("lead")).await?;
            submitted = Some(run.id());
            run.result().await?;
            seen = board.agents().inbox("lead").await?.len();
            Ok::<_, callboard::Error>(())
        })
        .await
        .transpose()?;
        let board = start().await?;
        board.recovered().await;
        let Some(run) = submitted else { return Ok(()) };
        let run = board.run(run);
        run.result().await?;
        let request = |ordinal| callboard::messages::RequestId { turn: TurnId { run: run.id(), number: 1 }, ordinal };
        for ordinal in 0..2 {
            let recorded = board.status(request(ordinal)).await?;
            assert_eq!(recorded.map(|recorded| recorded.status), Some(Status::Complete));
        }
        let (lead, coder) = (board.agents().inbox("lead").await?.len(), board.agents().inbox("coder").await?.len());
        assert_eq!((lead, coder), (4, 2), "two acks and two ends; two requests");
        assert!(seen == 0 || seen == 4, "{seen}");
        sim.assert_nothing_left().await;
        Ok(())
    });
}

#[test]
fn an_agent_that_is_stopped_while_its_panic_is_waiting_to_be_seen_to_stays_away() {
    Seeds::new(20).simulate(async |sim: Sim| {
        let dizzy = Script::new().on_turn(1).panic("dizzy").otherwise().reply("here");
        let board =
            sim.board().agent("dizzy", dizzy.clone()).agent("lead", Script::new().delegate("dizzy", "x")).start();
        let board = board.await?;
        sim.faults().at("agent.handle").of("dizzy").for_secs(2);
        board.submit(Task::new("fix").to("dizzy")).await?;
        dizzy.expect_turns(1, Duration::from_secs(1)).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        board.agents().stop("dizzy").await?;
        let outcome = board.submit(Task::new("fix").to("lead")).await?.result().await?.outcome;
        assert!(outcome.to_string().contains("offline"), "{outcome}");
        Ok(())
    });
}

#[test]
fn two_runs_that_differ_are_shown_with_their_first_difference() {
    let runs = AtomicU64::new(0);
    let text = failure(std::panic::AssertUnwindSafe(|| {
        Seeds::new(1).simulate(async |sim: Sim| {
            sim.note(&format!("global state {}", runs.fetch_add(1, Ordering::Relaxed)));
            Ok(())
        });
    }));
    assert!(text.contains("global state 0") && text.contains("global state 1"), "{text}");
}

#[test]
fn a_seed_that_does_not_fail_again_is_reported_to_depend_on_something_else() {
    let runs = AtomicU64::new(0);
    let text = failure(std::panic::AssertUnwindSafe(|| {
        Seeds::new(1).simulate(async |sim: Sim| {
            let board = sim.board().agent("reviewer", reviewer).start().await?;
            let run = board.submit(Task::new("fix")).await?;
            run.result().await?;
            assert_eq!(runs.fetch_add(1, Ordering::Relaxed), 1, "of {}", run.id());
            board.submit(Task::new("fix it again")).await?.result().await?;
            Ok(())
        });
    }));
    assert!(text.contains("when it ran again it went otherwise"), "{text}");
    assert!(text.contains("of id-") && !text.contains("019b76da"), "ids are named as in the trace: {text}");
}

#[test]
fn a_simulation_that_would_show_nothing_fails() {
    let none = failure(|| Seeds::new(0).simulate(async |_: Sim| Ok(())));
    assert!(none.contains("no seed is to run"), "{none}");
    let crashed = failure(|| {
        Seeds::new(1).simulate(async |sim: Sim| {
            let _board = sim.board().agent("reviewer", reviewer).start().await?;
            sim.crash().await;
            sim.assert_nothing_left().await;
            Ok(())
        });
    });
    assert!(crashed.contains("there is no board to check"), "{crashed}");
    let misspelt = failure(|| {
        Seeds::new(1).simulate(async |sim: Sim| {
            let _board = sim.board().agent("reviewer", reviewer).start().await?;
            sim.assert_restarted("reviwer", 0).await;
            Ok(())
        });
    });
    assert!(misspelt.contains("there is no reviwer") && misspelt.contains("did you mean \"reviewer\"?"), "{misspelt}");
}

#[test]
fn a_board_that_is_not_of_the_simulation_ends_it() {
    let text = failure(|| {
        Seeds::new(1).simulate(async |_: Sim| {
            let board = Callboard::builder().agent("reviewer", reviewer).start().await?;
            board.submit(Task::new("fix")).await?.result().await?;
            Ok(())
        });
    });
    assert!(text.contains("describe it with sim.board()"), "{text}");
}

#[tokio::test]
async fn a_simulation_in_async_code_is_refused_in_words() {
    let text = failure(|| Seeds::new(1).simulate(async |_: Sim| Ok(())));
    assert!(text.contains("from a plain #[test]"), "{text}");
}

#[test]
fn each_planned_fault_counts_the_passes_for_itself() {
    Seeds::new(3).simulate(async |sim: Sim| {
        sim.faults().fail("reviewer").on_turn(1).fail("reviewer").on_turn(2).fail("reviewer").on_turn(3);
        let board = sim.board().agent("reviewer", reviewer).start().await?;
        let result = board.submit(Task::new("fix")).await?.result().await?;
        assert!(!result.outcome.is_finished(), "all of its attempts fail");
        let strikes: Vec<_> = sim.faults().strikes().iter().map(|fault| fault.struck).collect();
        assert_eq!(strikes, [1, 1, 1]);
        Ok(())
    });
}

#[test]
fn less_time_may_be_allowed_as_well() {
    let text = failure(|| {
        Seeds::new(1).simulate(async |sim: Sim| {
            sim.time_limit(Duration::from_secs(1));
            tokio::time::sleep(Duration::from_secs(30)).await;
            Ok(())
        });
    });
    assert!(text.contains("after 1s of virtual time the test still waits"), "{text}");
}

#[test]
fn a_crash_that_the_test_does_not_wait_for_ends_it() {
    let text = failure(|| {
        Seeds::new(1).simulate(async |sim: Sim| {
            let board = sim.board().agent("reviewer", reviewer).start().await?;
            sim.faults().at("storage.append").crash();
            board.submit(Task::new("fix")).await?.result().await?;
            Ok(())
        });
    });
    assert!(text.contains("until_crash"), "{text}");
}

#[test]
fn the_disk_keeps_what_was_synced_and_may_lose_the_rest() {
    let lost = AtomicU64::new(0);
    Seeds::new(50).simulate(async |sim: Sim| {
        let board = sim.board().agent("reviewer", reviewer).start().await?;
        let sync = board.submit(Task::new("fix").durability(Durability::Sync)).await?;
        sync.result().await?;
        let memory = board.submit(Task::new("fix").durability(Durability::Memory)).await?;
        memory.result().await?;
        sim.crash().await;
        let board = sim.board().agent("reviewer", reviewer).start().await?;
        let runs: Vec<_> = board.runs().await?.iter().map(|run| run.id()).collect();
        assert!(runs.contains(&sync.id()), "what was acknowledged as synced is lost: {runs:?}");
        lost.fetch_add(u64::from(!runs.contains(&memory.id())), Ordering::Relaxed);
        Ok(())
    });
    assert!(lost.into_inner() > 0, "what was not synced never got lost");
}

#[test]
fn an_agent_that_blocks_its_thread_is_run_on_the_one_thread() {
    Seeds::new(3).simulate(async |sim: Sim| {
        let board = sim.board().with(AgentSpec::new("reviewer", reviewer).blocking()).start().await?;
        assert!(board.submit(Task::new("fix")).await?.result().await?.outcome.is_finished());
        Ok(())
    });
}

#[test]
fn a_run_that_the_store_does_not_give_out_is_read_again() {
    Seeds::new(20).simulate(async |sim: Sim| {
        let board = sim.board().agent("coder", coder).agent("reviewer", reviewer).start().await?;
        sim.faults().at("runs.taken").panics("planned").on_pass(3).at("storage.read").error("away").on_pass(1);
        let run = board.submit(Task::new("fix").to("coder")).await?;
        let ended = board.watch(&[StreamMode::Debug]).filter_map(async |event| match event {
            Watched::Event { sequence: 3, .. } => Some(()),
            _ => None,
        });
        let _ = std::pin::pin!(ended).next().await;
        assert_eq!(run.result().await?.outcome, Outcome::Finished);
        Ok(())
    });
}

#[test]
fn a_task_that_is_submitted_again_after_its_end_leaves_no_note_behind() {
    Seeds::new(20).simulate(async |sim: Sim| {
        let board = sim.board().agent("reviewer", reviewer).start().await?;
        let id = RunId(sim.env().id());
        board.submit(Task::new("fix").id(id)).await?.result().await?;
        sim.assert_nothing_left().await;
        assert_eq!(board.submit(Task::new("fix").id(id)).await?.result().await?.outcome, Outcome::Finished);
        sim.assert_nothing_left().await;
        Ok(())
    });
}

#[test]
fn an_open_gate_lets_the_turn_through_and_a_closed_one_fails_it() {
    Seeds::new(2).simulate(async |sim: Sim| {
        let (open, closed) = (Gate::new(), Gate::new());
        open.open();
        let board = sim.board().agent("open", Script::new().block(&open).reply("through"));
        let board = board.agent("closed", Script::new().block(&closed)).start().await?;
        assert_eq!(board.submit(Task::new("go").to("open")).await?.result().await?.output, "through");
        let stuck = board.submit(Task::new("go").to("closed")).await?.result().await?.outcome;
        assert!(stuck.to_string().contains("it would block the thread that the test itself runs on"), "{stuck}");
        Ok(())
    });
}

#[test]
fn an_approval_that_is_left_is_named() {
    let text = failure(|| {
        Seeds::new(1).simulate(async |sim: Sim| {
            let asks = async |turn: Turn| {
                turn.people().approve(Action::new("push", "main", ())).await?;
                Ok(Command::new())
            };
            let board = sim.board().agent("coder", asks).start().await?;
            board.submit(Task::new("fix")).await?;
            sim.assert_nothing_left().await;
            Ok(())
        });
    });
    assert!(text.contains("of coder asks: push main"), "{text}");
}

#[test]
fn a_look_at_what_is_left_outlasts_the_faults_that_it_meets() {
    Seeds::new(5).simulate(async |sim: Sim| {
        let _board = sim.board().agent("reviewer", reviewer).start().await?;
        sim.faults().at("storage.scan").error("away").at_rest().at("storage.scan").panics("away").on_pass(2).at_rest();
        sim.assert_nothing_left().await;
        Ok(())
    });
}

#[test]
fn a_submission_whose_acknowledgement_was_lost_is_worked_on_and_acknowledged_when_it_is_submitted_again() {
    Seeds::new(50).simulate(async |sim: Sim| {
        let board = sim.board().agent("reviewer", reviewer).start().await?;
        sim.faults().at("storage.append").loses_reply();
        let task = || Task::new("fix").id(RunId(uuid::Uuid::from_u128(7)));
        let lost = board.submit(task()).await.map(drop);
        assert!(matches!(lost, Err(SubmitError::Storage(StorageError::Unavailable { .. }))), "{lost:?}");
        let submitted = board.submit(task()).await?.id();
        sim.crash().await;
        let board = sim.board().agent("reviewer", reviewer).start().await?;
        assert_eq!(board.run(submitted).result().await?.outcome, Outcome::Finished);
        Ok(())
    });
}

#[test]
fn a_submission_of_unknown_outcome_that_another_board_takes_is_worked_on_by_one() {
    Seeds::new(50).simulate(async |sim: Sim| {
        let effects = sim.effects();
        let coder = move |turn: Turn| {
            let effects = effects.clone();
            async move {
                let work = async {
                    tokio::time::sleep(Duration::from_secs(10)).await;
                    Ok::<_, TurnError>(effects.apply(&turn, "patch", "+1"))
                };
                turn.step("patch", work).await?;
                Ok(Command::output("done"))
            }
        };
        let first = sim.board().agent("coder", coder.clone()).start().await?;
        let second = sim.board().agent("coder", coder).start().await?;
        // The first board looks after what has become of its submission a moment later.
        let looks = ["storage.get", "storage.claim", "storage.read"][sim.below(3) as usize];
        sim.faults().at("storage.append").error("away").at(looks).for_secs(1 + sim.below(5));
        let task = || Task::new("fix").to("coder").id(RunId(uuid::Uuid::from_u128(7)));
        let refused = first.submit(task()).await.map(drop);
        assert!(matches!(refused, Err(SubmitError::Storage(StorageError::Unavailable { .. }))), "{refused:?}");
        let run = loop {
            match second.submit(task()).await {
                Ok(run) => break run,
                // Refused by the claim alone: the first board is just looking.
                Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
            }
        };
        let result = run.result().await?;
        assert_eq!((&result.outcome, sim.effects().count()), (&Outcome::Finished, 1));
        assert_eq!(first.run(result.run).result().await?, result);
        sim.assert_effects_at_most_once_per_key();
        Ok(())
    });
}

#[test]
fn a_claim_that_comes_after_its_boards_end_holds_a_run_only_for_a_while() {
    Seeds::new(20).simulate(async |sim: Sim| {
        let slow = async |_: Turn| {
            tokio::time::sleep(Duration::from_secs(60)).await;
            Ok(Command::output("done"))
        };
        let start = || sim.board().agent("slow", slow).shutdown_grace(Duration::ZERO).start();
        let board = start().await?;
        let run = board.submit(Task::new("wait")).await?.id();
        board.shutdown().await;
        // It has written its name into the run's note, and is about to claim the run; there it hangs, and ends meanwhile.
        sim.faults().at("storage.put").for_secs(30).at_rest();
        let late = start().await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        late.shutdown().await;
        let board = start().await?;
        assert_eq!(board.run(run).result().await?.outcome, Outcome::Finished);
        sim.assert_nothing_left().await;
        Ok(())
    });
}

#[test]
fn silence_denies_an_approval_when_it_expires() {
    Seeds::new(1).simulate(async |sim: Sim| {
        sim.time_limit(Duration::from_secs(2 * 3600));
        let writer = |turn: Turn| async move {
            turn.people().approve(Action::new("write_file", "REVIEW.md", "fine")).await?;
            Ok(Command::output("written"))
        };
        let board = sim.board().approval_ttl(Duration::from_secs(3600)).agent("writer", writer).start().await?;
        let run = board.submit(Task::new("write")).await?;
        assert!(matches!(run.result().await?.outcome, Outcome::Denied { .. }));
        sim.assert_nothing_left().await;
        Ok(())
    });
}
