//! Starting and stopping a board: what a shutdown lets finish, what stays leased, and what a start does with what it finds
//! (SEMANTICS 8).

use std::sync::{Arc, mpsc};
use std::time::Duration;

use callboard::SubmitError;
use callboard::actors::approvals::TerminalChannel;
use callboard::env::Env;
use callboard::messages::{Refusal, RunEvent, RunId};
use callboard::prelude::*;
use callboard::runtime::{AskError, RunError, Unfinished};
use callboard::storage::{Sled, StorageError};
use callboard::supervision::tree::EndReason;
use parking_lot::Mutex;
use serde_json::json;

use crate::common::{Counter, World, builder, pass, people, quiet, secs};

/// Works for the number of seconds in its input, one turn at a time.
fn worker(begun: &Counter) -> AgentSpec {
    let begun = begun.clone();
    let agent = move |turn: Turn| {
        begun.count();
        async move {
            tokio::time::sleep(secs(turn.input()?)).await;
            Ok(Command::output("done"))
        }
    };
    AgentSpec::new("worker", agent).concurrency(1)
}

async fn submit(board: &Callboard, secs: u64) -> RunId {
    board.submit(Task::new("x").to("worker").input(secs)).await.unwrap().id()
}

#[tokio::test(start_paused = true)]
async fn turns_that_have_not_begun_do_not_begin_and_are_found_at_the_next_start() {
    let (world, begun) = (World::new(), Counter::default());
    let first = world.builder().with(worker(&begun)).start().await.unwrap();
    let runs = [submit(&first, 5).await, submit(&first, 5).await];
    quiet().await;
    let started = world.env.now().monotonic;
    first.shutdown().await;
    assert_eq!(begun.get(), 1, "what is ready does not begin");
    assert!((5..6).contains(&(world.env.now().monotonic - started).as_secs()), "what has begun is waited for");
    assert_eq!(first.run(runs[0]).result().await.unwrap().output, json!("done"));
    assert_eq!(first.run(runs[1]).result().await, Err(RunError::Stopped(runs[1])));

    let second = world.builder().with(worker(&begun)).start().await.unwrap();
    assert_eq!(second.run(runs[1]).result().await.unwrap().output, json!("done"));
    assert_eq!(begun.get(), 2);
    second.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn after_the_grace_period_the_rest_is_stopped_and_stays_leased() {
    let (world, begun) = (World::new(), Counter::default());
    let first = world.builder().with(worker(&begun)).start().await.unwrap();
    let run = submit(&first, 60).await;
    quiet().await;
    let started = world.env.now().monotonic;
    first.shutdown().await;
    assert_eq!((world.env.now().monotonic - started).as_secs(), 10);

    let second = world.builder().with(worker(&begun)).start().await.unwrap();
    let result = second.run(run).result().await.unwrap();
    assert_eq!((result.outcome, result.metrics.retries), (Outcome::Finished, 0), "a shutdown is not an attempt");
    second.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_wait_for_turns_that_ignore_their_stop_once_their_places_are_given_away() {
    let (env, (begin, begun), (release, released)) = (Env::repeatable(1), mpsc::channel(), mpsc::channel::<()>());
    let released = Arc::new(Mutex::new(released));
    let deaf = AgentSpec::new("deaf", move |_: Turn| {
        begin.send(()).unwrap();
        let _ = released.lock().recv();
        async { Ok(Command::new()) }
    });
    let board = builder().env(env.clone()).shutdown_grace(secs(100)).with(deaf.blocking()).start().await.unwrap();
    let stopped = async || {
        let run = board.submit(Task::new("x")).await.unwrap();
        begun.recv().unwrap();
        run.cancel("no longer wanted").await.unwrap();
    };
    stopped().await;
    pass(secs(6)).await;
    stopped().await;
    let started = env.now().monotonic;
    let (took, ()) = tokio::join!(
        async {
            board.shutdown().await;
            env.now().monotonic - started
        },
        pass(secs(120))
    );
    assert_eq!(took.as_secs(), 5);
    drop(release);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_waits_for_one_under_way_may_finish_and_one_that_waits_for_a_person_is_not_waited_for() {
    let env = Env::repeatable(1);
    let board = builder()
        .env(env.clone())
        .with(worker(&Counter::default()))
        .agent("lead", |turn: Turn| async move {
            let answer = turn.delegate("worker", "work").input(3).await?;
            Ok(Command::output(json!(["told", answer])))
        })
        .agent("asker", |turn: Turn| async move { Ok(Command::output(turn.people().ask("well?").await?)) })
        .start()
        .await
        .unwrap();
    let lead = board.submit(Task::new("x").to("lead")).await.unwrap();
    let asker = board.submit(Task::new("x").to("asker")).await.unwrap();
    quiet().await;
    let started = env.now().monotonic;
    board.shutdown().await;
    assert_eq!((env.now().monotonic - started).as_secs(), 3);
    assert_eq!(lead.result().await.unwrap().output, json!(["told", "done"]));
    assert_eq!(asker.result().await, Err(RunError::Stopped(asker.id())));
}

#[tokio::test(start_paused = true)]
async fn during_a_shutdown_new_work_is_refused_by_name_and_shutting_down_again_is_fine() {
    let begun = Counter::default();
    let doubler = AgentSpec::typed("doubler", |number: u64| async move { Ok(number * 2) });
    let board = builder().with(worker(&begun)).with(doubler).start().await.unwrap();
    submit(&board, 5).await;
    quiet().await;
    let refused = async || {
        let task = || Task::new("x").to("worker");
        let waiting = board.submit(task()).await.unwrap_err();
        let at_once = board.try_submit(task()).await.unwrap_err();
        assert_eq!(waiting.to_string(), "the board is shutting down and takes no new work");
        assert!([waiting, at_once].iter().all(|error| *error == SubmitError::Refused(Refusal::ShuttingDown)));
        let asked = board.ask::<u64, u64>("doubler", 1).await.unwrap_err();
        assert!(matches!(asked, AskError::Refused(Refusal::ShuttingDown)), "{asked}");
    };
    let (first, second, ()) = tokio::join!(board.shutdown(), board.shutdown(), async {
        pass(secs(1)).await;
        refused().await;
    });
    assert_eq!([&first, &second], [&EndReason::Stopped; 2]);
    assert_eq!(board.shutdown().await, EndReason::Stopped);
    refused().await;
    assert_eq!(begun.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_start_resumes_what_it_finds_or_cancels_it_or_leaves_it() {
    let (world, begun) = (World::new(), Counter::default());
    let start = async |unfinished: Option<Unfinished>| {
        let builder = world.builder().with(worker(&begun)).shutdown_grace(secs(0));
        match unfinished {
            Some(unfinished) => builder.on_unfinished(unfinished).start().await.unwrap(),
            None => builder.start().await.unwrap(),
        }
    };
    let first = start(None).await;
    let runs = [submit(&first, 3600).await, submit(&first, 3600).await];
    quiet().await;
    first.shutdown().await;
    assert_eq!(begun.get(), 1);

    let left = start(Some(Unfinished::Leave)).await;
    pass(secs(10)).await;
    assert_eq!((begun.get(), left.unfinished_runs().await.unwrap().len()), (1, 2));
    left.shutdown().await;

    let resumed = start(None).await;
    pass(secs(10)).await;
    assert_eq!(begun.get(), 2);
    resumed.shutdown().await;

    let cancelled = start(Some(Unfinished::Cancel)).await;
    for run in runs {
        let outcome = cancelled.run(run).result().await.unwrap().outcome;
        assert_eq!(outcome.to_string(), "cancelled: an earlier process left it unfinished");
    }
    assert_eq!((begun.get(), cancelled.unfinished_runs().await.unwrap().len()), (2, 0));
    cancelled.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn the_result_of_a_run_that_another_board_works_on_is_noticed_within_a_second() {
    let (world, begun) = (World::new(), Counter::default());
    let working = world.builder().with(worker(&begun)).start().await.unwrap();
    let run = submit(&working, 500).await;
    let looking = world.builder().on_unfinished(Unfinished::Leave).start().await.unwrap();
    let started = world.env.now().monotonic;
    assert_eq!(looking.run(run).result().await.unwrap().output, json!("done"));
    assert!((500..=501).contains(&(world.env.now().monotonic - started).as_secs()));
    assert_eq!(begun.get(), 1);
    assert!(!working.run(run).history().await.unwrap().iter().any(|event| matches!(event, RunEvent::Recovered { .. })));

    let run = submit(&working, 500).await;
    let handle = looking.run(run);
    let (result, _) = tokio::join!(handle.result(), async {
        pass(secs(5)).await;
        looking.shutdown().await
    });
    assert_eq!(result, Err(RunError::Stopped(run)));
    working.shutdown().await;
}

#[test]
fn a_terminal_channel_and_a_terminal_error_have_names_of_their_own() {
    let _channel = TerminalChannel::new();
    let error: TurnError = Terminal(std::io::Error::other("broken")).into();
    assert_eq!(error.to_string(), "terminal error: broken");
}

/// A service or a test may start many boards on one runtime.
#[tokio::test(start_paused = true)]
async fn a_board_that_was_shut_down_leaves_no_task_behind() {
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let begun = Counter::default();
    let folder = tempfile::tempdir().unwrap();
    let sleeper = AgentSpec::new("sleeper", |_: Turn| async { Ok(Command::default().goto("worker")) }).dormant();
    let board = Callboard::builder().storage(Sled::open(folder.path()).unwrap()).with(worker(&begun)).with(sleeper);
    let board = board.start().await.unwrap();
    board.complete(Task::new("x").to("sleeper").input(1)).await.unwrap();
    submit(&board, 100).await;
    board.shutdown().await;
    drop(board);
    tokio::time::sleep(secs(600)).await;
    assert_eq!(alive(), 0);
}

#[tokio::test]
async fn a_store_that_a_board_has_shut_down_can_be_opened_again_while_handles_of_the_board_live() {
    let folder = tempfile::tempdir().unwrap();
    let start = async |store: Sled| {
        let asks = |turn: Turn| async move { Ok(Command::output(turn.people().ask("well?").await?)) };
        let board = Callboard::builder().storage(store).agent("quick", |_: Turn| async { Ok(Command::output(1)) });
        board.agent("asks", asks).shutdown_grace(Duration::ZERO).start().await.unwrap()
    };
    let board = start(Sled::open(folder.path()).unwrap()).await;
    let finished = board.submit(Task::new("x").to("quick")).await.unwrap();
    finished.result().await.unwrap();
    let unseen = board.submit(Task::new("x").to("quick")).await.unwrap();
    board.run(unseen.id()).result().await.unwrap();
    let open = board.submit(Task::new("x").to("asks")).await.unwrap();
    people::next_question(&open).await.unwrap();
    let (waited, _) = tokio::join!(open.result(), board.shutdown());
    assert_eq!(waited, Err(RunError::Stopped(open.id())));

    // Nothing is dropped before.
    let again = start(Sled::open(folder.path()).unwrap()).await;
    assert_eq!(finished.result().await.unwrap().output, 1, "a result that was seen is known");
    assert_eq!(unseen.result().await.unwrap().output, 1, "and one that was sent");
    let closed = || RunError::Storage(StorageError::Closed);
    assert_eq!(open.result().await, Err(closed()));
    assert_eq!(open.history().await.unwrap_err(), closed());
    assert_eq!(board.runs().await.unwrap_err(), StorageError::Closed);
    assert_eq!(board.run(finished.id()).read().await.unwrap_err(), closed());
    let reported = closed().to_string();
    assert!(
        reported.contains("the board has stopped") && reported.contains("start a board on the store"),
        "{reported}"
    );
    board.shutdown().await;
    again.recovered().await;
    let history = again.run(open.id()).history().await.unwrap();
    assert!(history.iter().any(|event| matches!(event, RunEvent::Recovered { .. })), "{history:#?}");
    again.shutdown().await;
}

#[tokio::test]
async fn handles_read_from_a_store_while_another_owner_holds_it_and_do_not_keep_it_open() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Sled::open(folder.path()).unwrap());
    let board = Callboard::builder().storage(Arc::clone(&store)).agent("quick", |_: Turn| async { Ok(Command::new()) });
    let board = board.start().await.unwrap();
    let run = board.submit(Task::new("x")).await.unwrap();
    run.result().await.unwrap();
    let history = run.history().await;
    board.shutdown().await;
    assert_eq!(run.history().await, history);
    drop(store);
    assert_eq!(run.history().await.unwrap_err(), RunError::Storage(StorageError::Closed));
    Sled::open(folder.path()).unwrap();
}
