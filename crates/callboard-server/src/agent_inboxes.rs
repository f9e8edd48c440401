//! The inboxes of agents, and of those who delegate from outside.

use axum::Json;
use axum::extract::State;
use callboard::actors::InboxMessage;
use serde_json::{Value, json};

use crate::body::Name;
use crate::context::Shared;
use crate::json::{stable, time};
use crate::problem::Problem;

/// Answers with the newest messages of an inbox, oldest first. An inbox without messages is empty, whoever its name is of.
pub(crate) async fn read(State(context): Shared, Name(name): Name) -> Result<Json<Value>, Problem> {
    let messages = context.board.agents().inbox(&name).await.map_err(|error| Problem::of_store(&error))?;
    Ok(Json(json!({ "agent": name, "messages": messages.iter().map(shown).collect::<Vec<_>>() })))
}

fn shown(message: &InboxMessage) -> Value {
    match message {
        InboxMessage::Request { request_id, from_agent, to_agent, trace_id, body, input, reference } => json!({
            "kind": "request",
            "request_id": request_id.turn.run,
            "turn": request_id.turn.number,
            "ordinal": request_id.ordinal,
            "from_agent": from_agent,
            "to_agent": to_agent,
            "trace_id": trace_id,
            "body": body,
            "input": input,
            "reference": reference,
        }),
        InboxMessage::Status { request_id, from_agent, to_agent, status, detail, body, at } => json!({
            "kind": "status",
            "request_id": request_id.turn.run,
            "turn": request_id.turn.number,
            "ordinal": request_id.ordinal,
            "from_agent": from_agent,
            "to_agent": to_agent,
            "status": stable(status),
            "detail": detail,
            "body": body,
            "at": time(*at),
        }),
    }
}
