//! The description of an agent.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use callboard_text::{check_name, check_own_name};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::actors::context::MAX_NAMESPACE;
use crate::actors::turn::{TurnError, TurnSettings};
use crate::messages::{
    AgentLimit, AgentName, Authority, BoardAgent, Cost, MAX_AGENT_NAME, NameError, OnUnknown, PerDay,
};

use super::into_agent::{IntoAgent, or_alone, typed};
use super::{AgentConfig, Description, Factory, Mode, RestartWindow};

/// The longest name of a project in characters.
const MAX_PROJECT: usize = 128;

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
    name: String,
    factory: Factory,
    role: Option<Arc<str>>,
    capabilities: Vec<Arc<str>>,
    projects: Vec<Arc<str>>,
    pub(in crate::actors) mode: Mode,
    pub(in crate::actors) has_effects: bool,
    authority: Authority,
    concurrency: usize,
    is_reentrant: bool,
    is_blocking: bool,
    acts_through_steps: bool,
    timeout: Duration,
    max_restarts: u32,
    restart_window: Duration,
    namespaces: Option<Vec<Arc<str>>>,
    on_unknown: Option<OnUnknown>,
    question_ttl: Option<Duration>,
    keeps_agents: bool,
    per_day: PerDay,
    per_run: AgentLimit,
    is_dormant: bool,
    /// Another board hosts the agent, and takes its turns.
    pub(in crate::actors) is_elsewhere: bool,
}

/// An agent's description without its name. Agents that are alike share one.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) factory: Factory,
    pub(crate) window: RestartWindow,
    pub(crate) config: Arc<AgentConfig>,
    pub(crate) description: Arc<Description>,
    pub(crate) mode: Mode,
    pub(crate) has_effects: bool,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("description", &self.description).finish_non_exhaustive()
    }
}

impl AgentSpec {
    /// An agent that runs (5) turns at once, (10 minutes) each at most, and may be rebuilt (5 times in 60 s).
    pub fn new<Kind>(name: &str, agent: impl IntoAgent<Kind>) -> Self {
        agent.into_spec(name)
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
        Self::from_factory(name, typed(answer))
    }

    pub(super) fn from_factory(name: &str, factory: Factory) -> Self {
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
            acts_through_steps: false,
            timeout: Duration::from_secs(600),
            max_restarts: 5,
            restart_window: Duration::from_secs(60),
            namespaces: None,
            on_unknown: None,
            question_ttl: None,
            keeps_agents: false,
            per_day: PerDay::default(),
            per_run: AgentLimit::default(),
            is_dormant: false,
            is_elsewhere: false,
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
        self.check_names()?;
        Self::check_name(&self.name)
    }

    /// Checks the name of an agent.
    pub(crate) fn check_name(name: &str) -> Result<AgentName, NameError> {
        check_own_name("agent", name, MAX_AGENT_NAME)?;
        AgentName::new(name)
    }

    /// Checks what others may ask for it by, beside its name.
    pub(crate) fn check_names(&self) -> Result<(), NameError> {
        let check = |kind, names: &[Arc<str>], max| names.iter().try_for_each(|name| check_name(kind, name, max));
        check("role", self.role.as_slice(), MAX_AGENT_NAME)?;
        check("capability", &self.capabilities, MAX_AGENT_NAME)?;
        check("project", &self.projects, MAX_PROJECT)?;
        check("namespace", self.namespaces.as_deref().unwrap_or_default(), MAX_NAMESPACE)
    }

    /// Stands for an agent of another board.
    pub(crate) fn elsewhere(mut self, agent: &BoardAgent) -> Self {
        let BoardAgent { role, capabilities, projects, authority, mode, has_effects, .. } = agent.clone();
        (self.role, self.capabilities, self.projects) = (role, capabilities, projects);
        (self.authority, self.has_effects) = (authority, has_effects);
        self.mode = Mode::named(&mode).unwrap_or_default();
        // Its turns wait for their runs elsewhere, and have a slot only before and after that.
        (self.is_elsewhere, self.concurrency) = (true, 1000);
        self
    }

    /// What a board needs to build it.
    pub(crate) fn source(&self) -> Source {
        let (role, capabilities, projects) = (self.role.clone(), self.capabilities.clone(), self.projects.clone());
        Source {
            factory: Arc::clone(&self.factory),
            window: RestartWindow { max: self.max_restarts, within: self.restart_window },
            config: Arc::new(self.config()),
            description: Arc::new(Description { role, capabilities, projects }),
            mode: self.mode,
            has_effects: self.has_effects,
        }
    }

    /// Whether it has no actor until its first turn.
    pub(crate) fn is_dormant(&self) -> bool {
        self.is_dormant
    }

    /// Whether dynamic agents that it makes may be kept.
    pub(crate) fn may_keep_agents(&self) -> bool {
        self.keeps_agents
    }

    fn config(&self) -> AgentConfig {
        AgentConfig {
            slots: self.concurrency,
            is_reentrant: self.is_reentrant,
            is_blocking: self.is_blocking,
            acts_through_steps: self.acts_through_steps,
            timeout: self.timeout,
            authority: self.authority,
            of_turns: Arc::new(TurnSettings {
                namespaces: self.namespaces.as_ref().map(|granted| granted.as_slice().into()),
                on_unknown: self.on_unknown,
                question_ttl: self.question_ttl,
                keeps_agents: self.keeps_agents,
                per_day: self.per_day,
                per_run: self.per_run,
            }),
        }
    }

    /// What it may cause, by itself or through others: everything by default. A delegation may cause what everybody in its
    /// chain may, and what its run was granted (SEMANTICS 13).
    #[must_use]
    pub fn authority(mut self, authority: Authority) -> Self {
        self.authority = authority;
        self
    }

    /// What follows when one of its effects that must not be repeated may have happened, and the effect itself does not say
    /// (default: as the board is configured; SEMANTICS 14).
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

    /// What its turns, and those of agents that it makes, may use in a day over all runs and boards of the store (no limit; SEMANTICS 2).
    #[must_use]
    pub fn per_day(mut self, limit: PerDay) -> Self {
        self.per_day = limit;
        self
    }

    /// What its turns, and those of agents that it makes, may use together in one run, whoever gave them their tasks: tokens of model calls, and
    /// what these may cost (no limit; SEMANTICS 2). Where money is limited, each model needs prices. A run that the agent of a workflow begins
    /// is a run of its own.
    #[must_use]
    pub fn per_run(mut self, tokens: Option<u64>, cost: Option<Cost>) -> Self {
        self.per_run = AgentLimit { tokens, cost };
        self
    }

    /// Agents that it makes may be kept after their run, if a person approves
    /// ([`TurnAgents::keep`](crate::actors::TurnAgents::keep)).
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

    /// Sets the mode ([`Mode::Build`] by default), which the approval policy reads; it does not restrict the agent's
    /// own code.
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

    /// Where a handoff of the agent would be refused, its turn ends without it: the agent finishes alone with the output and the writes of
    /// its command ([`RunResult::alone`](crate::messages::RunResult)). Only in runs that permit this ([`Handoffs::OrAlone`]), and
    /// not if no agent has the name; in workflows commands follow the graph. Agents with a model do so without it.
    ///
    /// ```
    /// use callboard::prelude::*;
    /// use callboard::messages::Complexity;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let lead = |_: Turn| async move { Ok(Command::output("my own answer").goto("coder")) };
    /// let board = Callboard::builder()
    ///     .with(AgentSpec::new("lead", lead).or_alone())
    ///     .agent("coder", |_: Turn| async move { Ok(Command::output("a better one")) })
    ///     .start()
    ///     .await?;
    /// // A simple task has no handoffs.
    /// let run = board.submit(Task::new("x").to("lead").limits(Complexity::Simple)).await?;
    /// let result = run.result().await?;
    /// assert_eq!((result.output, result.alone.len()), ("my own answer".into(), 1));
    /// # board.shutdown().await;
    /// # Ok::<(), callboard::Error>(()) }).unwrap();
    /// ```
    ///
    /// [`Handoffs::OrAlone`]: crate::messages::Handoffs::OrAlone
    #[must_use]
    pub fn or_alone(mut self) -> Self {
        self.factory = or_alone(self.factory);
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

    /// Declares that the agent acts outside only through its run: by steps, tools, outside effects, delegations, questions, consent and the
    /// shared context. Of a durable run its next turn may then begin while the commit that starts it is being synced, and several such
    /// turns are journaled with one commit. What they ask the run for, what they write into the shared context, and the run's end wait
    /// until all that was before is synced. A crash repeats the turns since the last commit (SEMANTICS 8), up to 64 of them, and one that is
    /// repeated may come to something else: what an agent does besides, such as a request to another service outside of a step, may then
    /// belong to a turn that the journal never has. [`Turn::committed`] waits for the commit.
    ///
    /// ```
    /// use callboard::prelude::*;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let add = |turn: Turn| async move {
    ///     let number: u64 = turn.input()?;
    ///     Ok(Command::output(number + 1))
    /// };
    /// let board = Callboard::builder().with(AgentSpec::new("add", add).acts_through_steps()).start().await?;
    /// assert_eq!(board.complete(Task::new("add").to("add").input(1)).await?.output, 2);
    /// # board.shutdown().await;
    /// # Ok::<(), callboard::Error>(()) }).unwrap();
    /// ```
    ///
    /// [`Turn::committed`]: crate::actors::Turn::committed
    #[must_use]
    pub fn acts_through_steps(mut self) -> Self {
        self.acts_through_steps = true;
        self
    }

    /// How long a turn may run; time in which it waits does not count. A turn is stopped at its next await. One that blocks
    /// its thread, also in [`AgentSpec::blocking`], is noticed 5 s after its time: its permit is given to others then, and what
    /// it still returns is dropped; if it returns before, it has finished.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The agent is dormant: it has no actor, and its factory is not called, until its first turn or typed request. Once it had no work
    /// for a while ([`Timings::sleep_after`](crate::runtime::Timings::sleep_after)), it loses its actor, and its value is dropped, until the next
    /// one: what the value holds is lost, as after a panic. So there may be many more such agents than fit into memory otherwise, of which
    /// few work at a time. Tasks reach it by its name, role and capabilities as they reach others. A factory that fails
    /// is noticed at the first turn, and counts as a rebuild that has failed ([`AgentSpec::restarts`]).
    ///
    /// ```
    /// use callboard::prelude::*;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let clerk = AgentSpec::new("clerk", |_: Turn| async { Ok(Command::output("done")) }).dormant();
    /// let board = Callboard::builder().with(clerk).start().await?;
    /// let state = async || board.tree().await.unwrap().find(&["agents", "clerk"]).unwrap().state.to_string();
    /// assert_eq!(state().await, "dormant");
    /// board.submit(Task::new("x").to("clerk")).await?.result().await?;
    /// assert_eq!(state().await, "running");
    /// # board.shutdown().await;
    /// # Ok::<(), callboard::Error>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn dormant(mut self) -> Self {
        self.is_dormant = true;
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

    /// The context namespaces that it was granted by [`AgentSpec::namespaces`]; `None` if it has no list.
    #[must_use]
    pub fn granted_namespaces(&self) -> Option<&[Arc<str>]> {
        self.namespaces.as_deref()
    }
}

impl fmt::Debug for AgentSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentSpec").field("name", &self.name).field("role", &self.role).finish_non_exhaustive()
    }
}
