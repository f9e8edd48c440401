//! A server that fails in every way: the channel continues, and nothing shows the token.

use callboard_channels::telegram::{BotToken, TelegramChannel, TelegramConfig, TelegramState};
use serde_json::json;

use crate::fake::{ANN, BOB, EVE, Failing, Server, TOKEN};
use crate::logs::Logs;
use crate::team::{Team, config};

/// The part of the token that nobody may see.
const CANARY: &str = "CANARY";

#[tokio::test]
async fn no_failure_shows_the_token_and_afterwards_everything_is_sent() {
    let (logs, _guard) = Logs::start();
    let team = Team::start().await;
    let (mut shown, folder) = (Vec::new(), team.folder.path().to_owned());
    for (failing, expected) in [
        (Failing::With(500), "it fails with 500: cannot do /bot[the token]/"),
        (Failing::With(409), "another program receives what is clicked at this bot"),
        (Failing::With(401), "it does not know the token"),
        (Failing::With(418), "it refuses with 418: cannot do /bot[the token]/"),
        (Failing::Garbage, "the answer (status 200) is none of the Bot API"),
        (Failing::Echo, "the answer (status 302) is none of the Bot API"),
        (Failing::TooMany, "too many calls; the next one in 1 s"),
    ] {
        let before: u32 = team.server.state.lock().calls.values().sum();
        team.server.change(|served| served.failing = failing);
        team.ask(&format!("order {failing:?}"), json!({})).await;
        let is_it =
            |state: &TelegramState| matches!(state, TelegramState::Unreachable { why } if why.starts_with(expected));
        shown.push(format!("{:?}", team.state(is_it).await));
        team.server.found(|served| (served.calls.values().sum::<u32>() > before + 1).then_some(())).await;
        shown.push(config(&team.server, &folder).bot_name().await.unwrap_err());
    }
    team.server.change(|served| served.failing = Failing::Silent);
    team.ask("order in silence", json!({})).await;
    team.server.change(|served| served.failing = Failing::No);
    for order in ["order With(500)", "order Garbage", "order in silence"] {
        let message = team.server.open(ANN, order).await;
        shown.push(team.server.click(ANN, ANN, message.id, &message.button("Approve")).await);
        team.server.closed(&message).await;
    }
    // A server that is not there.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let dead = config(&team.server, &folder).api(&format!("http://{address}/path"));
    shown.push(dead.bot_name().await.unwrap_err());
    shown.push(format!("{dead:?} {:?}", BotToken::new(TOKEN)));
    shown.push(format!("{:?}", BotToken::new(&format!("{TOKEN} {TOKEN}"))));
    for url in ["http://example.org", "CANARY://", "https://x/?a"] {
        let refused = TelegramConfig::new(BotToken::new(TOKEN).unwrap(), folder.join("other")).api(url);
        shown.push(TelegramChannel::open(refused).unwrap_err().to_string().replace("CANARY://", ""));
    }
    team.board.shutdown().await;
    let kept = std::fs::read_to_string(folder.join("telegram/telegram.json")).unwrap();
    for text in shown.iter().chain([&logs.text(), &kept]) {
        assert!(!text.contains(CANARY), "{text}");
    }
    assert!(logs.text().contains("Telegram is not reached; it is tried again"), "the logs are those of the channel");
}

#[tokio::test]
async fn a_refusal_is_an_event_of_the_audit_log() {
    let (logs, _guard) = Logs::start();
    let team = Team::start().await;
    team.ask("order 1", json!({})).await;
    let message = team.server.open(ANN, "order 1").await;
    team.server.click(EVE, ANN, message.id, &message.button("Approve")).await;
    team.server.click(ANN, ANN, message.id, &message.button("Deny")).await;
    let text = logs.text();
    let audit: Vec<&str> = text.lines().filter(|line| line.contains("callboard::audit")).collect();
    assert!(audit.iter().any(|line| line.contains("refused") && line.contains(&format!("account={EVE}"))), "{text}");
    assert!(audit.iter().any(|line| line.contains("decision") && line.contains("who=\"ann\"")), "{text}");
    team.board.shutdown().await;
}

#[tokio::test]
async fn a_chat_that_has_blocked_the_bot_holds_up_no_other() {
    let team = Team::start().await;
    team.server.change(|served| served.blocked.push(ANN));
    team.ask("order 1", json!({})).await;
    team.ask("order 2", json!({})).await;
    for order in ["order 1", "order 2"] {
        let message = team.server.open(BOB, order).await;
        team.server.click(BOB, BOB, message.id, &message.button("Deny")).await;
        assert!(team.server.closed(&message).await.text.contains("denied by bob"));
    }
    team.board.shutdown().await;
}

#[tokio::test]
async fn more_questions_than_are_kept_are_asked_in_turn() {
    let team = Team::start().await;
    team.server.change(|served| served.failing = Failing::With(500));
    let (at_once, asked) = (200, 203);
    for number in 0..asked {
        team.ask(&format!("order <{number}>"), json!({})).await;
    }
    team.server.change(|served| served.failing = Failing::No);
    team.server.open(BOB, &format!("order <{}>", at_once - 1)).await;
    for number in 0..asked - at_once {
        let message = team.server.open(ANN, &format!("order <{number}>")).await;
        team.server.click(ANN, ANN, message.id, &message.button("Deny")).await;
        team.server.open(ANN, &format!("order <{}>", at_once + number)).await;
    }
    team.board.shutdown().await;
}

#[test]
fn a_board_starts_without_the_server() {
    let server = Server::start();
    server.change(|served| served.failing = Failing::Silent);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let team = Team::on(server, |config| config).await;
        let (run, asked) = team.ask("order 1", json!({})).await;
        team.board.people().approve(asked.id(), "carl").await.unwrap();
        assert_eq!(run.result().await.unwrap().output, json!("paid"));
        team.board.shutdown().await;
    });
}
