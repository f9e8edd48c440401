//! What is in a run: its past, and the runs and delegations below it. And how it continues after a conflict.

use std::collections::BTreeMap;

use axum::extract::{RawQuery, State};
use axum::{Extension, Json};
use callboard::actors::{StreamMode, Watched};
use callboard::messages::{RequestId, RunEvent, Status, TurnId, Verdict};
use callboard::runtime::RunHandle;
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::body::{Body, Id};
use crate::context::{Context, Shared};
use crate::delegations::{self, find};
use crate::json as shapes;
use crate::problem::Problem;
use crate::query;
use crate::tokens::Caller;

/// The most events of a page of a history.
const MAX_EVENTS: usize = 200;
/// The most runs of a tree.
const MAX_RUNS: usize = 200;

/// Answers with a page of what has happened in a run so far.
pub(crate) async fn history(
    State(context): Shared,
    Id(id): Id,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Problem> {
    let [from] = query::values(query.as_deref(), ["from"])?;
    let from = from.map_or(Some(1), |from| from.parse().ok().filter(|from| *from > 0));
    let from = from.ok_or_else(|| Problem::bad("`from` in the query is the number of an event, from 1"))?;
    let mut events = find(&context, &id)?.events(from, &[StreamMode::Debug]).await?;
    let (mut page, mut next) = (Vec::new(), None);
    // Those of the past are there at once.
    while let Some(Some(watched)) = events.next().now_or_never() {
        let Watched::Event { sequence, event, .. } = watched else { continue };
        if page.len() == MAX_EVENTS {
            next = Some(sequence);
            break;
        }
        let mut shown = shapes::event(&event);
        shown["sequence"] = sequence.into();
        page.push(shown);
    }
    Ok(Json(json!({ "events": page, "next": next })))
}

/// Answers with a run, the delegations of its turns, and the runs that its turns have begun, each in the same way.
pub(crate) async fn tree(State(context): Shared, Id(id): Id) -> Result<Json<Value>, Problem> {
    let run = find(&context, &id)?;
    let mut left = MAX_RUNS;
    Ok(Json(below(&context, run, &mut left).await?))
}

fn below<'c>(context: &'c Context, run: RunHandle, left: &'c mut usize) -> BoxFuture<'c, Result<Value, Problem>> {
    async move {
        *left -= 1;
        let mut shown = delegations::brief(context, &run.read().await?);
        shown["delegations"] = handed_on(context, &run).await?.into();
        let (mut runs, mut is_cut) = (Vec::new(), false);
        for child in run.children().await? {
            is_cut = *left == 0;
            if is_cut {
                break;
            }
            runs.push(below(context, child, left).await?);
        }
        (shown["runs"], shown["is_cut"]) = (runs.into(), is_cut.into());
        Ok(shown)
    }
    .boxed()
}

/// The delegations of the turns of a run.
async fn handed_on(context: &Context, run: &RunHandle) -> Result<Vec<Value>, Problem> {
    let mut shown = Vec::new();
    for event in run.history().await? {
        let RunEvent::Delegated { turn, ordinal, order, verdict: Verdict::Admitted(agents), at } = event else {
            continue;
        };
        let request = RequestId { turn: TurnId { run: run.id(), number: turn }, ordinal };
        let status = context.board.status(request).await.map_err(|error| Problem::of_store(&error))?;
        shown.push(json!({
            "turn": turn,
            "ordinal": ordinal,
            "to_agent": agents.first(),
            "body": order.body,
            "at": shapes::time(at),
            "status": status.map(|status| word(status.status)),
        }));
    }
    Ok(shown)
}

fn word(status: Status) -> Value {
    shapes::stable(&status)
}

/// What people write over the channels that were written concurrently.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Values {
    values: BTreeMap<String, Value>,
}

/// Has a run continue that ended because of concurrent writes, with these values in their place.
pub(crate) async fn resume(
    State(context): Shared,
    Id(id): Id,
    Extension(caller): Extension<Caller>,
    Body(Values { values }): Body<Values>,
) -> Result<Json<Value>, Problem> {
    let (run, by) = (find(&context, &id)?, std::sync::Arc::clone(caller.by()));
    let (resumed, name) = (run.clone(), std::sync::Arc::clone(&by));
    // In a task of its own: a client that leaves ends the handler.
    let written = tokio::spawn(async move { resumed.resume_with(values, &name).await });
    written.await.map_err(|error| Problem::internal(&error))??;
    Ok(Json(json!({ "request_id": run.id(), "by": by })))
}
