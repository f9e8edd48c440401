//! The tokens of one run: reserved before a call, settled after it (SEMANTICS 2).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::messages::{Refusal, Usage};

/// Which reservation: the turn's number and the request's ordinal in it.
pub type ReservationKey = (u32, u32);

/// At every moment `spent + reserved <= limit`; what a provider reports beyond that is `overrun`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    limit: u64,
    spent: u64,
    overrun: u64,
    reserved: u64,
    open: BTreeMap<ReservationKey, u64>,
    usage: Usage,
}

impl Budget {
    /// A budget of this many tokens.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Whether `tokens` more fit.
    ///
    /// # Errors
    /// [`Refusal::TokenBudget`].
    pub fn check(&self, tokens: u64) -> Result<(), Refusal> {
        if tokens <= self.limit - self.spent - self.reserved {
            return Ok(());
        }
        Err(Refusal::TokenBudget { budget: self.limit, spent: self.spent, reserved: self.reserved, asked: tokens })
    }

    /// Sets tokens aside; call only after [`Budget::check`].
    pub fn reserve(&mut self, key: ReservationKey, tokens: u64) {
        self.reserved += tokens;
        self.open.insert(key, tokens);
    }

    /// Replaces a reservation by what was used; `None` when the call is known not to have been sent. A reservation that
    /// is unknown or settled already changes nothing.
    pub fn settle(&mut self, key: ReservationKey, usage: Option<Usage>) {
        let Some(held) = self.open.remove(&key) else { return };
        self.reserved -= held;
        if let Some(usage) = usage {
            let counted = usage.total().min(self.limit - self.spent - self.reserved);
            self.spent += counted;
            self.overrun += usage.total() - counted;
            self.usage += usage;
        }
    }

    /// Tokens that count against the limit: settled ones and those held for calls whose end is not known.
    #[must_use]
    pub fn spent(&self) -> u64 {
        self.spent + self.reserved
    }

    /// Tokens reported beyond the limit.
    #[must_use]
    pub fn overrun(&self) -> u64 {
        self.overrun
    }

    /// What providers reported.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// What is held for a call.
    #[must_use]
    pub fn held(&self, key: ReservationKey) -> Option<u64> {
        self.open.get(&key).copied()
    }

    /// Whether nothing is left.
    #[must_use]
    pub fn is_used_up(&self) -> bool {
        self.spent + self.reserved >= self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The model keeps plain lists; whatever happens, what counts never exceeds the limit.
        #[test]
        fn spent_and_reserved_never_exceed_the_limit(
            limit in 0_u64..1000,
            actions in prop::collection::vec((0_u32..8, 0_u64..400, prop::option::of(0_u64..500), any::<bool>()), 0..60),
        ) {
            let mut budget = Budget::new(limit);
            let (mut held, mut spent, mut overrun) = (BTreeMap::new(), 0_u64, 0_u64);
            for (key, tokens, used, is_reserve) in actions {
                if is_reserve && !held.contains_key(&key) {
                    let fits = spent + held.values().sum::<u64>() + tokens <= limit;
                    prop_assert_eq!(budget.check(tokens).is_ok(), fits);
                    if fits {
                        budget.reserve((key, 0), tokens);
                        held.insert(key, tokens);
                    }
                } else {
                    budget.settle((key, 0), used.map(|used| Usage { input_tokens: used, output_tokens: 0 }));
                    if held.remove(&key).is_some() {
                        let room = limit - spent - held.values().sum::<u64>();
                        spent += used.unwrap_or(0).min(room);
                        overrun += used.unwrap_or(0).saturating_sub(room);
                    }
                }
                prop_assert_eq!(budget.spent(), spent + held.values().sum::<u64>());
                prop_assert_eq!(budget.overrun(), overrun);
                prop_assert!(budget.spent() <= limit);
            }
        }
    }

    #[test]
    fn the_limit_itself_is_allowed_and_the_next_token_is_not() {
        let mut budget = Budget::new(10);
        assert!(budget.check(10).is_ok());
        budget.reserve((1, 0), 10);
        let refusal = budget.check(1).unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "1 tokens do not fit the budget of 10 (0 spent, 10 reserved); raise `limits.tokens` of the task"
        );
    }
}
