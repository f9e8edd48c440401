//! The roll-up error, for programs that pass everything on with `?`.

use crate::actors::context::ContextError;
use crate::messages::{NameError, Refusal};
use crate::runtime::{AgentError, AskError, BuildError, LetterError, RunError};
use crate::storage::StorageError;
use crate::supervision::runs::fork::ForkError;
use crate::supervision::runs::reopen::OverwriteError;
use crate::supervision::runs::rules::errors::{AnswerError, SubmitError};

/// Any error of the library.
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
    Letter(#[from] LetterError),
    #[error(transparent)]
    Fork(#[from] ForkError),
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error(transparent)]
    Agent(#[from] AgentError),
    #[error(transparent)]
    Answer(#[from] AnswerError),
    #[error(transparent)]
    Overwrite(#[from] OverwriteError),
    #[error(transparent)]
    Context(#[from] ContextError),
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    Name(#[from] NameError),
    #[error(transparent)]
    Refused(#[from] Refusal),
}
