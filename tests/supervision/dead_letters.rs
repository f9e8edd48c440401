//! Dead letters: a turn that failed for good is retried in a fork of its run, or dropped (SEMANTICS 10).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use callboard::ForkError;
use callboard::messages::{
    Action, AgentName, Complexity, DeadLetter, PerRun, Question, RunEvent, RunId, SendTo, TurnId, Usage,
};
use callboard::prelude::*;
use callboard::runtime::{Builder, RunHandle};
use callboard::storage::{Journal, Key};
use parking_lot::Mutex;
use serde_json::json;

use crate::common::{Processes, World, assert_nothing_left, builder, finish, people};

/// How often each turn's work was done, and whether what it needs is there.
#[derive(Clone, Default)]
struct Outside {
    done: Arc<Mutex<BTreeMap<String, u32>>>,
    is_up: Arc<AtomicBool>,
    is_slow: Arc<AtomicBool>,
}

impl Outside {
    fn work(&self, name: impl Into<String>) {
        *self.done.lock().entry(name.into()).or_default() += 1;
    }

    fn needed(&self) -> Result<(), TurnError> {
        if self.is_up.load(Ordering::SeqCst) { Ok(()) } else { Err(TurnError::terminal("the service is down")) }
    }

    fn repair(&self) {
        self.is_up.store(true, Ordering::SeqCst);
    }

    fn done(&self) -> Vec<(String, u32)> {
        self.done.lock().iter().map(|(name, count)| (name.clone(), *count)).collect()
    }
}

fn counts<const N: usize>(expected: [(&str, u32); N]) -> Vec<(String, u32)> {
    expected.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
}

/// `draft` hands to `publish`, which needs the service.
fn press(builder: Builder, outside: &Outside) -> Builder {
    let (first, second) = (outside.clone(), outside.clone());
    builder
        .agent("draft", move |turn: Turn| {
            first.work("draft");
            async move {
                turn.reserve(100).await?.settle(Usage::of(60, 40));
                Ok(Command::output("a text").with("messages", "drafted").goto("publish"))
            }
        })
        .agent("publish", move |turn: Turn| {
            let outside = second.clone();
            async move {
                outside.work("publish");
                if outside.is_slow.load(Ordering::SeqCst) {
                    std::future::pending::<()>().await;
                }
                let _unsettled = turn.reserve(100).await?;
                outside.needed()?;
                Ok(Command::output(format!("{} is out", turn.input::<String>()?)).with("messages", "published"))
            }
        })
}

async fn only_letter(board: &Callboard) -> DeadLetter {
    let letters = board.dead_letters().list().await.unwrap();
    assert_eq!(letters.len(), 1, "{letters:#?}");
    letters.into_iter().next().unwrap()
}

async fn question(run: &RunHandle) -> Question {
    people::question(run).await
}

#[tokio::test(start_paused = true)]
async fn a_retried_letter_forks_a_run_at_its_turn_and_what_had_ended_is_not_done_again() {
    let outside = Outside::default();
    let board = press(builder(), &outside).start().await.unwrap();
    let limits = Limits { tokens: 200, ..Limits::of(Complexity::Complex) };
    let run = board.submit(Task::new("x").to("draft").limits(limits)).await.unwrap();
    assert!(matches!(run.result().await.unwrap().outcome, Outcome::Failed { .. }));
    let letter = only_letter(&board).await;
    assert_eq!((letter.turn, letter.retried_as), (TurnId { run: run.id(), number: 2 }, None));

    outside.repair();
    let fork = board.dead_letters().retry(letter.turn).await.unwrap();
    let result = fork.result().await.unwrap();
    assert_ne!(fork.id(), run.id());
    assert_eq!((result.outcome, result.output), (Outcome::Finished, json!("a text is out").into()));
    assert_eq!(result.state, json!({ "messages": ["drafted", "published"] }));
    assert_eq!(outside.done(), counts([("draft", 1), ("publish", 2)]));
    assert_eq!(result.metrics.tokens_spent, 100, "the fork has a budget of its own");
    assert_eq!(only_letter(&board).await.retried_as, Some(fork.id()));
    assert!(matches!(run.result().await.unwrap().outcome, Outcome::Failed { .. }), "the old run stays as it is");
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn the_same_letter_again_starts_no_second_run_not_even_at_once() {
    let outside = Outside::default();
    let board = press(builder(), &outside).start().await.unwrap();
    finish(&board, Task::new("x").to("draft")).await;
    outside.repair();
    let letter = only_letter(&board).await.turn;
    let letters = board.dead_letters();
    let forks = futures::future::join_all((0..8).map(|_| letters.retry(letter))).await;
    let forks: Vec<RunId> = forks.into_iter().map(|fork| fork.unwrap().id()).collect();
    assert!(forks.iter().all(|fork| *fork == forks[0]), "{forks:?}");
    board.run(forks[0]).result().await.unwrap();
    assert_eq!(board.dead_letters().retry(letter).await.unwrap().id(), forks[0]);
    assert_eq!(board.runs().await.unwrap().len(), 2);
    assert_eq!(outside.done(), counts([("draft", 1), ("publish", 2)]));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn whoever_may_not_use_what_a_letter_needs_does_not_take_it_from_others() {
    let (outside, [ann, bob]) = (Outside::default(), ["ann", "bob"].map(|name| AgentName::new(name).unwrap()));
    let of_ann = ann.clone();
    let limit_of = move |from: Option<&AgentName>| PerRun {
        agents: from.filter(|from| **from == of_ann).map(|_| 1),
        ..PerRun::default()
    };
    let board = press(builder().run_limits(limit_of), &outside).start().await.unwrap();
    finish(&board, Task::new("x").to("draft")).await;
    outside.repair();
    let letter = only_letter(&board).await.turn;
    let retry = async |from: &AgentName| board.dead_letters().retry_for(letter, Some(from.clone()), None).await;
    let refused = retry(&ann).await.unwrap_err();
    assert_eq!(refused, ForkError::LimitUsed { limit: "agents", given: 1, used: 2 });
    assert_eq!(only_letter(&board).await.retried_as, None);
    let fork = retry(&bob).await.unwrap();
    assert_eq!(fork.result().await.unwrap().output, json!("a text is out"));
    assert_eq!(fork.read().await.unwrap().submission().task.from_agent, Some(bob));
    assert_eq!(retry(&ann).await.unwrap().id(), fork.id());
    board.shutdown().await;
}

#[test]
fn a_fork_continues_after_a_restart_and_its_letter_still_reports_it() {
    let (processes, outside) = (Processes::new(), Outside::default());
    let (letter, fork) = processes.run(async |builder| {
        let board = press(builder, &outside).start().await.unwrap();
        finish(&board, Task::new("x").to("draft")).await;
        let letter = only_letter(&board).await.turn;
        outside.is_slow.store(true, Ordering::SeqCst);
        let fork = board.dead_letters().retry(letter).await.unwrap().id();
        (letter, fork)
    });
    outside.repair();
    outside.is_slow.store(false, Ordering::SeqCst);
    processes.run(async |builder| {
        let board = press(builder, &outside).start().await.unwrap();
        let result = board.run(fork).result().await.unwrap();
        assert_eq!(result.output, json!("a text is out"));
        assert_eq!(only_letter(&board).await.retried_as, Some(fork));
        assert_eq!(board.dead_letters().retry(letter).await.unwrap().id(), fork);
        assert_eq!(board.runs().await.unwrap().len(), 2);
        board.shutdown().await;
    });
}

#[test]
fn a_dropped_letter_is_gone_for_good() {
    let (processes, outside) = (Processes::new(), Outside::default());
    let letter = processes.run(async |builder| {
        let board = press(builder, &outside).start().await.unwrap();
        finish(&board, Task::new("x").to("draft")).await;
        let letter = only_letter(&board).await.turn;
        assert!(board.dead_letters().discard(letter).await.unwrap());
        assert_eq!(board.dead_letters().list().await.unwrap(), []);
        letter
    });
    processes.run(async |builder| {
        let board = press(builder, &outside).start().await.unwrap();
        assert_eq!(board.dead_letters().list().await.unwrap(), []);
        assert_eq!(board.dead_letters().retry(letter).await.unwrap_err(), ForkError::NoLetter(letter));
        assert!(!board.dead_letters().discard(letter).await.unwrap());
        let (of_no_run, of_no_failure) =
            (TurnId { run: RunId(uuid::Uuid::nil()), number: 1 }, TurnId { number: 1, ..letter });
        for unknown in [of_no_run, of_no_failure] {
            assert_eq!(board.dead_letters().retry(unknown).await.unwrap_err(), ForkError::NoLetter(unknown));
            assert!(!board.dead_letters().discard(unknown).await.unwrap());
        }
        assert_eq!(board.runs().await.unwrap().len(), 1);
        board.shutdown().await;
    });
}

#[tokio::test(start_paused = true)]
async fn siblings_that_ended_are_copied_whenever_they_did_and_those_that_failed_too_run_again() {
    let outside = Outside::default();
    let inner = outside.clone();
    let board = builder()
        .agent("lead", |_: Turn| async { Ok(Command::new().goto_many((0..5_u64).map(|n| SendTo::new("worker", n)))) })
        .agent("worker", move |turn: Turn| {
            let outside = inner.clone();
            async move {
                let n: u64 = turn.input()?;
                outside.work(format!("worker {n}"));
                tokio::time::sleep(Duration::from_secs(n)).await;
                if n == 1 || n == 3 {
                    outside.needed()?;
                }
                if n == 4 {
                    return Ok(Command::output(n).with("messages", n).goto("checker"));
                }
                Ok(Command::output(n).with("messages", n))
            }
        })
        .agent("checker", {
            let outside = outside.clone();
            move |turn: Turn| {
                outside.work("checker");
                let n = turn.input_json().clone();
                async move { Ok(Command::output(json!(["checked", n]))) }
            }
        })
        .start()
        .await
        .unwrap();
    let limits = Limits { handoffs: 6, ..Limits::default() };
    let run = board.submit(Task::new("x").to("lead").limits(limits)).await.unwrap();
    run.result().await.unwrap();
    outside.repair();
    for letter in board.dead_letters().list().await.unwrap() {
        let result = board.dead_letters().retry(letter.turn).await.unwrap().result().await.unwrap();
        assert_eq!(result.outcome, Outcome::Finished);
        assert_eq!(result.output, json!([0, 1, 2, 3, ["checked", 4]]));
        assert_eq!(result.state["messages"], json!([0, 1, 2, 3, 4]));
    }
    let again = [("checker", 1), ("worker 0", 1), ("worker 1", 3), ("worker 2", 1), ("worker 3", 3), ("worker 4", 1)];
    assert_eq!(outside.done(), counts(again));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_waits_for_the_failed_one_continues_with_what_it_had() {
    let outside = Outside::default();
    let (asker, helper) = (outside.clone(), outside.clone());
    let board = builder()
        .agent("asker", move |turn: Turn| {
            let outside = asker.clone();
            async move {
                let seen: u32 = turn
                    .step("look", async {
                        Ok::<_, TurnError>({
                            outside.work("look");
                            7
                        })
                    })
                    .await?;
                let name = turn.people().ask("which one?").await?;
                turn.people().approve(Action::new("open", "the door", json!({}))).await?;
                let other = turn.delegate("helper", "other").await?;
                let answer = turn.delegate("helper", "needed").await;
                outside.work("after");
                Ok(Command::output(json!([
                    seen,
                    name,
                    other,
                    answer.map_err(|error| error.to_string()).unwrap_or_else(Json::from)
                ])))
            }
        })
        .agent("helper", move |turn: Turn| {
            let outside = helper.clone();
            async move {
                let what: String = turn.input()?;
                outside.work(what.as_str());
                if what == "needed" {
                    outside.needed()?;
                }
                Ok(Command::output("helped"))
            }
        })
        .start()
        .await
        .unwrap();
    let approve = async |run: RunId| {
        let open = people::approval(&board).await;
        assert_eq!(open.request.turn.run, run, "consent is asked for under the run that needs it");
        board.people().approve(open.id(), "ann").await.unwrap();
    };
    let run = board.submit(Task::new("x").to("asker")).await.unwrap();
    board.people().answer(question(&run).await.id, "the red one", "ann").await.unwrap();
    approve(run.id()).await;
    let first = run.result().await.unwrap();
    assert!(first.output[3].as_str().unwrap().contains("the service is down"), "{first:?}");

    outside.repair();
    let fork = board.dead_letters().retry(only_letter(&board).await.turn).await.unwrap();
    approve(fork.id()).await;
    let result = fork.result().await.unwrap();
    assert_eq!(result.output, json!([7, "the red one", "helped", "helped"]));
    assert_eq!(outside.done(), counts([("after", 2), ("look", 1), ("needed", 2), ("other", 1)]));
    assert!(!fork.history().await.unwrap().iter().any(|event| matches!(event, RunEvent::TurnFailed { .. })));
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_was_handled_is_copied_and_stays_the_old_runs_letter() {
    let outside = Outside::default();
    let board = press(builder(), &outside)
        .agent("lead", |turn: Turn| async move {
            let error = turn.delegate("broken", "try").await.unwrap_err();
            Ok(Command::output(error.to_string()).goto("publish"))
        })
        .agent("broken", |_: Turn| async { Err::<Command, _>(TurnError::terminal("for good")) })
        .start()
        .await
        .unwrap();
    finish(&board, Task::new("x").to("lead")).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    outside.repair();
    let letters = board.dead_letters().list().await.unwrap();
    let [broken, publish] = letters.as_slice() else { panic!("{letters:#?}") };
    assert_eq!((broken.agent.as_str(), publish.agent.as_str()), ("broken", "publish"));
    let fork = board.dead_letters().retry(publish.turn).await.unwrap();
    let output = fork.result().await.unwrap().output;
    assert!(output.as_str().unwrap().contains("for good is out"), "{output}");
    let letters = board.dead_letters().list().await.unwrap();
    assert_eq!(letters.iter().map(|letter| letter.retried_as).collect::<Vec<_>>(), [None, Some(fork.id())]);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_decided_about_letters_is_forgotten_with_their_run() {
    let outside = Outside::default();
    let world = World::new();
    let storage = &world.storage;
    let day = Duration::from_secs(24 * 3600);
    let board = press(world.board(), &outside).retention(|retention| retention.runs(day)).start().await.unwrap();
    finish(&board, Task::new("x").to("draft")).await;
    let letter = only_letter(&board).await.turn;
    board.dead_letters().discard(letter).await.unwrap();
    let notes = Key::new(["letter"]).children();
    assert_eq!(storage.scan(&notes, None, 10).await.unwrap().len(), 1);
    tokio::time::sleep(2 * day).await;
    assert!(!Journal::new(Arc::clone(storage)).has(letter.run).await.unwrap());
    assert_eq!(storage.scan(&notes, None, 10).await.unwrap(), []);
    board.shutdown().await;
}
