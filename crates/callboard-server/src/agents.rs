//! The board itself: whether it works, its agents, and its tree of supervisors.

use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use callboard::runtime::AgentError;
use callboard::supervision::tree::{ActorState, TreeNode};
use futures::FutureExt as _;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::agent_files::AgentFiles;
use crate::audit::Sender;
use crate::body::{Because, Body, Name};
use crate::context::Shared;
use crate::json::stable;
use crate::knowledge::reserved;
use crate::problem::{Problem, ProblemCode};

/// Answers whether the board works. It asks no actor, because anybody may ask.
pub(crate) async fn health(State(context): Shared) -> Result<Json<Value>, Problem> {
    match context.board.ended().now_or_never() {
        None => Ok(Json(json!({ "status": "ok" }))),
        Some(_) => Err(Problem::new(ProblemCode::Unavailable, "the board has stopped")),
    }
}

/// Answers whether the board works, and has read the unfinished runs that it found at its start.
pub(crate) async fn ready(State(context): Shared) -> Result<Json<Value>, Problem> {
    let Json(health) = health(State(Arc::clone(&context))).await?;
    if context.has_recovered() { Ok(Json(health)) } else { Err(Problem::recovering()) }
}

/// Answers with the agents, what they announce, and the boards that host them.
pub(crate) async fn list(State(context): Shared) -> Json<Value> {
    let on_board = context.board.agents();
    let roster = on_board.roster();
    let AgentFiles { built_in, descriptions, refused, files: _ } = context.agent_files();
    let agents = roster.iter().map(|presence| {
        let mut shown = stable(presence);
        shown["description"] = json!(descriptions.get(presence.agent.as_str()));
        let agent = presence.agent.as_str();
        shown["is_built_in"] = (built_in.contains(agent) || reserved::is_reserved(&context, agent)).into();
        (shown["is_here"], shown["boards"]) = (on_board.is_here(agent).into(), json!(on_board.boards(agent)));
        shown["is_asleep"] = on_board.is_asleep(agent).into();
        shown
    });
    let files: Vec<&String> = refused.keys().collect();
    Json(json!({ "agents": agents.collect::<Vec<_>>(), "refused_files": files, "refusals": refused }))
}

/// Makes the value of an agent again. A failed agent takes work again.
pub(crate) async fn restart(
    State(context): Shared,
    Name(name): Name,
    sender: Option<Extension<Sender>>,
    Body(Because { reason }): Body<Because>,
) -> Result<Json<Value>, Problem> {
    sender.unwrap_or_default().because(&reason);
    let agents = context.board.agents();
    controlled(tokio::spawn(async move { agents.restart(&name).await })).await
}

/// Stops an agent, once the turns under way have ended.
pub(crate) async fn stop(
    State(context): Shared,
    Name(name): Name,
    sender: Option<Extension<Sender>>,
    Body(Because { reason }): Body<Because>,
) -> Result<Json<Value>, Problem> {
    sender.unwrap_or_default().because(&reason);
    let agents = context.board.agents();
    controlled(tokio::spawn(async move { agents.stop(&name).await })).await
}

/// Answers what came of a request about an agent, which is carried out also if the client leaves.
async fn controlled(done: JoinHandle<Result<(), AgentError>>) -> Result<Json<Value>, Problem> {
    done.await.map_err(|error| Problem::internal(&error))??;
    Ok(Json(json!({})))
}

/// Answers with the tree of supervisors.
pub(crate) async fn tree(State(context): Shared) -> Result<Json<Value>, Problem> {
    match context.board.tree().await {
        Ok(tree) => Ok(Json(node(&tree))),
        Err(_) => Err(Problem::new(ProblemCode::Unavailable, "the board has stopped")),
    }
}

fn node(tree: &TreeNode) -> Value {
    json!({
        "name": tree.name,
        "is_supervisor": tree.strategy.is_some(),
        "state": state(tree.state),
        "generation": tree.generation,
        "restarts": tree.restarts,
        "mailbox_depth": tree.mailbox_depth,
        "detail": tree.detail,
        "last_error": tree.last_error,
        "uptime_ms": tree.uptime.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
        "children": tree.children.iter().map(node).collect::<Vec<_>>(),
    })
}

fn state(state: ActorState) -> &'static str {
    match state {
        ActorState::Starting => "starting",
        ActorState::Running => "running",
        ActorState::Dormant => "dormant",
        ActorState::Restarting { .. } => "restarting",
        ActorState::Stopping => "stopping",
        ActorState::Stopped => "stopped",
        ActorState::Failed => "failed",
    }
}
