//! Agents of a board that passes ask, and why there may be no result.

use callboard::messages::Json;
use futures::future::BoxFuture;
use serde::de::DeserializeOwned;

use crate::store::KnowledgeError;

/// Why an intent has no result.
#[derive(Debug, thiserror::Error)]
pub enum IntentError {
    /// The base failed.
    #[error(transparent)]
    Base(#[from] KnowledgeError),
    /// A pass that was delegated has no result.
    #[error(transparent)]
    Turn(#[from] callboard::actors::DelegationError),
    /// A pass, an answer or a verdict is not what it has to be.
    #[error("{0}")]
    Unreadable(String),
    /// The config names a provider, which only a board has.
    #[error("the provider {0:?} is an agent of a board, and this intent runs without one")]
    NoBoard(String),
}

/// Asks an agent of a board, and returns its answer.
pub(super) type Ask<'a> = &'a (dyn Fn(&str, &str, Json) -> BoxFuture<'static, Result<Json, IntentError>> + Send + Sync);

/// Reads an agent's answer, which is JSON or a text of JSON.
pub(super) fn read_json<T: DeserializeOwned>(answer: &Json) -> Result<T, serde_json::Error> {
    match answer.value().as_str() {
        Some(text) => serde_json::from_str(text.trim()),
        None => answer.parse(),
    }
}
