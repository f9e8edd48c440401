//! The agents of a board that carry intents out.

use callboard::actors::DelegationError;
use callboard::messages::{
    ChainStep, Command, Complexity, Durability, Effect, Json, Limits, RunResult, Task, TraceParent,
};
use callboard::{Agent, AgentSpec, Terminal, Turn, TurnError};
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
use crate::store::{KnowledgeBase, KnowledgeError};

/// The agent that runs the loop of an intent.
pub const LOOP_AGENT: &str = "knowledge";

/// The agent that executes one pass.
pub const PASS_AGENT: &str = "knowledge-pass";

/// What the loop's agent is given.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct IntentRequest {
    envelope: ConsumerIntentEnvelope,
    #[serde(default)]
    config: IntentLoopConfig,
}

/// The agents of a base, for [`Builder::with`](callboard::Builder::with). Other agents delegate intents to [`LOOP_AGENT`].
#[must_use]
pub fn agents(base: &KnowledgeBase) -> [AgentSpec; 2] {
    let base = base.clone();
    [AgentSpec::new(LOOP_AGENT, || LoopAgent), AgentSpec::new(PASS_AGENT, move || PassAgent { base: base.clone() })]
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
struct LoopAgent;

impl Agent for LoopAgent {
    async fn turn(&self, turn: Turn) -> Result<Command, TurnError> {
        let IntentRequest { mut envelope, config } = match turn.input_json().parse() {
            Ok(request) => request,
            Err(error) => return Ok(refused(format!("the input is no intent: {error}"))),
        };
        // Who is known to ask counts, whatever the envelope has.
        if let Some(step) = turn.chain().steps().last() {
            envelope.principal = step.from.to_string();
        } else if let Some(requester) = &turn.task().from_agent {
            envelope.principal = requester.to_string();
        }
        match run_intent_loop(envelope, &AsTurns { turn }, &config).await {
            Ok(result) => Ok(Command::output(result)),
            Err(error) => Err(turn_error(error)),
        }
    }
}

fn refused(message: String) -> Command {
    let refused = Refused { code: "bad_payload".to_owned(), message, contradictions: Vec::new() };
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
        IntentError::Base(error @ (KnowledgeError::Busy | KnowledgeError::Full | KnowledgeError::DamagedIndex)) => {
            error.into()
        }
        error => Terminal(error).into(),
    }
}
