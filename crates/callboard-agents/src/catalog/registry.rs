//! The models of a catalog by name, each with its gates, and models made from unlisted names.

use std::collections::BTreeMap;
use std::sync::Arc;

use callboard::actors::BoardShare;
use callboard::env::Env;
use callboard_text::{did_you_mean, nearest, quoted};
use parking_lot::Mutex;

use super::choice::ModelChoice;
use super::entry::ModelEntry;
use super::gate::Gate;
use super::policy::CallPolicy;

#[derive(Clone)]
pub(super) struct Registry {
    pub(super) env: Env,
    pub(super) policy: CallPolicy,
    /// The part of all rates that its board may spend; of this catalog and of those in its place.
    pub(super) share: Arc<Mutex<BoardShare>>,
    /// In the order of the catalog.
    pub(super) listed: Vec<Arc<Listed>>,
    pub(super) providers: BTreeMap<Arc<str>, Arc<Gate>>,
    pub(super) unlisted: Option<Unlisted>,
    /// Models that were made from unlisted names at their first use.
    pub(super) made: Arc<Mutex<BTreeMap<Arc<str>, Arc<Listed>>>>,
}

/// A model with its gates.
pub(super) struct Listed {
    pub(super) entry: ModelEntry,
    pub(super) gate: Arc<Gate>,
    pub(super) provider: Arc<Gate>,
}

/// Makes models of names that are not listed.
#[derive(Clone)]
pub(super) struct Unlisted {
    pub(super) make: Make,
    /// The advice if no model fits.
    pub(super) advice: Arc<str>,
}

/// Makes a model from its name; the error is a problem, as text.
pub(super) type Make = Arc<dyn Fn(&str) -> Result<ModelEntry, String> + Send + Sync>;

/// The most models that are made from names: names come from definitions, of which there are fewer.
const MAX_MADE: usize = 1_000;

/// Why a catalog has no model for a [`ModelChoice`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelsError {
    /// No model has this name, and none can be made of it.
    #[error("there is no model {}{}", quoted(name), advice)]
    Unknown {
        /// The name, as the choice has it.
        name: String,
        /// The rest of the message, with its punctuation: the name that was probably meant, the models that there are,
        /// or why no model was made of the name.
        advice: String,
    },
    /// No model has all these tags, or there is none at all.
    #[error("{problem}; {advice}")]
    NoneFits {
        /// Why nothing fits, as a clause: no model has the tags of the choice, or none is listed.
        problem: String,
        /// Up to 20 of the listed models, or what to do if there are none; then the advice that
        /// [`Models::with_unlisted`](super::Models::with_unlisted) was given.
        advice: String,
    },
}

impl Registry {
    pub(super) fn list(&mut self, entry: ModelEntry) -> Arc<Listed> {
        let provider = self.providers.entry(Arc::clone(&entry.provider));
        let provider = Arc::clone(provider.or_insert_with(|| Arc::new(Gate::new(None))));
        let gate = Arc::new(Gate::new(entry.requests_per_minute));
        Arc::new(Listed { entry, gate, provider })
    }

    pub(super) fn get(&self, name: &str) -> Option<Arc<Listed>> {
        let listed = self.listed.iter().find(|listed| &*listed.entry.name == name).cloned();
        listed.or_else(|| self.made.lock().get(name).cloned())
    }

    /// The model of this name; it is made if it is unknown and can be made.
    pub(super) fn find(&self, name: &str) -> Result<Arc<Listed>, ModelsError> {
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
        // Models of one provider share its breaker, also if neither is listed.
        let same = made.values().find(|other| other.entry.provider == entry.provider);
        let provider = same.map(|other| Arc::clone(&other.provider));
        let provider = provider.or_else(|| self.providers.get(&entry.provider).cloned());
        let provider = provider.unwrap_or_else(|| Arc::new(Gate::new(None)));
        let gate = Arc::new(Gate::new(entry.requests_per_minute));
        let listed = Arc::new(Listed { entry, gate, provider });
        // Another thread may have made it meanwhile; the first one is kept.
        Ok(Arc::clone(made.entry(name.into()).or_insert(listed)))
    }

    pub(super) fn none_fits(&self, choice: &ModelChoice) -> ModelsError {
        let problem = if choice.tags.is_empty() {
            "no model is chosen, and none is listed".to_owned()
        } else {
            let tags = choice.tags.iter().map(|tag| quoted(tag)).collect::<Vec<_>>().join(", ");
            format!("no model has the tags {tags}")
        };
        ModelsError::NoneFits { problem, advice: self.what_there_is() }
    }

    /// The listed models as text, or the advice if there are none.
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
