//! Agents that think with a model, and tools for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use callboard::messages::Message;
use callboard::prelude::*;
use callboard_agents::{Definition, Effect, LlmAgent, Model, ModelRequest, Teammate, Tool, ToolSpec, Tools, of_spec};
use schemars::JsonSchema;
use serde::Deserialize;

/// The arguments of a tool that takes none.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Nothing {}

/// The arguments of a tool that works on a path.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Path {
    pub(crate) path: String,
}

/// A tool that answers with its path, and counts how often it was used.
pub(crate) fn counting(name: &str, effect: Effect, count: &Arc<AtomicU32>) -> impl Tool {
    let count = Arc::clone(count);
    let spec = ToolSpec::of::<Path>(name, "Does something with a path.", effect).target("path");
    of_spec(spec, move |Path { path }: Path, _| {
        count.fetch_add(1, Ordering::Relaxed);
        async move { Ok(format!("did {path}").into()) }
    })
}

/// A definition from a file with this text.
///
/// # Panics
/// If the text has defects.
pub(crate) fn definition(toml: &str) -> Definition {
    Definition::from_toml("agent.toml", toml).unwrap_or_else(|defects| panic!("{defects}"))
}

/// The agent of a file with this text, which can give tasks to nobody.
pub(crate) fn agent(toml: &str, model: impl Model, tools: &Tools) -> AgentSpec {
    agent_of(&definition(toml), model, tools, &[])
}

/// The agent of a definition, with those that it can give tasks to.
pub(crate) fn agent_of(definition: &Definition, model: impl Model, tools: &Tools, team: &[&str]) -> AgentSpec {
    let teammate = |name: &&str| Teammate { name: (*name).into(), description: "helps".into() };
    let team: Vec<Teammate> = team.iter().map(teammate).collect();
    LlmAgent::new(definition, Arc::new(model), tools, &team).unwrap().spec()
}

/// The answers of tools in a request, as the model receives them.
pub(crate) fn tool_answers(request: &ModelRequest) -> Vec<&str> {
    let mut answers = Vec::new();
    for message in request.messages.iter() {
        if let Message::Tool { text, .. } = message {
            answers.push(&**text);
        }
    }
    answers
}
