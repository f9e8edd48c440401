//! What a model costs.

use callboard::messages::{Cost, Usage};

/// What a model costs, in US dollars for a million tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prices {
    /// US dollars for a million tokens that the model reads. Tokens from a provider's cache count in full.
    pub input: f64,
    /// US dollars for a million tokens that the model writes.
    pub output: f64,
}

impl Prices {
    /// Returns what so many tokens cost. Tokens that a provider had in its cache count in full: most take less for
    /// them.
    #[must_use]
    pub fn of(self, usage: Usage) -> Cost {
        [Cost::of(usage.input_tokens, self.input), Cost::of(usage.output_tokens, self.output)].into_iter().sum()
    }
}
