//! The pages of `callboard serve` in a browser, with a server that is killed.

use std::fs;

use serde_json::json;

use crate::browser::Browser;
use crate::skipping::skip;
use crate::support::agents::{add_python_agent, searcher};
use crate::support::bot::{self, Bot};
use crate::support::homeserver::{self, Homeserver, ROOM};
use crate::support::project::Project;
use crate::support::serving::{Serving, sent};
use crate::support::write;

const ASKS: &str = r#"
tell(type="ask", id=1, question="Which port?")
end(turn, hear()["value"])
"#;

#[test]
fn a_run_is_watched_on_its_page_while_the_server_is_killed_and_comes_back() {
    let Some(mut browser) = Browser::start() else { return skip("there is no Chromium") };
    let project = Project::new();
    add_python_agent(&project.folder, "asks", ASKS);
    let serving = Serving::start(&project);
    let address = serving.address().to_owned();
    let run = project.callboard(&["send", "asks", "find a port"]).out.trim_end().to_owned();
    let link = project.callboard(&["sign-in"]).out.trim_end().to_owned();
    browser.opens(&link);
    browser.until("Page.loadEventFired");
    browser.opens(&format!("{}/runs", link.split_once("/sign-in").unwrap().0));
    browser.value("document.querySelector('.runs a.task').click()");
    browser.until("Page.loadEventFired");
    browser.sees("document.querySelector('#run-state')?.textContent === 'Live'");
    let badge = "document.querySelector('.under .kind')?.textContent";
    browser.sees(&format!("{badge} === 'Waits for people'"));

    // It is killed, as by the system.
    drop(serving);
    browser.sees("document.querySelector('#run-state').textContent.startsWith('Not connected')");
    let _serving = Serving::start_with(&project, &["--listen", &address]);
    browser.sees("document.querySelector('#run-state').textContent === 'Live'");
    let answered = project.callboard(&["answer", &run, "8080"]);
    assert_eq!(answered.code, Some(0), "{}", answered.error);
    browser.sees(&format!("{badge} === 'Finished'"));
    browser.sees("document.querySelector('main').innerText.includes('8080')");
}

#[test]
fn an_approval_that_is_decided_on_a_page_is_closed_on_telegram_on_matrix_and_in_the_terminal() {
    let Some(mut browser) = Browser::start() else { return skip("there is no Chromium") };
    let (bot, homeserver, project) = (Bot::start(), Homeserver::start(), Project::new());
    let secret = |name: &str, text: &str| {
        let file = project.state.path().join(name);
        fs::write(&file, text).unwrap();
        file
    };
    let settings = format!(
        "[telegram]\ntoken_file = {:?}\napi = {:?}\n[matrix]\ntoken_file = {:?}\nhomeserver = {:?}\nrooms = [{ROOM:?}]\n\
         [people]\nann = {{ telegram = 1001, matrix = [\"@ann:example.org\"] }}\n",
        secret("bot.token", bot::TOKEN),
        bot.address,
        secret("matrix.token", homeserver::TOKEN),
        homeserver.address
    );
    write(&project.folder, "callboard.toml", &settings);
    write(&project.folder, "agents/writer.toml", &searcher("writer"));
    let _serving = Serving::start(&project);
    let run = sent(&project, "look");
    project.model.calls("FileSearch", json!({ "pattern": "x" }));
    let (chat, room) = (bot.called("sendMessage"), homeserver.sent());
    assert!(
        chat["text"].as_str().unwrap().contains("FileSearch") && room["body"].as_str().unwrap().contains("FileSearch")
    );
    let waits = project.callboard(&["inbox"]).out;
    assert!(waits.contains("writer wants to FileSearch"), "{waits}");

    let link = project.callboard(&["sign-in"]).out.trim_end().to_owned();
    browser.opens(&link);
    browser.until("Page.loadEventFired");
    browser.sees("document.querySelector('.item .main')?.textContent === 'Approve'");
    browser.value("document.querySelector('.item .main').click()");
    browser.sees("document.querySelector('.item.done')");
    let decided = "approved by owner at ";
    let closed = bot.called("editMessageText")["text"].as_str().unwrap().to_owned();
    assert!(closed.starts_with(decided) && closed.contains(", elsewhere ("), "{closed}");
    let closed = homeserver.sent()["m.new_content"]["body"].as_str().unwrap().to_owned();
    assert!(closed.starts_with(decided) && closed.contains(", elsewhere ("), "{closed}");
    project.model.answers("found");
    let waited = project.callboard(&["wait", &run]);
    assert_eq!((waited.code, &*waited.out), (Some(0), "found\n"), "{}", waited.error);
    let inbox = project.callboard(&["inbox"]).out;
    assert!(!inbox.contains("FileSearch"), "{inbox}");
    let shown = project.callboard(&["watch", &run]).out;
    assert!(shown.contains("approved") && shown.contains("owner"), "{shown}");
}
