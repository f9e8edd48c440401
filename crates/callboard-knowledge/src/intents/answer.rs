//! Answers of a language model, of which each claim cites what was found.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::asking::{Ask, IntentError, question, read_json};
use super::shown::shown;
use crate::search::Retrieved;

/// What the agent is asked for.
const TASK: &str = "Answer a question from what was found";

/// The most bytes of results that a model is shown.
const MAX_SHOWN: usize = 48 << 10;

/// An answer whose claims were checked against what was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// What is known, claim by claim.
    Known {
        /// The claims.
        claims: Vec<Claim>,
    },
    /// Nothing that was found supports an answer.
    NotKnown,
    /// The model cited what was not found, or made a claim without citing anything. What it wrote is not shown.
    Refused {
        /// What is wrong with it.
        why: String,
    },
}

/// A sentence of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// What is claimed.
    pub text: String,
    /// The results that support it, by what they are cited by.
    pub cites: Vec<String>,
}

/// What a model returns: claims, which are none if it does not know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UncheckedAnswer {
    /// The claims of the answer, each with the results that support it. None if the results do not answer the question.
    pub claims: Vec<Claim>,
}

impl UncheckedAnswer {
    /// Checks that each claim cites results, and nothing else.
    #[must_use]
    pub fn checked(self, retrieved: &Retrieved) -> Answer {
        let is_found = |cite: &String| retrieved.results.iter().any(|result| result.cite == *cite);
        for Claim { text, cites } in &self.claims {
            if cites.is_empty() {
                return Answer::Refused { why: format!("the claim {text:?} cites nothing") };
            }
            if let Some(invented) = cites.iter().find(|cite| !is_found(cite)) {
                return Answer::Refused { why: format!("{invented:?} is cited and was not found") };
            }
        }
        if self.claims.is_empty() { Answer::NotKnown } else { Answer::Known { claims: self.claims } }
    }
}

/// Asks a model to answer a question from results.
pub(super) async fn answer(
    provider: &str,
    query: &str,
    retrieved: &Retrieved,
    ask: Ask<'_>,
) -> Result<Answer, IntentError> {
    if retrieved.results.is_empty() {
        return Ok(Answer::NotKnown);
    }
    let shown = shown(&retrieved.results, MAX_SHOWN);
    let unreadable = |error: serde_json::Error| IntentError::Unreadable(format!("the answer of {provider}: {error}"));
    let input = question::<UncheckedAnswer>(TASK, serde_json::json!({ "question": query, "results": shown }))
        .map_err(unreadable)?;
    let answered = ask(provider, TASK, input).await?;
    match read_json::<UncheckedAnswer>(&answered) {
        Ok(answer) => Ok(answer.checked(retrieved)),
        Err(error) => Ok(Answer::Refused { why: format!("the answer is not of the form that was asked for: {error}") }),
    }
}
