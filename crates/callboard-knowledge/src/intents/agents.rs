//! The agents of a board that carry intents out.

use std::collections::BTreeMap;
use std::sync::Arc;

use callboard::actors::DelegationError;
use callboard::messages::{
    AgentName, ChainStep, Command, Complexity, Durability, Effect, Json, Limits, RunResult, Task, TraceParent,
};
use callboard::{Agent, AgentSpec, Terminal, Turn, TurnError};
use callboard_text::quoted;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

use super::asking::IntentError;
use super::envelope::{ConsumerIntentEnvelope, Intent, IntentLoopConfig, IntentLoopResult, IntentResult, Refused};
use super::executor::{InPlace, Pass, PassResult, ToolExecutor};
use super::looping::run_intent_loop;
use super::origin::Origin;
use crate::facts::OnContradiction;
use crate::search::Retrieved;
use crate::store::KnowledgeBase;

/// The agent that runs the loop of an intent.
pub const LOOP_AGENT: &str = "knowledge";

/// The namespace of facts that every agent of a board reaches.
pub const DEFAULT_NAMESPACE: &str = "default";

/// The agent that executes one pass.
pub const PASS_AGENT: &str = "knowledge-pass";

/// The agent that a language model is asked through, where a [`provider`](super::IntentLoopConfig::provider) of this name is asked.
pub const PROVIDER_AGENT: &str = "knowledge-model";

/// What the loop's agent is given.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct IntentRequest {
    envelope: ConsumerIntentEnvelope,
    #[serde(default)]
    config: IntentLoopConfig,
}

/// The agents of a base, for [`Builder::with`](callboard::Builder::with). Other agents delegate intents to [`LOOP_AGENT`], for the namespace
/// [`DEFAULT_NAMESPACE`] alone; [`agents_for`] is for boards whose agents have others.
#[must_use]
pub fn agents(base: &KnowledgeBase) -> [AgentSpec; 2] {
    agents_for(base, [])
}

/// As [`agents`], for a board with these other agents. Each of them also reaches the facts of the namespaces that it was granted for the
/// shared context ([`AgentSpec::namespaces`]). What an agent asks for elsewhere is refused, and so is an intent that a dynamic agent, which is in
/// no list, asks outside of [`DEFAULT_NAMESPACE`]. A task that is submitted to the board is not checked: who submits it checks who may.
///
/// ```
/// use callboard::env::Env;
/// use callboard::prelude::*;
/// use callboard_knowledge::KnowledgeBase;
/// use callboard_knowledge::intents::agents_for;
/// # let folder = tempfile::tempdir()?;
/// let base = KnowledgeBase::create(&folder.path().join("facts.db"), &Env::system())?;
/// let clerk = AgentSpec::new("clerk", |_: Turn| async move { Ok(Command::new()) }).namespaces(["plans"]);
/// let of_facts = agents_for(&base, [&clerk]);
/// let board = of_facts.into_iter().fold(Callboard::builder().with(clerk), |board, agent| board.with(agent));
/// # let _ = board;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn agents_for<'a>(base: &KnowledgeBase, others: impl IntoIterator<Item = &'a AgentSpec>) -> [AgentSpec; 2] {
    let (base, grants) = (base.clone(), Grants::of(others));
    [
        AgentSpec::new(LOOP_AGENT, move || LoopAgent { grants: grants.clone() }),
        AgentSpec::new(PASS_AGENT, move || PassAgent { base: base.clone() }),
    ]
}

/// The namespaces of facts that agents reach.
#[derive(Clone, Debug)]
struct Grants(Arc<BTreeMap<AgentName, Vec<Arc<str>>>>);

impl Grants {
    fn of<'a>(agents: impl IntoIterator<Item = &'a AgentSpec>) -> Self {
        let granted = agents.into_iter().filter_map(|agent| {
            // A board refuses an agent whose name is none.
            Some((agent.name().ok()?, agent.granted_namespaces()?.to_vec()))
        });
        Self(Arc::new(granted.collect()))
    }

    fn has(&self, agent: &AgentName, namespace: &str) -> bool {
        let is_granted = |granted: &Vec<Arc<str>>| granted.iter().any(|granted| **granted == *namespace);
        namespace == DEFAULT_NAMESPACE || self.0.get(agent).is_some_and(is_granted)
    }
}

/// The task of an intent, to be submitted to a board that has [`agents`]; its output is an [`IntentLoopResult`].
///
/// A change is acknowledged when it is on disk. A query changes nothing, so it is journaled without waiting for the disk.
///
/// # Errors
/// The payload or the config has no JSON form.
pub fn task(envelope: &ConsumerIntentEnvelope, config: &IntentLoopConfig) -> Result<Task, serde_json::Error> {
    let request = IntentRequest { envelope: envelope.clone(), config: config.clone() };
    let body = match envelope.intent {
        Intent::QueryTruth => "query_truth",
        Intent::SubmitFact => "submit_fact",
        Intent::InvalidateFact => "invalidate_fact",
    };
    // Each pass is a delegation; another two are the answer and what the provider's own agent needs.
    let handoffs = config.max_iterations.saturating_add(2);
    let limits = Limits { handoffs, agents: 8, ..Limits::of(Complexity::Complex) };
    let durability = if envelope.intent.changes() { Durability::Sync } else { Durability::Buffered };
    let mut task = Task::new(body).to(LOOP_AGENT).input(Json::of(request)?).limits(limits).durability(durability);
    task.trace_parent = envelope.trace.as_deref().and_then(TraceParent::parse).map(Box::new);
    Ok(task)
}

/// Reads the result of the run of an intent.
///
/// # Errors
/// The run did not finish, or its output is not of an intent.
pub fn result_of(result: &RunResult) -> Result<IntentLoopResult, IntentError> {
    if result.outcome.is_finished() {
        result.output.parse().map_err(|error| IntentError::Unreadable(format!("the run's output: {error}")))
    } else {
        Err(IntentError::Unreadable(format!("the run of the intent did not finish: {}", result.outcome)))
    }
}

#[derive(Debug)]
struct LoopAgent {
    grants: Grants,
}

impl Agent for LoopAgent {
    async fn turn(&self, turn: Turn) -> Result<Command, TurnError> {
        let asker = turn.chain().steps().last().map(|step| step.from.clone());
        // After a handoff, and in a workflow, the chain does not have who wrote the intent: it would be done in the name of another.
        if turn.node().is_some() || turn.previous_agent() != asker.as_ref() {
            let text = format!("{LOOP_AGENT} takes delegations and tasks, no handoffs, and is no node of a workflow");
            return Ok(refused("handed_over", text));
        }
        let IntentRequest { mut envelope, config } = match turn.input_json().parse() {
            Ok(request) => request,
            Err(error) => return Ok(refused("bad_payload", format!("the input is no intent: {error}"))),
        };
        // Who is known to ask counts, whatever the envelope has.
        if let Some(asker) = asker {
            if !self.grants.has(&asker, &envelope.namespace) {
                let namespace = quoted(&envelope.namespace);
                let text = format!(
                    "agent {asker} has no grant for the facts of namespace {namespace}; it is granted by `namespaces` under \
                     [agent.context] in the agent's file, or by AgentSpec::namespaces"
                );
                return Ok(refused("not_granted", text));
            }
            envelope.principal = asker.to_string();
        } else if let Some(requester) = &turn.task().from_agent {
            envelope.principal = requester.to_string();
        }
        match run_intent_loop(envelope, &AsTurns { turn }, &config).await {
            Ok(result) => Ok(Command::output(result)),
            Err(error) => Err(turn_error(error)),
        }
    }
}

fn refused(code: &str, message: String) -> Command {
    let refused = Refused { code: code.to_owned(), message, contradictions: Vec::new() };
    Command::output(IntentLoopResult { result: IntentResult::Refused(refused), iterations: 0, escalated: false })
}

/// Executes each pass as a turn of [`PASS_AGENT`].
struct AsTurns {
    turn: Turn,
}

impl ToolExecutor for AsTurns {
    fn execute(&self, pass: Pass) -> BoxFuture<'_, Result<PassResult, IntentError>> {
        let name = match &pass {
            Pass::ReadFacts { .. } => "read facts",
            Pass::Answer { .. } => "answer",
            Pass::Submit { .. } => "submit",
            Pass::Invalidate { .. } => "invalidate",
        };
        let unreadable = move |error: serde_json::Error| IntentError::Unreadable(format!("the pass {name:?}: {error}"));
        async move {
            let input = Json::of(pass).map_err(unreadable)?;
            self.turn.delegate(PASS_AGENT, name).input(input).await?.parse().map_err(unreadable)
        }
        .boxed()
    }
}

#[derive(Debug)]
struct PassAgent {
    base: KnowledgeBase,
}

impl Agent for PassAgent {
    async fn turn(&self, turn: Turn) -> Result<Command, TurnError> {
        let asked: Vec<ChainStep> = turn.chain().steps();
        // Only the loop knows who asks.
        if asked.last().is_none_or(|step| step.from.as_str() != LOOP_AGENT) {
            let text = format!("{PASS_AGENT} takes its tasks from {LOOP_AGENT} alone: delegate intents to that");
            return Err(TurnError::terminal(text));
        }
        let pass: Pass = turn.input()?;
        let needed = match &pass {
            Pass::ReadFacts { .. } | Pass::Answer { .. } => Effect::Reads,
            // It may invalidate facts.
            Pass::Submit { payload, .. } if payload.on_contradiction == OnContradiction::Supersede => Effect::Writes,
            Pass::Submit { .. } => Effect::Notes,
            Pass::Invalidate { payload, .. } if payload.apply.is_none() => Effect::Reads,
            Pass::Invalidate { .. } => Effect::Writes,
        };
        if !turn.authority().allows(needed) {
            let text = format!("the authority of whoever asks does not have {needed:?}, which this needs");
            return Ok(Command::output(PassResult::Result(Box::new(IntentResult::Refused(Refused {
                code: "authority".to_owned(),
                message: text,
                contradictions: Vec::new(),
            })))));
        }
        let id = turn.id();
        let origin = Origin {
            run: Some(id.run.to_string()),
            turn: Some(id.number),
            is_untrusted: turn.is_tainted(),
            by_agent: asked.len() > 1,
            is_approved: false,
            // A change that was made before the turn's end was journaled is answered by its key.
            key: Some(id.to_string()),
        };
        let asking = turn.clone();
        let ask = move |provider: &str, body: &str, input: Json| {
            let answer = asking.delegate(provider, body).input(input);
            async move { answer.await.map_err(IntentError::from) }.boxed()
        };
        match InPlace::new(self.base.clone(), origin).execute_with(pass, Some(&ask)).await {
            Ok(result) => {
                if let PassResult::Retrieved(Retrieved { results, .. }) = &result {
                    for untrusted in results.iter().filter(|result| result.is_untrusted) {
                        turn.taint(&format!("knowledge: {}", untrusted.cite));
                    }
                }
                Ok(Command::output(result))
            }
            Err(error) => Err(turn_error(error)),
        }
    }
}

/// What can pass is tried again; what cannot is not.
fn turn_error(error: IntentError) -> TurnError {
    match error {
        IntentError::Turn(error @ DelegationError::Turn(_)) => error.into(),
        IntentError::Base(error) if error.may_pass() => error.into(),
        error => Terminal(error).into(),
    }
}
