//! The shared context: entries of the namespaces that a token was granted.

use std::time::Duration;

use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use callboard::messages::{AgentName, ContextEntry, visible};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::body::{Body, EntryPath};
use crate::context::Shared;
use crate::etags::{Needed, tagged};
use crate::json::time;
use crate::problem::{Problem, ProblemCode};
use crate::query;
use crate::tokens::{Caller, Scope};

/// The most entries of a list.
const MAX_ENTRIES: usize = 200;

/// Refuses a namespace that nobody reads, or that a token was not granted.
pub(crate) fn check(caller: &Caller, namespace: &str) -> Result<(), Problem> {
    if namespace == "run" {
        let detail = "no agent reads the namespace run: for agents, `run` is the namespace of their run, run:ID with its whole id; they also \
                      have memory:AGENT, and what `namespaces` in their files names";
        return Err(Problem::new(ProblemCode::Refused, detail));
    }
    check_granted(caller, namespace)
}

/// Refuses a namespace that a token was not granted.
pub(crate) fn check_granted(caller: &Caller, namespace: &str) -> Result<(), Problem> {
    if caller.reaches(namespace) {
        return Ok(());
    }
    let detail = format!("the token {} was not granted the namespace {}", caller.name, visible(namespace));
    Err(Problem::new(ProblemCode::NotGranted, detail))
}

fn none(path: &EntryPath) -> Problem {
    Problem::not_found(format!("there is no entry {} in {}", visible(&path.key), visible(&path.namespace)))
}

/// Answers with the entries whose keys begin with `prefix`, without their values.
pub(crate) async fn list(
    State(context): Shared,
    path: EntryPath,
    RawQuery(query): RawQuery,
    Extension(caller): Extension<Caller>,
) -> Result<Json<Value>, Problem> {
    check(&caller, &path.namespace)?;
    let [prefix] = query::values(query.as_deref(), ["prefix"])?;
    let prefix = prefix.unwrap_or_default();
    let found = context.board.context().query_by_prefix(&path.namespace, &prefix, MAX_ENTRIES + 1).await?;
    let entries: Vec<Value> = found.iter().take(MAX_ENTRIES).map(brief).collect();
    Ok(Json(json!({ "entries": entries, "has_more": found.len() > MAX_ENTRIES })))
}

/// Answers with an entry.
pub(crate) async fn get(
    State(context): Shared,
    path: EntryPath,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Problem> {
    check(&caller, &path.namespace)?;
    let entry = context.board.context().get(&path.namespace, &path.key).await?;
    entry.map(|entry| shown(&entry)).ok_or_else(|| none(&path))
}

/// An entry to write.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Written {
    value: String,
    ttl_secs: Option<u64>,
}

/// Writes an entry in the name of the token, if it is what the request needs it to be.
pub(crate) async fn set(
    State(context): Shared,
    path: EntryPath,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    Body(Written { value, ttl_secs }): Body<Written>,
) -> Result<Response, Problem> {
    check(&caller, &path.namespace)?;
    let needed = Needed::read(&headers)?;
    let writer = AgentName::new(&caller.name).map_err(|error| Problem::bad(error.to_string()))?;
    let ttl = ttl_secs.map(Duration::from_secs);
    let store = context.board.context().clone();
    let store = if caller.scopes.contains(&Scope::Admin) { store } else { store.untrusted() };
    let EntryPath { namespace, key } = &path;
    let entry = match needed {
        Needed::Any => store.set(namespace, key, &value, &writer, ttl).await?,
        Needed::Absent => store.compare_and_set(namespace, key, None, &value, &writer, ttl).await?,
        Needed::Number(revision) => store.compare_and_set(namespace, key, Some(revision), &value, &writer, ttl).await?,
    };
    Ok(shown(&entry))
}

/// Deletes an entry, if it is what the request needs it to be.
pub(crate) async fn delete(
    State(context): Shared,
    path: EntryPath,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    check(&caller, &path.namespace)?;
    let store = context.board.context();
    let was_there = match Needed::read(&headers)? {
        Needed::Any => store.delete(&path.namespace, &path.key).await?,
        Needed::Number(revision) => store.compare_and_delete(&path.namespace, &path.key, revision).await?,
        Needed::Absent => return Err(Problem::bad("what is deleted is there: `If-None-Match` does not fit")),
    };
    if was_there { Ok(StatusCode::NO_CONTENT.into_response()) } else { Err(none(&path)) }
}

fn brief(entry: &ContextEntry) -> Value {
    json!({
        "namespace": entry.namespace,
        "key": entry.key,
        "agent": entry.agent,
        "created_at": time(entry.created_at),
        "updated_at": time(entry.updated_at),
        "expires_at": entry.expires_at.map(time),
        "revision": entry.revision,
        "is_untrusted": entry.is_untrusted(),
    })
}

fn shown(entry: &ContextEntry) -> Response {
    let mut shape = brief(entry);
    shape["value"] = json!(entry.value);
    tagged(entry.revision, shape)
}
