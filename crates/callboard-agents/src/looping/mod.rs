//! The agent loop: a model is asked, the tools that it calls are used, and it is asked again, until it answers.
//!
//! This file has the settings of a loop. Its state, and the consequences of an answer, are plain data (`context`). `drive` asks
//! the model (`request`, `answer`) and has its calls decided on (`uses`) and carried out (`using`). The host does the rest
//! (`host`): a turn of a board, which journals each answer and each use of a tool as a step (`in_turn`); or its caller
//! (`standalone`), for whom it is a stream (`alone`).
//!
//! Of the calls in one answer, those that change nothing outside run side by side, and delegations too; the others wait for
//! those before them. People are asked about all of them at once, before any is used.

mod alone;
mod answer;
mod compaction;
mod context;
mod delegating;
mod drive;
mod finish;
mod host;
mod in_turn;
mod output;
mod request;
mod standalone;
mod text;
mod tool_use;
mod uses;
mod using;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use callboard::messages::ConversationStrategy;

use super::definition::CONVERSATION_TOKENS;
use super::meta::{self, MetaTool};
use super::model::Model;
use super::output::OutputSchema;
use super::permission::Tier;
use super::roles::AgentGrant;
use super::teammate::Teammate;
use super::tool::{ToolSpec, Tools};

pub use alone::{LoopHandle, LoopRun, NotPending};
pub use context::{CancelToken, LoopContext};

/// How an agent thinks: which model it asks, with which prompt, and which tools the model may use. A cheap clone.
///
/// A board's agents have one (see [`LlmAgent`](super::LlmAgent)); it can also be run by itself:
///
/// ```
/// use callboard::messages::{AgentEvent, Message};
/// use callboard_agents::AgentLoop;
/// use callboard_agents::testing::ScriptedModel;
/// use futures::StreamExt;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let thinker = AgentLoop::new(ScriptedModel::new().says("Four.")).system("You add numbers.");
/// let mut run = thinker.run(vec![Message::user("2 + 2?")]);
/// while let Some(event) = run.next().await {
///     if let AgentEvent::Text { text } = event {
///         print!("{text}");
///     }
/// }
/// assert_eq!(run.context().text(), "Four.");
/// # });
/// ```
#[derive(Clone)]
pub struct AgentLoop {
    system: Arc<str>,
    /// The settings, shared by the clones that the turns of an agent use.
    settings: Arc<Settings>,
}

/// The settings of a loop, except its model's prompt.
#[derive(Clone)]
struct Settings {
    model: Arc<dyn Model>,
    tools: Tools,
    /// Tools that a model sees only after a search.
    hidden: BTreeSet<Arc<str>>,
    meta: Vec<(MetaTool, Arc<ToolSpec>)>,
    max_iterations: u32,
    max_tokens: u32,
    token_budget: Option<u64>,
    asking: BTreeSet<Arc<str>>,
    /// Tools that may be used again when the result of a use was lost, whatever their specs declare.
    idempotent: BTreeSet<Arc<str>>,
    tier: Tier,
    output: Option<OutputSchema>,
    /// The part of the conversation that other agents receive, and its limit of tokens.
    conversation: (ConversationStrategy, u32),
    compact_at: Option<u32>,
    grant: AgentGrant,
}

impl AgentLoop {
    /// Creates a loop without tools that asks its model at most 25 times, each time for at most 4,096 tokens.
    pub fn new(model: impl Model) -> Self {
        Self::of(Arc::new(model))
    }

    /// Creates a loop as [`AgentLoop::new`] does, with a model that may be shared.
    #[must_use]
    pub fn of(model: Arc<dyn Model>) -> Self {
        let settings = Settings {
            model,
            tools: Tools::new(),
            hidden: BTreeSet::new(),
            meta: Vec::new(),
            max_iterations: 25,
            max_tokens: 4_096,
            token_budget: None,
            asking: BTreeSet::new(),
            idempotent: BTreeSet::new(),
            tier: Tier::default(),
            output: None,
            conversation: (ConversationStrategy::default(), CONVERSATION_TOKENS),
            compact_at: None,
            grant: AgentGrant::of_code(),
        };
        Self { system: "".into(), settings: Arc::new(settings) }
    }

    fn change(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self
    }

    /// Sets the prompt that the model receives with each request (none).
    #[must_use]
    pub fn system(mut self, system: impl Into<Arc<str>>) -> Self {
        self.system = system.into();
        self
    }

    /// Sets the tools that the model may use, besides those of the loop itself ([`AgentLoop::meta`]).
    #[must_use]
    pub fn tools(self, tools: Tools) -> Self {
        self.change(|settings| settings.tools = tools)
    }

    /// The same loop with the present tools of its servers.
    pub(super) async fn renewed(self) -> Self {
        match self.own_tools().renewed().await {
            Some(tools) => {
                let granted = tools.granted(&self.settings.grant);
                self.tools(granted)
            }
            None => self,
        }
    }

    /// Sets which of its tools the model sees only once it has found them with [`MetaTool::ToolSearch`].
    #[must_use]
    pub fn hidden<'a>(self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.change(|settings| settings.hidden = names.into_iter().map(Arc::from).collect())
    }

    /// Sets the tools of the loop itself that the model may use (none).
    #[must_use]
    pub fn meta(self, tools: impl IntoIterator<Item = MetaTool>) -> Self {
        self.meta_for(tools, &[])
    }

    /// As [`AgentLoop::meta`]; the model receives the agents that it may give tasks and control to.
    #[must_use]
    pub fn meta_for(self, tools: impl IntoIterator<Item = MetaTool>, team: &[Teammate]) -> Self {
        let tools: BTreeSet<MetaTool> = tools.into_iter().collect();
        self.change(|settings| {
            settings.meta = tools.into_iter().map(|tool| (tool, meta::for_team(tool, team))).collect()
        })
    }

    /// Sets what its tools may be given.
    pub(super) fn granting(self, grant: &AgentGrant) -> Self {
        self.change(|settings| settings.grant = grant.clone())
    }

    /// The model that it asks.
    pub(super) fn model(&self) -> &Arc<dyn Model> {
        &self.settings.model
    }

    /// The tools that it uses, without those of the loop itself.
    pub(super) fn own_tools(&self) -> &Tools {
        &self.settings.tools
    }

    /// The names of all its tools.
    pub(super) fn tool_names(&self) -> impl Iterator<Item = &str> {
        self.settings.tools.names().chain(self.settings.meta.iter().map(|(tool, _)| tool.name()))
    }

    /// Removes these tools of the loop.
    pub(super) fn without(self, is_taken: impl Fn(MetaTool) -> bool) -> Self {
        self.change(|settings| settings.meta.retain(|(tool, _)| !is_taken(*tool)))
    }

    /// Sets how often the model is asked at most; 0 counts as 1.
    #[must_use]
    pub fn max_iterations(self, times: u32) -> Self {
        self.change(|settings| settings.max_iterations = times.max(1))
    }

    /// Sets the most tokens of one answer; 0 counts as 1. The loop fails if its final answer is cut there.
    #[must_use]
    pub fn max_tokens(self, tokens: u32) -> Self {
        self.change(|settings| settings.max_tokens = tokens.max(1))
    }

    /// Sets how many tokens the loop may read and write in a turn; with `None` only the limit of the run applies.
    #[must_use]
    pub fn token_budget(self, tokens: Option<u64>) -> Self {
        self.change(|settings| settings.token_budget = tokens)
    }

    /// Sets the tools that people are asked about each time, beside those that the tier asks about.
    #[must_use]
    pub fn asking<'a>(self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.change(|settings| settings.asking = names.into_iter().map(Arc::from).collect())
    }

    /// Sets the tools that may be used again when the result of a use was lost, whatever they say themselves
    /// (SEMANTICS 14).
    #[must_use]
    pub fn idempotent<'a>(self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.change(|settings| settings.idempotent = names.into_iter().map(Arc::from).collect())
    }

    /// Sets where the agent comes from, which decides what people are asked about.
    #[must_use]
    pub fn tier(self, tier: Tier) -> Self {
        self.change(|settings| settings.tier = tier)
    }

    /// What its answer must look like. One that does not is refused once, and the model is asked again; after that the loop has
    /// failed. By default it is text.
    #[must_use]
    pub fn output(self, schema: Option<OutputSchema>) -> Self {
        self.change(|settings| settings.output = schema)
    }

    /// What the agents that it gives tasks to receive of the conversation (nothing), unless its model says otherwise, in at most
    /// so many tokens (8,000).
    #[must_use]
    pub fn conversation(self, strategy: ConversationStrategy, max_tokens: u32) -> Self {
        self.change(|settings| settings.conversation = (strategy, max_tokens))
    }

    /// Has the older part of the conversation summed up by the agent `compactor` when a request would have more tokens than this,
    /// as an estimate. Without a board, or such an agent, nothing is left out. By default it never is.
    #[must_use]
    pub fn compact_at(self, tokens: Option<u32>) -> Self {
        self.change(|settings| settings.compact_at = tokens)
    }
}

impl fmt::Debug for AgentLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentLoop")
            .field("model", &self.settings.model.name())
            .field("tools", &self.settings.tools)
            .finish_non_exhaustive()
    }
}
