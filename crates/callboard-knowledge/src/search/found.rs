//! Queries and results.

use std::ops::RangeInclusive;

use callboard::messages::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::facts::Fact;

/// How many results a query gives by default.
pub const USUAL_LIMIT: usize = 10;

/// The most results of a query.
pub const MAX_LIMIT: usize = 640;

/// The most bytes of a query that count; the rest is ignored, and a checkpoint says so.
pub const MAX_QUERY: usize = 4 << 10;

/// How far a query looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Depth {
    /// At the words alone.
    Shallow,
    /// Also at the graph: what the query names, and what the best results link to.
    #[default]
    Deep,
}

/// A query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadFacts {
    /// What is asked, in words.
    pub query: String,
    /// Where.
    pub namespace: String,
    /// How far it looks.
    pub discovery_depth: Depth,
    /// How many results at most.
    pub limit: usize,
    /// When it holds; now if unset.
    pub as_of: Option<Timestamp>,
}

impl ReadFacts {
    /// A deep query for [`USUAL_LIMIT`] results.
    #[must_use]
    pub fn new(namespace: &str, query: &str) -> Self {
        Self {
            query: query.to_owned(),
            namespace: namespace.to_owned(),
            discovery_depth: Depth::default(),
            limit: USUAL_LIMIT,
            as_of: None,
        }
    }
}

/// What a query found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Retrieved {
    /// The best first.
    pub results: Vec<Grounded>,
    /// What was done, in order.
    pub checkpoints: Vec<Checkpoint>,
    /// How likely the results answer the query, in [0, 1]: see [`confidence`](super::confidence).
    pub confidence: f64,
}

/// A result, with what it is cited by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Grounded {
    /// What identifies it among results: a fact's id, or a passage's place.
    pub cite: String,
    /// What was found.
    #[serde(flatten)]
    pub found: Found,
    /// Its rank's score; the best of a query has 1.
    pub score: f64,
    /// What the score consists of.
    pub why: Why,
    /// Nobody vouches for it.
    pub is_untrusted: bool,
}

/// What a result is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Found {
    /// A fact.
    Fact(Box<Fact>),
    /// A passage of a document.
    Passage {
        /// The document's path.
        document: String,
        /// The headings above it.
        title: String,
        /// The anchor of its heading.
        anchor: String,
        /// Its lines.
        #[schemars(with = "(u32, u32)")]
        lines: RangeInclusive<u32>,
        /// Its text.
        text: String,
    },
}

/// What a score consists of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Why {
    /// The words of the query that it has.
    pub words: Vec<String>,
    /// The share of the query's words that it has, weighted by how rare they are, in [0, 1].
    pub coverage: f64,
    /// Its BM25 score for the words; higher is better.
    pub bm25: f64,
    /// What the graph added, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub graph: Vec<String>,
}

/// A step of a query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Checkpoint {
    /// What was done.
    pub step: String,
    /// Whether it found something.
    pub status: Status,
    /// How many rows it found.
    pub found: usize,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It found something.
    Hit,
    /// It found nothing.
    Miss,
    /// It failed.
    Error,
}

impl Checkpoint {
    pub(super) fn new(step: impl Into<String>, found: usize) -> Self {
        Self { step: step.into(), status: if found > 0 { Status::Hit } else { Status::Miss }, found }
    }
}
