//! The built-in agents beside those of a folder, and the models that both use.

use std::collections::BTreeSet;
use std::sync::Arc;

use callboard::AgentSpec;
use callboard::env::Env;
use callboard_agents::{BuiltIn, Definition, FakeModel, LlmAgent, Model, ModelChoice, Models, Teammate, Tools};
use callboard_server::AgentFiles;

/// The name of the model that needs no network.
pub(super) const FAKE: &str = "fake";

/// What follows the error of an agent for which no model is chosen.
pub(super) const NAME_ONE: &str = "; or name one with --model, as --model gpt-5-mini; --model fake needs no key";

/// The library's built-in agents, without those whose names others had when the folder was loaded; none where all of its agents are
/// programs and no model is available.
pub(super) struct BuiltIns {
    /// The agents of the folder.
    pub(super) definitions: Vec<Definition>,
    tools: Tools,
    /// The model that all use, if the command line names one.
    named: Option<String>,
    /// The names that other agents have.
    left: BTreeSet<String>,
    /// Whether there are no built-in agents, for want of a model.
    are_absent: bool,
}

impl BuiltIns {
    /// The built-in agents beside `definitions`, the agents of a folder, which have these models.
    pub(super) fn of(
        definitions: Vec<Definition>,
        tools: Tools,
        named: Option<&str>,
        left: BTreeSet<String>,
        models: Option<&Models>,
    ) -> Self {
        // Programs need no model, so there may be none.
        let are_programs = definitions.iter().all(|definition| definition.process.is_some());
        let has_model = |models: &Models| model(models, &BuiltIn::Summarizer.definition(), None).is_ok();
        let are_absent = named.is_none() && are_programs && !models.is_some_and(has_model);
        Self { definitions, tools, named: named.map(str::to_owned), left, are_absent }
    }

    /// The built-in agents that are there.
    pub(super) fn all(&self) -> impl Iterator<Item = BuiltIn> {
        let beside = BuiltIn::beside(&self.definitions).filter(|_| !self.are_absent);
        beside.filter(|agent| !self.left.contains(agent.name()))
    }

    /// That they are in no file, and what they are for.
    pub(super) fn files(&self) -> AgentFiles {
        let described = |agent: BuiltIn| (agent.name().to_owned(), agent.definition().description);
        AgentFiles {
            built_in: self.names(),
            descriptions: self.all().map(described).collect(),
            ..AgentFiles::default()
        }
    }

    /// Their names.
    pub(super) fn names(&self) -> BTreeSet<String> {
        self.all().map(|agent| agent.name().to_owned()).collect()
    }

    /// The built-in agents, with these models, which the folder's agents have now.
    ///
    /// # Errors
    /// One of them has no model.
    pub(super) fn specs(&self, models: Option<&Models>) -> Result<Vec<AgentSpec>, String> {
        let none = Models::new(&Env::system());
        let models = models.unwrap_or(&none);
        self.all().map(|agent| self.spec(agent, models)).collect()
    }

    fn spec(&self, agent: BuiltIn, models: &Models) -> Result<AgentSpec, String> {
        let (definition, named) = (agent.definition(), self.named.as_deref());
        // Without a default model, the model of the folder's first agent that has one is used.
        let usual = model(models, &definition, named);
        let first = self.definitions.iter().find(|definition| definition.process.is_none());
        let model = usual.or_else(|error| first.map_or(Err(error), |first| model(models, first, named)))?;
        let team: Vec<Teammate> = self.definitions.iter().map(teammate).collect();
        let agent = LlmAgent::new(&definition, model, &self.tools, &team).map_err(|error| error.to_string())?;
        Ok(agent.spec())
    }
}

pub(super) fn teammate(definition: &Definition) -> Teammate {
    Teammate { name: definition.name.to_string(), description: definition.description.clone() }
}

/// The model that an agent uses.
pub(super) fn model(models: &Models, definition: &Definition, named: Option<&str>) -> Result<Arc<dyn Model>, String> {
    let choice = named.map_or_else(|| definition.model.clone(), ModelChoice::of);
    if choice.preferred.as_deref() == Some(FAKE) {
        return Ok(Arc::new(FakeModel));
    }
    let chosen = models.chosen(&choice).map_err(|error| {
        let remedy = if choice == ModelChoice::default() { NAME_ONE } else { "" };
        format!("{error}{remedy}")
    })?;
    Ok(Arc::new(chosen))
}
