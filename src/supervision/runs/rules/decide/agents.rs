//! Whether a turn may create a dynamic agent, or change one.

use callboard_text::look_alike;

use crate::messages::{AgentName, Authority, Json, Refusal};
use crate::supervision::runs::rules::run::{Bounds, OpenTurn, Run};

use super::context::DecisionContext;

/// Decides about a dynamic agent that a turn wants to create or change, and about the agent's authority.
///
/// # Errors
/// [`Refusal::AgentNotMade`].
pub(crate) fn on_make(
    run: &Run,
    turn: &OpenTurn,
    name: &str,
    draft: &Json,
    is_change: bool,
    context: &DecisionContext<'_>,
) -> (Result<AgentName, Refusal>, Authority) {
    let own = run.own_authority(&turn.agent, context.directory);
    let Bounds { authority, .. } = run.bounds_of(run.branch_of(turn), own, context.directory);
    let made = made(run, turn, name, draft, is_change, context);
    (made.map_err(|why| Refusal::AgentNotMade { name: name.to_owned(), why }), authority)
}

fn made(
    run: &Run,
    turn: &OpenTurn,
    name: &str,
    draft: &Json,
    is_change: bool,
    context: &DecisionContext<'_>,
) -> Result<AgentName, String> {
    let agent = turn.agent.of_made(name).map_err(|error| error.to_string())?;
    match (is_change, run.agents().named(name)) {
        (true, Some(there)) if *there == agent => {}
        (true, Some(_)) => return Err("only the agent that made it may change it".to_owned()),
        (true, None) => return Err("no agent of this name was made in this run".to_owned()),
        (false, Some(_)) => return Err("an agent of this run has the name".to_owned()),
        (false, None) => {
            if !matches!(context.directory.resolve(name), Err(Refusal::UnknownAgent { .. })) {
                return Err("the name is in use".to_owned());
            }
            let made = look_alike(name, run.agents().names()).map(str::to_owned);
            if let Some(other) = made.or_else(|| context.directory.look_alike(name).map(|other| other.to_string())) {
                return Err(format!("the name looks like that of {other}; choose another one"));
            }
            let most = context.dynamic_agents;
            let noun = if most == 1 { "agent" } else { "agents" };
            if run.agents().len() >= most {
                return Err(format!("the run has made {most} {noun}, which is the most; change one of them"));
            }
        }
    }
    let host = turn.agent.host();
    if context.facts.lock().non_reentrant.contains(host) {
        return Err(format!(
            "{host} takes no other turn while one of its turns waits, and so has no place for another"
        ));
    }
    let kept = || context.directory.kept(&turn.agent).map(|kept| kept.drafts);
    let made = turn.made.as_deref().filter(|made| !made.is_empty()).map(<[Json]>::to_vec);
    let mut drafts = made.or_else(kept).unwrap_or_default();
    drafts.push(draft.clone());
    context.directory.check_made(host, &drafts)?;
    Ok(agent)
}
