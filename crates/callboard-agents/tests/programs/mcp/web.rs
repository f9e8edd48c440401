//! Servers at an address.

use std::process::Stdio;

use callboard::env::Env;
use callboard_agents::{McpServers, Tools};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::peers::{PRELUDE, REVISIONS, failure, offered, reported, servers, use_one};

/// A server of HTTP that answers requests as `serve` does; `handle` may do something else first.
const HTTP: &str = r#"
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
SESSIONS = HAS_HANDSHAKE
WITH_STREAM = os.environ.get("STREAM") == "1"
seen = []

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def say(self, status, body=b"", kind="application/json", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.say(405)

    def do_DELETE(self):
        self.say(200)

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if handle(self, message):
            return
        if "id" not in message:
            return self.say(202)
        if SESSIONS and message["method"] not in ("initialize", "server/discover"):
            if self.headers["Mcp-Session-Id"] != "s1" or self.headers["MCP-Protocol-Version"] != REVISION:
                return self.say(400, b"no session, or another revision", "text/plain")
        answered = {"jsonrpc": "2.0", **answer(message, call)}
        headers = {"Mcp_Session_Id": "s1"} if SESSIONS else {}
        body = json.dumps(answered).encode()
        if WITH_STREAM and "result" in answered:
            return self.say(200, b"event: message\ndata: " + body + b"\n\n", "text/event-stream", **headers)
        self.say(200, body, **headers)

def handle(http, message):
    return False

call = add

def listen():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()
"#;

/// A server that runs until this is dropped.
struct Server {
    port: u16,
    _program: Child,
}

impl Server {
    async fn start(source: &str, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", &format!("{PRELUDE}{HTTP}{source}\nlisten()")]).envs(variables.iter().copied());
        let mut program = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
        let port = lines.next_line().await.unwrap().unwrap().parse().unwrap();
        Self { port, _program: program }
    }

    fn document(&self) -> String {
        format!("[[servers]]\nname = \"web\"\nurl = \"http://127.0.0.1:{}/mcp?key=in-the-address\"\n", self.port)
    }
}

async fn offered_with(document: &str, token: &'static str) -> (Tools, Vec<String>) {
    let variables = move |name: &str| (name == "TOKEN").then(|| token.to_owned());
    let servers = McpServers::from_toml_with(&Env::system(), "mcp.toml", document, variables).unwrap();
    let (tools, problems) = offered(&servers).await;
    let reported: Vec<String> = problems.iter().map(reported).collect();
    assert!(!reported.iter().any(|problem| problem.contains("in-the-address")), "{reported:?}");
    (tools, reported)
}

async fn tools_of(server: &Server) -> Tools {
    let (tools, problems) = offered_with(&server.document(), "").await;
    assert_eq!(problems, [""; 0]);
    tools
}

#[tokio::test]
async fn servers_of_all_revisions_are_spoken_to_with_json_and_streams() {
    for revision in REVISIONS {
        for stream in ["0", "1"] {
            let server = Server::start("", &[("REVISION", revision), ("STREAM", stream)]).await;
            let tools = tools_of(&server).await;
            let sum = use_one(&tools, "mcp__web__add", json!({ "a": 2, "b": 40 })).await;
            assert_eq!((sum.text.as_str(), sum.is_error, sum.is_tainted), ("42", false, true), "{revision} {stream}");
        }
    }
}

#[tokio::test]
async fn a_token_goes_to_the_server_that_it_is_for_and_nowhere_else() {
    const TOKEN: &str = "canary-0123456789abcdef";
    let guard = r#"
def handle(http, message):
    if http.headers["Authorization"] != "Bearer canary-0123456789abcdef":
        http.say(401, b"{}", WWW_Authenticate="Bearer")
        return True
TOOLS = [tool("repeat")]
call = lambda request: text("canary-0123456789abcdef", isError=True)
"#;
    let server = Server::start(guard, &[]).await;
    let document = server.document() + "bearer_from = \"TOKEN\"\n";
    let (tools, problems) = offered_with(&document, TOKEN).await;
    assert_eq!(problems, [""; 0]);
    assert_eq!(failure(&tools, "mcp__web__repeat", json!({})).await, "the MCP server \"web\" says: [the key]");
    let (_, problems) = offered_with(&server.document(), "").await;
    assert_eq!(
        problems,
        [
            "the MCP server \"web\" refuses requests without a token; name the variable with its token in `bearer_from`, and set it"
        ]
    );
    let (_, problems) = offered_with(&document, "").await;
    assert_eq!(problems, ["the MCP server \"web\" needs the variable TOKEN, which is not set; set it"]);
    // One that sends us elsewhere, to one that would take the token.
    let elsewhere = format!(
        "def handle(http, message):\n    http.say(307, Location=\"http://127.0.0.1:{}/mcp\")\n    return True",
        server.port
    );
    let redirecting = Server::start(&elsewhere, &[]).await;
    let (_, problems) = offered_with(&(redirecting.document() + "bearer_from = \"TOKEN\"\n"), TOKEN).await;
    assert_eq!(
        problems,
        [
            "the MCP server \"web\" redirects to another address (HTTP 307 Temporary Redirect); write that address as the url, which often \
          ends with a `/`"
        ]
    );
}

#[tokio::test]
async fn an_address_without_a_server_and_pages_for_people_are_reported() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let document = format!("[[servers]]\nname = \"web\"\nurl = \"http://127.0.0.1:{port}/mcp?key=in-the-address\"\n");
    let (_, problems) = offered_with(&document, "").await;
    assert_eq!(problems, ["the MCP server \"web\" cannot be reached: Connection refused (os error 111)"]);
    let (_, problems) = offered(&servers(&document)).await;
    let shown = format!("mcp.toml:1: the MCP server \"web\" (http://127.0.0.1:{port}) cannot be reached: ");
    assert!(problems[0].to_string().starts_with(&shown), "{}", problems[0]);
    let page = "def handle(http, message):\n    http.say(200, b\"<html>hello</html>\", \"text/html\")\n    return True";
    let server = Server::start(page, &[]).await;
    let (_, problems) = offered_with(&server.document(), "").await;
    assert!(
        problems[0].starts_with("the MCP server \"web\" gave an answer that cannot be read: Unexpected content type"),
        "{problems:?}"
    );
}

#[tokio::test]
async fn a_server_that_fails_in_a_call_is_an_error_of_that_call() {
    let source = r#"
TOOLS = [tool("good"), tool("busy"), tool("endless"), tool("silent"), tool("cut")]
call = lambda request: text("good")
def handle(http, message):
    if message["method"] != "tools/call":
        return False
    name = message["params"]["name"]
    if name == "busy":
        http.say(503)
    elif name == "endless":
        http.send_response(200)
        http.send_header("Content-Type", "text/event-stream")
        http.end_headers()
        part = b"x" * (1 << 20)
        try:
            http.wfile.write(b"data: ")
            for _ in range(200):
                http.wfile.write(part)
        except OSError:
            http.close_connection = True
    elif name == "silent":
        http.rfile.read(1)
    elif name == "cut":
        http.send_response(200)
        http.send_header("Content-Type", "application/json")
        http.send_header("Content-Length", "1000")
        http.end_headers()
        http.wfile.write(b"{")
        http.close_connection = True
    return name != "good"
"#;
    let server = Server::start(source, &[]).await;
    let (tools, problems) = offered_with(&(server.document() + "timeout = \"2s\"\n"), "").await;
    assert_eq!(problems, [""; 0]);
    let busy = failure(&tools, "mcp__web__busy", json!({})).await;
    assert_eq!(busy, "the MCP server \"web\" answered with HTTP 503");
    let silent = failure(&tools, "mcp__web__silent", json!({})).await;
    assert_eq!(silent, "the MCP server \"web\" did not answer within 2s");
    let cut = failure(&tools, "mcp__web__cut", json!({})).await;
    assert!(cut.starts_with("the MCP server \"web\" "), "{cut}");
    let endless = failure(&tools, "mcp__web__endless", json!({})).await;
    assert!(endless.starts_with("the MCP server \"web\" "), "{endless}");
    assert_eq!(use_one(&tools, "mcp__web__good", json!({})).await.text, "good");
}

#[tokio::test]
async fn a_session_that_the_server_has_forgotten_is_begun_again_at_the_next_call() {
    let source = r#"
TOOLS = [tool("forget"), tool("count")]
sessions = []
def call(request):
    return text(str(len(sessions)))
def handle(http, message):
    if message["method"] == "initialize":
        sessions.append(1)
    if message["method"] == "tools/call" and message["params"]["name"] == "forget":
        http.say(404)
        return True
"#;
    let server = Server::start(source, &[]).await;
    let tools = tools_of(&server).await;
    assert_eq!(use_one(&tools, "mcp__web__count", json!({})).await.text, "1");
    let reported = failure(&tools, "mcp__web__forget", json!({})).await;
    assert_eq!(reported, "the MCP server \"web\" has ended the session");
    assert_eq!(use_one(&tools, "mcp__web__count", json!({})).await.text, "2");
}

#[tokio::test]
async fn a_server_is_notified_that_a_call_is_given_up() {
    let source = r#"
import threading
TOOLS = [tool("wait"), tool("last")]
cancelled = threading.Event()
ids = {}
def handle(http, message):
    if message["method"] == "tools/call" and message["params"]["name"] == "wait":
        ids["wait"] = message["id"]
        cancelled.wait()
        http.close_connection = True
        return True
    if message["method"] == "notifications/cancelled" and message["params"]["requestId"] == ids["wait"]:
        cancelled.set()
def call(request):
    cancelled.wait()
    return text("told")
"#;
    let server = Server::start(source, &[]).await;
    let (tools, problems) = offered_with(&(server.document() + "timeout = \"1s\"\n"), "").await;
    assert_eq!(problems, [""; 0]);
    let reported = failure(&tools, "mcp__web__wait", json!({})).await;
    assert_eq!(reported, "the MCP server \"web\" did not answer within 1s");
    assert_eq!(use_one(&tools, "mcp__web__last", json!({})).await.text, "told");
}
