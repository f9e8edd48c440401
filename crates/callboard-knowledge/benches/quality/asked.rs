//! How questions are asked.

use callboard_knowledge::search::{Depth, ReadFacts};

use crate::corpus::NAMESPACE;

/// How many results count.
pub(crate) const RESULTS: usize = 10;

pub(crate) fn query(question: &str, discovery_depth: Depth) -> ReadFacts {
    ReadFacts { discovery_depth, limit: RESULTS, ..ReadFacts::new(NAMESPACE, question) }
}
