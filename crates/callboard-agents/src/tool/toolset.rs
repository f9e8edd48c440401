//! The tools of an agent, by name, each with its schema compiled.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use callboard::actors::Mode;
use callboard::messages::{EffectClass, Json};
use callboard_documents::schema::{self, Validator};
use callboard_text::{cut, quoted};
use futures::future::join_all;

use super::gate::Gate;
use super::{Tool, ToolError, ToolSpec};
use crate::meta::MetaTool;
use crate::roles::{AgentGrant, Asked};

/// The tools of an agent, by name. A cheap clone.
#[derive(Clone, Default)]
pub struct Tools(Arc<BTreeMap<Arc<str>, Entry>>);

/// A tool with its schema compiled.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) spec: Arc<ToolSpec>,
    validator: Arc<Validator>,
    /// Shared by all agents that have the tool.
    pub(crate) gate: Arc<Gate>,
    pub(crate) tool: Arc<dyn Tool>,
}

/// Why a tool was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToolsError {
    /// Providers would not take its name.
    #[error("a tool's name has 1 to 64 letters, digits, `_` and `-`; {} has not", quoted(.0))]
    Name(String),
    /// The name is one of the runtime's own actions.
    #[error("no tool can be named {}: the runtime has the name for itself; choose another one", quoted(.0))]
    Reserved(String),
    /// Two tools have one name.
    #[error("two tools are named {}; give one of them another name", quoted(.0))]
    Twice(String),
    /// The schema of its arguments cannot be used.
    #[error("the schema of the tool {}: {problem}", quoted(name))]
    Schema {
        /// The tool, by its name.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
}

const MAX_NAME: usize = 64;

/// The names of the runtime's own actions, about which people and policies decide.
const RESERVED: [&str; 2] = ["handoff", "delegation"];

/// Whether the name, in any case, is reserved for actions of the runtime or for a tool of the loop.
fn is_reserved(name: &str) -> bool {
    let of_loop = MetaTool::ALL.map(MetaTool::name);
    RESERVED.iter().chain(&of_loop).any(|reserved| name.eq_ignore_ascii_case(reserved))
}

impl Tools {
    /// A set without tools.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// These and another one.
    ///
    /// # Errors
    /// See [`ToolsError`]. A schema whose references lead outside it is refused: nothing is fetched.
    pub fn with(mut self, tool: impl Tool) -> Result<Self, ToolsError> {
        self.add(Arc::new(tool))?;
        Ok(self)
    }

    /// As [`Tools::with`], in place.
    ///
    /// # Errors
    /// As for [`Tools::with`].
    pub fn add(&mut self, tool: Arc<dyn Tool>) -> Result<(), ToolsError> {
        let entry = Entry::of(tool)?;
        if self.0.contains_key(&entry.spec.name) {
            return Err(ToolsError::Twice(entry.spec.name.to_string()));
        }
        Arc::make_mut(&mut self.0).insert(Arc::clone(&entry.spec.name), entry);
        Ok(())
    }

    /// Whether one of them may change while a board runs.
    pub(crate) fn may_change(&self) -> bool {
        self.0.values().any(|entry| entry.tool.renewed().is_some())
    }

    /// The present tools, if one of them has changed. A tool whose new schema cannot be compiled stays as it was.
    pub(crate) async fn renewed(&self) -> Option<Self> {
        let asked = self.0.values().filter_map(|entry| entry.tool.renewed());
        let changed: Vec<Arc<dyn Tool>> = join_all(asked).await.into_iter().flatten().collect();
        let mut renewed = self.clone();
        for tool in changed {
            let Ok(new) = Entry::of(tool) else { continue };
            if let Some(entry) = Arc::make_mut(&mut renewed.0).get_mut(&new.spec.name) {
                *entry = Entry { gate: Arc::clone(&entry.gate), ..new };
            }
        }
        (!Arc::ptr_eq(&renewed.0, &self.0)).then_some(renewed)
    }

    /// Those that an agent of this mode may have, of those that it is allowed; without a list, all of them.
    #[must_use]
    pub fn for_agent(&self, mode: Mode, allowed: Option<&[Arc<str>]>) -> Self {
        let is_allowed = |entry: &Entry| {
            entry.spec.effect.fits(mode) && allowed.is_none_or(|allowed| allowed.contains(&entry.spec.name))
        };
        if self.0.values().all(is_allowed) {
            return self.clone();
        }
        let entries = self.0.iter().filter(|(_, entry)| is_allowed(entry));
        Self(Arc::new(entries.map(|(name, entry)| (Arc::clone(name), entry.clone())).collect()))
    }

    /// Those that the grant of an agent includes.
    pub(crate) fn granted(&self, grant: &AgentGrant) -> Self {
        let has = |entry: &Entry| grant.has(entry.asked());
        if self.0.values().all(has) {
            return self.clone();
        }
        let entries = self.0.iter().filter(|(_, entry)| has(entry));
        Self(Arc::new(entries.map(|(name, entry)| (Arc::clone(name), entry.clone())).collect()))
    }

    /// Their names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(|name| &**name)
    }

    /// How models see them, sorted by name.
    pub fn specs(&self) -> impl Iterator<Item = &Arc<ToolSpec>> {
        self.0.values().map(|entry| &entry.spec)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Entry> {
        self.0.get(name)
    }
}

impl Entry {
    /// What an agent asks for that has the tool.
    pub(crate) fn asked(&self) -> Asked<'_> {
        Asked::Tool(&self.spec.name, Some(self.spec.effect))
    }

    fn of(tool: Arc<dyn Tool>) -> Result<Self, ToolsError> {
        let spec = Arc::new(tool.spec());
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if spec.name.is_empty() || spec.name.len() > MAX_NAME || !spec.name.chars().all(is_plain) {
            return Err(ToolsError::Name(spec.name.to_string()));
        }
        if is_reserved(&spec.name) {
            return Err(ToolsError::Reserved(spec.name.to_string()));
        }
        let wrong = |problem| ToolsError::Schema { name: spec.name.to_string(), problem };
        if spec.parameters.get("type").and_then(|kind| kind.as_str()) != Some("object") {
            return Err(wrong("the arguments of a tool are an object: write \"type\": \"object\"".to_owned()));
        }
        let validator = Arc::new(schema::ready(spec.parameters.value()).map_err(wrong)?);
        Ok(Self { spec, validator, gate: Arc::default(), tool })
    }

    /// Whether a use with these arguments may be repeated.
    pub(crate) fn class(&self, arguments: &Json) -> EffectClass {
        self.tool.class(arguments).unwrap_or(self.spec.class)
    }

    /// Checks these arguments.
    ///
    /// # Errors
    /// Why not, for the model.
    pub(crate) fn check(&self, arguments: &Json) -> Result<(), ToolError> {
        let name = &self.spec.name;
        if let Some(text) = arguments.as_str() {
            return Err(ToolError(format!("the arguments of {name} are not JSON: {}", cut(text))));
        }
        schema::check(&self.validator, arguments.value())
            .map_err(|problem| ToolError(format!("the arguments of {name} do not fit{problem}")))?;
        self.tool.check(arguments)
    }
}

impl fmt::Debug for Tools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;

    use super::*;
    use crate::tool;
    use callboard::messages::Effect;

    #[derive(serde::Deserialize, JsonSchema)]
    struct Nothing {}

    fn with(name: &str) -> Result<Tools, ToolsError> {
        Tools::new().with(tool(name, "Does nothing.", Effect::Reads, |_: Nothing, _| async { Ok("done".into()) }))
    }

    #[test]
    fn no_tool_has_a_name_that_the_runtime_has_for_itself() {
        let names = ["handoff", "Handoff", "delegation", "task", "HANDOFF_TO_AGENT"];
        for name in names.into_iter().chain(MetaTool::ALL.map(MetaTool::name)) {
            assert!(matches!(with(name), Err(ToolsError::Reserved(refused)) if refused == name), "{name}");
            // The name of a server's tool begins with the server's name.
            assert!(with(&format!("mcp__files__{name}")).is_ok(), "{name}");
        }
        assert!(with("hand_off").is_ok());
    }
}
