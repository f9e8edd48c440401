//! What a run may use, and the waits between attempts (SEMANTICS 2).

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Cost;

/// How much a task is expected to need; a preset of [`Limits`] (SEMANTICS 2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Complexity {
    /// One agent, no handoffs, 10,000 tokens.
    Simple,
    /// Three agents, two handoffs, 25,000 tokens.
    Medium,
    /// Five agents, five handoffs, 150,000 tokens: what a task gets when it names no class.
    #[default]
    Complex,
}

impl FromStr for Complexity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "simple" => Ok(Self::Simple),
            "medium" => Ok(Self::Medium),
            "complex" => Ok(Self::Complex),
            other => Err(format!("unknown complexity class {other:?}; use simple, medium or complex")),
        }
    }
}

/// What a run may use at most. Exactly the limit is allowed; the next one is refused.
///
/// ```
/// use callboard::messages::{Complexity, Limits};
/// let limits = Limits { handoffs: 20, ..Limits::of(Complexity::Complex) };
/// assert_eq!(limits.tokens, 150_000);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Handoffs and delegations together, over the whole run.
    pub handoffs: u32,
    /// Tokens of model calls, input and output together, over the whole run. They are reserved before each call.
    pub tokens: u64,
    /// Distinct agents: the first and those admitted by handoff or delegation.
    pub agents: u32,
    /// Steps of a delegation chain. A turn whose chain has this many may not delegate
    /// ([`Refusal::MaxDepth`](super::Refusal::MaxDepth)).
    pub depth: usize,
    /// How many of a branch's last handoffs a new one is compared with (SEMANTICS 4).
    pub repeat_window: usize,
    /// Attempts of one turn before it ends in dead letters.
    pub attempts: u32,
    /// What the calls of models may cost over the whole run; without a limit if unset. It is reserved before each call as tokens are, so a
    /// model needs prices. In JSON it is a text of US dollars, such as `"2.50"`.
    #[serde(with = "dollars", skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

/// The limit of money in JSON. A store has it beside the task (`task/form.rs`): here it has no bytes, as if it were skipped.
mod dollars {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

    use crate::messages::Cost;

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Text(String),
        Whole(u64),
    }

    pub(super) fn serialize<S: Serializer>(cost: &Option<Cost>, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            cost.map(Cost::decimal).serialize(serializer)
        } else {
            serializer.serialize_unit()
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Cost>, D::Error> {
        if !deserializer.is_human_readable() {
            return <()>::deserialize(deserializer).map(|()| None);
        }
        let text = match Option::deserialize(deserializer)? {
            None => return Ok(None),
            Some(Written::Text(text)) => text,
            Some(Written::Whole(dollars)) => dollars.to_string(),
        };
        text.parse().map(Some).map_err(D::Error::custom)
    }
}

impl Limits {
    /// Returns the preset of a class. All classes have the same `depth`, `repeat_window` and `attempts`: 3 each.
    #[must_use]
    pub const fn of(class: Complexity) -> Self {
        let (handoffs, tokens, agents) = match class {
            Complexity::Simple => (0, 10_000, 1),
            Complexity::Medium => (2, 25_000, 3),
            Complexity::Complex => (5, 150_000, 5),
        };
        Self {
            handoffs,
            tokens,
            agents,
            depth: super::Chain::DEFAULT_MAX_DEPTH,
            repeat_window: 3,
            attempts: 3,
            cost: None,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::of(Complexity::default())
    }
}

impl From<Complexity> for Limits {
    fn from(class: Complexity) -> Self {
        Self::of(class)
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { handoffs, tokens, agents, depth, cost, .. } = self;
        write!(f, "{handoffs} handoffs, {tokens} tokens, {agents} agents, delegation depth {depth}")?;
        cost.map_or(Ok(()), |cost| write!(f, ", {cost}"))
    }
}

/// What may be used in a day; the next call that does not fit is refused ([`Refusal::DayLimit`](super::Refusal::DayLimit)). The default limits
/// nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PerDay {
    /// Tokens of model calls, input and output together.
    pub tokens: Option<u64>,
    /// What the calls may cost: with such a limit, each model needs prices.
    pub cost: Option<Cost>,
}

/// What a run may use at most, whatever its task says ([`Builder::run_limits`](crate::Builder::run_limits)): the smaller of both limits
/// holds. The default limits nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PerRun {
    /// Tokens of model calls, as [`Limits::tokens`].
    pub tokens: Option<u64>,
    /// What the calls may cost: with such a limit, each model needs prices.
    pub cost: Option<Cost>,
    /// Distinct agents, as [`Limits::agents`].
    pub agents: Option<u32>,
}

impl PerRun {
    /// What both allow.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.into_iter().chain(other.tokens).min(),
            cost: self.cost.into_iter().chain(other.cost).min(),
            agents: self.agents.into_iter().chain(other.agents).min(),
        }
    }

    /// What these limits and the task's allow.
    #[must_use]
    pub fn bound(self, limits: &Limits) -> Limits {
        let of_task = Self { tokens: Some(limits.tokens), cost: limits.cost, agents: Some(limits.agents) };
        let Self { tokens, cost, agents } = self.min(of_task);
        let (tokens, agents) = (tokens.unwrap_or(limits.tokens), agents.unwrap_or(limits.agents));
        Limits { tokens, cost, agents, ..limits.clone() }
    }
}

/// What the turns of an agent, and those of agents that it makes, may use together in one run. The default limits nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AgentLimit {
    /// Tokens of model calls, input and output together.
    pub(crate) tokens: Option<u64>,
    /// What the calls may cost.
    pub(crate) cost: Option<Cost>,
}

/// The wait before a retry: doubles from `first` up to `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    /// The longest wait before the second attempt (default: 100 ms). [`Backoff::delay`] spreads each wait over its
    /// upper half.
    pub first: Duration,
    /// The longest wait, however many attempts have failed (default: 30 s).
    pub max: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_millis(100), max: Duration::from_secs(30) }
    }
}

impl Backoff {
    /// The wait after `failures` failures, spread by `random` over its upper half.
    #[must_use]
    pub fn delay(&self, failures: u32, random: u64) -> Duration {
        let doubled = self.first.saturating_mul(1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX));
        let whole = doubled.min(self.max);
        let half = whole / 2;
        half + half.mul_f64(random as f64 / u64::MAX as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_money_is_exact_in_json() {
        let limits = Limits { cost: Some(Cost(2_500_000_001)), ..Limits::default() };
        let json = serde_json::to_value(&limits).unwrap();
        assert_eq!(json["cost"], "2.500000001");
        assert_eq!(serde_json::from_value::<Limits>(json).unwrap(), limits);
        let read = |text: &str| serde_json::from_str::<Limits>(text).map(|limits| limits.cost);
        assert_eq!(read("{\"cost\": 3}").unwrap(), Some(Cost(3_000_000_000)));
        assert_eq!(read("{\"cost\": null}").unwrap(), None);
        assert!(read("{\"cost\": 2.5}").is_err(), "a number with a point is not exact");
        assert_eq!(serde_json::to_value(Limits::default()).unwrap().get("cost"), None);
    }

    #[test]
    fn the_smaller_limit_of_a_run_holds() {
        let task = Limits { tokens: 100, agents: 4, cost: None, ..Limits::default() };
        assert_eq!(PerRun::default().bound(&task), task);
        let board = PerRun { tokens: Some(200), cost: Some(Cost(9)), agents: Some(3) };
        let both = board.min(PerRun { tokens: Some(50), ..PerRun::default() });
        assert_eq!(both.bound(&task), Limits { tokens: 50, agents: 3, cost: Some(Cost(9)), ..task.clone() });
        assert_eq!(board.bound(&task).tokens, 100, "the task's own is smaller");
    }

    #[test]
    fn backoff_doubles_within_its_bounds() {
        let backoff = Backoff { first: Duration::from_millis(100), max: Duration::from_secs(1) };
        let longest = |failures| backoff.delay(failures, u64::MAX);
        assert_eq!([1, 2, 3, 4, 5, 60].map(longest), [100, 200, 400, 800, 1000, 1000].map(Duration::from_millis));
        assert_eq!(backoff.delay(1, 0), Duration::from_millis(50));
    }
}
