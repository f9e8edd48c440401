//! How a query is answered.

use callboard::messages::Timestamp;

use super::asking::IntentError;
use crate::search::{Checkpoint, Confidence, Depth, Grounded, ReadFacts, Retrieved, Status, Why, confidence, grounded};
use crate::store::facts::item_of;
use crate::store::{KnowledgeBase, KnowledgeError};

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

    /// Finds what is known. A query that is the id of a fact, or as much of it as no other fact has, finds that fact first, whatever its state is.
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
        let named = self.named(&query, &namespace, as_of).await?;
        let found = self.base.read_facts(ReadFacts { query, namespace, discovery_depth, limit, as_of }).await?;
        Ok(match named {
            Some(named) => with_first(named, found, limit),
            None => found,
        })
    }

    /// The fact whose id a query is, as far as it was known at the time.
    async fn named(
        &self,
        query: &str,
        namespace: &str,
        as_of: Option<Timestamp>,
    ) -> Result<Option<Grounded>, KnowledgeError> {
        let query = query.trim();
        // A statement is found by its words.
        let is_id =
            query.strip_prefix("fact-").is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        if !is_id {
            return Ok(None);
        }
        let Ok([fact]) = <[_; 1]>::try_from(self.base.facts_named(namespace, query).await?) else { return Ok(None) };
        let why = Why { words: vec![query.to_owned()], coverage: 1.0, ..Why::default() };
        self.base.read(move |connection| grounded(connection, item_of(connection, fact.id)?, as_of, 1.0, why)).await
    }
}

/// What was found, with a fact that was named before it.
fn with_first(named: Grounded, found: Retrieved, limit: usize) -> Retrieved {
    let Retrieved { results: others, mut checkpoints, .. } = found;
    let others = others.into_iter().filter(|other| other.cite != named.cite).collect::<Vec<_>>();
    let mut results = vec![named];
    results.extend(others);
    results.truncate(limit.max(1));
    checkpoints.push(Checkpoint { step: "named by its id".to_owned(), status: Status::Hit, found: results.len() });
    let confidence = confidence(&Confidence::of(&results));
    Retrieved { results, checkpoints, confidence }
}
