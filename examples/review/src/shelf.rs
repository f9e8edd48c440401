//! Where the team keeps what is too large to hand over: the shared context, which outlives runs.
//!
//! Each review of a tree has its own place there, named after its run. A pointer says which one was finished last, so a
//! review that is interrupted or denied never becomes the one that the next is compared with.

use callboard::actors::{ContextAccess, ContextError, ContextStore};
use callboard::messages::RunId;
use callboard::{Turn, TurnError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The context namespace of all reviews.
pub(crate) const NAMESPACE: &str = "review";

/// Sequences that a review keeps.
const SEQUENCES: [&str; 4] = ["files", "skipped", "measurements", "repeated"];

/// The part of the context that belongs to one tree.
pub(crate) struct Shelf<'a> {
    context: &'a ContextAccess,
    tree: &'a str,
}

/// The review that was finished last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LastReview {
    pub(crate) run: RunId,
    /// A date as it is shown.
    pub(crate) date: String,
}

impl<'a> Shelf<'a> {
    pub(crate) fn new(turn: &'a Turn, tree: &'a str) -> Self {
        Self { context: turn.context(), tree }
    }

    /// Makes room for a review: what an earlier one kept that never finished goes.
    pub(crate) async fn begin(&self, run: RunId) -> Result<(), TurnError> {
        let key = format!("{}/current", self.tree);
        let current: Option<RunId> = self.context.get_structured(NAMESPACE, &key).await?;
        let last = self.last().await?.map(|last| last.run);
        if let Some(current) = current.filter(|current| *current != run && Some(*current) != last) {
            self.forget(current).await?;
        }
        self.context.set(NAMESPACE, &key, &serde_json::to_string(&run)?, None).await?;
        Ok(())
    }

    /// Keeps a sequence of any length, in as many entries as it needs.
    pub(crate) async fn put<T: Serialize>(&self, run: RunId, sequence: &str, items: &[T]) -> Result<(), TurnError> {
        let text = serde_json::to_string(items)?;
        let pieces = pieces(&text, ContextStore::MAX_VALUE);
        let keys: Vec<String> = (0..pieces.len()).map(|number| self.key(run, sequence, number)).collect();
        let writes = keys.iter().zip(&pieces).map(|(key, piece)| self.context.set(NAMESPACE, key, piece, None));
        futures::future::try_join_all(writes).await?;
        self.context.set(NAMESPACE, &self.count_key(run, sequence), &pieces.len().to_string(), None).await?;
        Ok(())
    }

    /// A sequence that was kept.
    pub(crate) async fn take<T: DeserializeOwned>(&self, run: RunId, sequence: &str) -> Result<Vec<T>, TurnError> {
        let mut text = String::new();
        for number in 0..self.count(run, sequence).await? {
            let piece = self.context.get(NAMESPACE, &self.key(run, sequence, number)).await?;
            text.push_str(&piece.ok_or_else(|| TurnError::terminal(format!("{sequence} of run {run} is gone")))?.value);
        }
        serde_json::from_str(&text).map_err(|error| TurnError::terminal(format!("{sequence} of run {run}: {error}")))
    }

    /// Lets go of everything that a review kept.
    pub(crate) async fn forget(&self, run: RunId) -> Result<(), ContextError> {
        for sequence in SEQUENCES {
            for number in 0..self.count(run, sequence).await? {
                self.context.delete(NAMESPACE, &self.key(run, sequence, number)).await?;
            }
            self.context.delete(NAMESPACE, &self.count_key(run, sequence)).await?;
        }
        Ok(())
    }

    pub(crate) async fn last(&self) -> Result<Option<LastReview>, ContextError> {
        self.context.get_structured(NAMESPACE, &self.last_key()).await
    }

    pub(crate) async fn set_last(&self, last: &LastReview) -> Result<(), TurnError> {
        self.context.set(NAMESPACE, &self.last_key(), &serde_json::to_string(last)?, None).await?;
        Ok(())
    }

    async fn count(&self, run: RunId, sequence: &str) -> Result<usize, ContextError> {
        Ok(self.context.get_structured(NAMESPACE, &self.count_key(run, sequence)).await?.unwrap_or(0))
    }

    fn key(&self, run: RunId, sequence: &str, number: usize) -> String {
        format!("{}/{run}/{sequence}/{number:06}", self.tree)
    }

    fn count_key(&self, run: RunId, sequence: &str) -> String {
        format!("{}/{run}/{sequence}", self.tree)
    }

    fn last_key(&self) -> String {
        format!("{}/last", self.tree)
    }
}

/// The text in pieces of at most `most` bytes.
fn pieces(mut text: &str, most: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    while !text.is_empty() {
        let (piece, rest) = text.split_at(text.floor_char_boundary(most));
        pieces.push(piece);
        text = rest;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_cut_between_characters() {
        assert_eq!(pieces("aäöb", 2), ["a", "ä", "ö", "b"]);
        assert_eq!(pieces("abc", 9), ["abc"]);
        assert!(pieces("", 9).is_empty());
    }
}
