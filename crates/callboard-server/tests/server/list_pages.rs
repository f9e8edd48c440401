//! The pages of schedules, usage, tokens, the audit log, workflows, the context and handoffs, and the filters of the list of runs.

use std::time::Duration;

use callboard::messages::{Action, Usage};
use callboard::prelude::*;
use callboard::workflow::{Node, Workflow};
use callboard_server::{AgentFile, AgentFiles, PagesAt, Scope, TokenSpec};
use serde_json::{Value, json};
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
    // Whose session a forged request had is known.
    let forged = json!({ "decisions": [{ "id": "conflict:forged", "response": "drop" }] });
    let cookie = [("Cookie", &*owner.cookie), ("Sec-Fetch-Site", "same-origin")];
    assert_eq!(pages.send("POST", "/v1/inbox/decisions", &cookie, &forged).await.status().as_u16(), 403);
    let (_, refused) = text(&pages, &owner, "/audit?only=refused&text=inbox").await;
    let shown = refused.find("403").map(|at| &refused[at..]).unwrap_or_default();
    assert!(shown.split("</li>").next().unwrap().contains("<bdi>owner</bdi>"), "{refused}");
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
            "data-run-action=\"/v1/schedules/pushes/pause\"",
            "data-run-action=\"/v1/schedules/pushes/run\"",
        ],
    );
    let hostile = json!({ "name": "a; rm -rf / #?\"", "webhook": "github", "task": { "body": "x", "to": "reader" } });
    assert_eq!(pages.post(&owner, "/v1/schedules", &hostile).await.status().as_u16(), 201);
    let (_, page) = text(&pages, &owner, "/schedules").await;
    let pause = "/v1/schedules/a%3B%20rm%20-rf%20%2F%20%23%3F%22/pause";
    assert_has(&page, &[&format!("data-run-action=\"{pause}\"")]);
    assert!(!page.contains("callboard schedule"), "no line is there to be copied: {page}");
    assert_eq!(pages.post(&owner, pause, &json!({})).await.status().as_u16(), 200);
    let (_, page) = text(&pages, &owner, "/schedules").await;
    assert_has(&page, &["<span class=\"kind warn\">paused</span>", "/resume\""]);
    let (_, page) = text(&pages, &ann, "/schedules").await;
    assert!(!page.contains("data-run-action"), "{page}");
    pages.end().await;
}

#[tokio::test]
async fn runs_are_found_by_workflow_text_and_short_id() {
    let folder = tempfile::tempdir().unwrap();
    let (pages, owner, ann) = start(&folder).await;
    let workflow = Workflow::builder("reads").node(Node::agent("one", "reader")).build().unwrap();
    let planned = Task { body: "Bees in May".into(), ..workflow.task(json!({})) };
    let planned = pages.board.submit(planned).await.unwrap();
    planned.result().await.unwrap();
    pages.board.submit(Task::new("ants").to("reader")).await.unwrap().result().await.unwrap();
    for (query, is_there) in
        [("workflow=reads", true), ("text=bees+in", true), ("workflow=other", false), ("text=wasps", false)]
    {
        let (_, page) = text(&pages, &ann, &format!("/runs?{query}")).await;
        assert_eq!(page.contains("Bees in May"), is_there, "{query}: {page}");
        assert!(!page.contains(">ants<"), "{query}: {page}");
    }
    let (_, page) = text(&pages, &owner, "/runs").await;
    assert_has(&page, &["data-run-batch", &format!("data-run=\"{}\"", planned.id())]);
    let (_, page) = text(&pages, &ann, "/runs").await;
    assert!(!page.contains("data-run"), "who may not change runs selects none: {page}");
    let short = format!("/runs/req-{}", planned.id().to_string().rsplit('-').next().unwrap());
    let found = pages.get(&ann, &short).await;
    assert_eq!(found.status().as_u16(), 303);
    assert_eq!(found.headers()["location"], format!("/runs/{}", planned.id()));
    assert_eq!(text(&pages, &ann, "/runs/req-000000000000").await.0, 404);
    pages.end().await;
}

#[tokio::test]
async fn workflows_have_pages_with_a_form_for_what_they_need() {
    let folder = tempfile::tempdir().unwrap();
    let (pages, owner, ann) = start(&folder).await;
    let (_, empty) = text(&pages, &ann, "/workflows").await;
    assert_has(&empty, &["No workflow is saved", "callboard workflow save"]);
    let name = "a/b c";
    let of = |text: &str| {
        Workflow::builder(name)
            .description(HOSTILE)
            .node(Node::agent("one", "reader").input(json!({ text: "{{ topic }}" })))
    };
    for text in ["x", "y"] {
        pages.board.workflows().save(&of(text).build().unwrap()).await.unwrap();
    }
    let (_, list) = text(&pages, &ann, "/workflows").await;
    assert_has(&list, &["href=\"/workflows/a%2Fb%20c\"", "version 2 · 1 node", "\\u{202e}"]);
    let (status, page) = text(&pages, &owner, "/workflows/a%2Fb%20c").await;
    assert_eq!(status, 200, "{page}");
    let parts = [
        "data-input=\"topic\"",
        "data-workflow=\"a/b c\"",
        "<bdi>reader</bdi>",
        "?version=1",
        "href=\"/runs?workflow=a%2Fb+c\"",
    ];
    assert_has(&page, &parts);
    let (_, page) = text(&pages, &ann, "/workflows/a%2Fb%20c").await;
    assert!(!page.contains("data-workflow"), "{page}");
    let (_, page) = text(&pages, &owner, "/workflows/a%2Fb%20c?version=1").await;
    assert!(page.contains("not the latest") && !page.contains("data-workflow"), "{page}");
    let drawing = pages.get(&owner, "/parts/workflow?name=a%2Fb%20c&version=1").await;
    assert_eq!(drawing.headers()["content-type"], "image/svg+xml");
    assert_eq!(text(&pages, &owner, "/workflows/none").await.0, 404);
    assert_eq!(text(&pages, &owner, "/workflows/a%2Fb%20c?version=x").await.0, 400);
    pages.end().await;
}

#[tokio::test]
async fn the_context_is_shown_to_tokens_that_were_granted_the_namespace() {
    let folder = tempfile::tempdir().unwrap();
    let (pages, owner, ann) = start(&folder).await;
    let writer = AgentName::new("reader").unwrap();
    for (key, value) in [("plan/a", HOSTILE), ("plan/b", "short"), ("other", "x")] {
        pages.board.context().set("notes", key, value, &writer, None).await.unwrap();
    }
    let (_, page) = text(&pages, &owner, "/context").await;
    let link = "<a href=\"/context?namespace=notes\"><bdi>notes</bdi></a>";
    assert_has(&page, &["Choose a namespace", "<option value=\"memory:reader\">", "<option value=\"notes\">", link]);
    let (_, page) = text(&pages, &ann, "/context").await;
    assert!(!page.contains("notes"), "its name is not shown to those who were not granted it: {page}");
    let (_, page) = text(&pages, &owner, "/context?namespace=notes&prefix=plan%2F").await;
    assert_has(&page, &["<bdi>plan/a</bdi>", "&lt;script&gt;", "\\u{202e}", ">short</pre>", "by <bdi>reader</bdi>"]);
    assert!(!page.contains("<bdi>other</bdi>"), "{page}");
    let (_, page) = text(&pages, &owner, "/context?namespace=none").await;
    assert_has(&page, &["There are no entries"]);
    let (status, page) = text(&pages, &ann, "/context?namespace=notes").await;
    assert_eq!(status, 403);
    assert_has(&page, &["was not granted the namespace notes"]);
    assert_eq!(text(&pages, &owner, "/context?namespace=run").await.0, 422);
    pages.end().await;
}

#[tokio::test]
async fn handoffs_have_a_page_also_where_nothing_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let (pages, _, ann) = start(&folder).await;
    let (status, page) = text(&pages, &ann, "/handoffs").await;
    assert_eq!(status, 200);
    assert_has(
        &page,
        &["This server measures nothing", "<b><bdi>reader</bdi></b><span class=\"kind good\">breaker closed</span>"],
    );
    pages.end().await;
}

#[tokio::test]
async fn an_agent_has_a_page_with_what_its_file_says_and_admins_start_it_again_and_stop_it() {
    let folder = tempfile::tempdir().unwrap();
    let of_reader = AgentFile {
        path: "agents/reader.toml".to_owned(),
        facts: vec![("Tools", format!("FileRead, {HOSTILE}"))],
        team: vec!["writer/x".to_owned()],
    };
    let files = AgentFiles {
        files: [("reader".to_owned(), of_reader)].into(),
        refused: [("agents/bad.toml".to_owned(), format!("agents/bad.toml:3:1: {HOSTILE}"))].into(),
        ..AgentFiles::default()
    };
    let builder = Callboard::builder().agent("reader", |_: Turn| async { Ok(Command::output("read")) });
    let at = PagesAt::Loopback { port: 7420, has_tls: false };
    let pages = Pages::with_files(&folder, &at, builder, files).await;
    pages.tokens.add(TokenSpec::new("ann", [Scope::Read, Scope::Delegate])).unwrap();
    let (owner, ann) = (pages.sign_in(&json!({})).await, pages.sign_in(&json!({ "token": "ann" })).await);
    let (status, page) = text(&pages, &owner, "/agents/reader").await;
    assert_eq!(status, 200, "{page}");
    let parts = [
        "agents/reader.toml",
        "<dt>Tools</dt><dd><bdi>FileRead, &lt;/pre&gt;",
        "href=\"/agents/writer%2Fx\"",
        "reads, notes, sends, writes, executes",
        "href=\"/runs?agent=reader\"",
        "data-run-action=\"/v1/agents/reader/stop\"",
        "Its actors",
    ];
    assert_has(&page, &parts);
    let (_, page) = text(&pages, &ann, "/agents/reader").await;
    assert!(page.contains("agents/reader.toml") && !page.contains("data-run-action"), "{page}");
    assert_eq!(text(&pages, &owner, "/agents/nobody").await.0, 404);
    let (_, page) = text(&pages, &owner, "/files").await;
    assert_has(&page, &["agents/bad.toml:3:1: &lt;/pre&gt;", "<a href=\"/agents/reader\">"]);
    assert_eq!(text(&pages, &ann, "/files").await.0, 403);

    assert_eq!(pages.post(&ann, "/v1/agents/reader/stop", &json!({})).await.status().as_u16(), 403);
    let why = json!({ "reason": format!("it hangs {HOSTILE}") });
    assert_eq!(pages.post(&owner, "/v1/agents/reader/restart", &why).await.status().as_u16(), 200);
    let (_, page) = text(&pages, &owner, "/audit?text=hangs").await;
    assert_has(&page, &["/v1/agents/reader/restart", "it hangs &lt;/pre&gt;"]);
    for (action, status) in [("restart", 200), ("stop", 200), ("stop", 404), ("restart", 404)] {
        let answer = pages.post(&owner, &format!("/v1/agents/reader/{action}"), &json!({})).await;
        assert_eq!(answer.status().as_u16(), status, "{action}: {}", text_of(answer).await);
    }
    pages.end().await;
}

#[tokio::test]
async fn a_question_is_found_behind_more_than_a_thousand_approvals_and_all_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let writes = |turn: Turn| async move {
        turn.people().approve(Action::new("FileWrite", "a", turn.input_json().clone())).await?;
        Ok(Command::output(1))
    };
    let builder = Callboard::builder()
        .agent("writes", writes)
        .capacity(|it| it.runs_in_flight(2_000))
        .shutdown_grace(Duration::ZERO);
    let pages = Pages::of(&folder, &PagesAt::Loopback { port: 7420, has_tls: false }, builder).await;
    let owner = pages.sign_in(&json!({})).await;
    let mut last = None;
    for number in 0..1_020 {
        last = Some(pages.board.submit(Task::new(&number.to_string()).to("writes")).await.unwrap());
    }
    let last = last.unwrap();
    last.next_pending().await.unwrap();
    let asked = pages.board.submit(Task::new("x").to("asker")).await.unwrap();
    asked.next_pending().await.unwrap();
    let read =
        async |path: &str| -> Value { serde_json::from_str(&text_of(pages.get(&owner, path).await).await).unwrap() };
    let found = read("/v1/inbox?kind=question").await;
    assert_eq!((found["items"].as_array().unwrap().len(), &found["is_cut"]), (1, &json!(false)));
    assert_eq!(read("/v1/inbox?limit=1").await["counts"], json!({ "approval": 1_020, "question": 1 }));
    let of_last = read(&format!("/v1/inbox?run={}", last.id())).await;
    assert_eq!(of_last["items"].as_array().unwrap().len(), 1);
    assert!(text_of(pages.get(&owner, "/").await).await.contains("1021 waiting"));
    pages.end().await;
}
