//! `callboard send`, `workflow start` and `agents`: what `callboard serve` is asked.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use callboard::messages::{visible, visible_lines};
use callboard_text::quoted;

use crate::command_line::command_line;
use crate::exit::Exit;
use crate::page::{Failure, Page, brief, lines_of, table};
use crate::run_names::short;
use crate::stores::{Common, Stores};
use crate::trace_parent;
use crate::values::similar;
use crate::workflow::arguments::Start;
use crate::workflow::input::whole;

use super::arguments::{Delivery, Send, WAIT, Wait};
use super::boards::{ask_any, run_of};
use super::follow;

/// Delegates a task, and returns once it is journaled.
pub(super) async fn send(arguments: &Send) -> Result<Page, Failure> {
    let Send { to, task, input, delivery } = arguments;
    let mut request = json!({ "to": to, "body": task });
    if let Some(input) = input {
        request["input"] = input.clone();
    }
    let stores = delivery.choice.stores()?;
    match begun(&stores, request, delivery).await {
        Err(failure) if failure.exit() == Exit::NotFound => Err(failure.with(&names(&agents_of(&stores).await?))),
        delegation => followed(delegation?, delivery).await,
    }
}

/// Starts a saved workflow, and returns once its task is journaled.
pub(super) async fn start(arguments: Start) -> Result<Page, Failure> {
    let Start { name, task, input, input_json, delivery } = arguments;
    let stores = delivery.choice.stores()?;
    check_workflow(&stores, &name).await?;
    let input = whole(input, input_json)?;
    let request = json!({ "workflow": name, "body": task.as_deref().unwrap_or(&name), "input": input });
    followed(begun(&stores, request, &delivery).await?, &delivery).await
}

/// Gives a task to the server, or to a board on another machine, which answers with the delegation.
async fn begun(stores: &Stores, mut request: Value, delivery: &Delivery) -> Result<Value, Failure> {
    let Delivery { limits, reference, key, .. } = delivery;
    if let Some(limits) = limits {
        request["limits"] = json!(limits.of_new_run());
    }
    if let Some(reference) = reference {
        request["reference"] = json!(reference);
    }
    let span = trace_parent::of_environment();
    let text = span.as_ref().map(ToString::to_string);
    let state = span.as_ref().and_then(|span| span.state.as_deref());
    let headers = [("idempotency-key", key.as_deref()), ("traceparent", text.as_deref()), ("tracestate", state)];
    let headers: Vec<_> = headers.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    ask_any(stores, ("POST", "/v1/delegations"), &headers, Some(&request)).await
}

/// The id of a delegation, or how it ends.
async fn followed(delegation: Value, delivery: &Delivery) -> Result<Page, Failure> {
    let Delivery { wait, choice, json, .. } = delivery;
    let id = short(run_of(&delegation)?);
    if *wait {
        return follow::wait(&Wait { run: id, timeout: WAIT, choice: choice.clone(), json: *json }).await;
    }
    let agent = visible(delegation["to_agent"].as_str().unwrap_or_default());
    let page = Page::of_data(&id, &format!("acknowledged by {agent}"), delegation);
    Ok(Page { done: Some(format!("the task is journaled as {id}")), ..page })
}

/// # Errors
/// No workflow of this name is saved.
pub(super) async fn check_workflow(stores: &Stores, name: &str) -> Result<(), Failure> {
    let saved = ask_any(stores, ("GET", "/v1/workflows"), &[], None).await?;
    let names = saved["workflows"].as_array().into_iter().flatten().filter_map(|saved| saved["name"].as_str());
    let names: Vec<&str> = names.collect();
    if names.contains(&name) {
        return Ok(());
    }
    let known = match names.as_slice() {
        [] => format!("    to save one: {}", visible(&command_line("workflow save FILE", stores.named()))),
        names => format!("    the saved workflows are {}", visible(&names.join(", "))),
    };
    let text = format!("no workflow {} is saved in this store{}", visible(name), tip(name, names));
    Err(Failure::not_found(text).with(&known))
}

/// The likely name of a misspelt one.
fn tip<'n>(name: &str, names: impl IntoIterator<Item = &'n str>) -> String {
    similar(name, names).map(|likely| format!("; did you mean {}?", visible(&quoted(likely)))).unwrap_or_default()
}

/// The agents of the server, and of the other boards on its store.
async fn agents_of(stores: &Stores) -> Result<Value, Failure> {
    ask_any(stores, ("GET", "/v1/agents"), &[], None).await
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
    let known = each(&agents).flat_map(|agent| {
        let capabilities = agent["capabilities"].as_array().into_iter().flatten();
        [&agent["agent"], &agent["role"]].into_iter().chain(capabilities).filter_map(Value::as_str)
    });
    let known: BTreeSet<&str> = known.collect();
    if known.contains(to) {
        return Ok(());
    }
    let text = format!("no agent has the name, role or capability {}{}", visible(&quoted(to)), tip(to, known));
    Err(Failure::not_found(text).with(&names(&agents)))
}

/// Lists the agents of the server.
pub(super) async fn agents(arguments: &Common) -> Result<Page, Failure> {
    let answer = agents_of(&arguments.choice.stores()?).await?;
    let texts = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(Value::as_str).map(visible).collect()
    };
    // A server that is alone has all of them.
    let have_others = each(&answer).any(|agent| agent["is_here"] != true || texts(&agent["boards"]).len() > 1);
    let with_boards = |boards: String, mut row: Vec<String>| {
        if have_others {
            row.insert(1, boards);
        }
        row
    };
    let header = ["agent", "role", "capabilities", "", "what it is for"].map(str::to_owned).to_vec();
    let mut drawn = table(with_boards("boards".to_owned(), header), &[]);
    for agent in each(&answer) {
        let text = |field: &str| visible(agent[field].as_str().unwrap_or_default());
        let capabilities = texts(&agent["capabilities"]).join(", ");
        let built_in = if agent["is_built_in"] == true { "built in" } else { "" };
        let about = brief(agent["description"].as_str().unwrap_or_default(), 80);
        let row = vec![text("agent"), text("role"), capabilities, built_in.to_owned(), about];
        drawn.add_row(with_boards(texts(&agent["boards"]).join(", "), row));
    }
    let mut remarks = String::new();
    for (file, why) in answer["refusals"].as_object().into_iter().flatten() {
        let why = visible_lines(why.as_str().unwrap_or_default()).trim_end().replace('\n', "\n    ");
        remarks.push_str(&format!("{} is not used as it is now:\n    {why}\n", visible(file)));
    }
    Ok(Page { remarks, ..Page::new(lines_of(&drawn), answer) })
}
