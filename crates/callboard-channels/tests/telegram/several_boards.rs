//! A bot that asks about what the runs of another board on the store wait for.

use std::sync::Arc;
use std::time::Duration;

use callboard::env::Env;
use callboard::messages::Action;
use callboard::prelude::*;
use callboard::runtime::{Builder, RunHandle};
use callboard::storage::{Memory, Storage};
use callboard_channels::telegram::TelegramChannel;
use serde_json::json;

use crate::fake::{ANN, BOB, EVE, Server};
use crate::team::config;

fn on(store: &Arc<dyn Storage>) -> Builder {
    let builder = Callboard::builder().storage(Arc::clone(store));
    builder.timings(|timings| timings.scan_every(Duration::from_millis(20)))
}

async fn ask(board: &Callboard, target: &str) -> RunHandle {
    let run = board.submit(Task::new("pay").input(target)).await.unwrap();
    run.next_pending().await.unwrap().unwrap();
    run
}

#[tokio::test]
async fn a_bot_asks_for_a_board_that_has_none_and_a_click_decides_there() {
    let store: Arc<dyn Storage> = Arc::new(Memory::new(Env::system().clock()));
    let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let bot = || on(&store).channel(TelegramChannel::open(config(&server, folder.path())).unwrap());
    let clerk = |turn: Turn| async move {
        let target: String = turn.input()?;
        let approved = turn.people().approve(Action::new("pay", &target, "70")).await;
        Ok(Command::output(approved.map_or_else(|error| error.to_string(), |_| "paid".to_owned())))
    };
    let owner = on(&store).agent("clerk", clerk).start().await.unwrap();
    let asking = bot().start().await.unwrap();

    let run = ask(&owner, "order 7").await;
    let (message, other) = (server.open(ANN, "order 7").await, server.open(BOB, "order 7").await);
    let told = server.click(EVE, ANN, message.id, &message.button("Approve")).await;
    assert_eq!(told, "You may not decide this.");
    let told = server.click(ANN, ANN, message.id, &message.button("Approve")).await;
    assert!(told.starts_with("approved by ann at "), "{told}");
    assert_eq!(run.result().await.unwrap().output, json!("paid"));
    for message in [&message, &other] {
        assert!(server.closed(message).await.text.starts_with("approved by ann at "));
    }

    // The next process of the bot's board knows its message, and closes it when the decision is made at the board of the run.
    let run = ask(&owner, "order 8").await;
    let message = server.open(BOB, "order 8").await;
    // Once the next question is sent, it is kept that this one was.
    let next = ask(&owner, "order 10").await;
    server.open(ANN, "order 10").await;
    asking.shutdown().await;
    drop(asking);
    let asking = bot().start().await.unwrap();
    let later = ask(&owner, "order 9").await;
    server.open(BOB, "order 9").await;
    let open = run.next_pending().await.unwrap().unwrap();
    owner.people().answer(&open, Response::Deny { reason: "no".to_owned() }, "cat").await.unwrap();
    let closed = server.closed(&message).await;
    assert!(closed.text.starts_with("denied by cat at ") && closed.text.contains("elsewhere"), "{}", closed.text);
    let sent = server.change(|served| served.messages.iter().filter(|it| it.text.contains("order 8")).count());
    assert_eq!(sent, 2, "one for each person, by both processes");
    for run in [later, next] {
        run.cancel("not needed").await.unwrap();
    }
    asking.shutdown().await;
    owner.shutdown().await;
}
