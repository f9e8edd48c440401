//! Replacing models: which state of the old models the new ones keep.

use std::sync::Arc;

use super::Models;
use super::entry::ModelEntry;
use super::registry::Listed;

impl Models {
    /// These models in place of others, as when their catalog is read again. A model that has the same name and asks the same as
    /// before ([`Model::is_same`](super::super::Model::is_same)) goes on with its breaker and its connections, also if its tags,
    /// fallbacks or prices are others now; one that is asked elsewhere begins anew. A rate goes on as long as it is the same. The
    /// breaker of a provider goes on if any of its models does. Calls under way end as they began. Models that were made of names
    /// that are not listed begin anew.
    ///
    /// ```
    /// use callboard::env::Env;
    /// use callboard_agents::{FakeModel, ModelChoice, ModelEntry, Models, ModelsError};
    ///
    /// let env = Env::system();
    /// let before = Models::of(&env, [ModelEntry::of(FakeModel).tag("quick")])?;
    /// let now = Models::of(&env, [ModelEntry::of(FakeModel).tag("careful")])?.after(&before);
    /// let none = now.candidates(&ModelChoice::tagged(["quick"]));
    /// assert!(matches!(none, Err(ModelsError::NoneFits { .. })));
    /// assert_eq!(now.candidates(&ModelChoice::tagged(["careful"]))?, ["fake".into()]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn after(mut self, before: &Self) -> Self {
        if Arc::ptr_eq(&self.0, &before.0) {
            return self;
        }
        let registry = Arc::make_mut(&mut self.0);
        registry.share = Arc::clone(&before.0.share);
        let older: Vec<Option<Arc<Listed>>> = registry.listed.iter().map(|listed| before.same(&listed.entry)).collect();
        for (name, gate) in &mut registry.providers {
            let Some(old) = before.0.providers.get(name) else { continue };
            let is_known = older.iter().flatten().any(|listed| listed.entry.provider == *name);
            *gate = gate.after(old, is_known);
        }
        for (listed, older) in registry.listed.iter_mut().zip(older) {
            // Each model was listed with its provider.
            let provider = registry.providers.get(&listed.entry.provider).unwrap_or(&listed.provider);
            *listed = match older {
                Some(older)
                    if older.entry.has_same_settings(&listed.entry) && Arc::ptr_eq(&older.provider, provider) =>
                {
                    older
                }
                Some(older) => Arc::new(Listed {
                    entry: ModelEntry { model: Arc::clone(&older.entry.model), ..listed.entry.clone() },
                    gate: listed.gate.after(&older.gate, true),
                    provider: Arc::clone(provider),
                }),
                None => Arc::new(Listed {
                    entry: listed.entry.clone(),
                    gate: Arc::clone(&listed.gate),
                    provider: Arc::clone(provider),
                }),
            };
        }
        self
    }

    /// Whether these models equal the ones that they replace (see [`after`](Models::after)).
    pub(crate) fn are_as(&self, before: &Self) -> bool {
        let (now, old) = (&self.0, &before.0);
        let is_listed_alike = now.listed.len() == old.listed.len()
            && now.listed.iter().zip(&old.listed).all(|(now, old)| Arc::ptr_eq(now, old));
        let makes_none = now.unlisted.is_none() && old.unlisted.is_none();
        Arc::ptr_eq(now, old) || (is_listed_alike && makes_none && now.policy == old.policy)
    }

    /// The names of models that are called at another address, or with another key, than the model of that name was; for a new
    /// name, than any model was. Unlisted names count as one.
    pub(crate) fn elsewhere(&self, before: &Self) -> Vec<Arc<str>> {
        let entries = |models: &Self| models.0.listed.iter().map(|listed| listed.entry.clone()).collect::<Vec<_>>();
        let older = entries(before);
        let is_known = |entry: &ModelEntry| {
            let mut candidates = older.iter().filter(|older| older.name == entry.name).peekable();
            let has_server = |older: &ModelEntry| entry.model.has_server_of(&*older.model);
            if candidates.peek().is_some() {
                return candidates.any(has_server);
            }
            // If names need not be listed, those of a provider were already usable.
            let unlisted = before.0.unlisted.as_ref();
            let made = unlisted.and_then(|it| (it.make)(&format!("{}/{}", entry.provider, entry.name)).ok());
            made.iter().chain(&older).any(has_server)
        };
        let mut elsewhere: Vec<_> =
            entries(self).iter().filter(|entry| !is_known(entry)).map(|entry| Arc::clone(&entry.name)).collect();
        if self.0.unlisted.is_some() && before.0.unlisted.is_none() {
            elsewhere.push("models that are not listed".into());
        }
        elsewhere
    }

    /// The names of models that cost less than before, so that limits of money would hold longer: less than the model of that name did,
    /// if it makes the same calls; else less than any model at the same server. A price where there was none counts as less.
    pub(crate) fn cheaper(&self, before: &Self) -> Vec<Arc<str>> {
        let is_cheaper = |entry: &ModelEntry| {
            let Some(now) = entry.prices else { return false };
            let costs_less = |older: &ModelEntry| {
                older.prices.is_none_or(|older| now.input < older.input || now.output < older.output)
            };
            match before.same(entry) {
                Some(older) => costs_less(&older.entry),
                None => {
                    let mut older = before.0.listed.iter().map(|listed| &listed.entry);
                    older.any(|older| entry.model.has_server_of(&*older.model) && costs_less(older))
                }
            }
        };
        let entries = self.0.listed.iter().map(|listed| &listed.entry);
        entries.filter(|entry| is_cheaper(entry)).map(|entry| Arc::clone(&entry.name)).collect()
    }

    /// The listed model of this name, if it makes the same calls.
    fn same(&self, entry: &ModelEntry) -> Option<Arc<Listed>> {
        let older = self.0.listed.iter().find(|older| older.entry.name == entry.name)?;
        let (model, other) = (&entry.model, &older.entry.model);
        let is_same = older.entry.provider == entry.provider && (Arc::ptr_eq(model, other) || model.is_same(&**other));
        is_same.then(|| Arc::clone(older))
    }
}

impl ModelEntry {
    /// Whether everything but the model itself is equal.
    fn has_same_settings(&self, other: &Self) -> bool {
        let Self { name, provider, tags, fallbacks, prices, max_output, requests_per_minute, model: _ } = self;
        *name == other.name
            && *provider == other.provider
            && *tags == other.tags
            && *fallbacks == other.fallbacks
            && *prices == other.prices
            && *max_output == other.max_output
            && *requests_per_minute == other.requests_per_minute
    }
}
