//! What the file of an agent says about it, in words for people.

use std::sync::Arc;

use callboard::messages::Effect;
use callboard_agents::Definition;
use callboard_server::AgentFile;

use crate::quote::quoted;

/// The name of an agent, and what its file says.
pub(super) fn of<'t>(file: &str, definition: &Definition, team: impl Iterator<Item = &'t str>) -> (String, AgentFile) {
    let facts = facts(definition).into_iter().filter(|(_, value)| !value.is_empty()).collect();
    let file = AgentFile { path: file.to_owned(), facts, team: team.map(str::to_owned).collect() };
    (definition.name.to_string(), file)
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
        ("People are asked each time about", joined(&definition.ask)),
        ("Models", joined(&models)),
    ]
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
