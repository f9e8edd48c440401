//! The routes for facts.

use axum::extract::{FromRequestParts, State};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use axum::{Extension, Json};
use callboard_knowledge::intents::{Intent, InvalidatePayload, QueryPayload, SubmitPayload};
use callboard_knowledge::store::ChangeKind;
use serde::Deserialize;
use serde_json::{Value, json};

use super::asking::{Asked, Declined, ask, fact_id, facts, no_fact, of_base, shown};
use crate::body::{Body, parameter};
use crate::context::{Context, Shared};
use crate::delegations::{idempotency_key, run_of, trace_parent};
use crate::problem::{Problem, ProblemCode};
use crate::tokens::{Caller, Scope};

/// The parameters `namespace` and `fact` of a path, decoded; the fact is empty where there is none.
pub(super) struct FactPath {
    pub(super) namespace: String,
    pub(super) fact: String,
}

impl<S: Send + Sync> FromRequestParts<S> for FactPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let namespace = parameter(parts, state, "namespace").await?;
        Ok(Self { namespace, fact: parameter(parts, state, "fact").await? })
    }
}

/// The same intent with what the headers have.
fn with_headers(asked: Asked, caller: &Caller, headers: &HeaderMap) -> Result<Asked, Problem> {
    let run = idempotency_key(headers)?.map(|key| run_of(caller, key));
    Ok(Asked { run, parent: trace_parent(headers), ..asked })
}

/// Answers with what is known about a question.
pub(super) async fn query(
    State(context): Shared,
    FactPath { namespace, .. }: FactPath,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    Body(payload): Body<QueryPayload>,
) -> Result<Json<Value>, Declined> {
    let asked = Asked::new(Intent::QueryTruth, &namespace, payload);
    let asked = Asked { is_trusted: caller.scopes.contains(&Scope::Admin), ..asked };
    answered(&context, &caller, with_headers(asked, &caller, &headers)?).await
}

/// Submits a fact, and answers with what became of it.
pub(super) async fn submit(
    State(context): Shared,
    FactPath { namespace, .. }: FactPath,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    Body(payload): Body<SubmitPayload>,
) -> Result<Json<Value>, Declined> {
    let asked = Asked::new(Intent::SubmitFact, &namespace, payload);
    let asked = Asked { is_trusted: caller.scopes.contains(&Scope::Admin), ..asked };
    answered(&context, &caller, with_headers(asked, &caller, &headers)?).await
}

async fn answered(context: &Context, caller: &Caller, asked: Asked) -> Result<Json<Value>, Declined> {
    shown(ask(context, caller, asked).await?).map(Json)
}

/// Answers with a fact and its history.
pub(super) async fn fact(
    State(context): Shared,
    FactPath { namespace, fact }: FactPath,
    Extension(caller): Extension<Caller>,
) -> Result<Json<Value>, Problem> {
    let base = &facts(&context, &caller, &namespace)?.base;
    let id = fact_id(&fact)?;
    let found = base.fact(id).await.map_err(of_base)?;
    if found.namespace != namespace {
        // What another namespace has is not told apart from what nobody has.
        return Err(no_fact(&id.to_string()));
    }
    let history = base.log(id).await.map_err(of_base)?;
    Ok(Json(json!({ "fact": found, "history": history })))
}

/// A change of the fact that the path names.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Change {
    #[serde(default = "invalidate_kind")]
    kind: ChangeKind,
    #[serde(default)]
    reason: String,
    /// The hash of the preview that is applied.
    apply: Option<String>,
}

const fn invalidate_kind() -> ChangeKind {
    ChangeKind::Invalidate
}

/// Shows what a change of a fact would do, or applies what was shown.
pub(super) async fn invalidate(
    State(context): Shared,
    FactPath { namespace, fact }: FactPath,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    Body(Change { kind, reason, apply }): Body<Change>,
) -> Result<Json<Value>, Declined> {
    facts(&context, &caller, &namespace)?;
    let is_trusted = is_trusted(&context, &caller, kind, apply.is_some())?;
    let payload = InvalidatePayload { fact: fact_id(&fact)?, kind, reason, apply };
    let asked = Asked { is_trusted, ..Asked::new(Intent::InvalidateFact, &namespace, payload) };
    answered(&context, &caller, with_headers(asked, &caller, &headers)?).await
}

/// Whether the run of a change is trusted: a change that is applied is the decision of a person, by a token with the scope `approve`, or of
/// an administrator. That a disputed fact holds is decided by a person alone.
fn is_trusted(context: &Context, caller: &Caller, kind: ChangeKind, applies: bool) -> Result<bool, Problem> {
    let (is_admin, decides) = (caller.scopes.contains(&Scope::Admin), caller.scopes.contains(&Scope::Approve));
    let needed = match kind {
        ChangeKind::Accept => (!decides).then_some("that a disputed fact holds is decided with the scope approve"),
        ChangeKind::Invalidate => {
            (applies && !is_admin && !decides).then_some("a change is applied with the scope approve or admin")
        }
    };
    if let Some(needed) = needed {
        let detail = format!("{needed}, which the token {} does not have", caller.name);
        return Err(Problem::new(ProblemCode::MissingScope, detail));
    }
    let is_decision = applies && (kind == ChangeKind::Accept || !is_admin);
    if is_decision && let Some(why) = (context.refuses_decisions)() {
        return Err(Problem::new(ProblemCode::DecisionsRefused, why));
    }
    Ok(is_admin || is_decision)
}
