//! `[telegram]`: approvals that a bot asks for, with a server of the Bot API on this machine.

#![cfg(unix)]

use std::fs;
use std::net::TcpListener;

use serde_json::json;

use crate::support::agents::searcher;
use crate::support::bot::{Bot, TOKEN};
use crate::support::project::Project;
use crate::support::serving::{Serving, sent};
use crate::support::{output_of, write};

/// The part of the token that nobody may see.
const CANARY: &str = "CANARY";

/// A project whose bot is at this address, with its token in a file beside the state of the project.
fn project(address: &str) -> Project {
    let project = Project::new();
    let token = project.state.path().join("bot.token");
    fs::write(&token, format!("{TOKEN}\n")).unwrap();
    let telegram =
        format!("[telegram]\ntoken_file = {token:?}\napi = {address:?}\n[people]\nann = {{ telegram = 1001 }}\n");
    write(&project.folder, "callboard.toml", &telegram);
    project
}

/// An address at which nobody listens.
fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

#[test]
fn a_person_decides_on_telegram_what_an_agent_of_a_server_asks() {
    let bot = Bot::start();
    let project = project(&bot.address);
    write(&project.folder, "agents/writer.toml", &searcher("writer"));
    let mut serving = Serving::start(&project);
    serving.until("approvals are asked by @the_board_bot on Telegram\n");
    let id = sent(&project, "look");
    project.model.calls("FileSearch", json!({ "pattern": "x" }));
    let message = bot.called("sendMessage");
    assert_eq!(message["chat_id"], 1001);
    let text = message["text"].as_str().unwrap();
    assert!(text.contains("agent     writer\naction    FileSearch\n") && text.contains("\"pattern\": \"x\""), "{text}");
    let approve = &message["reply_markup"]["inline_keyboard"][0][0];
    assert_eq!(approve["text"], "Approve");
    bot.click(1001, approve["callback_data"].as_str().unwrap());
    let closed = bot.called("editMessageText");
    assert!(closed["text"].as_str().unwrap().starts_with("approved by ann at "), "{closed}");
    project.model.answers("found");
    let waited = project.callboard(&["wait", &id]);
    assert_eq!((waited.code, &*waited.out), (Some(0), "found\n"), "{}", waited.error);
    assert!(!serving.stop().error.contains(CANARY));
}

#[test]
fn a_server_starts_without_telegram_and_says_so_and_doctor_reports_it() {
    let project = project(&nobody());
    let mut serving = Serving::start(&project);
    serving.until("Telegram is not reached, and is tried again: ");
    let error = serving.stop().error;
    assert!(!error.contains(CANARY) && !error.contains("Telegram"), "once: {error}");
    let looked_at = project.callboard(&["doctor"]).out;
    assert!(
        looked_at.contains("ok       telegram the bot has a token; --online asks whether it answers\n"),
        "{looked_at}"
    );
    // What `--online` asks the model.
    project.model.answers("yes");
    let looked_at = project.callboard(&["doctor", "--online"]).out;
    assert!(
        looked_at.contains("failed   telegram the bot is not reached: ") && !looked_at.contains(CANARY),
        "{looked_at}"
    );
    let bot = Bot::start();
    let project = self::project(&bot.address);
    project.model.answers("yes");
    let reached = project.callboard(&["doctor", "--online"]).out;
    assert!(reached.contains("ok       telegram @the_board_bot answers\n"), "{reached}");
}

#[test]
fn a_token_that_is_missing_malformed_or_within_reach_of_agents_is_refused() {
    let project = project("http://127.0.0.1:1");
    let refused = |settings: &str, variable: Option<&str>| {
        write(&project.folder, "callboard.toml", &format!("{settings}\n[people]\nann = {{ telegram = 1001 }}\n"));
        let mut serve = project.command(&["serve", "--listen", "127.0.0.1:0"]);
        let printed = output_of(serve.envs(variable.map(|value| ("BOT", value))));
        assert!(!printed.error.contains(CANARY), "{}", printed.error);
        (printed.code, printed.error)
    };
    write(&project.folder, "bot.token", TOKEN);
    let (code, error) = refused("[telegram]\ntoken_file = \"bot.token\"", None);
    assert!(code == Some(4) && error.contains("is in the folder that tools of agents work in"), "{error}");
    let (code, error) = refused("[telegram]\ntoken_file = \"none.token\"", None);
    assert!(code != Some(0) && error.contains("none.token"), "{error}");
    let (code, error) = refused("[telegram]\ntoken_env = \"BOT\"", None);
    assert!(code == Some(2) && error.contains("the variable BOT of callboard.toml is not set"), "{error}");
    let (code, error) = refused("[telegram]\ntoken_env = \"BOT\"", Some("CANARY"));
    assert!(code == Some(2) && error.contains("the variable BOT: the token of the bot is none"), "{error}");
}
