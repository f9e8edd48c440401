//! What is known: facts, where they come from, and the rules by which one is the same as another or contradicts it. Pure.

mod rules;
mod statement;

use std::fmt;
use std::str::FromStr;

use callboard::messages::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub(crate) use rules::has_one_value;
pub use rules::{Contradiction, OnContradiction, Placement, Similar, Stored, place};
pub(crate) use statement::predicate_form;
pub use statement::{FactError, MAX_PART, MAX_STATEMENT, Statement, Triple};

/// The id of a fact. It follows from the namespace and the statement, so a statement that is submitted twice has one id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(into = "String", try_from = "String")]
#[schemars(with = "String")]
pub struct FactId(pub Uuid);

impl From<FactId> for String {
    fn from(id: FactId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for FactId {
    type Error = NotAFactId;

    fn try_from(text: String) -> Result<Self, NotAFactId> {
        text.parse()
    }
}

impl fmt::Display for FactId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fact-{}", self.0.simple())
    }
}

/// Why a text is no id of a fact.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no id of a fact; an id is `fact-` and 32 hexadecimal digits, as `callboard kb query` prints them")]
pub struct NotAFactId(pub String);

impl FromStr for FactId {
    type Err = NotAFactId;

    fn from_str(text: &str) -> Result<Self, NotAFactId> {
        let digits = text.strip_prefix("fact-").unwrap_or(text);
        Uuid::parse_str(digits).map(Self).map_err(|_| NotAFactId(text.to_owned()))
    }
}

/// Whether a fact holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FactState {
    /// It holds.
    Current,
    /// Somebody has to decide: it contradicts another fact, or comes from untrusted input.
    Disputed,
    /// It no longer holds.
    Invalid,
}

impl FactState {
    /// All states, in the order in which they are counted and shown.
    pub const ALL: [Self; 3] = [Self::Current, Self::Disputed, Self::Invalid];

    /// Its name, as in JSON and in the store.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Disputed => "disputed",
            Self::Invalid => "invalid",
        }
    }

    /// The state of this name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }
}

impl fmt::Display for FactState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The most bytes of what a base keeps of who changes a fact and from where: a name, a place, a run; and of the reason that somebody gives.
pub const MAX_TEXT: usize = 1 << 10;

/// The most bytes of a reason that a base keeps: those that somebody gives, with what they lead to. A longer one is cut.
pub(crate) const MAX_REASON: usize = 64 << 10;

/// Refuses texts of which one is longer than [`MAX_TEXT`].
pub(crate) fn check_texts<const N: usize>(texts: [(&'static str, &str); N]) -> Result<(), FactError> {
    match texts.into_iter().find(|(_, text)| text.len() > MAX_TEXT) {
        Some((part, text)) => Err(FactError::LongChange { part, bytes: text.len(), most: MAX_TEXT }),
        None => Ok(()),
    }
}

/// As much of a reason as is kept.
pub(crate) fn kept_reason(reason: &str) -> &str {
    &reason[..reason.floor_char_boundary(MAX_REASON)]
}

/// Where a fact comes from: who submitted it, and the place that says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Who submitted it: an agent, or a person.
    pub by: String,
    /// The place that says so, such as `docs/auth.md:12` or an address; none if the submitter is the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// The run in which it was submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The turn of that run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<u32>,
    /// When it was submitted.
    #[serde(with = "crate::times")]
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub at: Timestamp,
    /// The run had read untrusted input.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_untrusted: bool,
}

impl Source {
    /// Refuses one that is longer than what a base keeps.
    pub(crate) fn check(&self) -> Result<(), FactError> {
        let [place, run] = [&self.place, &self.run].map(|text| text.as_deref().unwrap_or_default());
        check_texts([("the name of whoever submits", &self.by), ("the place", place), ("the run", run)])
    }
}

/// One thing that is known, as the base has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fact {
    /// Its id.
    pub id: FactId,
    /// Where it holds.
    pub namespace: String,
    /// What is known, as it was first submitted.
    pub statement: String,
    /// What it is about, which property, and its value, if it was submitted with them.
    #[serde(default, flatten, skip_serializing_if = "Option::is_none")]
    pub triple: Option<Triple>,
    /// Where it comes from, oldest first.
    pub sources: Vec<Source>,
    /// Whether it holds.
    pub state: FactState,
    /// Since when it has this state.
    #[serde(with = "crate::times")]
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub valid_from: Timestamp,
    /// How often it was changed; the first is 1.
    pub revision: u64,
}
