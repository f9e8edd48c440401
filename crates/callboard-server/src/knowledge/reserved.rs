//! The agents of the base take tasks from the routes for facts alone, which check namespaces and scopes.

use callboard::messages::{RunEvent, Task, Verdict};
use callboard::runtime::RunHandle;
use callboard_knowledge::intents::{LOOP_AGENT, PASS_AGENT, PROVIDER_AGENT};

use crate::context::Context;
use crate::problem::{Problem, ProblemCode};

fn is_agent(name: &str) -> bool {
    [LOOP_AGENT, PASS_AGENT, PROVIDER_AGENT].contains(&name)
}

/// Whether an agent is one of the base.
pub(crate) fn is_reserved(context: &Context, agent: &str) -> bool {
    context.facts.reserves() && is_agent(agent)
}

fn names_agents(task: &Task) -> bool {
    let of_plan = task.plan.iter().flat_map(|plan| plan.cast());
    task.to.iter().chain(of_plan).any(|name| is_agent(name))
}

fn refused(what: &str) -> Problem {
    let detail = format!(
        "{what}: ask with the routes below /v1/knowledge, or with the tools query_truth, submit_fact and invalidate_fact"
    );
    Problem::new(ProblemCode::Refused, detail)
}

/// Refuses a task that an agent of the base is to do, also as a part of a workflow.
pub(crate) fn check(context: &Context, task: &Task) -> Result<(), Problem> {
    if context.facts.reserves() && names_agents(task) {
        return Err(refused("the agents of the base of facts take no tasks from delegations"));
    }
    Ok(())
}

/// Refuses that a run of an agent of the base is repeated, by whoever may not ask the same, and that a run in which one has worked is
/// repeated with another input.
pub(crate) async fn check_repeated(context: &Context, run: &RunHandle, has_input: bool) -> Result<(), Problem> {
    if !context.facts.reserves() {
        return Ok(());
    }
    let fold = run.read().await?;
    let submission = fold.submission();
    if is_agent(submission.agent.as_str()) || names_agents(&submission.task) {
        return Err(refused("a run of the base of facts is not repeated"));
    }
    if has_input {
        let has_asked = run.history().await?.iter().any(|event| match event {
            RunEvent::Delegated { verdict: Verdict::Admitted(agents), .. } => {
                agents.iter().any(|agent| is_agent(agent.as_str()))
            }
            _ => false,
        });
        if has_asked {
            return Err(refused("a run that has asked the base of facts is not repeated with another input"));
        }
    }
    Ok(())
}
