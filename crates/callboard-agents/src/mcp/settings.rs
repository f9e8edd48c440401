//! The settings of a server in the document.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use callboard::messages::Effect;
use reqwest::Url;

use crate::process::redacted;
use crate::secret::Secret;
use crate::tool::{USUAL_OUTPUT, USUAL_TIMEOUT};
use crate::web;

/// How long a server may take to start and to list its tools, by default: some programs are downloaded first.
pub(super) const USUAL_START: Duration = Duration::from_secs(30);

/// A server as a document declares it.
pub(super) struct Settings {
    pub(super) name: Arc<str>,
    /// The document and the line of its declaration, as `mcp.toml:3`.
    pub(super) place: Arc<str>,
    pub(super) reached: Reached,
    /// The tools that are used; by default all.
    pub(super) tools: Option<BTreeSet<String>>,
    pub(super) effect: Effect,
    /// The effects by tool, where they differ from the default.
    pub(super) effects: BTreeMap<String, Effect>,
    pub(super) timeout: Duration,
    pub(super) start_timeout: Duration,
    /// The most bytes of an answer of a tool that a model sees.
    pub(super) max_output: usize,
}

/// The address or program of a server.
pub(super) enum Reached {
    /// A program that is started, with its arguments.
    Program { command: Vec<String>, env: Vec<(String, String)>, env_from: Vec<Named> },
    /// An address.
    Address { url: Url, bearer: Option<Named> },
}

/// A variable of the board's environment and its value, if it is set.
pub(super) struct Named {
    pub(super) variable: String,
    pub(super) secret: Option<Secret>,
}

impl Settings {
    pub(super) fn new(name: &str, reached: Reached) -> Self {
        Self {
            name: name.into(),
            place: "".into(),
            reached,
            tools: None,
            effect: Effect::Executes,
            effects: BTreeMap::new(),
            timeout: USUAL_TIMEOUT,
            start_timeout: USUAL_START,
            max_output: USUAL_OUTPUT,
        }
    }

    /// The server as people know it: its program, or its address without secrets.
    pub(super) fn reached_by(&self) -> String {
        match &self.reached {
            Reached::Program { command, .. } => command.first().cloned().unwrap_or_default(),
            Reached::Address { url, .. } => web::shown(url),
        }
    }

    /// What using the tool may change. The server's own declaration is ignored.
    pub(super) fn effect_of(&self, tool: &str) -> Effect {
        self.effects.get(tool).copied().unwrap_or(self.effect)
    }

    /// The text without the secrets of the server.
    pub(super) fn redacted(&self, text: String) -> String {
        let named = match &self.reached {
            Reached::Program { env_from, .. } => env_from.as_slice(),
            Reached::Address { bearer, .. } => bearer.as_slice(),
        };
        redacted(named.iter().filter_map(|named| named.secret.as_ref()), text)
    }
}

impl Named {
    /// # Errors
    /// The variable is not set: what to do.
    pub(super) fn secret(&self) -> Result<&Secret, String> {
        self.secret.as_ref().ok_or_else(|| format!("needs the variable {}, which is not set; set it", self.variable))
    }
}
