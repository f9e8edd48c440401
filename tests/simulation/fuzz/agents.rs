//! Files of agents, of models and of MCP servers.

use std::sync::Arc;

use callboard::env::Env;
use callboard_agents::testing::ScriptedModel;
use callboard_agents::tools::{Root, standard};
use callboard_agents::{Definition, LlmAgent, McpServers, Models, Roles};

use super::{fuzz, reported};

const AGENT: &str = r#"
[agent]
name = "reviewer"
description = "Reviews."
mode = "explore"
role = "developer"
capabilities = ["review"]
projects = ["web"]
concurrency = 2
timeout = "5m"
restarts = { max = 5, within = "60s" }
tokens = 100_000
namespaces = ["notes"]
compact_at = 50_000
system_prompt = "You are {{ agent.name }}. {% for tool in tools %}{{ tool.name }}, {% endfor %}{{ task | upper }}"
[[agent.sections]]
name = "style"
priority = 20
modes = ["explore", "plan"]
text = "Briefly, of {{ state.notes }}."
[agent.model]
preferred = "a"
fallback = ["b"]
provider_tags = ["local"]
max_tokens = 2000
[agent.capabilities]
allowed_tools = ["FileRead", "Task"]
hidden_tools = ["FileRead"]
ask = ["FileRead"]
max_iterations = 5
trust_tier = "user_defined"
[agent.delegation]
context = "summary"
max_tokens = 500
[agent.output.schema]
type = "object"
required = ["verdict"]
"#;

const MODELS: &str = r#"
[[models]]
name = "a"
provider = "openai-compatible"
model = "x"
url = "http://127.0.0.1:1/v1"
key_variable = "KEY"
tags = ["local"]
prices = { input = 0.5, output = 2 }
[[models]]
name = "b"
provider = "anthropic"
model = "y"
[providers.anthropic]
requests_per_minute = 60
"#;

const SERVERS: &str = r#"
[[servers]]
name = "files"
command = ["server", "--stdio"]
env = { HOST = "https://host.example.org" }
env_from = ["TOKEN"]
tools = ["search", "create"]
effect = "sends"
effects = { create = "writes" }
timeout = "60s"
max_output = 32768
[[servers]]
name = "search"
url = "https://mcp.example.org/mcp"
bearer_from = "KEY"
"#;

const ROLES: &str = r#"
[roles.auditor]
tools = ["reads", "Task", "mcp__tickets__*"]
authority = ["reads", "notes"]
namespaces = ["audit"]
variables = ["AUDIT_*"]
docker_socket = false
"#;

#[test]
fn any_text_is_an_agent_a_catalog_or_a_list_of_servers_or_refused() {
    let env = Env::system();
    let variables = |_: &str| Some("secret".to_owned());
    let model = Arc::new(ScriptedModel::new());
    let folder = tempfile::tempdir().unwrap();
    let tools = standard(&Root::open(folder.path()).unwrap()).unwrap();
    fuzz("agents", &[AGENT, MODELS, SERVERS, ROLES].map(|text| text.as_bytes().to_vec()), |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let models = reported(Models::from_toml_with(&env, "models.toml", &text, variables))?;
        let servers = reported(McpServers::from_toml_with(&env, "mcp.toml", &text, variables))?;
        reported(Roles::from_toml("callboard.toml", &text))?;
        let definition = reported(Definition::reader().tools(&tools).read("agent.toml", &text))?;
        // What was read can be used: its tools are there, and its prompt names nothing that nobody supplies.
        if let Some(definition) = &definition
            && let Err(error) = LlmAgent::new(definition, model.clone(), &tools, &[])
        {
            return Err(format!("it is read, and no agent: {error}"));
        }
        Ok(models.is_some() || servers.is_some() || definition.is_some())
    });
}
