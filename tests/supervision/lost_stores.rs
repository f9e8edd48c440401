//! Why a board has lost its store, as it says when it has ended.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use callboard::env::Env;
use callboard::prelude::*;
use callboard::storage::{SessionId, Storage};
use tokio::time::timeout;

use crate::several_boards::{asker, hangs};
use crate::shared_store::Shared;

/// Waits for the end of a board, and returns why it has lost its store.
async fn loss(board: &Callboard) -> Arc<str> {
    assert_eq!(board.store_loss(), None, "it has not");
    board.ended().await;
    board.store_loss().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_answer_is_named_with_the_time() {
    let env = Env::repeatable(1);
    let store = Shared::new(&env);
    let board = asker(store.board(&env)).start().await.unwrap();
    store.is_mute.store(true, Ordering::Relaxed);
    let loss = loss(&board).await;
    let wanted = ["the store has answered no renewal for 15 s", "so its lease of 15 s on the store has ended"];
    assert!(wanted.iter().all(|wanted| loss.contains(wanted)), "{loss}");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_did_not_run_is_named_with_the_time() {
    let env = Env::repeatable(1);
    let store = Shared::new(&env);
    let board = asker(store.board(&hangs(&env))).start().await.unwrap();
    let loss = loss(&board).await;
    assert!(loss.contains("its process did not run for 60 s"), "{loss}");
}

#[tokio::test(start_paused = true)]
async fn another_board_of_the_name_is_named_with_its_address() {
    let env = Env::repeatable(1);
    let store = Shared::new(&env);
    let first = asker(store.board(&env)).name("shop").start().await.unwrap();
    let session = first.boards().await.unwrap()[0].session;
    store.end_session(SessionId(session), false).await.unwrap();
    let second = asker(store.board(&env)).name("shop").address("http://db.example.org").start().await.unwrap();
    let loss = loss(&first).await;
    let wanted = "another board works on the store under its name shop, that at http://db.example.org";
    assert_eq!(&*loss, wanted);
    second.shutdown().await;
    assert_eq!(second.store_loss(), None, "it was shut down");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_others_have_ended_is_named() {
    let env = Env::repeatable(1);
    let store = Shared::new(&env);
    let board = asker(store.board(&env)).start().await.unwrap();
    let session = board.boards().await.unwrap()[0].session;
    store.end_session(SessionId(session), false).await.unwrap();
    let loss = loss(&board).await;
    assert!(loss.contains("others took it for gone"), "{loss}");
}

#[tokio::test(start_paused = true)]
async fn what_a_write_finds_ended_is_named_with_the_reason_that_a_renewal_has() {
    let env = Env::repeatable(1);
    let store = Shared::new(&env);
    let board = asker(store.board(&env)).start().await.unwrap();
    let session = board.boards().await.unwrap()[0].session;
    store.end_session(SessionId(session), false).await.unwrap();
    let reason = "the timeline of the server has changed";
    store.why_ended.set(reason).unwrap();
    // Before the next renewal.
    assert!(board.submit(Task::new("x")).await.is_err());
    board.ended().await;
    assert_eq!(board.store_loss().as_deref(), Some(reason));
}

#[tokio::test(start_paused = true)]
async fn the_agents_of_a_board_that_has_lost_its_store_have_withdrawn() {
    let env = Env::repeatable(1);
    let store = Shared::new(&env);
    let board = asker(store.board(&env)).start().await.unwrap();
    let mut presence = board.agents().presence();
    let session = board.boards().await.unwrap()[0].session;
    store.end_session(SessionId(session), false).await.unwrap();
    let withdrawn = timeout(Duration::from_secs(60), presence.recv()).await.unwrap().unwrap();
    assert_eq!((withdrawn.agent.as_str(), withdrawn.is_available), ("asker", false));
    board.ended().await;
    assert!(board.agents().roster().is_empty());
}
