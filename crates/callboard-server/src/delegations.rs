//! Delegations: tasks that another program gives to the agents of the board. Each is a run of its own.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::{RawQuery, State};
use axum::http::header::LOCATION;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use callboard::messages::{Limits, RequestId, RunId, Task, Timestamp, TraceParent, TurnId, visible};
use callboard::runtime::{RunError, RunHandle};
use callboard::supervision::runs::{Fork, Run};
use serde::de::{Deserializer, Error as _};
use serde::ser::{SerializeMap as _, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::audit::{Begun, Sender};
use crate::body::{Body, Id, present};
use crate::context::{Context, Shared};
use crate::json::{self as shapes, Shape, time};
use crate::knowledge::reserved;
use crate::people;
use crate::problem::{Problem, ProblemCode};
use crate::query;
use crate::tokens::{Caller, Scope};
use crate::written::Written;

/// The header with which a client may repeat a request safely.
const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// The header with the span that the run is a part of (W3C Trace Context), and the field of `_meta` with it.
pub(crate) const TRACE_PARENT: &str = "traceparent";
pub(crate) const TRACE_STATE: &str = "tracestate";
/// The longest idempotency key, in characters.
pub(crate) const MAX_KEY: usize = 128;

/// A task for the board.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    /// The name, role or capability that the task is for; may be absent if there is one agent.
    to: Option<String>,
    /// The saved workflow that does it, in place of an agent; its latest version.
    workflow: Option<String>,
    /// What to do, in words.
    body: String,
    /// What to work on; the body by default.
    #[serde(default, deserialize_with = "present")]
    input: Option<Value>,
    #[serde(default, deserialize_with = "limits")]
    limits: Option<Limits>,
    deadline_ms: Option<u64>,
    /// An outside resource that the task is about, such as an issue.
    reference: Option<String>,
    /// Whether the input comes from elsewhere, so that the run is tainted. It is set for tokens without the scope `admin`.
    #[serde(default)]
    is_untrusted: bool,
}

/// Limits: the name of a class, or an object of single ones.
fn limits<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Limits>, D::Error> {
    let read = match Option::<Value>::deserialize(deserializer)? {
        None => return Ok(None),
        Some(Value::String(class)) => class.parse().map(Limits::of),
        Some(limits @ Value::Object(_)) => Limits::deserialize(limits).map_err(|error| error.to_string()),
        Some(_) => Err("write simple, medium, complex, or an object such as {\"tokens\": 50000}".to_owned()),
    };
    read.map(Some).map_err(|why| D::Error::custom(format!("`limits`: {why}")))
}

impl Request {
    /// Reads the task of a schedule.
    pub(crate) fn read(task: &Value) -> Result<Self, Problem> {
        Self::deserialize(task).map_err(|error| Problem::bad(format!("the task: {error}")))
    }

    /// The same with an input from outside.
    pub(crate) fn with_untrusted(self, input: Value) -> Self {
        Self { input: Some(input), is_untrusted: true, ..self }
    }

    pub(crate) async fn task(self, context: &Context, caller: &Caller) -> Result<Task, Problem> {
        let mut task = Task::new(&self.body);
        if let Some(name) = &self.workflow {
            if self.to.is_some() {
                return Err(Problem::bad("`to` and `workflow` are both given: a workflow names its agents"));
            }
            let saved = context.board.workflows().latest(name).await?;
            let (_, workflow) = saved
                .ok_or_else(|| Problem::new(ProblemCode::Refused, format!("there is no workflow {}", visible(name))))?;
            task = Task { body: self.body.into(), ..workflow.task(Value::Null) };
        }
        task.to = self.to.map(Into::into);
        reserved::check(context, &task)?;
        task.input = self.input.map(Into::into);
        task.limits = self.limits;
        task.deadline = self.deadline_ms.map(Duration::from_millis);
        task.reference = self.reference.map(Into::into);
        task.from_agent = Some(caller.requester()?);
        task.is_untrusted = self.is_untrusted || !caller.scopes.contains(&Scope::Admin);
        Ok(task)
    }
}

/// Submits a task, and answers when it is journaled.
pub(crate) async fn create(
    State(context): Shared,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    Body(request): Body<Request>,
) -> Result<Response, Problem> {
    let mut task = request.task(&context, &caller).await?;
    task.id = idempotency_key(&headers)?.map(|key| run_of(&caller, key));
    task.trace_parent = trace_parent(&headers).map(|parent| of_client(parent, &task));
    let fold = submit(&context, task).await?;
    let run = fold.submission().run;
    Ok(begun(run, &format!("delegations/{run}"), shown(&context, &fold).await?))
}

/// Submits a task, or finds the run that an earlier request with the same id has begun.
pub(crate) async fn submit(context: &Context, task: Task) -> Result<Run, Problem> {
    let asked = task.id.map(|_| task.clone());
    // A task that is there already is not admitted again: the board may be full, or its agent gone.
    let fold = match known(context, task.id).await? {
        Some(fold) => fold,
        None => context.board.try_submit(task).await?.read().await?,
    };
    if let Some(asked) = asked
        && !is_same(&asked, &fold.submission().task)
    {
        let run = fold.submission().run;
        let detail = format!("the key was used for another task, delegation {run}; choose another key");
        return Err(Problem::new(ProblemCode::KeyReused, detail));
    }
    Ok(fold)
}

/// The answer with a delegation that was accepted. Its location is relative, because the router may be mounted below another path.
pub(crate) fn accepted(location: &str, delegation: impl Serialize) -> Response {
    (StatusCode::ACCEPTED, [(LOCATION, location)], Written(delegation)).into_response()
}

/// The same of a request that has begun this run.
fn begun(run: RunId, location: &str, delegation: impl Serialize) -> Response {
    let mut response = accepted(location, delegation);
    response.extensions_mut().insert(Begun(run));
    response
}

/// The run with this id, if there is one.
pub(crate) async fn known(context: &Context, id: Option<RunId>) -> Result<Option<Run>, Problem> {
    let Some(id) = id else { return Ok(None) };
    match context.board.run(id).read().await {
        Ok(fold) => Ok(Some(fold)),
        Err(RunError::Unknown(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether a task is the one that an earlier request with the same key asked for. The classifier may have chosen limits for that one, and
/// those of the board and the token may have lowered them; what it refers to may have been changed since.
pub(crate) fn is_same(asked: &Task, before: &Task) -> bool {
    let is_lowered = |asked: &Limits, before: &Limits| {
        let Limits { tokens, cost, agents, .. } = *before;
        let is_within = cost.is_some_and(|cost| asked.cost.is_none_or(|asked| cost <= asked)) || cost == asked.cost;
        is_within
            && tokens <= asked.tokens
            && agents <= asked.agents
            && Limits { tokens, cost, agents, ..asked.clone() } == *before
    };
    let limits = match (&asked.limits, &before.limits) {
        (Some(asked), Some(before)) if !is_lowered(asked, before) => Some(asked.clone()),
        _ => before.limits.clone(),
    };
    let reference = before.reference.clone();
    // Each try of a client may be a span of its own.
    let trace_parent = before.trace_parent.clone();
    Task { limits, durability: before.durability, reference, trace_parent, ..asked.clone() } == *before
}

/// The span of the client, if it sends one. What is malformed is as none.
pub(crate) fn trace_parent(headers: &HeaderMap) -> Option<TraceParent> {
    let mut values = headers.get_all(TRACE_PARENT).iter();
    let parent = TraceParent::parse(values.next()?.to_str().ok()?).filter(|_| values.next().is_none())?;
    // Several headers are one list.
    let states: Option<Vec<&str>> = headers.get_all(TRACE_STATE).iter().map(|value| value.to_str().ok()).collect();
    Some(parent.with_state(&states.unwrap_or_default().join(",")))
}

/// The span of a client as the parent of a task's run. Only whoever gives trusted tasks decides that their traces are not recorded.
pub(crate) fn of_client(parent: TraceParent, task: &Task) -> Box<TraceParent> {
    Box::new(TraceParent { is_sampled: parent.is_sampled || task.is_untrusted, ..parent })
}

pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let key = value.to_str().unwrap_or_default();
    let is_visible = key.bytes().all(|byte| byte.is_ascii_graphic());
    if key.is_empty() || key.len() > MAX_KEY || !is_visible || values.next().is_some() {
        let detail = format!("the header Idempotency-Key is one text of 1 to {MAX_KEY} visible ASCII characters");
        return Err(Problem::bad(detail));
    }
    Ok(Some(key))
}

/// The run of a token's key: the same for the same key, and another for another token.
pub(crate) fn run_of(caller: &Caller, key: &str) -> RunId {
    let mut hash = Sha256::new();
    hash.update(b"callboard idempotency key\0");
    hash.update(u64::try_from(caller.name.len()).unwrap_or(u64::MAX).to_be_bytes());
    hash.update(&*caller.name);
    hash.update(key);
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.finalize()[..16]);
    RunId::of_hash(bytes)
}

/// A run as its delegation is shown.
pub(crate) async fn shown_run(context: &Context, run: RunId) -> Result<Value, Problem> {
    Ok(json!(shown(context, &context.board.run(run).read_with_placed().await?).await?))
}

/// Answers with a delegation as it is now.
pub(crate) async fn get(State(context): Shared, Id(id): Id) -> Result<Response, Problem> {
    let fold = find(&context, &id)?.read_with_placed().await?;
    Ok(Written(shown(&context, &fold).await?).into_response())
}

/// What a delegation is to refer to.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Change {
    /// Has to be there: without it nothing would be changed.
    #[serde(deserialize_with = "present")]
    reference: Option<Value>,
}

/// Changes what a delegation refers to, for the requester alone: the token that gave it, or another of the same person.
pub(crate) async fn change(
    State(context): Shared,
    Id(id): Id,
    Extension(caller): Extension<Caller>,
    Body(Change { reference }): Body<Change>,
) -> Result<Json<Value>, Problem> {
    let reference = match &reference {
        Some(Value::String(reference)) => Some(reference.as_str()),
        Some(Value::Null) | None => None,
        Some(_) => return Err(Problem::bad("the body: `reference` is a text or null")),
    };
    let run = find(&context, &id)?;
    let fold = run.read().await?;
    let task = &fold.submission().task;
    let own = task.from_agent.as_ref().filter(|from| context.is_of_person(from.as_str(), &caller));
    if own.is_some() && !task.is_untrusted && !caller.scopes.contains(&Scope::Admin) {
        let detail = "the task of this delegation is trusted: another `reference` needs the scope admin";
        return Err(Problem::new(ProblemCode::MissingScope, detail));
    }
    let requester = own.map_or(&*caller.name, |from| from.as_str());
    let is_changed = run.change_reference(requester, reference).await?;
    changed(&context, &caller, &run, is_changed).await
}

/// The answer with a delegation that was changed, unless it had ended.
async fn changed(
    context: &Context,
    caller: &Caller,
    run: &RunHandle,
    is_changed: bool,
) -> Result<Json<Value>, Problem> {
    if !is_changed {
        return Err(Problem::new(ProblemCode::Conflict, format!("delegation {} has ended", run.id())));
    }
    Ok(Json(readable(caller, shown(context, &run.read_with_placed().await?).await?)))
}

/// Why a delegation is cancelled.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cancellation {
    #[serde(default)]
    reason: String,
}

/// Cancels a delegation, and answers with it.
pub(crate) async fn cancel(
    State(context): Shared,
    Id(id): Id,
    Extension(caller): Extension<Caller>,
    sender: Option<Extension<Sender>>,
    Body(Cancellation { reason }): Body<Cancellation>,
) -> Result<Json<Value>, Problem> {
    sender.unwrap_or_default().because(&reason);
    let run = find(&context, &id)?;
    let reason = if reason.is_empty() { format!("cancelled by {}", caller.by()) } else { reason };
    changed(&context, &caller, &run, run.cancel(&reason).await?).await
}

/// What the caller may read of a delegation that others may have given.
fn readable(caller: &Caller, shown: Shown<'_>) -> Value {
    let mut shown = json!(shown);
    if let (false, Some(fields)) = (caller.scopes.contains(&Scope::Read), shown.as_object_mut()) {
        fields.retain(|name, _| ["request_id", "status"].contains(&name.as_str()));
    }
    shown
}

/// Which turn of a delegation is tried again.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Retry {
    /// The number of a turn that failed for good; by default that of the last one.
    turn: Option<u32>,
    /// The limits of the new delegation; those of this one by default.
    #[serde(default, deserialize_with = "limits")]
    limits: Option<Limits>,
    /// Why, for the audit log.
    #[serde(default)]
    reason: String,
}

/// Has a turn that failed for good tried again, in a delegation of its own. The same turn again is the same delegation.
pub(crate) async fn retry(
    State(context): Shared,
    Id(id): Id,
    Extension(caller): Extension<Caller>,
    sender: Option<Extension<Sender>>,
    Body(Retry { turn, limits, reason }): Body<Retry>,
) -> Result<Response, Problem> {
    sender.unwrap_or_default().because(&reason);
    let run = find(&context, &id)?;
    let letters = run.dead_letters().await?;
    reserved::check_repeated(&context, &run, false).await?;
    let conflict = |detail: String| Problem::new(ProblemCode::Conflict, detail);
    let letter = match turn {
        Some(number) => TurnId { run: run.id(), number },
        None => {
            let none = || conflict(format!("no turn of delegation {} has failed for good", run.id()));
            letters.last().ok_or_else(none)?.turn
        }
    };
    let retried = letters.iter().find(|known| known.turn == letter).and_then(|known| known.retried_as);
    if let (Some(limits), Some(retried)) = (&limits, retried)
        && context.board.run(retried).read().await?.submission().limits() != limits
    {
        let turn = letter.number;
        return Err(conflict(format!(
            "turn {turn} was tried again before, as {retried}: try that one again with `limits`"
        )));
    }
    let retried = context.board.dead_letters().retry_for(letter, Some(caller.requester()?), limits).await?;
    began(&context, &caller, retried).await
}

/// From where a delegation is forked, and what is changed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Forked {
    /// The number of the turn that begins again.
    turn: u32,
    /// The input of the turn; that which it had by default.
    #[serde(default, deserialize_with = "present")]
    input: Option<Value>,
    /// What the turn finds in channels of the state, in place of what was there.
    #[serde(default)]
    set: BTreeMap<String, Value>,
    #[serde(default, deserialize_with = "limits")]
    limits: Option<Limits>,
    /// Why, for the audit log.
    #[serde(default)]
    reason: String,
}

/// Forks a delegation at a turn. A task that is trusted is changed with the scope `admin` alone: the fork is trusted as well.
pub(crate) async fn fork(
    State(context): Shared,
    Id(id): Id,
    Extension(caller): Extension<Caller>,
    sender: Option<Extension<Sender>>,
    Body(Forked { turn, input, set, limits, reason }): Body<Forked>,
) -> Result<Response, Problem> {
    sender.unwrap_or_default().because(&reason);
    let run = find(&context, &id)?;
    let is_changed = input.is_some() || !set.is_empty();
    reserved::check_repeated(&context, &run, is_changed).await?;
    let is_untrusted = run.read().await?.submission().task.is_untrusted;
    if is_changed && !is_untrusted && !caller.scopes.contains(&Scope::Admin) {
        let detail = "the task of this delegation is trusted: another `input` or `set` needs the scope admin";
        return Err(Problem::new(ProblemCode::MissingScope, detail));
    }
    let from_agent = Some(caller.requester()?);
    let fork = set.into_iter().fold(Fork::new(), |fork, (channel, value)| fork.set(&channel, value));
    let fork = Fork { input: input.map(Into::into), limits, from_agent, ..fork };
    began(&context, &caller, context.board.fork(run.id(), turn, fork).await?).await
}

/// The answer with a delegation that began from another.
async fn began(context: &Context, caller: &Caller, run: RunHandle) -> Result<Response, Problem> {
    let shown = readable(caller, shown(context, &run.read().await?).await?);
    Ok(begun(run.id(), &format!("../{}", run.id()), shown))
}

/// The delegation that a query names: `/delegation-status?id=ID`.
pub(crate) async fn status(State(context): Shared, RawQuery(query): RawQuery) -> Result<Response, Problem> {
    let [id] = query::values(query.as_deref(), ["id"])?;
    get(State(context), Id(id.ok_or_else(|| Problem::bad("the query has no `id`"))?.into_owned())).await
}

/// The handle of the run that a path names.
pub(crate) fn find(context: &Context, id: &str) -> Result<RunHandle, Problem> {
    match id.parse() {
        Ok(run) => Ok(context.board.run(run)),
        Err(_) => Err(Problem::not_found(format!(
            "{} is no id of a delegation, which is a UUID: `request_id`, also in `callboard status {} --json`",
            visible(id),
            if id.starts_with("req-") { visible(id) } else { "RUN".to_owned() }
        ))),
    }
}

/// A delegation as it is now, whose JSON docs/http.md describes.
struct Shown<'a> {
    run: &'a Run,
    now: Timestamp,
    /// Whether there was no news of it for long; `None` in lists, which have neither what it waits for nor its result.
    is_stale: Option<bool>,
}

async fn shown<'a>(context: &Context, run: &'a Run) -> Result<Shown<'a>, Problem> {
    let is_stale = Some(is_stale(context, run).await?);
    Ok(Shown { run, now: context.now(), is_stale })
}

/// Whether a delegation is open, and its agent has neither acknowledged it nor sent a notice for long.
pub(crate) async fn is_stale(context: &Context, run: &Run) -> Result<bool, Problem> {
    let submission = run.submission();
    if run.result().is_some() || submission.task.from_agent.is_none() {
        return Ok(false);
    }
    let status = context.board.status(RequestId::of_run(submission.run)).await;
    Ok(status.map_err(|error| Problem::of_store(&error))?.is_some_and(|status| status.is_stale))
}

/// A delegation as lists have it.
pub(crate) fn brief(context: &Context, run: &Run) -> Value {
    json!(Shown { run, now: context.now(), is_stale: None })
}

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { run, now, is_stale } = *self;
        let submission = run.submission();
        let mut shape = serializer.serialize_map(None)?;
        shape.serialize_entry("request_id", &submission.run)?;
        shape.serialize_entry("trace_id", &submission.trace)?;
        shape.serialize_entry("from_agent", &submission.task.from_agent)?;
        shape.serialize_entry("reference", &submission.task.reference)?;
        shape.serialize_entry("to_agent", &submission.agent)?;
        shape.serialize_entry("workflow", &submission.task.plan.as_ref().map(|plan| &plan.name))?;
        shape.serialize_entry("body", &submission.task.body)?;
        shape.serialize_entry("submitted_at", &time(submission.at))?;
        shape.serialize_entry("status", shapes::delegation_status(run))?;
        shape.serialize_entry("state", shapes::status(run, now))?;
        shape.serialize_entry("metrics", &Shape(&run.metrics()))?;
        if let Some(is_stale) = is_stale {
            shape.serialize_entry("is_stale", &is_stale)?;
            let pending = run.pending();
            let pending = pending.iter().filter(|wait| !wait.is_expired(now)).map(people::shown);
            shape.serialize_entry("pending", &pending.collect::<Vec<_>>())?;
            shape.serialize_entry("result", &run.result().map(|result| Shape(&**result)))?;
        }
        shape.end()
    }
}
