//! Requests put together by chance from what routes know and from what nobody would send: each is answered, or its connection is
//! closed, and none does what its answer does not say.

use std::collections::{BTreeMap, BTreeSet};

use callboard_server::{ProblemCode, Scope, Server};
use serde_json::{Map, Value, json};

use crate::campaigns::{Campaign, cases};
use crate::support::client::{Answer, Client};
use crate::support::service::Service;

/// Values for paths, queries, headers and strings of bodies, besides those that exist.
const WORDS: &[&str] = &[
    "",
    "0",
    "1",
    "-1",
    "50",
    "200",
    "201",
    "18446744073709551616",
    "1e400",
    "null",
    "true",
    "x",
    "echo",
    "asker",
    "nobody",
    "owner",
    "finished",
    "running",
    "all",
    "debug",
    "updates,messages",
    "2026-01-31",
    "2026-01-31T12:00:00Z",
    "9999-99-99",
    "%00",
    "%ff",
    "%2F",
    "%2e%2e",
    "..",
    "a/b",
    "a%0d%0ab",
    "é",
    "\u{202e}",
    "{}",
    "[]",
    "*",
    "W/\"1\"",
    "\"1\"",
    "bytes=0-1",
    "simple",
    "complex",
    "019a0000-0000-7000-8000-000000000001",
    "req-000000000000",
    "application/json",
    "text/event-stream",
    "gzip",
    "chunked",
];

const HEADERS: &[&str] = &[
    "Accept",
    "Accept-Encoding",
    "Content-Encoding",
    "Content-Type",
    "Expect",
    "Forwarded",
    "Idempotency-Key",
    "If-Match",
    "If-None-Match",
    "Last-Event-ID",
    "Mcp-Session-Id",
    "MCP-Protocol-Version",
    "Origin",
    "Range",
    "Transfer-Encoding",
    "Upgrade",
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-HTTP-Method-Override",
];

const QUERIES: &[&str] =
    &["id", "limit", "page", "agent", "state", "since", "from", "modes", "prefix", "version", "token", "x"];

const KEYS: &[&str] = &[
    "to",
    "body",
    "workflow",
    "input",
    "limits",
    "deadline_ms",
    "reference",
    "is_untrusted",
    "reason",
    "turn",
    "response",
    "value",
    "values",
    "ttl_secs",
    "toml",
    "line",
    "handoffs",
    "tokens",
    "agents",
    "jsonrpc",
    "method",
    "params",
    "name",
    "arguments",
    "x",
];

/// What requests are put together from.
struct Parts<'a> {
    campaign: &'a Campaign,
    port: u16,
    secret: &'a str,
    /// The ids of delegations that exist.
    ids: Vec<String>,
}

impl Parts<'_> {
    fn one<'v, T: ?Sized>(&self, of: &[&'v T]) -> &'v T {
        of[self.campaign.below(of.len())]
    }

    /// Whether something happens that does so once in so many times.
    fn once_in(&self, times: usize) -> bool {
        self.campaign.below(times) == 0
    }

    fn word(&self) -> String {
        if self.once_in(40) { "x".repeat(1 << self.campaign.below(13)) } else { self.one(WORDS).to_owned() }
    }

    fn id(&self) -> String {
        if self.ids.is_empty() || self.once_in(4) {
            return self.word();
        }
        self.ids[self.campaign.below(self.ids.len())].clone()
    }

    fn value(&self, depth: usize) -> Value {
        match self.campaign.below(if depth == 0 { 6 } else { 8 }) {
            0 => Value::Null,
            1 => json!(self.once_in(2)),
            2 => json!(self.campaign.below(1 << 20)),
            3 => json!(-1.5e300),
            4 | 5 => Value::String(self.word()),
            6 => (0..self.campaign.below(4)).map(|_| self.value(depth - 1)).collect(),
            _ => self.object(depth - 1),
        }
    }

    fn object(&self, depth: usize) -> Value {
        let entries = (0..self.campaign.below(5)).map(|_| (self.one(KEYS).to_owned(), self.value(depth)));
        Value::Object(entries.collect::<Map<_, _>>())
    }

    fn body(&self) -> String {
        let mut body = match self.campaign.below(4) {
            0 => return String::new(),
            1 => json!({ "to": "echo", "body": "x" }),
            _ => self.object(3),
        };
        if self.once_in(3) && body.is_object() {
            body["to"] = json!(self.one(&["echo", "asker", "nobody"]));
            body["body"] = json!(self.word());
        }
        body.to_string()
    }

    fn request(&self) -> Vec<u8> {
        let routes: Vec<_> = Server::routes().collect();
        let route = &routes[self.campaign.below(routes.len())];
        let method =
            if self.once_in(10) { self.one(&["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD"]) } else { route.method };
        let mut path = route.path.to_owned();
        while let (Some(begin), Some(end)) = (path.find('{'), path.find('}')) {
            path.replace_range(begin..=end, &self.id());
        }
        for index in 0..self.campaign.below(3) {
            path += &format!("{}{}={}", if index == 0 { "?" } else { "&" }, self.one(QUERIES), self.word());
        }
        let mut request = format!("{method} {path} HTTP/1.1\r\nHost: localhost:{}\r\nConnection: close\r\n", self.port);
        if !self.once_in(10) {
            request += &format!("Authorization: Bearer {}\r\n", self.secret);
        }
        for _ in 0..self.campaign.below(3) {
            request += &format!("{}: {}\r\n", self.one(HEADERS), self.word());
        }
        let body = self.body();
        if !body.is_empty() {
            request += &format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        }
        let mut bytes = (request + "\r\n" + &body).into_bytes();
        if self.once_in(4) {
            self.damage(&mut bytes);
        }
        bytes
    }

    /// Changes, removes, repeats or adds bytes somewhere.
    fn damage(&self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.campaign.below(4) {
            let at = self.campaign.below(bytes.len().max(1));
            let until = (at + self.campaign.below(16)).min(bytes.len());
            match self.campaign.below(5) {
                0 if at < bytes.len() => bytes[at] ^= 1 << self.campaign.below(8),
                1 => drop(bytes.drain(at..until)),
                2 => bytes.truncate(at),
                3 => bytes.insert(at, self.campaign.below(256) as u8),
                _ => {
                    let part = bytes[at..until].to_vec();
                    bytes.splice(at..at, part);
                }
            }
        }
    }
}

/// What is wrong with an answer.
fn check(request: &[u8], answer: &Answer, secret: &str) -> Result<(), String> {
    // What follows the head of an answer to HEAD is the answer to another request, which the damage to this one has made.
    if answer.status < 400 || answer.body.is_empty() || request.starts_with(b"HEAD ") {
        return Ok(());
    }
    if answer.header("content-type") == Some("application/problem+json") {
        // After damage to the head, the rest may have been read as another request.
        let length = answer.header("content-length").and_then(|length| length.parse().ok());
        let body = length.map_or(Some(&*answer.body), |length| answer.body.get(..length)).unwrap_or_default();
        let problem: Value = serde_json::from_str(body).map_err(|error| error.to_string())?;
        let code = ProblemCode::ALL.iter().find(|code| problem["code"] == code.as_str());
        let code = code.ok_or("its code is in no list")?;
        if code.status().as_u16() != answer.status || *code == ProblemCode::Internal {
            return Err(format!("status {} with the code {}", answer.status, code.as_str()));
        }
    } else if answer.header("content-type") != Some("application/json") {
        return Err("a refusal that is no problem".to_owned());
    }
    if answer.body.contains(secret) { Err("it repeats a token".to_owned()) } else { Ok(()) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_by_chance_do_what_their_answers_say() {
    let mut campaign = Campaign::begin("http");
    let service = Service::start().await;
    let Client { port, secret } = service.client("ci", [Scope::Read, Scope::Delegate]);
    let secret = secret.unwrap();
    let client = Client { port, secret: Some(secret.clone()) };
    let (mut acknowledged, mut statuses) = (BTreeSet::new(), BTreeMap::<u16, u64>::new());
    let mut ids = Vec::new();
    for _ in 0..cases(2_000) {
        let parts = Parts { campaign: &campaign, port, secret: &secret, ids };
        let request = parts.request();
        ids = parts.ids;
        let answer = client.begun(&request).await;
        if answer.status == 202 && answer.header("location").is_some() {
            let id = answer.json()["request_id"].as_str().unwrap().to_owned();
            if ids.len() < 32 {
                ids.push(id.clone());
            }
            acknowledged.insert(id);
        }
        *statuses.entry(answer.status).or_default() += 1;
        let shown = || String::from_utf8_lossy(&request).chars().take(600).collect::<String>();
        campaign.count(check(&request, &answer, &secret).map_err(|why| format!("{why}: {:?}\n{answer:?}", shown())));
    }
    assert_eq!(client.get("/v1/health").await.json(), json!({ "status": "ok" }));
    let runs: BTreeSet<_> = service.board.runs().await.unwrap().iter().map(|run| run.id().to_string()).collect();
    assert_eq!(runs, acknowledged, "the runs are not those that were acknowledged");
    let answered: u64 = statuses.iter().filter(|(status, _)| **status != 0).map(|(_, count)| count).sum();
    // The end of what a client writes comes with its request, and a server that sees both at once closes the connection.
    assert!(answered * 5 > statuses.values().sum::<u64>(), "most of them were not read: {statuses:?}");
    service.end().await;
    campaign.end(format_args!("{} delegations; answers by status {statuses:?}", acknowledged.len()));
}
