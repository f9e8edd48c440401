//! `callboard check|run` with tools of MCP servers: real programs, and a model on this machine.

use std::fs;
use std::path::Path;

use callboard::env::Env;
use callboard_agents::McpServers;
use serde_json::json;
use tempfile::TempDir;

use crate::support::agents::agent_with;
use crate::support::model::Model;
use crate::support::{Printed, command, folder_with, output_of, write};

/// A server with a tool that adds one and repeats an environment variable, and a tool whose schema is refused.
const SERVER: &str = concat!(
    include_str!("../../../crates/callboard-agents/tests/programs/mcp/server.py"),
    r#"
TOOLS = [tool("add", "Adds.", a={"type": "number"}), {"name": "odd", "inputSchema": {"type": "array"}}]

def add(request):
    return text("%s and one is %s" % (os.environ["GREETING"], request["params"]["arguments"]["a"] + 1))

serve(add)
"#
);

fn callboard(folder: &Path, arguments: &[&str]) -> Printed {
    output_of(command(folder, arguments).env("GREETING", "hello"))
}

/// An agent that may use this tool of the server.
fn adder(tool: &str) -> String {
    agent_with("adder", &[&format!("mcp__sums__{tool}")])
}

/// A folder with an agent, and a server that offers these of its tools.
fn folder(agent: &str, tools: &str) -> TempDir {
    let servers = format!(
        "[[servers]]\nname = \"sums\"\ncommand = [\"python3\", \"server.py\"]\nenv_from = [\"GREETING\"]\n\
         effect = \"reads\"\n{tools}\n"
    );
    folder_with(&[("agents/adder.toml", agent), ("server.py", SERVER), ("mcp.toml", &servers)])
}

#[test]
fn check_starts_the_servers_and_prints_their_tools_and_defects() {
    let valid = folder(&adder("add"), "tools = [\"add\"]");
    let printed = callboard(valid.path(), &["check"]);
    assert!(printed.code == Some(0) && printed.error.starts_with("no model is configured for the agent adder: "));
    assert!(printed.out.ends_with("\nmcp.toml: mcp__sums__add\n"), "{}", printed.out);
    let wrong = folder(&adder("ad"), "");
    let printed = callboard(wrong.path(), &["check"]);
    assert_eq!(printed.code, Some(2));
    insta::assert_snapshot!("mcp_defects", printed.error);
    let json = callboard(wrong.path(), &["check", "--json"]).json();
    assert_eq!((&json[1]["tools"][0], &json[1]["problems"][0]["tool"]), (&"mcp__sums__add".into(), &"odd".into()));
    let printed = callboard(wrong.path(), &["check", "--mcp", "other.toml"]);
    assert!(printed.code == Some(2) && printed.error.contains("other.toml: No such file"), "{}", printed.error);
    write(&wrong, "mcp.toml", "[[servers]]\nnam = \"x\"\n");
    let printed = callboard(wrong.path(), &["run", "x", "--model", "fake"]);
    assert!(
        printed.code == Some(2) && printed.error.contains("mcp.toml:2:1: a server has no key \"nam\""),
        "{}",
        printed.error
    );
}

#[test]
fn the_example_in_the_file_that_init_writes_is_valid() {
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
    let folder = folder(&adder("add"), "");
    let model = Model::start();
    write(&folder, "models.toml", &model.catalog());
    model.calls("mcp__sums__add", json!({ "a": 41 }));
    model.answers("done");
    let printed = callboard(folder.path(), &["run", "add", "--model", "m", "--no-input"]);
    assert_eq!((printed.code, &*printed.out), (Some(0), "done\n"), "{}", printed.error);
    model.request();
    assert_eq!(model.request().tool_result(), "hello and one is 42");
    assert!(printed.error.contains("the tool \"odd\" of the MCP server \"sums\" is refused"), "{}", printed.error);
    assert!(printed.error.contains("adder · mcp__sums__add"), "{}", printed.error);
}
