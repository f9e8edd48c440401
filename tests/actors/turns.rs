//! Turns (SEMANTICS 8): attempts, panics, timeouts, steps, slots, and what a cancelled run leaves behind.

#![allow(clippy::disallowed_methods, reason = "the tests run on tokio's virtual time")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use crate::common::{Counter, Peak, assert_nothing_left, broken, builder, finish, pass, people, quiet, secs, until};
use callboard::Builder;
use callboard::env::{Clock, Env, Now};
use callboard::messages::{
    Action, Durability, FailureKind, Reducer, Refusal, RequestId, RunEvent, Schema, SendTo, StateRules, Status,
    Timestamp, TurnId,
};
use callboard::prelude::*;
use callboard::runtime::{RunError, RunHandle};
use callboard::storage::{Key, Memory, Put};
use callboard::supervision::runs::Replay;
use callboard::supervision::tree::{ActorState, TreeNode};
use callboard::testing::Script;
use callboard::{AnswerError, SubmitError};
use futures::future::join_all;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::Instant;

async fn agent_node(board: &Callboard, agent: &str) -> TreeNode {
    board.tree().await.unwrap().find(&["agents", agent]).unwrap().clone()
}

fn is_retry(event: &RunEvent) -> bool {
    matches!(event, RunEvent::AttemptFailed { .. })
}

#[tokio::test(start_paused = true)]
async fn an_error_by_question_mark_is_retried_with_backoff_under_one_turn_id() {
    let tries = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&tries);
    let board = builder()
        .agent("worker", move |turn: Turn| {
            noted.lock().push((turn.attempt(), turn.id(), Instant::now()));
            async move {
                if turn.attempt() < 3 {
                    Err(broken())?;
                }
                Ok(Command::output("done"))
            }
        })
        .start()
        .await
        .unwrap();
    let result = finish(&board, Task::new("x")).await;
    assert_eq!((result.outcome, result.output, result.metrics.retries), (Outcome::Finished, json!("done").into(), 2));
    let tries = tries.lock().clone();
    assert_eq!(tries.iter().map(|(attempt, ..)| *attempt).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(tries.iter().all(|(_, id, _)| *id == tries[0].1));
    let waits = [tries[1].2 - tries[0].2, tries[2].2 - tries[1].2].map(|wait| wait.as_millis());
    assert!((50..=101).contains(&waits[0]) && (100..=201).contains(&waits[1]), "{waits:?}");
    board.shutdown().await;
}

/// A board may have tens of thousands of turns that wait, each with the future of its request.
#[tokio::test(start_paused = true)]
async fn what_a_turn_keeps_of_a_request_while_it_waits_is_small() {
    let board = builder()
        .agent("worker", |turn: Turn| async move {
            let sizes = [
                size_of_val(&turn.people().ask("which one?")),
                size_of_val(&turn.people().approve(Action::new("remove", "a", "a"))),
                size_of_val(&turn.step("s", async { Ok::<_, TurnError>(1) })),
            ];
            Ok(Command::output(sizes.to_vec()))
        })
        .start()
        .await
        .unwrap();
    let sizes: Vec<usize> = finish(&board, Task::new("x")).await.output.parse().unwrap();
    let most = [120, 240, 96];
    assert!(sizes.iter().zip(most).all(|(size, most)| *size <= most), "{sizes:?} bytes, at most {most:?}");
    board.shutdown().await;
}

/// A machine whose date is corrected backwards all the time.
struct BackwardsDate(Instant);

impl Clock for BackwardsDate {
    fn now(&self) -> Now {
        let monotonic = self.0.elapsed();
        let wall = Timestamp::from_millis(1_767_225_600_000 - monotonic.as_millis() as u64);
        Now { monotonic, wall }
    }
}

#[tokio::test(start_paused = true)]
async fn a_date_that_is_set_back_puts_off_no_further_attempt() {
    let env = Env::new(BackwardsDate(Instant::now()), 1);
    let board = Callboard::builder().env(env).agent("worker", Script::new().panic("no").times(2).reply("done"));
    let board = board.start().await.unwrap();
    let result = tokio::time::timeout(Duration::from_millis(302), finish(&board, Task::new("x"))).await;
    let result = result.expect("two waits, of 100 and 200 ms at most");
    assert_eq!((result.outcome, result.metrics.retries), (Outcome::Finished, 2));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn how_often_a_turn_is_tried_is_set_by_its_task_and_else_by_the_board() {
    let fails = |_: Turn| async { Err::<Command, _>(TurnError::transient("down")) };
    let board = builder().agent("caller", fails).attempts(5).start().await.unwrap();
    let own = Task::new("x").limits(Limits { attempts: 2, ..Limits::default() });
    for (task, attempts) in [(Task::new("x"), 5), (own, 2)] {
        finish(&board, task).await;
        assert_eq!(board.dead_letters().list().await.unwrap().last().unwrap().attempts, attempts);
    }
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn three_failed_attempts_make_a_dead_letter_and_fail_the_branch() {
    let tries = Counter::default();
    let counted = tries.clone();
    let board = builder()
        .agent("worker", move |_: Turn| {
            counted.count();
            async move { Err::<Command, _>(broken().into()) }
        })
        .start()
        .await
        .unwrap();
    let result = finish(&board, Task::new("x").input(7)).await;
    assert_eq!(result.outcome, Outcome::Failed { error: "broken".into() });
    assert_eq!(tries.get(), 3);
    let letters = board.dead_letters().list().await.unwrap();
    assert_eq!((letters.len(), letters[0].attempts, letters[0].input.clone()), (1, 3, json!(7).into()));
    assert_eq!((letters[0].failure.kind, letters[0].agent.as_str()), (FailureKind::Transient, "worker"));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_terminal_error_ends_the_turn_at_once() {
    let tries = Counter::default();
    let counted = tries.clone();
    let board = builder()
        .agent("worker", move |_: Turn| {
            counted.count();
            async move { Err::<Command, _>(Terminal(broken()).into()) }
        })
        .start()
        .await
        .unwrap();
    let result = finish(&board, Task::new("x")).await;
    assert_eq!(result.outcome, Outcome::Failed { error: "terminal error: broken".into() });
    assert_eq!(tries.get(), 1);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_error_without_text_names_the_agent_that_gave_it() {
    let board = builder()
        .agent("mute", |_: Turn| async { Err::<Command, _>(TurnError::terminal(" ")) })
        .agent("silent", |_: Turn| async { panic!("") })
        .agent("asks", |turn: Turn| async move { Ok(Command::output(turn.delegate("mute", "x").await?)) })
        .start()
        .await
        .unwrap();
    for (agent, named) in [("mute", "mute"), ("silent", "silent"), ("asks", "mute")] {
        let result = finish(&board, Task::new("x").to(agent)).await;
        let expected = format!("agent {named} gave an error without text");
        assert!(result.outcome.to_string().contains(&expected), "{}", result.outcome);
    }
    board.shutdown().await;
}

/// Panics when asked to; otherwise returns the number of its agent's value.
struct Fragile {
    value: usize,
    resume: Arc<Notify>,
}

impl Agent for Fragile {
    async fn turn(&self, turn: Turn) -> Result<Command, TurnError> {
        match (&*turn.task().body, turn.attempt()) {
            ("panic once", 1) | ("panic always", _) => panic!("out of luck"),
            ("wait", _) => self.resume.notified().await,
            _ => {}
        }
        Ok(Command::output(self.value))
    }
}

fn fragile(resume: &Arc<Notify>) -> AgentSpec {
    let (made, resume) = (Counter::default(), Arc::clone(resume));
    AgentSpec::new("fragile", move || Fragile { value: made.count(), resume: Arc::clone(&resume) })
}

#[tokio::test(start_paused = true)]
async fn a_panic_rebuilds_the_agent_and_other_turns_of_it_continue() {
    let resume = Arc::new(Notify::new());
    let board = builder().with(fragile(&resume)).start().await.unwrap();
    let waiting = board.submit(Task::new("wait")).await.unwrap();
    let panicking = board.submit(Task::new("panic once")).await.unwrap();
    let RunEvent::AttemptFailed { failure, .. } = until(&panicking, is_retry).await else { unreachable!() };
    assert_eq!((failure.kind, &*failure.text), (FailureKind::Panic, "out of luck"));
    assert_eq!(panicking.result().await.unwrap().output, json!(1), "the next attempt runs on a new value");
    let node = agent_node(&board, "fragile").await;
    assert_eq!((node.generation, node.restarts, node.state), (2, 1, ActorState::Running));
    assert_eq!(node.last_error.as_deref(), Some("out of luck"));
    resume.notify_one();
    assert_eq!(waiting.result().await.unwrap().output, json!(0), "the other turn has kept its value");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_panics_thrice_is_a_dead_letter_and_counts_once_in_the_window() {
    let resume = Arc::new(Notify::new());
    let board = builder().with(fragile(&resume).restarts(1, secs(60))).start().await.unwrap();
    let result = finish(&board, Task::new("panic always")).await;
    assert_eq!(result.outcome, Outcome::Failed { error: "crash: out of luck".into() });
    let letters = board.dead_letters().list().await.unwrap();
    assert_eq!((letters[0].attempts, letters[0].failure.kind), (3, FailureKind::Panic));
    assert_eq!(agent_node(&board, "fragile").await.state, ActorState::Running);
    assert_eq!(finish(&board, Task::new("x")).await.outcome, Outcome::Finished);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_over_its_window_fails_alone_and_returns_by_hand() {
    let resume = Arc::new(Notify::new());
    let board = builder()
        .with(fragile(&resume).restarts(1, secs(60)))
        .agent("sturdy", |_: Turn| async { Ok(Command::output("fine")) })
        .start()
        .await
        .unwrap();
    assert_eq!(finish(&board, Task::new("panic once").to("fragile")).await.outcome, Outcome::Finished);
    let result = finish(&board, Task::new("panic once").to("fragile")).await;
    let Outcome::Failed { error } = &result.outcome else { panic!("{result:?}") };
    assert!(error.contains("has failed too often: out of luck"), "{error}");
    let node = agent_node(&board, "fragile").await;
    assert_eq!((node.state, node.last_error.as_deref()), (ActorState::Failed, Some("out of luck")));
    let refused = board.submit(Task::new("x").to("fragile")).await.unwrap_err();
    assert!(refused.to_string().contains("does not take work"), "{refused}");
    assert_eq!(finish(&board, Task::new("x").to("sturdy")).await.output, json!("fine"));
    board.agents().restart("fragile").await.unwrap();
    assert_eq!(finish(&board, Task::new("x").to("fragile")).await.outcome, Outcome::Finished);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn restarts_outside_the_window_do_not_add_up() {
    let resume = Arc::new(Notify::new());
    let board = builder().with(fragile(&resume).restarts(1, secs(60))).start().await.unwrap();
    for _ in 0..4 {
        assert_eq!(finish(&board, Task::new("panic once")).await.outcome, Outcome::Finished);
        tokio::time::sleep(secs(61)).await;
    }
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_runs_over_its_timeout_is_stopped_and_tried_again() {
    let slow = |turn: Turn| async move {
        if turn.attempt() == 1 {
            tokio::time::sleep(secs(100)).await;
        }
        Ok(Command::output("done"))
    };
    let board = builder().with(AgentSpec::new("slow", slow).timeout(secs(10))).start().await.unwrap();
    let started = Instant::now();
    let run = board.submit(Task::new("x")).await.unwrap();
    let RunEvent::AttemptFailed { failure, .. } = until(&run, is_retry).await else { unreachable!() };
    assert_eq!((failure.kind, started.elapsed().as_secs()), (FailureKind::Timeout, 10));
    assert_eq!(run.result().await.unwrap().outcome, Outcome::Finished);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn each_turn_is_stopped_by_its_own_time_in_whatever_order_they_began() {
    let slow = |_: Turn| async {
        tokio::time::sleep(secs(100)).await;
        Ok(Command::output("late"))
    };
    let times = [30, 10, 20, 10];
    let agents = times.iter().enumerate().map(|(number, time)| {
        let agent = AgentSpec::new(&format!("slow-{number}"), slow);
        agent.timeout(secs(*time))
    });
    let board = agents.fold(builder().pool(9), Builder::with).start().await.unwrap();
    let board = &board;
    let ended = times.iter().enumerate().map(|(number, time)| async move {
        // Each begins a second after the one before.
        tokio::time::sleep(secs(number as u64)).await;
        let began = Instant::now();
        let task = Task::new("x").to(&format!("slow-{number}"));
        let limits = Limits { attempts: 1, ..Limits::default() };
        let run = board.submit(task.limits(limits)).await.unwrap();
        let outcome = run.result().await.unwrap().outcome;
        assert!(outcome.to_string().contains("took longer than its timeout"), "{outcome}");
        assert_eq!(began.elapsed().as_secs(), *time, "{number}");
    });
    join_all(ended).await;
    board.shutdown().await;
}

/// Works, waits for a person, and works again.
async fn work_around_a_question(before: u64, after: u64) -> Outcome {
    let agent = move |turn: Turn| async move {
        tokio::time::sleep(secs(before)).await;
        turn.people().ask("go on?").await?;
        tokio::time::sleep(secs(after)).await;
        Ok(Command::output("done"))
    };
    let board = builder().with(AgentSpec::new("slow", agent).timeout(secs(10))).start().await.unwrap();
    let run = board.submit(Task::new("x").limits(Limits { attempts: 1, ..Limits::default() })).await.unwrap();
    until(&run, |event| matches!(event, RunEvent::Asked { .. })).await;
    tokio::time::sleep(secs(1000)).await;
    board.people().answer(people::questions(&run).await[0].id, "yes", "me").await.unwrap();
    let outcome = run.result().await.unwrap().outcome;
    board.shutdown().await;
    outcome
}

#[tokio::test(start_paused = true)]
async fn time_spent_waiting_does_not_count_towards_the_timeout_and_time_before_it_does() {
    assert_eq!(work_around_a_question(4, 4).await, Outcome::Finished);
    let Outcome::Failed { error } = work_around_a_question(6, 6).await else { panic!("it took 12 of 10 seconds") };
    assert!(error.starts_with("timeout"), "{error}");
}

/// The channels between the test and an agent that ignores cancellation.
struct DeafAgentChannels {
    begun: mpsc::Receiver<()>,
    release: mpsc::Sender<()>,
    through: mpsc::Receiver<u32>,
}

/// An agent whose first attempt blocks its thread until it is released.
fn deaf() -> (AgentSpec, DeafAgentChannels) {
    let ((begin, begun), (release, released), (end, through)) = (mpsc::channel(), mpsc::channel(), mpsc::channel());
    let released = Arc::new(Mutex::new(released));
    let spec = AgentSpec::new("deaf", move |turn: Turn| {
        let (begin, released, end) = (begin.clone(), Arc::clone(&released), end.clone());
        async move {
            if &*turn.task().body == "block" && turn.attempt() == 1 {
                begin.send(()).unwrap();
                released.lock().recv().unwrap();
            }
            end.send(turn.attempt()).unwrap();
            Ok(Command::output(turn.attempt()))
        }
    });
    (spec.blocking().timeout(secs(10)), DeafAgentChannels { begun, release, through })
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_ignores_its_stop_for_five_seconds_is_fenced_and_its_late_result_dropped() {
    let (spec, channels) = deaf();
    let board = builder().with(spec).pool(1).start().await.unwrap();
    let run = board.submit(Task::new("block")).await.unwrap();
    let other = board.submit(Task::new("x")).await.unwrap();
    channels.begun.recv().unwrap();
    pass(secs(14)).await;
    assert_eq!((board.load().free_permits, board.load().ready_turns), (0, 1), "it is stopped, and has a second left");
    pass(secs(2)).await;
    assert_eq!(other.result().await.unwrap().output, json!(1), "its permit went to the next turn");
    assert_eq!(run.result().await.unwrap().output, json!(2), "the attempt counts as timed out");
    assert!(agent_node(&board, "deaf").await.detail.unwrap().contains("1 stuck"));
    let before = run.history().await.unwrap();
    channels.release.send(()).unwrap();
    assert_eq!([(); 3].map(|()| channels.through.recv().unwrap()).iter().sum::<u32>(), 4);
    pass(secs(1)).await;
    assert_eq!(run.history().await.unwrap(), before);
    assert_nothing_left(&board, 1).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn how_long_a_turn_may_ignore_its_stop_can_be_set() {
    let (spec, channels) = deaf();
    let board = builder().with(spec).pool(1).timings(|timings| timings.stuck_after(secs(60))).start().await.unwrap();
    board.submit(Task::new("block")).await.unwrap();
    channels.begun.recv().unwrap();
    pass(secs(68)).await;
    assert_eq!(board.load().free_permits, 0, "it was stopped after ten seconds, and has two left");
    pass(secs(4)).await;
    assert!(agent_node(&board, "deaf").await.detail.unwrap().contains("1 stuck"));
    channels.release.send(()).unwrap();
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_turn_that_ignores_it_gives_its_place_away_too() {
    let (spec, channels) = deaf();
    let board = builder().with(spec).pool(1).start().await.unwrap();
    let run = board.submit(Task::new("block")).await.unwrap();
    channels.begun.recv().unwrap();
    assert!(run.cancel("enough").await.unwrap());
    assert_eq!(run.result().await.unwrap().outcome, Outcome::Cancelled { reason: "enough".into() });
    pass(secs(6)).await;
    assert_nothing_left(&board, 1).await;
    channels.release.send(()).unwrap();
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn turns_of_a_blocking_agent_have_threads_of_their_own() {
    let barrier = Arc::new(std::sync::Barrier::new(3));
    let agent = move |_: Turn| {
        let barrier = Arc::clone(&barrier);
        async move {
            barrier.wait();
            Ok(Command::output("met"))
        }
    };
    let board = builder().with(AgentSpec::new("meeting", agent).blocking()).start().await.unwrap();
    let runs = [(); 3].map(|()| finish(&board, Task::new("x")));
    for result in futures::future::join_all(runs).await {
        assert_eq!(result.output, json!("met"));
    }
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn turns_under_way_finish_on_the_old_value_and_later_ones_use_the_new() {
    let resume = Arc::new(Notify::new());
    let board = builder().with(fragile(&resume)).start().await.unwrap();
    let old = board.submit(Task::new("wait")).await.unwrap();
    quiet().await;
    board.agents().replace(AgentSpec::new("fragile", |_: Turn| async { Ok(Command::output("new")) })).await.unwrap();
    assert_eq!(finish(&board, Task::new("x")).await.output, json!("new"));
    resume.notify_one();
    assert_eq!(old.result().await.unwrap().output, json!(0));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_whose_kept_agents_cannot_be_read_is_not_replaced() {
    let store = Arc::new(Memory::default());
    let (key, value) = (Key::new(["kept-agent", "worker", "worker~helper"]), b"damaged".as_slice().into());
    let put = Put { durability: Durability::Memory, ..Put::new(key, value) };
    store.put_if_revision(put).await.unwrap();
    let says = |text: &'static str| move |_: Turn| async move { Ok(Command::output(text)) };
    let board = builder().storage(store).agent("worker", says("old")).start().await.unwrap();
    let error = board.agents().replace(AgentSpec::new("worker", says("new")).keeps_agents()).await.unwrap_err();
    let why = "agent worker could not be made: the agents that it has made and that were kept cannot be read: ";
    assert!(error.to_string().starts_with(why), "{error}");
    assert_eq!(finish(&board, Task::new("x")).await.output, json!("old"));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_replacement_that_cannot_be_made_leaves_everything_as_it_was() {
    let slow = |_: Turn| async {
        tokio::time::sleep(secs(5)).await;
        Ok(Command::output("old"))
    };
    let board = builder().agent("worker", slow).start().await.unwrap();
    let unmakeable = AgentSpec::new("worker", || Err::<Fragile, _>("no luck")).timeout(secs(1)).concurrency(1);
    assert!(board.agents().replace(unmakeable).await.unwrap_err().to_string().contains("no luck"));
    let started = Instant::now();
    let both = [finish(&board, Task::new("x")), finish(&board, Task::new("x"))];
    for result in futures::future::join_all(both).await {
        assert_eq!((result.output, result.metrics.retries), (json!("old").into(), 0));
    }
    assert_eq!(started.elapsed().as_secs(), 5, "both ran at once");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_stopped_agent_finishes_what_it_does_and_its_name_is_free() {
    let resume = Arc::new(Notify::new());
    let board = builder().with(fragile(&resume).concurrency(1)).start().await.unwrap();
    let under_way = board.submit(Task::new("wait")).await.unwrap();
    let not_begun = board.submit(Task::new("x")).await.unwrap();
    quiet().await;
    board.agents().stop("fragile").await.unwrap();
    let outcome = not_begun.result().await.unwrap().outcome;
    assert!(
        matches!(&outcome, Outcome::Refused(Refusal::Unavailable { agent, .. }) if agent.as_str() == "fragile"),
        "{outcome}"
    );
    let late = board.submit(Task::new("x").to("fragile")).await.map(drop);
    assert!(matches!(late, Err(SubmitError::Refused(Refusal::Unavailable { .. }))), "{late:?}");
    resume.notify_one();
    assert_eq!(under_way.result().await.unwrap().outcome, Outcome::Finished);
    board.agents().spawn(AgentSpec::new("fragile", |_: Turn| async { Ok(Command::output("again")) })).await.unwrap();
    assert_eq!(finish(&board, Task::new("x").to("fragile")).await.output, json!("again"));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn finished_steps_are_answered_from_the_journal() {
    let effects = Counter::default();
    let counted = effects.clone();
    let board = builder()
        .agent("worker", move |turn: Turn| {
            let counted = counted.clone();
            async move {
                let first = turn.step("fetch", async { Ok::<_, TurnError>(counted.count()) }).await?;
                let second = turn.step("fetch", async { Ok::<_, TurnError>(counted.count()) }).await?;
                if turn.attempt() < 3 {
                    Err(broken())?;
                }
                Ok(Command::output(json!([first, second])))
            }
        })
        .start()
        .await
        .unwrap();
    assert_eq!(finish(&board, Task::new("x")).await.output, json!([0, 1]), "the first results count");
    assert_eq!(effects.get(), 2);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_step_is_done_again() {
    let board = builder()
        .agent("worker", |turn: Turn| async move {
            let attempt = turn.attempt();
            let work = async { if attempt == 1 { Err(broken()) } else { Ok(attempt) } };
            Ok(Command::output(turn.step("work", work).await?))
        })
        .start()
        .await
        .unwrap();
    assert_eq!(finish(&board, Task::new("x")).await.output, json!(2));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_asks_for_something_else_needs_attention_and_can_be_cancelled() {
    type Ask = fn(Turn) -> futures::future::BoxFuture<'static, Result<(), TurnError>>;
    let other: [Ask; 3] = [
        |turn| Box::pin(async move { turn.step("other", async { Ok::<_, TurnError>(1) }).await.map(drop) }),
        |turn| Box::pin(async move { turn.delegate("helper", "other").await.map(drop).map_err(Into::into) }),
        |turn| Box::pin(async move { turn.people().ask("other").await.map(drop) }),
    ];
    for (number, ask) in other.into_iter().enumerate() {
        let board = builder()
            .agent("worker", move |turn: Turn| async move {
                if turn.attempt() > 1 {
                    ask(turn).await?;
                    return Ok(Command::output("a wrong answer"));
                }
                match number {
                    1 => drop(turn.delegate("helper", "this").await?),
                    _ => drop(turn.step("this", async { Ok::<_, TurnError>(1) }).await?),
                }
                Err(broken())?
            })
            .agent("helper", |_: Turn| async { Ok(Command::output("helped")) })
            .start()
            .await
            .unwrap();
        let run = board.submit(Task::new("x").to("worker")).await.unwrap();
        until(&run, |event| matches!(event, RunEvent::NeedsAttention { .. })).await;
        assert!(run.cancel("cannot go on").await.unwrap());
        assert_eq!(run.result().await.unwrap().outcome, Outcome::Cancelled { reason: "cannot go on".into() });
        assert_nothing_left(&board, 5).await;
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_retried_turn_gets_the_recorded_answer_of_its_delegation() {
    let asked = Counter::default();
    let counted = asked.clone();
    let board = builder()
        .agent("lead", |turn: Turn| async move {
            let answer = turn.delegate("helper", "help").await?;
            if turn.attempt() < 3 {
                Err(broken())?;
            }
            Ok(Command { output: Some(answer), ..Command::default() })
        })
        .agent("helper", move |_: Turn| {
            let number = counted.count();
            async move { Ok(Command::output(number).with("messages", "helped")) }
        })
        .start()
        .await
        .unwrap();
    let result = finish(&board, Task::new("x").to("lead")).await;
    let first = (json!(0).into(), json!({ "messages": ["helped"] }).into());
    assert_eq!((result.output, result.state), first, "the first answer counts");
    assert_eq!((asked.get(), result.metrics.handoffs), (1, 1));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_invalid_command_fails_its_turn_at_once_and_applies_nothing() {
    let invalid: [fn() -> Command; 5] = [
        || Command::update("votes", 1).with("vote", 1),
        || Command::update("votes", 1).with_output(BTreeMap::from([((1, 2), "no key of JSON")])),
        || Command::update("votes", f64::NAN),
        || Command::update("votes", 1).with("votes", "many"),
        || Command::update("votes", 1).with_output("x".repeat(20 << 20)),
    ];
    for command in invalid {
        let board = builder()
            .agent("worker", move |turn: Turn| async move {
                let is_valid = *turn.task().body == *"valid";
                Ok(if is_valid { Command::output("valid").with("votes", 10) } else { command() })
            })
            .start()
            .await
            .unwrap();
        let schema = Schema::strict().channel("votes", Reducer::Sum);
        // More often than a breaker lets pass.
        for _ in 0..4 {
            let run = board.submit(Task::new("x").schema(schema.clone())).await.unwrap();
            let result = run.result().await.unwrap();
            assert!(result.outcome.to_string().contains("invalid command"), "{result}");
            assert_eq!(result.state, json!({}));
            let history = run.history().await.unwrap();
            let failed = |event: &&RunEvent| matches!(event, RunEvent::AttemptFailed { .. });
            assert_eq!(history.iter().filter(failed).count(), 0, "it is not tried again");
        }
        let result = finish(&board, Task::new("valid").schema(schema)).await;
        assert_eq!((result.outcome, result.state), (Outcome::Finished, json!({ "votes": 10 }).into()));
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn five_turns_of_one_agent_run_at_once_and_five_of_all() {
    let (one, all) = (Peak::default(), Peak::default());
    let agent = |peak: &Peak| {
        let (peak, all) = (peak.clone(), all.clone());
        move |_: Turn| {
            let inside = (peak.enter(), all.enter());
            async move {
                tokio::time::sleep(secs(10)).await;
                drop(inside);
                Ok(Command::output("done"))
            }
        }
    };
    let other = Peak::default();
    let board = builder().agent("a", agent(&one)).agent("b", agent(&other)).pool(7).start().await.unwrap();
    let started = Instant::now();
    let runs = (0..14).map(|n| finish(&board, Task::new("x").to(if n < 10 { "a" } else { "b" })));
    futures::future::join_all(runs).await;
    assert_eq!((one.highest(), all.highest()), (5, 7));
    assert_eq!(started.elapsed().as_secs(), 20);
    board.shutdown().await;

    let board = builder().agent("a", agent(&one)).agent("b", agent(&other)).start().await.unwrap();
    let runs = (0..10).map(|n| finish(&board, Task::new("x").to(["a", "b"][n % 2])));
    let started = Instant::now();
    futures::future::join_all(runs).await;
    assert_eq!(started.elapsed().as_secs(), 20, "five at once");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn cancelling_a_run_leaves_nothing() {
    let living = Peak::default();
    let noted = living.clone();
    let agent = move |what: &'static str| {
        let living = noted.clone();
        move |turn: Turn| {
            let alive = living.enter();
            async move {
                match what {
                    "lead" => {
                        let reserved = turn.reserve(100).await?;
                        let sends = ["sleeper", "asker", "approver", "failing", "delegator"];
                        std::mem::forget(reserved);
                        return Ok(Command::new().goto_many(sends.map(|to| SendTo::new(to, 1))));
                    }
                    "sleeper" => tokio::time::sleep(secs(3600)).await,
                    "asker" => drop(turn.people().ask("well?").await?),
                    "approver" => drop(turn.people().approve(Action::new("write", "file", "text")).await?),
                    "delegator" => drop(turn.delegate("single", "go on").await?),
                    "single" => drop(turn.delegate("sleeper", "sleep").await?),
                    _ => Err(broken())?,
                }
                drop(alive);
                Ok(Command::new())
            }
        }
    };
    let backoff = callboard::messages::Backoff { first: secs(600), max: secs(600) };
    let board = ["lead", "sleeper", "asker", "approver", "failing", "delegator"]
        .into_iter()
        .fold(builder(), |builder, name| builder.agent(name, agent(name)))
        .with(AgentSpec::new("single", agent("single")).non_reentrant())
        .backoff(backoff)
        .pool(7)
        .start()
        .await
        .unwrap();
    let limits = Limits { handoffs: 10, agents: 10, ..Limits::default() };
    let run = board.submit(Task::new("x").to("lead").limits(limits)).await.unwrap();
    until(&run, is_retry).await;
    tokio::time::sleep(secs(1)).await;
    assert_eq!((living.inside(), people::questions(&run).await.len()), (6, 1));
    let load = board.load();
    assert_eq!((load.turns_at_work, load.waiting_turns, load.open_approvals), (3, 3, 1), "{load:?}");
    assert!(load.waits > 0);
    assert!(run.cancel("enough").await.unwrap());
    assert!(!run.cancel("again").await.unwrap(), "there is nothing left to cancel");
    let result = run.result().await.unwrap();
    assert_eq!(result.outcome, Outcome::Cancelled { reason: "enough".into() });
    assert_eq!(result.metrics.tokens_spent, 100, "nobody knows whether that call was sent");
    assert_eq!(people::questions(&run).await, []);
    assert_nothing_left(&board, 7).await;
    assert_eq!(living.inside(), 0, "every future is gone");
    let before = run.history().await.unwrap();
    tokio::time::sleep(secs(1000)).await;
    assert_eq!(run.history().await.unwrap(), before, "no timer of it goes off");
    assert!(people::approvals(&board).await.is_empty());
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_delegation_is_acknowledged_while_its_target_is_busy() {
    let board = builder()
        .agent("lead", |turn: Turn| async move {
            let answer = turn.delegate("busy", "help").await?;
            Ok(Command { output: Some(answer), ..Command::default() })
        })
        .with(
            AgentSpec::new("busy", |_: Turn| async {
                tokio::time::sleep(secs(60)).await;
                Ok(Command::output("done"))
            })
            .concurrency(1),
        )
        .start()
        .await
        .unwrap();
    let thinking = board.submit(Task::new("think").to("busy")).await.unwrap();
    let run = board.submit(Task::new("x").to("lead")).await.unwrap();
    until(&run, |event| matches!(event, RunEvent::Delegated { .. })).await;
    let request = RequestId { turn: TurnId { run: run.id(), number: 1 }, ordinal: 0 };
    assert_eq!(board.status(request).await.unwrap().map(|recorded| recorded.status), Some(Status::Ack));
    let load = board.load();
    assert_eq!((load.turns_at_work, load.ready_turns, load.waiting_turns), (1, 1, 1), "the target is at another task");
    let started = Instant::now();
    assert_eq!(thinking.result().await.unwrap().output, "done");
    let result = run.result().await.unwrap();
    assert_eq!((result.outcome, result.output), (Outcome::Finished, json!("done").into()));
    let status = board.status(request).await.unwrap().map(|recorded| recorded.status);
    assert_eq!((status, started.elapsed()), (Some(Status::Complete), Duration::from_secs(120)));

    board.agents().stop("busy").await.unwrap();
    let result = finish(&board, Task::new("x").to("lead")).await;
    let Outcome::Failed { error } = result.outcome else { panic!("a stopped target has answered") };
    assert!(error.contains("refused (Unavailable): agent busy does not take work"), "{error}");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn work_over_an_agents_bound_waits_or_is_refused_with_a_time_to_retry() {
    let board = builder()
        .agent("worker", |_: Turn| async {
            tokio::time::sleep(secs(1)).await;
            Ok(Command::new())
        })
        .capacity(|capacity| capacity.ready_per_agent(2))
        .start()
        .await
        .unwrap();
    let mut runs = Vec::new();
    for _ in 0..7 {
        runs.push(board.submit(Task::new("x")).await.unwrap());
    }
    let refused = board.try_submit(Task::new("x")).await.unwrap_err();
    let expected = Refusal::Overloaded { what: "agent worker".into(), retry_after: secs(1) };
    assert_eq!(refused, SubmitError::Refused(expected));
    let waiting_callers = futures::future::join_all((0..100).map(|_| finish(&board, Task::new("x"))));
    let busiest = async {
        let mut busiest = 0;
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            busiest = busiest.max(board.load().ready_turns);
        }
        busiest
    };
    let begun = Instant::now();
    let (busiest, waiting_callers) = tokio::join!(busiest, waiting_callers);
    assert!(waiting_callers.iter().all(|result| result.outcome == Outcome::Finished));
    assert_eq!((busiest, begun.elapsed().as_secs()), (2, 22), "107 turns, five a second");
    for run in runs {
        assert_eq!(run.result().await.unwrap().outcome, Outcome::Finished);
    }
    board.shutdown().await;
}

/// A board whose agent `worker` takes no more work: five turns run without an end, and one is ready, whose run is returned.
async fn board_with_a_full_queue() -> (Callboard, RunHandle) {
    let board = builder()
        .agent("worker", |_: Turn| std::future::pending::<Result<Command, TurnError>>())
        .capacity(|capacity| capacity.ready_per_agent(1))
        .shutdown_grace(Duration::ZERO)
        .start()
        .await
        .unwrap();
    for _ in 0..5 {
        board.submit(Task::new("x")).await.unwrap();
    }
    let ready = board.submit(Task::new("x")).await.unwrap();
    (board, ready)
}

#[tokio::test(start_paused = true)]
async fn a_task_for_a_stopped_agent_is_refused_as_such_however_many_turns_wait_for_it() {
    let (board, _) = board_with_a_full_queue().await;
    board.agents().stop("worker").await.unwrap();
    let task = || Task::new("x").to("worker");
    for refused in [board.try_submit(task()).await, board.submit(task()).await] {
        let refused = refused.unwrap_err();
        assert!(matches!(refused, SubmitError::Refused(Refusal::Unavailable { .. })), "{refused}");
    }
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn callers_that_wait_for_an_agent_are_notified_when_it_or_the_board_takes_no_more() {
    for stops_agent in [true, false] {
        let (board, _) = board_with_a_full_queue().await;
        let waiting_callers = tokio::spawn({
            let board = board.clone();
            async move { board.submit(Task::new("x").to("worker")).await.unwrap_err() }
        });
        quiet().await;
        assert!(!waiting_callers.is_finished());
        if stops_agent {
            board.agents().stop("worker").await.unwrap();
        } else {
            board.shutdown().await;
        }
        let refused = waiting_callers.await.unwrap();
        let is_reported = match &refused {
            SubmitError::Refused(Refusal::Unavailable { .. }) => stops_agent,
            SubmitError::Refused(Refusal::ShuttingDown) => !stops_agent,
            _ => false,
        };
        assert!(is_reported, "{refused}");
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_waits_for_an_agent_is_admitted_when_a_turn_that_has_not_begun_is_cancelled() {
    let (board, ready) = board_with_a_full_queue().await;
    let waiting_callers = board.submit(Task::new("x").to("worker"));
    let cancel = async {
        quiet().await;
        assert!(ready.cancel("not needed").await.unwrap());
    };
    let (taken, ()) = tokio::join!(tokio::time::timeout(secs(60), waiting_callers), cancel);
    let taken = taken.expect("it still waits in line").unwrap();
    quiet().await;
    assert_eq!(
        (board.load().turns_at_work, board.load().ready_turns),
        (5, 1),
        "it is in the place of the cancelled one"
    );
    assert!(taken.cancel("seen").await.unwrap());
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_may_ask_for_the_load_of_its_board_when_it_is_dropped() {
    struct Curious(Arc<std::sync::OnceLock<Callboard>>, Arc<Mutex<Vec<usize>>>);
    impl Drop for Curious {
        fn drop(&mut self) {
            self.1.lock().extend(self.0.get().map(|board| board.load().pool));
        }
    }
    impl Agent for Curious {
        async fn turn(&self, _: Turn) -> Result<Command, TurnError> {
            Ok(Command::new())
        }
    }
    let (board, answers) = (Arc::new(std::sync::OnceLock::new()), Arc::new(Mutex::new(Vec::new())));
    let (of_agent, reported) = (Arc::clone(&board), Arc::clone(&answers));
    let curious = move || Curious(Arc::clone(&of_agent), Arc::clone(&reported));
    let started = builder().agent("curious", curious).start().await.unwrap();
    board.set(started.clone()).ok().unwrap();
    finish(&started, Task::new("x")).await;
    started.agents().stop("curious").await.unwrap();
    quiet().await;
    assert_eq!(*answers.lock(), [5], "its value was dropped, and had its answer");
    started.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_used_after_its_end_begins_no_step() {
    let (late, done) = (Counter::default(), Arc::new(Notify::new()));
    let (counted, reported) = (late.clone(), Arc::clone(&done));
    let board = builder()
        .agent("worker", move |turn: Turn| {
            let (late, done) = (counted.clone(), Arc::clone(&reported));
            async move {
                tokio::spawn(async move {
                    tokio::time::sleep(secs(1)).await;
                    let paid = turn.step("pay", async { Ok::<_, TurnError>(late.count()) }).await;
                    assert!(paid.unwrap_err().to_string().contains("no longer wanted"));
                    done.notify_one();
                });
                Ok(Command::new())
            }
        })
        .start()
        .await
        .unwrap();
    finish(&board, Task::new("x")).await;
    done.notified().await;
    assert_eq!(late.get(), 0);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn the_work_of_a_step_asks_its_turn_for_nothing_but_reservations() {
    let board = builder()
        .agent("worker", |turn: Turn| async move {
            let inner = turn.clone();
            let work = async move {
                match &*inner.task().body {
                    "step" => inner.step("inner", async { Ok::<_, TurnError>(1) }).await,
                    "ask" => Ok(inner.people().ask("?").await.map(|_| 1)?),
                    "delegate" => Ok(inner.delegate("worker", "x").await.map(|_| 1)?),
                    _ => {
                        inner.reserve(10).await?.release();
                        Ok(2)
                    }
                }
            };
            let beside = turn.step("beside", async {
                tokio::task::yield_now().await;
                Ok::<_, TurnError>(())
            });
            let (done, beside) = tokio::join!(turn.step("outer", work), beside);
            beside?;
            Ok(Command::output(done?))
        })
        .start()
        .await
        .unwrap();
    for door in ["step", "ask", "delegate"] {
        let result = finish(&board, Task::new(door)).await;
        assert!(
            matches!(&result.outcome, Outcome::Failed { error } if error.contains("inside the work of a step")),
            "{result}"
        );
        assert_eq!(result.metrics.retries, 0, "another attempt would do it again");
    }
    assert_eq!(finish(&board, Task::new("reserve")).await.output, json!(2));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn json_that_could_not_be_read_back_is_refused_at_every_door() {
    let nested = |levels: u32| (0..levels).fold(json!(0), |inner, _| serde_json::Value::Array(vec![inner]));
    let deep = move || nested(1_000);
    let board = builder()
        .agent("deep", move |turn: Turn| async move {
            match &*turn.task().body {
                "ask" => drop(turn.people().ask(deep()).await?),
                "approve" => drop(turn.people().approve(Action::new("write", "x", deep())).await?),
                "delegate" => drop(turn.delegate("deep", "x").input(deep()).await?),
                "step" => drop(turn.step("s", async { Ok::<_, TurnError>(deep()) }).await?),
                "far" => drop(turn.step("s", async { Ok::<_, TurnError>(nested(3_000)) }).await?),
                "update" => return Ok(Command::update("artifacts", deep())),
                "send" => return Ok(Command::new().goto_many([SendTo::new("deep", deep())])),
                _ => return Ok(Command::output(deep())),
            }
            Ok(Command::new())
        })
        .agent("asker", |turn: Turn| async move { Ok(Command::output(turn.people().ask("fine?").await?)) })
        .start()
        .await
        .unwrap();
    for door in ["ask", "approve", "delegate", "step", "far", "update", "send", "output"] {
        let Outcome::Failed { error } = finish(&board, Task::new(door).to("deep")).await.outcome else {
            panic!("{door} took it")
        };
        assert!(error.contains("nested"), "{door}: {error}");
        if door == "approve" {
            assert_eq!(error, "terminal error: the arguments of \"write\" may be nested 120 levels deep at most");
        }
    }
    let run = board.submit(Task::new("question").to("asker")).await.unwrap();
    let question = people::question(&run).await;
    assert!(matches!(board.people().answer(question.id, deep(), "ann").await, Err(AnswerError::OverLimit(_))));
    board.people().answer(question.id, "yes", "ann").await.unwrap();
    assert!(run.result().await.unwrap().outcome.is_finished());
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_waiter_for_the_next_question_gets_them_in_order_until_the_run_ends() {
    let board = builder()
        .agent("asker", |turn: Turn| async move {
            let (first, second) = tokio::join!(turn.people().ask("first?"), turn.people().ask("second?"));
            tokio::time::sleep(secs(60)).await;
            Ok(Command::output([first?, second?, turn.people().ask("third?").await?].into_iter().collect::<Json>()))
        })
        .start()
        .await
        .unwrap();
    let run = board.submit(Task::new("x")).await.unwrap();
    let mut asked = Vec::new();
    while let Some(open) = people::next_question(&run).await.unwrap() {
        board.people().answer(open.id, open.question.clone(), "ann").await.unwrap();
        asked.push(open.question);
    }
    assert_eq!(asked, ["first?", "second?", "third?"]);
    assert_eq!(run.result().await.unwrap().output, asked.into_iter().collect::<Json>());
    assert_eq!(people::next_question(&run).await, Ok(None), "it has ended");
    let waiting = board.submit(Task::new("x")).await.unwrap();
    let open = people::next_question(&waiting).await.unwrap();
    assert_eq!(people::next_question(&waiting).await.unwrap(), open, "nobody has answered it");
    board.shutdown().await;
    assert_eq!(people::next_question(&waiting).await, Err(RunError::Stopped(waiting.id())));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_for_the_next_approval_gets_it_and_the_end_of_the_board() {
    let board = builder()
        .agent("clerk", |turn: Turn| async move {
            tokio::time::sleep(secs(60)).await;
            let approved = turn.people().approve(Action::new("write", &turn.input::<String>()?, "text")).await?;
            Ok(Command::output(&*approved.target))
        })
        .start()
        .await
        .unwrap();
    let waits = tokio::spawn({
        let board = board.clone();
        async move { people::approval(&board).await }
    });
    quiet().await;
    let run = board.submit(Task::new("a")).await.unwrap();
    let open = waits.await.unwrap();
    assert_eq!((&*open.action.target, open.request.turn.run), ("a", run.id()));
    assert_eq!(people::next_approval(&board).await, Some(open.clone()), "nobody has decided it");
    board.people().approve(open.id(), "ann").await.unwrap();
    assert_eq!(run.result().await.unwrap().output, "a");
    let waits = tokio::spawn({
        let board = board.clone();
        async move { people::next_approval(&board).await }
    });
    quiet().await;
    board.shutdown().await;
    assert_eq!(waits.await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_receives_a_result_finds_the_permit_of_the_run_free() {
    let board = builder().agent("worker", |_: Turn| async { Ok(Command::default()) }).start().await.unwrap();
    for _ in 0..500 {
        finish(&board, Task::new("x")).await;
        assert_eq!(board.load().runs, 0);
    }
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn the_last_summary_of_a_turn_is_journaled_with_its_end_in_a_line_and_cut() {
    let board = builder()
        .agent("scout", |turn: Turn| async move {
            turn.summary("looked");
            turn.summary(&format!("found\n {}", "x".repeat(200)));
            turn.summary(" \n");
            Ok(Command::default())
        })
        .start()
        .await
        .unwrap();
    let run = board.submit(Task::new("x")).await.unwrap();
    run.result().await.unwrap();
    let history = run.history().await.unwrap();
    let texts: Vec<_> = history
        .iter()
        .filter_map(|event| match event {
            RunEvent::Summarized { turn: 1, text, .. } => Some(text.to_string()),
            _ => None,
        })
        .collect();
    let cut = format!("found {}…", "x".repeat(193));
    assert_eq!((texts.as_slice(), cut.chars().count()), (["looked".to_owned(), cut.clone()].as_slice(), 200));
    assert!(matches!(history.last(), Some(RunEvent::TurnEnded { .. })), "it comes before the end");
    let replay = Replay::of(history, &StateRules::default()).unwrap();
    assert_eq!(replay.turn(1).unwrap().summary.as_deref(), Some(&*cut));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_misspelt_channel_is_reported_by_a_notice_of_its_turn() {
    let board = builder()
        .agent("scout", |_: Turn| async {
            Ok(Command::update("artifcats", json!({ "notes": 1 })).with("part1", 1).goto("writer"))
        })
        .agent("writer", |_: Turn| async { Ok(Command::update("artifcats", 2).with("part2", 2).with("sources", 3)) })
        .start()
        .await
        .unwrap();
    let run = board.submit(Task::new("x").to("scout")).await.unwrap();
    assert!(run.result().await.unwrap().outcome.is_finished(), "an open schema takes it all the same");
    let reported: Vec<_> = run
        .history()
        .await
        .unwrap()
        .into_iter()
        .filter_map(|event| match event {
            RunEvent::Noticed { turn, text, .. } => Some((turn, text.to_string())),
            _ => None,
        })
        .collect();
    let expected = "the channel \"artifcats\" is new; did you mean \"artifacts\"?";
    assert_eq!(reported, [(1, expected.to_owned())], "once, by the turn that was first");
    board.shutdown().await;
}
