//! Providers of models, and their addresses.

use std::sync::Arc;

use ::genai::adapter::AdapterKind;
use callboard_text::{did_you_mean, nearest, quoted};
use reqwest::Url;

use crate::program::is_variable;
use crate::web::{self, ConnectionSettings};

/// Any server that speaks OpenAI's protocol.
pub(super) const COMPATIBLE: &str = "openai-compatible";

/// Providers that need more than a key and an address.
const LEFT_OUT: [AdapterKind; 1] = [AdapterKind::Vertex];

/// Why a provider's model cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProviderError {
    /// No provider has this name.
    #[error("there is no provider {}{likely}; there are {known}", quoted(name))]
    Unknown {
        /// The name that was given.
        name: String,
        /// `; did you mean "x"?` with the name that was probably meant; empty if no provider has a similar one.
        likely: String,
        /// The names of all providers, sorted, with commas between them.
        known: String,
    },
    /// The address is not an `http` or `https` URL, or has a user name, a password or a part behind `#`.
    #[error("the url {problem}; write it as \"https://models.example.org/v1\"")]
    Url {
        /// What is wrong with it. It does not show the address: somebody may have written a key into it.
        problem: String,
    },
    /// What should be the name of a variable is none. It is not shown, because it may be a key.
    #[error(
        "a key is named by the variable of the environment that it is in, as OPENAI_API_KEY; it is not written here"
    )]
    KeyVariable,
}

/// The provider of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Provider {
    name: Arc<str>,
    kind: AdapterKind,
}

impl Provider {
    /// The provider of this name; `-` and `_` are the same.
    pub(super) fn of(name: &str) -> Result<Self, ProviderError> {
        let kind = match name.replace('-', "_").as_str() {
            "openai_compatible" => Some(AdapterKind::OpenAI),
            lower => all().find(|kind| kind.as_lower_str() == lower),
        };
        let Some(kind) = kind else {
            let known = names();
            let likely = nearest(name, known.iter().map(String::as_str));
            let (likely, known) = (did_you_mean(likely.as_deref()), known.join(", "));
            return Err(ProviderError::Unknown { name: name.to_owned(), likely, known });
        };
        let name = if name.replace('_', "-") == COMPATIBLE { COMPATIBLE.into() } else { shown(kind).into() };
        Ok(Self { name, kind })
    }

    /// The provider of a model by the prefix of its name; `None` if the prefix is unknown.
    pub(super) fn of_model(model: &str) -> Option<Self> {
        let kind = AdapterKind::from_model(model).ok().filter(|kind| *kind != AdapterKind::Ollama)?;
        // One wire format of a provider is another kind, but not another provider.
        let kind = if kind == AdapterKind::OpenAIResp { AdapterKind::OpenAI } else { kind };
        all().find(|other| *other == kind).map(|kind| Self { name: shown(kind).into(), kind })
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(super) fn is_compatible(&self) -> bool {
        &*self.name == COMPATIBLE
    }

    /// The variable that its key is in, unless an entry says otherwise.
    pub(super) fn key_variable(&self) -> Option<&'static str> {
        if self.is_compatible() { None } else { self.kind.default_key_env_name() }
    }

    /// The protocol of a model. Some models of OpenAI only have its newer protocol; other servers have the older one.
    pub(super) fn kind(&self, model: &str, is_elsewhere: bool) -> AdapterKind {
        match self.kind {
            AdapterKind::OpenAI if !is_elsewhere => match AdapterKind::from_model(model) {
                Ok(AdapterKind::OpenAIResp) => AdapterKind::OpenAIResp,
                Ok(_) | Err(_) => AdapterKind::OpenAI,
            },
            kind => kind,
        }
    }

    /// The connection settings.
    pub(super) fn connection(&self, address: Option<&Address>) -> ConnectionSettings {
        match address {
            Some(address) => ConnectionSettings::to(&address.0),
            None => {
                let is_local = matches!(self.kind, AdapterKind::Ollama | AdapterKind::Omlx);
                ConnectionSettings { is_here: is_local, is_plain: is_local }
            }
        }
    }
}

/// The names of all, sorted.
fn names() -> Vec<String> {
    let mut names: Vec<_> = all().map(shown).chain([COMPATIBLE.to_owned()]).collect();
    names.sort_unstable();
    names
}

pub(super) fn all() -> impl Iterator<Item = AdapterKind> {
    AdapterKind::all().iter().copied().filter(|kind| !LEFT_OUT.contains(kind))
}

fn shown(kind: AdapterKind) -> String {
    kind.as_lower_str().replace('_', "-")
}

/// The address of a server.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Address(Url);

impl Address {
    pub(super) fn of(text: &str) -> Result<Self, ProviderError> {
        let mut url = web::address(text).map_err(|problem| ProviderError::Url { problem })?;
        // Request paths are appended; without the slash, they would replace the last part.
        if !url.path().ends_with('/') {
            let path = format!("{}/", url.path());
            url.set_path(&path);
        }
        Ok(Self(url))
    }

    /// The address of an Ollama server, which Ollama's own programs accept without `http://` and port.
    pub(super) fn of_ollama(host: &str) -> Result<Self, ProviderError> {
        const PORT: u16 = 11434;
        let host = host.trim();
        let has_scheme = host.contains("://");
        let mut address = Self::of(&if has_scheme { host.to_owned() } else { format!("http://{host}") })?;
        if !has_scheme && address.0.port().is_none() {
            // Setting a port cannot fail for an address of this kind.
            let _ = address.0.set_port(Some(PORT));
        }
        // A server that listens on all addresses is reached on this machine.
        if address.0.host_str() == Some("0.0.0.0") {
            let _ = address.0.set_host(Some("127.0.0.1"));
        }
        Ok(address)
    }

    pub(super) fn url(&self) -> String {
        self.0.to_string()
    }

    /// Whether the connection is unencrypted and leaves this machine.
    pub(super) fn is_open(&self) -> bool {
        web::is_open(&self.0)
    }

    /// The server's address without secrets.
    pub(super) fn shown(&self) -> String {
        web::shown(&self.0)
    }
}

/// Checks that this can be the name of a variable.
pub(super) fn check_variable(name: &str) -> Result<(), ProviderError> {
    if is_variable(name) { Ok(()) } else { Err(ProviderError::KeyVariable) }
}
