//! Models without a catalog: by name, with keys from the environment.

use std::sync::Arc;

use callboard::env::Env;
use callboard_text::quoted;

use crate::catalog::{ModelEntry, Models};

use super::provider::{self, Address, Provider};
use super::web::Web;
use super::{GenaiModel, Timeouts};

/// Reads variables of the environment.
pub(super) type Variables = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

const OPENAI_URL: &str = "OPENAI_BASE_URL";
const OLLAMA_HOST: &str = "OLLAMA_HOST";

impl Models {
    /// No list, but every model of a provider by its name: `anthropic/claude-sonnet-4-5`, or `claude-sonnet-4-5` alone if its
    /// beginning tells whose it is. Keys come from the variables that the providers' own programs read.
    #[must_use]
    pub fn from_environment(env: &Env) -> Self {
        Self::from_variables(env, |name| std::env::var(name).ok())
    }

    /// As [`Models::from_environment`], with variables from elsewhere.
    ///
    /// ```
    /// use callboard::env::Env;
    /// use callboard_agents::{ModelChoice, Models};
    ///
    /// let models = Models::from_variables(&Env::system(), |name| (name == "OPENAI_API_KEY").then(|| "sk-…".to_owned()));
    /// let choice = ModelChoice::of("gpt-5-mini").fallback("anthropic/claude-sonnet-4-5");
    /// assert_eq!(models.candidates(&choice)?, ["gpt-5-mini".into(), "anthropic/claude-sonnet-4-5".into()]);
    /// # Ok::<(), callboard_agents::ModelsError>(())
    /// ```
    #[must_use]
    pub fn from_variables(env: &Env, variables: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        let variables: Variables = Arc::new(variables);
        let advice = advice(&variables);
        let web = Web::new(Timeouts::default().connect);
        let make = move |name: &str| Ok(ModelEntry::from(of_name(name, &variables)?.sharing(&web)));
        Self::new(env).with_unlisted(&advice, make)
    }
}

/// The model of this name.
fn of_name(name: &str, variables: &Variables) -> Result<GenaiModel, String> {
    let (provider, model) = match name.split_once('/') {
        Some((first, model)) if Provider::of(first).is_ok() => (first.to_owned(), model),
        Some(_) | None => (of_plain_name(name, variables)?, name),
    };
    if model.is_empty() || model.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err("a model is named as provider/model".to_owned());
    }
    let made = GenaiModel::new(&provider, model).map_err(|error| error.to_string())?;
    if made.provider.is_compatible() {
        return Err(format!("set {OPENAI_URL} and name it openai/{model}, or list it with its url"));
    }
    Ok(with_environment(made.named(name), variables))
}

/// The provider of a model without a provider in its name: by the name's prefix, or the only configured server.
fn of_plain_name(name: &str, variables: &Variables) -> Result<String, String> {
    if let Some(provider) = Provider::of_model(name) {
        return Ok(provider.name().to_string());
    }
    let is_set = |variable: &str| variables(variable).is_some_and(|value| !value.trim().is_empty());
    match (is_set(OPENAI_URL), is_set(OLLAMA_HOST)) {
        (true, _) => Ok("openai".to_owned()),
        (false, true) => Ok("ollama".to_owned()),
        (false, false) => {
            let example = format!("openai/{}", name.rsplit('/').next().unwrap_or(name));
            Err(format!("its name does not show its provider; write the provider before it, as {}", quoted(&example)))
        }
    }
}

/// The model with the key and the address of the environment, unless it has its own.
pub(super) fn with_environment(made: GenaiModel, variables: &Variables) -> GenaiModel {
    let variable = made.key_variable.clone();
    let made = match variable {
        // The variable's name comes from the provider, or was checked.
        Some(variable) if made.key.is_none() => {
            made.clone().key_from(&variable, |name| variables(name)).unwrap_or(made)
        }
        Some(_) | None => made,
    };
    let address = match &**made.provider.name() {
        _ if made.address.is_some() => None,
        "openai" => variables(OPENAI_URL).map(|url| (OPENAI_URL, Address::of(url.trim()))),
        "ollama" => variables(OLLAMA_HOST).map(|host| (OLLAMA_HOST, Address::of_ollama(&host))),
        _ => None,
    };
    let made = match address {
        Some((_, Ok(address))) => GenaiModel { address: Some(address), ..made },
        Some((variable, Err(error))) => {
            tracing::warn!("{variable} is not used: {error}");
            made
        }
        None => made,
    };
    // A self-hosted server may need no key.
    let wants_none = &**made.provider.name() == "openai" && made.address.is_some() && made.key.is_none();
    let made = if wants_none { GenaiModel { key_variable: None, ..made } } else { made };
    if let Some(address) = made.address.as_ref().filter(|address| address.is_open())
        && made.key.is_some()
    {
        let (model, server) = (&made.name, address.shown());
        tracing::warn!("the key of {model} goes to {server} unencrypted: whoever is on the way can read it");
    }
    made
}

/// The advice if no model is named, or none fits.
fn advice(variables: &Variables) -> String {
    let is_set = |variable: &str| variables(variable).is_some_and(|value| !value.trim().is_empty());
    let mut with_key: Vec<_> = provider::all()
        .filter(|kind| kind.default_key_env_name().is_some_and(is_set))
        .map(|kind| kind.as_lower_str().replace('_', "-"))
        .collect();
    if is_set(OLLAMA_HOST) {
        with_key.push("ollama".to_owned());
    }
    if with_key.is_empty() {
        return "set ANTHROPIC_API_KEY, OPENAI_API_KEY, GEMINI_API_KEY or OLLAMA_HOST, or the key of another provider, and \
                name a model as provider/model"
            .to_owned();
    }
    format!("name a model as provider/model; there are keys for {}", with_key.join(", "))
}
