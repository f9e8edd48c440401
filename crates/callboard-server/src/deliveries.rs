//! Deliveries of webhooks, whose senders have no token: how they are read before their signature is checked, and what becomes of those that
//! are not signed.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use callboard_documents::json;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::audit::Sender;
use crate::context::Context;
use crate::problem::{Problem, ProblemCode};
use crate::rates;

/// The most bytes of a delivery.
const MAX_BODY: usize = 256 * 1024;
/// How long a delivery may take to arrive.
const MAX_TIME: Duration = Duration::from_secs(10);
/// How many deliveries a webhook receives in a minute. Those that are not signed are no deliveries of it.
pub(crate) const MAX_A_MINUTE: u32 = 600;
/// How many requests of one address may be read at a time, before their signature is checked.
pub(crate) const MAX_ARRIVING: usize = 64;

/// A delivery of which it is not known yet that it is signed. One whose client leaves before that counts as unsigned.
pub(crate) struct Unsigned<'a> {
    context: &'a Arc<Context>,
    /// The path, and the name of the webhook below it.
    place: (&'static str, &'a str),
    address: Option<IpAddr>,
    sender: Option<&'a Sender>,
    is_open: bool,
}

/// Why a delivery is refused: for its sender, and for the log.
pub(crate) struct Refused {
    problem: Problem,
    why: &'static str,
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Self { why: problem.code.as_str(), problem }
    }
}

impl<'a> Unsigned<'a> {
    pub(crate) fn of(
        context: &'a Arc<Context>,
        place: (&'static str, &'a str),
        address: Option<IpAddr>,
        sender: Option<&'a Sender>,
    ) -> Self {
        Self { context, place, address, sender, is_open: true }
    }

    /// Its signature is right.
    pub(crate) fn accept(mut self) {
        self.is_open = false;
    }

    /// The answer to it.
    pub(crate) fn refused(mut self, Refused { problem, why }: Refused) -> Problem {
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
            let (path, name) = self.place;
            tracing::warn!(path, name, why, "a delivery was refused");
            if let Some(sender) = self.sender {
                sender.is_refused(why);
            }
            // There is none if the server ends with its runtime.
            if let Ok(runtime) = Handle::try_current() {
                runtime.spawn(report(Arc::clone(self.context), path, counted));
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
async fn report(context: Arc<Context>, path: &'static str, counted: Option<IpAddr>) {
    let count = context.rates.end_unsigned(counted).await;
    if count > 0 {
        let from = counted.map(|from| from.to_string());
        tracing::warn!(from, count, "further deliveries were refused within a minute");
        context.audit.record_many(context.now(), counted, path, count);
    }
}

/// Refuses a delivery; the log has the reason.
pub(crate) fn unsigned(why: &'static str) -> Refused {
    let detail =
        "the delivery is not signed with the secret of a webhook of this name, or its time is not that of the clock";
    Refused { problem: Problem::new(ProblemCode::Unauthenticated, detail), why }
}

/// Reads the body of a delivery, bounded in size and time.
pub(crate) async fn read(headers: &HeaderMap, body: Body) -> Result<Bytes, Problem> {
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
pub(crate) fn payload(headers: &HeaderMap, body: &[u8]) -> Result<Value, Problem> {
    let media_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = media_type.split(';').next().unwrap_or_default().trim();
    if !media_type.eq_ignore_ascii_case("application/json") {
        let detail = "the body is to be JSON, with the header `Content-Type: application/json`";
        return Err(Problem::new(ProblemCode::UnsupportedMediaType, detail));
    }
    json::parse(body).map_err(|error| Problem::bad(format!("the body is no JSON: {error}")))
}
