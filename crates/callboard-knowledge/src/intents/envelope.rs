//! What a front end asks for, and what it gets.

use callboard::messages::{Json, Timestamp};
use schemars::JsonSchema;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};

use super::answer::Answer;
use crate::facts::{Contradiction, FactId, OnContradiction, Similar};
use crate::search::{Depth, MAX_LIMIT, Retrieved, USUAL_LIMIT};
use crate::store::{Applied, ChangeKind, KnowledgeError, Preview, Submitted};

/// What is asked of a base.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Intent {
    /// Reads: what is known about a question.
    QueryTruth,
    /// Changes: something is known.
    SubmitFact,
    /// Changes: something is no longer so, or a person accepts a disputed fact.
    InvalidateFact,
}

impl Intent {
    /// Whether it changes the base.
    #[must_use]
    pub const fn changes(self) -> bool {
        match self {
            Self::QueryTruth => false,
            Self::SubmitFact | Self::InvalidateFact => true,
        }
    }
}

/// An intent, and who has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsumerIntentEnvelope {
    /// What is asked.
    pub intent: Intent,
    /// A [`QueryPayload`], [`SubmitPayload`] or [`InvalidatePayload`].
    pub payload: Json,
    /// Who asks. On a board, a turn that delegates and the requester of a task take its place.
    pub principal: String,
    /// Where: facts of other namespaces are neither found nor changed.
    pub namespace: String,
    /// The trace that it belongs to, as a `traceparent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
}

impl ConsumerIntentEnvelope {
    /// Reads the payload.
    ///
    /// # Errors
    /// It is not what its intent needs.
    pub(super) fn payload<T: DeserializeOwned>(&self) -> Result<T, Refused> {
        let Self { intent, payload, .. } = self;
        payload.parse().map_err(|error| Refused {
            code: "bad_payload".to_owned(),
            message: format!("the payload does not fit {intent:?}: {error}"),
            contradictions: Vec::new(),
        })
    }
}

/// What [`Intent::QueryTruth`] needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QueryPayload {
    /// The question, in words.
    pub query: String,
    /// How far to look: `deep` if left out.
    #[serde(default)]
    pub discovery_depth: Depth,
    /// How many results: 10 if left out, 640 at most.
    #[serde(default = "usual_limit", deserialize_with = "limit")]
    #[schemars(range(min = 1, max = 640))]
    pub limit: usize,
    /// What held at this time, such as `2026-01-31T12:00:00Z`; now if left out.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::times::option")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub as_of: Option<Timestamp>,
    /// Whether a language model also answers from what is found. If left out, it does where one is asked; `true` is refused where none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<bool>,
}

const fn usual_limit() -> usize {
    USUAL_LIMIT
}

/// Whoever asks, and in whatever way, the bound is the same.
fn limit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    let limit = u64::deserialize(deserializer)?;
    let allowed = usize::try_from(limit).ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
    allowed
        .ok_or_else(|| D::Error::custom(format!("`limit` is {limit}, and 1 to {MAX_LIMIT} results can be asked for")))
}

/// What [`Intent::SubmitFact`] needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitPayload {
    /// What is known, as a sentence. Its words belong to one subject, predicate and value: the same words with others are refused.
    pub statement: String,
    /// What it is about; together with predicate and value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Which property of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicate: Option<String>,
    /// What the property is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The predicate has one value at a time, so another value contradicts this one.
    #[serde(default)]
    pub is_single: bool,
    /// The place that says so, such as `docs/auth.md:12` or an address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub place: Option<String>,
    /// What happens if it contradicts current facts: `dispute` if left out.
    #[serde(default)]
    pub on_contradiction: OnContradiction,
}

/// What [`Intent::InvalidateFact`] needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InvalidatePayload {
    /// The fact.
    pub fact: FactId,
    /// `invalidate` if left out; `accept` has a disputed fact hold.
    #[serde(default = "invalidate")]
    pub kind: ChangeKind,
    /// Why, for its history.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    pub reason: String,
    /// The hash of the preview that is applied. Without it, nothing is changed and the result is a preview.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apply: Option<String>,
}

const fn invalidate() -> ChangeKind {
    ChangeKind::Invalidate
}

/// How [`run_intent_loop`](super::run_intent_loop) repeats a query.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IntentLoopConfig {
    /// How many passes a query has at most (3).
    pub max_iterations: u32,
    /// A query whose confidence is lower is weak (0.6).
    pub confidence_threshold: f64,
    /// The agent of the board that a language model is asked through: it answers queries from what was found, and judges whether a statement
    /// contradicts similar facts. Without one, results are passages and facts, and rules alone judge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
}

impl Default for IntentLoopConfig {
    fn default() -> Self {
        Self { max_iterations: 3, confidence_threshold: 0.6, provider: None }
    }
}

/// What an intent resulted in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IntentLoopResult {
    /// The result.
    pub result: IntentResult,
    /// How many passes it took.
    pub iterations: u32,
    /// A query was repeated with a wider search.
    pub escalated: bool,
}

/// The result of an intent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IntentResult {
    /// What a query found.
    Found {
        /// The results, best first.
        retrieved: Retrieved,
        /// What a language model answers from them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        answer: Option<Answer>,
    },
    /// What became of a statement.
    Submitted {
        /// The fact.
        #[serde(flatten)]
        submitted: Submitted,
        /// Facts that have words in common with it.
        similar: Vec<Similar>,
    },
    /// What a change would do.
    Preview(Preview),
    /// What a change did.
    Applied(Applied),
    /// It was refused, and nothing was changed.
    Refused(Refused),
}

/// Why an intent was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Refused {
    /// A name for programs.
    pub code: String,
    /// What is wrong, and what to do.
    pub message: String,
    /// The current facts that a statement contradicts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contradictions: Vec<Contradiction>,
}

impl Refused {
    /// An answer was asked for where no language model is asked.
    pub(super) fn no_provider() -> Self {
        Self {
            code: "no_model".to_owned(),
            message: "no language model is asked here; leave `answer` out to get what is found, or have one asked, as with `callboard serve \
                      --model NAME`"
                .to_owned(),
            contradictions: Vec::new(),
        }
    }

    /// The refusal that an error of the base is, if what was asked is the reason.
    pub(super) fn of(error: KnowledgeError) -> Result<Self, KnowledgeError> {
        let code = match &error {
            KnowledgeError::Fact(_) => "bad_statement",
            KnowledgeError::NoSuchFact { .. } => "no_such_fact",
            KnowledgeError::Changed { .. } | KnowledgeError::PreviewChanged { .. } => "changed",
            KnowledgeError::Unchanged { .. } => "unchanged",
            KnowledgeError::NotDisputed { .. } => "not_disputed",
            KnowledgeError::Contradicts(_) | KnowledgeError::OtherParts { is_contradiction: true, .. } => "contradicts",
            KnowledgeError::OtherParts { is_contradiction: false, .. } => "other_parts",
            KnowledgeError::Predicate { .. } | KnowledgeError::SeveralValues { .. } => "predicate",
            KnowledgeError::Missing { .. }
            | KnowledgeError::NotABase
            | KnowledgeError::InUse { .. }
            | KnowledgeError::Replaced { .. }
            | KnowledgeError::Backup { .. }
            | KnowledgeError::Export { .. }
            | KnowledgeError::NotEmpty
            | KnowledgeError::Text(_)
            | KnowledgeError::TooNew { .. }
            | KnowledgeError::Damaged { .. }
            | KnowledgeError::DamagedIndex
            | KnowledgeError::Full
            | KnowledgeError::ReadOnly
            | KnowledgeError::Busy
            | KnowledgeError::Failed { .. }
            | KnowledgeError::Closed
            | KnowledgeError::Sqlite(_)
            | KnowledgeError::Unreadable(_)
            | KnowledgeError::Io { .. } => return Err(error),
        };
        let message = error.to_string();
        let contradictions = match error {
            KnowledgeError::Contradicts(found) => found,
            KnowledgeError::OtherParts { known, is_contradiction: true } => vec![known],
            _ => Vec::new(),
        };
        Ok(Self { code: code.to_owned(), message, contradictions })
    }
}
