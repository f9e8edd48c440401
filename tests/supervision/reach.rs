//! Boards on one store reach each other: tasks for agents of other boards, and what is asked about their runs.

use std::time::Duration;

use callboard::actors::{StreamMode, Watched};
use callboard::messages::{
    Action, Authority, ConversationId, Effect, Outcome, Pending, Refusal, Response, RunEvent, SendTo,
};
use callboard::prelude::*;
use callboard::runtime::Unfinished;
use callboard::storage::{Key, Put};
use callboard::{AnswerError, SubmitError};
use futures::StreamExt;
use serde_json::json;
use tokio::time::timeout;

use crate::common::{World, comes_true};

/// Two boards on one store: `front`, with the agents of `here`, and one that hosts none of them.
async fn boards(world: &World, back: callboard::runtime::Builder) -> (Callboard, Callboard) {
    let back = back.name("back").start().await.unwrap();
    let front = world.board().name("front").start().await.unwrap();
    (front, back)
}

async fn asker(turn: Turn) -> Result<Command, TurnError> {
    Ok(Command::output(turn.people().ask("name?").await?))
}

async fn stop(boards: [Callboard; 2]) {
    for board in boards {
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_goes_to_the_board_that_hosts_its_agent() {
    let world = World::new();
    let back = world.board().agent("coder", |turn: Turn| async move { Ok(Command::output(turn.input_json().clone())) });
    let (front, back) = boards(&world, back).await;
    let run = front.submit(Task::new("x").to("coder").input(7)).await.unwrap();
    assert_eq!(run.result().await.unwrap().output, json!(7));
    assert_eq!(back.run(run.id()).read().await.unwrap().submission().agent.as_str(), "coder");
    assert!(front.agents().names().is_empty(), "the agent is that of the other board");
    stop([front, back]).await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_is_added_later_is_found_when_it_is_asked_for() {
    let world = World::new();
    let (front, back) = boards(&world, world.board()).await;
    let refused = front.submit(Task::new("x").to("coder")).await.unwrap_err();
    assert!(matches!(refused, SubmitError::Refused(Refusal::UnknownAgent { .. })), "{refused}");
    back.agents().spawn(AgentSpec::new("coder", |_: Turn| async { Ok(Command::output(1)) })).await.unwrap();
    assert_eq!(front.submit(Task::new("x").to("coder")).await.unwrap().result().await.unwrap().output, json!(1));
    back.agents().stop("coder").await.unwrap();
    comes_true(async || front.submit(Task::new("x").to("coder")).await.is_err()).await;
    stop([front, back]).await;
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_another_board_is_the_same() {
    let world = World::new();
    let talker = |_: Turn| async { Ok(Command::output("hello")) };
    let (front, back) = boards(&world, world.board().agent("one", talker).agent("other", talker)).await;
    let talk = ConversationId::new("ann").unwrap();
    let task = |to: &str| Task::new("x").to(to).conversation(&talk);
    front.submit(task("one")).await.unwrap().result().await.unwrap();
    let refused = front.submit(task("other")).await.unwrap_err();
    assert!(matches!(refused, SubmitError::OtherConversation { .. }), "{refused}");
    stop([front, back]).await;
}

#[tokio::test(start_paused = true)]
async fn a_run_of_another_board_is_answered_cancelled_and_followed() {
    let world = World::new();
    let (front, back) = boards(&world, world.board().agent("asker", asker)).await;
    let run = front.submit(Task::new("x").to("asker")).await.unwrap();
    let mut events = run.events(1, &[StreamMode::Debug]).await.unwrap();
    let Some(open) = run.next_pending().await.unwrap() else { panic!("nothing waits") };
    assert_eq!(front.people().pending().await, std::slice::from_ref(&open));
    assert_eq!(front.people().next().await.as_ref(), Some(&open));
    let wrong = front.people().answer(&open, Response::Approve, "ann").await.unwrap_err();
    assert!(matches!(wrong, AnswerError::DoesNotFit { .. }), "{wrong}");
    front.people().answer(&open, "Ann", "ann").await.unwrap();
    let again = front.people().answer(&open, "Bob", "bob").await.unwrap_err();
    assert!(matches!(again, AnswerError::Answered(_) | AnswerError::NotOpen(_)), "{again}");
    assert_eq!(run.result().await.unwrap().output, json!("Ann"));
    let mut seen = Vec::new();
    while let Some(event) = events.next().await {
        let Watched::Event { sequence, event, .. } = event else { panic!("{event:?}") };
        seen.push((sequence, event));
    }
    assert_eq!(
        seen.iter().map(|(sequence, _)| *sequence).collect::<Vec<_>>(),
        (1..=seen.len() as u64).collect::<Vec<_>>()
    );
    assert!(matches!(&*seen.last().unwrap().1, RunEvent::TurnEnded { .. }), "{seen:?}");

    let other = front.submit(Task::new("x").to("asker")).await.unwrap();
    other.next_pending().await.unwrap();
    assert!(other.cancel("not needed").await.unwrap());
    assert!(matches!(other.result().await.unwrap().outcome, Outcome::Cancelled { .. }));
    assert!(!other.cancel("not needed").await.unwrap());
    stop([front, back]).await;
}

#[tokio::test(start_paused = true)]
async fn an_approval_is_decided_on_any_board_and_once() {
    let world = World::new();
    let clerk = |turn: Turn| async move {
        let approved = turn.people().approve(Action::new("write_file", "a.txt", "hello")).await?;
        Ok(Command::output(approved.arguments))
    };
    let (front, back) = boards(&world, world.board().agent("clerk", clerk)).await;
    let run = front.submit(Task::new("x").to("clerk")).await.unwrap();
    let Some(Pending::Approval(envelope)) = run.next_pending().await.unwrap() else { panic!("no approval") };
    let id = envelope.id();
    assert_eq!(front.people().check(id, "ann").await.unwrap().missing, 1);
    let (front_people, back_people) = (front.people().via("dashboard"), back.people());
    let (one, two) = futures::join!(front_people.approve(id, "ann"), back_people.deny(id, "bob", "no"));
    assert_eq!([one.is_ok(), two.is_ok()].iter().filter(|is_first| **is_first).count(), 1, "{one:?} {two:?}");
    let decision = front.people().decision(id).await.unwrap().unwrap();
    assert_eq!(decision.approved, one.is_ok());
    run.result().await.unwrap();
    assert!(matches!(
        front.people().approve(id, "cleo").await,
        Err(AnswerError::NotOpen(_) | AnswerError::AlreadyDecided { .. })
    ));
    stop([front, back]).await;
}

#[tokio::test(start_paused = true)]
async fn delegations_handoffs_and_branches_reach_agents_of_other_boards() {
    let world = World::new();
    let writer = |turn: Turn| async move {
        let seen = turn.state().get("topic");
        let before = turn.previous_agent().map(ToString::to_string);
        Ok(Command::output(json!([seen, before])).goto("printer"))
    };
    let shout = |turn: Turn| async move { Ok(Command::output(turn.input::<String>()?.to_uppercase())) };
    let back = world.board().agent("writer", writer).agent("shout", shout);
    let back = back.name("back").start().await.unwrap();
    let lead = |turn: Turn| async move {
        let answer = turn.delegate("shout", "hey").await?;
        Ok(Command::update("topic", answer).goto("writer"))
    };
    let printer = |turn: Turn| async move { Ok(Command::output(turn.input_json().clone())) };
    let spread =
        |_: Turn| async { Ok(Command::new().goto_many([SendTo::new("shout", "a"), SendTo::new("shout", "b")])) };
    let front = world.board().agent("lead", lead).agent("printer", printer).agent("spread", spread).name("front");
    let front = front.start().await.unwrap();
    let run = front.submit(Task::new("x").to("lead")).await.unwrap();
    let result = run.result().await.unwrap();
    assert_eq!(result.output, json!(["HEY", "lead"]), "{result}");
    assert_eq!(result.state, json!({ "topic": "HEY" }));
    let run = front.submit(Task::new("x").to("spread")).await.unwrap();
    assert_eq!(run.result().await.unwrap().output, json!(["A", "B"]));
    stop([front, back]).await;
}

#[tokio::test(start_paused = true)]
async fn what_an_agent_elsewhere_uses_counts_in_the_asking_run_and_within_its_limits() {
    let world = World::new();
    let spender = |turn: Turn| async move {
        let reserved = turn.reserve(100).await?;
        reserved.settle(Usage::of(60, 20)).await?;
        assert!(turn.reserve(10_000_000).await.is_err());
        Ok(Command::output(turn.authority().allows(Effect::Writes)))
    };
    let spec = AgentSpec::new("spender", spender).authority(Authority::of([Effect::Reads, Effect::Writes]));
    let back = world.board().with(spec).name("back").start().await.unwrap();
    let lead = |turn: Turn| async move { Ok(Command::output(turn.delegate("spender", "go").await?)) };
    let front = world.board().agent("lead", lead).name("front").start().await.unwrap();
    let task = Task::new("x").to("lead").grant(Authority::of([Effect::Reads]));
    let result = front.submit(task).await.unwrap().result().await.unwrap();
    assert_eq!((result.metrics.usage.total(), result.output), (80, Json::from(false)));
    stop([front, back]).await;
}

#[tokio::test(start_paused = true)]
async fn taint_comes_back_and_a_stopped_turn_cancels_its_run_elsewhere() {
    let world = World::new();
    let reader = |turn: Turn| async move {
        turn.taint("a page");
        Ok(Command::output("read"))
    };
    let back = world.board().agent("reader", reader).agent("asker", asker).name("back").start().await.unwrap();
    let lead = |turn: Turn| async move { Ok(Command::output(turn.delegate("reader", "go").await?)) };
    let waits = |turn: Turn| async move { Ok(Command::output(turn.delegate("asker", "go").await?)) };
    let front = world.board().agent("lead", lead).agent("waits", waits).name("front").start().await.unwrap();
    assert!(front.submit(Task::new("x").to("lead")).await.unwrap().result().await.unwrap().is_tainted);

    let run = front.submit(Task::new("x").to("waits")).await.unwrap();
    comes_true(async || !back.people().pending().await.is_empty()).await;
    run.cancel("enough").await.unwrap();
    comes_true(async || back.people().pending().await.is_empty()).await;
    comes_true(async || back.load().runs == 0).await;
    stop([front, back]).await;
}

#[tokio::test(start_paused = true)]
async fn a_placed_turn_is_found_again_when_its_run_changes_hands() {
    let world = World::new();
    let board = |name: &str| {
        let lead = |turn: Turn| async move { Ok(Command::output(turn.delegate("asker", "go").await?)) };
        world.board().agent("lead", lead).name(name)
    };
    let back = world.board().agent("asker", asker).name("back").start().await.unwrap();
    let front = board("front").start().await.unwrap();
    let heir = board("heir").start().await.unwrap();
    let run = front.submit(Task::new("x").to("lead")).await.unwrap();
    comes_true(async || !back.people().pending().await.is_empty()).await;
    front.shutdown().await;
    let taken = heir.run(run.id());
    comes_true(async || heir.load().runs == 1).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let open = back.people().pending().await;
    assert_eq!(open.len(), 1, "the turn has one run elsewhere: {open:?}");
    heir.people().answer(&open[0], "Ann", "ann").await.unwrap();
    assert_eq!(taken.result().await.unwrap().output, json!("Ann"));
    stop([heir, back]).await;
}

#[tokio::test(start_paused = true)]
async fn a_letter_that_cannot_be_read_is_refused_and_holds_up_no_other() {
    let world = World::new();
    let (front, back) = boards(&world, world.board().agent("coder", |_: Turn| async { Ok(Command::output(1)) })).await;
    let key = Key::new(["mail", back.id(), "6f5ca3b1f0c94e55b52ec06a4d9d4a10"]);
    world.storage.put_if_revision(Put::new(key, (*b"no letter").into())).await.unwrap();
    assert_eq!(front.submit(Task::new("x").to("coder")).await.unwrap().result().await.unwrap().output, json!(1));
    comes_true(async || {
        let left = world.storage.scan(&Key::new(["mail"]).children(), None, 100).await.unwrap();
        left.is_empty()
    })
    .await;
    stop([front, back]).await;
}

#[tokio::test(start_paused = true)]
async fn letters_to_a_board_that_is_gone_are_discarded() {
    let world = World::new();
    let (front, back) = boards(&world, world.board()).await;
    let key = Key::new(["mail", back.id(), "6f5ca3b1f0c94e55b52ec06a4d9d4a10"]);
    back.shutdown().await;
    world.storage.put_if_revision(Put::new(key.clone(), (*b"late").into())).await.unwrap();
    let third = world.board().start().await.unwrap();
    comes_true(async || world.storage.get(&key).await.unwrap().is_none()).await;
    stop([front, third]).await;
}

#[tokio::test(start_paused = true)]
async fn a_run_with_a_turn_at_another_board_is_taken_up_where_its_other_agent_is() {
    let world = World::new();
    let coder = |turn: Turn| async move { Ok(Command::output(turn.people().ask("name?").await?)) };
    let lead = |turn: Turn| async move { Ok(Command::output(turn.delegate("coder", "x").await?)) };
    let back = world.board().name("back").agent("coder", coder).start().await.unwrap();
    let front = world.board().name("front").shutdown_grace(Duration::ZERO).agent("lead", lead).start().await.unwrap();
    let run = front.submit(Task::new("x").to("lead")).await.unwrap().id();
    comes_true(async || !back.people().pending().await.is_empty()).await;
    front.shutdown().await;
    let next = world.board().on_unfinished(Unfinished::Leave).agent("lead", lead).start().await.unwrap();
    let taken = next.take_up(run).await;
    let Some(Pending::Question(question)) = back.people().pending().await.into_iter().next() else {
        panic!("no question")
    };
    back.people().answer(question.id, "ann", "tester").await.unwrap();
    // One that no board has taken up never ends.
    let result = timeout(Duration::from_secs(60), taken.result()).await.expect("nobody has taken it up");
    assert_eq!(result.unwrap().output, json!("ann"));
    stop([next, back]).await;
}
