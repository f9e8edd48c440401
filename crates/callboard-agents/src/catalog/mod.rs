//! Which models there are, and which of them is asked: preferred, fallbacks, tags, breakers, rates, prices.
//!
//! What is decided is in plain functions: `check` (whether the entries fit together), `choice` (who may answer, in which
//! order), `failure` (what is done after an error), `succession` (what goes on when they are read again). `gate` keeps a breaker and
//! a rate for each model and provider, and `call` follows all of it.

mod call;
pub(super) mod check;
mod choice;
mod failure;
mod gate;
mod succession;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use callboard::env::Env;
use callboard::messages::{Backoff, Cost, Usage};
use callboard::supervision::runs::breaker::{BreakerPolicy, BreakerState};
use callboard_documents::Defects;
use callboard_text::{did_you_mean, nearest, quoted};
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;

use super::model::{Model, ModelError, ModelErrorKind, ModelRequest, ModelStream};
use check::Facts;
pub use choice::ModelChoice;
use gate::Gate;

/// What a model costs, in US dollars for a million tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prices {
    /// Tokens read.
    pub input: f64,
    /// Tokens written.
    pub output: f64,
}

impl Prices {
    /// What so many tokens cost. Tokens that a provider had in its cache count in full: most take less for them.
    #[must_use]
    pub fn of(self, usage: Usage) -> Cost {
        [Cost::of(usage.input_tokens, self.input), Cost::of(usage.output_tokens, self.output)].into_iter().sum()
    }
}

/// A model of a catalog.
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
    /// What it costs; unknown if nothing is said.
    pub prices: Option<Prices>,
    /// The most tokens that it can write at once.
    pub max_output: Option<u32>,
    /// How many requests a minute it may be sent.
    pub requests_per_minute: Option<NonZeroU32>,
    /// The model itself.
    pub model: Arc<dyn Model>,
}

impl ModelEntry {
    /// A model under its own name, of a provider that has no other.
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

    /// Who serves it.
    #[must_use]
    pub fn provider(self, provider: &str) -> Self {
        Self { provider: provider.into(), ..self }
    }

    /// With one more tag.
    #[must_use]
    pub fn tag(mut self, tag: &str) -> Self {
        self.tags.push(tag.into());
        self
    }

    /// With one more model that answers when it cannot.
    #[must_use]
    pub fn fallback(mut self, name: &str) -> Self {
        self.fallbacks.push(name.into());
        self
    }

    /// What a million tokens cost, read and written.
    #[must_use]
    pub fn prices(self, input: f64, output: f64) -> Self {
        Self { prices: Some(Prices { input, output }), ..self }
    }

    /// How many requests a minute it may be sent.
    #[must_use]
    pub fn requests_per_minute(self, requests: NonZeroU32) -> Self {
        Self { requests_per_minute: Some(requests), ..self }
    }

    /// The most tokens that it can write at once; requests that allow more are cut down to it.
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

/// How often and how long a model is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallPolicy {
    /// How often the same model is asked again, if it had said nothing and may do better (2).
    pub retries: u32,
    /// The waits in between, if the provider does not say (0.5 s, doubling to 8 s).
    pub backoff: Backoff,
    /// The longest wait that a provider may ask for (30 s); if it wants more, the next model is asked.
    pub patience: Duration,
    /// When a model or a provider is left alone, and for how long.
    pub breaker: BreakerPolicy,
}

impl Default for CallPolicy {
    fn default() -> Self {
        Self {
            retries: 2,
            backoff: Backoff { first: Duration::from_millis(500), max: Duration::from_secs(8) },
            patience: Duration::from_secs(30),
            breaker: BreakerPolicy::default(),
        }
    }
}

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
/// let error = models.candidates(&ModelChoice::of("lagre")).unwrap_err();
/// assert_eq!(error.to_string(), "there is no model \"lagre\"; did you mean \"large\"?");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Models(Arc<Registry>);

#[derive(Clone)]
struct Registry {
    env: Env,
    policy: CallPolicy,
    /// In the order in which they were given.
    listed: Vec<Arc<Listed>>,
    providers: BTreeMap<Arc<str>, Arc<Gate>>,
    unlisted: Option<Unlisted>,
    /// Models that were made when their names were first used.
    made: Arc<Mutex<BTreeMap<Arc<str>, Arc<Listed>>>>,
}

/// A model with what is kept about it.
struct Listed {
    entry: ModelEntry,
    gate: Arc<Gate>,
    provider: Arc<Gate>,
}

/// Makes models of names that are not listed.
#[derive(Clone)]
struct Unlisted {
    make: Make,
    /// What can be done if no model fits.
    advice: Arc<str>,
}

/// The error is a problem, in words.
type Make = Arc<dyn Fn(&str) -> Result<ModelEntry, String> + Send + Sync>;

/// How many models can be made of names: names come from definitions, of which there are not as many.
const MAX_MADE: usize = 1_000;

/// Why no model can be asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelsError {
    /// No model has this name.
    #[error("there is no model {}{}", quoted(name), advice)]
    Unknown {
        /// The name.
        name: String,
        /// What was meant, or what there is.
        advice: String,
    },
    /// No model has all these tags, or there is none at all.
    #[error("{problem}; {advice}")]
    NoneFits {
        /// What was asked for.
        problem: String,
        /// What there is, and what to do.
        advice: String,
    },
}

impl Models {
    /// No models.
    #[must_use]
    pub fn new(env: &Env) -> Self {
        Self(Arc::new(Registry {
            env: env.clone(),
            policy: CallPolicy::default(),
            listed: Vec::new(),
            providers: BTreeMap::new(),
            unlisted: None,
            made: Arc::default(),
        }))
    }

    /// These models, in this order.
    ///
    /// # Errors
    /// Everything that is wrong with them: names that are used twice, fallbacks that there are not or that lead in a circle,
    /// prices below zero.
    pub fn of(env: &Env, entries: impl IntoIterator<Item = ModelEntry>) -> Result<Self, Defects> {
        Self::new(env).and(entries)
    }

    /// These models and another one. Its fallbacks are among them.
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

    /// Asks in this way.
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
        let gate = Arc::new(Gate::new(&registry.env, Some(requests_per_minute)));
        for listed in registry.listed.iter_mut().filter(|listed| &*listed.entry.provider == provider) {
            let (entry, model) = (listed.entry.clone(), Arc::clone(&listed.gate));
            *listed = Arc::new(Listed { entry, gate: model, provider: Arc::clone(&gate) });
        }
        registry.made = Arc::default();
        registry.providers.insert(provider.into(), gate);
        self
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

    /// What is listed, in its order.
    pub fn entries(&self) -> impl Iterator<Item = &ModelEntry> {
        self.0.listed.iter().map(|listed| &listed.entry)
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
    /// again, or the next one is, and [`ModelEvent::Failed`](super::ModelEvent::Failed) tells of it; an error after that is
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
        // There is a first one: nothing that fits is an error.
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

impl Registry {
    fn list(&mut self, entry: ModelEntry) -> Arc<Listed> {
        let provider = self.providers.entry(Arc::clone(&entry.provider));
        let provider = Arc::clone(provider.or_insert_with(|| Arc::new(Gate::new(&self.env, None))));
        let gate = Arc::new(Gate::new(&self.env, entry.requests_per_minute));
        Arc::new(Listed { entry, gate, provider })
    }

    fn get(&self, name: &str) -> Option<Arc<Listed>> {
        let listed = self.listed.iter().find(|listed| &*listed.entry.name == name).cloned();
        listed.or_else(|| self.made.lock().get(name).cloned())
    }

    /// The model of this name; it is made if it is not there and can be.
    fn find(&self, name: &str) -> Result<Arc<Listed>, ModelsError> {
        if let Some(listed) = self.get(name) {
            return Ok(listed);
        }
        let unknown = |advice| ModelsError::Unknown { name: name.to_owned(), advice };
        let Some(unlisted) = &self.unlisted else {
            let likely = nearest(name, self.listed.iter().map(|listed| &*listed.entry.name));
            return Err(unknown(match likely {
                Some(likely) => did_you_mean(Some(&likely)),
                None => format!("; {}", self.what_there_is()),
            }));
        };
        let entry = (unlisted.make)(name).map_err(|problem| unknown(format!(": {problem}")))?;
        let mut made = self.made.lock();
        if made.len() >= MAX_MADE {
            return Err(unknown(format!(": {MAX_MADE} have been made of names already; list those that are used")));
        }
        // Two of one provider share its breaker, also if neither is listed.
        let same = made.values().find(|other| other.entry.provider == entry.provider);
        let provider = same.map(|other| Arc::clone(&other.provider));
        let provider = provider.or_else(|| self.providers.get(&entry.provider).cloned());
        let provider = provider.unwrap_or_else(|| Arc::new(Gate::new(&self.env, None)));
        let gate = Arc::new(Gate::new(&self.env, entry.requests_per_minute));
        let listed = Arc::new(Listed { entry, gate, provider });
        // Somebody else may have made it meanwhile; the first one counts.
        Ok(Arc::clone(made.entry(name.into()).or_insert(listed)))
    }

    fn none_fits(&self, choice: &ModelChoice) -> ModelsError {
        let problem = if choice.tags.is_empty() {
            "no model is chosen, and none is listed".to_owned()
        } else {
            let tags = choice.tags.iter().map(|tag| quoted(tag)).collect::<Vec<_>>().join(", ");
            format!("no model has the tags {tags}")
        };
        ModelsError::NoneFits { problem, advice: self.what_there_is() }
    }

    /// What there is, or what to do if there is nothing.
    fn what_there_is(&self) -> String {
        const MOST: usize = 20;
        let names: Vec<_> = self.listed.iter().take(MOST).map(|listed| described(&listed.entry)).collect();
        let more = self.listed.len().saturating_sub(MOST);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        match (names.is_empty(), &self.unlisted) {
            (true, Some(unlisted)) => unlisted.advice.to_string(),
            (true, None) => "there are none: list one".to_owned(),
            (false, None) => format!("there are {}{more}", names.join(", ")),
            (false, Some(unlisted)) => format!("there are {}{more}; {}", names.join(", "), unlisted.advice),
        }
    }
}

/// `"large" (careful, quick)`.
fn described(entry: &ModelEntry) -> String {
    let tags = entry.tags.iter().map(|tag| callboard_text::cut(tag)).collect::<Vec<_>>().join(", ");
    let name = quoted(&entry.name);
    if tags.is_empty() { name } else { format!("{name} ({tags})") }
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
    /// That of the one that is asked first.
    fn name(&self) -> &str {
        &self.name
    }

    fn call(&self, request: ModelRequest) -> ModelStream {
        call::call(&self.registry, self.candidates.clone(), request)
    }
}

impl fmt::Debug for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.candidates.iter().map(|listed| &listed.entry.name)).finish()
    }
}
