//! Agents of a board that passes ask, and why there may be no result.

use std::path::{Path, PathBuf};

use callboard::messages::Json;
use callboard_text::visible;
use futures::future::BoxFuture;
use schemars::{JsonSchema, schema_for};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::store::KnowledgeError;

/// Why an intent has no result.
#[derive(Debug, thiserror::Error)]
pub enum IntentError {
    /// The base failed.
    #[error(transparent)]
    Base(#[from] KnowledgeError),
    /// The base failed, and will fail again.
    #[error("the base {}: {error}", visible(&.path.to_string_lossy()))]
    At {
        /// Its file.
        path: PathBuf,
        /// What is wrong.
        error: KnowledgeError,
    },
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

impl IntentError {
    /// Names the file of the base in an error of it that does not pass.
    pub(super) fn at(self, path: &Path) -> Self {
        match self {
            Self::Base(error) if !error.may_pass() => Self::At { path: path.to_owned(), error },
            error => error,
        }
    }
}

/// Asks an agent of a board, and returns its answer.
pub(super) type Ask<'a> = &'a (dyn Fn(&str, &str, Json) -> BoxFuture<'static, Result<Json, IntentError>> + Send + Sync);

/// What an agent is asked: the fields of `asked`, which is an object, the name of the task as `task`, and as `answer_with` the JSON Schema that
/// the answer has to meet.
pub(crate) fn question<T: JsonSchema>(task: &str, asked: impl Serialize) -> Result<Json, serde_json::Error> {
    let mut question = serde_json::to_value(asked)?;
    if let Some(fields) = question.as_object_mut() {
        fields.insert("task".to_owned(), task.into());
        fields.insert("answer_with".to_owned(), schema_for!(T).to_value());
    }
    Json::of(question)
}

/// Reads an agent's answer, which is JSON, or a text that is JSON or has it as its one fenced block.
pub(crate) fn read_json<T: DeserializeOwned>(answer: &Json) -> Result<T, serde_json::Error> {
    match answer.value().as_str() {
        Some(text) => serde_json::from_str(unfenced(text)),
        None => answer.parse(),
    }
}

fn unfenced(text: &str) -> &str {
    let parts: Vec<&str> = text.split("```").collect();
    let block = match parts.as_slice() {
        [_, block, _] => block.strip_prefix("json").unwrap_or(block),
        _ => text,
    };
    block.trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_json_as_a_value_a_text_or_the_one_fenced_block_of_a_text() {
        for answer in ["[1]", " [1]\n", "Here it is:\n```json\n[1]\n```\nDone.", "```\n[1]\n```"] {
            assert_eq!(read_json::<Vec<u8>>(&answer.into()).unwrap(), [1], "{answer}");
        }
        assert_eq!(read_json::<Vec<u8>>(&serde_json::json!([1]).into()).unwrap(), [1]);
        for answer in ["", "```json\n[1]\n``` or ```json\n[2]\n```", "[1] or so"] {
            read_json::<Vec<u8>>(&answer.into()).unwrap_err();
        }
    }
}
