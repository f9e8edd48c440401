//! What a query is ranked by: its words with their weights, and the rows that may become results.

use super::terms::Term;
use crate::store::items::ItemId;

/// A word of a query, with how many rows have it.
#[derive(Clone, Debug)]
pub(super) struct Weighed {
    pub(super) term: Term,
    pub(super) rows: u64,
    /// Its inverse document frequency; 0 of a word that joins others and that no row has.
    pub(super) weight: f64,
}

/// A row that may become a result.
#[derive(Clone, Debug, Default)]
pub(super) struct Candidate {
    pub(super) item: ItemId,
    /// Its document, unless it is a fact.
    pub(super) document: Option<i64>,
    pub(super) is_current_fact: bool,
    pub(super) title: String,
    pub(super) body: String,
    pub(super) text: TextScore,
    /// What the graph adds.
    pub(super) graph: f64,
    pub(super) reasons: Vec<String>,
}

/// What the words of a row are worth for a query.
#[derive(Clone, Debug, Default)]
pub(super) struct TextScore {
    pub(super) bm25: f64,
    /// BM25 and pairs, less by what the row does not have of the query.
    pub(super) score: f64,
    /// The share of the words that do not join others.
    pub(super) coverage: f64,
    /// The places of these words that it has.
    pub(super) matched: Vec<usize>,
    /// It has one of them as a name that begins with it.
    pub(super) is_expanded: bool,
}
