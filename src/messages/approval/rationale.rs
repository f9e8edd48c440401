//! Why people are asked about an action.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::messages::Effect;

/// Why people are asked about an action: what the agent says, and what is known of the tool and of the rules. Of an action that an
/// agent's own code asks about, what that code says ([`TurnPeople::because`](crate::actors::TurnPeople::because)).
///
/// ```
/// use callboard::messages::{Effect, Rationale};
/// let rationale = Rationale { effect: Some(Effect::Writes), ..Rationale::from("the tests need it") };
/// assert_eq!(rationale.reason.as_deref(), Some("the tests need it"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rationale {
    /// The agent's own words, which nobody has checked. Of a text longer than [`Rationale::MAX_REASON`] characters a question has the
    /// beginning, with the number of characters that are left out.
    pub reason: Option<Arc<str>>,
    /// What the tool may change.
    pub effect: Option<Effect>,
    /// Where the agent comes from, as its permissions depend on it, such as `user_defined`.
    pub tier: Option<Arc<str>>,
    /// The rule by which people are asked.
    pub rule: Option<Arc<str>>,
}

impl Rationale {
    /// The longest reason that a question has, in characters.
    pub const MAX_REASON: usize = 2_000;

    /// The same with a reason that is not too long; `None` in place of an empty one.
    pub(crate) fn shortened(self) -> Self {
        let reason = self.reason.filter(|reason| !reason.trim().is_empty());
        let reason = reason.map(|reason| match reason.char_indices().nth(Self::MAX_REASON) {
            None => reason,
            Some((end, _)) => format!("{}… ({} more characters)", &reason[..end], reason[end..].chars().count()).into(),
        });
        Self { reason, ..self }
    }
}

impl From<&str> for Rationale {
    fn from(reason: &str) -> Self {
        Self { reason: Some(reason.into()), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_reason_is_counted_and_an_empty_one_is_none() {
        let of = |reason: &str| Rationale::from(reason).shortened().reason;
        assert_eq!(of(" \n"), None);
        let most = "ä".repeat(Rationale::MAX_REASON);
        assert_eq!(of(&most).as_deref(), Some(&*most));
        assert_eq!(of(&format!("{most}xyz")).as_deref(), Some(&*format!("{most}… (3 more characters)")));
    }
}
