//! A turn as an agent sees it: its input and view, and what it may ask its run for.

use std::any::Any;
use std::cell::Cell;
use std::error::Error;
use std::fmt;
use std::future::{Future, IntoFuture, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::task::AtomicWaker;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use crate::env::{Bug, is_planted};
use crate::messages::{
    Action, AgentEvent, AgentName, Answer, Authority, Chain, Command, ContextStrategy, Durability, EarlierAnswer,
    Failure, FailureKind, Json, MAX_JSON_DEPTH, Order, Outcome, Refusal, RequestId, RunMetrics, State, Task, Timestamp,
    TraceId, TurnId, Usage,
};
use crate::supervision::runs::decide::denial;
use crate::supervision::runs::dispatch::ReadyTurn;
use crate::supervision::runs::inbox::{Inbox, Input, TurnReply, TurnRequest};
use crate::supervision::runs::run::Record;

use super::agent::granted_by_both;
use super::context::{ContextAccess, ContextStore, Writer};
use super::events::Hub;
use super::floor::Seat;

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
    /// What its agent was granted.
    namespaces: Option<Arc<[Arc<str>]>>,
    /// What it was granted that was made by others, if that is less.
    pub(super) narrowed: OnceLock<Arc<[Arc<str>]>>,
    /// Most turns never ask for it.
    context: OnceLock<Box<ContextAccess>>,
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
        seat: Seat,
    ) -> Self {
        Self {
            ready,
            store,
            hub,
            namespaces,
            narrowed: OnceLock::new(),
            context: OnceLock::new(),
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

    /// Who had control before, or who delegated.
    #[must_use]
    pub fn previous_agent(&self) -> Option<&AgentName> {
        self.shared.ready.previous_agent.as_ref()
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

    /// The run's state as the turns before this one left it.
    #[must_use]
    pub fn state(&self) -> &State {
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
            let namespaces = granted_by_both(namespaces.clone(), narrowed.get().cloned());
            let writer = Writer { run: ready.id.run, chain: ready.chain.clone(), mark: Arc::clone(self.shared.mark()) };
            Box::new(ContextAccess::new((**store).clone(), ready.agent.clone(), namespaces, Some(writer)))
        })
    }

    /// Does something once: its result is journaled, and a repeated attempt gets the recorded result instead of doing it
    /// again. A crash between the work and the record repeats the work, so effects outside are at least once; give them
    /// [`Turn::id`] and the step's name as idempotency key.
    ///
    /// Requests of a turn match by their order: the work of a step must not itself ask the turn for anything but
    /// reservations.
    ///
    /// # Errors
    /// What the work returns; [`FailureKind::ChangedTurn`] when an earlier attempt asked for something else in this place.
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
            let recorded = self.shared.ready.records.get(&ordinal).filter(|_| !is_planted(Bug::RepeatStep));
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
                Some(record) => return Err(changed(format!("step {name:?} stands where {record:?} was"))),
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

    /// Gives a task to another agent (a name, role or capability) and waits for its answer. Delegations that are open at
    /// the same time run side by side. While it waits, the turn holds neither permit nor slot.
    ///
    /// The order of the calls counts, not the order of the awaits: that is how a repeated attempt finds its answers.
    ///
    /// ```
    /// use callboard::prelude::*;
    /// use futures::future::try_join_all;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let board = Callboard::builder()
    ///     .agent("lead", |turn: Turn| async move {
    ///         let parts = ["one", "two"].map(|part| turn.delegate("helper", part).tokens(1_000));
    ///         let answers: Json = try_join_all(parts).await?.into_iter().collect();
    ///         Ok(Command::output(answers))
    ///     })
    ///     .agent("helper", |turn: Turn| async move { Ok(Command::output(format!("{} done", turn.input::<String>()?))) })
    ///     .start()
    ///     .await?;
    /// let run = board.submit(Task::new("both").to("lead")).await?;
    /// assert_eq!(run.result().await?.output, serde_json::json!(["one done", "two done"]));
    /// # board.shutdown().await;
    /// # Ok::<(), callboard::Error>(()) }).unwrap();
    /// ```
    #[must_use = "a delegation is asked for when it is awaited"]
    pub fn delegate(&self, to: &str, body: &str) -> Delegation {
        Delegation { turn: self.clone(), ordinal: self.take_ordinal(), order: Order::new(to, body), asking: None }
    }

    /// Asks people and waits for the answer, over restarts too.
    ///
    /// # Errors
    /// When an earlier attempt asked for something else in this place.
    pub fn ask(&self, question: impl Into<Json>) -> impl Future<Output = Result<Json, TurnError>> + Send {
        let (ordinal, question) = (self.take_ordinal(), question.into());
        async move {
            match self.request(ordinal, TurnRequest::Ask(question)).await? {
                TurnReply::Answered(answer) => Ok(answer),
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

    pub(crate) fn ask_consent(
        &self,
        action: Action,
        each_time: bool,
    ) -> impl Future<Output = Result<Action, TurnError>> + Send {
        let ordinal = self.take_ordinal();
        async move {
            let asked = is_planted(Bug::RunUnapproved).then(|| action.clone());
            match self.request(ordinal, TurnRequest::Approve { action, each_time }).await? {
                TurnReply::Decided(decision, action) if decision.approved => Ok(asked.unwrap_or(action)),
                TurnReply::Decided(decision, action) => Err(denial(&action, &decision).into()),
                reply => Err(unexpected(&reply)),
            }
        }
    }

    /// Sets tokens aside for a model call. Settle the reservation with what the provider reports, or release it if the call
    /// was not sent, also before an error ends the attempt: one that is dropped stays spent, because the call may have
    /// been made.
    ///
    /// # Errors
    /// [`Refusal::TokenBudget`].
    pub async fn reserve(&self, tokens: u64) -> Result<Reservation, TurnError> {
        self.reserve_for(tokens, false).await
    }

    /// As [`Turn::reserve`], for what goes on over attempts: those that an attempt before has set aside are taken over.
    pub(crate) async fn reserve_for(&self, tokens: u64, goes_on: bool) -> Result<Reservation, TurnError> {
        match self.request(u32::MAX, TurnRequest::Reserve { tokens, goes_on }).await? {
            TurnReply::Reserved(Ok(number)) => Ok(Reservation { turn: self.clone(), number, is_new: true }),
            TurnReply::TakenOver(number) => Ok(Reservation { turn: self.clone(), number, is_new: false }),
            TurnReply::Reserved(Err(refusal)) => Err(refusal.into()),
            reply => Err(unexpected(&reply)),
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

    /// Once a step is answered from the journal, what its work asked for would be missing from the order of requests.
    fn check_not_in_step(&self, what: &str) -> Result<(), TurnError> {
        if IN_STEP.get() != Some(self.id()) {
            return Ok(());
        }
        Err(TurnError::terminal(format!("{what} inside the work of a step; make it before the step, or after it")))
    }

    /// The reading of the board's clock.
    pub(crate) fn now(&self) -> Duration {
        self.shared.store.env.now().monotonic
    }

    fn take_ordinal(&self) -> u32 {
        self.shared.next_ordinal.fetch_add(1, Ordering::Relaxed)
    }

    fn send(&self, ordinal: u32, request: TurnRequest, reply: Option<oneshot::Sender<TurnReply>>) {
        let ready = &self.shared.ready;
        let id = RequestId { turn: ready.id, ordinal };
        let is_marked = self.shared.is_marked();
        ready.inbox.hand_in(Input::Request { id, attempt: ready.attempt, is_marked, request, reply }).work();
    }

    /// Asks and waits without permit and slot. A supervisor that restarts meanwhile is asked again: it finds the request
    /// recorded, or not yet made.
    async fn request(&self, ordinal: u32, request: TurnRequest) -> Result<TurnReply, TurnError> {
        if !matches!(request, TurnRequest::Reserve { .. } | TurnRequest::StartStep(_)) {
            self.check_not_in_step("a request")?;
        }
        check_depth(&request)?;
        let _waiting = Waiting::begin(&self.shared);
        loop {
            let (reply, answer) = oneshot::channel();
            let mut reply = Some(reply);
            // Nobody waits for the answer to a repetition; the sender of a lost request is dropped with it.
            for _ in 0..self.pass(Leg::There, &request).await? {
                self.send(ordinal, request.clone(), reply.take());
            }
            drop(reply);
            match answer.await {
                Ok(TurnReply::Changed(difference)) => return Err(changed(difference)),
                Ok(TurnReply::Gone) => return Err(no_longer_wanted()),
                Ok(reply) if self.pass(Leg::Back, &request).await? > 0 => return Ok(reply),
                Ok(_) | Err(_) => tokio::task::yield_now().await,
            }
        }
    }

    /// Passes a fault point with a request or its answer; how many times it arrives.
    async fn pass(&self, leg: Leg, request: &TurnRequest) -> Result<usize, TurnError> {
        let env = &self.shared.store.env;
        match leg.point_of(request) {
            Some((point, target)) if env.has_faults() => {
                let subject = target.unwrap_or(self.agent().as_str());
                Box::pin(env.message_point(point, subject)).await.map_err(TurnError::transient)
            }
            Some(_) | None => Ok(1),
        }
    }
}

/// Where a request is: on its way to its run, or its answer on the way back.
#[derive(Clone, Copy)]
enum Leg {
    There,
    Back,
}

impl Leg {
    /// The fault point of a request that others answer; its subject, if that is not the asking agent.
    fn point_of(self, request: &TurnRequest) -> Option<(&'static str, Option<&str>)> {
        let (there, back, target) = match request {
            TurnRequest::Delegate(order) => ("delegation.dispatch", "delegation.reply", Some(&*order.to)),
            TurnRequest::Ask(_) => ("question.dispatch", "question.reply", None),
            TurnRequest::Approve { .. } => ("approval.dispatch", "approval.reply", None),
            TurnRequest::StartStep(_)
            | TurnRequest::FinishStep(..)
            | TurnRequest::Reserve { .. }
            | TurnRequest::Settle(_)
            | TurnRequest::CheckHandoff(_)
            | TurnRequest::MakeAgent { .. }
            | TurnRequest::Mark(_)
            | TurnRequest::Notice(_) => return None,
        };
        Some(match self {
            Self::There => (there, target),
            Self::Back => (back, target),
        })
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

pub(super) fn changed(text: String) -> TurnError {
    TurnError { failure: Failure::new(FailureKind::ChangedTurn, text) }
}

thread_local! {
    /// The turn whose step this thread works on just now.
    static IN_STEP: Cell<Option<TurnId>> = const { Cell::new(None) };
}

/// Marks the work of a step while it is polled.
async fn as_step<T>(turn: TurnId, work: impl Future<Output = T>) -> T {
    struct Left(Option<TurnId>);
    impl Drop for Left {
        fn drop(&mut self) {
            IN_STEP.set(self.0);
        }
    }
    let mut work = pin!(work);
    poll_fn(|context| {
        let _left = Left(IN_STEP.replace(Some(turn)));
        work.as_mut().poll(context)
    })
    .await
}

fn no_longer_wanted() -> TurnError {
    TurnError::transient("the attempt is no longer wanted")
}

/// What is journaled must be readable again.
fn check_depth(request: &TurnRequest) -> Result<(), TurnError> {
    if !request.is_too_deep() {
        return Ok(());
    }
    let what = match request {
        TurnRequest::FinishStep(name, _) => format!("the result of step {name:?}"),
        TurnRequest::Delegate(order) => format!("the input of the delegation to {:?}", order.to),
        TurnRequest::Approve { action, .. } => format!("the arguments of {:?}", action.action),
        TurnRequest::MakeAgent { name, .. } => format!("what the agent {name:?} is"),
        TurnRequest::CheckHandoff(_) => "what is handed on".to_owned(),
        _ => "the question".to_owned(),
    };
    Err(TurnError::terminal(format!("{what} may be nested {MAX_JSON_DEPTH} levels deep at most")))
}

fn unexpected(reply: &TurnReply) -> TurnError {
    TurnError::terminal(format!("the run answered something else: {reply:?}"))
}

/// Counts a wait for as long as it lives.
struct Waiting<'a>(&'a TurnShared);

impl<'a> Waiting<'a> {
    fn begin(shared: &'a TurnShared) -> Self {
        shared.waits.fetch_add(1, Ordering::Relaxed);
        Self(shared)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waits.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether a turn works with what strangers wrote. What it reads of the shared context may change it.
#[derive(Debug)]
pub(crate) struct MarkOfTurn {
    is_set: AtomicBool,
    /// The run knows that the turn has read something itself: a fork copies the turn, and not what else had marked the run.
    is_told: AtomicBool,
    turn: RequestId,
    attempt: u32,
    inbox: Arc<Inbox>,
}

impl MarkOfTurn {
    fn of(ready: &ReadyTurn) -> Self {
        let ReadyTurn { id, attempt, is_marked, inbox, .. } = ready;
        let turn = RequestId { turn: *id, ordinal: u32::MAX };
        let (is_set, is_told) = (AtomicBool::new(*is_marked), AtomicBool::new(false));
        Self { is_set, is_told, turn, attempt: *attempt, inbox: Arc::clone(inbox) }
    }

    pub(super) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    /// By what others have read: of that the run knows already.
    fn inherit(&self) {
        self.is_set.store(true, Ordering::Release);
    }

    /// Marks the turn, and tells its run before whatever the turn asks for next.
    pub(super) fn set(&self, source: &str) {
        self.is_set.store(true, Ordering::Release);
        if !self.is_told.swap(true, Ordering::AcqRel) {
            let (id, attempt, request) = (self.turn, self.attempt, TurnRequest::Mark(source.into()));
            self.inbox.hand_in(Input::Request { id, attempt, is_marked: true, request, reply: None }).work();
        }
    }
}

/// A delegation; asked for when it is first polled.
pub struct Delegation {
    turn: Turn,
    ordinal: u32,
    order: Order,
    asking: Option<BoxFuture<'static, Result<Json, DelegationError>>>,
}

impl Delegation {
    /// What to work on; the body if none is given.
    #[must_use]
    pub fn input(mut self, input: impl Into<Json>) -> Self {
        self.order.input = input.into();
        self
    }

    /// What the delegated turns may reserve together (default: what the asking turn may). It lies within the asking turn's
    /// own budget, and several delegations that run side by side share that.
    #[must_use]
    pub fn tokens(mut self, tokens: u64) -> Self {
        self.order.tokens = Some(tokens);
        self
    }

    /// How long the answer may take (default: as long as the run may). After that the delegated turns are cancelled, and
    /// the answer is [`DelegationError::NotFinished`].
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.order.deadline = Some(deadline);
        self
    }

    /// What the delegated turns see of this turn's state (default: nothing).
    #[must_use]
    pub fn sees(mut self, strategy: ContextStrategy) -> Self {
        self.order.sees = strategy;
        self
    }

    /// A place outside that the task is about, such as an issue.
    #[must_use]
    pub fn reference(mut self, reference: &str) -> Self {
        self.order.reference = Some(reference.into());
        self
    }
}

impl Delegation {
    /// Gives the task away without waiting. The answer comes to this agent with a turn of its own, whose input is a
    /// [`LateAnswer`](crate::messages::LateAnswer), also after a restart; until then the branch stays open. The turn that
    /// gave it away ends without handing control on.
    ///
    /// # Errors
    /// [`DelegationError::Refused`], and when an earlier attempt asked for something else in this place.
    pub async fn detach(mut self) -> Result<RequestId, DelegationError> {
        self.order.is_detached = true;
        let id = RequestId { turn: self.turn.id(), ordinal: self.ordinal };
        let request = TurnRequest::Delegate(self.order);
        match self.turn.request(self.ordinal, request).await.map_err(DelegationError::Turn)? {
            TurnReply::Done => Ok(id),
            TurnReply::Delegated { answer: Err(refusal), .. } => Err(DelegationError::Refused(refusal)),
            reply => Err(DelegationError::Turn(unexpected(&reply))),
        }
    }
}

impl Future for Delegation {
    type Output = Result<Json, DelegationError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { turn, ordinal, order, asking } = &mut *self;
        asking.get_or_insert_with(|| delegated(turn.clone(), *ordinal, order.clone()).boxed()).poll_unpin(context)
    }
}

async fn delegated(turn: Turn, ordinal: u32, order: Order) -> Result<Json, DelegationError> {
    let agent = Arc::clone(&order.to);
    let answer = match turn.request(ordinal, TurnRequest::Delegate(order)).await.map_err(DelegationError::Turn)? {
        TurnReply::Delegated { answer: Ok(answer), is_marked } => {
            if is_marked {
                turn.shared.mark().inherit();
            }
            answer
        }
        TurnReply::Delegated { answer: Err(refusal), .. } => return Err(DelegationError::Refused(refusal)),
        reply => return Err(DelegationError::Turn(unexpected(&reply))),
    };
    let Answer { outcome, output } = answer;
    if outcome.is_finished() { Ok(output) } else { Err(DelegationError::NotFinished { agent, outcome, output }) }
}

impl fmt::Debug for Delegation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delegation").field("turn", &self.turn).field("order", &self.order).finish_non_exhaustive()
    }
}

/// Why a delegation has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DelegationError {
    /// The guard refused it.
    #[error(transparent)]
    Refused(Refusal),
    /// The delegated branch ended otherwise than finished.
    #[error("the delegation to {agent} did not finish: {outcome}")]
    NotFinished {
        /// The target as it was asked for.
        agent: Arc<str>,
        /// How the branch ended.
        outcome: Outcome,
        /// What it had to say all the same.
        output: Json,
    },
    /// The asking turn itself cannot go on.
    #[error("{0}")]
    Turn(TurnError),
}

/// Tokens set aside for one call.
#[derive(Debug)]
#[must_use = "settle it with what the provider reports"]
pub struct Reservation {
    turn: Turn,
    number: u32,
    /// No attempt before has used any of it.
    is_new: bool,
}

impl Reservation {
    /// The call has reported what it used. It is told at once; await it to know that it counts.
    pub fn settle(self, usage: Usage) -> Settlement {
        Settlement::begin(self, Some(usage))
    }

    /// What it was for has not been begun: the tokens are given back, unless an attempt before had begun it.
    pub(crate) fn release_if_new(self) {
        if self.is_new {
            drop(self.release());
        }
    }

    /// The call is known not to have been sent: the tokens are given back. It is told at once; await it to know that it
    /// counts.
    pub fn release(self) -> Settlement {
        Settlement::begin(self, None)
    }
}

/// What became of a reservation, on its way to the run. It need not be awaited: one that comes too late is logged as well.
#[derive(Debug)]
pub struct Settlement {
    reservation: Reservation,
    usage: Option<Usage>,
    told: oneshot::Receiver<TurnReply>,
}

/// The run had ended, or this board works on it no more, when a call reported what it used: this is in no journal, and the
/// run's result counts the whole reservation as spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the call of turn {turn} has reported after its run had ended; its whole reservation stays counted as spent")]
pub struct SettledTooLate {
    /// The turn that the call was made for.
    pub turn: TurnId,
}

impl Settlement {
    fn begin(reservation: Reservation, usage: Option<Usage>) -> Self {
        let told = Self::tell(&reservation, usage);
        Self { reservation, usage, told }
    }

    fn tell(reservation: &Reservation, usage: Option<Usage>) -> oneshot::Receiver<TurnReply> {
        let (reply, told) = oneshot::channel();
        reservation.turn.send(reservation.number, TurnRequest::Settle(usage), Some(reply));
        told
    }
}

impl IntoFuture for Settlement {
    type Output = Result<(), SettledTooLate>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { reservation, usage, mut told } = self;
        async move {
            let _waiting = Waiting::begin(&reservation.turn.shared);
            loop {
                match told.await {
                    Ok(TurnReply::Gone) => return Err(SettledTooLate { turn: reservation.turn.id() }),
                    Ok(_) => return Ok(()),
                    // Its supervisor was restarted; to be told twice changes nothing.
                    Err(_) => tokio::task::yield_now().await,
                }
                told = Self::tell(&reservation, usage);
            }
        }
        .boxed()
    }
}

/// Why an attempt failed. Any error becomes a transient one through `?`; wrap it in [`Terminal`] to say that trying again
/// is of no use.
///
/// ```
/// use callboard::{Terminal, TurnError};
/// fn read() -> Result<String, TurnError> {
///     let number: u32 = "12x".parse().map_err(Terminal)?; // will not parse next time either
///     Ok(number.to_string())
/// }
/// assert_eq!(read().unwrap_err().to_string(), "terminal error: invalid digit found in string");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct TurnError {
    pub(super) failure: Failure,
}

/// An error that will not pass: the turn ends without another attempt.
#[derive(Debug)]
pub struct Terminal<E>(pub E);

impl TurnError {
    /// An error that may pass.
    #[must_use]
    pub fn transient(text: impl Into<String>) -> Self {
        Self { failure: Failure::new(FailureKind::Transient, text.into()) }
    }

    /// An error that will not pass.
    #[must_use]
    pub fn terminal(text: impl Into<String>) -> Self {
        Self { failure: Failure::new(FailureKind::Terminal, text.into()) }
    }

    /// What the agent is made of has broken: it counts as a panic does, and the agent is rebuilt.
    #[cfg_attr(not(all(unix, feature = "process")), expect(dead_code, reason = "no other agent has parts that break"))]
    pub(crate) fn broken(text: impl Into<String>) -> Self {
        Self { failure: Failure::new(FailureKind::Panic, text.into()) }
    }

    /// What kind of failure it is.
    #[must_use]
    pub fn kind(&self) -> FailureKind {
        self.failure.kind
    }

    /// What the guard or a person said, if that is why the turn cannot go on.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        self.failure.refusal.as_deref()
    }
}

impl fmt::Display for TurnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.failure, f)
    }
}

impl fmt::Debug for TurnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.failure, f)
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for TurnError {
    fn from(error: E) -> Self {
        let any: &dyn Any = &error;
        let (refusal, delegation) = match any.downcast_ref::<DelegationError>() {
            Some(DelegationError::Refused(refusal)) => (Some(refusal), None),
            Some(DelegationError::Turn(error)) => return error.clone(),
            delegation => (any.downcast_ref::<Refusal>(), delegation),
        };
        let kind = match (refusal, delegation) {
            (Some(refusal), _) if refusal.is_denial() => FailureKind::Denied,
            (Some(_), _) => FailureKind::Refused,
            (None, Some(_)) => FailureKind::Terminal,
            (None, None) => FailureKind::Transient,
        };
        let refusal = refusal.cloned().map(Box::new);
        Self { failure: Failure { kind, text: with_sources(&error), refusal } }
    }
}

impl<E: Error> From<Terminal<E>> for TurnError {
    fn from(Terminal(error): Terminal<E>) -> Self {
        Self { failure: Failure::new(FailureKind::Terminal, with_sources(&error)) }
    }
}

/// The error's text, with what caused it.
fn with_sources(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
