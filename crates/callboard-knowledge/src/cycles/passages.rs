//! What a model is shown about a topic.

use callboard::TurnError;
use callboard::actors::Turn;
use serde::{Deserialize, Serialize};

use crate::search::{Found, Grounded, ReadFacts, Retrieved};
use crate::store::{KnowledgeBase, SUMMARY};

/// How many results are looked for.
const LIMIT: usize = 24;

/// The most bytes of passages that a model is shown at once.
const MAX_SHOWN: usize = 24 << 10;

/// What a model is shown of a passage or fact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Shown {
    pub(super) cite: String,
    title: String,
    text: String,
    pub(super) is_untrusted: bool,
}

/// Finds passages about a topic. They are journaled, so that a turn which is repeated shows the model what it has seen.
pub(super) async fn passages(
    turn: &Turn,
    base: &KnowledgeBase,
    namespace: &str,
    topic: &str,
) -> Result<Vec<Shown>, TurnError> {
    let query = ReadFacts { limit: LIMIT, ..ReadFacts::new(namespace, topic) };
    let found = turn.step("find passages", async { base.read_facts(query).await.map(shown) }).await?;
    for untrusted in found.iter().filter(|shown| shown.is_untrusted) {
        turn.taint(&format!("knowledge: {}", untrusted.cite));
    }
    Ok(found)
}

fn shown(retrieved: Retrieved) -> Vec<Shown> {
    let mut bytes = 0;
    // What a model wrote earlier does not support what it writes now.
    let is_summary = |result: &Grounded| result.cite.starts_with(SUMMARY);
    let shown = retrieved.results.into_iter().filter(|result| !is_summary(result)).map(|result| {
        let (title, text) = match result.found {
            Found::Fact(fact) => (fact.state.name().to_owned(), fact.statement.clone()),
            Found::Passage { title, text, .. } => (title, text),
        };
        Shown { cite: result.cite, title, text, is_untrusted: result.is_untrusted }
    });
    shown
        .take_while(|Shown { title, text, .. }| {
            bytes += title.len() + text.len();
            bytes <= MAX_SHOWN
        })
        .collect()
}
