//! What the pages cost: `cargo bench -p callboard-server --bench pages`. Times are from a request to the whole of its answer, in this
//! process, without a network: medians and, for decisions, the 95th percentile. Where Chromium is installed, it has the overview open
//! over a connection while there are turns, and reports its longest task.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a benchmark")]

#[allow(dead_code, reason = "it is also for tests that type")]
#[path = "../../../tests/common/browser.rs"]
mod browser;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use axum::response::Response;
use callboard::env::Env;
use callboard::messages::Action;
use callboard::prelude::*;
use callboard_server::private::{Client, listen};
use callboard_server::{PagesAt, Scope, Server, TokenSpec, Tokens};
use futures::StreamExt as _;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tower::ServiceExt as _;

/// The ended runs in the store, of which one in a hundred has failed, and those that wait.
const RUNS: usize = 10_000;
const FAILING: usize = 100;
const WAITING: usize = 50;
/// The steps of the long run, of which each is an event.
const STEPS: usize = 100_000;
const ROUNDS: usize = 51;
const DECISIONS: usize = 200;
/// The dashboards that watch, how long, and how many turns a second there are meanwhile.
const DASHBOARDS: usize = 200;
const WATCHED_FOR: Duration = Duration::from_secs(10);
const TURNS_A_SECOND: u64 = 1_000;
/// Of so many turns one asks a person, who answers after a while, which changes every page.
const ASKING: u64 = 100;
const ANSWERED_AFTER: Duration = Duration::from_millis(400);

struct Pages {
    board: Callboard,
    router: Router,
    private: Client,
    origin: String,
    _folder: TempDir,
}

/// Somebody who has signed in: their cookie, and the text of their pages.
struct Browser {
    cookie: String,
    csrf: String,
}

impl Pages {
    async fn start(decided: Arc<Mutex<Vec<Instant>>>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let board = Callboard::builder()
            .agent("echo", |turn: Turn| async move { Ok(Command::output(turn.input_json().clone())) })
            .agent("fails", |_: Turn| async { Err::<Command, _>(TurnError::terminal("the service is down")) })
            .agent("asks", |turn: Turn| async move { Ok(Command::output(turn.people().ask("Which port?").await?)) })
            .agent("writes", move |turn: Turn| {
                let decided = Arc::clone(&decided);
                async move {
                    turn.people().approve(Action::new("FileWrite", "a.txt", "one")).await?;
                    decided.lock().await.push(Instant::now());
                    Ok(Command::output(1))
                }
            })
            .agent("long", |turn: Turn| async move {
                for number in 0..STEPS {
                    turn.step("read", async move { Ok::<_, TurnError>(number) }).await?;
                }
                Ok(Command::output(turn.people().ask("Is that all?").await?))
            })
            .storage(Sled::open(folder.path().join("store")).unwrap())
            .shutdown_grace(Duration::ZERO)
            .start()
            .await
            .unwrap();
        let tokens = Tokens::new(Env::system());
        for at in 0..3 {
            tokens.add(TokenSpec::new(&format!("t{at}"), Scope::ALL)).unwrap();
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = PagesAt::Loopback { port: listener.local_addr().unwrap().port(), has_tls: false };
        let server = Server::new(board.clone(), tokens).dashboard(&at).unwrap();
        let origin = server.pages().unwrap().to_owned();
        let (router, sockets) = (server.router(), folder.path().join("sockets"));
        let socket = listen(&sockets, "a").await.unwrap();
        let over_http = server.clone();
        tokio::spawn(async move { over_http.serve(listener, std::future::pending()).await });
        tokio::spawn(async move { server.serve_private(socket, std::future::pending()).await });
        Self { board, router, private: Client::new(&sockets, "a"), origin, _folder: folder }
    }

    async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
        let host = self.origin.split_once("://").unwrap().1;
        let mut request = Request::builder().method(method).uri(path).header("Host", host);
        for (name, value) in headers.iter().chain(&[("Content-Type", "application/json")]) {
            request = request.header(*name, *value);
        }
        self.router.clone().oneshot(request.body(Body::from(body.to_owned())).unwrap()).await.unwrap()
    }

    async fn get(&self, browser: &Browser, path: &str) -> Response {
        self.send("GET", path, &[("Cookie", &browser.cookie), ("Sec-Fetch-Site", "same-origin")], "").await
    }

    /// The URL of a new link.
    async fn link(&self, token: Option<&str>) -> String {
        let body = token.map_or_else(|| json!({}), |token| json!({ "token": token }));
        let link = self.private.request("POST", "/v1/sign-in", Some(&body)).await.unwrap().1;
        link["url"].as_str().unwrap().to_owned()
    }

    async fn sign_in(&self, token: Option<&str>) -> Browser {
        let secret = self.link(token).await.split_once('#').unwrap().1.to_owned();
        let origin = [("Origin", &*self.origin), ("Sec-Fetch-Site", "same-origin")];
        let answer = self.send("POST", "/sign-in", &origin, &json!({ "secret": secret }).to_string()).await;
        let cookie = answer.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
        let page = text(self.send("GET", "/", &[("Cookie", &cookie)], "").await).await;
        let csrf = page.split_once("name=\"csrf\" content=\"").unwrap().1.split_once('"').unwrap().0.to_owned();
        Browser { cookie, csrf }
    }

    /// Prints how long a page takes, and how long it is.
    async fn time(&self, browser: &Browser, name: &str, path: &str) {
        let (mut times, mut size) = (Vec::new(), 0);
        for _ in 0..ROUNDS {
            let began = Instant::now();
            let page = self.get(browser, path).await;
            assert!(page.status().is_success(), "{path}: {}", page.status());
            size = text(page).await.len();
            times.push(began.elapsed());
        }
        times.sort();
        println!("{name:<52} {:>8.2} ms {:>8} bytes", millis(times[ROUNDS / 2]), size);
    }

    async fn submit(&self, agent: &str) -> callboard::runtime::RunHandle {
        self.board.submit(Task::new("x").to(agent).durability(Durability::Buffered)).await.unwrap()
    }
}

async fn text(answer: Response) -> String {
    String::from_utf8(to_bytes(answer.into_body(), usize::MAX).await.unwrap().to_vec()).unwrap()
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// From the POST to the turn that has its decision.
async fn decisions(pages: &Pages, browser: &Browser, decided: &Mutex<Vec<Instant>>) {
    let headers = [
        ("Cookie", &*browser.cookie),
        ("Origin", &*pages.origin),
        ("Sec-Fetch-Site", "same-origin"),
        ("X-Callboard-Csrf", &*browser.csrf),
    ];
    let mut times = Vec::new();
    for _ in 0..DECISIONS {
        let run = pages.submit("writes").await;
        let id = run.next_pending().await.unwrap().unwrap().id().to_string();
        let body = json!({ "decisions": [{ "id": id, "response": "approve" }] }).to_string();
        let began = Instant::now();
        let answer = pages.send("POST", "/v1/inbox/decisions", &headers, &body).await;
        assert!(answer.status().is_success());
        run.result().await.unwrap();
        let at = decided.lock().await.pop().unwrap();
        times.push(at - began);
    }
    times.sort();
    let at = |percent: usize| millis(times[(DECISIONS * percent / 100).min(DECISIONS - 1)]);
    println!("{:<52} {:>8.2} ms, p95 {:.2} ms", "a decision reaches its turn", at(50), at(95));
}

/// The processor time of this process.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 1_000 / rustix::param::clock_ticks_per_second())
}

/// Has turns for a while, of which some ask a person; the processor time that all took.
async fn turns(pages: &Pages) -> Duration {
    let (began, before) = (Instant::now(), processor_time());
    let mut number = 0_u64;
    while began.elapsed() < WATCHED_FOR {
        let due = u64::try_from(began.elapsed().as_millis()).unwrap() * TURNS_A_SECOND / 1_000;
        while number < due {
            number += 1;
            if number.is_multiple_of(ASKING) {
                let run = pages.submit("asks").await;
                let board = pages.board.clone();
                tokio::spawn(async move {
                    let id = run.next_pending().await.unwrap().unwrap().id();
                    tokio::time::sleep(ANSWERED_AFTER).await;
                    // The board may have ended.
                    drop(board.people().answer(id, json!("80"), "ann").await);
                });
            } else {
                drop(pages.submit("echo").await);
            }
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    processor_time().checked_sub(before).unwrap()
}

/// Chromium with the overview open; `None` where it is not installed. It notes each task that blocks the page for more than 50 ms.
async fn chromium(pages: &Pages) -> Option<browser::Browser> {
    const NOTED: &str = "globalThis.longest = 0; new PerformanceObserver((list) => { for (const task of list.getEntries()) longest = Math.max(longest, task.duration); }).observe({ type: 'longtask', buffered: false })";
    let link = pages.link(None).await;
    let opened = tokio::task::spawn_blocking(move || {
        let mut browser = browser::Browser::start()?;
        browser.opens(&link);
        browser.until("Page.loadEventFired");
        browser.sees("document.querySelector('#state')?.textContent === 'Live'");
        browser.value(&format!("{NOTED};0"));
        Some(browser)
    });
    opened.await.unwrap()
}

/// What so many dashboards add to the cost of turns. One reads its page again after each event, as a browser does, or is one.
async fn dashboards(pages: &Arc<Pages>, browsers: &[Arc<Browser>], count: usize) {
    let before = turns(pages).await;
    let chromium = chromium(pages).await;
    let reads_again = chromium.is_none();
    let (events, is_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let mut watching = Vec::new();
    for at in 0..count {
        let (pages, browser) = (Arc::clone(pages), Arc::clone(&browsers[at % browsers.len()]));
        let (events, is_over) = (Arc::clone(&events), Arc::clone(&is_over));
        watching.push(tokio::spawn(async move {
            let stream = pages.get(&browser, "/parts/events").await;
            assert!(stream.status().is_success(), "{}", stream.status());
            let mut stream = stream.into_body().into_data_stream();
            while let Some(Ok(_)) = stream.next().await {
                events.fetch_add(1, Ordering::Relaxed);
                if at == 0 && reads_again {
                    text(pages.get(&browser, "/parts/overview").await).await;
                }
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
            }
        }));
    }
    let watched = turns(pages).await;
    is_over.store(true, Ordering::Relaxed);
    watching.iter().for_each(tokio::task::JoinHandle::abort);
    let after = turns(pages).await;
    let share = |time: Duration| time.as_secs_f64() / WATCHED_FOR.as_secs_f64() * 100.0;
    println!(
        "{count} dashboards on {TURNS_A_SECOND} turns a second: {:.1} % of a core; {:.1} % before and {:.1} % after without them; {:.1} events a second for each",
        share(watched),
        share(before),
        share(after),
        events.load(Ordering::Relaxed) as f64 / count as f64 / WATCHED_FOR.as_secs_f64()
    );
    if let Some(mut chromium) = chromium {
        let longest = tokio::task::spawn_blocking(move || chromium.value("longest")).await.unwrap();
        println!("{:<52} {longest} ms", "the longest task of more than 50 ms in the browser");
    }
}

#[tokio::main]
async fn main() {
    let decided = Arc::new(Mutex::new(Vec::new()));
    let pages = Arc::new(Pages::start(Arc::clone(&decided)).await);
    let runs = futures::stream::iter(0..RUNS).map(|number| {
        let pages = &pages;
        async move {
            let run = pages.submit(if number % FAILING == 0 { "fails" } else { "echo" }).await;
            run.result().await.unwrap();
        }
    });
    runs.buffer_unordered(500).for_each(|()| std::future::ready(())).await;
    for _ in 0..WAITING {
        pages.submit("asks").await.next_pending().await.unwrap();
    }
    let long = pages.submit("long").await;
    long.next_pending().await.unwrap();
    let history: Vec<Value> = long.history().await.unwrap().iter().map(|_| Value::Null).collect();
    let browser = pages.sign_in(None).await;
    pages.time(&browser, &format!("the overview, {RUNS} runs in the store"), "/").await;
    pages.time(&browser, &format!("the list of runs, {RUNS} in the store"), "/runs").await;
    let path = format!("/runs/{}", long.id());
    pages.time(&browser, &format!("a run of {} events that waits", history.len()), &path).await;
    pages.time(&browser, "its turn", &format!("{path}/turns/1")).await;
    pages.time(&browser, "the same run after the event 50,000", &format!("{path}/journal?event=50000")).await;
    decisions(&pages, &browser, &decided).await;
    let mut browsers = Vec::new();
    for token in [None, Some("t0"), Some("t1"), Some("t2")] {
        browsers.push(Arc::new(pages.sign_in(token).await));
    }
    for count in [1, DASHBOARDS] {
        dashboards(&pages, &browsers, count).await;
    }
    // The long run was open so far: what dashboards cost must not depend on how many records an open turn has.
    let id = long.next_pending().await.unwrap().unwrap().id();
    pages.board.people().answer(id, json!("yes"), "ann").await.unwrap();
    long.result().await.unwrap();
    pages.board.shutdown().await;
}
