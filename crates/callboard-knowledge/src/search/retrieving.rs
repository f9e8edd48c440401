//! How a query is answered: full text, the graph, and the rank of what both found.

use std::sync::Arc;

use callboard::messages::Timestamp;
use rusqlite::{Connection, OptionalExtension};

use super::found::{Checkpoint, Depth, Found, Grounded, MAX_LIMIT, ReadFacts, Retrieved, Why};
use super::score::{self, Confidence, TextScorer, confidence};
use super::weights::Counts;
use super::{expansion, fulltext, graph, terms};
use crate::facts::FactState;
use crate::store::facts::{fact_of, state};
use crate::store::frequencies::Frequencies;
use crate::store::items::{ItemId, millis, timestamp};
use crate::store::{KnowledgeBase, KnowledgeError};

/// What finds rows for a query: the seam for other indexes, which are kept beside the base and built again from it.
pub trait Retriever: Send + Sync {
    /// Finds the best rows for a query, best first.
    ///
    /// # Errors
    /// The index cannot be read.
    fn retrieve(&self, connection: &Connection, query: &ReadFacts) -> Result<Retrieved, KnowledgeError>;
}

/// Staged full text, and the graph for deep queries. It counts the rows of each word again for each query.
#[derive(Clone, Copy, Debug, Default)]
pub struct StagedText;

impl Retriever for StagedText {
    fn retrieve(&self, connection: &Connection, query: &ReadFacts) -> Result<Retrieved, KnowledgeError> {
        retrieve(connection, query, &Frequencies::default())
    }
}

/// The retriever of every base: as [`StagedText`], and it remembers how many rows have common words.
#[derive(Clone, Debug)]
struct Remembering(Arc<Frequencies>);

impl Retriever for Remembering {
    fn retrieve(&self, connection: &Connection, query: &ReadFacts) -> Result<Retrieved, KnowledgeError> {
        retrieve(connection, query, &self.0)
    }
}

impl KnowledgeBase {
    /// Finds facts and passages, best first. Nothing in a query is an operator: words are words.
    ///
    /// # Errors
    /// The base cannot be read.
    pub async fn read_facts(&self, query: ReadFacts) -> Result<Retrieved, KnowledgeError> {
        self.read_facts_by(Remembering(self.frequencies()), query).await
    }

    /// As [`KnowledgeBase::read_facts`], with another retriever.
    ///
    /// # Errors
    /// The base or the retriever's index cannot be read.
    pub async fn read_facts_by(
        &self,
        retriever: impl Retriever + Clone + 'static,
        query: ReadFacts,
    ) -> Result<Retrieved, KnowledgeError> {
        let (again, by) = (query.clone(), retriever.clone());
        match self.read(move |connection| retriever.retrieve(connection, &query)).await {
            // It is derived from the rows, so nothing is lost.
            Err(KnowledgeError::DamagedIndex) => {
                self.repair().await?;
                self.read(move |connection| by.retrieve(connection, &again)).await
            }
            result => result,
        }
    }
}

/// How many of the rows that the full-text index finds best are compared by their texts.
const COMPARED: usize = 100;

fn retrieve(
    connection: &Connection,
    query: &ReadFacts,
    frequencies: &Frequencies,
) -> Result<Retrieved, KnowledgeError> {
    let limit = query.limit.clamp(1, MAX_LIMIT);
    let mut checkpoints = Vec::new();
    // The graph has what holds now.
    let reads_graph = query.discovery_depth == Depth::Deep && query.as_of.is_none();
    let mut asked = terms::asked(&query.query);
    let counts = Counts::of(connection, query.as_of.is_some(), frequencies)?;
    if reads_graph {
        expansion::expand(connection, &query.namespace, &mut asked.terms, |token| counts.rows(token))?;
    }
    let terms = counts.weighed(asked.terms.clone())?;
    let mut candidates = fulltext::find(connection, query, &terms, limit.max(COMPARED), &mut checkpoints)?;
    if reads_graph {
        fulltext::widen(connection, query, &terms, &mut candidates, &mut checkpoints)?;
    }
    let scorer = TextScorer::of(&asked, &terms, reads_graph, &mut candidates);
    if reads_graph {
        graph::add(connection, query, &terms, &scorer, &mut candidates, &mut checkpoints)?;
    }
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
pub(crate) fn grounded(
    connection: &Connection,
    item: ItemId,
    as_of: Option<Timestamp>,
    score: f64,
    why: Why,
) -> Result<Option<Grounded>, KnowledgeError> {
    let mut find = connection.prepare_cached(
        "SELECT d.path, i.title, i.anchor, i.first_line, i.last_line, i.body, d.is_untrusted, i.ordinal,
            EXISTS (SELECT 1 FROM kb_items b WHERE b.document = i.document AND b.ordinal = i.ordinal - 1
                AND b.first_line = i.first_line AND b.since <= ?2 AND (b.ended_at IS NULL OR b.ended_at > ?2))
         FROM kb_items i JOIN kb_documents d ON d.id = i.document WHERE i.id = ?1",
    )?;
    let at = as_of.map_or(i64::MAX, millis);
    let passage = find
        .query_row(rusqlite::params![item, at], |row| {
            let document: String = row.get(0)?;
            let lines = row.get(3)?..=row.get(4)?;
            let (ordinal, continues_line): (u32, bool) = (row.get(7)?, row.get(8)?);
            let cite = cite(&document, *lines.start(), continues_line.then_some(ordinal));
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
                    Some(Then { state: FactState::Invalid, .. }) | None => return Ok(None),
                    Some(Then { state, since, revision }) => {
                        (fact.state, fact.valid_from, fact.revision) = (state, since, revision);
                    }
                }
                fact.sources.retain(|source| source.at <= as_of);
            }
            let is_untrusted = fact.sources.iter().all(|source| source.is_untrusted);
            (fact.id.to_string(), Found::Fact(Box::new(fact)), is_untrusted)
        }
    };
    Ok(Some(Grounded { cite, found, score, why, is_untrusted }))
}

/// What a passage is cited by: the line where it begins. One that does not begin that line, as in a file without line breaks, also has its
/// number in the document.
fn cite(document: &str, line: u32, ordinal: Option<u32>) -> String {
    match ordinal {
        None => format!("{document}:{line}"),
        Some(ordinal) => format!("{document}:{line}.{}", u64::from(ordinal) + 1),
    }
}

/// What a fact was at a time.
struct Then {
    state: FactState,
    since: Timestamp,
    revision: u64,
}

/// What a fact was at a time; `None` if there was none yet.
fn state_at(connection: &Connection, item: ItemId, at: Timestamp) -> Result<Option<Then>, KnowledgeError> {
    let mut find = connection.prepare_cached(
        "SELECT h.state, h.revision, (
             SELECT min(s.at) FROM kb_history s WHERE s.item = h.item AND s.revision > ifnull((
                 SELECT max(o.revision) FROM kb_history o
                 WHERE o.item = h.item AND o.revision < h.revision AND o.state <> h.state
             ), 0)
         ) FROM kb_history h WHERE h.item = ?1 AND h.at <= ?2 ORDER BY h.revision DESC LIMIT 1",
    )?;
    let found = find.query_row(rusqlite::params![item, millis(at)], |row| {
        Ok(Then { state: state(row, 0)?, revision: row.get(1)?, since: timestamp(row.get(2)?) })
    });
    Ok(found.optional()?)
}
