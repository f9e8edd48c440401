//! The list of runs and the page of a run.

use std::time::{Duration, Instant};

use callboard::Builder;
use callboard::actors::PolicyQuestion;
use callboard::messages::{Action, Backoff, Consent, Deciders, Groups, Pending, Response, Schema};
use callboard::prelude::*;
use callboard_server::{PagesAt, Scope, TokenSpec};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::dashboard::{Browser, Pages};
use crate::support::local::text_of;

const HOSTILE: &str = "</pre><script>globalThis.attacked=1</script>\u{202e}x";

/// Pages over a board with agents that hand on, fail, ask and write many events.
async fn start(folder: &TempDir) -> (Pages, Browser) {
    let pages = Pages::of(folder, &PagesAt::Loopback { port: 7420, has_tls: false }, builder()).await;
    let browser = pages.sign_in(&json!({})).await;
    (pages, browser)
}

fn builder() -> Builder {
    Callboard::builder()
        .agent("scout", |turn: Turn| async move {
            turn.step("model", async { Ok::<_, TurnError>(Value::Null) }).await?;
            turn.use_tool("search", async { Ok::<_, TurnError>("found".to_owned()) }).await?;
            turn.summary(&format!("found 3 sources {HOSTILE}"));
            Ok(Command::output("notes").goto("writer"))
        })
        .agent("writer", |_: Turn| async { Ok(Command::output("written")) })
        .agent("broken", |_: Turn| async { Err::<Command, _>(TurnError::terminal(format!("it broke {HOSTILE}"))) })
        .agent("noisy", |turn: Turn| async move {
            let count: u32 = turn.input()?;
            for number in 0..count {
                turn.notice(&format!("notice {number}"));
                // The queue of a turn has a bound.
                if number % 100 == 0 {
                    turn.step("pause", async { Ok::<_, TurnError>(Value::Null) }).await?;
                }
            }
            turn.step("last", async { Ok::<_, TurnError>(Value::Null) }).await?;
            Ok(Command::output("done"))
        })
}

async fn finished(pages: &Pages, agent: &str, task: Task) -> callboard::runtime::RunHandle {
    let run = pages.board.submit(task.to(agent)).await.unwrap();
    run.result().await.unwrap();
    run
}

async fn text(pages: &Pages, browser: &Browser, path: &str) -> (u16, String) {
    let answer = pages.get(browser, path).await;
    (answer.status().as_u16(), text_of(answer).await)
}

#[tokio::test]
async fn a_run_has_a_page_with_its_turns_its_handoff_and_its_events() {
    let folder = tempfile::tempdir().unwrap();
    let (pages, browser) = start(&folder).await;
    let run = finished(&pages, "scout", Task::new("look around").schema(Schema::open())).await;
    let (status, page) = text(&pages, &browser, &format!("/runs/{}", run.id())).await;
    assert_eq!(status, 200, "{page}");
    for part in [
        "look around",
        "<span class=\"kind good\">Finished</span>",
        "found 3 sources &lt;/pre&gt;",
        "\\u{202e}",
        "<dt>previous_agent</dt><dd><bdi>scout</bdi></dd>",
        "<dt>retry_count</dt><dd>0</dd>",
        "<dt>tools_used</dt><dd><bdi>search (1)</bdi></dd>",
        "step search gave",
    ] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    assert!(!page.contains("<script>") && !page.contains("style="), "{page}");
    assert!(!page.contains("data-run-action"), "nothing can be done about it");
    let (_, failed) = text(&pages, &browser, &format!("/runs/{}?failed=1", run.id())).await;
    assert!(failed.contains("No event fits"));
    let (_, named) =
        text(&pages, &browser, &format!("/runs/{}?kind=step_finished&text=SEARCH&failed=", run.id())).await;
    assert_eq!(named.matches("step search gave").count(), 1);
    assert!(!named.contains("submitted to scout"));
    pages.end().await;
}

/// An action that two of a group approve, and one that is denied: each with all that people saw and did.
#[tokio::test]
async fn a_run_says_what_people_were_asked_and_what_they_decided() {
    let folder = tempfile::tempdir().unwrap();
    let writes = |turn: Turn| async move {
        let action = |path: &str| Action::new("FileWrite", path, json!({ "path": path, "text": HOSTILE }));
        turn.people().because("the tests <b>need it").approve(action("a.txt")).await?;
        turn.people().approve(action("b.txt")).await?;
        Ok(Command::output("written"))
    };
    let two = |question: &PolicyQuestion<'_>| {
        let of_ops = Deciders { at_least: 2, ..Deciders::of("ops") };
        match &*question.action.target {
            "a.txt" => Consent::AskOf { deciders: of_ops.into(), within: None },
            _ => question.default_consent(),
        }
    };
    let groups = Groups::default().group("ops", ["ann", "bob"]);
    let builder = Callboard::builder().agent("writes", writes).approval_policy(two).groups(groups);
    let pages = Pages::of(&folder, &PagesAt::Loopback { port: 7420, has_tls: false }, builder).await;
    pages.tokens.add(TokenSpec::new("eve", [Scope::Read, Scope::Approve])).unwrap();
    let (owner, eve) = (pages.sign_in(&json!({})).await, pages.sign_in(&json!({ "token": "eve" })).await);
    let run = pages.board.submit(Task::new("write").to("writes")).await.unwrap();
    let path = format!("/runs/{}", run.id());
    let Some(Pending::Approval(first)) = run.next_pending().await.unwrap() else { panic!("it asks") };
    let people = pages.board.people().via("telegram");
    people.approve(first.id(), "ann").await.unwrap();
    let (_, open) = text(&pages, &eve, &path).await;
    for part in [
        "<span class=\"kind warn\">open</span>",
        "Decided by 2 of ops · approved by <bdi>ann</bdi>",
        "It says: <bdi>the tests &lt;b&gt;need it</bdi>",
        "See it in the overview</a><span class=\"dim\"> You do not decide this: ",
    ] {
        assert!(open.contains(part), "{part} is not in {open}");
    }
    people.approve(first.id(), "bob").await.unwrap();
    let Some(Pending::Approval(second)) = run.next_pending().await.unwrap() else { panic!("it asks again") };
    let (_, open) = text(&pages, &owner, &path).await;
    assert!(open.contains("Decide in the overview</a></li>"), "{open}");
    people.deny(second.id(), "ann", "not <i>this").await.unwrap();
    run.result().await.unwrap();
    let (_, page) = text(&pages, &owner, &path).await;
    for part in [
        "<span class=\"kind good\">approved</span>",
        "By <bdi>bob</bdi> (telegram)</p>",
        "<span class=\"kind bad\">denied</span>",
        "By <bdi>ann</bdi> (telegram): <bdi>not &lt;i&gt;this</bdi>",
        "  &quot;text&quot;: &quot;&lt;/pre&gt;&lt;script&gt;globalThis.attacked=1&lt;/script&gt;\\u{202e}x&quot;",
        &*second.id().to_string(),
    ] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    pages.end().await;
}

#[tokio::test]
async fn an_open_run_says_why_it_waits_and_can_be_cancelled_and_a_failed_one_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let (pages, browser) = start(&folder).await;
    let run = pages.board.submit(Task::new(HOSTILE).to("asker")).await.unwrap();
    run.next_pending().await.unwrap();
    let path = format!("/runs/{}", run.id());
    let (_, page) = text(&pages, &browser, &path).await;
    for part in
        ["Waits for people", "<bdi>asks: who?</bdi>", &format!("href=\"/?run={}#question:", run.id()), "/cancel"]
    {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    let other = pages.board.submit(Task::new("y").to("asker")).await.unwrap();
    let question = other.next_pending().await.unwrap().unwrap();
    pages.board.people().answer(&question, Response::Value(HOSTILE.into()), "ann").await.unwrap();
    other.result().await.unwrap();
    let (_, answered) = text(&pages, &browser, &format!("/runs/{}", other.id())).await;
    for part in [
        "Questions to people",
        "<bdi>who?</bdi>",
        ">answered</span>",
        "Answered by <bdi>ann</bdi>",
        "&lt;script&gt;",
        "\\u{202e}",
    ] {
        assert!(answered.contains(part), "{part} is not in {answered}");
    }
    let cancel = format!("/v1/delegations/{}/cancel", run.id());
    let answer = pages.post(&browser, &cancel, &json!({ "reason": "enough" })).await;
    assert_eq!(answer.status().as_u16(), 200);
    let (_, page) = text(&pages, &browser, &path).await;
    assert!(page.contains(">Cancelled</span>") && page.contains("enough"), "{page}");
    let broken = finished(&pages, "broken", Task::new("x")).await;
    let (_, page) = text(&pages, &browser, &format!("/runs/{}", broken.id())).await;
    for part in [">Failed</span>", "it broke &lt;/pre&gt;", "/retry"] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    let retry = format!("/v1/delegations/{}/retry", broken.id());
    let retried = text_of(pages.post(&browser, &retry, &json!({})).await).await;
    let retried: serde_json::Value = serde_json::from_str(&retried).unwrap();
    let (_, page) = text(&pages, &browser, &format!("/runs/{}", broken.id())).await;
    let link = format!("was tried again: <a href=\"/runs/{}\">", retried["request_id"].as_str().unwrap());
    assert!(page.contains(&link) && !page.contains("/retry"), "{page}");
    let without_text = pages.send("POST", &cancel, &[("Cookie", &browser.cookie)], &json!({})).await;
    assert_eq!(without_text.status().as_u16(), 403, "a request of another page");
    pages.end().await;
}

#[tokio::test]
async fn the_list_has_filters_and_pages_that_can_be_linked_to() {
    let folder = tempfile::tempdir().unwrap();
    let (pages, browser) = start(&folder).await;
    let (_, empty) = text(&pages, &browser, "/runs").await;
    assert!(empty.contains("There are no runs yet"), "{empty}");
    for number in 0..3 {
        finished(&pages, "writer", Task::new(&format!("task {number}"))).await;
    }
    finished(&pages, "broken", Task::new(HOSTILE)).await;
    let rows = |page: &str| page.matches("class=\"task\"").count();
    let (status, page) = text(&pages, &browser, "/runs?state=&agent=").await;
    assert_eq!((status, rows(&page)), (200, 4), "{page}");
    assert!(page.contains("&lt;/pre&gt;") && !page.contains("<script>"));
    let (_, failed) = text(&pages, &browser, "/runs?state=failed").await;
    assert_eq!((rows(&failed), failed.contains("value=\"failed\" selected")), (1, true));
    let (_, first) = text(&pages, &browser, "/runs?agent=writer&limit=2").await;
    let next =
        first.split_once("<p class=\"pages\"><a href=\"").unwrap().1.split_once('"').unwrap().0.replace("&amp;", "&");
    assert!(next.contains("agent=writer"), "{next}");
    let (_, second) = text(&pages, &browser, &next).await;
    assert_eq!((rows(&first), rows(&second), second.contains("Older runs")), (2, 1, false));
    let (status, wrong) = text(&pages, &browser, "/runs?state=odd").await;
    assert!(status == 400 && wrong.contains("odd is no state"), "{wrong}");
    pages.end().await;
}

#[tokio::test]
async fn pages_of_runs_are_for_those_who_may_read() {
    let folder = tempfile::tempdir().unwrap();
    let (pages, browser) = start(&folder).await;
    let run = finished(&pages, "writer", Task::new("x")).await;
    for path in ["/runs".to_owned(), format!("/runs/{}", run.id()), format!("/parts/run?id={}", run.id())] {
        let none = pages.send("GET", &path, &[], &Value::Null).await;
        assert_eq!(none.status().as_u16(), 401, "{path}");
        assert!(!text_of(none).await.contains("writer"), "{path}");
    }
    for (path, expected) in [
        ("/runs/x", 404),
        ("/runs/019b76da-a800-7167-9099-7ac05e226953", 404),
        (&*format!("/runs/{}?turns_before=x", run.id()), 400),
        (&*format!("/parts/run/drawing?id={}", run.id()), 404),
        ("/parts/run", 400),
    ] {
        assert_eq!(text(&pages, &browser, path).await.0, expected, "{path}");
    }
    pages.end().await;
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "it measures")]
async fn a_run_of_many_events_has_a_small_page_with_links_to_earlier_ones() {
    let folder = tempfile::tempdir().unwrap();
    let (pages, browser) = start(&folder).await;
    let run = finished(&pages, "noisy", Task::new("x").input(100_000)).await;
    let path = format!("/runs/{}", run.id());
    let began = Instant::now();
    let (status, page) = text(&pages, &browser, &path).await;
    let took = began.elapsed();
    let count = run.history().await.unwrap().len();
    eprintln!("{count} events: {} bytes in {took:?}", page.len());
    assert!(count > 100_000 && status == 200);
    assert!(page.len() < 60 * 1024, "{} bytes", page.len());
    assert!(took < Duration::from_secs(30), "{took:?}");
    let link = page.split_once("<a href=\"?events_before=").unwrap().1.split_once('"').unwrap().0;
    let (_, earlier) =
        text(&pages, &browser, &format!("{path}?events_before={}", link.split('#').next().unwrap())).await;
    assert!(!page.contains("notice 99950<") && earlier.contains("notice 99950<"), "{link}");
    pages.end().await;
}

#[tokio::test]
async fn agents_have_a_page_with_their_breakers_and_who_has_failed_is_named_to_admins_alone() {
    let folder = tempfile::tempdir().unwrap();
    let unlucky = AgentSpec::new("unlucky", |_: Turn| async { panic!("out of luck <b>") });
    let moody = AgentSpec::new("moody", |_: Turn| async { Err::<Command, _>(TurnError::transient("no ink")) });
    let builder = Callboard::builder()
        .with(unlucky.restarts(0, Duration::from_secs(60)))
        .with(moody)
        .backoff(Backoff { first: Duration::from_millis(1), max: Duration::from_millis(1) });
    let pages = Pages::of(&folder, &PagesAt::Loopback { port: 7420, has_tls: false }, builder).await;
    let owner = pages.sign_in(&json!({})).await;
    let reader = pages.sign_in_as("reader", [Scope::Read]).await;
    pages.board.submit(Task::new("x").to("unlucky")).await.unwrap().result().await.unwrap();
    for _ in 0..3 {
        pages.board.submit(Task::new("x").to("moody")).await.unwrap().result().await.unwrap();
    }
    let run = pages.board.submit(Task::new("x").to("asker")).await.unwrap();
    run.next_pending().await.unwrap();
    let works = format!("works on <a href=\"/runs/{}/turns/1\">turn 1 of <code>req-", run.id());
    assert!(text(&pages, &reader, "/agents/asker").await.1.contains(&works));
    for path in ["/agents", "/parts/agents"] {
        let (status, shown) = text(&pages, &owner, path).await;
        assert_eq!(status, 200);
        for part in [
            "breaker open: it gets no turns until its cooldown is over · 3 failures in a row · the last <time",
            "href=\"/#agent:unlucky\"",
            "out of luck &lt;b&gt;",
            "Supervision tree",
            " MiB of memory",
            &works,
        ] {
            assert!(shown.contains(part), "{part} is not in {shown}");
        }
        let (_, shown) = text(&pages, &reader, path).await;
        assert!(shown.contains("breaker open"), "{shown}");
        assert!(!shown.contains("out of luck") && !shown.contains("Supervision tree"), "{shown}");
    }
    // The error of an agent is not searched for those who may not see it.
    for (path, of_owner, of_reader) in [
        ("/agents?text=OUT+of+luck&sort=newest", true, false),
        ("/parts/agents?text=unluck", true, false),
        ("/agents?text=nothing+of+these", false, false),
    ] {
        for (browser, is_shown) in [(&owner, of_owner), (&reader, of_reader)] {
            let (status, shown) = text(&pages, browser, path).await;
            assert_eq!((status, shown.contains("href=\"/#agent:unlucky\"")), (200, is_shown), "{path}: {shown}");
            assert!(!shown.contains("<bdi>moody</bdi></b>"), "{path}: {shown}");
        }
    }
    let (status, shown) = text(&pages, &reader, "/agents?text=%22%3E%3Cscript%3E").await;
    assert!(
        status == 200 && shown.contains("No agent fits") && shown.contains("value=\"&quot;&gt;&lt;script&gt;\""),
        "{shown}"
    );
    for path in ["/agents?sort=%3Cb%3E", "/parts/agents?sort=%3Cb%3E", "/agents?other=1"] {
        let (status, shown) = text(&pages, &owner, path).await;
        assert!(status == 400 && shown.contains("is not known: there is"), "{path}: {shown}");
        assert!(path.starts_with("/parts") || !shown.contains("<b> is"), "{path}: {shown}");
    }
    pages.end().await;
}
