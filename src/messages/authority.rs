//! What agents may cause, whatever tools they call their own (SEMANTICS 13).

use std::fmt;

use serde::{Deserialize, Serialize};

use super::EffectClass;

/// What kind of change using a tool may cause, from the least to the most: what an [`Authority`] permits.
///
/// It is no change that happens. A single one that must not be repeated is an
/// [`OutsideEffect`](crate::actors::OutsideEffect), and whether it may be repeated is its [`EffectClass`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Reads, changes nothing, and discloses nothing to others.
    Reads,
    /// What the board keeps by its own rules: shared context, questions, delegations.
    Notes,
    /// It changes nothing here, but discloses something to others: a server that is asked for a page sees its address.
    Sends,
    /// Changes files, or anything else outside the board.
    Writes,
    /// Runs a program, and so may cause anything that the program does.
    Executes,
}

impl Effect {
    /// All effects, from the least to the most.
    pub const ALL: [Self; 5] = [Self::Reads, Self::Notes, Self::Sends, Self::Writes, Self::Executes];

    /// Returns the name that definition files use, such as `reads`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reads => "reads",
            Self::Notes => "notes",
            Self::Sends => "sends",
            Self::Writes => "writes",
            Self::Executes => "executes",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }

    /// Whether people should have a say in it (SEMANTICS 13).
    #[must_use]
    pub const fn is_dangerous(self) -> bool {
        match self {
            Self::Reads | Self::Notes => false,
            Self::Sends | Self::Writes | Self::Executes => true,
        }
    }

    /// Whether a tool with it may run again, if its spec does not say otherwise (SEMANTICS 14).
    #[must_use]
    pub const fn class(self) -> EffectClass {
        match self {
            Self::Reads => EffectClass::Pure,
            Self::Notes => EffectClass::Idempotent,
            Self::Sends | Self::Writes | Self::Executes => EffectClass::Once,
        }
    }
}

/// The effects that a run or turn may cause, by itself or through others. A run has a grant; a delegation has at most what everybody
/// in its chain has.
///
/// ```
/// use callboard::messages::{Authority, Effect};
/// let reader = Authority::of([Effect::Reads, Effect::Notes]);
/// assert!(!reader.allows(Effect::Writes));
/// assert_eq!(reader.and(Authority::of([Effect::Reads, Effect::Writes])), Authority::of([Effect::Reads]));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Authority(u8);

impl Authority {
    /// All effects. Agents, and the grants of runs, have this authority by default.
    pub const ALL: Self = Self(0b1_1111);

    /// Creates an authority with exactly these effects.
    #[must_use]
    pub fn of(effects: impl IntoIterator<Item = Effect>) -> Self {
        Self(effects.into_iter().fold(0, |bits, effect| bits | effect.bit()))
    }

    /// Returns whether this authority includes the effect.
    #[must_use]
    pub const fn allows(self, effect: Effect) -> bool {
        self.0 & effect.bit() != 0
    }

    /// Returns the effects that this authority includes, from the least to the most.
    pub fn effects(self) -> impl Iterator<Item = Effect> {
        Effect::ALL.into_iter().filter(move |effect| self.allows(*effect))
    }

    /// Returns the intersection: the effects that both authorities include.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns whether `other` includes every effect of this authority.
    #[must_use]
    pub const fn is_within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }
}

/// Everything: effects are permitted by default.
impl Default for Authority {
    fn default() -> Self {
        Self::ALL
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.effects()).finish()
    }
}
