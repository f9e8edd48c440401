//! Tools that are part of the loop itself: they ask people and other agents, pass control on, and find further tools.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use callboard::messages::{Command, ConversationStrategy, Effect, Json};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::llm::Teammate;
use super::made::Draft;
use super::tool::{ToolSpec, Tools};

/// A tool of the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MetaTool {
    /// Asks people, and waits for what they answer.
    AskUser,
    /// Gives a task to another agent, and waits for what it answers: a delegation, under the name that models know.
    Task,
    /// Passes control to another agent.
    HandoffToAgent,
    /// Reads what the agent before has left.
    AcceptHandoff,
    /// Finds tools that are there but not shown yet.
    ToolSearch,
    /// Makes another agent for the rest of the run.
    AgentCreate,
    /// Changes an agent that this one has made.
    AgentUpdate,
    /// Asks people to keep an agent that this one has made.
    AgentKeep,
}

impl MetaTool {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::AskUser,
        Self::Task,
        Self::HandoffToAgent,
        Self::AcceptHandoff,
        Self::ToolSearch,
        Self::AgentCreate,
        Self::AgentUpdate,
        Self::AgentKeep,
    ];

    /// Whether it is about passing control on.
    #[must_use]
    pub const fn is_handoff(self) -> bool {
        match self {
            Self::HandoffToAgent | Self::AcceptHandoff => true,
            Self::AskUser | Self::Task | Self::ToolSearch | Self::AgentCreate | Self::AgentUpdate | Self::AgentKeep => {
                false
            }
        }
    }

    /// Whether an agent has it only if its definition names it.
    #[must_use]
    pub const fn is_on_request(self) -> bool {
        match self {
            Self::AgentCreate | Self::AgentUpdate | Self::AgentKeep => true,
            Self::AskUser | Self::Task | Self::HandoffToAgent | Self::AcceptHandoff | Self::ToolSearch => false,
        }
    }

    /// The name that models see.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AskUser => "AskUser",
            Self::Task => "Task",
            Self::HandoffToAgent => "handoff_to_agent",
            Self::AcceptHandoff => "accept_handoff",
            Self::ToolSearch => "ToolSearch",
            Self::AgentCreate => "agent_create",
            Self::AgentUpdate => "agent_update",
            Self::AgentKeep => "agent_keep",
        }
    }

    /// The tool of this name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// How models see it.
    #[must_use]
    pub fn spec(self) -> &'static Arc<ToolSpec> {
        static SPECS: LazyLock<[Arc<ToolSpec>; 8]> = LazyLock::new(|| MetaTool::ALL.map(|tool| Arc::new(tool.made())));
        &SPECS[self as usize]
    }

    fn effect(self) -> Effect {
        match self {
            Self::AcceptHandoff | Self::ToolSearch => Effect::Reads,
            Self::AskUser
            | Self::Task
            | Self::HandoffToAgent
            | Self::AgentCreate
            | Self::AgentUpdate
            | Self::AgentKeep => Effect::Notes,
        }
    }

    fn made(self) -> ToolSpec {
        let (name, effect) = (self.name(), self.effect());
        match self {
            Self::AskUser => ToolSpec::of::<AskUser>(
                name,
                "Asks the person who is responsible for this run, and waits for the answer. Use it when only they can know or \
                 decide.",
                effect,
            ),
            Self::Task => ToolSpec::of::<Task>(
                name,
                "Gives a task to another agent and waits for its answer. Several calls in one message run side by side. Of this \
                 conversation the other agent is told what `context` says: write all else that it needs into the task.",
                effect,
            ),
            Self::HandoffToAgent => ToolSpec::of::<HandoffToAgent>(
                name,
                "Passes control to another agent for good. This conversation ends with it.",
                effect,
            ),
            Self::AcceptHandoff => ToolSpec::of::<AcceptHandoff>(
                name,
                "Reads what the agent that passed control to you has left: its context, its artifacts, and where the work \
                 stands.",
                effect,
            ),
            Self::ToolSearch => ToolSpec::of::<ToolSearch>(
                name,
                "Finds further tools by words that their names or descriptions have. What is found can be used from the next \
                 message on.",
                effect,
            ),
            Self::AgentCreate => ToolSpec::of::<Draft>(
                name,
                "Makes an agent for the rest of this run, which you can give tasks by its name. It has at most your tools, and \
                 people are asked about what it does outside.",
                effect,
            ),
            Self::AgentUpdate => ToolSpec::of::<Draft>(
                name,
                "Makes an agent anew that you have made: what you say here takes the place of all that you said before.",
                effect,
            ),
            Self::AgentKeep => ToolSpec::of::<Draft>(
                name,
                "Asks people whether an agent that you have made stays after this run, as you describe it here. If they approve, \
                 agents of later runs can give it tasks by its name.",
                effect,
            ),
        }
    }
}

/// Arguments of [`MetaTool::AskUser`].
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AskUser {
    /// The question, with all that is needed to answer it.
    pub(super) question: String,
    /// Answers to choose from, if it is a choice.
    #[serde(default)]
    pub(super) choices: Vec<String>,
}

/// Arguments of [`MetaTool::Task`].
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Task {
    /// The agent: its name, or a role or capability.
    pub(super) agent: String,
    /// What to do, in words.
    pub(super) task: String,
    /// Values to work on, beside the words.
    #[serde(default)]
    pub(super) input: Option<Value>,
    /// What it is told of this conversation; what is usual for you if nothing is said.
    #[serde(default)]
    #[schemars(with = "Option<StrategySchema>")]
    pub(super) context: Option<ConversationStrategy>,
}

/// What models read of [`ConversationStrategy`].
#[allow(dead_code, reason = "the schema of `ConversationStrategy`, which has none of its own")]
#[derive(JsonSchema)]
#[schemars(rename = "ConversationStrategy", rename_all = "snake_case")]
enum StrategySchema {
    /// Nothing: the task has all that it needs.
    None,
    /// A summary of it, which another agent makes.
    Summary,
    /// Those passages that have words of the task.
    Filtered,
    /// All of it; of what is too long, the newest part.
    Full,
}

/// Arguments of [`MetaTool::HandoffToAgent`].
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct HandoffToAgent {
    /// The agent: its name, or a role or capability.
    pub(super) agent_name: String,
    /// What it is to do, in words.
    pub(super) task: String,
    /// What it needs to know, by name.
    #[serde(default)]
    pub(super) context: Map<String, Value>,
}

/// Arguments of [`MetaTool::AcceptHandoff`].
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AcceptHandoff {}

/// Arguments of [`MetaTool::ToolSearch`].
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ToolSearch {
    /// Words to look for.
    pub(super) query: String,
}

impl HandoffToAgent {
    /// The command that passes control on.
    pub(super) fn command(self) -> Command {
        let mut context = self.context;
        context.insert("task_description".to_owned(), Value::from(self.task.as_str()));
        Command::output(self.task).with("context", Json::from(Value::Object(context))).goto(&self.agent_name)
    }
}

/// A tool of the loop as the models of an agent see it that has a team: whom it may name, and what each is for.
pub(super) fn for_team(tool: MetaTool, team: &[Teammate]) -> Arc<ToolSpec> {
    let shared = Arc::clone(tool.spec());
    let argument = match tool {
        MetaTool::Task => "/properties/agent",
        MetaTool::HandoffToAgent => "/properties/agent_name",
        MetaTool::AskUser
        | MetaTool::AcceptHandoff
        | MetaTool::ToolSearch
        | MetaTool::AgentCreate
        | MetaTool::AgentUpdate
        | MetaTool::AgentKeep => return shared,
    };
    if team.is_empty() {
        return shared;
    }
    let mut spec = (*shared).clone();
    let mut parameters = spec.parameters.value().clone();
    if let Some(Value::Object(agent)) = parameters.pointer_mut(argument) {
        agent.insert("examples".to_owned(), team.iter().map(|mate| mate.name.as_str()).collect());
    }
    let lines = team.iter().map(|mate| format!("\n- {}: {}", mate.name, mate.description));
    spec.description = format!("{}\nThe agents are:{}", spec.description, lines.collect::<String>()).into();
    spec.parameters = parameters.into();
    Arc::new(spec)
}

/// Whether a tool of this name makes agents.
pub(super) fn makes_agents(name: &str) -> bool {
    MetaTool::of(name).is_some_and(MetaTool::is_on_request)
}

/// The most tools that one search gives.
const MAX_FOUND: usize = 8;

/// The tools of which the name or the description has words of the query; those with the most first.
pub(super) fn search(tools: &Tools, shown: &BTreeSet<Arc<str>>, query: &str) -> Vec<Arc<str>> {
    let words: Vec<String> =
        query.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase).collect();
    let score = |spec: &ToolSpec| {
        let (name, text) = (spec.name.to_lowercase(), spec.description.to_lowercase());
        words.iter().map(|word| 2 * usize::from(name.contains(word)) + usize::from(text.contains(word))).sum::<usize>()
    };
    let hidden = tools.specs().filter(|spec| !shown.contains(&spec.name));
    let mut found: Vec<(usize, &Arc<ToolSpec>)> =
        hidden.map(|spec| (score(spec), spec)).filter(|(score, _)| *score > 0).collect();
    found.sort_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.name.cmp(&other.1.name)));
    found.into_iter().take(MAX_FOUND).map(|(_, spec)| Arc::clone(&spec.name)).collect()
}
