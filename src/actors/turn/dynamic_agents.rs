//! Dynamic agents: a turn creates them, changes them, and has them kept after its run.

use std::future::Future;
use std::sync::Arc;

use crate::messages::{Action, AgentName, Effect, Json, KeptAgent, Rationale, Refusal};
use crate::supervision::runs::decide::denial;
use crate::supervision::runs::rules::requests::{TurnReply, TurnRequest};

use super::error::unexpected;
use super::{Turn, TurnError};

impl Turn {
    /// The dynamic agents that the turn may make, change, and have kept.
    #[must_use]
    pub fn agents(&self) -> TurnAgents<'_> {
        TurnAgents { turn: self }
    }
}

/// Makes dynamic agents on behalf of a turn; made by [`Turn::agents`].
#[derive(Clone, Copy, Debug)]
pub struct TurnAgents<'t> {
    turn: &'t Turn,
}

impl TurnAgents<'_> {
    /// Makes a dynamic agent for the rest of the run, which others of the run call by this name. Its maker builds it from
    /// `draft` ([`Agent::make`](crate::actors::Agent::make)), for each of its turns, and its turns take slots of the agent that its
    /// makers came from. It may cause nothing that this turn may not (SEMANTICS 13).
    ///
    /// # Errors
    /// [`Refusal::AgentNotMade`]: the name is in use, the run has (16) of them, or its maker cannot make it.
    pub fn make(self, name: &str, draft: Json) -> impl Future<Output = Result<AgentName, TurnError>> + Send + use<> {
        self.request(name, draft, false)
    }

    /// Changes an agent that this turn's agent has made. Its turns under way finish as they were.
    ///
    /// # Errors
    /// [`Refusal::AgentNotMade`]: it is not there, was made by another one, or cannot be made so.
    pub fn change(self, name: &str, draft: Json) -> impl Future<Output = Result<AgentName, TurnError>> + Send + use<> {
        self.request(name, draft, true)
    }

    /// Asks people to keep an agent that this turn's agent has made, as `draft` describes it: once it is approved, it is an agent
    /// of the board that lasts over runs and restarts, and is called by its name, or as `maker~name`. It stays a dynamic agent:
    /// its turns take slots of its host, from whose value it is built for each turn, and may cause what this turn may at most. It is
    /// stored with what was approved, also if people have changed that. [`AgentSpec::keeps_agents`](crate::AgentSpec) permits
    /// it for the host (SEMANTICS 13).
    ///
    /// # Errors
    /// [`Refusal::AgentNotMade`] as for [`TurnAgents::change`], or where agents may not be kept; [`Refusal::Denied`] or
    /// [`Refusal::ApprovalExpired`].
    pub fn keep(self, name: &str, draft: Json) -> impl Future<Output = Result<AgentName, TurnError>> + Send + use<> {
        let (turn, name) = (self.turn.clone(), Arc::<str>::from(name));
        let is_fit = self.change(&name, draft.clone());
        let authority = turn.authority();
        let effects = Effect::ALL.into_iter().filter(|effect| authority.allows(*effect)).map(Effect::name);
        let asked = serde_json::json!({ "draft": draft, "may_cause": effects.collect::<Vec<_>>() });
        let action = Action::new("keep_agent", &name, asked);
        // Ordinals depend on the order of the calls, so all are taken before the first await.
        let (consent, change) = (turn.take_ordinal(), turn.take_ordinal());
        async move {
            let not_kept = |why: &str| Refusal::AgentNotMade { name: name.to_string(), why: why.to_owned() };
            if !turn.shared.settings.keeps_agents {
                return Err(not_kept("agents of this host are not kept: AgentSpec::keeps_agents permits it").into());
            }
            is_fit.await?;
            let request = || {
                let (action, rationale) = (action.clone(), Rationale::default());
                TurnRequest::Approve { action, each_time: true, rationale }
            };
            let action = match turn.request(consent, request).await? {
                TurnReply::Decided(decided) => match *decided {
                    (decision, action) if decision.approved => action,
                    (decision, action) => return Err(denial(&action, &decision).into()),
                },
                reply => return Err(unexpected(&reply)),
            };
            let Some(draft) = action.arguments.get("draft").cloned().map(Json::from) else {
                return Err(not_kept("what was approved has no draft").into());
            };
            let mut drafts = turn.shared.ready.extras.made.as_deref().unwrap_or_default().to_vec();
            drafts.push(draft.clone());
            let request = || {
                let (name, draft) = (Arc::clone(&name), draft.clone());
                TurnRequest::MakeAgent { name, draft, is_change: true }
            };
            let agent = match turn.request(change, request).await? {
                TurnReply::Made(made) => made.map_err(|refusal| *refusal)?,
                reply => return Err(unexpected(&reply)),
            };
            let at = turn.shared.env().now().wall;
            let (authority, run) = (turn.authority(), turn.own_id().run);
            let keeping =
                turn.shared.services.kept_agents.keep(KeptAgent { agent: agent.clone(), drafts, authority, run, at });
            turn.waiting_for(keeping).await.map_err(|error| TurnError::transient(error.to_string()))?;
            Ok(agent)
        }
    }

    fn request(
        self,
        name: &str,
        draft: Json,
        is_change: bool,
    ) -> impl Future<Output = Result<AgentName, TurnError>> + Send + use<> {
        let (ordinal, turn, name) = (self.turn.take_ordinal(), self.turn.clone(), Arc::<str>::from(name));
        async move {
            let request = || TurnRequest::MakeAgent { name: Arc::clone(&name), draft: draft.clone(), is_change };
            match turn.request(ordinal, request).await? {
                TurnReply::Made(made) => Ok(made.map_err(|refusal| *refusal)?),
                reply => Err(unexpected(&reply)),
            }
        }
    }
}
