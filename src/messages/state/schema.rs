//! The channels of a state, and their reducers.

use std::collections::BTreeMap;
use std::sync::Arc;

use callboard_text::{check_channel, nearest};
use serde::{Deserialize, Serialize};

use super::StateError;

/// How a channel combines a write with what it holds (SEMANTICS 6).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reducer {
    /// The write replaces what the channel holds.
    #[default]
    LastValue,
    /// The write joins the end of a list; a list joins item by item.
    Append,
    /// Objects merge recursively; anything else replaces.
    Merge {
        /// Top-level keys whose lists grow instead of being replaced.
        appending: Vec<Arc<str>>,
        /// A null in a write keeps the value that is there.
        null_keeps: bool,
    },
    /// Numbers add up; any other value is refused ([`StateError::BadValue`]).
    Sum,
    /// The function that was registered under this name.
    Custom(Arc<str>),
}

impl Reducer {
    /// Creates a [`Reducer::Merge`] without exceptions: no key appends, and a null replaces what is there.
    #[must_use]
    pub fn merge() -> Self {
        Self::Merge { appending: Vec::new(), null_keeps: false }
    }
}

/// The channels of a run's state and their reducers.
///
/// ```
/// use callboard::messages::{Reducer, Schema, StateError};
/// let schema = Schema::open().channel("votes", Reducer::Sum);
/// assert_eq!(schema.reducer("votes"), Ok(&Reducer::Sum));
/// assert_eq!(schema.reducer("note"), Ok(&Reducer::LastValue));
/// assert!(matches!(Schema::strict().reducer("note"), Err(StateError::UnknownChannel { .. })));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schema {
    channels: BTreeMap<Arc<str>, Reducer>,
    strict: bool,
}

impl Schema {
    /// The channel that only the runtime writes.
    pub const METRICS: &str = METRICS;

    /// Creates a schema without channels, in which undeclared channels are last-value.
    #[must_use]
    pub fn open() -> Self {
        Self { channels: BTreeMap::new(), strict: false }
    }

    /// Creates a schema without channels, in which a write to an undeclared channel is an error
    /// ([`StateError::UnknownChannel`]).
    #[must_use]
    pub fn strict() -> Self {
        Self { strict: true, ..Self::open() }
    }

    /// The channels that every swarm has: `context`, `artifacts`, `workflow_state`, `messages` (and `metrics`, which only
    /// the runtime writes); others are last-value.
    #[must_use]
    pub fn swarm() -> Self {
        let appending = |key: &str| Reducer::Merge { appending: vec![key.into()], null_keeps: false };
        Self::open()
            .channel("context", appending("artifacts_created"))
            .channel("artifacts", Reducer::Merge { appending: Vec::new(), null_keeps: true })
            .channel("workflow_state", appending("completed_steps"))
            .channel("messages", Reducer::Append)
    }

    /// Declares a channel, replacing an earlier declaration.
    #[must_use]
    pub fn channel(mut self, name: &str, reducer: Reducer) -> Self {
        self.channels.insert(name.into(), reducer);
        self
    }

    /// Whether it knows no channels but those that are declared.
    #[must_use]
    pub fn is_strict(&self) -> bool {
        self.strict
    }

    /// Returns whether the schema declares a channel. An open schema also takes channels that it does not declare.
    #[must_use]
    pub fn declares(&self, channel: &str) -> bool {
        self.channels.contains_key(channel)
    }

    /// Returns the names of the channels that are declared, sorted.
    pub fn declared(&self) -> impl Iterator<Item = &str> {
        self.channels.keys().map(AsRef::as_ref)
    }

    /// The reducer of a channel.
    ///
    /// # Errors
    /// The channel is the runtime's own, or it is unknown and the schema is strict or its name breaks the rule for keys (1
    /// to 128 characters that are all shown).
    pub fn reducer(&self, channel: &str) -> Result<&Reducer, StateError> {
        if channel == METRICS {
            return Err(StateError::ReadOnly { channel: channel.into() });
        }
        match self.channels.get(channel) {
            Some(reducer) => Ok(reducer),
            None if self.strict => {
                Err(StateError::UnknownChannel { channel: channel.into(), nearest: nearest(channel, self.declared()) })
            }
            None => {
                check_channel(channel).map_err(|error| StateError::BadName { problem: error.to_string() })?;
                Ok(&Reducer::LastValue)
            }
        }
    }
}

impl Default for Schema {
    fn default() -> Self {
        Self::swarm()
    }
}

/// The channel that only the runtime writes.
pub(crate) const METRICS: &str = "metrics";
