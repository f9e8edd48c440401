//! Tasks, and their submissions.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::state::Schema;
use super::{
    AgentName, Authority, Chain, Complexity, ConversationId, Durability, Json, Limits, PlacedTurn, Plan, RunId,
    Timestamp, TraceId, TraceParent,
};

mod form;

/// Whether agents may pass control on in a run. Delegations are not switched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Handoffs {
    /// They may; an agent that cannot delegate, and can continue without, finishes alone ([`RunResult::alone`](super::RunResult)).
    #[default]
    OrAlone,
    /// They may; one that cannot ends its branch as refused.
    Strict,
    /// They may not: each agent finishes alone what it was given.
    Off,
}

/// What is asked: a body, an input, and the limits to work within.
///
/// ```
/// use callboard::messages::{Complexity, Task};
/// use serde_json::json;
/// let task = Task::new("Summarise the design").to("researcher").input(json!({ "path": "docs" })).limits(Complexity::Medium);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "form::Form", into = "form::Form")]
pub struct Task {
    /// What to do, in words.
    pub body: Arc<str>,
    /// Who should do it: an agent's name, a role or a capability. Without it there must be exactly one agent.
    pub to: Option<Arc<str>>,
    /// What to work on; the body if none is given.
    pub input: Option<Json>,
    /// What the run may use at most; by default the board's classifier chooses, and without one those of a complex task hold.
    pub limits: Option<Limits>,
    /// How long the run may take from its acceptance; `None` sets no end. When the time is over, the run ends as
    /// refused ([`Refusal::DeadlinePassed`](super::Refusal::DeadlinePassed)).
    pub deadline: Option<Duration>,
    /// When the submission and every turn are acknowledged; the board's default if none is given.
    pub durability: Option<Durability>,
    /// The channels of the run's state and their reducers, in place of those of [`Task::plan`] or, without a plan, of
    /// [`Schema::swarm`]. It is no JSON Schema: neither the input nor the output is checked by it, and nothing of it is checked
    /// when the task is submitted. What a turn writes is checked when the turn ends: a write to a channel that a strict schema
    /// does not declare, or of a value that the channel's reducer refuses, is not applied, and fails the turn without another
    /// attempt ([`FailureKind::InvalidCommand`](super::FailureKind::InvalidCommand)).
    pub schema: Option<Arc<Schema>>,
    /// The plan, which decides which turns may start next; in a swarm, only the agents' commands do.
    pub plan: Option<Arc<Plan>>,
    /// The run's id, chosen by the caller: submitting the same id again answers with the run that exists.
    pub id: Option<RunId>,
    /// Whether agents may hand control to others; by default they may ([`Handoffs::OrAlone`]).
    pub handoffs: Handoffs,
    /// It is untrusted input, so the run is tainted from its start (SEMANTICS 13).
    pub is_untrusted: bool,
    /// What agents may cause in the run, whatever they may cause elsewhere.
    pub grant: Authority,
    /// How long an approval of the run waits before silence denies it; the board's time if none is given. A policy's own time
    /// comes first.
    pub approval_ttl: Option<Duration>,
    /// The conversation that the run belongs to. Absent in the journaled task: an event of its own names it
    /// ([`RunEvent::ConversationEntered`](super::RunEvent::ConversationEntered)).
    pub conversation: Option<ConversationId>,
    /// Who gives the task away from outside of the board ([`Task::from_agent`]). It is not read from JSON.
    pub from_agent: Option<AgentName>,
    /// An outside resource that the task is about, such as an issue, for [`Turn::reference`](crate::actors::Turn::reference).
    pub reference: Option<Arc<str>>,
    /// The span of another program that the run belongs to. It decides about nothing but the spans of the run
    /// ([`Submission::trace_parent`]), and is not in JSON.
    pub trace_parent: Option<Box<TraceParent>>,
    /// The turn of a run of another board that the task is: boards on one store set it. It is not in JSON.
    pub placed: Option<Box<PlacedTurn>>,
}

impl Task {
    /// Creates a task with this body and the defaults of all other fields.
    #[must_use]
    pub fn new(body: &str) -> Self {
        Self {
            body: body.into(),
            to: None,
            input: None,
            limits: None,
            deadline: None,
            durability: None,
            schema: None,
            plan: None,
            id: None,
            handoffs: Handoffs::default(),
            is_untrusted: false,
            grant: Authority::ALL,
            approval_ttl: None,
            conversation: None,
            from_agent: None,
            reference: None,
            trace_parent: None,
            placed: None,
        }
    }

    /// Sets who should do it: an agent's name, else a role, else a capability.
    #[must_use]
    pub fn to(mut self, target: &str) -> Self {
        self.to = Some(target.into());
        self
    }

    /// Sets what to work on; without it, that is the body.
    #[must_use]
    pub fn input(mut self, input: impl Into<Json>) -> Self {
        self.input = Some(input.into());
        self
    }

    /// Sets what the run may use at most: [`Limits`], or a [`Complexity`] for the preset of that class.
    #[must_use]
    pub fn limits(mut self, limits: impl Into<Limits>) -> Self {
        self.limits = Some(limits.into());
        self
    }

    /// Sets how long the run may take, from its acceptance to its end.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Sets how long an approval of the run waits before silence denies it (the board's
    /// [`approval_ttl`](crate::Builder::approval_ttl)). It holds for questions about lost outcomes as well (SEMANTICS 9, 14).
    #[must_use]
    pub fn approval_ttl(mut self, ttl: Duration) -> Self {
        self.approval_ttl = Some(ttl);
        self
    }

    /// Sets how durable the submission and every turn have to be before they are acknowledged.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }

    /// Sets the channels of the run's state and their reducers. They replace those of the plan or of a swarm.
    #[must_use]
    pub fn schema(mut self, schema: Schema) -> Self {
        self.schema = Some(Arc::new(schema));
        self
    }

    /// Sets the plan, which decides which turns may start next; a [`Workflow`](crate::workflow::Workflow) makes tasks that have it.
    #[must_use]
    pub fn plan(mut self, plan: Arc<Plan>) -> Self {
        self.plan = Some(plan);
        self
    }

    /// Sets whether agents may pass control on.
    ///
    /// ```
    /// use callboard::prelude::*;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let board = Callboard::builder()
    ///     .agent("lead", |turn: Turn| async move {
    ///         let handoff = Command::output("write it").goto("writer");
    ///         match turn.check_handoff(&handoff).await? {
    ///             None => Ok(handoff),
    ///             Some(refusal) => Ok(Command::output(format!("written by myself, because {}", refusal.name()))),
    ///         }
    ///     })
    ///     .agent("writer", |_: Turn| async move { Ok(Command::output("written")) })
    ///     .start()
    ///     .await?;
    /// let run = board.submit(Task::new("a letter").to("lead").handoffs(Handoffs::Off)).await?;
    /// let result = run.result().await?;
    /// assert_eq!(result.output, "written by myself, because HandoffsOff");
    /// assert_eq!(result.alone[0].agent.as_str(), "lead");
    /// # board.shutdown().await;
    /// # Ok::<(), callboard::Error>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn handoffs(mut self, handoffs: Handoffs) -> Self {
        self.handoffs = handoffs;
        self
    }

    /// Sets that the task is untrusted input, such as from a chat or a page of the web: what language models do for it with
    /// effects outside, people are asked about.
    #[must_use]
    pub fn untrusted(mut self) -> Self {
        self.is_untrusted = true;
        self
    }

    /// Sets which effects agents may cause in the run.
    #[must_use]
    pub fn grant(mut self, grant: Authority) -> Self {
        self.grant = grant;
        self
    }

    /// Makes the run part of a conversation: it begins when the runs submitted to it before have ended, sees their messages
    /// ([`Turn::conversation`](crate::actors::Turn::conversation)), and leaves its own (SEMANTICS 15). The deadline includes
    /// the wait.
    ///
    /// ```
    /// use callboard::messages::{ConversationId, Message};
    /// use callboard::prelude::*;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let board = Callboard::builder()
    ///     .agent("counter", |turn: Turn| async move { Ok(Command::output(turn.conversation()?.len())) })
    ///     .start()
    ///     .await?;
    /// let talk = ConversationId::new("ann")?;
    /// for earlier in [0, 2, 4] {
    ///     let run = board.submit(Task::new("How many messages are there?").conversation(&talk)).await?;
    ///     assert_eq!(run.result().await?.output, earlier);
    /// }
    /// # board.shutdown().await;
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn conversation(mut self, id: &ConversationId) -> Self {
        self.conversation = Some(id.clone());
        self
    }

    /// Whom its conversation belongs to, if this agent takes the first turn.
    pub(crate) fn owner(&self, agent: &AgentName) -> Arc<str> {
        match &self.plan {
            Some(plan) => format!("workflow {}", plan.name).into(),
            None => agent.into(),
        }
    }

    /// Makes the run a delegation from outside (SEMANTICS 11). The front end that accepts the task sets the name, of the caller that
    /// it has authenticated. The task is in the inbox of its target, and its statuses are in the inbox of that name; the id of the
    /// delegation is [`RequestId::of_run`](super::RequestId::of_run). Choose a name that no agent of the board has: an agent of that
    /// name would find the statuses among its own.
    ///
    /// ```
    /// use callboard::messages::{AgentName, RequestId, Status};
    /// use callboard::prelude::*;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let board = Callboard::builder().agent("coder", |_: Turn| async { Ok(Command::output("2.3.1")) }).start().await?;
    /// let task = Task::new("Which version runs?").to("coder").from_agent(AgentName::new("ann")?);
    /// let run = board.submit(task).await?;
    /// run.result().await?;
    /// let status = board.status(RequestId::of_run(run.id())).await?.expect("it was delegated");
    /// assert_eq!((status.status, status.to_agent.as_str()), (Status::Complete, "ann"));
    /// assert_eq!(status.body, "2.3.1");
    /// # board.shutdown().await;
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn from_agent(mut self, name: AgentName) -> Self {
        self.from_agent = Some(name);
        self
    }

    /// Sets an outside resource that the task is about, such as an issue.
    #[must_use]
    pub fn reference(mut self, reference: &str) -> Self {
        self.reference = Some(reference.into());
        self
    }

    /// Chooses the run's id, so that a submission can be repeated safely: [`RunId::of_hash`] makes one of the hash of a request.
    #[must_use]
    pub fn id(mut self, id: RunId) -> Self {
        self.id = Some(id);
        self
    }
}

/// A task as it was accepted: what is journaled first in every run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Submission {
    /// The run that works on the task: the id that the task chose, or a new one.
    pub run: RunId,
    /// The trace of the run. A run that a turn submits keeps that of its run, and a fork that of the original; any other has a trace
    /// of its own, with the UUID of the run.
    pub trace: TraceId,
    /// The task, with the limits that the classifier chose if it had none.
    pub task: Task,
    /// The agent that the target resolved to: it takes the first turn.
    pub agent: AgentName,
    /// Whom the names in the plan stand for, in the order of [`Plan::cast`]; empty without a plan.
    pub cast: Vec<AgentName>,
    /// Where the run comes from; empty unless a turn submitted it.
    pub chain: Chain,
    /// When the board accepted the task, by the wall clock.
    pub at: Timestamp,
}

impl Submission {
    /// The agent or workflow that it goes to, which a conversation belongs to.
    #[must_use]
    pub fn owner(&self) -> Arc<str> {
        self.task.owner(&self.agent)
    }

    /// Who is notified of it as the requester of a delegation from outside. A run that a turn has submitted counts against the limits of that
    /// requester, and is none of their delegations.
    pub(crate) fn requester(&self) -> Option<&AgentName> {
        self.task.from_agent.as_ref().filter(|_| self.chain.is_empty() && self.task.placed.is_none())
    }

    /// Returns the span of a turn, or of the run itself for the number 0: for programs that are used on the way, whose spans are
    /// then parts of it. The run is in the trace of [`Task::trace_parent`], or else in one with the UUID of [`Submission::trace`].
    #[must_use]
    pub fn trace_parent(&self, turn: u32) -> TraceParent {
        let own = || TraceParent { trace: self.trace.0.as_u128(), span: 0, is_sampled: true, state: None };
        let parent = self.task.trace_parent.as_deref().cloned().unwrap_or_else(own);
        let span = xxh3_64(format!("{}/{turn}/span", self.run).as_bytes());
        TraceParent { span: span.max(1), ..parent }
    }

    /// Returns the span of a call of a model by a turn, below that of the turn: of the first try, if there are several
    /// ([`TraceParent::next_try`]). `call` is the number of the call's reservation.
    #[must_use]
    pub fn call_trace_parent(&self, turn: u32, call: u32) -> TraceParent {
        let span = xxh3_64(format!("{}/{turn}/call/{call}/span", self.run).as_bytes());
        TraceParent { span: span.max(1), ..self.trace_parent(turn) }
    }

    /// Whether the run is a part of a trace that another program has begun.
    pub(crate) fn is_in_other_trace(&self) -> bool {
        // A run that a turn has begun is in the trace of its first run.
        self.task.trace_parent.as_ref().is_some_and(|parent| parent.trace != self.trace.0.as_u128())
    }

    /// Returns what the run may use at most: the task's limits, or those of a complex task if it has none.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        static USUAL: Limits = Limits::of(Complexity::Complex);
        self.task.limits.as_ref().unwrap_or(&USUAL)
    }
}
