//! Servers for the tests, and what uses them.

use std::future::ready;
use std::io::Read;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use callboard::env::{Clock, Env, Now};
use callboard::messages::{Json, Message, Timestamp};
use callboard_agents::testing::ScriptedModel;
use callboard_agents::{AgentLoop, McpProblem, McpServers, Tier, Tools};
use futures::StreamExt;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Longer than anything takes on a busy machine.
pub(crate) const AT_MOST: Duration = Duration::from_secs(60);

/// The revisions of the protocol that are tried; the last one has no handshake.
pub(crate) const REVISIONS: [&str; 3] = ["2025-06-18", "2025-11-25", "2026-07-28"];

/// What the servers have in common: `serve` answers as a server of `REVISION` does, with `TOOLS`, and gives calls to `call`.
pub(crate) const PRELUDE: &str = r#"
import json, os, socket, subprocess, sys

REVISION = os.environ.get("REVISION", "2025-06-18")
HAS_HANDSHAKE = REVISION < "2026-07-28"
INFO = {"name": "peer", "version": "1"}

def tool(name, description="Does it.", **properties):
    return {"name": name, "description": description, "inputSchema": {"type": "object", "properties": properties}}

TOOLS = [tool("add", "Adds.", a={"type": "number"}, b={"type": "number"})]

def tell(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()

def hear():
    line = sys.stdin.readline()
    return json.loads(line) if line else sys.exit()

def text(*parts, **more):
    return {"content": [{"type": "text", "text": part} for part in parts], **more}

def add(request):
    arguments = request["params"]["arguments"]
    return text(str(arguments["a"] + arguments["b"]))

class Refused(Exception):
    pass

# What is answered to a request.
def result(request, call):
    method, params = request["method"], request.get("params") or {}
    if not HAS_HANDSHAKE:
        asked = params.get("_meta", {}).get("io.modelcontextprotocol/protocolVersion")
        if asked != REVISION:
            raise Refused(-32022, "this revision names itself in each request, and not %s" % asked)
    if method == "initialize" and HAS_HANDSHAKE:
        return {"protocolVersion": REVISION, "capabilities": {"tools": {"listChanged": True}}, "serverInfo": INFO}
    if method == "server/discover" and not HAS_HANDSHAKE:
        return {"resultType": "complete", "supportedVersions": [REVISION], "capabilities": {"tools": {}}, "ttlMs": 0,
                "cacheScope": "private"}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        return call(request)
    raise Refused(-32601, "no such method: %s" % method)

def answer(request, call):
    try:
        return {"id": request["id"], "result": result(request, call)}
    except Refused as refused:
        return {"id": request["id"], "error": {"code": refused.args[0], "message": refused.args[1]}}

def serve(call=add, heard=lambda notification: None):
    while True:
        message = hear()
        if "id" not in message:
            heard(message)
        elif "method" in message:
            answered = answer(message, call)
            if answered["id"] is not None and answered.get("result", True) is not None:
                tell(answered)

# Whoever listens at the other end is told when everybody is gone who holds this one.
def connect():
    line = socket.socket(socket.AF_UNIX)
    line.connect(os.environ["WIRE"])
    return line
"#;

/// The lines of a document for a server that is this program.
pub(crate) fn program(name: &str, source: &str) -> String {
    let source = serde_json::to_string(&format!("{PRELUDE}{source}")).unwrap();
    format!("[[servers]]\nname = \"{name}\"\ncommand = [\"python3\", \"-c\", {source}]\n")
}

/// A server that is well, beside one that does this when `bad` is called.
pub(crate) fn with_another(source: &str) -> String {
    program("good", "serve()") + &program("bad", &format!("TOOLS = [tool(\"bad\")]\n{source}"))
}

/// Servers that are not started yet, and are told of nothing in the environment.
pub(crate) fn servers(document: &str) -> McpServers {
    McpServers::from_toml_with(&Env::system(), "mcp.toml", document, |_| None).unwrap_or_else(|error| panic!("{error}"))
}

/// All that the servers offer, and what is wrong.
pub(crate) async fn offered(servers: &McpServers) -> (Tools, Vec<McpProblem>) {
    let mut tools = Tools::new();
    let problems = timeout(AT_MOST, servers.add_to(&mut tools)).await.expect("it takes too long");
    (tools, problems)
}

/// What is wrong with a server, without where it is declared and how it is reached.
pub(crate) fn told(problem: &McpProblem) -> String {
    format!("the MCP server {:?} {}", problem.server, problem.problem)
}

/// Tools of servers with which nothing is wrong.
pub(crate) async fn tools(document: &str) -> Tools {
    let (tools, problems) = offered(&servers(document)).await;
    assert_eq!(problems, []);
    tools
}

/// What a tool has answered.
#[derive(Debug, PartialEq)]
pub(crate) struct Answered {
    pub(crate) text: String,
    pub(crate) is_error: bool,
    /// What the agent does from here on needs more care.
    pub(crate) is_tainted: bool,
}

/// A loop that calls these tools at once, and says then that it is done.
pub(crate) fn calling<'a>(tools: &Tools, calls: impl IntoIterator<Item = (&'a str, Value)>) -> AgentLoop {
    let calls = calls.into_iter().map(|(tool, arguments)| (tool, Json::from(arguments)));
    let model = ScriptedModel::new().calls_all(calls).says("done");
    AgentLoop::new(model).tools(tools.clone()).tier(Tier::BuiltIn)
}

/// Uses tools, in the order of the calls.
pub(crate) async fn use_all<'a>(tools: &Tools, calls: impl IntoIterator<Item = (&'a str, Value)>) -> Vec<Answered> {
    let mut run = calling(tools, calls).run(vec![Message::user("go on")]);
    timeout(AT_MOST, run.by_ref().for_each(|_| ready(()))).await.expect("it takes too long");
    let context = run.context();
    let answered = context.new_messages().iter().filter_map(|message| match message {
        Message::Tool { text, is_error, .. } => {
            Some(Answered { text: text.to_string(), is_error: *is_error, is_tainted: context.is_tainted })
        }
        _ => None,
    });
    answered.collect()
}

/// Uses one.
pub(crate) async fn use_one(tools: &Tools, name: &str, arguments: Value) -> Answered {
    use_all(tools, [(name, arguments)]).await.pop().unwrap()
}

/// What it says when it fails.
pub(crate) async fn failure(tools: &Tools, name: &str, arguments: Value) -> String {
    let answered = use_one(tools, name, arguments).await;
    assert!(answered.is_error, "{answered:?}");
    answered.text
}

/// A world whose clock stands still until it is moved.
#[derive(Clone, Default)]
pub(crate) struct Hand(Arc<Mutex<Duration>>);

impl Hand {
    pub(crate) fn env(&self) -> Env {
        Env::new(self.clone(), 7)
    }

    pub(crate) fn moves(&self, time: Duration) {
        *self.0.lock() += time;
    }
}

impl Clock for Hand {
    fn now(&self) -> Now {
        Now { monotonic: *self.0.lock(), wall: Timestamp::from_millis(0) }
    }
}

/// A place that programs connect to.
pub(crate) struct Wire {
    folder: tempfile::TempDir,
    listener: UnixListener,
}

impl Wire {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("wire")).unwrap();
        Self { folder, listener }
    }

    /// The line of a document by which a server knows the place.
    pub(crate) fn env(&self) -> String {
        format!("env = {{ WIRE = {} }}\n", serde_json::to_string(&self.folder.path().join("wire")).unwrap())
    }

    pub(crate) async fn taken(&self) -> End {
        let listener = self.listener.try_clone().unwrap();
        spawn_blocking(move || End(listener.accept().unwrap().0)).await.unwrap()
    }
}

/// Our end of a connection.
pub(crate) struct End(UnixStream);

impl End {
    /// All that is written, once nobody holds the other end.
    pub(crate) async fn read(mut self) -> String {
        self.0.set_read_timeout(Some(AT_MOST)).unwrap();
        let mut text = String::new();
        let read = spawn_blocking(move || self.0.read_to_string(&mut text).map(|_| text)).await.unwrap();
        read.expect("somebody is still there")
    }

    /// The next line.
    pub(crate) async fn line(&self) -> String {
        let mut stream = self.0.try_clone().unwrap();
        stream.set_read_timeout(Some(AT_MOST)).unwrap();
        let read = move || {
            let (mut line, mut byte) = (Vec::new(), [0]);
            while stream.read(&mut byte).unwrap() == 1 && byte != *b"\n" {
                line.extend(byte);
            }
            String::from_utf8(line).unwrap()
        };
        spawn_blocking(read).await.unwrap()
    }
}
