//! How a query is answered.

use callboard::messages::Timestamp;

use super::asking::IntentError;
use crate::search::{Depth, ReadFacts, Retrieved};
use crate::store::KnowledgeBase;

/// Reads what is known: the only step of a query's pass.
#[derive(Clone, Debug)]
pub struct DefaultIntentRouter {
    base: KnowledgeBase,
}

impl DefaultIntentRouter {
    /// For a base.
    #[must_use]
    pub const fn new(base: KnowledgeBase) -> Self {
        Self { base }
    }

    /// Finds what is known.
    ///
    /// # Errors
    /// The base failed.
    pub async fn read(
        &self,
        query: String,
        namespace: String,
        discovery_depth: Depth,
        limit: usize,
        as_of: Option<Timestamp>,
    ) -> Result<Retrieved, IntentError> {
        Ok(self.base.read_facts(ReadFacts { query, namespace, discovery_depth, limit, as_of }).await?)
    }
}
