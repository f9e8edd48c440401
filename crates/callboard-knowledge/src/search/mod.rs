//! What a query finds: facts and passages, ranked, with what explains each rank.

mod fulltext;
mod graph;
mod score;
mod terms;

use std::ops::RangeInclusive;

use callboard::messages::Timestamp;
use rusqlite::{Connection, OptionalExtension};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use score::{Confidence, confidence};

use crate::facts::{Fact, FactState};
use crate::store::facts::{fact_of, state};
use crate::store::items::{ItemId, millis, timestamp};
use crate::store::{KnowledgeBase, KnowledgeError};

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
    /// How likely the results answer the query, in [0, 1]: see [`confidence`].
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
    fn new(step: impl Into<String>, found: usize) -> Self {
        Self { step: step.into(), status: if found > 0 { Status::Hit } else { Status::Miss }, found }
    }
}

/// What finds rows for a query: the seam for other indexes, which are kept beside the base and built again from it.
pub trait Retriever: Send + Sync {
    /// Finds the best rows for a query, best first.
    ///
    /// # Errors
    /// The index cannot be read.
    fn retrieve(&self, connection: &Connection, query: &ReadFacts) -> Result<Retrieved, KnowledgeError>;
}

/// The retriever of every base: staged full text, and the graph for deep queries.
#[derive(Clone, Copy, Debug, Default)]
pub struct StagedText;

impl Retriever for StagedText {
    fn retrieve(&self, connection: &Connection, query: &ReadFacts) -> Result<Retrieved, KnowledgeError> {
        retrieve(connection, query)
    }
}

impl KnowledgeBase {
    /// Finds facts and passages, best first. Nothing in a query is an operator: words are words.
    ///
    /// # Errors
    /// The base cannot be read.
    pub async fn read_facts(&self, query: ReadFacts) -> Result<Retrieved, KnowledgeError> {
        let again = query.clone();
        match self.read(move |connection| retrieve(connection, &query)).await {
            // It is derived from the rows, so nothing is lost.
            Err(KnowledgeError::DamagedIndex) => {
                self.rebuild_index().await?;
                self.read(move |connection| retrieve(connection, &again)).await
            }
            result => result,
        }
    }
}

/// A row that may become a result.
#[derive(Clone, Debug, Default)]
struct Candidate {
    item: ItemId,
    bm25: f64,
    graph: f64,
    reasons: Vec<String>,
    matched: Vec<usize>,
}

fn retrieve(connection: &Connection, query: &ReadFacts) -> Result<Retrieved, KnowledgeError> {
    let limit = query.limit.clamp(1, MAX_LIMIT);
    let mut checkpoints = Vec::new();
    let terms = fulltext::weighed(connection, &terms::terms(&query.query))?;
    let mut candidates = fulltext::find(connection, query, &terms, limit, &mut checkpoints)?;
    if query.discovery_depth == Depth::Deep {
        graph::widen(connection, query, &mut candidates, limit, &mut checkpoints)?;
    }
    fulltext::match_terms(connection, &terms, &mut candidates)?;
    let ranked = score::rank(candidates, &terms, limit);
    let mut results = Vec::with_capacity(ranked.len());
    for (candidate, score, why) in ranked {
        if let Some(result) = grounded(connection, candidate.item, query.as_of, score, why)? {
            results.push(result);
        }
    }
    checkpoints.push(Checkpoint::new("ranked", results.len()));
    let confidence = confidence(&Confidence::of(&results));
    Ok(Retrieved { results, checkpoints, confidence })
}

/// The result of a row, unless it did not hold at the time.
fn grounded(
    connection: &Connection,
    item: ItemId,
    as_of: Option<Timestamp>,
    score: f64,
    why: Why,
) -> Result<Option<Grounded>, KnowledgeError> {
    let mut find = connection.prepare_cached(
        "SELECT d.path, i.title, i.anchor, i.first_line, i.last_line, i.body, d.is_untrusted
         FROM kb_items i JOIN kb_documents d ON d.id = i.document WHERE i.id = ?1",
    )?;
    let passage = find
        .query_row([item], |row| {
            let document: String = row.get(0)?;
            let lines = row.get(3)?..=row.get(4)?;
            let cite = format!("{document}:{}", lines.start());
            let found = Found::Passage { document, title: row.get(1)?, anchor: row.get(2)?, lines, text: row.get(5)? };
            Ok((cite, found, row.get(6)?))
        })
        .optional()?;
    let (cite, found, is_untrusted) = match passage {
        Some(passage) => passage,
        None => {
            let mut fact = fact_of(connection, item)?;
            if let Some(as_of) = as_of {
                match state_at(connection, item, as_of)? {
                    Some((FactState::Invalid, _)) | None => return Ok(None),
                    Some((state, since)) => (fact.state, fact.valid_from) = (state, since),
                }
            }
            let is_untrusted = fact.sources.iter().all(|source| source.is_untrusted);
            (fact.id.to_string(), Found::Fact(Box::new(fact)), is_untrusted)
        }
    };
    Ok(Some(Grounded { cite, found, score, why, is_untrusted }))
}

/// The state that a fact had at a time, and since when; `None` if there was none yet.
fn state_at(
    connection: &Connection,
    item: ItemId,
    at: Timestamp,
) -> Result<Option<(FactState, Timestamp)>, KnowledgeError> {
    let mut find = connection.prepare_cached(
        "SELECT state, at FROM kb_history WHERE item = ?1 AND at <= ?2 ORDER BY revision DESC LIMIT 1",
    )?;
    let found = find.query_row(rusqlite::params![item, millis(at)], |row| Ok((state(row, 0)?, timestamp(row.get(1)?))));
    Ok(found.optional()?)
}
