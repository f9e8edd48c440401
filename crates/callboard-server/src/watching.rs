//! Event streams of an agent and of the whole tree: what happens from now on, in all runs of this board.

use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::Response;
use axum::response::sse::Event;
use callboard::actors::{StreamMode, Watched};
use callboard::messages::{AgentName, RunId, visible};
use callboard::supervision::tree::{TreeEvent, TreeEventKind};
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt as _};
use serde_json::{Value, json};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use crate::body::Name;
use crate::context::{Context, Shared};
use crate::events::{answer, modes, parts};
use crate::json::time;
use crate::problem::Problem;
use crate::query;
use crate::tokens::Caller;

/// Streams the events of the turns of an agent.
pub(crate) async fn agent(
    State(context): Shared,
    Name(name): Name,
    RawQuery(query): RawQuery,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (modes, gap) = asked(query.as_deref(), &headers)?;
    let agent = known(&context, &name)?;
    let permit = context.streams.open(&caller)?;
    let events = context.board.watch_agent(&agent, &modes).map(|watched| shown(&watched));
    Ok(answer(&context, caller, permit, gap.chain(events)))
}

/// Streams what happens in the tree of supervisors, and the events of all runs.
pub(crate) async fn tree(
    State(context): Shared,
    RawQuery(query): RawQuery,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (modes, gap) = asked(query.as_deref(), &headers)?;
    let permit = context.streams.open(&caller)?;
    let merged = Merged { runs: context.board.watch(&modes).boxed(), tree: context.board.tree_events() };
    let events = stream::unfold(merged, |mut merged| async { Some((merged.next().await?, merged)) });
    Ok(answer(&context, caller, permit, gap.chain(events)))
}

/// The agent of this name, or one that an agent of the board has made.
fn known(context: &Context, name: &str) -> Result<AgentName, Problem> {
    let is_host = |agent: &AgentName| context.board.agents().names().iter().any(|known| known.as_str() == agent.host());
    let agent = AgentName::new(name).ok().filter(is_host);
    agent.ok_or_else(|| Problem::not_found(format!("there is no agent {}", visible(name))))
}

/// The modes that a client asks for, and what it receives first.
fn asked(
    query: Option<&str>,
    headers: &HeaderMap,
) -> Result<(Vec<StreamMode>, impl Stream<Item = Event> + use<>), Problem> {
    let [names] = query::values(query, ["modes"])?;
    Ok((modes(names.as_deref())?, gap(headers)?))
}

/// What a client that was there before receives first: it is not known how much it has missed.
fn gap(headers: &HeaderMap) -> Result<impl Stream<Item = Event> + use<>, Problem> {
    let is_again = match headers.get("last-event-id") {
        None => false,
        Some(value) if value.to_str().is_ok_and(is_id) => true,
        Some(_) => {
            return Err(Problem::bad("the header Last-Event-ID is the id of an event of this stream, RUN/NUMBER"));
        }
    };
    let missed = || Event::default().event("missed").data(json!({ "missed": null }).to_string());
    Ok(stream::iter(is_again.then(missed)))
}

fn is_id(text: &str) -> bool {
    text.split_once('/').is_some_and(|(run, number)| run.parse::<RunId>().is_ok() && number.parse::<u64>().is_ok())
}

/// An event of one of many runs.
fn shown(watched: &Watched) -> Event {
    let (kind, id, mut shape) = parts(watched);
    let run = match watched {
        Watched::Event { run, .. } => Some(*run),
        Watched::Live { turn, .. } => Some(turn.run),
        Watched::Missed(_) => None,
    };
    if let Some(run) = run {
        shape["run"] = json!(run);
    }
    let event = Event::default().event(kind).data(shape.to_string());
    match id {
        Some((run, sequence)) => event.id(format!("{run}/{sequence}")),
        None => event,
    }
}

/// The events of the runs and those of the supervisors.
struct Merged {
    runs: BoxStream<'static, Watched>,
    tree: Receiver<TreeEvent>,
}

impl Merged {
    /// The next event; `None` when the board has ended.
    async fn next(&mut self) -> Option<Event> {
        tokio::select! {
            watched = self.runs.next() => Some(shown(&watched?)),
            event = self.tree.recv() => match event {
                Ok(event) => Some(shown_in_tree(&event)),
                Err(RecvError::Lagged(count)) => Some(shown(&Watched::Missed(count))),
                Err(RecvError::Closed) => None,
            },
        }
    }
}

fn shown_in_tree(TreeEvent { at, path, generation, kind }: &TreeEvent) -> Event {
    let shape: Value = json!({
        "path": path,
        "generation": generation,
        "what": what(kind),
        "text": kind.to_string(),
        "at": time(*at),
    });
    Event::default().event("tree").data(shape.to_string())
}

fn what(kind: &TreeEventKind) -> &'static str {
    match kind {
        TreeEventKind::Started => "started",
        TreeEventKind::StartFailed { .. } => "start_failed",
        TreeEventKind::Exited { .. } => "exited",
        TreeEventKind::RestartScheduled { .. } => "restart_scheduled",
        TreeEventKind::Restarted => "restarted",
        TreeEventKind::Stopped => "stopped",
        TreeEventKind::Killed => "killed",
        TreeEventKind::KilledAfterTimeout => "killed_after_timeout",
        TreeEventKind::LeftBehind => "left_behind",
        TreeEventKind::Failed { .. } => "failed",
        TreeEventKind::Escalated { .. } => "escalated",
    }
}
