//! What waits for a person, and what a person responds.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::{Extension, Json};
use callboard::AnswerError;
use callboard::actors::approvals::Card;
use callboard::messages::{Pending, PendingId, QuestionId, Response, Resume, RunEvent, visible};
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
    if let Some(Extension(sender)) = sender {
        let text = |field: &str| body.get(field).and_then(Value::as_str).unwrap_or_default();
        sender.decides(text("response"), text("reason"));
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
    // In a task of its own: a client that leaves ends the handler, and a decision that is stored also has to reach its run.
    let board = context.board.clone();
    let answered = tokio::spawn(async move { board.people().answer(id, response, &by).await });
    match answered.await.map_err(|error| Problem::internal(&error))? {
        Ok(votes) => {
            let mut answer = json!({ "by": decider });
            if let Some(votes) = votes {
                answer["decided"] = votes.decision.is_some().into();
                add(&mut answer, shapes::votes(&votes));
            }
            Ok(answer)
        }
        Err(AnswerError::NotOpen(PendingId::Question(question))) => Err(not_open(context, question).await),
        Err(error) => Err(error.into()),
    }
}

/// In whose name a caller decides: their person, or the token itself.
///
/// # Errors
/// It is a token that nobody has, with the name of a person: it could pass for them where people are counted.
pub(crate) fn decider(context: &Context, caller: &Caller) -> Result<Arc<str>, Problem> {
    // This user's own connection has no token; its person is that of the token `owner`.
    let person = caller.person.as_ref().or_else(|| context.people.get(&*caller.name));
    if person.is_none() && context.people.values().any(|person| **person == *caller.name) {
        let detail = format!("the token {} has the name of a person who does not have it", visible(&caller.name));
        return Err(Problem::new(ProblemCode::DecisionsRefused, detail));
    }
    Ok(Arc::clone(person.unwrap_or(&caller.name)))
}

/// The problem with a question that is not open: it was answered before, or there was none.
async fn not_open(context: &Context, question: QuestionId) -> Problem {
    let request = question.request;
    let history = context.board.run(request.turn.run).history().await.unwrap_or_default();
    let by = history.iter().find_map(|event| match event {
        RunEvent::Answered { turn, ordinal, by, .. } if (*turn, *ordinal) == (request.turn.number, request.ordinal) => {
            Some(by)
        }
        _ => None,
    });
    match by {
        Some(by) => {
            Problem::new(ProblemCode::Conflict, format!("question {request} was answered before by {}", visible(by)))
        }
        None => AnswerError::NotOpen(PendingId::Question(question)).into(),
    }
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
