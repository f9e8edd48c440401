//! Models of providers, by the crate `genai`: requests and answers are translated, errors get the kinds that say what may be
//! done about them, and keys stay where they are.
//!
//! Everything of the crate is asked with its log off: it would log the bodies of errors, in which a provider may have
//! repeated a key.

mod answered;
mod asked;
mod document;
mod environment;
mod provider;
mod refused;
#[cfg(test)]
mod tests;
mod web;

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::genai::chat::ChatOptions;
use ::genai::resolver::{AuthData, Endpoint, ProviderConfig};
use ::genai::{Client, Headers, ModelIden};
use futures::{FutureExt, StreamExt, TryStreamExt};

use super::catalog::ModelEntry;
use super::model::{Model, ModelError, ModelErrorKind, ModelRequest, ModelStream};
use super::secret::Secret;
pub use provider::ProviderError;
use provider::{Address, Provider};
use web::Web;

/// How long a call waits for its provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timeouts {
    /// Until there is a connection (10 s).
    pub connect: Duration,
    /// Until it begins to answer, the connection included (120 s): some send nothing while they think.
    pub begin: Duration,
    /// Between two pieces of an answer (60 s).
    pub piece: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { connect: seconds(10), begin: seconds(120), piece: seconds(60) }
    }
}

/// A model of a provider. A cheap clone; clones share their connections.
///
/// ```
/// use callboard_agents::{GenaiModel, Model, ModelEntry, Secret};
///
/// let model = GenaiModel::new("anthropic", "claude-sonnet-4-5")?.key(Secret::new("sk-…")).named("sonnet");
/// assert_eq!(model.name(), "sonnet");
/// assert_eq!(format!("{model:?}"), r#"GenaiModel { name: "sonnet", provider: "anthropic", model: "claude-sonnet-4-5" }"#);
/// let entry = ModelEntry::from(model).prices(3.0, 15.0);
/// assert_eq!(&*entry.provider, "anthropic");
/// # Ok::<(), callboard_agents::ProviderError>(())
/// ```
#[derive(Clone)]
pub struct GenaiModel {
    name: Arc<str>,
    provider: Provider,
    model: Arc<str>,
    address: Option<Address>,
    key_variable: Option<Arc<str>>,
    key: Option<Secret>,
    timeouts: Timeouts,
    web: Web,
}

impl GenaiModel {
    /// Creates a model, under the name that its provider has for it. It has no key yet.
    ///
    /// # Errors
    /// When the provider is not known; the error says which are.
    pub fn new(provider: &str, model: &str) -> Result<Self, ProviderError> {
        let provider = Provider::of(provider)?;
        let timeouts = Timeouts::default();
        Ok(Self {
            name: model.into(),
            key_variable: provider.key_variable().map(Into::into),
            provider,
            model: model.into(),
            address: None,
            key: None,
            timeouts,
            web: Web::new(timeouts.connect),
        })
    }

    /// Sets the name of the model in catalogs, events and errors; by default it is the provider's name for it.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Sets the address of the server, as `https://models.example.org/v1`.
    ///
    /// # Errors
    /// When it is none, or has a name or a password in it.
    pub fn at(self, url: &str) -> Result<Self, ProviderError> {
        Ok(Self { address: Some(Address::of(url)?), ..self })
    }

    /// Sets the key that requests are sent with.
    #[must_use]
    pub fn key(self, key: Secret) -> Self {
        Self { key: Some(key), ..self }
    }

    /// Sets the key to the value of this variable of the environment, which `variables` reads.
    ///
    /// # Errors
    /// When it cannot be the name of a variable: it may be a key by mistake, so the error does not show it.
    pub fn key_from(self, variable: &str, variables: impl Fn(&str) -> Option<String>) -> Result<Self, ProviderError> {
        provider::check_variable(variable)?;
        let key = variables(variable).and_then(|key| Secret::of_variable(&key));
        Ok(Self { key_variable: Some(variable.into()), key, ..self })
    }

    /// Sets how long it is waited for connections and answers.
    #[must_use]
    pub fn timeouts(self, timeouts: Timeouts) -> Self {
        Self { timeouts, web: Web::new(timeouts.connect), ..self }
    }

    /// Whether the same calls are made with the same key: everything except connections is equal.
    fn asks_the_same(&self, other: &Self) -> bool {
        let Self { name, provider, model, address, key_variable, key, timeouts, web: _ } = self;
        let has_same_key = match (key, &other.key) {
            (Some(key), Some(other)) => key.expose() == other.expose(),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        *name == other.name
            && *provider == other.provider
            && *model == other.model
            && *address == other.address
            && *key_variable == other.key_variable
            && *timeouts == other.timeouts
            && has_same_key
    }

    fn sharing(self, web: &Web) -> Self {
        Self { web: web.clone(), ..self }
    }

    /// The address and the key of its calls.
    fn service(&self) -> Result<ProviderConfig, ModelError> {
        let key = match (&self.key, &self.key_variable) {
            (Some(key), _) if super::web::fits_a_header(key) => AuthData::from_single(key.expose()),
            (Some(_), variable) => return Err(self.refused_key("has characters that no key has", variable.as_deref())),
            // Servers without keys receive a placeholder, because the protocol requires a value.
            (None, None) => AuthData::from_single("none"),
            (None, Some(variable)) => {
                let text = format!("there is no key for {}: set {variable}", self.provider.name());
                return Err(ModelError::new(ModelErrorKind::Unauthorised, text));
            }
        };
        match &self.address {
            Some(address) => Ok((Endpoint::from_owned(address.url()), key).into()),
            None if self.provider.is_compatible() => {
                let text = format!("{} is no server of its own: say the url of one", self.provider.name());
                Err(ModelError::new(ModelErrorKind::Rejected, text))
            }
            None => Ok(key.into()),
        }
    }

    fn refused_key(&self, problem: &str, variable: Option<&str>) -> ModelError {
        let what = variable.map_or_else(|| "the key".to_owned(), |variable| format!("the key in {variable}"));
        ModelError::new(ModelErrorKind::Unauthorised, format!("{what} {problem}"))
    }

    fn options(&self, request: &ModelRequest) -> ChatOptions {
        let options = ChatOptions::default()
            .with_max_tokens(request.max_tokens)
            .with_capture_usage(true)
            .with_capture_tool_calls(true)
            .with_capture_reasoning_content(true)
            .with_stream_header_timeout(self.timeouts.begin)
            .with_stream_read_timeout(self.timeouts.piece);
        // The same request to another model needs another key.
        let key = format!("{}/{}", request.idempotency_key, self.model);
        let key = key.bytes().all(|byte| byte.is_ascii_graphic()).then_some(("Idempotency-Key", key));
        let span = request.trace_parent.as_ref();
        let parent = span.map(|span| ("traceparent", span.to_string()));
        let state = span.and_then(|span| Some(("tracestate", span.state.as_deref()?.to_owned())));
        let headers: Vec<_> = key.into_iter().chain(parent).chain(state).collect();
        if headers.is_empty() { options } else { options.with_extra_headers(Headers::from(headers)) }
    }

    async fn open(self, request: ModelRequest) -> Result<ModelStream, ModelError> {
        let service = self.service()?;
        let kind = self.provider.kind(&self.model, self.address.is_some());
        let http = self.web.client(self.provider.connection(self.address.as_ref()))?;
        let errors = refused::ErrorBuilder { model: self.clone() };
        let failed = |error| errors.error(error, false);
        let client =
            Client::builder().with_reqwest(http).append_provider_config(kind, service).build().map_err(failed)?;
        // `genai` would take the part before `::` for a provider and remove it.
        let model = if self.model.contains("::") {
            ModelIden::new(kind, format!("{}::{}", kind.as_lower_str(), self.model))
        } else {
            ModelIden::new(kind, &*self.model)
        };
        let asked = asked::chat(&request, kind);
        let options = self.options(&request);
        let answer = client.exec_chat_stream(model, asked, Some(&options)).await.map_err(failed)?;
        Ok(answered::events(answer.stream, &request, kind, errors))
    }
}

impl Model for GenaiModel {
    fn name(&self) -> &str {
        &self.name
    }

    fn call(&self, request: ModelRequest) -> ModelStream {
        web::quiet(self.clone().open(request).into_stream().try_flatten()).boxed()
    }

    fn lacks(&self) -> Option<String> {
        self.service().err().map(|error| error.text.into_owned())
    }

    fn is_same(&self, other: &dyn Model) -> bool {
        (other as &dyn Any).downcast_ref().is_some_and(|other| self.asks_the_same(other))
    }

    fn has_server_of(&self, other: &dyn Model) -> bool {
        (other as &dyn Any).downcast_ref::<Self>().is_some_and(|other| {
            self.provider == other.provider && self.address == other.address && self.key_variable == other.key_variable
        })
    }
}

impl From<GenaiModel> for ModelEntry {
    fn from(model: GenaiModel) -> Self {
        let provider = Arc::clone(model.provider.name());
        Self { provider, ..Self::of(model) }
    }
}

/// Shows neither the key nor the address, which may contain one.
impl fmt::Debug for GenaiModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GenaiModel")
            .field("name", &self.name)
            .field("provider", &self.provider.name())
            .field("model", &self.model)
            .finish()
    }
}
