//! Saved workflows.

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::Response;
use callboard::messages::visible;
use callboard::workflow::{Defects, Drawing, Workflow};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::body::{Body, Name};
use crate::context::{Context, Shared};
use crate::etags::{Needed, tagged};
use crate::problem::{Problem, ProblemCode};
use crate::query;

/// Answers with the names of the saved workflows, each with its latest version.
pub(crate) async fn list(State(context): Shared) -> Result<Json<Value>, Problem> {
    let workflows = context.board.workflows();
    let mut listed = Vec::new();
    for name in workflows.names().await.map_err(|error| Problem::of_store(&error))? {
        let versions = workflows.versions(&name).await.map_err(|error| Problem::of_store(&error))?;
        listed.push(json!({ "name": name, "version": versions.last() }));
    }
    Ok(Json(json!({ "workflows": listed })))
}

fn none(name: &str) -> Problem {
    Problem::not_found(format!("there is no workflow {}", visible(name)))
}

/// A definition of a workflow: one of them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Definition {
    toml: Option<String>,
    line: Option<String>,
}

/// Saves a definition as the next version of a workflow, if the latest one is what the request needs it to be. The same definition
/// again makes no version.
pub(crate) async fn save(
    State(context): Shared,
    Name(name): Name,
    headers: HeaderMap,
    Body(definition): Body<Definition>,
) -> Result<Response, Problem> {
    let needed = Needed::read(&headers)?;
    let read = match definition {
        Definition { toml: Some(text), line: None } => Workflow::from_toml(&name, &text),
        Definition { toml: None, line: Some(text) } => from_line(&name, &text),
        _ => return Err(Problem::bad("the body has either `toml` or `line`")),
    };
    let workflow = read.map_err(|defects| Problem::new(ProblemCode::Refused, defects.to_string()))?;
    if workflow.name() != name {
        let detail = format!("the definition is that of the workflow {}", visible(workflow.name()));
        return Err(Problem::new(ProblemCode::Refused, detail));
    }
    let workflows = context.board.workflows();
    let last = match needed {
        Needed::Any => None,
        Needed::Absent => Some(0),
        Needed::Number(version) => Some(u32::try_from(version).unwrap_or(u32::MAX)),
    };
    let saved = match last {
        None => Some(workflows.save(&workflow).await?),
        Some(last) => workflows.save_after(last, &workflow).await?,
    };
    let changed =
        || Problem::new(ProblemCode::PreconditionFailed, "another version was saved meanwhile; read it first");
    let version = saved.ok_or_else(changed)?;
    Ok(tagged(version.into(), json!({ "name": name, "version": version })))
}

/// Reads a line, which has this name unless it names itself.
fn from_line(name: &str, text: &str) -> Result<Workflow, Defects> {
    let read = Workflow::from_line(name, text)?;
    if read.name() == name {
        return Ok(read);
    }
    // A second name is an error.
    Ok(Workflow::from_line(name, &format!("workflow {}: {text}", json!(name))).unwrap_or(read))
}

/// Answers with the versions of a workflow, the first one first.
pub(crate) async fn versions(State(context): Shared, Name(name): Name) -> Result<Response, Problem> {
    let versions = context.board.workflows().versions(&name).await.map_err(|error| Problem::of_store(&error))?;
    let last = *versions.last().ok_or_else(|| none(&name))?;
    Ok(tagged(last.into(), json!({ "name": name, "versions": versions })))
}

/// Answers with a workflow, drawn: the version of the query, or the latest one.
pub(crate) async fn drawing(
    State(context): Shared,
    Name(name): Name,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Problem> {
    let [version] = query::values(query.as_deref(), ["version"])?;
    let (version, workflow) = find(&context, &name, version_of(version.as_deref())?).await?;
    let drawing = Drawing::of(&workflow);
    Ok(Json(json!({ "name": name, "version": version, "mermaid": drawing.to_mermaid(), "svg": drawing.to_svg() })))
}

/// The version that a query names.
pub(crate) fn version_of(version: Option<&str>) -> Result<Option<u32>, Problem> {
    let version = version.map(str::parse).transpose();
    version.map_err(|_| Problem::bad("`version` in the query is a number"))
}

/// A version of a workflow, or the latest one.
pub(crate) async fn find(context: &Context, name: &str, version: Option<u32>) -> Result<(u32, Workflow), Problem> {
    let workflows = context.board.workflows();
    let found = match version {
        Some(version) => workflows.get(name, version).await?.map(|workflow| (version, workflow)),
        None => workflows.latest(name).await?,
    };
    found.ok_or_else(|| none(name))
}
