//! Secrets: keys and tokens, which are not shown by `Debug` and similar output.

use std::fmt;
use std::sync::Arc;

/// A key. It is not shown by `Debug`, and has no other form: nothing can write it down by accident.
///
/// Where a program or server that was given it repeats it, `[the key]` stands in answers, errors and logs. That finds the key as it
/// was given, and no other form of it: reversed, in Base64, in hexadecimal, or in parts it is shown.
///
/// ```
/// use callboard_agents::Secret;
/// assert_eq!(format!("{:?}", Secret::new("sk-123")), "Secret(…)");
/// ```
#[derive(Clone)]
pub struct Secret(Arc<str>);

/// The replacement for a key in a text that is shown.
const SHOWN: &str = "[the key]";

impl Secret {
    /// Creates a secret with this text. White space at its ends is kept.
    #[must_use]
    pub fn new(key: &str) -> Self {
        Self(key.into())
    }

    /// The key in a variable: surrounding white space is removed, and an empty text is no key.
    pub(super) fn of_variable(value: &str) -> Option<Self> {
        let key = value.trim();
        (!key.is_empty()).then(|| Self::new(key))
    }

    pub(super) fn expose(&self) -> &str {
        &self.0
    }

    /// The text without the secret.
    pub(super) fn taken_out_of(&self, text: &str) -> String {
        if self.0.is_empty() { text.to_owned() } else { text.replace(&*self.0, SHOWN) }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_taken_out_as_it_was_given_and_in_no_other_form() {
        let key = Secret::new("sk-0123456789");
        assert_eq!(key.taken_out_of("(sk-0123456789) sk-0123456789"), "([the key]) [the key]");
        for other in ["9876543210-ks", "c2stMDEyMzQ1Njc4OQ==", "736b2d30313233343536373839", "sk-01234\n56789"] {
            assert_eq!(key.taken_out_of(other), other, "docs/mcp.md");
        }
    }
}
