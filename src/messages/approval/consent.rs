//! What a policy answers about an action, before people are asked.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::deciders::Deciders;

/// The decision of a policy about an action, before people are asked (SEMANTICS 9).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Consent {
    /// The action goes ahead, and nobody is asked.
    #[default]
    Auto,
    /// A person decides, within the time that the task sets ([`Task::approval_ttl`](crate::messages::Task::approval_ttl)), or
    /// else the board; silence denies. A delegation is refused instead.
    Ask,
    /// The action is refused, and nobody is asked.
    Deny,
    /// A human decides, and silence denies after this long, whatever the task and the board set.
    AskWithin(Duration),
    /// As [`Consent::Ask`], and these people decide.
    AskOf {
        /// Who decides, and how many of them have to approve.
        deciders: Arc<Deciders>,
        /// How long they have, as for [`Consent::AskWithin`]; `None`: what the task or the board sets.
        within: Option<Duration>,
    },
}

impl Consent {
    /// The stricter of two answers. Of two that ask: the shorter time, and those who satisfy both; it is denied if each wants people
    /// of another group.
    #[must_use]
    pub fn strictest(self, other: Self) -> Self {
        match (self, other) {
            (Self::Deny, _) | (_, Self::Deny) => Self::Deny,
            (Self::Auto, other) => other,
            (one, Self::Auto) => one,
            (one, other) => {
                let within = match (one.time(), other.time()) {
                    (Some(time), Some(other)) => Some(time.min(other)),
                    (time, other) => time.or(other),
                };
                let (one, other) = (one.deciders(), other.deciders());
                match (one, other, within) {
                    (None, None, None) => Self::Ask,
                    (None, None, Some(within)) => Self::AskWithin(within),
                    (Some(deciders), None, within) | (None, Some(deciders), within) => {
                        Self::AskOf { deciders: Arc::clone(deciders), within }
                    }
                    (Some(one), Some(other), within) => match one.strictest(other) {
                        Some(deciders) => Self::AskOf { deciders: Arc::new(deciders), within },
                        None => Self::Deny,
                    },
                }
            }
        }
    }

    /// How long people have, if the policy sets it.
    #[must_use]
    pub const fn time(&self) -> Option<Duration> {
        match self {
            Self::AskWithin(time) => Some(*time),
            Self::AskOf { within, .. } => *within,
            Self::Auto | Self::Ask | Self::Deny => None,
        }
    }

    /// Who decides, if the policy sets it.
    pub(crate) const fn deciders(&self) -> Option<&Arc<Deciders>> {
        match self {
            Self::AskOf { deciders, .. } => Some(deciders),
            Self::Auto | Self::Ask | Self::Deny | Self::AskWithin(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::approval::Escalation;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_strictest_answer_counts_and_the_shortest_time() {
        let of = |deciders: Deciders, within| Consent::AskOf { deciders: deciders.into(), within };
        let two = Deciders { at_least: 2, ..Deciders::of("ops") };
        let order = [
            Consent::Auto,
            Consent::Ask,
            Consent::AskWithin(9 * SECOND),
            Consent::AskWithin(SECOND),
            of(Deciders::default(), Some(SECOND)),
            of(Deciders::of("ops"), Some(SECOND)),
            of(two.clone(), Some(SECOND)),
            of(Deciders { excludes_requester: true, ..two }, Some(SECOND)),
            Consent::Deny,
        ];
        for (position, stricter) in order.iter().enumerate() {
            for other in &order[..=position] {
                let both = [(stricter, other), (other, stricter)];
                for (one, other) in both {
                    assert_eq!(&one.clone().strictest(other.clone()), stricter);
                }
            }
        }
    }

    #[test]
    fn an_escalation_of_one_answer_does_not_widen_the_other() {
        let of = |deciders: Deciders| Consent::AskOf { deciders: deciders.into(), within: None };
        let escalation = |after| Some(Escalation { after, group: "leads".into() });
        let escalating = |group, after| Deciders { escalation: escalation(after), ..Deciders::of(group) };
        for (one, other, expected) in [
            (escalating("ops", SECOND), Deciders::of("ops"), Some(None)),
            (escalating("ops", SECOND), Deciders::default(), Some(escalation(SECOND))),
            (escalating("ops", SECOND), escalating("ops", 2 * SECOND), Some(escalation(2 * SECOND))),
            (escalating("ops", SECOND), escalating("legal", SECOND), None),
        ] {
            for strictest in [of(one.clone()).strictest(of(other.clone())), of(other).strictest(of(one))] {
                let escalation = strictest.deciders().map(|deciders| deciders.escalation.clone());
                assert_eq!(escalation, expected, "{strictest:?}");
            }
        }
    }
}
