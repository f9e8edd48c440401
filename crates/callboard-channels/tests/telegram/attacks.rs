//! Clicks and messages that nobody should have sent: nothing is decided, and whoever sent them gets an answer that says so.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use callboard_channels::telegram::TelegramChannel;
use serde_json::json;

use crate::fake::{ANN, BOB, EVE};
use crate::team::{Team, config};

const GROUP: i64 = -100_200;

#[tokio::test]
async fn who_is_not_listed_decides_nothing() {
    let team = Team::with(|config| config.chat(ANN).chat(GROUP)).await;
    let (_, asked) = team.ask("order 1", json!({})).await;
    let in_group = team.server.open(GROUP, "order 1").await;
    let message = team.server.open(ANN, "order 1").await;
    // In a group that is listed, in the chat of another one, and in a chat of their own.
    for (chat, id) in [(GROUP, in_group.id), (ANN, message.id), (EVE, message.id)] {
        let told = team.server.click(EVE, chat, id, &message.button("Approve")).await;
        assert_eq!(told, "You may not decide this.");
    }
    team.server.reply(EVE, &in_group, "no");
    team.server.said(GROUP, "You may not decide this.").await;
    // A person whose own chat is not listed.
    assert_eq!(team.server.click(BOB, BOB, message.id, &message.button("Approve")).await, "You may not decide this.");
    assert_eq!(team.decision(&asked).await, None);
    // In the group that person may.
    team.server.click(BOB, GROUP, in_group.id, &in_group.button("Deny")).await;
    assert_eq!(&*team.decision(&asked).await.unwrap().by, "bob");
    team.board.shutdown().await;
}

#[tokio::test]
async fn unknown_forged_and_misplaced_data_change_nothing() {
    let team = Team::start().await;
    let (_, first) = team.ask("order 1", json!({})).await;
    let (_, second) = team.ask("order 2", json!({})).await;
    let one = team.server.open(ANN, "order 1").await;
    let two = team.server.open(ANN, "order 2").await;
    let of_bob = team.server.open(BOB, "order 1").await;
    let id = first.id().to_string();
    let mut guessed = one.button("Approve");
    guessed.replace_range(..1, if guessed.starts_with('0') { "1" } else { "0" });
    for data in ["", "approve", &id, &guessed, &"f".repeat(10_000), "\u{0}", "' OR 1=1"] {
        let told = team.server.click(ANN, ANN, one.id, data).await;
        assert!(told.starts_with("This button is not known here"), "{data:?}: {told}");
    }
    // The right data, at another message and in another chat.
    for (from, chat, message) in [(ANN, ANN, two.id), (ANN, ANN, 9_999), (BOB, BOB, one.id), (ANN, BOB, one.id)] {
        let told = team.server.click(from, chat, message, &one.button("Approve")).await;
        assert!(told.starts_with("This button is not known here"), "{told}");
    }
    // Updates that cannot be read are passed over.
    team.server.happens(json!({ "callback_query": { "id": 7 }, "message": "x" }));
    team.server.happens(json!({ "poll": {} }));
    team.server
        .happens(json!({ "callback_query": { "id": "gone", "from": { "id": ANN }, "data": one.button("Deny") } }));
    assert!(team.server.told("gone").await.starts_with("This button is not known here"));
    assert_eq!((team.decision(&first).await, team.decision(&second).await), (None, None));
    // The same data is used once.
    team.server.click(BOB, BOB, of_bob.id, &of_bob.button("Approve")).await;
    for _ in 0..2 {
        let told = team.server.click(BOB, BOB, of_bob.id, &of_bob.button("Deny")).await;
        assert!(told.contains("approved by bob at "), "{told}");
    }
    assert!(team.decision(&first).await.unwrap().approved);
    assert_eq!(team.decision(&second).await, None);
    team.board.shutdown().await;
}

#[tokio::test]
async fn a_server_that_repeats_every_click_changes_nothing() {
    let team = Team::start().await;
    team.server.change(|served| served.repeats = true);
    let (_, first) = team.ask("order 1", json!({})).await;
    let message = team.server.open(ANN, "order 1").await;
    team.server.click(ANN, ANN, message.id, &message.button("Approve")).await;
    team.server.click(ANN, ANN, message.id, &message.button("Deny")).await;
    let before = team.server.state.lock().calls["getUpdates"];
    team.server.found(|served| (served.calls["getUpdates"] > before + 3).then_some(())).await;
    assert!(team.decision(&first).await.unwrap().approved);
    team.board.shutdown().await;
}

#[tokio::test]
async fn what_is_kept_is_of_this_user_alone() {
    let team = Team::start().await;
    team.ask("order 1", json!({})).await;
    let message = team.server.open(ANN, "order 1").await;
    team.server.click(ANN, ANN, message.id, &message.button("Approve")).await;
    let folder = team.folder.path().join("telegram");
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder), mode(&folder.join("telegram.json"))), (0o700, 0o600));
    team.board.shutdown().await;

    let other = tempfile::tempdir().unwrap();
    drop(TelegramChannel::open(config(&team.server, other.path())).unwrap());
    let damaged = other.path().join("telegram/telegram.json");
    std::fs::write(&damaged, "{").unwrap();
    std::fs::set_permissions(&damaged, std::fs::Permissions::from_mode(0o600)).unwrap();
    let refused = TelegramChannel::open(config(&team.server, other.path())).unwrap_err().to_string();
    assert!(refused.contains("telegram.json") && refused.ends_with("open questions are sent again"), "{refused}");
}
