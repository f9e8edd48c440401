//! What a model is shown about a topic.

use callboard::TurnError;
use callboard::actors::Turn;

use crate::intents::{ShownResult, shown};
use crate::search::{ReadFacts, Retrieved};
use crate::store::{KnowledgeBase, SUMMARY};

/// How many results are looked for.
const LIMIT: usize = 24;

/// The most bytes of passages that a model is shown at once.
const MAX_SHOWN: usize = 24 << 10;

/// Finds passages about a topic. They are journaled, so that a turn which is repeated shows the model what it has seen.
pub(super) async fn passages(
    turn: &Turn,
    base: &KnowledgeBase,
    namespace: &str,
    topic: &str,
) -> Result<Vec<ShownResult>, TurnError> {
    let query = ReadFacts { limit: LIMIT, ..ReadFacts::new(namespace, topic) };
    let found = turn.step("find passages", async { base.read_facts(query).await.map(shown_of) }).await?;
    for untrusted in found.iter().filter(|shown| shown.is_untrusted) {
        turn.taint(&format!("knowledge: {}", untrusted.cite));
    }
    Ok(found)
}

fn shown_of(retrieved: Retrieved) -> Vec<ShownResult> {
    // What a model wrote earlier does not support what it writes now.
    let others = retrieved.results.iter().filter(|result| !result.cite.starts_with(SUMMARY));
    shown(others, MAX_SHOWN)
}
