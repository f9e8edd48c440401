//! The agent loop: a model is asked, the tools that it calls are used, and it is asked again, until it answers.
//!
//! What a loop knows, and what follows from an answer, is plain data (`context`). Who runs it does the rest (`host`): a turn of
//! a board, which journals each answer and each use of a tool as a step; or its caller, for whom it is a stream.
//!
//! Of the calls in one answer, those that change nothing outside run side by side, and delegations too; the others wait for
//! those before them. People are asked about all of them at once, before any is used.

mod alone;
mod compaction;
mod context;
mod delegating;
mod host;
mod output;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use futures::future::{BoxFuture, join_all, ready};
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;

use crate::actors::{Turn, TurnError};
use crate::messages::names::{did_you_mean, nearest};
use crate::messages::visible::quoted;
use crate::messages::{
    Action, AgentEvent, Command, Consent, ConversationStrategy, Effect, Handoffs, Json, LoopEnd, Message, ToolCall,
};

use super::definition::TOLD_TOKENS;
use super::llm::Teammate;
use super::made::Draft;
use super::meta::{self, MetaTool};
use super::model::{Model, ModelAnswer, ModelError, ModelEvent, ModelRequest};
use super::output::OutputSchema;
use super::permission::Tier;
use super::tool::{ToolError, ToolOutput, ToolSpec, Tools};

pub use alone::{LoopHandle, LoopRun, NotPending};
pub use context::LoopContext;
use context::{After, Answered, Reply};
use delegating::SummedUp;
use host::{Host, InTurn, Permission};

/// The most bytes of one answer of a model: a provider that goes on and on is cut off.
const MAX_REPLY: usize = 4 << 20;

/// The most calls in one answer.
const MAX_CALLS: usize = 64;

/// How an agent thinks: which model it asks, what it tells it, and what it lets it use. A cheap clone.
///
/// A board's agents have one (see [`LlmAgent`](super::LlmAgent)); it can also be run by itself:
///
/// ```
/// use callboard::agents::AgentLoop;
/// use callboard::messages::{AgentEvent, Message};
/// use callboard::testing::ScriptedModel;
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
    model: Arc<dyn Model>,
    system: Arc<str>,
    tools: Tools,
    /// Tools that a model sees only once it has searched for them.
    hidden: Arc<BTreeSet<Arc<str>>>,
    meta: Arc<[(MetaTool, ToolSpec)]>,
    max_iterations: u32,
    max_tokens: u32,
    token_budget: Option<u64>,
    asking: Arc<BTreeSet<Arc<str>>>,
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
        Self {
            model,
            system: "".into(),
            tools: Tools::new(),
            hidden: Arc::default(),
            meta: Arc::default(),
            max_iterations: 25,
            max_tokens: 4_096,
            token_budget: None,
            asking: Arc::default(),
            tier: Tier::default(),
            output: None,
            conversation: (ConversationStrategy::default(), TOLD_TOKENS),
            compact_at: None,
        }
    }

    /// What the model is told about its part.
    #[must_use]
    pub fn system(mut self, system: impl Into<Arc<str>>) -> Self {
        self.system = system.into();
        self
    }

    /// The tools that it may use.
    #[must_use]
    pub fn tools(mut self, tools: Tools) -> Self {
        self.tools = tools;
        self
    }

    /// Of its tools, those that the model sees only once it has found them with [`MetaTool::ToolSearch`].
    #[must_use]
    pub fn hidden<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.hidden = Arc::new(names.into_iter().map(Arc::from).collect());
        self
    }

    /// The tools of the loop itself that it may use.
    #[must_use]
    pub fn meta(self, tools: impl IntoIterator<Item = MetaTool>) -> Self {
        self.meta_for(tools, &[])
    }

    /// As [`AgentLoop::meta`]; the model is told of the agents that it may give tasks and control to.
    #[must_use]
    pub fn meta_for(mut self, tools: impl IntoIterator<Item = MetaTool>, team: &[Teammate]) -> Self {
        let tools: BTreeSet<MetaTool> = tools.into_iter().collect();
        self.meta = tools.into_iter().map(|tool| (tool, meta::for_team(tool, team))).collect();
        self
    }

    /// The model that it asks and the tools that it uses.
    pub(super) fn means(&self) -> (&Arc<dyn Model>, &Tools) {
        (&self.model, &self.tools)
    }

    /// Takes away these tools of the loop.
    pub(super) fn without(mut self, is_taken: impl Fn(MetaTool) -> bool) -> Self {
        self.meta = self.meta.iter().filter(|(tool, _)| !is_taken(*tool)).cloned().collect();
        self
    }

    /// How often the model is asked at most, from 1.
    #[must_use]
    pub fn max_iterations(mut self, times: u32) -> Self {
        self.max_iterations = times.max(1);
        self
    }

    /// How many tokens one answer may have.
    #[must_use]
    pub fn max_tokens(mut self, tokens: u32) -> Self {
        self.max_tokens = tokens.max(1);
        self
    }

    /// How many tokens all answers together may take; what the run may if nothing is said.
    #[must_use]
    pub fn token_budget(mut self, tokens: Option<u64>) -> Self {
        self.token_budget = tokens;
        self
    }

    /// Tools that people are asked about each time, beside those that the tier asks about.
    #[must_use]
    pub fn asking<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.asking = Arc::new(names.into_iter().map(Arc::from).collect());
        self
    }

    /// Where the agent comes from, which decides what people are asked about.
    #[must_use]
    pub fn tier(mut self, tier: Tier) -> Self {
        self.tier = tier;
        self
    }

    /// What its answer must look like. One that does not is refused once, and the model is asked again; after that the loop has
    /// failed. Text if nothing is said.
    #[must_use]
    pub fn output(mut self, schema: Option<OutputSchema>) -> Self {
        self.output = schema;
        self
    }

    /// What the agents that it gives tasks to are told of the conversation (nothing), unless its model says otherwise, in at most
    /// so many tokens (8,000).
    #[must_use]
    pub fn conversation(mut self, strategy: ConversationStrategy, max_tokens: u32) -> Self {
        self.conversation = (strategy, max_tokens);
        self
    }

    /// Has the older part of the conversation summed up by the agent `compactor` when a request would have more tokens than this,
    /// as an estimate. Without a board, or such an agent, nothing is left out. It never is if nothing is said.
    #[must_use]
    pub fn compact_at(mut self, tokens: Option<u32>) -> Self {
        self.compact_at = tokens;
        self
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
    pub async fn turn(&self, turn: &Turn, messages: Vec<Message>) -> Result<Command, TurnError> {
        let context = Mutex::new(LoopContext::begin(messages));
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
                self.max_iterations
            ))),
        }
    }

    async fn drive(&self, host: &dyn Host, context: &Mutex<LoopContext>) -> Result<Finish, TurnError> {
        loop {
            self.compact(host, context).await?;
            // Whoever sums up may have read what strangers wrote.
            context.lock().is_marked |= host.is_marked();
            let request = {
                let mut context = context.lock();
                if context.iteration == self.max_iterations {
                    return Ok(Finish::IterationLimit);
                }
                context.iteration += 1;
                self.request(host, &context)
            };
            let needed = request.estimated_tokens() + u64::from(request.max_tokens);
            let (iteration, used) = {
                let context = context.lock();
                (context.iteration, context.usage.total())
            };
            if let Some(budget) = self.token_budget.filter(|budget| used + needed > *budget) {
                let why = format!(
                    "the agent may use {budget} tokens in a turn, has used {used}, and may need {needed} more: raise its \
                     `tokens`, or lower its `max_tokens`"
                );
                return Ok(Finish::Failed(why.into()));
            }
            host.show(AgentEvent::Iteration { iteration });
            let asked = host.step("model", self.ask(host, request, needed).boxed());
            let reply = recorded::<Reply>(&asked.await?)?;
            host.show(reply.usage());
            let after = context.lock().replied(reply);
            match after {
                After::Fail(why) => return Ok(Finish::Failed(why.into())),
                After::Answer(text) => {
                    if let Some(finish) = self.judged(host, context, &text) {
                        return Ok(finish);
                    }
                }
                After::Use(calls) => {
                    if let Some(handoff) = self.use_tools(host, context, calls).await? {
                        return Ok(Finish::HandedOff(Box::new(handoff)));
                    }
                }
            }
        }
    }

    fn request(&self, host: &dyn Host, context: &LoopContext) -> ModelRequest {
        let authority = host.authority();
        let is_there = |spec: &&ToolSpec| authority.allows(spec.effect) && self.is_shown(&spec.name, context);
        let own = self.tools.specs().filter(is_there);
        let meta = self.meta_there(host).map(|(_, spec)| spec);
        ModelRequest {
            system: self.instructions(),
            messages: Arc::clone(&context.history),
            tools: own.chain(meta).cloned().collect(),
            max_tokens: self.max_tokens,
            idempotency_key: host.scope(&format!("model-{}", context.iteration)).key,
        }
    }

    /// The tools of the loop itself that there are: where control may not be passed on, nobody is told of that.
    fn meta_there(&self, host: &dyn Host) -> impl Iterator<Item = &(MetaTool, ToolSpec)> {
        let is_off = host.handoffs() == Handoffs::Off;
        self.meta.iter().filter(move |(tool, _)| !(is_off && tool.is_handoff()))
    }

    fn is_shown(&self, tool: &Arc<str>, context: &LoopContext) -> bool {
        !self.hidden.contains(tool) || context.activated.contains(tool)
    }

    /// Asks the model once.
    async fn ask(&self, host: &dyn Host, request: ModelRequest, needed: u64) -> Result<Json, TurnError> {
        let reserved = host.reserve(needed).await?;
        let mut answer = self.model.call(request);
        let (mut said, mut calls, mut size) = (String::new(), Vec::new(), 0);
        while let Some(event) = answer.next().await {
            match event {
                Ok(ModelEvent::Text(text)) => {
                    said.push_str(&text);
                    size += text.len();
                    host.show(AgentEvent::Text { text });
                }
                Ok(ModelEvent::Reasoning(text)) => {
                    size += text.len();
                    host.show(AgentEvent::Reasoning { text });
                }
                Ok(ModelEvent::ToolCall(call)) => {
                    size += call.size();
                    calls.push(call);
                }
                Ok(ModelEvent::Failed { model, error, next }) => {
                    host.show(AgentEvent::ModelFailed { model, error: error.to_string().into(), next });
                }
                Ok(ModelEvent::Ended(ModelAnswer { stop, usage, model, cost, is_estimate })) => {
                    if let Some(reserved) = reserved {
                        drop(reserved.settle(usage));
                    }
                    let reply = Reply { text: said.into(), calls, stop, usage, is_estimate, model, cost };
                    return Json::of(reply)
                        .map_err(|error| TurnError::terminal(format!("the model's answer: {error}")));
                }
                Err(error) => {
                    if let Some(reserved) = reserved.filter(|_| error.kind.is_free()) {
                        drop(reserved.release());
                    }
                    return Err(self.failed(&error));
                }
            }
            if size > MAX_REPLY || calls.len() > MAX_CALLS {
                let most = format!("{} MiB or {MAX_CALLS} calls", MAX_REPLY >> 20);
                return Err(TurnError::terminal(format!(
                    "model {}: its answer has more than {most}",
                    self.model.name()
                )));
            }
        }
        Err(TurnError::transient(format!("model {}: its answer has no end", self.model.name())))
    }

    fn failed(&self, error: &ModelError) -> TurnError {
        let text = format!("model {}: {error}", self.model.name());
        if error.kind.is_transient() { TurnError::transient(text) } else { TurnError::terminal(text) }
    }

    /// Uses the tools that the model has called. Gives the command of a handoff, which ends the loop.
    async fn use_tools(
        &self,
        host: &dyn Host,
        context: &Mutex<LoopContext>,
        calls: Vec<ToolCall>,
    ) -> Result<Option<Command>, TurnError> {
        for call in &calls {
            host.show(AgentEvent::ToolCalled { call: call.clone() });
        }
        let mut uses: Vec<Use> = calls.iter().map(|call| self.judge(host, call, &context.lock())).collect();
        self.ask_for_permission(host, context, &calls, &mut uses).await?;
        let handoff = check_handoffs(host, &mut uses).await?;
        let summed_up = self.sum_up(host, context, &uses).await?;
        let mut answers: BTreeMap<usize, Answered> = BTreeMap::new();
        let mut side_by_side: Vec<(usize, BoxFuture<'_, Result<Answered, TurnError>>)> = Vec::new();
        for (position, (call, one)) in calls.iter().zip(uses).enumerate() {
            if !one.is_concurrent() {
                settle(host, &calls, &mut side_by_side, &mut answers).await?;
            }
            let is_concurrent = one.is_concurrent();
            side_by_side.push((position, self.begin(host, context, summed_up.as_ref(), position, call, one)));
            if !is_concurrent {
                settle(host, &calls, &mut side_by_side, &mut answers).await?;
            }
        }
        settle(host, &calls, &mut side_by_side, &mut answers).await?;
        let answers: Vec<_> = calls.into_iter().zip(answers.into_values()).collect();
        for (call, _) in answers.iter().filter(|(_, answered)| answered.is_untrusted) {
            host.mark(&call.name);
        }
        let mut context = context.lock();
        context.answered(answers);
        // What others did for this turn may have marked it.
        context.is_marked |= host.is_marked();
        Ok(handoff)
    }

    /// What a call comes to, before anybody is asked.
    fn judge(&self, host: &dyn Host, call: &ToolCall, context: &LoopContext) -> Use {
        let meta = self.meta_there(host).find(|(_, spec)| spec.name == call.name);
        let fits = |error: serde_json::Error| {
            Use::answer(ToolError(format!("the arguments of {} do not fit: {error}", call.name)))
        };
        if let Some((tool, _)) = meta {
            let arguments = &call.arguments;
            return match tool {
                MetaTool::AskUser => arguments.parse().map_or_else(fits, Use::Ask),
                MetaTool::Task => arguments.parse().map_or_else(fits, Use::Delegate),
                MetaTool::HandoffToAgent => arguments
                    .parse::<meta::HandoffToAgent>()
                    .map_or_else(fits, |handoff| Use::Handoff(Box::new(handoff.command()))),
                MetaTool::AcceptHandoff => Use::AcceptHandoff,
                MetaTool::AgentCreate | MetaTool::AgentUpdate => {
                    arguments.parse::<Draft>().map_or_else(fits, |Draft { name, .. }| {
                        let (draft, is_change) = (arguments.clone(), *tool == MetaTool::AgentUpdate);
                        Use::Make { name, draft, is_change }
                    })
                }
                MetaTool::ToolSearch => {
                    arguments.parse::<meta::ToolSearch>().map_or_else(fits, |search| Use::Search(search.query))
                }
            };
        }
        let Some(entry) = self.tools.get(&call.name).filter(|entry| self.is_shown(&entry.spec.name, context)) else {
            return Use::answer(self.unknown(host, &call.name, context));
        };
        if let Err(error) = entry.check(&call.arguments) {
            return Use::answer(error);
        }
        if !host.authority().allows(entry.spec.effect) {
            return Use::answer(ToolError(format!(
                "{} may not be used for this task: the run, or somebody who passed the task on, may not do what it does",
                call.name
            )));
        }
        let action = action(&entry.spec, &call.arguments);
        match self.tier.consent(entry.spec.effect, context.is_marked) {
            Consent::Auto if self.asking.contains(&entry.spec.name) => Use::AfterPermission(action, entry.spec.effect),
            Consent::Auto => Use::Tool(action, entry.spec.effect),
            Consent::Ask => Use::AfterPermission(action, entry.spec.effect),
            Consent::Deny => Use::answer(ToolError(format!("{} may not be used here", call.name))),
        }
    }

    fn unknown(&self, host: &dyn Host, name: &str, context: &LoopContext) -> ToolError {
        let own = self.tools.names().filter(|name| self.is_shown(&Arc::from(*name), context));
        let known: Vec<&str> = own.chain(self.meta_there(host).map(|(tool, _)| tool.name())).collect();
        let likely = nearest(name, known.iter().copied());
        let there =
            if known.is_empty() { "there are none".to_owned() } else { format!("there are {}", known.join(", ")) };
        ToolError(format!("there is no tool {}{}; {there}", quoted(name), did_you_mean(likely.as_deref())))
    }

    /// Asks people about all calls that need it, at once.
    async fn ask_for_permission(
        &self,
        host: &dyn Host,
        context: &Mutex<LoopContext>,
        calls: &[ToolCall],
        uses: &mut [Use],
    ) -> Result<(), TurnError> {
        let mut asked = Vec::new();
        for (position, (call, one)) in calls.iter().zip(uses.iter()).enumerate() {
            let Use::AfterPermission(action, effect) = one else { continue };
            context.lock().pending_permissions.insert(Arc::clone(&call.id), action.clone());
            host.show(AgentEvent::PermissionAsked { call: Arc::clone(&call.id), action: action.clone() });
            let each_time = self.tier == Tier::Dynamic || self.asking.contains(&call.name);
            let decided = host.approve(&call.id, action.clone(), each_time);
            let effect = *effect;
            asked.push(async move { (position, effect, decided.await) });
        }
        for (position, effect, decided) in join_all(asked).await {
            let call = &calls[position];
            context.lock().pending_permissions.remove(&call.id);
            let (is_granted, reason) = match decided? {
                Permission::Granted(action) => {
                    uses[position] = Use::Tool(action, effect);
                    (true, "".into())
                }
                Permission::Denied { reason } => {
                    let colon = if reason.is_empty() { "" } else { ": " };
                    uses[position] = Use::answer(ToolError(format!("a person did not allow this{colon}{reason}")));
                    (false, reason)
                }
            };
            host.show(AgentEvent::PermissionDecided { call: Arc::clone(&call.id), is_granted, reason });
        }
        Ok(())
    }

    /// Begins what was decided on. What needs an ordinal of the turn takes it here.
    fn begin<'a>(
        &'a self,
        host: &'a dyn Host,
        context: &'a Mutex<LoopContext>,
        summed_up: Option<&SummedUp>,
        position: usize,
        call: &ToolCall,
        one: Use,
    ) -> BoxFuture<'a, Result<Answered, TurnError>> {
        match one {
            Use::Answer(answered) => ready(Ok(answered)).boxed(),
            Use::AfterPermission(action, _) | Use::Tool(action, _) => {
                self.use_tool(host, context, position, &call.name, action)
            }
            Use::Ask(meta::AskUser { question, choices }) => {
                let asked: Json = if choices.is_empty() {
                    question.into()
                } else {
                    serde_json::json!({ "question": question, "choices": choices }).into()
                };
                let id = Arc::clone(&call.id);
                context.lock().pending_questions.insert(Arc::clone(&id), asked.clone());
                host.show(AgentEvent::QuestionAsked { call: Arc::clone(&id), question: asked.clone() });
                let answer = host.ask(&id, asked);
                async move {
                    let answer = answer.await?;
                    context.lock().pending_questions.remove(&id);
                    host.show(AgentEvent::QuestionAnswered { call: id, answer: answer.clone() });
                    Ok(Answered::of(words(&answer)))
                }
                .boxed()
            }
            Use::Delegate(task) => self.delegate(host, context, summed_up, task),
            Use::Make { name, draft, is_change } => {
                let made = host.make_agent(&name, draft, is_change);
                let told = move |made: Result<(), String>| match made {
                    Ok(()) => Answered::of(format!("{name} is ready for tasks")),
                    Err(why) => Answered::error(why),
                };
                made.map(|made| made.map(told)).boxed()
            }
            Use::Handoff(command) => {
                for to in command.goto.targets() {
                    host.show(AgentEvent::Handoff { to: Arc::clone(to) });
                }
                ready(Ok(Answered::of("control passes on"))).boxed()
            }
            Use::AcceptHandoff => ready(Ok(Answered::of(host.handed_over().to_string()))).boxed(),
            Use::Search(query) => {
                let mut context = context.lock();
                let shown = self.tools.names().map(Arc::from).filter(|name| self.is_shown(name, &context)).collect();
                let found = meta::search(&self.tools, &shown, &query);
                let specs = found.iter().filter_map(|name| self.tools.get(name));
                let lines: Vec<String> =
                    specs.map(|entry| format!("{}: {}", entry.spec.name, entry.spec.description)).collect();
                context.activated.extend(found);
                let text = if lines.is_empty() { "no tool has these words".to_owned() } else { lines.join("\n") };
                ready(Ok(Answered::of(text))).boxed()
            }
        }
    }

    fn use_tool<'a>(
        &'a self,
        host: &'a dyn Host,
        context: &Mutex<LoopContext>,
        position: usize,
        name: &str,
        action: Action,
    ) -> BoxFuture<'a, Result<Answered, TurnError>> {
        let Some(entry) = self.tools.get(name) else {
            return ready(Ok(Answered::error("the tool is gone"))).boxed();
        };
        // What people have changed is looked at again.
        if let Err(error) = entry.check(&action.arguments) {
            return ready(Ok(Answered::error(error.0))).boxed();
        }
        let scope = host.scope(&format!("tool-{}-{position}", context.lock().iteration));
        let work = async move {
            let answered =
                match tokio::time::timeout(entry.spec.timeout, entry.tool.call(action.arguments, scope)).await {
                    Ok(Ok(ToolOutput { text, is_untrusted })) => {
                        Answered { text: cut(text, entry.spec.max_output).into(), is_error: false, is_untrusted }
                    }
                    Ok(Err(ToolError(text))) => Answered::error(cut(text, entry.spec.max_output)),
                    Err(_) => Answered::error(format!("{} took longer than {:?}", entry.spec.name, entry.spec.timeout)),
                };
            let is_untrusted = answered.is_untrusted || entry.spec.is_untrusted;
            let answered = Answered { is_untrusted, ..answered };
            Json::of(answered).map_err(|error| TurnError::terminal(error.to_string()))
        };
        let step = host.step(&entry.spec.name, work.boxed());
        async move { recorded(&step.await?) }.boxed()
    }
}

/// What becomes of a call.
enum Use {
    /// Nothing but this answer.
    Answer(Answered),
    /// A tool is used if people allow it.
    AfterPermission(Action, Effect),
    Tool(Action, Effect),
    Ask(meta::AskUser),
    Delegate(meta::Task),
    Make {
        name: String,
        draft: Json,
        is_change: bool,
    },
    Handoff(Box<Command>),
    AcceptHandoff,
    Search(String),
}

impl Use {
    fn answer(error: ToolError) -> Self {
        Self::Answer(Answered::error(error.0))
    }

    /// The command that passes control on.
    fn handoff(&self) -> Option<&Command> {
        match self {
            Self::Handoff(command) => Some(command),
            Self::Answer(_)
            | Self::AfterPermission(..)
            | Self::Tool(..)
            | Self::Ask(_)
            | Self::Delegate(_)
            | Self::Make { .. }
            | Self::AcceptHandoff
            | Self::Search(_) => None,
        }
    }

    /// Whether it may run beside others: it changes nothing that they could see.
    fn is_concurrent(&self) -> bool {
        match self {
            Self::Tool(_, effect) | Self::AfterPermission(_, effect) => match effect {
                Effect::Reads | Effect::Sends => true,
                Effect::Notes | Effect::Writes | Effect::Executes => false,
            },
            Self::Answer(_)
            | Self::Ask(_)
            | Self::Delegate(_)
            | Self::Handoff(_)
            | Self::AcceptHandoff
            | Self::Search(_) => true,
            // Tasks of the same message are for it.
            Self::Make { .. } => false,
        }
    }
}

/// The first handoff that may go ahead; the others are answered. An agent that may not pass control on finishes alone.
async fn check_handoffs(host: &dyn Host, uses: &mut [Use]) -> Result<Option<Command>, TurnError> {
    let mut admitted = None;
    for one in uses {
        let Some(command) = one.handoff().cloned() else { continue };
        if admitted.is_some() {
            *one = Use::answer(ToolError("control goes to one agent, and passes on with another call".to_owned()));
            continue;
        }
        let refusal = match host.handoffs() {
            Handoffs::OrAlone => host.check_handoff(&command).await?,
            Handoffs::Strict | Handoffs::Off => None,
        };
        match refusal {
            None => admitted = Some(command),
            Some(refusal) => {
                let why = format!("control cannot pass on ({refusal}): finish yourself what was asked");
                *one = Use::answer(ToolError(why));
            }
        }
    }
    Ok(admitted)
}

/// Waits for those that run side by side.
async fn settle(
    host: &dyn Host,
    calls: &[ToolCall],
    running: &mut Vec<(usize, BoxFuture<'_, Result<Answered, TurnError>>)>,
    answers: &mut BTreeMap<usize, Answered>,
) -> Result<(), TurnError> {
    let running = std::mem::take(running).into_iter().map(|(position, answer)| async move {
        let answered = answer.await?;
        let call = &calls[position];
        let (call, name) = (Arc::clone(&call.id), Arc::clone(&call.name));
        let (text, is_error) = (Arc::clone(&answered.text), answered.is_error);
        host.show(AgentEvent::ToolAnswered { call, name, text, is_error });
        Ok::<_, TurnError>((position, answered))
    });
    for answered in join_all(running).await {
        let (position, answered) = answered?;
        answers.insert(position, answered);
    }
    Ok(())
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

/// What people are asked about.
fn action(spec: &ToolSpec, arguments: &Json) -> Action {
    let target = spec.target.as_ref().and_then(|argument| arguments.get(&**argument)).map(words);
    Action::new(&spec.name, target.as_deref().unwrap_or_default(), arguments.clone())
}

/// Text as it is, and other values as JSON.
fn words(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// What a step has recorded.
fn recorded<T: serde::de::DeserializeOwned>(value: &Json) -> Result<T, TurnError> {
    value
        .parse()
        .map_err(|error| TurnError::terminal(format!("what the journal has of this step no longer fits: {error}")))
}

/// The beginning and the end of a text that is too long, and between them how much was left out.
fn cut(text: String, max: usize) -> String {
    if text.len() <= max {
        return text;
    }
    let head = text.floor_char_boundary(max / 4 * 3);
    let tail = text.ceil_char_boundary(text.len() - max / 4);
    format!("{}\n[… {} bytes are left out here …]\n{}", &text[..head], tail - head, &text[tail..])
}

impl fmt::Debug for AgentLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentLoop")
            .field("model", &self.model.name())
            .field("tools", &self.tools)
            .finish_non_exhaustive()
    }
}
