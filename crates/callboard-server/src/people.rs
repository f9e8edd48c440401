//! What waits for a person, and what a person responds.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::{Extension, Json};
use callboard::AnswerError;
use callboard::actors::approvals::Card;
use callboard::actors::{StreamMode, Watched};
use callboard::messages::{
    ApprovalId, Decision, Envelope, Pending, PendingId, Response, Resume, RunEvent, RunId, Terms, visible,
};
use futures::StreamExt as _;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::audit::Sender;
use crate::body::{Body, Id, present};
use crate::context::{Context, Shared};
use crate::json as shapes;
use crate::problem::{Problem, ProblemCode};
use crate::tokens::Caller;

/// Answers with all that waits for a person.
pub(crate) async fn list(State(context): Shared) -> Json<Value> {
    let people = context.board.people();
    let mut shapes = Vec::new();
    for pending in people.pending().await {
        let mut shape = shown(&pending);
        if let Pending::Approval(envelope) = &pending
            && let Ok(votes) = people.votes(envelope.id()).await
        {
            add(&mut shape, shapes::votes(&votes));
        }
        shapes.push(shape);
    }
    Json(json!({ "pending": shapes }))
}

/// Adds the keys of an object to those of another.
fn add(shape: &mut Value, more: Value) {
    if let (Value::Object(shape), Value::Object(more)) = (shape, more) {
        shape.extend(more);
    }
}

/// What a person responds: the kind, and what belongs to it.
#[derive(Deserialize)]
#[serde(tag = "response", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Decided {
    /// Consents to an action: once, or also when the same is asked again in this run, until the question would have expired.
    Approve {
        #[serde(default)]
        for_run: bool,
    },
    /// Consents to an action with these arguments in place of those that were asked about.
    Edit { arguments: Value },
    /// Denies an action.
    Deny {
        #[serde(default)]
        reason: String,
    },
    /// Answers a question.
    Answer { value: Value },
    /// Starts a node that waits, with another input if there is one.
    Resume {
        #[serde(default, deserialize_with = "present")]
        input: Option<Value>,
    },
    /// Starts a turn that needs attention again.
    Restart {},
}

/// Responds to what waits, in the name of the person or of the token.
pub(crate) async fn answer(
    State(context): Shared,
    Id(id): Id,
    Extension(caller): Extension<Caller>,
    sender: Option<Extension<Sender>>,
    Body(body): Body<Value>,
) -> Result<Json<Value>, Problem> {
    if let Some(Extension(sender)) = &sender {
        let text = |field: &str| body.get(field).and_then(Value::as_str).unwrap_or_default();
        let for_run = body.get("for_run").and_then(Value::as_bool).unwrap_or_default();
        sender.decides(recorded(text("response"), for_run), text("reason"));
    }
    let decided = serde_json::from_value(body).map_err(|error| Problem::bad(format!("the body: {error}")))?;
    if let Some(why) = (context.refuses_decisions)() {
        return Err(Problem::new(ProblemCode::DecisionsRefused, why));
    }
    let Ok(id) = id.parse::<PendingId>() else {
        let detail = format!("{} is no id of what waits; /v1/pending lists them", visible(&id));
        return Err(Problem::not_found(detail));
    };
    let mut answer = respond(&context, &caller, id, decided).await?;
    answer["id"] = json!(id);
    if let Some(Extension(sender)) = &sender {
        sender.came_to(&answer);
    }
    Ok(Json(answer))
}

/// Responds to what waits, in the name of the person or of the token.
pub(crate) async fn respond(
    context: &Context,
    caller: &Caller,
    id: PendingId,
    decided: Decided,
) -> Result<Value, Problem> {
    let response = match decided {
        Decided::Approve { for_run: false } => Response::Approve,
        Decided::Approve { for_run: true } => Response::ApproveForRun(Duration::MAX),
        Decided::Edit { arguments } => Response::ApproveEdited(arguments.into()),
        Decided::Deny { reason } => Response::Deny { reason },
        Decided::Answer { value } => Response::Value(value.into()),
        Decided::Resume { input } => Response::Resume(Resume { input: input.map(Into::into), ..Resume::default() }),
        Decided::Restart {} => Response::Restart,
    };
    let decider = self::decider(context, caller)?;
    let by = Arc::clone(&decider);
    let people = context.board.people().via(caller.via());
    let asked = match id {
        PendingId::Approval(id) => people.envelope(id),
        PendingId::Question(_) | PendingId::Node(_) | PendingId::Attention(_) => None,
    };
    let run =
        asked.as_ref().filter(|_| matches!(response, Response::ApproveEdited(_))).map(|asked| asked.request.turn.run);
    // In a task of its own: a client that leaves ends the handler, and a decision that is stored also has to reach its run.
    let answered = tokio::spawn(async move { people.answer(id, response, &by).await });
    let votes = match answered.await.map_err(|error| Problem::internal(&error))? {
        Ok(votes) => votes,
        Err(error @ (AnswerError::NotOpen(_) | AnswerError::NotHere(_) | AnswerError::Answered(_))) => {
            return Err(match closed(context, &id).await {
                Some(how) => Problem::new(ProblemCode::Conflict, format!("already {how}")),
                None if !context.has_recovered() => Problem::recovering(),
                None => error.into(),
            });
        }
        Err(error) => return Err(error.into()),
    };
    let mut answer = json!({ "by": decider });
    if let Some(Envelope { request, agent, action, .. }) = asked {
        answer["about"] = json!({
            "request_id": request.turn.run, "agent": agent, "action": named(&action.action), "target": named(&action.target),
        });
    }
    if let (Some(votes), PendingId::Approval(approval)) = (votes, id) {
        answer["decided"] = votes.decision.is_some().into();
        answer["outcome"] = json!(votes.decision.as_ref().map(outcome));
        if let Some(run) = run {
            answer["replaced_by"] = json!(replacement(context, run, approval).await);
        }
        add(&mut answer, shapes::votes(&votes));
    }
    Ok(answer)
}

/// The most characters of a name of an action, and of what it is done to, in the answer to a decision and in the audit log.
const MAX_NAMED: usize = 200;

fn named(text: &str) -> String {
    visible(text).chars().take(MAX_NAMED).collect()
}

/// How long the answer to a decision waits for the approval that it leads to.
const REPLACED_WITHIN: Duration = Duration::from_secs(5);

/// What the audit log has of a response.
pub(crate) fn recorded(response: &str, for_run: bool) -> &str {
    if for_run { "approve_for_run" } else { response }
}

/// What a decision makes of its approval.
fn outcome(decision: &Decision) -> &'static str {
    match (decision.approved, &decision.terms) {
        (false, _) => "denied",
        (true, Terms::Edited { .. }) => "replaced",
        (true, Terms::Once | Terms::Run { .. }) => "approved",
    }
}

/// The approval that a run asks for in place of another; `None` if it asks for none.
async fn replacement(context: &Context, run: RunId, replaced: ApprovalId) -> Option<PendingId> {
    let run = context.board.run(run);
    let mut events = run.events(1, &[StreamMode::Debug]).await.ok()?;
    let found = async {
        let mut place = None;
        while let Some(watched) = events.next().await {
            let Watched::Event { event, .. } = watched else { continue };
            match &*event {
                RunEvent::ApprovalAsked { turn, ordinal, envelope, .. } => {
                    if place == Some((*turn, *ordinal)) {
                        return Some(PendingId::Approval(envelope.id()));
                    }
                    if envelope.id() == replaced {
                        place = Some((*turn, *ordinal));
                    }
                }
                RunEvent::Decided { approval, .. } if *approval == replaced => return None,
                _ => {}
            }
        }
        None
    };
    tokio::time::timeout(REPLACED_WITHIN, found).await.ok().flatten()
}

/// In whose name a caller decides: the person of the token, by what the server knows or else its owner, or the token itself.
///
/// # Errors
/// It is a token that nobody has, with the name of a person: it could pass for them where people are counted.
pub(crate) fn decider(context: &Context, caller: &Caller) -> Result<Arc<str>, Problem> {
    // This user's own connection has no token; its person is that of the token `owner`.
    let known = caller.person.as_ref().or_else(|| context.people.get(&*caller.name)).cloned();
    if let Some(person) = known.or_else(|| caller.terms.owner.as_deref().map(Into::into)) {
        return Ok(person);
    }
    let is_person = context.people.values().any(|person| **person == *caller.name);
    if is_person || context.tokens.is_owner(&caller.name) {
        let detail = format!("the token {} has the name of a person who does not have it", visible(&caller.name));
        return Err(Problem::new(ProblemCode::DecisionsRefused, detail));
    }
    Ok(Arc::clone(&caller.name))
}

/// What became of something that waited for a person; `None` if it was not decided, or that is no longer kept.
pub(crate) async fn closed(context: &Context, id: &PendingId) -> Option<String> {
    let run = match id {
        PendingId::Approval(id) => return Some(context.board.people().decision(*id).await.ok()??.to_string()),
        PendingId::Question(question) => question.request.turn.run,
        PendingId::Node(turn) | PendingId::Attention(turn) => turn.run,
    };
    let history = context.board.run(run).history().await.ok()?;
    history.iter().rev().find_map(|event| shapes::closed_of(event, id))
}

/// All of what a person has to see of an approval before deciding; `None` for anything else.
pub(crate) fn card(pending: &Pending) -> Option<String> {
    match pending {
        Pending::Approval(envelope) => Some(Card::of(envelope).whole()),
        Pending::Question(_) | Pending::Node(_) | Pending::Attention { .. } => None,
    }
}

/// Something that waits, with its delegation.
pub(crate) fn shown(pending: &Pending) -> Value {
    let mut shape = shapes::pending(pending);
    shape["request_id"] = json!(pending.run());
    shape
}
