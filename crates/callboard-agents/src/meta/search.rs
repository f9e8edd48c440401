//! The search of [`MetaTool::ToolSearch`](super::MetaTool::ToolSearch).

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::tool::{ToolSpec, Tools};

/// The most results of one search.
const MAX_FOUND: usize = 8;

/// The tools whose name or description has words of the query, those with the most words first.
pub(crate) fn search(tools: &Tools, shown: &BTreeSet<Arc<str>>, query: &str) -> Vec<Arc<str>> {
    let words: Vec<String> =
        query.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase).collect();
    let score = |spec: &ToolSpec| {
        let (name, text) = (spec.name.to_lowercase(), spec.description.to_lowercase());
        words.iter().map(|word| 2 * usize::from(name.contains(word)) + usize::from(text.contains(word))).sum::<usize>()
    };
    let hidden = tools.specs().filter(|spec| !shown.contains(&spec.name));
    let mut found: Vec<(usize, &Arc<ToolSpec>)> =
        hidden.map(|spec| (score(spec), spec)).filter(|(score, _)| *score > 0).collect();
    found.sort_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.name.cmp(&other.1.name)));
    found.into_iter().take(MAX_FOUND).map(|(_, spec)| Arc::clone(&spec.name)).collect()
}
