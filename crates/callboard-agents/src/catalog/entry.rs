//! A model of a catalog.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::model::Model;
use crate::prices::Prices;

/// A model as a catalog lists it: with its name, provider, tags, fallbacks, prices and limits.
#[derive(Clone)]
#[non_exhaustive]
pub struct ModelEntry {
    /// What it is called. Agents choose it by this name.
    pub name: Arc<str>,
    /// Who serves it: models of one provider share a breaker, and a rate if there is one.
    pub provider: Arc<str>,
    /// What it is good for, in the words of whoever wrote the entry.
    pub tags: Vec<Arc<str>>,
    /// Who answers when it cannot, in this order.
    pub fallbacks: Vec<Arc<str>>,
    /// What it costs; `None` if that is not known, and then calls of it have no cost.
    pub prices: Option<Prices>,
    /// The most tokens that it can write at once: requests that allow more are cut down to it. `None` leaves them as
    /// they are.
    pub max_output: Option<u32>,
    /// How many requests a minute it may be sent; further ones wait. `None` means no limit of its own.
    pub requests_per_minute: Option<NonZeroU32>,
    /// The model that receives the requests, once its breaker and its rate admit them.
    pub model: Arc<dyn Model>,
}

impl ModelEntry {
    /// Creates an entry under the model's own name, which is also that of its provider. It has no tags, fallbacks,
    /// prices or limits.
    #[must_use]
    pub fn of(model: impl Model) -> Self {
        let name: Arc<str> = model.name().into();
        Self {
            provider: Arc::clone(&name),
            name,
            tags: Vec::new(),
            fallbacks: Vec::new(),
            prices: None,
            max_output: None,
            requests_per_minute: None,
            model: Arc::new(model),
        }
    }

    /// Sets who serves it (by default its own name): models of one provider share a breaker, and a rate if there is one.
    #[must_use]
    pub fn provider(self, provider: &str) -> Self {
        Self { provider: provider.into(), ..self }
    }

    /// Adds a tag, by which [`ModelChoice::tags`](super::ModelChoice::tags) finds the model.
    #[must_use]
    pub fn tag(mut self, tag: &str) -> Self {
        self.tags.push(tag.into());
        self
    }

    /// Adds the name of a model that is asked when this one cannot answer, after the fallbacks that were added before.
    #[must_use]
    pub fn fallback(mut self, name: &str) -> Self {
        self.fallbacks.push(name.into());
        self
    }

    /// Sets what a million tokens cost in US dollars, read and written.
    #[must_use]
    pub fn prices(self, input: f64, output: f64) -> Self {
        Self { prices: Some(Prices { input, output }), ..self }
    }

    /// Sets how many requests a minute it may be sent; further ones wait.
    #[must_use]
    pub fn requests_per_minute(self, requests: NonZeroU32) -> Self {
        Self { requests_per_minute: Some(requests), ..self }
    }

    /// Sets the most tokens that it can write at once; requests that allow more are cut down to it.
    #[must_use]
    pub fn max_output(self, tokens: u32) -> Self {
        Self { max_output: Some(tokens), ..self }
    }
}

impl fmt::Debug for ModelEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, provider, tags, fallbacks, prices, max_output, requests_per_minute, model: _ } = self;
        f.debug_struct("ModelEntry")
            .field("name", name)
            .field("provider", provider)
            .field("tags", tags)
            .field("fallbacks", fallbacks)
            .field("prices", prices)
            .field("max_output", max_output)
            .field("requests_per_minute", requests_per_minute)
            .finish_non_exhaustive()
    }
}
