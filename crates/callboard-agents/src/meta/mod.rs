//! Tools that are part of the loop itself: they ask people and other agents, pass control on, and find further tools.

mod arguments;
mod search;

use std::sync::{Arc, LazyLock};

use callboard::messages::Effect;
use serde_json::Value;

use super::roles::Asked;
use super::teammate::Teammate;
use super::tool::ToolSpec;

use arguments::AcceptHandoff;
pub(crate) use arguments::{AskUser, Draft, HandoffToAgent, Task, ToolSearch};
pub(crate) use search::search;

/// A tool of the loop itself: it asks people, works with other agents, finds tools, or makes agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MetaTool {
    /// Asks people, and waits for what they answer.
    AskUser,
    /// Gives a task to another agent, and waits for what it answers: a delegation, under the name that models know.
    Task,
    /// Passes control to another agent for good, which ends the loop.
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
    /// All tools of the loop, in the order of their variants.
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

    /// Returns whether it is about passing control on. The model has such a tool only where control may be passed on.
    #[must_use]
    pub const fn is_handoff(self) -> bool {
        match self {
            Self::HandoffToAgent | Self::AcceptHandoff => true,
            Self::AskUser | Self::Task | Self::ToolSearch | Self::AgentCreate | Self::AgentUpdate | Self::AgentKeep => {
                false
            }
        }
    }

    /// Returns whether an agent has it only if its definition names it.
    #[must_use]
    pub const fn is_on_request(self) -> bool {
        match self {
            Self::AgentCreate | Self::AgentUpdate | Self::AgentKeep => true,
            Self::AskUser | Self::Task | Self::HandoffToAgent | Self::AcceptHandoff | Self::ToolSearch => false,
        }
    }

    /// Returns the name that models see, and by which `allowed_tools` of a definition names the tool.
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

    /// Returns the tool that models see under this name; `None` if the loop has no such tool.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// Returns how models see the tool, without the agents that [`AgentLoop::meta_for`](crate::AgentLoop::meta_for)
    /// adds to it.
    #[must_use]
    pub fn spec(self) -> &'static Arc<ToolSpec> {
        static SPECS: LazyLock<[Arc<ToolSpec>; 8]> = LazyLock::new(|| MetaTool::ALL.map(|tool| Arc::new(tool.made())));
        &SPECS[self as usize]
    }

    /// What an agent asks for that has it.
    pub(crate) fn asked(self) -> Asked<'static> {
        Asked::Tool(self.name(), Some(self.effect()))
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
                 conversation the other agent receives what `context` selects: write all else that it needs into the \
                 task.",
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
                "Replaces an agent that you have made: this definition takes the place of the whole earlier one.",
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

/// A tool of the loop for an agent with a team: it lists the agents that can be named, and their purposes.
pub(crate) fn for_team(tool: MetaTool, team: &[Teammate]) -> Arc<ToolSpec> {
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

/// Whether a tool of this name creates agents.
pub(crate) fn makes_agents(name: &str) -> bool {
    MetaTool::of(name).is_some_and(MetaTool::is_on_request)
}
