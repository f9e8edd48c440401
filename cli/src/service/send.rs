//! `callboard send` and `callboard agents`: what `callboard serve` is asked.

use serde_json::{Value, json};

use callboard::messages::{RunId, visible};

use crate::arguments::Common;
use crate::page::{Failure, Page, lines_of, table};
use crate::run_names::short;

use super::arguments::Send;
use super::boards::ask_service;

/// Delegates a task, and returns once it is journaled.
pub(super) async fn send(arguments: &Send) -> Result<Page, Failure> {
    let Send { to, task, input, limits, choice, json: _ } = arguments;
    let mut request = json!({ "to": to, "body": task });
    if let Some(input) = input {
        request["input"] = input.clone();
    }
    if let Some(limits) = limits {
        request["limits"] = json!(limits.of_new_run());
    }
    let stores = choice.stores()?;
    let delegation = ask_service(&stores, ("POST", "/v1/delegations"), Some(&request)).await?;
    let run = run_of(&delegation)?;
    let agent = visible(delegation["to_agent"].as_str().unwrap_or(to));
    Ok(Page::new(format!("{}  acknowledged by {agent}\n", short(run)), delegation))
}

fn run_of(delegation: &Value) -> Result<RunId, Failure> {
    let id = delegation["request_id"].as_str().and_then(|id| id.parse().ok());
    id.ok_or_else(|| Failure::failed("the server's answer names no run".to_owned()))
}

/// Lists the agents of the server.
pub(super) async fn agents(arguments: &Common) -> Result<Page, Failure> {
    let answer = ask_service(&arguments.choice.stores()?, ("GET", "/v1/agents"), None).await?;
    let mut drawn = table(["agent", "role", "capabilities"], &[]);
    for agent in answer["agents"].as_array().into_iter().flatten() {
        let text = |field: &str| visible(agent[field].as_str().unwrap_or_default());
        let capabilities = agent["capabilities"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let capabilities: Vec<String> = capabilities.map(visible).collect();
        drawn.add_row([text("agent"), text("role"), capabilities.join(", ")]);
    }
    Ok(Page::new(lines_of(&drawn), answer))
}
