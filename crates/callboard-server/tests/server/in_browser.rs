//! The pages in a browser, with a real server.

use std::path::Path;
use std::time::Duration;

use callboard::env::Env;
use callboard::messages::{Action, Consent, Deciders, Groups, Response};
use callboard::prelude::*;
use callboard::workflow::{Node, Workflow};
use callboard_server::private::{Client, listen};
use callboard_server::{AgentFiles, PagesAt, Server, Tokens};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::browser::Browser;
use crate::hostile_pages::{COUNTED, acts, payloads};
use crate::skipping::skip;

/// A server with pages on a port of its own. It works on threads of its own: a browser is waited for.
pub(crate) struct Served {
    pub(crate) runtime: Runtime,
    pub(crate) board: Callboard,
    pub(crate) client: Client,
    pub(crate) tokens: Tokens,
    /// Where the agents are from.
    pub(crate) files: watch::Sender<AgentFiles>,
    stop: watch::Sender<bool>,
    _folder: TempDir,
}

impl Served {
    pub(crate) fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (files, tokens) = (watch::Sender::default(), Tokens::new(Env::system()));
        let (shown, known) = (files.subscribe(), tokens.clone());
        let (board, client, stop) = runtime.block_on(async {
            let builder = Callboard::builder()
                .agent("coder", |turn: Turn| async move {
                    let text: String = turn.input()?;
                    let approved = turn.people().approve(Action::new("FileWrite", &text, text.clone())).await?;
                    Ok(Command::output(approved.arguments))
                })
                .agent("asker", |turn: Turn| async move {
                    let text: String = turn.input()?;
                    Ok(Command::output(turn.people().ask(text).await?))
                })
                .agent("exact", |turn: Turn| async move {
                    let arguments = json!({ "path": "a\u{202e}b", "size": 12_345_678_901_234_567_890_u64 });
                    Ok(Command::output(turn.people().approve(Action::new("FileWrite", "", arguments)).await?.arguments))
                })
                .agent("twice", |turn: Turn| async move {
                    for _ in 0..2 {
                        turn.people().approve(Action::new("FileWrite", "a", "b")).await?;
                    }
                    Ok(Command::output(2))
                })
                .agent("several", |turn: Turn| async move {
                    let action: String = turn.input()?;
                    turn.people().approve(Action::new(&action, "a", "b")).await?;
                    Ok(Command::output(1))
                })
                .agent("acts", acts)
                .agent(
                    "broken",
                    |turn: Turn| async move { Err::<Command, _>(TurnError::terminal(turn.input::<String>()?)) },
                )
                .groups(Groups::default().group("ops", ["ben", "owner"]).group("others", ["cat"]))
                .approval_policy(|question| {
                    let deciders = match &*question.action.action {
                        "two" => Deciders { at_least: 2, ..Deciders::of("ops") },
                        "others" => Deciders::of("others"),
                        _ => return question.default_consent(),
                    };
                    Consent::AskOf { deciders: deciders.into(), within: None }
                })
                .capacity(|it| it.runs_in_flight(1_000))
                .shutdown_grace(Duration::ZERO);
            let board = builder.start().await.unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let at = PagesAt::Loopback { port: listener.local_addr().unwrap().port(), has_tls: false };
            let server = Server::new(board.clone(), known).agent_files(shown).dashboard(&at).unwrap();
            let server = server.audit_file(&folder.path().join("audit.jsonl")).unwrap();
            let sockets = folder.path().join("sockets");
            let socket = listen(&sockets, "a").await.unwrap();
            let stop = watch::Sender::new(false);
            let stopped = || {
                let mut stop = stop.subscribe();
                async move { drop(stop.wait_for(|stop| *stop).await) }
            };
            let (over_http, private) = (server.clone(), (stopped(), stopped()));
            tokio::spawn(async move { over_http.serve(listener, private.0).await });
            tokio::spawn(async move { server.serve_private(socket, private.1).await });
            (board, Client::new(&sockets, "a"), stop)
        });
        Self { runtime, board, client, tokens, files, stop, _folder: folder }
    }

    /// The URL of a new link.
    pub(crate) fn link(&self) -> String {
        let link = self.runtime.block_on(self.client.request("POST", "/v1/sign-in", Some(&json!({})))).unwrap().1;
        link["url"].as_str().unwrap().to_owned()
    }

    pub(crate) fn submit(&self, agent: &str, text: &str) -> callboard::runtime::RunHandle {
        self.runtime.block_on(async {
            let run = self.board.submit(Task::new(text).to(agent)).await.unwrap();
            run.next_pending().await.unwrap();
            run
        })
    }

    /// Saves a workflow that needs a question.
    fn save_workflow(&self) {
        let node = Node::agent("ask", "asker").input(json!("{{ question }}"));
        let workflow = Workflow::builder("looks").node(node).build().unwrap();
        self.runtime.block_on(self.board.workflows().save(&workflow)).unwrap();
    }

    pub(crate) fn end(self) {
        self.stop.send_replace(true);
        self.runtime.block_on(self.board.shutdown());
    }
}

/// Presses a key that types nothing, or what `text` is.
fn press(browser: &mut Browser, key: &str, code: u32, text: &str) {
    for kind in ["keyDown", "keyUp"] {
        let text = if kind == "keyDown" { text } else { "" };
        let event = json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text });
        browser.asks("Input.dispatchKeyEvent", event);
    }
}

fn enter(browser: &mut Browser) {
    press(browser, "Enter", 13, "\r");
}

/// Opens a link and waits until it has signed in.
pub(crate) fn sign_in(browser: &mut Browser, link: &str) {
    browser.opens(link);
    // The page of the link opens the overview.
    browser.until("Page.loadEventFired");
    browser.sees("document.querySelector('#state')?.textContent === 'Live'");
}

/// Writes a picture of the page, where the variable CALLBOARD_PICTURES names a folder.
fn picture(browser: &mut Browser, name: &str) {
    let Some(folder) = std::env::var_os("CALLBOARD_PICTURES") else { return };
    let taken = browser.asks("Page.captureScreenshot", json!({ "format": "png" }));
    std::fs::write(Path::new(&folder).join(format!("{name}.base64")), taken["data"].as_str().unwrap()).unwrap();
}

/// Presses Tab until the element that has the focus has this text.
fn tab_to(browser: &mut Browser, text: &str) {
    for _ in 0..60 {
        press(browser, "Tab", 9, "");
        if browser.value("document.activeElement.textContent.trim()") == json!(text) {
            return;
        }
    }
    panic!("{text:?} is not reached with the keyboard");
}

const ROWS: &str = "[...document.querySelectorAll('.item')].map((item) => item.querySelector('.what').textContent)";

#[test]
fn a_person_signs_in_approves_with_the_keyboard_alone_and_signs_out() {
    let Some(mut browser) = Browser::start() else { return skip("there is no Chromium") };
    let served = Served::start();
    let link = served.link();
    sign_in(&mut browser, &link);
    let shown = browser.value("[location.pathname + location.hash, document.querySelector('h1').textContent]");
    assert_eq!(shown, json!(["/", "7 agents running · 0 waiting for you · 0 failed"]));
    assert_eq!(browser.value("document.querySelector('#empty').hidden"), json!(false));
    picture(&mut browser, "empty");

    // It appears without a reload.
    let run = served.submit("coder", "notes.txt");
    browser.sees("document.querySelectorAll('.item').length === 1");
    assert_eq!(
        browser.value("document.querySelector('h1').textContent"),
        "7 agents running · 1 waiting for you · 0 failed"
    );
    assert_eq!(browser.value(ROWS), json!(["coder wants to FileWrite notes.txt"]));
    browser.presses("j", "j");
    assert_eq!(browser.value("document.activeElement.className"), "item");
    tab_to(&mut browser, "Approve");
    enter(&mut browser);
    browser.sees("document.querySelector('.item.done')");
    let result = browser.value("document.querySelector('.item .result').textContent");
    assert!(result.as_str().unwrap().starts_with("Approved by owner · "), "{result}");
    assert_eq!(browser.value("document.activeElement.className"), "item done", "the keyboard keeps its place");
    assert_eq!(served.runtime.block_on(run.result()).unwrap().output, "notes.txt");

    // One that somebody else decides, while the page shows it.
    served.submit("coder", "other.txt");
    browser.sees("document.querySelectorAll('.item').length === 2");
    let height = browser.value("document.querySelector('.item:last-of-type').offsetHeight");
    let asked = served.runtime.block_on(served.board.people().pending());
    served.runtime.block_on(served.board.people().answer(&asked[0], Response::Approve, "ben")).unwrap();
    browser.sees("document.querySelector('.item.gone')");
    let result = browser.value("document.querySelector('.item.gone .result').textContent");
    assert!(result.as_str().unwrap().starts_with("Approved by ben at "), "{result}");
    let now = browser.value("document.querySelector('.item.gone').offsetHeight");
    assert!(now.as_u64() >= height.as_u64(), "what is below has moved: {now} after {height}");

    // A reason is typed, and a question is answered.
    let denied = served.submit("coder", "third.txt");
    let answered = served.submit("asker", "Which port?");
    browser.sees("document.querySelectorAll('.item:not(.done, .denied, .gone)').length === 2");
    tab_to(&mut browser, "Deny …");
    enter(&mut browser);
    browser.types("not today");
    enter(&mut browser);
    browser.sees("document.querySelectorAll('.item.denied').length === 1");
    let result = browser.value("document.querySelector('.item.denied .result').textContent");
    assert!(result.as_str().unwrap().ends_with(" · “not today”"), "{result}");
    assert!(format!("{:?}", served.runtime.block_on(denied.result())).contains("not today"));
    browser.value("document.querySelector('textarea').focus()");
    browser.types("8080");
    enter(&mut browser);
    browser.sees("document.querySelectorAll('.item.done').length === 2");
    assert_eq!(served.runtime.block_on(answered.result()).unwrap().output, "8080");

    tab_to(&mut browser, "Sign out");
    enter(&mut browser);
    browser.until("Page.loadEventFired");
    assert_eq!(browser.value("document.querySelector('h1').textContent"), "Sign in");
    browser.opens(link.split('#').next().unwrap().trim_end_matches("sign-in"));
    assert_eq!(browser.value("document.querySelector('h1').textContent"), "Sign in");
    // The link was used.
    browser.opens(&link);
    browser.sees("document.querySelector('[data-status]').textContent.includes('was used')");
    served.end();
}

/// How many items are not decided.
const OPEN: &str = "document.querySelectorAll('.item:not(.done, .denied, .gone)').length";

fn click(browser: &mut Browser, text: &str) {
    let clicked = browser.value(&format!(
        "(() => {{
           const button = [...document.querySelectorAll('button:not([hidden])')].find((button) => button.textContent === {text:?} && button.checkVisibility());
           button?.click();
           return button !== undefined;
         }})()"
    ));
    assert_eq!(clicked, json!(true), "{text}");
}

#[test]
fn several_items_are_decided_at_a_time_and_those_of_one_kind_are_shown_alone() {
    let Some(mut browser) = Browser::start() else { return skip("there is no Chromium") };
    let served = Served::start();
    sign_in(&mut browser, &served.link());
    let runs = ["a.txt", "b.txt", "c.txt"].map(|file| served.submit("coder", file));
    served.submit("asker", "Which port?");
    browser.sees(&format!("{OPEN} === 4"));
    assert_eq!(browser.value("document.querySelector('#filters').innerText"), "All 4\nApproval 3\nQuestion 1");
    browser.value("document.querySelector('[data-pick]').click()");
    assert_eq!(browser.value("document.querySelector('#batch span').textContent"), "1 selected");
    click(&mut browser, "Select all of this kind");
    assert_eq!(browser.value("document.querySelector('#batch span').textContent"), "3 selected");
    picture(&mut browser, "batch");
    browser.value("document.querySelector('#batch input').value = 'not on a Friday'");
    click(&mut browser, "Deny");
    browser.sees(&format!("{OPEN} === 1"));
    for run in runs {
        assert!(format!("{:?}", served.runtime.block_on(run.result())).contains("not on a Friday"));
    }
    assert_eq!(browser.value("document.querySelector('#batch').hidden"), json!(true));
    // A link that can be sent to others.
    let of_one_kind = overview_of(&served) + "?kind=question";
    served.submit("coder", "d.txt");
    browser.opens(&of_one_kind);
    browser.sees("document.querySelector('#state')?.textContent === 'Live'");
    assert_eq!(browser.value(ROWS), json!(["asker asks"]));
    served.submit("coder", "e.txt");
    served.submit("asker", "Which host?");
    browser.sees(&format!("{OPEN} === 2"));
    assert!(browser.value("document.querySelector('h1').textContent").as_str().unwrap().contains("4 waiting"));
    served.end();
}

#[test]
fn an_action_is_approved_with_other_arguments_and_for_its_run() {
    let Some(mut browser) = Browser::start() else { return skip("there is no Chromium") };
    let served = Served::start();
    sign_in(&mut browser, &served.link());
    // A number that JavaScript cannot hold, and a character that does not show.
    let edited = served.submit("exact", "x");
    browser.sees(&format!("{OPEN} === 1"));
    click(&mut browser, "Edit …");
    browser.sees("document.querySelector('textarea')?.value");
    assert_eq!(
        browser.value("document.querySelector('textarea').value"),
        "{\n  \"path\": \"a\\u202eb\",\n  \"size\": 12345678901234567890\n}"
    );
    picture(&mut browser, "edit");
    browser.value("document.querySelector('textarea').value = '{'");
    click(&mut browser, "Approve these");
    browser.sees("document.querySelector('.item.wrong .result')?.textContent.startsWith('This is no JSON')");
    browser.value("document.querySelector('textarea').value = '{\"path\": \"c\", \"size\": 12345678901234567891}'");
    click(&mut browser, "Approve these");
    browser.sees("document.querySelector('.item.done')");
    let result = served.runtime.block_on(edited.result()).unwrap().output;
    assert_eq!(result.value(), &json!({ "path": "c", "size": 12_345_678_901_234_567_891_u64 }));

    // What is written and not sent is not what is approved, and nobody is led to think so.
    let asked = served.submit("exact", "x");
    browser.sees(&format!("{OPEN} === 1"));
    click(&mut browser, "Edit …");
    browser.sees("document.querySelector('.item:not(.done) textarea')?.value");
    browser.value("document.querySelector('.item:not(.done) textarea').value = '{\"path\": \"draft\"}'");
    click(&mut browser, "Approve");
    browser.sees(
        "document.querySelector('.item.wrong .result')?.textContent.startsWith('You have changed the arguments: ')",
    );
    click(&mut browser, "Edit …");
    click(&mut browser, "Approve");
    browser.sees(&format!("{OPEN} === 0"));
    let shown = browser.value("document.querySelector('.item:last-of-type [data-text]').textContent");
    assert!(
        shown.as_str().unwrap().contains("12345678901234567890") && !shown.to_string().contains("draft"),
        "{shown}"
    );
    let result = served.runtime.block_on(asked.result()).unwrap().output;
    assert_eq!(result.value()["size"], json!(12_345_678_901_234_567_890_u64));

    let twice = served.submit("twice", "x");
    browser.sees(&format!("{OPEN} === 1"));
    click(&mut browser, "Approve for this run");
    browser.sees(&format!("{OPEN} === 0"));
    assert_eq!(served.runtime.block_on(twice.result()).unwrap().output, 2);
    served.end();
}

#[test]
fn a_page_says_who_has_approved_while_others_decide_and_who_may_not() {
    let Some(mut browser) = Browser::start() else { return skip("there is no Chromium") };
    let served = Served::start();
    sign_in(&mut browser, &served.link());
    let people = served.board.people();
    let deciders = "document.querySelector('.item:last-of-type .deciders').textContent";
    let run = served.submit("several", "two");
    browser.sees(&format!("{OPEN} === 1"));
    assert_eq!(browser.value(deciders), "Decided by 2 of ops");
    let id = served.runtime.block_on(run.next_pending()).unwrap().unwrap().id();
    served.runtime.block_on(people.answer(id, Response::Approve, "ben")).unwrap();
    browser.sees(&format!("{deciders}.includes('approved by ben')"));
    assert!(browser.value(deciders).as_str().unwrap().ends_with(" · 1 more has to approve"));
    picture(&mut browser, "votes");
    click(&mut browser, "Approve");
    browser.sees("document.querySelector('.item.done')");
    served.runtime.block_on(run.result()).unwrap();

    // Its reader has approved, and then somebody else denies.
    let run = served.submit("several", "two");
    browser.sees(&format!("{OPEN} === 1"));
    click(&mut browser, "Approve");
    browser.sees("document.querySelector('.item.voted .result')?.textContent.includes('1 more person has to approve')");
    let id = served.runtime.block_on(run.next_pending()).unwrap().unwrap().id();
    let denial = Response::Deny { reason: "not now".to_owned() };
    served.runtime.block_on(people.via("telegram").answer(id, denial, "ben")).unwrap();
    browser.sees("document.querySelector('.item.gone .result')?.textContent.startsWith('Denied by ben at ')");
    let result = browser.value("document.querySelector('.item.gone .result').textContent");
    assert!(result.as_str().unwrap().ends_with(" (telegram): not now"), "{result}");

    served.submit("several", "others");
    browser.sees(&format!("{OPEN} === 1"));
    let row = "document.querySelector('.item:not(.done, .denied, .gone)')";
    let standing = browser.value(&format!("{row}.querySelector('.standing').textContent"));
    assert_eq!(standing, "You do not decide this: people of others decide about it, and owner is not one of them");
    assert_eq!(browser.value(&format!("{row}.querySelectorAll('button, input').length")), json!(0));
    served.end();
}

/// The address of the overview.
pub(crate) fn overview_of(served: &Served) -> String {
    let link = served.link();
    link.split("/sign-in").next().unwrap().to_owned() + "/"
}

#[test]
fn a_phone_shows_the_overview_without_scrolling_sideways() {
    let Some(mut browser) = Browser::start() else { return skip("there is no Chromium") };
    let served = Served::start();
    served.submit("coder", &format!("src/{}/main.rs", "folder/".repeat(30)));
    served.submit("asker", &"x".repeat(1_000_000));
    served.submit("asker", "Which of the ports shall the server listen on: the usual one, or one that is free?");
    let phone = json!({ "width": 360, "height": 780, "deviceScaleFactor": 2, "mobile": true });
    browser.asks("Emulation.setDeviceMetricsOverride", phone);
    sign_in(&mut browser, &served.link());
    let width = browser.value("[document.documentElement.scrollWidth, document.querySelectorAll('.item').length]");
    assert_eq!(width, json!([360, 3]));
    picture(&mut browser, "phone");
    let size = browser.value("performance.getEntriesByType('navigation')[0].transferSize + performance.getEntriesByType('resource').reduce((sum, it) => sum + it.transferSize, 0)");
    assert!(size.as_f64().unwrap() < 60.0 * 1024.0, "{size} bytes");
    for (name, scheme) in [("light", "light"), ("dark", "dark")] {
        let desktop = json!({ "width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        browser.asks("Emulation.setDeviceMetricsOverride", desktop);
        browser.asks(
            "Emulation.setEmulatedMedia",
            json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] }),
        );
        picture(&mut browser, name);
    }
    served.end();
}

/// What the rules of accessibility find in the page.
fn violations(browser: &mut Browser, rules: &str) -> Value {
    browser.value(rules);
    browser.value(
        "axe.run(document).then(({ violations, passes }) =>
           passes.length < 10 ? `only ${passes.length} rules apply` :
           JSON.stringify(violations.map(({ id, nodes }) => [id, nodes[0].html])))",
    )
}

#[test]
fn pages_have_no_violation_of_accessibility() {
    let Some(rules) = std::env::var_os("CALLBOARD_AXE") else { return skip("there is no axe-core") };
    let Some(mut browser) = Browser::start() else { return skip("there is no Chromium") };
    let rules = format!("{};0", std::fs::read_to_string(rules).unwrap());
    let served = Served::start();
    served.submit("coder", "m\u{430}in.rs");
    served.submit("several", "two");
    let run = served.submit("asker", "Which port?");
    served.save_workflow();
    let origin = overview_of(&served);
    let has_scheme = |browser: &mut Browser, scheme: &str| {
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        browser.asks("Emulation.setEmulatedMedia", media);
    };
    // To somebody who is signed in it is the overview.
    for scheme in ["dark", "light"] {
        has_scheme(&mut browser, scheme);
        browser.opens(&format!("{origin}sign-in"));
        assert_eq!(violations(&mut browser, &rules), "[]", "{scheme} sign-in");
    }
    // A link is another place on the page that is open.
    browser.opens("about:blank");
    sign_in(&mut browser, &served.link());
    for scheme in ["light", "dark"] {
        has_scheme(&mut browser, scheme);
        let run = format!("runs/{}", run.id());
        let (turn, journal) = (format!("{run}/turns/1"), format!("{run}/journal?event=1"));
        for path in [
            "",
            "runs",
            &run,
            &turn,
            &journal,
            "agents/asker",
            "files",
            "agents?text=e&sort=newest",
            "workflows",
            "workflows/looks",
            "schedules",
            "context?namespace=notes",
            "handoffs",
            "usage",
            "tokens",
            "audit",
        ] {
            browser.opens(&format!("{origin}{path}"));
            if path.is_empty() {
                browser.sees("document.querySelector('#state')?.textContent === 'Live'");
                click(&mut browser, "Deny …");
                browser.value("document.querySelector('[data-pick]').click()");
            }
            assert_eq!(violations(&mut browser, &rules), "[]", "{scheme} {path}");
            let name = path.split(['/', '?']).next().unwrap();
            picture(&mut browser, &format!("page-{name}-{scheme}"));
            let width = browser.value("Math.max(0, document.documentElement.scrollWidth - innerWidth)");
            assert_eq!(width, json!(0), "{scheme} {path} is wider than the window");
        }
        let phone = json!({ "width": 360, "height": 780, "deviceScaleFactor": 1, "mobile": true });
        browser.asks("Emulation.setDeviceMetricsOverride", phone);
    }
    served.end();
}

#[test]
fn the_page_of_a_run_changes_while_it_is_watched_and_runs_nothing_of_agents() {
    let Some(mut browser) = Browser::start() else { return skip("there is no Chromium") };
    let served = Served::start();
    browser.asks("Page.addScriptToEvaluateOnNewDocument", json!({ "source": COUNTED }));
    let hostile: String = payloads().into_iter().step_by(7).collect();
    let run = served.submit("asker", &hostile);
    sign_in(&mut browser, &served.link());
    browser.opens(&format!("{}runs", overview_of(&served)));
    browser.sees("document.querySelectorAll('.runs li').length === 1");
    picture(&mut browser, "runs");
    browser.opens(&format!("{}runs/{}", overview_of(&served), run.id()));
    browser.sees("document.querySelector('#run-state')?.textContent === 'Live'");
    let badge = "document.querySelector('.under .kind').textContent";
    assert_eq!(browser.value(badge), "Waits for people");
    for (name, scheme) in [("run-light", "light"), ("run-dark", "dark")] {
        browser.asks(
            "Emulation.setEmulatedMedia",
            json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] }),
        );
        picture(&mut browser, name);
    }
    // A part that is open stays open, and what is typed stays.
    browser.value("document.querySelector('[data-key=cancel]').open = true");
    browser.value("document.querySelector('#cancel-reason').focus()");
    browser.types("eno");
    let asked = served.runtime.block_on(served.board.people().pending());
    served.runtime.block_on(served.board.people().answer(&asked[0], Response::Value("fine".into()), "ben")).unwrap();
    browser.sees(&format!("{badge} === 'Finished'"));
    assert_eq!(browser.value("document.querySelector('#cancel-reason').value"), "eno");
    let unseen = browser.value("/[\\u200b-\\u200f\\u202a-\\u202e\\u2066-\\u2069\\ufeff\\u001b]/.test(document.querySelector('main').textContent)");
    assert_eq!(unseen, json!(false));
    assert_eq!(browser.value("[globalThis.attacked ?? null, violations]"), json!([null, []]));
    let other = served.submit("asker", "Which port?");
    browser.opens(&format!("{}runs/{}", overview_of(&served), other.id()));
    tab_to(&mut browser, "Cancel …");
    enter(&mut browser);
    press(&mut browser, "Tab", 9, "");
    browser.types("not needed");
    enter(&mut browser);
    browser.sees(&format!("{badge} === 'Cancelled'"));
    let phone = json!({ "width": 360, "height": 780, "deviceScaleFactor": 2, "mobile": true });
    browser.asks("Emulation.setDeviceMetricsOverride", phone);
    assert_eq!(browser.value("document.documentElement.scrollWidth"), json!(360));
    picture(&mut browser, "run-phone");
    assert_eq!(browser.complaints(), [&Value::Null; 0]);
    served.end();
}

/// Goes through the events of a run with the keyboard, and has one of its turns begin again with another input.
#[test]
fn a_person_goes_through_the_journal_of_a_run_and_forks_it_with_another_input() {
    let Some(mut browser) = Browser::start() else { return skip("there is no Chromium") };
    let served = Served::start();
    let run = served.submit("asker", "Which port?");
    let asked = served.runtime.block_on(served.board.people().pending());
    served.runtime.block_on(served.board.people().answer(&asked[0], Response::Value("80".into()), "ben")).unwrap();
    served.runtime.block_on(run.result()).unwrap();
    sign_in(&mut browser, &served.link());
    browser.opens(&format!("{}runs/{}/journal", overview_of(&served), run.id()));
    browser.sees("document.querySelector('[data-journal] button').hidden");
    let last = browser.value("document.querySelector('#event').max").as_str().unwrap().to_owned();
    assert_eq!(browser.value("document.querySelector('output').textContent"), format!("{last} of {last}"));
    browser.value("document.querySelector('#event').focus()");
    press(&mut browser, "Home", 36, "");
    browser.sees("document.querySelector('#moment h2').textContent === 'Event 1' && location.search === '?event=1'");
    press(&mut browser, "ArrowRight", 39, "");
    browser.sees("document.querySelector('#moment h2').textContent === 'Event 2' && location.search === '?event=2'");
    assert_eq!(browser.value("document.querySelector('output').textContent"), format!("2 of {last}"));
    picture(&mut browser, "journal");
    browser.opens(&format!("{}runs/{}/turns/1", overview_of(&served), run.id()));
    tab_to(&mut browser, "Fork here …");
    enter(&mut browser);
    press(&mut browser, "Tab", 9, "");
    browser.value("document.querySelector('#input').select()");
    browser.types("\"Which host");
    picture(&mut browser, "turn");
    click(&mut browser, "Fork the run");
    browser.sees("document.querySelector('form[data-turn] .result').textContent.startsWith('This is no JSON: ')");
    browser.value("document.querySelector('#input').select()");
    browser.types("\"Which host?\"");
    click(&mut browser, "Fork the run");
    browser.until("Page.loadEventFired");
    browser.sees("document.querySelector('#run-waits')?.textContent.includes('Which host?')");
    let phone = json!({ "width": 360, "height": 780, "deviceScaleFactor": 2, "mobile": true });
    browser.asks("Emulation.setDeviceMetricsOverride", phone);
    for page in ["journal?event=2", "turns/1"] {
        browser.opens(&format!("{}runs/{}/{page}", overview_of(&served), run.id()));
        assert_eq!(browser.value("document.documentElement.scrollWidth"), json!(360), "{page}");
    }
    assert_eq!(browser.complaints(), [&Value::Null; 0]);
    served.end();
}

/// Somebody who is sent the address of a page signs in and is there; its menu, filters and forms do what they say.
#[test]
fn a_page_that_was_asked_for_is_shown_after_signing_in_and_its_forms_work() {
    let Some(mut browser) = Browser::start() else { return skip("there is no Chromium") };
    let served = Served::start();
    served.save_workflow();
    let runs = ["Which port?", "Which host?"].map(|text| served.submit("asker", text));
    browser.opens(&format!("{}runs?text=port", overview_of(&served)));
    browser.sees("document.querySelector('[data-sign-in]')");
    browser.opens(&served.link());
    browser.until("Page.loadEventFired");
    browser.sees("location.pathname + location.search === '/runs?text=port'");
    browser.sees("document.querySelectorAll('.runs li').length === 1");

    // The filter is a form that the browser sends itself.
    browser.value("document.querySelector('#text').value = 'host'");
    click(&mut browser, "Filter");
    browser.until("Page.loadEventFired");
    browser.sees("new URLSearchParams(location.search).get('text') === 'host'");
    browser.value("document.querySelector('[data-run]').click()");
    browser.sees("!document.querySelector('[data-run-batch]').hidden");
    browser.value("document.querySelector('[data-run-batch] [name=reason]').value = 'not needed'");
    click(&mut browser, "Cancel them");
    browser.until("Page.loadEventFired");
    browser.sees("document.querySelector('.runs .kind')?.textContent === 'Cancelled'");
    let result = served.runtime.block_on(runs[1].result()).unwrap();
    assert!(result.outcome.to_string().contains("not needed"), "{}", result.outcome);

    browser.value("document.querySelector('.menu summary').click()");
    picture(&mut browser, "menu");
    press(&mut browser, "Escape", 27, "");
    assert_eq!(browser.value("document.querySelector('.menu').open"), json!(false));
    browser.opens(&format!("{}workflows/looks", overview_of(&served)));
    browser.value("document.querySelector('[data-input]').focus()");
    browser.types("Which way?");
    picture(&mut browser, "workflow");
    click(&mut browser, "Start the workflow");
    browser.until("Page.loadEventFired");
    browser.sees("document.querySelector('#run-waits')?.textContent.includes('Which way?')");
    browser.opens(&format!("{}agents/coder", overview_of(&served)));
    for (form, button) in [("restart", "Start the agent again"), ("stop", "Stop the agent")] {
        browser.value(&format!("document.querySelector('[data-key={form}]').open = true"));
        click(&mut browser, button);
        browser.sees(&format!("document.querySelector('[data-key={form}] .result').textContent === 'Done.'"));
    }
    // The page that nobody was signed in for.
    let complaints = browser.complaints();
    assert!(complaints.len() == 1 && complaints[0].to_string().contains("401 (Unauthorized)"), "{complaints:?}");
    served.end();
}
