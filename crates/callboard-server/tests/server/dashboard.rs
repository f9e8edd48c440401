//! The pages: how people sign in, what a session allows, and what others cannot do with it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use axum::response::Response;
use callboard::Builder;
use callboard::env::{Clock, Env, Now};
use callboard::messages::{Action, Effect, PendingId, Rationale, Response as Answered, Timestamp, Usage};
use callboard::prelude::*;
use callboard_agents::tools::{Root, changed_text};
use callboard_server::private::{Client, listen};
use callboard_server::{AgentFiles, PagesAt, Scope, Server, TokenSpec, Tokens};
use futures::StreamExt as _;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tower::ServiceExt as _;

use crate::support::counted::Counted;
use crate::support::local::text_of;

/// A clock that a test moves.
#[derive(Default)]
struct Moved(AtomicU64);

impl Moved {
    fn forward(&self, by: Duration) {
        self.0.fetch_add(u64::try_from(by.as_millis()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for Moved {
    fn now(&self) -> Now {
        let millis = 1_000_000 + self.0.load(Ordering::SeqCst);
        Now { monotonic: Duration::from_millis(millis), wall: Timestamp::from_millis(millis) }
    }
}

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// A server with pages, over a board with an agent that asks and one that waits, and its private socket.
pub(crate) struct Pages {
    pub(crate) board: Callboard,
    pub(crate) tokens: Tokens,
    clock: Arc<Moved>,
    router: Router,
    client: Client,
    /// `http://cb-….localhost:7420`, or what was given.
    origin: String,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

/// A browser: its cookie, and the text of its pages.
#[derive(Clone)]
pub(crate) struct Browser {
    pub(crate) cookie: String,
    csrf: String,
}

impl Pages {
    async fn start(folder: &TempDir) -> Self {
        Self::at(folder, &PagesAt::Loopback { port: 7420, has_tls: false }).await
    }

    async fn at(folder: &TempDir, at: &PagesAt) -> Self {
        Self::of(folder, at, Callboard::builder()).await
    }

    pub(crate) async fn of(folder: &TempDir, at: &PagesAt, board: Builder) -> Self {
        Self::with_files(folder, at, board, AgentFiles::default()).await
    }

    pub(crate) async fn with_files(folder: &TempDir, at: &PagesAt, board: Builder, files: AgentFiles) -> Self {
        let clock = Arc::new(Moved::default());
        let board = board
            .agent("asker", |turn: Turn| async move { Ok(Command::output(turn.people().ask("who?").await?)) })
            .agent("waiter", |_: Turn| std::future::pending::<Result<Command, TurnError>>())
            .shutdown_grace(Duration::ZERO);
        let board = board.start().await.unwrap();
        let tokens = Tokens::open(&folder.path().join("service/tokens.json"), Env::new(Arc::clone(&clock), 1)).unwrap();
        let server = Server::new(board.clone(), tokens.clone()).dashboard(at).unwrap();
        let server = server.agent_files(watch::channel(files).1);
        let root = Root::open(folder.path()).unwrap();
        let server = server.changed_texts(move |action| {
            changed_text(&root, action).map(|text| text.map_err(|error| error.to_string()))
        });
        let server = server.audit_file(&folder.path().join("audit.jsonl")).unwrap();
        let origin = server.pages().unwrap().to_owned();
        let (router, sockets) = (server.router(), folder.path().join("sockets"));
        let listener = listen(&sockets, "a").await.unwrap();
        let (stop, stopped) = oneshot::channel();
        let serving =
            tokio::spawn(
                async move { server.serve_private(listener, async { stopped.await.unwrap_or_default() }).await },
            );
        Self { board, tokens, clock, router, client: Client::new(&sockets, "a"), origin, stop, serving }
    }

    pub(crate) async fn end(self) {
        self.stop.send(()).unwrap();
        self.serving.await.unwrap();
        self.board.shutdown().await;
    }

    fn host(&self) -> &str {
        self.origin.split_once("://").unwrap().1
    }

    /// The secret of a new link.
    async fn link(&self, body: &Value) -> String {
        let (status, link) = self.client.request("POST", "/v1/sign-in", Some(body)).await.unwrap();
        assert_eq!(status, 200, "{link}");
        let url = link["url"].as_str().unwrap();
        let secret = url.strip_prefix(&format!("{}/sign-in#", self.origin)).unwrap();
        assert_eq!(secret.trim_start_matches("cbt_").len(), 64, "256 bits");
        secret.to_owned()
    }

    /// Sends a request with these headers in place of those that a page sends.
    pub(crate) async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &Value) -> Response {
        let mut request = Request::builder().method(method).uri(path);
        if !headers.iter().any(|(name, _)| *name == "Host") {
            request = request.header("Host", self.host());
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        self.router
            .clone()
            .oneshot(request.header("Content-Type", "application/json").body(body).unwrap())
            .await
            .unwrap()
    }

    pub(crate) async fn use_link(&self, secret: &str, headers: &[(&str, &str)]) -> Response {
        let origin = [("Origin", &*self.origin), ("Sec-Fetch-Site", "same-origin")];
        let headers: Vec<_> = if headers.iter().any(|(name, _)| *name == "Origin") {
            headers.to_vec()
        } else {
            origin.iter().chain(headers).copied().collect()
        };
        self.send("POST", "/sign-in", &headers, &json!({ "secret": secret })).await
    }

    pub(crate) async fn sign_in(&self, body: &Value) -> Browser {
        let secret = self.link(body).await;
        let answer = self.use_link(&secret, &[]).await;
        assert_eq!(answer.status().as_u16(), 204);
        let cookie = answer.headers()["set-cookie"].to_str().unwrap();
        let cookie = cookie.split(';').next().unwrap().to_owned();
        let page = self.send("GET", "/", &[("Cookie", &cookie)], &Value::Null).await;
        assert_eq!(page.status().as_u16(), 200);
        let page = text_of(page).await;
        let csrf = page.split_once("name=\"csrf\" content=\"").unwrap().1.split_once('"').unwrap().0.to_owned();
        Browser { cookie, csrf }
    }

    /// Signs in by a new token with these scopes.
    pub(crate) async fn sign_in_as<const N: usize>(&self, token: &str, scopes: [Scope; N]) -> Browser {
        self.tokens.add(TokenSpec::new(token, scopes)).unwrap();
        self.sign_in(&json!({ "token": token })).await
    }

    /// Reads as a page of the browser does.
    pub(crate) async fn get(&self, browser: &Browser, path: &str) -> Response {
        self.send("GET", path, &[("Cookie", &browser.cookie), ("Sec-Fetch-Site", "same-origin")], &Value::Null).await
    }

    /// Changes something as a page of the browser does.
    pub(crate) async fn post(&self, browser: &Browser, path: &str, body: &Value) -> Response {
        let headers = [
            ("Cookie", &*browser.cookie),
            ("Origin", &*self.origin),
            ("Sec-Fetch-Site", "same-origin"),
            ("X-Callboard-Csrf", &*browser.csrf),
        ];
        self.send("POST", path, &headers, body).await
    }

    /// Whether the browser is signed in, by a route of the API and by the page.
    async fn is_signed_in(&self, browser: &Browser) -> bool {
        let status = self.get(browser, "/v1/agents").await.status().as_u16();
        assert_eq!(self.get(browser, "/").await.status().as_u16(), status);
        status == 200
    }
}

fn code(answer: &Response) -> u16 {
    answer.status().as_u16()
}

/// A task for a waiter.
fn task() -> Value {
    json!({ "to": "waiter", "body": "x" })
}

/// In a time that a test waits for at most.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(600), future).await.expect("it has not ended")
}

#[tokio::test]
async fn a_link_signs_in_once_and_within_five_minutes() {
    let folder = tempfile::tempdir().unwrap();
    let pages = Pages::start(&folder).await;
    let (_, link) = pages.client.request("POST", "/v1/sign-in", Some(&json!({}))).await.unwrap();
    assert_eq!(
        (&link["name"], &link["person"], &link["expires_at"]),
        (&json!("owner"), &Value::Null, &json!("1970-01-01T00:21:40.000Z"))
    );
    let secret = link["url"].as_str().unwrap().split_once('#').unwrap().1.to_owned();
    for guess in
        ["", "cbt_", &secret[1..], &secret.to_uppercase(), &format!("{secret} "), &format!("cbt_{}", "0".repeat(64))]
    {
        assert_eq!(code(&pages.use_link(guess, &[]).await), 401, "{guess:?}");
    }
    let page = pages.send("GET", "/sign-in?next=//evil.example", &[], &Value::Null).await;
    assert_eq!((code(&page), page.headers().get("location")), (200, None));
    assert!(!text_of(page).await.contains("evil"));
    let answer = pages.use_link(&secret, &[]).await;
    assert_eq!(code(&answer), 204);
    let cookie = answer.headers()["set-cookie"].to_str().unwrap();
    assert!(cookie.starts_with("callboard-session=cbt_"), "{cookie}");
    assert!(cookie.ends_with("; Path=/; Max-Age=604800; HttpOnly; SameSite=Strict"), "{cookie}");
    assert!(!cookie.contains(&secret), "the session has a secret of its own");
    assert_eq!(code(&pages.use_link(&secret, &[]).await), 401, "it was used");
    let late = pages.link(&json!({})).await;
    pages.clock.forward(MINUTE * 5);
    assert_eq!(code(&pages.use_link(&late, &[]).await), 401);
    let unknown = pages.client.request("POST", "/v1/sign-in", Some(&json!({ "token": "nobody" }))).await.unwrap();
    assert_eq!((unknown.0, &unknown.1["detail"]), (404, &json!("there is no token nobody")));
    pages.end().await;
}

#[tokio::test]
async fn a_link_is_used_by_a_page_of_the_server_alone() {
    let folder = tempfile::tempdir().unwrap();
    let pages = Pages::start(&folder).await;
    let secret = pages.link(&json!({})).await;
    let none = pages.send("POST", "/sign-in", &[], &json!({ "secret": secret })).await;
    assert_eq!(code(&none), 403, "without an origin");
    for origin in
        ["http://evil.example", "null", "http://localhost:7420", "http://127.0.0.1:7420", &format!("{}1", pages.origin)]
    {
        assert_eq!(code(&pages.use_link(&secret, &[("Origin", origin)]).await), 403, "{origin}");
    }
    let own = ("Origin", &*pages.origin);
    for site in ["cross-site", "same-site", "x"] {
        assert_eq!(code(&pages.use_link(&secret, &[own, ("Sec-Fetch-Site", site)]).await), 403, "{site}");
    }
    for host in ["127.0.0.1:7420", "localhost:7420"] {
        let headers = [("Host", host), own];
        assert_eq!(code(&pages.send("POST", "/sign-in", &headers, &json!({ "secret": secret })).await), 404, "{host}");
    }
    assert_eq!(code(&pages.send("GET", "/sign-out", &[], &Value::Null).await), 405);
    assert_eq!(code(&pages.use_link(&"x".repeat(1024), &[]).await), 413, "nobody is known who sends it");
    assert_eq!(code(&pages.use_link(&secret, &[]).await), 204, "none of these has used it up");
    pages.end().await;
}

#[tokio::test]
async fn links_are_made_for_processes_of_this_user_alone() {
    let folder = tempfile::tempdir().unwrap();
    let pages = Pages::start(&folder).await;
    let (admin, browser) =
        (pages.tokens.add(TokenSpec::new("root", Scope::ALL)).unwrap(), pages.sign_in(&json!({})).await);
    for method in ["POST", "DELETE"] {
        let bearer = [("Authorization", &*format!("Bearer {admin}"))];
        assert_eq!(code(&pages.send(method, "/v1/sign-in", &bearer, &Value::Null).await), 404);
    }
    assert_eq!(code(&pages.post(&browser, "/v1/sign-in", &json!({})).await), 404);
    let other = Server::new(pages.board.clone(), Tokens::new(Env::system()));
    assert_eq!(other.pages(), None);
    for path in ["/", "/sign-in", "/session", "/parts/overview"] {
        let request = Request::builder().uri(path).header("Host", "localhost").body(Body::empty()).unwrap();
        assert_eq!(code(&other.router().oneshot(request).await.unwrap()), 404, "a server without pages");
    }
    pages.end().await;
}

#[tokio::test]
async fn a_session_is_that_of_its_token_and_ends_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let pages = Pages::start(&folder).await;
    let spec = TokenSpec::new("ann", [Scope::Read]).lifetime(HOUR);
    pages.tokens.add(spec).unwrap();
    pages.tokens.add(TokenSpec::new("ben", [Scope::Delegate])).unwrap();
    let [ann, again] =
        [pages.sign_in(&json!({ "token": "ann" })).await, pages.sign_in(&json!({ "token": "ann" })).await];
    let owner = pages.sign_in(&json!({})).await;
    assert_eq!(code(&pages.get(&ann, "/v1/agents").await), 200);
    let refused = pages.post(&ann, "/v1/delegations", &task()).await;
    assert_eq!(
        (code(&refused), text_of(refused).await.contains("the token ann does not have the scope delegate")),
        (403, true)
    );
    let begun = pages.post(&owner, "/v1/delegations", &task()).await;
    assert_eq!(code(&begun), 202);
    assert_eq!(serde_json::from_str::<Value>(&text_of(begun).await).unwrap()["from_agent"], "owner");
    let secret = pages.link(&json!({ "token": "ben" })).await;
    let cookie = pages.use_link(&secret, &[]).await.headers()["set-cookie"]
        .to_str()
        .unwrap()
        .split(';')
        .next()
        .unwrap()
        .to_owned();
    let ben = Browser { cookie, csrf: String::new() };
    let page = pages.get(&ben, "/").await;
    assert_eq!(code(&page), 403);
    let page = text_of(page).await;
    assert!(page.contains("does not have the scope") && !page.contains("running"), "{page}");
    let late = pages.link(&json!({ "token": "ben" })).await;
    pages.tokens.revoke("ben").unwrap();
    assert_eq!(code(&pages.use_link(&late, &[]).await), 401, "its link ends too");
    assert!(!pages.is_signed_in(&ben).await, "it was revoked");
    pages.tokens.revoke("ann").unwrap();
    assert!(!pages.is_signed_in(&ann).await);
    pages.tokens.add(TokenSpec::new("eve", [Scope::Read]).lifetime(HOUR)).unwrap();
    let eve = pages.sign_in(&json!({ "token": "eve" })).await;
    pages.clock.forward(HOUR);
    assert!(!pages.is_signed_in(&eve).await, "it has expired");
    assert!(!pages.is_signed_in(&again).await && pages.is_signed_in(&owner).await);
    pages.end().await;
}

#[tokio::test]
async fn what_changes_something_needs_the_origin_and_the_text_of_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let pages = Pages::start(&folder).await;
    let (browser, other) = (pages.sign_in(&json!({})).await, pages.sign_in(&json!({})).await);
    assert_ne!(browser.csrf, other.csrf);
    let (cookie, origin) = (("Cookie", &*browser.cookie), ("Origin", &*pages.origin));
    let csrf = ("X-Callboard-Csrf", &*browser.csrf);
    let wrong: &[&[(&str, &str)]] = &[
        &[cookie],
        &[cookie, csrf],
        &[cookie, origin],
        &[cookie, origin, ("X-Callboard-Csrf", "")],
        &[cookie, origin, ("X-Callboard-Csrf", &other.csrf)],
        &[cookie, origin, ("X-Callboard-Csrf", &browser.csrf[1..])],
        &[cookie, origin, csrf, csrf],
        &[cookie, csrf, ("Origin", "http://evil.example")],
        &[cookie, csrf, ("Origin", "null")],
        &[cookie, csrf, ("Origin", "http://localhost:7420")],
        &[cookie, csrf, ("Origin", pages.origin.trim_end_matches("20"))],
        &[cookie, origin, csrf, ("Sec-Fetch-Site", "cross-site")],
        &[cookie, origin, csrf, ("Sec-Fetch-Site", "same-site")],
    ];
    for headers in wrong {
        for path in ["/v1/delegations", "/sign-out"] {
            let refused = pages.send("POST", path, headers, &task()).await;
            assert_eq!(code(&refused), 403, "{path} {headers:?}");
            assert!(text_of(refused).await.contains("\"foreign-origin\""));
        }
    }
    let read = [cookie, ("Sec-Fetch-Site", "cross-site")];
    assert_eq!(code(&pages.send("GET", "/v1/agents", &read, &Value::Null).await), 403);
    for method in ["PUT", "PATCH", "DELETE"] {
        let path = if method == "PATCH" { "/v1/delegations/x" } else { "/v1/context/notes/a" };
        assert_eq!(code(&pages.send(method, path, &[cookie, origin], &json!({})).await), 403, "{method}");
    }
    assert_eq!(pages.board.runs_at_work().len(), 0, "nothing was done");
    assert_eq!(code(&pages.post(&browser, "/v1/delegations", &task()).await), 202);
    assert!(pages.is_signed_in(&browser).await);
    pages.end().await;
}

#[tokio::test]
async fn a_cookie_counts_on_the_host_of_the_pages_and_below_v1_alone() {
    let folder = tempfile::tempdir().unwrap();
    let pages = Pages::start(&folder).await;
    let browser = pages.sign_in(&json!({})).await;
    let cookie = ("Cookie", &*browser.cookie);
    let with = async |headers: &[(&str, &str)], path: &str| {
        let answer = pages.send("GET", path, headers, &Value::Null).await;
        (code(&answer), text_of(answer).await)
    };
    for host in ["127.0.0.1:7420", "localhost:7420", "[::1]:7420", "localhost"] {
        assert_eq!(with(&[("Host", host), cookie], "/v1/agents").await.0, 401, "{host}");
        let (status, page) = with(&[("Host", host), cookie], "/").await;
        assert_eq!(status, 200);
        assert!(page.contains("callboard sign-in") && !page.contains("running") && !page.contains("cb-"), "{page}");
    }
    let name = pages.host().split_once('.').unwrap().0;
    for host in [
        format!("{name}.localhost"),
        format!("{name}.localhost:7421"),
        format!("x.{}", pages.host()),
        "evil.example".to_owned(),
    ] {
        for path in ["/v1/agents", "/"] {
            assert_eq!(with(&[("Host", &host), cookie], path).await.0, 403, "{host}");
        }
    }
    assert_eq!(with(&[cookie], "/mcp").await.0, 401);
    assert_eq!(with(&[cookie], "/delegation-status?id=x").await.0, 401);
    assert_eq!(with(&[cookie], "/v1/agents").await.0, 200);
    // A header that names a token is used alone, whatever the cookie allows.
    let reader = format!("Bearer {}", pages.tokens.add(TokenSpec::new("ci", [Scope::Delegate])).unwrap());
    assert_eq!(with(&[cookie, ("Authorization", &reader)], "/v1/agents").await.0, 403);
    assert_eq!(with(&[cookie, ("Authorization", "Bearer x")], "/v1/agents").await.0, 401);
    assert_eq!(with(&[cookie, ("Authorization", "")], "/v1/agents").await.0, 401);
    // Another host may have set one of two.
    assert_eq!(with(&[cookie, ("Cookie", "callboard-session=x")], "/v1/agents").await.0, 401);
    assert_eq!(
        with(&[("Cookie", &browser.cookie.replace("callboard-session", "__Host-callboard-session"))], "/v1/agents")
            .await
            .0,
        401
    );
    let guessed = ["", "x", "cbt_", &"0".repeat(64)].map(|secret| format!("callboard-session={secret}"));
    for guessed in &guessed {
        assert_eq!(with(&[("Cookie", guessed)], "/v1/agents").await.0, 401);
    }
    pages.end().await;
}

#[tokio::test]
async fn each_sign_in_is_a_new_session_whatever_the_browser_had() {
    let folder = tempfile::tempdir().unwrap();
    let pages = Pages::start(&folder).await;
    let planted = format!("callboard-session=cbt_{}", "a".repeat(64));
    let secret = pages.link(&json!({})).await;
    let answer = pages.use_link(&secret, &[("Cookie", &planted)]).await;
    assert!(!answer.headers()["set-cookie"].to_str().unwrap().contains(&"a".repeat(64)));
    let fixed = Browser { cookie: planted, csrf: String::new() };
    assert!(!pages.is_signed_in(&fixed).await);
    let first = pages.sign_in(&json!({})).await;
    let secret = pages.link(&json!({})).await;
    assert_eq!(code(&pages.use_link(&secret, &[("Cookie", &first.cookie)]).await), 204);
    assert!(!pages.is_signed_in(&first).await, "the one before has ended");
    pages.end().await;
}

#[tokio::test]
async fn a_session_ends_without_use_and_after_a_week() {
    let folder = tempfile::tempdir().unwrap();
    let pages = Pages::start(&folder).await;
    let (used, idle) = (pages.sign_in(&json!({})).await, pages.sign_in(&json!({})).await);
    pages.clock.forward(HOUR * 11);
    assert!(pages.is_signed_in(&used).await);
    pages.clock.forward(HOUR);
    assert!(!pages.is_signed_in(&idle).await);
    for _ in 0..15 {
        pages.clock.forward(HOUR * 10);
        assert!(pages.is_signed_in(&used).await);
    }
    pages.clock.forward(HOUR * 6);
    assert!(!pages.is_signed_in(&used).await);
    pages.end().await;
}

#[tokio::test]
async fn people_stay_signed_in_when_the_server_starts_again() {
    let folder = tempfile::tempdir().unwrap();
    let pages = Pages::start(&folder).await;
    let (stays, leaves) = (pages.sign_in(&json!({})).await, pages.sign_in(&json!({})).await);
    assert_eq!(code(&pages.post(&leaves, "/sign-out", &Value::Null).await), 204);
    let (link, origin) = (pages.link(&json!({})).await, pages.origin.clone());
    pages.end().await;
    for name in ["sessions.json", "pages-host"] {
        let file = folder.path().join("service").join(name);
        assert_eq!(mode(&file), 0o600, "{name}");
        assert!(!std::fs::read_to_string(file).unwrap().contains(stays.cookie.split_once("cbt_").unwrap().1));
    }
    let pages = Pages::start(&folder).await;
    assert_eq!(pages.origin, origin, "bookmarks stay valid");
    assert!(pages.is_signed_in(&stays).await && !pages.is_signed_in(&leaves).await);
    assert_eq!(code(&pages.post(&stays, "/v1/delegations", &task()).await), 202, "its page is still open");
    assert_eq!(code(&pages.use_link(&link, &[]).await), 401, "links are in memory");
    let (_, ended) = pages.client.request("DELETE", "/v1/sign-in", None).await.unwrap();
    assert_eq!(ended, json!({ "links": 0, "sessions": 1 }));
    assert!(!pages.is_signed_in(&stays).await);
    pages.end().await;
}

fn mode(file: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    file.metadata().unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn event_streams_end_with_their_session() {
    let folder = tempfile::tempdir().unwrap();
    let pages = Pages::start(&folder).await;
    pages.tokens.add(TokenSpec::new("ann", Scope::ALL)).unwrap();
    let stream = async |browser: &Browser| {
        let answer = pages.get(browser, "/v1/agents/waiter/events").await;
        assert_eq!(code(&answer), 200);
        answer.into_body().into_data_stream()
    };
    let left = pages.sign_in(&json!({})).await;
    let mut leaving = stream(&left).await;
    let expiring = stream(&pages.sign_in(&json!({})).await).await;
    let other = pages.sign_in(&json!({})).await;
    assert_eq!(code(&pages.post(&left, "/sign-out", &Value::Null).await), 204);
    assert!(soon(leaving.next()).await.is_none());
    assert!(!pages.is_signed_in(&left).await && pages.is_signed_in(&other).await);
    let of_token = stream(&pages.sign_in(&json!({ "token": "ann" })).await).await;
    pages.tokens.revoke("ann").unwrap();
    soon(of_token.for_each(|_| std::future::ready(()))).await;
    let revoked = stream(&other).await;
    pages.client.request("DELETE", "/v1/sign-in", None).await.unwrap();
    soon(revoked.for_each(|_| std::future::ready(()))).await;
    // By the clock of the server, which the stream looks at every 2 s.
    drop(expiring);
    let expiring = stream(&pages.sign_in(&json!({})).await).await;
    tokio::time::pause();
    pages.clock.forward(HOUR * 12);
    let begin = Env::repeatable(1);
    soon(expiring.for_each(|_| std::future::ready(()))).await;
    assert!(begin.now().monotonic <= Duration::from_secs(2), "of virtual time");
    tokio::time::resume();
    pages.end().await;
}

#[tokio::test]
async fn pages_cannot_be_framed_or_kept_and_load_files_of_the_server_alone() {
    let folder = tempfile::tempdir().unwrap();
    let pages = Pages::start(&folder).await;
    let browser = pages.sign_in(&json!({})).await;
    let mut assets = BTreeSet::new();
    for (method, path, host) in [
        ("GET", "/", pages.host()),
        ("HEAD", "/", pages.host()),
        ("GET", "/sign-in", pages.host()),
        ("GET", "/parts/overview", pages.host()),
        ("GET", "/nothing", pages.host()),
        ("GET", "/v1/agents", pages.host()),
        ("GET", "/", "127.0.0.1:7420"),
        ("GET", "/", "evil.example"),
    ] {
        let answer = pages.send(method, path, &[("Host", host), ("Cookie", &browser.cookie)], &Value::Null).await;
        let header =
            |name: &str| answer.headers().get(name).map(|it| it.to_str().unwrap().to_owned()).unwrap_or_default();
        let policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
        let names = [
            "content-security-policy",
            "x-content-type-options",
            "referrer-policy",
            "cache-control",
            "cross-origin-opener-policy",
            "x-frame-options",
        ];
        let values = [policy, "nosniff", "no-referrer", "no-store", "same-origin", "DENY"];
        assert_eq!(names.map(header), values, "{method} {path} of {host}");
        assert_eq!(answer.headers().get("access-control-allow-origin"), None);
        let text = text_of(answer).await;
        assert!(method == "GET" || text.is_empty());
        assert!(!text.contains(" style=") && !text.contains("<style") && !text.contains(" onclick"), "{text}");
        let linked = text.split(['"', '\'']).filter(|part| part.starts_with("/assets/"));
        assets.extend(linked.map(str::to_owned));
    }
    assert_eq!(assets.len(), 3, "{assets:?}");
    for path in &assets {
        let asset = pages.send("GET", path, &[], &Value::Null).await;
        assert_eq!(
            (code(&asset), &asset.headers()["cache-control"]),
            (200, &"public, max-age=31536000, immutable".parse().unwrap()),
            "{path}"
        );
        assert_eq!(asset.headers()["x-content-type-options"], "nosniff");
    }
    assert_eq!(code(&pages.send("GET", "/assets/style.css", &[], &Value::Null).await), 404);
    let nobody = pages.send("GET", "/", &[], &Value::Null).await;
    assert_eq!(code(&nobody), 401);
    let nobody = text_of(nobody).await;
    assert!(
        nobody.contains("callboard sign-in") && !nobody.contains("running") && !nobody.contains("csrf"),
        "{nobody}"
    );
    pages.end().await;
}

#[tokio::test]
async fn over_https_the_cookie_is_secure_and_has_the_prefix_of_one_host() {
    let folder = tempfile::tempdir().unwrap();
    let pages = Pages::at(&folder, &PagesAt::Origin("https://Agents.example.org".to_owned())).await;
    assert_eq!(pages.origin, "https://agents.example.org");
    let secret = pages.link(&json!({})).await;
    let answer = pages.use_link(&secret, &[]).await;
    let cookie = answer.headers()["set-cookie"].to_str().unwrap();
    assert!(cookie.starts_with("__Host-callboard-session=cbt_"), "{cookie}");
    assert!(cookie.ends_with("; Path=/; Max-Age=604800; HttpOnly; SameSite=Strict; Secure"), "{cookie}");
    let browser = pages.sign_in(&json!({})).await;
    assert_eq!(code(&pages.post(&browser, "/v1/delegations", &task()).await), 202);
    let insecure =
        [("Cookie", &*browser.cookie), ("Origin", "http://agents.example.org"), ("X-Callboard-Csrf", &*browser.csrf)];
    assert_eq!(code(&pages.send("POST", "/v1/delegations", &insecure, &task()).await), 403);
    pages.end().await;
}

#[tokio::test]
async fn what_a_session_does_is_in_the_audit_log() {
    let folder = tempfile::tempdir().unwrap();
    let pages = Pages::start(&folder).await;
    pages.tokens.add(TokenSpec::new("ann", [Scope::Read, Scope::Delegate])).unwrap();
    let browser = pages.sign_in(&json!({ "token": "ann" })).await;
    pages.post(&browser, "/v1/delegations", &task()).await;
    pages.use_link("cbt_0", &[]).await;
    pages.post(&browser, "/sign-out", &Value::Null).await;
    pages.end().await;
    let lines = |name: &str| {
        let text = std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(!text.contains("cbt_"), "{text}");
        let line = |line: &str| {
            let line: Value = serde_json::from_str(line).unwrap();
            ["who", "method", "path", "status"].map(|key| line[key].clone())
        };
        text.lines().map(line).collect::<Vec<_>>()
    };
    assert_eq!(
        lines("audit.jsonl"),
        [
            [json!("owner"), json!("POST"), json!("/v1/sign-in"), json!(200)],
            [json!("ann"), json!("POST"), json!("/sign-in"), json!(204)],
            [json!("ann"), json!("POST"), json!("/v1/delegations"), json!(202)],
            [json!("ann"), json!("POST"), json!("/sign-out"), json!(204)],
        ]
    );
    assert_eq!(lines("audit.jsonl.refused"), [[Value::Null, json!("POST"), json!("/sign-in"), json!(401)]]);
}

/// The row of the overview with this id.
fn row<'p>(page: &'p str, id: &str) -> Option<&'p str> {
    page.split("<li ").find(|row| row.contains(&format!("data-id=\"{id}\"")))
}

#[tokio::test]
async fn the_overview_has_what_waits_and_a_decision_counts_once() {
    let folder = tempfile::tempdir().unwrap();
    let pages = Pages::start(&folder).await;
    pages.tokens.add(TokenSpec::new("ann", [Scope::Read])).unwrap();
    let (owner, ann) = (pages.sign_in(&json!({})).await, pages.sign_in(&json!({ "token": "ann" })).await);
    let page = async |browser: &Browser, path: &str| text_of(pages.get(browser, path).await).await;
    let empty = page(&owner, "/").await;
    assert!(empty.contains("2 agents running") && empty.contains("0 waiting for you"), "{empty}");
    let run = pages.board.submit(Task::new("x").to("asker")).await.unwrap();
    let id = run.next_pending().await.unwrap().unwrap().id().to_string();
    for path in ["/", "/parts/overview"] {
        let shown = page(&owner, path).await;
        assert!(shown.contains("1 waiting for you"), "{shown}");
        let row = row(&shown, &id).unwrap();
        assert!(row.contains("who?") && row.contains("<textarea") && row.contains("<time datetime=\""), "{row}");
    }
    let looked = page(&ann, "/").await;
    assert!(row(&looked, &id).is_some_and(|row| !row.contains("<button") && !row.contains("<form")), "{looked}");
    assert!(page(&owner, &format!("/parts/whole?id={}", id.replace('/', "%2F"))).await.contains("who?"));
    assert_eq!(code(&pages.get(&owner, "/parts/whole?id=x").await), 404);

    let path = format!("/v1/pending/{}", id.replace('/', "%2F"));
    let answer = json!({ "response": "answer", "value": "ann" });
    assert_eq!(code(&pages.post(&ann, &path, &answer).await), 403);
    let first = pages.post(&owner, &path, &answer).await;
    assert_eq!(serde_json::from_str::<Value>(&text_of(first).await).unwrap()["by"], "owner");
    let second = pages.post(&owner, &path, &answer).await;
    assert_eq!(code(&second), 409);
    assert!(text_of(second).await.contains("already answered by owner at "));
    run.result().await.unwrap();
    assert!(page(&owner, "/").await.contains("0 waiting for you"));
    pages.end().await;
}

#[tokio::test]
async fn an_approval_shows_what_an_edit_changes_words_that_look_like_others_and_what_its_run_has_used() {
    let folder = tempfile::tempdir().unwrap();
    let edits = |turn: Turn| async move {
        turn.reserve(2_000).await?.settle(Usage::of(1_000, 200));
        let arguments = json!({ "path": "src/m\u{430}in.rs", "old": "one\n<b>two\n", "new": "one\nthree\n" });
        let rule = Some("each write".into());
        let said = Rationale::from("the tests\nneed <b>it</b>");
        let rationale = Rationale { effect: Some(Effect::Writes), tier: Some("dynamic".into()), rule, ..said };
        let action = Action::new("FileWrite", "src/m\u{430}in.rs", arguments);
        turn.people().because(rationale).approve(action).await?;
        Ok(Command::output(1))
    };
    let gives = |turn: Turn| async move { Ok(Command::output(turn.delegate("edits", "x").await?)) };
    let builder = Callboard::builder().agent("edits", edits).agent("gives", gives);
    let pages = Pages::of(&folder, &PagesAt::Loopback { port: 7420, has_tls: false }, builder).await;
    let owner = pages.sign_in(&json!({})).await;
    pages.board.submit(Task::new("x").to("gives")).await.unwrap();
    let id = pages.board.people().next().await.unwrap().id().to_string();
    let shown = text_of(pages.get(&owner, "/").await).await;
    let row = row(&shown, &id).unwrap();
    for part in [
        "<pre class=\"text difference\">  one\n<del>- &lt;b&gt;two\n</del><ins>+ three\n</ins></pre>",
        "<code>m\\u{430}in</code> looks like <code>main</code>, and is not",
        "<dt>Chain</dt><dd><bdi>gives → edits</bdi></dd>",
        "<dt>So far</dt><dd>1200 tokens</dd>",
        "In the agent's own words:</p><blockquote dir=\"auto\">the tests need &lt;b&gt;it&lt;/b&gt;</blockquote>",
        "<dt>Effect</dt><dd>writes, by a dynamic agent</dd>",
        "<dt>Rule</dt><dd>each write</dd>",
    ] {
        assert!(row.contains(part), "{part} is not in {row}");
    }
    let item = text_of(pages.get(&owner, &format!("/v1/inbox/{id}")).await).await;
    let item: Value = serde_json::from_str(&item).unwrap();
    assert_eq!(item["difference"], "  one\n- <b>two\n+ three\n");
    assert_eq!(item["chain"], "gives → edits");
    assert!(item["card"].as_str().unwrap().contains("looks     m\\u{430}in looks like main, and is not\n"), "{item}");
    pages.end().await;
}

#[tokio::test]
async fn whoever_decides_about_a_write_sees_what_it_changes_in_the_file_as_it_is_now() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("notes.md");
    std::fs::write(&file, "one\n<b>two\n").unwrap();
    let writes = |turn: Turn| async move {
        for name in ["FileWrite", "mcp__other__FileWrite"] {
            let arguments = json!({ "path": "notes.md", "content": "one\nthree\n" });
            turn.people().approve(Action::new(name, "notes.md", arguments)).await?;
        }
        Ok(Command::output(1))
    };
    let builder = Callboard::builder().agent("writes", writes);
    let pages = Pages::of(&folder, &PagesAt::Loopback { port: 7420, has_tls: false }, builder).await;
    pages.tokens.add(TokenSpec::new("ann", [Scope::Read])).unwrap();
    let (owner, ann) = (pages.sign_in(&json!({})).await, pages.sign_in(&json!({ "token": "ann" })).await);
    pages.board.submit(Task::new("x").to("writes")).await.unwrap();
    let first = pages.board.people().next().await.unwrap().id();
    let page = async |session: &Browser| text_of(pages.get(session, "/").await).await;
    let item = async |session: &Browser, id: PendingId| -> Value {
        serde_json::from_str(&text_of(pages.get(session, &format!("/v1/inbox/{id}")).await).await).unwrap()
    };
    let shown = "What changes in the file, as it is now: 1 line removed, 1 line added</p><pre class=\"text difference\">  one\n<del>- &lt;b&gt;two\n</del><ins>+ three\n</ins></pre>";
    assert!(page(&owner).await.contains(shown));
    assert_eq!(item(&owner, first).await["difference"], "  one\n- <b>two\n+ three\n");
    // Who may not decide reads no files by it.
    assert!(!page(&ann).await.contains("two"));
    assert_eq!(item(&ann, first).await["difference"], Value::Null);
    std::fs::write(&file, "one\nthree\nfour\n").unwrap();
    pages.clock.forward(Duration::from_secs(3));
    assert_eq!(item(&owner, first).await["difference"], "  one\n  three\n- four\n");
    for (bytes, note) in [
        (Some(&[0_u8, 1][..]), "What is there now cannot be compared: \"notes.md\" is no text: byte 1 is NUL"),
        (Some(b"one\nthree\n"), "The file has this text already."),
        (
            Some(&[b'x'; 300_000]),
            "All of the file is replaced, 300000 characters: the texts are too long to be compared.",
        ),
        (None, "There is no such file yet, or it is empty."),
    ] {
        std::fs::remove_file(&file).unwrap();
        bytes.map_or(Ok(()), |bytes| std::fs::write(&file, bytes)).unwrap();
        pages.clock.forward(Duration::from_secs(3));
        let item = item(&owner, first).await;
        let shown = item["difference_note"].as_str().unwrap_or_default();
        assert!(shown.starts_with(note) && shown.is_empty() == note.is_empty(), "{shown}");
        assert!(page(&owner).await.contains(&note.replace('"', "&quot;")));
    }
    // Another tool of almost the same name replaces nothing that is known here.
    std::fs::write(&file, "one\n").unwrap();
    pages.board.people().answer(first, Answered::Approve, "owner").await.unwrap();
    let second = pages.board.people().next_where(|open| open.id() != first).await.unwrap().id();
    assert_eq!(item(&owner, second).await["difference"], Value::Null);
    pages.end().await;
}

#[tokio::test]
async fn what_has_failed_is_on_the_overview_and_is_decided_there() {
    let folder = tempfile::tempdir().unwrap();
    let down = |_: Turn| async { Err::<Command, _>(TurnError::terminal("<b>it is down</b>")) };
    let builder = Callboard::builder().agent("down", down);
    let pages = Pages::of(&folder, &PagesAt::Loopback { port: 7420, has_tls: false }, builder).await;
    pages.tokens.add(TokenSpec::new("ann", [Scope::Read])).unwrap();
    let (owner, ann) = (pages.sign_in(&json!({})).await, pages.sign_in(&json!({ "token": "ann" })).await);
    let run = pages.board.submit(Task::new("call \u{202e}them").to("down")).await.unwrap();
    run.result().await.unwrap();
    let page = async |browser: &Browser| text_of(pages.get(browser, "/").await).await;
    let (id, shown) = (format!("letter:{}/1", run.id()), page(&owner).await);
    let of_letter = row(&shown, &id).unwrap();
    assert!(shown.contains("0 waiting for you") && shown.contains("1 failed"), "{shown}");
    assert!(of_letter.contains("Dead letter"), "{of_letter}");
    assert!(of_letter.contains("turn 1 failed: &lt;b&gt;it is down"), "{of_letter}");
    assert!(of_letter.contains("call \\u{202e}them"), "{of_letter}");
    assert!(of_letter.contains("data-response=\"retry\"") && of_letter.contains("data-opens=\"drop\""), "{of_letter}");
    assert!(row(&page(&ann).await, &id).is_some_and(|row| !row.contains("<button")));
    let drop = json!({ "decisions": [{ "id": id, "response": "drop", "reason": "known" }] });
    let refused = text_of(pages.post(&ann, "/v1/inbox/decisions", &drop).await).await;
    assert!(refused.contains("missing-scope"), "{refused}");
    let dropped = text_of(pages.post(&owner, "/v1/inbox/decisions", &drop).await).await;
    assert!(dropped.contains("\"by\":\"owner\""), "{dropped}");
    assert!(page(&owner).await.contains("0 failed"));
    pages.end().await;
}

#[tokio::test]
async fn a_stream_reports_that_the_overview_has_changed() {
    let folder = tempfile::tempdir().unwrap();
    let pages = Pages::start(&folder).await;
    let browser = pages.sign_in(&json!({})).await;
    let answer = pages.get(&browser, "/parts/events").await;
    assert_eq!((code(&answer), &answer.headers()["content-type"]), (200, &"text/event-stream".parse().unwrap()));
    let mut events = answer.into_body().into_data_stream();
    let mut next = async || String::from_utf8(soon(events.next()).await.unwrap().unwrap().to_vec()).unwrap();
    assert_eq!(next().await, "event: changed\ndata: overview\n\n");
    pages.board.submit(Task::new("x").to("asker")).await.unwrap();
    assert_eq!(next().await, "event: changed\ndata: overview\n\n");
    pages.end().await;
}

#[tokio::test]
async fn the_overview_is_small_and_reads_each_run_that_it_shows_once_however_many_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Counted::default());
    let builder = Callboard::builder()
        .agent("echo", |_: Turn| async move { Ok(Command::output(1)) })
        .agent("poser", |turn: Turn| async move {
            let question = turn.input_json().value().to_string();
            Ok(Command::output(turn.people().ask(question).await?))
        })
        .storage(Arc::clone(&store))
        .capacity(|it| it.runs_in_flight(200));
    let pages = Pages::of(&folder, &PagesAt::Loopback { port: 7420, has_tls: false }, builder).await;
    let browser = pages.sign_in(&json!({})).await;
    for _ in 0..30 {
        pages.board.submit(Task::new("x").to("echo")).await.unwrap().result().await.unwrap();
    }
    for _ in 0..100 {
        let run = pages.board.submit(Task::new(&"\"<&\u{202e}".repeat(5_000)).to("poser")).await.unwrap();
        run.next_pending().await.unwrap();
    }
    store.reads();
    let page = text_of(pages.get(&browser, "/").await).await;
    let first = store.reads();
    assert!((20..=60).contains(&first), "{first} reads for 20 rows");
    pages.get(&browser, "/").await;
    assert_eq!(store.reads(), 1, "the list of failures");
    assert!(page.contains("100 waiting for you") && page.contains("more characters"));
    let mut size = page.len();
    for path in page.split('"').filter(|part| part.starts_with("/assets/")) {
        let file = pages.send("GET", path, &[("Accept-Encoding", "br, gzip;q=0.5")], &Value::Null).await;
        assert_eq!(file.headers()["content-encoding"], "gzip");
        size += to_bytes(file.into_body(), usize::MAX).await.unwrap().len();
        for refused in ["", "br", "gzip;q=0"] {
            let file = pages.send("GET", path, &[("Accept-Encoding", refused)], &Value::Null).await;
            assert!(!file.headers().contains_key("content-encoding"), "{refused}");
        }
    }
    assert!(size < 60 * 1024, "{size} bytes");
    pages.end().await;
}

#[tokio::test]
async fn a_browser_that_asks_for_what_is_not_there_gets_a_page_and_short_ids_lead_to_every_page_of_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let pages = Pages::start(&folder).await;
    let owner = pages.sign_in(&json!({})).await;
    let cookie = ("Cookie", &*owner.cookie);
    let asked = async |path: &str, accept: &str| {
        let answer = pages
            .send("GET", path, &[cookie, ("Accept", accept), ("Sec-Fetch-Site", "same-origin")], &Value::Null)
            .await;
        (answer.status().as_u16(), text_of(answer).await)
    };
    let (status, page) = asked("/nope/%3Cb%3E", "text/html,*/*").await;
    assert!(
        status == 404 && page.contains("There is no page /nope/") && page.contains("aria-label=\"Pages\""),
        "{page}"
    );
    let (status, problem) = asked("/nope", "*/*").await;
    assert!(status == 404 && problem.starts_with('{'), "{problem}");
    let (status, problem) = asked("/v1/nope", "application/json").await;
    assert!(status == 404 && problem.starts_with('{'), "{problem}");
    let run = pages.board.submit(Task::new("x").to("asker")).await.unwrap();
    run.next_pending().await.unwrap();
    let short = format!("/runs/req-{}", run.id().to_string().rsplit('-').next().unwrap());
    for path in ["/turns/1", "/journal", "/nodes"] {
        assert_eq!(asked(&format!("{short}{path}"), "text/html").await.0, 200, "{path}");
    }
    let (_, turn) = asked(&format!("{short}/turns/1"), "text/html").await;
    assert!(turn.contains("Decide in the overview"), "a turn that waits says for what: {turn}");
    for number in ["-1", "2", "x", "99999999999999999999"] {
        let (status, page) = asked(&format!("{short}/turns/{number}"), "text/html").await;
        assert!(status == 404 && page.contains("the run has no turn"), "{number}: {page}");
    }
    pages.end().await;
}
