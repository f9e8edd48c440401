//! The agent loop: a model is asked, the tools that it calls are used, and it is asked again, until it answers.
//!
//! What a loop knows, and what follows from an answer, is plain data (`context`). Who runs it does the rest (`host`): a turn of
//! a board, which journals each answer and each use of a tool as a step; or its caller, for whom it is a stream.
//!
//! Of the calls in one answer, those that change nothing outside run side by side, and delegations too; the others wait for
//! those before them. People are asked about all of them at once, before any is used.

mod alone;
mod answer;
mod compaction;
mod context;
mod delegating;
mod host;
mod output;
mod using;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use callboard::actors::{Turn, TurnError};
use callboard::messages::{AgentEvent, Authority, Command, ConversationStrategy, Handoffs, Json, LoopEnd, Message};
use futures::FutureExt;
use parking_lot::Mutex;

use super::definition::TOLD_TOKENS;
use super::llm::Teammate;
use super::meta::{self, MetaTool};
use super::model::{Model, ModelRequest};
use super::output::OutputSchema;
use super::permission::Tier;
use super::tool::{ToolSpec, Tools};

pub use alone::{LoopHandle, LoopRun, NotPending};
use context::{After, Reply};
pub use context::{CancelToken, LoopContext};
use host::{Host, InTurn};

/// How an agent thinks: which model it asks, what it tells it, and what it lets it use. A cheap clone.
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
    /// The same for every turn of an agent.
    means: Arc<Means>,
}

/// All that a loop has but what its model is told about its part.
#[derive(Clone)]
struct Means {
    model: Arc<dyn Model>,
    tools: Tools,
    /// Tools that a model sees only once it has searched for them.
    hidden: BTreeSet<Arc<str>>,
    meta: Vec<(MetaTool, Arc<ToolSpec>)>,
    max_iterations: u32,
    max_tokens: u32,
    token_budget: Option<u64>,
    asking: BTreeSet<Arc<str>>,
    /// Tools that may be used again when the result of a use was lost, whatever they say themselves.
    idempotent: BTreeSet<Arc<str>>,
    tier: Tier,
    output: Option<OutputSchema>,
    /// What other agents are told of the conversation, and in how many tokens.
    conversation: (ConversationStrategy, u32),
    compact_at: Option<u32>,
}

/// What a loop came to.
#[derive(Debug, PartialEq)]
pub(super) enum Finish {
    Answered(Json),
    HandedOff(Box<Command>),
    IterationLimit,
    Failed(Arc<str>),
}

impl AgentLoop {
    /// A loop without tools that asks its model (25) times at most, for (4,096) tokens at most.
    pub fn new(model: impl Model) -> Self {
        Self::of(Arc::new(model))
    }

    /// As [`AgentLoop::new`].
    #[must_use]
    pub fn of(model: Arc<dyn Model>) -> Self {
        let means = Means {
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
            conversation: (ConversationStrategy::default(), TOLD_TOKENS),
            compact_at: None,
        };
        Self { system: "".into(), means: Arc::new(means) }
    }

    fn change(mut self, change: impl FnOnce(&mut Means)) -> Self {
        change(Arc::make_mut(&mut self.means));
        self
    }

    /// What the model is told about its part.
    #[must_use]
    pub fn system(mut self, system: impl Into<Arc<str>>) -> Self {
        self.system = system.into();
        self
    }

    /// The tools that it may use.
    #[must_use]
    pub fn tools(self, tools: Tools) -> Self {
        self.change(|means| means.tools = tools)
    }

    /// The same loop with its tools as they are now.
    pub(super) async fn renewed(self) -> Self {
        match self.own_tools().may_change() {
            true => match self.own_tools().renewed().await {
                Some(tools) => self.tools(tools),
                None => self,
            },
            false => self,
        }
    }

    /// Of its tools, those that the model sees only once it has found them with [`MetaTool::ToolSearch`].
    #[must_use]
    pub fn hidden<'a>(self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.change(|means| means.hidden = names.into_iter().map(Arc::from).collect())
    }

    /// The tools of the loop itself that it may use.
    #[must_use]
    pub fn meta(self, tools: impl IntoIterator<Item = MetaTool>) -> Self {
        self.meta_for(tools, &[])
    }

    /// As [`AgentLoop::meta`]; the model is told of the agents that it may give tasks and control to.
    #[must_use]
    pub fn meta_for(self, tools: impl IntoIterator<Item = MetaTool>, team: &[Teammate]) -> Self {
        let tools: BTreeSet<MetaTool> = tools.into_iter().collect();
        self.change(|means| means.meta = tools.into_iter().map(|tool| (tool, meta::for_team(tool, team))).collect())
    }

    /// The model that it asks.
    pub(super) fn model(&self) -> &Arc<dyn Model> {
        &self.means.model
    }

    /// The tools that it uses, without those of the loop itself.
    pub(super) fn own_tools(&self) -> &Tools {
        &self.means.tools
    }

    /// The names of all its tools.
    pub(super) fn tool_names(&self) -> impl Iterator<Item = &str> {
        self.means.tools.names().chain(self.means.meta.iter().map(|(tool, _)| tool.name()))
    }

    /// Takes away these tools of the loop.
    pub(super) fn without(self, is_taken: impl Fn(MetaTool) -> bool) -> Self {
        self.change(|means| means.meta.retain(|(tool, _)| !is_taken(*tool)))
    }

    /// How often the model is asked at most, from 1.
    #[must_use]
    pub fn max_iterations(self, times: u32) -> Self {
        self.change(|means| means.max_iterations = times.max(1))
    }

    /// How many tokens one answer may have.
    #[must_use]
    pub fn max_tokens(self, tokens: u32) -> Self {
        self.change(|means| means.max_tokens = tokens.max(1))
    }

    /// How many tokens all answers together may take; what the run may if nothing is said.
    #[must_use]
    pub fn token_budget(self, tokens: Option<u64>) -> Self {
        self.change(|means| means.token_budget = tokens)
    }

    /// Tools that people are asked about each time, beside those that the tier asks about.
    #[must_use]
    pub fn asking<'a>(self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.change(|means| means.asking = names.into_iter().map(Arc::from).collect())
    }

    /// Tools that may be used again when the result of a use was lost, whatever they say themselves (SEMANTICS 14).
    #[must_use]
    pub fn idempotent<'a>(self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.change(|means| means.idempotent = names.into_iter().map(Arc::from).collect())
    }

    /// Where the agent comes from, which decides what people are asked about.
    #[must_use]
    pub fn tier(self, tier: Tier) -> Self {
        self.change(|means| means.tier = tier)
    }

    /// What its answer must look like. One that does not is refused once, and the model is asked again; after that the loop has
    /// failed. Text if nothing is said.
    #[must_use]
    pub fn output(self, schema: Option<OutputSchema>) -> Self {
        self.change(|means| means.output = schema)
    }

    /// What the agents that it gives tasks to are told of the conversation (nothing), unless its model says otherwise, in at most
    /// so many tokens (8,000).
    #[must_use]
    pub fn conversation(self, strategy: ConversationStrategy, max_tokens: u32) -> Self {
        self.change(|means| means.conversation = (strategy, max_tokens))
    }

    /// Has the older part of the conversation summed up by the agent `compactor` when a request would have more tokens than this,
    /// as an estimate. Without a board, or such an agent, nothing is left out. It never is if nothing is said.
    #[must_use]
    pub fn compact_at(self, tokens: Option<u32>) -> Self {
        self.change(|means| means.compact_at = tokens)
    }

    /// Runs it by itself, without a board.
    #[must_use]
    pub fn run(&self, messages: Vec<Message>) -> LoopRun {
        LoopRun::new(self.clone(), messages)
    }

    /// Runs it in a turn of a board: each answer of the model and each use of a tool is a step.
    ///
    /// # Errors
    /// The model cannot be asked, has not answered in time, or the turn cannot go on.
    pub fn turn<'a>(
        &'a self,
        turn: &'a Turn,
        messages: Vec<Message>,
    ) -> impl Future<Output = Result<Command, TurnError>> + Send + 'a {
        let context = Mutex::new(LoopContext::begin(messages));
        async move {
            let finish = self.drive(&InTurn(turn), &context).await;
            let end = match &finish {
                Ok(finish) => finish.end(),
                Err(error) => LoopEnd::Failed(error.to_string().into()),
            };
            turn.show(AgentEvent::Ended { end });
            match finish? {
                Finish::Answered(output) => Ok(Command::output(output)),
                Finish::HandedOff(command) => Ok(*command),
                Finish::Failed(why) => Err(TurnError::terminal(&*why)),
                Finish::IterationLimit => Err(TurnError::terminal(format!(
                    "the model was asked {} times and wants tools still: raise max_iterations, or ask for less",
                    self.means.max_iterations
                ))),
            }
        }
    }

    #[expect(
        clippy::manual_async_fn,
        reason = "an `async fn` has room for its arguments twice, and most agents wait here"
    )]
    fn drive<'a>(
        &'a self,
        host: &'a dyn Host,
        context: &'a Mutex<LoopContext>,
    ) -> impl Future<Output = Result<Finish, TurnError>> + Send + 'a {
        async move {
            loop {
                // Boxed, because a loop waits for its model most of the time, and has room for these meanwhile.
                if self.means.compact_at.is_some() {
                    self.compact(host, context).boxed().await?;
                }
                let asked = match self.next_request(host, context) {
                    Ok((request, needed)) => host.step("model", self.ask(host, request, needed).boxed()),
                    Err(finish) => return Ok(finish),
                };
                let reply = asked.await?;
                match take(host, context, &reply)? {
                    After::Fail(why) => return Ok(Finish::Failed(why.into())),
                    After::Answer(text) => {
                        if let Some(finish) = self.judged(host, context, &text) {
                            return Ok(finish);
                        }
                    }
                    After::Use(calls) => {
                        if let Some(handoff) = self.use_tools(host, context, calls).boxed().await? {
                            return Ok(Finish::HandedOff(Box::new(handoff)));
                        }
                    }
                }
            }
        }
    }

    /// Begins an iteration: what the model is asked, and how many tokens that may need. `Err` is the end.
    fn next_request(&self, host: &dyn Host, context: &Mutex<LoopContext>) -> Result<(ModelRequest, u64), Finish> {
        let mut context = context.lock();
        // Whoever sums up may have read what strangers wrote.
        context.is_marked |= host.is_marked();
        if context.iteration == self.means.max_iterations {
            return Err(Finish::IterationLimit);
        }
        context.iteration += 1;
        let request = self.request(host, &context);
        let needed = request.estimated_tokens() + u64::from(request.max_tokens);
        let used = context.usage.total();
        if let Some(budget) = self.means.token_budget.filter(|budget| used + needed > *budget) {
            let why = format!(
                "the agent may use {budget} tokens in a turn, has used {used}, and may need {needed} more: raise its \
                 `tokens`, or lower its `max_tokens`"
            );
            return Err(Finish::Failed(why.into()));
        }
        host.show(AgentEvent::Iteration { iteration: context.iteration });
        Ok((request, needed))
    }

    /// What is reserved for a call at least: for the answer, and for the tools that an agent of this authority is shown in
    /// every run. What it is told, and asked, comes on top.
    pub(super) fn least_reservation(&self, authority: Authority) -> u64 {
        let own = self.means.tools.specs().filter(|spec| !self.means.hidden.contains(&spec.name));
        // Where control may not be passed on, they are not shown.
        let meta = self.means.meta.iter().filter(|(tool, _)| !tool.is_handoff()).map(|(_, spec)| spec);
        let tools = own.chain(meta).filter(|spec| authority.allows(spec.effect)).cloned().collect();
        let (system, messages, max_tokens) = ("".into(), Arc::default(), self.means.max_tokens);
        let request = ModelRequest { system, messages, tools, max_tokens, idempotency_key: "".into() };
        request.estimated_tokens() + u64::from(max_tokens)
    }

    fn request(&self, host: &dyn Host, context: &LoopContext) -> ModelRequest {
        let authority = host.authority();
        let is_there = |spec: &&Arc<ToolSpec>| authority.allows(spec.effect) && self.is_shown(&spec.name, context);
        let own = self.means.tools.specs().filter(is_there);
        let meta = self.meta_there(host).map(|(_, spec)| spec);
        let mut tools: Vec<_> = own.chain(meta).cloned().collect();
        // It is kept until the model has answered.
        tools.shrink_to_fit();
        ModelRequest {
            system: self.instructions(),
            messages: Arc::clone(&context.history),
            tools,
            max_tokens: self.means.max_tokens,
            idempotency_key: host.key(&format!("model-{}", context.iteration)),
        }
    }

    /// The tools of the loop itself that there are: where control may not be passed on, nobody is told of that.
    fn meta_there(&self, host: &dyn Host) -> impl Iterator<Item = &(MetaTool, Arc<ToolSpec>)> {
        let (is_off, authority) = (host.handoffs() == Handoffs::Off, host.authority());
        let is_there = move |(tool, spec): &&(MetaTool, Arc<ToolSpec>)| {
            authority.allows(spec.effect) && !(is_off && tool.is_handoff())
        };
        self.means.meta.iter().filter(is_there)
    }

    fn is_shown(&self, tool: &Arc<str>, context: &LoopContext) -> bool {
        !self.means.hidden.contains(tool) || context.activated.contains(tool)
    }
}

impl Finish {
    fn end(&self) -> LoopEnd {
        match self {
            Self::Answered(_) => LoopEnd::Answered,
            Self::HandedOff(_) => LoopEnd::HandedOff,
            Self::IterationLimit => LoopEnd::IterationLimit,
            Self::Failed(why) => LoopEnd::Failed(Arc::clone(why)),
        }
    }
}

/// Takes what the model has answered, as it is recorded.
fn take(host: &dyn Host, context: &Mutex<LoopContext>, reply: &Json) -> Result<After, TurnError> {
    let reply = recorded::<Reply>(reply)?;
    host.show(reply.usage());
    Ok(context.lock().replied(reply))
}

/// What a step has recorded.
fn recorded<T: serde::de::DeserializeOwned>(value: &Json) -> Result<T, TurnError> {
    value
        .parse()
        .map_err(|error| TurnError::terminal(format!("what the journal has of this step no longer fits: {error}")))
}

impl fmt::Debug for AgentLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentLoop")
            .field("model", &self.means.model.name())
            .field("tools", &self.means.tools)
            .finish_non_exhaustive()
    }
}
