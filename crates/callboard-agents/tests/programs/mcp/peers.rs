//! Servers for the tests, and what uses them.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use callboard::env::{Clock, Env, Now};
use callboard::messages::{Json, Message, Timestamp};
use callboard_agents::testing::ScriptedModel;
use callboard_agents::{AgentLoop, McpProblem, McpServers, Tier, Tools};
use futures::StreamExt;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::timeout;

use crate::outside::{AT_MOST, Wire};

/// The revisions of the protocol that are tried; the last one has no handshake.
pub(crate) const REVISIONS: [&str; 3] = ["2025-06-18", "2025-11-25", "2026-07-28"];

/// What the servers have in common: `serve` answers as a server of `REVISION` does, with `TOOLS`, and gives calls to `call`.
pub(crate) const PRELUDE: &str = concat!(include_str!("server.py"), "import subprocess\n", include_str!("../wire.py"));

/// The lines of a document for a server that is this program.
pub(crate) fn program(name: &str, source: &str) -> String {
    let source = serde_json::to_string(&format!("{PRELUDE}{source}")).unwrap();
    format!("[[servers]]\nname = \"{name}\"\ncommand = [\"python3\", \"-c\", {source}]\n")
}

/// A server that is well, beside one that does this when `bad` is called.
pub(crate) fn with_another(source: &str) -> String {
    program("good", "serve()") + &program("bad", &format!("TOOLS = [tool(\"bad\")]\n{source}"))
}

/// Servers that are not started yet, with an empty environment.
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
pub(crate) fn reported(problem: &McpProblem) -> String {
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

/// A loop that calls these tools at once, and then answers that it is done.
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

/// The text of its failure.
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

/// The line of a document by which a server knows the place.
pub(crate) fn wired(wire: &Wire) -> String {
    format!("env = {{ WIRE = {} }}\n", serde_json::to_string(&wire.path()).unwrap())
}
