//! An agent that thinks with a language model.

use std::sync::Arc;

use callboard::actors::{Agent, AgentSpec, Turn, TurnError};
use callboard::messages::{Command, Json, Message};
use callboard_documents::template::Fault;
use futures::FutureExt as _;

use super::definition::{Definition, DefinitionError};
use super::dynamic;
use super::looping::AgentLoop;
use super::meta::{Draft, MetaTool};
use super::model::Model;
use super::prompt::{Prompt, PromptValues};
use super::teammate::Teammate;
use super::tool::Tools;

/// An agent as its [`Definition`] says, with a model and tools. A cheap clone.
///
/// ```
/// use callboard::prelude::*;
/// use callboard_agents::testing::ScriptedModel;
/// use callboard_agents::{Definition, LlmAgent, Tools};
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let definition = Definition::from_toml("poet.toml", "[agent]\nname = \"poet\"\nsystem_prompt = \"You are {{ agent.name }}.\"")?;
/// let model = ScriptedModel::new().says("Leaves fall.");
/// let poet = LlmAgent::new(&definition, std::sync::Arc::new(model), &Tools::new(), &[])?;
/// let board = Callboard::builder().with(poet.spec()).start().await?;
/// let run = board.submit(Task::new("A line about autumn, please.")).await?;
/// assert_eq!(run.result().await?.output, "Leaves fall.");
/// # board.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct LlmAgent(Arc<Parts>);

#[derive(Clone, Debug)]
struct Parts {
    definition: Definition,
    team: Vec<Teammate>,
    /// All tools that [`LlmAgent::new`] was given, also those that the agent may not use. Prompts can list them.
    board_tools: Tools,
    thinker: AgentLoop,
    prompt: Prompt,
}

impl LlmAgent {
    /// Creates the agent of a definition, with those of `tools` that the definition permits. `team` lists the other
    /// agents, which its prompt and its model's tools name.
    ///
    /// # Errors
    /// Its prompt names what nobody supplies, it may use a tool that is not there, its budget is less than one call of its
    /// model may need, or it is a program.
    pub fn new(
        definition: &Definition,
        model: Arc<dyn Model>,
        tools: &Tools,
        team: &[Teammate],
    ) -> Result<Self, DefinitionError> {
        let agent = || definition.name.to_string();
        if definition.process.is_some() {
            return Err(DefinitionError::IsProgram { agent: agent() });
        }
        let allowed = definition.allowed_tools.as_deref();
        for tool in allowed.unwrap_or_default() {
            let asked = match (MetaTool::of(tool), tools.get(tool)) {
                (Some(tool), _) => tool.asked(),
                (None, Some(entry)) => entry.asked(),
                (None, None) => return Err(DefinitionError::UnknownTool { agent: agent(), tool: tool.to_string() }),
            };
            if let Some((problem, advice)) = definition.grant.lacks(asked) {
                return Err(DefinitionError::NotGranted { agent: agent(), problem, advice });
            }
        }
        let team = with_built_in(team, definition);
        let own = tools.for_agent(definition.mode, allowed).granted(&definition.grant);
        let prompt = Prompt::of(&definition.system_prompt, &definition.sections, definition.mode, &own)
            .map_err(|(section, Fault { problem, .. })| DefinitionError::Prompt { agent: agent(), section, problem })?;
        let is_allowed = |tool: &MetaTool| match allowed {
            Some(allowed) => allowed.iter().any(|name| **name == *tool.name()),
            // Without hidden tools there is nothing to search for.
            None => !tool.is_on_request() && (*tool != MetaTool::ToolSearch || !definition.hidden_tools.is_empty()),
        };
        let meta = MetaTool::ALL.into_iter().filter(|tool| is_allowed(tool) && definition.grant.has(tool.asked()));
        let thinker = AgentLoop::of(model)
            .tools(own)
            .hidden(definition.hidden_tools.iter().map(|name| &**name))
            .asking(definition.ask.iter().map(|name| &**name))
            .idempotent(definition.idempotent.iter().map(|name| &**name))
            .meta_for(meta, &team)
            .granting(&definition.grant)
            .max_iterations(definition.max_iterations)
            .max_tokens(definition.max_tokens)
            .token_budget(definition.tokens)
            .tier(definition.tier())
            .output(definition.output.clone())
            .conversation(definition.passed_context, definition.reported_tokens)
            .compact_at(definition.compact_at);
        let (needed, max_tokens) = (thinker.least_reservation(definition.authority), definition.max_tokens);
        if let Some(budget) = definition.tokens.filter(|budget| *budget < needed) {
            return Err(DefinitionError::Budget { agent: agent(), budget, needed, max_tokens });
        }
        // The prompt is compiled, so its source is dropped.
        let mut definition = definition.clone();
        (definition.system_prompt, definition.sections) = Default::default();
        Ok(Self(Arc::new(Parts { definition, team, board_tools: tools.clone(), thinker, prompt })))
    }

    /// The same agent without the tool that delegates tasks.
    pub(super) fn without_tasks(mut self) -> Self {
        let parts = Arc::make_mut(&mut self.0);
        parts.thinker = parts.thinker.clone().without(|tool| tool == MetaTool::Task);
        self
    }

    #[cfg(test)]
    pub(crate) fn tool_names(&self) -> Vec<String> {
        self.0.thinker.tool_names().map(str::to_owned).collect()
    }

    /// Returns the spec that a board runs the agent by: the settings of its definition, and whether its tools have
    /// effects.
    #[must_use]
    pub fn spec(&self) -> AgentSpec {
        let (this, definition) = (self.clone(), &self.0.definition);
        let has_effects = self.0.thinker.own_tools().specs().any(|spec| spec.effect.is_dangerous());
        let keeps_agents = self.0.thinker.tool_names().any(|name| name == MetaTool::AgentKeep.name());
        let spec = definition.on_a_board(AgentSpec::new(definition.name.as_str(), move || this.clone()));
        let spec = spec.with_effects(has_effects);
        if keeps_agents { spec.keeps_agents() } else { spec }
    }
}

/// The team, and the built-in agents that the agent knows.
fn with_built_in(team: &[Teammate], definition: &Definition) -> Vec<Teammate> {
    let mut team: Vec<Teammate> = team.iter().filter(|mate| mate.name != definition.name.as_str()).cloned().collect();
    for agent in &definition.built_in_team {
        // A built-in agent that the user has replaced is in the team already.
        if team.iter().all(|mate| mate.name != agent.name()) && definition.name.as_str() != agent.name() {
            team.push(Teammate { name: agent.name().to_owned(), description: agent.definition().description });
        }
    }
    team
}

impl Agent for LlmAgent {
    #[expect(
        clippy::manual_async_fn,
        reason = "an `async fn` has room for its arguments twice, and most agents wait here"
    )]
    fn turn(&self, turn: Turn) -> impl Future<Output = Result<Command, TurnError>> + Send {
        async move {
            let thinker = match self.0.thinker.own_tools().may_change() {
                true => self.0.thinker.clone().renewed().boxed().await,
                false => self.0.thinker.clone(),
            };
            let (thinker, messages) = self.0.begin(&turn, thinker)?;
            thinker.turn(&turn, messages).await
        }
    }

    /// A dynamic agent with the same models, and with those of its tools that the draft names.
    fn make(&self, draft: &Json) -> Result<AgentSpec, String> {
        let draft: Draft = draft.parse().map_err(|error| error.to_string())?;
        let Parts { definition, thinker, team, .. } = &*self.0;
        let has = thinker.tool_names().map(Arc::from).collect();
        let definition = dynamic::within(definition, &has, &draft)?;
        let (model, own) = (Arc::clone(thinker.model()), thinker.own_tools());
        let made = Self::new(&definition, model, own, team).map_err(|error| error.to_string())?;
        Ok(made.spec())
    }
}

impl Parts {
    /// The loop of a turn, with its prompt, and the messages that it begins with.
    fn begin(&self, turn: &Turn, thinker: AgentLoop) -> Result<(AgentLoop, Vec<Message>), TurnError> {
        let system = self.prompt(turn, thinker.own_tools()).map_err(TurnError::terminal)?;
        let mut messages = turn.conversation()?;
        // They are kept until the model has answered.
        messages.reserve_exact(1);
        messages.push(match turn.input_json().as_str() {
            Some(text) => Message::user(text),
            None => Message::user(turn.input_json().to_string()),
        });
        Ok((thinker.system(system), messages))
    }

    fn prompt(&self, turn: &Turn, tools: &Tools) -> Result<String, String> {
        let values = PromptValues {
            agent: &self.definition,
            tools,
            board_tools: &self.board_tools,
            team: &self.team,
            task: turn.task().body.as_ref().into(),
            input: turn.input_json().clone(),
            state: &|| turn.state().to_json(),
            previous_agent: Json::from(turn.previous_agent().map(|agent| agent.as_str())),
        };
        self.prompt.text(&values)
    }
}
