//! What a model is asked in a cycle, and what it answers.

use callboard::TurnError;
use callboard::actors::Turn;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::types::Related;
use crate::intents::Claim;
use crate::intents::asking::{question, read_json};

/// The document that a model writes.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Draft {
    /// A short title.
    pub(super) title: String,
    /// What the document says, a sentence or two for each claim. Each cites the passages that support it, by their `cite`.
    pub(super) claims: Vec<Claim>,
    /// What could not be found out from the passages.
    #[serde(default)]
    pub(super) open: Vec<String>,
}

/// What a model finds missing in the documents together.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Missing {
    /// Topics about which there should be another document.
    #[serde(default)]
    pub(super) topics: Vec<String>,
    /// Questions that only a person can answer.
    #[serde(default)]
    pub(super) questions: Vec<String>,
    /// Documents that should be refined.
    #[serde(default)]
    pub(super) refine: Vec<Refinement>,
}

/// What is missing in a document.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Refinement {
    /// The topic of the document.
    pub(super) topic: String,
    /// What is to be added or corrected.
    pub(super) instruction: String,
}

/// What a model adds to a document.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Enrichment {
    /// Further claims, each with the passages that support it.
    #[serde(default)]
    pub(super) claims: Vec<Claim>,
    /// The names in the claims that readers look for: parts, functions, terms. Written as in the claims.
    #[serde(default)]
    pub(super) entities: Vec<String>,
    /// How these are joined.
    #[serde(default)]
    pub(super) relations: Vec<Related>,
}

/// What a model says about documents that are complete.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Review {
    /// Documents with something wrong.
    #[serde(default)]
    pub(super) documents: Vec<Reviewed>,
}

/// What is wrong with a document.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Reviewed {
    /// The topic of the document.
    pub(super) topic: String,
    /// A better title, if it needs one.
    #[serde(default)]
    pub(super) title: Option<String>,
    /// The claims to leave out, by their numbers, because another one says the same or contradicts them, or because they say nothing.
    #[serde(default)]
    pub(super) leave_out: Vec<usize>,
}

/// Asks the provider. An answer that does not have its form is as none: `None`, with a notice in the run.
pub(super) async fn ask<T: DeserializeOwned + JsonSchema>(
    turn: &Turn,
    provider: &str,
    (name, asked): (&str, impl Serialize),
) -> Result<Option<T>, TurnError> {
    let input = question::<T>(name, asked).map_err(|error| TurnError::terminal(format!("{name}: {error}")))?;
    let answer = turn.delegate(provider, name).input(input).await?;
    match read_json(&answer) {
        Ok(answer) => Ok(Some(answer)),
        Err(error) => {
            turn.notice(&format!(
                "the answer of {provider} to {name:?} does not have the form that was asked for: {error}"
            ));
            Ok(None)
        }
    }
}
