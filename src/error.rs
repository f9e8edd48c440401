//! The roll-up error, for programs that pass everything on with `?`.

use crate::actors::context::ContextError;
use crate::messages::state::StateError;
use crate::messages::{NameError, Refusal};
use crate::runtime::{
    AgentError, AskError, BuildError, CompleteError, ConversationError, RunError, WorkflowStoreError,
};
use crate::storage::{StorageError, TransferError};
use crate::supervision::runs::ReplayError;
use crate::supervision::runs::fork::ForkError;
use crate::supervision::runs::reopen::OverwriteError;
use crate::supervision::runs::rules::errors::{AnswerError, SubmitError};
use crate::supervision::tree::{CallError, ControlError, StartError};
use crate::workflow::Defects;

/// Any error of the library. Each error of a public function converts into it, but for those that agents return
/// ([`TurnError`](crate::TurnError) and what becomes one) and those that give a message back
/// ([`SendError`](crate::supervision::tree::SendError)).
///
/// ```
/// use callboard::prelude::*;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let workflow = Workflow::builder("report").node(Node::agent("draft", "writer")).build()?;
/// let board = Callboard::builder().start().await?;
/// board.workflows().save(&workflow).await?;
/// assert!(board.tree().await?.find(&["runs"]).is_some());
/// # Ok::<(), callboard::Error>(()) }).unwrap();
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "each variant is documented at its type")]
pub enum Error {
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error(transparent)]
    Submit(#[from] SubmitError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Complete(#[from] CompleteError),
    #[error(transparent)]
    Fork(#[from] ForkError),
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error(transparent)]
    Agent(#[from] AgentError),
    #[error(transparent)]
    Answer(#[from] AnswerError),
    #[error(transparent)]
    Overwrite(#[from] OverwriteError),
    #[error(transparent)]
    Conversation(#[from] ConversationError),
    #[error(transparent)]
    Context(#[from] ContextError),
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    Transfer(#[from] TransferError),
    #[error(transparent)]
    Defects(#[from] Defects),
    #[error(transparent)]
    WorkflowStore(#[from] WorkflowStoreError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    Name(#[from] NameError),
    #[error(transparent)]
    Refused(#[from] Refusal),
}
