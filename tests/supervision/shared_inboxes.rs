//! The inbox of an agent is the same on every board on the store.

use std::time::Duration;

use callboard::actors::InboxMessage;
use callboard::messages::Status;
use callboard::prelude::*;
use callboard::runtime::RunHandle;
use serde_json::json;

use crate::common::{World, comes_true, people};

/// Longer than a board needs to see that another one is gone, and to take its runs over.
const GONE: Duration = Duration::from_secs(30);

/// A board whose agents delegate: `lead` to `coder`, which asks a person, and `quick` to `printer`, which does not.
async fn board(world: &World, name: &str) -> Callboard {
    let lead = |turn: Turn| async move { Ok(Command::output(turn.delegate("coder", "fix it").await?)) };
    let quick = |turn: Turn| async move { Ok(Command::output(turn.delegate("printer", "print it").await?)) };
    let coder = |turn: Turn| async move { Ok(Command::output(turn.people().ask("how?").await?)) };
    let printer = |_: Turn| async { Ok(Command::output("printed")) };
    let board = world.board().agent("lead", lead).agent("coder", coder).agent("quick", quick).agent("printer", printer);
    board.name(name).start().await.unwrap()
}

async fn begin(board: &Callboard) -> RunHandle {
    let run = board.submit(Task::new("x").to("lead")).await.unwrap();
    run.next_pending().await.unwrap().unwrap();
    run
}

async fn inbox(board: &Callboard, agent: &str) -> Vec<InboxMessage> {
    board.agents().inbox(agent).await.unwrap()
}

fn statuses(inbox: &[InboxMessage]) -> Vec<Status> {
    let status = |message: &InboxMessage| match message {
        InboxMessage::Status { status, .. } => Some(*status),
        InboxMessage::Request { .. } => None,
    };
    inbox.iter().filter_map(status).collect()
}

#[tokio::test(start_paused = true)]
async fn an_inbox_has_the_messages_of_the_runs_of_all_boards_as_they_come() {
    let world = World::new();
    let (one, two) = (board(&world, "one").await, board(&world, "two").await);
    assert!(inbox(&one, "coder").await.is_empty(), "what was read first is not all that there ever is");
    let first = begin(&one).await;
    let second = begin(&two).await;
    for board in [&one, &two] {
        assert_eq!(inbox(board, "coder").await.len(), 2);
        assert_eq!(statuses(&inbox(board, "lead").await), [Status::Ack, Status::Ack]);
    }
    for run in [&first, &second] {
        let question = people::question(run).await;
        one.people().answer(question.id, "so", "ann").await.unwrap();
        assert_eq!(run.result().await.unwrap().output, json!("so"));
    }
    comes_true(async || inbox(&one, "lead").await.len() == 4).await;
    assert_eq!(inbox(&one, "lead").await, inbox(&two, "lead").await);
    assert_eq!(inbox(&one, "coder").await, inbox(&two, "coder").await);
    // A board that begins later reads the same.
    let three = board(&world, "three").await;
    assert_eq!(inbox(&three, "lead").await, inbox(&one, "lead").await);
    for board in [one, two, three] {
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_happens_to_a_run_that_is_taken_over_is_in_the_inbox_of_every_board() {
    let world = World::new();
    let one = board(&world, "one").await;
    let observer = world.board().on_unfinished(callboard::runtime::Unfinished::Leave).name("observer");
    let observer = observer.start().await.unwrap();
    let run = begin(&one).await;
    assert_eq!(statuses(&inbox(&observer, "lead").await), [Status::Ack]);
    let heir = board(&world, "heir").await;
    one.shutdown().await;
    let taken = heir.run(run.id());
    comes_true(async || heir.load().runs == 1).await;
    tokio::time::sleep(GONE).await;
    let question = people::question(&taken).await;
    heir.people().answer(question.id, "so", "ann").await.unwrap();
    taken.result().await.unwrap();
    comes_true(async || statuses(&inbox(&observer, "lead").await) == [Status::Ack, Status::Complete]).await;
    assert_eq!(inbox(&observer, "lead").await, inbox(&heir, "lead").await);
    for board in [observer, heir] {
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_inbox_keeps_to_its_newest_messages_whichever_board_has_them() {
    let world = World::new();
    let (one, two) = (board(&world, "one").await, board(&world, "two").await);
    for number in 0..130 {
        let board = if number % 2 == 0 { &one } else { &two };
        board.submit(Task::new("x").to("quick")).await.unwrap().result().await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    comes_true(async || statuses(&inbox(&one, "quick").await).ends_with(&[Status::Complete])).await;
    let newest = inbox(&one, "quick").await;
    assert_eq!(newest.len(), 200, "of 130 tasks");
    assert_eq!(newest, inbox(&two, "quick").await);
    for board in [one, two] {
        board.shutdown().await;
    }
}
