//! `callboard send` and `callboard agents`: what `callboard serve` is asked.

use serde_json::{Value, json};

use callboard::messages::visible;

use crate::page::{Failure, Page, lines_of, table};
use crate::run_names::short;
use crate::stores::Common;

use super::arguments::{Send, WAIT, Wait};
use super::boards::{answer_of_service, ask_service, of_service, run_of};
use super::follow;

/// Delegates a task, and returns once it is journaled.
pub(super) async fn send(arguments: &Send) -> Result<Page, Failure> {
    let Send { to, task, input, limits, key, wait, choice, json } = arguments;
    let mut request = json!({ "to": to, "body": task });
    if let Some(input) = input {
        request["input"] = input.clone();
    }
    if let Some(limits) = limits {
        request["limits"] = json!(limits.of_new_run());
    }
    let stores = choice.stores()?;
    let (service, path) = (of_service(&stores), "/v1/delegations");
    let answer = match key {
        Some(key) => service.request_once("POST", path, key, Some(&request)).await,
        None => service.request("POST", path, Some(&request)).await,
    };
    let delegation = answer_of_service(&stores, answer)?;
    let id = short(run_of(&delegation)?);
    if *wait {
        return follow::wait(&Wait { run: id, timeout: WAIT, choice: choice.clone(), json: *json }).await;
    }
    let agent = visible(delegation["to_agent"].as_str().unwrap_or(to));
    let page = Page::new(format!("{id}  acknowledged by {agent}\n"), delegation);
    Ok(Page { done: Some(format!("the task is journaled as {id}")), ..page })
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
