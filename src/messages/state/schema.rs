use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use callboard_text::{check_channel, nearest};
use serde::{Deserialize, Serialize};

use crate::messages::Json;

use super::{State, StateError};

/// How a channel combines a write with what it holds (SEMANTICS 6).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reducer {
    /// The write replaces.
    #[default]
    LastValue,
    /// The write joins the end of a list; a list joins item by item.
    Append,
    /// Objects merge recursively; anything else replaces.
    Merge(MergeRules),
    /// Numbers add up.
    Sum,
    /// The function that was registered under this name.
    Custom(Arc<str>),
}

/// Exceptions inside a [`Reducer::Merge`] channel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeRules {
    /// Top-level keys whose lists grow instead of being replaced.
    pub appending: Vec<Arc<str>>,
    /// A null in a write keeps the value that is there.
    pub null_keeps: bool,
}

impl Reducer {
    /// A merge without exceptions.
    #[must_use]
    pub fn merge() -> Self {
        Self::Merge(MergeRules::default())
    }
}

/// The channels of a run's state and their reducers.
///
/// ```
/// use callboard::messages::state::{Reducer, Schema, StateError};
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

    /// No channels; unknown ones are last-value.
    #[must_use]
    pub fn open() -> Self {
        Self { channels: BTreeMap::new(), strict: false }
    }

    /// No channels; unknown ones are errors.
    #[must_use]
    pub fn strict() -> Self {
        Self { strict: true, ..Self::open() }
    }

    /// The channels that every swarm has: `context`, `artifacts`, `workflow_state`, `messages` (and `metrics`, which only
    /// the runtime writes); others are last-value.
    #[must_use]
    pub fn swarm() -> Self {
        let appending = |key: &str| Reducer::Merge(MergeRules { appending: vec![key.into()], null_keeps: false });
        Self::open()
            .channel("context", appending("artifacts_created"))
            .channel("artifacts", Reducer::Merge(MergeRules { appending: Vec::new(), null_keeps: true }))
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

    /// Whether a channel is declared.
    #[must_use]
    pub fn declares(&self, channel: &str) -> bool {
        self.channels.contains_key(channel)
    }

    /// The channels that are declared.
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

/// A custom reducer: what the channel holds (null at first) and the write, to the new value.
pub type ReduceFn = Arc<dyn Fn(&Json, &Json) -> Result<Json, String> + Send + Sync>;

/// The custom reducers of a runtime, by name. They must be deterministic: replay runs them again.
#[derive(Clone, Default)]
pub struct Reducers(BTreeMap<Arc<str>, ReduceFn>);

impl Reducers {
    /// Adds one, replacing an earlier one of the same name.
    pub fn insert(&mut self, name: &str, reduce: ReduceFn) {
        self.0.insert(name.into(), reduce);
    }

    /// Finds one.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&ReduceFn> {
        self.0.get(name)
    }

    /// The most similar name.
    pub(crate) fn nearest(&self, name: &str) -> Option<String> {
        nearest(name, self.0.keys().map(|name| &**name))
    }
}

impl fmt::Debug for Reducers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Decides a condition, from the state and the output or the input that it is about.
pub type PredicateFn = Arc<dyn Fn(&State, &Json) -> bool + Send + Sync>;

/// The predicates of a runtime, by name. They must be deterministic: replay runs them again.
#[derive(Clone, Default)]
pub struct Predicates(BTreeMap<Arc<str>, PredicateFn>);

impl Predicates {
    /// Adds one, replacing an earlier one of the same name.
    pub fn insert(&mut self, name: &str, predicate: PredicateFn) {
        self.0.insert(name.into(), predicate);
    }

    /// Finds one.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&PredicateFn> {
        self.0.get(name)
    }

    /// The most similar name.
    pub(crate) fn nearest(&self, name: &str) -> Option<String> {
        nearest(name, self.0.keys().map(|name| &**name))
    }
}

impl fmt::Debug for Predicates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
