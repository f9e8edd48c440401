//! What a language model is shown of results.

use serde::{Deserialize, Serialize};

use crate::search::{Found, Grounded};

/// A result, as a model is shown it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShownResult {
    pub(crate) cite: String,
    title: String,
    text: String,
    /// The state of a fact, or "passage".
    state: String,
    pub(crate) is_untrusted: bool,
}

impl ShownResult {
    fn of(result: &Grounded) -> Self {
        let (title, text, state) = match &result.found {
            Found::Fact(fact) => ("", &fact.statement, fact.state.name()),
            Found::Passage { title, text, .. } => (&**title, text, "passage"),
        };
        Self {
            cite: result.cite.clone(),
            title: title.to_owned(),
            text: text.clone(),
            state: state.to_owned(),
            is_untrusted: result.is_untrusted,
        }
    }
}

/// The first results whose titles and texts have so many bytes together at most.
pub(crate) fn shown<'a>(results: impl IntoIterator<Item = &'a Grounded>, most: usize) -> Vec<ShownResult> {
    let mut bytes = 0;
    let fitting = results.into_iter().map(ShownResult::of).take_while(|shown| {
        bytes += shown.title.len() + shown.text.len();
        bytes <= most
    });
    fitting.collect()
}
