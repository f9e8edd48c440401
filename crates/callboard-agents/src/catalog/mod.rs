//! The models of a catalog, and the choice among them: preferred, fallbacks, tags, breakers, rates, prices.
//!
//! The decisions are pure functions: `check` (whether the entries fit together), `choice` (the candidates and their order),
//! `failure` (what follows an error), `succession` (the state that is kept when the catalog is read again). `registry` has the
//! models by name, `gate` a breaker and a rate for each model and provider, `rate` what is spent of a rate, and `call` asks one model
//! after the other.

mod admitted;
mod call;
pub(super) mod check;
mod choice;
mod entry;
mod failure;
mod gate;
mod policy;
mod rate;
mod registry;
mod succession;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use callboard::actors::BoardShare;
use callboard::env::Env;
use callboard::supervision::runs::BreakerState;
use callboard_documents::Defects;
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;

use super::model::{Model, ModelError, ModelErrorKind, ModelRequest, ModelStream};

pub use crate::prices::Prices;
use check::Facts;
pub use choice::ModelChoice;
pub use entry::ModelEntry;
use gate::Gate;
pub use policy::CallPolicy;
pub use registry::ModelsError;
use registry::{Listed, Registry, Unlisted};

/// The models that there are. A cheap clone; clones share breakers and rates.
///
/// ```
/// use callboard_agents::{ModelChoice, ModelEntry, Models};
/// # use callboard_agents::{Model, ModelRequest, ModelStream};
/// use callboard::env::Env;
/// # struct Mine(&'static str);
/// # impl Model for Mine {
/// #     fn name(&self) -> &str { self.0 }
/// #     fn call(&self, _: ModelRequest) -> ModelStream { unimplemented!() }
/// # }
///
/// let models = Models::of(&Env::system(), [
///     ModelEntry::of(Mine("large")).provider("here").tag("careful").prices(3.0, 15.0).fallback("small"),
///     ModelEntry::of(Mine("small")).provider("there").tag("quick"),
/// ])?;
/// assert_eq!(models.candidates(&ModelChoice::of("large"))?, ["large".into(), "small".into()]);
/// assert_eq!(models.candidates(&ModelChoice::tagged(["quick"]))?, ["small".into()]);
/// assert_eq!(models.provider_of("small").as_deref(), Some("there"));
/// let error = models.candidates(&ModelChoice::of("lagre")).unwrap_err();
/// assert_eq!(error.to_string(), "there is no model \"lagre\"; did you mean \"large\"?");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Models(Arc<Registry>);

impl Models {
    /// Creates a catalog without models. `env` supplies the clock of its breakers and rates, and the randomness of its
    /// waits.
    #[must_use]
    pub fn new(env: &Env) -> Self {
        Self(Arc::new(Registry {
            env: env.clone(),
            policy: CallPolicy::default(),
            share: Arc::new(Mutex::new(BoardShare::new(env))),
            listed: Vec::new(),
            providers: BTreeMap::new(),
            unlisted: None,
            made: Arc::default(),
        }))
    }

    /// Creates a catalog of these models, in this order.
    ///
    /// # Errors
    /// Everything that is wrong with them: names that are used twice, fallbacks that there are not or that lead in a circle,
    /// prices below zero.
    pub fn of(env: &Env, entries: impl IntoIterator<Item = ModelEntry>) -> Result<Self, Defects> {
        Self::new(env).and(entries)
    }

    /// Adds a model. Its fallbacks have to be in the catalog.
    ///
    /// # Errors
    /// As for [`Models::of`].
    pub fn with(self, entry: ModelEntry) -> Result<Self, Defects> {
        self.and([entry])
    }

    fn and(mut self, entries: impl IntoIterator<Item = ModelEntry>) -> Result<Self, Defects> {
        let entries: Vec<_> = entries.into_iter().collect();
        let all = self.0.listed.iter().map(|listed| &listed.entry).chain(&entries);
        let facts: Vec<_> = all.clone().map(Facts::of).collect();
        let mut defects = check::check(&facts);
        defects.extend(all.filter_map(|entry| check::prices(&entry.name, entry.prices?, &None)));
        if !defects.is_empty() {
            return Err(Defects::of("models", None, defects));
        }
        let registry = Arc::make_mut(&mut self.0);
        for entry in entries {
            let listed = registry.list(entry);
            registry.listed.push(listed);
        }
        Ok(self)
    }

    /// Sets how often and how long models are tried, and when a breaker opens.
    #[must_use]
    pub fn with_policy(mut self, policy: CallPolicy) -> Self {
        Arc::make_mut(&mut self.0).policy = policy;
        self
    }

    /// How many requests a minute the models of a provider may be sent together. Say so before the first one is asked: the
    /// provider's breaker begins anew.
    #[must_use]
    pub fn with_provider_rate(mut self, provider: &str, requests_per_minute: NonZeroU32) -> Self {
        let registry = Arc::make_mut(&mut self.0);
        let gate = Arc::new(Gate::new(Some(requests_per_minute)));
        for listed in registry.listed.iter_mut().filter(|listed| &*listed.entry.provider == provider) {
            let (entry, model) = (listed.entry.clone(), Arc::clone(&listed.gate));
            *listed = Arc::new(Listed { entry, gate: model, provider: Arc::clone(&gate) });
        }
        registry.made = Arc::default();
        registry.providers.insert(provider.into(), gate);
        self
    }

    /// Has this catalog, and those that come in its place ([`Models::after`]), send only a board's part of all rates, which the boards on
    /// its store share. Say so before the board starts: rates begin anew with it.
    ///
    /// ```
    /// use callboard::actors::BoardShare;
    /// use callboard::prelude::*;
    /// use callboard::env::Env;
    /// use callboard_agents::{FakeModel, ModelEntry, Models};
    ///
    /// let env = Env::system();
    /// let per_minute = 60.try_into()?;
    /// let models = Models::of(&env, [ModelEntry::of(FakeModel).requests_per_minute(per_minute)])?;
    /// let share = BoardShare::new(&env);
    /// models.share_rates(&share);
    /// let board = Callboard::builder().board_share(&share);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn share_rates(&self, share: &BoardShare) {
        *self.0.share.lock() = share.clone();
    }

    /// Makes models of names that are not listed, each when it is chosen first; `make` answers with the model, or with what is
    /// wrong with the name. They are not found by tags. `advice` is what can be done if no model fits.
    #[must_use]
    pub fn with_unlisted(
        mut self,
        advice: &str,
        make: impl Fn(&str) -> Result<ModelEntry, String> + Send + Sync + 'static,
    ) -> Self {
        Arc::make_mut(&mut self.0).unlisted = Some(Unlisted { make: Arc::new(make), advice: advice.into() });
        self
    }

    /// Returns the listed models in the order in which they were added, without those that [`Models::with_unlisted`]
    /// makes.
    pub fn entries(&self) -> impl Iterator<Item = &ModelEntry> {
        self.0.listed.iter().map(|listed| &listed.entry)
    }

    /// The provider of the model of this name; `None` if there is no such model, or none was made of the name yet.
    #[must_use]
    pub fn provider_of(&self, name: &str) -> Option<Arc<str>> {
        self.0.get(name).map(|listed| Arc::clone(&listed.entry.provider))
    }

    /// The names of those who may answer, in the order in which they are asked: the preferred one, its fallbacks, those that
    /// the choice lists with theirs, and those that have all its tags. Each is there once. A choice that says nothing is the
    /// first model of the list.
    ///
    /// # Errors
    /// A name that no model has, or that nothing fits.
    pub fn candidates(&self, choice: &ModelChoice) -> Result<Vec<Arc<str>>, ModelsError> {
        Ok(self.listed_for(choice)?.iter().map(|listed| Arc::clone(&listed.entry.name)).collect())
    }

    /// Asks those who may answer, one after the other, until one does. A model that fails before it has said anything is asked
    /// again, or the next one is, and [`ModelEvent::Failed`](super::ModelEvent::Failed) reports it; an error after that is
    /// passed on, because somebody has seen the beginning.
    #[must_use]
    pub fn call(&self, choice: &ModelChoice, request: ModelRequest) -> ModelStream {
        match self.listed_for(choice) {
            Ok(ahead) => call::call(&self.0, ahead, request),
            Err(error) => {
                let error = ModelError::new(ModelErrorKind::Rejected, error.to_string());
                futures::future::ready(Err(error)).into_stream().boxed()
            }
        }
    }

    /// A choice as a model of its own.
    ///
    /// # Errors
    /// As for [`Models::candidates`].
    pub fn chosen(&self, choice: &ModelChoice) -> Result<Chosen, ModelsError> {
        let candidates = self.listed_for(choice)?;
        // There is a first one: without candidates, an error was returned.
        let name = candidates.first().map(|first| Arc::clone(&first.entry.name)).unwrap_or_default();
        Ok(Chosen { name, registry: Arc::clone(&self.0), candidates })
    }

    /// What the breaker of a model shows, and that of its provider; nothing of one that was never used.
    #[must_use]
    pub fn breakers(&self, name: &str) -> Option<(BreakerState, BreakerState)> {
        let listed = self.0.get(name)?;
        Some((listed.gate.state(), listed.provider.state()))
    }

    fn listed_for(&self, choice: &ModelChoice) -> Result<Vec<Arc<Listed>>, ModelsError> {
        let registry = &self.0;
        for name in choice.names() {
            registry.find(name)?;
        }
        let made = registry.made.lock().clone();
        let entries = registry.listed.iter().chain(made.values()).map(|listed| &listed.entry);
        let places = choice::candidates(choice, registry.listed.len(), &entries.collect::<Vec<_>>());
        if places.is_empty() {
            return Err(registry.none_fits(choice));
        }
        let all: Vec<_> = registry.listed.iter().chain(made.values()).collect();
        Ok(places.into_iter().map(|place| Arc::clone(all[place])).collect())
    }
}

impl fmt::Debug for Models {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.entries()).finish()
    }
}

/// Those who may answer for a choice, as one model.
#[derive(Clone)]
pub struct Chosen {
    name: Arc<str>,
    registry: Arc<Registry>,
    candidates: Vec<Arc<Listed>>,
}

impl Model for Chosen {
    /// The name of the first candidate.
    fn name(&self) -> &str {
        &self.name
    }

    fn call(&self, request: ModelRequest) -> ModelStream {
        call::call(&self.registry, self.candidates.clone(), request)
    }

    fn prices(&self) -> Option<Prices> {
        let mut prices =
            self.candidates.iter().map(|listed| listed.entry.prices.or_else(|| listed.entry.model.prices()));
        prices.try_fold(Prices { input: 0.0, output: 0.0 }, |highest, prices| {
            let Prices { input, output } = prices?;
            Some(Prices { input: highest.input.max(input), output: highest.output.max(output) })
        })
    }

    /// What the first candidate lacks, if each lacks something.
    fn lacks(&self) -> Option<String> {
        let lacking: Option<Vec<String>> = self.candidates.iter().map(|listed| listed.entry.model.lacks()).collect();
        lacking?.into_iter().next()
    }
}

impl fmt::Debug for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.candidates.iter().map(|listed| &listed.entry.name)).finish()
    }
}
