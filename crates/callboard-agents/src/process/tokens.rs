//! The limit of tokens that one attempt of a turn may reserve and use.

use std::collections::HashMap;

use callboard::actors::TurnError;

use super::protocol::Id;

/// The used and the reserved tokens, and their limit.
#[derive(Debug)]
pub(super) struct Tokens {
    most: Option<u64>,
    used: u64,
    held: HashMap<Id, u64>,
}

impl Tokens {
    /// With this limit of tokens; unlimited if `None`.
    pub(super) fn up_to(most: Option<u64>) -> Self {
        Self { most, used: 0, held: HashMap::new() }
    }

    /// Reserves tokens.
    ///
    /// # Errors
    /// There are not so many left.
    pub(super) fn hold(&mut self, id: Id, tokens: u64) -> Result<(), TurnError> {
        let taken = self.held.values().fold(self.used, |sum, held| sum.saturating_add(*held));
        if let Some(most) = self.most.filter(|most| taken.saturating_add(tokens) > *most) {
            return Err(TurnError::terminal(format!(
                "the agent may use {most} tokens in a turn, has used or reserved {taken}, and asks for {tokens} more: raise its \
                 `tokens`, or ask for fewer"
            )));
        }
        self.held.insert(id, tokens);
        Ok(())
    }

    /// Closes a reservation of which so many tokens were used; an unknown one is ignored.
    pub(super) fn settle(&mut self, id: Id, used: u64) {
        if self.held.remove(&id).is_some() {
            self.used = self.used.saturating_add(used);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_aside_counts_until_it_is_known_what_was_used() {
        let mut tokens = Tokens::up_to(Some(100));
        let refused = |held: Result<(), TurnError>, taken: u64, asked: u64| {
            let error = held.unwrap_err().to_string();
            let why = format!("100 tokens in a turn, has used or reserved {taken}, and asks for {asked}");
            assert!(error.contains(&why), "{error}");
        };
        tokens.hold(1, 60).unwrap();
        refused(tokens.hold(2, 41), 60, 41);
        tokens.hold(2, 40).unwrap();
        tokens.settle(1, 10);
        refused(tokens.hold(3, 51), 50, 51);
        tokens.settle(2, 0);
        tokens.settle(2, 90);
        tokens.hold(3, 90).unwrap();
        refused(tokens.hold(4, u64::MAX), 100, u64::MAX);
        Tokens::up_to(None).hold(1, u64::MAX).unwrap();
    }
}
