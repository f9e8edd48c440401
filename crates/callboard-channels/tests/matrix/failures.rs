//! A server that fails in every way: the channel continues, and nothing shows the token.

use callboard_channels::matrix::{AccessToken, MatrixChannel, MatrixConfig, MatrixState};
use serde_json::json;

use crate::fake::{ANN, EVE, Failing, Server, TOKEN};
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
        (Failing::With(500), "it fails with 500: M_UNKNOWN: cannot do it for [the token]"),
        (
            Failing::With(401),
            "it does not know the access token (M_UNKNOWN: cannot do it for [the token]): sign in again",
        ),
        (Failing::With(418), "it refuses with 418: M_UNKNOWN: cannot do it for [the token]"),
        (Failing::Garbage, "the answer (status 200) is none of a homeserver of Matrix"),
        (Failing::TooMany, "too many calls; the next one in 1000 ms"),
        (Failing::Redirects, "the answer (status 307) is none of a homeserver of Matrix"),
        (Failing::Endless, "its answer has more than 1048576 bytes"),
        (Failing::NamesToken, "the answer (status 200) is none of a homeserver of Matrix"),
    ] {
        let before: u32 = team.server.state.lock().calls.values().sum();
        team.server.change(|served| served.failing = failing);
        team.ask(&format!("order {failing:?}"), json!({})).await;
        let is_it =
            |state: &MatrixState| matches!(state, MatrixState::Unreachable { why } if why.starts_with(expected));
        shown.push(format!("{:?}", team.state(is_it).await));
        team.server.found(|served| (served.calls.values().sum::<u32>() > before + 1).then_some(())).await;
        shown.push(config(&team.server, &folder).look().await.unwrap_err());
    }
    team.server.change(|served| served.failing = Failing::Silent);
    team.ask("order in silence", json!({})).await;
    team.server.change(|served| served.failing = Failing::No);
    for order in ["order With(500)", "order Garbage", "order in silence"] {
        let message = team.server.open(order).await;
        shown.push(team.server.answer(ANN, &message, "approve").await);
        team.server.closed(&message).await;
    }
    // A server that is not there.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let token = || AccessToken::new(TOKEN).unwrap();
    let dead = MatrixConfig::new(&format!("http://{address}/path"), token(), &folder);
    shown.push(dead.look().await.unwrap_err());
    shown.push(format!("{dead:?} {:?}", token()));
    shown.push(format!("{:?}", AccessToken::new(&format!("{TOKEN} {TOKEN}"))));
    for url in ["http://example.org", "CANARY://", "https://x/?a"] {
        let refused = MatrixConfig::new(url, token(), folder.join("other")).room("!a:b");
        shown.push(MatrixChannel::open(refused).unwrap_err().to_string().replace("CANARY://", ""));
    }
    team.board.shutdown().await;
    let kept = std::fs::read_to_string(folder.join("matrix/matrix.json")).unwrap();
    for text in shown.iter().chain([&logs.text(), &kept]) {
        assert!(!text.contains(CANARY), "{text}");
    }
    assert_eq!(team.server.state.lock().calls.get("elsewhere"), None, "it was led elsewhere, with the token");
    assert!(logs.text().contains("Matrix is not reached; it is tried again"), "the logs are those of the channel");
}

#[tokio::test]
async fn a_refusal_is_an_event_of_the_audit_log() {
    let (logs, _guard) = Logs::start();
    let team = Team::start().await;
    team.ask("order 1", json!({})).await;
    let message = team.server.open("order 1").await;
    team.server.answer(EVE, &message, "approve").await;
    team.server.answer(ANN, &message, "deny").await;
    let text = logs.text();
    let audit: Vec<&str> = text.lines().filter(|line| line.contains("callboard::audit")).collect();
    assert!(
        audit.iter().any(|line| line.contains("refused") && line.contains(&format!("account=\"{EVE}\""))),
        "{text}"
    );
    assert!(audit.iter().any(|line| line.contains("decision") && line.contains("who=\"ann\"")), "{text}");
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
