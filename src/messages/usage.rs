//! The tokens of model calls.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use super::Cost;

/// Tokens of model calls, as the provider reports them, and what they cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens read, cached ones included.
    pub input_tokens: u64,
    /// Tokens that the model wrote.
    pub output_tokens: u64,
    /// What they cost, as far as the models' prices are known.
    pub cost: Cost,
}

impl Usage {
    /// So many tokens read and written, at no known cost.
    #[must_use]
    pub const fn of(input_tokens: u64, output_tokens: u64) -> Self {
        Self { input_tokens, output_tokens, cost: Cost(0) }
    }

    /// Input and output together: what counts against a budget.
    #[must_use]
    pub const fn total(self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, more: Self) {
        self.input_tokens = self.input_tokens.saturating_add(more.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(more.output_tokens);
        self.cost += more.cost;
    }
}
