//! Event streams of delegations (server-sent events).

use std::convert::Infallible;
use std::time::Duration;

use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use callboard::actors::{StreamMode, Watched};
use callboard::messages::{RunId, visible};
use callboard::runtime::{RunError, RunHandle};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};
use serde_json::{Value, json};

use crate::body::Id;
use crate::context::{Context, Shared};
use crate::delegations::find;
use crate::json::{self as shapes, stable};
use crate::problem::Problem;
use crate::query;
use crate::streams::StreamPermit;
use crate::tokens::Caller;

/// How often a stream without events sends a comment, so that both sides notice a connection that is gone.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How long a stream has no events before it looks into the journal: from the first value, doubled up to the last.
const FIRST_LOOK: Duration = Duration::from_secs(1);
const LAST_LOOK: Duration = Duration::from_secs(30);

/// Streams the events of a delegation: those of its journal with their number as id, those of the past first. It ends with the
/// delegation, with the board, and with the token.
pub(crate) async fn stream(
    State(context): Shared,
    Id(id): Id,
    RawQuery(query): RawQuery,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let [names] = query::values(query.as_deref(), ["modes"])?;
    follow(&context, &id, names.as_deref(), caller, &headers).await
}

/// The stream of the delegation that a query names: `/delegation-stream?id=ID`.
pub(crate) async fn stream_of_query(
    State(context): Shared,
    RawQuery(query): RawQuery,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let [id, names] = query::values(query.as_deref(), ["id", "modes"])?;
    let id = id.ok_or_else(|| Problem::bad("the query has no `id`"))?;
    follow(&context, &id, names.as_deref(), caller, &headers).await
}

async fn follow(
    context: &Context,
    id: &str,
    names: Option<&str>,
    caller: Caller,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    let run = find(context, id)?;
    let modes = modes(names)?;
    let seen = last_event_id(headers)?;
    let has_ended = run.read().await?.result().is_some();
    if !has_ended && context.board.quarantined().contains_key(&run.id()) {
        let quarantined = RunError::Quarantined { run: run.id(), why: "its events are not followed".to_owned() };
        return Err(quarantined.into());
    }
    let permit = context.streams.open(&caller)?;
    let events = Followed::open(run, modes, seen).await?.into_stream();
    let mut events = Box::pin(events.peekable());
    if has_ended && events.as_mut().peek().await.is_none() {
        // A browser that receives this does not connect again.
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    Ok(answer(context, caller, permit, events.map(|watched| shown(&watched))))
}

/// The answer with a stream of events, which ends with its token and the server at the latest.
pub(crate) fn answer(
    context: &Context,
    caller: Caller,
    permit: StreamPermit,
    events: impl Stream<Item = Event> + Send + 'static,
) -> Response {
    let (has_ended, mut stopping) = (context.ended(caller), context.is_stopping.subscribe());
    let ended = async move {
        tokio::select! {
            () = has_ended => {}
            _ = stopping.wait_for(|is_stopping| *is_stopping) => {}
        }
    };
    let events = events.take_until(Box::pin(ended)).map(move |event| {
        let _open = &permit;
        Ok::<_, Infallible>(event)
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(HEARTBEAT)).into_response()
}

/// The events of a run, also while another process works on it. What that journals is not reported to this one, so a stream
/// without events looks into the journal again: it is opened again after the last event that it had.
pub(crate) struct Followed {
    run: RunHandle,
    modes: Vec<StreamMode>,
    /// The number of the last event.
    last: u64,
    events: BoxStream<'static, Watched>,
    look_after: Duration,
    /// Set after events were missed. They are in the journal: the client connects again, and continues after the last that it has.
    has_missed: bool,
}

impl Followed {
    pub(crate) async fn open(run: RunHandle, modes: Vec<StreamMode>, last: u64) -> Result<Self, RunError> {
        let events = run.events(last.saturating_add(1), &modes).await?.boxed();
        Ok(Self { run, modes, last, events, look_after: FIRST_LOOK, has_missed: false })
    }

    pub(crate) fn into_stream(self) -> impl Stream<Item = Watched> {
        futures::stream::unfold(self, |mut followed| async { Some((followed.next().await?, followed)) })
    }

    async fn next(&mut self) -> Option<Watched> {
        if self.has_missed {
            return None;
        }
        loop {
            tokio::select! {
                biased;
                watched = self.events.next() => {
                    if let Some(Watched::Event { sequence, .. }) = watched {
                        (self.last, self.look_after) = (sequence, FIRST_LOOK);
                    }
                    self.has_missed = matches!(watched, Some(Watched::Missed(_)));
                    return watched;
                }
                () = tokio::time::sleep(self.look_after) => {
                    // An error ends the stream; a client that connects again receives it as an answer.
                    self.events = self.run.events(self.last.saturating_add(1), &self.modes).await.ok()?.boxed();
                    self.look_after = (self.look_after * 2).min(LAST_LOOK);
                }
            }
        }
    }
}

/// An event of a run in the stream of that run.
fn shown(watched: &Watched) -> Event {
    let (kind, id, shape) = parts(watched);
    let event = Event::default().event(kind).data(shape.to_string());
    match id {
        Some((_, sequence)) => event.id(sequence.to_string()),
        None => event,
    }
}

/// The kind of an event, its place in a journal if it has one, and its data.
pub(crate) fn parts(watched: &Watched) -> (String, Option<(RunId, u64)>, Value) {
    match watched {
        Watched::Event { run, sequence, event } => {
            let shape = shapes::event(event);
            let kind = shape.get("kind").and_then(Value::as_str).unwrap_or("event").to_owned();
            (kind, Some((*run, *sequence)), shape)
        }
        Watched::Live { turn, agent, event } => {
            let shape = json!({ "turn": turn.number, "agent": agent, "live": stable(&**event) });
            ("live".to_owned(), None, shape)
        }
        Watched::Missed(count) => ("missed".to_owned(), None, json!({ "missed": count })),
    }
}

/// The modes of these names, which commas separate: `updates,messages` by default.
pub(crate) fn modes(names: Option<&str>) -> Result<Vec<StreamMode>, Problem> {
    names.unwrap_or("updates,messages").split(',').map(mode).collect()
}

fn mode(name: &str) -> Result<StreamMode, Problem> {
    match name {
        "values" => Ok(StreamMode::Values),
        "updates" => Ok(StreamMode::Updates),
        "messages" => Ok(StreamMode::Messages),
        "live" => Ok(StreamMode::Live),
        "debug" => Ok(StreamMode::Debug),
        _ => {
            let detail = format!("{} is no mode: there are values, updates, messages, live and debug", visible(name));
            Err(Problem::bad(detail))
        }
    }
}

/// The number of the last event that the client has, 0 if it has none.
fn last_event_id(headers: &HeaderMap) -> Result<u64, Problem> {
    let Some(value) = headers.get("last-event-id") else { return Ok(0) };
    let number = value.to_str().ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| Problem::bad("the header Last-Event-ID is the id of an event of this stream, a number"))
}
