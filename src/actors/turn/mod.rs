//! A turn as an agent sees it: its input and view, and its requests to its run.

// `mod.rs` has the turn itself. A file for each kind of request: `delegation`, `people` (questions and consent), `step`, `effect`
// (outside effects), `reservation` (tokens), `dynamic_agents`. `requests`: how a request is sent and answered. `shared`: what the
// worker and the scheduler share with the turn. `stop`: how it is stopped. `error`: why it cannot continue. `programs`: the requests of
// programs that a turn has started.
mod delegation;
mod dynamic_agents;
mod effect;
mod error;
mod people;
mod programs;
mod requests;
mod reservation;
mod shared;
mod step;
mod stop;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::messages::{
    AgentEvent, AgentName, Authority, Chain, Command, EarlierAnswer, Goto, Handoffs, Json, Message, PlacedTurn,
    Refusal, RunMetrics, State, Task, Timestamp, TraceId, TraceParent, TurnId,
};
use crate::supervision::runs::dispatch::ReadyTurn;
use crate::supervision::runs::rules::requests::{TurnReply, TurnRequest};

use super::context::{ContextAccess, Writer, within_host};

pub use delegation::Delegation;
pub use dynamic_agents::TurnAgents;
pub use effect::OutsideEffect;
pub(super) use error::changed;
pub use error::{DelegationError, Terminal, TurnError};
pub use people::{ConsentRequest, TurnPeople};
pub use reservation::{Reservation, Settlement};
#[cfg(test)]
pub(crate) use shared::SIZE_OF_TURN;
pub(super) use shared::{TurnServices, TurnSettings, TurnShared};
pub(super) use stop::StopReason;

use error::{no_longer_wanted, unexpected};
use programs::Block;
use shared::{Uncommon, Waiting};

/// One invocation of an agent inside a run. A cheap clone; clones are the same turn.
#[derive(Clone)]
pub struct Turn {
    shared: Arc<TurnShared>,
    /// The numbers of its requests, if they are those of programs.
    block: Option<Arc<Block>>,
}

impl Turn {
    pub(super) fn of(shared: Arc<TurnShared>) -> Self {
        Self { shared, block: None }
    }

    /// The turn's id: the same for all its attempts, wherever they are made, so it serves as idempotency key outside. Of a turn that is
    /// taken for the run of another board it is the id in that run, but of a turn with a late answer to what such a turn has given away.
    #[must_use]
    pub fn id(&self) -> TurnId {
        let own = self.own_id();
        self.shared.ready.placed().filter(|_| own.number == 1).map_or(own, |placed| placed.turn)
    }

    /// The id of the turn in its own run: another one, if the turn is taken for the run of another board.
    pub(crate) fn own_id(&self) -> TurnId {
        self.shared.ready.id
    }

    /// Returns the number of this attempt of the turn, from 1. A retry raises it; running again after the process ended
    /// does not.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.shared.ready.attempt.0
    }

    /// Returns the name of the agent that takes the turn.
    #[must_use]
    pub fn agent(&self) -> &AgentName {
        &self.shared.ready.agent
    }

    /// The node of the workflow that it works on, as a path: `name`, or `around/name` in a block, with `#2` for the second
    /// iteration of a loop and `[0]` for the first item of a fan-out. `None` outside of a workflow.
    #[must_use]
    pub fn node(&self) -> Option<&str> {
        self.shared.ready.extras.node.as_deref()
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
        let Some(read) = &self.shared.ready.extras.conversation else { return Ok(Vec::new()) };
        read.parse().map_err(|error| {
            TurnError::terminal(format!("what the journal has of the conversation does not fit: {error}"))
        })
    }

    /// Returns the delegations that led to this turn; a handoff adds none.
    #[must_use]
    pub fn chain(&self) -> &Chain {
        &self.shared.ready.chain
    }

    /// Returns the trace of the run, which the log span of the turn and the requests of its delegations carry.
    #[must_use]
    pub fn trace(&self) -> TraceId {
        self.shared.ready.submission.trace
    }

    /// The span of the turn, to pass on to programs that the turn uses: their spans are then parts of it.
    #[must_use]
    pub fn trace_parent(&self) -> TraceParent {
        self.shared.ready.submission.trace_parent(self.own_id().number)
    }

    /// Returns the task that the run was submitted with, also in a turn that works on a delegation.
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

    /// Returns the value to work on: the input of the task, delegation, workflow node or
    /// [`SendTo`](crate::messages::SendTo) that started the turn. After a handoff it is the output of the turn before,
    /// or the input of that turn if it returned no output.
    #[must_use]
    pub fn input_json(&self) -> &Json {
        &self.shared.ready.input
    }

    /// The run's state as the turns before this one left it, with what the runtime itself writes (SEMANTICS 6): in the channel
    /// `context` who had control before as `previous_agent`, and in `metrics` what the run had used when this turn was
    /// admitted, as `tokens_used`, `time_elapsed` (seconds), `retry_count` and, after a use of a tool, `tools_used`. Where the
    /// task has a strict schema, as workflows have, only if that declares these channels.
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
        let ReadyTurn { view, figures, shows_previous_agent, previous_agent, .. } = &*self.shared.ready;
        let previous = previous_agent.as_ref().filter(|_| *shows_previous_agent).map(AgentName::as_str);
        if figures.is_none() && previous.is_none() {
            return view;
        }
        self.shared.uncommon().state.get_or_init(|| view.with_runtime(previous, figures.as_ref()))
    }

    /// The run's state as the turns before this one left it: [`Turn::state`] without what the runtime adds.
    #[must_use]
    pub fn written(&self) -> &State {
        &self.shared.ready.view
    }

    /// In a delegated turn, what the delegations had come to that the asking turn had made before this one.
    #[must_use]
    pub fn earlier_answers(&self) -> &[EarlierAnswer] {
        self.shared.ready.extras.answers.as_deref().unwrap_or_default()
    }

    /// The outside resource that the work is about, such as an issue: that of the delegation that the turn works on
    /// ([`Delegation::reference`]), or of the task of its run if it works on none. `None` if none was given.
    #[must_use]
    pub fn reference(&self) -> Option<&str> {
        self.shared.ready.extras.reference.as_deref()
    }

    /// When the time of the run, or of the delegation that this turn works on, is up.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        self.shared.ready.extras.deadline
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
        let TurnShared { ready, services, settings, .. } = &*self.shared;
        let Uncommon { narrowed, context, .. } = self.shared.uncommon();
        context.get_or_init(|| {
            let namespaces = within_host(settings.namespaces.clone(), narrowed.get().map(|makers| &**makers));
            // That of the run which waits for the turn, if it is taken for another board.
            let run = ready.placed().map_or(ready.id.run, |placed| placed.turn.run);
            let (chain, taint) = (ready.chain.clone(), Arc::clone(self.shared.taint()));
            let writer = Writer { run, chain, taint, waits: Arc::default() };
            Box::new(ContextAccess::new((*services.context).clone(), ready.agent.clone(), namespaces, Some(writer)))
        })
    }

    /// Whether control may go where a command has it go, as far as that can be known now; `None` means that it may. What
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
            match turn.request(ordinal, || TurnRequest::CheckHandoff(Arc::clone(&command))).await? {
                TurnReply::Checked(refusal) => Ok(refusal.map(|refusal| *refusal)),
                reply => Err(unexpected(&reply)),
            }
        }
    }

    /// The command; without its handoff if that would be refused and the run permits that the agent finishes alone.
    pub(super) async fn or_alone(&self, mut command: Command) -> Result<Command, TurnError> {
        let hands_on = matches!(command.goto, Goto::Agent(_) | Goto::Many(_)) && self.node().is_none();
        if !hands_on || self.task().handoffs != Handoffs::OrAlone {
            return Ok(command);
        }
        match self.check_handoff(&command).await? {
            // Nobody meant an agent that is not there.
            None | Some(Refusal::UnknownAgent { .. }) => {}
            Some(_) => command.goto = Goto::Next,
        }
        Ok(command)
    }

    /// What the turn may cause: what its run was granted, and everybody in its chain may cause (SEMANTICS 13).
    #[must_use]
    pub fn authority(&self) -> Authority {
        self.shared.ready.authority
    }

    /// Whether the turn works with untrusted input: its run had read some before, or the turn has since, or an agent to which
    /// it delegated (SEMANTICS 13).
    #[must_use]
    pub fn is_tainted(&self) -> bool {
        self.shared.is_tainted()
    }

    /// Notes that the turn has read untrusted input, such as a page of the web. That taints the turns that come after it, and
    /// the context entries that it writes; reading a tainted entry taints the turn as well.
    pub fn taint(&self, source: &str) {
        self.shared.taint().set(source);
    }

    /// Journals a notice for those who watch the run.
    pub fn notice(&self, text: &str) {
        self.send(u32::MAX, TurnRequest::Notice(text.into()), None);
    }

    /// Journals what the turn has done, in a line for those who look at the run; the last one counts. Line breaks and other white space
    /// become spaces, and a line of more than 200 characters is cut, with `…` as its last one. An empty line is not journaled.
    ///
    /// ```
    /// use callboard::prelude::*;
    /// use callboard::messages::StateRules;
    /// use callboard::supervision::runs::Replay;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let board = Callboard::builder()
    ///     .agent("scout", |turn: Turn| async move {
    ///         turn.summary("found 3 sources");
    ///         Ok(Command::output("done"))
    ///     })
    ///     .start()
    ///     .await?;
    /// let run = board.submit(Task::new("look").to("scout")).await?;
    /// run.result().await?;
    /// let replay = Replay::of(run.history().await?, &StateRules::default())?;
    /// assert_eq!(replay.turn(1).unwrap().summary.as_deref(), Some("found 3 sources"));
    /// # board.shutdown().await;
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    pub fn summary(&self, text: &str) {
        let line = summary_line(text);
        if !line.is_empty() {
            self.send(u32::MAX, TurnRequest::Summary(line.into()), None);
        }
    }

    /// Shows what the agent does to those who watch the run at this moment, with
    /// [`StreamMode::Live`](super::StreamMode). It is not stored.
    pub fn show(&self, event: AgentEvent) {
        self.shared.services.hub.show(self.own_id(), self.agent(), event);
    }

    /// The turn as another board is to take it.
    pub(crate) fn placed(&self) -> PlacedTurn {
        let ReadyTurn { view, previous_agent, figures, extras, .. } = &*self.shared.ready;
        PlacedTurn {
            turn: self.id(),
            view: view.clone(),
            previous_agent: previous_agent.clone(),
            figures: figures.clone(),
            answers: extras.answers.as_deref().and_then(|answers| Json::of(answers).ok()),
            node: extras.node.clone(),
            conversation: extras.conversation.clone(),
        }
    }

    /// Whether an earlier attempt has asked for something here: another board cannot continue with the answers.
    pub(crate) fn has_requests(&self) -> bool {
        self.shared.ready.has_requests()
    }

    /// Whether it may have begun before: in an earlier attempt, or before its run was read back.
    pub(crate) fn may_have_begun(&self) -> bool {
        self.attempt() > 1 || self.shared.ready.is_recovered || self.has_requests()
    }

    /// Waits for other work of the runtime, without permit and slot.
    pub(crate) async fn waiting_for<T>(&self, something: impl Future<Output = T>) -> T {
        let _waiting = Waiting::begin(&self.shared);
        something.await
    }

    /// Waits, without permit and slot, until all that the run has journaled before this turn is as durable as the run asks for. It returns at
    /// once, unless the agent [acts through steps](crate::actors::AgentSpec::acts_through_steps): such an agent waits here before it acts outside
    /// in another way. What it asks its run for, and what it writes into the shared context, waits by itself.
    ///
    /// # Errors
    /// The record that starts the turn was not written: the turn is stopped, and begins again with what the journal has.
    pub async fn committed(&self) -> Result<(), TurnError> {
        let _waiting = Waiting::begin(&self.shared);
        if self.shared.ready.sink.is_committed().await { Ok(()) } else { Err(no_longer_wanted()) }
    }

    /// Whether anybody watches the board; otherwise nothing needs to be shown.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        self.shared.services.hub.is_watched()
    }

    /// The monotonic reading of the board's clock.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.shared.env().now().monotonic
    }
}

/// The longest summary of a turn, in characters.
const MAX_SUMMARY: usize = 200;

/// A text as one line of at most so many characters.
fn summary_line(text: &str) -> String {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if let Some((end, _)) = line.char_indices().nth(MAX_SUMMARY) {
        let last = line[..end].char_indices().last().map_or(0, |(last, _)| last);
        line.truncate(last);
        line.push('…');
    }
    line
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
