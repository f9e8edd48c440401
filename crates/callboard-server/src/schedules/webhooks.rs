//! Webhooks: schedules whose runs are started by signed deliveries of other services, in place of times.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use callboard_signatures::{Scheme, secret_of};
use serde_json::{Value, json};
use uuid::Uuid;

use super::firing::{granted, submit};
use super::stored::{Fired, Firing, Schedule, Schedules, Status};
use super::when::When;
use crate::audit::{Peer, Sender};
use crate::body::Name;
use crate::context::{Context, Shared};
use crate::deliveries::{MAX_A_MINUTE, MAX_ARRIVING, Refused, Unsigned, payload, read, unsigned};
use crate::problem::{Problem, ProblemCode};
use crate::tokens::random;

/// Where deliveries are sent to, without the name.
const PATH: &str = "/v1/webhooks";
/// The event that GitHub sends when a webhook is made.
const PING: (&str, &str) = ("x-github-event", "ping");

/// Starts the run of a delivery, or finds the one that the same delivery has started.
pub(crate) async fn deliver(State(context): Shared, Name(name): Name, request: Request) -> Result<Response, Problem> {
    let address = request.extensions().get::<Peer>().and_then(|peer| peer.address);
    let sender = request.extensions().get::<Sender>().cloned();
    let (parts, body) = request.into_parts();
    let unsigned = Unsigned::of(&context, (PATH, &name), address, sender.as_ref());
    let checked = async {
        let _arriving = context.rates.arrive(address, MAX_ARRIVING)?;
        let body = read(&parts.headers, body).await?;
        Ok((signed(&context, &name, &parts.headers, &body).await?, body))
    };
    let ((schedule, id), body) = match checked.await {
        Ok(checked) => checked,
        Err(refused) => return Err(unsigned.refused(refused)),
    };
    unsigned.accept();
    if let Some(sender) = sender {
        sender.is_webhook(&format!("webhook {name}"), context.people.get(&*schedule.owner.name));
    }
    context.rates.count_webhook(&name, MAX_A_MINUTE, context.now())?;
    let conflict = |why: String| Problem::new(ProblemCode::Conflict, why);
    match &schedule.status {
        Status::Active => {}
        Status::Paused => return Err(conflict("the webhook is paused".to_owned())),
        Status::Stopped { reason } => return Err(conflict(reason.clone())),
        Status::Ended => return Err(conflict("the webhook has ended".to_owned())),
    }
    let payload = payload(&parts.headers, &body)?;
    if parts.headers.get(PING.0).is_some_and(|event| event == PING.1) {
        return Ok(accepted(&Value::Null));
    }
    let owner = granted(&context, &schedule.owner)?.map_err(conflict)?;
    context.rates.count(&owner, context.now())?;
    let run = schedule.run_of_delivery(&id);
    if submit(&context, &schedule, &owner, run, Some(payload)).await? {
        let now = context.now();
        let firing = Firing { planned_at: now, at: now, outcome: Fired::Started(run) };
        super::record(&context, &schedule, &firing).await?;
    }
    Ok(accepted(&json!(run)))
}

/// The webhook of this name, and the id of the delivery. Whoever has no secret finds out neither which webhooks there are nor what was
/// wrong, and not by the time of the answer either: signatures of both schemes are checked, also where there is no webhook.
async fn signed(
    context: &Context,
    name: &str,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<(Schedule, String), Refused> {
    const UNKNOWN: &str = "there is no such webhook, or its secret is not kept here";
    let found = Schedules::of(&context.board).get(name).await?.map(|found| found.schedule);
    let webhook = found.and_then(|schedule| match schedule.when {
        When::Webhook(scheme) => Some((schedule, scheme)),
        When::Cron { .. } | When::At(_) | When::Every { .. } => None,
    });
    let (id, scheme) = webhook.as_ref().map(|(schedule, scheme)| (schedule.id, *scheme)).unzip();
    let secret = context.tokens.webhook_secret(id.unwrap_or_default()).map_err(|error| Problem::of_tokens(&error))?;
    let now = context.now().as_millis() / 1_000;
    let check = |any: Scheme| match &secret {
        Some(secret) if scheme == Some(any) => any.check(secret, headers, body, now),
        // In vain, for the time that it takes.
        Some(_) | None => any.check(&secret_of([0; 32]), headers, body, now).and(Err(UNKNOWN)),
    };
    let (standard, github) = (check(Scheme::Standard), check(Scheme::Github));
    let (schedule, id) = match webhook {
        Some((schedule, Scheme::Standard)) => (schedule, standard),
        Some((schedule, Scheme::Github)) => (schedule, github),
        None => return Err(unsigned(UNKNOWN)),
    };
    Ok((schedule, id.map_err(unsigned)?))
}

fn accepted(run: &Value) -> Response {
    (StatusCode::ACCEPTED, Json(json!({ "request_id": run, "status": "ack" }))).into_response()
}

/// The secret of a webhook: that which its sender gave to a person, or a new one.
pub(super) fn keep_secret(context: &Context, id: Uuid, given: Option<String>) -> Result<String, Problem> {
    let kept = match given {
        Some(given) => Ok(given),
        None => random().map(secret_of),
    };
    let kept = kept.and_then(|secret| context.tokens.keep_webhook_secret(id, &secret).map(|()| secret));
    kept.map_err(|error| Problem::of_tokens(&error))
}

/// Forgets the secret of a webhook that is gone.
pub(super) fn forget_secret(context: &Context, schedule: &Schedule) {
    if let (When::Webhook(_), Err(error)) = (&schedule.when, context.tokens.forget_webhook_secret(schedule.id)) {
        tracing::error!(%error, "the secret of a webhook that was deleted is still there");
    }
}
