//! What the file of an agent says about it, in words for people.

use std::sync::Arc;

use callboard::messages::Effect;
use callboard_agents::{Definition, MetaTool};
use callboard_server::AgentFile;

use crate::quote::quoted;

/// The name of an agent, and what its file says.
pub(super) fn of<'t>(file: &str, definition: &Definition, team: impl Iterator<Item = &'t str>) -> (String, AgentFile) {
    let facts = facts(definition).into_iter().filter(|(_, value)| !value.is_empty()).collect();
    let team = team.filter(|_| gives_tasks(definition)).map(str::to_owned).collect();
    let file = AgentFile { path: file.to_owned(), facts, team };
    (definition.name.to_string(), file)
}

/// Whether it has a tool by which it gives tasks or control to the agents that it knows of; programs may always.
fn gives_tasks(definition: &Definition) -> bool {
    let gives = |tool: &str| [MetaTool::Task, MetaTool::HandoffToAgent].iter().any(|own| own.name() == tool);
    definition.allowed_tools.as_ref().is_none_or(|tools| tools.iter().any(|tool| gives(tool)))
}

fn facts(definition: &Definition) -> Vec<(&'static str, String)> {
    let Definition { role, capabilities, authority, namespaces, concurrency, timeout, .. } = definition;
    let of_board = [
        ("Role", role.as_deref().unwrap_or_default().to_owned()),
        ("What the role grants", definition.granted().unwrap_or_default()),
        ("Capabilities", joined(capabilities)),
        ("May cause", authority.effects().map(Effect::name).collect::<Vec<_>>().join(", ")),
        (
            "Context",
            namespaces.as_ref().map_or_else(|| "its own memory, and that of its run".to_owned(), |names| joined(names)),
        ),
        ("Limits", limits(definition)),
        ("At once", format!("{concurrency} turns, of {} s at most", timeout.as_secs())),
    ];
    of_kind(definition).into_iter().chain(of_board).collect()
}

/// What is for models alone, or for programs alone.
fn of_kind(definition: &Definition) -> Vec<(&'static str, String)> {
    if let Some(process) = &definition.process {
        let command: Vec<String> = process.command.iter().map(|word| quoted(word)).collect();
        return vec![("Program", command.join(" "))];
    }
    let tools = match &definition.allowed_tools {
        Some(tools) if tools.is_empty() => "none".to_owned(),
        Some(tools) => joined(tools),
        None => "all of its mode".to_owned(),
    };
    let models: Vec<Arc<str>> = definition.model.preferred.iter().chain(&definition.model.fallback).cloned().collect();
    vec![
        ("Mode", definition.mode.name().to_owned()),
        ("Tools", tools),
        ("People are asked before each use of", asked(definition)),
        ("Models", joined(&models)),
    ]
}

/// The tools about which people are asked: the dangerous ones of agents from files, and those that the file names.
fn asked(definition: &Definition) -> String {
    let named = definition.ask.iter().map(|tool| &**tool);
    std::iter::once("tools that write, execute or send").chain(named).collect::<Vec<_>>().join(", ")
}

fn limits(definition: &Definition) -> String {
    let Definition { tokens_per_run, cost_per_run, per_day, .. } = definition;
    let tokens = |tokens: Option<u64>, of: &str| tokens.map(|tokens| format!("{tokens} tokens {of}"));
    let cost = |cost: Option<callboard::messages::Cost>, of: &str| cost.map(|cost| format!("{cost} {of}"));
    let all = [
        tokens(definition.tokens, "a turn"),
        tokens(*tokens_per_run, "a run"),
        cost(*cost_per_run, "a run"),
        tokens(per_day.tokens, "a day"),
        cost(per_day.cost, "a day"),
    ];
    all.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn joined(names: &[Arc<str>]) -> String {
    names.join(", ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    fn said(tools: &str) -> AgentFile {
        let text =
            format!("[agent]\nname = \"a\"\nsystem_prompt = \"x\"\n[agent.capabilities]\nallowed_tools = [{tools}]\n");
        let definition = Definition::from_toml("a.toml", &text).unwrap();
        let (name, file) = of("a.toml", &definition, ["b"].into_iter());
        assert_eq!(name, "a");
        file
    }

    #[test]
    fn a_file_says_which_tools_its_agent_has_and_whom_it_gives_tasks_to() {
        let (alone, leads) = (said("\"FileRead\""), said("\"FileRead\", \"Task\""));
        assert!(alone.facts.contains(&("Tools", "FileRead".to_owned())), "{alone:?}");
        assert!(alone.facts.iter().all(|(_, value)| !value.is_empty()), "{alone:?}");
        assert_eq!((alone.team.as_slice(), leads.team.as_slice()), (&[][..], &["b".to_owned()][..]));
    }
}
