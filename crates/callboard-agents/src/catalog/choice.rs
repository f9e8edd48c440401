//! The candidates for a choice, and their order. Pure.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::entry::ModelEntry;

/// The models that an agent wants: a preferred one, fallbacks, and tags. An empty choice means the first model of the
/// catalog.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelChoice {
    /// The one that is asked first, by its name.
    pub preferred: Option<Arc<str>>,
    /// Those that are asked when it cannot answer, after its own fallbacks.
    pub fallback: Vec<Arc<str>>,
    /// After those, any that has all these tags, in the order of the list.
    pub tags: Vec<Arc<str>>,
}

impl ModelChoice {
    /// Creates a choice that prefers the model of this name.
    #[must_use]
    pub fn of(preferred: &str) -> Self {
        Self { preferred: Some(preferred.into()), ..Self::default() }
    }

    /// Creates a choice of any listed model that has all these tags.
    #[must_use]
    pub fn tagged<'a>(tags: impl IntoIterator<Item = &'a str>) -> Self {
        Self { tags: tags.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Adds the name of a model that is asked after the preferred one and the fallbacks that were added before.
    #[must_use]
    pub fn fallback(mut self, name: &str) -> Self {
        self.fallback.push(name.into());
        self
    }

    /// Returns whether the choice has no name and no tag.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.preferred.is_none() && self.fallback.is_empty() && self.tags.is_empty()
    }

    /// The names in it, in their order.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.preferred.iter().chain(&self.fallback).map(|name| &**name)
    }
}

/// The indices of the candidates among `entries`, of which the first `listed` are listed: only those are found by tags. Unknown
/// names are skipped.
pub(super) fn candidates(choice: &ModelChoice, listed: usize, entries: &[&ModelEntry]) -> Vec<usize> {
    let mut found = Vec::new();
    for name in choice.names() {
        add_with_fallbacks(name, entries, &mut found);
    }
    if choice.is_empty()
        && listed > 0
        && let Some(first) = entries.first()
    {
        add_with_fallbacks(&first.name, entries, &mut found);
    }
    if !choice.tags.is_empty() {
        let has_all = |entry: &ModelEntry| choice.tags.iter().all(|tag| entry.tags.contains(tag));
        let fitting = entries.iter().take(listed).enumerate().filter(|(_, entry)| has_all(entry));
        for (place, _) in fitting {
            if !found.contains(&place) {
                found.push(place);
            }
        }
    }
    found
}

/// Adds a model and its fallbacks, recursively: each with its own fallbacks before the next one.
fn add_with_fallbacks(name: &str, entries: &[&ModelEntry], found: &mut Vec<usize>) {
    let mut ahead = vec![name];
    while let Some(name) = ahead.pop() {
        let Some(place) = entries.iter().position(|entry| &*entry.name == name) else { continue };
        if !found.contains(&place) {
            found.push(place);
            ahead.extend(entries[place].fallbacks.iter().rev().map(|fallback| &**fallback));
        }
    }
}
