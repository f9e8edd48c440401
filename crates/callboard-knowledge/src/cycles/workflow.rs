//! The workflow of an initialisation.

use std::sync::LazyLock;

use callboard::messages::{Complexity, Durability, Json, Limits, RunResult, Task};
use callboard::workflow::{Node, Workflow};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::agent::CYCLE_AGENT;
use super::types::{InitRequest, Initialised};
use crate::intents::IntentError;

/// How many tokens the calls of the model may use in all, unless the task's limits say otherwise.
const TOKENS: u64 = 1_000_000;

/// The workflow of an initialisation: the name of its plan is `knowledge-init`, its input an [`InitRequest`], its output an [`Initialised`].
///
/// # Panics
/// Never: a test builds it.
#[must_use]
pub fn init_workflow() -> &'static Workflow {
    static WORKFLOW: LazyLock<Workflow> = LazyLock::new(|| match built() {
        Ok(workflow) => workflow,
        Err(defects) => unreachable!("what is compiled in was built by a test: {defects}"),
    });
    &WORKFLOW
}

fn built() -> Result<Workflow, callboard::workflow::Defects> {
    const CONTEXT: &str = "{{ read_inputs.output.context }}";
    let cycle = |node: &str, input: serde_json::Value| Node::agent(node, CYCLE_AGENT).input(input);
    let of_all = |documents: &str| json!({ "context": CONTEXT, "documents": documents });
    let pass2 = [
        cycle("gaps", json!({ "gaps": of_all("{{ pass1.output }}") })),
        cycle("ask", json!({ "ask": { "questions": "{{ gaps.output.questions }}" } })).after("gaps"),
        cycle(
            "refine",
            json!({ "refine": { "context": CONTEXT, "work": "{{ item }}", "answers": "{{ ask.output }}" } }),
        )
        .after("ask")
        .for_each("gaps.output.work"),
    ];
    Workflow::builder("knowledge-init")
        .description("Indexes files, and has a model write documents about them")
        .node(cycle("read_inputs", json!({ "read_inputs": "{{ input }}" })))
        .node(
            cycle("pass1", json!({ "draft": { "context": CONTEXT, "topic": "{{ item }}" } }))
                .after_if("read_inputs", "read_inputs.output.context.topics")
                .for_each("read_inputs.output.context.topics"),
        )
        .node(Node::nodes("pass2", pass2).after("pass1"))
        .node(
            cycle("pass_enrich", json!({ "enrich": { "context": CONTEXT, "document": "{{ item }}" } }))
                .after("pass2")
                .for_each("pass2.output"),
        )
        .node(cycle("pass3", json!({ "review": of_all("{{ pass_enrich.output }}") })).after("pass_enrich"))
        .node(cycle("write", json!({ "write": of_all("{{ pass3.output }}") })).after("pass3"))
        .node(cycle("pass_graph", json!({ "graph": of_all("{{ pass3.output }}") })).after("write"))
        .output(json!({ "indexed": "{{ read_inputs.output.indexed }}", "summaries": "{{ write.output }}" }))
        .build()
}

/// The task of an initialisation, to be submitted to a board that has [`init_agent`](super::init_agent) and the provider of the request.
///
/// Its limits are those of many calls: 1,000,000 tokens in all. Set [`Task::limits`] for others; each call counts as a handoff.
///
/// # Errors
/// The request has no JSON form.
pub fn init_task(request: &InitRequest) -> Result<Task, serde_json::Error> {
    let limits = Limits { handoffs: 1_000, tokens: TOKENS, agents: 8, ..Limits::of(Complexity::Complex) };
    let task = init_workflow().task(Json::of(request)?);
    Ok(task.limits(limits).durability(Durability::Sync))
}

/// Reads the result of the run of an initialisation.
///
/// # Errors
/// The run did not finish, or its output is not of an initialisation.
pub fn init_result(result: &RunResult) -> Result<Initialised, IntentError> {
    output_of(result)
}

pub(super) fn output_of<T: DeserializeOwned>(result: &RunResult) -> Result<T, IntentError> {
    if result.outcome.is_finished() {
        result.output.parse().map_err(|error| IntentError::Unreadable(format!("the run's output: {error}")))
    } else {
        Err(IntentError::Unreadable(format!("the run did not finish: {}", result.outcome)))
    }
}
