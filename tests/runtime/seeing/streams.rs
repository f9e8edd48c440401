//! Streams of events: what each mode shows, where a reader may begin, and what a slow one receives.

use callboard::actors::StreamMode::{self, Debug, Messages, Updates, Values};
use callboard::actors::Watched;
use callboard::messages::{Action, Consent, Reducer, RunEvent, RunId, SendTo, Usage};
use callboard::prelude::*;
use callboard::runtime::{Builder, RunError, RunHandle};
use callboard::workflow::{Node, Workflow};
use futures::{FutureExt, Stream, StreamExt};
use serde_json::json;

use crate::common::{broken, builder, finish, people, quiet, until};

/// A run with every kind of event that needs no crash: see `everything`.
fn busy(builder: Builder) -> Builder {
    builder
        .agent("lead", |turn: Turn| async move {
            turn.step("look", async { Ok::<_, TurnError>(1) }).await?;
            if turn.attempt() == 1 {
                return Err(broken().into());
            }
            turn.notice("looked");
            turn.reserve(10).await?.settle(Usage::of(3, 4));
            turn.delegate("helper", "help").await?;
            let name = turn.people().ask("name?").await?;
            turn.people().approve(Action::new("write", "file", "text")).await?;
            Ok(Command::output(name).with("artifacts", json!({ "a": 1 })).goto("writer"))
        })
        .agent("helper", |_: Turn| async { Ok(Command::output("helped")) })
        .agent("writer", |_: Turn| async { Err(TurnError::terminal("no ink")) })
        .approval_policy(|_| Consent::Auto)
}

/// The run of `busy`, to its end.
async fn everything(board: &Callboard) -> RunHandle {
    let run = board.submit(Task::new("x").to("lead")).await.unwrap();
    until(&run, |event| matches!(event, RunEvent::Asked { .. })).await;
    board.people().answer(people::questions(&run).await[0].id, "ann", "tester").await.unwrap();
    run.result().await.unwrap();
    run
}

/// The name of an event's kind.
fn kind(event: &RunEvent) -> String {
    let text = format!("{event:?}");
    text.split(|c: char| !c.is_alphanumeric()).next().unwrap().to_owned()
}

/// What the stream gives: kinds of events, and how many were missed.
async fn kinds(stream: impl Stream<Item = Watched>) -> Vec<String> {
    let reported = stream.map(|watched| match watched {
        Watched::Event { event, .. } => kind(&event),
        Watched::Live { event, .. } => format!("{event:?}"),
        Watched::Missed(count) => format!("missed {count}"),
    });
    reported.collect().await
}

/// The numbers of the events that the stream gives; what was missed is counted.
async fn numbers(stream: impl Stream<Item = Watched>) -> (Vec<u64>, u64) {
    stream
        .fold((Vec::new(), 0), async |(mut numbers, missed), watched| match watched {
            Watched::Event { sequence, .. } => {
                numbers.push(sequence);
                (numbers, missed)
            }
            Watched::Live { .. } => (numbers, missed),
            Watched::Missed(count) => (numbers, missed + count),
        })
        .await
}

#[tokio::test(start_paused = true)]
async fn each_mode_shows_what_it_is_for() {
    let board = busy(builder()).start().await.unwrap();
    let run = everything(&board).await;
    let seen = async |modes: &[StreamMode]| kinds(run.events(1, modes).await.unwrap()).await;
    let debug = [
        "Submitted",
        "StepFinished",
        "AttemptFailed",
        "Noticed",
        "Reserved",
        "Settled",
        "Delegated",
        "TurnEnded",
        "Asked",
        "Answered",
        "ApprovalAsked",
        "Decided",
        "TurnEnded",
        "TurnFailed",
    ];
    assert_eq!(seen(&[Debug]).await, debug);
    assert_eq!(seen(&[Values]).await, ["TurnEnded"], "that of the lead: the helper wrote nothing");
    let updates = ["Submitted", "AttemptFailed", "Delegated", "TurnEnded", "Decided", "TurnEnded", "TurnFailed"];
    assert_eq!(seen(&[Updates]).await, updates);
    assert_eq!(seen(&[Messages]).await, ["StepFinished", "Noticed", "Asked", "Answered", "ApprovalAsked"]);
    let both = seen(&[Values, Messages]).await;
    assert_eq!(both, ["StepFinished", "Noticed", "Asked", "Answered", "ApprovalAsked", "TurnEnded"]);
    assert_eq!(seen(&[]).await, Vec::<String>::new());
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn values_show_outputs_that_are_saved_and_what_people_write_over_and_none_shows_nothing() {
    let echo = |turn: Turn| async move { Ok(Command::output(turn.input_json().clone())) };
    let saving = Workflow::builder("saving")
        .channel("notes", Reducer::LastValue)
        .node(Node::agent("first", "echo").saved_to("notes"))
        .node(Node::agent("second", "echo").after("first"))
        .build()
        .unwrap();
    let verdict = |turn: Turn| async move { Ok(Command::update("verdict", turn.input_json().clone())) };
    let board = builder()
        .agent("echo", echo)
        .agent("lead", |_: Turn| async {
            Ok(Command::new().goto_many([SendTo::new("strict", "reject"), SendTo::new("kind", "accept")]))
        })
        .agent("strict", verdict)
        .agent("kind", verdict)
        .start()
        .await
        .unwrap();
    let seen = async |run: &RunHandle, mode| kinds(run.events(1, &[mode]).await.unwrap()).await;
    let mut watched = board.watch(&[StreamMode::None, Values]);
    let run = board.submit(saving.task("x")).await.unwrap();
    assert_eq!(run.result().await.unwrap().state["notes"], "x");
    assert_eq!(seen(&run, Values).await, ["TurnEnded", "TurnEnded"]);
    assert!(matches!(watched.next().await, Some(Watched::Event { .. })), "whoever watches sees it too");
    assert_eq!(seen(&run, StreamMode::None).await, Vec::<String>::new());

    let run = board.submit(Task::new("judge").to("lead")).await.unwrap();
    run.result().await.unwrap();
    run.resume_with([("verdict", "accept")], "ann").await.unwrap();
    run.result().await.unwrap();
    assert_eq!(seen(&run, Values).await, ["TurnEnded", "TurnEnded", "Overwritten"]);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn who_watches_sees_the_same_as_who_reads_afterwards() {
    let board = busy(builder()).start().await.unwrap();
    let watched = [Values, Updates, Messages, Debug].map(|mode| board.watch(&[mode]));
    let run = everything(&board).await;
    for (mode, mut live) in [Values, Updates, Messages, Debug].into_iter().zip(watched) {
        let mut seen = Vec::new();
        while let Some(Some(Watched::Event { run: id, sequence, event })) = live.next().now_or_never() {
            assert_eq!(id, run.id());
            seen.push((sequence, event));
        }
        let past = run.events(1, &[mode]).await.unwrap();
        let past: Vec<_> = past
            .map(|watched| match watched {
                Watched::Event { sequence, event, .. } => (sequence, event),
                other => panic!("{other:?}"),
            })
            .collect()
            .await;
        assert_eq!(seen, past, "{mode:?}");
    }
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_reader_may_begin_anywhere_and_misses_nothing_between_past_and_present() {
    let board = busy(builder()).start().await.unwrap();
    let run = board.submit(Task::new("x").to("lead")).await.unwrap();
    until(&run, |event| matches!(event, RunEvent::Asked { .. })).await;
    let so_far = run.history().await.unwrap().len() as u64;
    let mut readers = Vec::new();
    for from in [0, 1, 5, so_far, so_far + 1, so_far + 3, 1_000] {
        readers.push((from, run.events(from, &[Debug]).await.unwrap()));
    }
    board.people().answer(people::questions(&run).await[0].id, "ann", "tester").await.unwrap();
    run.result().await.unwrap();
    let last = run.history().await.unwrap().len() as u64;
    assert!(last > so_far + 3);
    for (from, reader) in readers {
        let expected: Vec<u64> = (from.max(1)..=last).collect();
        assert_eq!(numbers(reader).await, (expected.clone(), 0), "from {from}, while it ran");
        let later = run.events(from, &[Debug]).await.unwrap();
        assert_eq!(numbers(later).await, (expected, 0), "from {from}, afterwards");
    }
    let nobody_knows = RunId(uuid::Uuid::nil());
    let refused = board.run(nobody_knows).events(1, &[Debug]).await.map(drop);
    assert_eq!(refused, Err(RunError::Unknown(nobody_knows)));
    board.shutdown().await;
}

/// Sends ten events, waits for an answer, sends ten more and ends.
fn talkative(builder: Builder) -> Builder {
    builder.agent("talker", |turn: Turn| async move {
        for n in 0..10 {
            turn.notice(&format!("{n}"));
        }
        turn.people().ask("more?").await?;
        for n in 10..20 {
            turn.notice(&format!("{n}"));
        }
        Ok(Command::output("done"))
    })
}

async fn talked(board: &Callboard) -> RunHandle {
    let run = board.submit(Task::new("x").to("talker")).await.unwrap();
    // A reader with a small buffer that comes earlier may miss it.
    quiet().await;
    until(&run, |event| matches!(event, RunEvent::Asked { .. })).await;
    run
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_receives_how_much_it_missed_and_where() {
    let board = talkative(builder().capacity(|capacity| capacity.watch_buffer(4))).start().await.unwrap();
    let mut slow = board.watch(&[Messages]);
    let run = talked(&board).await;
    let mut seen = Vec::new();
    let mut drain = || {
        while let Some(Some(watched)) = slow.next().now_or_never() {
            seen.push(match watched {
                Watched::Event { event, .. } => kind(&event),
                Watched::Live { event, .. } => format!("{event:?}"),
                Watched::Missed(count) => format!("missed {count}"),
            });
        }
    };
    drain();
    board.people().answer(people::questions(&run).await[0].id, "yes", "tester").await.unwrap();
    run.result().await.unwrap();
    drain();
    let four = ["Noticed"; 4];
    assert_eq!(seen[..4], four, "what fits comes first");
    assert_eq!(seen[4..], ["missed 7", "Answered", "Noticed", "Noticed", "Noticed", "missed 7"]);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_missed_the_end_is_notified() {
    let board = talkative(builder().capacity(|capacity| capacity.watch_buffer(4))).start().await.unwrap();
    let run = talked(&board).await;
    let slow = run.events(1, &[Debug]).await.unwrap();
    board.people().answer(people::questions(&run).await[0].id, "yes", "tester").await.unwrap();
    run.result().await.unwrap();
    quiet().await;
    let total = run.history().await.unwrap().len() as u64;
    let (seen, missed) = numbers(slow).await;
    assert_eq!(seen.len() as u64 + missed, total, "saw {seen:?} and was notified of {missed} more");
    assert!(missed > 0, "{seen:?}");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_goes_away_does_not_slow_the_run() {
    let board = talkative(builder().capacity(|capacity| capacity.watch_buffer(4))).start().await.unwrap();
    let _never_read = board.watch(&[Debug]);
    drop(board.watch(&[Debug]));
    let run = talked(&board).await;
    board.people().answer(people::questions(&run).await[0].id, "yes", "tester").await.unwrap();
    assert_eq!(run.result().await.unwrap().outcome, Outcome::Finished);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn streams_end_with_their_board() {
    let board = talkative(builder()).start().await.unwrap();
    let run = talked(&board).await;
    let (of_run, of_all) = (run.events(1, &[Debug]).await.unwrap(), board.watch(&[Debug]));
    let readers = futures::future::join(numbers(of_run), numbers(of_all));
    let readers = tokio::spawn(readers);
    let events = run.history().await.unwrap().len();
    board.shutdown().await;
    let ended = tokio::time::timeout(std::time::Duration::from_secs(60), readers).await;
    let (of_run, of_all) = ended.expect("they wait for events that nobody will send").unwrap();
    assert_eq!((of_run.0.len(), of_run.1), (events, 0), "all that had happened");
    assert_eq!(of_all, (Vec::new(), 0), "nothing has happened since");
}

#[tokio::test(start_paused = true)]
async fn a_reader_of_one_run_sees_no_other() {
    let board = busy(builder()).agent("other", |_: Turn| async { Ok(Command::output(1)) }).start().await.unwrap();
    let run = board.submit(Task::new("x").to("lead")).await.unwrap();
    until(&run, |event| matches!(event, RunEvent::Asked { .. })).await;
    let reader = run.events(1, &[Debug]).await.unwrap();
    for _ in 0..3 {
        finish(&board, Task::new("y").to("other")).await;
    }
    board.people().answer(people::questions(&run).await[0].id, "ann", "tester").await.unwrap();
    run.result().await.unwrap();
    let ids: Vec<RunId> = reader
        .map(|watched| match watched {
            Watched::Event { run, .. } => run,
            other => panic!("{other:?}"),
        })
        .collect()
        .await;
    assert!(ids.iter().all(|id| *id == run.id()));
    board.shutdown().await;
}

/// A run that lives in memory only forgets its oldest turns; what is left keeps its numbers.
#[tokio::test(start_paused = true)]
async fn events_keep_their_numbers_when_older_ones_are_forgotten() {
    let board = builder()
        .agent("counter", |turn: Turn| async move {
            let n: u64 = turn.input()?;
            if n == 3_000 {
                turn.people().ask("enough?").await?;
                return Ok(Command::output(n));
            }
            Ok(Command::output(n + 1).goto("counter"))
        })
        .start()
        .await
        .unwrap();
    let limits = Limits { handoffs: 10_000, ..Limits::default() };
    let run = board.submit(Task::new("x").input(1_u64).limits(limits)).await.unwrap();
    let question = people::question(&run).await;
    assert!(run.history().await.unwrap().len() < 2_900, "nothing was forgotten");
    let reader = run.events(1, &[Debug]).await.unwrap();
    board.people().answer(question.id, "yes", "tester").await.unwrap();
    run.result().await.unwrap();
    let all: Vec<_> = reader.collect().await;
    let mut last = None;
    for watched in all {
        let Watched::Event { sequence, event, .. } = watched else { panic!("{watched:?}") };
        assert_eq!(sequence, last.map_or(sequence, |last: u64| last + 1));
        if let (RunEvent::TurnEnded { turn, .. }, true) = (&*event, sequence < 3_000) {
            assert_eq!(u64::from(*turn), sequence - 1, "the submission, and one event for each turn");
        }
        last = Some(sequence);
    }
    board.shutdown().await;
}
