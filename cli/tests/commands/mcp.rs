//! `callboard check|run` with tools of MCP servers: real programs, and a model that a server on this machine plays.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use callboard::env::Env;
use callboard_agents::McpServers;
use serde_json::Value;
use tempfile::TempDir;

/// A server with a tool that adds, and one whose schema cannot be used. It says on which side of the board it runs.
const SERVER: &str = r#"
import json, os, sys
tools = [
    {"name": "add", "description": "Adds.", "inputSchema": {"type": "object", "properties": {"a": {"type": "number"}}}},
    {"name": "odd", "inputSchema": {"type": "array"}},
]
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] == "initialize":
        info = {"name": "sums", "version": "1"}
        reply["result"] = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    elif message["method"] == "tools/list":
        reply["result"] = {"tools": tools}
    elif message["method"] == "tools/call":
        text = "%s and one is %s" % (os.environ["GREETING"], message["params"]["arguments"]["a"] + 1)
        reply["result"] = {"content": [{"type": "text", "text": text}]}
    else:
        reply["error"] = {"code": -32601, "message": "no such method"}
    print(json.dumps(reply), flush=True)
"#;

/// A model that adds first, and then repeats what it was told.
const MODEL: &str = r#"
import json
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass
    def do_POST(self):
        messages = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"]
        last = messages[-1]
        if last["role"] == "tool":
            delta, reason = {"content": "It says: " + last["content"]}, "stop"
        else:
            call = {"name": "mcp__sums__add", "arguments": json.dumps({"a": 41})}
            delta, reason = {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": call}]}, "tool_calls"
        body = ""
        for choice in [{"index": 0, "delta": delta, "finish_reason": None}, {"index": 0, "delta": {}, "finish_reason": reason}]:
            body += "data: " + json.dumps({"id": "1", "model": "m", "choices": [choice]}) + "\n\n"
        body = (body + "data: [DONE]\n\n").encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
server = HTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"#;

const AGENT: &str = r#"
[agent]
name = "adder"
mode = "build"

[agent.capabilities]
allowed_tools = ["mcp__sums__add"]
"#;

struct Said {
    code: Option<i32>,
    out: String,
    error: String,
}

fn callboard(folder: &Path, arguments: &[&str]) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_callboard"));
    command.env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"));
    command.args(arguments).current_dir(folder).stdin(Stdio::null()).env("USER", "ann").env("GREETING", "hello");
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said { code: output.status.code(), out: text(output.stdout), error: text(output.stderr) }
}

/// A folder with an agent, and a server that offers these of its tools.
fn folder(agent: &str, tools: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("agents")).unwrap();
    fs::write(folder.path().join("agents/adder.toml"), agent).unwrap();
    fs::write(folder.path().join("server.py"), SERVER).unwrap();
    let document = format!(
        "[[servers]]\nname = \"sums\"\ncommand = [\"python3\", \"server.py\"]\nenv_from = [\"GREETING\"]\n\
         effect = \"reads\"\n{tools}\n"
    );
    fs::write(folder.path().join("mcp.toml"), document).unwrap();
    folder
}

/// A program that is killed when this is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn model(folder: &TempDir) -> Killed {
    let mut program = Command::new("python3").args(["-c", MODEL]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(program.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let models = format!(
        "[[models]]\nname = \"m\"\nprovider = \"openai-compatible\"\nurl = \"http://127.0.0.1:{}/v1\"\n",
        line.trim()
    );
    fs::write(folder.path().join("models.toml"), models).unwrap();
    Killed(program)
}

#[test]
fn check_starts_the_servers_and_tells_what_their_tools_are_called_and_what_is_wrong() {
    let well = folder(AGENT, "tools = [\"add\"]");
    let said = callboard(well.path(), &["check"]);
    assert_eq!((said.code, said.error.as_str()), (Some(0), ""));
    assert!(said.out.ends_with("\nmcp.toml: mcp__sums__add\n"), "{}", said.out);
    let wrong = folder(&AGENT.replace("__add", "__ad"), "");
    let said = callboard(wrong.path(), &["check"]);
    assert_eq!(said.code, Some(1));
    insta::assert_snapshot!("mcp_defects", said.error);
    let json: Value = serde_json::from_str(&callboard(wrong.path(), &["check", "--json"]).out).unwrap();
    assert_eq!((&json[1]["tools"][0], &json[1]["problems"][0]["tool"]), (&"mcp__sums__add".into(), &"odd".into()));
    let said = callboard(wrong.path(), &["check", "--mcp", "other.toml"]);
    assert!(said.code == Some(2) && said.error.contains("other.toml: No such file"), "{}", said.error);
    fs::write(wrong.path().join("mcp.toml"), "[[servers]]\nnam = \"x\"\n").unwrap();
    let said = callboard(wrong.path(), &["run", "x", "--model", "fake"]);
    assert!(said.code == Some(2) && said.error.contains("mcp.toml:2:1: a server has no key \"nam\""), "{}", said.error);
}

#[test]
fn the_file_that_init_writes_has_an_example_that_is_right() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(callboard(folder.path(), &["init"]).code, Some(0));
    let text = fs::read_to_string(folder.path().join("mcp.toml")).unwrap();
    let is_example = |line: &&str| line.starts_with('[') || line.contains(" = ");
    let example: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# ")).filter(is_example).collect();
    let read =
        |text: &str| McpServers::from_toml(&Env::system(), "mcp.toml", text).unwrap_or_else(|error| panic!("{error}"));
    assert!(read(&text).is_empty());
    assert_eq!(read(&example.join("\n")).names().collect::<Vec<_>>(), ["files", "search"]);
}

#[test]
fn an_agent_of_a_folder_uses_the_tool_of_a_server() {
    let folder = folder(AGENT, "");
    let _model = model(&folder);
    let said = callboard(folder.path(), &["run", "add", "--model", "m", "--no-input"]);
    assert_eq!(said.code, Some(0), "{}", said.error);
    assert_eq!(said.out.trim(), "It says: hello and one is 42");
    assert!(said.error.contains("the tool \"odd\" of the MCP server \"sums\" is refused"), "{}", said.error);
    assert!(said.error.contains("adder · mcp__sums__add"), "{}", said.error);
}
