//! A turn as an agent sees it: its input and view, and what it may ask its run for.

mod delegation;
mod error;
mod mark;
mod outside;
mod requests;
mod reservation;

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::task::AtomicWaker;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::env::Mutant;
use crate::messages::{
    Action, AgentEvent, AgentName, Authority, Chain, Command, Durability, EarlierAnswer, Effect, Json, KeptAgent,
    Message, OnUnknown, Refusal, RunMetrics, State, Task, Timestamp, TraceId, TurnId,
};
use crate::supervision::runs::decide::denial;
use crate::supervision::runs::dispatch::ReadyTurn;
use crate::supervision::runs::rules::requests::{TurnReply, TurnRequest};
use crate::supervision::runs::run::Record;

use super::context::{ContextAccess, ContextStore, Writer, within_host};
use super::events::Hub;
use super::floor::Seat;
use super::kept::KeptAgents;

pub use delegation::{Delegation, DelegationError};
pub use error::{Terminal, TurnError};
pub(crate) use mark::MarkOfTurn;
pub use outside::OutsideEffect;
pub(super) use requests::changed;
use requests::{Waiting, as_step, check_depth, no_longer_wanted, unexpected};
pub use reservation::{Reservation, SettledTooLate, Settlement};

/// One invocation of an agent inside a run. A cheap clone; clones are the same turn.
#[derive(Clone)]
pub struct Turn {
    pub(super) shared: Arc<TurnShared>,
}

/// What the turn, its worker and its agent's actor share.
pub(super) struct TurnShared {
    pub(super) ready: ReadyTurn,
    store: Arc<ContextStore>,
    hub: Arc<Hub>,
    /// What its agent was granted; without a list, the namespace of its run.
    namespaces: Option<Arc<[Arc<str>]>>,
    /// What its agent says of unknown outcomes.
    on_unknown: Option<OnUnknown>,
    /// How long its agent's questions wait.
    question_ttl: Option<Duration>,
    /// Where agents that it makes are kept, if they may be.
    kept: Option<Arc<KeptAgents>>,
    /// How long finding out what came of an effect may take.
    reconcile_within: Duration,
    /// What it was granted that was made by others, if that is less.
    pub(super) narrowed: OnceLock<Arc<[Arc<str>]>>,
    /// Most turns never ask for these.
    context: OnceLock<Box<ContextAccess>>,
    state: OnceLock<Box<State>>,
    pub(super) seat: Seat,
    /// Requests that wait for the runtime. While there are any, the turn needs neither permit nor slot.
    pub(super) waits: AtomicUsize,
    next_ordinal: AtomicU32,
    /// Results of steps that may not be on disk yet.
    is_unsynced: AtomicBool,
    /// Whether it works with what strangers wrote, if that may have changed since it was admitted.
    mark: OnceLock<Arc<MarkOfTurn>>,
    pub(super) stop: StopSignal,
    /// The attempt's outcome is on its way to the run.
    pub(super) has_reported: AtomicBool,
}

/// Tells a worker to let go of its turn.
#[derive(Default)]
pub(super) struct StopSignal {
    reason: Mutex<Option<StopReason>>,
    is_set: AtomicBool,
    pub(super) waker: AtomicWaker,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// Nobody wants the result.
    Cancelled,
    /// The agent took longer than it may.
    TimedOut,
}

impl StopSignal {
    pub(super) fn set(&self, why: StopReason) {
        self.reason.lock().get_or_insert(why);
        self.is_set.store(true, Ordering::Release);
        self.waker.wake();
    }

    pub(super) fn reason(&self) -> Option<StopReason> {
        if self.is_set.load(Ordering::Acquire) { *self.reason.lock() } else { None }
    }
}

impl TurnShared {
    pub(super) fn new(
        ready: ReadyTurn,
        store: Arc<ContextStore>,
        hub: Arc<Hub>,
        namespaces: Option<Arc<[Arc<str>]>>,
        (on_unknown, question_ttl, reconcile_within): (Option<OnUnknown>, Option<Duration>, Duration),
        kept: Option<Arc<KeptAgents>>,
        seat: Seat,
    ) -> Self {
        Self {
            ready,
            store,
            hub,
            namespaces,
            on_unknown,
            question_ttl,
            kept,
            reconcile_within,
            narrowed: OnceLock::new(),
            context: OnceLock::new(),
            state: OnceLock::new(),
            seat,
            waits: AtomicUsize::new(0),
            next_ordinal: AtomicU32::new(0),
            is_unsynced: AtomicBool::new(false),
            mark: OnceLock::new(),
            stop: StopSignal::default(),
            has_reported: AtomicBool::new(false),
        }
    }

    /// Whether it works with what strangers wrote.
    pub(super) fn is_marked(&self) -> bool {
        self.mark.get().map_or(self.ready.is_marked, |mark| mark.is_set())
    }

    fn mark(&self) -> &Arc<MarkOfTurn> {
        self.mark.get_or_init(|| Arc::new(MarkOfTurn::of(&self.ready)))
    }
}

impl Turn {
    /// The turn's id: the same for all its attempts, so it serves as idempotency key outside.
    #[must_use]
    pub fn id(&self) -> TurnId {
        self.shared.ready.id
    }

    /// Which try of the turn this is, from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.shared.ready.attempt
    }

    /// Whose turn it is.
    #[must_use]
    pub fn agent(&self) -> &AgentName {
        &self.shared.ready.agent
    }

    /// The node of the workflow that it works on, as a path: `name`, or `around/name` in a block, with `#2` for the second
    /// iteration of a loop and `[0]` for the first item of a fan-out. `None` outside of a workflow.
    #[must_use]
    pub fn node(&self) -> Option<&str> {
        self.shared.ready.node.as_deref()
    }

    /// Who had control before, or who delegated.
    #[must_use]
    pub fn previous_agent(&self) -> Option<&AgentName> {
        self.shared.ready.previous_agent.as_ref()
    }

    /// The messages of the runs before this one in its conversation, oldest first (SEMANTICS 15); none if the run belongs to no
    /// conversation, is its first, or the turn works on a delegation. A language model's agent puts them before its task.
    ///
    /// # Errors
    /// The journal has something else in their place.
    pub fn conversation(&self) -> Result<Vec<Message>, TurnError> {
        let Some(read) = &self.shared.ready.conversation else { return Ok(Vec::new()) };
        read.parse().map_err(|error| {
            TurnError::terminal(format!("what the journal has of the conversation does not fit: {error}"))
        })
    }

    /// The delegations that led to this turn.
    #[must_use]
    pub fn chain(&self) -> &Chain {
        &self.shared.ready.chain
    }

    /// The trace that the run belongs to.
    #[must_use]
    pub fn trace(&self) -> TraceId {
        self.shared.ready.submission.trace
    }

    /// The task of the run.
    #[must_use]
    pub fn task(&self) -> &Task {
        &self.shared.ready.submission.task
    }

    /// What the run had taken when the turn was admitted.
    #[must_use]
    pub fn metrics(&self) -> &RunMetrics {
        &self.shared.ready.metrics
    }

    /// What to work on, as a typed value.
    ///
    /// # Errors
    /// A terminal error when the input has another shape: the same input will not fit the next time either.
    pub fn input<T: DeserializeOwned>(&self) -> Result<T, TurnError> {
        self.input_json().parse().map_err(|error| {
            let wanted = std::any::type_name::<T>();
            TurnError::terminal(format!("the input is not a {wanted}: {error}"))
        })
    }

    /// What to work on.
    #[must_use]
    pub fn input_json(&self) -> &Json {
        &self.shared.ready.input
    }

    /// The run's state as the turns before this one left it, with what the runtime itself writes (SEMANTICS 6): in the channel
    /// `context` who had control before as `previous_agent`, and in `metrics` what the run had used when this turn was
    /// admitted, as `tokens_used`, `time_elapsed` (seconds) and `retry_count`. Where the task has a strict schema, as workflows
    /// have, only if that declares these channels.
    ///
    /// ```
    /// use callboard::prelude::*;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let board = Callboard::builder()
    ///     .agent("lead", |turn: Turn| async move {
    ///         turn.reserve(10).await?.settle(Usage::of(7, 1));
    ///         Ok(Command::new().goto("coder"))
    ///     })
    ///     .agent("coder", |turn: Turn| async move {
    ///         let state = turn.state().to_json();
    ///         Ok(Command::output(serde_json::json!([state["context"], state["metrics"]["tokens_used"]])))
    ///     })
    ///     .start()
    ///     .await?;
    /// let result = board.submit(Task::new("fix").to("lead")).await?.result().await?;
    /// assert_eq!(result.output, serde_json::json!([{ "previous_agent": "lead" }, 8]));
    /// # board.shutdown().await;
    /// # Ok::<(), callboard::Error>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn state(&self) -> &State {
        let ReadyTurn { view, figures, shows_previous_agent, previous_agent, .. } = &self.shared.ready;
        let previous = previous_agent.as_ref().filter(|_| *shows_previous_agent).map(AgentName::as_str);
        if figures.is_none() && previous.is_none() {
            return view;
        }
        self.shared.state.get_or_init(|| Box::new(view.with_runtime(previous, *figures)))
    }

    /// The run's state as the turns before this one left it: [`Turn::state`] without what the runtime adds.
    #[must_use]
    pub fn written(&self) -> &State {
        &self.shared.ready.view
    }

    /// In a delegated turn, what the delegations had come to that the asking turn had made before this one.
    #[must_use]
    pub fn earlier_answers(&self) -> &[EarlierAnswer] {
        self.shared.ready.answers.as_deref().unwrap_or_default()
    }

    /// When the time of the run, or of the delegation that this turn works on, is up.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        self.shared.ready.deadline
    }

    /// A channel as a typed value; `None` if nobody wrote it yet.
    ///
    /// # Errors
    /// A terminal error when the channel holds another shape.
    pub fn channel<T: DeserializeOwned>(&self, channel: &str) -> Result<Option<T>, TurnError> {
        let Some(value) = self.state().get(channel) else { return Ok(None) };
        value.parse().map(Some).map_err(|error| TurnError::terminal(format!("channel {channel:?}: {error}")))
    }

    /// The shared context, with this agent's grants; what it writes is stamped with this turn.
    #[must_use]
    pub fn context(&self) -> &ContextAccess {
        let TurnShared { ready, store, namespaces, narrowed, context, .. } = &*self.shared;
        context.get_or_init(|| {
            let namespaces = within_host(namespaces.clone(), narrowed.get().map(|makers| &**makers));
            let writer = Writer { run: ready.id.run, chain: ready.chain.clone(), mark: Arc::clone(self.shared.mark()) };
            Box::new(ContextAccess::new((**store).clone(), ready.agent.clone(), namespaces, Some(writer)))
        })
    }

    /// Does something and journals its result: a repeated attempt gets the recorded result instead of doing it again. A
    /// crash between the work and the record repeats the work, so an effect outside happens at least once: it must be
    /// idempotent, for which [`Turn::id`] and the step's name serve as key. What must not be repeated is done with
    /// [`Turn::effect`].
    ///
    /// Requests of a turn match by their order: the work of a step must not itself ask the turn for anything but
    /// reservations.
    ///
    /// # Errors
    /// What the work returns; [`FailureKind::ChangedTurn`](crate::messages::FailureKind::ChangedTurn) when an earlier attempt asked
    /// for something else in this place.
    pub fn step<T, E>(
        &self,
        name: &str,
        work: impl Future<Output = Result<T, E>> + Send,
    ) -> impl Future<Output = Result<T, TurnError>> + Send
    where
        T: Serialize + DeserializeOwned,
        E: Into<TurnError>,
    {
        let ordinal = self.take_ordinal();
        let name: Arc<str> = name.into();
        async move {
            self.check_not_in_step("a step")?;
            let recorded = self.shared.ready.records.get(&ordinal).filter(|_| !Mutant::RepeatStep.is_injected());
            match recorded.map(|record| &**record) {
                Some(Record::Step { name: recorded, value, is_marked }) if *recorded == name => {
                    if *is_marked {
                        self.shared.mark().inherit();
                    }
                    return value
                        .parse()
                        .map_err(|error| changed(format!("the result of step {name:?} no longer fits: {error}")));
                }
                Some(Record::StepStarted { name: recorded }) if *recorded == name => {}
                // It was declared not to be repeatable then.
                Some(Record::StepFailed { name: recorded, failure, .. }) if *recorded == name => {
                    return Err(TurnError { failure: failure.clone() });
                }
                Some(Record::Once(once)) if once.intent.name == name => {}
                Some(record) => {
                    return Err(changed(format!("it asks for the step {name:?} where the journal has {record:?}")));
                }
                None => {}
            }
            if self.shared.has_reported.load(Ordering::Acquire) {
                // A clone that outlives its turn: what it did would be kept nowhere.
                return Err(no_longer_wanted());
            }
            let is_durable = self.shared.ready.durability == Durability::Sync;
            if is_durable && self.shared.is_unsynced.swap(false, Ordering::AcqRel) {
                // Boxed: most steps do without it, and wait long with the room for it.
                Box::pin(self.request(ordinal, TurnRequest::StartStep(Arc::clone(&name)))).await?;
            }
            let env = &self.shared.store.env;
            if env.has_faults() {
                let begun = env.slow_fault_point_of("step.begin", self.agent().as_str());
                Box::pin(begun).await.map_err(TurnError::transient)?;
            }
            let result = as_step(self.id(), work).await.map_err(Into::into)?;
            let value = Json::of(&result).map_err(|error| TurnError::terminal(format!("step {name:?}: {error}")))?;
            let request = TurnRequest::FinishStep(name, value);
            check_depth(&request)?;
            self.shared.is_unsynced.store(true, Ordering::Release);
            self.send(ordinal, request, None);
            Ok(result)
        }
    }

    /// Asks people and waits for the answer, over restarts too: as long as it takes, or as long as the agent's
    /// [`question_ttl`](super::AgentSpec::question_ttl) says.
    ///
    /// # Errors
    /// [`Refusal::QuestionExpired`] if the agent's questions expire and nobody answered in time. When an earlier attempt asked for
    /// something else in this place.
    pub fn ask(&self, question: impl Into<Json>) -> impl Future<Output = Result<Json, TurnError>> + Send {
        self.ask_for_at_most(question.into(), self.shared.question_ttl)
    }

    /// As [`Turn::ask`], with a time for this question: when it is over, also while no process runs, the question is withdrawn.
    ///
    /// ```
    /// use callboard::messages::Refusal;
    /// use callboard::prelude::*;
    /// use std::time::Duration;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let board = Callboard::builder()
    ///     .agent("painter", |turn: Turn| async move {
    ///         let colour = match turn.ask_within("Which colour?", Duration::from_millis(1)).await {
    ///             Ok(colour) => colour,
    ///             Err(error) if matches!(error.refusal(), Some(Refusal::QuestionExpired { .. })) => "white".into(),
    ///             Err(error) => return Err(error),
    ///         };
    ///         Ok(Command::output(colour))
    ///     })
    ///     .start()
    ///     .await?;
    /// let run = board.submit(Task::new("paint")).await?;
    /// assert_eq!(run.result().await?.output, "white");
    /// # board.shutdown().await;
    /// # Ok::<(), callboard::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Refusal::QuestionExpired`] if nobody answered in time; as [`Turn::ask`].
    pub fn ask_within(
        &self,
        question: impl Into<Json>,
        time: Duration,
    ) -> impl Future<Output = Result<Json, TurnError>> + Send {
        self.ask_for_at_most(question.into(), Some(time))
    }

    fn ask_for_at_most(
        &self,
        question: Json,
        ttl: Option<Duration>,
    ) -> impl Future<Output = Result<Json, TurnError>> + Send {
        let ordinal = self.take_ordinal();
        async move {
            match self.request(ordinal, TurnRequest::Ask { question: question.clone(), ttl }).await? {
                TurnReply::Answered(answer) => Ok(answer),
                TurnReply::QuestionExpired => Err(Refusal::QuestionExpired { question: question.to_string() }.into()),
                reply => Err(unexpected(&reply)),
            }
        }
    }

    /// Asks for consent to an action, as the approval policy says, and waits for the decision. Execute the action that
    /// comes back: it is the one that was approved.
    ///
    /// # Errors
    /// [`Refusal::Denied`] or [`Refusal::ApprovalExpired`], which end the turn's branch as denied if passed on with `?`.
    pub fn approve(&self, action: Action) -> impl Future<Output = Result<Action, TurnError>> + Send {
        self.ask_consent(action, false)
    }

    /// As [`Turn::approve`]; what people have approved for the whole run does not count.
    ///
    /// # Errors
    /// As there.
    pub fn approve_each_time(&self, action: Action) -> impl Future<Output = Result<Action, TurnError>> + Send {
        self.ask_consent(action, true)
    }

    fn ask_consent(&self, action: Action, each_time: bool) -> impl Future<Output = Result<Action, TurnError>> + Send {
        let ordinal = self.take_ordinal();
        async move {
            let asked = Mutant::RunUnapproved.is_injected().then(|| action.clone());
            match self.request(ordinal, TurnRequest::Approve { action, each_time }).await? {
                TurnReply::Decided(decision, action) if decision.approved => Ok(asked.unwrap_or(action)),
                TurnReply::Decided(decision, action) => Err(denial(&action, &decision).into()),
                reply => Err(unexpected(&reply)),
            }
        }
    }

    /// Whether control may go where a command has it go, as far as that can be known now; `None` says that it may. What
    /// is refused here and ended without a `goto` is among the turns that finished alone
    /// ([`RunResult::alone`](crate::messages::RunResult)).
    ///
    /// # Errors
    /// When an earlier attempt asked for something else in this place.
    pub fn check_handoff(
        &self,
        command: &Command,
    ) -> impl Future<Output = Result<Option<Refusal>, TurnError>> + Send + use<> {
        let (ordinal, turn, command) = (self.take_ordinal(), self.clone(), Arc::new(command.clone()));
        async move {
            match turn.request(ordinal, TurnRequest::CheckHandoff(command)).await? {
                TurnReply::Checked(refusal) => Ok(refusal),
                reply => Err(unexpected(&reply)),
            }
        }
    }

    /// Makes an agent for the rest of the run, which others of the run call by this name. Its maker makes it of what `draft`
    /// says ([`Agent::make`](super::Agent::make)), anew for each of its turns, and it works in the place of the agent that
    /// its makers came from. It may cause nothing that this turn may not (SEMANTICS 13).
    ///
    /// # Errors
    /// [`Refusal::AgentNotMade`]: the name is in use, the run has (16) of them, or its maker cannot make it.
    pub fn make_agent(
        &self,
        name: &str,
        draft: Json,
    ) -> impl Future<Output = Result<AgentName, TurnError>> + Send + use<> {
        self.have_agent(name, draft, false)
    }

    /// Changes an agent that this turn's agent has made. Its turns under way finish as they were.
    ///
    /// # Errors
    /// [`Refusal::AgentNotMade`]: it is not there, was made by another one, or cannot be made so.
    pub fn change_agent(
        &self,
        name: &str,
        draft: Json,
    ) -> impl Future<Output = Result<AgentName, TurnError>> + Send + use<> {
        self.have_agent(name, draft, true)
    }

    /// Asks people to keep an agent that this turn's agent has made, as `draft` describes it: once it is approved, it is an agent
    /// of the board that lasts over runs and restarts, and is called by its name, or as `maker~name`. It stays what it is: it
    /// works in the place of its host, of whose value it is made for each turn, and may cause what this turn may at most. It is
    /// stored with what was approved, also if people have changed that. [`AgentSpec::keeps_agents`](super::AgentSpec) permits
    /// it for the host (SEMANTICS 13).
    ///
    /// # Errors
    /// [`Refusal::AgentNotMade`] as for [`Turn::change_agent`], or where agents may not be kept; [`Refusal::Denied`] or
    /// [`Refusal::ApprovalExpired`].
    pub fn keep_agent(
        &self,
        name: &str,
        draft: Json,
    ) -> impl Future<Output = Result<AgentName, TurnError>> + Send + use<> {
        let (turn, name) = (self.clone(), Arc::<str>::from(name));
        let is_fit = self.change_agent(&name, draft.clone());
        let authority = self.authority();
        let effects = Effect::ALL.into_iter().filter(|effect| authority.allows(*effect)).map(Effect::name);
        let asked = serde_json::json!({ "draft": draft, "may_cause": effects.collect::<Vec<_>>() });
        let action = Action::new("keep_agent", &name, asked);
        // The order of the calls counts, so all are numbered before the first is awaited.
        let (consent, change) = (self.take_ordinal(), self.take_ordinal());
        async move {
            let not_kept = |why: &str| Refusal::AgentNotMade { name: name.to_string(), why: why.to_owned() };
            let Some(kept) = &turn.shared.kept else {
                return Err(not_kept("agents of this host are not kept: AgentSpec::keeps_agents permits it").into());
            };
            is_fit.await?;
            let action = match turn.request(consent, TurnRequest::Approve { action, each_time: true }).await? {
                TurnReply::Decided(decision, action) if decision.approved => action,
                TurnReply::Decided(decision, action) => return Err(denial(&action, &decision).into()),
                reply => return Err(unexpected(&reply)),
            };
            let Some(draft) = action.arguments.get("draft").cloned().map(Json::from) else {
                return Err(not_kept("what was approved has no draft").into());
            };
            let mut drafts = turn.shared.ready.made.as_deref().unwrap_or_default().to_vec();
            drafts.push(draft.clone());
            let request = TurnRequest::MakeAgent { name: Arc::clone(&name), draft, is_change: true };
            let agent = match turn.request(change, request).await? {
                TurnReply::Made(made) => made?,
                reply => return Err(unexpected(&reply)),
            };
            let at = turn.shared.store.env.now().wall;
            let (authority, run) = (turn.authority(), turn.id().run);
            let keeping = kept.keep(KeptAgent { agent: agent.clone(), drafts, authority, run, at });
            turn.waiting_for(keeping).await.map_err(|error| TurnError::transient(error.to_string()))?;
            Ok(agent)
        }
    }

    fn have_agent(
        &self,
        name: &str,
        draft: Json,
        is_change: bool,
    ) -> impl Future<Output = Result<AgentName, TurnError>> + Send + use<> {
        let (ordinal, turn, name) = (self.take_ordinal(), self.clone(), name.into());
        async move {
            match turn.request(ordinal, TurnRequest::MakeAgent { name, draft, is_change }).await? {
                TurnReply::Made(made) => Ok(made?),
                reply => Err(unexpected(&reply)),
            }
        }
    }

    /// What the turn may cause: what its run was granted, and everybody in its chain may cause (SEMANTICS 13).
    #[must_use]
    pub fn authority(&self) -> Authority {
        self.shared.ready.authority
    }

    /// Whether the turn works with what strangers wrote: its run had read it before, or the turn has since, or somebody to
    /// whom it delegated (SEMANTICS 13).
    #[must_use]
    pub fn is_marked(&self) -> bool {
        self.shared.is_marked()
    }

    /// Says that the turn has read what strangers wrote, such as a page of the web. Turns that come after it are marked, and
    /// context entries that it writes; entries that are marked do it by being read.
    pub fn mark(&self, source: &str) {
        self.shared.mark().set(source);
    }

    /// Tells whoever watches the run.
    pub fn notice(&self, text: &str) {
        self.send(u32::MAX, TurnRequest::Notice(text.into()), None);
    }

    /// Shows what the agent does to those who watch the run just now, with [`StreamMode::Live`](super::events::StreamMode).
    /// It is kept nowhere.
    pub fn show(&self, event: AgentEvent) {
        self.shared.hub.show(self.id(), self.agent(), event);
    }

    /// Waits for something else that the runtime does, without permit and slot.
    pub(crate) async fn waiting_for<T>(&self, something: impl Future<Output = T>) -> T {
        let _waiting = Waiting::begin(&self.shared);
        something.await
    }

    /// Whether anybody watches the board: what nobody would see need not be shown.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        self.shared.hub.is_watched()
    }

    /// The monotonic reading of the board's clock.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.shared.store.env.now().monotonic
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn")
            .field("id", &self.id())
            .field("agent", self.agent())
            .field("attempt", &self.attempt())
            .finish_non_exhaustive()
    }
}
