//! The run of an intent: submitted in the name of a token, and waited for.

use axum::response::{IntoResponse, Response};
use callboard::messages::{Json, Outcome, RunId, TraceParent};
use callboard_knowledge::KnowledgeError;
use callboard_knowledge::facts::FactId;
use callboard_knowledge::intents::{
    ConsumerIntentEnvelope, Intent, IntentLoopResult, IntentResult, Refused, result_of, task,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::base::Facts;
use crate::context::Context;
use crate::delegations;
use crate::entries::check_granted;
use crate::problem::{Problem, ProblemCode};
use crate::tokens::Caller;

/// What a client asks of the base.
pub(super) struct Asked {
    pub(super) intent: Intent,
    pub(super) namespace: String,
    pub(super) payload: Result<Json, serde_json::Error>,
    /// Whether the run is trusted. A fact of one that is not is disputed, and such a run changes no facts.
    pub(super) is_trusted: bool,
    /// The run of an idempotency key.
    pub(super) run: Option<RunId>,
    pub(super) parent: Option<TraceParent>,
}

impl Asked {
    /// An intent that is not trusted.
    pub(super) fn new(intent: Intent, namespace: &str, payload: impl Serialize) -> Self {
        let (namespace, payload) = (namespace.to_owned(), Json::of(payload));
        Self { intent, namespace, payload, is_trusted: false, run: None, parent: None }
    }
}

/// Why there is no result: a problem, and what was refused if the base has refused it.
#[derive(Debug)]
pub(crate) struct Declined {
    pub(crate) problem: Problem,
    refused: Option<Refused>,
}

impl From<Problem> for Declined {
    fn from(problem: Problem) -> Self {
        Self { problem, refused: None }
    }
}

impl From<Refused> for Declined {
    fn from(refused: Refused) -> Self {
        let code = match &*refused.code {
            "no_such_fact" => ProblemCode::NotFound,
            "changed" | "unchanged" | "not_disputed" | "contradicts" | "other_parts" => ProblemCode::Conflict,
            "untrusted" | "authority" | "needs_person" => ProblemCode::MissingScope,
            // The payload or the statement.
            _ => ProblemCode::Refused,
        };
        Self { problem: Problem::new(code, refused.message.clone()), refused: Some(refused) }
    }
}

impl IntoResponse for Declined {
    fn into_response(self) -> Response {
        let mut members = Map::new();
        if let Some(Refused { code, contradictions, .. }) = self.refused {
            members.insert("reason".to_owned(), code.into());
            if !contradictions.is_empty() {
                members.insert("contradictions".to_owned(), json!(contradictions));
            }
        }
        self.problem.response_with(members)
    }
}

/// The base, if the token was granted the namespace.
pub(super) fn facts<'c>(context: &'c Context, caller: &Caller, namespace: &str) -> Result<&'c Facts, Problem> {
    let none = || {
        Problem::not_found(
            "there is no base of facts; `callboard kb init PATH` makes one of the files in PATH, which the server then serves",
        )
    };
    let facts = context.facts.get().ok_or_else(none)?;
    check_granted(caller, namespace)?;
    Ok(facts)
}

/// A failure of the base, or a fact that is not there.
pub(super) fn of_base(error: KnowledgeError) -> Problem {
    match error {
        KnowledgeError::NoSuchFact { id } => no_fact(&id.to_string()),
        error => {
            tracing::error!(%error, "a request failed in the base of facts");
            Problem::new(
                ProblemCode::Unavailable,
                "the base of facts cannot be read; the log of the server has the cause",
            )
        }
    }
}

/// There is no such fact in the namespace.
pub(super) fn no_fact(named: &str) -> Problem {
    let named = callboard::messages::visible(named);
    Problem::not_found(format!("there is no fact {named}; a query answers with the ids of what it finds"))
}

/// The fact that a path names.
pub(super) fn fact_id(text: &str) -> Result<FactId, Problem> {
    text.parse().map_err(|_| no_fact(text))
}

/// Submits an intent in the name of the token, and waits for its result. A client that leaves does not end the run.
pub(super) async fn ask(context: &Context, caller: &Caller, asked: Asked) -> Result<IntentLoopResult, Declined> {
    let Asked { intent, namespace, payload, is_trusted, run, parent } = asked;
    let Facts { config, .. } = facts(context, caller, &namespace)?;
    let unwritable = |error: serde_json::Error| Problem::internal(&error);
    let requester = caller.requester()?;
    let principal = requester.to_string();
    let envelope =
        ConsumerIntentEnvelope { intent, payload: payload.map_err(unwritable)?, principal, namespace, trace: None };
    let mut task = task(&envelope, config).map_err(unwritable)?;
    task.from_agent = Some(requester);
    task.is_untrusted = !is_trusted;
    task.id = run;
    task.trace_parent = parent.map(|parent| delegations::of_client(parent, &task));
    let fold = delegations::submit(context, task).await?;
    let run = context.board.run(fold.submission().run);
    let result = run.result().await.map_err(Problem::from)?;
    match &result.outcome {
        Outcome::Finished => {}
        Outcome::Refused(refusal) => return Err(Problem::from(refusal.clone()).into()),
        outcome @ (Outcome::Failed { .. } | Outcome::Denied { .. } | Outcome::Cancelled { .. }) => {
            tracing::error!(run = %run.id(), %outcome, "the run of an intent did not finish");
            let detail = format!("the run {} did not finish; it and the log of the server have the cause", run.id());
            return Err(Problem::new(ProblemCode::Unavailable, detail).into());
        }
    }
    Ok(result_of(&result).map_err(|error| Problem::internal(&error))?)
}

/// A result, as it is answered.
pub(super) fn shown(result: IntentLoopResult) -> Result<Value, Declined> {
    let IntentLoopResult { result, iterations, escalated } = result;
    Ok(match result {
        IntentResult::Found { retrieved, answer } => {
            let mut shown = json!(retrieved);
            shown["iterations"] = iterations.into();
            shown["escalated"] = escalated.into();
            if let Some(answer) = answer {
                shown["answer"] = json!(answer);
            }
            shown
        }
        IntentResult::Submitted { submitted, similar } => {
            let mut shown = json!(submitted);
            shown["similar"] = json!(similar);
            shown
        }
        IntentResult::Preview(preview) => json!(preview),
        IntentResult::Applied(applied) => json!(applied),
        IntentResult::Refused(refused) => return Err(refused.into()),
    })
}
