//! What a query is ranked by: its words with their weights, and the rows that may become results.

use super::terms::Term;
use crate::store::items::ItemId;

/// A word of a query, with how many rows have it.
#[derive(Clone, Debug)]
pub(super) struct Weighed {
    pub(super) term: Term,
    pub(super) rows: u64,
    /// Its inverse document frequency.
    pub(super) weight: f64,
    pub(super) is_rare: bool,
}

/// A row that may become a result.
#[derive(Clone, Debug, Default)]
pub(super) struct Candidate {
    pub(super) item: ItemId,
    pub(super) bm25: f64,
    pub(super) graph: f64,
    pub(super) reasons: Vec<String>,
    pub(super) matched: Vec<usize>,
}
