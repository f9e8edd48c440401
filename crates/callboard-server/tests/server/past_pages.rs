//! The pages of a run's past: a turn, and the run after one of its events.

use callboard::messages::{Reducer, Schema};
use callboard::prelude::*;
use callboard_server::{PagesAt, Scope, TokenSpec};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::dashboard::{Browser, Pages};
use crate::support::local::text_of;

const HOSTILE: &str = "</pre><script>globalThis.attacked=1</script>\u{202e}x";

/// Pages over a board whose agents work as a model with a tool does, hand on and fail.
async fn start(folder: &TempDir) -> (Pages, Browser) {
    let builder = Callboard::builder()
        .agent("scout", |turn: Turn| async move {
            let reply = json!({ "text": format!("I look around {HOSTILE}"), "calls": [{ "name": "search", "arguments": { "q": "bees" } }] });
            turn.step("model", async { Ok::<_, TurnError>(reply) }).await?;
            turn.step("search", async { Ok::<_, TurnError>(json!({ "text": "two pages", "is_error": false })) }).await?;
            Ok(Command::update("messages", "found").with("plan", "short").goto("writer"))
        })
        .agent("writer", |turn: Turn| async move {
            let plan = turn.state().get("plan").unwrap_or_default();
            let plan = plan.as_str().unwrap_or_default();
            Ok(Command::output(format!("a {plan} text about {}", turn.input::<String>()?)).with("messages", "written"))
        })
        .agent("broken", |_: Turn| async { Err::<Command, _>(TurnError::terminal("it broke")) });
    let pages = Pages::of(folder, &PagesAt::Loopback { port: 7420, has_tls: false }, builder).await;
    let browser = pages.sign_in(&json!({})).await;
    (pages, browser)
}

async fn ended(pages: &Pages, agent: &str) -> callboard::runtime::RunHandle {
    let schema = Schema::open().channel("messages", Reducer::Append).channel("plan", Reducer::LastValue);
    let run = pages.board.submit(Task::new("bees").to(agent).schema(schema)).await.unwrap();
    run.result().await.unwrap();
    run
}

async fn text(pages: &Pages, browser: &Browser, path: &str) -> (u16, String) {
    let answer = pages.get(browser, path).await;
    (answer.status().as_u16(), text_of(answer).await)
}

fn assert_has(page: &str, parts: &[&str]) {
    for part in parts {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    assert!(!page.contains("<script>") && !page.contains("style=") && !page.contains('\u{202e}'), "{page}");
}

#[tokio::test]
async fn a_turn_has_a_page_with_its_input_its_messages_and_what_it_changed() {
    let folder = tempfile::tempdir().unwrap();
    let (pages, browser) = start(&folder).await;
    let run = ended(&pages, "scout").await;
    let (status, page) = text(&pages, &browser, &format!("/runs/{}/turns/1", run.id())).await;
    assert_eq!(status, 200, "{page}");
    let parts = [
        "Turn 1 of <bdi>scout</bdi>",
        "<dt>Because of</dt><dd>the task</dd>",
        "It handed on to <bdi>writer</bdi>",
        "<summary>Its input</summary><pre class=\"text prose\" dir=\"auto\">bees</pre>",
        "Message of <bdi>model</bdi>",
        "I look around &lt;/pre&gt;&lt;script&gt;",
        "&quot;name&quot;: &quot;search&quot;",
        "two pages",
        "<bdi>messages: = [&quot;found&quot;]</bdi>",
        "<bdi>plan: = &quot;short&quot;</bdi>",
    ];
    assert_has(&page, &parts);
    assert!(!page.contains("Try again"), "it did not fail: {page}");
    let (_, second) = text(&pages, &browser, &format!("/runs/{}/turns/2", run.id())).await;
    assert_has(
        &second,
        &[
            "the handoff of turn 1",
            "a short text about bees",
            "It ended.",
            "<bdi>messages: + &quot;written&quot;</bdi>",
            "<option value=\"plan\">",
        ],
    );
    let (_, whole) = text(&pages, &browser, &format!("/runs/{}", run.id())).await;
    assert_has(
        &whole,
        &[&format!("href=\"/runs/{}/turns/2\"", run.id()), &format!("href=\"/runs/{}/journal?event=3\"", run.id())],
    );

    let failed = ended(&pages, "broken").await;
    let (_, page) = text(&pages, &browser, &format!("/runs/{}/turns/1", failed.id())).await;
    assert_has(&page, &["It failed:", "it broke", "Try the turn again", "data-turn=\"1\""]);
    pages.tokens.add(TokenSpec::new("eve", [Scope::Read])).unwrap();
    let eve = pages.sign_in(&json!({ "token": "eve" })).await;
    let (_, page) = text(&pages, &eve, &format!("/runs/{}/turns/1", failed.id())).await;
    assert!(page.contains("it broke") && !page.contains("data-run-action"), "{page}");

    for (path, status, why) in [
        (format!("/runs/{}/turns/9", run.id()), 404, "the run has no turn 9: it has 2"),
        ("/runs/0189f0a0-0000-7000-8000-000000000000/turns/1".to_owned(), 404, "This cannot be shown"),
    ] {
        let (found, page) = text(&pages, &browser, &path).await;
        assert_eq!(found, status, "{page}");
        assert_has(&page, &[why]);
    }
    assert_eq!(text(&pages, &browser, &format!("/runs/{}/turns/two", run.id())).await.0, 404);
    pages.end().await;
}

#[tokio::test]
async fn the_journal_of_a_run_shows_the_run_after_each_of_its_events() {
    let folder = tempfile::tempdir().unwrap();
    let (pages, browser) = start(&folder).await;
    let run = ended(&pages, "scout").await;
    let last = run.history().await.unwrap().len();
    let journal = format!("/runs/{}/journal", run.id());
    let (status, page) = text(&pages, &browser, &journal).await;
    assert_eq!(status, 200, "{page}");
    assert_has(&page, &[&format!("{last} of {last}"), "<span class=\"dim\">Next</span>", "<dt>Ended</dt>", "written"]);
    let (_, first) = text(&pages, &browser, &format!("{journal}?event=1")).await;
    assert_has(&first, &["It changed no channel", "<b><bdi>scout</bdi></b>", &format!("max=\"{last}\" value=\"1\"")]);
    assert!(!first.contains("found"), "{first}");
    let (_, part) = text(&pages, &browser, &format!("/parts/run/moment?id={}&event={last}", run.id())).await;
    assert!(part.starts_with("<nav") && part.contains("<dt>Ended turns</dt><dd>2</dd>"), "{part}");
    for wrong in ["0", "99", "x", "-1"] {
        let (status, page) = text(&pages, &browser, &format!("{journal}?event={wrong}")).await;
        assert_eq!(status, 400, "{page}");
        assert_has(&page, &[&format!("is the number of an event, from 1 to {last}")]);
    }
    pages.end().await;
}

#[tokio::test]
async fn a_fork_of_a_turn_has_another_input_and_other_values_in_channels() {
    let folder = tempfile::tempdir().unwrap();
    let (pages, browser) = start(&folder).await;
    let run = ended(&pages, "scout").await;
    let fork = format!("/v1/delegations/{}/fork", run.id());
    let output = async |body: &Value| {
        let answer = pages.post(&browser, &fork, body).await;
        assert_eq!(answer.status(), 202);
        let shown: Value = serde_json::from_str(&text_of(answer).await).unwrap();
        let id = shown["request_id"].as_str().unwrap().parse().unwrap();
        let output = pages.board.run(id).result().await.unwrap().output;
        let (_, page) = text(&pages, &browser, &format!("/runs/{id}")).await;
        let of = format!("fork of <a href=\"/runs/{}/turns/2\">turn 2 of ", run.id());
        assert!(page.contains(&of) && page.contains(", with another input") == body["input"].is_string(), "{page}");
        output
    };
    assert_eq!(output(&json!({ "turn": 2, "set": { "plan": "long" } })).await, "a long text about bees");
    assert_eq!(output(&json!({ "turn": 2, "input": "ants" })).await, "a short text about ants");
    pages.tokens.add(TokenSpec::new("eve", [Scope::Read, Scope::Delegate])).unwrap();
    let eve = pages.sign_in(&json!({ "token": "eve" })).await;
    let refused = pages.post(&eve, &fork, &json!({ "turn": 2, "set": { "plan": "long" } })).await;
    assert_eq!(refused.status(), 403);
    assert!(text_of(refused).await.contains("another `input` or `set` needs the scope admin"));
    pages.end().await;
}
