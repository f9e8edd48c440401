//! The newest texts of many, such as the ids of events that were handled.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// The most texts that are kept.
const MAX_RECENT: usize = 256;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Recent(VecDeque<String>);

impl Recent {
    pub(super) fn has(&self, text: &str) -> bool {
        self.0.iter().any(|known| known == text)
    }

    /// Whether it is not among them; from now on it is.
    pub(super) fn is_new(&mut self, text: &str) -> bool {
        let is_new = !self.has(text);
        if is_new {
            self.0.push_back(text.to_owned());
            let excess = self.0.len().saturating_sub(MAX_RECENT);
            self.0.drain(..excess);
        }
        is_new
    }
}
