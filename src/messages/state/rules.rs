//! The rules that updates go through: the schema, and the functions that a program registers by name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use callboard_text::nearest;

use crate::messages::Json;

use super::{Schema, State};

pub(crate) type Reduce = dyn Fn(&Json, &Json) -> Result<Json, String> + Send + Sync;
pub(crate) type Predicate = dyn Fn(&State, &Json) -> bool + Send + Sync;

/// The schema and the custom reducers that a run's updates go through, and the predicates that its plan asks.
///
/// ```
/// use callboard::messages::{Command, Reducer, Schema, State, StateRules};
/// let rules = StateRules::new(Schema::open().channel("best", Reducer::Custom("max".into())))
///     .reducer("max", |held, write| Ok(if held.as_i64() > write.as_i64() { held } else { write }.clone()));
/// let mut state = State::default();
/// for score in [3, 9, 4] {
///     state.apply(&Command::update("best", score).update, &rules)?;
/// }
/// assert_eq!(state.to_json(), serde_json::json!({ "best": 9 }));
/// # Ok::<(), callboard::messages::StateError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct StateRules {
    /// The channels and their reducers; by default those of a swarm ([`Schema::swarm`]).
    pub schema: Arc<Schema>,
    /// Custom reducers by name.
    pub(crate) reducers: Arc<Named<Reduce>>,
    /// Predicates of workflows by name.
    pub(crate) predicates: Arc<Named<Predicate>>,
}

impl StateRules {
    /// A schema without custom reducers and predicates.
    #[must_use]
    pub fn new(schema: Schema) -> Self {
        Self { schema: Arc::new(schema), ..Self::default() }
    }

    /// Adds a custom reducer, replacing an earlier one of the same name: from what the channel holds (null at first) and the
    /// write to the new value. It must be deterministic: replay runs it again.
    #[must_use]
    pub fn reducer(
        mut self,
        name: &str,
        reduce: impl Fn(&Json, &Json) -> Result<Json, String> + Send + Sync + 'static,
    ) -> Self {
        Arc::make_mut(&mut self.reducers).0.insert(name.into(), Arc::new(reduce));
        self
    }

    /// Adds a predicate, replacing an earlier one of the same name: it decides a condition from the state and the output or
    /// the input that it is about. It must be deterministic: replay runs it again.
    #[must_use]
    pub fn predicate(mut self, name: &str, holds: impl Fn(&State, &Json) -> bool + Send + Sync + 'static) -> Self {
        Arc::make_mut(&mut self.predicates).0.insert(name.into(), Arc::new(holds));
        self
    }
}

/// Functions by name.
pub(crate) struct Named<F: ?Sized>(BTreeMap<Arc<str>, Arc<F>>);

impl<F: ?Sized> Named<F> {
    /// The function of this name.
    pub(crate) fn get(&self, name: &str) -> Option<&F> {
        self.0.get(name).map(|function| &**function)
    }

    /// The most similar name.
    pub(crate) fn nearest(&self, name: &str) -> Option<String> {
        nearest(name, self.0.keys().map(|name| &**name))
    }
}

impl<F: ?Sized> Clone for Named<F> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<F: ?Sized> Default for Named<F> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<F: ?Sized> fmt::Debug for Named<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
