//! Definitions of agents, and the programs of process agents.

use tempfile::TempDir;

use super::{folder_with, write};

/// The beginning of a Python program that takes one turn: it receives `turn`, and has `tell`, `hear`, `ask` and `end`.
const PYTHON: &str =
    concat!(include_str!("../../../crates/callboard-agents/tests/programs/prelude.py"), "begin()\nturn = hear()\n");

/// The beginning of a shell program: `turn` receives the next turn, and `finish FIELDS` ends it.
const SHELL: &str = r#"#!/bin/sh
turn() { read turn && id=${turn#*'"id":"'} && id=${id%%'"'*}; }
finish() { echo '{"type":"command","turn":"'$id'",'"$1"'}'; }
read hello; echo '{"type":"ready","protocol":2}'
"#;

/// A Python program that takes one turn.
pub(crate) fn python(body: &str) -> String {
    format!("{PYTHON}{body}")
}

/// A shell program that takes turns.
pub(crate) fn shell(body: &str) -> String {
    format!("{SHELL}{body}")
}

/// An agent without tools.
pub(crate) fn agent(name: &str) -> String {
    agent_with_prompt(name, "You help.")
}

/// An agent without tools, with this prompt.
pub(crate) fn agent_with_prompt(name: &str, prompt: &str) -> String {
    format!("[agent]\nname = \"{name}\"\nsystem_prompt = \"{prompt}\"\n[agent.capabilities]\nallowed_tools = []\n")
}

/// An agent with these tools.
pub(crate) fn agent_with(name: &str, tools: &[&str]) -> String {
    format!("[agent]\nname = \"{name}\"\nmode = \"build\"\n[agent.capabilities]\nallowed_tools = {tools:?}\n")
}

/// An agent that needs an approval before it searches files.
pub(crate) fn searcher(name: &str) -> String {
    agent_with(name, &["FileSearch"]) + "ask = [\"FileSearch\"]\n"
}

/// An agent that is a program.
pub(crate) fn program(name: &str, command: &[&str]) -> String {
    format!("[agent]\nname = \"{name}\"\n[agent.process]\ncommand = {command:?}\n")
}

/// A folder with these agents.
pub(crate) fn agents(agents: &[(&str, &str)]) -> TempDir {
    let folder = folder_with(&[]);
    agents.iter().for_each(|(name, text)| write(&folder, &format!("agents/{name}.toml"), text));
    folder
}

/// A folder with agents that are these Python programs.
pub(crate) fn python_agents(programs: &[(&str, &str)]) -> TempDir {
    let folder = folder_with(&[]);
    programs.iter().for_each(|(name, body)| add_python_agent(&folder, name, body));
    folder
}

/// Adds an agent that is a Python program.
pub(crate) fn add_python_agent(folder: &TempDir, name: &str, body: &str) {
    let file = format!("{name}.py");
    write(folder, &file, &python(body));
    write(folder, &format!("agents/{name}.toml"), &program(name, &["python3", &file]));
}

/// Adds an agent that is a shell program.
pub(crate) fn add_shell_agent(folder: &TempDir, name: &str, body: &str) {
    let file = format!("{name}.sh");
    write(folder, &file, &shell(body));
    write(folder, &format!("agents/{name}.toml"), &program(name, &[&format!("./{file}")]));
}
