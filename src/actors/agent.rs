//! What an agent is, and how it is described to a board.

use std::any::{Any, type_name};
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use callboard_text::{check_name, check_own_name};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::messages::{AgentName, Authority, Command, Effect, Json, MAX_AGENT_NAME, NameError, OnUnknown};

use super::agent_actor::RestartWindow;
use super::context::MAX_NAMESPACE;
use super::floor::Conditions;
use super::router::Description;
use super::turn::{Turn, TurnError};

/// Something with a name that takes a turn and returns a [`Command`]. Up to (5) turns of one agent run at once, so the
/// value is shared; it is rebuilt by its factory after a panic, and what it held is gone then.
///
/// ```
/// use callboard::prelude::*;
///
/// struct Writer { drafts: std::sync::atomic::AtomicU32 }
///
/// impl Agent for Writer {
///     async fn turn(&self, turn: Turn) -> Result<Command, TurnError> {
///         let draft = self.drafts.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
///         Ok(Command::output(format!("draft {draft} of {}", turn.task().body)))
///     }
/// }
/// ```
pub trait Agent: Send + Sync + 'static {
    /// Takes one turn. It is cancelled by dropping the future, at an await.
    fn turn(&self, turn: Turn) -> impl Future<Output = Result<Command, TurnError>> + Send;

    /// Makes an agent that a turn of this one has described ([`Turn::make_agent`]), anew for each turn of that agent, and once
    /// before by the supervisor of the run, to see whether it can be made: so it must not block, nor wait for anything. What it
    /// is made with is what this one has, so it can be given no more.
    ///
    /// # Errors
    /// Why it cannot be made; an agent makes no others unless it says how.
    fn make(&self, draft: &Json) -> Result<AgentSpec, String> {
        let _ = draft;
        Err("this agent makes no others".to_owned())
    }
}

/// What the runtime holds of an agent: one value behind a pointer.
pub(crate) trait AgentValue: Send + Sync {
    fn turn(self: Arc<Self>, turn: Turn) -> BoxFuture<'static, Result<Command, TurnError>>;

    /// Answers a typed request outside any run; gives the request back if it is of another type.
    fn answer(self: Arc<Self>, request: Box<dyn Any + Send>) -> TypedAnswer;

    /// The types of a typed agent.
    fn types(&self) -> Option<(&'static str, &'static str)>;

    /// As [`Agent::make`].
    fn make(&self, _: &Json) -> Result<AgentSpec, String> {
        Err("this agent makes no others".to_owned())
    }
}

/// An agent that another one makes, made.
pub(crate) struct MadeValue {
    pub(crate) value: Arc<dyn AgentValue>,
    pub(crate) namespaces: Option<Arc<[Arc<str>]>>,
}

/// The value that takes a turn of this agent: the host's, or what it makes.
pub(crate) fn made_for(
    agent: &AgentName,
    host: &Arc<dyn AgentValue>,
    drafts: Option<&[Json]>,
) -> Result<MadeValue, String> {
    let drafts = drafts.unwrap_or_default();
    // Without its draft it would be its host.
    if drafts.len() != agent.makers().count() {
        return Err("the run does not know what it is".to_owned());
    }
    made(host, drafts)
}

/// The namespaces that two makers both let an agent have; without a list, one lets it have all that it has itself.
fn granted_by_both(one: Option<Arc<[Arc<str>]>>, other: Option<Arc<[Arc<str>]>>) -> Option<Arc<[Arc<str>]>> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.iter().filter(|name| other.contains(name)).cloned().collect()),
        (one, other) => one.or(other),
    }
}

/// The last of a row of agents each of which makes the next; the first makes the first.
pub(crate) fn made(host: &Arc<dyn AgentValue>, drafts: &[Json]) -> Result<MadeValue, String> {
    let mut made = MadeValue { value: Arc::clone(host), namespaces: None };
    for draft in drafts {
        let spec = made.value.make(draft)?;
        let namespaces = granted_by_both(made.namespaces, spec.conditions().namespaces);
        made = MadeValue { value: spec.factory()()?, namespaces };
    }
    Ok(made)
}

pub(crate) type TypedAnswer = Result<BoxFuture<'static, Result<Box<dyn Any + Send>, TurnError>>, Box<dyn Any + Send>>;

/// The longest name of a project in characters.
const MAX_PROJECT: usize = 128;

/// Makes the agent's value; called at each start.
pub(crate) type Factory = Arc<dyn Fn() -> Result<Arc<dyn AgentValue>, String> + Send + Sync>;

struct Plain<A>(A);

impl<A: Agent> AgentValue for Plain<A> {
    fn turn(self: Arc<Self>, turn: Turn) -> BoxFuture<'static, Result<Command, TurnError>> {
        async move { self.0.turn(turn).await }.boxed()
    }

    fn make(&self, draft: &Json) -> Result<AgentSpec, String> {
        self.0.make(draft)
    }

    fn answer(self: Arc<Self>, request: Box<dyn Any + Send>) -> TypedAnswer {
        Err(request)
    }

    fn types(&self) -> Option<(&'static str, &'static str)> {
        None
    }
}

struct Closure<F>(F);

impl<F, Fut> AgentValue for Closure<F>
where
    F: Fn(Turn) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Command, TurnError>> + Send + 'static,
{
    fn turn(self: Arc<Self>, turn: Turn) -> BoxFuture<'static, Result<Command, TurnError>> {
        (self.0)(turn).boxed()
    }

    fn answer(self: Arc<Self>, request: Box<dyn Any + Send>) -> TypedAnswer {
        Err(request)
    }

    fn types(&self) -> Option<(&'static str, &'static str)> {
        None
    }
}

struct Typed<F, Request, Reply> {
    answer: F,
    types: PhantomData<fn(Request) -> Reply>,
}

impl<F, Fut, Request, Reply> AgentValue for Typed<F, Request, Reply>
where
    F: Fn(Request) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Reply, TurnError>> + Send + 'static,
    Request: DeserializeOwned + Send + 'static,
    Reply: Serialize + Send + 'static,
{
    fn turn(self: Arc<Self>, turn: Turn) -> BoxFuture<'static, Result<Command, TurnError>> {
        async move {
            let reply = (self.answer)(turn.input()?).await?;
            let output = Json::of(reply).map_err(|error| TurnError::terminal(error.to_string()))?;
            Ok(Command { output: Some(output), ..Command::default() })
        }
        .boxed()
    }

    fn answer(self: Arc<Self>, request: Box<dyn Any + Send>) -> TypedAnswer {
        let request = request.downcast::<Request>()?;
        Ok((self.answer)(*request).map(|reply| reply.map(|reply| Box::new(reply) as Box<dyn Any + Send>)).boxed())
    }

    fn types(&self) -> Option<(&'static str, &'static str)> {
        Some((type_name::<Request>(), type_name::<Reply>()))
    }
}

/// What can become an agent: a closure over turns, or a factory of a type that implements [`Agent`] (fallible or not).
/// `Kind` only keeps the cases apart.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot become an agent",
    label = "expected `|turn: Turn| async move {{ … }}` that returns `Result<Command, TurnError>`",
    note = "a closure over turns returns a future of `Result<Command, TurnError>`: end it with `Ok(Command::output(value))`, and `?` converts any error",
    note = "a type that implements `Agent` is given by a factory: `|| MyAgent::new()`; a factory may return a `Result`"
)]
pub trait IntoAgent<Kind>: Send + Sync + 'static {
    #[doc(hidden)]
    fn into_factory(self) -> AgentFactory;
}

/// Makes an agent's value at each start.
#[derive(Clone)]
pub struct AgentFactory(pub(super) Factory);

impl fmt::Debug for AgentFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AgentFactory")
    }
}

#[doc(hidden)]
#[derive(Debug)]
pub enum FromClosure {}
#[doc(hidden)]
#[derive(Debug)]
pub enum FromFactory {}
#[doc(hidden)]
#[derive(Debug)]
pub enum FromFallibleFactory {}

impl<F, Fut> IntoAgent<(FromClosure, Fut)> for F
where
    F: Fn(Turn) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Command, TurnError>> + Send + 'static,
{
    fn into_factory(self) -> AgentFactory {
        let value: Arc<dyn AgentValue> = Arc::new(Closure(self));
        AgentFactory(Arc::new(move || Ok(Arc::clone(&value))))
    }
}

impl<F, A> IntoAgent<(FromFactory, A)> for F
where
    F: Fn() -> A + Send + Sync + 'static,
    A: Agent,
{
    fn into_factory(self) -> AgentFactory {
        AgentFactory(Arc::new(move || Ok(Arc::new(Plain(self())))))
    }
}

impl<F, A, E> IntoAgent<(FromFallibleFactory, A, E)> for F
where
    F: Fn() -> Result<A, E> + Send + Sync + 'static,
    A: Agent,
    E: fmt::Display,
{
    fn into_factory(self) -> AgentFactory {
        AgentFactory(Arc::new(move || match self() {
            Ok(agent) => Ok(Arc::new(Plain(agent))),
            Err(error) => Err(error.to_string()),
        }))
    }
}

/// What an agent may do by itself; an approval policy reads it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Anything that its tools allow.
    #[default]
    Build,
    /// Plans, and has no effects outside.
    Plan,
    /// Reads, and has no effects outside.
    Explore,
    /// Talks; anything that its tools allow.
    General,
}

impl Mode {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Build => "build",
            Self::Plan => "plan",
            Self::Explore => "explore",
            Self::General => "general",
        }
    }

    /// Whether it only analyses: what it asks consent for is approved by itself.
    #[must_use]
    pub const fn is_analysis_only(self) -> bool {
        matches!(self, Self::Plan | Self::Explore)
    }
}

impl Effect {
    /// Whether an agent of this mode has tools with it (SEMANTICS 13): who plans carries nothing out, and who explores leaves
    /// everything as it is.
    #[must_use]
    pub const fn fits(self, mode: Mode) -> bool {
        match (mode, self) {
            (Mode::Build | Mode::General, _) => true,
            (Mode::Plan, Self::Reads | Self::Notes | Self::Sends) => true,
            (Mode::Explore, Self::Reads | Self::Sends) => true,
            (Mode::Plan, Self::Writes | Self::Executes) => false,
            (Mode::Explore, Self::Notes | Self::Writes | Self::Executes) => false,
        }
    }
}

/// An agent's description: its name, how its value is made, and how it is run.
///
/// ```
/// use callboard::prelude::*;
/// use std::time::Duration;
///
/// let spec = AgentSpec::new("reviewer", |turn: Turn| async move { Ok(Command::output("fine")) })
///     .role("developer")
///     .capability("rust")
///     .concurrency(2)
///     .timeout(Duration::from_secs(60));
/// ```
#[derive(Clone)]
pub struct AgentSpec {
    pub(super) name: String,
    pub(super) factory: AgentFactory,
    pub(super) role: Option<Arc<str>>,
    pub(super) capabilities: Vec<Arc<str>>,
    pub(super) projects: Vec<Arc<str>>,
    pub(super) mode: Mode,
    pub(super) has_effects: bool,
    pub(super) authority: Authority,
    pub(super) concurrency: usize,
    pub(super) is_reentrant: bool,
    pub(super) is_blocking: bool,
    pub(super) timeout: Duration,
    pub(super) max_restarts: u32,
    pub(super) restart_window: Duration,
    pub(super) namespaces: Option<Vec<Arc<str>>>,
    pub(super) on_unknown: Option<OnUnknown>,
    pub(super) question_ttl: Option<Duration>,
    pub(super) keeps_agents: bool,
}

impl AgentSpec {
    /// An agent that runs (5) turns at once, (10 minutes) each at most, and may be rebuilt (5 times in 60 s).
    pub fn new<Kind>(name: &str, agent: impl IntoAgent<Kind>) -> Self {
        Self::from_factory(name, agent.into_factory())
    }

    /// A typed agent: answers `board.ask` without JSON; in a run its input and output are the same types as JSON.
    ///
    /// ```
    /// use callboard::prelude::*;
    /// let spec = AgentSpec::typed("doubler", |number: u64| async move { Ok(number * 2) });
    /// ```
    pub fn typed<F, Fut, Request, Reply>(name: &str, answer: F) -> Self
    where
        F: Fn(Request) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Reply, TurnError>> + Send + 'static,
        Request: DeserializeOwned + Send + 'static,
        Reply: Serialize + Send + 'static,
    {
        let value: Arc<dyn AgentValue> = Arc::new(Typed { answer, types: PhantomData });
        Self::from_factory(name, AgentFactory(Arc::new(move || Ok(Arc::clone(&value)))))
    }

    fn from_factory(name: &str, factory: AgentFactory) -> Self {
        Self {
            name: name.to_owned(),
            factory,
            role: None,
            capabilities: Vec::new(),
            projects: Vec::new(),
            mode: Mode::default(),
            has_effects: false,
            authority: Authority::ALL,
            concurrency: 5,
            is_reentrant: true,
            is_blocking: false,
            timeout: Duration::from_secs(600),
            max_restarts: 5,
            restart_window: Duration::from_secs(60),
            namespaces: None,
            on_unknown: None,
            question_ttl: None,
            keeps_agents: false,
        }
    }

    /// The name, checked.
    ///
    /// # Errors
    /// When it breaks the rules for names.
    pub fn name(&self) -> Result<AgentName, NameError> {
        AgentName::new(&self.name)
    }

    /// The name, once everything that others may ask for the agent by keeps the rule for names.
    pub(crate) fn checked_name(&self) -> Result<AgentName, NameError> {
        let check = |kind, names: &[Arc<str>], max| names.iter().try_for_each(|name| check_name(kind, name, max));
        check("role", self.role.as_slice(), MAX_AGENT_NAME)?;
        check("capability", &self.capabilities, MAX_AGENT_NAME)?;
        check("project", &self.projects, MAX_PROJECT)?;
        check("namespace", self.namespaces.as_deref().unwrap_or_default(), MAX_NAMESPACE)?;
        check_own_name("agent", &self.name, MAX_AGENT_NAME)?;
        self.name()
    }

    pub(crate) fn factory(&self) -> &Factory {
        &self.factory.0
    }

    pub(crate) fn window(&self) -> RestartWindow {
        RestartWindow { max: self.max_restarts, within: self.restart_window }
    }

    pub(crate) fn description(&self) -> Description {
        let (role, capabilities, projects) = (self.role.clone(), self.capabilities.clone(), self.projects.clone());
        Description { role, capabilities, projects }
    }

    pub(crate) fn conditions(&self) -> Conditions {
        Conditions {
            slots: self.concurrency,
            is_reentrant: self.is_reentrant,
            is_blocking: self.is_blocking,
            timeout: self.timeout,
            namespaces: self.namespaces.as_ref().map(|granted| granted.as_slice().into()),
            authority: self.authority,
            on_unknown: self.on_unknown,
            question_ttl: self.question_ttl,
            keeps_agents: self.keeps_agents,
        }
    }

    /// What it may cause, by itself or through others: everything unless said. A delegation may cause what everybody in its
    /// chain may, and what its run was granted (SEMANTICS 13).
    #[must_use]
    pub fn authority(mut self, authority: Authority) -> Self {
        self.authority = authority;
        self
    }

    /// What follows when one of its effects that must not be repeated may have happened, and the effect itself does not say
    /// (what the board says; SEMANTICS 14).
    #[must_use]
    pub fn on_unknown(mut self, on_unknown: OnUnknown) -> Self {
        self.on_unknown = Some(on_unknown);
        self
    }

    /// How long its questions to people wait before its turn continues without an answer (without an end; SEMANTICS 9).
    #[must_use]
    pub fn question_ttl(mut self, ttl: Duration) -> Self {
        self.question_ttl = Some(ttl);
        self
    }

    /// Agents that it makes may be kept after their run, if a person approves ([`Turn::keep_agent`]).
    #[must_use]
    pub fn keeps_agents(mut self) -> Self {
        self.keeps_agents = true;
        self
    }

    /// A role that tasks may be addressed to; a name as an agent's is.
    #[must_use]
    pub fn role(mut self, role: &str) -> Self {
        self.role = Some(role.into());
        self
    }

    /// A capability that tasks may be addressed to, a name as an agent's is; may be called again for more.
    #[must_use]
    pub fn capability(mut self, capability: &str) -> Self {
        self.capabilities.push(capability.into());
        self
    }

    /// A project that the agent works on, for those who look for one; may be called again for more.
    #[must_use]
    pub fn project(mut self, project: &str) -> Self {
        self.projects.push(project.into());
        self
    }

    /// What the agent may do by itself.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// It has tools with effects outside: what it asks consent for is not approved by itself, whatever its mode.
    #[must_use]
    pub fn with_effects(mut self, has_effects: bool) -> Self {
        self.has_effects = has_effects;
        self
    }

    /// How many of its turns run at once; at least 1.
    #[must_use]
    pub fn concurrency(mut self, turns: usize) -> Self {
        self.concurrency = turns.max(1);
        self
    }

    /// The agent keeps its one slot while its turn waits: no other turn of it begins meanwhile.
    #[must_use]
    pub fn non_reentrant(mut self) -> Self {
        (self.is_reentrant, self.concurrency) = (false, 1);
        self
    }

    /// The agent blocks its thread: each turn gets one of its own.
    #[must_use]
    pub fn blocking(mut self) -> Self {
        self.is_blocking = true;
        self
    }

    /// How long a turn may run; time in which it waits does not count. A turn is stopped at its next await. One that blocks
    /// its thread, also in [`AgentSpec::blocking`], is found out 5 s after its time: its place is given away then, and what
    /// it still returns is dropped; if it returns before, it has finished.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How often the agent may be rebuilt within a window before it counts as failed.
    #[must_use]
    pub fn restarts(mut self, max: u32, within: Duration) -> Self {
        (self.max_restarts, self.restart_window) = (max, within);
        self
    }

    /// The context namespaces that the agent may use besides its own memory. By default it has that of its run alone, which
    /// is called `run`; in a list it must be named to be granted (SEMANTICS 12).
    #[must_use]
    pub fn namespaces<'a>(mut self, namespaces: impl IntoIterator<Item = &'a str>) -> Self {
        self.namespaces = Some(namespaces.into_iter().map(Into::into).collect());
        self
    }
}

impl fmt::Debug for AgentSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentSpec").field("name", &self.name).field("role", &self.role).finish_non_exhaustive()
    }
}
