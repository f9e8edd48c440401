//! A coordinator and its workers.

use std::fmt;
use std::sync::Arc;

use callboard::actors::AgentSpec;
use callboard::messages::{Complexity, Handoffs, Limits, Task};

use super::definition::Definition;
use super::definition::DefinitionError;
use super::llm::LlmAgent;
use super::meta::MetaTool;
use super::model::Model;
use super::teammate::Teammate;
use super::tool::Tools;

/// The most tasks that a run of a team may delegate for each worker, unless the run's class allows more.
const TASKS_EACH: u32 = 4;

/// An agent that gives tasks to others, and those others. The coordinator has the tool `Task`, and its prompt lists whom it may name and
/// what each is for. A worker begins each task with the words and values of that task alone: it sees nothing of the coordinator's
/// conversation, of what other workers do, or of the run's state. Its answer is all that comes back.
///
/// Nobody of a team passes control on (`handoff_to_agent`), and workers give no tasks, unless their definitions name `Task`
/// among their `allowed_tools`. What a worker cannot do is reported to the coordinator's model, which may ask another one.
///
/// A worker may also be any agent that the board has anyway ([`Team::with`]): one in Rust, a program, the coordinator of another
/// team, or a workflow ([`Builder::workflow`](callboard::runtime::Builder::workflow)).
///
/// ```
/// use callboard::prelude::*;
/// use callboard_agents::testing::ScriptedModel;
/// use callboard_agents::{Definition, Team};
/// use serde_json::json;
/// use std::sync::Arc;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let agent = |text: &str| Definition::from_toml("agent.toml", text);
/// let lead = agent("[agent]\nname = \"lead\"\nsystem_prompt = \"You have others work.\"")?;
/// let poet = agent("[agent]\nname = \"poet\"\ndescription = \"Writes poems.\"\nsystem_prompt = \"You write.\"")?;
/// let leads = ScriptedModel::new().calls("Task", json!({ "agent": "poet", "task": "One line on autumn." })).says("Here it is.");
/// let writes = ScriptedModel::new().says("Leaves fall.");
///
/// let team = Team::new(lead, Arc::new(leads.clone())).worker(poet, Arc::new(writes.clone()));
/// let board = team.specs()?.into_iter().fold(Callboard::builder(), |board, agent| board.with(agent)).start().await?;
/// let run = board.submit(team.task("I need a poem.")).await?;
/// assert_eq!(run.result().await?.output, "Here it is.");
/// assert_eq!(writes.requests()[0].messages[0], callboard::messages::Message::user("One line on autumn."));
/// # board.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone)]
#[must_use = "a team does nothing until a board has its agents"]
pub struct Team {
    coordinator: (Definition, Arc<dyn Model>),
    workers: Vec<(Definition, Arc<dyn Model>)>,
    others: Vec<Teammate>,
    tools: Tools,
}

impl Team {
    /// A coordinator that has no workers yet.
    pub fn new(coordinator: Definition, model: Arc<dyn Model>) -> Self {
        Self { coordinator: (coordinator, model), workers: Vec::new(), others: Vec::new(), tools: Tools::new() }
    }

    /// Adds a worker, with the model that it asks.
    pub fn worker(mut self, worker: Definition, model: Arc<dyn Model>) -> Self {
        self.workers.push((worker, model));
        self
    }

    /// Tells the coordinator of a worker that the board has anyway: an agent's name, a role or a capability, and what it is for.
    pub fn with(mut self, name: &str, description: &str) -> Self {
        self.others.push(Teammate { name: name.to_owned(), description: description.to_owned() });
        self
    }

    /// The tools that there are. Each has those that its definition lets it have.
    pub fn tools(mut self, tools: Tools) -> Self {
        self.tools = tools;
        self
    }

    /// The agents for a board, the coordinator first.
    ///
    /// # Errors
    /// A prompt cannot be used, or a definition names a tool that is not there.
    pub fn specs(&self) -> Result<Vec<AgentSpec>, DefinitionError> {
        let (coordinator, model) = &self.coordinator;
        let mut coordinator = coordinator.clone();
        if let Some(allowed) = &mut coordinator.allowed_tools
            && allowed.iter().all(|tool| **tool != *MetaTool::Task.name())
        {
            allowed.push(MetaTool::Task.name().into());
        }
        let workers = self.workers.iter().map(|(worker, _)| worker);
        let mates =
            workers.map(|worker| Teammate { name: worker.name.to_string(), description: worker.description.clone() });
        let mates: Vec<Teammate> = mates.chain(self.others.iter().cloned()).collect();
        let mut specs = vec![LlmAgent::new(&coordinator, Arc::clone(model), &self.tools, &mates)?.spec()];
        for (worker, model) in &self.workers {
            let agent = LlmAgent::new(worker, Arc::clone(model), &self.tools, &[])?;
            let gives_tasks = worker.allowed_tools.is_some();
            specs.push(if gives_tasks { agent } else { agent.without_tasks() }.spec());
        }
        Ok(specs)
    }

    /// A task for the coordinator, in which nobody passes control on. Its limits are those of a complex task, with room for all workers and (4) tasks for each.
    #[must_use]
    pub fn task(&self, body: &str) -> Task {
        let workers = u32::try_from(self.workers.len() + self.others.len()).unwrap_or(u32::MAX);
        let usual = Limits::of(Complexity::Complex);
        let agents = usual.agents.max(workers.saturating_add(1));
        let handoffs = usual.handoffs.max(workers.saturating_mul(TASKS_EACH));
        let task = Task::new(body).to(self.coordinator.0.name.as_str()).limits(Limits { agents, handoffs, ..usual });
        task.handoffs(Handoffs::Off)
    }
}

impl fmt::Debug for Team {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let workers: Vec<&str> = self.workers.iter().map(|(worker, _)| worker.name.as_str()).collect();
        let coordinator = self.coordinator.0.name.as_str();
        f.debug_struct("Team").field("coordinator", &coordinator).field("workers", &workers).finish_non_exhaustive()
    }
}
