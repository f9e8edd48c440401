//! The pages of schedules, usage, tokens and the audit log.

use std::time::Duration;

use callboard::messages::Usage;
use callboard::prelude::*;
use callboard_server::{PagesAt, Scope, TokenSpec};
use serde_json::json;
use tempfile::TempDir;

use crate::dashboard::{Browser, Pages};
use crate::support::local::text_of;

const HOSTILE: &str = "</pre><script>globalThis.attacked=1</script>\u{202e}x";

async fn start(folder: &TempDir) -> (Pages, Browser, Browser) {
    let builder = Callboard::builder().agent("reader", |turn: Turn| async move {
        turn.reserve(2_000).await?.settle(Usage::of(1_000, 200));
        Ok(Command::output("read"))
    });
    let pages = Pages::of(folder, &PagesAt::Loopback { port: 7420, has_tls: false }, builder).await;
    pages.tokens.add(TokenSpec::new("ann", [Scope::Read]).owner("Ann").lifetime(Duration::from_secs(60))).unwrap();
    let (owner, ann) = (pages.sign_in(&json!({})).await, pages.sign_in(&json!({ "token": "ann" })).await);
    (pages, owner, ann)
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
async fn usage_is_shown_by_day_agent_model_and_token() {
    let folder = tempfile::tempdir().unwrap();
    let (pages, owner, ann) = start(&folder).await;
    let (status, empty) = text(&pages, &ann, "/usage").await;
    assert_eq!(status, 200);
    assert_has(&empty, &["Nothing was used", "callboard send AGENT"]);
    for task in [Task::new("x"), Task::new("x"), Task::new("y").from_agent(AgentName::new("laptop").unwrap())] {
        pages.board.submit(task.to("reader")).await.unwrap().result().await.unwrap();
    }
    let (_, page) = text(&pages, &owner, "/usage").await;
    let rows = [
        "<b><bdi>reader</bdi></b><span class=\"dim\">3600 tokens · 3 runs</span>",
        "<b><bdi>laptop</bdi></b><span class=\"dim\">1200 tokens · 1 run</span>",
    ];
    assert_has(&page, &rows);
    assert_has(&page, &["<h2>By day</h2>", "<h2>By model</h2>", "width=\"1000\"", "width=\"500\""]);
    let (status, refused) = text(&pages, &owner, "/usage?since=soon").await;
    assert_eq!(status, 400);
    assert_has(&refused, &["`since` in the query is a time in UTC", "href=\"/usage\""]);
    pages.end().await;
}

#[tokio::test]
async fn tokens_and_the_audit_log_are_for_admins_and_have_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    let (pages, owner, ann) = start(&folder).await;
    let secret = pages.tokens.add(TokenSpec::new("robot", [Scope::Delegate])).unwrap().to_string();
    for path in ["/tokens", "/audit"] {
        let (status, refused) = text(&pages, &ann, path).await;
        assert_eq!(status, 403, "{refused}");
        assert_has(&refused, &["does not have the scope admin"]);
    }
    let (_, page) = text(&pages, &owner, "/tokens").await;
    assert_has(&page, &["<bdi>robot</bdi>", "May delegate", "<bdi>ann</bdi>", "until <time", " · of <bdi>Ann</bdi>"]);
    assert!(!page.contains(&secret) && !page.contains("cbt_"), "{page}");

    let drop = json!({ "decisions": [{ "id": "conflict:nothing", "response": "drop", "reason": HOSTILE }] });
    pages.post(&owner, "/v1/inbox/decisions", &drop).await;
    pages.use_link("cbt_0", &[]).await;
    let (_, page) = text(&pages, &owner, "/audit").await;
    assert_has(&page, &["/v1/inbox/decisions", "404 not-found", "&lt;/pre&gt;&lt;script&gt;", "\\u{202e}"]);
    let place = |page: &str, part: &str| page.find(part).unwrap_or_else(|| panic!("{part} is not in {page}"));
    assert!(place(&page, "/v1/inbox/decisions") < place(&page, "/sign-in</bdi>"), "the newest are first: {page}");
    let (_, decisions) = text(&pages, &owner, "/audit?only=decisions&text=globalthis").await;
    assert!(decisions.contains("conflict:nothing") && !decisions.contains("/sign-in</bdi>"), "{decisions}");
    let (_, nothing) = text(&pages, &owner, "/audit?text=nobody+has+this").await;
    assert_has(&nothing, &["No request fits"]);
    let (_, unknown) = text(&pages, &owner, "/audit?unknown=1").await;
    assert_has(&unknown, &["<b><bdi>unknown</bdi></b>", "/sign-in</bdi>"]);
    assert_eq!(text(&pages, &owner, "/audit?only=all").await.0, 400);
    pages.end().await;
}

#[tokio::test]
async fn schedules_have_a_page_with_their_next_time_and_their_last_run() {
    let folder = tempfile::tempdir().unwrap();
    let (pages, owner, ann) = start(&folder).await;
    let (_, empty) = text(&pages, &ann, "/schedules").await;
    assert_has(&empty, &["There are no schedules", "callboard schedule add"]);
    let webhook = json!({ "name": "pushes", "webhook": "github", "task": { "body": HOSTILE, "to": "reader" } });
    let added = pages.post(&owner, "/v1/schedules", &webhook).await;
    assert_eq!(added.status().as_u16(), 201, "{}", text_of(added).await);
    let (_, page) = text(&pages, &owner, "/schedules").await;
    assert_has(
        &page,
        &[
            "<bdi>pushes</bdi>",
            "deliveries signed as github",
            "<span class=\"kind good\">active</span>",
            "callboard schedule pause pushes",
        ],
    );
    let (_, page) = text(&pages, &ann, "/schedules").await;
    assert!(!page.contains("schedule pause"), "{page}");
    pages.end().await;
}
