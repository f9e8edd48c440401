//! `callboard send` and `callboard agents`: what `callboard serve` is asked.

use serde_json::{Value, json};

use callboard::messages::{visible, visible_lines};
use callboard_text::quoted;

use crate::exit::Exit;
use crate::page::{Failure, Page, brief, lines_of, table};
use crate::run_names::short;
use crate::stores::{Common, Stores};
use crate::trace_parent;

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
    let span = trace_parent::of_environment();
    let text = span.as_ref().map(ToString::to_string);
    let state = span.as_ref().and_then(|span| span.state.as_deref());
    let headers = [("idempotency-key", key.as_deref()), ("traceparent", text.as_deref()), ("tracestate", state)];
    let headers: Vec<_> = headers.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    let answer = service.request_with("POST", path, &headers, Some(&request)).await;
    let delegation = match answer_of_service(&stores, answer) {
        Err(failure) if failure.exit() == Exit::NotFound => {
            return Err(failure.with(&names(&agents_of(&stores).await?)));
        }
        answer => answer?,
    };
    let id = short(run_of(&delegation)?);
    if *wait {
        return follow::wait(&Wait { run: id, timeout: WAIT, choice: choice.clone(), json: *json }).await;
    }
    let agent = visible(delegation["to_agent"].as_str().unwrap_or(to));
    let page = Page::of_data(&id, &format!("acknowledged by {agent}"), delegation);
    Ok(Page { done: Some(format!("the task is journaled as {id}")), ..page })
}

/// The agents of the server.
async fn agents_of(stores: &Stores) -> Result<Value, Failure> {
    ask_service(stores, ("GET", "/v1/agents"), None).await
}

fn each(agents: &Value) -> impl Iterator<Item = &Value> {
    agents["agents"].as_array().into_iter().flatten()
}

/// The names of the agents that are not built in.
pub(super) async fn own_agents(stores: &Stores) -> Result<Vec<String>, Failure> {
    let agents = agents_of(stores).await?;
    let own = each(&agents).filter(|agent| agent["is_built_in"] != true);
    Ok(own.filter_map(|agent| agent["agent"].as_str()).map(str::to_owned).collect())
}

/// Whether the server has an agent of this name.
pub(super) async fn is_agent(stores: &Stores, name: &str) -> Result<bool, Failure> {
    Ok(each(&agents_of(stores).await?).any(|agent| agent["agent"] == name))
}

/// A line with the names that exist.
fn names(agents: &Value) -> String {
    let names: Vec<&str> = each(agents).filter_map(|agent| agent["agent"].as_str()).collect();
    format!("    the agents are {}", visible(&names.join(", ")))
}

/// # Errors
/// The server has no agent of this name, role or capability.
pub(super) async fn check_agent(stores: &Stores, to: &str) -> Result<(), Failure> {
    let agents = agents_of(stores).await?;
    let has = |agent: &Value| {
        let capabilities = agent["capabilities"].as_array().into_iter().flatten();
        [&agent["agent"], &agent["role"]].into_iter().chain(capabilities).any(|name| name == to)
    };
    if each(&agents).any(has) {
        return Ok(());
    }
    let text = format!("no agent has the name, role or capability {}", visible(&quoted(to)));
    Err(Failure::not_found(text).with(&names(&agents)))
}

/// Lists the agents of the server.
pub(super) async fn agents(arguments: &Common) -> Result<Page, Failure> {
    let answer = agents_of(&arguments.choice.stores()?).await?;
    let mut drawn = table(["agent", "role", "capabilities", "", "what it is for"], &[]);
    for agent in each(&answer) {
        let text = |field: &str| visible(agent[field].as_str().unwrap_or_default());
        let capabilities = agent["capabilities"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let capabilities: Vec<String> = capabilities.map(visible).collect();
        let built_in = if agent["is_built_in"] == true { "built in" } else { "" };
        let about = brief(agent["description"].as_str().unwrap_or_default(), 80);
        drawn.add_row([text("agent"), text("role"), capabilities.join(", "), built_in.to_owned(), about]);
    }
    let mut remarks = String::new();
    for (file, why) in answer["refusals"].as_object().into_iter().flatten() {
        let why = visible_lines(why.as_str().unwrap_or_default()).trim_end().replace('\n', "\n    ");
        remarks.push_str(&format!("{} is not used as it is now:\n    {why}\n", visible(file)));
    }
    Ok(Page { remarks, ..Page::new(lines_of(&drawn), answer) })
}
