//! Webhooks: schedules whose runs are started by signed deliveries of other services, in place of times.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use callboard_documents::json;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::time::timeout;
use uuid::Uuid;

use super::firing::{granted, submit};
use super::signatures::{Scheme, secret_of};
use super::stored::{Fired, Firing, Schedule, Schedules, Status};
use super::when::When;
use crate::audit::{Peer, Sender};
use crate::body::Name;
use crate::context::{Context, Shared};
use crate::problem::{Problem, ProblemCode};
use crate::rates;
use crate::tokens::random;

/// The most bytes of a delivery.
const MAX_BODY: usize = 256 * 1024;
/// How long a delivery may take to arrive.
const MAX_TIME: Duration = Duration::from_secs(10);
/// How many deliveries a webhook receives in a minute. Those that are not signed are no deliveries of it.
const MAX_A_MINUTE: u32 = 600;
/// How many requests of one address may be read at a time, before their signature is checked.
const MAX_ARRIVING: usize = 64;
/// The event that GitHub sends when a webhook is made.
const PING: (&str, &str) = ("x-github-event", "ping");

/// Starts the run of a delivery, or finds the one that the same delivery has started.
pub(crate) async fn deliver(State(context): Shared, Name(name): Name, request: Request) -> Result<Response, Problem> {
    let address = request.extensions().get::<Peer>().and_then(|peer| peer.address);
    let sender = request.extensions().get::<Sender>().cloned();
    let (parts, body) = request.into_parts();
    let unsigned = Unsigned { context: &context, name: &name, address, sender: sender.as_ref(), is_open: true };
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
        sender.is_webhook(&name, context.people.get(&*schedule.owner.name));
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

/// A delivery of which it is not known yet that it is signed. One whose client leaves before that counts as unsigned.
struct Unsigned<'a> {
    context: &'a Arc<Context>,
    name: &'a str,
    address: Option<IpAddr>,
    sender: Option<&'a Sender>,
    is_open: bool,
}

/// Why a delivery is refused: for its sender, and for the log.
struct Refused {
    problem: Problem,
    why: &'static str,
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Self { why: problem.code.as_str(), problem }
    }
}

impl Unsigned<'_> {
    fn accept(mut self) {
        self.is_open = false;
    }

    /// The answer to it.
    fn refused(mut self, Refused { problem, why }: Refused) -> Problem {
        // What the server has failed to do is nothing that the sender did.
        if !problem.code.status().is_client_error() {
            self.is_open = false;
            return problem;
        }
        match self.count(why) {
            None => problem,
            Some(retry_after) => {
                let detail = "too many deliveries of this address were not signed; those that are signed are taken";
                Problem { retry_after: Some(retry_after), ..Problem::new(ProblemCode::Overloaded, detail) }
            }
        }
    }

    /// Counts it. The first one of a minute is logged and recorded by itself, and the others together when the minute ends.
    fn count(&mut self, why: &str) -> Option<Duration> {
        self.is_open = false;
        let counted = self.context.rates.count_unsigned(self.address, self.context.now());
        if let rates::Unsigned::First(counted) = counted {
            tracing::warn!(name = self.name, why, "a delivery was refused");
            // There is none if the server ends with its runtime.
            if let Ok(runtime) = Handle::try_current() {
                runtime.spawn(report(Arc::clone(self.context), counted));
            }
            return None;
        }
        if let Some(sender) = self.sender {
            sender.is_counted();
        }
        match counted {
            rates::Unsigned::First(_) | rates::Unsigned::Further => None,
            rates::Unsigned::TooMany(retry_after) => Some(retry_after),
        }
    }
}

impl Drop for Unsigned<'_> {
    fn drop(&mut self) {
        if self.is_open {
            self.count("the client has left");
        }
    }
}

/// Reports the unsigned deliveries of a minute, but for the first.
async fn report(context: Arc<Context>, counted: Option<IpAddr>) {
    let count = context.rates.end_unsigned(counted).await;
    if count > 0 {
        let from = counted.map(|from| from.to_string());
        tracing::warn!(from, count, "further deliveries were refused within a minute");
        context.audit.record_many(context.now(), counted, "/v1/webhooks", count);
    }
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
    let now = context.now();
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

/// Refuses a delivery; the log has the reason.
fn unsigned(why: &'static str) -> Refused {
    let detail =
        "the delivery is not signed with the secret of a webhook of this name, or its time is not that of the clock";
    Refused { problem: Problem::new(ProblemCode::Unauthenticated, detail), why }
}

async fn read(headers: &HeaderMap, body: Body) -> Result<Bytes, Problem> {
    let too_large = || Problem::new(ProblemCode::TooLarge, format!("the body has more than {MAX_BODY} bytes"));
    let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > MAX_BODY as u64) {
        return Err(too_large());
    }
    // Without a length, one byte more shows that there are too many.
    let Ok(read) = timeout(MAX_TIME, to_bytes(body, MAX_BODY)).await else {
        let detail = format!("the body did not arrive within {} s", MAX_TIME.as_secs());
        return Err(Problem::new(ProblemCode::RequestTimeout, detail));
    };
    read.map_err(
        |error| if length.is_none() { too_large() } else { Problem::bad(format!("the body was cut off: {error}")) },
    )
}

/// The body of a delivery, as JSON.
fn payload(headers: &HeaderMap, body: &[u8]) -> Result<Value, Problem> {
    let media_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = media_type.split(';').next().unwrap_or_default().trim();
    if !media_type.eq_ignore_ascii_case("application/json") {
        let detail = "the body is to be JSON, with the header `Content-Type: application/json`";
        return Err(Problem::new(ProblemCode::UnsupportedMediaType, detail));
    }
    json::parse(body).map_err(|error| Problem::bad(format!("the body is no JSON: {error}")))
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
