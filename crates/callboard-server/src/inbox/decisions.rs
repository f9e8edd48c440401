//! What people decide about items of the inbox, one or many at a time.

use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use callboard::messages::{RunId, TurnId, visible};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::audit::{Entry, Peer, Sender};
use crate::body::Body;
use crate::context::{Context, Shared};
use crate::knowledge::reserved;
use crate::people;
use crate::problem::{Problem, ProblemCode};
use crate::tokens::Caller;

use super::item::ItemId;

/// The most decisions of a request.
const MAX_DECISIONS: usize = 100;

/// The responses that take a reason. Those of others are in the audit log alone.
const TAKE_REASONS: [&str; 2] = ["deny", "drop"];

/// What a person decides about some items.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Decisions {
    decisions: Vec<OfItem>,
}

/// What a person decides about one item.
#[derive(Deserialize)]
struct OfItem {
    id: String,
    response: String,
    /// What belongs to the response.
    #[serde(flatten)]
    more: Map<String, Value>,
}

/// What a person does about a turn that failed for good.
#[derive(Deserialize)]
#[serde(tag = "response", rename_all = "snake_case", deny_unknown_fields)]
enum OfLetter {
    Retry {},
    /// The reason is in the audit log.
    Drop {
        #[serde(default, rename = "reason")]
        _reason: String,
    },
}

/// What a person does about a conflict that ended a run.
#[derive(Deserialize)]
#[serde(tag = "response", rename_all = "snake_case", deny_unknown_fields)]
enum OfConflict {
    Overwrite {
        values: Map<String, Value>,
    },
    /// The reason is in the audit log.
    Drop {
        #[serde(default, rename = "reason")]
        _reason: String,
    },
}

#[derive(Deserialize)]
#[serde(tag = "response", rename_all = "snake_case", deny_unknown_fields)]
enum OfAgent {
    Restart {},
}

#[derive(Deserialize)]
#[serde(tag = "response", rename_all = "snake_case", deny_unknown_fields)]
enum OfQuarantine {
    ReadAgain {},
}

/// Carries out decisions in their order. One that is refused changes nothing, and does not hold up the others.
pub(crate) async fn decide(
    State(context): Shared,
    Extension(caller): Extension<Caller>,
    sender: Option<Extension<Sender>>,
    peer: Option<Extension<Peer>>,
    Body(Decisions { decisions }): Body<Decisions>,
) -> Result<Json<Value>, Problem> {
    if decisions.len() > MAX_DECISIONS {
        return Err(Problem::bad(format!("`decisions` has {}, and at most {MAX_DECISIONS}", decisions.len())));
    }
    if let Some(why) = (context.refuses_decisions)() {
        return Err(Problem::new(ProblemCode::DecisionsRefused, why));
    }
    let from = (sender.map(|Extension(sender)| sender).unwrap_or_default(), peer.map(|Extension(peer)| peer));
    // In a task of its own: a client that leaves ends the handler, and not what it has begun.
    let decided = tokio::spawn(async move {
        let mut results = Vec::with_capacity(decisions.len());
        for decision in decisions {
            results.push(one(&context, &caller, &from, decision).await);
        }
        results
    });
    let results = decided.await.map_err(|error| Problem::internal(&error))?;
    Ok(Json(json!({ "results": results })))
}

/// Carries out one decision, records it, and returns what came of it.
async fn one(
    context: &Arc<Context>,
    caller: &Caller,
    (sender, peer): &(Sender, Option<Peer>),
    OfItem { id, response, more: mut decision }: OfItem,
) -> Value {
    let reason = decision.get("reason").and_then(Value::as_str).unwrap_or_default().to_owned();
    let for_run = decision.get("for_run").and_then(Value::as_bool).unwrap_or_default();
    let sender = sender.of_decision(people::recorded(&response, for_run), &reason);
    let (audit, from) = (Arc::clone(&context.audit), peer.as_ref().map(|peer| Arc::clone(&peer.shown)));
    let entry = Entry::begin(audit, context.now(), (sender.clone(), from), "POST", &format!("/v1/inbox/{id}"));
    if !TAKE_REASONS.contains(&&*response) {
        // It is recorded, and nobody else is given it.
        decision.remove("reason");
    }
    decision.insert("response".to_owned(), json!(response));
    let decided = match ItemId::read(&id) {
        Some(id) => carry_out(context, caller, &id, decision).await,
        None => Err(Problem::not_found(format!("{} is no id of the inbox; /v1/inbox lists them", visible(&id)))),
    };
    match decided {
        Ok(mut shape) => {
            sender.came_to(&shape);
            entry.end(axum::http::StatusCode::OK, None);
            shape["id"] = json!(id);
            // Several people may have to approve, and each is counted by another name than that of a token.
            if shape.get("by").is_none() {
                shape["by"] = json!(caller.by());
            }
            shape
        }
        Err(Problem { code, detail, .. }) => {
            entry.end(code.status(), Some(code));
            json!({ "id": id, "problem": { "code": code.as_str(), "status": code.status().as_u16(), "detail": detail } })
        }
    }
}

async fn carry_out(
    context: &Arc<Context>,
    caller: &Caller,
    id: &ItemId,
    decision: Map<String, Value>,
) -> Result<Value, Problem> {
    if let Some(scope) = id.scope() {
        caller.needs(scope)?;
    }
    match id {
        ItemId::Pending(id) => people::respond(context, caller, *id, read(decision)?).await,
        ItemId::DeadLetter(turn) => match read(decision)? {
            OfLetter::Retry {} => retry(context, caller, *turn).await,
            OfLetter::Drop { .. } => discard(context, *turn).await,
        },
        ItemId::Conflict(run) => match read(decision)? {
            OfConflict::Overwrite { values } => {
                context.board.run(*run).resume_with(values, caller.by()).await?;
                Ok(json!({}))
            }
            OfConflict::Drop { .. } => discard(context, conflict(context, *run).await?).await,
        },
        ItemId::Quarantined(run) => {
            let OfQuarantine::ReadAgain {} = read(decision)?;
            read_again(context, *run).await
        }
        ItemId::Agent(name) => {
            let OfAgent::Restart {} = read(decision)?;
            context.board.agents().restart(name).await?;
            Ok(json!({}))
        }
        ItemId::File(name) => {
            let detail = format!("{}: correct the file; a server that is running reads it again", visible(name));
            Err(Problem::new(ProblemCode::Refused, detail))
        }
    }
}

/// What a decision has besides its id.
fn read<T: DeserializeOwned>(decision: Map<String, Value>) -> Result<T, Problem> {
    serde_json::from_value(Value::Object(decision)).map_err(|error| Problem::bad(format!("the decision: {error}")))
}

async fn retry(context: &Context, caller: &Caller, turn: TurnId) -> Result<Value, Problem> {
    reserved::check_repeated(context, &context.board.run(turn.run), false).await?;
    let retried = context.board.dead_letters().retry_for(turn, Some(caller.requester()?), None).await?;
    Ok(json!({ "retried_as": retried.id() }))
}

async fn discard(context: &Context, turn: TurnId) -> Result<Value, Problem> {
    match context.board.dead_letters().discard(turn).await {
        Ok(true) => Ok(json!({})),
        Ok(false) => Err(Problem::not_found(format!("turn {turn} no longer waits for a person"))),
        Err(error) => Err(Problem::of_store(&error)),
    }
}

/// The turn of the conflict that ended a run.
async fn conflict(context: &Context, run: RunId) -> Result<TurnId, Problem> {
    let found = context.board.dead_letters().conflict(run).await.map_err(|error| Problem::of_store(&error))?;
    let missing = || Problem::not_found(format!("no conflict of run {run} waits for a person"));
    found.map(|conflict| conflict.turn).ok_or_else(missing)
}

/// Has the board read a run again, as after its journal or the code of its agents was corrected.
async fn read_again(context: &Context, run: RunId) -> Result<Value, Problem> {
    if !context.board.quarantined().contains_key(&run) {
        return Err(Problem::not_found(format!("run {run} is not in quarantine")));
    }
    context.board.take_up(run).await;
    match context.board.quarantined().get(&run) {
        None => Ok(json!({})),
        Some(why) => Err(Problem::new(ProblemCode::Conflict, format!("run {run} still cannot be read: {why}"))),
    }
}
