//! Definitions in TOML, read so that everything that is wrong with one is reported at its place.

mod board;
mod capabilities;
mod delegation;
mod fields;
mod model_choice;
mod names;
mod output;
mod process;
mod prompt;
mod source;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use callboard::messages::AgentName;
use callboard_documents::toml::{DeTable, Fields, Item, text};
use callboard_documents::{Defect, Defects, Found, text_of};
use callboard_text::{did_you_mean, nearest, quoted};

use super::Definition;
use crate::permission::Tier;
use crate::roles::{AgentGrant, Asked, Roles};
use crate::tool::Tools;

use board::{announces, context, limits};
use capabilities::capabilities;
use delegation::delegation;
use fields::mode;
use model_choice::model;
use names::checked;
pub(crate) use names::name_alike;
use output::output;
use prompt::{check_prompt, sections};
pub use source::DefinitionSource;

const LONG: &str = "keep long texts for the prompt in files that the agent reads";
const HEADER: &str = "begin with [agent] and name = \"…\"; write [agent.model] and [agent.capabilities] below it";
const EXAMPLE_NAME: &str = "write name = \"…\" under [agent]";

/// Reads definitions, and checks them against what there is.
#[derive(Clone, Debug, Default)]
pub struct DefinitionReader {
    tools: Option<Tools>,
    models: Option<BTreeSet<String>>,
    root: Option<PathBuf>,
    roles: Roles,
    tier: Tier,
}

impl Definition {
    /// Reads one by itself: names of tools and models are not checked against anything.
    ///
    /// ```
    /// use callboard_agents::Definition;
    /// let reviewer = Definition::from_toml("reviewer.toml", r#"
    ///     [agent]
    ///     name = "reviewer"
    ///     mode = "explore"
    ///     system_prompt = "You review what {{ previous_agent }} has written."
    ///
    ///     [agent.model]
    ///     preferred = "claude-sonnet-4-5"
    /// "#)?;
    /// assert_eq!(reviewer.max_iterations, 25);
    /// # Ok::<(), callboard_agents::Defects>(())
    /// ```
    ///
    /// # Errors
    /// Everything that is wrong with the text.
    pub fn from_toml(origin: &str, text: &str) -> Result<Self, Defects> {
        DefinitionReader::default().read(origin, text)
    }

    /// Creates a reader. It accepts any tool, model and program until [`DefinitionReader::tools`],
    /// [`DefinitionReader::models`] and [`DefinitionReader::root`] set what there is.
    #[must_use]
    pub fn reader() -> DefinitionReader {
        DefinitionReader::default()
    }
}

impl DefinitionReader {
    /// Sets the tools that there are, beside those of the loop itself. Without them any name is taken for one.
    #[must_use]
    pub fn tools(mut self, tools: &Tools) -> Self {
        self.tools = Some(tools.clone());
        self
    }

    /// Sets the names of the models that there are. Without them any name is taken for one.
    #[must_use]
    pub fn models<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.models = Some(names.into_iter().map(str::to_owned).collect());
        self
    }

    /// Sets the folder that programs start in. With it, programs that agents are, their folders and the variables that
    /// they are passed have to be there.
    #[must_use]
    pub fn root(mut self, folder: impl Into<PathBuf>) -> Self {
        self.root = Some(folder.into());
        self
    }

    /// Sets the roles that definitions may have (those that are built in). What a definition has is within what its role grants, and
    /// one that asks for more has a defect.
    #[must_use]
    pub fn roles(mut self, roles: &Roles) -> Self {
        self.roles = roles.clone();
        self
    }

    /// The definition is compiled in; no file can claim this.
    pub(crate) fn built_in(mut self) -> Self {
        self.tier = Tier::BuiltIn;
        self
    }

    /// Reads one definition. `origin` is what errors call the text, a file's name for example.
    ///
    /// # Errors
    /// Everything that is wrong with the text.
    pub fn read(&self, origin: &str, text: &str) -> Result<Definition, Defects> {
        let mut found = Found::default();
        let read =
            callboard_documents::toml::read(text, LONG, &mut found, |document, found| self.document(document, found));
        match found.or(read) {
            Ok(Some(definition)) => Ok(definition),
            // Nothing is made of a text without a defect.
            Ok(None) => {
                Err(Defects::of(origin, Some(text), vec![Defect::new(&None, "there is no agent in this text")]))
            }
            Err(defects) => Err(Defects::of(origin, Some(text), defects)),
        }
    }

    /// Reads a definition. Its name is not compared with others.
    ///
    /// # Errors
    /// Everything that is wrong with the text.
    pub(crate) fn read_source(
        &self,
        DefinitionSource { origin, bytes }: &DefinitionSource,
    ) -> Result<Definition, Defects> {
        let text = text_of(bytes)
            .map_err(|defect| Defects::of(origin, Some(&String::from_utf8_lossy(bytes)), vec![defect]))?;
        self.read(origin, text)
    }

    /// Reads several, which must have names of their own.
    #[must_use]
    pub fn all(&self, sources: &[DefinitionSource]) -> Vec<Result<Definition, Defects>> {
        let mut owners: BTreeMap<AgentName, &str> = BTreeMap::new();
        let read = sources.iter().map(|source| {
            let definition = self.read_source(source)?;
            if let Some(owner) = owners.insert(definition.name.clone(), &source.origin) {
                let problem = format!("{owner} has an agent of the name {} too", quoted(definition.name.as_str()));
                let defect = Defect::new(&None, problem).advise("give one of them another name");
                return Err(Defects::of(&source.origin, text_of(&source.bytes).ok(), vec![defect]));
            }
            Ok(definition)
        });
        let mut read: Vec<Result<Definition, Defects>> = read.collect();
        let names: Vec<AgentName> = read.iter().flatten().map(|definition| definition.name.clone()).collect();
        for (definition, source) in read.iter_mut().zip(sources) {
            let alike = definition.as_ref().ok().and_then(|it| name_alike(&it.name, names.iter()));
            if let Some(defect) = alike {
                *definition = Err(Defects::of(&source.origin, text_of(&source.bytes).ok(), vec![defect]));
            }
        }
        read
    }

    fn document(&self, document: &DeTable<'_>, found: &mut Found) -> Option<Definition> {
        for key in document.keys().filter(|key| key.get_ref() != "agent") {
            let likely = nearest(key.get_ref(), ["agent"]);
            let problem =
                format!("{} is not part of an agent{}", quoted(key.get_ref()), did_you_mean(likely.as_deref()));
            found.add(Defect::new(&Some(key.span()), problem).advise("everything stands under `agent`"));
        }
        match document.get("agent") {
            Some(item) => self.agent(item, found),
            None => {
                if document.is_empty() {
                    found.add(Defect::new(&Some(0..0), "there is no agent in this text").advise(HEADER));
                }
                None
            }
        }
    }

    fn agent(&self, item: &Item<'_>, found: &mut Found) -> Option<Definition> {
        let mut fields = Fields::of("an agent", item, "write [agent], with one pair of brackets", found)?;
        let name = fields.required("name", EXAMPLE_NAME, found).and_then(|field| text(field, found));
        let name = name.and_then(|name| checked("agent", name, found));
        // The other defects are reported also for an agent without a valid name.
        let made = name.as_ref().and_then(|name| AgentName::new(&name.value).ok());
        let placeholder = || AgentName::new("agent").ok();
        let mut definition = Definition::new(made.or_else(placeholder)?, self.tier);
        if let Some(description) = fields.text("description", found) {
            definition.description = description.value;
        }
        // Everything else is read within what the role grants.
        let before = found.len();
        let role = fields.get("announces").and_then(|item| announces(item, &mut definition, found));
        definition.grant = match self.tier {
            Tier::UserDefined if found.len() == before => self.roles.of(definition.role.as_deref()),
            Tier::UserDefined | Tier::Dynamic | Tier::BuiltIn => AgentGrant::of_code(),
        };
        definition.authority = definition.grant.authority();
        match fields.get("process") {
            Some(item) => {
                definition.process =
                    process::process(item, self.root.as_deref(), (&definition.grant, role), found).map(Arc::new);
                process::refuse(&mut fields, &process::THINKING, found);
                if let Some(item) = fields.get("capabilities") {
                    process::capabilities(item, &mut definition, found);
                }
            }
            None => self.thinking(&mut fields, &mut definition, found),
        }
        if let Some(item) = fields.get("limits") {
            limits(item, &mut definition, found);
        }
        if let Some(item) = fields.get("context") {
            context(item, &mut definition, found);
        }
        if definition.namespaces.is_none() && !definition.grant.has(Asked::Namespace("run")) {
            definition.namespaces = Some(Vec::new());
        }
        fields.close(found);
        name.map(|_| definition)
    }

    /// The settings of an agent that uses a model.
    fn thinking(&self, fields: &mut Fields<'_>, definition: &mut Definition, found: &mut Found) {
        if let Some(mode) = fields.field("mode").and_then(|field| mode(field, found)) {
            definition.mode = mode;
        }
        let prompt = fields.text("system_prompt", found);
        let sections = fields.field("sections").map(|field| sections(field, found)).unwrap_or_default();
        if let Some(item) = fields.get("model") {
            model(item, self.models.as_ref(), definition, found);
        }
        if let Some(item) = fields.get("capabilities") {
            capabilities(item, self.tools.as_ref(), definition, found);
        }
        if let Some(item) = fields.get("delegation") {
            delegation(item, definition, found);
        }
        if let Some(item) = fields.get("output") {
            definition.output = output(item, found);
        }
        check_prompt(definition, prompt, sections, found);
    }
}
