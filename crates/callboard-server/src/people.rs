//! What waits for a person, and what a person responds.

use std::sync::Arc;

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
    let pending = context.board.people().pending().await;
    Json(json!({ "pending": pending.iter().map(shown).collect::<Vec<_>>() }))
}

/// What a person responds: the kind, and what belongs to it.
#[derive(Deserialize)]
#[serde(tag = "response", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Decided {
    /// Consents to an action once.
    Approve {},
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
    answer["by"] = json!(caller.by());
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
        Decided::Approve {} => Response::Approve,
        Decided::Deny { reason } => Response::Deny { reason },
        Decided::Answer { value } => Response::Value(value.into()),
        Decided::Resume { input } => Response::Resume(Resume { input: input.map(Into::into), ..Resume::default() }),
        Decided::Restart {} => Response::Restart,
    };
    let by = Arc::clone(caller.by());
    // In a task of its own: a client that leaves ends the handler, and a decision that is stored also has to reach its run.
    let board = context.board.clone();
    let answered = tokio::spawn(async move { board.people().answer(id, response, &by).await });
    match answered.await.map_err(|error| Problem::internal(&error))? {
        Ok(()) => Ok(json!({})),
        Err(AnswerError::NotOpen(PendingId::Question(question))) => Err(not_open(context, question).await),
        Err(error) => Err(error.into()),
    }
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
